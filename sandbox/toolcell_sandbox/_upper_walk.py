"""The walk over an upper layer, and over what its whiteouts and opaque folders hide below.

    layer      real workspace     what the set has
    ─────      ──────────────     ────────────────
    whiteout   anything           deleted, and each name below it
    folder     folder             merged: the names in the layer; its own mode, owner, attributes
    folder     folder, "opaque"   all names of both; those that only the workspace has are deleted
    other      folder             modified, and each name below it deleted
    anything   anything else      modified, unless it is the same
    anything   nothing            created
    whiteout   nothing            a conflict: somebody removed it first

A name that the mask layer hid is never merged: the call saw nothing there. So what it made in its
place counts as opaque, and is not compared with what is there, lest the answer tell of it.

One folder is open at a time, found again from the top by its path, which is shorter than PATH_MAX:
so depth costs neither recursion nor descriptors. The order of the walk is free, the result sorted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ._beneath import open_beneath, path_of
from ._upper_entry import (
    NO_ATTRIBUTES,
    Attributes,
    Unusable,
    attributes_of,
    below_entry,
    differing,
    entry_of,
    is_whiteout,
    layer_path,
    look,
    same_bytes,
    unusable,
)
from ._upper_layer import Layer, TooMany
from ._upper_whole import Linked, later_names, order, removed_by_others
from .changeset import Change, ChangeSet, Entry, Problem

_PATH_MAX = 4096
"""With the final NUL (include/uapi/linux/limits.h)."""
_CHECK_EVERY = 256


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that is still to be walked: in the layer, in the workspace, or in both."""

    path: str
    path_bytes: int
    """Of its full path in the workspace."""
    in_layer: bool
    below: tuple[int, int] | None
    """The inode that was seen in the workspace; None: nothing there counts."""
    hides: bool
    """Whether the call saw nothing of what is below: all that is there is looked at."""
    masked: bool


@dataclass(frozen=True, slots=True)
class _Name:
    """One name that is being looked at."""

    path: str
    path_bytes: int
    name: str
    masked: bool
    parent: _Folder
    parent_young: bool
    """Whether names may have come or gone in the real folder since the mount."""


