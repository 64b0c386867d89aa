"""Jails that wait for their calls: what holds is the same, and nothing of an earlier moment shows.

The endings, the capture and the levels are tested both ways elsewhere (`both_ways.py`); here is
what only waiting can break.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from toolcell_sandbox import (
    CommandHandler,
    JailSpec,
    Limits,
    Mount,
    Pool,
    PythonHandler,
    _zygotes,
    launch,
    offers,
    run_in_jail,
)
from toolcell_sandbox import pool as pool_of_jails
from toolcell_sandbox._child import links
from toolcell_sandbox.guarantees import Way
from toolcell_sandbox.plan import Plan, plan_of
from toolcell_sandbox.pool import WAITING_BYTES
from toolcell_sandbox.spec import WorkspaceMode

from .conftest import Jail, left_below, pids_below


@pytest.fixture
def zygotes_are_new() -> Iterator[None]:
    """Leave the next test none of the zygotes that this one has ended."""
    yield
    ways: tuple[Way, ...] = ("namespaces", "process_group")
    for way in ways:
        _zygotes.zygote(way, on_host=way == "process_group")


def shell(text: str) -> CommandHandler:
    return CommandHandler(argv=("/bin/sh", "-c", text))


def text(outcome: Any) -> str:
    assert outcome.failure is None, outcome.failure
    return str(outcome.stdout.text())


async def test_a_waiting_jail_is_for_one_call(jail: Jail):
    """A jail that is used again brings what one call left to the next."""
    spec = jail.spec()
    async with Pool(waiting=2) as pool:
        assert await pool.fill(spec) == 2
        for place in (0, 1):
            outcome = await run_in_jail(
                shell("cat /tmp/left; touch /tmp/left"), spec, pool=pool, stdin=None
            )
            assert outcome.timing.was_waiting, place
            assert "No such file" in outcome.stderr.text()


async def test_what_was_changed_while_it_waited_is_seen(jail: Jail):
    """A tool that reads yesterday's file answers yesterday's question."""
    modes: tuple[WorkspaceMode, ...] = ("read_only", "transaction", "direct")
    for mode in modes:
        spec = JailSpec(workspace=str(jail.workspace), workspace_mode=mode)
        file = jail.workspace / "file"
        file.write_text("before")
        async with Pool(waiting=1) as pool:
            assert await pool.fill(spec) == 1
            file.write_text("after")
            (jail.workspace / f"new {mode}").mkdir()
            outcome = await run_in_jail(shell("cat file; ls -d new*"), spec, pool=pool)
        assert outcome.timing.was_waiting
        assert text(outcome).startswith("after")
        assert f"new {mode}" in text(outcome)


async def test_a_folder_that_has_been_replaced_since_is_not_the_old_one(jail: Jail):
    """Else a call reads, and changes, a folder that its user has put away."""
    spec = jail.spec()
    (jail.workspace / "which").write_text("old")
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        jail.workspace.rename(f"{jail.workspace}-away")
        jail.workspace.mkdir()
        (jail.workspace / "which").write_text("new")
        outcome = await run_in_jail(shell("cat which"), spec, pool=pool)
    assert not outcome.timing.was_waiting
    assert text(outcome) == "new"


async def test_what_was_another_folder_while_it_was_made_is_not_shown_later(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """All is as it was before, and it has opened what was there in between."""
    spec, made, away = jail.spec(), pool_of_jails._made, Path(f"{jail.workspace}-away")
    (jail.workspace / "which").write_text("own")

    async def meanwhile(*made_of: Any, **how: Any) -> Any:
        jail.workspace.rename(away)
        jail.workspace.mkdir()
        (jail.workspace / "which").write_text("another")
        found = await made(*made_of, **how)
        assert await found.ready()
        return found

    async with Pool(waiting=1) as pool:
        monkeypatch.setattr(pool_of_jails, "_made", meanwhile)
        assert await pool.fill(spec) == 0
        monkeypatch.undo()
        jail.workspace.rename(f"{jail.workspace}-between")
        os.rename(away, jail.workspace)
        assert text(await run_in_jail(shell("cat which"), spec, pool=pool)) == "own"
        # The control: one that nothing happened to is handed out.
        assert await pool.fill(spec)
        outcome = await run_in_jail(shell("cat which"), spec, pool=pool)
    assert outcome.timing.was_waiting
    assert text(outcome) == "own"


async def test_a_jail_that_comes_while_a_call_waits_for_its_turn_is_compared_as_well(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """It waited like any other, and what it sees may be gone since."""
    spec = jail.spec()
    (jail.workspace / "which").write_text("own")
    seen: list[str] = []

    async def call(pool: Pool) -> None:
        seen.append(text(await run_in_jail(shell("cat which"), spec, pool=pool)))

    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        # None is there at first, and so many are being made that it has to wait.
        monkeypatch.setattr(pool, "take", lambda *_: None)
        monkeypatch.setattr(pool, "_made_now", pool._made_at_once)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, pool)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert not seen
                monkeypatch.undo()
                jail.workspace.rename(f"{jail.workspace}-away")
                jail.workspace.mkdir()
                (jail.workspace / "which").write_text("another")
                pool._pass_turn()
    assert seen == ["another"]


async def test_masks_are_those_of_the_call(jail: Jail):
    """A secret that came while the jail waited would be shown."""
    top = str(jail.workspace)
    before = JailSpec(workspace=top, workspace_mode="read_only")
    async with Pool(waiting=1) as pool:
        assert await pool.fill(before) == 1
        (jail.workspace / "open").touch()
        (jail.workspace / "secret").write_text("s3cret")
        spec = JailSpec(workspace=top, workspace_mode="read_only", masks={top: ("secret",)})
        outcome = await run_in_jail(shell("ls; cat secret"), spec, pool=pool)
    assert outcome.timing.was_waiting
    assert (outcome.exit_code, outcome.stdout.text()) == (1, "open\n")


async def test_a_call_gets_no_jail_that_was_made_for_another_spec(jail: Jail):
    """More than it was promised, or less: both are another jail."""
    spec = jail.spec()
    others = (
        jail.spec(writable=False),
        jail.spec(memory_bytes="64M"),
        jail.spec(disk_files=100),
        JailSpec(workspace=spec.workspace, workspace_mode="direct", waive=("net_blocked",)),
        JailSpec(workspace=spec.workspace, workspace_mode="direct", isolation="container"),
        JailSpec(
            workspace=spec.workspace,
            workspace_mode="direct",
            mounts=(Mount(path=str(jail.workspace.parent), owned=True),),
        ),
    )
    async with Pool(waiting=1, specs=len(others) + 1) as pool:
        assert await pool.fill(spec) == 1
        for other in others:
            outcome = await run_in_jail(shell("true"), other, pool=pool)
            assert not outcome.timing.was_waiting
        # The control: one that differs in what only the supervisor sees to gets it.
        like = jail.spec(wall_s=7, head_bytes=5)
        outcome = await run_in_jail(shell("echo 1234567; env"), like, pool=pool)
        assert outcome.timing.was_waiting
        assert outcome.stdout.head == b"12345"


async def test_one_that_cannot_be_made_is_never_handed_out(jail: Jail):
    """A jail that failed half way is none; the call says what failed."""
    spec = JailSpec(workspace=str(jail.workspace), mounts=(Mount(path="/no/such/folder"),))
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 0
        outcome = await run_in_jail(shell("true"), spec, pool=pool)
    assert outcome.failure is not None
    assert outcome.failure.kind == "confinement_failed"


async def test_the_least_recently_used_specs_are_dropped_and_the_number_is_bounded(jail: Jail):
    """Else every kind of call that was ever made holds memory for ever."""
    specs = [jail.spec(processes=40 + number) for number in range(3)]
    async with Pool(waiting=1, specs=2) as pool:
        for spec in specs:
            assert await pool.fill(spec) == 1
        assert len(pool.waiting_pids()) == 2
        assert (await run_in_jail(shell("true"), specs[2], pool=pool)).timing.was_waiting
        assert not (await run_in_jail(shell("true"), specs[0], pool=pool)).timing.was_waiting
    for impossible in ({"waiting": -1}, {"specs": 0}, {"memory_bytes": -1}):
        with pytest.raises(ValueError, match="or more"):
            Pool(**{"waiting": 1, **impossible})


@pytest.mark.parametrize("trouble", ["none", "cancelled", "failed"])
async def test_many_calls_at_once_make_few_jails_at_once_and_each_has_its_turn(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, trouble: str
):
    """All would be slower together; and one that goes must not take another's turn along."""
    spec, made = jail.spec(writable=False), pool_of_jails._made
    now = most = asked = 0
    results: list[Any] = []
    scopes: list[trio.CancelScope] = []

    async def counted(*made_of: Any, **how: Any) -> Any:
        nonlocal now, most, asked
        now += 1
        asked += 1
        most = max(most, now)
        try:
            if trouble == "failed" and asked % 2:
                await trio.lowlevel.checkpoint()
                raise OSError("no jail today")
            return await made(*made_of, **how)
        finally:
            now -= 1

    async def call(pool: Pool) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            results.append(await run_in_jail(shell("exit 0"), spec, pool=pool))

    at_once = 2 * len(os.sched_getaffinity(0))
    many = 5 * at_once
    monkeypatch.setattr(pool_of_jails, "BUSY_S", 60.0)
    async with Pool(waiting=1) as pool:
        monkeypatch.setattr(pool_of_jails, "_made", counted)
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for _ in range(many):
                    nursery.start_soon(call, pool)
                if trouble == "cancelled":
                    while most < at_once and len(results) < many // 4:
                        await trio.lowlevel.checkpoint()
                    for scope in scopes[::2]:
                        scope.cancel()
        kinds = [None if one.failure is None else one.failure.kind for one in results]
        monkeypatch.undo()
        # A control: the pool still has a jail for whoever comes.
        assert (await run_in_jail(shell("exit 0"), spec, pool=pool)).failure is None
    assert most <= at_once
    if trouble == "failed":
        assert len(kinds) == many
        assert set(kinds) == {None, "executor_error"}
    else:
        assert set(kinds) == {None}
        assert many // 2 <= len(kinds) <= many
        assert len(kinds) == many or trouble == "cancelled"


