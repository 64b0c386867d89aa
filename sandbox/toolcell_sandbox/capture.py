"""stdout and stderr of a jail: both ends kept up to a cap, every byte counted.

    seen = head + lost + tail

Reading goes on past the cap, so that a tool never blocks on a full pipe; the memory held is
bounded by twice the caps whatever is written.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What was kept of one stream. `seen_bytes == kept_bytes + lost_bytes`, to the byte.

    `closed` is False when something still held the stream at the end: then `lost_bytes` is a
    floor, since more may have been written.
    """

    head: bytes
    tail: bytes
    seen_bytes: int
    lost_lines: int
    closed: bool

    @property
    def kept(self) -> bytes:
        """Head and tail, one after the other."""
        return self.head + self.tail

    @property
    def head_bytes(self) -> int:
        """Bytes kept from the start."""
        return len(self.head)

    @property
    def tail_bytes(self) -> int:
        """Bytes kept from the end."""
        return len(self.tail)

    @property
    def kept_bytes(self) -> int:
        """Bytes kept in all."""
        return len(self.head) + len(self.tail)

    @property
    def lost_bytes(self) -> int:
        """Bytes that were seen and dropped."""
        return self.seen_bytes - self.kept_bytes

    @property
    def is_utf8(self) -> bool:
        """Whether the kept bytes are UTF-8, but for a character that the cut itself split."""
        head, tail = self._whole_characters()
        try:
            for part in (head + tail,) if self.lost_bytes == 0 else (head, tail):
                part.decode("utf-8")
        except UnicodeDecodeError:
            return False
        return True

    def text(self) -> str:
        """The kept bytes for a model: UTF-8 with replacement, one marker line where the cut is."""
        if self.lost_bytes == 0:
            shown = self.kept.decode("utf-8", "replace")
            return shown if self.closed else shown + _NOT_CLOSED
        head, tail = self._whole_characters()
        missing = self.seen_bytes - len(head) - len(tail)
        least = "" if self.closed else "at least "
        before = "" if not head or head.endswith(b"\n") else "\n"
        marker = f"{before}[... {least}{missing} bytes, {self.lost_lines} lines left out ...]\n"
        return head.decode("utf-8", "replace") + marker + tail.decode("utf-8", "replace")

    def _whole_characters(self) -> tuple[bytes, bytes]:
        """Head and tail without the parts of a character on either side of the cut."""
        if self.lost_bytes == 0:
            return self.head, self.tail
        return _without_split_end(self.head), _without_split_start(self.tail)


_NOT_CLOSED = "\n[... the stream was still open; more may have been written ...]\n"


def _without_split_end(head: bytes) -> bytes:
    # What could still become a character is not taken; what never could is, and is replaced.
    end = head[-3:]
    _, whole = codecs.utf_8_decode(end, "replace", False)
    return head[: len(head) - len(end) + whole]


def _without_split_start(tail: bytes) -> bytes:
    for skip in range(min(4, len(tail))):
        if tail[skip] & 0b1100_0000 != 0b1000_0000:
            return tail[skip:]
    return tail if len(tail) > 3 else b""


def _newlines(chunk: bytes | memoryview) -> int:
    """Counted where it lies: a flood is not copied for it."""
    if isinstance(chunk, memoryview):
        whole = chunk.obj
        if isinstance(whole, bytearray) and chunk.contiguous:
            # To look for the first is several times as fast as to count: data has often none.
            first = whole.find(b"\n", 0, len(chunk))
            return 0 if first < 0 else whole.count(b"\n", first, len(chunk))
        return bytes(chunk).count(b"\n")
    return chunk.count(b"\n")


class Capture:
    """Takes a stream chunk by chunk and keeps its two ends."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        # Never longer than the cap plus one chunk; only its last `tail_bytes` count.
        self._tail = bytearray()
        self._newlines = 0
        self.seen_bytes = 0
        self.closed = False

    def feed(self, chunk: bytes | memoryview) -> None:
        """Count all of `chunk`, keep what belongs to an end; a view starts with its buffer."""
        self.seen_bytes += len(chunk)
        self._newlines += _newlines(chunk)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk or not self._tail_bytes:
            return
        if len(chunk) >= self._tail_bytes:
            self._tail[:] = chunk[-self._tail_bytes :]
            return
        self._tail += chunk
        if len(self._tail) > 2 * self._tail_bytes:
            del self._tail[: -self._tail_bytes]

    def captured(self) -> Captured:
        """What is kept now."""
        head = bytes(self._head)
        tail = bytes(self._tail[-self._tail_bytes :]) if self._tail_bytes else b""
        kept_lines = head.count(b"\n") + tail.count(b"\n")
        return Captured(
            head=head,
            tail=tail,
            seen_bytes=self.seen_bytes,
            lost_lines=self._newlines - kept_lines,
            closed=self.closed,
        )
