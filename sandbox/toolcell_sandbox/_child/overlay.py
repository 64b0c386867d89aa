"""Folders of the host as a jail sees them through an overlay, without what is masked in them.

           jail sees     overlay (userxattr)
              ▲          ├── upper   on the jail's sized scratch: all that it changes; or none
              │          ├── masks   a whiteout for each name that is absent for the jail
              │          └── below   the host's folder, read-only, by a mount of its own

A whiteout is a name, not a file: whoever replaces the masked file meanwhile changes nothing. Each
layer's mount is detached once the overlay stands, so that a worker of the same uid cannot reach
the layers; their paths stay readable in mountinfo, and so tell nothing. See the kernel's
overlayfs documentation.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from . import syscalls
from .report import StageFailed, stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PROBE = "user.toolcell"


class Layered:
    """An overlay that stands, detached: where it belongs, and its upper layer, if it has one."""

    def __init__(self, path: str, fd: int, upper: int | None) -> None:
        self.path = path
        self.fd = fd
        self.upper = upper


def build(scratch: str, number: int, entry: dict[str, Any], below: int) -> Layered:
    """Lay an overlay over the detached tree `below`, which is attached and so used up.

    `scratch` is the folder of the jail's sized tmpfs; `entry` says what is masked, and whether
    there is an upper layer.
    """
    masks = entry["masks"]
    place = f"{scratch}/l{number}"
    with stage("paths_masked", "overlay"):
        os.mkdir(place)
        inodes = 8 + sum(path.count("/") + 1 for path in masks)
        safe = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("layers", place, "tmpfs", safe, f"mode=0700,nr_inodes={inodes}")
        for name in ("m", "w", "o"):
            os.mkdir(f"{place}/{name}")
        target = syscalls.open_exactly(f"{place}/w")
        syscalls.move_tree(below, target)
        os.close(target)
        os.close(below)
        lower = syscalls.open_exactly(f"{place}/w")
        _mask(f"{place}/m", lower, masks)
    data = f"lowerdir={place}/m:{place}/w,userxattr"
    upper: int | None = None
    with stage("writes_transactional", "overlay"):
        if entry["keeps"]:
            data += f",upperdir={scratch}/u{number},workdir={scratch}/k{number}"
            upper = _upper(f"{scratch}/u{number}", lower)
            os.mkdir(f"{scratch}/k{number}")
        syscalls.mount("workspace", f"{place}/o", "overlay", safe, data)
        made = syscalls.open_exactly(f"{place}/o")
        fd = syscalls.clone_tree(made)
        syscalls.set_tree(fd, syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV)
    os.close(made)
    os.close(lower)
    return Layered(entry["path"], fd, upper)


def _upper(path: str, lower: int) -> int:
    """The folder of the upper layer, whose attributes are those of the workspace itself."""
    os.mkdir(path)
    try:
        # Without them a folder that is deleted and made again could not be marked (tmpfs(5)).
        os.setxattr(path, _PROBE, b"1")
        os.removexattr(path, _PROBE)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        cause = "this kernel's tmpfs keeps no user extended attributes"
        raise StageFailed("writes_transactional", "overlay", cause, error.errno) from error
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _like(lower, path)
    return fd


def _mask(place: str, lower: int, paths: list[str]) -> None:
    """A whiteout for each path, in folders that look like those they stand for.

    A folder that is gone below, or is none any more, gets none: it would show where there is
    nothing, and nothing in it can be masked.
    """
    folders: dict[str, int | None] = {"": os.dup(lower)}
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        if _made(place, lower, folder, folders):
            os.mknod(f"{place}/{folder}/{name}", stat.S_IFCHR, 0)
    for folder in sorted(folders, reverse=True):
        fd = folders[folder]
        if fd is not None:
            _like(fd, f"{place}/{folder}")
            os.close(fd)


def _made(place: str, lower: int, folder: str, folders: dict[str, int | None]) -> bool:
    """Whether the mask layer has this folder now, with all above it."""
    if folder in folders:
        return folders[folder] is not None
    parent = folder.rpartition("/")[0]
    fd = None
    if _made(place, lower, parent, folders):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            fd = _folder(lower, folder)
    if fd is not None:
        os.mkdir(f"{place}/{folder}")
    folders[folder] = fd
    return fd is not None


def _folder(lower: int, path: str) -> int | None:
    """A folder below, reached through no link; None where one stands on the way."""
    try:
        fd = syscalls.open_beneath(lower, os.fsencode(path), os.O_PATH)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _like(source: int, path: str) -> None:
    """Give the folder at `path` owner, mode, times and attributes of the one at `source`."""
    found = os.fstat(source)
    # An owner that this jail has no id for stays its own: nothing can be given to them.
    with contextlib.suppress(PermissionError, OverflowError):
        _chown(path, found)
    os.chmod(path, stat.S_IMODE(found.st_mode))
    inside = f"/proc/self/fd/{source}"
    try:
        for name in os.listxattr(inside):
            if name.startswith("user.") and not name.startswith("user.overlay."):
                os.setxattr(path, name, os.getxattr(inside, name))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EACCES, errno.EPERM):
            raise
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _chown(path: str, found: os.stat_result) -> None:
    try:
        os.chown(path, found.st_uid, found.st_gid)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
