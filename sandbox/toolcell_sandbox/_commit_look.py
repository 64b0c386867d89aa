"""Whether what lies in the workspace is still what the call saw, and is ours where we think so."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping

from ._beneath import PATH_FLAGS, kind_of, open_beneath, reopen
from ._commit_folders import GONE, Folders, Gone
from ._commit_kernel import is_open_for_writing, look
from ._commit_plan import Plan, Root
from .changeset import Change, Entry

Check = Callable[[], None]


def same(entry: Entry, found: os.stat_result) -> bool:
    """Whether a file is the one that was seen, untouched: the ctime tells, which nobody can set."""
    return moved_same(entry, found) and found.st_ctime_ns == entry.ctime_ns


def moved_same(entry: Entry, found: os.stat_result) -> bool:
    """The same of a file that we have renamed, which changes its ctime."""
    return (
        kind_of(found) == entry.kind
        and (found.st_dev, found.st_ino) == entry.inode
        and found.st_size == entry.size_bytes
        and found.st_mtime_ns == entry.mtime_ns
    )


def same_folder(entry: Entry, found: os.stat_result) -> bool:
    """Whether a folder is the one that was seen, with its mode and owner.

    Its times say nothing: other people's temporaries, and ours, come and go in it. What it holds
    is compared name by name where that matters.
    """
    return (
        kind_of(found) == entry.kind == "folder"
        and (found.st_dev, found.st_ino) == entry.inode
        and found.st_mode & 0o7777 == entry.mode
        and (found.st_uid, found.st_gid) == (entry.uid, entry.gid)
    )


def clashes(plan: Plan, workspace: Folders, check: Check) -> Iterator[str]:
    """Every path that is not as the call saw it.

    What was there must be there, and nobody have it open for writing; what was created must be
    absent; a folder that goes must hold the names that are known to go, and no other.
    """
    for change in plan.changes:
        check()
        parent = change.path.rpartition("/")[0]
        if parent in plan.new_folders:
            continue
        try:
            folder, name = workspace.of(change.path)
            found = look(folder, name)
            if not _as_seen(change, found):
                yield change.path
            elif change.path in plan.gone_folders:
                yield from _unexpected(change.path, workspace, plan.gone_folders)
            elif found is not None and stat.S_ISREG(found.st_mode) and busy(folder, name):
                yield change.path
        except Gone:
            yield change.path


def verify_displaced(
    root: Root, plan: Plan, parent: int, temporary: str, check: Check
) -> Iterator[str]:
    """Every path of a displaced tree that is not what was looked at before it was moved aside.

    By now no path leads to it that anybody knows: who opens it for writing had it before.
    """
    with Displaced(root, parent, temporary) as displaced:
        for change in root.outgoing:
            check()
            try:
                folder, name = displaced.of(change.path)
                found = look(folder, name)
                if found is None or change.before is None:
                    yield change.path
                elif stat.S_ISDIR(found.st_mode):
                    if not same_folder(change.before, found):
                        yield change.path
                    else:
                        inner = displaced.at(change.path)
                        yield from _others(change.path, inner, plan.gone_folders)
                elif not moved_same(change.before, found) or (
                    stat.S_ISREG(found.st_mode) and busy(folder, name)
                ):
                    yield change.path
            except Gone:
                yield change.path


class Displaced(Folders):
    """A tree that was moved aside, by the paths that it had before."""

    def __init__(self, root: Root, parent: int, temporary: str) -> None:
        super().__init__(parent)
        self._path, self._temporary = root.change.path, temporary

    def at(self, path: str) -> int:
        """As `Folders.at`, by the path before."""
        if path == self._path.rpartition("/")[0]:
            return super().at("")
        return super().at(self._temporary + path[len(self._path) :])

    def of(self, path: str) -> tuple[int, str]:
        """As `Folders.of`, by the path before."""
        if path == self._path:
            return super().at(""), self._temporary
        parent, _, name = path.rpartition("/")
        return self.at(parent), name


def busy(folder: int, name: str) -> bool:
    """Whether somebody has this regular file open for writing, or it is none any more."""
    try:
        held = open_beneath(folder, name, PATH_FLAGS)
    except OSError as error:
        if error.errno in GONE:
            return True
        raise
    try:
        return not stat.S_ISREG(os.fstat(held).st_mode) or is_open_for_writing(held)
    finally:
        os.close(held)


def digest(parent: int, name: str) -> str:
    """One name for a tree as we have made it: its names, kinds, sizes, targets, files' mtimes.

    Not the folders' own times, nor modes: who only looks at a tree changes neither. A folder that
    we may not list counts as that.
    """
    told = hashlib.sha256()
    with Folders(parent) as folders:
        waiting = [name]
        while waiting:
            path = waiting.pop()
            try:
                folder, last = folders.of(path)
                found = look(folder, last)
            except Gone:
                found = None
            if found is None:
                told.update(b"absent\0")
                continue
            kind = kind_of(found)
            told.update(os.fsencode(path[len(name) :]) + b"\0" + kind.encode() + b"\0")
            if kind == "folder":
                try:
                    waiting += (f"{path}/{one}" for one in sorted(names_in(folders.at(path))))
                except PermissionError:
                    told.update(b"closed\0")
                continue
            if kind == "symlink":
                told.update(os.fsencode(os.readlink(last, dir_fd=folder)))
            told.update(f"{found.st_size} {found.st_mtime_ns}\0".encode())
    return told.hexdigest()


def names_in(folder: int) -> list[str]:
    """What a folder that is held by O_PATH holds."""
    fd = reopen(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _as_seen(change: Change, found: os.stat_result | None) -> bool:
    if change.before is None or found is None:
        return change.before is None and found is None
    if change.before.kind == "folder":
        return same_folder(change.before, found)
    return same(change.before, found)


def _unexpected(path: str, workspace: Folders, gone: Mapping[str, frozenset[str]]) -> Iterator[str]:
    yield from _others(path, workspace.at(path), gone)


def _others(path: str, folder: int, gone: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Names in a folder that goes which nobody has agreed to; those that lack are seen so."""
    for name in sorted(names_in(folder)):
        if name not in gone[path]:
            yield f"{path}/{name}"
