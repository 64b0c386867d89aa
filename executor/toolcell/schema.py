"""JSON Schemas of tools: built from functions, checked, and used to validate arguments.

One road for every tool: whatever made the schema, arguments are validated against it by
`jsonschema_rs` with a linear-time regex engine and without network.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from toolcell import _problems
from toolcell._arguments import NotPlain, kind, read
from toolcell._repairs import Repairer
from toolcell.results import InvalidArguments

if TYPE_CHECKING:
    from toolcell.tools import Tool

__all__ = ["Compiled", "Validated", "check_foreign", "check_schema", "input_schema", "validate"]

DIALECTS: Final = {
    "json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}
"""By `$schema`, without its scheme and an empty fragment; without one it is 2020-12."""

FOREIGN_BYTES: Final = 64 << 10
FOREIGN_DEPTH: Final = 24
FOREIGN_NODES: Final = 20_000
"""How many places a foreign schema may have when every `$ref` is followed: it bounds time too."""

FOREIGN_PATTERNS: Final = 32
"""Regular expressions in a foreign schema: each costs up to half a millisecond to compile."""

_MAPS: Final = (
    "properties",
    "$defs",
    "definitions",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
)
_ELSEWHERE: Final = frozenset(
    ("$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor",
     "$schema")
)  # fmt: skip
"""What gives references another meaning than the place that they name."""

_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES: Final = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "additionalItems", "contentSchema",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Validated:
    """Arguments that the schema accepts, as plain JSON values, and what was repaired to get there.

    Each repair is `{"path", "from", "to", "why"}`. Defaults are filled in where the schema is all
    that says them (`Tool.fills_defaults`); a function and a model apply their own.
    """

    arguments: dict[str, Any]
    repairs: tuple[dict[str, str], ...] = ()


class Compiled:
    """An input schema, ready to validate with. Stateless once made."""

    __slots__ = ("_validator", "names", "schema")

    def __init__(self, schema: dict[str, Any]) -> None:
        dialect = _dialect(schema)
        try:
            self._validator: Any = DIALECTS[dialect](
                schema,
                validate_formats=True,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=1 << 20),
                offline=True,
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            reason = str(error).strip().splitlines()[0][:300]
            raise ValueError(f"not a usable JSON Schema ({dialect}): {reason}") from None
        self.schema = schema
        self.names: tuple[str, ...] = tuple(schema.get("properties", {}))

    def accepts(self, value: object) -> bool:
        """Whether the value is valid as it stands."""
        valid: bool = self._validator.is_valid(value)
        return valid

    def accepts_plain(self, value: object) -> bool:
        """Whether the value is plain JSON, and valid as it stands."""
        try:
            return self.accepts(read(value))
        except NotPlain:
            return False

    def errors(self, value: object) -> Iterator[Any]:
        """The validator's own errors, one by one."""
        return iter(self._validator.iter_errors(value))

    def problems(self, value: object) -> list[dict[str, str]]:
        """What is wrong with the value, at most twenty places."""
        return _problems.problems(self._validator.iter_errors(value), self.names, self.schema)


def validate(
    tool: Tool, arguments: Mapping[str, Any] | str | bytes
) -> Validated | InvalidArguments:
    """Check a call's arguments, given as JSON values or as JSON text.

    What is valid is not touched. Else lossless repairs are tried, each recorded. The values
    handed on are a copy of plain JSON values: strings without NUL, integers within 64 bits,
    finite numbers, nested at most 64 deep.
    """
    compiled = tool.compiled
    try:
        plain = read(arguments)
    except NotPlain as error:
        found = {"path": error.path, "message": str(error), "given": error.given}
        return _invalid(tool.name, [found], compiled.names, ())
    if not isinstance(plain, dict):
        found = {"path": "", "message": "expected one JSON object", "given": kind(plain)}
        return _invalid(tool.name, [found], compiled.names, ())
    repairer = Repairer(compiled.schema, loose=not compiled.accepts(plain))
    repaired = repairer.repaired(plain, compiled.schema)
    repairs = tuple(repairer.repairs)
    problems = repairer.problems
    if not problems and compiled.accepts(repaired):
        if tool.fills_defaults:
            repaired = with_defaults(repaired, compiled.schema)
        return Validated(repaired, repairs)
    problems = (problems + compiled.problems(repaired))[: _problems.PROBLEMS_MAX]
    return _invalid(tool.name, problems, compiled.names, repairs)


def _invalid(
    name: str,
    found: list[dict[str, str]],
    names: tuple[str, ...],
    repairs: tuple[dict[str, str], ...],
) -> InvalidArguments:
    return InvalidArguments(
        message=_problems.sentence(name, found, names),
        problems=tuple(found),
        valid_names=names,
        repairs=repairs,
    )


def input_schema(target: Tool | Callable[..., Any]) -> dict[str, Any]:
    """The JSON Schema of a tool, or of a function's parameters: a closed object.

    Raises:
        TypeError: a parameter's type has no JSON form; the message names it.
        ValueError: providers would reject the schema; the message says where and why.
    """
    from toolcell.tools import Tool

    if isinstance(target, Tool):
        return target.input_schema
    from toolcell._build import built

    schema = built(target)
    try:
        check_schema(schema)
    except ValueError as error:
        raise ValueError(f"{target.__name__}: {error}") from None
    return schema


def model_schema(model: Any) -> dict[str, Any]:
    """The JSON Schema of a model that arguments become an instance of: a closed object.

    Raises:
        TypeError: it has no JSON Schema, or is no object.
    """
    from toolcell._build import of_model

    return of_model(model)


