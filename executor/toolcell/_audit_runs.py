"""Who writes: one file per running executor, locked while it lives, and its reserve.

`<state_dir>/audit-runs/<run>`, flock(2)ed for as long as the executor runs: the kernel drops the
lock with the process, however that ends, so whoever gets it knows that its writer is gone. (A
copy that the process forked, and that never exec'd, holds the lock too.)

The file is also the reserve: one allocated slot for each call that has an intent, in which its
terminal can be written and synced when the log takes none. What waits there is moved into the
chain by the next transaction of that executor, or by the next start of any.

    slot:  length, 4 bytes · SHA-256 of the payload, 32 bytes · payload, JSON · zeros
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

__all__ = [
    "SLOT_BYTES",
    "Run",
    "Waiting",
    "gone_runs",
    "is_run",
    "open_run",
    "remove_runs",
    "waiting_in",
]

SLOT_BYTES: Final = 16_384
SLOTS_AT_ONCE: Final = 16
DRAFT_S: Final = 600.0
"""What was not finished by then never is."""
_HEAD_BYTES: Final = 36
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_DRAFT: Final = re.compile(r"new-[0-9a-f]{16}.*")


class Waiting(NamedTuple):
    """A terminal that is durable and not in the chain yet."""

    intent: int
    body: dict[str, Any]


class Run:
    """This executor's own file."""

    def __init__(self, folder: str, name: str, fd: int) -> None:
        self.name = name
        self._path = os.path.join(folder, name)
        self._fd = fd
        self._slots = 0
        self._free: list[int] = []

    @classmethod
    def register(cls, folder: str) -> Run:
        """Make and lock it. To be called with the chain's lock held: nobody sweeps meanwhile.

        Raises:
            OSError: it cannot be made, or its first slots cannot be allocated.
        """
        name = os.urandom(8).hex()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(os.path.join(folder, name), flags, 0o600)
        run = cls(folder, name, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            run._grow()
        except BaseException:
            run.close(remove=True)
            raise
        return run

    def _grow(self) -> None:
        # Allocated, not only sized: posix_fallocate(3) says that writes there do not fail for
        # lack of space.
        os.posix_fallocate(self._fd, self._slots * SLOT_BYTES, SLOTS_AT_ONCE * SLOT_BYTES)
        self._free += reversed(range(self._slots, self._slots + SLOTS_AT_ONCE))
        self._slots += SLOTS_AT_ONCE

    def take(self) -> int:
        """A slot for one more call.

        Raises:
            OSError: there is none, and none can be allocated.
        """
        if not self._free:
            try:
                self._grow()
            except OSError as error:
                why = "the reserve for its terminals cannot be had"
                raise OSError(error.errno, f"the audit log takes no record: {why}") from error
        return self._free.pop()

    def give_back(self, slot: int, *, written: bool = False) -> None:
        """The slot's call is in the chain, or never was."""
        if written:
            # Left as it is, the chain would still refuse it: its call is not open any more.
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, bytes(4), slot * SLOT_BYTES)
        self._free.append(slot)

    def write(self, slot: int, waiting: Waiting) -> None:
        """Make a terminal durable in the slot of its call.

        Raises:
            OSError: it could not be, or the file has been removed or replaced.
        """
        payload = json.dumps([waiting.intent, waiting.body]).encode()
        if len(payload) > SLOT_BYTES - _HEAD_BYTES:
            raise OSError(errno.EFBIG, "a terminal is larger than its reserve")
        head = len(payload).to_bytes(4, "big") + hashlib.sha256(payload).digest()
        written = os.pwrite(self._fd, head + payload, slot * SLOT_BYTES)
        if written != len(head) + len(payload):
            raise OSError(errno.ENOSPC, "the reserve was cut short")
        os.fdatasync(self._fd)
        self.check_place()

    def check_place(self) -> None:
        """Whether the name still leads to this file.

        Raises:
            OSError: it does not.
        """
        ours, there = os.fstat(self._fd), os.stat(self._path, follow_symlinks=False)
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
            raise OSError(errno.ESTALE, "the audit log's reserve was replaced")

    def close(self, *, remove: bool) -> None:
        """Give up the lock; with `remove`, the file too."""
        if remove:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        os.close(self._fd)


@contextlib.contextmanager
def gone_runs(folder: str, own: str) -> Iterator[tuple[dict[str, list[Waiting]], set[str]]]:
    """The runs whose writers are gone, with what waits in each, and the names of the living.

    Their files are removed when this ends well, and what an unfinished start left behind. To be
    called with the chain's lock held.

    Raises:
        OSError: the folder cannot be read.
    """
    gone: dict[str, list[Waiting]] = {}
    living = {own}
    with contextlib.ExitStack() as held:
        for name in sorted(os.listdir(folder)):
            if not is_run(name) or name == own:
                continue
            fd = open_run(folder, name)
            if fd is None:
                continue
            held.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                living.add(name)
                continue
            gone[name] = list(waiting_in(fd))
        yield gone, living


def remove_runs(folder: str, names: Mapping[str, object]) -> None:
    """Remove the files of gone runs, and drafts of a log that somebody never finished."""
    drafts = [name for name in os.listdir(folder) if _DRAFT.fullmatch(name)]
    for name in (*names, *drafts):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if name in names or time.time() - os.lstat(path).st_mtime > DRAFT_S:
                os.unlink(path)


def is_run(name: str) -> bool:
    """Whether a file's name is a run's."""
    return _NAME.fullmatch(name) is not None


def open_run(folder: str, name: str) -> int | None:
    """A run's file to look at; None where the name is no plain file's. Never waits."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(os.path.join(folder, name), flags)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return fd


def waiting_in(fd: int) -> Iterator[Waiting]:
    """What is whole in the slots of a run's file."""
    size_bytes = os.fstat(fd).st_size
    for start in range(0, size_bytes - _HEAD_BYTES, SLOT_BYTES):
        head = os.pread(fd, _HEAD_BYTES, start)
        length = int.from_bytes(head[:4], "big")
        if not 0 < length <= SLOT_BYTES - _HEAD_BYTES:
            continue
        payload = os.pread(fd, length, start + _HEAD_BYTES)
        if hashlib.sha256(payload).digest() == head[4:]:
            intent, body = json.loads(payload)
            yield Waiting(intent, body)
