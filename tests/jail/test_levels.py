"""Isolation levels on the real kernel: what each host offers, what each choice by name gives up."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell_sandbox import CommandHandler, JailOutcome, JailSpec, Network, offers, run_in_jail
from toolcell_sandbox.guarantees import Offer

IS_ROOT = os.geteuid() == 0


def kind(outcome: JailOutcome) -> str | None:
    return None if outcome.failure is None else outcome.failure.kind


def read(path: str) -> bytes:
    """A file's content; nothing where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def with_abi(abi: int) -> Offer:
    """This host, as if its kernel had that Landlock."""
    found = offers.look()
    return dataclasses.replace(found, landlock_abi=min(abi, found.landlock_abi))


async def run(spec: JailSpec, *argv: str) -> JailOutcome:
    return await run_in_jail(CommandHandler(argv=argv), spec)


async def shell(spec: JailSpec, script: str) -> JailOutcome:
    return await run(spec, "/bin/sh", "-c", script)


def choose(jail: Any, **more: Any) -> JailSpec:
    """A jail of the test's workspace, with these choices."""
    return dataclasses.replace(jail.spec(), **more)


# -- Landlock ------------------------------------------------------------------------------


@pytest.mark.parametrize("abi", range(8))
async def test_a_jail_works_on_a_kernel_with_any_landlock(jail, abi):
    """ABI 1 would forbid every rename between folders, ABI 0 is no reason to run nothing."""
    script = (
        "mkdir a b && echo one > a/f && mv a/f b/f && ln b/f a/g && : > a/g && cat b/f && "
        "echo x > /tmp/t && mv /tmp/t /var/tmp/t 2>/dev/null; "
        "echo 0 > /proc/self/oom_score_adj && echo lowered; cat /proc/self/oom_score_adj"
    )
    with offers.assume(with_abi(abi)):
        outcome = await shell(choose(jail), script)
    assert kind(outcome) is None
    held = outcome.receipt.held["fs_confined"]
    assert ("Landlock" in held) == (abi >= 2)
    assert sorted(os.listdir(jail.workspace / "a")) == ["g"]
    # What the second fence adds: /proc is there to be read.
    if abi >= 2:
        assert outcome.stdout.kept == b"1000\n", outcome.stderr.kept
    assert ("landlock" in outcome.stderr.kept.decode().lower()) is False


@pytest.mark.parametrize("abi", range(8))
async def test_without_a_namespace_landlock_is_all_or_nothing(jail, abi):
    """Below ABI 6 a worker could signal whatever its user owns."""
    with offers.assume(with_abi(abi)):
        outcome = await shell(choose(jail, isolation="container"), "touch ran")
    if abi >= 6:
        assert kind(outcome) is None
        assert outcome.receipt.isolation == "container"
    else:
        assert kind(outcome) == "confinement_failed"
        assert outcome.failure.stage == "landlock"
    assert (jail.workspace / "ran").exists() == (abi >= 6)


# -- limits --------------------------------------------------------------------------------

HOG = "data = bytearray()\nwhile True: data += b'x' * (4 << 20)"
MEMFDS = """
import os
held = []
while True:
    held.append(os.memfd_create("x"))
    for _ in range(8):
        os.write(held[-1], bytes(1 << 20))
"""
SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
while (key := libc.shmget(0, 8 << 20, 0o1600)) >= 0:
    place = libc.shmat(key, None, 0)
    ctypes.memset(place, 1, 8 << 20)
    libc.shmdt(ctypes.c_void_p(place))
"""


@pytest.mark.parametrize("by", ["cgroup", "watch"])
@pytest.mark.parametrize("code", [HOG, MEMFDS], ids=["heap", "memfd"])
async def test_memory_is_bounded_wherever_it_is(jail, by, code):
    """Memory that no process has mapped was seen by nobody."""
    offer = offers.look()
    if by == "watch":
        offer = offer.without("cgroup_memory", "cgroup_pids", "cgroup_cpu")
    with offers.assume(offer):
        outcome = await run(
            choose(jail, limits=dataclasses.replace(jail.spec().limits, memory_bytes=96 << 20)),
            "python3",
            "-c",
            code,
        )
    assert kind(outcome) == "memory_exceeded"
    expected = "cgroup" if by == "cgroup" and offer.has("cgroup_memory") else "watch"
    assert outcome.failure.evidence == expected
    assert outcome.receipt.held["memory_limited"].startswith(expected)


async def test_segments_that_nobody_has_attached_are_bounded(jail):
    """System V segments are in no process's memory, and outlive the one that made them."""
    offer = offers.look().without("cgroup_memory", "cgroup_pids", "cgroup_cpu")
    spec = choose(jail, limits=dataclasses.replace(jail.spec().limits, memory_bytes=96 << 20))
    with offers.assume(offer):
        outcome = await run(spec, "python3", "-c", SEGMENTS)
    # Host root sets the namespace's own limit; anybody else's init looks at them.
    assert kind(outcome) == (None if IS_ROOT else "memory_exceeded")


