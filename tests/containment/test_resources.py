"""Rows 87 to 107: each limit is reached, typed, and felt by nobody but its own call."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell_sandbox import CommandHandler, run_in_jail

from .conftest import Ended

PROCESSES = 40


def held(got: Ended, guarantee: str) -> str:
    """By what the receipt says that it held; empty where it claims nothing."""
    assert got.outcome is not None
    return str(got.outcome.receipt.held.get(guarantee, ""))


def assert_typed(got: Ended, kind: str, *expected: str) -> None:
    """A command that handles the errno itself just says so; a handler's ending has the kind."""
    assert got.kind in expected or (kind != "python" and got.kind in (None, "exited", "exception"))


# ---------------------------------------------------------------- processes and threads

BOMB = """
import os, signal
def handler():
    made = 0
    while made < 400:
        if os.fork() == 0:
            while True:
                signal.pause()
        made += 1
    return made
"""


async def test_row_087_a_fork_bomb_is_bounded(cage, kind):
    """Every fork of a bomb is one that the host's other users cannot make."""
    got = await cage.attack(BOMB, kind=kind, processes=PROCESSES, wall_s=20)
    assert got.value is None
    assert_typed(got, kind, "processes_exceeded")
    control = await cage.run(BOMB.replace("400", "20"), kind=kind, processes=PROCESSES)
    assert control.value == 20


async def test_row_087_one_that_never_gives_up_ends_with_its_deadline(cage):
    """A real bomb ignores EAGAIN, and its children go on where it stops."""
    got = await cage.attack(
        """
        import os
        def handler():
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        """,
        processes=PROCESSES,
        memory_bytes="256M",
        wall_s=1,
    )
    assert got.kind in ("timeout", "memory_exceeded", "processes_exceeded")
    assert got.wall_s < 15
    assert cage.victims > 0


THREADS = """
import threading
def handler():
    stop = threading.Event()
    made = 0
    try:
        while made < 400:
            threading.Thread(target=stop.wait, daemon=True).start()
            made += 1
    finally:
        stop.set()
    return made
"""


async def test_row_088_a_thread_bomb_is_bounded(cage, kind):
    """The kernel counts a thread as it counts a process."""
    got = await cage.attack(THREADS, kind=kind, processes=PROCESSES, wall_s=20)
    assert got.value is None
    assert_typed(got, kind, "processes_exceeded")
    control = await cage.run(THREADS.replace("400", "20"), kind=kind, processes=PROCESSES)
    assert control.value == 20


# ---------------------------------------------------------------- memory

MEMORY = "64M"


async def test_row_089_the_heap_is_bounded(any_cage, kind):
    """What one call takes, all others have to do without."""
    source = "held = []\nfor _ in range(SIZE):\n    held.append(b'x' * (1 << 20))\nreturn 1"
    got = await any_cage.attack(source.replace("SIZE", "4000"), kind=kind, memory_bytes=MEMORY)
    assert got.kind == "memory_exceeded"
    control = await any_cage.run(source.replace("SIZE", "10"), kind=kind, memory_bytes=MEMORY)
    assert control.value == 1


UNMAPPED = {
    "memfd": """
        import os, signal
        def handler():
            fd = os.memfd_create("hoard")
            for _ in range(SIZE):
                os.write(fd, bytes(1 << 20))
            signal.pause() if SIZE > 100 else None
            return 1
        """,
    "tmpfs": """
        import signal
        def handler():
            with open("/dev/shm/hoard" if PRIVATE else "hoard", "wb", buffering=0) as file:
                for _ in range(SIZE):
                    file.write(bytes(1 << 20))
            signal.pause() if SIZE > 100 else None
            return 1
        """,
    "sysv": """
        import ctypes, signal
        def handler():
            libc = ctypes.CDLL(None, use_errno=True)
            libc.shmat.restype = ctypes.c_void_p
            for made in range(SIZE):
                segment = libc.shmget(0, 1 << 20, 0o1600)
                if segment < 0:
                    raise OSError(ctypes.get_errno(), f"after {made} MiB")
                at = libc.shmat(segment, None, 0)
                ctypes.memset(at, 1, 1 << 20)
                libc.shmdt(ctypes.c_void_p(at))
            signal.pause() if SIZE > 100 else None
            return 1
        """,
    "pipes": """
        import fcntl, os, signal
        def handler():
            held = []
            for _ in range(SIZE):
                read, write = os.pipe()
                try:
                    size = fcntl.fcntl(write, 1031, 1 << 20)
                except OSError:
                    size = fcntl.fcntl(write, 1032)
                os.write(write, bytes(size))
                held.append((read, write))
            signal.pause() if SIZE > 100 else None
            return 1
        """,
}


