"""Paths that were decided on, opened in the jail with no link on the way.

Between a decision and its use there is always a moment, and others to use it: a file that was
judged can be a link to a secret by now. So the file tools do not open the name that they were
given, but the place that it led to when it was decided on, folder by folder, following nothing.
openat2(2) would do it in one call; a jail's filter has no such call.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from toolcell.markers import SETTLED

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHANGED = "a link stands there that was not there when it was decided on"


class Changed(OSError):
    """A link has come onto the way of a path since it was decided on."""

    def __init__(self) -> None:
        super().__init__(errno.ELOOP, CHANGED)


def place_of(path: str | os.PathLike[str]) -> str:
    """Where a path led when it was decided on; for one that nobody decided on, where it leads."""
    return SETTLED.get(os.fspath(path)) or os.path.realpath(path)


@contextlib.contextmanager
def parent_of(path: str | os.PathLike[str], *, make: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that a path lies in, and the path's name there.

    With `make`, folders that are missing are made.
    """
    *parts, name = place_of(path).strip("/").split("/")
    folder = os.open("/", _FOLDER)
    try:
        for part in parts:
            inner = _step(folder, part, make=make)
            os.close(folder)
            folder = inner
        yield folder, name or "."
    finally:
        os.close(folder)


def _step(folder: int, part: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
    try:
        return os.open(part, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        # So it is for a link as well (open(2), O_NOFOLLOW with O_DIRECTORY).
        if _is_link(folder, part):
            raise Changed from None
        raise


def _is_link(folder: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def open_settled(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of what a path led to.

    Raises:
        Changed: it is a link by now, or a link is on the way.
        OSError: as open(2).
    """
    with parent_of(path) as (folder, name):
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            if os.fspath(path) in SETTLED and _is_link(folder, name):
                raise Changed from None
            raise


def open_folder(path: str | os.PathLike[str]) -> int:
    """A descriptor of a folder, to be listed."""
    return open_settled(path, os.O_RDONLY | os.O_DIRECTORY)
