"""Schemas made by chance: every export is sound, and a stub promises nothing too much."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, create_model

from toolcell._schema_contained import contained
from toolcell._schema_levels import at_level
from toolcell._schema_walk import walk
from toolcell.dialects import DIALECTS, Dialect, lint, schema_of
from toolcell.tools import Tool
from toolcell_policies.vocabulary import AccessMode, DangerLevel, SchemaLevel

LEVELS = tuple(SchemaLevel)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    """A tree."""

    model_config = ConfigDict(extra="forbid")
    name: str
    children: list[Node] = []


def a_tool(schema: dict[str, Any]) -> Tool:
    return Tool(
        name="sample",
        description="Do it.",
        access_mode=AccessMode.READONLY,
        danger_level=DangerLevel.SAFE,
        schema=schema,
    )


def inputs(told: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The input schema of an export."""
    if dialect == "openai":
        found: dict[str, Any] = told["function"]["parameters"]
        return found
    return dict(told["inputSchema" if dialect == "mcp" else "input_schema"])


def accepts(schema: dict[str, Any], value: object) -> bool:
    checker = jsonschema_rs.Draft202012Validator(schema, validate_formats=True, offline=True)
    return checker.is_valid(value)


def is_sound(schema: dict[str, Any]) -> bool:
    """Valid by the metaschema, and referring to its own definitions only, none of them unused."""
    named = {n["$ref"] for _, n in walk(schema) if isinstance(n, dict) and "$ref" in n}
    held = {f"#/$defs/{name}" for name in schema.get("$defs", {})}
    return jsonschema_rs.meta.is_valid(schema) and named == held


NAMES = st.sampled_from(["a", "b", "c", "title", "properties", "default", "$ref"])
LEAVES = st.one_of(
    st.builds(
        lambda low: {"type": "integer", "minimum": low, "description": "A number. Or so."},
        st.integers(-5, 5),
    ),
    st.builds(lambda n: {"type": "string", "minLength": n, "title": "T"}, st.integers(0, 3)),
    st.sampled_from([{"enum": ["x", "y", None]}, {"type": "boolean"}, {"const": {"a": 1}}]),
    st.sampled_from([{"type": ["string", "null"], "default": None}, {"$ref": "#/$defs/one"}]),
    st.sampled_from([{"$ref": "#/$defs/two", "description": "See two."}, {"type": "null"}]),
)


