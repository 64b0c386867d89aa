"""Folders of the host as a jail sees them through an overlay, without what is masked in them.

           jail sees     overlay (userxattr)
              ▲          ├── upper   on the jail's sized scratch: all that it changes; or none
              │          ├── masks   a whiteout for each name that is absent for the jail
              │          └── below   the host's folder, read-only, by a mount of its own

A whiteout is a name, not a file: whoever replaces the masked file meanwhile changes nothing. The
layers lie below a folder that is covered, so that a worker of the same uid cannot reach them; their
paths are readable in mountinfo, and so tell nothing. See the kernel's overlayfs documentation.
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
_SAFE = syscalls.MS_NOSUID | syscalls.MS_NODEV


class Layers:
    """The layers of an overlay that is still to be laid: where they lie, where it belongs."""

    def __init__(
        self, path: str, number: int, below: int, like: object, *, keeps: bool
    ) -> None:
        self.path = path
        self.number = number
        # How the folder below looked when the layers were made to look like it.
        self.like = like
        self.below = below
        # Whether there is an upper layer.
        self.keeps = keeps
        # What ids in the upper layer stand for, where the jail has ids of its own.
        self.owners: dict[str, Any] = {}
        # From `arrange` on: where they lie, what the overlay covers, and its upper layer.
        self.inside = ""
        self.target = -1
        self.upper: int | None = None


def prepare(scratch: str, number: int, entry: dict[str, Any], below: int) -> Layers:
    """Lay out the layers over the detached tree `below`, which is attached.

    `scratch` is the folder of the jail's sized tmpfs.
    """
    place = f"{scratch}/l{number}"
    with stage("paths_masked", "overlay"):
        os.mkdir(place)
        syscalls.mount("layers", place, "tmpfs", _SAFE, "mode=0700,nr_inodes=8")
        for name in ("m", "w"):
            os.mkdir(f"{place}/{name}")
        target = syscalls.open_exactly(f"{place}/w")
        syscalls.move_tree(below, target)
        os.close(target)
        like = _look(below)
        _like(below, f"{place}/m")
    if entry["keeps"]:
        with stage("writes_transactional", "overlay"):
            for name in (f"u{number}", f"k{number}"):
                os.mkdir(f"{scratch}/{name}")
            _check_attributes(f"{scratch}/u{number}")
            _like(below, f"{scratch}/u{number}")
    return Layers(entry["path"], number, below, like, keeps=entry["keeps"])


def arrange(layers: Layers, scratch: int) -> None:
    """Open all that laying them takes, once the root stands.

    `scratch` is open at what `prepare` was given.
    """
    layers.inside = f"/proc/self/fd/{scratch}"
    with stage("writes_transactional", "overlay"):
        layers.target = syscalls.open_exactly(layers.path)
        if layers.keeps:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            layers.upper = os.open(f"{layers.inside}/u{layers.number}", flags)


def lay(layers: Layers, masks: list[str]) -> None:
    """Mount the overlay where it belongs, and let go of all but its upper layer.

    Without what is named in `masks`, by paths relative to the overlay.
    """
    inside, number = layers.inside, layers.number
    place = f"{inside}/l{number}"
    is_like = _look(layers.below) == layers.like
    if masks or not is_like:
        with stage("paths_masked", "overlay"):
            if masks:
                inodes = 8 + sum(path.count("/") + 1 for path in masks)
                flags = syscalls.MS_REMOUNT | _SAFE
                syscalls.mount(None, place, None, flags, f"nr_inodes={inodes}")
            _mask(f"{place}/m", layers.below, masks)
    data = f"lowerdir={place}/m:{place}/w,userxattr"
    with stage("writes_transactional", "overlay"):
        if layers.keeps:
            path = f"{inside}/u{number}"
            data += f",upperdir={path},workdir={inside}/k{number}"
            if not is_like:
                _like(layers.below, path)
        syscalls.mount("workspace", f"/proc/self/fd/{layers.target}", "overlay", _SAFE, data)
    os.close(layers.target)
    os.close(layers.below)


def _check_attributes(path: str) -> None:
    """Refuse a tmpfs where a folder that is deleted and made again could not be marked."""
    try:
        os.setxattr(path, _PROBE, b"1")
        os.removexattr(path, _PROBE)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        cause = "this kernel's tmpfs keeps no user extended attributes"
        raise StageFailed("writes_transactional", "overlay", cause, error.errno) from error


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


def _look(source: int) -> object:
    """What `_like` takes over; whatever changes any of it changes the last (inode(7), st_ctime)."""
    found = os.fstat(source)
    return found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_ctime_ns


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
