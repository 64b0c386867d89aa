"""A tool's schema as others say it: plain JSON Schema, MCP, OpenAI, Anthropic; at three levels.

What a model sends is judged by the tool's own schema, whatever was exported. So an export may
leave out what only narrows, where a provider refuses the keyword; what it cannot say without loss
it refuses. `lint` tells which, beforehand.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from toolcell._provider_lint import Finding, fitted, lint, subject_of
from toolcell._provider_rules import DIALECTS, Dialect, Subject
from toolcell._schema_levels import at_level, described
from toolcell_policies.vocabulary import AccessMode, DangerLevel, SchemaLevel

if TYPE_CHECKING:
    from toolcell.tools import Tool

__all__ = [
    "DIALECTS",
    "Dialect",
    "Finding",
    "annotations_of",
    "lint",
    "sayable",
    "schema_of",
    "schemas_of",
]

_log = logging.getLogger("toolcell")


def schema_of(
    tool: Tool,
    level: SchemaLevel | str = SchemaLevel.FULL,
    dialect: Dialect = "json-schema",
) -> dict[str, Any]:
    """What a model is told of a tool: a new object, the same byte for byte in every process.

    - `json-schema`: name, description, input_schema, and output_schema where there is one.
    - `mcp`: name, description, inputSchema, outputSchema where there is one that is an object, and
      annotations.
    - `openai`: `{"type": "function", "function": {name, description, parameters, strict}}`, strict
      where the schema is within what strict mode takes.
    - `anthropic`: name, description, input_schema.

    Schemas are JSON Schema 2020-12 and refer to their own `$defs` only. At `compact` prose is cut
    to a sentence; at `stub` there is one line, what a call must have, and no output schema: what
    the stub accepts, the full schema of the same dialect accepts.

    Raises:
        ValueError: there is no such level or dialect, or the dialect cannot say this schema: names
            the place, the reason and the way out.
    """
    level = _known(level, dialect)
    known = _KNOWN.setdefault(tool, {})
    if (level, dialect) not in known:
        known[level, dialect] = json.dumps(_made(tool, level, dialect))
    found: dict[str, Any] = json.loads(known[level, dialect])
    return found


def schemas_of(
    tools: Iterable[Tool],
    level: SchemaLevel | str = SchemaLevel.FULL,
    dialect: Dialect = "json-schema",
) -> list[dict[str, Any]]:
    """`schema_of` each tool, in the order given.

    Raises:
        ValueError: as `schema_of`; names the tool.
    """
    return [schema_of(tool, level, dialect) for tool in tools]


def sayable(
    tools: Iterable[Tool], level: SchemaLevel | str, dialect: Dialect
) -> list[dict[str, Any]]:
    """`schema_of` each tool that the dialect can say, in the order given.

    Any other is left out, with a warning in the log that names it and why: one tool, a pack's too,
    does not hide the rest. `lint` tells beforehand.

    Raises:
        ValueError: there is no such level or dialect.
    """
    level = _known(level, dialect)
    found: list[dict[str, Any]] = []
    for tool in tools:
        try:
            found.append(schema_of(tool, level, dialect))
        except ValueError as error:
            _log.warning("the tool %s is not shown as %s: %.500s", tool.name, dialect, error)
    return found


def _known(level: SchemaLevel | str, dialect: Dialect) -> SchemaLevel:
    if dialect not in _SHAPES:
        raise ValueError(f"there is no dialect {dialect!r}; there are: {', '.join(DIALECTS)}")
    return SchemaLevel(level)


def annotations_of(tool: Tool) -> dict[str, Any]:
    """MCP's hints, each said outright: what is not said, a client assumes the worst of.

    `openWorldHint` is true for a tool that speaks to others by its access mode, or that brings the
    host's network along; what network an executor gives to all, the tool does not know.
    """
    brings_network = tool.network is not None and tool.network.kind == "host"
    return {
        "title": tool.name.replace("_", " ").replace("-", " ").strip().capitalize(),
        "readOnlyHint": tool.access_mode is AccessMode.READONLY,
        "destructiveHint": tool.danger_level.weight >= DangerLevel.HIGH.weight,
        "idempotentHint": tool.is_idempotent,
        "openWorldHint": brings_network
        or tool.access_mode in (AccessMode.NETWORK, AccessMode.MIXED),
    }


def _made(tool: Tool, level: SchemaLevel, dialect: Dialect) -> dict[str, Any]:
    whole = subject_of(tool)
    output = None if level is SchemaLevel.STUB else whole.output
    told = Subject(
        name=whole.name,
        description=described(whole.description, level),
        schema=at_level(whole.schema, level),
        output=None if output is None else at_level(output, level),
    )
    subject, is_strict = fitted(told, dialect)
    return _SHAPES[dialect](tool, subject, is_strict)


def _json_schema(_: Tool, told: Subject, __: bool) -> dict[str, Any]:
    found = {"name": told.name, "description": told.description, "input_schema": told.schema}
    return found if told.output is None else found | {"output_schema": told.output}


def _mcp(tool: Tool, told: Subject, __: bool) -> dict[str, Any]:
    found = {"name": told.name, "description": told.description, "inputSchema": told.schema}
    if told.output is not None:
        found["outputSchema"] = told.output
    return found | {"annotations": annotations_of(tool)}


def _openai(_: Tool, told: Subject, is_strict: bool) -> dict[str, Any]:
    function = {
        "name": told.name,
        "description": told.description,
        "parameters": told.schema,
        "strict": is_strict,
    }
    return {"type": "function", "function": function}


def _anthropic(_: Tool, told: Subject, __: bool) -> dict[str, Any]:
    return {"name": told.name, "description": told.description, "input_schema": told.schema}


_SHAPES: Final[dict[Dialect, Callable[[Tool, Subject, bool], dict[str, Any]]]] = {
    "json-schema": _json_schema,
    "mcp": _mcp,
    "openai": _openai,
    "anthropic": _anthropic,
}

_KNOWN: Final[WeakKeyDictionary[Tool, dict[tuple[SchemaLevel, Dialect], str]]] = WeakKeyDictionary()
"""What was exported before, as text: a tool never changes, and its copies are cheap."""
