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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ._effect import Effect, EffectGround, EffectReason
from ._text import shown
from .decision import Decision, Outcome, Reason
from .paths import PathVerdict
from .vocabulary import (
    LEVEL_ALWAYS,
    LEVEL_AUTO,
    LEVEL_FIRST_USE,
    LEVEL_LOG,
    AccessMode,
    DangerLevel,
)

# As many names are told one by one; `judge_effects` has them all.
REASONS_MAX: Final = 50
# Nobody reads more than this before saying yes.
DISPLAY_BYTES_MAX: Final = 64 * 1024

_REMEDY_APPROVER: Final = "an approver (`approver=` / `--yes`)"
_INSIDE: Final = "use a path inside the workspace"
# No folder that holds these is ever granted for the asking.
_NEVER_GRANTED: Final = frozenset({"path_protected", "path_sealed", "path_magic_link"})
_FLAGS: Final = {"read": "--read DIR (read=)", "write": "--write DIR (write=)"}
_REMEDIES: Final = {
    "path_empty": "name a path; '.' is the workspace",
    "path_too_long": "use a shorter path, relative to the workspace",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a decision is made from: nothing else is looked at.

    Raises:
        ValueError: there are effects, and nothing that they could be judged against.
    """

    tool_name: str
    access_mode: AccessMode
    danger: DangerLevel
    # The level that the tool's dialect, or its origin, asks for by itself
    # (an untrusted pack: 3). It can only raise; outside 0 to 3 it is clamped.
    permission_level: int = LEVEL_AUTO
    # Each path argument in each role, already resolved. None is no objection.
    paths: tuple[PathVerdict, ...] = ()
    # The jail's network: "none", "loopback" or "host".
    network: str = "none"
    # The guarantees that somebody waived by name; not what a choice by name replaces.
    waived: tuple[str, ...] = ()
    # Whether a level 2 call of this shape was agreed to in this session.
    granted_first_use: bool = False
    plan_hash: str
    # How long the call is when shown whole to an approver.
    display_bytes: int
    # Whether what the call does to the workspace is judged before it is kept: then what asks
    # for being written does so after the run.
    judged_after: bool = False
    # What the call did, once it has run; None before that. Then only this is decided on, and
    # what may run was decided before.
    effects: tuple[Effect, ...] | None = None
    effect_ground: EffectGround | None = None
    # Whether a person, or a rule, wants to see what was done before it is kept.
    review_wanted: bool = False

    def __post_init__(self) -> None:
        if self.effects is not None and self.effect_ground is None:
            raise ValueError("effects are judged against a workspace and its rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    level: int = LEVEL_AUTO
    denied: bool = False
    reasons: tuple[Reason, ...] = ()


def _found(level: int, code: str, text: str) -> _Finding:
    return _Finding(level=level, reasons=(Reason(code=code, text=text),))


_NOTHING: Final = _Finding()


def _paths(facts: Facts) -> _Finding:
    reasons: list[Reason] = []
    level = LEVEL_AUTO
    for verdict in facts.paths:
        later = facts.judged_after and verdict.folder is None and not verdict.denied
        told = [_later(reason) if later else reason for reason in verdict.reasons]
        if any(reason.code != _JUDGED_AFTER for reason in told):
            level = max(level, verdict.level_floor)
        reasons += told
    denied = any(verdict.denied for verdict in facts.paths)
    return _Finding(level=level, denied=denied, reasons=tuple(reasons))


_JUDGED_AFTER: Final = "path_write_judged"


def _later(reason: Reason) -> Reason:
    """A write that asks, in a workspace where what came of it is shown before it is kept."""
    if reason.code != "path_write_asks":
        return reason
    text = f"{reason.text}: after the run, with what was written, before it is kept"
    return replace(reason, code=_JUDGED_AFTER, text=text)


_ACCESS_TEXTS: Final = {
    AccessMode.READONLY: "only reads",
    AccessMode.NETWORK: "uses the network",
    AccessMode.WRITE: "writes to the workspace",
    AccessMode.EXECUTE: "runs commands or code",
    AccessMode.MIXED: "may read, write, run code and use the network",
}


def _access(facts: Facts) -> _Finding:
    mode = facts.access_mode
    text = f"{facts.tool_name} {_ACCESS_TEXTS[mode]}"
    return _found(mode.approval_level(), f"access_{mode.value}", text)


def _danger(facts: Facts) -> _Finding:
    level = facts.danger.approval_level()
    if level == LEVEL_AUTO:
        return _NOTHING
    text = f"{facts.tool_name} is marked as {facts.danger.value} danger"
    return _found(level, f"danger_{facts.danger.value}", text)


def _required_level(facts: Facts) -> _Finding:
    level = max(LEVEL_AUTO, min(LEVEL_ALWAYS, facts.permission_level))
    if level == LEVEL_AUTO:
        return _NOTHING
    return _found(level, "level_required", f"{facts.tool_name} is to be used at level {level}")


def _network(facts: Facts) -> _Finding:
    if facts.network in ("none", "loopback"):
        return _NOTHING
    if facts.network == "host":
        return _found(LEVEL_ALWAYS, "network_host", "the call shares the host's network")
    return _found(LEVEL_ALWAYS, "network_unknown", "the call asks for a network nobody knows")


def _waived(facts: Facts) -> _Finding:
    if not facts.waived:
        return _NOTHING
    names = ", ".join(dict.fromkeys(facts.waived))
    return _found(LEVEL_ALWAYS, "waived", f"the jail may do without what was waived: {names}")


def _write_grants(facts: Facts) -> _Finding:
    used = [one for one in facts.paths if one.role == "write" and one.folder is not None]
    texts = dict.fromkeys(
        f"{shown(one.path_as_given)} is in a folder granted for writing: nothing there is undone"
        for one in used
    )
    return _Finding(reasons=tuple(Reason(code="write_grant", text=text) for text in texts))


def _length(facts: Facts) -> _Finding:
    if facts.display_bytes <= DISPLAY_BYTES_MAX:
        return _NOTHING
    text = (
        f"the call is too long to be shown whole "
        f"({facts.display_bytes:,} bytes; {DISPLAY_BYTES_MAX:,} can be)"
    )
    return _found(LEVEL_ALWAYS, "call_too_long", text)


# The hard floor first, then what raises the level. Rules, ceilings and the run's
# state will be passes like these; what lowers a level comes after all of them.
_PASSES: Final[tuple[Callable[[Facts], _Finding], ...]] = (
    _paths,
    _access,
    _danger,
    _required_level,
    _network,
    _waived,
    _write_grants,
    _length,
)


def decide(facts: Facts) -> Decision:
    """Decide whether a call may run, has to be asked about, or may not run.

    Never raises for any facts, does nothing but compute, and gives the same
    answer for the same facts. The level is the highest that any pass asks for:
    0 and 1 are allowed (1 is to be logged), 2 is allowed once it was granted
    and asked before that, 3 is asked each time and never remembered. A path
    that is denied denies the call, whatever was granted.

    Where there are effects the call has run, and what it did is decided on: it
    is kept, or a person has to see it (always at level 3), or it is refused.
    """
    if facts.effects is not None and facts.effect_ground is not None:
        return _decide_effects(facts, facts.effects, facts.effect_ground)
    findings = [look(facts) for look in _PASSES]
    level = max(finding.level for finding in findings)
    reasons = tuple(reason for finding in findings for reason in finding.reasons)
    if any(finding.denied for finding in findings):
        return Decision(
            outcome=Outcome.DENY,
            level=level,
            reasons=reasons,
            plan_hash=facts.plan_hash,
            remedy=_remedy(facts, reasons),
        )
    if level == LEVEL_FIRST_USE and facts.granted_first_use:
        text = f"{facts.tool_name} was agreed to before, in this session"
        reasons = (*reasons, Reason(code="granted_first_use", text=text))
    elif level >= LEVEL_FIRST_USE:
        return Decision(
            outcome=Outcome.ASK,
            level=level,
            reasons=reasons,
            plan_hash=facts.plan_hash,
            remember_options=("session",) if level == LEVEL_FIRST_USE else (),
            remedy=_REMEDY_APPROVER,
        )
    return Decision(outcome=Outcome.ALLOW, level=level, reasons=reasons, plan_hash=facts.plan_hash)


def _decide_effects(facts: Facts, effects: tuple[Effect, ...], ground: EffectGround) -> Decision:
    from .effects import judge_effects  # late: a jail that runs a user's tool judges nothing

    found = judge_effects(effects, ground, review_wanted=facts.review_wanted)
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
        remedy=_REMEDY_APPROVER if outcome is Outcome.ASK else None,
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


def _grant_remedy(facts: Facts) -> str:
    """What would let paths outside pass: of two roles of one path, a write is what it needs."""
    needed: dict[str, str] = {}
    for one in facts.paths:
        codes = {reason.code for reason in one.reasons}
        if "path_outside_workspace" in codes and not codes & _NEVER_GRANTED:
            needed[one.path_as_given] = max(needed.get(one.path_as_given, ""), one.role)
    flags = " or ".join(_FLAGS[role] for role in sorted(set(needed.values())))
    return f"{_INSIDE}, or grant its folder: {flags}" if flags else _INSIDE
