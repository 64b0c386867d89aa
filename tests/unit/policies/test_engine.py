"""decide(): the strictest word wins, every reason is given, and nothing makes it raise."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_policies import (
    DISPLAY_BYTES_MAX,
    AccessMode,
    DangerLevel,
    Decision,
    Facts,
    Outcome,
    PathVerdict,
    Reason,
    Role,
    decide,
)


def verdict(*found: str, asks: bool = False) -> PathVerdict:
    return PathVerdict(
        path_as_given="p",
        resolved=None,
        role="write",
        inside=asks or not found,
        denied=bool(found) and not asks,
        reasons=tuple(Reason(code=code, text=code) for code in found),
        level_floor=3 if asks else 0,
        links=(),
    )


FREE = verdict()
GRANTED = dataclasses.replace(FREE, folder="/srv/out")
ASKS = verdict("path_write_asks", asks=True)
OUTSIDE = verdict("path_outside_workspace")
SECRET = verdict("path_protected")
BASE = Facts(
    tool_name="tool",
    access_mode=AccessMode.READONLY,
    danger=DangerLevel.SAFE,
    plan_hash="hash",
    display_bytes=10,
)


def decided(**changed: Any) -> Decision:
    return decide(dataclasses.replace(BASE, **changed))


def codes(decision: Decision) -> list[str]:
    return [reason.code for reason in decision.reasons]


@pytest.mark.parametrize(
    ("changed", "outcome", "level", "last"),
    [
        ({}, "allow", 0, "access_readonly"),
        ({"paths": (FREE, FREE)}, "allow", 0, "access_readonly"),
        ({"access_mode": AccessMode.NETWORK}, "allow", 1, "access_network"),
        ({"access_mode": AccessMode.NETWORK, "network": "loopback"}, "allow", 1, "access_network"),
        ({"access_mode": AccessMode.WRITE}, "ask", 2, "access_write"),
        (
            {"access_mode": AccessMode.WRITE, "granted_first_use": True},
            "allow",
            2,
            "granted_first_use",
        ),
        ({"access_mode": AccessMode.EXECUTE}, "ask", 3, "access_execute"),
        ({"access_mode": AccessMode.EXECUTE, "granted_first_use": True}, "ask", 3, None),
        ({"access_mode": AccessMode.MIXED}, "ask", 3, "access_mixed"),
        ({"danger": DangerLevel.LOW}, "allow", 0, "access_readonly"),
        ({"danger": DangerLevel.MEDIUM}, "ask", 2, "danger_medium"),
        ({"danger": DangerLevel.HIGH}, "ask", 2, "danger_high"),
        ({"danger": DangerLevel.HIGH, "granted_first_use": True}, "allow", 2, "granted_first_use"),
        ({"danger": DangerLevel.CRITICAL}, "ask", 3, "danger_critical"),
        ({"danger": DangerLevel.CRITICAL, "granted_first_use": True}, "ask", 3, None),
        ({"permission_level": 1}, "allow", 1, "level_required"),
        ({"permission_level": 2}, "ask", 2, "level_required"),
        ({"permission_level": 3}, "ask", 3, "level_required"),
        ({"permission_level": 99}, "ask", 3, "level_required"),
        ({"permission_level": -1}, "allow", 0, "access_readonly"),
        ({"network": "host"}, "ask", 3, "network_host"),
        ({"network": "loopback"}, "allow", 0, "access_readonly"),
        ({"network": "wifi"}, "ask", 3, "network_unknown"),
        ({"waived": ("paths_masked",)}, "ask", 3, "waived"),
        ({"waived": ("paths_masked",), "granted_first_use": True}, "ask", 3, "waived"),
        ({"waived": ("paths_masked",), "paths": (SECRET,)}, "deny", 3, "waived"),
        ({"paths": (GRANTED,)}, "allow", 0, "write_grant"),
        ({"paths": (GRANTED,), "access_mode": AccessMode.WRITE}, "ask", 2, "write_grant"),
        ({"display_bytes": DISPLAY_BYTES_MAX}, "allow", 0, "access_readonly"),
        ({"display_bytes": DISPLAY_BYTES_MAX + 1}, "ask", 3, "call_too_long"),
        ({"paths": (FREE, ASKS)}, "ask", 3, None),
        ({"paths": (ASKS,), "granted_first_use": True}, "ask", 3, None),
        ({"paths": (FREE, OUTSIDE)}, "deny", 0, None),
        ({"paths": (SECRET,), "access_mode": AccessMode.WRITE}, "deny", 2, None),
        ({"paths": (SECRET, ASKS), "granted_first_use": True}, "deny", 3, None),
    ],
)
def test_a_call_gets_the_strictest_word_about_it(
    changed: dict[str, Any], outcome: str, level: int, last: str | None
) -> None:
    """One fact read as the weakest is one person who was not asked."""
    decision = decided(**changed)
    assert (decision.outcome.value, decision.level) == (outcome, level)
    assert last is None or codes(decision)[-1] == last
    assert decision.plan_hash == "hash"


def test_a_level_2_ask_may_be_remembered_for_the_session_and_a_level_3_never() -> None:
    """A yes to one command must not become a yes to all commands."""
    assert decided(access_mode=AccessMode.WRITE).remember_options == ("session",)
    assert decided(access_mode=AccessMode.EXECUTE).remember_options == ()
    assert decided(access_mode=AccessMode.WRITE, network="host").remember_options == ()
    assert decided(access_mode=AccessMode.WRITE, granted_first_use=True).remember_options == ()


def test_every_reason_is_listed_also_behind_a_deny() -> None:
    """`check` names all there is to change, not the first of it."""
    decision = decided(
        access_mode=AccessMode.EXECUTE,
        danger=DangerLevel.CRITICAL,
        permission_level=3,
        network="host",
        waived=("net_blocked",),
        display_bytes=10**9,
        paths=(OUTSIDE, SECRET, ASKS),
    )
    assert codes(decision) == [
        "path_outside_workspace",
        "path_protected",
        "path_write_asks",
        "access_execute",
        "danger_critical",
        "level_required",
        "network_host",
        "waived",
        "call_too_long",
    ]


def test_a_write_that_asks_is_put_off_where_its_effect_is_judged() -> None:
    """Twice the same question teaches a person to say yes; and the first one shows no diff."""
    now = decided(paths=(ASKS,))
    later = decided(paths=(ASKS,), judged_after=True)
    assert (now.outcome, now.level, codes(now)[0]) == (Outcome.ASK, 3, "path_write_asks")
    assert (later.outcome, later.level) == (Outcome.ALLOW, 0)
    assert codes(later)[0] == "path_write_judged"
    assert "before it is kept" in later.reasons[0].text


def test_what_is_not_judged_later_asks_at_once() -> None:
    """A granted folder has no transaction, and a read has happened when it is over."""
    granted = dataclasses.replace(ASKS, folder="/srv/out")
    assert decided(paths=(granted,), judged_after=True).level == 3
    reads = verdict("path_read_asks", asks=True)
    assert decided(paths=(ASKS, reads), judged_after=True).level == 3
    links = verdict("path_many_links", asks=True)
    assert decided(paths=(links,), judged_after=True).level == 3
    assert decided(paths=(SECRET,), judged_after=True).outcome is Outcome.DENY


def test_a_refusal_says_what_would_help_where_something_would() -> None:
    """A model that is told only no tries again with the same path."""
    assert decided(paths=(OUTSIDE,)).remedy == (
        "use a path inside the workspace, or grant its folder: --write DIR (write=)"
    )
    assert decided(paths=(SECRET,)).remedy is None
    twice = decided(paths=(OUTSIDE, OUTSIDE, verdict("path_expansion")))
    assert twice.remedy == (
        "use a path inside the workspace, or grant its folder: --write DIR (write=); "
        "write the path out, relative to the workspace"
    )
    asked = decided(access_mode=AccessMode.EXECUTE)
    assert asked.remedy == "an approver (`approver=` / `--yes`)"
    assert decided().remedy is None


def path_codes() -> set[str]:
    from toolcell_policies import paths

    rows = [line for line in (paths.__doc__ or "").splitlines() if line.startswith("| `")]
    return {row.split("`")[1] for row in rows}


def test_every_remedy_belongs_to_a_documented_code() -> None:
    """A remedy for a code that nobody gives is a remedy that nobody gets."""
    from toolcell_policies import engine

    assert set(engine._REMEDIES) <= path_codes()


def outside(path: str, role: Role, *more: str) -> PathVerdict:
    return dataclasses.replace(
        verdict("path_outside_workspace", *more), path_as_given=path, role=role
    )


@pytest.mark.parametrize(
    ("paths", "grant"),
    [
        ((outside("a", "read"),), ", or grant its folder: --read DIR (read=)"),
        ((outside("a", "write"),), ", or grant its folder: --write DIR (write=)"),
        (
            (outside("a", "write"), outside("a", "read")),
            ", or grant its folder: --write DIR (write=)",
        ),
        (
            (outside("a", "read"), outside("b", "write"), outside("b", "read")),
            ", or grant its folder: --read DIR (read=) or --write DIR (write=)",
        ),
        ((outside("a", "read", "path_protected"),), ""),
        ((outside("a", "write", "path_sealed"),), ""),
        ((outside("a", "read", "path_magic_link"),), ""),
    ],
)
def test_the_remedy_for_a_path_outside_names_the_flag_that_would_grant_it(
    paths: tuple[PathVerdict, ...], grant: str
) -> None:
    """A person who has to look the flag up grants too much; a secret is never worth a flag."""
    assert decided(paths=paths).remedy == f"use a path inside the workspace{grant}"


def test_a_waiver_is_named_in_its_reason() -> None:
    """Nobody can agree to giving up what is not said."""
    (_, reason) = decided(waived=("paths_masked", "net_blocked")).reasons
    assert reason.text.endswith("paths_masked, net_blocked")


def test_a_write_into_a_granted_folder_is_said_once_for_each_path() -> None:
    """Whoever agrees has to see that it is no workspace; a read of it says nothing."""
    read = dataclasses.replace(GRANTED, role="read")
    other = dataclasses.replace(GRANTED, path_as_given="q\n")
    assert "write_grant" not in codes(decided(paths=(read,)))
    reasons = decided(paths=(GRANTED, read, GRANTED, other)).reasons
    texts = [one.text for one in reasons if one.code == "write_grant"]
    assert [text[:4] for text in texts] == ["'p' ", "'q\\n"]
    assert all(text.isprintable() for text in texts)


VERDICTS = st.sampled_from([FREE, ASKS, OUTSIDE, SECRET, GRANTED])
FACTS = st.builds(
    Facts,
    tool_name=st.text(max_size=10),
    access_mode=st.sampled_from(AccessMode),
    danger=st.sampled_from(DangerLevel),
    permission_level=st.integers(),
    paths=st.lists(VERDICTS, max_size=4).map(tuple),
    network=st.sampled_from(["none", "loopback", "host"]) | st.text(max_size=5),
    waived=st.lists(st.sampled_from(["net_blocked", "paths_masked"]), max_size=2).map(tuple),
    granted_first_use=st.booleans(),
    plan_hash=st.text(max_size=5),
    display_bytes=st.integers(),
)


@given(facts=FACTS)
def test_any_facts_get_a_decision_and_the_same_one_again(facts: Facts) -> None:
    """A decision that can raise is a call that ends in nothing anybody planned for."""
    decision = decide(facts)
    assert decision == decide(facts)
    assert decision.reasons
    assert (decision.outcome is Outcome.DENY) == any(one.denied for one in facts.paths)
    if decision.outcome is Outcome.ALLOW:
        assert decision.level < 2 or (decision.level == 2 and facts.granted_first_use)


STRICTNESS = {Outcome.ALLOW: 0, Outcome.ASK: 1, Outcome.DENY: 2}


@given(facts=FACTS, extra=VERDICTS)
def test_one_more_path_never_makes_a_decision_milder(facts: Facts, extra: PathVerdict) -> None:
    """Otherwise a harmless argument could be added to carry a harmful one through."""
    more = decide(dataclasses.replace(facts, paths=(*facts.paths, extra)))
    assert STRICTNESS[more.outcome] >= STRICTNESS[decide(facts).outcome]
    assert more.level >= decide(facts).level


@given(facts=FACTS)
def test_a_grant_never_lets_a_deny_or_a_level_3_go(facts: Facts) -> None:
    """What was remembered was the first use, and nothing above it."""
    granted = decide(dataclasses.replace(facts, granted_first_use=True))
    fresh = decide(dataclasses.replace(facts, granted_first_use=False))
    assert granted.level == fresh.level
    if fresh.level != 2 or fresh.outcome is Outcome.DENY:
        assert granted == dataclasses.replace(fresh, remedy=granted.remedy)


@given(facts=FACTS)
def test_a_waiver_never_makes_a_decision_milder(facts: Facts) -> None:
    """Giving a guarantee up must cost a question, whatever else is known."""
    kept = decide(dataclasses.replace(facts, waived=()))
    waived = decide(dataclasses.replace(facts, waived=("net_blocked",)))
    assert waived.level == 3
    assert STRICTNESS[waived.outcome] >= STRICTNESS[kept.outcome]
    assert waived.outcome is not Outcome.ALLOW
