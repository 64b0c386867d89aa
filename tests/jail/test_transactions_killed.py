"""Transactions that are cut off, at any moment and in any way: wholly before, or wholly after."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Answer, Executor, Limits, ToolResult
from toolcell._ledger import Ledger
from toolcell.approval import ApprovalRequest, deny_all, from_callback, unsafe_approve_all
from toolcell.results import CommitConflict
from toolcell_sandbox.changeset import Entry

from .killed_transactions import SCRIPT, names, prepared, snapshot
from .tools_of_tests import ALL

KILLER = Path(__file__).with_name("killed_transactions.py")
KILLS = 15


def test_case_21_a_call_killed_at_any_moment_is_wholly_there_or_not_at_all(tmp_path: Path):
    """Otherwise a crash of ours, or of a jail, leaves a tree that nobody has made."""
    done = subprocess.run(
        [sys.executable, str(KILLER), str(tmp_path / "kills"), str(KILLS), "20261130"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stderr == ""
    _, *rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == KILLS
    assert [one for one in rounds if one["wrong"]] == []
    # The controls: there was something to undo, to kill, and a call that was kept.
    fell = Counter(one["fell"] for one in rounds)
    print(f"where the kills fell: {dict(fell)}")
    assert fell["before"] > 0
    assert fell["undone"] > 0
    assert fell["after"] + fell["finished"] > 0


# -- a call that does not end well ----------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path, ledger: None) -> Path:
    """One that holds every kind of file."""
    return prepared(tmp_path.resolve())


def executor(workspace: Path, **options: Any) -> Executor:
    defaults: dict[str, Any] = {"tools": ALL, "approver": unsafe_approve_all}
    return Executor(
        workspace=workspace, state_dir=workspace.parent / "state", **(defaults | options)
    )


def kind(result: ToolResult) -> str | None:
    return None if result.error is None else result.error.kind


def assert_same(workspace: Path, before: dict[str, Any], *, folder_times: bool = True) -> None:
    assert snapshot(workspace, folder_times=folder_times) == before
    corner = [name for name in names(workspace.parent / "state") if "journal" in name]
    assert corner == []


async def test_the_same_changes_of_a_call_that_ends_well_are_kept(workspace: Path):
    """The control of all that follow: what leaves no trace there is kept here."""
    before = snapshot(workspace, folder_times=True)
    async with executor(workspace) as box:
        result = await box.call("shell", {"command": SCRIPT})
    assert kind(result) is None
    after = snapshot(workspace, folder_times=True)
    assert after != before
    differing = {name for name in {*before, *after} - {"."} if before.get(name) != after.get(name)}
    assert result.effects is not None
    told = result.effects.created + result.effects.modified + result.effects.deleted
    # A folder's own time, where only what it holds has changed, is nobody's to tell.
    assert {name for name in differing if not (workspace / name).is_dir()} <= set(told)
    assert set(told) <= differing
    assert result.files_changed


@pytest.mark.parametrize(
    ("expected", "ending", "wall_s"), [("crashed", "kill -SEGV $$", 60), ("timeout", "cat", 3)]
)
async def test_a_call_that_is_ended_by_force_leaves_all_as_it_was(
    workspace: Path, expected: str, ending: str, wall_s: float
):
    """Otherwise half a change is kept, and whoever repeats the call begins in the midst of it."""
    before = snapshot(workspace, folder_times=True)

    async def nothing() -> AsyncIterator[bytes]:
        await trio.Event().wait()
        yield b""

    async with executor(workspace) as box:
        command = f"{SCRIPT}\n{ending}"
        result = await box.call(
            "shell", {"command": command}, limits=Limits(wall_s=wall_s), stdin=nothing()
        )
    assert kind(result) == expected
    assert b"done\n" in (result.stdout.kept if result.stdout else b"")
    assert result.files_changed == ()
    assert_same(workspace, before)


PYTHON = f"""
import os, subprocess
subprocess.run(["/bin/bash", "-c", {SCRIPT!r}], check=True, stdout=subprocess.DEVNULL)
assert os.path.exists("moved")
"""

FAILING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "exception": ("exception", "raise ValueError('after all')", {}),
    "exited": ("exited", "os._exit(7)", {}),
    "memory": ("memory_exceeded", "x = bytearray(1 << 40)", {}),
    "cpu": ("cpu_time_exceeded", "while True: pass", {"cpu_s": 2.0}),
    "disk": (
        "disk_exceeded",
        "open('large', 'wb').write(bytes(30_000_000))",
        {"disk_bytes": 16 << 20},
    ),
    "orphan": ("exited", "os.fork() or os.setsid(); os._exit(7)", {}),
}


@pytest.mark.parametrize("name", FAILING)
async def test_a_call_that_fails_leaves_all_as_it_was(workspace: Path, name: str):
    """Otherwise what a failed call says it did not do is done."""
    expected, ending, limits = FAILING[name]
    before = snapshot(workspace, folder_times=True)
    async with executor(workspace, limits=Limits(**({"wall_s": 60} | limits))) as box:
        result = await box.call("python", {"code": f"{PYTHON}\n{ending}\n"})
    assert kind(result) == expected, result.content
    assert result.files_changed == ()
    assert_same(workspace, before)


class Cancelled:
    """Cancels a call from inside of it, and waits until it has come back."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.scope = trio.CancelScope()
        self.ended: ToolResult | None = None

    async def call(self, box: Executor, **options: Any) -> None:
        with self.scope:
            self.ended = await box.call("shell", {"command": SCRIPT}, **options)
        assert self.scope.cancelled_caught
        assert self.ended is None


