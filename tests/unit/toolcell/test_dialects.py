"""A tool's schema in each dialect and at each level: valid, stable, promising nothing too much."""

from __future__ import annotations

import copy
import enum
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Optional

import jsonschema_rs
import pytest
from pydantic import BaseModel, ConfigDict, create_model

from toolcell._schema_contained import NotContained, contained
from toolcell._schema_levels import COMPACT_CHARS, STUB_CHARS, clipped, cut
from toolcell._schema_walk import ordered, walk
from toolcell.base_tool import BaseTool
from toolcell.builtin import builtin_tools
from toolcell.definition import ToolDefinition
from toolcell.dialects import DIALECTS, Dialect, annotations_of, schema_of, schemas_of
from toolcell.tools import Tool, as_tool, tool
from toolcell_policies.vocabulary import AccessMode, DangerLevel, SchemaLevel
from toolcell_sandbox.spec import Network

LEVELS = tuple(SchemaLevel)
HERE = Path(__file__).resolve()


def a_tool(schema: dict[str, Any], **fields: Any) -> Tool:
    given = {
        "name": "sample",
        "description": "Do it.",
        "access_mode": AccessMode.READONLY,
        "danger_level": DangerLevel.SAFE,
    }
    return Tool(**{**given, **fields, "schema": schema})


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return {**found, "required": list(required)} if required else found


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


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    """A tree."""

    model_config = ConfigDict(extra="forbid")
    name: str
    children: list[Node] = []
    label: str | None = None


def gather(
    place: str,
    colour: Colour,
    tree: Node,
    kind: Literal["a", "b"] = "a",
    words: list[str] | None = None,
    maybe: Optional[str] = None,  # noqa: UP045 - the old spelling must work
    rows: list[dict[str, int]] = [],  # noqa: B006 - a default that is only exported
) -> None:
    """Gather things (of any kind) into one place. There is more to say about it.

    Args:
        place: where they go (a town). Not too far, please.
    """


GATHER = tool(gather)


def jail_tools() -> list[Tool]:
    """The tools that the jail's tests call."""
    found = []
    for path in sorted((HERE.parents[2] / "jail").glob("tools_of_*.py")):
        spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        found += [
            as_tool(item, None if isinstance(item, Tool) and item.name else f"sample_{name}")
            for name, item in vars(module).items()
            if isinstance(item, Tool | ToolDefinition | BaseTool)
        ]
    return found


KNOWN = [*builtin_tools(), *jail_tools(), GATHER]


# ---------------------------------------------------------------- every tool, everywhere


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("level", LEVELS)
def test_every_tool_is_exported_as_a_sound_schema(dialect: Dialect, level: SchemaLevel) -> None:
    """Otherwise one tool makes a provider refuse the whole request."""
    assert len(KNOWN) > 15
    for item in KNOWN:
        schema = inputs(schema_of(item, level, dialect), dialect)
        assert is_sound(schema)
        assert schema["type"] == "object"
        assert schema["properties"].keys() >= set(item.input_schema.get("required", ()))
        for _, node in walk(schema):
            assert isinstance(node, bool | dict)
            if isinstance(node, dict) and node.get("type") == "array":
                assert node["items"]


def test_each_dialect_has_its_own_shape() -> None:
    """Otherwise a client does not find the name, or the schema."""
    item = a_tool(closed({"a": {"type": "integer"}}, "a"), output_schema=closed({}))
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    empty = closed({})
    assert schema_of(item) == {
        "name": "sample",
        "description": "Do it.",
        "input_schema": schema,
        "output_schema": empty,
    }
    assert schema_of(item, dialect="mcp") == {
        "name": "sample",
        "description": "Do it.",
        "inputSchema": schema,
        "outputSchema": empty,
        "annotations": annotations_of(item),
    }
    assert schema_of(item, dialect="openai") == {
        "type": "function",
        "function": {
            "name": "sample",
            "description": "Do it.",
            "parameters": schema,
            "strict": True,
        },
    }
    assert schema_of(item, dialect="anthropic") == {
        "name": "sample",
        "description": "Do it.",
        "input_schema": schema,
    }


def test_the_list_keeps_the_order_given() -> None:
    """Otherwise a provider's prompt cache is lost each time."""
    told = schemas_of(KNOWN, SchemaLevel.STUB, "openai")
    assert [one["function"]["name"] for one in told] == [item.name for item in KNOWN]


def test_an_export_belongs_to_whoever_asked() -> None:
    """Otherwise what one caller changes, the next model is told."""
    first = schema_of(GATHER)
    kept = copy.deepcopy(first)
    first["input_schema"]["properties"].clear()
    assert schema_of(GATHER) == kept
    assert GATHER.input_schema["properties"]


