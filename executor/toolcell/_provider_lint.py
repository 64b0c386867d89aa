"""What a provider would make of a tool: findings for a person, and what an export does then."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from toolcell._provider_rules import DIALECTS, Dialect, Place, Rule, Subject, is_narrowing, rules
from toolcell._schema_contained import NotContained, contained, used
from toolcell._schema_levels import clipped
from toolcell._schema_walk import ordered

if TYPE_CHECKING:
    from toolcell.tools import Tool

__all__ = ["Finding", "fitted", "lint", "subject_of"]

_SELF_CONTAINED: Final = "self-contained"
_PLACES_MAX: Final = 20
"""How many places of one rule are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place of a tool where one rule of one dialect does not hold.

    An `error` is a tool that the dialect's export refuses. A `warning` is one that it exports in
    other words, or without something: `text` says what.
    """

    rule: str
    dialect: Dialect
    path: str
    """`$` is the input schema, as in `$.properties.path`; else name, description or output."""
    text: str
    fix: str
    severity: Literal["error", "warning"]


_DONE: Final = {
    "refuse": "it is refused",
    "drop": "it is left out there, and still judged here",
    "cut": "it is cut there",
    "no_output": "the output schema is left out there",
    "loose": "it is sent with strict: false",
}


def lint(tool: Tool, dialect: Dialect | None = None) -> tuple[Finding, ...]:
    """Where a tool breaks the rules of a dialect, or of any, by the full schema.

    Raises:
        ValueError: there is no such dialect.
    """
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f"there is no dialect {dialect!r}; there are: {', '.join(DIALECTS)}")
    asked = DIALECTS if dialect is None else (dialect,)
    try:
        subject = subject_of(tool)
    except NotContained as error:
        return tuple(
            Finding(
                rule=_SELF_CONTAINED,
                dialect=one,
                path=error.path,
                text=f"{error.reason}; {_DONE['refuse']}",
                fix=error.fix,
                severity="error",
            )
            for one in asked
        )
    return tuple(found for one in asked for found in _findings(subject, one))


def subject_of(tool: Tool) -> Subject:
    """What there is to export of a tool, whole.

    Raises:
        NotContained: a schema of it leads outside itself.
    """
    schema = contained(tool.input_schema)
    if schema.get("type") == "object":
        # Some providers refuse an object that names no properties, even none.
        schema = ordered({"properties": {}, **schema})
    output = None if tool.output_schema is None else contained(tool.output_schema)
    return Subject(name=tool.name, description=tool.description, schema=schema, output=output)


def fitted(subject: Subject, dialect: Dialect) -> tuple[Subject, bool]:
    """What the dialect takes of it, and whether that fits the dialect's strict mode.

    Raises:
        ValueError: it takes none of it; names the place, the reason and the way out.
    """
    is_strict = True
    for rule in rules(dialect):
        for path, found in rule.broken(subject):
            match _what_to_do(rule, subject, found):
                case "refuse":
                    raise ValueError(
                        f"tool {subject.name or '(nameless)'} cannot be exported as {dialect}: "
                        f"{path}: {found}: {rule.reason}; {rule.fix}"
                    )
                case "drop":
                    left = {k: v for k, v in subject.schema.items() if k != found}
                    subject = dataclasses.replace(subject, schema=used(left))
                case "cut":
                    said = clipped(subject.description, rule.value)
                    subject = dataclasses.replace(subject, description=said)
                case "no_output":
                    subject = dataclasses.replace(subject, output=None)
                case _:
                    is_strict = False
                    break
    return subject, is_strict


def _what_to_do(rule: Rule, subject: Subject, found: str) -> str:
    if rule.on == "drop" and not is_narrowing(subject.schema, found):
        return "refuse"
    return rule.on


def _findings(subject: Subject, dialect: Dialect) -> Iterator[Finding]:
    for rule in rules(dialect):
        places: Iterable[Place] = rule.broken(subject)
        for number, (path, found) in enumerate(places):
            if number == _PLACES_MAX:
                break
            done = _what_to_do(rule, subject, found)
            yield Finding(
                rule=rule.id,
                dialect=dialect,
                path=path,
                text=f"{found}: {rule.reason}; {_DONE[done]}",
                fix=rule.fix,
                severity="error" if done == "refuse" else "warning",
            )
