"""Content, attributes, owner, mode and times of one staged name."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from typing import Final

from ._beneath import PATH_FLAGS, kind_of, open_beneath, reopen
from ._commit_folders import GONE, Folders, Gone
from ._commit_kernel import NO_SUCH_CALL, REFUSED
from ._commit_look import Check
from ._commit_results import Refusal
from .changeset import Entry

_CHUNK_BYTES: Final = 8 << 20
_SMALL_BYTES: Final = 64 << 10
_FALL_BACK: Final = NO_SUCH_CALL | {errno.EXDEV, errno.EBADF}
_OURS: Final = ("user.overlay.", "trusted.overlay.")
"""The overlay's own bookkeeping: on another tree it would be believed."""
_ACL: Final = "system.posix_acl_access"
_NEVER_CARRIED: Final = frozenset({"security.capability", "security.ima", "security.evm"})
"""What the kernel itself takes from a file whose content changes, or computes over it."""
TOO_MUCH: Final = frozenset({errno.ENOSPC, errno.E2BIG, errno.ERANGE, errno.EOPNOTSUPP})
"""What setxattr(2) answers where a file system has no room for an attribute, or keeps none."""


def open_layer(layer: Folders, path: str, entry: Entry) -> int:
    """A regular file of the layer, for reading; refused where it is not what was judged.

    A file without read permission for its owner is given it: the layer is nobody's but ours, and
    modes come from the change set.

    Raises:
        OSError: ESTALE where there is no such file, or one of another size.
    """
    try:
        folder, name = layer.of(path)
        held = open_beneath(folder, name, PATH_FLAGS)
    except Gone:
        raise OSError(errno.ESTALE, "the layer has no such file", path) from None
    except OSError as error:
        if error.errno in GONE:
            raise OSError(errno.ESTALE, "the layer has no such file", path) from None
        raise
    try:
        found = os.fstat(held)
        if kind_of(found) != "file" or found.st_size != entry.size_bytes:
            raise OSError(errno.ESTALE, "the layer's file is not the one that was judged", path)
        try:
            return reopen(held, os.O_RDONLY)
        except PermissionError:
            os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(found.st_mode) | stat.S_IRUSR)
            return reopen(held, os.O_RDONLY)
    finally:
        os.close(held)


def copy_content(source: int, target: int, size_bytes: int, check: Check) -> None:
    """All bytes of one file into another that is empty, holes as holes.

    Raises:
        OSError: ENOSPC and its like; ESTALE where the source ends before `size_bytes`.
    """
    if size_bytes <= _SMALL_BYTES:
        data = os.pread(source, size_bytes + 1, 0)
        if len(data) != size_bytes:
            raise OSError(errno.ESTALE, "the layer's file has another size than was judged")
        _write_at(target, data, 0)
        return
    os.ftruncate(target, size_bytes)
    position = 0
    while position < size_bytes:
        start, end = _extent(source, position, size_bytes)
        while start < end:
            check()
            count = _copy_some(source, target, start, min(end - start, _CHUNK_BYTES))
            if count == 0:
                raise OSError(errno.ESTALE, "the layer's file has another size than was judged")
            start += count
        position = end


def _extent(source: int, position: int, size_bytes: int) -> tuple[int, int]:
    """The next stretch of data; empty, at the end, where only a hole is left (lseek(2))."""
    try:
        start = os.lseek(source, position, os.SEEK_DATA)
        return start, min(size_bytes, os.lseek(source, start, os.SEEK_HOLE))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size_bytes, size_bytes
        if error.errno == errno.EINVAL:
            return position, size_bytes
        raise


def _copy_some(source: int, target: int, offset: int, count: int) -> int:
    """Copied in the kernel where it can be, and some bytes at least."""
    try:
        return os.copy_file_range(source, target, count, offset, offset)
    except OSError as error:
        if error.errno not in _FALL_BACK:
            raise
    try:
        os.lseek(target, offset, os.SEEK_SET)
        return os.sendfile(target, source, offset, count)
    except OSError as error:
        if error.errno not in _FALL_BACK:
            raise
    data = os.pread(source, min(count, 1 << 20), offset)
    _write_at(target, data, offset)
    return len(data)


def _write_at(target: int, data: bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(target, left, offset)
        left, offset = left[written:], offset + written


def user_attributes(where: int | str) -> dict[str, bytes]:
    """The `user.*` attributes of a file or folder, but for the overlay's own."""
    return {
        name: os.getxattr(where, name)
        for name in _list(where)
        if name.startswith("user.") and not name.startswith(_OURS)
    }


def carry_attributes(old: str, new: int) -> None:
    """Give a new file what the one that it replaces has, beside content and `user.*`.

    An access list is given back or the commit fails, and one that only the folder's default has
    given to the new file goes. A security label or `trusted.*` that we may not set stays as the
    system chose it for the new file. File capabilities and integrity hashes are not carried over:
    a write takes them too.
    """
    had = {name for name in _list(old) if not name.startswith(("user.", *_OURS))}
    for name in sorted(had - _NEVER_CARRIED):
        try:
            os.setxattr(new, name, os.getxattr(old, name))
        except OSError as error:
            if name == _ACL or error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EACCES):
                raise
    if _ACL not in had and _ACL in _list(new):
        os.removexattr(new, _ACL)


def _list(where: int | str) -> list[str]:
    try:
        return os.listxattr(where)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise


def give_owner(
    where: int | str, found: os.stat_result, wanted: tuple[int, int], *, group: bool = True
) -> tuple[int, int] | None:
    """Owner and group as wanted where we may; None, or the ids that we could not give.

    `where` is a descriptor, or the path of one under /proc/self/fd. Without `group`, the group
    stays what the kernel chose, as in a setgid folder.
    """
    uid = -1 if found.st_uid == wanted[0] else wanted[0]
    gid = -1 if found.st_gid == wanted[1] or not group else wanted[1]
    # A group that we are a member of can be given without the owner.
    for one in ((uid, gid), (-1, gid)):
        if one == (-1, -1):
            break
        try:
            os.chown(where, *one)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        else:
            return None if one[0] == uid else (uid, -1)
    return None if (uid, gid) == (-1, -1) else (uid, gid)


def not_ours_to_give(path: str, ids: tuple[int, int], workspace: str) -> Refusal:
    """Whose it was, and what helps."""
    uid, gid = ids
    whose = [f"group {gid}"] if gid != -1 else []
    whose += [f"user {uid}"] if uid != -1 else []
    helps = f"chgrp -R {os.getegid()} {shlex.quote(workspace)}"
    if uid != -1:
        helps = f"chown -R {os.geteuid()}:{os.getegid()} {shlex.quote(workspace)}"
    return Refusal(
        path,
        f"{path!r} belongs to {' and '.join(whose)}, which only root can give to its new version. "
        f"As root: {helps}; or run toolcell as root.",
    )


def attributes_do_not_fit(path: str) -> Refusal:
    """A jail's own file system has room for more of them than ext4 has."""
    text = "extended attributes that the workspace's file system has no room for; remove them"
    return Refusal(path, f"{path!r} has {text}")
