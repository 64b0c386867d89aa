"""What the named policies make of the same call, and what nothing lowers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_policies import (
    POLICIES,
    AccessMode,
    CostTier,
    DangerLevel,
    Decision,
    Facts,
    Mode,
    Outcome,
    PathVerdict,
    Policy,
    Reason,
    RunState,
    decide,
)

JAILED = Facts(
    tool_name="tool",
    access_mode=AccessMode.EXECUTE,
    danger=DangerLevel.MEDIUM,
    workspace_mode="transaction",
    judged_after=True,
    plan_hash="hash",
    display_bytes=10,
)


def decided(policy: str = "standard", **changed: Any) -> Decision:
    return decide(dataclasses.replace(JAILED, policy=POLICIES[policy], **changed))


def codes(decision: Decision) -> list[str]:
    return [reason.code for reason in decision.reasons]


@pytest.mark.parametrize("access", AccessMode)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("standard", {"readonly": "allow 0", "network": "allow 1", "write": "ask 2"}),
        ("coding", {"readonly": "allow 0"}),
        ("ci", {"readonly": "allow 0"}),
        ("strict", {"readonly": "allow 0", "network": "ask 2", "write": "ask 2"}),
    ],
)
def test_a_policy_says_what_the_jail_is_worth(
    access: AccessMode, policy: str, expected: dict[str, str]
) -> None:
    """Under `standard` the levels are the words of the tool; only where the jail is trusted not."""
    rest = "allow 1" if POLICIES[policy].trust_the_jail else "ask 3"
    decision = decided(policy, access_mode=access, danger=DangerLevel.SAFE)
    said = f"{decision.outcome.value} {decision.level}"
    assert said == expected.get(access.value, rest)


@pytest.mark.parametrize(
    "changed",
    [
        {"network": "host"},
        {"network": "loopback"},
        {"waived": ("net_blocked",)},
        {"workspace_mode": "direct", "judged_after": False},
        {"workspace_mode": None},
        {"write_folders": ("/srv/out",)},
        {"permission_tier": 3},
        {"display_bytes": 10**9},
        {"run": RunState(loop="ask", loop_text="again")},
        {
            "paths": (
                PathVerdict(
                    path_as_given="a.pem",
                    resolved="/ws/a.pem",
                    role="read",
                    inside=True,
                    denied=False,
                    reasons=(Reason(code="path_read_asks", text="asks"),),
                    level_floor=3,
                    links=(),
                ),
            )
        },
    ],
)
@pytest.mark.parametrize("access", [AccessMode.EXECUTE, AccessMode.MIXED])
def test_the_jail_is_trusted_only_whole(changed: dict[str, Any], access: AccessMode) -> None:
    """Whatever leaves the box, or cannot be undone, is worth a question under every policy."""
    assert decided("coding", access_mode=access).outcome is Outcome.ALLOW
    asked = decided("coding", access_mode=access, **changed)
    assert (asked.outcome, asked.level) == (Outcome.ASK, 3)
    denied = decided("ci", access_mode=access, **changed)
    assert (denied.outcome, denied.denied_by) == (Outcome.DENY, "nobody")
    assert codes(denied)[-1] == "nobody_to_ask"


def test_a_dangerous_tool_of_an_unknown_pack_is_trusted_to_the_jail_as_well() -> None:
    """Its effects are judged before they are kept, like everybody's."""
    changed = {"danger": DangerLevel.CRITICAL, "permission_level": 3, "permission_tier": 2}
    assert decided("standard", **changed).level == 3
    assert decided("coding", **changed).level == 1
    assert "jail_trusted" in codes(decided("coding", **changed))


@pytest.mark.parametrize("mode", ["scratch", "read_only"])
def test_a_workspace_that_keeps_nothing_is_trusted_too(mode: str) -> None:
    """What cannot change anything needs no judge."""
    assert decided("coding", workspace_mode=mode, judged_after=False).level == 1


