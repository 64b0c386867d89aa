"""inotify(7) by ctypes: watches on open descriptors, and what the kernel tells about them.

A watch belongs to an inode, not to a path: watching the same inode again returns the same
number, and numbers are not used twice (inotify_add_watch(2); idr_alloc_cyclic in the kernel).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from typing import Final, NamedTuple

# include/uapi/linux/inotify.h
IN_MODIFY: Final = 0x2
IN_ATTRIB: Final = 0x4
IN_CLOSE_WRITE: Final = 0x8
IN_MOVED_FROM: Final = 0x40
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_UNMOUNT: Final = 0x2000
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
IN_ONLYDIR: Final = 0x01000000
IN_EXCL_UNLINK: Final = 0x04000000
IN_MASK_ADD: Final = 0x20000000
IN_ISDIR: Final = 0x40000000

BUFFER_BYTES: Final = 65_536
_HEADER: Final = struct.Struct("iIII")
_LIMITS: Final = ("/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches")

_libc = ctypes.CDLL(None, use_errno=True)
_add_watch = _libc.inotify_add_watch
_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)


class Event(NamedTuple):
    """One event: the watch, what happened, and the name in the watched folder, or ""."""

    wd: int
    mask: int
    name: str


class Inotify:
    """One inotify instance. Not thread-safe.

    Raises:
        OSError: EMFILE when this user has `fs.inotify.max_user_instances` of them already.
    """

    def __init__(self) -> None:
        self.fd = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify_init1")

    def watch(self, fd: int, mask: int) -> int:
        """Watch what `fd` is open on, which must be readable for us; returns the watch's number.

        Adds to what an earlier watch of the same inode tells.

        Raises:
            OSError: ENOSPC when this user's watches are used up; EACCES.
        """
        path = b"/proc/self/fd/%d" % fd
        return _checked(_add_watch(self.fd, path, mask | IN_MASK_ADD), "inotify_add_watch")

    def unwatch(self, wd: int) -> None:
        """Take a watch off, if the kernel has not done so; it queues IN_IGNORED."""
        if _libc.inotify_rm_watch(self.fd, wd) < 0 and ctypes.get_errno() != errno.EINVAL:
            _checked(-1, "inotify_rm_watch")

    def queued_bytes(self) -> int:
        """How much there is to read."""
        queued: int = struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4)))[0]
        return queued

    def read(self) -> bytes:
        """Some of what is queued, whole events only; empty where nothing is."""
        try:
            return os.read(self.fd, BUFFER_BYTES)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Give back the descriptor and with it all watches; once."""
        os.close(self.fd)


def events(data: bytes) -> Iterator[Event]:
    """What `read` returned, event by event."""
    at = 0
    while at < len(data):
        wd, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        name = data[at : at + length].rstrip(b"\0")
        at += length
        yield Event(wd, mask, os.fsdecode(name))


def watches_allowed() -> int:
    """How many watches this user may have in all (inotify(7), user_namespaces(7))."""
    found = []
    for path in _LIMITS:
        try:
            with open(path) as file:
                found.append(int(file.read()))
        except FileNotFoundError:
            continue
    return min(found, default=0)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result
