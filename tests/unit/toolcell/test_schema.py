"""Schemas from functions, and arguments checked against them."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolcell._docstring import parameters, summary
from toolcell.markers import AtLeast, ReadPath
from toolcell.results import InvalidArguments
from toolcell.schema import Validated, check_foreign, input_schema, validate
from toolcell.tools import tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    label: str | None = None


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


def everything(
    path: ReadPath,
    count: int = 3,
    ratio: float = 0.5,
    loud: bool = False,
    tags: list[str] = [],  # noqa: B006 - a default that is only exported
    points: dict[str, Point] = {},  # noqa: B006 - a default that is only exported
    maybe: Optional[str] = None,  # noqa: UP045 - the old spelling must work
    either: int | str = 1,
    kind: Literal["a", "b"] = "a",
    colour: Colour = Colour.RED,
    when: datetime.date | None = None,
    at_least: Annotated[int, AtLeast(1)] = 1,
    limited: Annotated[int, Field(le=5)] = 1,
    json: str = "",
    title: str = "",
) -> None:
    """Do everything.

    More words.

    Args:
        path: what to read
        count (int): how often,
            counted
        title: a title
    """


TOOL = tool(everything)


def invalid(arguments: Any, target: Any = TOOL) -> InvalidArguments:
    found = validate(target, arguments)
    assert isinstance(found, InvalidArguments), found
    return found


def valid(arguments: Any, target: Any = TOOL) -> Validated:
    found = validate(target, arguments)
    assert isinstance(found, Validated), found
    return found


def test_the_schema_is_closed_and_plain() -> None:
    """Models and providers do best with schemas that need no resolving."""
    schema = TOOL.input_schema
    assert schema["required"] == ["path"]
    assert schema["additionalProperties"] is False
    assert "$defs" not in schema
    properties = schema["properties"]
    assert properties["path"] == {
        "type": "string",
        "description": "what to read (a path to read, relative to the workspace or absolute)",
    }
    assert properties["count"] == {
        "type": "integer",
        "default": 3,
        "description": "how often, counted",
    }
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert properties["points"]["additionalProperties"] == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "label": {"type": "string"}},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"], "default": "red"}
    assert properties["at_least"] == {"type": "integer", "minimum": 1, "default": 1}
    assert properties["title"] == {"type": "string", "default": "", "description": "a title"}


def test_an_optional_argument_is_its_plain_type_and_not_required() -> None:
    """Providers and models trip over unions with null."""
    assert TOOL.input_schema["properties"]["maybe"] == {"type": "string"}
    assert TOOL.input_schema["properties"]["when"] == {"type": "string", "format": "date"}


def no_default(x: int | None) -> None: ...


def none_means_something(x: int | None = 5) -> None: ...


def test_an_optional_argument_without_default_need_not_be_given() -> None:
    """Models leave out what is optional."""
    assert "required" not in input_schema(no_default)
    assert valid({"x": None}, tool(no_default)).arguments == {}


def test_null_stays_where_it_differs_from_the_default() -> None:
    """Leaving it out would turn None into 5."""
    assert valid({"x": None}, tool(none_means_something)).arguments == {"x": None}


def test_a_schema_is_the_same_byte_for_byte() -> None:
    """A grant and a prompt cache hang on its hash."""
    assert json.dumps(input_schema(everything)) == json.dumps(input_schema(everything))


def recursive(tree: Tree) -> None: ...


def test_a_recursive_type_keeps_its_definition_and_validates() -> None:
    """Inlining it would never end."""
    made = tool(recursive)
    assert "$defs" in made.input_schema
    deep = {"tree": {"name": "a", "children": [{"name": "b"}]}}
    assert valid(deep, made).arguments == deep
    assert invalid({"tree": {"name": 1}}, made).problems[0]["path"] == "tree.name"


def a_tuple(x: tuple[int, str]) -> None: ...
def a_list(x: list) -> None: ...  # type: ignore[type-arg]  # that is the point
def a_nested_list(x: dict[str, list[Any]]) -> None: ...
def no_json(y: int, x: Callable[[], int]) -> None: ...
def a_pattern(x: Annotated[str, Field(json_schema_extra={"pattern": "(?=a)b"})]) -> None: ...
def its_pattern(x: Annotated[str, Field(pattern="(?=a)b")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [(a_tuple, "tuple"), (a_list, "untyped array"), (a_nested_list, "untyped array")],
)
def test_what_providers_reject_is_refused_with_the_reason(function: Any, words: str) -> None:
    """Otherwise every request that advertises the tool fails."""
    with pytest.raises(ValueError, match=words):
        input_schema(function)


@pytest.mark.parametrize("function", [no_json, its_pattern])
def test_a_type_without_json_is_refused_by_the_parameters_name(function: Any) -> None:
    """Whoever registers it has to know which parameter to change."""
    with pytest.raises(TypeError, match="parameter x"):
        input_schema(function)


def test_a_pattern_that_needs_backtracking_is_refused() -> None:
    """A pattern that takes hours would take the supervisor's loop with it."""
    with pytest.raises(ValueError, match="JSON Schema"):
        _ = tool(a_pattern).compiled


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"path":"a","path":"b"}', "twice"),
        ('{"path":"a","ratio":NaN}', "NaN"),
        ('{"path":"a","ratio":-Infinity}', "Infinity"),
        ('{"path":"a","ratio":1e400}', "too large"),
        ('{"path":"a\\u0000"}', "NUL"),
        ('{"pa\\u0000th":"a"}', "NUL"),
        ('{"path":"\\ud800"}', "surrogate"),
        ('{"path":"a","count":9223372036854775808}', "64 bits"),
        ('{"path":"a","count":' + "9" * 5_000 + "}", "64 bits"),
        ('{"path":' + "[" * 65 + "]" * 65 + "}", "deeper"),
        ("[" * 100_000, "deeper"),
        ("[]", "one JSON object"),
        ("", "not valid JSON"),
        ("{'a':1}", "not valid JSON"),
        (b"\xff", "UTF-8"),
        ("null", "one JSON object"),
    ],
)
def test_json_that_is_read_in_two_ways_is_refused(text: Any, words: str) -> None:
    """What the gate read and what the handler reads must be the same."""
    assert words in invalid(text).message


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1 << 63, Path("a"), (1,), {1: 2}, b"a", "\0", "\ud800"]
)
def test_values_that_are_not_json_are_refused_by_name(value: Any) -> None:
    """What cannot be written down cannot be audited or sent to a jail."""
    found = invalid({"path": "a", "tags": value})
    assert found.problems[0]["path"] == "tags"


