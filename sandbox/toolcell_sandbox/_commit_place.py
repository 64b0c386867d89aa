"""One workspace's corner of our state: its lock, and the count of its commits."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ._commit_kernel import look

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COARSE: Final = 5
"""CLOCK_REALTIME_COARSE, include/uapi/linux/time.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a workspace is, and where what we know about it lies."""

    workspace: str
    """Its real path, absolute."""
    identity: tuple[int, int]
    """(st_dev, st_ino) of the workspace folder."""
    state_dir: str

    @property
    def folder(self) -> str:
        """The folder for this workspace: `lock`, `journal`, `generation`."""
        name = hashlib.sha256(os.fsencode(self.workspace)).hexdigest()[:32]
        return os.path.join(self.state_dir, "workspaces", name)


def open_state(place: Place) -> int:
    """A descriptor of `place.folder`, made where it is missing; for its owner only.

    Raises:
        OSError: it cannot be made; or one of its folders is a symlink, or somebody else's.
    """
    os.makedirs(place.state_dir, mode=0o700, exist_ok=True)
    fd = os.open(place.state_dir, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    for name in ("workspaces", os.path.basename(place.folder)):
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(fd)
            raise PermissionError(1, f"{name} is not for its owner, us, alone", place.folder)
    return fd


@contextlib.contextmanager
def locked(state: int) -> Iterator[None]:
    """Be the one writer of this workspace, across threads and processes; blocks until it may.

    An open file description lock (fcntl(2)): it ends with its holder, also by SIGKILL, and is
    given back by name, so that a child that a fork in another thread has copied it into cannot
    prolong it. No jail can hold it: our state folder is in none.
    """
    fd = _lock(state)
    try:
        yield
    finally:
        _set(fd, fcntl.F_UNLCK)
        os.close(fd)


def _lock(state: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        fd = os.open("lock", flags, 0o600, dir_fd=state)
        try:
            _set(fd, fcntl.F_WRLCK)
        except BaseException:
            os.close(fd)
            raise
        # Somebody may have removed the file while we waited for it: it then fences nobody.
        found = look(state, "lock")
        if found is not None and os.path.samestat(found, os.fstat(fd)):
            return fd
        os.close(fd)


def _set(fd: int, kind: int) -> None:
    # struct flock of a 64-bit machine: short type, whence; off_t start, length; pid_t, which is 0.
    wanted = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, wanted)


def generation(place: Place) -> int:
    """How many commits of this workspace have ended; what was judged before another is stale."""
    try:
        state = os.open(place.folder, _FOLDER_FLAGS)
    except FileNotFoundError:
        return 0
    try:
        return _generation(state)
    finally:
        os.close(state)


def next_generation(state: int) -> None:
    """Count one more. For who holds the lock."""
    number = _generation(state) + 1
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("generation.new", flags, 0o600, dir_fd=state)
    try:
        os.write(fd, str(number).encode())
    finally:
        os.close(fd)
    os.replace("generation.new", "generation", src_dir_fd=state, dst_dir_fd=state)


def _generation(state: int) -> int:
    try:
        fd = os.open("generation", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=state)
    except FileNotFoundError:
        return 0
    try:
        return int(os.read(fd, 32) or b"0")
    except ValueError:
        return 0
    finally:
        os.close(fd)
