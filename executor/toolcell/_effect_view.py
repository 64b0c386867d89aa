"""A workspace as it was and as it would be: kinds of names, and the first bytes of small files.

Both sides may be hostile, and the real one may be in use. Everything is reached from a descriptor
of the top, over no link, and nothing but a regular file is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

from toolcell_sandbox._beneath import kind_of, open_beneath, reopen
from toolcell_sandbox.changeset import Change, ChangeSet, Kind

READ_BYTES_MAX: Final = 64 << 10
_CACHED_MAX: Final = 50_000


@contextlib.contextmanager
def _opened(top_fd: int, path: str) -> Iterator[int]:
    """A descriptor to read a regular file from.

    Raises:
        OSError, ValueError: there is none, or it cannot be read.
    """
    found = open_beneath(top_fd, path, os.O_PATH | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise ValueError("no regular file")
        fd = reopen(found)
    finally:
        os.close(found)
    try:
        yield fd
    finally:
        os.close(fd)


def read_beneath(top_fd: int, path: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes | None:
    """What a regular file holds, or its first `bytes_max + 1` bytes where it holds more.

    None where there is none, or it cannot be read.
    """
    with contextlib.suppress(OSError, ValueError), _opened(top_fd, path) as fd:
        parts = []
        left = bytes_max + 1
        while left > 0 and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    return None


def digest_beneath(top_fd: int, path: str) -> bytes | None:
    """The SHA-256 of a regular file; None where there is none, or it cannot be read."""
    with (
        contextlib.suppress(OSError, ValueError),
        _opened(top_fd, path) as fd,
        open(fd, "rb", closefd=False) as file,
    ):
        return hashlib.file_digest(file, "sha256").digest()
    return None


def innermost(
    folder: str, known: dict[str, str | None], holds: Callable[[str], bool]
) -> str | None:
    """The innermost of a folder and those around it of which `holds` says yes; "" is the top.

    What was found out on the way goes into `known`.
    """
    waiting: list[str] = []
    found: str | None = None
    while folder not in known:
        waiting.append(folder)
        if holds(folder):
            found = folder
            break
        if not folder:
            break
        folder = folder.rpartition("/")[0]
    else:
        found = known[folder]
    known.update(dict.fromkeys(waiting, found))
    return found


class View:
    """Answers of each path what it was, and what it is after the change set."""

    def __init__(self, changes: ChangeSet, *, layer_fd: int, workspace_fd: int) -> None:
        self.changes = {change.path: change for change in changes.changes}
        self.layer_fd = layer_fd
        self.workspace_fd = workspace_fd
        self._real: dict[str, tuple[Kind | None, str | None]] = {}
        self._fresh: dict[str, bool] = {"": False}

    def before(self, path: str) -> Kind | None:
        """What the real workspace has of that name; None where it has nothing."""
        change = self.changes.get(path)
        if change is not None:
            return None if change.before is None else change.before.kind
        return self._look(path)[0]

    def after(self, path: str) -> Kind | None:
        """What would be there once all is kept."""
        change = self.changes.get(path)
        if change is not None:
            return None if change.after is None else change.after.kind
        return None if self._is_fresh(_parent(path)) else self._look(path)[0]

    def link_after(self, path: str) -> str | None:
        """Where a symlink of that name would point; None where it would be none."""
        change = self.changes.get(path)
        if change is not None:
            return None if change.after is None else change.after.target
        return None if self._is_fresh(_parent(path)) else self._look(path)[1]

    def read_before(self, path: str) -> bytes | None:
        """What a small file of the real workspace holds."""
        return read_beneath(self.workspace_fd, path)

    def read_after(self, path: str) -> bytes | None:
        """What a small file holds that the call wrote."""
        return read_beneath(self.layer_fd, path)

    def _is_fresh(self, folder: str) -> bool:
        """Whether nothing of what the real workspace has in a folder is left in it unlisted.

        So it is where the folder, or one that it lies in, is not the one that was there.
        """
        waiting = []
        while (known := self._fresh.get(folder)) is None:
            waiting.append(folder)
            folder = _parent(folder)
        for each in reversed(waiting):
            known = known or _is_replaced(self.changes.get(each))
            self._fresh[each] = known
        return known

    def _look(self, path: str) -> tuple[Kind | None, str | None]:
        found = self._real.get(path)
        if found is None:
            if len(self._real) >= _CACHED_MAX:
                self._real.clear()
            found = self._real[path] = self._looked(path)
        return found

    def _looked(self, path: str) -> tuple[Kind | None, str | None]:
        try:
            fd = open_beneath(self.workspace_fd, path, os.O_PATH | os.O_NOFOLLOW)
        except (OSError, ValueError):
            return None, None
        try:
            kind = kind_of(os.fstat(fd))
            # An empty path is the link itself that the descriptor stands for (readlink(2)).
            target = os.readlink("", dir_fd=fd) if kind == "symlink" else None
        except OSError:
            return None, None
        finally:
            os.close(fd)
        return kind, target


def _is_replaced(change: Change | None) -> bool:
    if change is None:
        return False
    sides = (change.before, change.after)
    return any(side is None or side.kind != "folder" for side in sides)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