@pytest.mark.parametrize("what", UNMAPPED)
async def test_row_090_memory_that_nobody_has_mapped_counts_too(cage, what):
    """Bytes in a memfd, a tmpfs, a segment or a pipe are in no process's resident size."""
    if cage.level == "container" and what in ("sysv", "tmpfs"):
        return  # No segments there, and no tmpfs of the jail's own.
    source = UNMAPPED[what].replace("PRIVATE", str(cage.level != "container"))
    limits: dict[str, Any] = {"memory_bytes": MEMORY, "wall_s": 4, "disk_bytes": "512M"}
    got = await cage.attack(source.replace("SIZE", "300"), **limits)
    if held(got, "memory_limited").startswith("cgroup"):
        if what == "pipes":
            # A user's budget for pipe pages is smaller than this limit: bounded by that.
            assert got.kind in ("memory_exceeded", "timeout")
        elif what == "sysv":
            # kernel.shmall of the jail's own namespace is as large as its memory.
            assert got.kind == "memory_exceeded" or "after 64 MiB" in got.failure.message
        else:
            assert got.kind == "memory_exceeded"
    else:
        # A sampler sees what is mapped; the receipt says `watch`, and the docs what that means.
        assert got.kind in ("memory_exceeded", "timeout", "exception", "crashed")
    control = await cage.run(source.replace("SIZE", "8"), **limits)
    assert control.value == 1


async def test_row_091_many_small_children_are_summed(any_cage, kind):
    """Forty times a little is a lot, and each of them is within any limit of its own."""
    source = """
        import os, signal
        def handler():
            children = []
            for _ in range(COUNT):
                read, write = os.pipe()
                pid = os.fork()
                if pid == 0:
                    held = bytearray(os.urandom(1) * (8 << 20))
                    os.write(write, b"x")
                    signal.pause()
                os.read(read, 1)
                children.append(pid)
            if COUNT > 10:
                signal.pause()
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return 1
        """
    limits: dict[str, Any] = {"memory_bytes": "96M", "kind": kind, "wall_s": 20}
    got = await any_cage.attack(source.replace("COUNT", "40"), **limits)
    assert got.kind == "memory_exceeded"
    assert (await any_cage.run(source.replace("COUNT", "3"), **limits)).value == 1


async def test_row_092_a_stack_that_never_ends_is_typed(cage, kind):
    """Two ways: the interpreter's own limit, and without it the kernel's."""
    soft = await cage.attack("def handler():\n    return handler()", kind=kind)
    assert soft.kind == "exception" or soft.exit_code == 1
    hard = await cage.attack(
        """
        import ctypes
        def handler():
            callback = ctypes.CFUNCTYPE(None)
            @callback
            def again():
                again()
            import sys
            sys.setrecursionlimit(1 << 30)
            again()
        """,
        kind=kind,
    )
    assert hard.kind in ("crashed", "memory_exceeded", "exception")
    assert (await cage.run("return 1", kind=kind)).value == 1


# ---------------------------------------------------------------- files


async def test_row_093_a_file_has_a_largest_size(cage, kind):
    """One file can be the whole disk."""
    source = """
        def handler():
            with open("big", "wb", buffering=0) as file:
                for _ in range(SIZE):
                    file.write(bytes(1 << 20))
            return 1
        """
    limits: dict[str, Any] = {"file_size_bytes": "4M", "kind": kind}
    got = await cage.attack(source.replace("SIZE", "64"), **limits)
    big = cage.workspace / "big"
    assert big.exists() is (cage.mode == "direct"), "what fails in a transaction keeps nothing"
    assert not big.exists() or big.stat().st_size <= 4 << 20
    assert_typed(got, kind, "file_size_exceeded")
    assert (await cage.run(source.replace("SIZE", "3"), **limits)).value == 1


async def test_row_094_a_full_disk_is_the_calls_own(cage, kind):
    """What is private has a size of its own; the host's disk is not for filling."""
    source = """
        def handler():
            for n in range(SIZE):
                with open(f"/tmp/{n}", "wb", buffering=0) as file:
                    file.write(bytes(1 << 20))
            return 1
        """
    if cage.level == "container":
        return  # disk_limited is not among what that level holds.
    limits: dict[str, Any] = {"disk_bytes": "8M", "kind": kind}
    got = await cage.attack(source.replace("SIZE", "64"), **limits)
    assert_typed(got, kind, "disk_exceeded")
    assert got.value is None
    assert (await cage.run(source.replace("SIZE", "4"), **limits)).value == 1