def test_what_is_not_offered_is_named() -> None:
    """A misspelt dialect must not be exported as another."""
    with pytest.raises(ValueError, match="no dialect 'gemini'; there are: json-schema, mcp"):
        schema_of(GATHER, dialect="gemini")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ValueError, match="tiny"):
        schema_of(GATHER, "tiny")


SAY = f"""
import json, sys
import importlib.util
spec = importlib.util.spec_from_file_location("exported", {str(HERE)!r})
module = importlib.util.module_from_spec(spec)
sys.modules["exported"] = module
spec.loader.exec_module(module)
print(json.dumps([module.schemas_of(module.KNOWN, level, dialect)
                  for level in module.LEVELS for dialect in module.DIALECTS]))
"""


def test_exports_are_the_same_byte_for_byte_in_every_process() -> None:
    """Otherwise a prompt cache is paid for again at each start."""
    said = {
        subprocess.run(
            [sys.executable, "-c", SAY],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(said) == 1
    here = [schemas_of(KNOWN, level, dialect) for level in LEVELS for dialect in DIALECTS]
    assert json.loads(said.pop()) == here


def test_keywords_stand_in_one_order_whoever_wrote_them() -> None:
    """Otherwise a library's next version changes every prompt."""
    one = {"x-new": 1, "items": {"minLength": 1, "type": "string"}, "type": "array", "$defs": {}}
    other = dict(reversed(list(one.items())))
    assert list(ordered(one)) == list(ordered(other)) == ["type", "items", "x-new", "$defs"]
    first, second = (contained(closed({"a": form})) for form in (one, other))
    assert json.dumps(first) == json.dumps(second)


# ---------------------------------------------------------------- levels


def test_compact_says_less_and_accepts_the_same() -> None:
    """Otherwise saving room changes what a call may be."""
    full, compact = (schema_of(GATHER, level)["input_schema"] for level in ("full", "compact"))
    assert full["properties"]["place"]["description"].endswith("please.")
    assert compact["properties"]["place"]["description"] == "where they go."
    assert compact["properties"].keys() == full["properties"].keys()
    assert compact["properties"]["kind"]["default"] == "a"
    assert schema_of(GATHER, "compact")["description"] == "Gather things into one place."
    rich = closed({"a": {"type": "string", "title": "A", "examples": ["x"], "x-own": 1}})
    assert schema_of(a_tool(rich), "compact")["input_schema"]["properties"]["a"] == {
        "type": "string"
    }
    assert schema_of(a_tool(rich))["input_schema"]["properties"]["a"]["title"] == "A"


def test_a_stub_is_what_a_call_must_have() -> None:
    """Otherwise a model that knows only the stub cannot make a valid call."""
    stub = schema_of(GATHER, "stub")
    assert stub["input_schema"] == {
        "type": "object",
        "properties": {
            "place": {"type": "string"},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "tree": {"$ref": "#/$defs/Node"},
        },
        "required": ["place", "colour", "tree"],
        "additionalProperties": False,
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    }
    assert GATHER.compiled.accepts({"place": "x", "colour": "red", "tree": {"name": "y"}})
    assert "output_schema" not in schema_of(a_tool(closed({}), output_schema=closed({})), "stub")


ONE = {"x": {"type": "integer"}}
KEPT = {
    "an open object": {"type": "object", "properties": ONE},
    "a named condition": closed(ONE, dependentRequired={"x": []}),
    "a condition beside it": {"allOf": [closed(ONE), {"required": ["x"]}]},
    "its opposite": {"not": closed(ONE)},
    "exactly one of": {"oneOf": [closed(ONE), closed({})]},
    "values of its own": closed(ONE, enum=[{"x": 1}]),
    "distinct items": {"type": "array", "items": closed(ONE), "uniqueItems": True, "minItems": 2},
    "a condition beside the reference": {"$ref": "#/$defs/it", "required": ["x"]},
    "a definition that is refused elsewhere": {
        "anyOf": [{"$ref": "#/$defs/it"}, {"not": {"$ref": "#/$defs/it"}}]
    },
}


@pytest.mark.parametrize("name", KEPT)
def test_a_stub_keeps_what_may_matter(name: str) -> None:
    """Otherwise a stub accepts what the tool refuses, or nothing at all."""
    schema = closed({"a": KEPT[name]}, "a", **{"$defs": {"it": closed(ONE)}})
    full, stub = (schema_of(a_tool(schema), level)["input_schema"] for level in ("full", "stub"))
    assert stub == full


def test_a_stub_lets_go_where_nothing_hangs_on_it() -> None:
    """The near miss of the cases above: otherwise a stub would never be small."""
    inner = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/it"}}, closed(ONE)]}
    wide = {"type": "object", "additionalProperties": closed(ONE)}
    schema = closed({"a": inner, "b": wide, "c": {}}, "a", "b", **{"$defs": {"it": closed(ONE)}})
    stub = schema_of(a_tool(schema), "stub")["input_schema"]
    assert "x" not in json.dumps(stub)
    assert stub["properties"].keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("One. Two.", "One."),
        ("One, e.g. two. Three", "One, e.g. two."),
        ("Ask it? Yes.", "Ask it?"),
        ("One (really) line\n over two", "One line over two"),
        ("(only an aside)", "(only an aside)"),
        ("head\n\nbody", "head"),
        ("\u4e00\u3002\u4e8c\u3002", "\u4e00\u3002"),
        ("", ""),
        ("word " * 30, "word word word word…"),
        ("x" * 30, "x" * 19 + "…"),
    ],
)
def test_a_text_is_cut_at_its_first_sentence(text: str, short: str) -> None:
    """Otherwise half a word is left, or nothing."""
    assert cut(text, 20) == short


