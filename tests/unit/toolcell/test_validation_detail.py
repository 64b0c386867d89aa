"""`validate_parameters` and its detailed twin, by the words that their users know."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from toolcell.base_tool import BaseTool
from toolcell.dialects import schema_of
from toolcell.tools import Tool, as_tool
from toolcell.validation import ToolValidationResult
from toolcell_policies.vocabulary import SchemaLevel


class Grep(BaseTool):
    name = "grep"
    description = "Search."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1, "default": 5},
            "mode": {"type": "string", "enum": ["text", "regex"]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "small": {"anyOf": [{"type": "integer", "maximum": 3}, {"type": "string"}]},
            "tagged": {"anyOf": [{"enum": ["a"]}, {"type": "integer"}]},
            "options": {
                "type": "object",
                "properties": {"depth": {"type": "integer"}},
                "required": ["depth"],
                "additionalProperties": False,
            },
            "lines": {"type": "array", "items": {"type": "integer"}},
            "odd": {"not": {"type": "string"}},
        },
        "required": ["pattern"],
        "maxProperties": 5,
    }

    def execute(self, _exec_ctx: Any, **kwargs: Any) -> Any:
        return None


GREP = Grep()


@pytest.mark.parametrize(
    ("parameters", "name", "word"),
    [
        ({"pattern": "x", "limit": "five"}, "limit", "type: expected integer"),
        ({"pattern": "x", "limit": "5"}, "limit", "type: expected integer"),
        ({"pattern": "x", "limit": True}, "limit", "type: expected integer"),
        ({"pattern": 5}, "pattern", "type: expected string"),
        ({}, "pattern", "missing"),
        ({"pattern": "x", "patern": "y"}, "patern", "unknown"),
        ({"pattern": "x", "mode": "glob"}, "mode", 'enum: expected one of "text", "regex"'),
        ({"pattern": "x", "limit": 0}, "limit", "minimum: expected at least 1"),
        ({"pattern": ""}, "pattern", "minLength: expected at least 1 characters"),
        ({"pattern": "x", "either": []}, "either", "type: expected integer or string"),
        ({"pattern": "x", "small": 9}, "small", "type: expected at most 3"),
        ({"pattern": "x", "tagged": "b"}, "tagged", 'enum: expected one of "a"'),
        ({"pattern": "x", "options": {}}, "options.depth", "missing"),
        ({"pattern": "x", "options": {"depth": 1, "x": 1}}, "options.x", "unknown"),
        ({"pattern": "x", "lines": [1, "b"]}, "lines[1]", "type: expected integer"),
        ({"pattern": object()}, "pattern", "type: object is not a JSON value"),
        ({"pattern": "a\0b"}, "pattern", "value: a NUL character is not allowed in text"),
    ],
)
def test_each_kind_of_problem_is_named_by_its_parameter(
    parameters: dict[str, Any], name: str, word: str
) -> None:
    """A model corrects what it is told of; "invalid" it can only guess at."""
    found = GREP.validate_parameters_detailed(**parameters)
    assert not GREP.validate_parameters(**parameters)
    assert (found.valid, bool(found)) == (False, False)
    assert found.invalid_params[name] == word
    assert any(name in error for error in found.errors)


def test_an_error_says_the_parameter_what_was_expected_and_what_was_given() -> None:
    """Without the given type one looks for the mistake in the wrong place."""
    found = GREP.validate_parameters_detailed(pattern="x", limit="five")
    assert found.errors == ("parameter limit: expected integer, given string",)
    whole = GREP.validate_parameters_detailed(**dict.fromkeys("abcdef", 1), pattern="x")
    assert "(arguments)" in whole.invalid_params
    odd = GREP.validate_parameters_detailed(pattern="x", odd="text")
    assert odd.invalid_params["odd"].startswith("not: ")


def test_valid_parameters_are_valid_for_the_tool_and_its_record_alike() -> None:
    """Two answers to one question would be one too many."""
    record = as_tool(Grep)
    for parameters in ({"pattern": "x"}, {"pattern": "x", "limit": 5.0, "options": {"depth": 1}}):
        for one in (GREP, record):
            assert one.validate_parameters(**parameters)
            assert one.validate_parameters_detailed(**parameters) == ToolValidationResult(True)
    assert record.validate_parameters_detailed(self=1).invalid_params == {
        "self": "unknown", "pattern": "missing",
    }  # fmt: skip


def test_no_more_than_twenty_problems_are_told() -> None:
    """A hostile list of a million wrong items must not become a million sentences."""
    found = GREP.validate_parameters_detailed(pattern="x", lines=["a"] * 1_000)
    assert len(found.errors) == 20
    many = GREP.validate_parameters_detailed(pattern="x", **{f"x{n}": 1 for n in range(1_000)})
    assert len(many.errors) == 20


@pytest.mark.parametrize("level", list(SchemaLevel))
def test_a_tool_tells_its_schema_at_each_level(level: SchemaLevel) -> None:
    """It is one and the same schema, whether a registry or the tool itself is asked."""
    record: Tool = as_tool(Grep)
    assert GREP.to_schema(level) == record.to_schema(level.value) == schema_of(record, level)
