"""The passes of `decide()`, one question each, in the order of the specification.

A pass says what level it asks for, whether it denies, and why. None stops another: every reason
is listed. `Finding.level` is what trust in the jail or an allow rule may lower; `Finding.forced`
is what nothing lowers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from ._text import shown
from .decision import Reason
from .facts import Facts
from .phases import phase_admits_tool
from .vocabulary import (
    LEVEL_ALWAYS,
    LEVEL_AUTO,
    TIER_ALWAYS,
    TIER_NEVER,
    AccessMode,
    CostTier,
    DangerLevel,
    Mode,
    tier_level,
    tier_of,
)

# Nobody reads more than this before saying yes.
DISPLAY_BYTES_MAX: Final = 64 * 1024

Step = Literal["run_state", "floor", "rule", "ceiling", "nobody"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one pass found."""

    level: int = LEVEL_AUTO
    forced: int = LEVEL_AUTO
    # The step of the order that denies, if it does.
    denied_by: Step | None = None
    reasons: tuple[Reason, ...] = ()


NOTHING: Final = Finding()


def _level(level: int, code: str, text: str) -> Finding:
    return Finding(level=level, reasons=(Reason(code=code, text=text),))


def _forced(code: str, text: str) -> Finding:
    return Finding(forced=LEVEL_ALWAYS, reasons=(Reason(code=code, text=text),))


def _denied(step: Step, code: str, text: str) -> Finding:
    return Finding(denied_by=step, reasons=(Reason(code=code, text=text),))


# -- 1: the run ---------------------------------------------------------------------------


def run_state(facts: Facts) -> Finding:
    """Whether anything may run at all, and whether the calls go in circles."""
    run = facts.run
    if run.problem is not None:
        return _denied("run_state", "run_stopped", run.problem)
    if run.loop == "deny":
        return _denied("run_state", "loop", run.loop_text)
    if run.loop == "ask":
        return _forced("loop", run.loop_text)
    if run.loop == "nudge":
        return _level(LEVEL_AUTO, "loop", run.loop_text)
    return NOTHING


# -- 2: the floor -------------------------------------------------------------------------

_JUDGED_AFTER: Final = "path_write_judged"
_NEVER: Final = frozenset({"path_protected", "path_sealed"})
# What a command may name: where it lies is the jail's business, not an objection.
_OF_A_COMMAND: Final = _NEVER | {"path_write_asks", "path_read_asks", "path_many_links"}


def paths(facts: Facts) -> Finding:
    """Each path argument, by all that speaks against it."""
    reasons: list[Reason] = []
    forced = LEVEL_AUTO
    for one in facts.paths:
        told = one.reasons
        if facts.judged_after and one.folder is None and not one.denied:
            told = tuple(map(_later, told))
        if any(reason.code != _JUDGED_AFTER for reason in told):
            forced = max(forced, one.level_floor)
        reasons += told
    denied = any(one.denied for one in facts.paths)
    return Finding(forced=forced, denied_by="floor" if denied else None, reasons=tuple(reasons))