def test_the_edges_of_64_bits_pass() -> None:
    """A bound that is off by one refuses honest numbers."""
    for number in (2**63 - 1, -(2**63)):
        assert valid(f'{{"path":"a","count":{number}}}').arguments["count"] == number


def test_arguments_are_a_copy() -> None:
    """Otherwise a caller could change what was approved while a person thinks."""
    tags = ["a"]
    found = valid({"path": "a", "tags": tags})
    tags.append("b")
    assert found.arguments["tags"] == ["a"]


# ---------------------------------------------------------------- repairs


@pytest.mark.parametrize(
    ("name", "sent", "meant"),
    [
        pytest.param("tags", '["a","b"]', ["a", "b"], id="case-41-list-as-string"),
        ("points", '{"p":{"x":1}}', {"p": {"x": 1}}),
        ("points", {"p": '{"x":"1"}'}, {"p": {"x": 1}}),
        ("count", "5", 5),
        ("count", "-5", -5),
        ("count", 5.0, 5),
        ("ratio", "1.5", 1.5),
        ("ratio", "2", 2),
        ("loud", "true", True),
        ("loud", "false", False),
    ],
)
def test_what_says_the_same_in_another_type_is_repaired_and_recorded(
    name: str, sent: Any, meant: Any
) -> None:
    """A model that sends a list as text means the list; the record says that it did not."""
    found = valid({"path": "a", name: sent})
    assert found.arguments[name] == meant
    assert type(found.arguments[name]) is type(meant)
    assert found.repairs[0]["path"].startswith(name)
    assert found.repairs[0].keys() == {"path", "from", "to", "why"}
    assert all(isinstance(text, str) for text in found.repairs[0].values())


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("count", "05"),
        ("count", "+5"),
        ("count", " 5"),
        ("count", "5.5"),
        ("count", "9223372036854775808"),
        ("count", "\u0665"),
        ("count", 5.5),
        ("count", 1e300),
        ("count", True),
        ("count", "five"),
        ("ratio", "nan"),
        ("ratio", "1e999"),
        ("ratio", "1_0"),
        ("loud", "True"),
        ("loud", "1"),
        ("loud", 1),
        ("tags", "a,b"),
        ("tags", '["a"'),
        ("tags", '{"a":1}'),
        ("points", '{"p":{"x":1},"p":{"x":2}}'),
    ],
)
def test_nothing_is_guessed(name: str, sent: Any) -> None:
    """A guess that is wrong does something nobody asked for."""
    found = invalid({"path": "a", name: sent})
    assert found.problems[0]["path"].startswith(name)


