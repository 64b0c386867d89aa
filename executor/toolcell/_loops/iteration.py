"""What is made one by one where an executor lives, and read elsewhere.

One task in the home iterates, since an async iterator may not change tasks between its steps. It
hands over through a bounded channel, and the reader takes all that is there at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import copy_context
from typing import Any, Final, Generic, Self, TypeVar

import trio

from toolcell._loops.home import CLOSED, Home, Job, caller, run_at, run_from_thread
from toolcell.results import ToolResult

__all__ = ["HELD_ITEMS", "BridgedIteration", "PlainIteration"]

T = TypeVar("T")

HELD_ITEMS: Final = 16
"""Items that wait for a slow reader, besides those that it has taken at once."""


class _Belt(Generic[T]):
    """An async iterator in a home, and what it has made that nobody has taken yet."""

    def __init__(self, home: Home, make: Callable[[], AsyncIterator[T]]) -> None:
        self._home = home
        self._make = make
        self._send, self._receive = trio.open_memory_channel[T](HELD_ITEMS)
        self._ended = trio.Event()
        self._job: Job[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs; from any thread."""
        return self._job is None or self._job.is_done

    def cancel(self) -> None:
        """Have it ended some time; from any thread."""
        if self._job is not None:
            self._job.cancel()

    async def take(self) -> list[T]:
        """What is there, at least one; none at the end. What the iterator raises is raised."""
        if self._job is None:
            self._start()
        try:
            taken = [await self._receive.receive()]
        except trio.EndOfChannel:
            await self._ended.wait()
            if self._job is not None:
                self._job.result()
            return []
        while self._receive.statistics().current_buffer_used:
            taken.append(self._receive.receive_nowait())
        return taken

    async def stop(self) -> None:
        """End it, and wait until it has cleaned up. Not interrupted by a cancel."""
        if self._job is not None:
            self._job.cancel_here(CLOSED)
            with trio.CancelScope(shield=True):
                await self._ended.wait()

    def _start(self) -> None:
        now = caller.get()
        loop = None if now is None else now.loop
        self._job = Job(self._home, self._pump, self._ended.set, loop=loop)
        self._home.begin(self._job, copy_context())

    async def _pump(self) -> None:
        with self._send:
            iterator = self._make()
            try:
                async for item in iterator:
                    await self._send.send(item)
            finally:
                close: Callable[[], Awaitable[Any]] | None = getattr(iterator, "aclose", None)
                if close is not None:
                    await close()


class _Read(Generic[T]):
    """The reader's side."""

    def __init__(self, home: Home, make: Callable[[], AsyncIterator[T]]) -> None:
        self._home = home
        self._belt = _Belt(home, make)
        self._taken: deque[T] = deque()
        self._is_over = False
        self.result: ToolResult | None = None
        """How a call ended, once it was yielded, as a stream of events has it."""

    def _next(self) -> T:
        item = self._taken.popleft()
        if isinstance(item, ToolResult):
            self.result = item
        return item

    def _is_left(self) -> bool:
        """Close it; whether there is something to stop."""
        self._is_over = True
        self._taken.clear()
        return not self._belt.is_over

    def __del__(self) -> None:
        if not self._belt.is_over:
            self._belt.cancel()


class BridgedIteration(_Read[T]):
    """What `make()` yields in a home, for an `async for` in any other loop.

    At most twice `HELD_ITEMS` wait for the reader. Left early (`async with`, `aclose()`, a
    cancel), it cancels the iteration there, and waits until that has cleaned up. After a plain
    `break` it is cancelled as well, and nobody waits.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if not self._taken and not self._is_over:
            try:
                self._taken.extend(await run_at(self._home, self._belt.take))
            except BaseException as error:
                # What is thrown away can await nothing any more.
                if not isinstance(error, GeneratorExit):
                    await self.aclose()
                raise
        if not self._taken:
            self._is_over = True
            raise StopAsyncIteration
        return self._next()

    async def aclose(self) -> None:
        """End it, and wait until all of it is gone. Harmless when it is over."""
        if self._is_left():
            await run_at(self._home.again(), self._belt.stop)


class PlainIteration(_Read[T]):
    """`BridgedIteration` for a plain `for`, with `close()` and `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if not self._taken and not self._is_over:
            try:
                self._taken.extend(run_from_thread(self._home, self._belt.take))
            except BaseException:
                self.close()
                raise
        if not self._taken:
            self._is_over = True
            raise StopIteration
        return self._next()

    def close(self) -> None:
        """End it, and wait until all of it is gone. Harmless when it is over."""
        if self._is_left():
            run_from_thread(self._home.again(), self._belt.stop)