def with_defaults(value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """`value` with what it leaves out filled in, at the top and in the objects it holds."""
    found = dict(value)
    properties = schema.get("properties")
    for name, below in (properties if isinstance(properties, dict) else {}).items():
        if not isinstance(below, dict):
            continue
        if name not in found and "default" in below:
            found[name] = copy.deepcopy(below["default"])
        if isinstance(found.get(name), dict):
            found[name] = with_defaults(found[name], below)
    return found


def check_defaults(tool: Tool) -> None:
    """Refuse a default that its own schema does not allow: it would be filled in unchecked.

    Null is taken everywhere: it is how "nothing" is written.

    Raises:
        ValueError: names the place.
    """
    schema = tool.input_schema
    for path, node in _walk(schema):
        if node.get("default") is not None and path != "$":
            kept = ("$schema", "$defs", "definitions")
            around = {key: schema[key] for key in kept if key in schema}
            if not Compiled({**around, **node}).accepts(node["default"]):
                raise ValueError(f"tool {tool.name}: {path}: its default is not what it allows")


def _dialect(schema: Mapping[str, Any]) -> str:
    said = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    name = said.partition("://")[2].rstrip("#") if isinstance(said, str) else ""
    if name not in DIALECTS:
        raise ValueError(
            f"$schema {said!r:.100} is not spoken here: write 2020-12 or draft-07, or leave it out"
        )
    return name


def check_schema(schema: dict[str, Any]) -> None:
    """Refuse what providers reject: tuples and arrays without a type for their items.

    Raises:
        ValueError: names the place, the reason and the way out.
    """
    if schema.get("type") != "object":
        raise ValueError("an input schema describes one object: type must be object")
    for path, node in _walk(schema):
        if "prefixItems" in node or isinstance(node.get("items"), list):
            why = "providers reject arrays whose places have types of their own"
            raise ValueError(f"{path}: a tuple; {why}: take a list of one type, or an object")
        types = node.get("type")
        if (types == "array" or (isinstance(types, list) and "array" in types)) and (
            node.get("items") in (None, True, {})
        ):
            why = "providers reject arrays without a type for their items"
            raise ValueError(f"{path}: an untyped array; {why}: write list[str] or the like")


def check_foreign(schema: object, *, output: bool = False) -> dict[str, Any]:
    """An untrusted schema, bounded in size and in the time it can cost, closed at the top.

    That of an output may describe anything, and is not closed.

    Raises:
        ValueError: too large, too deep, recursive, remote, or no JSON Schema.
    """
    if not isinstance(schema, dict):
        raise ValueError(f"an {'output' if output else 'input'} schema is a JSON object")
    try:
        text = json.dumps(read(schema))
    except NotPlain as error:
        raise ValueError(f"the schema is not plain JSON: {error}") from None
    if len(text) > FOREIGN_BYTES:
        raise ValueError(f"the schema is larger than {FOREIGN_BYTES} bytes")
    found: dict[str, Any] = json.loads(text)
    _dialect(found)
    _cost({key: value for key, value in found.items() if key != "$schema"}, found, (), 0)
    if sum(map(_patterns, _walk(found))) > FOREIGN_PATTERNS:
        raise ValueError(f"the schema has more than {FOREIGN_PATTERNS} regular expressions")
    if not output:
        check_schema(found)
        found.setdefault("additionalProperties", False)
    Compiled(found)
    return found


def _cost(node: object, root: dict[str, Any], refs: tuple[str, ...], total: int) -> int:
    """How many places a schema has with every reference followed; refuses what could be endless."""
    if len(refs) > FOREIGN_DEPTH:
        raise ValueError(f"the schema is nested deeper than {FOREIGN_DEPTH}")
    total += 1
    if total > FOREIGN_NODES:
        raise ValueError(
            f"the schema has more than {FOREIGN_NODES} places once references are followed"
        )
    if not isinstance(node, dict):
        return total
    if not _ELSEWHERE.isdisjoint(node):
        node_keys = ", ".join(key for key in node if key.startswith("$"))
        raise ValueError(f"the schema uses {node_keys}; only $ref to #/$defs is allowed")
    ref = node.get("$ref")
    if ref is not None:
        where = "definitions" if str(ref).startswith("#/definitions/") else "$defs"
        defs = root.get(where, {})
        name = ref.removeprefix(f"#/{where}/") if isinstance(ref, str) else ""
        if f"#/{where}/{name}" != ref or not isinstance(defs, dict) or name not in defs:
            raise ValueError("the schema has a $ref to something else than its own #/$defs")
        if ref in refs:
            raise ValueError(f"the schema is recursive at {ref}")
        total = _cost(defs[name], root, (*refs, ref), total)
    for _, below in _below(node):
        total = _cost(below, root, (*refs, ""), total)
    return total


def _patterns(place: tuple[str, dict[str, Any]]) -> int:
    named = place[1].get("patternProperties")
    return ("pattern" in place[1]) + (len(named) if isinstance(named, dict) else 0)


def _below(node: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for key in _MAPS:
        if isinstance(below := node.get(key), dict):
            yield from ((f"{key}.{name}", item) for name, item in below.items())
    for key in _LISTS:
        if isinstance(below := node.get(key), list):
            yield from ((f"{key}[{n}]", item) for n, item in enumerate(below))
    yield from ((key, node[key]) for key in _SINGLES if key in node)


def _walk(node: object, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for name, below in _below(node):
            yield from _walk(below, f"{path}.{name}")