def test_text_stays_text_where_text_is_taken() -> None:
    """A file's content may well be "5" or a JSON list."""
    sent = {"path": "[1]", "either": "5", "json": '{"a":1}', "maybe": "true"}
    assert valid(sent) == Validated(sent, ())


def test_null_for_an_optional_argument_means_that_it_is_not_given() -> None:
    """Models often send null for what they do not use."""
    found = valid({"path": "a", "maybe": None, "points": {"p": {"x": 1, "label": None}}})
    assert found.arguments == {"path": "a", "points": {"p": {"x": 1}}}
    assert [r["path"] for r in found.repairs] == ["maybe", "points.p.label"]
    assert invalid({"path": "a", "count": None}).problems[0]["message"] == "expected integer"


def test_defaults_are_left_to_the_handler() -> None:
    """The approver should see what was asked for, no more."""
    assert valid({"path": "a"}) == Validated({"path": "a"}, ())


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*TOOL.input_schema["properties"], "x"]), JSON_VALUES))
@settings(max_examples=150, deadline=None)
def test_whatever_is_sent_ends_as_valid_or_as_named_problems(arguments: dict[str, Any]) -> None:
    """An exception here would be our defect, on the model's word."""
    found = validate(TOOL, arguments)
    if isinstance(found, Validated):
        assert validate(TOOL, found.arguments) == Validated(found.arguments, ())
        json.dumps(found.arguments, allow_nan=False).encode()
    else:
        assert found.problems
        assert found.message.isprintable()


# ---------------------------------------------------------------- wording


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"path": 1}, {"path": "path", "message": "expected string", "given": "integer"}),
        ({}, {"path": "path", "message": "missing, expected string", "given": "nothing"}),
        (
            {"path": "a", "either": []},
            {"path": "either", "message": "expected integer or string", "given": "array"},
        ),
        (
            {"path": "a", "kind": "c"},
            {"path": "kind", "message": 'expected one of "a", "b"', "given": "string"},
        ),
        (
            {"path": "a", "at_least": 0},
            {"path": "at_least", "message": "expected at least 1", "given": "integer"},
        ),
        (
            {"path": "a", "tags": ["a", 1]},
            {"path": "tags[1]", "message": "expected string", "given": "integer"},
        ),
        (
            {"path": "a", "points": {"p": {"x": 1, "y": 2}}},
            {"path": "points.p.y", "message": "there is no such argument", "given": "integer"},
        ),
        (
            {"path": "a", "when": "soon"},
            {"path": "when", "message": "expected text of the form date", "given": "string"},
        ),
        (
            {"path": "a", "cuont": 1},
            {
                "path": "cuont",
                "message": "there is no such argument; did you mean count?",
                "given": "integer",
            },
        ),
    ],
)
def test_a_problem_names_the_argument_what_was_expected_and_what_was_given(
    arguments: dict[str, Any], problem: dict[str, str]
) -> None:
    """The model corrects what it is told about, and nothing else."""
    found = invalid(arguments)
    assert found.problems == (problem,)
    assert problem["path"] in found.message
    assert found.valid_names == tuple(TOOL.input_schema["properties"])
    assert "Valid arguments: path, count" in found.message


