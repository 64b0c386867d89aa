"""The system calls of a commit that Python does not offer, and the errors that they mean.

Every call raises OSError with the kernel's errno; none retries or hides one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import stat
import struct
import time
from typing import Final

from ._beneath import PATH_FLAGS, open_beneath, reopen
from ._child import syscalls

RENAME_NOREPLACE: Final = 1
RENAME_EXCHANGE: Final = 2
"""include/uapi/linux/fs.h."""

NO_SUCH_CALL: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What renameat2(2) answers where the file system has not got the flag."""
REFUSED: Final = frozenset({errno.EPERM, errno.EINVAL})
"""What chown(2) answers where an id is not ours to give, or has no meaning in our namespace."""


def look(folder: int, name: str) -> os.stat_result | None:
    """lstat of a name in an open folder; None where it is absent."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_workspace(path: str) -> int:
    """A readable descriptor of a folder, no component of whose path may be a symlink."""
    how = struct.pack(
        "=QQQ", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, syscalls.RESOLVE_NO_SYMLINKS
    )
    name = ctypes.c_char_p(os.fsencode(path))
    return syscalls.syscall("openat2", syscalls.AT_FDCWD, name, ctypes.c_char_p(how), len(how))


def rename(folder: int, old: str, new: str, flags: int) -> None:
    """renameat2(2) within one open folder."""
    names = [ctypes.c_char_p(os.fsencode(name)) for name in (old, new)]
    syscalls.syscall("renameat2", folder, names[0], folder, names[1], flags)


def syncfs(fd: int) -> None:
    """All of the file system of `fd` is on disk afterwards (syncfs(2))."""
    syscalls.syscall("syncfs", fd)


def fsync_folder(fd: int) -> None:
    """fsync(2) for a folder that is held by O_PATH."""
    opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def is_open_for_writing(held: int) -> bool:
    """Whether anybody on this machine has a regular file open for writing, or mapped so.

    Asked by a read lease, which the kernel refuses with EAGAIN where somebody has (fcntl(2),
    "Leases"). It is given back at once; the signal of a break that comes in between is SIGURG,
    which is ignored unless handled. False where no lease can be had, which is so for a file that
    is neither ours nor readable, without CAP_LEASE, and on network file systems.
    """
    try:
        fd = reopen(held, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        # EWOULDBLOCK: somebody else holds a lease for writing.
        return error.errno == errno.EWOULDBLOCK
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(fd)
    return False


def remove(folder: int, name: str) -> None:
    """Remove a name of ours and all below it; no symlink is followed, no mount is crossed.

    What is below is moved up to the top of the tree before it goes, so that any depth costs two
    descriptors. Absent is as good as removed.

    Raises:
        OSError: something stays, such as a mount point or a file that was made immutable.
    """
    found = look(folder, name)
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        return
    top = _open_own(folder, name)
    try:
        # Not from 0: what an attempt that was cut off has moved up has such names already.
        count = time.monotonic_ns()
        while below := _folders(top):
            for one in below:
                inner = _open_own(top, one)
                try:
                    for deeper in _folders(inner):
                        # A folder that is moved has its `..` rewritten: that needs to write it.
                        os.close(_open_own(inner, deeper))
                        lifted = f".toolcell-{count}"
                        count += 1
                        os.rename(deeper, lifted, src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(one, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=folder)


def _folders(folder: int) -> list[str]:
    """The folders in one, after everything else in it was removed."""
    # A look during which names go may miss some (readdir(3)): until one finds none to remove.
    while True:
        below, removed = [], False
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                else:
                    os.unlink(entry.name, dir_fd=folder)
                    removed = True
        if not removed:
            return below


def _open_own(folder: int, name: str) -> int:
    """A folder that is about to be removed, readable and writable for its owner."""
    held = open_beneath(folder, name, PATH_FLAGS | os.O_DIRECTORY)
    try:
        if os.fstat(held).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{held}", 0o700)
        return reopen(held, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(held)
