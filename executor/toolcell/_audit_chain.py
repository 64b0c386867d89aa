"""The chain: each record's hash covers the one before it. Pure.

    hash(n) = SHA-256("toolcell audit record 1\\0" + n as 8 bytes, big-endian + hash(n-1) + body(n))

with 32 zero bytes before the first. Every part but the last has a fixed length, so no two
records have the same bytes to hash. No key: whoever can write the file can write another chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

__all__ = ["GENESIS", "Row", "Verdict", "chained_hash", "column", "judge"]

GENESIS: Final = bytes(32)
_DOMAIN: Final = b"toolcell audit record 1\0"


class Row(NamedTuple):
    """One record as it is stored. `intent` is the number of a terminal's intent."""

    seq: int
    time: str
    record: str
    call_id: str
    intent: int | None
    body: str
    prev: bytes
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a look at the whole chain found.

    `first_bad` is the number of the first record that does not fit, and `problem` says what is
    wrong with it. `dangling` are the calls without a terminal: they run now, or nobody has closed
    them yet; neither is a fault. `waiting` counts terminals that a full disk keeps out of the
    chain. `head` is the last hash that fits, in hexadecimal.
    """

    ok: bool
    records: int = 0
    first_bad: int | None = None
    problem: str | None = None
    dangling: tuple[str, ...] = ()
    waiting: int = 0
    head: str = GENESIS.hex()


def chained_hash(seq: int, prev: bytes, body: str) -> bytes:
    """The hash of a record at its place."""
    return hashlib.sha256(_DOMAIN + seq.to_bytes(8, "big") + prev + body.encode()).digest()


def column(text: object) -> str:
    """A text as a column holds it: what is no Unicode text is escaped."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def judge(rows: Iterable[Row], *, head: str | None = None) -> Verdict:
    """Look at every record in order, up to the first that does not fit.

    `head` is a hash that was noted before: a chain without it has lost its end, or is another.
    """
    prev, count = GENESIS, 0
    open_calls: dict[int, str] = {}
    has_head = head is None or head == GENESIS.hex()
    for row in rows:
        problem = _problem(row, count + 1, prev, open_calls)
        if problem is not None:
            return Verdict(
                ok=False,
                records=count,
                first_bad=count + 1,
                problem=problem,
                dangling=tuple(open_calls.values()),
                head=prev.hex(),
            )
        if row.record == "intent":
            open_calls[row.seq] = row.call_id
        else:
            del open_calls[row.intent or 0]
        prev, count = row.hash, row.seq
        has_head = has_head or prev.hex() == head
    lost = "the chain does not contain the hash that was given: its end is gone, or it is another"
    return Verdict(
        ok=has_head,
        records=count,
        problem=None if has_head else lost,
        dangling=tuple(open_calls.values()),
        head=prev.hex(),
    )


def _problem(row: Row, seq: int, prev: bytes, open_calls: dict[int, str]) -> str | None:
    if row.seq != seq:
        return f"record {seq} is missing"
    if not _has_types(row):
        return "it is damaged"
    if row.prev != prev:
        return "it does not follow the record before it"
    if row.hash != chained_hash(seq, prev, row.body):
        return "its content is not what its hash says"
    body = _body(row.body)
    if body is None:
        return "it is no object in JSON"
    told = (body.get("record"), body.get("time"), column(body.get("call_id")), body.get("intent"))
    if told != (row.record, row.time, row.call_id, row.intent):
        return "its columns are not what its content says"
    if row.record == "intent":
        return None if row.intent is None else "an intent names another one"
    if row.record != "terminal":
        return "it is neither an intent nor a terminal"
    if row.intent not in open_calls:
        return "it ends a call that has no intent, or was ended before"
    return None if open_calls[row.intent] == row.call_id else "it ends a call of another id"


def _has_types(row: Row) -> bool:
    texts = (row.time, row.record, row.call_id, row.body)
    hashes = (row.prev, row.hash)
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(one, bytes) for one in hashes)
        and (row.intent is None or isinstance(row.intent, int))
    )


def _body(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
