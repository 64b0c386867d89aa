"""What commands share: an executor as the flags want it, a signal as a cancel, a progress line."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from toolcell._events import LiveEvents
from toolcell._exits import Refused, refused_policy
from toolcell._render import say
from toolcell._visible import visible

if TYPE_CHECKING:
    from toolcell._options import Flags, Packs
    from toolcell.executor import Executor
    from toolcell.tools import Tool
    from toolcell_sandbox import Progress
    from toolcell_sandbox.spec import Limits

T = TypeVar("T")

PROGRESS_AFTER_S: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked us to end; the call was cancelled and its tree is gone."""

    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name
        super().__init__(f"interrupted by {self.name}")


class ProgressLine(LiveEvents):
    """What a person at a terminal sees while something runs: its name, and its last word."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = visible(name)[:60]
        self._said = ""

    def progress(self, progress: Progress) -> None:
        """Take a handler's word: untrusted text, shown escaped."""
        amount = "" if progress.done is None else f"{progress.done:g}"
        if progress.total is not None:
            amount += f"/{progress.total:g}"
        self._said = " ".join(part for part in (amount, visible(progress.message or "")) if part)

    def line(self, elapsed_s: float) -> str:
        """The line, after so many seconds."""
        said = f": {self._said[:80]}" if self._said else ""
        return f"running {self._name}, {elapsed_s:.0f} s{said}"


async def until_signalled(
    work: Callable[[], Awaitable[T]], *, progress: str | ProgressLine | None = None
) -> T:
    """Do `work`; the first signal cancels it, later ones change nothing.

    A signal that was ignored when we started (nohup, a background job) stays ignored. With
    `progress`, a name or a line, a person at a terminal sees that it runs.

    Raises:
        Interrupted: a signal came, and `work` has ended.
    """
    wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    seen: list[int] = []
    done: list[T] = []
    problem: Exception | None = None

    async def watch(
        scope: trio.CancelScope, *, task_status: Any = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(*wanted) as signals:
            task_status.started()
            async for number in signals:
                seen.append(number)
                scope.cancel()

    async with trio.open_nursery() as nursery:
        if wanted:
            await nursery.start(watch, nursery.cancel_scope)
        if progress is not None and _draws():
            line = progress if isinstance(progress, ProgressLine) else ProgressLine(progress)
            nursery.start_soon(_draw, line)
        try:
            done.append(await work())
        except Exception as error:  # noqa: BLE001 - raised again below, outside the nursery's group
            problem = error
        nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem
    if not done:
        raise Interrupted(seen[0])
    return done[0]


async def load_tools(packs: Packs) -> list[Tool]:
    """The tools of the packs, each described inside a jail of the isolation level.

    Raises:
        Refused: a pack cannot be read or used, or the level is not offered.
    """
    from toolcell.packs import PackError, load_pack

    found: list[Tool] = []
    isolation = packs.level()
    for file in packs.tools:
        try:
            found += await load_pack(file, isolation=isolation)
        except PackError as error:
            raise Refused(str(error)) from None
    return found


@asynccontextmanager
async def opened(
    flags: Flags, *, extra: tuple[Tool, ...] = (), limits: Limits | None = None
) -> AsyncIterator[Executor]:
    """An executor as the flags want it.

    Raises:
        Refused: a flag, a pack, the workspace or the state folder cannot be used.
    """
    from toolcell._choices import waiver_warning
    from toolcell.executor import Executor

    if not flags.workspace:
        raise Refused("--workspace is empty; name a folder, or leave it out for this one")
    options: dict[str, Any] = {
        "workspace": flags.workspace,
        "approver": flags.approver(),
        "isolation": flags.level(),
        "limits": limits or flags.limits(),
        "network": flags.reach(),
        "workspace_mode": flags.chosen_workspace_mode(),
        "policy": flags.policy,
        "mode": flags.mode,
        "review": flags.review,
        "on_refused": flags.on_refused,
        "read": flags.read,
        "write": flags.write,
        "env": flags.environment(),
        "waive": flags.waivers(),
    }
    packed = await load_tools(flags)
    try:
        executor = Executor(tools=(*extra, *packed), **options)
    except ValueError as error:
        from toolcell_policies.rules import PolicyError

        if isinstance(error.__cause__, PolicyError):
            raise refused_policy(str(error)) from None
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"the workspace {flags.workspace!r} cannot be used: {error}") from None
    try:
        await executor.__aenter__()
    except OSError as error:
        why = error.strerror or str(error)
        raise Refused(
            f"the state folder {executor.state_dir!r} cannot be used: {why}; "
            "name another with TOOLCELL_STATE_DIR"
        ) from None
    if options["waive"] and not flags.verbose:
        # With -v the executor's own warning is on stderr already.
        say(waiver_warning(options["waive"]))
    try:
        yield executor
    finally:
        await executor.__aexit__()


def _draws() -> bool:
    return os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb"


async def _draw(line: ProgressLine) -> None:
    """After a second, one line on stderr that says what runs, and for how long."""
    from toolcell._terminal import is_asking

    started_s = trio.current_time()
    drawn = False
    try:
        while True:
            await trio.sleep(PROGRESS_AFTER_S)
            if not is_asking():
                drawn = True
                shown = line.line(trio.current_time() - started_s)
                os.write(2, f"\r\x1b[K{shown}".encode())
    finally:
        if drawn:
            os.write(2, b"\r\x1b[K")
