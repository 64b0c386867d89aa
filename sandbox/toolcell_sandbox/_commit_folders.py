"""Folders below a root, each by a descriptor that was reached through no link and no mount."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from typing import Final, Self

from ._beneath import PATH_FLAGS, open_beneath

_KEPT: Final = 64
"""Descriptors at a time: fewer than the smallest usual limit leaves."""
GONE: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ESTALE, errno.EAGAIN}
)
"""What openat2(2) answers where the path is not the folder any more that it was."""


class Gone(Exception):
    """There is no folder at this path any more, or it is another one, a link or a mount."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Folders:
    """Opens each folder once, and again when it was closed to spare descriptors.

    A folder that is opened again must be the same: its device and inode are remembered.
    """

    def __init__(self, root: int, *, ours: bool = False) -> None:
        self._root = root
        # Invariant: only a tree that nobody else uses may have its modes changed to be read.
        self._ours = ours
        self._open: OrderedDict[str, int] = OrderedDict()
        self._known: dict[str, tuple[int, int]] = {}

    def at(self, path: str) -> int:
        """An O_PATH descriptor that is good until some dozens of others were asked for.

        Raises:
            Gone: the path leads to no folder, or not to the one that it led to.
            OSError: it may not be searched, or descriptors or memory have run out.
        """
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        fd = self._opened(path)
        if self._ours:
            _unlock(fd)
        found = os.fstat(fd)
        if self._known.setdefault(path, (found.st_dev, found.st_ino)) != (
            found.st_dev,
            found.st_ino,
        ):
            os.close(fd)
            raise Gone(path)
        self._open[path] = fd
        if len(self._open) > _KEPT:
            os.close(self._open.popitem(last=False)[1])
        return fd

    def of(self, path: str) -> tuple[int, str]:
        """The folder that a name lies in, and the name alone."""
        parent, _, name = path.rpartition("/")
        return self.at(parent), name

    def _opened(self, path: str) -> int:
        try:
            return open_beneath(self._root, path or ".", PATH_FLAGS | os.O_DIRECTORY)
        except PermissionError:
            if not self._ours:
                raise
        except OSError as error:
            if error.errno in GONE:
                raise Gone(path) from None
            raise
        return self._unlocked(path)

    def _unlocked(self, path: str) -> int:
        """The same, with every folder on the way made searchable for its owner."""
        fd = open_beneath(self._root, ".", PATH_FLAGS | os.O_DIRECTORY)
        for name in path.split("/"):
            try:
                inner = open_beneath(fd, name, PATH_FLAGS | os.O_DIRECTORY)
            except OSError as error:
                if error.errno in GONE:
                    raise Gone(path) from None
                raise
            finally:
                os.close(fd)
            fd = inner
            _unlock(fd)
        return fd

    def forget(self) -> None:
        """Close what is open; it can be asked for again."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()


def _unlock(fd: int) -> None:
    """Let the owner of a folder read and search it."""
    mode = os.fstat(fd).st_mode & 0o7777
    if mode & 0o500 != 0o500:
        os.chmod(f"/proc/self/fd/{fd}", mode | 0o500)
