"""One call in its jail, from the order to the proven end of the tree: drain, watch, kill.

Theory of operation. The tree is empty when its init has said so, which it does once wait4(2) has
told it that no child is left: as process 1 of its namespace it is the parent of every orphan. Or
when the init itself has ended, which takes the tree along (pid_namespaces(7)): its pidfd tells, and
no pid is ever signalled that could have been reused. The reason of a kill is recorded before the
kill. Streams are read past the end of the leader, up to the end of the tree; then nobody is left
to hold them open.

All that can be read is in one epoll set, and all that is timed in one deadline: a call takes a
handful of turns of trio's loop, and no task of its own unless something has to be awaited
meanwhile (a sink, standard input, the handler's channel, an alarm).
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import select
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from typing import Any, Literal

import trio

from . import watch
from ._channel import Answerer, Channel, Progress
from ._hold import Hold
from ._pipes import CHUNK_BYTES, Flood, read_to_end, write_all
from ._spool import Spool
from .capture import Capture
from .decode import FrameReader
from .endings import OwnKill
from .launch import REAP_S, START_S, Jail, Streams
from .spec import JailSpec

DRAIN_S = 2.0
"""How long streams may stay open after the whole tree has ended."""
GRACE_S = 0.15
"""How long an init has to end the tree by itself, and to say what that used."""
SAY_S = 2.0
"""How long a zygote may take to say how an init ended that said nothing itself."""
_READS = 16
"""Chunks of one stream before another one, or the clock, has its turn."""

Sink = Callable[[Literal["stdout", "stderr"], bytes], Awaitable[None]]
Alarm = Callable[[], Awaitable[Mapping[str, Any]]]
"""Returns when a guarantee is broken from outside: its name, `cause`, and no stage of a jail's."""


