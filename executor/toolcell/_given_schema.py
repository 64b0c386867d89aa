"""A JSON Schema that a program gives for a tool. Light: read in every jail of its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcell._arguments import NotPlain, read

__all__ = ["given_schema"]

_OPEN: Final = frozenset(
    ("additionalProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "$ref", "if")
)
"""What says itself how open an object is, or has parts that do."""


def given_schema(schema: object) -> dict[str, Any]:
    """A copy of a schema that a program gives for a tool's input, closed where it leaves it open.

    One that is composed at the top (`allOf`, `$ref` and the like) is left as it is, since closing
    it there would refuse what its parts name.

    Raises:
        ValueError: it is no plain JSON object.
    """
    if not isinstance(schema, Mapping):
        raise ValueError(f"parameters are a JSON Schema, an object, not {schema!r:.50}")
    try:
        found: dict[str, Any] = read(dict(schema))
    except NotPlain as error:
        raise ValueError(f"the schema is not plain JSON: {error}") from None
    found.setdefault("type", "object")
    found.setdefault("properties", {})
    if not found.keys() & _OPEN:
        found["additionalProperties"] = False
    return found
