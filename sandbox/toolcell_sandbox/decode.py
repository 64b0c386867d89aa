"""The result channel's frame, read from a hostile writer: one rule broken is one refusal.

orjson refuses NaN, Infinity, lone surrogates and deep nesting, and keeps linear time; what it
lets by (integers beyond 64 bits, 1e400, duplicate keys) is refused by a scan of the bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from ._spool import FLUSH_BYTES, SPOOL_BYTES, Spool, Spooled, Unspooled

HEADER_BYTES = 8
DEPTH_MAX = 128
ITEMS_MAX = 500_000
"""Values in one result: each costs the supervisor some 60 bytes, however few it was sent as."""

# Strings, to pass over them and to count keys; and numbers that could be out of range. Made for
# bytes whose escaped quotes are gone: a loop over escapes would take seconds for hostile text.
# So would a number tried again from each of its digits: the look behind lets it begin only once.
_TOKEN = re.compile(
    rb'"[^"]*+"(\s*+:)?'
    rb"|([-\d](?<![-+.\deE].)(?:\d*+(?:\.\d++)?[eE][+-]?\d++|\d{18,}+(?:\.\d++)?))"
)
_STRING = re.compile(rb'"[^"]*"')


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """The rule of the channel that was broken, in words."""

    rule: str
    remedy: str | None = None
    """What would help, where something does."""


@dataclass(frozen=True, slots=True)
class TooManyValues(BrokenRule):
    """More values than the supervisor takes apart itself; a process that may be lost could."""


class FrameReader:
    """Collects a channel's bytes up to the cap, counting the rest without keeping it.

    With a spool, a frame of more than 8 MiB goes there, a mebibyte at a time: whoever feeds calls
    `flush` when `is_full`.
    """

    def __init__(self, cap_bytes: int, spool: Spool | None = None) -> None:
        self._cap_bytes = cap_bytes
        self._spool = spool
        self._header = b""
        self._data = bytearray()
        self._kept_bytes = 0
        self.seen_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take what came."""
        self.seen_bytes += len(chunk)
        lacking = HEADER_BYTES - len(self._header)
        if lacking:
            self._header += chunk[:lacking]
            chunk = chunk[lacking:]
        room = self._cap_bytes - self._kept_bytes
        if room > 0:
            kept = chunk[:room]
            self._data += kept
            self._kept_bytes += len(kept)

    @property
    def is_whole(self) -> bool:
        """Whether all of a frame has come, as far as its length tells."""
        if len(self._header) < HEADER_BYTES:
            return False
        return self.seen_bytes - HEADER_BYTES >= int.from_bytes(self._header, "big")

    @property
    def is_full(self) -> bool:
        """Whether it holds what should go to the spool before more comes."""
        spools = self._spool is not None and self._kept_bytes > SPOOL_BYTES
        return spools and len(self._data) >= FLUSH_BYTES

    def flush(self) -> None:
        """Move what it holds to the spool. Blocks: call it in a thread."""
        if self._spool is not None:
            self._spool.write(self._data)
            self._data = bytearray()

    def close(self) -> None:
        """Drop what was spooled and not handed on."""
        if self._spool is not None:
            self._spool.close()

    def message(self) -> dict[str, Any] | BrokenRule | Spooled | Unspooled | None:
        """The one message; None where nothing was sent. What is spooled was not looked at."""
        if not self.seen_bytes:
            return None
        if self.seen_bytes < HEADER_BYTES:
            return BrokenRule("the frame ended inside its length")
        length = int.from_bytes(self._header, "big")
        if length > self._cap_bytes:
            return BrokenRule(
                f"a frame of {length} bytes; at most {self._cap_bytes}",
                "return less, or raise result_bytes in the call's limits",
            )
        got = self.seen_bytes - HEADER_BYTES
        if got < length:
            return BrokenRule(f"the frame ended after {got} of {length} bytes")
        if got > length:
            return BrokenRule(f"{got - length} bytes after the frame")
        if self._spool is not None and length > SPOOL_BYTES:
            return self._spooled(self._spool)
        found = parse(bytes(self._data))
        if isinstance(found, TooManyValues) and self._spool is not None:
            return self._spooled(self._spool)
        return found

    def _spooled(self, spool: Spool) -> Spooled | Unspooled:
        self.flush()
        return spool.take()


def parse(body: bytes, *, items_max: int | None = None) -> dict[str, Any] | BrokenRule:
    """One JSON object under the channel's rules, or the rule that it breaks.

    `items_max` is `ITEMS_MAX` unless given; 0 is no limit, for a process that has others.
    """
    items_max = ITEMS_MAX if items_max is None else items_max
    scanned = body
    if b"\\" in body:
        scanned = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if items_max and body.count(b",") + body.count(b"[") + body.count(b"{") > items_max:
        # A value or key each, two quotes a string: past that nothing need be taken apart.
        bare = scanned
        if scanned.count(b'"') <= 4 * (items_max + 1):
            bare = _STRING.sub(b"", scanned)
        if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > items_max:
            return TooManyValues(f"more than {items_max} values")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return BrokenRule(f"not JSON: {error}")
    if not isinstance(value, dict):
        return BrokenRule("a result must be a JSON object")
    return _broken_by_text(scanned, value) or value


def _broken_by_text(scanned: bytes, value: Any) -> BrokenRule | None:
    keys_written = 0
    for match in _TOKEN.finditer(scanned):
        if match[1] is not None:
            keys_written += 1
        elif match[2] is not None and (rule := _broken_number(match[2])) is not None:
            return BrokenRule(rule)
    keys_kept, depth = _count_keys(value)
    if depth > DEPTH_MAX:
        return BrokenRule(f"nested deeper than {DEPTH_MAX}")
    if keys_kept != keys_written:
        return BrokenRule("an object names the same key twice")
    return None


def _broken_number(text: bytes) -> str | None:
    if not re.search(rb"[.eE]", text):
        digits = text.lstrip(b"-").lstrip(b"0")
        if len(digits) > 19 or not -(1 << 63) <= int(text) < 1 << 63:
            return "an integer beyond 64 bits"
        return None
    if len(text) > 400:
        return "a number of more than 400 characters"
    return "a number that is not finite" if float(text) in (float("inf"), -float("inf")) else None


def _count_keys(value: Any) -> tuple[int, int]:
    """Keys in all objects below `value`, and how deep they go; without recursion."""
    keys, depth, level = 0, 0, [value]
    while level and depth <= DEPTH_MAX:
        depth += 1
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                keys += len(item)
                below += [x for x in item.values() if isinstance(x, dict | list)]
            else:
                below += [x for x in item if isinstance(x, dict | list)]
        level = below
    return keys, depth
