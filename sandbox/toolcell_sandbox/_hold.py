"""A call's clock, and its tree held still while somebody outside thinks."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from ._cgroup_group import Group


class Hold:
    """Freezes a jail's tree, where its control group can, and stops its clock meanwhile.

    Where it cannot, the tree runs on and so does the clock: a limit is never lifted for a tree
    that could use the time.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._held_s = 0.0
        # Set exactly while the whole tree is frozen by us.
        self._since_s: float | None = None
        self._is_over = False
        self.on_change: Callable[[], None] | None = None
        """Called when the tree is held, and when it goes on."""

    @property
    def held_s(self) -> float:
        """For how many seconds in all the tree was frozen."""
        now_s = 0.0 if self._since_s is None else trio.current_time() - self._since_s
        return self._held_s + now_s

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[bool]:
        """Hold the tree inside of it; yields whether it is. One at a time.

        Cancelled, or when the body raises, it lets the tree go on.
        """
        is_held = not self._is_over and await self._group.freeze()
        if is_held and self._is_over:
            # It was let go for good between the two.
            is_held = False
            self._group.thaw()
        if is_held:
            self._since_s = trio.current_time()
            self._tell()
        try:
            yield is_held
        finally:
            self._go_on()

    def let_go(self) -> None:
        """Let the tree go on for good: it is to be ended, and a frozen one would not see that."""
        self._is_over = True
        self._group.thaw()
        self._go_on()

    def _go_on(self) -> None:
        if self._since_s is not None:
            self._group.thaw()
            self._held_s, self._since_s = self.held_s, None
            self._tell()

    def deadline(self, since_s: float, limit_s: float) -> float:
        """When a tree that runs since then has had `limit_s`, by trio's clock; never while held."""
        return math.inf if self._since_s is not None else since_s + limit_s + self._held_s

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()