def test_a_cut_shows_and_stays_within_its_limit() -> None:
    """Otherwise a model takes the rest for the whole."""
    assert clipped("aaaa bbbb", 9) == "aaaa bbbb"
    assert clipped("aaaa bbbb c", 10) == "aaaa bbbb…"
    assert clipped("aaaa bbbbb", 9) == "aaaa…"
    long = a_tool(closed({}), description="many words " * 50)
    assert len(schema_of(long, "compact")["description"]) <= COMPACT_CHARS
    assert len(schema_of(long, "stub")["description"]) <= STUB_CHARS
    assert schema_of(long)["description"] == long.description


# ---------------------------------------------------------------- self-contained


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("level", LEVELS)
def test_optional_text_is_plain_text_and_not_required(dialect: Dialect, level: SchemaLevel) -> None:
    """Otherwise models send null, and providers choke on anyOf."""
    model = create_model("In", maybe=(str | None, None), sure=(str, ...))
    for item in (GATHER, a_tool(model.model_json_schema())):
        schema = inputs(schema_of(item, level, dialect), dialect)
        assert "maybe" not in schema["required"]
        if "maybe" in schema["properties"]:
            assert schema["properties"]["maybe"]["type"] == "string"


NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({"type": ["string", "null"], "default": None}, {"type": "string"}),
        (
            {"type": ["string", "integer", "null"], "default": None},
            {"type": ["string", "integer"]},
        ),
        ({"enum": ["a", None], "default": None}, {"enum": ["a"]}),
        ({"enum": [None], "default": None}, {"enum": [None]}),
        ({"type": "null", "default": None}, {"type": "null"}),
        ({"anyOf": [{"type": "string"}, NULL], "default": None}, {"type": "string"}),
        ({"anyOf": [NULL], "default": None}, {"anyOf": [NULL]}),
        (
            {"anyOf": [{"minLength": 1}, NULL], "minLength": 2, "default": None},
            {"anyOf": [{"minLength": 1}], "minLength": 2},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, NULL], "default": None},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        # Null differs from leaving it out, or has to be said.
        ({"anyOf": [{"type": "string"}, NULL]}, {"anyOf": [{"type": "string"}, NULL]}),
        (
            {"type": ["string", "null"], "default": "x"},
            {"type": ["string", "null"], "default": "x"},
        ),
        (True, True),
    ],
)
def test_null_goes_where_leaving_out_says_the_same(given: Any, plain: Any) -> None:
    """Otherwise a value is lost that means something, or kept that means nothing."""
    assert contained(closed({"a": given}))["properties"]["a"] == plain
    assert contained(closed({"a": given}, "a"))["properties"]["a"] == given


def test_references_lead_to_its_own_definitions() -> None:
    """Otherwise a provider that resolves only #/$defs refuses the schema."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/it",
        "type": "object",
        "properties": {
            "again": {"$ref": "#"},
            "first": {"type": "array", "items": {"type": "string"}},
            "second": {"$ref": "#/properties/first"},
            "third": {"$ref": "#/definitions/a~1b%20c"},
            "fourth": {"$ref": "#/$defs/a_b_c"},
            "fifth": {"$ref": "#/properties/last/anyOf/1"},
            "last": {"anyOf": [True, {"type": "integer"}], "discriminator": {"propertyName": "x"}},
        },
        "definitions": {"a/b c": {"type": "boolean"}, "unused": {}},
        "$defs": {"a_b_c": {"type": "null"}},
    }
    found = contained(schema)
    assert is_sound(found)
    assert set(found["$defs"]) == {"root", "first", "a_b_c", "a_b_c_2", "1"}
    assert found["properties"]["again"] == {"$ref": "#/$defs/root"}
    assert not {"$id", "$schema", "definitions"} & found.keys()
    assert "discriminator" not in found["properties"]["last"]
    for value in ({"third": True, "again": {"second": ["x"]}}, {"third": 1}, {"fourth": 0}, {}):
        assert accepts(found, value) is accepts({**schema, "$id": "urn:x"}, value)


def test_a_root_that_is_a_reference_is_what_it_leads_to() -> None:
    """Providers want type: object at the top; a recursive model's own schema has a $ref there."""
    root = Node.model_json_schema()
    assert "$ref" in root
    found = contained(root)
    assert found["type"] == "object"
    assert is_sound(found)
    assert accepts(found, {"name": "a", "children": [{"name": "b"}]})
    assert not accepts(found, {"name": "a", "children": [{}]})
    told = schema_of(a_tool(root), dialect="openai")["function"]["parameters"]
    assert told["$defs"].keys() == {"Node"}
    beside = {"$ref": "#/$defs/a", "required": ["x"], "$defs": {"a": closed({"x": {}})}}
    assert contained(beside)["$ref"] == "#/$defs/a"
    assert contained({"$ref": "#"})["$ref"] == "#/$defs/root"
    assert contained({"$ref": "#/$defs/a", "$defs": {"a": True}})["$defs"] == {"a": True}


