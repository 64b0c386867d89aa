"""Looking at folders: watched first, then listed, each name judged. Nothing is opened but folders
and regular files, and no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from . import _inotify, _mask_open
from ._beneath import GONE, PATH_FLAGS, reopen
from ._inotify import Inotify
from ._mask_folder import ENVIRONMENT, Folder
from ._mask_foreign import Foreign
from ._mask_links import inode_of
from ._mask_memory import Memory, join
from ._mask_types import Judge, NotIndexed, failed, later_inodes, shown, unreadable

_NAMES: Final = (
    _inotify.IN_CREATE
    | _inotify.IN_DELETE
    | _inotify.IN_MOVED_FROM
    | _inotify.IN_MOVED_TO
    | _inotify.IN_ONLYDIR
    | _inotify.IN_EXCL_UNLINK
)
_TOP: Final = _NAMES | _inotify.IN_MOVE_SELF | _inotify.IN_DELETE_SELF
_CONTENT: Final = _inotify.IN_MODIFY | _inotify.IN_CLOSE_WRITE
_MODES: Final = _inotify.IN_ATTRIB | _inotify.IN_ONLYDIR
_CHECKED_EACH: Final = 2_048


class Torn(Exception):
    """A folder is no longer where it was."""


class Walk:
    """Looks at one folder at a time, and keeps in `known` what it finds.

    Raises NotIndexed where the bounds do not allow it, or a folder cannot be looked at that a
    jail could come to read; and what `check` raises, before anything is half known.
    """

    def __init__(
        self, judge: Judge, known: Memory, foreign: Foreign, inotify: Inotify, entries_max: int
    ) -> None:
        self.needs_stat = bool(judge.inodes) or foreign.ids is not None
        later = later_inodes(judge)
        # Whether a hard link of what is forbidden is hidden as well: it may come at any time.
        self.follows_links = later is not None
        self._inodes = judge.inodes | (later or frozenset())
        self._judge = judge
        self._known = known
        self._foreign = foreign
        self._inotify = inotify
        self._entries_max = entries_max
        self._spent = 0
        self._top = -1
        self._check: Callable[[], object] = lambda: None

    def begin(self, top: int, check: Callable[[], object]) -> None:
        """`top` is open on the folder from now on; the count of entries begins."""
        self._top, self._check = top, check
        self._spent = 0

    def spend_anew(self) -> None:
        """The entries are gone through once more: the count of them begins anew."""
        self._spent = 0

    def spend(self) -> None:
        """Count one more entry."""
        self._spent += 1
        if self._spent > self._entries_max:
            raise NotIndexed(
                f"it has more than {self._entries_max:,} entries, too many to look at",
                "work in a smaller folder",
            )
        if self._spent % _CHECKED_EACH == 0:
            self._check()

    def enter(self, folder: Folder) -> list[str]:
        """Watch a folder, and judge each name in it; the folders that are not forbidden.

        Empty where the folder is shut to a jail too, and left out.

        Raises:
            Torn: it is not there.
        """
        inner = folder.path
        try:
            fd = self._opened(folder)
            if fd is None:
                return []
            try:
                self._watch(folder, fd)
                return [] if folder.is_gone else self._listed(folder, inner, fd)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in GONE:
                raise Torn from None
            raise failed(error, inner) from None

    def search(self, folder: Folder) -> None:
        """Judge each name in a watched folder again, by what it is; raises as `open` does."""
        fd = self.open(folder)
        try:
            self._listed(folder, folder.path, fd)
        except OSError as error:
            raise failed(error, folder.path) from None
        finally:
            os.close(fd)

    def recount(self) -> None:
        """Look whether a forbidden file has got another name during the first walk."""
        for folder, name, inode in self._known.links.told():
            try:
                fd = _mask_open.open_below(self._top, join(folder.path, name), PATH_FLAGS)
            except OSError:
                continue  # What became of it is in the queue.
            try:
                found = os.fstat(fd)
            finally:
                os.close(fd)
            if inode_of(found) == inode and found.st_nlink > 1:
                self._known.links.sought.add(inode)

    def open(self, folder: Folder) -> int:
        """A descriptor of a watched folder.

        Raises:
            Torn: it is not there.
            PermissionError: it cannot be read any more.
        """
        path = folder.path
        try:
            fd = _mask_open.open_below(self._top, path, _mask_open.FOLDER)
        except PermissionError:
            raise
        except OSError as error:
            if error.errno in GONE:
                raise Torn from None
            raise failed(error, path) from None
        try:
            wd = self._inotify.watch(fd, _NAMES)
            if wd != folder.wd:
                self._known.keep(wd)
                raise Torn
        except OSError as error:
            os.close(fd)
            raise failed(error, path) from None
        except Torn:
            os.close(fd)
            raise
        return fd

    def watch_at(self, path: str, at: int | None = None) -> int | None:
        """The watch of the folder at a path below the top, or below `at`; None where none is."""
        below = self._top if at is None else at
        try:
            fd = _mask_open.open_below(below, path, _mask_open.FOLDER)
        except OSError:
            return None
        try:
            wd = self._inotify.watch(fd, _NAMES)
        finally:
            os.close(fd)
        self._known.keep(wd)
        return wd

    def stat(self, inner: str, name: str, fd: int) -> os.stat_result | None:
        """What a name in the folder `fd` is; None where it is gone, or no jail can see it."""
        try:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except PermissionError:
            # The folder can be listed and not searched. A jail could change that of our own.
            if os.fstat(fd).st_uid == os.geteuid():
                raise unreadable(inner, is_own=True) from None
            self._foreign.note(join(inner, name), None)
            return None

    def is_hidden(
        self, folder: Folder, inner: str, name: str, fd: int, found: os.stat_result
    ) -> bool:
        """Whether a name is forbidden by what it is; notes whose it is."""
        if not stat.S_ISDIR(found.st_mode):
            if inode_of(found) in self._inodes:
                self._known.unask(folder, name)
                self._known.links.forget(folder, name)
                return True
            if self._judge.asks_content(inner, name) and self._ask(folder, name, fd):
                return True
            if self.follows_links and self._known.links.is_other_name(folder, name, found):
                return True
        self._foreign.note(join(inner, name), found)
        return False

    # ------------------------------------------------------------ a folder

    def _listed(self, folder: Folder, inner: str, fd: int) -> list[str]:
        within: list[str] = []
        forbids, asks = self._judge.forbids, self._judge.asks_content
        has_environment = False
        if folder.parent is None:
            self._foreign.note(".", os.fstat(fd))
        with os.scandir(fd) as entries:
            for entry in entries:
                self.spend()
                name = entry.name
                if name == ENVIRONMENT:
                    has_environment = True
                if forbids(inner, name):
                    self._known.mask(folder, name)
                    if self.follows_links:
                        self._tells(folder, name, fd)
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    within.append(name)
                if self.needs_stat:
                    found = self.stat(inner, name, fd)
                    if found is not None and self.is_hidden(folder, inner, name, fd, found):
                        self._known.mask(folder, name)
                elif not is_folder and asks(inner, name) and self._ask(folder, name, fd):
                    self._known.mask(folder, name)
        folder.has_environment = folder.has_environment or has_environment
        return within

    def _tells(self, folder: Folder, name: str, fd: int) -> None:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            return  # It is gone, or in a folder that no jail of ours can search.
        self._known.links.tells(folder, name, found)

    def _opened(self, folder: Folder) -> int | None:
        path, parent = folder.path, folder.parent
        try:
            return _mask_open.open_below(self._top, path, _mask_open.FOLDER)
        except PermissionError:
            if parent is None:
                raise unreadable("", is_own=True) from None
        # First see to it that we hear of its being opened, and then look again.
        fd = _mask_open.open_below(self._top, parent.path, _mask_open.FOLDER)
        try:
            self._known.keep(self._inotify.watch(fd, _MODES))
        finally:
            os.close(fd)
        try:
            return _mask_open.open_below(self._top, path, _mask_open.FOLDER)
        except PermissionError:
            self._refuse_unless_shut(path, parent.path)
        self._known.drop(folder)
        self._known.leave_out(parent, folder.name)
        return None

    def _refuse_unless_shut(self, path: str, parent: str) -> None:
        """Return where a jail of our user can neither enter a folder nor make it its own to enter.

        Where the folder cannot be reached its parent cannot be searched, and the same holds.
        """
        for each in (path, parent):
            try:
                fd = _mask_open.open_below(self._top, each, PATH_FLAGS | os.O_DIRECTORY)
            except PermissionError:
                continue
            try:
                is_own = os.fstat(fd).st_uid == os.geteuid()
                if is_own or _mask_open.may_enter(fd):
                    raise unreadable(each, is_own=is_own)
            finally:
                os.close(fd)
            return

    def _watch(self, folder: Folder, fd: int) -> None:
        """Watch a folder; whoever else had this inode's watch has moved, and is forgotten."""
        self._known.make_room()
        wd = self._inotify.watch(fd, _TOP if folder.parent is None else _NAMES)
        other = self._known.folders.get(wd)
        if other is not None and other is not folder:
            if self.watch_at(other.path) == wd:
                if self.watch_at(folder.path) != wd:
                    raise Torn
                raise NotIndexed(
                    f"{shown(folder.path)} and {shown(other.path)} are one folder, mounted twice",
                    f"umount {shown(folder.path)}",
                )
            self._known.drop(other)
        if not folder.is_gone:
            self._known.watched(folder, wd)

    # ------------------------------------------------------------ a file

    def _ask(self, folder: Folder, name: str, fd: int) -> bool:
        """Whether a file is forbidden by what it holds; it is watched before it is read.

        What cannot be read here, a jail might: forbidden.
        """
        file = None
        try:
            at = os.open(name, PATH_FLAGS, dir_fd=fd)
            try:
                if stat.S_ISREG(os.fstat(at).st_mode):
                    file = self._reopened(at, fd)
            finally:
                os.close(at)
            if file is None:
                self._known.unask(folder, name)
                return False
            self._known.make_room()
            self._known.ask(folder, name, self._inotify.watch(file, _CONTENT))
            is_forbidden = self._judge.forbids_content(file)
            if is_forbidden and self.follows_links:
                self._known.links.tells(folder, name, os.fstat(file))
            return is_forbidden
        except OSError as error:
            if error.filename == "inotify_add_watch":
                raise
            self._known.unask(folder, name)
            return error.errno != errno.ENOENT
        finally:
            if file is not None:
                os.close(file)

    def _reopened(self, at: int, folder_fd: int) -> int:
        """A regular file for reading; where that is refused we hear of a change of its modes."""
        try:
            return reopen(at)
        except PermissionError:
            self._known.keep(self._inotify.watch(folder_fd, _MODES))
            return reopen(at)
