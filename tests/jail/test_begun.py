"""A jail that is gone before it has its call, a call that cannot be given: once, or not at all."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell_sandbox import (
    CommandHandler,
    JailSpec,
    Pool,
    _call,
    host,
    idpool,
    launch,
    run_in_jail,
)
from toolcell_sandbox._child import links
from toolcell_sandbox.outcome import Upper

from .conftest import Jail, pids_below

RUNS = CommandHandler(argv=("/bin/sh", "-c", "echo run >> runs; cat"))


def kill(pid: int) -> None:
    """End a process, and wait until it has ended."""
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    assert poller.poll(10_000)
    os.close(pidfd)


def the_init(jail: launch.Jail) -> int:
    assert jail.pid is not None
    return jail.pid


def the_worker(jail: launch.Jail) -> int:
    (worker,) = pids_below(the_init(jail))
    return worker


def stopped_init(jail: launch.Jail) -> int:
    """One that hears of the call, and lets nobody go on."""
    os.kill(the_init(jail), signal.SIGSTOP)
    return the_init(jail)


def before(act: Callable[[launch.Jail], None]) -> Callable[..., None]:
    """`begin`, just after that."""

    def begin(jail: launch.Jail, *rest: Any) -> None:
        act(jail)
        launch.begin(jail, *rest)

    return begin


@pytest.mark.parametrize("who", [the_init, the_worker])
@pytest.mark.parametrize("mode", ["transaction", "direct"])
async def test_a_waiting_jail_that_is_gone_costs_no_call(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, who: Callable[[launch.Jail], int], mode: Any
):
    """What waits can be ended by anybody, as by the kernel for want of memory: nothing has run."""
    given = []

    def kill_it(one: launch.Jail) -> None:
        given.append(one)
        if len(given) == 1:
            kill(who(one))

    monkeypatch.setattr(_call, "begin", before(kill_it))
    kept: list[Upper] = []
    spec = JailSpec(workspace=str(jail.workspace), workspace_mode=mode)
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        with trio.fail_after(10):
            outcome = await run_in_jail(RUNS, spec, pool=pool, stdin=b"fed", keep=kept.append)
    assert outcome.failure is None, outcome.failure
    assert not outcome.timing.was_waiting
    assert outcome.stdout.text() == "fed"
    assert len(given) == 2
    assert len(kept) == (mode == "transaction")
    for upper in kept:
        assert "runs" in os.listdir(upper.fd)
        upper.close()
    if mode == "direct":
        assert (jail.workspace / "runs").read_text() == "run\n"


async def test_a_jail_that_dies_before_its_worker_is_let_go_has_run_nothing(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """It has been told all by then; only who was confined can have run."""
    given = []

    def give(one: launch.Jail, *rest: Any) -> None:
        given.append(one)
        pid = stopped_init(one) if len(given) == 1 else None
        launch.begin(one, *rest)
        if pid is not None:
            kill(pid)

    monkeypatch.setattr(_call, "begin", give)
    spec = jail.spec()
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        outcome = await run_in_jail(RUNS, spec, pool=pool)
    assert outcome.failure is None
    assert (jail.workspace / "runs").read_text() == "run\n"
    assert len(given) == 2


async def test_the_layer_of_a_jail_that_ran_nothing_is_nobodys(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """Two layers of one call would be judged and committed, the empty one first."""
    given = []

    def give(one: launch.Jail, *rest: Any) -> None:
        given.append(one)
        if len(given) > 1:
            launch.begin(one, *rest)
            return
        os.kill(the_worker(one), signal.SIGSTOP)
        launch.begin(one, *rest)
        poller = select.poll()
        poller.register(one.work, select.POLLIN)
        while "layer" not in one.reports:
            assert poller.poll(10_000)
            one.hear(one.work)
        kill(the_init(one))

    monkeypatch.setattr(_call, "begin", give)
    kept: list[Upper] = []
    spec = JailSpec(workspace=str(jail.workspace), workspace_mode="transaction")
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        outcome = await run_in_jail(RUNS, spec, pool=pool, keep=kept.append)
    assert outcome.failure is None
    (upper,) = kept
    assert os.listdir(upper.fd) == ["runs"]
    upper.close()


async def test_a_waiting_jail_that_dies_while_it_runs_is_not_run_again(jail: Jail):
    """A call that runs twice pays twice, sends twice, deletes what it has just made."""
    spec = jail.spec()
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        (init,) = pool.waiting_pids()

        async def kill_it() -> None:
            while not (jail.workspace / "runs").exists():
                await trio.sleep(0.001)
            os.kill(init, signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_it)
            script = "echo run >> runs; sleep 1000"
            outcome = await run_in_jail(("/bin/sh", "-c", script), spec, pool=pool)
    assert outcome.timing.was_waiting
    assert outcome.failure is not None
    assert outcome.failure.kind == "crashed"
    assert (jail.workspace / "runs").read_text() == "run\n"


async def test_what_was_read_of_a_stream_is_not_asked_for_again(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
):
    """The second jail would get the rest of it as if that were all."""

    async def stdin() -> Any:
        yield b"fed"

    given = []

    def kill_first(one: launch.Jail) -> None:
        given.append(one)
        if len(given) == 1:
            kill(the_init(one))

    monkeypatch.setattr(_call, "begin", before(kill_first))
    spec = jail.spec()
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        async with contextlib.aclosing(stdin()) as stream:
            with trio.fail_after(10):
                outcome = await run_in_jail(RUNS, spec, pool=pool, stdin=stream)
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert not (jail.workspace / "runs").exists()


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Nothing can be opened in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("which", ["worker", "init"])
async def test_a_call_that_cannot_be_given_is_a_typed_ending_at_once(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, which: str
):
    """A message that is too long for its packet needs a descriptor; unsaid, it is waited for."""

    def give(*arguments: Any) -> None:
        with no_descriptors():
            launch.begin(*arguments)

    monkeypatch.setattr(_call, "begin", give)
    long = "x" * (1 << 20)
    script = None if which == "worker" else f"#{long}\ntouch ran"
    spec = jail.spec(wall_s=60)
    argv = ("/bin/sh", *(("-c", "touch ran", long[: 1 << 16]) if script is None else ()))
    with trio.fail_after(10):
        outcome = await run_in_jail(CommandHandler(argv=argv, script=script), spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert "could not be given" in outcome.failure.operator_detail
    assert not (jail.workspace / "ran").exists()


@pytest.mark.parametrize("isolation", ["standard", "container"])
@pytest.mark.parametrize("what", ["Streams", "Supervision", "Jail"])
async def test_a_full_table_of_files_is_a_typed_ending(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, what: str, isolation: Any
):
    """A busy server has its table full now and then: that is no exception of its program's."""

    def made(*arguments: Any, **options: Any) -> object:
        with no_descriptors():
            return really(*arguments, **options)

    module = launch if what == "Streams" else _call
    really = getattr(module, what)
    monkeypatch.setattr(module, what, made)
    outcome = await run_in_jail(RUNS, jail.spec(isolation=isolation))
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert "descriptors" in outcome.failure.operator_detail or what == "Jail"
    assert not (jail.workspace / "runs").exists()


