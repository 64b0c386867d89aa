"""A few lines in place of a large structured value: its shape, and its first entries whole.

Pure, and light: also runs in the jail that looks at what is too large for the supervisor.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

KEYS_MAX: Final = 40
KEY_CHARS_MAX: Final = 120
ENTRIES_MAX: Final = 10
SHARE: Final = 4
"""One part in so many of the bounds is for the entries; keys have another."""


def summary(value: Any, *, size_bytes: int, room_bytes: int, rest: str = "") -> str:
    """What a value is, its keys, and as many of its first entries as fit, none of them cut.

    `size_bytes` is that of its compact JSON; `rest` are words about where that is.
    """
    words = f"; {rest}" if rest else ""
    head = (
        f"[toolcell: the output is {shape(value)}, {size_bytes:,} bytes of JSON, "
        f"too large to show whole{words}]"
    )
    lines = [head]
    if isinstance(value, Mapping):
        lines += _keys(value, room_bytes // SHARE)
    if isinstance(value, Mapping | list):
        shown = list(_entries(value, room_bytes // SHARE))
        if shown:
            count = "entry" if len(shown) == 1 else f"{len(shown)} entries"
            lines += [f"its first {count}, whole:", *shown]
    return "\n".join(lines)


def shape(value: Any) -> str:
    """The type of a JSON value, and how much there is of it."""
    if isinstance(value, Mapping):
        return f"an object of {_many(len(value), 'key')}"
    if isinstance(value, list):
        return f"an array of {_many(len(value), 'item')}"
    if isinstance(value, str):
        return f"text of {_many(len(value), 'character')}"
    return "null" if value is None else f"a {'boolean' if isinstance(value, bool) else 'number'}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _keys(value: Mapping[str, Any], room: int) -> list[str]:
    """Each key with the shape of what it holds, as many as there is room for."""
    lines: list[str] = []
    for key, item in itertools.islice(value.items(), KEYS_MAX):
        name = _json(key) if len(key) <= KEY_CHARS_MAX else f"(a key of {len(key):,} characters)"
        line = f"- {name}: {shape(item)}"
        room -= len(line.encode()) + 1
        if room < 0:
            break
        lines.append(line)
    more = len(value) - len(lines)
    return [*lines, f"- and {_many(more, 'more key')}"] if more else lines


def _entries(value: Mapping[str, Any] | list[Any], room: int) -> Iterator[str]:
    """The first entries as JSON, up to the first that does not fit."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in itertools.islice(items, ENTRIES_MAX):
        if not _may_fit(item, room):
            return
        text = f"{_json(key)}: {_json(item)}" if isinstance(key, str) else _json(item)
        room -= len(text.encode()) + 1
        if room < 0:
            return
        yield text


def _may_fit(value: Any, room: int) -> bool:
    """Whether the JSON of a value can be that short, without making it; linear in `room`."""
    open_values = [value]
    while open_values:
        item = open_values.pop()
        if isinstance(item, str | Mapping | list):
            room -= len(item)
            if room < 0:
                return False
            if isinstance(item, Mapping):
                open_values += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                open_values += item
    return True


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
