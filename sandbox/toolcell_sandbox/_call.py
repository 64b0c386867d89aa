"""One call in one jail: start, feed, drain, watch, kill, reap. Public as `run_in_jail`.

Theory of operation. The launcher is our only child. Its end is the end of the whole tree (see
`_child/launcher.py`), so there is one thing to wait for, a pidfd, and one way to kill, closing
the liveness pipe: no pid is ever signalled that could have been reused. The reason of a kill is
recorded before the pipe is closed. Streams are read past the end of the leader, up to the end
of the tree; then nobody is left to hold them open.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import trio

from . import cgroup, offers, watch
from ._channel import Answerer, Channel, Progress
from ._hold import Hold
from ._pipes import read_to_end, write_all
from ._spool import Spool, Spooled, Unspooled
from .capture import Capture
from .contained import Contained
from .decode import BrokenRule, FrameReader
from .endings import Ending, Evidence, OwnKill, classify
from .failures import ExecutorError, FailureBase
from .guarantees import Broken, Promise, promise
from .launch import Launch
from .outcome import JailOutcome, Receipt, Upper, Usage
from .spec import CommandHandler, Handler, JailSpec, Limits, PythonHandler

START_S = 60.0
"""A jail that is not ready by then is a defect, not a slow machine."""
DRAIN_S = 2.0
"""How long streams may stay open after the whole tree has ended."""
REAP_S = 10.0
"""How long a killed tree may take to be gone before the launcher is killed as well."""
THREAD_DECODE_BYTES = 1 << 17

Sink = Callable[[Literal["stdout", "stderr"], bytes], Awaitable[None]]
Alarm = Callable[[], Awaitable[Mapping[str, Any]]]
"""Returns when a guarantee is broken from outside: its name, `cause`, and no stage of a jail's."""