def objects(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def made(properties: dict[str, Any], chosen: set[str], more: Any) -> dict[str, Any]:
        required = [name for name in properties if name in chosen]
        found: dict[str, Any] = {"type": "object", "properties": properties}
        found |= {"additionalProperties": more} if more is not None else {}
        return {**found, "required": required} if required else found

    properties = st.dictionaries(NAMES, inside, max_size=4)
    return st.builds(made, properties, st.sets(NAMES), st.sampled_from([False, False, None, {}]))


def combined(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    lists = st.lists(inside, min_size=1, max_size=2)
    return st.one_of(
        objects(inside),
        st.builds(lambda i: {"type": "array", "items": i, "maxItems": 2}, inside),
        st.builds(
            lambda i: {"type": "array", "items": i, "uniqueItems": True, "maxItems": 2}, inside
        ),
        st.builds(lambda kind, i: {kind: i}, st.sampled_from(["anyOf", "oneOf", "allOf"]), lists),
        st.builds(lambda i: {"not": i}, inside),
        st.builds(lambda i, o: {**o, "anyOf": i}, lists, objects(inside)),
    )


INSIDE = st.recursive(LEAVES, combined, max_leaves=6)
SCHEMAS = st.builds(
    lambda root, one, two: (
        {**root, "additionalProperties": False} | {"$defs": {"one": one, "two": two}}
    ),
    objects(INSIDE),
    st.recursive(LEAVES.filter(lambda leaf: "$ref" not in leaf), combined, max_leaves=3).filter(
        lambda schema: '"$ref":' not in json.dumps(schema).replace('"$ref": {"type"', "")
    ),
    objects(LEAVES),
)


def values(node: Any, root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that a schema is likely to accept; whether it does is asked afterwards."""
    if isinstance(node, bool) or depth > 6:
        return st.sampled_from([1, "abcd", None, True, {}, []])
    if "$ref" in node:
        return values(root["$defs"][node["$ref"].removeprefix("#/$defs/")], root, depth + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in node and "properties" not in node:
            return st.one_of([values(item, root, depth + 1) for item in node[keyword]])
    if "enum" in node or "const" in node:
        return st.sampled_from(node.get("enum", [node.get("const")]))
    kind = node.get("type")
    if kind == "object":
        required = node.get("required", ())
        inside = node.get("properties", {})
        each = {name: values(item, root, depth + 1) for name, item in inside.items()}
        must = {name: item for name, item in each.items() if name in required}
        may = {name: item for name, item in each.items() if name not in required}
        extra = {} if node.get("additionalProperties") is False else {"new": st.just(1)}
        return st.fixed_dictionaries(must, optional={**may, **extra})
    if kind == "array":
        return st.lists(values(node["items"], root, depth + 1), max_size=2)
    simple = {"integer": st.integers(-5, 9), "boolean": st.booleans(), "null": st.none()}
    if isinstance(kind, str) and kind in simple:
        return simple[kind]
    return st.sampled_from(["abcd", "x", 3, None, {"a": 1}])


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], Any, Any]:
    """A schema, a value for its stub, and a value for itself."""
    schema = draw(SCHEMAS)
    full = contained(schema)
    stub = at_level(full, SchemaLevel.STUB)
    return schema, draw(values(stub, stub)), draw(values(full, full))


def shrunk(value: Any, node: Any, defs: dict[str, Any]) -> Any:
    """The value without what a stub does not name."""
    if not isinstance(node, dict) or accepts({**node, "$defs": defs}, value):
        return value
    if "$ref" in node:
        return shrunk(value, defs[node["$ref"].removeprefix("#/$defs/")], defs)
    for branch in node.get("anyOf", ()):
        less = shrunk(value, branch, defs)
        if isinstance(branch, dict) and accepts({**branch, "$defs": defs}, less):
            return less
    if isinstance(value, list):
        return [shrunk(item, node.get("items"), defs) for item in value]
    if isinstance(value, dict):
        named, more = node.get("properties", {}), node.get("additionalProperties")
        return {
            name: shrunk(item, named.get(name, more), defs)
            for name, item in value.items()
            if name in named or more is not False
        }
    return value


@settings(max_examples=80, deadline=None)
@given(cases())
def test_whatever_a_stub_accepts_the_tool_accepts(case: tuple[dict[str, Any], Any, Any]) -> None:
    """Otherwise a model keeps to what it was told and is refused, or cannot call at all."""
    schema, of_stub, of_full = case
    full = contained(schema)
    compact, stub = (at_level(full, level) for level in (SchemaLevel.COMPACT, SchemaLevel.STUB))
    assert all(is_sound(found) for found in (full, compact, stub))
    for value in (of_stub, of_full):
        assert accepts(compact, value) is accepts(full, value)
        assert accepts(full, value) or not accepts(stub, value)
        assert accepts(schema, value) or not accepts(full, value)
    if accepts(full, of_full):
        assert accepts(stub, shrunk(of_full, stub, stub.get("$defs", {})))


@settings(max_examples=40, deadline=None)
@given(SCHEMAS)
def test_whatever_the_schema_an_export_is_sound_or_says_why_not(schema: dict[str, Any]) -> None:
    """Otherwise a provider is the first to find the fault."""
    item = a_tool(schema)
    for level in LEVELS:
        for dialect in DIALECTS:
            refused = [f for f in lint(item, dialect) if f.severity == "error"]
            if refused:
                with pytest.raises(ValueError, match="cannot be exported as"):
                    schema_of(item, SchemaLevel.FULL, dialect)
            else:
                assert is_sound(inputs(schema_of(item, level, dialect), dialect))


TYPES = st.sampled_from(
    [int, str, float, bool, Colour, Node, list[int], dict[str, Node], Literal["a", "b"]]
)
FIELDS = st.one_of(
    st.tuples(TYPES, st.just(...)),
    st.builds(lambda kind: (kind | None, None), TYPES),
    st.just((int | str, 3)),
)


def models() -> st.SearchStrategy[dict[str, Any]]:
    def made(fields: dict[str, Any], extra: Any) -> dict[str, Any]:
        inner = create_model("Inner", __config__=ConfigDict(extra=extra), **fields)
        outer = create_model(
            "Outer", __config__=ConfigDict(extra=extra), **fields, inner=(inner, ...)
        )
        schema: dict[str, Any] = outer.model_json_schema()
        return schema

    names = st.sampled_from(["alpha", "beta", "gamma", "delta"])
    return st.builds(
        made, st.dictionaries(names, FIELDS, max_size=3), st.sampled_from(["forbid", "ignore"])
    )


@settings(max_examples=20, deadline=None)
@given(models(), st.data())
def test_any_pydantic_model_is_told(schema: dict[str, Any], data: st.DataObject) -> None:
    """The commonest input of all: otherwise a dialect's own users are the first to be refused."""
    item = a_tool(schema)
    stub = schema_of(item, "stub")["input_schema"]
    value = data.draw(values(stub, stub))
    for told, dialect in exports(item):
        assert is_sound(inputs(told, dialect))
        assert "anyOf" not in told
    if accepts(stub, value):
        assert accepts(schema, value)


def exports(item: Tool) -> Iterator[tuple[dict[str, Any], Dialect]]:
    for level in LEVELS:
        for dialect in DIALECTS:
            yield schema_of(item, level, dialect), dialect