async def test_a_call_that_is_cancelled_before_it_runs_leaves_all_as_it_was(workspace: Path):
    """Otherwise a person who takes a call back is too late."""
    before = snapshot(workspace, folder_times=True)
    one = Cancelled(workspace)

    async def ask(request: ApprovalRequest) -> Answer:
        one.scope.cancel()
        await trio.sleep_forever()
        raise AssertionError

    async with executor(workspace, approver=ask) as box:
        await one.call(box)
    assert_same(workspace, before)


async def test_a_call_that_is_cancelled_while_it_runs_leaves_all_as_it_was(workspace: Path):
    """Otherwise a cancel keeps what happened to be done by then."""
    before = snapshot(workspace, folder_times=True)
    one = Cancelled(workspace)

    async def heard(stream: str, chunk: bytes) -> None:
        assert (stream, chunk) == ("stdout", b"done\n")
        one.scope.cancel()
        await trio.sleep_forever()

    async with executor(workspace) as box:
        await one.call(box, sink=heard)
    assert_same(workspace, before)


async def test_a_call_that_is_cancelled_in_review_leaves_all_as_it_was(workspace: Path):
    """Otherwise what a person was still looking at is kept."""
    before = snapshot(workspace, folder_times=True)
    one, stages = Cancelled(workspace), []

    async def ask(request: ApprovalRequest) -> Answer:
        stages.append(request.stage)
        if request.stage == "after":
            one.scope.cancel()
            await trio.sleep_forever()
        return Answer.once()

    async with executor(workspace, approver=ask, review=True) as box:
        await one.call(box)
    assert stages == ["before", "after"]
    assert_same(workspace, before)


