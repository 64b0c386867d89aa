"""One name at a time: what it is, its extended attributes, and whether two files hold the same."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ._beneath import kind_of, open_beneath, path_of, reopen
from .changeset import Entry

CHUNK_BYTES = 1 << 20

_OVERLAY = "user.overlay."
# Documentation/filesystems/overlayfs.rst, "User xattr", "Nesting overlayfs mounts": what a jail
# sets below the overlay's own prefix is stored with the prefix twice.
_ESCAPED = "user.overlay.overlay."
_OPAQUE, _ORIGIN = "user.overlay.opaque", "user.overlay.origin"
_PLAIN_MARKS = frozenset({_ORIGIN, "user.overlay.impure"})

_LABEL = "security.selinux"
_CAPABILITY = "security.capability"
_ACL = "system.posix_acl_"


class Unusable(Exception):
    """A name that cannot be looked at, or kept: what a `Problem` is made of."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def is_whiteout(found: os.stat_result) -> bool:
    """Whether it stands for a name that was removed (overlayfs.rst, "whiteouts")."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def entry_of(found: os.stat_result, target: str | None, *, uid: int, gid: int) -> Entry:
    """What stat(2) said, as plain data, with the ids of the host's disk."""
    return Entry(
        kind=kind_of(found),
        mode=stat.S_IMODE(found.st_mode),
        uid=uid,
        gid=gid,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        links=found.st_nlink,
        inode=(found.st_dev, found.st_ino),
        target=target,
    )


def look(folder_fd: int, name: str) -> int | None:
    """An O_PATH descriptor of one name in a folder of the real workspace; None: there is none.

    Raises:
        Unusable: another file system is mounted there, or we may not look.
        OSError: anything else, such as EIO or EMFILE.
    """
    try:
        return open_beneath(folder_fd, name, os.O_PATH | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if (problem := unusable(error)) is not None:
            raise problem from error
        raise


def unusable(error: OSError) -> Unusable | None:
    """The problem with a name of the workspace that an error at opening it stands for."""
    if error.errno == errno.EXDEV:
        return Unusable("submount", "another file system is mounted here")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Unusable("unreadable", "we may not look at what lies here")
    if error.errno == errno.ENAMETOOLONG:
        return Unusable("path_too_long", "the workspace's file system has no names that long")
    return None


def below_entry(fd: int) -> Entry:
    """What an O_PATH descriptor of the real workspace has open."""
    found = os.fstat(fd)
    # readlinkat(2): an empty name reads the link that the descriptor itself has open.
    target = os.readlink("", dir_fd=fd) if stat.S_ISLNK(found.st_mode) else None
    return entry_of(found, target, uid=found.st_uid, gid=found.st_gid)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Extended attributes, told apart. None as a value: it is there, and cannot be read."""

    user: Mapping[str, bytes | None]
    """`user.*` of anybody's."""
    other: Mapping[str, bytes | None]
    """What we cannot carry over: of other namespaces, or reserved for overlays."""
    copied_up: bool = False
    """Whether it was there before the call (overlayfs.rst, "origin")."""
    opaque: bool = False
    """Whether it hides what is below."""


NO_ATTRIBUTES = Attributes({}, {})


def attributes_of(path: str, *, in_layer: bool, follow: bool = False) -> Attributes:
    """The extended attributes of `path`; the overlay's own marks count only in the layer.

    Raises:
        Unusable: there are more than can be listed (xattr(7), 64 KiB), or in the layer there is a
            mark that no overlay of ours makes.
        OSError: it cannot be looked at at all.
    """
    user: dict[str, bytes | None] = {}
    other: dict[str, bytes | None] = {}
    copied_up = opaque = False
    try:
        names = os.listxattr(path, follow_symlinks=follow)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return NO_ATTRIBUTES
        if error.errno in (errno.E2BIG, errno.ERANGE):
            raise Unusable("attribute", "it has more extended attributes than fit a list") from None
        raise
    for name in names:
        if name.startswith(_OVERLAY) and not name.startswith(_ESCAPED):
            if not in_layer:
                continue
            copied_up = copied_up or name == _ORIGIN
            if name == _OPAQUE and _value(path, name, follow) == b"y":
                opaque = True
            elif name not in _PLAIN_MARKS:
                raise Unusable("attribute", f"no overlay of ours sets {name} like this")
            continue
        kept = user if name.startswith("user.") and not name.startswith(_ESCAPED) else other
        kept[name] = _value(path, name, follow)
    return Attributes(user, other, copied_up, opaque)


def _value(path: str, name: str, follow: bool) -> bytes | None:
    try:
        return os.getxattr(path, name, follow_symlinks=follow)
    except OSError:
        return None


def differing(left: Attributes, below: Attributes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The `user.*` names that differ, and the others that do and cannot be carried over.

    A label of SELinux is the kernel's to give, and so are the access lists of what is new. What
    could not be read differs. File capabilities of what is replaced always tell: they were given
    to other bytes.
    """
    if not (left.user or left.other or below.user or below.other):
        return (), ()
    others = {*left.other, *below.other} - {_LABEL}
    if not left.copied_up:
        others = {n for n in left.other if n != _LABEL and not n.startswith(_ACL)}
        others |= {_CAPABILITY} & {*below.other}
    return _unequal(left.user, below.user, {*left.user, *below.user}), _unequal(
        left.other, below.other if left.copied_up else {}, others
    )


def _unequal(
    left: Mapping[str, bytes | None], below: Mapping[str, bytes | None], names: set[str]
) -> tuple[str, ...]:
    return tuple(
        sorted(n for n in names if (value := left.get(n)) is None or value != below.get(n))
    )


def same_bytes(layer_fd: int, name: str, below_fd: int, check: Callable[[], object]) -> bool:
    """Whether a file of the layer and one of the workspace hold the same; where in doubt, not.

    Times prove nothing here: a hostile call sets them back. `below_fd` is an O_PATH descriptor of
    a regular file; one that we may not read is in doubt.
    """
    try:
        below = reopen(below_fd)
    except OSError:
        return False
    try:
        left = open_beneath(layer_fd, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return _same(left, below, check)
        finally:
            os.close(left)
    finally:
        os.close(below)


def _same(left: int, below: int, check: Callable[[], object]) -> bool:
    while True:
        check()
        chunk = os.read(left, CHUNK_BYTES)
        if os.read(below, len(chunk) or 1) != chunk:
            return False
        if not chunk:
            return True


def layer_path(layer_fd: int, name: str) -> str:
    """A path of one name in a folder of the layer, for calls that take no descriptor."""
    return f"{path_of(layer_fd)}/{name}"
