"""Control groups on the real kernel: as root each limit bites, as another user the cause is said.

A user to whom a group was delegated is held to the same as root.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from toolcell_sandbox import _cgroup_names as names
from toolcell_sandbox import cgroup
from toolcell_sandbox._cgroup_sweep import sweep_groups

SANDBOX = str(Path(cgroup.__file__).resolve().parents[1])
OFFER = cgroup.offer()
LIMIT_BYTES = 48 << 20
NOISE_BYTES = 16 << 20
FORKS = 200
PROCESSES = 20

WAIT = "import sys; sys.stdin.readline()\n"
ALLOCATE = WAIT + "held = bytearray(b'x') * (160 << 20); print(len(held))"
SMALL = WAIT + "held = bytearray(b'x') * (24 << 20); print(len(held))"
FORK = WAIT + (
    "import os, signal\n"
    "made, refused = [], 0\n"
    f"for _ in range({FORKS}):\n"
    "    try:\n"
    "        pid = os.fork()\n"
    "    except OSError:\n"
    "        refused += 1\n"
    "        continue\n"
    "    if pid == 0:\n"
    "        signal.pause()\n"
    "    made.append(pid)\n"
    "for pid in made:\n"
    "    os.kill(pid, signal.SIGKILL)\n"
    "    os.waitpid(pid, 0)\n"
    "print(len(made), refused)\n"
)
SPIN = WAIT + "import time\nwhile time.process_time() < 0.3: pass\nprint('spun')"
LINGER = "import sys\nprint('there', flush=True)\nsys.stdin.readline()"


def offered() -> bool:
    """Whether this user has all three here; root on a host of CI always does."""
    return all((OFFER.memory, OFFER.pids, OFFER.cpu))


@contextlib.contextmanager
def started(source: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is ended with the block."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(source: str, group: cgroup.Group | None = None) -> tuple[int, str]:
    """Run a program that starts when it is in its group; its exit status and output."""
    with started(source) as process:
        if group is not None:
            join(group, process.pid)
        out, _ = process.communicate("go\n", timeout=60)
        return process.returncode, out.strip()


def join(group: cgroup.Group, pid: int) -> None:
    for file in group.procs_files:
        Path(file).write_text(str(pid))


def made(*, memory_bytes: int = LIMIT_BYTES, processes: int = PROCESSES) -> cgroup.Group:
    return cgroup.make(OFFER, memory_bytes=memory_bytes, processes=processes)


def ours() -> list[str]:
    """The groups of this process; other supervisors of the machine may have theirs beside them."""
    return [
        f"{place.folder}/{name}"
        for place in OFFER.places
        for name in os.listdir(place.folder)
        if names.maker(name) == names.myself()
    ]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fails a test that leaves a group."""
    before = set(ours())
    yield
    assert set(ours()) <= before


def test_the_offer_is_whole_or_says_what_is_missing() -> None:
    """Otherwise a level that needs a control group fails with nothing to act on."""
    for controller in cgroup.CONTROLLERS:
        mechanism = getattr(OFFER, controller)
        assert (mechanism is None) == (controller in OFFER.why)
        if mechanism is None:
            assert OFFER.why[controller]
    if os.geteuid() == 0:
        assert offered(), OFFER.why
    if not offered():
        # Refused by the kernel, or by a service manager that could not be asked.
        assert OFFER.bus is None


def test_looking_is_cheap_and_leaves_nothing() -> None:
    """Otherwise each start of a supervisor is slow, or litters the host."""
    before = ours()
    took_s = []
    for _ in range(5):
        started_s = time.perf_counter()
        again = cgroup.offer()
        took_s.append(time.perf_counter() - started_s)
        assert (again.memory, again.pids, again.cpu) == (OFFER.memory, OFFER.pids, OFFER.cpu)
    assert min(took_s) < 0.005
    assert ours() == before


def test_an_allocation_beyond_the_limit_is_ended_and_counted() -> None:
    """Otherwise one call can have the whole machine's memory, or its end has no name."""
    assert run(ALLOCATE) == (0, str(160 << 20))  # The control: with no group it lives.
    with made() as group:
        status, out = run(ALLOCATE, group)
        if offered():
            assert (status, out) == (-9, "")
            assert group.oom_kills() == 1
            peak = group.peak_memory_bytes()
            assert peak is not None
            assert peak <= LIMIT_BYTES + cgroup.INIT_MEMORY_BYTES
        else:
            assert status == 0
            assert (group.oom_kills(), group.peak_memory_bytes()) == (0, None)


def test_an_allocation_within_the_limit_lives_and_its_peak_is_known() -> None:
    """Otherwise the limit is not what it says, or the figure in a result is made up."""
    with made() as group:
        assert run(SMALL, group) == (0, str(24 << 20))
        assert group.oom_kills() == 0
        peak = group.peak_memory_bytes()
        assert (peak is None) == (not offered())
        if peak is not None:
            assert 24 << 20 <= peak <= (24 << 20) + NOISE_BYTES


def test_a_fork_bomb_is_bounded_and_counted() -> None:
    """Otherwise one call takes every pid of the machine."""
    assert run(FORK) == (0, f"{FORKS} 0")  # The control.
    with made() as group:
        _, out = run(FORK, group)
        forked, refused = map(int, out.split())
        if offered():
            # The one that forks is in the group too, as a jail's init is on top of the limit.
            assert forked == PROCESSES
            assert group.processes_refused() == refused == FORKS - PROCESSES
        else:
            assert (forked, refused, group.processes_refused()) == (FORKS, 0, 0)


