"""A pack's own tools as plain data, made inside a jail: what `packs.load_pack` reads and checks."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Final

from toolcell._function_tool import FunctionTool
from toolcell._make import of_base
from toolcell._tool_identity import CALLABLES
from toolcell._tool_record import WORDS as TEXTS
from toolcell._tool_record import Tool
from toolcell.base_tool import BaseTool
from toolcell.definition import ToolDefinition
from toolcell.tools import compiled

__all__ = ["WORDS", "described", "record_of"]

WORDS: Final = (*TEXTS, "phases")
"""Fields that are lists of text."""


def described(module: types.ModuleType) -> list[dict[str, Any]]:
    """Every tool at the module's top level, each once.

    A function that `@tool` decorates, a record of `Tool.make`, a `ToolDefinition`, an object of a
    `BaseTool`, and a class of one that the module itself defines, unless an object of it is there
    or it says no name. Without a name of its own a tool has that of its place.

    Raises:
        TypeError, ValueError: a tool has no usable schema; the message names it.
    """
    found: dict[int, dict[str, Any]] = {}
    for name, value in vars(module).items():
        if _is_tool(value, module) and id(value) not in found:
            found[id(value)] = _one(name, record_of(value))
    return list(found.values())


def record_of(value: Any) -> Tool:
    """The record of what stands at the top level; an object is what it is, and not built again."""
    return of_base(value, rebuilt=False) if isinstance(value, BaseTool) else compiled(value)


def _is_tool(value: object, module: types.ModuleType) -> bool:
    if isinstance(value, FunctionTool | ToolDefinition | BaseTool):
        return True
    if isinstance(value, Tool):
        return value.ref is not None
    if not (isinstance(value, type) and issubclass(value, BaseTool)):
        return False
    objects = (one for one in vars(module).values() if isinstance(one, BaseTool))
    is_own = value.__module__ == module.__name__
    return is_own and hasattr(value, "name") and not any(type(one) is value for one in objects)


def _one(place: str, tool: Tool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": tool.name or place,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "access_mode": tool.access_mode.value,
        "danger_level": tool.danger_level.value,
        "aliases": list(tool.aliases),
        "path_params": dict(tool.path_params),
        "qualname": place,
        "limits": None if tool.limits is None else dataclasses.asdict(tool.limits),
        "timeout_s": tool.timeout_s,
        "output_schema": tool.output_schema,
        "category": tool.category,
        "priority": int(tool.priority),
        "cost_tier": tool.cost_tier.value,
        "is_idempotent": tool.is_idempotent,
        "execution_category": tool.runs_as.value,
        "permission_tier": tool.permission_tier,
        "fills_defaults": tool.fills_defaults,
        "takes_context": tool.takes_context,
        "has_metadata": tool.has_metadata,
    }
    found |= {name: list(getattr(tool, name)) for name in WORDS}
    return found | {f"has_{name}": getattr(tool, name) is not None for name in CALLABLES}
