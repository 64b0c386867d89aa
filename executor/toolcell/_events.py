"""What a call is seen to do while it runs, and how a slow watcher costs it nothing.

    jail ── chunks, progress, permissions ──► LiveEvents ──► Stream ──► `async for event in …`
                      (never waits)           (bounded)                (as slow as it likes)

Live text is lossy: what does not fit is left out and counted. The result has the exact counts.
"""

from __future__ import annotations

import codecs
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, Self

import trio

from toolcell.calls import ToolCall
from toolcell.results import ToolResult
from toolcell_sandbox._channel import Progress

__all__ = [
    "Answered",
    "Asked",
    "Event",
    "LiveEvents",
    "Output",
    "Progress",
    "Started",
    "Stream",
    "stream",
]

LIVE_CHARS: Final = 1 << 18
"""Characters of live text that wait for a watcher; the oldest make room."""
EVENTS_MAX: Final = 256
"""Outputs that wait for a watcher, however short they are."""

StreamName = Literal["stdout", "stderr"]


class Calls(Protocol):
    """What `stream` needs of an executor: a `call` that takes `sink` and `watch` besides."""

    @property
    def call(self) -> Callable[..., Coroutine[Any, Any, ToolResult]]:
        """Run one call; `watch` is told what happens, `sink` gets the output."""


