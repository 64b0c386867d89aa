"""Opens below a folder that follow no link, and which file systems tell us all that happens."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

from ._child import syscalls

RESOLVE_BENEATH: Final = 0x08
"""include/uapi/linux/openat2.h; with the two of `syscalls`: no link, and not out of the folder."""

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NAME: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""What an open says of a name that is no longer the folder it was."""

# include/uapi/linux/magic.h, fs/smb, fs/nfs, fs/ceph: another machine may write there unseen,
# or a daemon. virtiofs and sshfs are FUSE.
_SHARED: Final = frozenset(
    {
        0x6969,  # NFS
        0x517B,  # SMB
        0xFF534D42,  # CIFS
        0xFE534D42,  # SMB2
        0x01021997,  # 9P
        0x65735546,  # FUSE
        0x00C36400,  # Ceph
        0x5346414F,  # AFS
        0x73757245,  # Coda
        0x7461636F,  # OCFS2
        0x01161970,  # GFS2
        0x0BD00BD0,  # Lustre
        0x786F4256,  # VirtualBox
    }
)

_libc = ctypes.CDLL(None, use_errno=True)
_HOW: Final = syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH
_MODES: Final = {
    flags: struct.pack("=QQQ", flags, 0, _HOW) for flags in (FOLDER, NAME, NAME | os.O_DIRECTORY)
}


def open_beneath(top: int, path: str, flags: int) -> int:
    """A descriptor of `path` below the folder `top`, "" for itself (openat2(2)).

    No component may be a link; with NAME the last one may be one, and is not followed.
    `flags`: FOLDER, NAME, or NAME | O_DIRECTORY.
    """
    how = _MODES[flags]
    name = ctypes.c_char_p(os.fsencode(path or "."))
    return syscalls.syscall("openat2", top, name, ctypes.c_char_p(how), len(how))


def reopen(fd: int) -> int:
    """A descriptor for reading of the regular file that `fd`, an O_PATH one, is on."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    return os.open(f"/proc/self/fd/{fd}", flags)


def may_enter(fd: int) -> bool:
    """Whether we may search the folder that `fd` is on."""
    return os.access(f"/proc/self/fd/{fd}", os.X_OK, effective_ids=True)


def tells_all(fd: int) -> bool:
    """Whether all that happens in the file system of `fd` comes through this kernel.

    Only then inotify sees it (inotify(7), "Limitations and caveats").
    """
    found = ctypes.create_string_buffer(256)
    if _libc.fstatfs(fd, found) < 0:
        return False
    # struct statfs begins with f_type, as wide as a long.
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], "little") not in _SHARED
