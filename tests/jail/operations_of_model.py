"""What a modelled call does: the same function in a jail, and on a plain folder beside it.

It runs as a `PythonHandler`, so it imports the standard library only. An operation is a list: its
name, paths, numbers. A path is hexadecimal, or is found when its turn comes, so that most find
something: `["file", n]`, `["folder", n]`, `["leaf", n]` or `["any", n]` is the nth of these that is
there, and `["new", n, NAME]` a name in the nth folder. Who runs it may have rights that a jail has
not, so it looks at the owner's permission bits itself, and refuses as the kernel would.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIRST_S = 1_000_000_000
"""Where the times begin that operations give; no clock says them any more."""


def run(
    operations: list[list[Any]], top: str | None = None, stale: tuple[int, ...] = ()
) -> list[str]:
    """Do all in order, below `top` or the working directory; how each ended, "ok" or an error.

    An overlay answers ESTALE where one link of a file is renamed to another, which does nothing
    elsewhere: of those in `stale` it is only looked whether that is what they are.
    """
    os.umask(0o022)
    base = os.fsencode(top or os.getcwd())
    ends = []
    for number, (name, *words) in enumerate(operations):
        paths = [_found(base, word) for word in words if not isinstance(word, int)]
        numbers = [word for word in words if isinstance(word, int)]
        try:
            if number in stale and name == "rename":
                linked = os.path.samefile(*(os.path.join(base, path) for path in paths))
                raise OSError(errno.ESTALE if linked else errno.EXDEV, "links")
            DO[name](base, *paths, *numbers)
            ends.append("ok")
        except OSError as error:
            ends.append(errno.errorcode.get(error.errno or 0, repr(error)))
    return ends


def _found(base: bytes, word: Any) -> bytes:
    """The path that a word of an operation stands for."""
    if isinstance(word, str):
        return bytes.fromhex(word)
    sort, number, *name = word
    folders, leaves = [b""], []
    for top, inner, files in os.walk(base):
        for one in inner + files:
            path = os.path.join(top, one)
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                folders.append(path[len(base) + 1 :])
            elif sort != "file" or stat.S_ISREG(mode):
                leaves.append(path[len(base) + 1 :])
    if sort == "new":
        parent = sorted(folders)[number % len(folders)]
        return os.path.join(parent, bytes.fromhex(name[0]))
    there = {"folder": folders[1:], "any": folders[1:] + leaves}.get(sort, leaves)
    return sorted(there)[number % len(there)] if there else b"nothing there"


def _at(base: bytes, path: bytes, *, changes: bool = True) -> bytes:
    """The full path; for one whose folder may be changed, unless `changes` is false."""
    *folders, _ = path.split(b"/")
    at = base
    for name in folders:
        at += b"/" + name
        found = os.lstat(at)
        if not stat.S_ISDIR(found.st_mode):
            raise OSError(errno.ENOTDIR, "no folder")
        if not found.st_mode & stat.S_IXUSR:
            raise OSError(errno.EACCES, "closed")
    if changes and not os.lstat(at).st_mode & stat.S_IWUSR:
        raise OSError(errno.EACCES, "closed")
    return base + b"/" + path


def _file(base: bytes, path: bytes) -> bytes:
    """The full path of a regular file that its owner may write to."""
    at = _at(base, path, changes=False)
    found = os.lstat(at)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "no regular file")
    if not found.st_mode & stat.S_IWUSR:
        raise OSError(errno.EACCES, "read-only")
    return at


def _stamped(at: bytes, second: int) -> None:
    """Give it a time of our own, or leave what the kernel gave it, if 0."""
    if second:
        os.utime(at, ns=(FIRST_S * 10**9, (FIRST_S + second) * 10**9 + second))


def write(base: bytes, path: bytes, size: int, letter: int, second: int) -> None:
    at = _at(base, path, changes=False)
    try:
        at = _file(base, path)
    except FileNotFoundError:
        at = _at(base, path)
    with open(at, "wb") as file:
        file.write(bytes([letter]) * size)
    _stamped(at, second)


def append(base: bytes, path: bytes, size: int, letter: int, second: int) -> None:
    at = _file(base, path)
    with open(at, "ab") as file:
        file.write(bytes([letter]) * size)
    _stamped(at, second)


def truncate(base: bytes, path: bytes, size: int, second: int) -> None:
    at = _file(base, path)
    os.truncate(at, size)
    _stamped(at, second)


def overwrite(base: bytes, path: bytes, offset: int, letter: int, second: int) -> None:
    """One byte in the midst of it, through a mapping of no other length."""
    at = _file(base, path)
    with open(at, "r+b") as file:
        file.seek(offset)
        file.write(bytes([letter]))
    _stamped(at, second)


def unlink(base: bytes, path: bytes) -> None:
    os.unlink(_at(base, path))


def rename(base: bytes, old: bytes, new: bytes) -> None:
    """Of what is no folder: of one it has to fall back to a copy, in an overlay."""
    source, target = _at(base, old), _at(base, new)
    if stat.S_ISDIR(os.lstat(source).st_mode):
        raise OSError(errno.EISDIR, "a folder")
    os.rename(source, target)


def mkdir(base: bytes, path: bytes, mode: int) -> None:
    at = _at(base, path)
    os.mkdir(at)
    os.chmod(at, mode)


def rmdir(base: bytes, path: bytes) -> None:
    os.rmdir(_at(base, path))


def rmtree(base: bytes, path: bytes) -> None:
    """In a fixed order, and ended by the first error: both sides stop at the same name."""
    at = _at(base, path)
    if not stat.S_ISDIR(os.lstat(at).st_mode):
        raise OSError(errno.ENOTDIR, "no folder")
    if os.lstat(at).st_mode & 0o500 != 0o500:
        raise OSError(errno.EACCES, "closed")
    for name in sorted(os.listdir(at)):
        inner = path + b"/" + name
        if stat.S_ISDIR(os.lstat(at + b"/" + name).st_mode):
            rmtree(base, inner)
        else:
            unlink(base, inner)
    os.rmdir(at)


def anew(base: bytes, path: bytes, mode: int) -> None:
    """`rm -r` and `mkdir`: what an overlay marks as opaque."""
    rmtree(base, path)
    mkdir(base, path, mode)


def symlink(base: bytes, path: bytes, target: bytes) -> None:
    os.symlink(target, _at(base, path))


def link(base: bytes, old: bytes, new: bytes) -> None:
    source = _at(base, old, changes=False)
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise OSError(errno.EINVAL, "no regular file")
    os.link(source, _at(base, new), follow_symlinks=False)


def chmod(base: bytes, path: bytes, mode: int) -> None:
    """A folder stays one that its owner can list."""
    at = _at(base, path, changes=False)
    found = os.lstat(at)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.EINVAL, "a link")
    os.chmod(at, mode | (0o500 if stat.S_ISDIR(found.st_mode) else 0o400))


def utime(base: bytes, path: bytes, second: int) -> None:
    at = _at(base, path, changes=False)
    if stat.S_ISLNK(os.lstat(at).st_mode):
        raise OSError(errno.EINVAL, "a link")
    _stamped(at, second)


def mkfifo(base: bytes, path: bytes) -> None:
    os.mkfifo(_at(base, path))


DO: dict[str, Any] = {
    one.__name__: one
    for one in (
        *(write, append, truncate, overwrite, unlink, rename, mkdir, rmdir, rmtree, anew),
        *(symlink, link, chmod, utime, mkfifo),
    )
}
