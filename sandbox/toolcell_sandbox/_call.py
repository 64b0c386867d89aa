"""One call in one jail: ask for the jail, give it the call, say how it ended. `run_in_jail`."""

from __future__ import annotations

import errno
import functools
import time
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import trio

from . import _zygotes, cgroup, host, offers
from ._channel import Answerer, Progress
from ._spool import Spooled, Unspooled
from ._supervise import Alarm, Sink, Supervision
from .capture import Capture
from .contained import Contained
from .decode import BrokenRule
from .endings import Ending, Evidence, classify
from .failures import ExecutorError, FailureBase
from .guarantees import Broken
from .launch import START_S, Jail, NotBegun, Outdated, Streams, begin
from .outcome import JailOutcome, Receipt, Timing, Upper, Usage
from .plan import Plan, plan_of
from .spec import CommandHandler, Handler, JailSpec, PythonHandler

if TYPE_CHECKING:
    from .pool import Pool

Meanwhile = tuple[Sink | None, Alarm | None, Answerer | None, Callable[[Progress], None] | None]
"""What a call is awaited with: sink, alarm, who answers its channel, who is told how far it is."""
TRIES = 2
"""Zygotes that are tried before a call fails for want of one."""
THREAD_DECODE_BYTES = 1 << 17


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
    pool: Pool | None = None,
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

    With a `pool` the jail is one that waits there, if one does; what holds is the same. Where it
    has gone before anything ran in it, the call has a new one, and `alarm` is called once more.

    Cancelled, it kills the tree, waits until it is gone, and lets `trio.Cancelled` go on up.

    Raises:
        StdinTooLarge: `stdin` is larger than `spec.limits.stdin_bytes`; a tree that was
            started is gone.
    """
    if isinstance(stdin, bytes) and len(stdin) > spec.limits.stdin_bytes:
        raise StdinTooLarge(spec.limits.stdin_bytes)
    if not isinstance(handler, PythonHandler | CommandHandler):
        handler = CommandHandler(argv=tuple(handler))
    call = _Call(handler, spec)
    plan = plan_of(spec, await offers.current(thorough=bool(spec.waive)))
    if isinstance(plan, Broken):
        return call.refused(plan.facts())
    if pool is not None:
        pool.begun()
    try:
        return await _called(
            call, plan, stdin, pool, keep, (sink, alarm, channel, on_progress), spool
        )
    finally:
        if pool is not None:
            pool.done()


async def _called(
    call: _Call,
    plan: Plan,
    stdin: bytes | AsyncIterable[bytes] | None,
    pool: Pool | None,
    keep: Callable[[Upper], None] | None,
    meanwhile: Meanwhile,
    spool: str | None,
) -> JailOutcome:
    """A jail for a call, the call in it, and what it came to."""
    jail = None if pool is None else pool.take(plan, call.spec)
    call.was_waiting = jail is not None and jail.is_ready
    tries = 0
    while True:
        if jail is None:
            tries += 1
            try:
                jail = await (
                    make(plan, call.spec, _zygotes.NOTHING)
                    if pool is None
                    else pool.make(plan, call.spec, takes=tries == 1)
                )
            except cgroup.NotMade as error:
                offers.forget()
                return call.refused(_not_made(error))
            except Contained as error:
                return call.refused(error.facts)
            except host.NoIds as error:
                facts = {"guarantee": "no_new_privileges", "stage": "ids", "cause": str(error)}
                return call.refused(facts)
            except OSError as error:
                broke = f"the zygote could not be used: {error}"
                return call.outcome(call.evidence(broke=broke))
        call.jail, call.may_be_given_again = jail, jail.was_ahead
        try:
            return await _in_jail(call, stdin, keep, meanwhile, spool, pool)
        except _NothingRan:
            # It was gone before it had its call: so the next one has it for the first time.
            jail, call.was_waiting, call.seen = None, False, None


class _NothingRan(Exception):
    """A jail that waited is gone, and nothing of its call has run: a new one may have it."""


async def _in_jail(
    call: _Call,
    stdin: bytes | AsyncIterable[bytes] | None,
    keep: Callable[[Upper], None] | None,
    meanwhile: Meanwhile,
    spool: str | None,
    pool: Pool | None,
) -> JailOutcome:
    """The call in its jail, which is then another call's, or is seen out.

    Raises:
        _NothingRan: it waited, and was gone before its worker was let go.
    """
    streams: Streams | None = None
    try:
        try:
            streams = call.jail.take_streams()
            streams.suit(call.handler, feeds=stdin is not None)
            seen = Supervision(call.spec, call.jail, streams, spool=spool)
        except OSError as error:
            return call.outcome(call.evidence(broke=f"no descriptors for the call: {error}"))
        call.seen = seen
        start = functools.partial(begin, call.jail, call.handler, call.spec, streams)
        if pool is not None and call.may_be_given_again:
            start = functools.partial(start, functools.partial(pool.is_current, call.jail))
        try:
            await seen.run(stdin, *meanwhile, start)
        except Outdated:
            keep = None
            raise _NothingRan from None
        except NotBegun as error:
            broke = f"the call could not be given to its jail: {error}"
            return call.outcome(call.evidence(broke=broke, own_kill=None))
        if seen.stdin_overflowed:
            raise StdinTooLarge(call.spec.limits.stdin_bytes)
        # What has been read of an iterable cannot be read again.
        if (
            call.may_be_given_again
            and call.ran_nothing()
            and (stdin is None or isinstance(stdin, bytes))
        ):
            keep = None
            raise _NothingRan
        frame = await call.frame()
        return call.outcome(call.evidence(frame=frame))
    finally:
        call.drop_result()
        if streams is not None:
            streams.close()
        upper = call.jail.take_upper()
        try:
            if upper is not None:
                (keep or Upper.close)(upper)
        finally:
            ended_by_itself = call.seen is not None and call.seen.own_kill is None
            if pool is None or not (ended_by_itself and pool.keep(call.jail, call.spec)):
                call.jail.see_out()


async def make(
    plan: Plan, spec: JailSpec, preload: _zygotes.Preload, *, renews: bool = False
) -> Jail:
    """A jail that has begun to be, by a second zygote where the first one is gone.

    `renews`: its init may make others after it, see `Jail.renew`.

    Raises:
        NotMade, Contained, NoIds, OSError: as `Jail.ask`; nothing is left of it, or what
            is left ends by itself.
        TimeoutError: the zygote did not answer, and was killed.
    """
    for tries in range(TRIES):
        on_host = "network_namespace" not in plan.agreed.layers
        zygote = _zygotes.zygote(plan.agreed.way, preload, on_host=on_host)
        jail = Jail(plan)
        try:
            with trio.fail_after(START_S):
                await jail.ask(zygote, spec, renews=renews)
                await jail.started()
                if jail.group.needs_adoption and jail.pidfd is not None:
                    # Before it starts anything: what it does is to be counted and bounded.
                    await jail.adopt()
            return jail
        except _zygotes.ZygoteGone:
            _zygotes.retire(zygote)
            jail.see_out()
            if tries == TRIES - 1:
                raise
        except trio.TooSlowError as error:
            # Stopped, or stuck: whoever else waits for it has the next one.
            _zygotes.end(zygote)
            jail.see_out()
            raise TimeoutError(errno.ETIMEDOUT, f"it did not answer for {START_S:g} s") from error
        except BaseException:
            jail.see_out()
            raise
    raise AssertionError("one of the tries has returned or raised")


class _Call:
    """What is known of one call, and what it comes to."""

    jail: Jail

    def __init__(self, handler: Handler, spec: JailSpec) -> None:
        self.handler = handler
        self.spec = spec
        self._is_command = isinstance(handler, CommandHandler)
        self._asked_s = time.monotonic()
        self._spooled: Spooled | Unspooled | None = None
        self.was_waiting = False
        self.may_be_given_again = False
        self.seen: Supervision | None = None

    def refused(self, facts: Mapping[str, Any]) -> JailOutcome:
        """No jail was built: why."""
        return self.outcome(self.evidence(setup=facts))

    def evidence(self, **known: Any) -> Evidence:
        """All that is known, with what the caller knows besides."""
        facts: dict[str, Any] = {
            "limits": self.spec.limits,
            "is_command": self._is_command,
            "wall_s": self._wall_s(),
        }
        if self.seen is not None:
            facts |= self._seen(self.seen)
        return Evidence(**(facts | known))

    def _seen(self, seen: Supervision) -> dict[str, Any]:
        reports, group = self.jail.reports, self.jail.group
        group.settle()
        peak = group.peak_memory_bytes()
        # The leader's own end; that of a tree that we killed; the init's, where both are missing.
        ended, done = reports.get("ended", {}), reports.get("done", {})
        told = ended or reports.get("reaped") or reports.get("emptied") or done
        broke = [
            str(reports[name]["cause"])
            for name in ("zygote_broke", "init_broke", "worker_broke")
            if name in reports
        ]
        is_told = told or "failed" in reports
        if "zygote_lost" in reports or not (is_told or seen.own_kill is not None):
            broke.append("the zygote ended while the call ran")
        return {
            "own_kill": seen.own_kill,
            "setup": seen.broken or reports.get("failed"),
            "broke": "; ".join(broke) or None,
            "confined": "confined" in reports,
            "cwd_errno": reports.get("no_folder", {}).get("errno"),
            "blocked": reports.get("blocked"),
            "filter_kills": "unheard" in reports,
            "segments_bytes": reports.get("segments", {}).get("memory_bytes"),
            "oom_kills": group.oom_kills(),
            "processes_refused": group.processes_refused(),
            "exec_errno": reports.get("exec_failed", {}).get("errno"),
            "status": ended.get("status"),
            "init_status": done.get("status"),
            "init_lost": "init_lost" in reports,
            "stage": ended.get("stage", "start"),
            "fenced": ended.get("fenced", False),
            "file_at_limit": ended.get("file_at_limit", False),
            "leader_cpu_s": ended.get("leader_cpu_s", 0.0),
            "cpu_s": max(seen.cpu_s, told.get("cpu_s", 0.0)),
            "output_bytes": seen.seen_bytes,
            "peak_memory_bytes": peak or seen.peak_bytes,
            "memory_from": "cgroup" if "cgroup_memory" in self.jail.agreed.layers else "watch",
            # The kernel's figure for the tree, where there is one, counts shared pages once.
            "reaped_memory_bytes": None if peak else told.get("peak_memory_bytes"),
        }

    def ran_nothing(self) -> bool:
        """Whether the jail has ended, nobody having ended or refused the call, before it ran.

        The worker says that it is confined before it runs anything of the call; the tree is gone,
        so what it has not said by now it never will. That its init was lost it may say as a defect.
        """
        assert self.seen is not None
        told = {"confined", "no_folder"}
        if self.was_waiting or not self.jail.served:
            # Of an init that was to make another jail, and failed: a new one says it as well.
            told.add("failed")
        return self.seen.own_kill is None and not self.jail.reports.keys() & told

    def _wall_s(self) -> float:
        seen = self.seen
        if seen is None:
            return time.monotonic() - self._asked_s
        end = seen.ended_s if seen.ended_s is not None else time.monotonic()
        start = seen.confined_s if seen.confined_s is not None else seen.started_s
        return end - start - seen.held_s

    async def frame(self) -> Mapping[str, Any] | BrokenRule | None:
        """What came over the result channel; a large one is read in a thread.

        A spooled one counts as a value here: whoever has it looked at finds out.
        """
        assert self.seen is not None
        reader = self.seen.frame
        found = (
            await trio.to_thread.run_sync(reader.message)
            if reader.seen_bytes > THREAD_DECODE_BYTES
            else reader.message()
        )
        if isinstance(found, Spooled | Unspooled):
            self._spooled = found
            return {"ok": True, "value": None, "frame_bytes": reader.seen_bytes}
        return found

    def drop_result(self) -> None:
        """Let go of a spooled result that nobody was handed."""
        if self.seen is not None:
            self.seen.frame.close()
        if isinstance(self._spooled, Spooled):
            self._spooled.close()

    def _take_spooled(self, ending: Ending) -> tuple[FailureBase | None, Spooled | None]:
        """The failure of the call, and its result on disk where it is a success."""
        if ending.failure is not None or self._spooled is None:
            return ending.failure, None
        assert self.seen is not None
        spooled, self._spooled = self._spooled, None
        if isinstance(spooled, Spooled):
            return None, spooled
        return ExecutorError(
            message=f"the result of {self.seen.frame.seen_bytes:,} bytes could not be kept on "
            f"disk: {spooled.why}",
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
        seen = self.seen
        return JailOutcome(
            failure=failure,
            value=ending.value,
            exit_code=ending.exit_code,
            exec_errno=evidence.exec_errno,
            stdout=_NOTHING if seen is None else seen.stdout.captured(),
            stderr=_NOTHING if seen is None else seen.stderr.captured(),
            usage=self._usage(evidence),
            receipt=self._receipt(evidence),
            timing=self._timing(),
            unconfirmed=unconfirmed,
            spooled=spooled,
            channel=None if seen is None or seen.channel is None else seen.channel.use,
        )

    def _receipt(self, e: Evidence) -> Receipt:
        """What was promised, once the worker said that every step was taken."""
        seen = self.seen
        if seen is None or not e.confined:
            return Receipt()
        agreed = self.jail.agreed
        if seen.own_kill == "broken":
            broken = (seen.broken or {}).get("guarantee")
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
            cpu_s=None if reaped is None and watched is None else e.cpu_s,
            peak_memory_bytes=peak,
            memory_from=source,
        )

    def _timing(self) -> Timing:
        seen = self.seen
        if seen is None:
            return Timing()
        moments = seen.confined_s, seen.result_s, seen.ended_s
        since = (None if at is None else at - self._asked_s for at in moments)
        confined_s, result_s, ended_s = since
        return Timing(
            confined_s=confined_s,
            result_s=result_s,
            ended_s=ended_s,
            was_waiting=self.was_waiting,
        )


def _not_made(error: cgroup.NotMade) -> dict[str, Any]:
    """A control group that could not be had, as a stage would report it."""
    return {
        "guarantee": error.guarantee,
        "stage": error.stage,
        "cause": error.cause,
        "errno": error.errno_name,
    }


_NOTHING = Capture(0, 0).captured()
