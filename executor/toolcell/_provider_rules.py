"""The providers' rules: `provider_rules.toml`, loaded once, and what each check looks at."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from toolcell._schema_walk import Node, below, walk

__all__ = ["DIALECTS", "Dialect", "Rule", "Subject", "is_narrowing", "rules"]

Dialect = Literal["json-schema", "mcp", "openai", "anthropic"]
DIALECTS: Final[tuple[Dialect, ...]] = ("json-schema", "mcp", "openai", "anthropic")
DATA_FILE: Final = "provider_rules.toml"

Place = tuple[str, str]
"""Where a rule does not hold, and what was found there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is exported of a tool. Both schemas are self-contained."""

    name: str
    description: str
    schema: Node
    output: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the data file."""

    id: str
    dialects: tuple[str, ...]
    check: str
    on: str
    reason: str
    fix: str
    source: str
    value: Any = None
    measure: str = ""

    def broken(self, subject: Subject) -> Iterator[Place]:
        """Each place where it does not hold."""
        return _CHECKS[self.check](self, subject)


@functools.cache
def rules(dialect: str) -> tuple[Rule, ...]:
    """The rules of a dialect, in the order of the file."""
    return tuple(rule for rule in _loaded() if dialect in rule.dialects)


@functools.cache
def _loaded() -> tuple[Rule, ...]:
    import tomllib  # late: only an export or a lint needs it

    rows = tomllib.loads(Path(__file__).with_name(DATA_FILE).read_text(encoding="utf-8"))["rule"]
    return tuple(Rule(**{**row, "dialects": tuple(row["dialects"])}) for row in rows)


def is_narrowing(root: Node, keyword: str) -> bool:
    """Whether leaving a keyword of the root out hides nothing that a call could name.

    The root has to name properties of its own, and what the keyword holds may name no others.
    """
    own = set(root.get("properties", ()))
    held = {keyword: root[keyword]} if keyword in _IN_PLACE else {}
    return bool(own) and _named(held, root.get("$defs", {}), set()) <= own


_IN_PLACE: Final = frozenset(
    {"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentSchemas"}
)
"""Keywords whose schemas judge the same value as the schema that they stand in."""


def _named(node: object, defs: Node, seen: set[str]) -> set[str]:
    """The properties that a schema names of the value itself, references followed."""
    if not isinstance(node, dict):
        return set()
    found = {*node.get("properties", ()), *node.get("required", ())}
    inside = [item for path, item in below(node) if re.split(r"[.\[]", path)[0] in _IN_PLACE]
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in defs and name not in seen:
        seen.add(name)
        inside.append(defs[name])
    return found.union(*(_named(item, defs, seen) for item in inside))


# ---------------------------------------------------------------- the checks


def _name(rule: Rule, subject: Subject) -> Iterator[Place]:
    if re.fullmatch(rule.value, subject.name) is None:
        yield "name", repr(subject.name)[:100]


def _root_names(rule: Rule, subject: Subject) -> Iterator[Place]:
    for name in subject.schema.get("properties", ()):
        if re.fullmatch(rule.value, name) is None:
            yield f"$.properties.{name[:100]}", repr(name)[:100]


def _description_given(rule: Rule, subject: Subject) -> Iterator[Place]:
    if not subject.description.strip():
        yield "description", "no description"


def _description_at_most(rule: Rule, subject: Subject) -> Iterator[Place]:
    if len(subject.description) > rule.value:
        yield "description", f"{len(subject.description)} characters"


def _root_is_object(rule: Rule, subject: Subject) -> Iterator[Place]:
    if subject.schema.get("type") != "object":
        yield "$", f"type {subject.schema.get('type')!r:.60}"


def _output_is_object(rule: Rule, subject: Subject) -> Iterator[Place]:
    if subject.output is not None and subject.output.get("type") != "object":
        yield "output", f"type {subject.output.get('type')!r:.60}"


def _root_without(rule: Rule, subject: Subject) -> Iterator[Place]:
    yield from (("$", keyword) for keyword in rule.value if keyword in subject.schema)


def _nowhere(rule: Rule, subject: Subject) -> Iterator[Place]:
    for path, node in _nodes(subject.schema):
        yield from ((path, keyword) for keyword in rule.value if keyword in node)


def _only(rule: Rule, subject: Subject) -> Iterator[Place]:
    for path, node in _nodes(subject.schema):
        yield from ((path, keyword[:60]) for keyword in node if keyword not in rule.value)


def _any_of(rule: Rule, subject: Subject) -> Iterator[Place]:
    # Of additionalProperties, true and false are judged by the check "closed".
    yield from _untyped(rule.value, subject.schema, "$")


