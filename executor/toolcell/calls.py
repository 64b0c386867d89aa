"""What a caller hands in: the call itself and who it is made for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolcell.errors import ToolError
from toolcell_policies.vocabulary import TIER_NEVER, Mode, Phase, TaskKind

CALL_ID_MAX = 256


def new_call_id() -> str:
    """A fresh id: sorts by time, unique across processes (48 bits of ms, 80 random)."""
    return f"call_{int(time.time() * 1000):012x}{os.urandom(10).hex()}"


@dataclass(frozen=True, slots=True, init=False)
class ToolCall:
    """One request: a tool's name or alias, its JSON arguments, and an id of the caller's choice.

    Arguments are untrusted; they are validated and never rewritten, but for recorded repairs.

    Raises:
        ValueError: the id is too long to be a record's key.
    """

    name: str
    arguments: Mapping[str, object]
    call_id: str

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        call_id: str | None = None,
    ) -> None:
        call_id = call_id or new_call_id()
        if not isinstance(call_id, str) or len(call_id) > CALL_ID_MAX:  # type: ignore[redundant-expr]  # callers without a type checker
            raise ValueError(f"a call_id is text of at most {CALL_ID_MAX} characters")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", {} if arguments is None else arguments)
        object.__setattr__(self, "call_id", call_id)


@dataclass(frozen=True, slots=True)
class CallContext:
    """Whom a call is made for: plain data, never settable by the model.

    `mode`, `phase`, `task_kind` and `tier` are ceilings: each can only leave out what the executor
    would admit. An agent that starts another passes its own on.

    A handler's parameter with this annotation gets the one that its call was made for, with the
    call's id, the data that the executor was given, and a line to the supervisor. One that a
    caller makes has none of these: `progress` says nothing to nobody, `permission` raises.

    Raises:
        ValueError: a word is no mode, phase or kind of task, or the tier is not 0 to 4.
    """

    session_id: str | None = None
    agent_id: str | None = None
    message_id: str | None = None
    phase: str | None = None
    task_kind: str | None = None
    mode: str | None = None
    tier: int | None = None

    def __post_init__(self) -> None:
        words: tuple[tuple[str, type[StrEnum]], ...] = (
            ("phase", Phase),
            ("task_kind", TaskKind),
            ("mode", Mode),
        )
        for name, kind in words:
            value = getattr(self, name)
            if value is None:
                continue
            offered = tuple(word.value for word in kind)
            if value not in offered:
                raise ValueError(f"{name} {value!r:.50} is none of: {', '.join(offered)}")
            object.__setattr__(self, name, kind(value))
        if self.tier is not None and self.tier not in range(TIER_NEVER + 1):
            raise ValueError(f"tier is 0 to {TIER_NEVER}, not {self.tier!r:.50}")

    @property
    def call_id(self) -> str | None:
        """The id of the handler's call."""
        return None

    @property
    def deps(self) -> Mapping[str, Any]:
        """The plain data that the executor was given for its handlers."""
        return {}

    @property
    def deadline_s(self) -> float | None:
        """How many seconds of the call's time are left; None where nobody counts."""
        return None

    def progress(
        self,
        done: float | str | None = None,
        total: float | None = None,
        message: object | None = None,
    ) -> None:
        """Say how far the handler is, for whoever watches; see `HandlerContext.progress`."""

    def permission(
        self,
        action: str,
        resources: Iterable[str | os.PathLike[str]] | os.PathLike[str] = (),
        *,
        save: Iterable[str] | None = None,
    ) -> bool:
        """Ask whether the call may do something more; see `HandlerContext.permission`.

        Raises:
            ToolError: there is nobody to ask.
        """
        raise ToolError("permission cannot be asked for: this context is no running handler's")

    async def apermission(
        self,
        action: str,
        resources: Iterable[str | os.PathLike[str]] | os.PathLike[str] = (),
        *,
        save: Iterable[str] | None = None,
    ) -> bool:
        """`permission` for async handlers; raises as there."""
        return self.permission(action, resources, save=save)


@dataclass(frozen=True, slots=True)
class RunDeps:
    """What one run of an agent gives its tools, in the phase dialect: `handler(args, deps)`.

    `phase` and `task_kind` are ceilings, as in `CallContext`. `extra` is plain data, which travels
    into the jail: services are opened inside. `approver` is asked for what needs a person, None is
    nobody; it stays outside, and is None for the handler.

    Raises:
        ValueError: a word is no phase or kind of task.
    """

    workspace: str | os.PathLike[str]
    phase: str | None = None
    task_kind: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    approver: Any = None

    def __post_init__(self) -> None:
        self.context()

    def context(self) -> CallContext:
        """The ceilings, as a call's context."""
        return CallContext(phase=self.phase, task_kind=self.task_kind)
