"""What is known of a watched tree, and the watches that keep it true. Walks and opens nothing."""

from __future__ import annotations

from typing import Final

from ._inotify import Inotify
from ._mask_folder import Folder
from ._mask_links import Links
from ._mask_news import News
from ._mask_types import Bounds, NotIndexed, too_many_watches

RELEASED_AT_ONCE: Final = 1_000
"""Each watch that is taken off queues an event: all at once would overflow the queue."""
LEFT_OUT_KEPT: Final = 10_000


class Memory:
    """Forbidden names, folders left out, and who is watched by which number.

    Raises NotIndexed where that would be more than the bounds allow.
    """

    def __init__(self, news: News, bounds: Bounds, inotify: Inotify) -> None:
        self.root = Folder(None, "")
        self.paths: set[str] = set()
        # The first of them; the count is of all.
        self.left_out: set[str] = set()
        self.left_out_count = 0
        self.folders: dict[int, Folder] = {}
        self.asked: dict[int, set[tuple[Folder, str]]] = {}
        # Watches of what is forgotten. One that is met again is taken over, not renewed.
        self.condemned: set[int] = set()
        self.links = Links()
        self._news = news
        self._bounds = bounds
        self._inotify = inotify

    def mask(self, folder: Folder, name: str) -> None:
        """A name is forbidden."""
        if name in folder.masks:
            return
        if len(self.paths) >= self._bounds.masks:
            raise NotIndexed(
                f"it has more than {self._bounds.masks:,} forbidden names, too many to hide",
                "work in a smaller folder",
            )
        path = join(folder.path, name)
        folder.mask(name)
        self.paths.add(path)
        self._news.appeared(path)

    def unmask(self, folder: Folder, name: str) -> None:
        """A name is not forbidden, or not there."""
        self.links.forget(folder, name)
        if name in folder.masks:
            folder.unmask(name)
            self.paths.discard(join(folder.path, name))
            self._news.vanished()

    def leave_out(self, folder: Folder, name: str) -> None:
        """A folder is there, and not walked."""
        if name not in folder.left_out:
            folder.leave_out(name)
            self.left_out_count += 1
            if len(self.left_out) < LEFT_OUT_KEPT:
                self.left_out.add(join(folder.path, name))

    def take_up(self, folder: Folder, name: str) -> None:
        """It is not left out any more."""
        if name in folder.left_out:
            folder.take_up(name)
            self.left_out_count -= 1
            self.left_out.discard(join(folder.path, name))

    def ask(self, folder: Folder, name: str, wd: int) -> None:
        """What a file holds decides; it is watched."""
        if folder.asked.get(name) != wd:
            self.unask(folder, name)
            folder.ask(name, wd)
        self.condemned.discard(wd)
        self.asked.setdefault(wd, set()).add((folder, name))

    def unask(self, folder: Folder, name: str) -> None:
        """A name is no such file."""
        wd = folder.asked.get(name)
        if wd is None:
            return
        folder.unask(name)
        names = self.asked.get(wd, set())
        names.discard((folder, name))
        if not names and self.asked.pop(wd, None) is not None:
            self.condemned.add(wd)

    def watched(self, folder: Folder, wd: int) -> None:
        """A folder is watched."""
        self.condemned.discard(wd)
        self.folders[wd] = folder
        folder.wd = wd

    def lost(self, wd: int) -> None:
        """The kernel has taken a watch off: its file or folder is no more."""
        self.condemned.discard(wd)
        folder = self.folders.pop(wd, None)
        if folder is not None:
            folder.wd = None
        for holder, name in self.asked.pop(wd, ()):
            holder.unask(name)

    def keep(self, wd: int) -> None:
        """A watch was set only to see which it is: it goes, unless somebody has it."""
        if wd not in self.folders and wd not in self.asked:
            self.condemned.add(wd)

    def drop(self, folder: Folder) -> None:
        """Forget a folder and all below it."""
        assert folder.parent is not None
        for each in folder.all_below():
            each.is_gone = True
            for name in tuple(each.masks):
                self.unmask(each, name)
            for name in tuple(each.left_out):
                self.take_up(each, name)
            for name in tuple(each.asked):
                self.unask(each, name)
            if each.wd is not None:
                del self.folders[each.wd]
                self.condemned.add(each.wd)
        folder.parent.remove(folder.name)

    def make_room(self) -> None:
        """See that one more watch is within the bounds."""
        for _ in range(2):
            held = len(self.folders) + len(self.asked) + len(self.condemned)
            if held < self._bounds.watches:
                return
            self.release()
        raise too_many_watches(self._bounds.watches)

    def release(self) -> int:
        """Take off some watches that nobody needs; how many."""
        count = min(RELEASED_AT_ONCE, len(self.condemned))
        for _ in range(count):
            self._inotify.unwatch(self.condemned.pop())
        return count


def join(inner: str, name: str) -> str:
    """The path of a name in a folder."""
    return f"{inner}/{name}" if inner else name
