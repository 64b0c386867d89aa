"""One executor under every event loop: what its public async methods are wrapped in.

An executor that is entered under trio lives there, and its methods cost nothing more. Entered
under asyncio, or by plain code, it lives in the supervisor's thread. Wherever it lives, it can be
used from any loop of its process: the work is done where it lives, and the caller waits.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

import trio

from toolcell._loops.callbacks import iterated, marshalled
from toolcell._loops.home import Home, run_at, running_loop
from toolcell._loops.iteration import BridgedIteration
from toolcell._loops.supervisor import shared

__all__ = [
    "Housed",
    "anywhere",
    "entering",
    "iterated_anywhere",
    "leaving",
]

P = ParamSpec("P")
R = TypeVar("R")

ELSEWHERE: Final = "this executor is open in another event loop: leave it there first"


class Housed(Protocol):
    """What lives in one run of trio between its entering and its leaving."""

    _home: Home | None
    """Where it lives; None when it is not entered."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Leave it."""


H = TypeVar("H", bound=Housed)
F = TypeVar("F", bound=Callable[..., AsyncIterator[Any]])

Method = Callable[Concatenate[H, P], Coroutine[Any, Any, R]]

CROSSING: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "sink": marshalled,
    "stdin": iterated,
}
"""The callbacks that a call has of its own, by keyword, and how each gets to the caller's loop."""


def _is_native(home: Home | None) -> bool:
    return trio.lowlevel.in_trio_task() if home is None else home.is_here


def _crossed(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    loop = running_loop()
    return {
        name: CROSSING[name](value, loop) if name in CROSSING and value is not None else value
        for name, value in kwargs.items()
    }


def home_of(housed: Housed) -> Home:
    """Where it lives; of one that is not entered, the supervisor's thread."""
    return housed._home or shared().home(running_loop())


def anywhere(method: Method[H, P, R]) -> Method[H, P, R]:
    """A method that is awaited where its executor lives, whichever loop asks for it.

    Cancelled in any loop, it goes on when the executor has cleaned up: the tree is gone and the
    record written. The caller's context variables are seen there. A `sink` and a `stdin` of an
    asyncio task's are run in its own loop.

    Raises:
        RuntimeError: (when awaited) the loop that the executor lives in has ended, the executor
            was closed meanwhile or entered before a fork, or no loop runs.
    """

    @functools.wraps(method)
    async def wrapped(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if _is_native(self._home):
            return await method(self, *args, **kwargs)
        work: Any = functools.partial(method, self, *args, **_crossed(kwargs))
        return cast(R, await run_at(home_of(self), work))

    return wrapped


def entering(
    method: Callable[[H], Coroutine[Any, Any, R]],
) -> Callable[[H], Coroutine[Any, Any, R]]:
    """`__aenter__`: where it is awaited decides where the executor lives.

    Raises:
        RuntimeError: (when awaited) it is open in another loop.
    """

    @functools.wraps(method)
    async def wrapped(self: H) -> R:
        if self._home is not None and not self._home.is_here:
            raise RuntimeError(ELSEWHERE)
        if trio.lowlevel.in_trio_task():
            entered = await method(self)
            self._home = self._home or Home.here()
            return entered
        home = shared().home(running_loop())

        async def entered_there() -> R:
            entered = await method(self)
            self._home = home
            return entered

        try:
            return await run_at(home, entered_there)
        except BaseException as error:
            # Cancelled when it was open already: nobody else would close it.
            if self._home is home and not isinstance(error, GeneratorExit):
                await self.__aexit__(type(error), error, error.__traceback__)
            raise

    return wrapped


def leaving(method: Method[H, P, R]) -> Method[H, P, R]:
    """`__aexit__`: first what other loops and threads still have running is ended and recorded.

    Whoever waits for that gets a RuntimeError.
    """

    @functools.wraps(method)
    async def wrapped(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        home = self._home

        async def left() -> R:
            if home is not None:
                await home.drain()
            try:
                return await method(self, *args, **kwargs)
            finally:
                self._home = None

        if _is_native(home):
            return await left()
        # In the same place, but none of the jobs that are waited for.
        return await run_at(home_of(self).again(), left)

    return wrapped


def iterated_anywhere(method: F) -> F:
    """A method that gives an async iterator: iterated where its executor lives.

    Under trio it is the method's own iterator, elsewhere a `BridgedIteration` of it.
    """

    @functools.wraps(method)
    def wrapped(self: Housed, /, *args: Any, **kwargs: Any) -> Any:
        if _is_native(self._home):
            return method(self, *args, **kwargs)
        make = functools.partial(method, self, *args, **_crossed(kwargs))
        return BridgedIteration(home_of(self), make)

    return cast(F, wrapped)
