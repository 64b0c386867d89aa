"""decide(): facts in, a decision out. Pure, total, and explained.

`check` and the executor call this same function. It is a list of small passes
over the facts; each says what level it asks for, whether it denies, and why.
None stops another: every reason is listed. The strictest word wins, so a pass
can be added, and can only raise.

Codes of the reasons given here; those of paths are in `paths.py`:

| code | when |
|---|---|
| `access_readonly` | level 0: the tool only reads |
| `access_network` | level 1: the tool speaks to the network it was given |
| `access_write` | level 2: the tool writes |
| `access_execute`, `access_mixed` | level 3: it runs what it is told, or does all of these |
| `danger_medium`, `danger_high` | level 2: the tool says that it can do harm |
| `danger_critical` | level 3: the tool says that it can do great harm |
| `level_required` | the tool, or what is known of it, asks for a level of its own |
| `network_host` | level 3: the jail shares the host's network |
| `network_unknown` | level 3: a network that nobody here knows |
| `waived` | level 3: the jail may do without guarantees that were waived by name |
| `write_grant` | nothing by itself: a path that is written lies in a folder granted for it |
| `path_write_judged` | nothing yet: what is written there asks after the run, with a diff |
| `call_too_long` | level 3: too long to be shown whole to an approver |
| `granted_first_use` | a level 2 call was agreed to before, in this session |
| `and_more` | there are more reasons of a kind than anybody reads |

Those of what a call did are in `effects.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ._passes import DISPLAY_BYTES_MAX, PASSES, Finding
from ._text import shown
from .decision import Decision, Outcome, Reason
from .facts import Facts
from .remedies import APPROVER, smallest_change
from .vocabulary import LEVEL_ALWAYS, LEVEL_AUTO, LEVEL_FIRST_USE, LEVEL_LOG

if TYPE_CHECKING:
    from ._effect import EffectReason

__all__ = ["DISPLAY_BYTES_MAX", "Facts", "decide"]

# As many names are told one by one; `judge_effects` has them all.
REASONS_MAX: Final = 50

_INSIDE: Final = "use a path inside the workspace"
# No folder that holds these is ever granted for the asking.
_NEVER_GRANTED: Final = frozenset({"path_protected", "path_sealed", "path_magic_link"})
_FLAGS: Final = {"read": "--read DIR (read=)", "write": "--write DIR (write=)"}
_REMEDIES: Final = {
    "path_empty": "name a path; '.' is the workspace",
    "path_too_long": "use a shorter path, relative to the workspace",
    "path_too_many": "name fewer paths in one call",
    "path_too_deep": "use a shorter path, relative to the workspace",
    "path_control_character": "write the path in plain visible characters",
    "path_hidden_character": "write the path in plain visible characters",
    "path_disguised_separator": "write the path in plain visible characters",
    "path_not_text": "write the path in plain visible characters",
    "path_expansion": "write the path out, relative to the workspace",
    "path_outside_workspace": _INSIDE,
    "path_magic_link": _INSIDE,
    "path_link_loop": "use a path without links",
    "path_unresolvable": "use a path inside the workspace that can be reached",
    "path_workspace_unresolvable": "give a workspace that exists and can be reached",
}


def decide(facts: Facts) -> Decision:
    """Decide whether a call may run, has to be asked about, or may not run.

    Never raises for any facts, does nothing but compute, and gives the same answer for the same
    facts. What denies is final, whatever was granted or allowed; `denied_by` names the first
    step of the order that does. The level is the highest that any pass asks for, once trust in
    the jail or an allow rule has lowered what may be lowered: 0 and 1 are allowed (1 is to be
    logged), 2 is allowed once it was granted and asked before that, 3 is asked each time and
    never remembered. Where there is nobody to ask, what would ask is denied.

    Where there are effects the call has run, and what it did is decided on: it is kept, or a
    person has to see it (always at level 3), or it is refused.
    """
    if facts.effects is not None and facts.effect_ground is not None:
        return _decide_effects(facts)
    decision = _decided(facts)
    if decision.outcome is Outcome.ALLOW:
        return decision
    if decision.denied_by == "floor":
        found = _remedy(facts, decision.reasons)
    elif decision.denied_by == "rule":
        found = _rule_remedy(facts)
    else:
        found = smallest_change(facts, decision, _decided)
    return replace(decision, remedy=found)


def _decided(facts: Facts) -> Decision:
    """The decision without what would change it."""
    findings = [look(facts) for look in PASSES]
    level, lowered = _level(facts, findings)
    reasons = (*(reason for found in findings for reason in found.reasons), *lowered)
    denied_by = next((found.denied_by for found in findings if found.denied_by), None)
    if denied_by is None and level >= LEVEL_FIRST_USE:
        if level == LEVEL_FIRST_USE and facts.granted_first_use:
            reasons = (*reasons, _granted(facts))
        else:
            return _asked(facts, level, reasons)
    if denied_by is None:
        return Decision(
            outcome=Outcome.ALLOW, level=level, reasons=reasons, plan_hash=facts.plan_hash
        )
    return Decision(
        outcome=Outcome.DENY,
        level=level,
        reasons=reasons,
        plan_hash=facts.plan_hash,
        denied_by=denied_by,
    )


def _level(facts: Facts, findings: Sequence[Finding]) -> tuple[int, tuple[Reason, ...]]:
    """The level, and why it is lower than the words, or higher."""
    words = max(found.level for found in findings)
    forced = max(found.forced for found in findings)
    told: list[Reason] = []
    if words > LEVEL_LOG and facts.is_trusted:
        words = LEVEL_LOG
        text = (
            "the jail keeps the call in: no network, nothing waived, and what it changes of the "
            "workspace is judged before it is kept"
        )
        told.append(Reason(code="jail_trusted", text=text))
    if words > LEVEL_LOG and facts.policy.rules is not None and facts.rule_call is not None:
        found = facts.policy.rules.judge(facts.rule_call)
        if found.allowed_exactly or (found.allowed and words == LEVEL_FIRST_USE):
            words = LEVEL_LOG
            told += [hit.reason() for hit in found.allows]
    level = max(words, forced)
    if level > facts.policy.quiet_level and level < LEVEL_FIRST_USE:
        level = LEVEL_FIRST_USE
        text = f"policy {facts.policy.name} asks for everything above level {LEVEL_AUTO}"
        told.append(Reason(code="policy_asks", text=text))
    return level, tuple(dict.fromkeys(told))


def _granted(facts: Facts) -> Reason:
    how = "in this session" if facts.granted_by is None else f"by grant {facts.granted_by}"
    text = f"{facts.tool_name} was agreed to before, {how}"
    return Reason(code="granted_first_use", text=text)


def _asked(facts: Facts, level: int, reasons: tuple[Reason, ...]) -> Decision:
    """Ask, or deny where nobody is there, or was asked too often."""
    refused: Reason | None = None
    if not facts.policy.has_people:
        text = f"policy {facts.policy.name} has nobody to ask"
        refused = Reason(code="nobody_to_ask", text=text)
    elif facts.run.prompts_exhausted:
        text = "more was asked in a few seconds than a person can read"
        refused = Reason(code="prompts_exhausted", text=text)
    if refused is not None:
        return Decision(
            outcome=Outcome.DENY,
            level=level,
            reasons=(*reasons, refused),
            plan_hash=facts.plan_hash,
            denied_by="nobody",
        )
    is_rememberable = facts.command is None or facts.command.rememberable
    offered = facts.remember_scopes if level == LEVEL_FIRST_USE and is_rememberable else ()
    return Decision(
        outcome=Outcome.ASK,
        level=level,
        reasons=reasons,
        plan_hash=facts.plan_hash,
        remember_options=offered,
    )


def _decide_effects(facts: Facts) -> Decision:
    from ._effect import EffectReason  # late: a jail that runs a user's tool judges nothing
    from ._effect_by_rules import judged_effects

    found = judged_effects(facts)
    dropped = [
        EffectReason(
            path=path, reason=Reason(code=code, text=f"{shown(path)} is hidden, and stays as it is")
        )
        for path, code in found.dropped
    ]
    reasons = tuple(
        reason
        for group in (found.refused, found.asks, dropped, found.notes)
        for reason in _readable(group)
    )
    if found.refused:
        outcome, level = Outcome.DENY, LEVEL_ALWAYS
    elif found.asks:
        outcome, level = Outcome.ASK, LEVEL_ALWAYS
    else:
        outcome, level = Outcome.ALLOW, LEVEL_LOG
    return Decision(
        outcome=outcome,
        level=level,
        reasons=reasons,
        plan_hash=facts.plan_hash,
        remedy=APPROVER if outcome is Outcome.ASK else None,
        stage="after",
    )


def _readable(found: Sequence[EffectReason]) -> list[Reason]:
    """As many as somebody reads; those about all names together first."""
    ordered = sorted(found, key=lambda one: one.path is not None)
    kept = [one.reason for one in ordered[:REASONS_MAX]]
    if len(ordered) > REASONS_MAX:
        text = f"and {len(ordered) - REASONS_MAX:,} more like these"
        kept.append(Reason(code="and_more", text=text))
    return kept


def _remedy(facts: Facts, reasons: tuple[Reason, ...]) -> str | None:
    words = {**_REMEDIES, "path_outside_workspace": _grant_remedy(facts)}
    found = dict.fromkeys(words[one.code] for one in reasons if one.code in words)
    return "; ".join(found) or None


def _rule_remedy(facts: Facts) -> str | None:
    assert facts.policy.rules is not None
    assert facts.rule_call is not None
    denies = facts.policy.rules.judge(facts.rule_call).denies
    return "; ".join(
        dict.fromkeys(
            hit.rule.remedy or f"only a change of rule {hit.rule.id} allows it ({hit.rule.source})"
            for hit in denies
        )
    )


def _grant_remedy(facts: Facts) -> str:
    """What would let paths outside pass: of two roles of one path, a write is what it needs."""
    needed: dict[str, str] = {}
    for one in facts.paths:
        codes = {reason.code for reason in one.reasons}
        if "path_outside_workspace" in codes and not codes & _NEVER_GRANTED:
            needed[one.path_as_given] = max(needed.get(one.path_as_given, ""), one.role)
    flags = " or ".join(_FLAGS[role] for role in sorted(set(needed.values())))
    return f"{_INSIDE}, or grant its folder: {flags}" if flags else _INSIDE
