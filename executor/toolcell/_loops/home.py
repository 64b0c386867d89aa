"""Where an executor lives, and how anybody else has work done there.

Theory of operation. An executor lives in one run of trio from its entering to its leaving. What
is awaited from any other loop or thread becomes a job: a system task of that run, started by
`TrioToken.run_sync_soon`. Whoever waits for it is woken in its own way, once, when nothing of the
job is left. A cancel is handed in, and then waited out: a caller that goes on finds the tree gone
and the record written. What comes of a job, value or exception, comes back as it is.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import trio

if TYPE_CHECKING:
    import asyncio

    Loop = asyncio.AbstractEventLoop

__all__ = [
    "CLOSED",
    "Caller",
    "Home",
    "Job",
    "caller",
    "run_at",
    "run_from_thread",
    "running_loop",
]

R = TypeVar("R")

CLOSED = "the executor was closed while this ran; what ran was ended, and is on record"
ENDED = "the event loop that this executor lives in has ended"
FORKED = "this executor was entered before a fork: make a new one in this process"
ITSELF = "plain code would wait here for the very thread it runs in: await the executor instead"
NOT_BEGUN = "this was interrupted before it began"
NO_LOOP = "no event loop runs here: await under trio or asyncio, or use BlockingExecutor"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who waits for the job that runs now, and where its executor was entered."""

    loop: Loop | None
    """The asyncio loop that waits; None is trio or plain code."""
    home: Home
    """Where the job runs."""
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """What to let go of when the job has ended."""


caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "toolcell_caller", default=None
)
"""None in a call that is awaited where its executor lives."""


class Job(Generic[R]):
    """One piece of work in a home: awaited there, waited for elsewhere."""

    def __init__(
        self,
        home: Home,
        function: Callable[[], Awaitable[R]],
        wake: Callable[[], object],
        *,
        loop: Loop | None = None,
    ) -> None:
        self._home = home
        self._function = function
        self._wake = wake
        self._caller = Caller(loop, home)
        self._scope = trio.CancelScope()
        self._value: R | None = None
        self._has_value = False
        self._error: BaseException | None = None
        self._why: str | None = None
        self.has_begun = False
        # Set before anybody is woken, and nothing changes after.
        self.is_done = False

    @property
    def has_failed(self) -> bool:
        """Whether it raised, or could not run."""
        return self._error is not None

    def result(self) -> R:
        """What came of it: its value, or the exception that it raised."""
        if self._has_value:
            return cast(R, self._value)
        try:
            raise self._error or RuntimeError(self._why)
        finally:
            # The exception knows this frame, and this frame the exception.
            del self

    def cancel(self) -> None:
        """Have it cancelled; from any thread. It is done when it has cleaned up, not before."""
        if not self._home.soon(self._cancel) and not self.is_done:
            self.fail(ENDED)

    def _cancel(self) -> None:
        # What comes soon comes in order: this one was interrupted before it was posted.
        if not self.has_begun and not self.is_done:
            self.fail(NOT_BEGUN)
        self._scope.cancel()

    def cancel_here(self, why: str) -> None:
        """Cancel it, for a reason that is not its caller's; in its own home."""
        self._why = self._why or why
        self._scope.cancel()

    def fail(self, why: str) -> None:
        """It never runs."""
        self._error = RuntimeError(why)
        self.is_done = True
        self._wake()

    async def run(self) -> None:
        """Do it; whatever it raises is its result. A home never ends by one of its jobs."""
        caller.set(self._caller)
        try:
            with self._scope:
                self._value = await self._function()
                self._has_value = True
        except BaseException as error:  # noqa: BLE001  # handed to whoever waits; see above
            is_over = isinstance(error, trio.Cancelled | GeneratorExit) or (
                isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled)
            )
            self._error = RuntimeError(ENDED) if is_over else error
        finally:
            for let_go in self._caller.at_end:
                let_go()
            self._home.forget(self)
            self.is_done = True
            self._wake()


