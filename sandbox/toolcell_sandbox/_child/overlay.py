"""Folders of the host as a jail sees them through an overlay, without what is masked in them.

           jail sees     overlay (userxattr)
              ▲          ├── upper   s/u0, on the jail's sized scratch: all that it changes; or none
              │          ├── masks   s/l0/m, a whiteout for each name that is absent for the jail
              │          └── below   h0, the host's folder, read-only, by a mount of its own

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


OWN = "s"
"""In a scratch folder, what a call has of its own; beside it lies what it shares with others."""


class Layers:
    """The layers of an overlay that is still to be laid: where they lie, where it belongs."""

    def __init__(self, path: str, number: int, name: str, below: int) -> None:
        self.path = path
        self.number = number
        # The folder below: its name in the scratch folder, how it looked when the layers were made
        # to look like it.
        self.name = name
        self.below = below
        self.like = _look(below)
        # Whether there is an upper layer.
        self.keeps = False
        # What ids in the upper layer stand for, where the jail has ids of its own.
        self.owners: dict[str, Any] = {}
        # From `arrange` on: the folder of its layers, how they are mounted, what the overlay
        # covers, and its upper layer.
        self.own = ""
        self.data = ""
        self.target = -1
        self.upper: int | None = None


def prepare(
    scratch: str, number: int, path: str, name: str, *, keeps: bool, owners: dict[str, Any]
) -> Layers:
    """Lay out the layers over what is mounted at `name` in the scratch folder."""
    own = f"{scratch}/{OWN}"
    with stage("paths_masked", "overlay"):
        os.mkdir(f"{own}/l{number}")
        syscalls.mount("layers", f"{own}/l{number}", "tmpfs", _SAFE, "mode=0700,nr_inodes=8")
        os.mkdir(f"{own}/l{number}/m")
        below = os.open(f"{scratch}/{name}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        layers = Layers(path, number, name, below)
        layers.keeps, layers.owners = keeps, owners
        _like(below, f"{own}/l{number}/m")
    if keeps:
        with stage("writes_transactional", "overlay"):
            for folder in (f"{own}/u{number}", f"{own}/k{number}"):
                os.mkdir(folder)
            _check_attributes(f"{own}/u{number}")
            _like(below, f"{own}/u{number}")
    return layers


def arrange(layers: Layers, inside: str) -> None:
    """Open all that laying them takes, once the root stands; `inside` is the scratch folder."""
    own, number = f"{inside}/{OWN}", layers.number
    layers.own = own
    layers.data = f"lowerdir={own}/l{number}/m:{inside}/{layers.name},userxattr"
    with stage("writes_transactional", "overlay"):
        layers.target = syscalls.open_exactly(layers.path)
        if layers.keeps:
            layers.data += f",upperdir={own}/u{number},workdir={own}/k{number}"
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            layers.upper = os.open(f"{own}/u{number}", flags)


def lay(layers: Layers, masks: list[str]) -> None:
    """Mount the overlay where it belongs, and let go of all but its upper layer.

    Without what is named in `masks`, by paths relative to the overlay.
    """
    is_like = _look(layers.below) == layers.like
    if masks or not is_like:
        place = f"{layers.own}/l{layers.number}"
        with stage("paths_masked", "overlay"):
            if masks:
                inodes = 8 + sum(path.count("/") + 1 for path in masks)
                flags = syscalls.MS_REMOUNT | _SAFE
                syscalls.mount(None, place, None, flags, f"nr_inodes={inodes}")
            _mask(f"{place}/m", layers.below, masks)
    with stage("writes_transactional", "overlay"):
        if layers.keeps and not is_like:
            _like(layers.below, f"{layers.own}/u{layers.number}")
        _mount(layers, layers.target)
    os.close(layers.target)
    os.close(layers.below)


def rehearse(layers: Layers) -> None:
    """Do what `lay` does, where there is nothing to mount it on."""
    _look(layers.below)
    with contextlib.suppress(OSError):
        _mount(layers, -1)


def _mount(layers: Layers, target: int) -> None:
    syscalls.mount("workspace", f"/proc/self/fd/{target}", "overlay", _SAFE, layers.data)


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