@pytest.mark.parametrize("at", ["first", "middle", "last"])
async def test_a_call_that_is_cancelled_while_it_is_committed_leaves_all_as_it_was(
    workspace: Path, at: str
):
    """Otherwise a cancel in the midst of the renames leaves some of them."""
    twin = prepared(workspace.parent / "twin")
    async with executor(twin) as box:
        result = await box.call("shell", {"command": SCRIPT})
    told = len(result.files_changed or ())
    assert told > 20
    before = snapshot(workspace)
    inodes = {name: (workspace / name).lstat().st_ino for name in names(workspace)}
    one, count = Cancelled(workspace), 0
    wanted = {"first": 1, "middle": told // 2, "last": told}[at]

    def noted(path: str, entry: Entry | None, fd: int | None) -> None:
        nonlocal count
        count += 1
        if count == wanted:
            assert (workspace / "moved").exists()
            trio.from_thread.run_sync(one.scope.cancel)

    class Listening(Ledger):
        """Told of each changed name when all is renamed, before the point of no return."""

        noting = property(lambda self: noted)

    async with executor(workspace) as box:
        box._transactions.ledger = Listening()
        await one.call(box)
    assert count >= wanted
    assert_same(workspace, before, folder_times=False)
    assert {name: (workspace / name).lstat().st_ino for name in names(workspace)} == inodes


async def test_a_call_that_is_refused_leaves_all_as_it_was(workspace: Path):
    """Otherwise a no comes too late: before the run, after it by a person, and by a rule."""
    before = snapshot(workspace, folder_times=True)

    def no(request: ApprovalRequest) -> bool:
        return False

    def no_after(request: ApprovalRequest) -> bool:
        return request.stage == "before"

    async with executor(workspace, approver=from_callback(no)) as box:
        assert kind(await box.call("shell", {"command": SCRIPT})) == "approval_rejected"
    assert_same(workspace, before)
    async with executor(workspace, approver=deny_all) as box:
        assert kind(await box.call("shell", {"command": SCRIPT})) == "approval_unavailable"
    assert_same(workspace, before)
    async with executor(workspace, approver=from_callback(no_after), review=True) as box:
        result = await box.call("shell", {"command": SCRIPT})
    assert kind(result) == "effects_rejected"
    assert result.files_changed == ()
    assert_same(workspace, before)
    async with executor(workspace) as box:
        # A device node cannot be made in a jail; a socket can, and is never kept.
        code = "import socket; socket.socket(socket.AF_UNIX).bind('a-socket')"
        result = await box.call("python", {"code": f"{PYTHON}\n{code}\n"})
    assert kind(result) == "effects_refused"
    assert_same(workspace, before)


# -- calls beside each other ----------------------------------------------------------------

COUNT = """
import sys
number = int(open("counter").read())
print("read", flush=True)
sys.stdin.readline()
with open("counter", "w") as file:
    file.write(str(number + 1))
number
"""
APPEND = """
import sys
print("read", flush=True)
sys.stdin.readline()
with open("log", "a") as file:
    file.write({mark!r} + "\\n")
"""
OWN = """
import sys
open({name!r}).read()
print("read", flush=True)
sys.stdin.readline()
open({name!r}, "a").write("more\\n")
open("folder/" + {name!r}, "w").write("new\\n")
"""


async def together(box: Executor, codes: list[str]) -> list[ToolResult]:
    """All of them at once; none writes before each has read."""
    results: dict[int, ToolResult] = {}
    waiting, go = len(codes), trio.Event()

    async def words() -> AsyncIterator[bytes]:
        await go.wait()
        yield b"go\n"

    async def heard(stream: str, chunk: bytes) -> None:
        nonlocal waiting
        if stream == "stdout":
            waiting -= chunk.count(b"read\n")
            if not waiting:
                go.set()

    async def one(number: int, code: str) -> None:
        results[number] = await box.call("python", {"code": code}, stdin=words(), sink=heard)
        # One that could not even begin would have the others wait for ever.
        assert go.is_set(), results[number].content

    async with trio.open_nursery() as nursery:
        for number, code in enumerate(codes):
            nursery.start_soon(one, number, code)
    return [results[number] for number in range(len(codes))]


def assert_one_or_conflict(results: list[ToolResult], path: str) -> int:
    kept = [one for one in results if one.success]
    for one in results:
        if one.error is not None:
            assert isinstance(one.error, CommitConflict), one.content
            assert (one.error.retryable, one.error.paths) == ("yes", (path,))
            assert one.files_changed == ()
    return len(kept)


async def test_of_calls_that_have_all_read_one_counter_exactly_one_is_kept(workspace: Path):
    """Otherwise two calls count one, and nobody is told."""
    (workspace / "counter").write_text("0")
    async with executor(workspace) as box:
        for round_ in range(3):
            results = await together(box, [COUNT] * 6)
            assert assert_one_or_conflict(results, "counter") == 1
            assert (workspace / "counter").read_text() == str(round_ + 1)


async def test_of_calls_that_append_to_one_file_no_line_is_lost(workspace: Path):
    """Otherwise a line that a call was told is written is not there."""
    (workspace / "log").write_text("first\n")
    lines = ["first"]
    async with executor(workspace) as box:
        for round_ in range(2):
            marks = [f"{round_}-{number}" for number in range(5)]
            results = await together(box, [APPEND.format(mark=mark) for mark in marks])
            assert assert_one_or_conflict(results, "log") == 1
            lines += [mark for mark, one in zip(marks, results, strict=True) if one.success]
            assert (workspace / "log").read_text().splitlines() == lines


async def test_calls_on_files_of_their_own_are_all_kept(workspace: Path):
    """Otherwise whoever shares a folder with somebody has to take turns."""
    own = [f"own-{number}" for number in range(6)]
    for name in own:
        (workspace / name).write_text("one\n")
    async with executor(workspace) as box:
        results = await together(box, [OWN.format(name=name) for name in own])
    assert [one.content for one in results if not one.success] == []
    for name in own:
        assert (workspace / name).read_text() == "one\nmore\n"
        assert (workspace / "folder" / name).read_text() == "new\n"


async def counted(workspace: Path, calls: int) -> dict[str, int]:
    """So many calls that count, each as often as it takes; how they ended."""
    endings: Counter[str] = Counter()
    code = 'n = int(open("counter").read()); open("counter", "w").write(str(n + 1))'

    async def one(box: Executor) -> None:
        while True:
            result = await box.call("python", {"code": code})
            endings["kept" if result.error is None else result.error.kind] += 1
            if result.error is None or result.error.kind != "commit_conflict":
                return

    async with executor(workspace, max_concurrency=3) as box, trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(one, box)
    return dict(endings)


def test_processes_that_count_at_once_lose_no_count(workspace: Path):
    """Otherwise two agents on one project undo each other's work unseen."""
    (workspace / "counter").write_text("0")
    script = (
        "import sys, json, trio; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from tests.jail.test_transactions_killed import counted\n"
        "print(json.dumps(trio.run(counted, Path(sys.argv[2]), 6)))"
    )
    argv = [sys.executable, "-c", script, str(KILLER.parents[2]), str(workspace)]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert [one["kept"] for one in told] == [6, 6]
    assert set().union(*told) <= {"kept", "commit_conflict"}
    assert (workspace / "counter").read_text() == "12"
