"""What a handler gets of its call, and what it may say and ask while it runs. Light: runs in jails.

The line to the supervisor is `toolcell_sandbox._child.channel`: private, and no boundary. What is
answered over it is advice for an honest handler; the jail is as it was made, whatever it says.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, get_origin

from toolcell.calls import CallContext
from toolcell.errors import ToolError

if TYPE_CHECKING:
    from toolcell._signature import Signature
    from toolcell_sandbox._child.channel import Channel

__all__ = ["HandlerContext", "injected"]

TEXT_MAX = 500
"""Characters of a word of progress; the rest is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HandlerContext(CallContext):
    """A call's context as its handler sees it: whom it is for, how far it is, what it may do.

    `deps` is the plain data that the executor was given for its handlers; services are opened
    inside. All of it is data: nothing that is changed here is seen outside. It equals any context
    that is for the same.
    """

    call_id: str | None = None
    deps: Mapping[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CallContext):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _WHOM)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in _WHOM))

    @property
    def deadline_s(self) -> float | None:
        """How many seconds of the call's time are left; None where nobody counts.

        By CLOCK_MONOTONIC, without the time in which a person was asked and the tree was frozen.
        Some milliseconds more than the supervisor's own, which is what ends the call.
        """
        line = _line()
        return None if line is None else line.left_s()

    def progress(
        self,
        done: float | str | None = None,
        total: float | None = None,
        message: object | None = None,
    ) -> None:
        """Say how far the handler is, in units of its own, for whoever watches.

        `progress("half way")`, a text first, is a message alone.
        Returns at once and never raises; any thread may call it, async handlers too. Words that
        come too soon after each other are left out and counted, the last one never. A message is
        cut after 500 characters.
        """
        if isinstance(done, str) and message is None:
            done, message = None, done
        line = _line()
        if line is not None:
            line.say(_amount(done), _amount(total), _text(message))

    def permission(
        self,
        action: str,
        resources: Iterable[str | os.PathLike[str]] | os.PathLike[str] = (),
        *,
        save: Iterable[str] | None = None,
    ) -> bool:
        """Ask whether this call may do something of which it learned only now; True is a clear yes.

        `action` is "readonly" (or "read"), "write" (or "edit"), "execute", "network" or "mixed", as
        far as the tool's own access mode has it in it, or its permission action, which is all of
        it. `resources` says on what: paths for what reads and writes, relative to the workspace or
        absolute; for the rest text that a person understands. With `save` a person may be offered
        to remember the answer; how far that goes is not for the handler to say.

        Waits until it is answered, while a person thinks too. At most 8 are asked in a call, of
        at most 16 resources and 4 KiB each: what cannot be asked is a no. The answer gives no
        right that the jail does not have: a path that is read-only stays so.

        Raises:
            ToolError: there is nobody to ask any more: the supervisor has closed the line, the
                handler was started without one, or this is a fork of its process.
        """
        from toolcell_sandbox._child.channel import Gone, Refused

        line = _line()
        if line is None:
            raise ToolError("permission cannot be asked for: this handler has no line for it")
        named = [resources] if isinstance(resources, str | os.PathLike) else resources
        request = {
            "action": str(action),
            "resources": [_named(resource) for resource in named],
            "save": None if save is None else [save] if isinstance(save, str) else list(save),
        }
        try:
            return line.ask(request).get("allowed") is True
        except Refused:
            return False
        except Gone as error:
            raise ToolError(f"permission cannot be asked for: {error}") from error

    async def apermission(
        self,
        action: str,
        resources: Iterable[str | os.PathLike[str]] | os.PathLike[str] = (),
        *,
        save: Iterable[str] | None = None,
    ) -> bool:
        """`permission` for async handlers: waits in a thread, under trio or asyncio.

        Cancelled, it stops waiting; the question is answered all the same, and to nobody. `Raises`
        as there.
        """

        def ask() -> bool:
            return self.permission(action, resources, save=save)

        if "trio" in sys.modules:
            import trio

            if trio.lowlevel.in_trio_task():
                return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
        import asyncio

        return await asyncio.to_thread(ask)


_WHOM = tuple(f.name for f in fields(CallContext))
_OWN = frozenset(f.name for f in fields(HandlerContext))


def injected(found: Signature, context: Mapping[str, Any]) -> dict[str, Any]:
    """What a handler's injected parameters get: a `HandlerContext`, or a dict where they say so."""
    if not found.context_names:
        return {}
    value = HandlerContext(
        **{name: item for name, item in context.items() if name in _OWN and item is not None}
    )
    return {
        name: dict(context) if dict in (hint, get_origin(hint)) else value
        for name, hint in found.context_names.items()
    }


def _line() -> Channel | None:
    """This process's line; None outside of a jail, without even an import."""
    found = sys.modules.get("toolcell_sandbox._child.channel")
    return None if found is None else found.current()


def _amount(value: object) -> float | None:
    """A number that JSON can say in 64 bits; what is none is left out."""
    try:
        amount = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(amount):
        return None
    return int(amount) if amount.is_integer() and abs(amount) < 2**53 else amount


def _text(value: object) -> str | None:
    if value is None:
        return None
    try:
        return str(value)[:TEXT_MAX].encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001  # a foreign __str__: progress never raises
        return None


def _named(resource: str | os.PathLike[str]) -> str:
    """Text as it is; a path object by its place, whatever the working directory is by then."""
    return resource if isinstance(resource, str) else os.path.abspath(os.fspath(resource))
