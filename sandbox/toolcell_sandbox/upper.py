"""What a call left in its upper layer, held against the real workspace: the change set.

It is read after the last process of the call is dead, by descriptor: the layer's content is still
the worker's, with names, links, modes, times and attributes of its choice, and meanwhile others
write in the real workspace. Nothing here writes below; `_upper_walk.py` has the rules.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable

from ._beneath import open_beneath, reopen
from ._upper_entry import CHUNK_BYTES
from ._upper_layer import Layer, Marker, TooMany
from ._upper_walk import Walk
from .changeset import ChangeSet

__all__ = ["Layer", "Marker", "TooMany", "changes_of", "content_hashes", "open_file"]


def changes_of(
    layer: Layer,
    workspace_fd: int,
    workspace: str,
    *,
    entries_max: int = 1_000_000,
    check: Callable[[], object] = lambda: None,
) -> ChangeSet:
    """The change set of a jail that has ended; once for each layer.

    Once, since what the worker made unreadable is made readable for its owner as it is found, in
    the layer only: a second look would take the modes that this has set for the worker's.

    Whiteouts and opaque folders are expanded to every name in the real workspace, as it is now.
    Files of equal size are compared byte by byte, whatever their times say, except masked names,
    which always count as changed. The workspace's own folder is not part of the set: its mode,
    owner and attributes stay as they are. In doubt a name is changed, in conflict, or a problem.

    `conflicts` go by ctime (no program can set it back) against the layer's marker. For what has
    vanished below there is no ctime: a file that the call had from below, and where nothing is now,
    is a conflict if the real folder changed since, unless the call itself moved it there.

    `check` is called at least once for each folder, each 256 names and each MiB that is compared;
    what it raises ends the walk.

    Raises:
        TooMany: more than `entries_max` names in the layer, and below what it hides.
        OSError: the layer or the workspace cannot be read for a reason that is none of its content.
    """
    walk = Walk(layer, workspace_fd, workspace, entries_max=entries_max, check=check)
    return walk.run()


def content_hashes(
    layer: Layer, changes: ChangeSet, *, check: Callable[[], object] = lambda: None
) -> dict[str, str]:
    """The SHA-256 of each file that is new or whose bytes changed, by path, in hexadecimal.

    `changes` are this layer's, from `changes_of`. `check` is called for each MiB.

    Raises:
        OSError: the layer cannot be read, or is not the one that `changes` come from.
    """
    hashes: dict[str, str] = {}
    known: dict[tuple[int, int], str] = {}
    for change in changes.changes:
        after = change.after
        if after is None or after.kind != "file" or not change.content_changed:
            continue
        if (found := known.get(after.inode)) is None:
            found = _hash(layer.fd, change.path, check)
            if after.links > 1:
                known[after.inode] = found
        hashes[change.path] = found
    return hashes


def open_file(layer_fd: int, path: str) -> int:
    """A descriptor to read from, of one regular file in the layer; it never blocks.

    Raises:
        OSError: EINVAL where it is no regular file, else as open(2) says; ELOOP for a symlink on
            the way, EXDEV for a path that leads out.
    """
    looked = open_beneath(layer_fd, path, os.O_PATH | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(looked).st_mode):
            raise OSError(errno.EINVAL, "no regular file", path)
        return reopen(looked)
    finally:
        os.close(looked)


def _hash(layer_fd: int, path: str, check: Callable[[], object]) -> str:
    found = hashlib.sha256()
    fd = open_file(layer_fd, path)
    try:
        while True:
            check()
            chunk = os.read(fd, CHUNK_BYTES)
            if not chunk:
                return found.hexdigest()
            found.update(chunk)
    finally:
        os.close(fd)