def test_cpu_time_is_that_of_the_group() -> None:
    """Otherwise a call's CPU time misses whoever was not waited for."""
    with made() as group:
        before = group.cpu_s()
        assert run(SPIN, group) == (0, "spun")
        after = group.cpu_s()
        if offered():
            assert before == 0
            assert after is not None
            assert 0.25 <= after < 5
        else:
            assert (before, after) == (None, None)


def test_every_cpu_limit_leaves_the_supervisor_its_twentieth() -> None:
    """Otherwise a tree that spins on every CPU keeps its supervisor from looking at the clock."""
    with made() as group:
        for place in group._folders:
            if "cpu" in place.controllers and place.version == 1:
                quota = int(Path(place.folder, "cpu.cfs_quota_us").read_text())
                period = int(Path(place.folder, "cpu.cfs_period_us").read_text())
            elif "cpu" in place.controllers:
                quota, period = map(int, Path(place.folder, "cpu.max").read_text().split())
            else:
                continue
            assert quota / period == pytest.approx(0.95 * OFFER.cpus, rel=0.01)


async def test_kill_empties_a_group_whose_processes_ignore_it_all() -> None:
    """Otherwise a tree that the init's end did not take lives on."""
    source = (
        "import os, signal\n"
        "for n in range(1, 32):\n"
        "    signal.signal(n, signal.SIG_IGN) if n not in (9, 17, 19) else None\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.setsid()\n"
        "    while True: signal.pause()\n"
        "print(os.getpid(), child, flush=True)\n"
        "while True: signal.pause()\n"
    )
    with started(source) as process, made() as group:
        assert process.stdout is not None
        assert group.is_empty()
        pids = [int(word) for word in process.stdout.readline().split()]
        child = os.pidfd_open(pids[1])  # It has left the session of the first.
        for pid in pids:
            join(group, pid)
        assert group.is_empty() != offered()
        assert group.try_remove() != offered()
        group.kill()
        if offered():
            assert await trio.to_thread.run_sync(process.wait) == -9
        else:
            assert process.poll() is None
            signal.pidfd_send_signal(child, signal.SIGKILL)
        with trio.fail_after(5):
            await trio.lowlevel.wait_readable(child)
        os.close(child)
        assert await group.remove()
        assert group.is_empty()


LEAVER = f"""
import os, sys, subprocess
sys.path.insert(0, {SANDBOX!r})
sys.path += {sys.path!r}
from toolcell_sandbox import _cgroup_names as names
from toolcell_sandbox import cgroup
found = cgroup.offer()
group = cgroup.make(found, memory_bytes=1 << 26, processes=8)
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
for file in group.procs_files:
    with open(file, "w") as stream:
        stream.write(str(child.pid))
import json
print(json.dumps([child.pid, group.procs_files]), flush=True)
if not group.procs_files:
    child.kill()
    child.wait()
sys.stdin.readline()
os._exit(1)
"""


def test_what_a_dead_supervisor_left_is_swept_and_a_living_one_is_not() -> None:
    """Otherwise a crash leaves groups and processes for good, or a start ends others' calls."""
    with started(LEAVER) as supervisor:
        assert supervisor.stdout is not None
        pid, files = json.loads(supervisor.stdout.readline())
        groups = [os.path.dirname(file) for file in files]
        assert not set(sweep_groups(OFFER)) & set(groups)
        assert all(map(os.path.isdir, groups))
        orphan = os.pidfd_open(pid) if groups else None
        supervisor.communicate("end\n", timeout=30)
    # Whatever else was left on this machine may be among them.
    assert set(sweep_groups(OFFER)) >= set(groups)
    assert bool(groups) == offered()
    assert not any(map(os.path.exists, groups))
    if orphan is not None:
        assert select.select([orphan], [], [], 5.0)[0] == [orphan]
        os.close(orphan)


def test_the_kernel_keeps_the_rules_that_the_fake_keeps() -> None:
    """Otherwise the tests that use the fake prove something about no kernel."""
    with started(LINGER) as process, made() as group:
        for place in sorted(group._folders, key=lambda place: place.version):
            folder = Path(place.folder)
            with pytest.raises(FileNotFoundError):
                cgroup.KERNEL.write(str(folder / "no.such.file"), "1")
            assert (folder / "cgroup.procs").read_text() == ""
            (folder / "cgroup.procs").write_text(str(process.pid))
            assert (folder / "cgroup.procs").read_text() == f"{process.pid}\n"
            with pytest.raises(OSError, match=r".") as busy:
                cgroup.KERNEL.rmdir(str(folder))
            assert busy.value.errno == errno.EBUSY
            memsw = folder / "memory.memsw.limit_in_bytes"
            if memsw.exists():
                with pytest.raises(OSError, match=r".") as order:
                    cgroup.KERNEL.write(str(memsw), str(1 << 20))
                assert order.value.errno == errno.EINVAL
            if place.version == 2:
                assert "populated 1" in (folder / "cgroup.events").read_text()
                (folder / "cgroup.kill").write_text("1")
                assert process.wait() == -9
