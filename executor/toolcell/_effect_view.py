"""A workspace as it was and as it would be: kinds of names, and the first bytes of small files.

Both sides may be hostile, and the real one may be in use. Everything is reached from a descriptor
of the top, over no link, and nothing but a regular file is read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Final

from toolcell_sandbox._beneath import kind_of, open_beneath, reopen
from toolcell_sandbox.changeset import Change, ChangeSet, Kind

READ_BYTES_MAX: Final = 64 << 10
_CACHED_MAX: Final = 50_000


def read_beneath(top_fd: int, path: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes | None:
    """What a regular file holds, or its first `bytes_max + 1` bytes where it holds more.

    None where there is none, or it cannot be read.
    """
    try:
        found = open_beneath(top_fd, path, os.O_PATH | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            return None
        fd = reopen(found)
        try:
            parts = []
            left = bytes_max + 1
            while left > 0 and (part := os.read(fd, left)):
                parts.append(part)
                left -= len(part)
            return b"".join(parts)
        finally:
            os.close(fd)
    except OSError:
        return None
    finally:
        os.close(found)


def digest_beneath(top_fd: int, path: str) -> bytes | None:
    """The SHA-256 of a regular file; None where there is none, or it cannot be read."""
    try:
        found = open_beneath(top_fd, path, os.O_PATH | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            return None
        with open(reopen(found), "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None
    finally:
        os.close(found)


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
