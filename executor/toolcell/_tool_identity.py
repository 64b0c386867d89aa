"""One hash for all that a tool says and is, whatever changes about a call."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolcell._tool_record import Tool

__all__ = ["CALLABLES", "spec_hash_of"]

CALLABLES: Final = ("availability_check", "paths", "to_model_output")
"""The fields that are functions of the program's own."""

WRAPPED_MAX: Final = 64


def spec_hash_of(tool: Tool) -> str:
    """sha256 over a tool's schemas, handler, words and functions, without what selects it."""
    said = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "access_mode": tool.access_mode,
        "danger_level": tool.danger_level,
        "cost_tier": tool.cost_tier,
        "permission": [tool.permission_tier, tool.phases, tool.escalation, tool.action],
        "handler": [type(tool.handler).__name__, dataclasses.asdict(tool.handler)],
        "aliases": tool.aliases,
        "output_schema": tool.output_schema,
        "limits": None if tool.limits is None else dataclasses.asdict(tool.limits),
        "network": None if tool.network is None else tool.network.kind,
        "timeout": [tool.timeout_s, tool.timeout_param],
        "path_params": dict(tool.path_params),
        "runs_as": [tool.runs_as, tool.is_idempotent, tool.fills_defaults, tool.level_floor],
        "callables": [told(getattr(tool, name)) for name in CALLABLES],
        "in_jail": sorted(tool.in_jail),
    }
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def told(function: Any) -> list[Any] | None:
    """A callable by its name and its code, so that another one is another tool."""
    if function is None:
        return None
    for _ in range(WRAPPED_MAX):
        function = getattr(function, "__wrapped__", function)
    if isinstance(function, functools.partial):
        return [told(function.func), repr(function.args), repr(sorted(function.keywords.items()))]
    function = getattr(function, "__func__", function)
    named = function if hasattr(function, "__qualname__") else type(function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    digest = hashlib.sha256()
    if code is not None:
        _digest_code(code, digest)
    return [getattr(named, "__module__", None), named.__qualname__, digest.hexdigest()]


def _digest_code(code: types.CodeType, digest: Any) -> None:
    digest.update(repr((code.co_code, code.co_names, code.co_varnames)).encode())
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            _digest_code(const, digest)
        else:
            shown = sorted(map(repr, const)) if isinstance(const, frozenset) else repr(const)
            digest.update(f"{type(const).__name__}{shown}".encode())