def test_draft_7_becomes_2020_12() -> None:
    """Otherwise a provider reads another schema than the tool was written with."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "a": {"$ref": "#/definitions/word", "minLength": 9, "description": "a word"},
            "b": {"type": "array", "items": [{"type": "integer"}], "additionalItems": False},
            "c": {"type": "array", "items": [{"type": "integer"}]},
            "d": {"type": "object", "dependencies": 5},
        },
        "dependencies": {"a": ["b"], "b": {"required": ["c"]}},
        "definitions": {"word": {"type": "string"}},
    }
    found = contained(schema)
    assert found["properties"]["a"] == {"$ref": "#/$defs/word", "description": "a word"}
    assert found["properties"]["b"] == {
        "type": "array",
        "items": False,
        "prefixItems": [{"type": "integer"}],
    }
    assert "items" not in found["properties"]["c"]
    assert found["dependentRequired"] == {"a": ["b"]}
    assert found["dependentSchemas"] == {"b": {"required": ["c"]}}
    assert "prefixItems" not in contained({**schema, "prefixItems": [{}]})
    assert is_sound(found)
    sibling = {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert contained(sibling)["properties"]["a"]["minLength"] == 9


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"$ref": "https://example.org/x"}, "leads outside"),
        ({"$ref": "#name"}, "leads outside"),
        ({"$ref": 5}, "leads outside"),
        ({"$ref": "#/$defs/none"}, "leads to no schema"),
        ({"$ref": "#/properties/a/enum/9"}, "leads to no schema"),
        ({"$ref": "#/properties/a/enum/0/x"}, "leads to no schema"),
        ({"$dynamicRef": "#x"}, "resolved differently"),
        ({"$id": "https://example.org/x"}, "another base"),
    ],
)
def test_what_leads_outside_is_refused_with_its_place(node: dict[str, Any], words: str) -> None:
    """Otherwise a provider fetches, or fails at, what is not in the request."""
    schema = closed({"a": {"enum": [1]}, "b": {"type": "array", "items": node}})
    with pytest.raises(NotContained, match=r"\$\.properties\.b\.items: .*" + words) as caught:
        contained(schema)
    assert "$defs" in caught.value.fix
    with pytest.raises(ValueError, match=words):
        schema_of(a_tool(schema))


# ---------------------------------------------------------------- dialects


@pytest.mark.parametrize(
    ("fields", "hints"),
    [
        ({}, (True, False, False, False)),
        ({"access_mode": "write", "danger_level": "high"}, (False, True, False, False)),
        ({"access_mode": "write", "danger_level": "medium"}, (False, False, False, False)),
        ({"access_mode": "network"}, (False, False, False, True)),
        ({"access_mode": "mixed", "is_idempotent": True}, (False, False, True, True)),
        ({"network": Network.host()}, (True, False, False, True)),
        ({"network": Network.loopback()}, (True, False, False, False)),
    ],
)
def test_mcp_says_each_hint_outright(fields: dict[str, Any], hints: tuple[bool, ...]) -> None:
    """A client takes the worst for what is not said, and a wrong hint for leave."""
    told = schema_of(a_tool(closed({}), name="do_the-thing", **fields), dialect="mcp")
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    assert tuple(told["annotations"][name] for name in names) == hints
    assert told["annotations"]["title"] == "Do the thing"


def test_recursion_is_told_to_every_provider() -> None:
    """Otherwise a tool with a tree for an argument cannot be offered at all."""
    for dialect in DIALECTS:
        schema = inputs(schema_of(GATHER, dialect=dialect), dialect)
        assert accepts(schema["$defs"]["Node"] | {"$defs": schema["$defs"]}, {"name": "a"})
        assert schema["properties"]["tree"] == {"$ref": "#/$defs/Node"}
