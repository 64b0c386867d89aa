"""Unified diffs of hostile text, inside a jail: difflib is quadratic, and a jail has an end."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Final

LINES_MAX: Final = 400
LINE_CHARS_MAX: Final = 300
COMPARED_MAX: Final = 4_000_000
"""Pairs of lines that are looked at for one file: above, it is only said how much differs."""


def diffs(files: list[dict[str, Any]]) -> list[str]:
    """A unified diff for each `{"name","before","after"}`, cut to a readable length."""
    return [_diff(file["name"], file["before"] or "", file["after"] or "") for file in files]


def _diff(name: str, before: str, after: str) -> str:
    old, new = _lines(before), _lines(after)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    changed = len(old) - head - tail, len(new) - head - tail
    if changed[0] * changed[1] > COMPARED_MAX:
        return (
            f"--- a/{name}\n+++ b/{name}\n{changed[0]} lines become {changed[1]}, too many to show"
        )
    middle = difflib.SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    )
    codes = [
        (what, i + head, i_end + head, j + head, j_end + head)
        for what, i, i_end, j, j_end in middle.get_opcodes()
    ]
    whole = [
        ("equal", 0, head, 0, head),
        *codes,
        ("equal", len(old) - tail, len(old), len(new) - tail, len(new)),
    ]
    found = [one for one in whole if one[1] != one[2] or one[3] != one[4]]
    shown = [f"--- a/{name}", f"+++ b/{name}"]
    for group in _Known(found).get_grouped_opcodes(3):
        for line in _hunk(group, old, new):
            if len(shown) > LINES_MAX:
                return "\n".join([*shown, "... the diff goes on"])
            shown.append(line)
    return "\n".join(shown)


class _Known(difflib.SequenceMatcher[str]):
    """Two texts of which it is known already what is the same in them."""

    def __init__(self, codes: list[Any]) -> None:
        super().__init__()
        self._known = codes

    def get_opcodes(self) -> list[Any]:
        return self._known


def _hunk(group: Sequence[Any], old: list[str], new: list[str]) -> Iterator[str]:
    """One hunk, with its place counted from the start of the whole file."""
    first, last = group[0], group[-1]
    yield f"@@ -{_place(first[1], last[2])} +{_place(first[3], last[4])} @@"
    for what, i, i_end, j, j_end in group:
        if what == "equal":
            yield from (_cut(f" {line}") for line in old[i:i_end])
        else:
            yield from (_cut(f"-{line}") for line in old[i:i_end])
            yield from (_cut(f"+{line}") for line in new[j:j_end])


def _place(start: int, end: int) -> str:
    """As diff writes it: the first line and how many; with none, the line before."""
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


def _lines(text: str) -> list[str]:
    """Lines without their ends; the last one says so where it has none, as for diff."""
    *whole, rest = text.split("\n")
    return [*whole, f"{rest}\n\\ No newline at end of file"] if rest else whole


def _cut(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]}... ({len(line)} characters)"
