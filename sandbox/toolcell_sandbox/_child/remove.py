"""Removing a folder that a jail has left behind, whatever it put there, in bounded memory."""

from __future__ import annotations

import contextlib
import os
import stat

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove `path` and all below it; no symlink is followed, and nothing in it is opened.

    Each folder's content is moved up to the top before the folder is removed: so a tree of any
    depth costs three descriptors and no recursion, and none of its long names is ever used.

    Raises:
        OSError: something stays, such as a file that was made immutable from outside.
    """
    os.chmod(path, 0o700)
    top = os.open(path, _FLAGS)
    try:
        moved = 0
        while names := os.listdir(top):
            for name in names:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                # No process is left that could put a link here by now.
                os.chmod(name, 0o700, dir_fd=top)
                moved = _lift(top, name, moved)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _lift(top: int, name: str, moved: int) -> int:
    """Move what is in a folder up to the top, under names that nothing there has."""
    folder = os.open(name, _FLAGS, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            kind = os.lstat(inner, dir_fd=folder).st_mode
            if not stat.S_ISDIR(kind):
                os.unlink(inner, dir_fd=folder)
                continue
            # A folder that is moved has its `..` rewritten: that needs to write to it.
            os.chmod(inner, 0o700, dir_fd=folder)
            while True:
                moved += 1
                with contextlib.suppress(FileExistsError, NotADirectoryError):
                    if not _is_there(f"{moved}", top):
                        os.rename(inner, f"{moved}", src_dir_fd=folder, dst_dir_fd=top)
                        break
    finally:
        os.close(folder)
    return moved


def _is_there(name: str, folder: int) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
