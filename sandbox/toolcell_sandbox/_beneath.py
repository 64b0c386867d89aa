"""Names below a folder that somebody else may be changing: opened by descriptor, never by a link.

What is opened with `O_PATH` is not opened as a file: no FIFO blocks, no device acts, no symlink is
followed (open(2)). So a name is looked at first, and read only when it is what it should be.
"""

from __future__ import annotations

import ctypes
import os
import struct

from ._child import syscalls

# include/uapi/linux/openat2.h
RESOLVE_NO_XDEV = 0x01
RESOLVE_BENEATH = 0x08
_RESOLVE = (
    RESOLVE_NO_XDEV
    | syscalls.RESOLVE_NO_MAGICLINKS
    | syscalls.RESOLVE_NO_SYMLINKS
    | RESOLVE_BENEATH
)


def open_beneath(folder_fd: int, path: str, flags: int) -> int:
    """A descriptor of `path`, which leads from `folder_fd` downwards, through no link or mount.

    With `O_PATH | O_NOFOLLOW` a symlink as the last component is opened itself (openat2(2),
    RESOLVE_NO_SYMLINKS). The descriptor is close-on-exec.

    Raises:
        OSError: ELOOP where a component is a symlink, EXDEV where another file system is mounted
            or the path leads out, ENOENT, ENOTDIR, EACCES as open(2) says.
    """
    how = ctypes.c_char_p(struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE))
    name = ctypes.c_char_p(os.fsencode(path))
    while True:
        try:
            return syscalls.syscall("openat2", folder_fd, name, how, 24)
        except InterruptedError:
            continue


def path_of(fd: int) -> str:
    """A path that stands for exactly what `fd` has open, wherever that lies by now (proc(5)).

    It is what calls without a form for O_PATH descriptors are given.
    """
    return f"/proc/self/fd/{fd}"


def reopen(fd: int) -> int:
    """A descriptor to read from, of the regular file or folder that `fd` has open as O_PATH.

    Raises:
        OSError: EACCES where it may not be read; EAGAIN where somebody has a lease on it.
    """
    return os.open(path_of(fd), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
