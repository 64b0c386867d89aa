"""Whether a tool can run here and now, by its own word: asked when it is shown and when called."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

from toolcell.results import ToolUnavailable
from toolcell.tools import Tool

__all__ = ["refuse_async_check", "unavailable"]

CAUSE_MAX_CHARS: Final = 300


def unavailable(tool: Tool) -> ToolUnavailable | None:
    """Why the tool cannot run now; None where it can, or has no check.

    The check is the program's own code and runs here, in this thread. What it answers is true or
    false by Python's rules; an exception means unavailable, and is named. What is no `Exception`
    (a cancellation, KeyboardInterrupt) goes up. An awaitable is no answer: unavailable.
    """
    if tool.availability_check is None:
        return None
    try:
        answer = tool.availability_check()
        if inspect.isawaitable(answer):
            _close(answer)
            cause = "its check returned an awaitable instead of an answer"
        elif answer:
            return None
        else:
            cause = "its check said no"
    except Exception as error:  # noqa: BLE001  # any failure of the check is an answer
        cause = f"its check raised {_told(error)}"
    return ToolUnavailable(
        message=f"the tool {tool.name} cannot run here now: {cause}",
        cause=cause,
        remedy="Do without it; only the operator can make it available.",
    )


def refuse_async_check(tool: Tool) -> None:
    """Refuse a check that cannot answer at once, in whatever it is wrapped.

    Raises:
        ValueError: it is async.
    """
    check: Any = tool.availability_check
    while isinstance(check, functools.partial):
        check = check.func
    if inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(type(check).__call__):
        raise ValueError(
            f"tool {tool.name}: availability_check is async, and it is asked while tools are "
            "listed; make it a plain function that answers from what is known"
        )


def _close(answer: Any) -> None:
    """End a coroutine that nobody will await, which Python warns about otherwise."""
    if inspect.iscoroutine(answer):
        answer.close()


def _told(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # its text is code as well
        text = ""
    flat = " ".join(text[:CAUSE_MAX_CHARS].split())
    plain = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in flat)
    kind = type(error).__name__[:80]
    return f"{kind}: {plain}"[:CAUSE_MAX_CHARS] if plain else kind
