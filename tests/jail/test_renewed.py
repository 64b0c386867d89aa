"""Jails that one init makes one after the other: what they share, and what ends that."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from toolcell_sandbox import CommandHandler, JailOutcome, JailSpec, Pool, _zygotes, run_in_jail
from toolcell_sandbox import pool as pool_of_jails
from toolcell_sandbox.launch import CALLS_MAX
from toolcell_sandbox.outcome import Upper
from toolcell_sandbox.spec import Network

from .conftest import Jail, left_below

IS_ROOT = os.geteuid() == 0
"""Nobody else has ids to give, and a worker with its init's uid could stop it."""

LEAVES = """
import ctypes, os
def handler():
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/home/user"):
        with open(f"{folder}/left", "w") as file:
            file.write("left")
    libc = ctypes.CDLL(None, use_errno=True)
    made = [libc.shmget(4711, 4096, 0o1666), libc.semget(4711, 1, 0o1666)]
    made.append(libc.msgget(4711, 0o1666))
    libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666, None)
    return made
"""

FINDS = """
import ctypes, os
def handler():
    folders = ("/tmp", "/var/tmp", "/dev/shm", "/home/user")
    found = [folder for folder in folders if os.path.exists(f"{folder}/left")]
    libc = ctypes.CDLL(None, use_errno=True)
    for what in ("shmget", "msgget"):
        if getattr(libc, what)(4711, *((0, 0) if what == "shmget" else (0,))) != -1:
            found.append(what)
    if libc.semget(4711, 0, 0) != -1:
        found.append("semget")
    if libc.mq_open(b"/left", os.O_RDWR) != -1:
        found.append("mq_open")
    pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    found += pids - {1, os.getpid()}
    found += open("/proc/sysvipc/shm").readlines()[1:]
    mounts = len(open("/proc/mounts").readlines())
    return [found, os.getpid(), sorted(os.environ), os.getcwd(), mounts]
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other jail is made while a call runs, however slow the machine."""
    monkeypatch.setattr(pool_of_jails, "BUSY_S", 60.0)


@asynccontextmanager
async def calls(spec: JailSpec, **options: Any) -> AsyncIterator[Any]:
    """A way to make a call by a jail that waits, and the init of the one that waits next."""
    async with Pool(waiting=1, **options) as pool:

        async def call(handler: Any, **changes: Any) -> tuple[JailOutcome, int]:
            assert await pool.fill(spec) >= 1
            # One that was made besides, while an init was found to have ended, comes after it.
            pid = pool.waiting_pids()[0]
            keep = changes.pop("keep", None)
            outcome = await run_in_jail(
                handler, dataclasses.replace(spec, **changes), pool=pool, keep=keep
            )
            assert outcome.timing.was_waiting
            return outcome, pid

        yield call


def shell(text: str) -> CommandHandler:
    return CommandHandler(argv=("/bin/sh", "-c", text))


async def test_a_call_finds_nothing_of_the_one_before_it(jail: Jail):
    """One call's secret in another's hands, or its work mixed with another's."""
    spec = dataclasses.replace(jail.spec(writable=False), env={})
    leaves, finds = jail.handler(LEAVES), jail.handler(FINDS)
    async with calls(spec) as call:
        clean, first_pid = await call(finds)
        assert clean.failure is None, clean.failure
        left, _ = await call(leaves)
        assert left.failure is None, left.failure
        # The control: it was there to be found.
        assert -1 not in left.value
        after, last_pid = await call(finds)
        assert after.value == clean.value
        assert after.value[0] == []
        # By the same init, where one may have several.
        assert (first_pid == last_pid) == IS_ROOT


async def test_what_is_in_flight_is_not_there_for_the_next_call(jail: Jail):
    """The kernel collects such sockets in its own time: names, and files, would go on meanwhile."""
    sends = jail.handler(
        """
        import array, socket
        def handler():
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            name.bind("\\0left")
            inner = [name]
            for _ in range(100):
                ours, theirs = socket.socketpair()
                fds = array.array("i", [each.fileno() for each in inner])
                ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
                inner = [ours, theirs]
            own = array.array("i", [each.fileno() for each in inner])
            inner[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, own)])
            return open("/proc/net/unix").read().count("@left")
        """
    )
    # The end of its own link that the init has is one, without a name.
    finds = jail.handler("return [x.split()[7:] for x in open('/proc/net/unix')][1:]")
    async with calls(jail.spec(writable=False)) as call:
        left, first = await call(sends)
        assert left.value == 1, left.failure
        for _ in range(3):
            after, last = await call(finds)
            assert after.value == [[]]
            assert last != first
        # Nor is it for another jail, whose network may have been that one's.
        for _ in range(6):
            assert (await run_in_jail(finds, jail.spec(writable=False))).value == [[]]


