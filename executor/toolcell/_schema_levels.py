"""How much of a schema is told: all of it, without the prose, or what a valid call needs."""

from __future__ import annotations

import re
from typing import Any, Final

from toolcell._schema_contained import used
from toolcell._schema_walk import ASSERTIONS, Node, below, mapped, walk
from toolcell_policies.vocabulary import SchemaLevel

__all__ = ["COMPACT_CHARS", "STUB_CHARS", "at_level", "clipped", "cut", "described"]

COMPACT_CHARS: Final = 100
STUB_CHARS: Final = 80

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[^\sa-z])|(?<=\u3002)|\n\s*\n")
_ASIDE: Final = re.compile(r"\s*\([^()]*\)")
_SIMPLE: Final = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
    "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "$defs",
})  # fmt: skip
"""Keywords beside which an optional property can go, and a value still be found."""


def at_level(schema: Node, level: SchemaLevel) -> Node:
    """A self-contained schema at a level. Neither `properties` nor `items` is lost at any.

    `compact` has no titles, examples or unknown keywords, and one short sentence of each
    description; what it accepts stays the same. `stub` has no prose and no defaults either, and of
    closed objects only the properties that are required: each value that it accepts is accepted by
    the schema given, and where that accepts any object at all, so does the stub.
    """
    if level is SchemaLevel.FULL:
        return schema
    if level is SchemaLevel.COMPACT:
        return used(_shorn(schema, ASSERTIONS | {"description", "default"}))
    bare = _shorn(schema, ASSERTIONS)
    # A definition may be reached from where less must not be accepted, such as from a `not`.
    whole = all(_is_simple(node) for _, node in walk(bare))
    defs = bare.pop("$defs", {})
    found: Node = _pruned(bare)
    if defs:
        found["$defs"] = {name: _pruned(item) if whole else item for name, item in defs.items()}
    return used(found)


def described(text: str, level: SchemaLevel) -> str:
    """A tool's description at a level: whole, or its first sentence."""
    if level is SchemaLevel.FULL:
        return text
    return cut(text, COMPACT_CHARS if level is SchemaLevel.COMPACT else STUB_CHARS)


def cut(text: str, max_chars: int) -> str:
    """The first sentence on one line without asides, ended with an ellipsis where too long."""
    first = " ".join(_SENTENCE.split(text.strip(), maxsplit=1)[0].split())
    return clipped(_ASIDE.sub("", first) or first, max_chars)


def clipped(text: str, max_chars: int) -> str:
    """At most so many characters, ended at a word with an ellipsis where something is missing."""
    if len(text) <= max_chars:
        return text
    head = text[: max_chars - 1]
    words = head if text[max_chars - 1].isspace() else head.rpartition(" ")[0]
    return f"{(words or head).rstrip()}…"


def _shorn(node: Any, kept: frozenset[str]) -> Any:
    if not isinstance(node, dict):
        return node
    found = {key: value for key, value in node.items() if key in kept}
    if isinstance(said := found.get("description"), str):
        found["description"] = cut(said, COMPACT_CHARS)
    return mapped(found, lambda item, _: _shorn(item, kept))


def _is_simple(node: object) -> bool:
    """Whether what a schema accepts shrinks, and never to nothing, with each schema inside it."""
    if not isinstance(node, dict):
        return True
    keys = node.keys() - {"$defs"}
    if _SIMPLE.issuperset(keys) or keys in ({"anyOf"}, {"$ref"}):
        return True
    return "$ref" not in node and not any(below(node))


def _pruned(node: Any) -> Any:
    """Without the optional properties of closed objects, as far down as that is safe."""
    if not isinstance(node, dict) or not _is_simple(node):
        return node
    found = dict(node)
    if node.get("additionalProperties") is False and isinstance(node.get("properties"), dict):
        required = node.get("required", ())
        found["properties"] = {k: v for k, v in node["properties"].items() if k in required}
    return mapped(found, lambda item, _: _pruned(item))