def test_strict_asks_for_what_is_only_logged_elsewhere() -> None:
    """Level 1 is a person's business there; level 0 is not."""
    assert decided("strict", access_mode=AccessMode.READONLY, danger=DangerLevel.SAFE).level == 0
    logged = decided("strict", access_mode=AccessMode.NETWORK, danger=DangerLevel.SAFE)
    assert (logged.outcome, codes(logged)[-1]) == (Outcome.ASK, "policy_asks")
    assert logged.remember_options == ("session",)


# -- ceilings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"mode": Mode.PLAN}, "mode_plan"),
        ({"mode": Mode.PLAN, "access_mode": AccessMode.WRITE}, "mode_plan"),
        ({"mode": Mode.PLAN, "access_mode": AccessMode.MIXED}, "mode_plan"),
        ({"mode": Mode.PLAN, "access_mode": AccessMode.NETWORK}, None),
        ({"mode": Mode.PLAN, "access_mode": AccessMode.READONLY}, None),
        ({"mode": Mode.EXPLORE}, "mode_explore"),
        ({"mode": Mode.EXPLORE, "access_mode": AccessMode.WRITE}, "mode_explore"),
        ({"mode": Mode.EXPLORE, "workspace_mode": "read_only"}, "mode_explore"),
        ({"mode": Mode.EXPLORE, "workspace_mode": "scratch"}, None),
        ({"mode": Mode.EXPLORE, "access_mode": AccessMode.READONLY}, None),
        (
            {"mode": Mode.EXPLORE, "access_mode": AccessMode.READONLY, "cost": CostTier.HIGH},
            "mode_explore",
        ),
        ({"mode": Mode.BUILD, "cost": CostTier.HIGH}, None),
        ({"phase": "investigating"}, "phase"),
        ({"phase": "verifying"}, None),
        ({"phase": "no such phase"}, "phase"),
        ({"phase": "investigating", "task_kind": "investigate"}, "phase"),
        ({"permission_tier": 4}, "tier_never"),
        ({"max_tier": 1}, "tier"),
        ({"max_tier": 2}, None),
        ({"max_tier": 0, "access_mode": AccessMode.READONLY}, None),
        ({"max_tier": 1, "access_mode": AccessMode.READONLY, "permission_tier": 2}, "tier"),
    ],
)
def test_a_ceiling_leaves_out_what_is_above_it(changed: dict[str, Any], code: str | None) -> None:
    """No approval, no grant and no trust reaches above a ceiling."""
    for policy in POLICIES:
        decision = decided(policy, granted_first_use=True, **changed)
        assert (decision.denied_by == "ceiling") is (code is not None), (policy, decision)
        assert code is None or code in codes(decision)


def test_the_policys_own_ceilings_count_as_well() -> None:
    """The operator's ceiling holds whatever the caller's context says."""
    low = dataclasses.replace(POLICIES["coding"], max_cost=CostTier.LOW)
    cost = decide(dataclasses.replace(JAILED, policy=low, cost=CostTier.MEDIUM))
    assert (cost.denied_by, codes(cost)[0]) == ("ceiling", "cost")
    assert decide(dataclasses.replace(JAILED, policy=low, cost=CostTier.LOW)).level == 1
    planning = dataclasses.replace(POLICIES["coding"], mode=Mode.PLAN)
    assert decide(dataclasses.replace(JAILED, policy=planning)).denied_by == "ceiling"
    edits = dataclasses.replace(POLICIES["coding"], max_tier=1)
    assert decide(dataclasses.replace(JAILED, policy=edits, max_tier=3)).denied_by == "ceiling"


def test_modes_are_ordered_from_the_strictest() -> None:
    """An agent that starts another can hand on no more than it has."""
    assert Mode.BUILD.stricter(Mode.PLAN) is Mode.PLAN
    assert Mode.PLAN.stricter(Mode.EXPLORE) is Mode.EXPLORE
    assert [cost.weight for cost in CostTier] == [0.0, 1.0, 2.0, 3.0]


