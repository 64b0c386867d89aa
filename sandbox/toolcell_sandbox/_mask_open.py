"""What can be entered, and which file systems tell us all that happens in them."""

from __future__ import annotations

import ctypes
import os
from typing import Final

from ._beneath import open_beneath

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

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


def open_below(top: int, path: str, flags: int) -> int:
    """`open_beneath` that crosses mounts: what is mounted in the folder is seen by a jail too."""
    return open_beneath(top, path, flags, across=True)


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
