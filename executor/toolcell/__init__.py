"""toolcell: runs one tool call for an agent, safely, and says exactly how it ended.

Names are loaded when they are first asked for: inside a jail, `from toolcell import tool,
ToolError, ToolResult` loads neither trio nor pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolcell._version import __version__

if TYPE_CHECKING:
    from toolcell.approval import Answer, ApprovalRequest
    from toolcell.base_tool import BaseTool
    from toolcell.bridges.blocking import BlockingExecutor
    from toolcell.calls import CallContext, RunDeps, ToolCall
    from toolcell.definition import ToolDefinition
    from toolcell.errors import ToolError
    from toolcell.errors import ToolError as ToolFailure
    from toolcell.executor import Executor
    from toolcell.hooks import Hook
    from toolcell.markers import ReadPath, WritePath
    from toolcell.metadata import ToolMetadata
    from toolcell.metadata_registry import ToolMetadataRegistry
    from toolcell.registrations import Registration
    from toolcell.registry import Snapshot, ToolRegistry
    from toolcell.results import Failure, ToolResult
    from toolcell.runtime import ToolRuntime
    from toolcell.tools import (
        Tool,
        admits_transient_edit,
        is_edit_intent,
        phase_admits_tool,
        tool,
    )
    from toolcell.validation import ToolValidationResult
    from toolcell_policies import (
        AccessMode,
        CostTier,
        DangerLevel,
        Decision,
        ExecutionCategory,
        Mode,
        Policy,
        Priority,
        SchemaLevel,
    )
    from toolcell_sandbox.spec import Limits, Network

_HOME = {
    "AccessMode": "toolcell_policies",
    "Answer": "toolcell.approval",
    "ApprovalRequest": "toolcell.approval",
    "BaseTool": "toolcell.base_tool",
    "BlockingExecutor": "toolcell.bridges.blocking",
    "CallContext": "toolcell.calls",
    "CostTier": "toolcell_policies",
    "DangerLevel": "toolcell_policies",
    "Decision": "toolcell_policies",
    "ExecutionCategory": "toolcell_policies",
    "Executor": "toolcell.executor",
    "Failure": "toolcell.results",
    "Hook": "toolcell.hooks",
    "Limits": "toolcell_sandbox.spec",
    "Mode": "toolcell_policies",
    "Network": "toolcell_sandbox.spec",
    "Policy": "toolcell_policies",
    "Priority": "toolcell_policies",
    "ReadPath": "toolcell.markers",
    "Registration": "toolcell.registrations",
    "RunDeps": "toolcell.calls",
    "SchemaLevel": "toolcell_policies",
    "Snapshot": "toolcell.registry",
    "Tool": "toolcell.tools",
    "ToolCall": "toolcell.calls",
    "ToolDefinition": "toolcell.definition",
    "ToolError": "toolcell.errors",
    "ToolMetadata": "toolcell.metadata",
    "ToolMetadataRegistry": "toolcell.metadata_registry",
    "ToolRegistry": "toolcell.registry",
    "ToolResult": "toolcell.results",
    "ToolRuntime": "toolcell.runtime",
    "ToolValidationResult": "toolcell.validation",
    "WritePath": "toolcell.markers",
    "admits_transient_edit": "toolcell.tools",
    "is_edit_intent": "toolcell.tools",
    "phase_admits_tool": "toolcell.tools",
    "tool": "toolcell.tools",
}

__all__ = [
    "AccessMode",
    "Answer",
    "ApprovalRequest",
    "BaseTool",
    "BlockingExecutor",
    "CallContext",
    "CostTier",
    "DangerLevel",
    "Decision",
    "ExecutionCategory",
    "Executor",
    "Failure",
    "Hook",
    "Limits",
    "Mode",
    "Network",
    "Policy",
    "Priority",
    "ReadPath",
    "Registration",
    "RunDeps",
    "SchemaLevel",
    "Snapshot",
    "Tool",
    "ToolCall",
    "ToolDefinition",
    "ToolError",
    "ToolFailure",
    "ToolMetadata",
    "ToolMetadataRegistry",
    "ToolRegistry",
    "ToolResult",
    "ToolRuntime",
    "ToolValidationResult",
    "WritePath",
    "__version__",
    "admits_transient_edit",
    "is_edit_intent",
    "phase_admits_tool",
    "tool",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "ToolFailure":
        name = "ToolError"
    if name not in _HOME:
        raise AttributeError(f"module 'toolcell' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