class Home:
    """One executor's place: a run of trio, and the jobs that others have running there."""

    def __init__(
        self,
        token: trio.lowlevel.TrioToken,
        thread_id: int,
        *,
        loop: Loop | None = None,
    ) -> None:
        self._token = token
        self._thread_id = thread_id
        self._pid = os.getpid()
        self.loop = loop
        # Touched in the home's own thread only.
        self._jobs: set[Job[Any]] = set()
        self._is_closing = False
        self._empty: trio.Event | None = None

    @classmethod
    def here(cls) -> Home:
        """The run of trio that this task is part of."""
        return cls(trio.lowlevel.current_trio_token(), threading.get_ident())

    def again(self) -> Home:
        """The same place, with none of its jobs, and open."""
        home = Home(self._token, self._thread_id, loop=self.loop)
        home._pid = self._pid
        return home

    @property
    def is_here(self) -> bool:
        """Whether this is a task of that run: then there is no need of a job."""
        return trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is self._token

    @property
    def is_this_thread(self) -> bool:
        """Whether waiting for it here would be for ever."""
        return threading.get_ident() == self._thread_id

    def post(self, job: Job[Any]) -> None:
        """Have a job started; one that cannot be is done at once, and says why."""
        if os.getpid() != self._pid:
            job.fail(FORKED)
            return
        context = contextvars.copy_context()
        try:
            self._token.run_sync_soon(self.begin, job, context)
        except trio.RunFinishedError:
            job.fail(ENDED)

    def begin(self, job: Job[Any], context: contextvars.Context) -> None:
        """Start a job, in the home's own thread."""
        if self._is_closing:
            job.fail(CLOSED)
            return
        job.has_begun = True
        self._jobs.add(job)
        try:
            trio.lowlevel.spawn_system_task(job.run, name="toolcell job", context=context)
        except RuntimeError:
            # So late that trio takes no more tasks.
            self.forget(job)
            job.fail(ENDED)

    def forget(self, job: Job[Any]) -> None:
        """A job has ended."""
        self._jobs.discard(job)
        if not self._jobs and self._empty is not None:
            self._empty.set()

    def soon(self, function: Callable[[], object]) -> bool:
        """Have a plain function called in the home's thread; False where that has ended."""
        if os.getpid() != self._pid:
            return False
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return False
        return True

    async def drain(self) -> None:
        """End what others still have running here, wait until it is gone, and take no more.

        Not interrupted by a cancel.
        """
        self._is_closing = True
        for job in tuple(self._jobs):
            job.cancel_here(CLOSED)
        if self._jobs:
            self._empty = trio.Event()
            with trio.CancelScope(shield=True):
                await self._empty.wait()


def running_loop() -> Loop | None:
    """The asyncio loop that runs in this thread, where one does."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return cast("Loop", asyncio.get_running_loop())
    except RuntimeError:
        return None


async def run_at(home: Home, function: Callable[[], Awaitable[R]]) -> R:
    """Await `function()` in a home, from a task of any other trio run or of asyncio.

    Cancelled, it waits until the job has cleaned up, and then lets the cancel go on, unless the
    job failed meanwhile: that goes first, as it does within one loop.

    Raises:
        RuntimeError: the home has ended, was closed, or is another process's; or no loop runs.
    """
    if trio.lowlevel.in_trio_task():
        return await _from_trio(home, function)
    loop = running_loop()
    if loop is None:
        raise RuntimeError(NO_LOOP)
    return await _from_asyncio(home, function, loop)


async def _from_trio(home: Home, function: Callable[[], Awaitable[R]]) -> R:
    done, token = trio.Event(), trio.lowlevel.current_trio_token()

    def wake() -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    job = Job(home, function, wake)
    home.post(job)
    try:
        await done.wait()
    except trio.Cancelled:
        job.cancel()
        with trio.CancelScope(shield=True):
            await done.wait()
        if not job.has_failed:
            raise
    finally:
        # Of a coroutine that was thrown away nobody waits any more.
        if not job.is_done:
            job.cancel()
    return job.result()


async def _from_asyncio(home: Home, function: Callable[[], Awaitable[R]], loop: Loop) -> R:
    import asyncio

    done = loop.create_future()

    def wake() -> None:
        # A loop that is closed waits for nothing.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(woken)

    def woken() -> None:
        if not done.done():
            done.set_result(None)

    job = Job(home, function, wake, loop=loop)
    home.post(job)
    cancelled: asyncio.CancelledError | None = None
    try:
        while not job.is_done:
            try:
                await done
            except asyncio.CancelledError as error:
                cancelled = error
                job.cancel()
                done = loop.create_future()
    finally:
        if not job.is_done:
            job.cancel()
    if cancelled is not None and not job.has_failed:
        raise cancelled
    return job.result()


def run_from_thread(home: Home, function: Callable[[], Awaitable[R]]) -> R:
    """Await `function()` in a home, while this thread does nothing else.

    Interrupted (KeyboardInterrupt), it cancels the job, waits until that has cleaned up, and
    lets the interrupt go on. A second interrupt goes on at once; the job ends by itself.

    Raises:
        RuntimeError: the home has ended, was closed, is another process's, or is this thread's.
    """
    if home.is_this_thread:
        raise RuntimeError(ITSELF)
    done = threading.Event()
    job = Job(home, function, done.set)
    try:
        home.post(job)
        done.wait()
    except BaseException:
        job.cancel()
        done.wait()
        raise
    return job.result()
