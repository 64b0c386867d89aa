"""A handler's line to its supervisor, in real jails: what goes over it, and what hostile ones try.

Each handler of these tests speaks with `toolcell_sandbox._child.channel`, or writes to
descriptor 4 by itself, as a hostile one would.
"""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from toolcell_sandbox import (
    CommandHandler,
    JailOutcome,
    JailSpec,
    PythonHandler,
    cgroup,
    run_in_jail,
)
from toolcell_sandbox._channel import Progress

from .conftest import pids_below

LEVELS = ("standard", "container")

RAW = """
import array, errno, json, os, socket, sys
from toolcell_sandbox._child import channel
def raw(message):
    with socket.socket(fileno=os.dup(4)) as line:
        line.send(message if isinstance(message, bytes) else json.dumps(message).encode())
def word(n, **more):
    return {"type": "progress", "done": n, "total": None, "message": None, "unsent": 0} | more
def gone():
    try:
        channel.current().ask({})
    except channel.Gone:
        return True
    return False
"""


def talking(jail: Any, source: str) -> PythonHandler:
    return dataclasses.replace(jail.handler(RAW + source), channel=True)


def choose(jail: Any, isolation: str, **limits: Any) -> JailSpec:
    return dataclasses.replace(jail.spec(**limits), isolation=isolation)


async def echo(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
    return {"heard": ask}


def kind(outcome: JailOutcome) -> str | None:
    return None if outcome.failure is None else outcome.failure.kind


def can_hold() -> bool:
    """Whether this host lets a supervisor stop a tree: by a v2 group of its own, or a scope."""
    found = cgroup.offered()
    return found.bus is not None or any(place.version == 2 for place in found.places)


# -- what goes over it ---------------------------------------------------------------------

HONEST = """
def handler():
    line = channel.current()
    line.say(1, 2, "half")
    answer = line.ask({"q": 1})
    line.say(2, 2, "all")
    pid = os.fork()
    if pid == 0:
        # A child may speak, at its own pace; an answer would be its parent's.
        raw(word(3))
        os._exit(7 if gone() else 8)
    child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shell = os.system("(echo x >&4) 2>/dev/null")
    here = [n for n in range(64) if is_open(n)]
    return {"answer": answer, "child": child, "program": shell != 0, "open": here,
            "left": 0 < line.left_s() <= 30}
def is_open(n):
    try:
        os.fstat(n)
    except OSError:
        return False
    return True
"""


@pytest.mark.parametrize("isolation", LEVELS)
async def test_a_handler_is_heard_and_answered_and_its_programs_are_not(
    jail: Any, isolation: str
) -> None:
    """A program that a handler starts would speak in its name."""
    seen: list[Progress] = []
    outcome = await run_in_jail(
        talking(jail, HONEST), choose(jail, isolation), channel=echo, on_progress=seen.append
    )
    assert kind(outcome) is None, outcome.failure
    assert outcome.value == {
        "answer": {"heard": {"q": 1}},
        "child": 7,
        "program": True,
        "open": [0, 1, 2, 3, 4],
        "left": True,
    }
    assert [each.done for each in seen] == [1, 3, 2]
    assert seen[0] == Progress(1, 2, "half")
    assert outcome.channel is not None
    assert dataclasses.asdict(outcome.channel) == {
        "told": 3, "left_out": 0, "requests": 1, "refused": 0, "broken": None,
    }  # fmt: skip


async def test_who_asks_for_no_line_has_none(jail: Any) -> None:
    """Otherwise every handler could speak, and every call would pay for it."""
    outcome = await jail.python(
        "import os\ndef handler():\n    try:\n        os.fstat(4)\n"
        "    except OSError:\n        return 'none'\n"
    )
    assert (outcome.value, outcome.channel) == ("none", None)
    spec = jail.spec()
    command = CommandHandler(argv=("/bin/sh", "-c", "(echo x >&4) 2>/dev/null || echo none"))
    outcome = await run_in_jail(command, spec, channel=echo)
    assert (outcome.stdout.kept, outcome.channel) == (b"none\n", None)


# -- what hostile ones try -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("raw(b'x' * 100_000)", "more than 4096 bytes"),
        ("raw(b'{')", "not JSON"),
        ("raw({'id': 1, 'held_s': 0, 'answer': {'allowed': True}})", "neither"),
        ("if os.fork() == 0:\n        raw(b'{')\n        os._exit(0)\n    os.wait()", "not JSON"),
        ("os.close(4)", None),
        ("raw(b'')", None),
        ("socket.socket(fileno=os.dup(4)).shutdown(socket.SHUT_RDWR)", None),
    ],
)
async def test_a_broken_line_costs_the_handler_its_line_and_nothing_else(
    jail: Any, source: str, rule: str | None
) -> None:
    """Otherwise nonsense is a way to crash the supervisor, or to be believed."""
    told = f"def handler():\n    {source}\n    return gone()"
    outcome = await run_in_jail(talking(jail, told), jail.spec(), channel=never)
    assert (kind(outcome), outcome.value) == (None, True), outcome.failure
    assert outcome.channel is not None
    assert outcome.channel.requests == 0
    broken = outcome.channel.broken
    assert (broken is None) if rule is None else (rule in str(broken))


