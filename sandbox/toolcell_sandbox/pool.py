"""Jails that wait for their calls: made ahead by the same code that makes one for a call.

       take ──► a jail that has given up all that it must not have; it runs one call, and ends
       keep ──► have the init of one that ended well make the next one
       idle ──► make another one in its place

A jail is never used twice, and never for a call that it was not made for: it waits below the key
of its plan (`plan.py`). What it sees of the host is compared once more when it is given its call,
since it was opened earlier: a folder that is another by now, or has something mounted in it, is not
shown.
The init of one whose call ended well makes the next, where its worker has another uid: with root
to give those ids, that costs a third (`_child/init.py` says what the two share).
"""

from __future__ import annotations

import logging
import math
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Self

import trio

from . import _zygotes, cgroup, host, offers
from ._child import mountinfo
from ._sight import Sight
from .contained import Contained
from .guarantees import Broken
from .launch import Jail
from .plan import Plan, plan_of
from .spec import JailSpec

_log = logging.getLogger("toolcell")

IDLE_S = 0.002
"""How long no call may have run before jails are made: a call is not to wait for one's making."""
BUSY_S = 0.25
"""After so long they are made beside calls."""
AGAIN_S = 1.0
"""How long a spec whose jails cannot be made is left alone."""
KEPT_S = 1.0
"""How long no call may have run before jails beyond those that are to wait are ended."""
WAITING_BYTES = 6 << 20
"""What a waiting jail is taken to need: the private pages of its two processes (PSS)."""


