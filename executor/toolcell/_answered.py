"""Tools that the supervisor answers itself, because what they read is in no jail's reach.

Only toolcell's own: trusted code that runs here, on validated arguments, reads our own state or
the registry, and touches neither the workspace nor the network. Light: names no heavy module.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolcell.errors import ToolError

if TYPE_CHECKING:
    from toolcell.calls import CallContext
    from toolcell.registry import Snapshot
    from toolcell.retained import Retainer


@dataclass(frozen=True, slots=True)
class SupervisorRef:
    """A built-in tool that no jail is built for. `answer` is "module:function", trusted code.

    The function is async, takes the validated arguments by name and `asked`, and returns a value
    or a `Returned`, or raises `ToolError`.
    """

    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks, and what an answer may be made of."""

    retain: Retainer
    shown: Snapshot
    """The tools as whoever asks may see them."""
    context: CallContext


async def answer(ref: SupervisorRef, arguments: Mapping[str, Any], asked: Asked) -> object:
    """What the tool answers: a value, a `Returned`, or the `ToolError` that it raised."""
    module, _, name = ref.answer.partition(":")
    function = getattr(importlib.import_module(module), name)
    try:
        return await function(asked=asked, **arguments)
    except ToolError as error:
        return error