async def never(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
    raise AssertionError(ask)


FLOOD = """
def handler():
    pids = []
    for _ in range(3):
        pids.append(os.fork())
        if pids[-1] == 0:
            for n in range(200):
                raw(word(n))
            os._exit(0)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
"""


async def test_a_flood_is_counted_to_the_word_and_mostly_not_told(jail: Any) -> None:
    """Otherwise a handler drowns whoever watches it, or its supervisor."""
    seen: list[Progress] = []
    outcome = await run_in_jail(talking(jail, FLOOD), jail.spec(), on_progress=seen.append)
    assert outcome.value == [0, 0, 0]
    use = outcome.channel
    assert use is not None
    assert use.told + use.left_out == 600
    assert use.told == len(seen) < 300
    assert sum(each.left_out for each in seen) == use.left_out


HONEST_FLOOD = """
def handler():
    line = channel.current()
    for n in range(5_000):
        line.say(n, 5_000, "x" * 300)
    return "done"
"""


async def test_an_honest_handler_that_says_too_much_loses_no_time_and_no_count(jail: Any) -> None:
    """Otherwise a progress bar is what slows a tool down."""
    seen: list[Progress] = []
    outcome = await run_in_jail(talking(jail, HONEST_FLOOD), jail.spec(), on_progress=seen.append)
    assert outcome.value == "done"
    use = outcome.channel
    assert use is not None
    assert use.told + use.left_out == 5_000
    assert seen[-1].done == 4_999


DESCRIPTORS = """
def handler():
    with socket.socket(fileno=os.dup(4)) as line:
        for n in range(40):
            fds = array.array("i", [1, 2, 3])
            told = json.dumps(word(n)).encode()
            line.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        line.sendmsg([b"{"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        try:
            for n in range(40):
                line.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except BrokenPipeError:
            pass
    return "sent"
"""


@pytest.mark.parametrize("isolation", LEVELS)
async def test_descriptors_that_are_sent_along_are_nobodys(jail: Any, isolation: str) -> None:
    """Otherwise a handler fills its supervisor's table, or holds its own output open for ever."""
    counts: set[int] = set()

    def count(progress: Progress) -> None:
        counts.add(len(os.listdir("/proc/self/fd")))

    outcome = await run_in_jail(
        talking(jail, DESCRIPTORS), choose(jail, isolation), on_progress=count
    )
    assert outcome.value == "sent", outcome.failure
    # One more or less: trio's own, and the one that lists them.
    assert max(counts) - min(counts) <= 1
    assert outcome.stdout.closed
    assert outcome.stderr.closed


KEPT_OPEN = """
import signal
def handler():
    for _ in range(3):
        if os.fork() == 0:
            os.setsid() if hasattr(os, "setsid") else None
            signal.pause()
    raw(word(1))
    return "left"
"""


@pytest.mark.parametrize("isolation", LEVELS)
async def test_a_line_that_children_hold_open_holds_nothing_up(jail: Any, isolation: str) -> None:
    """Otherwise a call ends when its last orphan likes. The ledger sees that none is left."""
    outcome = await run_in_jail(talking(jail, KEPT_OPEN), choose(jail, isolation))
    assert outcome.value == "left"
    assert outcome.channel is not None
    assert outcome.channel.told == 1


MANY = """
def handler():
    line, said = channel.current(), []
    for n in range(18):
        try:
            said.append(line.ask({"n": n})["heard"]["n"])
        except channel.Refused as error:
            said.append(str(error))
    try:
        line.ask({"x": "y" * 4_096})
    except channel.Refused as error:
        said.append(str(error))
    try:
        line.ask({"x": "\\udc80"})
    except channel.Refused as error:
        said.append("no JSON")
    return said
"""


async def test_there_is_an_end_to_questions(jail: Any) -> None:
    """Otherwise a handler wears down a person until one yes slips through."""
    outcome = await run_in_jail(talking(jail, MANY), jail.spec(), channel=echo)
    assert outcome.value[:16] == list(range(16))
    assert all("more than 16" in each for each in outcome.value[16:18])
    assert "at most 4096" in outcome.value[18]
    assert outcome.value[19] == "no JSON"


# -- while somebody thinks -----------------------------------------------------------------

BUSY = """
def handler():
    if os.fork() == 0:
        n = 0
        while True:
            n += 1
            with open("count", "w") as file:
                file.write(str(n))
    return channel.current().ask({})
"""


async def test_while_somebody_thinks_the_tree_stands_still_or_the_clock_runs(jail: Any) -> None:
    """Otherwise asking a person is how a tool gets all the time in the world."""
    counter = jail.workspace / "count"

    async def moved_on() -> None:
        before = counter.read_text() if counter.exists() else ""
        while not counter.exists() or counter.read_text() in ("", before):
            await trio.sleep(0.005)

    held: list[bool] = []

    async def think(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
        await moved_on()
        async with hold() as is_held:
            held.append(is_held)
            before = counter.read_bytes()
            await trio.sleep(1.0)
            assert (counter.read_bytes() == before) is is_held
        await moved_on()
        return {"ok": True}

    spec = jail.spec(wall_s=0.8)
    outcome = await run_in_jail(talking(jail, BUSY), spec, channel=think)
    assert held == [can_hold()]
    assert kind(outcome) == (None if can_hold() else "timeout")
    if can_hold():
        assert outcome.value == {"ok": True}
        assert outcome.usage.wall_s < 0.8


WAITS = "def handler():\n    return channel.current().ask({})\n"


@pytest.mark.parametrize("isolation", LEVELS)
@pytest.mark.parametrize("how", ["cancel", "alarm", "answer raises"])
async def test_an_end_while_somebody_thinks_is_an_end(jail: Any, how: str, isolation: str) -> None:
    """A frozen tree that nobody lets go on, or kills, is there for ever. The ledger sees it."""
    thinking = trio.Event()

    async def think(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
        async with hold():
            thinking.set()
            if how == "answer raises":
                raise LookupError("a defect of the caller's")
            await trio.sleep_forever()
        raise AssertionError

    async def alarm() -> Mapping[str, Any]:
        await thinking.wait()
        if how != "alarm":
            await trio.sleep_forever()
        return {"guarantee": "paths_masked", "cause": "on purpose"}

    ended: list[JailOutcome] = []

    async def run() -> None:
        spec = choose(jail, isolation)
        ended.append(await run_in_jail(talking(jail, WAITS), spec, channel=think, alarm=alarm))

    if how == "answer raises":
        with pytest.RaisesGroup(LookupError, flatten_subgroups=True):
            await run()
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await thinking.wait()
        if how == "cancel":
            nursery.cancel_scope.cancel()
    assert [kind(each) for each in ended] == ([] if how == "cancel" else ["confinement_failed"])


SUPERVISOR = """
import sys, trio
from pathlib import Path
from toolcell_sandbox import JailSpec, PythonHandler, run_in_jail
async def think(ask, hold):
    async with hold() as is_held:
        print(is_held, flush=True)
        await trio.sleep_forever()
async def main():
    workspace, file, isolation = sys.argv[1:]
    spec = JailSpec(workspace=workspace, workspace_mode="direct", isolation=isolation)
    handler = PythonHandler(module=Path(file).stem, qualname="handler", file=file, channel=True)
    await run_in_jail(handler, spec, channel=think)
trio.run(main)
"""


@pytest.mark.parametrize("isolation", LEVELS)
def test_a_supervisor_that_is_killed_while_somebody_thinks_leaves_nobody(
    jail: Any, isolation: str
) -> None:
    """Otherwise a crash of the host leaves a frozen tree with a workspace open in it."""
    handler = talking(jail, WAITS)
    argv = [sys.executable, "-c", SUPERVISOR, str(jail.workspace), str(handler.file), isolation]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == f"{can_hold()}\n"
        tree = [os.pidfd_open(pid) for pid in pids_below(supervisor.pid)]
        supervisor.send_signal(signal.SIGKILL)
    assert len(tree) >= 2
    for pidfd in tree:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(20_000), "somebody is left"
        os.close(pidfd)
    cgroup.sweep()
