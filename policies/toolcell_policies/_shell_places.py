"""Where a command's paths lead, by their words alone, and what must never be removed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ._shell_model import Operand, Word
from ._shell_table import Table

# The folders that a command may run in; None: any.
Folders = tuple[str | None, ...]
START: Final[Folders] = (".",)
# More than this, and it is any folder.
_FOLDERS_MAX: Final = 8

_NOTHING: Final = re.compile(r"/dev/(?:null|stdout|stderr|stdin|tty|fd/[0-9]+)")
_SOCKET: Final = re.compile(r"/dev/(?:tcp|udp)/")
# A name that every file of a folder has, the hidden ones perhaps aside.
_ALL_NAMES: Final = re.compile(r"\.?[*?]*\*[*?]*|\.?\[[^\]]*\]\*|\.\?\?*")


def is_nothing(path: str) -> bool:
    """Whether writing there keeps nothing: `/dev/null`, a descriptor of the command's own."""
    return _NOTHING.fullmatch(path) is not None


def is_socket(path: str) -> bool:
    """Whether bash opens a connection instead of a file (bash(1), REDIRECTION)."""
    return _SOCKET.match(path) is not None


def united(one: Folders, other: Folders) -> Folders:
    """Return every folder of both."""
    both = tuple(dict.fromkeys(one + other))
    return (None,) if None in both or len(both) > _FOLDERS_MAX else both


def joined(folder: str | None, path: str) -> str | None:
    """Return a path as seen from the start folder, `..` as written."""
    if path.startswith("/"):
        return path
    if folder is None:
        return None
    return path if folder == "." else f"{folder.rstrip('/')}/{path}"


def normal(path: str) -> str:
    """Return a path with `..` taken literally, as bash's `cd` does."""
    kept: list[str] = []
    absolute = path.startswith("/")
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif name != ".." or not absolute:
            kept.append(name)
    return ("/" if absolute else "") + "/".join(kept) or "."


def operands_of(words: Sequence[Word], folders: Folders) -> tuple[Operand, ...]:
    """Return the paths that words name, from each folder the command may run in."""
    found: dict[Operand, None] = {}
    for word in words:
        if word.text is None:
            found[Operand(path=None, glob=word.glob)] = None
            continue
        if is_nothing(word.text):
            continue
        for folder in folders:
            path = joined(folder, word.text)
            found[Operand(path=path, glob=word.glob)] = None
    return tuple(found)


def is_disk(word: Word, table: Table) -> bool:
    """Whether a word names a disk, a part of one, or the memory."""
    return word.text is not None and word.text.startswith(table.disks)


def is_critical(word: Word, folders: Folders, home: str, table: Table) -> bool:
    """Whether removing this with all below it is what no work needs.

    The root, a folder of the system, a home or what is above one, all files of
    these, and what is above the start folder.
    """
    if word.text is None:
        return False
    for folder in folders:
        path = joined("." if folder is None else folder, word.text)
        if path is not None and _holds_too_much(normal(path), word.glob, home, table):
            return True
    return False


def _holds_too_much(path: str, is_glob: bool, home: str, table: Table) -> bool:
    names = [name for name in path.split("/") if name not in ("", ".")]
    absolute = path.startswith("/")
    if is_glob and names and _ALL_NAMES.fullmatch(names[-1]):
        if not absolute and len(names) == 1:
            return names[0].startswith("..")  # all of the start folder is the work's own
        names = names[:-1]
    if not absolute:
        return bool(names) and all(name == ".." for name in names)
    if not names or (is_glob and len(names) == 1 and re.search(r"[*?\[]", names[0])):
        return True
    homes = [name for name in home.split("/") if name]
    if names == homes[: len(names)] or "/".join(names) in table.system_folders:
        return True
    if is_glob and len(names) == len(homes) and names[:-1] == homes[:-1]:
        return re.search(r"[*?\[]", names[-1]) is not None
    return len(names) == 2 and names[0] == "home"
