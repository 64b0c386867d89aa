"""Removing a folder that a jail has left behind, whatever it put there, in bounded memory.

As a program, `python -I -S remove.py PATH`, it does so in a process of its own, and returns at
once: for a supervisor whose init was killed, and that has other calls to see to.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS, _PAUSE_S = 100, 0.1
"""For killed processes that are still ending: each may finish the call that it is in."""
_BATCH = 1_000
"""Entries that are looked at in one go: a folder may hold millions."""


def remove_tree(path: str, *, within_s: float | None = None) -> bool:
    """Remove `path` and all below it; no symlink is followed, and nothing in it is opened.

    Each folder's content is moved up to the top before the folder is removed: so a tree of any
    depth costs a few descriptors and no recursion, and none of its long names is ever used.
    False when it is not done within `within_s`: go on by calling it again.

    Raises:
        OSError: something stays, such as a file that was made immutable from outside.
    """
    deadline = None if within_s is None else time.monotonic() + within_s
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    os.chmod(path, 0o700)
    top = os.open(path, _FLAGS)
    try:
        # Not from 0: what an earlier attempt has moved up has such names already.
        names = itertools.count(time.monotonic_ns())
        while batch := _batch(top):
            for entry in batch:
                if deadline is not None and time.monotonic() > deadline:
                    return False
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=top)
                elif _lift(top, entry.name, names, deadline):
                    os.rmdir(entry.name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)
    return True


def _batch(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(itertools.islice(entries, _BATCH))


def _lift(top: int, name: str, names: itertools.count[int], deadline: float | None) -> bool:
    """Move the folders in a folder up to the top, and remove the rest; whether it is empty."""
    # No process is left that could put a link here by now.
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, _FLAGS, dir_fd=top)
    try:
        while batch := _batch(folder):
            for entry in batch:
                if deadline is not None and time.monotonic() > deadline:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    # A folder that is moved has its `..` rewritten: that needs to write to it.
                    os.chmod(entry.name, 0o700, dir_fd=folder)
                    place = f"{next(names)}"
                    os.rename(entry.name, place, src_dir_fd=folder, dst_dir_fd=top)
                else:
                    os.unlink(entry.name, dir_fd=folder)
    finally:
        os.close(folder)
    return True


def insist(path: str) -> None:
    """Remove `path` in the background, also beside somebody else who does."""
    os.setsid()
    os.nice(19)
    for _ in range(_ATTEMPTS):
        try:
            remove_tree(path)
        except OSError:
            # What is missing in it may be what another one has removed: the rest is still there.
            if not os.path.lexists(path):
                return
            time.sleep(_PAUSE_S)
        else:
            return


def main(path: str) -> None:
    """Remove `path` in a process of its own that nobody waits for."""
    if os.fork() == 0:
        insist(path)


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