async def test_no_more_wait_than_there_is_memory_for_however_many_ask(jail: Jail):
    """A bound that holds for who fills it in the background only is none."""
    specs = [jail.spec(processes=40 + number) for number in range(2)]
    async with Pool(waiting=3, memory_bytes=4 * WAITING_BYTES) as pool:
        async with trio.open_nursery() as nursery:
            for spec in (*specs, *specs):
                nursery.start_soon(pool.fill, spec)
        assert len(pool.waiting_pids()) == 4
    async with Pool(waiting=1) as pool:
        async with trio.open_nursery() as nursery:
            for spec in (*specs, *specs):
                nursery.start_soon(pool.fill, spec)
        assert len(pool.waiting_pids()) == 2
    async with Pool(waiting=1, memory_bytes=WAITING_BYTES - 1) as pool:
        assert await pool.fill(specs[0]) == 0


async def test_a_pool_can_be_left_while_it_is_filled(jail: Jail):
    """The one who fills it finds none, and nothing that was on its way stays."""
    filled = []
    is_made = trio.Event()

    async def fill() -> None:
        filled.append(await pool.fill(jail.spec()))

    async def started(self: launch.Jail) -> None:
        is_made.set()
        await may_go_on.wait()
        await really_started(self)

    really_started, may_go_on = launch.Jail.started, trio.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.Jail, "started", started)
        async with trio.open_nursery() as nursery:
            async with Pool(waiting=2) as pool:
                nursery.start_soon(fill)
                nursery.start_soon(fill)
                await is_made.wait()
            may_go_on.set()
    assert filled == [0, 0]
    assert not left_below(os.getpid())


