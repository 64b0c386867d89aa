"""The walk of one tree, and what is made of each event after it.

Each folder is watched before it is listed, so what happens is in the listing, or in the queue,
or in both. An event only says where to look: what counts is what is there when looked at, so the
order of events, and an event too many, change nothing. A folder is the one that was watched as
long as watching it again gives the same number; else it has been moved, and what its parent has
under that name is looked at instead.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from . import _inotify
from ._commit_journal import TEMPORARY
from ._inotify import Inotify
from ._mask_folder import ENVIRONMENT, PACKAGES, Folder
from ._mask_foreign import Foreign
from ._mask_memory import Memory, join
from ._mask_news import News
from ._mask_types import Bounds, Judge, failed, unsettled
from ._mask_walk import Torn, Walk

_COMES: Final = _inotify.IN_CREATE | _inotify.IN_MOVED_TO
_LOST: Final = _inotify.IN_IGNORED | _inotify.IN_UNMOUNT
_SELF: Final = _LOST | _inotify.IN_MOVE_SELF | _inotify.IN_DELETE_SELF

TORN_MAX: Final = 1_000
_DRAINED_EACH: Final = 32


class Stale(Exception):
    """Events were lost, or the top is no longer the folder that was watched."""


class Tree:
    """The forbidden names below one folder, true when `settle` returns. Not thread-safe.

    `settle` may end by what `check` raises, and goes on where it was when called again. After
    any other exception the tree is of no use.
    """

    def __init__(
        self,
        judge: Judge,
        news: News,
        bounds: Bounds,
        foreign_ids: tuple[int, int] | None,
        inotify: Inotify,
    ) -> None:
        self.inotify = inotify
        self.known = Memory(news, bounds, inotify)
        self.foreign = Foreign(foreign_ids)
        self._judge = judge
        self._news = news
        self._walk = Walk(judge, self.known, self.foreign, inotify, bounds.entries)
        self._to_walk = [self.known.root]
        # Folders in which another name of a forbidden file may lie.
        self._to_search: list[Folder] = []
        self._is_first = True
        # By folder, so that each is opened once; the first noted comes first.
        self._to_look: OrderedDict[Folder, set[str]] = OrderedDict()
        self._torn = 0
        self._check: Callable[[], object] = lambda: None

    def is_quiet(self) -> bool:
        """Whether there is nothing to do."""
        left = self._to_walk or self._to_look or self._to_search or self.known.condemned
        return not left and self.inotify.queued_bytes() == 0

    def settle(self, top: int, check: Callable[[], object]) -> None:
        """Make everything known that happened before this was called.

        `top` is open on the folder; `check` is called often, and may raise.

        Raises:
            NotIndexed: more than the bounds allow, or a folder that cannot be looked at.
            Stale: see there.
        """
        self._walk.begin(top, check)
        self._check = check
        self._torn = 0
        due = self.inotify.queued_bytes()
        # Names may have been moved during a walk to where it had been already.
        again = bool(self._to_walk)
        while True:
            torn = self._torn
            self._work()
            released = self.known.release()
            if again or released or self._torn != torn:
                due = self.inotify.queued_bytes()
            again = False
            if due <= 0:
                return
            taken = self._take()
            due = due - taken if taken else 0

    # ------------------------------------------------------------ events

    def _take(self) -> int:
        """Note where to look after some events; how many bytes they were."""
        data = self.inotify.read()
        for wd, mask, name in _inotify.events(data):
            if mask & _inotify.IN_Q_OVERFLOW:
                raise Stale("more happened at once than fs.inotify.max_queued_events holds")
            folder = self.known.folders.get(wd)
            if folder is None:
                for holder, asked in self.known.asked.get(wd, ()):
                    self._note(holder, asked)
            elif not mask & _SELF:
                if self._matters(folder, name, mask):
                    self._note(folder, name)
            elif folder.parent is None:
                raise Stale("the folder itself was moved, removed or unmounted")
            else:
                self._note(folder.parent, folder.name)
            if mask & _inotify.IN_IGNORED:
                self.known.lost(wd)
        return len(data)

    def _note(self, folder: Folder, name: str) -> None:
        self._to_look.setdefault(folder, set()).add(name)

    def _matters(self, folder: Folder, name: str, mask: int) -> bool:
        """Whether an event can change what is known; a forbidden name that came is told at once.

        It may be gone again when it is looked at.
        """
        if mask & _COMES:
            inner = folder.path
            if self._judge.forbids(inner, name):
                if name not in folder.masks:
                    self._news.appeared(join(inner, name))
                return True
            if mask & _inotify.IN_ISDIR or self._walk.needs_stat or self._walk.follows_links:
                return True
            if self._judge.asks_content(inner, name):
                return True
        return name == ENVIRONMENT or folder.knows(name)

    # ------------------------------------------------------------ what is to be done

    def _work(self) -> None:
        """Walk and look until nothing is left of it."""
        count = 0
        while self._to_walk or self._to_look or self._to_search or self._follow_links():
            self._check()
            count += 1
            if count % _DRAINED_EACH == 0:
                # A long walk must not let the queue overflow.
                self._take()
            if self._to_walk:
                self._enter(self._to_walk[-1])
            elif self._to_look:
                self._look_around(next(iter(self._to_look)))
            else:
                self._search(self._to_search[-1])

    def _follow_links(self) -> bool:
        """Whether there is more to do, for the sake of files that have several names."""
        if not self._walk.follows_links:
            return False
        if self._is_first:
            self._is_first = False
            # What comes from now on may be another name of what was seen.
            self._walk.needs_stat = True
            self._walk.recount()
        links = self.known.links
        for folder, name in links.released:
            self._note(folder, name)
        links.released.clear()
        if links.sought:
            links.sought.clear()
            self._walk.spend_anew()
            self._to_search = [*self.known.root.all_below()]
        return bool(self._to_look or self._to_search)

    def _search(self, folder: Folder) -> None:
        """Judge what lies in one folder again, the last of those to be searched."""
        if not folder.is_gone:
            try:
                self._walk.search(folder)
            except Torn:
                self._tear(folder)
                return  # Once it is known whether it is there, it is searched or left.
            except PermissionError:
                # The walk says whether that is a refusal.
                self._to_walk.append(folder)
        self._to_search.pop()

    def _enter(self, folder: Folder) -> None:
        """Walk one folder, the last of those to be walked, and put those in it in its place."""
        names: list[str] = []
        if not folder.is_gone:
            try:
                names = self._walk.enter(folder)
            except Torn:
                self._tear(folder)
        self._to_walk.pop()
        for name in names:
            self._add(folder, name)

    def _add(self, folder: Folder, name: str) -> None:
        """A folder in a folder is to be walked, unless that is known, or it is left out."""
        if name in folder.within:
            return
        if folder.skips(name):
            self.known.leave_out(folder, name)
        else:
            self._to_walk.append(folder.add(name))

    def _look_around(self, folder: Folder) -> None:
        """Look at each noted name of a folder."""
        if folder.is_gone:
            del self._to_look[folder]
            return
        try:
            fd = self._walk.open(folder)
        except Torn:
            self._tear(folder)
            return
        except PermissionError:
            # The walk says whether that is a refusal.
            del self._to_look[folder]
            self._to_walk.append(folder)
            return
        try:
            path, names = folder.path, self._to_look[folder]
            for name in tuple(names):
                self._look(folder, path, name, fd)
                names.discard(name)
            if not names:
                del self._to_look[folder]
        except OSError as error:
            raise failed(error, folder.path) from None
        finally:
            os.close(fd)

    def _tear(self, folder: Folder) -> None:
        """A folder is no longer where it was: look at its name first, and then go on with it.

        Raises:
            Stale: it is the top.
            NotIndexed: that happens all the time.
        """
        if folder.parent is None:
            raise Stale("the folder itself was moved, removed or unmounted")
        self._torn += 1
        if self._torn > TORN_MAX:
            raise unsettled()
        names = self._to_look.pop(folder, None)
        self._note(folder.parent, folder.name)
        if names is not None:
            self._to_look[folder] = names

    def _look(self, folder: Folder, inner: str, name: str, fd: int) -> None:
        """Make true what is known of one name; `fd` is open on its folder."""
        self._walk.spend()
        found = self._walk.stat(inner, name, fd)
        if name == ENVIRONMENT:
            self._set_environment(folder, is_there=found is not None)
        is_masked = found is not None and self._judge.forbids(inner, name)
        enters = found is not None and stat.S_ISDIR(found.st_mode) and not is_masked
        child = folder.within.get(name)
        if child is not None and not (
            enters and child.wd is not None and self._walk.watch_at(name, fd) == child.wd
        ):
            self.known.drop(child)
        # A commit's: what it holds was judged, under names that are not their own yet. It is
        # looked at as what it comes to be; one that was there before we came is walked.
        is_temporary = enters and TEMPORARY.fullmatch(name) is not None
        if not (is_temporary or (enters and folder.skips(name))):
            self.known.take_up(folder, name)
        if found is None or is_masked or enters:
            self.known.unask(folder, name)
        if found is not None and is_masked and self._walk.follows_links:
            self.known.links.tells(folder, name, found)
        if found is not None and not is_masked:
            is_masked = self._walk.is_hidden(folder, inner, name, fd, found)
        if is_masked:
            self.known.mask(folder, name)
        else:
            self.known.unmask(folder, name)
        if is_temporary and name not in folder.within:
            self.known.leave_out(folder, name)
        elif enters:
            self._add(folder, name)

    def _set_environment(self, folder: Folder, *, is_there: bool) -> None:
        """Walk what was left out for a pyvenv.cfg that is gone. When one comes, all is kept."""
        had, folder.has_environment = folder.has_environment, is_there
        if had and not is_there:
            for each in folder.all_below():
                if PACKAGES in each.left_out:
                    self._note(each, PACKAGES)
