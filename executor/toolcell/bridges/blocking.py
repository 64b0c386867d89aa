"""`BlockingExecutor`: the executor for code that awaits nothing."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import trio

from toolcell._assembly import READ_BYTES
from toolcell._loops.home import Home, run_from_thread
from toolcell._loops.iteration import PlainIteration
from toolcell._loops.supervisor import shared
from toolcell.executor import Executor
from toolcell.registry import Snapshot

if TYPE_CHECKING:
    from toolcell._events import Event
    from toolcell._ledger import Baseline
    from toolcell.approval import Answer
    from toolcell.calls import CallContext, ToolCall
    from toolcell.prepared import Plan
    from toolcell.results import Effects, Failure, ToolResult, Verification
    from toolcell.retained import Page
    from toolcell.tools import Tool
    from toolcell_policies import Decision
    from toolcell_sandbox.spec import Limits, WorkspaceMode

__all__ = ["BlockingExecutor", "PlainSink", "PlainSnapshot", "PlainStdin"]

P = ParamSpec("P")
R = TypeVar("R")

PlainSink = Callable[[Literal["stdout", "stderr"], bytes], Any]
PlainStdin = bytes | Iterable[bytes] | AsyncIterable[bytes] | None


def _taking(
    model: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Give a method the parameters of another."""

    def given(method: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        method.__signature__ = inspect.signature(model)  # type: ignore[attr-defined]  # as functools.wraps sets it
        return method

    return given


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlainSnapshot(Snapshot):
    """A `Snapshot` whose `settle` waits for the result."""

    runs: Callable[..., ToolResult] | None = None

    def settle(self, call: ToolCall, *, refuse_stale: bool = False) -> ToolResult:  # type: ignore[override]  # plain code awaits nothing
        """Run a call with these tools, wait, and return how it ended; see `Snapshot.settle`."""
        assert self.runs is not None
        return self.runs(call, snapshot=self, refuse_stale=refuse_stale)


class BlockingExecutor:
    """`Executor` for plain code: `with BlockingExecutor(...) as executor: executor.call(...)`.

    Without `with` the first call opens it, and `close()`, or the end of the program, closes it.

    Takes what `Executor` takes. The calls run in the supervisor's thread, which all executors of
    this kind share; any number of threads may call at once, and each waits for its own. It may be
    used in a thread where an event loop runs, which then stands still.

    Callbacks never run in the calling thread, which waits. A plain approver, sink or iterator of
    standard input runs in a thread of its own and may block; an async one runs under trio, in the
    supervisor's thread, and must not. One sink is called with one chunk at a time.

    Ctrl-C in a thread that waits cancels its call, and goes on up when the tree is gone and the
    record written; a second one goes on at once. From another thread `close()` ends what runs.
    """

    @_taking(Executor.__init__)
    def __init__(self, *given: Any, **options: Any) -> None:
        self._executor = Executor(*given, **options)
        self.registry = self._executor.registry
        self.workspace = self._executor.workspace
        self.policy = self._executor.policy
        self._lock = threading.Lock()
        # Closed by its owner: no call opens it again.
        self._is_closed = False

    def __enter__(self) -> Self:
        with self._lock:
            self._is_closed = False
            if self._executor._home is None:
                self._open()
        return self

    def _open(self) -> None:
        try:
            run_from_thread(shared().home(), self._executor.__aenter__)
        except BaseException:
            # Interrupted when it was open already: nobody else would close it.
            self._close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what other threads still have running, and close; harmless when it is not open.

        Whoever waits for one of those calls gets a RuntimeError; the call is on record.
        """
        with self._lock:
            self._is_closed = True
        self._close()

    def _close(self) -> None:
        home = self._executor._home
        if home is not None:
            leave = functools.partial(self._executor.__aexit__, None, None, None)
            run_from_thread(home.again(), leave)

    def _home(self) -> Home:
        return self._executor._home or shared().home()

    def _opened(self) -> Home:
        """Where calls run; opened by the first of them."""
        with self._lock:
            if self._executor._home is None and not self._is_closed:
                self._open()
        return self._home()

    # -- calls ----------------------------------------------------------------------------

    def call(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        context: CallContext | None = None,
        limits: Limits | None = None,
        workspace_mode: WorkspaceMode | None = None,
        review: bool | None = None,
        stdin: PlainStdin = None,
        sink: PlainSink | None = None,
        snapshot: Snapshot | None = None,
        refuse_stale: bool = False,
    ) -> ToolResult:
        """Run one call, wait, and return how it ended, as `Executor.call`.

        Raises:
            ValueError: the workspace mode is not offered.
            RuntimeError: the executor was closed meanwhile or entered before a fork, the
                interpreter exits, or this is the supervisor's own thread.
        """
        work = functools.partial(
            self._executor.call,
            call,
            arguments,
            call_id=call_id,
            context=context,
            limits=limits,
            workspace_mode=workspace_mode,
            review=review,
            stdin=_fed(stdin),
            sink=_passed(sink),
            snapshot=snapshot,
            refuse_stale=refuse_stale,
        )
        return run_from_thread(self._opened(), work)

    def call_many(
        self,
        calls: Iterable[ToolCall],
        *,
        context: CallContext | None = None,
        snapshot: Snapshot | None = None,
        limit: int | None = None,
    ) -> list[ToolResult]:
        """All calls of one turn, in the order of the calls, as `Executor.call_many`."""
        work = functools.partial(
            self._executor.call_many, calls, context=context, snapshot=snapshot, limit=limit
        )
        return run_from_thread(self._opened(), work)

    def stream(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> PlainIteration[Event]:
        """The events of a call as it runs, then its result; `options` are those of `call`.

        `with executor.stream(...) as events: for event in events: ...`. Left early, it cancels
        the call, and waits until the tree is gone and the record written.
        """
        if "stdin" in options:
            options["stdin"] = _fed(options["stdin"])
        make = functools.partial(self._executor.stream, call, arguments, **options)
        return PlainIteration(self._opened(), make)

    def check(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: CallContext | None = None,
        workspace_mode: WorkspaceMode | None = None,
    ) -> Decision | Failure:
        """What would be decided about a call, as `Executor.check`."""

        async def checked() -> Decision | Failure:
            return self._executor.check(
                name, arguments, context=context, workspace_mode=workspace_mode
            )

        return run_from_thread(self._home(), checked)

    def prepare(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        context: CallContext | None = None,
        workspace_mode: WorkspaceMode | None = None,
    ) -> Plan | Failure:
        """What would be decided about a call, for an answer that comes later; see `resume`."""
        work = functools.partial(
            self._executor.prepare,
            call,
            arguments,
            call_id=call_id,
            context=context,
            workspace_mode=workspace_mode,
        )
        return run_from_thread(self._opened(), work)

    def resume(
        self,
        plan: Plan,
        answer: Answer,
        *,
        stdin: PlainStdin = None,
        sink: PlainSink | None = None,
    ) -> ToolResult:
        """Run a prepared call with this answer, once, as `Executor.resume`."""
        work = functools.partial(
            self._executor.resume, plan, answer, stdin=_fed(stdin), sink=_passed(sink)
        )
        return run_from_thread(self._opened(), work)

    def snapshot(self, context: CallContext | None = None) -> PlainSnapshot:
        """The tools to show a model for one request, as `Executor.snapshot`; `settle` waits."""
        now = self._executor.snapshot(context)
        known = {one.name: getattr(now, one.name) for one in dataclasses.fields(now)}
        return PlainSnapshot(**known, runs=functools.partial(self.call, context=context))

    # -- what calls came to ---------------------------------------------------------------

    def read_retained(
        self,
        handle: str,
        offset: int = 0,
        limit: int = READ_BYTES,
        *,
        context: CallContext | None = None,
    ) -> Page:
        """A page of what was too large to be shown, as `Executor.read_retained`."""
        work = functools.partial(
            self._executor.read_retained, handle, offset, limit, context=context
        )
        return run_from_thread(self._home(), work)

    def hidden(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """What of the workspace no call can see now, and which of it git tracks."""
        return run_from_thread(self._home(), self._executor.hidden)

    def baseline(self) -> Baseline:
        """This moment of the workspace, for `changes_since`."""
        return self._executor.baseline()

    def changes_since(self, baseline: Baseline) -> Effects | None:
        """What of all that calls have changed since is other than it was."""
        work = functools.partial(self._executor.changes_since, baseline)
        return run_from_thread(self._home(), work)

    def verify_net_zero(self, baseline: Baseline) -> Verification:
        """Whether an investigation has taken its edits back."""
        work = functools.partial(self._executor.verify_net_zero, baseline)
        return run_from_thread(self._home(), work)

    def admitted(self, context: CallContext | None = None) -> tuple[Tool, ...]:
        """The tools to show a model."""
        return self._executor.admitted(context)


def _fed(stdin: PlainStdin) -> bytes | AsyncIterable[bytes] | None:
    if stdin is None or isinstance(stdin, bytes | AsyncIterable):
        return stdin
    return _Fed(iter(stdin))


class _Fed:
    """A plain iterator, asked in a thread."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._one_at_a_time = trio.CapacityLimiter(1)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await trio.to_thread.run_sync(
            next, self._chunks, None, abandon_on_cancel=True, limiter=self._one_at_a_time
        )
        if chunk is None:
            raise StopAsyncIteration
        return chunk


def _passed(sink: PlainSink | None) -> Any:
    if sink is None or inspect.iscoroutinefunction(sink):
        return sink
    one_at_a_time = trio.CapacityLimiter(1)

    async def passed(name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        # In a tuple: it may return something to await, which trio would refuse.
        (said,) = await trio.to_thread.run_sync(
            lambda: (sink(name, chunk),), abandon_on_cancel=True, limiter=one_at_a_time
        )
        if inspect.isawaitable(said):
            await said

    return passed
