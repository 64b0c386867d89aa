"""Tools for `test_turns.py`, found by module and name."""

from __future__ import annotations

import secrets
import sys

from toolcell.calls import CallContext
from toolcell.errors import ToolError
from toolcell.tools import tool


@tool(is_idempotent=True)
def number() -> int:
    """A number that is another one each time it is run."""
    return secrets.randbits(60)


@tool(is_idempotent=True)
def again() -> None:
    """What may pass by itself, and does not."""
    raise ToolError("the other side is busy", retryable="yes")


@tool
def once() -> None:
    """The same, of what must not be done twice."""
    raise ToolError("the other side is busy", retryable="yes")


@tool(is_idempotent=True)
def fed(fails: bool = False) -> str:
    """What it reads from its standard input."""
    said = sys.stdin.read()
    if fails:
        raise ToolError(said, retryable="yes")
    return said


@tool(access_mode="write", permission_tier=1)
def remember(text: str, context: CallContext) -> str:
    """Says what it was told, and what its run gave it."""
    return f"{getattr(context, 'deps', {}).get('greeting')} {text} {context.phase}"


ALL = (number, again, once, fed)