# -- the run ------------------------------------------------------------------------------


def test_what_the_run_has_come_to_denies_before_anything_else() -> None:
    """A policy that did not load, or a loop, is no reason to ask somebody."""
    stopped = decided(run=RunState(problem="the budget is spent"), mode=Mode.PLAN)
    assert (stopped.denied_by, codes(stopped)[0]) == ("run_state", "run_stopped")
    loop = decided("coding", run=RunState(loop="deny", loop_text="the same call again"))
    assert (loop.denied_by, codes(loop)[0]) == ("run_state", "loop")
    assert loop.remedy == "another call than the same again"
    nudged = decided("coding", run=RunState(loop="nudge", loop_text="the same call again"))
    assert (nudged.outcome, codes(nudged)[0]) == (Outcome.ALLOW, "loop")


def test_a_person_who_was_asked_too_often_is_not_asked() -> None:
    """Who is asked ten times in ten seconds says yes to the eleventh without reading."""
    decision = decided(run=RunState(prompts_exhausted=True))
    assert (decision.outcome, decision.denied_by) == (Outcome.DENY, "nobody")
    assert decided("coding", run=RunState(prompts_exhausted=True)).outcome is Outcome.ALLOW


# -- what would help ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "changed", "remedy"),
    [
        (
            "standard",
            {},
            'an approver (`approver=` / `--yes`), or policy "coding" (policy= / `--policy coding`)',
        ),
        ("standard", {"network": "host"}, "an approver (`approver=` / `--yes`), or policy "),
        ("coding", {"network": "host"}, "an approver (`approver=` / `--yes`), or no network "),
        ("coding", {"waived": ("net_blocked",)}, "an approver (`approver=` / `--yes`), or all "),
        ("coding", {"write_folders": ("/srv",)}, "an approver (`approver=` / `--yes`), or no f"),
        ("coding", {"permission_tier": 3}, "an approver (`approver=` / `--yes`)"),
        (
            "coding",
            {"workspace_mode": "direct", "judged_after": False},
            "an approver (`approver=` / `--yes`), or a transaction (workspace_mode= / ",
        ),
        ("ci", {"permission_tier": 3}, "a policy with people to ask; and then an approver"),
        ("coding", {"mode": Mode.PLAN}, 'mode "build" (mode= / `--mode build`)'),
        ("coding", {"phase": "investigating"}, 'phase "editing"'),
        ("coding", {"max_tier": 0}, "a higher tier (CallContext(tier=))"),
        ("standard", {"mode": Mode.PLAN}, 'mode "build" (mode= / `--mode build`); and then an '),
        ("coding", {"permission_tier": 4}, None),
    ],
)
def test_what_is_said_to_help_would_help(
    policy: str, changed: dict[str, Any], remedy: str | None
) -> None:
    """A remedy that was guessed sends a person to change what makes no difference."""
    found = decided(policy, **changed).remedy
    if remedy is None:
        assert found is None
    else:
        assert (found or "").startswith(remedy)


def test_two_changes_are_named_where_one_is_not_enough() -> None:
    """Otherwise the answer to a call under two ceilings is that nothing helps."""
    found = decided("coding", mode=Mode.PLAN, phase="investigating").remedy
    assert found == 'mode "build" (mode= / `--mode build`) and phase "editing"'
    spent = dataclasses.replace(POLICIES["coding"], max_cost=CostTier.FREE)
    facts = dataclasses.replace(JAILED, policy=spent, cost=CostTier.HIGH)
    assert decide(facts).remedy == "higher ceilings in the policy"


