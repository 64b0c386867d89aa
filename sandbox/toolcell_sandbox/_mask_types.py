"""What the mask index is told, and what it refuses with."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final, Protocol

_WATCHES: Final = "raise fs.inotify.max_user_watches (sysctl)"


class Judge(Protocol):
    """Says which names are forbidden. Asked from a worker thread, by one thread at a time.

    An answer stays the same as long as the index lives, but for `forbids_content`.
    """

    @property
    def inodes(self) -> frozenset[tuple[int, int]]:
        """(st_dev, st_ino) of forbidden files that may have another name here."""

    def forbids(self, inner: str, name: str) -> bool:
        """Whether a name is forbidden in the folder `inner`, "" for the top."""

    def asks_content(self, inner: str, name: str) -> bool:
        """Whether what a file of that name holds decides."""

    def forbids_content(self, fd: int) -> bool:
        """Whether the regular file that `fd` is open on, for reading, is forbidden."""


class LinkJudge(Judge, Protocol):
    """One that has other names of a forbidden file hidden as well: hard links, made at any time."""

    @property
    def later_inodes(self) -> frozenset[tuple[int, int]]:
        """(st_dev, st_ino) of forbidden files elsewhere that may get a name here later."""


def later_inodes(judge: Judge) -> frozenset[tuple[int, int]] | None:
    """Those of a LinkJudge; None for one that is content with `inodes`."""
    found: frozenset[tuple[int, int]] | None = getattr(judge, "later_inodes", None)
    return found


class NotIndexed(Exception):
    """The forbidden names in a folder cannot be told, so no jail may be given it.

    `cause` ends a sentence, `fix` is what helps, `errno` is the kernel's word or None.
    """

    def __init__(self, cause: str, fix: str, number: int | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.fix = fix
        self.errno = number


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one index may take."""

    entries: int
    """Names looked at in one go."""
    masks: int
    watches: int


def shown(path: str) -> str:
    """A path in quotes, whatever bytes its names are made of."""
    return repr(os.fsencode(path).decode("utf-8", "replace"))


def too_many_watches(used: int) -> NotIndexed:
    """Our own bound for one folder is reached."""
    return NotIndexed(
        f"it has more than {used:,} folders and files to watch, "
        "half of what fs.inotify.max_user_watches allows",
        _WATCHES,
        errno.ENOSPC,
    )


def failed(error: OSError, path: str) -> NotIndexed:
    """What the kernel said about a path below the top."""
    where = shown(path or ".")
    what = error.strerror or str(error)
    if error.filename == "inotify_add_watch" and error.errno == errno.ENOSPC:
        return NotIndexed(f"{where} cannot be watched (no watches left)", _WATCHES, error.errno)
    if error.errno == errno.ENAMETOOLONG:
        fix = "remove or flatten it"
        return NotIndexed("a folder in it is nested too deep (path too long)", fix, error.errno)
    return NotIndexed(f"{where} cannot be looked at ({what})", "look at it by hand", error.errno)


def unreadable(path: str, *, is_own: bool) -> NotIndexed:
    """A folder that we cannot list, and a jail of the same user could come to read."""
    return NotIndexed(
        f"the folder {shown(path or '.')} cannot be listed, "
        + ("and a jail could make it readable" if is_own else "and a jail could enter it"),
        f"chmod u+rx {shown(path or '.')}" if is_own else f"chmod o+r {shown(path or '.')}",
        errno.EACCES,
    )


def unsettled() -> NotIndexed:
    """The tree changes faster than it can be looked at."""
    return NotIndexed(
        "its folders are moved faster than they can be looked at",
        "try again when what is writing there has finished",
        errno.EAGAIN,
    )
