"""The user's own functions, called from a home and run in the loop that they were written for."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from toolcell._loops.home import caller

if TYPE_CHECKING:
    import asyncio

    from toolcell._loops.home import Loop

__all__ = ["approver_at_home", "at_home", "for_trio", "iterated", "marshalled"]

_log = logging.getLogger("toolcell")

Callback = Callable[..., Any]
F = TypeVar("F", bound=Callback)

GRACE_S: Final = 2.0
"""How long a cancelled callback may clean up, while a process tree waits to be killed."""

_MARK: Final = "_toolcell_for_trio"


def for_trio(function: F) -> F:
    """Mark a callback of toolcell's own, which runs under trio whoever calls."""
    setattr(function, _MARK, True)
    return function


def at_home(callback: Callback) -> Callback:
    """The same callback, to be run in the asyncio loop that the executor was entered in.

    Itself where that was trio or plain code. For what belongs to the executor: hooks.
    """
    return marshalled(callback, _home_loop())


def approver_at_home(approver: Callback) -> Callback:
    """As `at_home`; but a plain function stays one, since it is given a thread to wait in.

    Where it returns something to await, that is awaited in the loop.
    """
    loop = _home_loop()
    if loop is None or hasattr(approver, _MARK):
        return approver
    if _is_async(approver):
        return marshalled(approver, loop)

    @functools.wraps(approver)
    def asked(*given: Any) -> Any:
        said = approver(*given)
        return _awaited_in(loop, said) if inspect.isawaitable(said) else said

    return asked


def iterated(items: Any, loop: Loop | None) -> Any:
    """The same async iterable, for a call elsewhere, iterated in a loop.

    One task of that loop iterates, one item ahead, and ends with the call. What is no async
    iterable is itself.
    """
    if loop is None or not isinstance(items, AsyncIterable):
        return items
    return _Iterated(items, loop)


def marshalled(callback: Callback, loop: Loop | None) -> Callback:
    """An async function that calls `callback` in a loop, awaits it there, and waits for that.

    Itself without a loop, or for a callback of toolcell's own. It runs in the context of the
    call. Cancelled, it cancels there, and waits `GRACE_S` for what that cleans up; a callback
    that takes longer is left alone, and a warning says so.

    Raises:
        RuntimeError: (when awaited) the loop is closed, or cancelled the callback itself.
    """
    if loop is None or hasattr(callback, _MARK):
        return callback

    @functools.wraps(callback)
    async def in_its_loop(*given: Any, **named: Any) -> Any:
        return await _in(loop, functools.partial(callback, *given, **named))

    return in_its_loop


def _home_loop() -> Loop | None:
    now = caller.get()
    return now.home.loop if now is not None and now.home.is_here else None


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # asks whether the call is async
    )


async def _awaited_in(loop: Loop, said: Any) -> Any:
    return await _in(loop, lambda: said)


async def _in(loop: Loop, function: Callable[[], Any]) -> Any:
    done, token = trio.Event(), trio.lowlevel.current_trio_token()

    def wake() -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    errand = _Errand(loop, function, wake)
    errand.start()
    try:
        await done.wait()
    except trio.Cancelled:
        errand.cancel()
        with trio.move_on_after(GRACE_S, shield=True):
            await done.wait()
        if errand.is_done and errand.has_failed:
            return errand.result()
        if not errand.is_done:
            _log.warning("a cancelled callback still runs after %g s: %r", GRACE_S, function)
        raise
    return errand.result()


class _Errand:
    """One function of the user's, called and awaited in a loop of the user's."""

    def __init__(
        self,
        loop: Loop,
        function: Callable[[], Any],
        wake: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._function = function
        self._wake = wake
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_cancelled = False
        # The loop itself holds a task weakly only.
        self._task: asyncio.Task[None] | None = None
        self.is_done = False

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def start(self) -> None:
        """Raises RuntimeError where the loop is closed."""
        context = contextvars.copy_context()
        self._loop.call_soon_threadsafe(self._begin, context=context)

    def cancel(self) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)

    def result(self) -> Any:
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            del self

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run())
        # Not the end of `_run`: a task that is cancelled at once never begins.
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        import asyncio

        try:
            said = self._function()
            self._value = await said if inspect.isawaitable(said) else said
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for, not here
            self._error = error

    def _end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not self._is_cancelled:
            self._error = RuntimeError("the callback was cancelled in its own loop")
        self.is_done = True
        self._wake()


class _Iterated:
    """An async iterable of a loop's, for an `async for` in a home."""

    def __init__(
        self,
        items: AsyncIterable[Any],
        loop: Loop,
    ) -> None:
        import asyncio

        self._items = items
        self._loop = loop
        self._queue: asyncio.Queue[tuple[Any] | BaseException | None] = asyncio.Queue(1)
        self._pump: _Errand | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._pump is None:
            self._pump = _Errand(self._loop, self._pumped, lambda: None)
            self._pump.start()
            if (now := caller.get()) is not None:
                now.at_end.append(self._pump.cancel)
        match await _in(self._loop, self._queue.get):
            case (item,):
                return item
            case None:
                raise StopAsyncIteration
            case error:
                raise error

    async def _pumped(self) -> None:
        import asyncio

        end: BaseException | None = None
        iterator = aiter(self._items)
        try:
            async for item in iterator:
                await self._queue.put((item,))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # raised where it is iterated
            end = error
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()
        await self._queue.put(end)