class Pool:
    """A fixed number of jails waiting for each of the specs that were used last.

    `waiting` jails for each of `specs` specs, and never more than `memory_bytes` allow; the specs
    least recently used are dropped. `preload` names modules that every jail has imported already,
    from the folders of `preload_path`, by default those of the installed packages: trusted code,
    which runs outside of any jail, and whose import starts no threads. They are tried when the pool
    is entered, unless `check_preload` is false; a call would fail later.

    Use it as `async with Pool() as pool`. On leaving, cancelled or not, all that wait are ended
    and gone. One pool serves the calls of one event loop, and of the process and user that entered
    it: in a child that the host program forks it has no jails, and leaving it ends none.

    Raises:
        ValueError: a number is out of range, or a module cannot be preloaded (when entered).
    """

    def __init__(
        self,
        waiting: int = 2,
        *,
        specs: int = 4,
        memory_bytes: int = 256 << 20,
        preload: Sequence[str] = (),
        preload_path: Sequence[str] | None = None,
        check_preload: bool = True,
    ) -> None:
        if waiting < 0 or specs < 1 or memory_bytes < 0:
            raise ValueError("waiting and memory_bytes are 0 or more, specs 1 or more")
        path = _zygotes.library_path() if preload_path is None else tuple(preload_path)
        self.preload = _zygotes.Preload(tuple(preload), path) if preload else _zygotes.NOTHING
        self._checks = check_preload
        self._count = waiting
        self._specs = specs
        self._jails_max = memory_bytes // WAITING_BYTES
        self._shelves: OrderedDict[int, _Shelf] = OrderedDict()
        self._running = 0
        self._idle_at_s = -math.inf
        # Set once something may lack; until then whoever makes jails takes a nap.
        self._wanted, self._nap = trio.Event(), trio.CancelScope()
        # Set while no call runs.
        self._still = trio.Event()
        self._still.set()
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._mounts: mountinfo.Around | None = None
        self._owner = _who()
        # One jail is made at a time: so their number is never more than it may be.
        self._making = trio.Lock()
        # More at once only take each other's processor.
        self._made_at_once = 2 * len(os.sched_getaffinity(0))
        self._made_now = 0
        self._turn = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> Self:
        if self.preload.modules and self._checks:
            await self._check_preload()
        if self._count:
            self._mounts, self._scope = mountinfo.Around(), trio.CancelScope()
            self._ended, self._wanted, begun = trio.Event(), trio.Event(), trio.Event()
            if self._owner != _who():
                # Carried over a fork: what is in it is the parent's.
                self._owner, self._running, self._still = _who(), 0, trio.Event()
                self._still.set()
                self._shelves, self._making = OrderedDict(), trio.Lock()
                self._made_now, self._turn = 0, trio.lowlevel.ParkingLot()
            # Of the loop, not of a task: whoever leaves need not be the task that entered.
            trio.lowlevel.spawn_system_task(self._live, begun)
            await begun.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._mounts is not None and self._is_of_this_process():
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._ended.wait()
            self._mounts.close()
            self._mounts = None

    async def _live(self, begun: trio.Event) -> None:
        """Keep jails waiting until it is left, then end them all."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    begun.set()
                    await self._keep_filled()
        except Exception:  # noqa: BLE001  # a defect of ours costs time, not calls: no jail waits
            _log.exception("the pool of waiting jails is closed by a defect of toolcell")
        finally:
            self._nursery = None
            shelves = list(self._shelves.values())
            self._shelves.clear()
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    for shelf in shelves:
                        while shelf.jails:
                            nursery.start_soon(shelf.jails.popleft().end)
            self._ended.set()

    async def _check_preload(self) -> None:
        spec = JailSpec()
        plan = plan_of(spec, await offers.current())
        if isinstance(plan, Broken):
            return  # Each call says so itself.
        jail = await _made(plan, spec, self.preload)
        try:
            if not await jail.ready():
                facts = jail.reports.get("failed", {})
                if facts.get("guarantee") == "preload":
                    raise ValueError(f"{facts['stage']} cannot be preloaded: {facts['cause']}")
        finally:
            await jail.end()

    # -- calls ----------------------------------------------------------------------------

    def take(self, plan: Plan, spec: JailSpec) -> Jail | None:
        """A jail that waits for such a call; None where none does. Another one will be made.

        Before it is let go, `is_current` is to be asked.
        """
        if self._nursery is None or not self._may_have(plan):
            return None
        shelf = self._shelf(plan, spec)
        # Not now, when the call is to come first: once it has ended, or has taken long.
        self._nap.deadline = min(self._nap.deadline, trio.current_time() + BUSY_S)
        while shelf.jails:
            jail = shelf.first()
            if not jail.is_over():
                jail.was_ahead = True
                return jail
            self._nursery.start_soon(jail.end)
        return None

    def is_current(self, jail: Jail) -> bool:
        """Whether what a jail that was taken sees of the host is what a new one would see.

        Where it is not, those that wait with it are ended as well.
        """
        shelf = self._shelves.get(id(jail.plan))
        if shelf is None or self._nursery is None:
            return False
        looks = shelf.sight.look()
        if jail.looks == looks:
            return True
        for _ in range(len(shelf.jails)):
            other = shelf.jails.popleft()
            if other.looks == looks:
                shelf.jails.append(other)
            else:
                self._nursery.start_soon(other.end)
        return False

    async def make(self, plan: Plan, spec: JailSpec, *, takes: bool) -> Jail:
        """One for a call that found none waiting. Raises as `_call.make`.

        Where many are being made it waits for its turn: one that another call has done with may
        come sooner, which is taken where `takes`.
        """
        if self._nursery is None or not self._may_have(plan):
            return await _made(plan, spec, self.preload)
        while self._made_now >= self._made_at_once:
            await self._turn.park()
            jail = self.take(plan, spec) if takes else None
            if jail is not None:
                self._pass_turn()
                return jail
        self._made_now += 1
        try:
            return await self._make_one(plan, spec)
        finally:
            self._made_now -= 1
            self._pass_turn()

    async def _make_one(self, plan: Plan, spec: JailSpec) -> Jail:
        sight = self._shelf(plan, spec).sight
        looks = sight.look()
        jail = await _made(plan, spec, self.preload, renews=True)
        try:
            # All that it sees of the host was opened meanwhile: see `_make`.
            jail.looks = looks if sight.look() == looks else None
            if len(self._turn):
                await jail.ready()
        except BaseException:
            jail.see_out()
            raise
        return jail

    def _pass_turn(self) -> None:
        """Let the next call on that waits for a jail, where one may be made."""
        if self._made_now < self._made_at_once:
            self._turn.unpark()

    def keep(self, jail: Jail, spec: JailSpec) -> bool:
        """Have the init of a jail whose call is over make the next one; whether it will.

        While many calls run, as many of them as well; those beyond `waiting` end when there were
        none for a while.
        """
        shelf = self._shelves.get(id(jail.plan))
        if shelf is None or self._nursery is None or not self._may_have(jail.plan):
            return False
        is_room = shelf.count < self._count + self._running and not self._is_full()
        if jail.looks is None or not is_room:
            return False
        if not jail.renew(spec):
            return False
        shelf.jails.append(jail)
        self._turn.unpark()
        return True

    def begun(self) -> None:
        """A call is made; `done` follows."""
        if not self._running:
            self._still = trio.Event()
        self._running += 1

    def done(self) -> None:
        """A call has ended."""
        if not self._is_of_this_process():
            return  # Whoever waits for it is a task of the parent's.
        self._running -= 1
        if not self._running:
            self._still.set()
        self._idle_at_s = trio.current_time() + IDLE_S
        self._wanted.set()

    async def fill(self, spec: JailSpec, count: int | None = None) -> int:
        """Have jails wait for this spec now; how many do. At most `waiting` of them.

        Fewer than asked for where they cannot be had: a call then says why.
        """
        plan = plan_of(spec, await offers.current(thorough=bool(spec.waive)))
        if isinstance(plan, Broken) or self._nursery is None or not self._may_have(plan):
            return 0
        shelf = self._shelf(plan, spec)
        wanted = self._count if count is None else min(count, self._count)
        async with self._making:
            for _ in range(len(shelf.jails)):
                # One that is on its way comes back to its place only when it waits.
                if shelf.jails:
                    await self._arrive(shelf, shelf.jails.popleft())
        while len(shelf.jails) < wanted and await self._add(shelf):
            pass
        return len(shelf.jails)

    async def _arrive(
        self, shelf: _Shelf, jail: Jail, may_wait: Callable[[], bool] = lambda: True
    ) -> bool:
        """Have a jail wait in its place, once it does; whether it does."""
        is_ready = False
        shelf.arriving += 1
        try:
            is_ready = await jail.ready() and shelf in self._shelves.values() and may_wait()
            if is_ready:
                shelf.jails.append(jail)
        finally:
            shelf.arriving -= 1
            if not is_ready:
                await jail.end()
        return is_ready

    def waiting_pids(self) -> list[int]:
        """The inits of the jails that wait."""
        jails = (jail for shelf in self._shelves.values() for jail in shelf.jails)
        return [jail.pid for jail in jails if jail.pid is not None]

    def _may_have(self, plan: Plan) -> bool:
        """Whether jails of this plan may wait here, for whoever asks now."""
        # Without namespaces a jail counts on what its user's other processes are right now.
        return plan.agreed.way == "namespaces" and self._owner == _who()

    def _is_of_this_process(self) -> bool:
        return self._owner[0] == os.getpid()

    def _shelf(self, plan: Plan, spec: JailSpec) -> _Shelf:
        # Two promises can be kept by one jail, and are two all the same: so by the very plan.
        key = id(plan)
        shelf = self._shelves.get(key)
        if shelf is None:
            assert self._mounts is not None, "it is not entered"
            shelf = self._shelves[key] = _Shelf(plan, spec, self._mounts)
        self._shelves.move_to_end(key)
        while len(self._shelves) > self._specs:
            _, oldest = self._shelves.popitem(last=False)
            self._drop(oldest)
        return shelf

    def _drop(self, shelf: _Shelf) -> None:
        while shelf.jails and self._nursery is not None:
            self._nursery.start_soon(shelf.jails.popleft().end)

    # -- making ---------------------------------------------------------------------------

    async def _keep_filled(self) -> None:
        """Make what lacks, one jail at a time, while no call runs; end what is too much."""
        while True:
            until_s = trio.current_time() + KEPT_S if self._surplus() else math.inf
            with trio.CancelScope(deadline=until_s) as self._nap:
                await self._wanted.wait()
            if trio.current_time() >= until_s and not self._running:
                self._end_surplus()
            self._wanted = trio.Event()
            while (shelf := self._lacking()) is not None:
                await self._quiet()
                await self._add(shelf)

    def _surplus(self) -> int:
        """How many jails there are beyond those that are to wait."""
        return sum(max(0, len(one.jails) - self._count) for one in self._shelves.values())

    def _end_surplus(self) -> None:
        for shelf in self._shelves.values():
            while len(shelf.jails) > self._count and self._nursery is not None:
                self._nursery.start_soon(shelf.jails.popleft().end)

    async def _quiet(self) -> None:
        """Until no call has run for a moment, or this has waited long enough."""
        with trio.move_on_after(BUSY_S):
            while True:
                await self._still.wait()
                left_s = self._idle_at_s - trio.current_time()
                if left_s <= 0:
                    return
                await trio.sleep(left_s)

    def _lacking(self) -> _Shelf | None:
        """The spec used last that has fewer jails than it should."""
        if self._is_full():
            return None
        now_s = trio.current_time()
        for shelf in reversed(self._shelves.values()):
            if shelf.count < self._count and now_s >= shelf.not_before_s:
                return shelf
        return None

    def _is_full(self) -> bool:
        return sum(shelf.count for shelf in self._shelves.values()) >= self._jails_max

    async def _add(self, shelf: _Shelf) -> bool:
        """One jail more, unless there are enough by now; False where it cannot be had now."""
        async with self._making:
            if shelf.count >= self._count:
                return True
            if self._nursery is None or self._is_full():
                return False
            return await self._make(shelf)

    async def _make(self, shelf: _Shelf) -> bool:
        looks = shelf.sight.look()
        try:
            jail = await _made(shelf.plan, shelf.spec, self.preload, renews=True)
        except (cgroup.NotMade, Contained, host.NoIds, OSError):
            # A call finds out by itself, and says so.
            shelf.not_before_s = trio.current_time() + AGAIN_S
            return False
        jail.looks = looks
        # What came while it was made, and goes before its call, is in it all the same.
        is_there = await self._arrive(shelf, jail, lambda: shelf.sight.look() == looks)
        if not is_there:
            shelf.not_before_s = trio.current_time() + AGAIN_S
        return is_there


def _who() -> tuple[int, int]:
    """Whose jails those of this moment are: this process's, made as this user."""
    return os.getpid(), os.geteuid()


class _Shelf:
    """The jails that wait for one spec."""

    def __init__(self, plan: Plan, spec: JailSpec, mounts: mountinfo.Around) -> None:
        self.plan = plan
        self.spec = spec
        self.sight = Sight(plan, mounts)
        self.jails: deque[Jail] = deque()
        self.arriving = 0
        """How many have been taken out until they wait."""
        self.not_before_s = -math.inf

    @property
    def count(self) -> int:
        """How many wait, or will."""
        return len(self.jails) + self.arriving

    def first(self) -> Jail:
        """Take one out: one that waits, before one that is on its way."""
        for place, jail in enumerate(self.jails):
            jail.hear(jail.work)
            if jail.is_ready:
                del self.jails[place]
                return jail
        return self.jails.popleft()


async def _made(
    plan: Plan, spec: JailSpec, preload: _zygotes.Preload, *, renews: bool = False
) -> Jail:
    from ._call import make

    return await make(plan, spec, preload, renews=renews)
