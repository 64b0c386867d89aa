"""Untrusted arguments as plain JSON values, read strictly."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

INT_MAX: Final = 1 << 63
DEPTH_MAX: Final = 64
TEXT_MAX_CHARS: Final = 16 << 20
VALUES_MAX: Final = 200_000
"""Values in one call: checking them holds up every other call of the process."""


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
    return Reader().plain(arguments, "", 0)


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


class Reader:
    """Copies, checks, and counts the characters so that the whole stays bounded."""

    def __init__(self) -> None:
        self.chars = 0
        self.values = 0

    def plain(self, value: Any, path: str, depth: int) -> Any:
        self.values += 1
        if self.values > VALUES_MAX:
            raise NotPlain(path, f"more than {VALUES_MAX} values in one call", kind(value))
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
