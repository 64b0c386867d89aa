"""What a record of the audit log says, bounded: the intent of a call, and its one terminal."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from toolcell._audit_redact import redact_text

if TYPE_CHECKING:
    from toolcell.results import Effects, ToolResult
    from toolcell_policies.decision import Decision

__all__ = [
    "ABANDONED",
    "BODY_BYTES_MAX",
    "Intent",
    "Terminal",
    "decision_facts",
    "encoded",
    "terminal_of",
]

ABANDONED: Final = "abandoned"
"""The kind of a terminal that nobody was left to write. No result ever has it."""
BODY_BYTES_MAX: Final = 16_000
"""Of one record's body, which is ASCII: what a reserved slot can take."""
TOOL_NAME_CHARS_MAX: Final = 200
PATHS_MAX: Final = 50
PATH_CHARS_MAX: Final = 400
REASONS_MAX: Final = 50
WORD_CHARS_MAX: Final = 300
_SHORTENED: Final = (20, 5, 0)
"""How many entries of each list stay, tried in turn, where a body is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What is about to be run, and by whose leave. Everything is plain JSON.

    `arguments` are as `redact` gives them; `decision` as `decision_facts` does. `isolation` and
    `waived` are what was asked for. `approval` is `{"how", "grant", "waited_s"}`: "not_asked",
    "once", "session", "project", "grant", "resumed".
    """

    call_id: str
    tool_name: str
    session_id: str | None = None
    agent_id: str | None = None
    arguments: Mapping[str, Any] | None = None
    workspace: str | None = None
    isolation: str | None = None
    waived: Sequence[str] = ()
    network: str | None = None
    workspace_mode: str | None = None
    decision: Mapping[str, Any] | None = None
    approval: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How a call ended. `kind` is the failure's, None for a success; the rest is what is known.

    `receipt` is `{"isolation", "held": [names], "waived"}`, None where no jail was built or a
    cancel left none. `effects` are counts and the first paths. `answer` is a person's no.
    `decision` is for a call that has no other record of it. `permissions` is what it asked for
    while it ran, and what was answered. `cached_from` is the call whose result was given again:
    nothing ran, so there is neither receipt nor usage.
    """

    call_id: str
    tool_name: str
    kind: str | None
    receipt: Mapping[str, Any] | None = None
    exit_code: int | None = None
    usage: Mapping[str, Any] | None = None
    effects: Mapping[str, Any] | None = None
    decision: Mapping[str, Any] | None = None
    answer: Mapping[str, Any] | None = None
    permissions: Sequence[Mapping[str, Any]] | None = None
    cached_from: str | None = None


def decision_facts(decision: Decision) -> dict[str, Any]:
    """A decision as a record holds it: codes, rules and where they are written; no prose."""
    told = decision.to_json()
    reasons = [
        {name: reason[name] for name in ("code", "rule", "source")}
        for reason in told["reasons"][:REASONS_MAX]
    ]
    left_out = len(told["reasons"]) - len(reasons)
    return {
        "outcome": told["outcome"],
        "level": told["level"],
        "reasons": reasons,
        "plan_hash": told["plan_hash"],
        **({"reasons_left_out": left_out} if left_out else {}),
    }


def terminal_of(result: ToolResult, *, answer: Mapping[str, Any] | None = None) -> Terminal:
    """The terminal of a call that came to `result`."""
    cached_from = result.metadata.get("cached_from")
    ran = cached_from is None
    usage = None if result.usage is None or not ran else result.usage.to_json()
    receipt = None if result.receipt is None or not ran else result.receipt.to_json()
    return Terminal(
        call_id=result.call_id,
        tool_name=result.tool_name,
        kind=None if result.error is None else result.error.kind,
        receipt=None if receipt is None else receipt | {"held": sorted(receipt["held"])},
        exit_code=result.exit_code,
        usage=None
        if usage is None
        else {name: usage[name] for name in ("wall_s", "cpu_s", "peak_memory_bytes")},
        effects=None if result.effects is None else _effects_facts(result.effects),
        decision=None if result.decision is None else decision_facts(result.decision),
        answer=answer,
        permissions=_permission_facts(result.metadata.get("permissions")),
        cached_from=None if ran else _text(cached_from, WORD_CHARS_MAX),
    )


def _permission_facts(asked: Any) -> list[dict[str, Any]] | None:
    """What a call asked for while it ran: `MidCall.marked` lets no handler write this itself."""
    if not isinstance(asked, list):
        return None
    return [
        {
            "action": _text(one["action"], WORD_CHARS_MAX),
            "resources": [_text(path, PATH_CHARS_MAX) for path in one["resources"][:PATHS_MAX]],
            "answer": one["answer"],
            "how": one["how"],
        }
        for one in asked
    ]


def _effects_facts(effects: Effects) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("created", "modified", "deleted"):
        paths: Sequence[str] = getattr(effects, name)
        shown = [_text(path, PATH_CHARS_MAX) for path in paths[:PATHS_MAX]]
        found[name] = {"count": len(paths), "paths": shown}
    refused = [
        {name: value and _text(value, PATH_CHARS_MAX) for name, value in one.items()}
        for one in effects.refused[:PATHS_MAX]
    ]
    return found | {"refused": {"count": len(effects.refused), "paths": refused}}


# -- the body -------------------------------------------------------------------------------


def body_of(entry: Intent | Terminal) -> dict[str, Any]:
    """The entry as it is recorded, but for what only its place in the chain gives it.

    What is None is left out, but for a terminal's `kind`.

    Never too large: lists are shortened, then arguments left out, then all but what names the
    call; `"cut": true` says so. Never fails over what a caller put in.
    """
    record = "intent" if isinstance(entry, Intent) else "terminal"
    named = {
        "record": record,
        "time": _now(),
        "call_id": entry.call_id,
        "tool_name": _text(entry.tool_name, TOOL_NAME_CHARS_MAX),
    }
    given = ((field.name, getattr(entry, field.name)) for field in fields(entry))
    told = {name: value for name, value in given if value is not None or name == "kind"} | named
    try:
        if len(encoded(told)) <= BODY_BYTES_MAX:
            return told
        for most in _SHORTENED:
            shortened: dict[str, Any] = _shortened(told, most) | named | {"cut": True}
            if len(encoded(shortened)) <= BODY_BYTES_MAX:
                return shortened
    except (TypeError, ValueError, RecursionError):
        pass
    kind = {"kind": entry.kind} if isinstance(entry, Terminal) else {}
    return named | kind | {"cut": True}


def closing(call_id: object, tool_name: object) -> dict[str, Any]:
    """The terminal of a call whose executor was gone before it wrote one."""
    named = {"call_id": call_id, "tool_name": tool_name}
    return {"record": "terminal", "time": _now(), **named, "kind": ABANDONED}


def encoded(body: Mapping[str, Any]) -> str:
    """The canonical JSON of a body: sorted names, no blanks, ASCII.

    Raises:
        TypeError, ValueError: it holds what JSON cannot.
    """
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _shortened(value: Any, most: int) -> Any:
    """The same with at most `most` entries in each list and each dictionary of arguments."""
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for name, inner in value.items():
            found[_text(name, WORD_CHARS_MAX)] = _shortened(inner, most)
        if "arguments" in found and most < _SHORTENED[0]:
            found["arguments"] = {"[arguments]": "[not recorded: too much in one call]"}
        return found
    if isinstance(value, list | tuple):
        return [_shortened(inner, most) for inner in value[:most]]
    if isinstance(value, str):
        return _text(value, WORD_CHARS_MAX)
    return value


def _text(text: object, most: int) -> str:
    """A text without secrets, of at most `most` characters; bytes that are no UTF-8 escaped."""
    shown = redact_text(str(text)[:most])
    return shown.encode("utf-8", "backslashreplace").decode()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
