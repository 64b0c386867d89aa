"""What a person is shown of a call's changes: every name, and diffs of the text among them."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterator
from typing import Any, Final

import trio

from toolcell._visible import visible
from toolcell.confinement import library_mounts, library_path
from toolcell_sandbox import run_in_jail
from toolcell_sandbox._beneath import open_beneath
from toolcell_sandbox.changeset import Change, ChangeSet, Sort
from toolcell_sandbox.spec import Isolation, JailSpec, Limits, PythonHandler

FILE_BYTES_MAX: Final = 256 << 10
ALL_BYTES_MAX: Final = 2 << 20
NAMES_MAX: Final = 200
DIFF_S: Final = 5.0

_SIGNS: Final[dict[Sort, str]] = {"created": "+", "modified": "~", "deleted": "-"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A change set for a person: `summary` is a line for each name, `diff` is of the text."""

    summary: str
    diff: str


async def shown(
    changes: ChangeSet,
    *,
    layer_fd: int,
    workspace_fd: int,
    isolation: Isolation = "standard",
    waive: tuple[str, ...] = (),
) -> Shown:
    """Both, escaped. Diffs are made in a jail, within 5 s: difflib is quadratic.

    What is no text, too large, or took too long, is named without one.
    """
    files = await trio.to_thread.run_sync(_texts, changes, layer_fd, workspace_fd)
    found: list[str] = await _diffs(files, isolation, waive) if files else []
    diff = "\n".join(visible(text, keep="\n\t") for text in found)
    return Shown(summary=summary(changes), diff=diff)


def summary(changes: ChangeSet) -> str:
    """One line for each changed name, the first 200 of them, and how many there are of each."""
    counts = {sort: sum(1 for _ in changes.of_sort(sort)) for sort in _SIGNS}
    lines = [", ".join(f"{count} {sort}" for sort, count in counts.items() if count)]
    lines += [_line(change) for change in changes.changes[:NAMES_MAX]]
    if len(changes.changes) > NAMES_MAX:
        lines.append(f"... and {len(changes.changes) - NAMES_MAX} more")
    return "\n".join(lines)


def _line(change: Change) -> str:
    name = visible(change.path)
    entry = change.after or change.before
    assert entry is not None
    kind = "" if entry.kind == "file" else f" ({entry.kind})"
    if change.before is not None and change.after is not None:
        if change.before.kind != change.after.kind:
            kind = f" ({change.before.kind} becomes {change.after.kind})"
        if change.before.mode != change.after.mode:
            kind += f" (mode {change.before.mode:04o} becomes {change.after.mode:04o})"
    if entry.kind == "symlink":
        kind = f" -> {visible(entry.target or '')}"
    if change.linked_to is not None:
        kind += f" (the same file as {visible(change.linked_to)})"
    size = f", {entry.size_bytes:,} bytes" if entry.kind == "file" else ""
    return f"{_SIGNS[change.sort]} {name}{kind}{size}"


def _texts(changes: ChangeSet, layer_fd: int, workspace_fd: int) -> list[dict[str, Any]]:
    """What a diff is made of: the text before and after, of files that are text and not too big."""
    found: list[dict[str, Any]] = []
    left = ALL_BYTES_MAX
    for change in changes.changes:
        if len(found) == NAMES_MAX:
            break
        sides = [
            (workspace_fd, change.before),
            (layer_fd, change.after if change.linked_to is None else None),
        ]
        kinds = {entry.kind for _, entry in sides if entry is not None}
        if kinds != {"file"} or not change.content_changed or change.masked:
            continue
        size = sum(entry.size_bytes for _, entry in sides if entry is not None)
        if size > FILE_BYTES_MAX or size > left:
            continue
        texts = [None if entry is None else _text(folder, change.path) for folder, entry in sides]
        if any(
            text is None and entry is not None
            for text, (_, entry) in zip(texts, sides, strict=True)
        ):
            continue
        left -= size
        before, after = texts
        found.append({"name": visible(change.path), "before": before, "after": after})
    return found


def _text(folder: int, path: str) -> str | None:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = open_beneath(folder, path, flags)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        content = b"".join(_chunks(fd))
    finally:
        os.close(fd)
    if b"\0" in content or len(content) > FILE_BYTES_MAX:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _chunks(fd: int) -> Iterator[bytes]:
    left = FILE_BYTES_MAX + 1
    while left > 0 and (chunk := os.read(fd, left)):
        left -= len(chunk)
        yield chunk


async def _diffs(
    files: list[dict[str, Any]], isolation: Isolation, waive: tuple[str, ...]
) -> list[str]:
    handler = PythonHandler(
        module="toolcell._differ",
        qualname="diffs",
        arguments={"files": files},
        sys_path=library_path(),
    )
    spec = JailSpec(
        mounts=library_mounts(),
        limits=Limits(wall_s=DIFF_S, memory_bytes=512 << 20, result_bytes=16 << 20),
        isolation=isolation,
        waive=waive,
    )
    outcome = await run_in_jail(handler, spec)
    if outcome.failure is None and isinstance(outcome.value, list):
        return [str(text) for text in outcome.value]
    names = ", ".join(str(file["name"]) for file in files[:20])
    return [
        f"(no diff could be made of {names}: {outcome.failure.kind if outcome.failure else ''})"
    ]