@pytest.mark.parametrize("mode", ["transaction", "read_only"])
async def test_no_descriptor_of_an_init_leads_past_the_masks(jail: Jail, mode: Any):
    """A working folder, or a program's interpreter, is opened before the last sweep."""
    secret = jail.workspace / ".secret"
    secret.mkdir()
    (secret / "key").write_text("hidden words")
    shutil.copy("/bin/cat", secret / "tool")
    spec = JailSpec(workspace=str(jail.workspace), workspace_mode=mode)
    masks = {str(jail.workspace): frozenset({".secret"})}
    async with Pool(waiting=1) as pool:
        for fd in range(3, 40):
            place = f"/proc/self/fd/{fd}/h0"
            (jail.workspace / "in").unlink(missing_ok=True)
            (jail.workspace / "in").symlink_to(place)
            run = jail.workspace / "run"
            run.write_text(f"#!{place}/.secret/tool /proc/self/exe\n")
            run.chmod(0o755)
            tries = (
                (("/bin/cat", ".secret/key"), place),
                (("/bin/cat", ".secret/key"), str(jail.workspace / "in")),
                ((str(run),), None),
                ((f"{place}/.secret/tool", f"{place}/.secret/key"), None),
            )
            for argv, cwd in tries if fd < 16 else tries[:1]:
                asked = dataclasses.replace(spec, masks=masks, cwd=cwd)
                assert await pool.fill(spec)
                outcome = await run_in_jail(CommandHandler(argv=argv), asked, pool=pool)
                assert not outcome.stdout.kept_bytes, (fd, argv)
        # The control: it is there to be read.
        outcome = await run_in_jail(CommandHandler(argv=("/bin/cat", ".secret/key")), spec)
        assert outcome.stdout.text() == "hidden words"


async def test_each_call_has_namespaces_of_its_own(jail: Jail):
    """What is shared is a way from one call to the next."""
    source = """
        import os
        def handler():
            return {n: os.stat(f"/proc/self/ns/{n}").st_ino for n in ("mnt", "ipc", "net", "pid")}
        """
    handler = jail.handler(source)
    async with calls(jail.spec(writable=False)) as call:
        first, _ = await call(handler)
        second, _ = await call(handler)
    # The kernel may give a number again once a namespace is gone: then it is another one all the
    # same, as the test above finds.
    assert first.value["pid"] != os.stat("/proc/self/ns/pid").st_ino
    assert (first.value["pid"] == second.value["pid"]) == IS_ROOT
    for name in ("mnt", "ipc"):
        assert second.value[name] != os.stat(f"/proc/self/ns/{name}").st_ino


@pytest.mark.parametrize(
    "ends",
    [
        "exit 3",
        "kill -9 $$",
        "(sleep 1000 &) ; exit 0",
        "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(0x40000027)'; exit 0",
        "setsid sleep 1000 & exit 0",
    ],
)
async def test_what_did_not_end_well_is_followed_by_nothing(jail: Jail, ends: str):
    """An init that a hostile call has had to be cleaned up after has met more than it should."""
    async with calls(jail.spec(writable=False)) as call:
        _, first = await call(shell("exit 0"))
        _, second = await call(shell(ends))
        assert (first == second) == IS_ROOT
        last, third = await call(shell("exit 0"))
        assert third != second
        assert last.failure is None
    assert left_below(os.getpid()) == set()


async def test_names_that_were_masked_are_not_in_the_next_calls_memory(jail: Jail):
    """Its worker is forked from the init, which has heard of them: a name can be a secret too."""
    (jail.workspace / ".env").write_text("secret")
    spec = jail.spec(writable=False)
    masks = {str(jail.workspace): frozenset({".env"})}
    async with calls(spec) as call:
        masked, first = await call(shell("ls -A"), masks=masks)
        assert ".env" not in masked.stdout.text()
        _, second = await call(shell("exit 0"))
        assert first != second


async def test_a_script_is_not_in_the_next_calls_memory(jail: Jail):
    """A command line has passwords in it."""
    secret = "correct" + "horse" + "battery"
    looks = jail.handler(
        """
        def handler():
            word = b"correct" + b"horse" + b"battery"
            found = 0
            for line in open("/proc/self/maps"):
                where, mode = line.split()[:2]
                first, last = (int(part, 16) for part in where.split("-"))
                if "r" in mode and "[v" not in line:
                    with open("/proc/self/mem", "rb", 0) as memory:
                        memory.seek(first)
                        found += memory.read(last - first).count(word)
            return found
        """
    )
    async with calls(jail.spec(writable=False)) as call:
        clean, first = await call(looks)
        told, _ = await call(CommandHandler(argv=("/bin/sh",), script=f"echo {secret}"))
        assert told.stdout.text().strip() == secret
        after, last = await call(looks)
        # Its own copies of the word are all that there are.
        assert clean.value == after.value > 0
        assert (first == last) == IS_ROOT