@pytest.mark.parametrize("event", ["started", "layer"])
async def test_what_cannot_be_held_is_a_typed_ending(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, event: str
):
    """A layer that is lost would be a call that has changed nothing; a jail, one nobody ends."""

    def heard(one: launch.Jail, link: socket.socket) -> bool:
        with no_descriptors() if event == "started" or begun else contextlib.nullcontext():
            return really(one, link)

    def give(*arguments: Any) -> None:
        begun.append(True)
        launch.begin(*arguments)

    begun: list[bool] = []
    really = launch.Jail.hear
    monkeypatch.setattr(launch.Jail, "hear", heard)
    monkeypatch.setattr(_call, "begin", give)
    spec = JailSpec(workspace=str(jail.workspace), workspace_mode="transaction")
    with trio.fail_after(10):
        outcome = await run_in_jail(RUNS, spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert len(begun) == (event == "layer")


async def test_a_defect_of_ours_is_not_called_a_want_of_ids(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """An operator would look for user ids, and never find the missing key."""

    def broken(*_: object) -> Any:
        raise KeyError("plan")

    with monkeypatch.context() as patch:
        patch.setattr(launch, "limited", broken)
        with pytest.raises(KeyError):
            await run_in_jail(RUNS, jail.spec())

    # The control: a want of ids is called by its name.
    def none_free(*_: object) -> Any:
        raise host.NoIds("every range of user ids for jails is in use")

    monkeypatch.setattr(idpool, "lease", none_free)
    outcome = await run_in_jail(RUNS, jail.spec())
    assert outcome.failure is not None
    assert outcome.failure.kind == "confinement_failed"
    assert outcome.failure.stage == "ids"


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_a_worker_refuses_a_call_that_its_init_was_not_told_of(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, isolation: Any
):
    """One call's handler would run with what was laid into the root for another one."""

    def pack(message: dict[str, Any]) -> bytes:
        if message.get("event") == "call":
            message = {**message, "order": "another"}
        return really(message)

    really = links.pack
    spec = jail.spec(isolation=isolation)
    with monkeypatch.context() as patch:
        patch.setattr(links, "pack", pack)
        outcome = await run_in_jail(RUNS, spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert "another call" in outcome.failure.operator_detail
    assert not (jail.workspace / "runs").exists()
    # The control.
    assert (await run_in_jail(RUNS, spec)).failure is None


async def test_what_standard_input_comes_from_is_let_go_of_with_the_call(jail: Jail):
    """A file or a connection would stay open until somebody collects garbage."""
    left: list[str] = []

    async def lines() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"line\n"
        finally:
            left.append("gone")

    reads = CommandHandler(argv=("/bin/sh", "-c", "read line"))
    outcome = await run_in_jail(reads, jail.spec(), stdin=lines())
    assert outcome.failure is None, outcome.failure
    assert left == ["gone"]