class Walk:
    """Finds the change set of one layer, once: `run`."""

    def __init__(
        self,
        layer: Layer,
        workspace_fd: int,
        workspace: str,
        *,
        entries_max: int,
        check: Callable[[], object],
    ) -> None:
        self._layer = layer
        self._workspace_fd = workspace_fd
        self._workspace = workspace
        self._entries_max = entries_max
        self._check = check
        self._threshold_ns = layer.marker.threshold_ns()
        self._entries = 0
        self._todo: list[_Folder] = []
        self._changes: dict[str, Change] = {}
        self._conflicts: set[str] = set()
        self._problems: dict[str, Problem] = {}
        # By inode in the layer, of files with more names than one.
        self._linked: dict[tuple[int, int], list[Linked]] = {}
        # The modes that the worker gave them, of those where we have set another.
        self._modes: dict[tuple[int, int], int] = {}
        # Names that seem to have been there before the call, where nothing is now.
        self._uprooted: list[Change] = []

    def run(self) -> ChangeSet:
        """All of it, sorted."""
        if os.fstat(self._layer.fd).st_mode & 0o500 != 0o500:
            os.chmod(path_of(self._layer.fd), 0o700)
        top = os.fstat(self._workspace_fd)
        self._todo.append(
            _Folder(
                path="",
                path_bytes=len(os.fsencode(self._workspace)),
                in_layer=True,
                below=(top.st_dev, top.st_ino),
                hides=False,
                masked=False,
            )
        )
        while self._todo:
            self._check()
            self._walk(self._todo.pop())
        for change in later_names(self._linked.values()):
            self._changes[change.path] = change
        self._find_conflicts()
        return ChangeSet(
            workspace=self._workspace,
            changes=tuple(self._changes[path] for path in sorted(self._changes, key=order)),
            conflicts=tuple(sorted(self._conflicts, key=order)),
            problems=tuple(self._problems[path] for path in sorted(self._problems, key=order)),
        )

    def _walk(self, folder: _Folder) -> None:
        with contextlib.ExitStack() as opened:
            layer_fd = below_fd = None
            names: set[str] = set()
            if folder.in_layer:
                flags = os.O_RDONLY | os.O_DIRECTORY
                layer_fd = open_beneath(self._layer.fd, folder.path or ".", flags)
                opened.callback(os.close, layer_fd)
                names.update(self._names(layer_fd))
            left = frozenset(names)
            if folder.below is not None:
                below_fd = self._open_below(folder)
            young = False
            if below_fd is not None:
                opened.callback(os.close, below_fd)
                young = os.fstat(below_fd).st_ctime_ns >= self._threshold_ns
                if folder.hides:
                    names.update(self._names(below_fd))
            for name in names:
                path = f"{folder.path}/{name}" if folder.path else name
                path_bytes = folder.path_bytes + 1 + len(os.fsencode(name))
                masked = folder.masked or path in self._layer.masks
                one = _Name(path, path_bytes, name, masked, folder, young)
                try:
                    self._look(one, layer_fd if name in left else None, below_fd)
                except Unusable as problem:
                    self._refuse(path, problem.code, problem.text)

    def _names(self, fd: int) -> Iterator[str]:
        with os.scandir(fd) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > self._entries_max:
                    raise TooMany(self._entries_max)
                if self._entries % _CHECK_EVERY == 0:
                    self._check()
                yield entry.name

    def _open_below(self, folder: _Folder) -> int | None:
        """The real folder that was seen; None, and a conflict, where it is another one by now."""
        flags = os.O_DIRECTORY | (os.O_RDONLY if folder.hides else os.O_PATH)
        try:
            fd = open_beneath(self._workspace_fd, folder.path or ".", flags)
        except OSError as error:
            if (problem := unusable(error)) is not None:
                self._refuse(folder.path, problem.code, problem.text)
                return None
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            self._conflicts.add(folder.path)
            return None
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) == folder.below:
            return fd
        os.close(fd)
        self._conflicts.add(folder.path)
        return None

    def _refuse(self, path: str, code: str, text: str) -> None:
        self._problems.setdefault(path, Problem(path=path, code=code, text=text))

    def _look(self, one: _Name, layer_fd: int | None, below_fd: int | None) -> None:
        if one.path_bytes >= _PATH_MAX:
            raise Unusable("path_too_long", f"its path has {one.path_bytes} bytes")
        seen_fd = None if below_fd is None else look(below_fd, one.name)
        try:
            before = None if seen_fd is None else below_entry(seen_fd)
            found = None
            if layer_fd is not None:
                found = os.stat(one.name, dir_fd=layer_fd, follow_symlinks=False)
                if is_whiteout(found):
                    found = None
            if layer_fd is not None and found is not None:
                self._left(one, layer_fd, found, before, seen_fd)
            elif before is not None:
                self._deleted(one, before)
            elif layer_fd is None or not one.parent.hides:
                # It was listed, and is gone; or the call removed what somebody had removed by then,
                # and of two that take one thing away only one has it.
                self._conflicts.add(one.path)
        finally:
            if seen_fd is not None:
                os.close(seen_fd)

    def _deleted(self, one: _Name, before: Entry) -> None:
        change = Change(path=one.path, before=before, after=None, masked=one.masked)
        self._changes[one.path] = change
        self._expand(one, before)

    def _expand(self, one: _Name, before: Entry) -> None:
        """Have each name below a folder of the workspace listed, as it goes."""
        if before.kind == "folder":
            self._todo.append(
                _Folder(one.path, one.path_bytes, False, before.inode, True, one.masked)
            )

    def _left(
        self,
        one: _Name,
        layer_fd: int,
        found: os.stat_result,
        before: Entry | None,
        seen_fd: int | None,
    ) -> None:
        """What the layer has under this name, that is no whiteout."""
        after = self._entry(one, layer_fd, found)
        if before is not None and before.gid in (self._layer.groups or ()):
            after = replace(after, gid=before.gid)
        if after.kind == "device":
            raise Unusable("device", "a device node")
        if after.kind == "socket":
            raise Unusable("socket", "a socket, which is nothing without its process")
        self._let_us_read(one, layer_fd, after)
        here = attributes_of(layer_path(layer_fd, one.name), in_layer=True)
        there = NO_ATTRIBUTES
        if seen_fd is not None and not one.masked:
            there = attributes_of(path_of(seen_fd), in_layer=False, follow=True)
        names, lost = differing(here, there)
        if lost:
            self._refuse(
                one.path, "attribute", f"extended attributes cannot be kept: {', '.join(lost)}"
            )
        change = Change(
            path=one.path,
            before=before,
            after=after,
            masked=one.masked,
            attributes=names,
            content_changed=one.masked
            or before is None
            or before.kind != after.kind
            or (after.kind == "symlink" and before.target != after.target)
            or (after.kind == "file" and not self._same(one, layer_fd, after, before, seen_fd)),
        )
        if before is not None and before.kind != after.kind and after.kind != "folder":
            self._expand(one, before)
        if after.kind == "folder":
            self._left_folder(one, change, after, here)
        else:
            self._left_leaf(change, after, here, one)

    def _left_folder(
        self, one: _Name, change: Change, after: Entry, attributes: Attributes
    ) -> None:
        before = change.before
        hides = one.parent.hides or attributes.opaque or one.masked
        over_folder = before is not None and before.kind == "folder"
        if attributes.copied_up != over_folder and not hides:
            # What the call merged with is gone, or what it did not merge with has come.
            self._conflicts.add(one.path)
            hides = True
        if _differs(change, times=False):
            self._changes[one.path] = change
        self._todo.append(
            _Folder(
                path=one.path,
                path_bytes=one.path_bytes,
                in_layer=True,
                below=before.inode if before is not None and over_folder else None,
                hides=hides,
                masked=one.masked,
            )
        )

    def _left_leaf(self, change: Change, after: Entry, attributes: Attributes, one: _Name) -> None:
        changed = _differs(change, times=True)
        if changed:
            self._changes[one.path] = change
        elif change.before is not None and self._is_young(change.before):
            # Two calls have written the same in one tick of the clock: either would undo the other.
            self._conflicts.add(one.path)
        if after.links > 1:
            self._linked.setdefault(after.inode, []).append(Linked(change, changed))
        # Only files and folders can bear the mark; a link that was copied up keeps its old time.
        old = attributes.copied_up or (
            after.kind in ("symlink", "fifo") and after.mtime_ns < self._threshold_ns
        )
        if change.before is None and old and one.parent_young and not one.parent.hides:
            self._uprooted.append(change)

    def _same(
        self,
        one: _Name,
        layer_fd: int,
        after: Entry,
        before: Entry,
        seen_fd: int | None,
    ) -> bool:
        if seen_fd is None or after.size_bytes != before.size_bytes:
            return False
        return same_bytes(layer_fd, one.name, seen_fd, self._check)

    def _let_us_read(self, one: _Name, layer_fd: int, after: Entry) -> None:
        """Give the owner back what the call took from it: an unprivileged supervisor is the owner.

        Another name of the same file still has the mode that the worker gave it.
        """
        needed = {"folder": 0o500, "file": 0o400}.get(after.kind, 0)
        if after.mode & needed == needed:
            return
        if after.kind == "file" and after.links > 1:
            self._modes[after.inode] = after.mode
        fd = open_beneath(layer_fd, one.name, os.O_PATH | os.O_NOFOLLOW)
        try:
            os.chmod(path_of(fd), after.mode | needed)
        finally:
            os.close(fd)

    def _entry(self, one: _Name, layer_fd: int, found: os.stat_result) -> Entry:
        target = None
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(one.name, dir_fd=layer_fd)
        entry = entry_of(
            found,
            target,
            uid=self._layer.uids.get(found.st_uid, self._layer.owner[0]),
            gid=self._layer.gids.get(found.st_gid, self._layer.owner[1]),
        )
        if entry.links > 1 and entry.inode in self._modes:
            return replace(entry, mode=self._modes[entry.inode])
        return entry

    def _is_young(self, before: Entry) -> bool:
        """Whether somebody may have changed it since the mount."""
        return before.ctime_ns >= self._threshold_ns

    def _find_conflicts(self) -> None:
        for change in self._changes.values():
            if change.before is not None and self._is_young(change.before):
                self._conflicts.add(change.path)
        if self._uprooted:
            gone = removed_by_others(self._uprooted, self._changes.values(), self._linked)
            self._conflicts.update(gone)


def _differs(change: Change, *, times: bool) -> bool:
    before, after = change.before, change.after
    if before is None or after is None or change.content_changed or change.attributes:
        return True
    if (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid):
        return True
    return times and before.mtime_ns != after.mtime_ns
