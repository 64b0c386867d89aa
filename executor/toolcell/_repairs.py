"""Arguments in a wrong type that say exactly the same in the right one: repaired, and recorded."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from toolcell._arguments import INT_MAX, NotPlain, Reader, joined, kind, parse

_SHOWN_CHARS: Final = 200

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,3})?")

Schema = dict[str, Any]
Repair = dict[str, str]


def dereferenced(schema: Any, root: Schema) -> Any:
    """`schema`, or what its `$ref` to `#/$defs/…` (Draft 7: `#/definitions/…`) names."""
    for _ in range(16):
        ref = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(ref, str) or not ref.startswith(("#/$defs/", "#/definitions/")):
            break
        _, where, name = ref.split("/", 2)
        schema = root.get(where, {}).get(name, {})
    return schema


def accepted(schema: Any, root: Schema) -> frozenset[str] | None:
    """The JSON types that a schema lets by; None when it does not say."""
    schema = dereferenced(schema, root)
    if not isinstance(schema, dict):
        return None
    if "type" in schema:
        said = schema["type"]
        return frozenset([said] if isinstance(said, str) else said)
    if "enum" in schema:
        return frozenset(map(kind, schema["enum"]))
    if "const" in schema:
        return frozenset([kind(schema["const"])])
    branches = schema.get("anyOf", schema.get("oneOf"))
    if not branches:
        return None
    found = [accepted(branch, root) for branch in branches]
    return None if None in found else frozenset().union(*(types for types in found if types))


class Repairer:
    """Follows a schema through a value and turns what was sent in a wrong type into the right one.

    Nothing is guessed: each repair says exactly the same in another type, and a place that also
    takes a string keeps its string. With `loose` false only 5.0 becomes 5, since that is what
    JSON Schema itself takes for an integer.
    """

    def __init__(self, root: Schema, *, loose: bool) -> None:
        self.root = root
        self.loose = loose
        self.repairs: list[Repair] = []
        self.problems: list[dict[str, str]] = []
        """What the schema itself would let by: 1e300 is a whole number too."""

    def repaired(self, value: Any, schema: Any, path: str = "") -> Any:
        """`value` as `schema` wants it, as far as that is possible."""
        schema = dereferenced(schema, self.root)
        types = accepted(schema, self.root)
        if types is None:
            return value
        given = kind(value)
        if given not in types and not (given == "integer" and "number" in types):
            value = self._converted(value, types, path)
        if isinstance(value, dict) and "object" in types:
            return self._object(value, self._branch(schema, "object"), path)
        if isinstance(value, list) and "array" in types:
            items = self._branch(schema, "array").get("items", {})
            return [self.repaired(item, items, f"{path}[{n}]") for n, item in enumerate(value)]
        return value

    def _branch(self, schema: Schema, wanted: str) -> Schema:
        branches = schema.get("anyOf", schema.get("oneOf"))
        if branches is None:
            return schema
        found = [b for b in branches if wanted in (accepted(b, self.root) or ())]
        return dereferenced(found[0], self.root) if len(found) == 1 else {}

    def _object(self, value: dict[str, Any], schema: Schema, path: str) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        rest, found = schema.get("additionalProperties", {}), {}
        for name, item in value.items():
            below = properties.get(name, rest)
            place = joined(path, name)
            if self.loose and item is None and name in properties and name not in required:
                types = accepted(below, self.root)
                if types and "null" not in types and "default" not in below:
                    self._record(place, None, "(left out)", "null for an optional argument")
                    continue
            found[name] = self.repaired(item, below, place)
        return found

    def _converted(self, value: Any, types: frozenset[str], path: str) -> Any:
        if isinstance(value, float) and "integer" in types:
            if value.is_integer() and abs(value) < 1 << 53:
                return self._record(path, value, int(value), "a whole number for an integer")
            if value.is_integer():
                message = "expected integer, in digits and within 64 bits"
                self.problems.append({"path": path, "message": message, "given": "number"})
            return value
        if not self.loose or not isinstance(value, str) or "string" in types:
            return value
        if "boolean" in types and value in ("true", "false"):
            return self._record(path, value, value == "true", "a boolean sent as text")
        if types & {"integer", "number"} and _INTEGER.fullmatch(value):
            if -INT_MAX <= int(value) < INT_MAX:
                return self._record(path, value, int(value), "a number sent as text")
        elif "number" in types and _NUMBER.fullmatch(value) and math.isfinite(float(value)):
            return self._record(path, value, float(value), "a number sent as text")
        for wanted, opening in (("array", "["), ("object", "{")):
            if wanted in types and value.lstrip()[:1] == opening:
                try:
                    found = Reader().plain(parse(value), path, path.count(".") + path.count("["))
                except NotPlain:
                    return value
                return self._record(path, value, found, f"an {wanted} sent as text")
        return value

    def _record(self, path: str, before: Any, after: Any, why: str) -> Any:
        shown = after if after == "(left out)" else _shown(after)
        self.repairs.append({"path": path, "from": _shown(before), "to": shown, "why": why})
        return after


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
