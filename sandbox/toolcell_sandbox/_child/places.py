"""Which files and folders lie at some paths: looked at one by one only if something was renamed.

A name in a folder cannot come to mean another file without a new time stamp of the folder
(inode(7), st_mtime): so as long as no parent has one, what was seen is what is there.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    # st_dev, st_ino, st_mtime_ns, st_ctime_ns
    Stamp = tuple[int, int, int, int]

TICK_NS = 50_000_000
"""No clock that files are stamped with is coarser: what changes sooner may get the same stamp."""


class Places:
    """What lies at some paths, as something that can be compared with itself later."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._parents = tuple(sorted({os.path.dirname(path) for path in self._paths}))
        self._stamps: tuple[Stamp | None, ...] | None = None
        self._seen: tuple[object, ...] = ()

    def look(self) -> tuple[object, ...]:
        """Which lie there now: one that was replaced is another one."""
        stamps = tuple(stamp(path) for path in self._parents)
        if stamps != self._stamps:
            now_ns = time.time_ns()
            self._seen = tuple(_seen(path) for path in self._paths)
            self._stamps = stamps if all(is_old(one, now_ns) for one in stamps) else None
        return self._seen


def stamp(path: str) -> Stamp | None:
    """When a folder was changed last; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def is_old(stamp: Stamp | None, now_ns: int) -> bool:
    """Whether any later change is sure to have another stamp.

    What is not there has none, and any when it comes.
    """
    return stamp is None or max(stamp[2:]) < now_ns - TICK_NS


def _seen(path: str) -> object:
    try:
        found = os.lstat(path)
        # Nothing holds a link, so that a new one may have the number of one that was removed.
        says = os.readlink(path) if stat.S_ISLNK(found.st_mode) else None
    except OSError:
        return None
    return found.st_dev, found.st_ino, says