async def test_a_jail_takes_little_of_the_users_inotify_budget(jail):
    """It is one budget for all of a user's processes: the supervisor's editor too."""
    code = (
        "import ctypes; libc = ctypes.CDLL(None); "
        "print(sum(libc.inotify_init() >= 0 for _ in range(100)))"
    )
    outcome = await run(choose(jail), "python3", "-c", code)
    assert outcome.stdout.kept == b"32\n"


@pytest.mark.parametrize("level", ["standard", "hardened"])
async def test_hardened_is_for_who_has_cgroups_and_ids_to_give(jail, level):
    """The level insists; it does not slide to what an unprivileged user has."""
    outcome = await shell(choose(jail, isolation=level), "touch ran")
    if level == "standard" or IS_ROOT:
        assert outcome.receipt.isolation == level
    else:
        assert kind(outcome) == "confinement_failed"
        assert "--isolation standard" in outcome.failure.fix
        assert not (jail.workspace / "ran").exists()
    if IS_ROOT:
        held = outcome.receipt.held
        for guarantee in ("memory_limited", "processes_limited", "cpu_limited"):
            assert held[guarantee].startswith("cgroup")
        assert "ids of its own" in held["signals_scoped"]


async def test_jails_that_run_at_once_have_other_uids_on_the_host(jail):
    """A uid shared by two jails is a way from one to the other, wherever a namespace leaks."""
    uids: list[int] = []

    async def one(number: int) -> None:
        script = f"exec sleep 1000.{os.getpid()}{number}"
        await shell(choose(jail), script)

    def seen(number: int) -> int | None:
        wanted = f"sleep\0001000.{os.getpid()}{number}\0".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (entry / "cmdline").read_bytes() == wanted:
                        return entry.stat().st_uid
                except OSError:
                    continue
        return None

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(one, number)
            while any(seen(number) is None for number in range(3)):
                await trio.sleep(0.02)
            uids += [uid for number in range(3) if (uid := seen(number)) is not None]
            nursery.cancel_scope.cancel()
    if IS_ROOT:
        assert len(set(uids)) == 3
        assert 0 not in uids
    else:
        assert set(uids) == {os.getuid()}


# -- networks ------------------------------------------------------------------------------

SERVE = """
import socket, sys, threading
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
client = socket.create_connection(server.getsockname(), timeout=5)
peer, _ = server.accept()
client.sendall(b"x")
print("inside", peer.recv(1) == b"x")
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=2)
    print("outside reached")
except OSError:
    print("outside refused")
"""


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("none", b""),
        ("loopback", b"inside True\noutside refused\n"),
        ("host", b"inside True\noutside reached\n"),
    ],
)
async def test_each_network_reaches_what_its_name_says(jail, network, said):
    """A loopback shared with the host reaches every database that listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        spec = choose(jail, network=Network(network))
        outcome = await run(spec, "python3", "-c", SERVE, "0", port)
        socket.create_connection(("127.0.0.1", int(port)), timeout=2).close()
    assert outcome.stdout.kept == said, outcome.stderr.kept
    assert ("net_blocked" in outcome.receipt.waived) == (network == "host")
    assert ("net_loopback" in outcome.receipt.held) == (network == "loopback")


async def test_two_loopbacks_are_apart(jail):
    """The same port in both would be one server that the other jail can speak to."""
    spec = choose(jail, network=Network.loopback())
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 4711)); print('bound', flush=True);"
        "import os; open(f'up-{os.environ[\"N\"]}', 'w').close();\n"
        "while not (os.path.exists('up-0') and os.path.exists('up-1')): pass"
    )
    said: list[bytes] = []

    async def one(number: int) -> None:
        own = dataclasses.replace(spec, env=spec.env | {"N": str(number)})
        said.append((await run(own, "python3", "-c", code)).stdout.kept)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, 0)
            nursery.start_soon(one, 1)
    assert said == [b"bound\n", b"bound\n"]


async def test_the_hosts_network_brings_no_abstract_socket_of_the_host(jail):
    """X servers, D-Bus and containerd listen there, and ask nobody for a path."""
    name = f"toolcell-test-{os.getpid()}"
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX)\n"
        "try: s.connect('\\0' + sys.argv[1]); print('reached')\n"
        "except OSError as error: print(error.strerror)"
    )
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as control:
        listener.bind("\0" + name)
        listener.listen()
        outcome = await run(choose(jail, network=Network.host()), "python3", "-c", code, name)
        control.connect("\0" + name)
    assert outcome.stdout.kept == b"Operation not permitted\n"


async def test_the_hosts_network_brings_its_resolver(jail):
    """Without it every name fails, and the network looks broken."""
    expected = read("/etc/resolv.conf")
    spec = choose(jail, network=Network.host())
    outcome = await shell(spec, "cat /etc/resolv.conf 2>/dev/null; true")
    assert outcome.stdout.kept == expected


# -- workspaces ----------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["standard", "container"])
@pytest.mark.parametrize("mode", ["read_only", "scratch", "direct"])
async def test_each_mode_of_the_workspace_does_what_its_name_says(jail, level, mode):
    """A mode that writes where it said it would not is a file that somebody loses."""
    (jail.workspace / "there").write_text("before")
    spec = choose(jail, workspace_mode=mode, isolation=level)
    outcome = await shell(spec, "cat there; echo after > there; echo new > new; rm -f there; ls -A")
    after = {p.name: p.read_text() for p in jail.workspace.iterdir()}
    if mode == "direct":
        assert (outcome.stdout.kept, after) == (b"beforenew\n", {"new": "new\n"})
    else:
        seen = b"beforethere\n" if mode == "read_only" else b"new\n"
        assert (outcome.stdout.kept, after) == (seen, {"there": "before"})


async def test_an_empty_workspace_is_as_bounded_as_the_scratch(jail):
    """It lies in memory."""
    limits = dataclasses.replace(jail.spec().limits, disk_bytes=8 << 20)
    spec = choose(jail, workspace_mode="scratch", limits=limits)
    outcome = await shell(spec, "head -c 16M /dev/zero > big; stat -c %s big")
    assert int(outcome.stdout.kept) <= 8 << 20
    assert b"No space left" in outcome.stderr.kept


# -- waivers and the filter ----------------------------------------------------------------

TRACED = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())
"""