def command_paths(facts: Facts) -> Finding:
    """Each path among a command's words: by the list where words decide, else as a remark.

    A jail that is not trusted by its words shows no secret and keeps none, whatever they say.
    """
    told = [
        (one, reason)
        for one in facts.command_paths
        for reason in one.reasons
        if reason.code in _OF_A_COMMAND
    ]
    if not reads_words(facts):
        hidden = (reason for _, reason in told if reason.code == "path_protected")
        return Finding(reasons=tuple(dict.fromkeys(map(_hidden, hidden))))
    reasons = [
        _later(reason) if facts.judged_after and one.folder is None else reason
        for one, reason in told
    ]
    denied = any(reason.code in _NEVER for reason in reasons)
    asks = any(reason.code not in _NEVER | {_JUDGED_AFTER} for reason in reasons)
    return Finding(
        forced=LEVEL_ALWAYS if asks else LEVEL_AUTO,
        denied_by="floor" if denied else None,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _hidden(reason: Reason) -> Reason:
    """A name that the jail does not show."""
    name = reason.text.partition(" is protected")[0]
    text = (
        f"{name} is protected: the jail does not show it, and does not keep what is written there"
    )
    return replace(reason, code="path_hidden", text=text)


def _later(reason: Reason) -> Reason:
    """A write that asks, in a workspace where what came of it is shown before it is kept."""
    if reason.code != "path_write_asks":
        return reason
    text = f"{reason.text}: after the run, with what was written, before it is kept"
    return replace(reason, code=_JUDGED_AFTER, text=text)


def command_floor(facts: Facts) -> Finding:
    """What no command does, whoever agrees."""
    command = facts.command
    if command is None:
        return NOTHING
    if command.over_cap:
        text = "the command has more parts than anybody reads"
        return _denied("floor", "command_too_many", text)
    found = tuple(
        reason
        for segment in command.segments
        for reason in segment.reasons
        if reason.code == "removal_critical"
    )
    return Finding(denied_by="floor", reasons=tuple(dict.fromkeys(found))) if found else NOTHING


# -- 3 and 5: rules -----------------------------------------------------------------------


def rules(facts: Facts) -> Finding:
    """What the rule files deny, and what they ask about."""
    if facts.policy.rules is None or facts.rule_call is None:
        return NOTHING
    found = facts.policy.rules.judge(facts.rule_call)
    told = (hit.reason() for hit in (*found.denies, *found.asks))
    return Finding(
        forced=max((hit.level for hit in found.asks), default=LEVEL_AUTO),
        denied_by="rule" if found.denies else None,
        reasons=tuple(dict.fromkeys(told)),
    )


# -- 4: ceilings --------------------------------------------------------------------------


def ceilings(facts: Facts) -> Finding:
    """Mode, phase, tier and cost: what the task or a parent agent leaves open."""
    reasons = [
        Reason(code=code, text=text)
        for code, text in (_mode(facts), _phase(facts), _tier(facts), _cost(facts))
        if text
    ]
    return Finding(denied_by="ceiling", reasons=tuple(reasons)) if reasons else NOTHING


def admits(facts: Facts) -> bool:
    """Whether the ceilings leave a tool in: what is shown to a model is what it may call."""
    return ceilings(facts).denied_by is None


def _mode(facts: Facts) -> tuple[str, str]:
    mode = facts.mode.stricter(facts.policy.mode)
    access, name = facts.access_mode, facts.tool_name
    if mode is Mode.PLAN and access not in (AccessMode.READONLY, AccessMode.NETWORK):
        return "mode_plan", f"{name} {access_text(access)}, and mode plan only reads"
    if mode is not Mode.EXPLORE:
        return "", ""
    if access.requires_approval and facts.workspace_mode != "scratch":
        text = f"{name} {access_text(access)}, and mode explore does so on a scratch workspace only"
        return "mode_explore", text
    if facts.cost is CostTier.HIGH:
        return "mode_explore", f"{name} is of high cost, which mode explore does not spend"
    return "", ""


def _phase(facts: Facts) -> tuple[str, str]:
    if phase_admits_tool(facts.phase, facts.task_kind, facts):
        return "", ""
    kind = f" of a task of kind {shown(facts.task_kind)}" if facts.task_kind else ""
    return "phase", f"{facts.tool_name} is not admitted in phase {shown(facts.phase or '-')}{kind}"


def _tier(facts: Facts) -> tuple[str, str]:
    if facts.permission_tier >= TIER_NEVER:
        return "tier_never", f"{facts.tool_name} is of a tier that is never granted"
    most = facts.policy.max_tier
    if facts.max_tier is not None:
        most = min(most, facts.max_tier)
    tier = tier_of(facts.access_mode, facts.permission_tier)
    if tier <= most:
        return "", ""
    return "tier", f"{facts.tool_name} is of tier {tier}, and no more than tier {most} is admitted"


def _cost(facts: Facts) -> tuple[str, str]:
    most = facts.policy.max_cost
    if facts.cost.weight <= most.weight:
        return "", ""
    return "cost", f"{facts.tool_name} is of {facts.cost} cost, and {most} is the most admitted"


# -- 5: the words -------------------------------------------------------------------------

_ACCESS_TEXTS: Final = {
    AccessMode.READONLY: "only reads",
    AccessMode.NETWORK: "uses the network",
    AccessMode.WRITE: "writes to the workspace",
    AccessMode.EXECUTE: "runs commands or code",
    AccessMode.MIXED: "may read, write, run code and use the network",
}


def access_text(access: AccessMode) -> str:
    """What a tool of this access does, as the end of a sentence."""
    return _ACCESS_TEXTS[access]


def reads_words(facts: Facts) -> bool:
    """Whether a command is judged by its own words: where the jail is not enough to trust."""
    return facts.command is not None and facts.policy.trust_the_jail and not facts.contained


def access(facts: Facts) -> Finding:
    """The access mode, or, where a command's words are read, the words."""
    mode = facts.access_mode
    if not reads_words(facts):
        text = f"{facts.tool_name} {access_text(mode)}"
        return _level(mode.approval_level(), f"access_{mode.value}", text)
    assert facts.command is not None
    command = facts.command
    told = tuple(dict.fromkeys(one for segment in command.segments for one in segment.reasons))
    if not told:
        told = (Reason(code="command_read", text="every part of the command only reads"),)
    return Finding(level=command.level, reasons=told)


def danger(facts: Facts) -> Finding:
    """What the tool says of the harm it can do; of a command, its words say it better."""
    level = facts.danger.approval_level()
    if level == LEVEL_AUTO or (reads_words(facts) and facts.danger is not DangerLevel.CRITICAL):
        return NOTHING
    text = f"{facts.tool_name} is marked as {facts.danger.value} danger"
    return _level(level, f"danger_{facts.danger.value}", text)


def required_level(facts: Facts) -> Finding:
    """The level that the tool's origin asks for."""
    level = max(LEVEL_AUTO, min(LEVEL_ALWAYS, facts.permission_level))
    if level == LEVEL_AUTO:
        return NOTHING
    return _level(level, "level_required", f"{facts.tool_name} is to be used at level {level}")


def tier(facts: Facts) -> Finding:
    """The phase dialect's tier; 3 and above asks every time, whatever the jail is worth."""
    level = tier_level(facts.permission_tier)
    if level == LEVEL_AUTO:
        return NOTHING
    text = f"{facts.tool_name} is of permission tier {facts.permission_tier}"
    if facts.permission_tier >= TIER_ALWAYS:
        return _forced("tier_always", text)
    return _level(level, "tier_required", text)


# -- 6: what nothing lowers ---------------------------------------------------------------


def network(facts: Facts) -> Finding:
    """The host's network, or one that nobody here knows."""
    if facts.network in ("none", "loopback"):
        return NOTHING
    if facts.network == "host":
        return _forced("network_host", "the call shares the host's network")
    return _forced("network_unknown", "the call asks for a network nobody knows")


def waived(facts: Facts) -> Finding:
    """Guarantees that were waived by name."""
    if not facts.waived:
        return NOTHING
    names = ", ".join(dict.fromkeys(facts.waived))
    return _forced("waived", f"the jail may do without what was waived: {names}")


def write_grants(facts: Facts) -> Finding:
    """Paths that are written in a host folder which was granted for it."""
    used = [one for one in facts.paths if one.role == "write" and one.folder is not None]
    texts = dict.fromkeys(
        f"{shown(one.path_as_given)} is in a folder granted for writing: nothing there is undone"
        for one in used
    )
    return Finding(reasons=tuple(Reason(code="write_grant", text=text) for text in texts))


def command_words(facts: Facts) -> Finding:
    """A command that is not understood, runs code, or writes where no path says, untrusted."""
    command = facts.command
    if command is None or facts.is_trusted:
        return NOTHING
    if command.problem is not None:
        return _forced(
            "command_not_understood", f"the command is not understood: {command.problem}"
        )
    opaque = [segment for segment in command.segments if not segment.kinds.isdisjoint(_OPAQUE)]
    reasons = tuple(dict.fromkeys(one for segment in opaque for one in segment.reasons))
    if opaque:
        return Finding(forced=LEVEL_ALWAYS, reasons=reasons)
    if facts.exposed is not None:
        text = (
            f"the command may read {shown(facts.exposed)}, and nothing is hidden in this workspace"
        )
        return _forced("command_reads_secret", text)
    if facts.workspace_mode == "direct" and any(
        operand.glob or operand.path is None
        for segment in command.segments
        for operand in segment.writes
    ):
        text = "the command writes to names that only a run can tell, and nothing is undone"
        return _forced("command_writes_unknown", text)
    return NOTHING


_OPAQUE: Final = frozenset({"interpreter", "runner", "unknown"})


def length(facts: Facts) -> Finding:
    """A call too long to be shown whole."""
    if facts.display_bytes <= DISPLAY_BYTES_MAX:
        return NOTHING
    text = (
        f"the call is too long to be shown whole "
        f"({facts.display_bytes:,} bytes; {DISPLAY_BYTES_MAX:,} can be)"
    )
    return _forced("call_too_long", text)


PASSES: Final[tuple[Callable[[Facts], Finding], ...]] = (
    run_state,
    paths,
    command_paths,
    command_floor,
    rules,
    ceilings,
    access,
    danger,
    required_level,
    tier,
    network,
    waived,
    write_grants,
    command_words,
    length,
)
"""In order. A pass added here can only raise."""