def stream(
    executor: Calls,
    call: ToolCall | str,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> Stream:
    """The events of one call, then its result; `options` are those of `call`. See `Stream`."""
    name = call.name if isinstance(call, ToolCall) else str(call)

    def run(events: LiveEvents) -> Coroutine[Any, Any, ToolResult]:
        return executor.call(call, arguments, sink=events.output, watch=events, **options)

    return Stream(name, run)


@dataclass(frozen=True, slots=True)
class Started:
    """The call has begun: it is decided about next, which may take a person."""

    tool_name: str


@dataclass(frozen=True, slots=True)
class Output:
    """Text that the handler wrote: untrusted, to be shown escaped. Never half a character.

    `left_out` characters of the same stream came before it and were not seen.
    """

    stream: StreamName
    text: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """The handler asks whether it may do something; somebody may have to answer."""

    action: str
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """What it was told, and why."""

    action: str
    resources: tuple[str, ...]
    allowed: bool
    reason: str


Event = Started | Output | Progress | Asked | Answered | ToolResult
"""What a stream yields; the call's `ToolResult`, whatever it came to, is the last."""


class LiveEvents:
    """Events between a call and whoever watches it. Putting one in never waits, whoever reads.

    Of what waits, the oldest text makes room, and only the latest progress is kept; questions,
    answers and the end are never left out.
    """

    def __init__(self, *, chars: int = LIVE_CHARS, events: int = EVENTS_MAX) -> None:
        self._chars_max, self._events_max = chars, events
        self._waiting: deque[Event] = deque()
        self._chars = self._outputs = 0
        self._left_out = {"stdout": 0, "stderr": 0}
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._left_out
        }
        self._news = trio.Event()
        self._failure: BaseException | None = None

    async def output(self, stream: StreamName, chunk: bytes) -> None:
        """A `Sink`: takes what a handler wrote, and never makes it wait."""
        self._add_text(stream, self._decoders[stream].decode(chunk))

    def progress(self, progress: Progress) -> None:
        """Take a word of progress in the place of one that waits."""
        for waits in self._waiting:
            if isinstance(waits, Progress):
                progress = replace(progress, left_out=progress.left_out + waits.left_out + 1)
                self._waiting.remove(waits)
                break
        self.tell(progress)

    def tell(self, event: Event) -> None:
        """Take an event that is never left out."""
        self._waiting.append(event)
        self._news.set()

    def finish(self, result: ToolResult) -> None:
        """Take the end; what is left of half a character, and of counts, comes before it."""
        for stream in ("stdout", "stderr"):
            self._add_text(stream, self._decoders[stream].decode(b"", final=True))
            if self._left_out[stream] and not self._has_text(stream):
                self.tell(Output(stream, ""))
        self.tell(result)

    def fail(self, error: BaseException) -> None:
        """Take the end of a call that raised."""
        self._failure = error
        self._news.set()

    async def next(self) -> Event:
        """The next event, once there is one; raises what the call raised, once none is left."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._news = trio.Event()
            await self._news.wait()
        event = self._waiting.popleft()
        if isinstance(event, Output):
            self._chars -= len(event.text)
            self._outputs -= 1
            event = replace(event, left_out=self._left_out[event.stream])
            self._left_out[event.stream] = 0
        return event

    def _has_text(self, stream: str) -> bool:
        return any(isinstance(e, Output) and e.stream == stream for e in self._waiting)

    def _add_text(self, stream: StreamName, text: str) -> None:
        if not text:
            return
        self._chars += len(text)
        self._outputs += 1
        self.tell(Output(stream, text))
        while self._chars > self._chars_max or self._outputs > self._events_max:
            oldest = next(e for e in self._waiting if isinstance(e, Output))
            self._waiting.remove(oldest)
            self._chars -= len(oldest.text)
            self._outputs -= 1
            self._left_out[oldest.stream] += len(oldest.text)


class Stream:
    """One call, event by event, and its result: `async with stream as events`, then `async for`.

    The call starts with the first event that is asked for, and runs in a task of its own, never
    slowed by whoever reads. Left early (the block ends, `aclose()`, a cancel), it is cancelled:
    the tree is gone and the terminal record is written before that returns.

    A plain `async for` over it works too. There a `break` only asks for the cancel, which is
    waited for by nobody: use the block where it matters.
    """

    def __init__(
        self, tool_name: str, run: Callable[[LiveEvents], Coroutine[Any, Any, ToolResult]]
    ) -> None:
        self._tool_name = tool_name
        self._run = run
        self._events = LiveEvents()
        self._scope = trio.CancelScope()
        self._over = trio.Event()
        self._state: Literal["new", "running", "over"] = "new"
        self._token: trio.lowlevel.TrioToken | None = None
        self.result: ToolResult | None = None
        """How the call ended, once it was yielded."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event; the result is the last.

        Cancelled, it ends the call first. What the call itself raises for a caller's misuse, it
        raises.
        """
        if self._state == "new":
            self._start()
        if self._state == "over":
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        try:
            event = await self._events.next()
        except BaseException:
            await self.aclose()
            raise
        if isinstance(event, ToolResult):
            self._state, self.result = "over", event
        return event

    async def aclose(self) -> None:
        """End the call, if it runs, and wait until all of it is gone. Harmless when it is over."""
        is_running, self._state = self._state == "running", "over"
        if is_running:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._over.wait()
        await trio.lowlevel.checkpoint_if_cancelled()

    def __del__(self) -> None:
        if self._state == "running" and self._token is not None:
            try:
                # From whatever thread the collector runs in.
                self._token.run_sync_soon(self._scope.cancel)
            except trio.RunFinishedError:
                return

    def _start(self) -> None:
        self._state = "running"
        self._token = trio.lowlevel.current_trio_token()
        self._events.tell(Started(self._tool_name))
        # A nursery may not outlive a step of an iteration, so the task is nobody's child. It holds
        # no reference to this object, whose end is what cancels it.
        trio.lowlevel.spawn_system_task(
            _task,
            self._run,
            self._events,
            self._scope,
            self._over,
            name=f"toolcell call of {self._tool_name}",
            context=contextvars.copy_context(),
        )


async def _task(
    run: Callable[[LiveEvents], Coroutine[Any, Any, ToolResult]],
    events: LiveEvents,
    scope: trio.CancelScope,
    over: trio.Event,
) -> None:
    try:
        with scope:
            events.finish(await run(events))
    except BaseException as error:
        events.fail(error)
        if isinstance(error, trio.Cancelled):
            raise
    finally:
        over.set()