async def test_a_debugger_needs_two_waivers_and_is_refused_without(jail):
    """The filter also keeps AF_VSOCK closed, so the network's promise goes with it."""
    plain = await run(choose(jail), "python3", "-c", TRACED)
    assert plain.stdout.kept == b"-1 1\n"
    spec = choose(jail, waive=("syscalls_filtered", "net_blocked"))
    waived = await run(spec, "python3", "-c", TRACED)
    assert waived.stdout.kept == b"0 0\n"
    assert {"syscalls_filtered", "net_blocked"} <= set(waived.receipt.waived)
    mode = await shell(spec, "touch f && chmod 4755 f")
    assert b"not permitted" in mode.stderr.kept


FOREIGN = """
import ctypes, mmap
# mov eax, 20 (getpid on i386); int 0x80; ret
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))
place = ctypes.addressof(ctypes.c_char.from_buffer(code))
print(ctypes.CFUNCTYPE(ctypes.c_int)(place)())
"""


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_a_call_of_another_machine_ends_the_call_and_is_named(jail, level):
    """i386 has calls that a filter for x86-64 never looks at."""
    outcome = await run(choose(jail, isolation=level), "python3", "-c", FOREIGN)
    if os.uname().machine == "x86_64":
        assert kind(outcome) == "syscall_blocked"
        assert (outcome.failure.call, outcome.failure.machine) == ("20", "i386")


async def test_a_signal_of_that_name_is_not_the_filter(jail):
    """A handler that sends itself SIGSYS crashed; nothing was blocked."""
    outcome = await shell(choose(jail), "kill -SYS $$")
    assert (kind(outcome), outcome.failure.signal) == ("crashed", "SIGSYS")


async def test_a_foreign_call_of_a_child_is_the_childs_end(jail):
    """The leader lives, and says how it ended itself."""
    script = f"python3 -c '{FOREIGN}'; echo it ended with $?"
    outcome = await shell(choose(jail), script)
    assert kind(outcome) is None
    if os.uname().machine == "x86_64":
        assert outcome.stdout.kept == b"it ended with 137\n"


# -- /proc ---------------------------------------------------------------------------------


async def test_proc_tells_nothing_of_the_host(jail):
    """Kernel arguments, its log, its keys, its disks and its interrupts are not a tool's."""
    script = (
        "cd /proc; cat cmdline kcore kmsg keys kallsyms partitions diskstats interrupts modules "
        "timer_list config.gz 2>/dev/null | wc -c; "
        "find bus irq fs acpi driver tty pressure -type f 2>/dev/null | wc -l; "
        "echo x > sys/kernel/hostname; echo x > sysrq-trigger; cat meminfo | wc -l; ls -d [0-9]*"
    )
    outcome = await shell(choose(jail), script)
    hidden, files, meminfo, *pids = outcome.stdout.kept.decode().split()
    assert (hidden, files) == ("0", "0")
    assert int(meminfo) > 10, "the control: what programs size themselves by is there"
    assert len(pids) < 8
    assert all(re.fullmatch(r"\d+", pid) and int(pid) < 20 for pid in pids)
    assert read("/proc/cmdline"), "the control: outside there is something to tell"


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_the_kernel_ends_a_jail_before_its_supervisor(jail, level):
    """Under memory pressure the one that must live is the one that cleans up."""
    seen: list[int] = []

    async def look() -> None:
        wanted = f"sleep\0001000.{os.getpid()}\0".encode()
        while not seen:
            for entry in await trio.to_thread.run_sync(os.listdir, "/proc"):
                if not entry.isdigit():
                    continue
                if read(f"/proc/{entry}/cmdline") == wanted:
                    seen.append(int(read(f"/proc/{entry}/oom_score_adj")))
            await trio.sleep(0.02)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            spec = choose(jail, isolation=level)
            nursery.start_soon(shell, spec, f"exec sleep 1000.{os.getpid()}")
            await look()
            nursery.cancel_scope.cancel()
    assert seen == [1000]
