"""Names below a folder that somebody else may be changing: opened by descriptor, never by a link.

What is opened with `O_PATH` is not opened as a file: no FIFO blocks, no device acts, no symlink is
followed (open(2)). So a name is looked at first, and read only when it is what it should be.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from ._child import syscalls
from .changeset import Kind

PATH_FLAGS: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Whatever a name is, without opening it, a symlink too."""
GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""What an open says of a name that is no longer the folder it was."""
KINDS: Final[dict[int, Kind]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


def kind_of(found: os.stat_result) -> Kind:
    """What stat(2) saw, in the change set's words."""
    return KINDS.get(stat.S_IFMT(found.st_mode), "device")


def open_beneath(folder_fd: int, path: str, flags: int, *, across: bool = False) -> int:
    """A descriptor of `path`, which leads from `folder_fd` downwards, "" for itself.

    Through no link, and through no mount unless `across`. With `O_PATH | O_NOFOLLOW` a symlink as
    the last component is opened itself (openat2(2), RESOLVE_NO_SYMLINKS). It is close-on-exec.

    Raises:
        OSError: ELOOP where a component is a symlink, EXDEV where another file system is mounted
            or the path leads out, ENOENT, ENOTDIR, EACCES as open(2) says.
    """
    name = os.fsencode(path or ".")
    while True:
        try:
            return syscalls.open_beneath(folder_fd, name, flags, across=across)
        except InterruptedError:
            continue


def path_of(fd: int) -> str:
    """A path that stands for exactly what `fd` has open, wherever that lies by now (proc(5)).

    It is what calls without a form for O_PATH descriptors are given.
    """
    return f"/proc/self/fd/{fd}"


def reopen(fd: int, flags: int = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) -> int:
    """A descriptor of the regular file or folder that `fd` has open as O_PATH, to read by default.

    Look at its kind first: this would open a device.

    Raises:
        OSError: EACCES where it may not be read; EAGAIN where somebody has a lease on it.
    """
    return os.open(path_of(fd), flags | os.O_CLOEXEC)
