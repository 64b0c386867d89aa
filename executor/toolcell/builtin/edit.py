"""edit_file: exact and unique, or refused."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from toolcell.builtin._diff import Change, unified
from toolcell.builtin._paths import BOM, decoded, read_bytes, shown, write_atomic
from toolcell.errors import ToolError
from toolcell.markers import Returned, WritePath

DIFFED_MAX: Final = 2_000
"""More replacements than this are counted, not shown."""


def edit_file(path: WritePath, old: str, new: str, replace_all: bool = False) -> Returned:
    """Replace one exact piece of text in a file; it must occur exactly once.

    Args:
        path: the file
        old: the text to replace, exactly as it is in the file, with enough around it to be unique
        new: the text to put there
        replace_all: replace every occurrence instead
    """
    if not old:
        hint = "Use write_file to create a file or to replace all of it."
        raise ToolError("old is empty: there is nothing to look for", hint=hint)
    if old == new:
        raise ToolError("old and new are the same: there is nothing to change")
    content = read_bytes(path)
    text, encoding = decoded(path, content)
    if encoding == "utf-16":
        raise ToolError(f"{shown(path)} is UTF-16 text", hint="Edit it with python.")
    old, new = _with_the_files_endings(text, old, new)
    found = list(islice(_overlapping(text, old), 1_000))
    if not found:
        raise ToolError(f"old was not found in {shown(path)}", hint=_hint(text, old))
    if len(found) > 1 and not replace_all:
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in found[:10])
        more = " and more" if len(found) > 10 else ""
        many = "at least 1,000" if len(found) == 1_000 else str(len(found))
        raise ToolError(
            f"old occurs {many} times in {shown(path)}, at lines {lines}{more}",
            hint="Give more of the text around it, or set replace_all.",
        )
    count = text.count(old)
    changed = text.replace(old, new)
    changes = [
        Change(at, at + len(old), new) for at in islice(_separate(text, old), DIFFED_MAX + 1)
    ]
    if len(changes) > DIFFED_MAX:
        diff = f"{count} replacements, too many to show"
    else:
        diff = unified(shown(path), text, changes)
    mark = BOM if encoding == "utf-8-sig" else b""
    write_atomic(path, mark + changed.encode("utf-8"))
    return Returned({"replacements": count, "diff": diff}, files_read=[shown(path)])


def _with_the_files_endings(text: str, old: str, new: str) -> tuple[str, str]:
    """Both pieces with CRLF where the whole file has it: models send LF."""
    crlf = text.count("\r\n")
    if crlf and crlf == text.count("\n"):
        return _crlf(old), _crlf(new)
    return old, new


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _overlapping(text: str, old: str) -> Any:
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + 1)


def _separate(text: str, old: str) -> Any:
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + len(old))


def _hint(text: str, old: str) -> str:
    """What may be wrong with a piece that was not found."""
    if old.strip() and old.strip() in text:
        line = text.count("\n", 0, text.find(old.strip())) + 1
        return f"Without the white space around it, it is in line {line}."
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    at = text.find(first) if first else -1
    if at >= 0:
        line = text.count("\n", 0, at) + 1
        return f"Its first line is in line {line}; what follows there is different. Read it again."
    return "Read the file again: old must be there exactly, white space included."
