"""The result channel's frame, read from a hostile writer: one rule broken is one refusal.

orjson refuses NaN, Infinity, lone surrogates and deep nesting, and keeps linear time; what it
lets by (integers beyond 64 bits, 1e400, duplicate keys) is refused by a scan of the bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

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


class FrameReader:
    """Collects a channel's bytes up to the cap, counting the rest without keeping it."""

    def __init__(self, cap_bytes: int) -> None:
        self._cap_bytes = cap_bytes
        self._data = bytearray()
        self.seen_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take what came."""
        self.seen_bytes += len(chunk)
        room = HEADER_BYTES + self._cap_bytes - len(self._data)
        if room > 0:
            self._data += chunk[:room]

    def message(self) -> dict[str, Any] | BrokenRule | None:
        """The one message; None where nothing was sent."""
        if not self.seen_bytes:
            return None
        if self.seen_bytes < HEADER_BYTES:
            return BrokenRule("the frame ended inside its length")
        length = int.from_bytes(self._data[:HEADER_BYTES], "big")
        if length > self._cap_bytes:
            return BrokenRule(f"a frame of {length} bytes; at most {self._cap_bytes}")
        got = self.seen_bytes - HEADER_BYTES
        if got < length:
            return BrokenRule(f"the frame ended after {got} of {length} bytes")
        if got > length:
            return BrokenRule(f"{got - length} bytes after the frame")
        return parse(bytes(self._data[HEADER_BYTES:]))


def parse(body: bytes) -> dict[str, Any] | BrokenRule:
    """One JSON object under the channel's rules, or the rule that it breaks."""
    scanned = body
    if b"\\" in body:
        scanned = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if body.count(b",") + body.count(b"[") + body.count(b"{") > ITEMS_MAX:
        # A value or key each, two quotes a string: past that nothing need be taken apart.
        bare = scanned
        if scanned.count(b'"') <= 4 * (ITEMS_MAX + 1):
            bare = _STRING.sub(b"", scanned)
        if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > ITEMS_MAX:
            return BrokenRule(f"more than {ITEMS_MAX} values")
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