def _untyped(keywords: list[str], node: object, path: str) -> Iterator[Place]:
    if not isinstance(node, dict) or not any(key in node for key in keywords):
        yield path, "no type"
    if isinstance(node, dict):
        for name, item in below(node):
            if name != "additionalProperties" or not isinstance(item, bool):
                yield from _untyped(keywords, item, f"{path}.{name}")


def _alone(rule: Rule, subject: Subject) -> Iterator[Place]:
    for path, node in _nodes(subject.schema):
        beside = sorted(node.keys() - {rule.value, "$defs"})
        if rule.value in node and beside:
            yield path, f"{rule.value} beside {', '.join(beside)[:60]}"


def _all_required(rule: Rule, subject: Subject) -> Iterator[Place]:
    for path, node in _nodes(subject.schema):
        for name in node.get("properties", ()):
            if name not in node.get("required", ()):
                yield f"{path}.properties.{name[:100]}", "not required"


def _closed(rule: Rule, subject: Subject) -> Iterator[Place]:
    for path, node in _nodes(subject.schema):
        if ("object" in _types(node) or "properties" in node) and node.get(
            "additionalProperties"
        ) is not False:
            yield path, "an open object"


def _items_typed(rule: Rule, subject: Subject) -> Iterator[Place]:
    for path, node in _nodes(subject.schema):
        if "array" in _types(node) and node.get("items") in (None, True, {}):
            yield path, "an untyped array"


def _formats(rule: Rule, subject: Subject) -> Iterator[Place]:
    for path, node in _nodes(subject.schema):
        if "format" in node and node["format"] not in rule.value:
            yield path, f"format {node['format']!r:.60}"


def _at_most(rule: Rule, subject: Subject) -> Iterator[Place]:
    found = _MEASURES[rule.measure](subject.schema)
    if found > rule.value:
        yield "$", f"{found}"


_CHECKS: Final[dict[str, Callable[[Rule, Subject], Iterator[Place]]]] = {
    "name_matches": _name,
    "root_names_match": _root_names,
    "description_given": _description_given,
    "description_at_most": _description_at_most,
    "root_is_object": _root_is_object,
    "output_is_object": _output_is_object,
    "root_without": _root_without,
    "nowhere": _nowhere,
    "only": _only,
    "any_of": _any_of,
    "alone": _alone,
    "all_required": _all_required,
    "closed": _closed,
    "items_typed": _items_typed,
    "formats": _formats,
    "at_most": _at_most,
}


def _nodes(schema: Node) -> Iterator[tuple[str, Node]]:
    return ((path, node) for path, node in walk(schema) if isinstance(node, dict))


def _types(node: Node) -> list[str]:
    said = node.get("type")
    return said if isinstance(said, list) else [said] if isinstance(said, str) else []


# ---------------------------------------------------------------- the measures

LONG_ENUM_VALUES: Final = 250


def _properties(schema: Node) -> int:
    return sum(len(node.get("properties", ())) for _, node in _nodes(schema))


def _depth(schema: Node) -> int:
    """Objects inside objects, references followed; where a definition recurs, once."""
    defs, known = schema.get("$defs", {}), dict[str, int]()

    def deep(node: object) -> int:
        if not isinstance(node, dict):
            return 0
        down = 0
        if "$ref" in node:
            name = node["$ref"].removeprefix("#/$defs/")
            if name not in known:
                known[name] = 0
                known[name] = deep(defs[name])
            down = known[name]
        inside = (deep(item) for path, item in below(node) if not path.startswith("$defs."))
        return max(down, ("properties" in node) + max(inside, default=0))

    return deep(schema)


def _enum_values(schema: Node) -> int:
    return sum(len(node.get("enum", ())) for _, node in _nodes(schema))


def _name_chars(schema: Node) -> int:
    """Characters of the names of properties and definitions, and of enum and const values."""
    total = 0
    for _, node in _nodes(schema):
        names = [*node.get("properties", ()), *node.get("$defs", ())]
        values = [*node.get("enum", ()), node.get("const")]
        total += sum(len(text) for text in (*names, *values) if isinstance(text, str))
    return total


def _long_enum_chars(schema: Node) -> int:
    enums = (node.get("enum", ()) for _, node in _nodes(schema))
    long = (enum for enum in enums if len(enum) > LONG_ENUM_VALUES)
    return max((sum(len(v) for v in enum if isinstance(v, str)) for enum in long), default=0)


_MEASURES: Final[dict[str, Callable[[Node], int]]] = {
    "properties": _properties,
    "depth": _depth,
    "enum_values": _enum_values,
    "name_chars": _name_chars,
    "long_enum_chars": _long_enum_chars,
}
