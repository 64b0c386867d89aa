"""A call's arguments as somebody typed them: JSON, `-`, `@FILE`, or `key=value` words."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from toolcell._exits import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolcell.tools import Tool

STDIN: Final = "@-"
"""What `-` is rewritten to before options are parsed: there a lone `-` would be an option."""

READ_BYTES_MAX: Final = 64 << 20
_HOW: Final = "write one JSON object, `-` (standard input), `@FILE`, or key=value words"


@dataclass(frozen=True, slots=True)
class Given:
    """Arguments as given: a whole object, or the text of each `key=value`."""

    values: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def arguments(self, tool: Tool | None) -> dict[str, Any]:
        """What the call gets. A text is JSON when it parses as JSON, else text.

        Where the tool wants text and the JSON is none (`content=42`), the text stays as typed.
        """
        properties = {} if tool is None else tool.input_schema.get("properties", {})
        return {
            **self.values,
            **{name: _value(text, properties.get(name)) for name, text in self.texts.items()},
        }


def given(words: Sequence[str]) -> Given:
    """Read the words after a tool's name; what they mean to the tool is judged elsewhere.

    Raises:
        Refused: they are none of the forms, or what they name cannot be read as JSON.
    """
    if not words:
        return Given()
    first = words[0]
    if len(words) == 1 and first == STDIN:
        return Given(_object(read_text(first), "standard input"))
    if len(words) == 1 and first.startswith("@"):
        return Given(_object(read_text(first), first))
    if len(words) == 1 and first[:1] in ("{", "[", '"'):
        return Given(_object(first, "the arguments"))
    texts: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or name[0] in '{["@':
            raise Refused(f"{word[:200]!r} is no argument of a tool: {_HOW}")
        if name in texts:
            raise Refused(f"the argument {name[:200]!r} is given twice")
        texts[name] = text
    return Given(texts=texts)


def read_text(name: str) -> str:
    """All of a file given as `@FILE`, or of standard input: UTF-8 text, bounded.

    Raises:
        Refused: it cannot be read, is too large, or is not text.
    """
    shown = "standard input" if name == STDIN else f"{name[1:]!r}"
    try:
        if name == STDIN:
            content = _read(0)
        else:
            fd = os.open(name[1:], os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
            try:
                content = _read(fd)
            finally:
                os.close(fd)
    except OSError as error:
        raise Refused(f"cannot read {shown}: {error.strerror}") from None
    except ValueError as error:
        raise Refused(f"cannot read {shown}: {error}") from None
    if len(content) > READ_BYTES_MAX:
        raise Refused(f"{shown} is larger than {READ_BYTES_MAX} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{shown} is not UTF-8 text (byte {error.start})") from None


def _read(fd: int) -> bytes:
    parts, size = [], 0
    while size <= READ_BYTES_MAX and (part := os.read(fd, 1 << 20)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _object(text: str, source: str) -> dict[str, Any]:
    value = _json(text)
    if isinstance(value, _NotJson):
        raise Refused(f"{source[:200]}: {value.why}")
    if not isinstance(value, dict):
        raise Refused(f"{source[:200]}: the arguments of a tool are one JSON object")
    return value


@dataclass(frozen=True, slots=True)
class _NotJson:
    why: str


def _json(text: str) -> Any:
    """Strict JSON (no duplicate keys, no NaN, 64-bit integers), or why it is none."""
    from toolcell._arguments import NotPlain, parse

    try:
        return parse(text)
    except NotPlain as error:
        return _NotJson(f"{error.path}: {error}" if error.path else str(error))


def _value(text: str, schema: Mapping[str, Any] | None) -> Any:
    value = _json(text)
    wants_text = isinstance(schema, dict) and schema.get("type") == "string"
    if isinstance(value, _NotJson) or (wants_text and not isinstance(value, str)):
        return text
    return value
