"""What a model is shown of a long text: its head and its tail, and exactly what lies between.

Pure. For `content` alone, once, at settlement; what is kept of a stream is decided elsewhere
(`head_bytes`, `tail_bytes`), and `output` is never cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolcell.results import Truncation

__all__ = [
    "BYTES",
    "BYTES_MIN",
    "LINES",
    "Bounded",
    "Bounds",
    "bounded",
    "count_lines",
    "summarised",
]

LINES: Final = 2_000
BYTES: Final = 50 << 10
BYTES_MIN: Final = 512
"""Room for the line that says what was left out, and for some text besides."""
_NUMBERS_BYTES: Final = 160
"""What that line takes at most without the words about the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of a text is shown: `lines` and `bytes` (of UTF-8), whichever is reached first.

    Raises:
        ValueError: no line at all, or fewer bytes than the marker line takes.
    """

    lines: int = LINES
    bytes: int = BYTES

    def __post_init__(self) -> None:
        for name, least in (("lines", 1), ("bytes", BYTES_MIN)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"{name} must be a whole number of at least {least}, not {value!r:.50}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """`text` within its bounds; `truncation` is None where nothing was left out."""

    text: str
    truncation: Truncation | None = None


def count_lines(data: bytes) -> int:
    """Lines that end with a newline, and a last one that does not."""
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def is_within(text: str, bounds: Bounds) -> bool:
    """Whether a text is shown whole."""
    if len(text) > bounds.bytes:
        return False
    data = _encoded(text)
    return len(data) <= bounds.bytes and count_lines(data) <= bounds.lines


def bounded(text: str, bounds: Bounds | None = None, *, rest: str = "") -> Bounded:
    """The text, or its head and tail with one line between them that says what is missing.

    The result is within the bounds, that line included. `rest` are the words in it about where
    the rest is; the byte where that begins is said there too. Whole lines are kept where that
    wastes less than half of the room, else a line is cut between two characters. A line that was
    cut counts as omitted, and those of its bytes that are shown as kept: so `total == kept +
    omitted` in both. Lines end with "\\n". Takes time linear in the text; a lone surrogate is
    written with backslashes.

    Raises:
        ValueError: `rest` is so long that no text would be left.
    """
    bounds = bounds or Bounds()
    data = _encoded(text)
    total_lines = count_lines(data)
    if len(data) <= bounds.bytes and total_lines <= bounds.lines:
        return Bounded(text=data.decode())
    room = bounds.bytes - _NUMBERS_BYTES - len(_encoded(rest))
    if room < 0:
        raise ValueError(f"{bounds.bytes} bytes do not hold the words about the rest")
    # One line is the marker's.
    lines = bounds.lines - 1
    head = _head(data, lines - lines // 2, room - room // 2)
    begin = _tail(data, lines // 2, room // 2)
    tail = data[begin:]
    is_cut = begin > 0 and data[begin - 1 : begin] != b"\n" and tail != b""
    kept_lines = head.count(b"\n") + count_lines(tail) - is_cut
    kept = len(head) + len(tail)
    found = Truncation(
        total_bytes=len(data),
        kept_bytes=kept,
        omitted_bytes=len(data) - kept,
        total_lines=total_lines,
        kept_lines=kept_lines,
        omitted_lines=total_lines - kept_lines,
    )
    shown = head.decode()
    if shown and not shown.endswith("\n"):
        shown += "\n"
    shown += marker(found, at_byte=len(head), rest=rest)
    return Bounded(text=f"{shown}\n{tail.decode()}" if tail else shown, truncation=found)


def summarised(size_bytes: int) -> Truncation:
    """What is left out where a summary stands for a line of JSON: all of it."""
    return Truncation(
        total_bytes=size_bytes,
        kept_bytes=0,
        omitted_bytes=size_bytes,
        total_lines=1,
        kept_lines=0,
        omitted_lines=1,
    )


def marker(found: Truncation, *, at_byte: int, rest: str = "") -> str:
    """The one line in place of what was left out."""
    lines = "1 line" if found.omitted_lines == 1 else f"{found.omitted_lines:,} lines"
    words = f"; {rest}" if rest else ""
    return (
        f"[toolcell: left out here, from byte {at_byte}: {found.omitted_bytes:,} of "
        f"{found.total_bytes:,} bytes, {lines}{words}]"
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _head(data: bytes, lines: int, room: int) -> bytes:
    """What is kept of the start: at most so many lines and bytes, never half a character."""
    end = 0
    for _ in range(lines):
        following = data.find(b"\n", end)
        if following < 0 or following >= room:
            break
        end = following + 1
    else:
        return data[:end]
    if end >= room // 2:
        return data[:end]
    while room and is_inside_character(data, room):
        room -= 1
    return data[:room]


def _tail(data: bytes, lines: int, room: int) -> int:
    """Where what is kept of the end begins, likewise."""
    begin = last = len(data)
    if data.endswith(b"\n"):
        last -= 1
    least = len(data) - room
    for _ in range(lines):
        newline = data.rfind(b"\n", max(0, least - 1), last)
        if newline < 0:
            break
        begin, last = newline + 1, newline
    else:
        return begin
    if len(data) - begin >= room // 2:
        return begin
    while is_inside_character(data, least):
        least += 1
    return least


def is_inside_character(data: bytes, at: int) -> bool:
    """Whether the byte there goes on with a character of UTF-8 (RFC 3629)."""
    return at < len(data) and data[at] & 0xC0 == 0x80