async def test_figures_and_limits_are_of_one_call(jail: Jail):
    """A call would be ended, or billed, for what another one used."""
    uses = jail.handler("b = bytearray(150 << 20)\nfor _ in range(6_000_000): pass\nreturn len(b)")
    async with calls(jail.spec(writable=False, memory_bytes=256 << 20, cpu_s=60)) as call:
        large, first = await call(uses)
        assert large.usage.peak_memory_bytes > 150 << 20
        assert large.usage.cpu_s > 0.05
        small, second = await call(shell("exit 0"))
        assert small.usage.peak_memory_bytes < 50 << 20
        assert small.usage.cpu_s < large.usage.cpu_s
        assert (first == second) == IS_ROOT


async def test_files_of_a_call_that_are_kept_are_not_the_next_ones_memory(jail: Jail):
    """A change set that waits for a person would leave the next call none of its memory."""
    spec = dataclasses.replace(
        jail.spec(memory_bytes=64 << 20), workspace_mode="transaction", workspace_identity=None
    )
    kept: list[Upper] = []
    async with calls(spec) as call:
        wrote, first = await call(shell("head -c 40M /dev/zero > file"), keep=kept.append)
        assert wrote.failure is None, wrote.failure
        uses = jail.handler("return len(bytearray(40 << 20))")
        after, second = await call(uses)
        assert after.failure is None, after.failure
        assert first != second
        assert os.fstat(kept[0].fd).st_nlink
    for upper in kept:
        upper.close()


async def test_an_init_has_so_many_calls_and_no_more(jail: Jail):
    """Whatever one call could leave in it would be there for ever."""
    async with calls(jail.spec(writable=False)) as call:
        pids = [(await call(shell("exit 0")))[1] for _ in range(CALLS_MAX + 1)]
    assert len(set(pids)) == (2 if IS_ROOT else CALLS_MAX + 1)
    assert pids[0] != pids[-1]


async def test_an_init_holds_no_more_after_many_calls(jail: Jail):
    """What each call leaves open would be found by a later one, or be too much at last."""
    spec = dataclasses.replace(jail.spec(), workspace_mode="transaction")
    pids: set[int] = set()
    held: list[int] = []
    async with Pool(waiting=1) as pool:
        for number in range(30):
            assert await pool.fill(spec) >= 1
            pid = pool.waiting_pids()[0]
            pids.add(pid)
            if IS_ROOT:
                held.append(len(os.listdir(f"/proc/{pid}/fd")))
            script = CommandHandler(argv=("/bin/sh",), script="echo x > file")
            outcome = await run_in_jail(script if number % 2 else shell("exit 0"), spec, pool=pool)
            assert outcome.failure is None, outcome.failure
    assert len(pids) == (1 if IS_ROOT else 30)
    # It may be rehearsing with two more.
    assert max(held[15:], default=0) <= max(held[:15], default=0) + 2, held


@pytest.mark.parametrize("network", [Network.loopback(), Network.host()])
async def test_one_with_a_network_is_for_one_call(jail: Jail, network: Network):
    """What is up stays up, and has connections."""
    spec = dataclasses.replace(jail.spec(writable=False), network=network)
    async with calls(spec) as call:
        _, first = await call(shell("exit 0"))
        _, second = await call(shell("exit 0"))
    assert first != second


async def test_one_that_dies_on_its_way_costs_no_call(jail: Jail):
    """A call would fail for what another one's jail has come to."""
    spec = jail.spec(writable=False)
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        for _ in range(10):
            pids = pool.waiting_pids()
            assert (await run_in_jail(shell("exit 0"), spec, pool=pool)).failure is None
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            outcome = await run_in_jail(shell("echo there"), spec, pool=pool)
            assert outcome.failure is None, outcome.failure
            assert outcome.stdout.text() == "there\n"
            await pool.fill(spec)
    assert left_below(os.getpid()) == set()


async def test_a_zygote_that_is_let_go_has_no_more_calls(jail: Jail):
    """A jail of before would go on with limits, and a host, that are no more."""
    async with calls(jail.spec(writable=False)) as call:
        _, first = await call(shell("exit 0"))
        _zygotes.retire_all()
        _, second = await call(shell("exit 0"))
        _, third = await call(shell("exit 0"))
    assert (first == second) == IS_ROOT
    assert third != second


async def test_those_of_a_busy_hour_go_when_it_is_over(jail: Jail, monkeypatch: pytest.MonkeyPatch):
    """Memory for many calls at once would be held while there are none."""
    monkeypatch.setattr(pool_of_jails, "KEPT_S", 0.05)
    spec = jail.spec(writable=False)
    async with Pool(waiting=1) as pool:
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(lambda: run_in_jail(shell("exit 0"), spec, pool=pool))
        with trio.fail_after(20):
            while len(pool.waiting_pids()) != 1:
                await trio.sleep(0.01)
