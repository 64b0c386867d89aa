"""The mask index: which names inside a folder are forbidden, kept true while others write there.

One walk when it is first asked, then inotify: what happened is handled when somebody asks, and
costs in proportion to that. There is no task in the background. Nothing a jail does reaches it,
since a jail writes to an upper layer of its own; what is committed arrives like anybody's change.

What it cannot see: a change by another machine on a shared file system (there it walks each
time), and a file system that is mounted inside the folder later.
"""

from __future__ import annotations

import errno
import heapq
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from . import _inotify, _mask_open
from ._child import syscalls
from ._inotify import Inotify
from ._mask_news import Doubt, News
from ._mask_tree import Stale, Tree
from ._mask_types import Bounds, Judge, NotIndexed, failed, shown

__all__ = ["Doubt", "Judge", "MaskIndex", "Masks", "NotIndexed"]

ENTRIES_MAX: Final = 5_000_000
MASKS_MAX: Final = 10_000
SKIPPED_MAX: Final = 100
_WALKS_MAX: Final = 3
_CLOSED: Final = "the index was closed"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """The forbidden names of one moment, relative to the folder. A folder stands for all below.

    `generation` grows whenever `paths` is another. `skipped` names the first of the folders that
    were not looked into, `skipped_count` is of all. `foreign` is a path that belongs to another
    user or group, "." for the folder itself; None where none is, or nobody asked.
    Names are decoded with surrogateescape, so that any bytes come back losslessly.
    """

    paths: tuple[str, ...] = ()
    generation: int
    skipped: tuple[str, ...] = ()
    skipped_count: int = 0
    foreign: str | None = None