class Supervision:
    """What the supervisor sees and does of one call, once its jail has been asked for."""

    def __init__(self, spec: JailSpec, jail: Jail, streams: Streams, *, spool: str | None) -> None:
        self._spec = spec
        self._jail = jail
        self._streams = streams
        self.stdout = Capture(spec.limits.head_bytes, spec.limits.tail_bytes)
        self.stderr = Capture(spec.limits.head_bytes, spec.limits.tail_bytes)
        self.frame = FrameReader(spec.limits.result_bytes, None if spool is None else Spool(spool))
        self.channel: Channel | None = None
        self.started_s = time.monotonic()
        self.confined_s: float | None = None
        self.result_s: float | None = None
        self.ended_s: float | None = None
        # Set once, before the tree is killed; the first reason stands.
        self.own_kill: OwnKill | None = None
        self.broken: Mapping[str, Any] | None = None
        self.peak_bytes: int | None = None
        self.cpu_s = 0.0
        self.stdin_overflowed = False
        self._seen_cpu_s: dict[tuple[int, int], float] = {}
        self._hold = Hold(jail.group)
        self._in_sink = 0
        # By trio's clock: when something is to be done, whatever is heard meanwhile.
        self._begun_s = trio.current_time()
        self._running_since_s: float | None = None
        self._asked_at_s = self._begun_s
        self._killed_at_s: float | None = None
        self._sample_at_s = math.inf
        self._resume_at_s = math.inf
        self._is_forced = False
        # Without namespaces the init has more to do than to end: it reaps all, and removes folders.
        self._grace_s = GRACE_S if jail.agreed.way == "namespaces" else REAP_S
        self._is_sampled = False
        self._is_gone = False
        self._turn: trio.CancelScope | None = None
        self._poll = select.epoll()
        # What to do when a descriptor can be read.
        self._handlers: dict[int, Callable[[], None]] = {}
        # Each stream that has not ended, and how what is there of it is taken.
        self._open: set[str] = set()
        self._takers: dict[str, Callable[[], None]] = {}
        # For who writes more than a pipe's worth at once.
        self._flood: Flood | None = None
        self._drained = trio.Event()

    @property
    def held_s(self) -> float:
        """For how long the tree was held still."""
        return self._hold.held_s

    @property
    def seen_bytes(self) -> int:
        """What came on both streams."""
        return self.stdout.seen_bytes + self.stderr.seen_bytes

    # -- the whole ------------------------------------------------------------------------

    async def run(
        self,
        stdin: bytes | AsyncIterable[bytes] | None,
        sink: Sink | None,
        alarm: Alarm | None,
        answer: Answerer | None,
        on_progress: Callable[[Progress], None] | None,
        begin: Callable[[], None],
    ) -> None:
        """To the proven end of the tree. Cancelled, it kills it and waits until it is gone."""
        line = self._streams.line
        if line is not None:
            self.channel = Channel(line, self._hold, answer=answer, on_progress=on_progress)
        try:
            self._watch_links()
            self._read_result()
            if sink is None:
                self._read_outputs()
            # Last: the sooner this task waits, the sooner the jail has its processor as well.
            begin()
            if not (stdin is not None or sink or alarm or line):
                await self._follow()
                return
            async with trio.open_nursery() as nursery:
                if sink is not None:
                    nursery.start_soon(self._drain_to, sink)
                if stdin is not None:
                    nursery.start_soon(self._feed, stdin)
                if alarm is not None:
                    nursery.start_soon(self._listen, alarm)
                if self.channel is not None:
                    nursery.start_soon(self.channel.serve)
                await self._follow()
                if sink is not None:
                    await self._patiently()
                nursery.cancel_scope.cancel()
        finally:
            # On cancel: shield, kill, wait for death; the exception goes on by itself.
            if self.ended_s is None:
                self.kill("cancelled")
                with trio.CancelScope(shield=True):
                    await self._follow(drains=False)
            self._poll.close()
            with trio.CancelScope(shield=True):
                await self._jail.clear_up()

    def kill(self, reason: OwnKill) -> None:
        """Record why, then have the init end the tree; `_follow` insists."""
        if self.own_kill is None and self.ended_s is None:
            self.own_kill = reason
        if self._killed_at_s is None:
            self._killed_at_s = trio.current_time()
        self._hold.let_go()
        self._jail.say("end")
        self._wake()

    # -- turns ----------------------------------------------------------------------------

    async def _follow(self, *, drains: bool = True) -> None:
        """Turn by turn, until the tree is gone and what it left in the pipes is read."""
        self._hold.on_change = self._wake
        while not (self._is_gone or self._jail.is_empty):
            await self._await_turn(self._next_s())
            await self._look()
        self.ended_s = time.monotonic()
        self._hear(self._jail.init)
        self._hear_worker()
        told = {"ended", "reaped", "emptied", "done", "failed"}
        until_s = trio.current_time() + SAY_S
        while not (self._jail.is_silent or self._jail.reports.keys() & told):
            # The init was killed, and its zygote will say how it ended.
            if trio.current_time() >= until_s:
                break
            await self._await_turn(until_s)
        if self.channel is not None:
            # Before the streams: a descriptor on its way here would keep them open.
            self.channel.end()
        self._read_rest()
        until_s = trio.current_time() + DRAIN_S
        while drains and self._open and trio.current_time() < until_s:
            await self._await_turn(until_s)

    async def _await_turn(self, until_s: float) -> None:
        """Wait until something can be read, or it is time; then take what is there."""
        with trio.CancelScope(deadline=until_s) as self._turn:
            await trio.lowlevel.wait_readable(self._poll.fileno())
        self._turn = None
        for fd, _ in self._poll.poll(0):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler()
        if self.frame.is_full:
            await trio.to_thread.run_sync(self.frame.flush)

    def _wake(self) -> None:
        """Have the loop look at its clock again."""
        if self._turn is not None:
            self._turn.deadline = -math.inf

    def _next_s(self) -> float:
        """When something is to be done at the latest."""
        limits = self._spec.limits
        if self._killed_at_s is not None:
            return self._killed_at_s + (REAP_S if self._is_forced else self._grace_s)
        if self._running_since_s is None:
            # A worker that is confined by then has not been asked yet.
            soon_s = self._asked_at_s + min(watch.SAMPLE_S, limits.wall_s)
            return min(soon_s, self._begun_s + START_S)
        ends_s = self._hold.deadline(self._running_since_s, limits.wall_s)
        return min(ends_s, self._sample_at_s, self._resume_at_s)

    async def _look(self) -> None:
        """Do what it is time for."""
        now_s = trio.current_time()
        if self._running_since_s is None:
            self._hear_worker()
            if self.confined_s is not None:
                self._running_since_s = now_s - (time.monotonic() - self.confined_s)
                self._sample_at_s = now_s + watch.SAMPLE_S
        if now_s >= self._resume_at_s:
            self._read_rest()
        if self._killed_at_s is not None:
            if now_s >= self._killed_at_s + self._grace_s:
                # It did not take; or the init is gone, and its zygote with it.
                self._is_forced = True
                self._jail.kill()
                if now_s >= self._killed_at_s + REAP_S:
                    self._killed_at_s = now_s
        elif self._running_since_s is None:
            if now_s >= self._begun_s + START_S:
                self.kill("start")
        elif now_s >= self._hold.deadline(self._running_since_s, self._spec.limits.wall_s):
            self.kill("timeout")
        elif now_s >= self._sample_at_s:
            await self._sample()
            self._sample_at_s = trio.current_time() + max(watch.SAMPLE_S, 20 * watch.census.cost_s)

    # -- watch ----------------------------------------------------------------------------

    async def _sample(self) -> None:
        """Look at the tree; end it when it uses more than it may, before it ends the machine."""
        group, limits = self._jail.group, self._spec.limits
        if {"cgroup_memory", "cgroup_cpu"} <= self._jail.agreed.layers:
            # The kernel bounds and counts it: no walk over processes is needed.
            if group.oom_kills():
                self.kill("memory")
                return
            self.cpu_s = max(self.cpu_s, group.cpu_s() or 0.0)
        elif self._jail.pid is not None:
            sample = watch.census.tree(self._jail.pid)
            self._seen_cpu_s |= sample.own_cpu_s
            self.cpu_s = max(self.cpu_s, sample.cpu_s, sum(self._seen_cpu_s.values()))
            if await self._is_over(sample):
                self.kill("memory")
                return
        if limits.cpu_s is not None and self.cpu_s > limits.cpu_s:
            self.kill("cpu")

    async def _is_over(self, sample: watch.Sample) -> bool:
        """Whether the tree uses more memory than it may, as far as a sampler can see."""
        limit = self._spec.limits.memory_bytes
        if self._jail.group.oom_kills():
            return True
        if not sample.pids:
            return False
        peak = sample.memory_bytes + sample.memfd_bytes
        if peak > limit:
            peak = await trio.to_thread.run_sync(watch.proportional_bytes, sample)
        self.peak_bytes = max(self.peak_bytes or 0, peak)
        return peak > limit

    async def _listen(self, alarm: Alarm) -> None:
        """End the call when somebody outside breaks what it was promised."""
        broken = {"stage": "run", "errno": None, **await alarm()}
        if self.ended_s is None and self.own_kill is None:
            self.broken = broken
        self.kill("broken")

    # -- what can be read -----------------------------------------------------------------

    def _watch_links(self) -> None:
        # Not the worker's: what it says is asked for when something else is heard, or it is time.
        link = self._jail.init
        self._register(link.fileno(), functools.partial(self._hear, link))
        pidfd = self._jail.pidfd
        if pidfd is not None:
            self._register(pidfd, functools.partial(self._gone, pidfd))

    def _gone(self, pidfd: int) -> None:
        self._is_gone = True
        self._forget(pidfd)

    def _hear(self, link: Any) -> None:
        jail = self._jail
        if not jail.hear(link):
            self._forget(link.fileno())
        is_told = jail.reports.keys() & {"ended", "reaped", "emptied"}
        if jail.group.needs_lingering and is_told and not self._is_sampled:
            # The scope goes with its last process, and with it what it saw.
            self._is_sampled = True
            jail.group.sample()
            jail.say("go")

    def _hear_worker(self) -> None:
        self._asked_at_s = trio.current_time()
        self._jail.hear(self._jail.work)
        confined = self._jail.reports.get("confined")
        if confined is not None and self.confined_s is None:
            # By the clock of all processes of this machine (clock_gettime(2), CLOCK_MONOTONIC).
            self.confined_s = float(confined["at_s"])

    def _read_outputs(self) -> None:
        for name, capture in (("stdout", self.stdout), ("stderr", self.stderr)):
            self._read(name, capture)

    def _read_rest(self) -> None:
        """Take what came since the result was whole."""
        self._resume_at_s = math.inf
        for name in list(self._open):
            fd = self._streams.ends[name]
            if fd not in self._handlers:
                self._register(fd, self._takers[name])
                self._takers[name]()

    def _read_result(self) -> None:
        fd = self._streams.ends["result"]
        self._open.add("result")
        self._takers["result"] = functools.partial(self._take_result, fd)
        self._register(fd, self._takers["result"])

    def _take_result(self, fd: int) -> None:
        for _ in range(_READS):
            chunk = _chunk(fd)
            if chunk is None:
                return
            if not chunk:
                self._at_end("result", fd)
                return
            self.frame.feed(chunk)
            if self.result_s is None and self.frame.is_whole:
                self.result_s = time.monotonic()
                self._await_end()
                return
            if self.frame.is_full:
                return

    def _read(self, name: str, capture: Capture) -> None:
        fd = self._streams.ends[name]
        self._open.add(name)
        self._takers[name] = functools.partial(self._take_output, name, fd, capture)
        self._register(fd, self._takers[name])

    def _take_output(self, name: str, fd: int, capture: Capture) -> None:
        for _ in range(_READS):
            chunk = _chunk(fd) if self._flood is None else self._flood.read(fd)
            if chunk is None:
                return
            if not chunk:
                capture.closed = True
                self._at_end(name, fd)
                return
            if self._flood is None and len(chunk) == CHUNK_BYTES:
                self._flood = Flood()
            self._heard(capture, chunk)

    def _heard(self, capture: Capture, chunk: bytes | memoryview) -> None:
        """Take what came; a caller may have asked that flooding ends the call."""
        capture.feed(chunk)
        limit = self._spec.limits.output_bytes
        if limit is not None and self.seen_bytes > limit:
            # Also where it has ended by then: what it wrote was too much, read late or not.
            self.own_kill = self.own_kill or "output"
            self.kill("output")

    def _await_end(self) -> None:
        """What is sent last has come: read the rest when the tree is gone, not in a turn each.

        A tree that does not end now is read from again after a moment, whatever it sends.
        """
        self._resume_at_s = trio.current_time() + watch.SAMPLE_S
        for name in self._open:
            self._forget(self._streams.ends[name])

    def _at_end(self, name: str, fd: int) -> None:
        self._open.discard(name)
        self._forget(fd)

    def _register(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def _forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._poll.unregister(fd)

    # -- what is awaited meanwhile --------------------------------------------------------

    async def _drain_to(self, sink: Sink) -> None:
        """Both streams to their ends, each chunk handed on: a slow sink slows the handler."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drain, "stdout", self.stdout, sink)
            nursery.start_soon(self._drain, "stderr", self.stderr, sink)
        self._drained.set()

    async def _drain(self, name: Literal["stdout", "stderr"], capture: Capture, sink: Sink) -> None:
        async def passed(chunk: bytes) -> None:
            self._in_sink += 1
            try:
                await sink(name, chunk)
            finally:
                self._in_sink -= 1

        try:
            await read_to_end(
                self._streams.ends[name], lambda chunk: self._heard(capture, chunk), passed
            )
        except BrokenPipeError:
            # The sink's reader is gone: let the handler's next write tell it so, by SIGPIPE.
            self._streams.close_end(name)
            return
        capture.closed = True

    async def _patiently(self) -> None:
        """Wait for the streams' ends. The tree is gone, so only a sink can take long.

        What a command left in the pipe is owed whole, so a sink may take its time over it; but
        after a kill of ours no longer than `DRAIN_S` for each chunk.
        """
        while not self._drained.is_set():
            seen_bytes = self.seen_bytes
            with trio.move_on_after(DRAIN_S):
                await self._drained.wait()
            patient = self._in_sink > 0 and self.own_kill is None
            if not (self.seen_bytes > seen_bytes or patient):
                return

    async def _feed(self, stdin: bytes | AsyncIterable[bytes]) -> None:
        """Write all of stdin and close it. A reader that has stopped reading is normal."""
        fd, left = self._streams.ends["stdin"], self._spec.limits.stdin_bytes
        try:
            if isinstance(stdin, bytes):
                await write_all(fd, stdin)
            else:
                async for part in stdin:
                    left -= len(part)
                    if left < 0:
                        self.stdin_overflowed = True
                        self.kill("cancelled")
                        return
                    await write_all(fd, part)
        except BrokenPipeError:
            pass
        finally:
            self._streams.close_end("stdin")
            if isinstance(stdin, AsyncGenerator):
                # Nobody will ask it for more: what it holds is let go of now.
                await stdin.aclose()


def _chunk(fd: int) -> bytes | None:
    """What is there now; b"" at the end, None where nothing is there yet."""
    try:
        return os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return None