def test_hostile_names_and_sizes_do_not_reach_the_message() -> None:
    """A name may be a megabyte, or turn the terminal's text round."""
    found = invalid({"path": "a", **{f"\u202e\x1b[31m{n}" + "x" * 10_000: n for n in range(100)}})
    assert len(found.problems) == 20
    assert len(found.message) < 2_000
    assert found.message.isprintable()


# ---------------------------------------------------------------- foreign schemas

BOMB = {
    "type": "object",
    "$defs": {
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(6)},
        "d6": {},
    },
    "properties": {"x": {"$ref": "#/$defs/d0"}},
}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "object"),
        ({"type": "string"}, "one object"),
        ({"type": "object", "properties": 5}, "JSON Schema"),
        ({"type": "object", "properties": {"x": {"type": "nope"}}}, "JSON Schema"),
        ({"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1/x"}}}, r"\$ref"),
        ({"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}}, r"\$ref"),
        ({"type": "object", "properties": {"x": {"$ref": "#"}}}, r"\$ref"),
        ({"type": "object", "$id": "http://127.0.0.1/x"}, r"\$id"),
        (
            {
                "type": "object",
                "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}},
                "properties": {"x": {"$ref": "#/$defs/a"}},
            },
            "recursive",
        ),
        (BOMB, "places"),
        ({"type": "object", "description": "x" * 70_000}, "larger"),
        ({"type": "object", "properties": {"x": {"type": "array"}}}, "untyped array"),
        ({"type": "object", "properties": {"x": {"pattern": "(a)\\1"}}}, "JSON Schema"),
        ({"type": "object", "x": float("nan")}, "plain JSON"),
        ({"type": "object", "patternProperties": 5}, "JSON Schema"),
        ({"type": "object", "patternProperties": {"a" * n: {} for n in range(33)}}, "regular"),
    ],
)
def test_a_foreign_schema_cannot_cost_time_space_or_a_request(schema: Any, words: str) -> None:
    """A pack's schema is read in the supervisor, where nothing confines it."""
    with pytest.raises(ValueError, match=words):
        check_foreign(schema)


def test_a_foreign_schema_is_closed_at_the_top() -> None:
    """Unknown arguments are refused, whoever made the tool."""
    assert check_foreign({"type": "object"})["additionalProperties"] is False


# ---------------------------------------------------------------- docstrings

GOOGLE = """Do it
    well.

    Args:
        a: the first,
            at length
        b (int, optional): the second: with a colon

    Returns:
        c: not a parameter
    """
NUMPY = """Do it
    well.

    Parameters
    ----------
    a : str
        the first,
        at length
    b : int, optional
        the second: with a colon

    Returns
    -------
    c : int
        not a parameter
    """
REST = """Do it
    well.

    :param a: the first,
        at length
    :param int b: the second: with a colon
    :returns: c
    """


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_each_style_of_docstring_describes_the_parameters(doc: str) -> None:
    """A model that is told nothing of a parameter guesses."""
    assert summary(doc) == "Do it well."
    assert parameters(doc) == {"a": "the first, at length", "b": "the second: with a colon"}


@pytest.mark.parametrize("doc", [None, "", "   ", "Args:", ":param", "Parameters\n---", "a\n\n\n"])
def test_a_poor_docstring_describes_nothing(doc: str | None) -> None:
    """A docstring must never keep a tool from being registered."""
    assert parameters(doc) == {}