class StdinTooLarge(ValueError):
    """The caller has more standard input than a call may have. Pass it as a file instead."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"standard input is larger than {limit_bytes} bytes (stdin_bytes)")


async def run_in_jail(
    handler: Handler | Sequence[str],
    spec: JailSpec,
    *,
    stdin: bytes | AsyncIterable[bytes] | None = None,
    sink: Sink | None = None,
    alarm: Alarm | None = None,
    keep: Callable[[Upper], None] | None = None,
    spool: str | None = None,
    channel: Answerer | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> JailOutcome:
    """Run one handler, or a command given as its words, in a jail of its own; say how it ended.

    Returns when the process tree is gone, whatever it did. `stdin` is fed while output is
    read; None is /dev/null. `sink` is awaited with each chunk of output as it comes, so a slow
    one slows the handler; when it raises BrokenPipeError, that stream is closed. When `alarm`
    returns while the handler runs, the call is ended as `confinement_failed` with the facts that
    it returned. `keep` is handed the layer that holds the workspace's changes, in mode
    `transaction`, once the tree is gone, and closes it; without `keep` they are dropped. `spool`
    is a folder on disk for a result of more than 8 MiB, or of too many values: it is not looked
    at then, see `JailOutcome.spooled`. Times are monotonic; sizes are bytes.

    A `PythonHandler(channel=True)` may say how far it is, to `on_progress`, at most some forty
    times a second, and ask: `channel` is awaited with each request, which is untrusted, one at a
    time, and returns the answer. While it holds the tree, where that can be had, `wall_s` does not
    run. What came is in the outcome's `channel`.

    Cancelled, it kills the tree, waits until it is gone, and lets `trio.Cancelled` go on up.

    Raises:
        StdinTooLarge: `stdin` is larger than `spec.limits.stdin_bytes`; a tree that was
            started is gone.
    """
    if isinstance(stdin, bytes) and len(stdin) > spec.limits.stdin_bytes:
        raise StdinTooLarge(spec.limits.stdin_bytes)
    if not isinstance(handler, PythonHandler | CommandHandler):
        handler = CommandHandler(argv=tuple(handler))
    is_command = isinstance(handler, CommandHandler)
    agreed = promise(spec, await offers.current(thorough=bool(spec.waive)))
    if isinstance(agreed, Broken):
        return _Jail(spec, is_command=is_command).refused(agreed.facts())
    with ExitStack() as held:
        jail = _Jail(spec, is_command=is_command, agreed=agreed, spool=spool)
        held.callback(jail.drop_result)
        try:
            group = held.enter_context(limited(agreed, spec.limits))
            launch = Launch(handler, spec, agreed, held, group=group, feeds=stdin is not None)
        except cgroup.NotMade as error:
            offers.forget()
            return jail.refused(_not_made(error))
        except Contained as error:
            return jail.refused(error.facts)
        except LookupError as error:
            facts = {"guarantee": "no_new_privileges", "stage": "ids", "cause": str(error)}
            return jail.refused(facts)
        except OSError as error:
            why = f"the launcher could not be started: {error}"
            return jail.outcome(jail.evidence(broke=why))
        try:
            await jail.supervise(launch, group, stdin, sink, alarm, channel, on_progress)
        finally:
            upper = launch.take_upper()
            if upper is not None:
                (keep or Upper.close)(upper)
        if jail.stdin_overflowed:
            raise StdinTooLarge(spec.limits.stdin_bytes)
        frame = await jail.frame()
        return jail.outcome(jail.evidence(frame=frame, notes=launch.notes()))


def limited(agreed: Promise, limits: Limits) -> cgroup.Group:
    """The control group that a promise rests on; one that limits nothing where it does not."""
    rests = any(layer.startswith("cgroup_") for layer in agreed.layers)
    offer = cgroup.offered() if rests else cgroup.CgroupOffer()
    return cgroup.make(offer, memory_bytes=limits.memory_bytes, processes=limits.processes)


def _not_made(error: cgroup.NotMade) -> dict[str, Any]:
    return {
        "guarantee": error.guarantee,
        "stage": error.stage,
        "cause": error.cause,
        "errno": error.errno_name,
    }


class _Jail:
    """What the supervisor knows and holds of one call."""

    def __init__(
        self,
        spec: JailSpec,
        *,
        is_command: bool,
        agreed: Promise | None = None,
        spool: str | None = None,
    ) -> None:
        self._spec = spec
        self._agreed = agreed
        self._is_command = is_command
        self._stdout = Capture(spec.limits.head_bytes, spec.limits.tail_bytes)
        self._stderr = Capture(spec.limits.head_bytes, spec.limits.tail_bytes)
        self._half_line = b""
        self._in_sink = 0
        self._frame = FrameReader(spec.limits.result_bytes, None if spool is None else Spool(spool))
        self._spooled: Spooled | Unspooled | None = None
        self._reports: dict[str, Mapping[str, Any]] = {}
        self._confined = trio.Event()
        self._started_s = time.monotonic()
        self._confined_s: float | None = None
        self._ended_s: float | None = None
        # Set once, before the liveness pipe is closed; the first reason stands.
        self._own_kill: OwnKill | None = None
        self._peak_bytes: int | None = None
        self._group = cgroup.Group(())
        self._hold = Hold(self._group)
        self._channel: Channel | None = None
        self._not_made: dict[str, Any] | None = None
        self._broken: Mapping[str, Any] | None = None
        self._cpu_s = 0.0
        self._killed = trio.Event()
        self._exited = False
        self.stdin_overflowed = False

    # -- supervise ------------------------------------------------------------------------

    async def supervise(
        self,
        launch: Launch,
        group: cgroup.Group,
        stdin: bytes | AsyncIterable[bytes] | None,
        sink: Sink | None,
        alarm: Alarm | None,
        answer: Answerer | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        """Everything between the start and the proven end of the tree."""
        self._launch, self._group, self._hold = launch, group, Hold(group)
        if launch.line is not None:
            self._channel = Channel(launch.line, self._hold, answer=answer, on_progress=on_progress)
        try:
            async with trio.open_nursery() as nursery:
                readers = trio.Event()
                nursery.start_soon(self._read_all, sink, readers)
                if stdin is not None:
                    nursery.start_soon(self._feed, stdin)
                nursery.start_soon(self._deadline)
                nursery.start_soon(self._watch)
                nursery.start_soon(self._insist)
                if alarm is not None:
                    nursery.start_soon(self._listen, alarm)
                if group.needs_adoption:
                    nursery.start_soon(self._adopt)
                if self._channel is not None:
                    nursery.start_soon(self._channel.serve)
                await self._exit()
                if self._channel is not None:
                    # Before the streams: a descriptor on its way here would keep them open.
                    self._channel.end()
                await self._drained(readers, has_sink=sink is not None)
                nursery.cancel_scope.cancel()
        finally:
            # On cancel: shield, kill, wait for death; the exception goes on by itself.
            if not self._exited:
                self._kill("cancelled")
            with trio.CancelScope(shield=True):
                await self._reap()
                await self._group.remove()

    async def _adopt(self) -> None:
        """Have the launcher put into its scope before it starts anything."""
        try:
            await self._group.adopt(self._launch.pid)
        except cgroup.NotMade as error:
            self._not_made = _not_made(error)
            self._kill("start")
            return
        self._launch.go_on()

    def _kill(self, reason: OwnKill) -> None:
        """Record why, then let go of the liveness pipe: the launcher kills the init."""
        if self._own_kill is None and not self._exited:
            self._own_kill = reason
        self._hold.let_go()
        self._launch.let_go()
        self._killed.set()

    async def _listen(self, alarm: Alarm) -> None:
        """End the call when somebody outside breaks what it was promised."""
        broken = {"stage": "run", "errno": None, **await alarm()}
        if not self._exited and self._own_kill is None:
            self._broken = broken
        self._kill("broken")

    async def _exit(self) -> None:
        await self._launch.wait()
        self._exited = True
        self._ended_s = time.monotonic()

    async def _drained(self, readers: trio.Event, *, has_sink: bool) -> None:
        """Wait for the streams' ends. The tree is gone, so only a sink can take long.

        What a command left in the pipe is owed whole, so a sink may take its time over it; but
        after a kill of ours no longer than `DRAIN_S` for each chunk.
        """
        while not readers.is_set():
            seen_bytes = self._seen_bytes
            with trio.move_on_after(DRAIN_S):
                await readers.wait()
            moved = self._seen_bytes > seen_bytes
            patient = self._in_sink > 0 and self._own_kill is None
            if not (has_sink and (moved or patient)):
                return

    async def _insist(self) -> None:
        """After a kill of ours that did not take, end the launcher itself."""
        await self._killed.wait()
        await trio.sleep(REAP_S)
        self._launch.kill(self._process_group)

    async def _reap(self) -> None:
        """Wait for the launcher's end; past `REAP_S` kill it, which kills the init."""
        if not self._exited:
            with trio.move_on_after(REAP_S):
                await self._exit()
        if not self._exited:
            self._launch.kill(self._process_group)
            await self._exit()
        if "done" not in self._reports:
            # Nobody said that the tree is empty: what a group holds is still there then.
            self._launch.kill_group(self._process_group)
            self._launch.clear_up()
        self._launch.reap()

    @property
    def _process_group(self) -> int | None:
        """The jail's process group, where it has no pid namespace."""
        group = self._reports.get("started", {}).get("group")
        return None if group is None else int(group)

    async def _deadline(self) -> None:
        with trio.move_on_after(START_S):
            await self._confined.wait()
        if not self._confined.is_set():
            self._kill("start")
            return
        await self._hold.out_of_time(self._spec.limits.wall_s)
        self._kill("timeout")

    async def _watch(self) -> None:
        """Sample the tree; end it when it uses more than it may, before it ends the machine."""
        await self._confined.wait()
        init_pid = int(self._reports["started"]["init_pid"])
        limits = self._spec.limits
        seen_cpu_s: dict[tuple[int, int], float] = {}
        while not self._exited:
            if self._rests_on("cgroup_memory", "cgroup_cpu"):
                # The kernel bounds and counts it: no walk over processes is needed.
                if self._group.oom_kills():
                    self._kill("memory")
                    return
                self._cpu_s = max(self._cpu_s, self._group.cpu_s() or 0.0)
            else:
                sample = watch.census.tree(init_pid)
                seen_cpu_s |= sample.own_cpu_s
                self._cpu_s = max(self._cpu_s, sample.cpu_s, sum(seen_cpu_s.values()))
                if await self._is_over(sample):
                    self._kill("memory")
                    return
            if limits.cpu_s is not None and self._cpu_s > limits.cpu_s:
                self._kill("cpu")
                return
            await trio.sleep(max(watch.SAMPLE_S, 20 * watch.census.cost_s))

    async def _is_over(self, sample: watch.Sample) -> bool:
        """Whether the tree uses more memory than it may, as far as a sampler can see."""
        limit = self._spec.limits.memory_bytes
        if self._group.oom_kills():
            return True
        if not sample.pids:
            return False
        peak = sample.memory_bytes + sample.memfd_bytes
        if peak > limit:
            peak = await trio.to_thread.run_sync(watch.proportional_bytes, sample)
        self._peak_bytes = max(self._peak_bytes or 0, peak)
        return peak > limit

    def _rests_on(self, *layers: str) -> bool:
        return self._agreed is not None and self._agreed.layers >= set(layers)

    async def _read_all(self, sink: Sink | None, done: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drain, "stdout", self._stdout, sink)
            nursery.start_soon(self._drain, "stderr", self._stderr, sink)
            nursery.start_soon(self._read_frame)
            nursery.start_soon(self._read_reports)
        done.set()

    async def _drain(
        self, name: Literal["stdout", "stderr"], capture: Capture, sink: Sink | None
    ) -> None:
        passed = None if sink is None else functools.partial(self._pass_on, sink, name)
        try:
            await read_to_end(
                self._launch.ends[name], functools.partial(self._heard, capture), passed
            )
        except BrokenPipeError:
            # The sink's reader is gone: let the handler's next write tell it so, by SIGPIPE.
            self._launch.close(name)
            return
        capture.closed = True

    def _heard(self, capture: Capture, chunk: bytes) -> None:
        """Take what came; a caller may have asked that flooding ends the call."""
        capture.feed(chunk)
        limit = self._spec.limits.output_bytes
        if limit is not None and self._seen_bytes > limit:
            # Also where it has ended by then: what it wrote was too much, read late or not.
            self._own_kill = self._own_kill or "output"
            self._kill("output")

    @property
    def _seen_bytes(self) -> int:
        return self._stdout.seen_bytes + self._stderr.seen_bytes

    async def _pass_on(self, sink: Sink, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        self._in_sink += 1
        try:
            await sink(name, chunk)
        finally:
            self._in_sink -= 1

    async def _read_frame(self) -> None:
        await read_to_end(self._launch.ends["result"], self._frame.feed, self._flush_frame)

    async def _flush_frame(self, _: bytes) -> None:
        if self._frame.is_full:
            await trio.to_thread.run_sync(self._frame.flush)

    async def _read_reports(self) -> None:
        await read_to_end(self._launch.ends["report"], self._take_report)

    def _take_report(self, chunk: bytes) -> None:
        *lines, self._half_line = (self._half_line + chunk).split(b"\n")
        for line in lines:
            facts = json.loads(line)
            event = facts.pop("event")
            self._reports.setdefault(event, facts)
            if event == "done" and self._group.needs_lingering:
                self._group.sample()
                self._launch.go_on()
        if "confined" in self._reports and not self._confined.is_set():
            self._confined_s = time.monotonic()
            self._confined.set()

    async def _feed(self, stdin: bytes | AsyncIterable[bytes]) -> None:
        """Write all of stdin and close it. A reader that has stopped reading is normal."""
        fd, left = self._launch.ends["stdin"], self._spec.limits.stdin_bytes
        try:
            if isinstance(stdin, bytes):
                await write_all(fd, stdin)
            else:
                async for part in stdin:
                    left -= len(part)
                    if left < 0:
                        self.stdin_overflowed = True
                        self._kill("cancelled")
                        return
                    await write_all(fd, part)
        except BrokenPipeError:
            pass
        finally:
            self._launch.close("stdin")

    # -- outcome --------------------------------------------------------------------------

    def refused(self, facts: Mapping[str, Any]) -> JailOutcome:
        """No jail was built: why."""
        return self.outcome(self.evidence(setup=facts))

    def evidence(self, **known: Any) -> Evidence:
        """All that is known, with what the caller knows besides."""
        reports = self._reports
        # The leader's own end; that of a tree that we killed; the init's, where both are missing.
        ended, reaped, done = (reports.get(name, {}) for name in ("ended", "reaped", "done"))
        broke = [
            str(reports[name]["cause"])
            for name in ("launcher_broke", "init_broke", "worker_broke")
            if name in reports
        ]
        facts: dict[str, Any] = {
            "limits": self._spec.limits,
            "is_command": self._is_command,
            "own_kill": self._own_kill,
            "wall_s": self._wall_s(),
            "setup": self._broken or self._not_made or reports.get("failed"),
            "broke": "; ".join(broke) or None,
            "confined": "confined" in reports,
            "cwd_errno": reports.get("no_folder", {}).get("errno"),
            "blocked": reports.get("blocked"),
            "filter_kills": "unheard" in reports,
            "segments_bytes": reports.get("segments", {}).get("memory_bytes"),
            "oom_kills": self._group.oom_kills(),
            "processes_refused": self._group.processes_refused(),
            "exec_errno": reports.get("exec_failed", {}).get("errno"),
            "status": ended.get("status"),
            "init_status": done.get("status"),
            "init_lost": "init_lost" in reports,
            "stage": ended.get("stage", "start"),
            "fenced": ended.get("fenced", False),
            "file_at_limit": ended.get("file_at_limit", False),
            "leader_cpu_s": ended.get("leader_cpu_s", 0.0),
            "cpu_s": max(self._cpu_s, done.get("cpu_s", 0.0)),
            "output_bytes": self._seen_bytes,
            "peak_memory_bytes": self._group.peak_memory_bytes() or self._peak_bytes,
            "memory_from": "cgroup" if self._rests_on("cgroup_memory") else "watch",
            # The kernel's figure for the tree, where there is one, counts shared pages once.
            "reaped_memory_bytes": None
            if self._group.peak_memory_bytes()
            else (ended or reaped or done).get("peak_memory_bytes"),
        }
        return Evidence(**(facts | known))

    def _wall_s(self) -> float:
        end = self._ended_s if self._ended_s is not None else time.monotonic()
        start = self._confined_s if self._confined_s is not None else self._started_s
        return end - start - self._hold.held_s

    async def frame(self) -> Mapping[str, Any] | BrokenRule | None:
        """What came over the result channel; a large one is read in a thread.

        A spooled one counts as a value here: whoever has it looked at finds out.
        """
        found = (
            await trio.to_thread.run_sync(self._frame.message)
            if self._frame.seen_bytes > THREAD_DECODE_BYTES
            else self._frame.message()
        )
        if isinstance(found, Spooled | Unspooled):
            self._spooled = found
            return {"ok": True, "value": None, "frame_bytes": self._frame.seen_bytes}
        return found

    def drop_result(self) -> None:
        """Let go of a spooled result that nobody was handed."""
        self._frame.close()
        if isinstance(self._spooled, Spooled):
            self._spooled.close()

    def _take_spooled(self, ending: Ending) -> tuple[FailureBase | None, Spooled | None]:
        """The failure of the call, and its result on disk where it is a success."""
        if ending.failure is not None or self._spooled is None:
            return ending.failure, None
        spooled, self._spooled = self._spooled, None
        if isinstance(spooled, Spooled):
            return None, spooled
        return ExecutorError(
            message=f"the result of {self._frame.seen_bytes:,} bytes could not be kept on disk: "
            f"{spooled.why}",
            operator_detail=f"spooling a result failed: {spooled.why}",
            remedy="make room in the state folder, or return less",
        ), None

    def outcome(self, evidence: Evidence) -> JailOutcome:
        """The one ending, with what was captured and used."""
        ending = classify(evidence)
        sent = evidence.frame
        unconfirmed = None
        if isinstance(sent, Mapping) and ending.failure is not None and not evidence.is_whole:
            unconfirmed = dict(sent)
        failure, spooled = self._take_spooled(ending)
        return JailOutcome(
            failure=failure,
            value=ending.value,
            exit_code=ending.exit_code,
            exec_errno=evidence.exec_errno,
            stdout=self._stdout.captured(),
            stderr=self._stderr.captured(),
            usage=self._usage(evidence),
            receipt=self._receipt(evidence),
            unconfirmed=unconfirmed,
            spooled=spooled,
            channel=None if self._channel is None else self._channel.use,
        )

    def _receipt(self, e: Evidence) -> Receipt:
        """What was promised, once the worker said that every step was taken."""
        if self._agreed is None or not e.confined:
            return Receipt()
        agreed = self._agreed
        if self._own_kill == "broken":
            broken = (self._broken or {}).get("guarantee")
            held = {name: by for name, by in agreed.held.items() if name != broken}
            return Receipt(held=held, waived=agreed.waived)
        return Receipt(isolation=agreed.isolation, held=agreed.held, waived=agreed.waived)

    def _usage(self, e: Evidence) -> Usage:
        watched, reaped = e.peak_memory_bytes, e.reaped_memory_bytes
        peak = max((x for x in (watched, reaped) if x is not None), default=None)
        source: Literal["watch", "ru_maxrss", "cgroup"] | None = None
        if peak is not None:
            source = e.memory_from if peak == watched else "ru_maxrss"
        return Usage(
            wall_s=e.wall_s,
            cpu_s=e.cpu_s if "done" in self._reports else None,
            peak_memory_bytes=peak,
            memory_from=source,
        )
