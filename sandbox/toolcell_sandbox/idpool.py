"""Host user ids for the jails of a root supervisor: a range of its own for each that runs.

A range is a slot above `host.id_base()`. It is held by a lock on one byte of a file that all
supervisors of this machine share, an open file description lock (fcntl(2)): the kernel lets go
of it when its holder ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from contextlib import ExitStack

from . import host
from ._child import ids

LOCK_FILE = "/run/toolcell/ids.lock"
_F_OFD_SETLK = 37
"""include/uapi/asm-generic/fcntl.h; the fcntl module has the name from Python 3.13 on."""

_guard = threading.Lock()
_mine: set[int] = set()


def lease(held: ExitStack, *, lock_file: str = LOCK_FILE) -> int | None:
    """The first id of a free range, until `held` is closed; None for who has none to give.

    Raises:
        NoIds: the host's root, and no range is free or can be locked.
    """
    base = host.id_base()
    if base is None:
        return None
    try:
        fd = _open(lock_file)
    except OSError as error:
        raise host.NoIds(f"{lock_file} cannot be used: {error.strerror}") from error
    held.callback(os.close, fd)
    with _guard:
        for slot in range(host.id_slots(base)):
            # A forked child of the host program shares our locks: so the set as well.
            if slot not in _mine and _locked(fd, slot):
                _mine.add(slot)
                held.callback(_mine.discard, slot)
                return base + slot * ids.RANGE
    raise host.NoIds("every range of user ids for jails is in use")


def _open(path: str) -> int:
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def _locked(fd: int, slot: int) -> bool:
    # struct flock: type, whence, start, length, pid.
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)
    try:
        fcntl.fcntl(fd, _F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