class MaskIndex:
    """The forbidden names below `top`, a real path whose (st_dev, st_ino) is `identity`.

    One trio run uses it. Each holds an inotify instance, and a watch per folder: at most half of
    what the user may have, or `watches_max`. With `foreign_ids`, our own (uid, gid), each entry
    is looked at for its owner.
    """

    def __init__(
        self,
        top: str,
        identity: tuple[int, int],
        judge: Judge,
        *,
        entries_max: int = ENTRIES_MAX,
        masks_max: int = MASKS_MAX,
        foreign_ids: tuple[int, int] | None = None,
        watches_max: int | None = None,
        tells_all: Callable[[int], bool] = _mask_open.tells_all,
    ) -> None:
        if watches_max is None:
            watches_max = _inotify.watches_allowed() // 2
        self._top = top
        self._identity = identity
        self._judge = judge
        self._bounds = Bounds(entries=entries_max, masks=masks_max, watches=watches_max)
        self._foreign_ids = foreign_ids
        self._tells_all = tells_all
        self._news = News()
        self._masks: Masks | None = None
        # Whoever has the turn has called off the watch before a thread comes near the tree.
        self._turn = trio.Lock()
        self._tree: Tree | None = None
        self._is_closed = False
        # One task waits for the descriptor, others for what it finds.
        self._watch: trio.CancelScope | None = None
        self._others = trio.lowlevel.ParkingLot()

    async def current(self) -> Masks:
        """All names that are forbidden; one that was there when this was called is among them.

        The first call walks, as does one after events were lost; calls at the same time share a
        walk. On cancel a walk is given up and begins anew with the next call.

        Raises:
            NotIndexed: they cannot be told; a later call looks again.
            trio.ClosedResourceError: after `close`.
        """
        async with self._turn:
            if self._is_closed:
                raise trio.ClosedResourceError(_CLOSED)
            masks = self._masks
            if masks is None or not self._is_as_it_was(masks):
                masks = await self._in_thread(self._refresh)
            return masks

    async def changed(self, masks: Masks) -> str:
        """Wait for a name to become forbidden that `masks` does not hide; returns its path.

        Also one that is gone again by then. Returns a Doubt instead, at once, where what happened
        since then is not known: events were lost, or names could no longer be told.
        """
        hidden = frozenset(masks.paths)
        while True:
            async with self._turn:
                if self._tree is not None and not self._tree.is_quiet():
                    await self._in_thread(self._catch_up)
            news = self._news.since(masks.generation, hidden)
            if news is not None:
                return news
            if self._watch is not None or self._tree is None:
                await self._others.park()
            else:
                await self._wait(self._tree.inotify.fd)

    async def news(self, masks: Masks) -> str | None:
        """What `changed` would return by now; None where it would still wait.

        Raises:
            trio.ClosedResourceError: after `close`.
        """
        async with self._turn:
            if self._is_closed:
                raise trio.ClosedResourceError(_CLOSED)
            if self._tree is not None and not self._tree.is_quiet():
                await self._in_thread(self._catch_up)
        return self._news.since(masks.generation, frozenset(masks.paths))

    def close(self) -> None:
        """Give back every descriptor and watch; who waits in `changed` gets a Doubt."""
        self._is_closed = True
        self._call_off()
        self._others.unpark_all()
        if not self._turn.locked():
            self._discard(_CLOSED)

    # ------------------------------------------------------------ taking turns

    async def _wait(self, fd: int) -> None:
        with trio.CancelScope() as self._watch:
            try:
                await trio.lowlevel.wait_readable(fd)
            finally:
                self._watch = None
                # One of the others has to wait for the descriptor now.
                self._others.unpark_all()

    def _call_off(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    async def _in_thread(self, function: Callable[[], _T]) -> _T:
        self._call_off()
        try:
            return await trio.to_thread.run_sync(function)
        finally:
            if self._is_closed:
                self._discard(_CLOSED)
            self._others.unpark_all()

    # ------------------------------------------------------------ what a thread does

    def _is_as_it_was(self, masks: Masks) -> bool:
        """Whether nothing has happened, as far as a look at the queue can tell."""
        tree = self._tree
        if tree is None or not tree.is_quiet():
            return False
        try:
            top = self._opened()
        except NotIndexed:
            return False
        try:
            return self._tells_all(top) and tree.foreign.first(top) == masks.foreign
        finally:
            os.close(top)

    def _refresh(self) -> Masks:
        try:
            top = self._opened()
        except NotIndexed as error:
            self._discard(error.cause)
            raise
        try:
            if not self._tells_all(top):
                self._discard("")
            tree = self._tree
            if tree is not None and self._settled(tree, top) and not _needs_walk(tree, top):
                return self._told(tree, top)
            self._discard("")
            try:
                self._tree = self._walked(top)
            except BaseException:
                # Who waits has nobody to tell him any more.
                self._news.doubted("it was to be walked anew, and was not")
                raise
            return self._told(self._tree, top)
        finally:
            os.close(top)

    def _catch_up(self) -> None:
        """Handle what happened; where that fails the news say so."""
        tree = self._tree
        if tree is None:
            return
        try:
            top = self._opened()
            try:
                self._settled(tree, top)
            finally:
                os.close(top)
        except NotIndexed as error:
            self._discard(error.cause)

    def _settled(self, tree: Tree, top: int) -> bool:
        """Whether the tree knows what happened; else it is discarded."""
        self._masks = None
        try:
            tree.settle(top, trio.from_thread.check_cancelled)
        except Stale as error:
            self._discard(str(error))
            return False
        except trio.Cancelled:
            raise
        except NotIndexed as error:
            self._discard(error.cause)
            raise
        except BaseException:
            self._discard("looking at it failed")
            raise
        return True

    def _walked(self, top: int) -> Tree:
        why = ""
        for _ in range(_WALKS_MAX):
            tree = self._new_tree()
            try:
                tree.settle(top, trio.from_thread.check_cancelled)
            except BaseException as error:
                tree.inotify.close()
                if not isinstance(error, Stale):
                    raise
                why = str(error)
            else:
                return tree
        raise NotIndexed(
            f"it changes faster than it can be walked ({why})",
            "raise fs.inotify.max_queued_events (sysctl), or wait for what is writing there",
            errno.EAGAIN,
        )

    def _new_tree(self) -> Tree:
        try:
            inotify = Inotify()
        except OSError as error:
            raise NotIndexed(
                f"it cannot be watched ({error.strerror})",
                "raise fs.inotify.max_user_instances (sysctl)",
                error.errno,
            ) from None
        return Tree(self._judge, self._news, self._bounds, self._foreign_ids, inotify)

    def _opened(self) -> int:
        """An O_PATH descriptor of the folder, if it is still the one."""
        try:
            fd = syscalls.open_exactly(self._top)
        except OSError as error:
            raise failed(error, self._top) from None
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) == self._identity:
            return fd
        os.close(fd)
        raise NotIndexed(
            f"{shown(self._top)} is another folder than it was",
            "start anew in the folder that is there now",
            errno.ESTALE,
        )

    def _told(self, tree: Tree, top: int) -> Masks:
        known = tree.known
        self._masks = Masks(
            paths=tuple(sorted(known.paths)),
            generation=self._news.generation,
            skipped=tuple(heapq.nsmallest(SKIPPED_MAX, known.left_out)),
            skipped_count=known.left_out_count,
            foreign=tree.foreign.first(top),
        )
        return self._masks

    def _discard(self, why: str) -> None:
        """Give up the tree; with a reason, whoever holds older masks is told to doubt them."""
        tree, self._tree = self._tree, None
        self._masks = None
        if why:
            self._news.doubted(why)
        if tree is not None:
            tree.inotify.close()


def _needs_walk(tree: Tree, top: int) -> bool:
    return tree.foreign.first(top) is None and tree.foreign.needs_walk()
