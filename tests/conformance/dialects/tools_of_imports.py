"""Every front door in one module, and what a jail has loaded when it has imported that."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from toolcell import (
    AccessMode,
    BaseTool,
    CallContext,
    CostTier,
    Limits,
    Network,
    Priority,
    ReadPath,
    RunDeps,
    Tool,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolMetadata,
    ToolResult,
    WritePath,
    tool,
)

HEAVY = ("trio", "pydantic", "pydantic_core", "rich", "psutil", "asyncio", "jsonschema_rs")


class Named:
    """Stands for a model: what pydantic is needed for is read in the supervisor."""


class Empty(BaseTool):
    """A tool as a class."""

    name = "empty"
    description = "Nothing."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}
    metadata = ToolMetadata(keywords=["nothing"], cost_tier=CostTier.LOW, priority=Priority.LOW)

    def execute(self, _exec_ctx: CallContext) -> None:
        """Nothing."""


def handler(args: Named, deps: RunDeps) -> ToolResult:
    """Nothing."""
    raise ToolError(f"{deps.phase}")


def execute(input: dict[str, Any]) -> ToolCall:
    """Nothing."""
    return ToolCall("nothing", input)


DEFINED = ToolDefinition("defined", "Nothing.", Named, handler, ("editing",))
MADE = Tool.make(description="Nothing.", input={"type": "object"}, execute=execute)


@tool(access_mode=AccessMode.WRITE, limits=Limits(), network=Network.none())
def writes(path: WritePath, other: ReadPath) -> None:
    """Nothing."""


@tool(keywords=["modules"])
def loaded() -> ToolResult:
    """Say which heavy modules are loaded here."""
    return ToolResult(True, [name for name in HEAVY if name in sys.modules], None, {})
