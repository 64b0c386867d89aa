"""read_file, list_directory, write_file."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any, Final

from toolcell.builtin._paths import decoded, failed, read_bytes, shown, write_atomic
from toolcell.builtin._settled import open_folder
from toolcell.errors import ToolError
from toolcell.markers import AtLeast, ReadPath, Returned, WritePath

OUTPUT_CHARS_MAX: Final = 1 << 20
ENTRIES_MAX: Final = 10_000


def read_file(
    path: ReadPath,
    offset: Annotated[int, AtLeast(1)] = 1,
    limit: Annotated[int, AtLeast(1)] = 2_000,
) -> Returned:
    """Read a text file, or some of its lines, exactly as it is.

    Args:
        path: the file
        offset: the first line to read, counted from 1
        limit: how many lines to read
    """
    text, encoding = decoded(path, read_bytes(path))
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if offset > max(1, len(lines)):
        raise ToolError(f"{shown(path)} has {len(lines)} lines; there is no line {offset}")
    wanted = lines[offset - 1 : offset - 1 + limit]
    last = offset - 1 + len(wanted)
    found = "\n".join(wanted)
    if wanted and (last < len(lines) or text.endswith("\n")):
        found += "\n"
    cut = len(found) > OUTPUT_CHARS_MAX
    facts = {
        "lines": len(lines),
        "first_line": offset,
        "last_line": last,
        "encoding": encoding,
        "truncated": cut or last < len(lines),
    }
    return Returned(found[:OUTPUT_CHARS_MAX], facts, files_read=[shown(path)])


def list_directory(path: ReadPath = Path("."), depth: Annotated[int, AtLeast(1)] = 1) -> Returned:
    """List what a folder holds: path, type and size of each entry, in order.

    Args:
        path: the folder
        depth: how many levels of folders to list; .git is listed but not entered
    """
    entries: list[dict[str, Any]] = []
    try:
        folder = open_folder(path)
        try:
            complete = _list(folder, os.fspath(path), min(depth, 64), entries)
        finally:
            os.close(folder)
    except OSError as error:
        if path.is_file():
            message = f"{shown(path)} is a file, not a folder"
            raise ToolError(message, hint="Use read_file for files.") from None
        failed(path, error)
    return Returned({"entries": entries}, {"truncated": not complete}, files_read=[])


def _list(folder: int, path: str, depth: int, entries: list[dict[str, Any]]) -> bool:
    """Add the entries below `folder`, whose path is shown; whether all had room."""
    with os.scandir(folder) as found:
        listed = sorted(found, key=lambda entry: entry.name)
    for entry in listed:
        if len(entries) >= ENTRIES_MAX:
            return False
        facts = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        inner = os.path.join(path, entry.name)
        what = _TYPES.get(stat.S_IFMT(facts.st_mode), "other")
        size = facts.st_size if what == "file" else None
        entries.append({"path": shown(inner), "type": what, "size": size})
        if what == "directory" and depth > 1 and entry.name != ".git":
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                below = os.open(entry.name, flags, dir_fd=folder)
            except OSError:
                continue  # listed as an entry; what it holds is not ours to see
            try:
                if not _list(below, inner, depth - 1, entries):
                    return False
            finally:
                os.close(below)
    return True


_TYPES: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def write_file(path: WritePath, content: str) -> Returned:
    """Write a whole file: create it, or replace its content; missing folders are created.

    Args:
        path: the file
        content: the whole new content
    """
    data = content.encode("utf-8")
    created = write_atomic(path, data)
    return Returned({"bytes_written": len(data), "created": created}, files_read=[])
