"""Rows 108 to 112: one outcome whatever comes first, and no leak wherever a caller gives up."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import trio

from toolcell_sandbox import CommandHandler, run_in_jail
from toolcell_sandbox.endings import Evidence, classify
from toolcell_sandbox.spec import Limits

from .cells import IS_FULL
from .test_lifecycle import marked, started


def ended_with(**facts: Any) -> str | None:
    """The kind of ending that this evidence makes."""
    known: dict[str, Any] = {"limits": Limits(), "is_command": True, "confined": True}
    names = {field.name for field in dataclasses.fields(Evidence)}
    assert set(facts) <= names
    failure = classify(Evidence(**(known | facts))).failure
    return None if failure is None else failure.kind


def test_row_108_a_deadline_and_an_exit_at_once_are_one_outcome():
    """Both are true; what we did, recorded before it was done, is what the call ended by."""
    assert ended_with(own_kill="timeout", status=0) == "timeout"
    assert ended_with(own_kill="timeout", status=signal.SIGKILL) == "timeout"
    assert ended_with(own_kill=None, status=0) is None


async def test_row_108_calls_that_end_as_their_time_is_up_each_end_once(any_cage):
    """At the very moment either is right, and both is not."""
    kinds = []
    for n in range(20 if IS_FULL else 6):
        got = await any_cage.run("import time\ntime.sleep(0.1)\nreturn 1", wall_s=0.08 + n / 100)
        assert got.value == (None if got.kind else 1)
        kinds.append(got.kind)
    assert set(kinds) <= {None, "timeout"}
    assert kinds[0] == "timeout", "the control: the deadline is one"


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when its task is about to be run for the n-th time."""

    def __init__(self, scope: trio.CancelScope, count: int) -> None:
        self.scope = scope
        self.count = count

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Trio calls this before each step of any task."""
        self.count -= 1
        if self.count == 0:
            self.scope.cancel()


async def _cancelled_at(any_cage: Any, count: int, *, twice: bool) -> bool:
    """One call, cancelled before the n-th step; whether it was cancelled at all."""
    with trio.CancelScope() as outer, trio.CancelScope() as scope:
        instruments = [CancelAt(scope, count)]
        if twice:
            instruments.append(CancelAt(outer, count + 2))
        for instrument in instruments:
            trio.lowlevel.add_instrument(instrument)
        try:
            await run_in_jail(CommandHandler(argv=("echo", "x")), any_cage.spec())
        finally:
            for instrument in instruments:
                trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught or outer.cancelled_caught


async def test_row_109_cancelled_before_any_of_its_steps_a_call_leaves_nothing(any_cage):
    """Between two awaits of ours something is always half done."""
    caught = [
        await _cancelled_at(any_cage, n, twice=False) for n in range(1, 60, 1 if IS_FULL else 7)
    ]
    assert any(caught), "the control: some were cancelled"


async def test_row_110_cancelled_again_while_it_cleans_up_it_leaves_nothing(any_cage):
    """An impatient caller gives up twice."""
    caught = [
        await _cancelled_at(any_cage, n, twice=True) for n in range(1, 60, 1 if IS_FULL else 7)
    ]
    assert any(caught), "the control: some were cancelled"


async def test_row_111_the_wall_clock_may_jump(any_cage, monkeypatch):
    """A machine that wakes up, or NTP, must not end calls or let them run on."""
    real, skew = time.time, [0.0]

    def jumping() -> float:
        skew[0] = -skew[0] + 1e6
        return real() + skew[0]

    monkeypatch.setattr(time, "time", jumping)
    assert abs(time.time() - time.time()) > 1e5, "the control: the clock does jump"
    fine = await any_cage.run("return 1", wall_s=20)
    late = await any_cage.run("import signal\nsignal.pause()", wall_s=0.4)
    assert (fine.value, late.kind) == (1, "timeout")
    assert late.failure.elapsed_s < 10


INTERRUPTED = """
import sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Limits, run_in_jail
async def main():
    spec = JailSpec(isolation=sys.argv[2], limits=Limits(wall_s=100))
    argv = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()", sys.argv[1])
    await run_in_jail(CommandHandler(argv=argv), spec)
trio.run(main)
"""


@pytest.mark.parametrize("number", [signal.SIGINT])
async def test_row_112_an_interrupt_tears_down_cleanly(any_level, number):
    """Ctrl-C is how most calls are given up."""
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    supervisor = started(
        sys.executable, "-c", INTERRUPTED, marker, any_level, stderr=subprocess.PIPE
    )
    with trio.fail_after(30):
        while not (set(marked(marker)) - {supervisor.pid}):
            await trio.sleep(0.02)
    supervisor.send_signal(number)
    _, said = await trio.to_thread.run_sync(supervisor.communicate)
    assert marked(marker) == []
    assert supervisor.returncode in (1, -number)
    assert b"KeyboardInterrupt" in said
    assert b"never awaited" not in said
