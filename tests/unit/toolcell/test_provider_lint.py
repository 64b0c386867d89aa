"""The providers' rules: each is broken once and kept once, and the export does what it says."""

from __future__ import annotations

from typing import Any

import pytest

from toolcell._provider_lint import fitted
from toolcell._provider_rules import DIALECTS, Dialect, Rule, Subject, rules
from toolcell._schema_contained import contained
from toolcell.builtin import builtin_tools
from toolcell.dialects import lint, schema_of
from toolcell.tools import Tool
from toolcell_policies.vocabulary import AccessMode, DangerLevel

ALL = {rule.id: rule for dialect in DIALECTS for rule in rules(dialect)}
TEXT = {"type": "string"}


def a_tool(schema: dict[str, Any], **fields: Any) -> Tool:
    given = {
        "name": "sample",
        "description": "Do it.",
        "access_mode": AccessMode.READONLY,
        "danger_level": DangerLevel.SAFE,
    }
    return Tool(**{**given, **fields, "schema": schema})


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object with every property required."""
    found = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return {"required": list(properties), **found} if properties else found


def a_subject(schema: dict[str, Any], **fields: Any) -> Subject:
    given = {"name": "sample", "description": "Do it.", "output": None}
    return Subject(**{**given, **fields, "schema": contained(schema)})


def argument(schema: Any, **more: Any) -> dict[str, Any]:
    return closed({"a": schema}, **more)


def nested(levels: int) -> dict[str, Any]:
    """So many objects inside each other."""
    found: dict[str, Any] = closed({"end": TEXT})
    for _ in range(levels - 1):
        found = closed({"in": found})
    return found


def words(count: int, chars: int) -> dict[str, Any]:
    return argument({"type": "string", "enum": [f"{n:0{chars}d}" for n in range(count)]})


def spread(count: int) -> dict[str, Any]:
    """So many enum values, never more than 250 in one enum."""
    sizes = [250] * (count // 250) + [count % 250]
    enums = [{"type": "string", "enum": [str(n) for n in range(size)]} for size in sizes if size]
    return closed({f"a{number}": enum for number, enum in enumerate(enums)})


EMPTY = closed({})
TREE = closed({"in": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}})
TWO_ANYS = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
BOTH = {"a": TEXT, "b": TEXT}
CASES: list[tuple[str, Subject, Subject]] = [
    ("name", a_subject(EMPTY, name="a.b"), a_subject(EMPTY, name="9-_" + "x" * 61)),
    ("name", a_subject(EMPTY, name=""), a_subject(EMPTY, name="x")),
    ("mcp-name", a_subject(EMPTY, name="x" * 129), a_subject(EMPTY, name="a.b" + "x" * 125)),
    ("mcp-name", a_subject(EMPTY, name="a b"), a_subject(EMPTY, name="a_b")),
    ("description", a_subject(EMPTY, description=" \n"), a_subject(EMPTY, description="x")),
    ("root-object", a_subject({"properties": {}}), a_subject(EMPTY)),
    ("root-object", a_subject({"type": ["object", "null"]}), a_subject(EMPTY)),
    (
        "untyped-array",
        a_subject(argument({"type": "array"})),
        a_subject(argument({"type": "array", "items": TEXT})),
    ),
    (
        "untyped-array",
        a_subject(argument({"type": ["array", "null"], "items": {}})),
        a_subject(argument({"type": ["string", "null"]})),
    ),
    (
        "tuple",
        a_subject(argument({"type": "array", "items": TEXT, "prefixItems": [TEXT]})),
        a_subject(closed({"prefixItems": {"type": "array", "items": TEXT}})),
    ),
    ("mcp-output-object", a_subject(EMPTY, output=TEXT), a_subject(EMPTY, output=EMPTY)),
    ("anthropic-root", a_subject(closed(BOTH, **TWO_ANYS)), a_subject(argument(TWO_ANYS))),
    (
        "anthropic-property-names",
        a_subject(closed({"filter[x]": TEXT})),
        a_subject(closed({"filter.x": {"type": "object", "properties": {"$x": TEXT}}})),
    ),
    (
        "openai-description-length",
        a_subject(EMPTY, description="x" * 1025),
        a_subject(EMPTY, description="x" * 1024),
    ),
    ("openai-root", a_subject(argument(TEXT, enum=[{"a": "x"}])), a_subject(words(2, 1))),
    ("openai-root", a_subject(argument(TEXT, **{"not": {}})), a_subject(argument({"not": {}}))),
    (
        "strict-keywords",
        a_subject(argument({"type": "string", "minLength": 1})),
        a_subject(argument({"type": "string", "pattern": "^x$"})),
    ),
    (
        "strict-required",
        a_subject(closed(BOTH, required=["a"])),
        a_subject(closed(BOTH)),
    ),
    (
        "strict-closed",
        a_subject(argument({"type": "object", "additionalProperties": TEXT})),
        a_subject(argument(closed({}))),
    ),
    ("strict-closed", a_subject(argument({"properties": {}})), a_subject(argument(TEXT))),
    ("strict-typed", a_subject(argument({"description": "anything"})), a_subject(argument(TEXT))),
    ("strict-typed", a_subject(argument(True)), a_subject(argument({"anyOf": [TEXT]}))),
    (
        "strict-reference",
        a_subject(argument({"$ref": "#", "description": "again"})),
        a_subject(argument({"$ref": "#"})),
    ),
    (
        "strict-formats",
        a_subject(argument({"type": "string", "format": "uri"})),
        a_subject(argument({"type": "string", "format": "date-time"})),
    ),
    (
        "strict-properties",
        a_subject(closed({f"a{n}": TEXT for n in range(5001)})),
        a_subject(closed({f"a{n}": TEXT for n in range(5000)})),
    ),
    ("strict-depth", a_subject(nested(11)), a_subject(nested(10))),
    (
        "strict-depth",
        a_subject(argument({"$ref": "#/$defs/deep"}, **{"$defs": {"deep": nested(10)}})),
        a_subject(argument({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": TREE}})),
    ),
    ("strict-names", a_subject(argument(TEXT | {"const": "x" * 120_000})), a_subject(words(2, 9))),
    (
        "strict-names",
        a_subject(closed({"x" * 120_001: TEXT})),
        a_subject(closed({"x" * 120_000: TEXT})),
    ),
    ("strict-enums", a_subject(spread(1001)), a_subject(spread(1000))),
    ("strict-long-enum", a_subject(words(251, 60)), a_subject(words(251, 59))),
    ("strict-long-enum", a_subject(words(251, 60)), a_subject(words(250, 90))),
]


def breaks(rule: Rule, subject: Subject) -> bool:
    return any(rule.broken(subject))


@pytest.mark.parametrize(("name", "broken", "kept"), CASES)
def test_a_rule_tells_what_breaks_it_from_its_near_miss(
    name: str, broken: Subject, kept: Subject
) -> None:
    """Otherwise a provider refuses what we let pass, or we refuse what it takes."""
    assert breaks(ALL[name], broken)
    assert not breaks(ALL[name], kept)


def test_every_rule_is_tried_and_says_where_it_is_from() -> None:
    """Otherwise a rule may be a guess, or do nothing."""
    assert {name for name, _, _ in CASES} == ALL.keys()
    for rule in ALL.values():
        assert set(rule.dialects) < set(DIALECTS)
        assert all((rule.reason, rule.fix, rule.source))
        assert rule.on in ("refuse", "drop", "cut", "no_output", "loose")
    assert rules("json-schema") == ()


# ---------------------------------------------------------------- what the export does


REFUSED: list[tuple[Dialect, dict[str, Any], dict[str, Any], str]] = [
    ("openai", argument({"type": "array"}), {}, r"\$\.properties\.a: an untyped array"),
    ("openai", argument({"type": "array", "prefixItems": [TEXT]}), {}, "list of one type"),
    ("openai", {"anyOf": [closed(BOTH)]}, {}, r"\$: type None: arguments are one object"),
    ("openai", EMPTY, {"description": ""}, "description: no description"),
    ("mcp", EMPTY, {"description": ""}, "write a docstring"),
    ("anthropic", closed({"a b": TEXT}), {}, "'a b': .* rename the parameter"),
    # Leaving it out would hide every argument, or the ones that only it names.
    ("anthropic", {"type": "object", **TWO_ANYS}, {}, r"\$: anyOf"),
    ("openai", argument(TEXT, anyOf=[closed(BOTH)]), {}, r"\$: anyOf"),
    ("openai", argument(TEXT, **{"not": {"required": ["b"]}}), {}, r"\$: not"),
    (
        "anthropic",
        argument(TEXT, allOf=[{"$ref": "#/$defs/x"}], **{"$defs": {"x": {"required": ["b"]}}}),
        {},
        r"\$: allOf",
    ),
    (
        "anthropic",
        argument(TEXT, allOf=[{"then": {"dependentSchemas": {"a": {"required": ["b"]}}}}]),
        {},
        r"\$: allOf",
    ),
]


@pytest.mark.parametrize(("dialect", "schema", "fields", "said"), REFUSED)
def test_what_cannot_be_said_is_refused_with_place_reason_and_fix(
    dialect: Dialect, schema: dict[str, Any], fields: dict[str, Any], said: str
) -> None:
    """Otherwise the provider refuses the whole request, with every other tool in it."""
    item = a_tool(schema, **fields)
    with pytest.raises(ValueError, match=rf"tool sample cannot be exported as {dialect}: .*{said}"):
        schema_of(item, dialect=dialect)
    assert "error" in {found.severity for found in lint(item, dialect)}
    assert schema_of(item)


def test_a_condition_at_the_top_is_left_out_where_a_provider_refuses_it() -> None:
    """Otherwise a tool could not be offered for a condition that is judged here anyway."""
    held = {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"required": ["a"], "anyOf": [True]}}}
    again = {"oneOf": [{"$ref": "#/$defs/y"}, {"not": {"$ref": "#/$defs/y"}}]}
    schema = closed(BOTH, required=[], **TWO_ANYS, **held, **again, enum=[{"a": "x"}, {"b": "y"}])
    schema["$defs"]["y"] = {"anyOf": [{"$ref": "#/$defs/y"}, {"properties": {"a": {}}}]}
    item = a_tool(schema)
    told = schema_of(item, dialect="openai")["function"]
    assert told["parameters"].keys() == {"type", "properties", "required", "additionalProperties"}
    told = schema_of(item, dialect="anthropic")["input_schema"]
    assert told.keys() >= {"enum", "properties"}
    assert not told.keys() & {"anyOf", "allOf", "oneOf", "$defs"}
    assert schema_of(item)["input_schema"].keys() >= {"anyOf", "allOf", "enum", "$defs"}
    found = lint(item, "anthropic")
    assert [(f.rule, f.severity) for f in found] == [("anthropic-root", "warning")] * 3
    assert "left out there, and still judged here" in found[0].text
    assert not item.compiled.accepts({})


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (EMPTY, True),
        (closed(BOTH), True),
        (argument({"type": "array", "items": closed(BOTH)}), True),
        (argument({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": TREE}}), True),
        (closed(BOTH, required=["a"]), False),
        (argument({"type": "object"}), False),
        (argument({"oneOf": [TEXT, closed({})]}), False),
        ({"type": "object"}, False),
    ],
)
def test_strict_is_said_where_the_schema_is_within_it(schema: dict[str, Any], strict: bool) -> None:
    """Strict mode refuses a schema outside it; without it, a model may invent arguments."""
    told = schema_of(a_tool(schema), dialect="openai")["function"]
    assert told["strict"] is strict
    assert "properties" in told["parameters"]


def test_a_stub_may_be_strict_where_the_whole_is_not() -> None:
    """What may be left out is not in it, so every property is required."""
    item = a_tool(closed({"a": TEXT, "b": {"type": "string", "default": "x"}}, required=["a"]))
    assert schema_of(item, dialect="openai")["function"]["strict"] is False
    assert schema_of(item, "stub", "openai")["function"]["strict"] is True


def test_a_long_description_is_cut_where_a_provider_has_a_limit() -> None:
    """Otherwise a talkative tool makes every request fail; a cut has to show."""
    item = a_tool(EMPTY, description="word " * 300)
    told = schema_of(item, dialect="openai")["function"]["description"]
    assert len(told) <= 1024
    assert told.endswith("word…")
    assert schema_of(item, dialect="anthropic")["description"] == item.description
    (found,) = lint(item, "openai")
    assert (found.path, found.severity) == ("description", "warning")
    assert found.text.startswith("1500 characters: ")


def test_an_output_that_clients_refuse_is_left_out_of_mcp_alone() -> None:
    """Otherwise older clients drop the tool."""
    item = a_tool(EMPTY, output_schema=TEXT)
    assert "outputSchema" not in schema_of(item, dialect="mcp")
    assert schema_of(item)["output_schema"] == TEXT
    assert [found.rule for found in lint(item, "mcp")] == ["mcp-output-object"]


# ---------------------------------------------------------------- lint


def test_a_lint_asks_every_dialect_or_the_one_named() -> None:
    """Otherwise a tool is found unusable only when the provider is changed."""
    item = a_tool(closed({"a b": {"type": "array"}}, required=[]))
    found = lint(item)
    assert {f.dialect for f in found} == {"openai", "anthropic"}
    assert lint(item, "openai") == tuple(f for f in found if f.dialect == "openai")
    assert lint(item, "json-schema") == lint(item, "mcp") == ()
    (named,) = lint(item, "anthropic")
    assert (named.rule, named.severity) == ("anthropic-property-names", "error")
    assert named.path == "$.properties.a b"
    assert named.text.startswith("'a b': a property's name is ")
    assert named.fix == "rename the parameter"
    with pytest.raises(ValueError, match="no dialect 'gemini'; there are: json-schema"):
        lint(item, "gemini")  # type: ignore[arg-type]  # what is tested


def test_a_lint_is_bounded() -> None:
    """Otherwise a foreign schema writes the report."""
    many = a_tool(closed({"x" * 90 + str(n): {} for n in range(500)}, required=[]))
    assert len(lint(many, "anthropic")) == 20
    anything = lint(a_tool(argument(True)), "openai")
    assert [(found.rule, found.path) for found in anything] == [("strict-typed", "$.properties.a")]
    assert all(len(found.path) < 150 and len(found.text) < 400 for found in lint(many))


def test_what_leads_outside_is_an_error_in_every_dialect() -> None:
    """A lint must not raise for what it is there to find."""
    found = lint(a_tool(argument({"$ref": "https://example.org/x"})))
    assert [f.dialect for f in found] == list(DIALECTS)
    assert {(f.rule, f.path, f.severity) for f in found} == {
        ("self-contained", "$.properties.a", "error")
    }
    assert "#/$defs/NAME" in found[0].fix


def test_our_own_tools_are_within_every_rule() -> None:
    """Otherwise the first request of anybody fails."""
    found = [f for item in builtin_tools() for f in lint(item) if not f.rule.startswith("strict-")]
    assert found == []


def test_a_subject_fits_where_nothing_is_asked() -> None:
    """Plain JSON Schema is what it is."""
    subject = a_subject({"anyOf": [TEXT]}, name="", description="")
    assert fitted(subject, "json-schema") == (subject, True)
