"""Unified diffs of hostile text, inside a jail: difflib is quadratic, and a jail has an end."""

from __future__ import annotations

import difflib
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
    # What is the same at either end is left out, but for the context of the first and last hunk.
    first = max(0, head - 3)
    last = max(0, tail - 3)
    lines = difflib.unified_diff(
        old[first : len(old) - last], new[first : len(new) - last], "", "", n=3, lineterm=""
    )
    shown = [f"--- a/{name}", f"+++ b/{name}"]
    for number, line in enumerate(lines):
        if number < 2:
            continue  # Its own head, without names.
        if len(shown) > LINES_MAX:
            shown.append("... the diff goes on")
            break
        shown.append(_moved(line, first) if line.startswith("@@") else _cut(line))
    return "\n".join(shown)


def _lines(text: str) -> list[str]:
    """Lines without their ends; the last one says so where it has none, as for diff."""
    *whole, rest = text.split("\n")
    return [*whole, f"{rest}\n\\ No newline at end of file"] if rest else whole


def _cut(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]}... ({len(line)} characters)"


def _moved(hunk: str, by: int) -> str:
    """A hunk's head with its line numbers counted from the whole file's start."""
    words = hunk.split(" ")
    for place in (1, 2):
        sign, numbers = words[place][0], words[place][1:].split(",")
        numbers[0] = str(int(numbers[0]) + by)
        words[place] = sign + ",".join(numbers)
    return " ".join(words)
