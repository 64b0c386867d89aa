"""Where schemas stand inside a schema: what is a keyword, what is a name, what is plain data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["ANNOTATIONS", "ASSERTIONS", "PLAIN_ANNOTATIONS", "below", "mapped", "ordered", "walk"]

Node = dict[str, Any]

MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SINGLES: Final = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
})  # fmt: skip
PLAIN_ANNOTATIONS: Final = frozenset({
    "title", "examples", "$comment", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip
ANNOTATIONS: Final = PLAIN_ANNOTATIONS | {"description", "default"}
"""What no value is judged by (JSON Schema 2020-12, Validation, section 9)."""

_ORDER: Final = (
    "$ref", "type", "title", "description", "const", "enum", "default", "format", "pattern",
    "minLength", "maxLength", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
    "multipleOf", "contentEncoding", "contentMediaType", "contentSchema", "items", "prefixItems",
    "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems",
    "unevaluatedItems", "properties", "required", "patternProperties", "additionalProperties",
    "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
    "unevaluatedProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "else",
    "readOnly", "writeOnly", "deprecated", "examples", "$comment",
)  # fmt: skip
_PLACE: Final = {keyword: place for place, keyword in enumerate(_ORDER)}
ASSERTIONS: Final = frozenset(_ORDER) - ANNOTATIONS | {"$defs"}
"""What judges a value, or holds what does."""


def ordered(node: Node) -> Node:
    """The same node, its keywords in one order: unknown ones by name, `$defs` last."""

    def place(keyword: str) -> tuple[int, str]:
        return (len(_ORDER) + (keyword == "$defs"), keyword)

    keys = sorted(node, key=lambda key: (_PLACE[key], "") if key in _PLACE else place(key))
    return {key: node[key] for key in keys}


def below(node: Node) -> Iterator[tuple[str, object]]:
    """Each schema directly inside a node, with the path to it; booleans as well."""
    for key, value in node.items():
        if key in MAPS and isinstance(value, dict):
            yield from ((f"{key}.{name}", item) for name, item in value.items())
        elif key in LISTS and isinstance(value, list):
            yield from ((f"{key}[{number}]", item) for number, item in enumerate(value))
        elif key in SINGLES:
            yield key, value


def walk(node: object, path: str = "$") -> Iterator[tuple[str, object]]:
    """A schema and every schema inside it, with paths: booleans too, references not followed."""
    yield path, node
    if isinstance(node, dict):
        for name, item in below(node):
            yield from walk(item, f"{path}.{name}")


def mapped(node: Node, change: Callable[[Any, str], Any]) -> Node:
    """A copy with `change(schema, path from here)` in the place of each schema inside it."""
    found: Node = {}
    for key, value in node.items():
        if key in MAPS and isinstance(value, dict):
            found[key] = {name: change(item, f"{key}.{name}") for name, item in value.items()}
        elif key in LISTS and isinstance(value, list):
            found[key] = [change(item, f"{key}[{n}]") for n, item in enumerate(value)]
        elif key in SINGLES:
            found[key] = change(value, key)
        else:
            found[key] = copy.deepcopy(value)
    return found
