"""What makes the jails, when it does not answer, and what is let go of, when others have copies."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from toolcell_sandbox import Pool, _call, _zygotes, cgroup, launch, offers, run_in_jail
from toolcell_sandbox._child import links
from toolcell_sandbox.guarantees import Way
from toolcell_sandbox.plan import Plan, plan_of

from .conftest import Jail, left_below, pids_below

WAYS: dict[str, Way] = {"standard": "namespaces", "container": "process_group"}


def zygote_of(way: Way) -> _zygotes.Zygote:
    """The one for the jails of these tests: without namespaces they are in the host's network."""
    return _zygotes.zygote(way, on_host=way == "process_group")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Way], _zygotes.Zygote]]:
    """Stop a zygote; who does not answer is given up after a moment. Later tests have new ones."""
    held: list[_zygotes.Zygote] = []

    def stop(way: Way) -> _zygotes.Zygote:
        zygote = zygote_of(way)
        held.append(zygote)
        os.kill(zygote.pid, signal.SIGSTOP)
        return zygote

    monkeypatch.setattr(_call, "START_S", 0.3)
    monkeypatch.setattr(launch, "START_S", 0.3)
    yield stop
    for zygote in held:
        _zygotes.end(zygote)
    for way in WAYS.values():
        zygote_of(way)


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not is_so():
            await trio.sleep(0.001)


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_a_zygote_that_does_not_answer_is_a_typed_ending(
    jail: Jail, stopped: Any, isolation: Any
):
    """One that is stopped, or stuck, would hold every call for ever."""
    spec = jail.spec(isolation=isolation)
    zygote = stopped(WAYS[isolation])
    with trio.fail_after(10):
        outcome = await run_in_jail(("/bin/echo", "here"), spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert "did not answer" in outcome.failure.operator_detail
    await until(zygote.is_gone)
    # The control: the next one has a zygote that does.
    assert (await run_in_jail(("/bin/echo", "here"), spec)).stdout.text() == "here\n"


async def test_a_call_that_waits_beside_another_has_the_next_zygote(
    jail: Jail, stopped: Any, monkeypatch: pytest.MonkeyPatch
):
    """Whose time is up first ends the zygote for all: a second failure would be for nothing."""
    zygote = stopped("namespaces")
    made = zygote.made
    outcomes = []

    async def call() -> None:
        outcomes.append(await run_in_jail(("/bin/echo", "here"), jail.spec()))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await until(lambda: zygote.made > made)
            monkeypatch.setattr(_call, "START_S", 60)
            nursery.start_soon(call)
    assert sorted(outcome.failure is None for outcome in outcomes) == [False, True]


async def test_a_pool_is_held_up_by_no_zygote(jail: Jail, stopped: Any):
    """Nobody could leave it, and no executor with such a pool could be closed."""
    with trio.fail_after(10):
        async with Pool(waiting=1) as pool:
            stopped("namespaces")
            assert await pool.fill(jail.spec()) == 0
            assert await pool.fill(jail.spec()) == 1
    assert not left_below(os.getpid())


@pytest.mark.usefixtures("stopped")
async def test_a_jail_that_is_never_ready_does_not_wait(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """Its worker can be stuck as well, and so can all that are forked from the same state."""
    before = _zygotes.zygote("namespaces")
    monkeypatch.setattr(launch.Jail, "is_ready", property(lambda _: False))
    with trio.fail_after(10):
        async with Pool(waiting=1) as pool:
            assert await pool.fill(jail.spec()) == 0
    assert _zygotes.zygote("namespaces") is not before
    assert not left_below(os.getpid())


class Held(cgroup.Group):
    """A group that says when it is let go of."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True
        super().close()


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_a_cancelled_jail_has_its_ids_and_its_group_until_it_cannot_be_made(
    jail: Jail, stopped: Any, monkeypatch: pytest.MonkeyPatch, isolation: Any
):
    """Its zygote may still be on it: the next call would share its ids, and run unbounded."""
    monkeypatch.setattr(launch, "START_S", 60)
    monkeypatch.setattr(_call, "START_S", 60)
    group = Held(())
    monkeypatch.setattr(launch, "limited", lambda *_: group)
    zygote = stopped(WAYS[isolation])
    made = zygote.made
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_in_jail, ("/bin/true",), jail.spec(isolation=isolation))
            await until(lambda: zygote.made > made)
            nursery.cancel_scope.cancel()
    # Every task that could let go of it has had its turn.
    await trio.testing.wait_all_tasks_blocked()
    assert not group.is_closed
    os.kill(zygote.pid, signal.SIGCONT)
    await until(lambda: group.is_closed)
    assert not left_below(os.getpid())


@contextlib.contextmanager
def copies_in_a_child() -> Iterator[None]:
    """A child of the host program that holds a copy of all that is open here, and does nothing."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # This process has threads: what the child does is safe all the same (Python 3.12 warns).
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        yield
    finally:
        os.close(read)
        os.close(write)
        os.waitpid(child, 0)


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_what_is_let_go_of_ends_though_a_forked_child_has_copies(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, isolation: Any
):
    """A host program that forks, as multiprocessing does, would keep every jail and zygote."""
    started = launch.Jail.started
    zygote = zygote_of(WAYS[isolation])

    async def fork_then_cancel(self: launch.Jail) -> None:
        await started(self)
        held.enter_context(copies_in_a_child())
        nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()

    before = pids_below(os.getpid())
    with contextlib.ExitStack() as held, trio.fail_after(10):
        monkeypatch.setattr(launch.Jail, "started", fork_then_cancel)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_in_jail, ("/bin/true",), jail.spec(isolation=isolation))
        await until(lambda: len(pids_below(os.getpid()) - before) == 1)
        _zygotes.retire(zygote)
        await until(zygote.is_gone)


async def test_what_a_zygote_is_told_is_settled_when_it_can_be_told(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """While one waits for room, the calls of other loops may have put its plan out of mind."""
    spec = jail.spec()
    plan = plan_of(spec, await offers.current())
    assert isinstance(plan, Plan)
    zygote = _zygotes.zygote("namespaces")
    zygote._plans[plan.key] = None
    sent: list[Any] = []

    def send(link: socket.socket, text: bytes, files: list[int]) -> None:
        sent.append(json.loads(text)["plan"])
        if len(sent) == 1:
            zygote._plans.clear()
            raise BlockingIOError

    monkeypatch.setattr(links, "send", send)
    await zygote.make(plan, {}, [])
    assert [told is None for told in sent] == [True, False]
    # It was told nothing in truth.
    _zygotes.retire(zygote)


async def test_a_want_of_descriptors_is_not_the_end_of_a_zygote(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """A new one would be started for each such call, and the jails of the old one be its last."""

    def send(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    zygote = _zygotes.zygote("namespaces")
    with monkeypatch.context() as patch:
        patch.setattr(links, "send", send)
        outcome = await run_in_jail(("/bin/true",), jail.spec())
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert _zygotes.zygote("namespaces") is zygote


async def test_a_host_that_changed_has_new_zygotes(jail: Jail):
    """An old one has the limits and the control group that this process had once."""
    before = _zygotes.zygote("namespaces")
    async with Pool(waiting=1) as pool:
        assert await pool.fill(jail.spec()) == 1
        offers.forget()
        outcome = await run_in_jail(("/bin/echo", "here"), jail.spec(), pool=pool)
        assert outcome.stdout.text() == "here\n"
        assert not outcome.timing.was_waiting
        assert _zygotes.zygote("namespaces") is not before
        # What it has made goes on.
        assert not before.is_gone()
    await until(before.is_gone)


@pytest.mark.parametrize("isolation", ["standard", "container"])
@pytest.mark.parametrize("version", [1, 2])
async def test_a_group_that_cannot_be_entered_is_a_typed_ending(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, isolation: Any, version: int
):
    """A jail outside of its group has no limit; a zygote that trips over it makes no more."""

    class Gone(cgroup.Group):
        @property
        def places(self) -> tuple[tuple[int, str], ...]:
            return ((version, "/sys/fs/cgroup/none/such"),)

    really = launch.limited
    monkeypatch.setattr(launch, "limited", lambda *_: Gone(()))
    before = zygote_of(WAYS[isolation])
    spec = jail.spec(isolation=isolation)
    with trio.fail_after(20):
        outcome = await run_in_jail(("/bin/sh", "-c", "touch ran"), spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "confinement_failed"
    assert outcome.failure.guarantee == "memory_limited"
    assert "No such file" in outcome.failure.cause
    assert not (jail.workspace / "ran").exists()
    # The control: the same zygote makes the next one.
    monkeypatch.setattr(launch, "limited", really)
    outcome = await run_in_jail(("/bin/sh", "-c", "touch ran"), spec)
    assert outcome.failure is None, outcome.failure
    assert (jail.workspace / "ran").exists()
    assert zygote_of(WAYS[isolation]) is before