STATES = st.builds(
    RunState,
    problem=st.none() | st.just("stopped"),
    loop=st.sampled_from(["none", "nudge", "ask", "deny"]),
    loop_text=st.just("again"),
    prompts_exhausted=st.booleans(),
)
FACTS = st.builds(
    Facts,
    tool_name=st.text(max_size=5),
    access_mode=st.sampled_from(AccessMode),
    danger=st.sampled_from(DangerLevel),
    permission_level=st.integers(-1, 5),
    permission_tier=st.integers(-1, 5),
    cost=st.sampled_from(CostTier),
    phases=st.lists(st.sampled_from(["investigating", "editing"]), max_size=2).map(tuple),
    escalation=st.booleans(),
    policy=st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__),
    run=STATES,
    mode=st.sampled_from(Mode),
    phase=st.none() | st.sampled_from(["investigating", "editing", "verifying", "?"]),
    task_kind=st.none() | st.sampled_from(["edit", "test_only", "investigate", "?"]),
    max_tier=st.none() | st.integers(0, 4),
    network=st.sampled_from(["none", "loopback", "host", "?"]),
    waived=st.sampled_from([(), ("net_blocked",)]),
    workspace_mode=st.sampled_from([None, "transaction", "read_only", "scratch", "direct"]),
    write_folders=st.sampled_from([(), ("/srv",)]),
    judged_after=st.booleans(),
    granted_first_use=st.booleans(),
    plan_hash=st.just("hash"),
    display_bytes=st.sampled_from([10, 10**9]),
)
STRICTNESS = {Outcome.ALLOW: 0, Outcome.ASK: 1, Outcome.DENY: 2}


@given(facts=FACTS)
def test_any_facts_get_one_decision(facts: Facts) -> None:
    """A decision that raises is a call that ends in nothing anybody planned for."""
    decision = decide(facts)
    assert decision == decide(facts)
    assert (decision.outcome is Outcome.DENY) == (decision.denied_by is not None)
    assert decision.reasons


@given(facts=FACTS)
def test_nothing_that_leaves_the_box_is_allowed_unasked_where_the_jail_is_trusted(
    facts: Facts,
) -> None:
    """Trust in the jail is trust in all of it."""
    decision = decide(facts)
    if decision.outcome is Outcome.ALLOW and facts.access_mode.requires_approval:
        assert facts.is_trusted or facts.granted_first_use


@given(facts=FACTS, mode=st.sampled_from(Mode), tier=st.integers(0, 4))
def test_a_lower_ceiling_never_makes_a_decision_milder(facts: Facts, mode: Mode, tier: int) -> None:
    """Otherwise an agent could hand on more than it has."""
    lower = dataclasses.replace(
        facts,
        mode=facts.mode.stricter(mode),
        max_tier=tier if facts.max_tier is None else min(tier, facts.max_tier),
    )
    assert STRICTNESS[decide(lower).outcome] >= STRICTNESS[decide(facts).outcome]


@given(facts=FACTS)
def test_strict_is_never_milder_than_standard_nor_ci_than_coding(facts: Facts) -> None:
    """A name that promises more and asks less is a trap."""
    outcome = {
        name: STRICTNESS[decide(dataclasses.replace(facts, policy=policy)).outcome]
        for name, policy in POLICIES.items()
    }
    assert outcome["strict"] >= outcome["standard"] >= outcome["coding"]
    assert outcome["ci"] >= outcome["coding"]


def test_a_policy_has_another_epoch_when_anything_in_it_changes() -> None:
    """What was agreed to under one policy must not hold under another."""
    epochs = {policy.epoch for policy in POLICIES.values()}
    base = Policy(name="standard")
    others: dict[str, Any] = {
        "name": "mine",
        "trust_the_jail": True,
        "has_people": False,
        "quiet_level": 0,
        "mode": Mode.PLAN,
        "max_cost": CostTier.LOW,
        "max_tier": 2,
    }
    changed = {dataclasses.replace(base, **{name: one}).epoch for name, one in others.items()}
    assert len(epochs) == 4
    assert len(changed) == 7
    assert base.epoch == POLICIES["standard"].epoch
    assert base.epoch not in changed
