"""A unified diff of known replacements, in linear time.

difflib looks for the changes, and is quadratic (58 KB took 5 s); here they are known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

CONTEXT: Final = 3
DIFF_CHARS_MAX: Final = 32 << 10
LINE_CHARS_MAX: Final = 500


class Change(NamedTuple):
    """`text[start:end]` becomes `new`. Changes are in order and do not overlap."""

    start: int
    end: int
    new: str


class _Block(NamedTuple):
    """Old lines `first` to `last` (without) become `lines`."""

    first: int
    last: int
    lines: list[str]


def unified(name: str, text: str, changes: list[Change]) -> str:
    """The changes as `diff -u` shows them; cut, with a last line that says so, past 32 KiB."""
    lines = _lines(text)
    blocks = [_trimmed(block, lines) for block in _blocks(text, lines, changes)]
    out, size, shift = [f"--- a/{name}\n", f"+++ b/{name}\n"], 0, 0
    for hunk in _hunks(blocks):
        shown, shift = _hunk(hunk, lines, shift)
        for line in shown:
            size += len(line)
            if size > DIFF_CHARS_MAX:
                return "".join([*out, "... the diff goes on\n"])
            out.append(line)
    return "".join(out)


def _lines(text: str) -> list[str]:
    """Lines with their ends; only LF ends one, as for diff and patch."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _blocks(text: str, lines: list[str], changes: list[Change]) -> Iterable[_Block]:
    """The changed lines, changes that share a line together."""
    starts = [0, *accumulate(map(len, lines))]
    waiting: list[Change] = []
    first = last = 0
    for change in changes:
        begins = min(bisect_right(starts, change.start) - 1, len(lines))
        ends = min(bisect_right(starts, change.end), len(lines))
        if waiting and begins >= last:
            yield _Block(first, last, _applied(text, starts[first], starts[last], waiting))
            waiting = []
        if not waiting:
            first = begins
        waiting.append(change)
        last = ends
    if waiting:
        yield _Block(first, last, _applied(text, starts[first], starts[last], waiting))


def _applied(text: str, start: int, end: int, changes: list[Change]) -> list[str]:
    pieces = []
    for change in changes:
        pieces += [text[start : change.start], change.new]
        start = change.end
    return _lines("".join([*pieces, text[start:end]]))


def _trimmed(block: _Block, lines: list[str]) -> _Block:
    """Without lines that stay the same at either end."""
    first, last, new = block
    head = 0
    while first + head < last and head < len(new) and lines[first + head] == new[head]:
        head += 1
    tail = 0
    while (
        first + head < last - tail
        and head < len(new) - tail
        and lines[last - 1 - tail] == new[len(new) - 1 - tail]
    ):
        tail += 1
    return _Block(first + head, last - tail, new[head : len(new) - tail])


def _hunks(blocks: list[_Block]) -> list[list[_Block]]:
    """Blocks whose context would touch, together."""
    hunks: list[list[_Block]] = []
    for block in blocks:
        if hunks and block.first - hunks[-1][-1].last <= 2 * CONTEXT:
            hunks[-1].append(block)
        else:
            hunks.append([block])
    return hunks


def _hunk(blocks: list[_Block], lines: list[str], shift: int) -> tuple[list[str], int]:
    """One hunk's lines, and how far the lines below it have moved."""
    begin = max(0, blocks[0].first - CONTEXT)
    end = min(len(lines), blocks[-1].last + CONTEXT)
    body, at, old_count, new_count = [], begin, 0, 0
    for block in blocks:
        body += [_shown(" ", line) for line in lines[at : block.first]]
        body += [_shown("-", line) for line in lines[block.first : block.last]]
        body += [_shown("+", line) for line in block.lines]
        old_count += block.last - at
        new_count += block.first - at + len(block.lines)
        at = block.last
    body += [_shown(" ", line) for line in lines[at:end]]
    old_count, new_count = old_count + end - at, new_count + end - at
    old, new = _range(begin, old_count), _range(begin + shift, new_count)
    return [f"@@ -{old} +{new} @@\n", *body], shift + new_count - old_count


def _range(start: int, count: int) -> str:
    """A hunk's place as diff writes it: an empty one names the line before it."""
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1 if count else start},{count}"


def _shown(mark: str, line: str) -> str:
    if len(line) > LINE_CHARS_MAX:
        return f"{mark}{line[:LINE_CHARS_MAX]}... ({len(line)} characters)\n"
    return (
        f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
    )
