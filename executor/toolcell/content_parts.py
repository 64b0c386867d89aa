"""Content parts: text, images and other binary that a tool returned, for a model that sees them.

Pure. A handler says so by returning `bytes`, which leave the jail as `{"base64"}`; one part,
`{"type": "image", "mime_type", "data"}`; or a list of parts. An image is believed by its bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["PARTS_MAX", "PART_BYTES_MAX", "Found", "Part", "image_type", "parts_of"]

PART_BYTES_MAX: Final = 5 << 20
"""Of one part, before base64: what the large providers take of an image."""
PARTS_MAX: Final = 20
"""Parts of one result that go to the model; more are retained."""
BINARY: Final = "application/octet-stream"
_MIME_KEYS: Final = ("mime_type", "mimeType")
_PART_KEYS: Final = frozenset({"type", "data", *_MIME_KEYS})

_MAGIC: Final = (
    ("image/png", ((0, b"\x89PNG\r\n\x1a\n"),)),
    ("image/jpeg", ((0, b"\xff\xd8\xff"),)),
    ("image/gif", ((0, b"GIF87a"),)),
    ("image/gif", ((0, b"GIF89a"),)),
    ("image/webp", ((0, b"RIFF"), (8, b"WEBP"))),
)
"""How each begins: PNG 3rd edition 5.2, ITU-T T.81 B.1, GIF89a 17, RFC 9649 2.4."""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of content: text, or bytes of a media type."""

    text: str | None
    data: bytes = b""
    mime_type: str = "text/plain"

    @property
    def words(self) -> str:
        """What stands for it in text: itself, or what it is and how large."""
        return f"[{self.mime_type}, {len(self.data):,} bytes]" if self.text is None else self.text

    def to_json(self) -> dict[str, Any]:
        """As `ToolResult.parts` holds what is no text."""
        return {
            "type": "image" if self.mime_type.startswith("image/") else "binary",
            "mime_type": self.mime_type,
            "data": base64.b64encode(self.data).decode("ascii"),
        }


@dataclass(frozen=True, slots=True)
class Found:
    """A value that is content parts, at least one of them no text."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All parts in words, one below the other."""
        return "\n".join(part.words for part in self.parts)


def image_type(data: bytes) -> str | None:
    """The media type of an image by its first bytes; None where it is none that models take."""
    for mime_type, places in _MAGIC:
        if all(data.startswith(word, at) for at, word in places):
            return mime_type
    return None


def parts_of(value: object, *, text_alone: bool = False) -> Found | None:
    """The content parts that a value is, all of it; None where it is any other value.

    With `text_alone` a list of text parts counts too: whoever wrote it meant parts.
    """
    known: list[Part] = []
    for item in value if isinstance(value, list) else [value]:
        part = _part(item)
        if part is None:
            return None
        known.append(part)
    has_other = any(part.text is None for part in known)
    return Found(tuple(known)) if has_other or (text_alone and known) else None


def _part(item: object) -> Part | None:
    if not isinstance(item, Mapping):
        return None
    if item.keys() == {"base64"}:
        data = _decoded(item)
        return None if data is None else Part(None, data, image_type(data) or BINARY)
    if item.keys() == {"type", "text"} and item["type"] == "text":
        return Part(item["text"]) if isinstance(item["text"], str) else None
    if item.get("type") == "image" and item.keys() <= _PART_KEYS:
        return _image(item)
    return None


def _image(item: Mapping[str, Any]) -> Part | None:
    """An image whose bytes are what its word says; anything else is no image."""
    named = [item[key] for key in _MIME_KEYS if key in item]
    given = item.get("data")
    data = _decoded(given if isinstance(given, Mapping) else {"base64": given})
    if data is None:
        return None
    found = image_type(data)
    return Part(None, data, found) if found is not None and set(named) <= {found} else None


def _decoded(marked: Mapping[str, Any]) -> bytes | None:
    """The bytes of a marked value; None where it is none."""
    text = marked.get("base64")
    if not isinstance(text, str) or marked.keys() != {"base64"}:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
