"""What the workspace was before the calls of an executor changed it: for edits that must net out.

From the first baseline on, each commit notes what it displaces, once for each path. Only what
calls changed is compared: a walk over all of a workspace would cost what it holds.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from toolcell.results import Effects
from toolcell_sandbox._beneath import kind_of, open_beneath
from toolcell_sandbox.changeset import Entry

PATHS_MAX: Final = 500_000
CHUNK_BYTES: Final = 1 << 20

State = tuple[str, int, str]
"""Kind, permission bits, and a hash of the content, or where a link points."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A moment of one executor's workspace; `Executor.changes_since` measures from it."""

    number: int


@dataclass(slots=True)
class Ledger:
    """The baselines of one executor, and what was first displaced after each. Any thread's."""

    _epochs: list[dict[str, State | None]] = field(default_factory=list)
    _unobserved: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def baseline(self) -> Baseline:
        """Begin to note what is displaced from now on."""
        with self._lock:
            if not self._epochs or self._epochs[-1]:
                self._epochs.append({})
            return Baseline(len(self._epochs) - 1)

    @property
    def noting(self) -> Callable[[str, Entry | None, int | None], None] | None:
        """What a commit tells of each name before its old content goes; None where nobody asks."""
        return self._note if self._epochs else None

    def _note(self, path: str, before: Entry | None, fd: int | None) -> None:
        epoch = self._epochs[-1]
        if path in epoch:
            return
        if sum(map(len, self._epochs)) >= PATHS_MAX:
            self.unobserved()
            return
        epoch[path] = None if before is None else _state_of(before, fd)

    def unobserved(self) -> None:
        """Something was changed that nobody saw: no baseline so far can be measured from."""
        with self._lock:
            self._unobserved = len(self._epochs) - 1

    def changes_since(
        self, baseline: Baseline, workspace_fd: int, check: Callable[[], object]
    ) -> Effects | None:
        """What is other than it was; None where something was changed that nobody saw.

        Blocks: it reads each file that a call changed. `check` may raise to cancel.

        Raises:
            ValueError: the baseline is another executor's.
        """
        if not 0 <= baseline.number < len(self._epochs):
            raise ValueError("the baseline is none of this executor's")
        if self._unobserved >= baseline.number:
            return None
        was: dict[str, State | None] = {}
        for epoch in self._epochs[baseline.number :]:
            was = {**epoch, **was}
        found: dict[str, list[str]] = {"created": [], "modified": [], "deleted": []}
        for path, before in sorted(was.items()):
            check()
            now = _state_now(workspace_fd, path)
            if now != before:
                sort = "created" if before is None else "deleted" if now is None else "modified"
                found[sort].append(path)
        return Effects(
            created=tuple(found["created"]),
            modified=tuple(found["modified"]),
            deleted=tuple(found["deleted"]),
        )


def _state_of(entry: Entry, fd: int | None) -> State:
    if entry.kind == "file" and fd is not None:
        return entry.kind, entry.mode, _digest(fd)
    return entry.kind, entry.mode, entry.target or ""


def _state_now(workspace_fd: int, path: str) -> State | None:
    folder, _, name = path.rpartition("/")
    try:
        parent = open_beneath(workspace_fd, folder, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind = kind_of(found)
        mode = stat.S_IMODE(found.st_mode)
        if kind == "symlink":
            return kind, mode, os.readlink(name, dir_fd=parent)
        if kind != "file":
            return kind, mode, ""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=parent)
        try:
            return kind, mode, _digest(fd)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    finally:
        os.close(parent)


def _digest(fd: int) -> str:
    hashed, at = hashlib.sha256(), 0
    while chunk := os.pread(fd, CHUNK_BYTES, at):
        hashed.update(chunk)
        at += len(chunk)
    return hashed.hexdigest()
