"""What only an untrusted pack's own functions can tell about a call, asked in a jail beforehand.

Each answer is another jail's, without workspace and network, and the words of nobody who is
trusted: it can take a call away, never give one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from toolcell._returned import said
from toolcell.packs import PackError, ask_pack
from toolcell.results import Denied, ToolUnavailable
from toolcell.tools import Tool
from toolcell_policies import Reason
from toolcell_sandbox import JailOutcome

__all__ = ["paths_in_jail", "unavailable_in_jail", "worded_in_jail"]


async def unavailable_in_jail(tool: Tool, *, isolation: str) -> ToolUnavailable | None:
    """Why a pack's tool cannot run; None where it can, or has no check, or is no pack's."""
    if "availability_check" not in tool.in_jail:
        return None
    cause = "its availability check said no"
    try:
        if await ask_pack(tool, "availability_check", isolation=isolation):
            return None
    except PackError as error:
        cause = str(error)
    return ToolUnavailable(message=f"{tool.name} is not available now: {cause}", cause=cause)


async def paths_in_jail(
    tool: Tool, arguments: Mapping[str, Any], *, isolation: str
) -> tuple[str, ...] | Denied | None:
    """The paths that a pack's tool names; None where it has no such function, or is no pack's."""
    if "paths" not in tool.in_jail:
        return None
    try:
        found: tuple[str, ...] = await ask_pack(tool, "paths", arguments, isolation=isolation)
    except PackError as error:
        reason = Reason(code="paths_unknown", text=f"which paths it names cannot be told: {error}")
        return Denied(message=f"policy does not allow this call: {reason.text}", reasons=(reason,))
    return found


async def worded_in_jail(tool: Tool, outcome: JailOutcome, *, isolation: str) -> Tool:
    """The tool, with what its own `to_model_output` says about this outcome in a function's place.

    Where it failed the function raises, which leaves the value as it would be shown without.
    """
    if "to_model_output" not in tool.in_jail or outcome.failure is not None:
        return tool
    answer: Any = None
    problem: PackError | None = None
    try:
        value = said(outcome.value).output
        answer = await ask_pack(tool, "to_model_output", value, isolation=isolation)
    except PackError as error:
        problem = error

    def to_model_output(_: Any) -> Any:
        if problem is not None:
            raise problem
        return answer

    return dataclasses.replace(tool, to_model_output=to_model_output)
