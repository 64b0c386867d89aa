"""`ToolValidationResult`: what is wrong with arguments, by parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcell._arguments import NotPlain, read
from toolcell._problems import PROBLEMS_MAX, problems
from toolcell.schema import Compiled

__all__ = ["ToolValidationResult", "detailed"]

WHOLE: Final = "(arguments)"
"""The name under which what is wrong with all of them stands."""
_BARE: Final = {"required": "missing", "additionalProperties": "unknown"}
_UNIONS: Final = ("anyOf", "oneOf")


@dataclass(frozen=True, slots=True)
class ToolValidationResult:
    """Whether arguments are valid as they stand, and what is wrong with each that is not.

    `errors` are sentences with the parameter's name, the expected and the given type.
    `invalid_params` has, by parameter (`options.depth` for one below), what rule it breaks and
    what was expected: "type: expected integer", "enum: expected one of ...", "missing", "unknown".
    At most twenty places are told.
    """

    valid: bool
    errors: tuple[str, ...] = ()
    invalid_params: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.valid


def detailed(compiled: Compiled, parameters: Mapping[str, Any]) -> ToolValidationResult:
    """Check arguments as they stand: nothing is repaired, no default filled in."""
    errors: list[str] = []
    invalid: dict[str, str] = {}
    for rule, problem in _found(compiled, parameters):
        name = problem["path"] or WHOLE
        told = problem["message"]
        if rule == "type":
            told += f", given {problem['given']}"
        errors.append(f"parameter {name}: {told}")
        invalid.setdefault(
            name, rule if rule in _BARE.values() else f"{rule}: {problem['message']}"
        )
    return ToolValidationResult(not errors, tuple(errors), invalid)


def _found(compiled: Compiled, parameters: Mapping[str, Any]) -> list[tuple[str, dict[str, str]]]:
    try:
        plain = read(dict(parameters))
    except NotPlain as error:
        rule = "type" if "not a JSON value" in str(error) else "value"
        return [(rule, {"path": error.path, "message": str(error), "given": error.given})]
    found: list[tuple[str, dict[str, str]]] = []
    for raw in compiled.errors(plain):
        for problem in problems([raw], compiled.names, compiled.schema):
            found.append((_rule(raw, problem), problem))
        if len(found) >= PROBLEMS_MAX:
            break
    return found[:PROBLEMS_MAX]


def _rule(error: Any, problem: Mapping[str, str]) -> str:
    name: str = error.kind.name
    if name in _UNIONS and problem["message"].startswith("expected "):
        # The branch that was meant, or all types that the union takes.
        return "enum" if problem["message"].startswith("expected one of") else "type"
    return _BARE.get(name, name)
