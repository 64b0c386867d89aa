"""Making all that a commit brings ready, under temporary names beside the targets."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final

from ._beneath import PATH_FLAGS, kind_of, open_beneath, reopen
from ._commit_copy import (
    TOO_MUCH,
    attributes_do_not_fit,
    carry_attributes,
    copy_content,
    give_owner,
    not_ours_to_give,
    open_layer,
    user_attributes,
)
from ._commit_folders import Folders, Gone
from ._commit_journal import Journal, Operation, Staged
from ._commit_kernel import fsync_folder, syncfs
from ._commit_look import Check, digest
from ._commit_plan import Plan, Root
from ._commit_results import Clash
from .changeset import Change, Entry

FEW: Final = 64
"""Up to so many names are synced one by one; beyond, one syncfs(2) costs less."""


class Stage:
    """Stages the content of a plan, and knows where each name lies until it is published.

    Modes, owners and times are the change set's, never the layer's. No file is ever setuid or
    setgid. What is being filled is for its owner alone.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        workspace: int,
        layer: Folders,
        check: Check,
    ) -> None:
        self._plan, self._journal, self._workspace = plan, journal, workspace
        self._layer, self._check = layer, check
        # Invariant: each name that comes, by its path, to the path that it is staged at.
        self._places: dict[str, str] = {}
        incoming = sum(len(root.incoming) for root in plan.roots)
        self._one_by_one = incoming <= FEW
        self._targets = Folders(workspace)
        self._real = Folders(workspace)

    def fill(self) -> dict[int, Staged]:
        """Make everything, and have it on disk.

        Raises:
            Clash: a folder that it goes into is not there any more.
            Refusal: a file's owner cannot be given back.
            OSError: a full disk and its like.
        """
        with self._targets, self._real:
            try:
                return self._filled()
            except Gone as error:
                raise Clash(error.path) from None

    def _filled(self) -> dict[int, Staged]:
        links: list[Change] = []
        for operation, root in zip(self._journal.operations, self._plan.roots, strict=False):
            for change in root.incoming:
                self._check()
                self._places[change.path] = self._place(operation, root, change)
                if change.path in self._plan.sources:
                    links.append(change)
                else:
                    self._make(change)
        for change in links:
            self._check()
            self._link(change)
        for root in self._plan.roots:
            for change in reversed(root.incoming):
                if change.after is not None and change.after.kind == "folder":
                    self._finish_folder(change.path, change.after)
        return self._synced()

    def _place(self, operation: Operation, root: Root, change: Change) -> str:
        parent = operation.parent + "/" if operation.parent else ""
        return parent + self._journal.temporary(operation) + change.path[len(root.change.path) :]

    def _make(self, change: Change) -> None:
        entry = _after(change)
        folder, name = self._targets.of(self._places[change.path])
        if entry.kind == "file":
            self._make_file(change, entry, folder, name)
            return
        if entry.kind == "folder":
            # The mode that it ends with comes when it is full.
            os.mkdir(name, 0o700, dir_fd=folder)
        elif entry.kind == "symlink":
            os.symlink(entry.target or "", name, dir_fd=folder)
        elif entry.kind == "fifo":
            os.mkfifo(name, 0o600, dir_fd=folder)
        else:
            raise ValueError(f"{change.path!r}: a {entry.kind} is never kept")
        held = open_beneath(folder, name, PATH_FLAGS)
        try:
            found = os.fstat(held)
            if kind_of(found) != entry.kind:
                raise Clash(change.path)
            if entry.kind != "folder":
                here = f"/proc/self/fd/{held}"
                give_owner(
                    here, found, (entry.uid, entry.gid), group=self._group_is_ours(change, folder)
                )
                if entry.kind == "fifo":
                    os.chmod(here, entry.mode & 0o1777)
                _set_mtime(entry, found, name, folder)
        finally:
            os.close(held)

    def _make_file(self, change: Change, entry: Entry, folder: int, name: str) -> None:
        source = open_layer(self._layer, change.path, entry)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=folder)
            try:
                copy_content(source, fd, entry.size_bytes, self._check)
                _set_attributes(fd, change.path, user_attributes(source))
                replaces = change.before is not None and change.before.kind == "file"
                if replaces:
                    self._carry(change.path, fd)
                found = os.fstat(fd)
                missed = give_owner(
                    fd, found, (entry.uid, entry.gid), group=self._group_is_ours(change, folder)
                )
                if missed is not None and replaces:
                    raise not_ours_to_give(change.path, missed, self._journal.workspace)
                os.fchmod(fd, entry.mode & 0o1777)
                os.utime(fd, ns=(found.st_atime_ns, entry.mtime_ns))
                if self._one_by_one:
                    os.fsync(fd)
            finally:
                os.close(fd)
        finally:
            os.close(source)

    def _carry(self, path: str, fd: int) -> None:
        try:
            folder, name = self._real.of(path)
            held = open_beneath(folder, name, PATH_FLAGS)
        except (Gone, FileNotFoundError):
            raise Clash(path) from None
        try:
            if not stat.S_ISREG(os.fstat(held).st_mode):
                raise Clash(path)
            carry_attributes(f"/proc/self/fd/{held}", fd)
        finally:
            os.close(held)

    def _group_is_ours(self, change: Change, folder: int) -> bool:
        """Whether the group is for us to set: not for a new name in a setgid folder."""
        return change.before is not None or not os.fstat(folder).st_mode & stat.S_ISGID

    def _link(self, change: Change) -> None:
        source = self._plan.sources[change.path]
        if source in self._places:
            held = self._open(self._targets, self._places[source])
        else:
            held = self._open(self._real, source)
        try:
            found, entry = os.fstat(held), _after(change)
            if kind_of(found) != "file" or (
                # The real file, which the call has not changed: by these it is known.
                source not in self._places
                and (found.st_size, found.st_mtime_ns) != (entry.size_bytes, entry.mtime_ns)
            ):
                raise Clash(source)
            folder, name = self._targets.of(self._places[change.path])
            os.link(f"/proc/self/fd/{held}", name, dst_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(held)

    def _open(self, folders: Folders, path: str) -> int:
        try:
            folder, name = folders.of(path)
            return open_beneath(folder, name, PATH_FLAGS)
        except (Gone, FileNotFoundError):
            raise Clash(path) from None

    def _finish_folder(self, path: str, entry: Entry) -> None:
        parent = self._targets.of(self._places[path])[0]
        inherits = os.fstat(parent).st_mode & stat.S_ISGID
        held = self._targets.at(self._places[path])
        fd = reopen(held, os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = os.fstat(fd)
            _set_attributes(fd, path, self._layer_attributes(path))
            give_owner(fd, found, (entry.uid, entry.gid), group=not inherits)
            os.fchmod(fd, entry.mode & 0o3777 | inherits)
            os.utime(fd, ns=(found.st_atime_ns, entry.mtime_ns))
            if self._one_by_one:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _layer_attributes(self, path: str) -> dict[str, bytes]:
        try:
            return user_attributes(f"/proc/self/fd/{self._layer.at(path)}")
        except Gone:
            return {}

    def _synced(self) -> dict[int, Staged]:
        staged: dict[int, Staged] = {}
        for operation, root in zip(self._journal.operations, self._plan.roots, strict=False):
            if root.incoming:
                self._check()
                folder = self._targets.at(operation.parent)
                temporary = self._journal.temporary(operation)
                found = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
                staged[operation.number] = Staged(
                    inode=(found.st_dev, found.st_ino), digest=digest(folder, temporary)
                )
        sync_folders(
            self._workspace,
            self._targets,
            {operation.parent for operation in self._journal.operations},
            everything=not self._one_by_one,
        )
        return staged


def sync_folders(
    workspace: int, folders: Folders, paths: set[str], *, everything: bool = False
) -> None:
    """The names in these folders are on disk afterwards."""
    if not everything and len(paths) <= FEW:
        try:
            for path in sorted(paths):
                fsync_folder(folders.at(path))
        except (PermissionError, Gone):
            # One that we may not read, or that somebody has moved within its file system.
            pass
        else:
            return
    syncfs(workspace)


def _after(change: Change) -> Entry:
    if change.after is None:
        raise ValueError(f"{change.path!r} is not to come")
    return change.after


def _set_attributes(fd: int, path: str, attributes: Mapping[str, bytes]) -> None:
    for name, value in attributes.items():
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            if error.errno in TOO_MUCH:
                raise attributes_do_not_fit(path) from None
            raise


def _set_mtime(entry: Entry, found: os.stat_result, name: str, folder: int) -> None:
    times = (found.st_atime_ns, entry.mtime_ns)
    os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)