async def test_row_095_an_inode_bomb_meets_its_bound(cage, kind):
    """The size of a tmpfs bounds no number of empty files, and each is the kernel's memory."""
    source = "for n in range(SIZE): open(f'/tmp/{n}', 'w').close()\nreturn 1"
    if cage.level == "container":
        return  # disk_limited is not among what that level holds.
    limits: dict[str, Any] = {"disk_files": 100, "kind": kind}
    got = await cage.attack(source.replace("SIZE", "1000"), **limits)
    assert_typed(got, kind, "disk_exceeded")
    assert got.value is None
    assert (await cage.run(source.replace("SIZE", "50"), **limits)).value == 1


async def test_row_096_descriptors_are_bounded(any_cage, kind):
    """The table of open files is the host's; this process's own is not for filling either."""
    before = len(os.listdir("/proc/self/fd"))
    source = "import os\nheld = [os.dup(0) for _ in range(SIZE)]\nreturn len(held)"
    got = await any_cage.attack(source.replace("SIZE", "5000"), kind=kind, open_files=64)
    assert got.value is None
    assert got.kind == "exception" or got.exit_code == 1
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    control = await any_cage.run(source.replace("SIZE", "40"), kind=kind, open_files=64)
    assert control.value == 40


# ---------------------------------------------------------------- time


async def test_row_097_a_spin_meets_its_processor_limit(any_cage, kind):
    """Wall time alone lets a call keep a core for two minutes."""
    got = await any_cage.run("while True: pass", kind=kind, cpu_s=1, wall_s=20)
    assert got.kind == "cpu_time_exceeded"
    assert (await any_cage.run("return 1", kind=kind, cpu_s=1)).value == 1


async def test_row_098_time_split_over_forks_is_summed(any_cage, kind):
    """RLIMIT_CPU counts one process: each fork would start anew."""
    got = await any_cage.run(
        """
        import os, signal, time
        def handler():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            while True:
                if os.fork() == 0:
                    end = time.process_time() + 0.2
                    while time.process_time() < end: pass
                    os._exit(0)
                try:
                    os.wait()
                except ChildProcessError:
                    pass
        """,
        kind=kind,
        cpu_s=1,
        wall_s=20,
    )
    assert got.kind == "cpu_time_exceeded"
    assert got.failure.used_s >= 0.9


async def test_row_099_who_sleeps_forever_meets_the_deadline(any_cage, kind):
    """Waiting costs nothing, so no other limit ends it."""
    got = await any_cage.run("import time\ntime.sleep(10**6)", kind=kind, wall_s=0.4)
    assert got.kind == "timeout"
    assert got.wall_s < 10


# ---------------------------------------------------------------- output


def said_by(path: str) -> str:
    """A line of the kernel's."""
    return Path(path).read_text().strip()


def resident_bytes() -> int:
    """What this process has in memory."""
    pages = int(said_by("/proc/self/statm").split()[1])
    return pages * resource.getpagesize()


async def test_row_100_a_flood_is_counted_and_not_kept(any_cage):
    """A supervisor that keeps what it reads is one that a tool can fill."""
    total = 200 << 20
    before = resident_bytes()
    got = await any_cage.command("head", "-c", str(total), "/dev/zero")
    assert got.outcome is not None
    out = got.outcome.stdout
    assert (out.seen_bytes, out.kept_bytes + out.lost_bytes) == (total, total)
    assert len(out.kept) == out.kept_bytes <= 1 << 16
    assert resident_bytes() - before < 32 << 20
    small = await any_cage.command("head", "-c", "1000", "/dev/zero")
    assert small.outcome is not None
    assert (small.outcome.stdout.kept, small.outcome.stdout.lost_bytes) == (bytes(1000), 0)


async def test_row_101_two_floods_at_once_are_each_counted(any_cage):
    """Whoever reads one stream to its end first hangs on the other."""
    script = "i=0; while [ $i -lt 40 ]; do head -c 99999 /dev/zero; head -c 77777 /dev/zero >&2;"
    got = await any_cage.shell(f"{script} i=$((i+1)); done")
    assert got.outcome is not None
    seen = got.outcome.stdout.seen_bytes, got.outcome.stderr.seen_bytes
    assert seen == (40 * 99999, 40 * 77777)