async def test_a_forked_child_has_no_jail_of_its_parents(jail: Jail):
    """Two processes would give one jail two calls, and the child end what its parent has."""
    spec = jail.spec()

    async def in_child() -> list[object]:
        filled = await pool.fill(spec)
        outcome = await run_in_jail(shell("echo child"), spec, pool=pool)
        await pool.__aexit__()
        return [filled, outcome.timing.was_waiting, outcome.stdout.text()]

    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        pids = pool.waiting_pids()
        assert await forked(in_child) == [0, False, "child\n"]
        assert pool.waiting_pids() == pids
        outcome = await run_in_jail(shell("echo parent"), spec, pool=pool)
        assert (outcome.timing.was_waiting, text(outcome)) == (True, "parent\n")


async def forked(act: Callable[[], Awaitable[object]]) -> object:
    """What comes of it in a child that the host program forks, in a loop of its own there."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # This process has threads, as any program with jails has (Python 3.12 warns).
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            # This thread is in its parent's loop.
            thread = threading.Thread(
                target=lambda: os.write(write, json.dumps(trio.run(act)).encode())
            )
            thread.start()
            thread.join()
        finally:
            os._exit(0)
    os.close(write)
    with trio.fail_after(30):
        await trio.lowlevel.wait_readable(read)
    said = os.read(read, 4096)
    os.close(read)
    os.waitpid(child, 0)
    return json.loads(said)


async def test_a_user_has_no_jail_that_another_one_was_given(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """A program that gives up root would still hand out what root may reach."""
    spec = jail.spec()
    plan = plan_of(spec, await offers.current())
    assert isinstance(plan, Plan)
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 54321)
            assert pool.take(plan, spec) is None
        taken = pool.take(plan, spec)
        assert taken is not None
        await taken.end()


async def test_those_that_wait_are_gone_when_the_pool_is_left(jail: Jail):
    """Else an executor that is closed leaves processes, groups and mounts behind."""
    with trio.CancelScope() as scope:
        async with Pool(waiting=2) as pool:
            await pool.fill(jail.spec())
            assert len(pids_below(os.getpid())) >= 4
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert not left_below(os.getpid())


@pytest.mark.usefixtures("zygotes_are_new")
async def test_a_zygote_that_dies_takes_what_waits_and_the_next_call_has_another(jail: Jail):
    """It is one process for many calls: its loss must not be the end of all of them."""
    spec = jail.spec()
    async with Pool(waiting=1) as pool:
        await pool.fill(spec)
        for pid in _zygotes.pids():
            os.kill(pid, signal.SIGKILL)
        with trio.fail_after(10):
            while pids_below(os.getpid()):
                await trio.sleep(0.001)
        outcome = await run_in_jail(shell("echo here"), spec, pool=pool)
        assert not outcome.timing.was_waiting
        assert text(outcome) == "here\n"


@pytest.mark.usefixtures("zygotes_are_new")
@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_a_zygote_that_dies_under_a_call_is_a_typed_ending(jail: Jail, isolation: Any):
    """Its jails end with it: nothing runs on that nobody watches, and the caller is told."""
    spec = JailSpec(
        workspace=str(jail.workspace),
        workspace_mode="direct",
        isolation=isolation,
        limits=Limits(wall_s=30),
    )

    async def end_zygotes() -> None:
        while not (jail.workspace / "up").exists():
            await trio.sleep(0.005)
        for pid in _zygotes.pids():
            os.kill(pid, signal.SIGKILL)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_zygotes)
        outcome = await run_in_jail(shell("touch up; sleep 1000 & sleep 1000"), spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert "zygote" in outcome.failure.operator_detail
    assert not left_below(os.getpid())


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_a_word_that_is_none_costs_a_zygote_no_other_jail(jail: Jail, isolation: Any):
    """It is one process for many calls: what one of them gets wrong must not end the rest."""
    spec = JailSpec(workspace=str(jail.workspace), workspace_mode="direct", isolation=isolation)
    assert text(await run_in_jail(shell("echo before"), spec)) == "before\n"
    is_standard = isolation == "standard"
    way: Way = "namespaces" if is_standard else "process_group"
    zygote = _zygotes.zygote(way, on_host=not is_standard)
    known = next(iter(zygote._plans))
    whole: dict[str, Any] = {"key": known, "plan": None, "own": {}}

    async with trio.open_nursery() as nursery:
        release = jail.workspace / "release"
        os.mkfifo(release)
        outcomes: list[Any] = []

        async def runs() -> None:
            script = shell("echo up > up; read word < release; echo $word")
            outcomes.append(await run_in_jail(script, spec))

        nursery.start_soon(runs)
        while not (jail.workspace / "up").exists():
            await trio.sleep(0.001)
        # At level container nobody of its uid may look into it.
        held = set(os.listdir(f"/proc/{zygote.pid}/fd")) if is_standard else set()
        for written, kind in (
            (b"no json", "links"),
            (b"[]", "links"),
            (b"{}", "links"),
            (b"x" * (links.INLINE_BYTES + 1), "links"),
            (links.pack(whole), "one link"),
            (links.pack(whole), "many links"),
            (links.pack(whole), "no sockets"),
            (links.pack({**whole, "key": "unknown"}), "links"),
            (links.pack(whole), "links"),
        ):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                count = {"one link": 1, "many links": links.FILES_MAX + 1}.get(kind, 2)
                fds = [theirs.fileno()] * count
                if kind == "no sockets":
                    fds[0] = os.open(os.devnull, os.O_RDONLY)
                rights = struct.pack(f"{count}i", *fds)
                zygote._control.sendmsg([written], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                theirs.close()
                if kind == "no sockets":
                    os.close(fds[0])
                # Until nobody holds the other end: it was let go of, with or without a word.
                with trio.fail_after(10):
                    while True:
                        await trio.lowlevel.wait_readable(ours)
                        if not ours.recv(4096):
                            break
        assert not is_standard or set(os.listdir(f"/proc/{zygote.pid}/fd")) <= held
        assert not zygote.is_gone()
        release.write_text("released\n")
    assert text(outcomes[0]) == "released\n"
    assert text(await run_in_jail(shell("echo after"), spec)) == "after\n"
    assert not zygote.is_gone()


async def test_modules_are_loaded_ahead_and_only_where_that_is_asked_for(jail: Jail):
    """A handler that imports them pays for it each time; one that does not must not see them."""
    handler = jail.handler("import sys\nreturn sorted({'colorsys', 'wave'} & set(sys.modules))")
    async with Pool(waiting=1, preload=("colorsys",)) as pool:
        await pool.fill(jail.spec())
        for waits in (True, False):
            spec = jail.spec(processes=100 - waits)
            outcome = await run_in_jail(handler, jail.spec() if waits else spec, pool=pool)
            assert outcome.timing.was_waiting is waits
            assert outcome.value == ["colorsys"]
    assert (await run_in_jail(handler, jail.spec())).value == []


async def test_what_cannot_be_loaded_ahead_is_refused_when_the_pool_is_entered(
    jail: Jail, tmp_path: Path
):
    """A fork of a process with threads is a process with locks that nobody lets go of."""
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    )
    for name, why in (("starts_a_thread", "threads"), ("no_such_module", "No module named")):
        with pytest.raises(ValueError, match=f"{name} cannot be preloaded: .*{why}"):
            async with Pool(preload=(name,), preload_path=(str(tmp_path),)):
                pass


async def test_no_two_jails_draw_the_same_numbers(jail: Jail):
    """Forks of one process do, unless they are told apart: tokens and names would repeat."""
    handler = PythonHandler(module="random", qualname="random")
    drawn = set()
    async with Pool(waiting=2, preload=("random",)) as pool:
        await pool.fill(jail.spec())
        for _ in range(4):
            drawn.add((await run_in_jail(handler, jail.spec(), pool=pool)).value)
    assert len(drawn) == 4


async def test_no_two_jails_draw_the_same_numbers_of_numpy(jail: Jail, tmp_path: Path):
    """Its global generator is a module's, which no fork hook knows."""
    package = tmp_path / "library" / "numpy"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    # As numpy has it: `seed` without a number takes one of the system's.
    (package / "random.py").write_text(
        "from random import Random\n"
        "drawn = Random(0)\n"
        "def seed():\n    drawn.seed()\n"
        "def rand():\n    return drawn.random()\n"
    )
    (package / "other.py").write_text("from random import Random\ndrawn = Random(0)\n")
    handler = jail.handler(
        "import sys\n"
        "return sys.modules['numpy.random'].rand(), sys.modules['numpy.other'].drawn.random()\n"
    )
    drawn, shared = set(), set()
    ahead = ("numpy.random", "numpy.other")
    async with Pool(waiting=1, preload=ahead, preload_path=[str(package.parent)]) as pool:
        for _ in range(3):
            await pool.fill(jail.spec())
            outcome = await run_in_jail(handler, jail.spec(), pool=pool)
            assert outcome.timing.was_waiting
            drawn.add(outcome.value[0])
            shared.add(outcome.value[1])
    assert len(drawn) == 3
    # The control, and what the threat model says of any other.
    assert len(shared) == 1
