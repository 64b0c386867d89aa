"""Untrusted arguments as plain JSON values: read strictly, repaired only without loss."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

INT_MAX: Final = 1 << 63
DEPTH_MAX: Final = 64
TEXT_MAX_CHARS: Final = 16 << 20
_SHOWN_CHARS: Final = 200

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,3})?")

Schema = dict[str, Any]
Repair = dict[str, str]


class NotPlain(ValueError):
    """A value is not JSON, or not JSON that everyone reads alike. `path` and `given` say which."""

    def __init__(self, path: str, message: str, given: str) -> None:
        super().__init__(message)
        self.path = path
        self.given = given


def kind(value: object) -> str:
    """The JSON type of a value, in JSON Schema's words; a Python type's name where it has none."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return type(value).__name__


_KINDS: tuple[tuple[Any, str], ...] = (
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    (list, "array"),
    (Mapping, "object"),
)


def read(arguments: object) -> Any:
    """A deep, plain copy of JSON values, or of JSON text.

    Raises:
        NotPlain: duplicate keys, NaN or infinity, an integer beyond 64 bits, NUL or a lone
            surrogate in a string, nesting deeper than 64, or no JSON at all.
    """
    if isinstance(arguments, bytes | bytearray):
        try:
            arguments = bytes(arguments).decode("utf-8")
        except UnicodeDecodeError:
            raise NotPlain("", "arguments must be UTF-8 text", "bytes") from None
    if isinstance(arguments, str):
        arguments = parse(arguments)
    return _Reader().plain(arguments, "", 0)


def parse(text: str) -> Any:
    """Strict JSON: as `json.loads`, without what it lets by.

    Raises:
        NotPlain: see `read`.
    """
    if len(text) > TEXT_MAX_CHARS:
        raise NotPlain("", f"arguments are longer than {TEXT_MAX_CHARS} characters", "string")
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_float,
        )
    except RecursionError:
        raise NotPlain("", f"nested deeper than {DEPTH_MAX}", "object") from None
    except json.JSONDecodeError as error:
        raise NotPlain("", f"not valid JSON: {error}", "string") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise NotPlain(shown_name(twice), "the same key is given twice", "object")
    return found


def _constant(text: str) -> Any:
    raise NotPlain("", f"{text} is not a JSON number", "number")


def _integer(text: str) -> int:
    if len(text) > 20 or not -INT_MAX <= (value := int(text)) < INT_MAX:
        raise NotPlain("", f"the integer {shown_name(text)} does not fit in 64 bits", "integer")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotPlain("", f"the number {shown_name(text)} is too large", "number")
    return value


class _Reader:
    """Copies, checks, and counts the characters so that the whole stays bounded."""

    def __init__(self) -> None:
        self.chars = 0

    def plain(self, value: Any, path: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise NotPlain(path, f"nested deeper than {DEPTH_MAX}", kind(value))
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, int):
            if not -INT_MAX <= value < INT_MAX:
                raise NotPlain(path, "the integer does not fit in 64 bits", "integer")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise NotPlain(path, f"{value} is not a JSON number", "number")
            return float(value)
        if isinstance(value, list):
            self.count(len(value), path)
            return [self.plain(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]
        if isinstance(value, Mapping):
            return self.mapping(value, path, depth)
        message = f"{type(value).__name__} is not a JSON value"
        raise NotPlain(path, message, type(value).__name__)

    def mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        self.count(len(value), path)
        found = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotPlain(path, "an object's keys are strings", kind(key))
            name = self.text(key, path)
            found[name] = self.plain(item, joined(path, name), depth + 1)
        return found

    def text(self, value: str, path: str) -> str:
        self.count(len(value), path)
        if "\0" in value:
            raise NotPlain(path, "a NUL character is not allowed in text", "string")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            message = "half of a surrogate pair is not allowed in text"
            raise NotPlain(path, message, "string") from None
        return str.__str__(value)

    def count(self, chars: int, path: str) -> None:
        self.chars += chars
        if self.chars > TEXT_MAX_CHARS:
            raise NotPlain(path, f"arguments hold more than {TEXT_MAX_CHARS} characters", "object")


def joined(path: str, name: str | int) -> str:
    """`path` one step further: `options.depth`, `paths[0]`."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{shown_name(name)}" if path else shown_name(name)


def shown_name(name: str) -> str:
    """A name of untrusted length and content, fit for a message."""
    cut = name if len(name) <= 80 else f"{name[:80]}…"
    return cut if cut.isprintable() else json.dumps(cut)


def dereferenced(schema: Any, root: Schema) -> Any:
    """`schema`, or what its `$ref` to `#/$defs/…` names."""
    for _ in range(16):
        ref = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
            break
        schema = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"), {})
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
                    found = _Reader().plain(parse(value), path, path.count(".") + path.count("["))
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
