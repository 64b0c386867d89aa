"""A page of what is retained: cut between characters where it is text, base64 where it is not."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolcell._retained_store import HEADER_BYTES, Entry
from toolcell.bounding import is_inside_character

PAGE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A piece of what is retained; offsets and sizes are bytes of what is retained.

    `text` is the text itself, or base64 of the bytes where `encoding` says so. `offset` is where it
    begins, `next_offset` where the next page does, None at the end.
    """

    text: str
    encoding: Literal["utf-8", "base64"]
    offset: int
    next_offset: int | None
    size_bytes: int
    media_type: str

    def to_json(self) -> dict[str, Any]:
        """Its six fields."""
        return {
            "text": self.text,
            "encoding": self.encoding,
            "offset": self.offset,
            "next_offset": self.next_offset,
            "size_bytes": self.size_bytes,
            "media_type": self.media_type,
        }


def read_page(fd: int, entry: Entry, offset: int, limit: int) -> Page:
    """What an entry's descriptor holds there; the offset is not past the end."""
    is_text = entry.media_type.startswith("text/") or entry.media_type == "application/json"
    before = min(offset, 3) if is_text else 0
    at = offset - before
    data = _pread(fd, before + limit + 3, HEADER_BYTES + at)
    begin, end = before, min(before + limit, len(data))
    if is_text:
        while begin and is_inside_character(data, begin):
            begin -= 1
        last = end
        while end > begin and is_inside_character(data, end):
            end -= 1
        if end == begin:
            end = last
            while is_inside_character(data, end):
                end += 1
    piece = data[begin:end]
    following = at + end
    return Page(
        text=piece.decode("utf-8", "replace") if is_text else base64.b64encode(piece).decode(),
        encoding="utf-8" if is_text else "base64",
        offset=at + begin,
        next_offset=following if following < entry.size_bytes else None,
        size_bytes=entry.size_bytes,
        media_type=entry.media_type,
    )


def _pread(fd: int, count: int, at: int) -> bytes:
    """So many bytes, fewer only at the end of the file."""
    found = bytearray()
    while len(found) < count and (piece := os.pread(fd, count - len(found), at + len(found))):
        found += piece
    return bytes(found)
