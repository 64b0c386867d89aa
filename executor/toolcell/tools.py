"""`@tool`, and `as_tool`: whatever way a tool is written, one `Tool` comes out.

Importable inside a jail without pydantic and trio: what costs time is computed on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from toolcell._function_tool import FunctionTool
from toolcell._locate import CommandRef, HandlerRef, refuse_unreachable
from toolcell._make import fields_of
from toolcell._signature import CONTEXT_NAMES, signature
from toolcell._tool_record import NAME, Tool
from toolcell_policies import phases
from toolcell_policies.vocabulary import (
    AccessMode,
    CostTier,
    DangerLevel,
    ExecutionCategory,
    Priority,
)

if TYPE_CHECKING:
    from toolcell.base_tool import BaseTool
    from toolcell.definition import ToolDefinition
    from toolcell_sandbox.spec import Limits, Network

    Registrable = Tool | Callable[..., Any] | ToolDefinition | BaseTool | type[BaseTool]

__all__ = [
    "NAME",
    "CommandRef",
    "FunctionTool",
    "HandlerRef",
    "Tool",
    "admits_transient_edit",
    "as_tool",
    "is_edit_intent",
    "phase_admits_tool",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    aliases: Iterable[str] = (),
    access_mode: AccessMode | str | None = None,
    danger_level: DangerLevel | str | None = None,
    cost_tier: CostTier | str = CostTier.FREE,
    category: str = "general",
    keywords: Iterable[str] = (),
    use_cases: Iterable[str] = (),
    examples: Iterable[str] = (),
    priority_hints: Iterable[str] = (),
    priority: Priority | int | str = Priority.MEDIUM,
    stages: Iterable[str] = (),
    task_types: Iterable[str] = (),
    mandatory_keywords: Iterable[str] = (),
    progress_params: Iterable[str] = (),
    execution_category: ExecutionCategory | str | None = None,
    availability_check: Callable[[], object] | None = None,
    paths: Callable[[dict[str, Any]], Iterable[str]] | None = None,
    to_model_output: Callable[[Any], object] | None = None,
    content_lines: int | None = None,
    content_bytes: int | None = None,
    limits: Limits | None = None,
    network: Network | str | None = None,
    timeout: float | None = None,
    timeout_s: float | None = None,
    is_idempotent: bool = False,
    output_model: Any = None,
    output_schema: dict[str, Any] | None = None,
    permission_tier: int = 0,
    phases: Iterable[str] = (),
    escalation: bool = False,
    permission_action: str | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a module-level function, plain or async; usable bare or called.

    Name and description come from the function and the first paragraph of its docstring.
    Without `access_mode` it is readonly, or write when a parameter is a `WritePath`: the jail
    enforces it. Parameters annotated `CallContext`, or named `_exec_ctx` or `context`, are
    injected and never in the schema. The function runs in a process of its own.

    `timeout` and `timeout_s` are the same, seconds. `network` is a `Network` or its kind.
    `output_model` is a pydantic model, a dataclass or any annotation: what is returned is held to
    its schema. `paths` gets the validated arguments and names the values that are paths;
    `availability_check` says whether the tool can run now; `to_model_output` words a value for the
    model. These three are plain functions, and run in the program's own process.

    Raises:
        TypeError, ValueError: the function cannot be a tool; the message says why, and what can.
    """
    if function is not None:
        return made(function)
    return lambda target: made(target, **options)


def made(
    function: Callable[P, R],
    *,
    name: str | None = None,
    description: str | None = None,
    **rest: Any,
) -> FunctionTool[P, R]:
    """What `@tool` does; `rest` are further fields of `Tool`, toolcell's own as well."""
    if isinstance(function, Tool):
        raise TypeError(f"{function.name} is a tool already")
    refuse_unreachable(function)
    found = signature(function)
    roles = {p.name: p.role for p in found.parameters if p.role is not None}
    name = function.__name__ if name is None else name
    if description is None:
        from toolcell._docstring import summary

        description = summary(function.__doc__) or f"{name.replace('_', ' ').capitalize()}."
    least = AccessMode.WRITE if "write" in roles.values() else AccessMode.READONLY
    fields = fields_of(
        name,
        {"path_params": roles, "takes_context": bool(found.context_names), **rest},
        least=least,
    )
    return FunctionTool(name=name, description=description, function=function, **fields)


def as_tool(item: Registrable, key: str | None = None) -> Tool:
    """The one record of whatever a tool is written as, under `key` or its own name.

    A `Tool`, a function, a `ToolDefinition`, a `BaseTool` or a class of it. What could only fail
    at the first call fails here, while whoever registers it can still read the reason: a schema
    that providers reject, a handler that another process cannot find.

    Raises:
        TypeError: it is no tool and cannot become one.
        ValueError: its name, schema or handler cannot be used; the message says why, and the way
            out.
    """
    found = compiled(item)
    if key is not None and key != found.name:
        if not found.trusted:
            _ = found.compiled, found.handler  # once, however many names it gets
        found = found.renamed(key)
    if not found.name:
        raise ValueError('this tool has no name of its own: register it as register("name", tool)')
    if not found.trusted:
        check(found)
    return found


def compiled(item: Any) -> Tool:
    """The record of one tool, not yet checked for registration."""
    from toolcell.base_tool import BaseTool
    from toolcell.definition import ToolDefinition

    if isinstance(item, Tool):
        return item
    if isinstance(item, ToolDefinition):
        return item.compiled()
    if isinstance(item, BaseTool) or (isinstance(item, type) and issubclass(item, BaseTool)):
        from toolcell._make import of_base

        return of_base(item)
    if isinstance(item, type):
        raise TypeError(f"{item.__qualname__} is a class, and no BaseTool")
    return made(item)


def phase_admits_tool(phase: str | None, task_kind: str | None, tool: Registrable) -> bool:
    """Whether a tool, however it is written, may be shown and called in this phase of this task.

    None is no phase, or no kind, and admits all but what needs one. A word that is no phase, or
    no kind of task, admits nothing.
    """
    return phases.phase_admits_tool(phase, task_kind, compiled(tool))


def is_edit_intent(task_kind: str | None, tool: Registrable) -> bool:
    """Whether calling the tool says that the task's edits begin: an edit, where they are wanted."""
    return phases.is_edit_intent(task_kind, compiled(tool))


def admits_transient_edit(task_kind: str | None, tool: Registrable) -> bool:
    """Whether an edit is admitted that is taken back: an investigation has to net out to nothing.

    `Executor.verify_net_zero` is what says at verification whether it did.
    """
    return phases.admits_transient_edit(task_kind, compiled(tool))


def check(tool: Tool) -> None:
    """Refuse what could only fail at a call.

    Raises:
        ValueError: the schema, the output's schema or the handler cannot be used.
    """
    from toolcell.schema import check_defaults, check_schema

    schema = tool.input_schema
    check_schema(schema)
    if "_exec_ctx" in schema.get("properties", {}):
        raise ValueError(
            f"tool {tool.name}: {CONTEXT_NAMES[0]} is given by the executor, never by "
            "a model: take it out of the schema"
        )
    _ = tool.compiled, tool.compiled_output, tool.spec_hash
    if tool.fills_defaults:
        check_defaults(tool)