async def test_row_102_one_byte_at_a_time_costs_the_supervisor_little(any_cage):
    """A wake-up a byte would be a way to keep our core busy from inside."""
    count = 100_000
    used = _cpu_s()
    got = await any_cage.run(
        f"import os\nfor _ in range({count}): os.write(1, b'x')\nreturn 1", kind="python"
    )
    assert got.outcome is not None
    assert got.outcome.stdout.seen_bytes == count
    assert _cpu_s() - used < 5, "about the time of its own writes, not a multiple"


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def test_row_103_no_newline_and_half_a_character_at_the_cap(any_cage):
    """Text for a model is cut somewhere, and never in the middle of a character."""
    head, tail = 1001, 1001
    got = await any_cage.run(
        "import os\nfor _ in range(40): os.write(1, '€'.encode() * 1000)\nreturn 1",
        head_bytes=head,
        tail_bytes=tail,
    )
    assert got.outcome is not None
    out = got.outcome.stdout
    assert out.seen_bytes == 120_000
    assert (len(out.kept), out.lost_bytes) == (2002, 117_998)
    assert out.kept.endswith("€".encode())
    hostile = await any_cage.run(
        "import os\nos.write(1, b'\\xff\\xfe' * 5000)\nreturn 1", head_bytes=head, tail_bytes=tail
    )
    assert hostile.value == 1
    assert hostile.outcome is not None
    assert hostile.outcome.stdout.seen_bytes == 10_000


# ---------------------------------------------------------------- the rest


async def test_row_104_a_crash_leaves_no_core(any_cage, tmp_path):
    """A core is the memory of a process, secrets and all, in whoever's folder it was."""
    got = await any_cage.run("import os\nos.abort()", kind="command")
    assert (got.kind, got.failure.signal) == ("crashed", "SIGABRT")
    assert [p.name for p in any_cage.workspace.iterdir() if "core" in p.name] == []
    if said_by("/proc/sys/kernel/core_pattern") == "core":
        script = (
            "import resource, os; resource.setrlimit(resource.RLIMIT_CORE, "
            f"(resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2); os.chdir({str(tmp_path)!r}); "
            "os.abort()"
        )
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        subprocess.run([sys.executable, "-I", "-S", "-c", script], check=False)
        made = [p for p in tmp_path.iterdir() if p.name.startswith("core")]
        assert bool(made) == (hard != 0), "the control: outside it would have left one"


async def test_row_105_a_flood_of_zombies_is_reaped(any_cage):
    """A dead process keeps its place in the table until somebody asks for it."""
    got = await any_cage.attack(
        """
        import os
        def handler():
            for _ in range(300):
                if os.fork() == 0:
                    if os.fork() == 0:
                        os._exit(0)
                    os._exit(0)
                os.wait()
            return "reaped"
        """,
        processes=PROCESSES,
    )
    assert (got.kind, got.value) == (None, "reaped")
    # The control: those that their parent does not wait for fill the same table.
    zombies = await any_cage.run(
        "import os\nfor _ in range(300):\n    if os.fork() == 0: os._exit(0)\nreturn 1",
        processes=PROCESSES,
    )
    if held(zombies, "processes_limited"):
        assert zombies.kind == "processes_exceeded"


async def test_row_106_who_never_reads_does_not_hold_its_call(any_cage):
    """A writer that waits for a reader who waits for nothing waits for ever."""
    with trio.fail_after(30):
        outcome = await run_in_jail(
            CommandHandler(argv=("true",)), any_cage.spec(), stdin=bytes(1 << 23)
        )
    assert (outcome.failure, outcome.exit_code) == (None, 0)
    control = await run_in_jail(
        CommandHandler(argv=("wc", "-c")), any_cage.spec(), stdin=bytes(1 << 20)
    )
    assert control.stdout.kept.strip() == b"1048576"


async def test_row_107_the_kernel_would_rather_end_a_jail_than_its_supervisor(any_cage):
    """Out of memory, it picks the highest score: ours must not be it."""
    got = await any_cage.run("return open('/proc/self/oom_score_adj').read()")
    if any_cage.level == "container":
        assert got.kind == "exception"
    else:
        assert int(got.value) == 1000
    seen: set[int] = set()
    own = os.getpid()

    async def look() -> None:
        from tests.jail.conftest import pids_below

        while 1000 not in seen:
            for pid in pids_below(own):
                try:
                    seen.add(int(said_by(f"/proc/{pid}/oom_score_adj")))
                except (OSError, ValueError):
                    continue
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(any_cage.command, "sleep", "1000")
        with trio.fail_after(20):
            await look()
        nursery.cancel_scope.cancel()
    assert int(said_by("/proc/self/oom_score_adj")) < 500, "the control: ours is lower"
