"""The thread in which executors live that were entered without trio."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Final

import trio

from toolcell._loops.home import Home

if TYPE_CHECKING:
    import asyncio

__all__ = ["EXIT_S", "Supervisor", "shared"]

_log = logging.getLogger("toolcell")

EXIT_S: Final = 30.0
"""How long an exiting interpreter waits for calls that still run to be ended and recorded."""

EXITING = "the interpreter is exiting: no call can start any more"


class Supervisor:
    """One daemon thread that runs trio, from the first time that it is needed.

    Any number of asyncio loops and plain threads may share one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stopping: trio.Event | None = None
        self._is_exiting = False

    def home(self, loop: asyncio.AbstractEventLoop | None = None) -> Home:
        """A place for one executor, entered in `loop` where that is asyncio's.

        Raises:
            RuntimeError: the interpreter is exiting, or the thread did not start.
        """
        with self._lock:
            if self._is_exiting:
                raise RuntimeError(EXITING)
            if self._thread is None or not self._thread.is_alive():
                self._start()
            thread, token = self._thread, self._token
        if thread is None or token is None:
            raise RuntimeError("the supervisor's thread did not start")
        return Home(token, thread.ident or 0, loop=loop)

    def close(self, *, within_s: float = EXIT_S) -> bool:
        """End what runs, wait until it is gone and recorded, and end the thread.

        Whoever waits for one of those calls gets a RuntimeError. Returns whether the thread has
        ended; False is that `within_s` was not enough. Used again, it starts again.
        """
        with self._lock:
            thread, token, stopping = self._thread, self._token, self._stopping
        if thread is None or token is None or stopping is None:
            return True
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(stopping.set)
        thread.join(within_s)
        return not thread.is_alive()

    def close_for_good(self) -> None:
        """What an exiting interpreter does: `close`, and refuse what comes after."""
        with self._lock:
            self._is_exiting = True
        if not self.close(within_s=EXIT_S):
            _log.error("calls still run after %g s; the kernel ends them with this process", EXIT_S)

    def _start(self) -> None:
        ready = threading.Event()
        self._token = None
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="toolcell-supervisor", daemon=True
        )
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        try:
            trio.run(self._main, ready)
        finally:
            ready.set()

    async def _main(self, ready: threading.Event) -> None:
        # Every job is a system task: they are cancelled, and waited for, when this returns.
        self._token, self._stopping = trio.lowlevel.current_trio_token(), trio.Event()
        ready.set()
        await self._stopping.wait()


class _Process:
    """What there is one of in a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.supervisor = Supervisor()
        self.is_watched = False


_process = _Process()


def _forked() -> None:
    """A fork has neither the thread nor a right to its locks."""
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_forked)


def shared() -> Supervisor:
    """This process's supervisor; a forked child has one of its own.

    When the main thread has ended, calls that are still running are ended and recorded before
    the interpreter goes on to exit: a thread that waits for the main one sees to it.
    """
    process = _process
    with process.lock:
        if not process.is_watched:
            process.is_watched = True
            # No daemon: Python waits for it, at a time when threads can still be started, which
            # is over when functions of atexit are called.
            threading.Thread(
                target=_see_out, args=(process.supervisor,), name="toolcell-exit", daemon=False
            ).start()
    return process.supervisor


def _see_out(supervisor: Supervisor) -> None:
    main, own = threading.main_thread(), threading.current_thread()
    main.join()
    # Python lets them finish, so their calls are not ended either.
    while others := [t for t in threading.enumerate() if not t.daemon and t not in (main, own)]:
        others[0].join()
    supervisor.close_for_good()
