"""Signals, ends and neighbours: rows 43 to 67, each attack in a jail of its own."""

from __future__ import annotations

import ast
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import toolcell_sandbox
from toolcell_sandbox import CommandHandler, offers, run_in_jail
from toolcell_sandbox.spec import Network

from . import probes
from .cells import IS_ROOT, LANDLOCK
from .conftest import Cage

FLAG_S = 30


def marked(marker: str) -> list[int]:
    """Processes of this machine with the marker in their command line, not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def started(*argv: str, **options: Any) -> subprocess.Popen[bytes]:
    """A process of the test's own, which it ends itself."""
    return subprocess.Popen(argv, **options)


def end(pids: list[int]) -> None:
    """End what a control has left: processes that this test started, by their marker."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


class Beside:
    """A jail that holds on to something while the test looks at it from elsewhere."""

    def __init__(self, cage: Cage, script: str, **more: object) -> None:
        self.cage = cage
        self.script = script
        self.more = more
        self.said = b""
        self.ready = trio.Event()
        self.let_go = trio.Event()

    async def run(self) -> None:
        """Until `let_go`: its standard input ends then, which it waits for."""
        spec = replace(self.cage.spec(wall_s=60), **self.more)
        handler = CommandHandler(argv=(probes_python(), "-I", "-S", self.cage.script(self.script)))
        await run_in_jail(handler, spec, stdin=self._input(), sink=self._take)
        self.ready.set()

    async def _input(self) -> AsyncIterator[bytes]:
        await self.let_go.wait()
        yield b""

    async def _take(self, name: str, chunk: bytes) -> None:
        self.said += chunk
        if b"\n" in self.said:
            self.ready.set()


def probes_python() -> str:
    """The interpreter that commands are run with."""
    from toolcell_sandbox.host import EXECUTABLE

    return EXECUTABLE


async def while_beside(beside: Beside, act: Callable[[], Awaitable[Any]]) -> Any:
    """What `act` returns while the other jail holds on."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside.run)
        with trio.fail_after(FLAG_S):
            await beside.ready.wait()
        assert beside.said, "the other jail held on to nothing"
        result = await act()
        beside.let_go.set()
        return result


# ---------------------------------------------------------------- network, IPC


CONNECT = """
import socket
def handler():
    listener = socket.create_server(("127.0.0.1", 0)) if PORT == 0 else None
    port = listener.getsockname()[1] if listener else PORT
    try:
        socket.create_connection(("127.0.0.1", port), timeout=3).close()
    except OSError as error:
        return str(error)
    return "connected"
"""
LISTEN = """
import socket, sys
def handler():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
"""


async def test_row_043_two_jails_loopbacks_are_apart(tmp_path, monkeypatch, cage):
    """Otherwise one call's development server is another call's to ask."""
    if cage.level == "container":
        refused = replace(cage.spec(), network=Network.loopback())
        outcome = await run_in_jail(CommandHandler(argv=("true",)), refused)
        assert outcome.failure is not None
        assert outcome.failure.kind == "confinement_failed"
        return
    network = Network.loopback()
    beside = Beside(cage, LISTEN, network=network)
    spec = replace(cage.spec(), network=network)

    async def connect() -> object:
        port = int(beside.said.split()[0])
        return (await cage.run(CONNECT.replace("PORT", str(port)), spec=spec)).value

    assert "refused" in str(await while_beside(beside, connect))
    own = await cage.run(CONNECT.replace("PORT", "0"), spec=spec)
    assert own.value == "connected", "the control: within one jail it works"


SYSV = """
import ctypes
def handler():
    libc = ctypes.CDLL(None, use_errno=True)
    made = [libc.shmget(KEY, 4096, 0o1666), libc.semget(KEY, 1, 0o1666), libc.msgget(KEY, 0o1666)]
    return [n >= 0 for n in made]
"""


async def test_row_044_what_a_jail_makes_of_system_v_ipc_is_gone_with_it(any_cage):
    """A segment has no owner that ends: it stays until the machine does."""
    key = secrets.randbits(30) | 1
    got = await any_cage.run(SYSV.replace("KEY", str(key)))
    assert got.value == [any_cage.level != "container"] * 3, "the control: it was made"
    for name in ("shmget", "semget"):
        with pytest.raises(FileNotFoundError):
            probes.call(name, key, 0, 0)
    with pytest.raises(FileNotFoundError):
        probes.call("msgget", key, 0)


MQ = """
import ctypes, os
def handler():
    libc = ctypes.CDLL(None, use_errno=True)
    made = 0
    while made < 2000 and libc.mq_open(b"/q%d" % made, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0:
        made += 1
    return made
"""


async def test_row_045_posix_queues_are_capped_and_gone(any_cage):
    """Their messages are the kernel's memory, which no limit of a process counts."""
    got = await any_cage.run(MQ)
    assert got.value <= 256
    if any_cage.level != "container":
        # Landlock lets by no file that has no path, and a queue is one: so without it.
        with offers.assume(offers.look(thorough=True).without(*LANDLOCK)):
            control = await any_cage.run(MQ, spec=replace(any_cage.spec(), isolation="standard"))
        assert 1 <= control.value <= 256
    with pytest.raises(FileNotFoundError):
        probes.call("mq_open", "q0", os.O_RDWR, 0, None)


async def test_row_046_shared_memory_files_are_private_and_sized(cage):
    """/dev/shm of the host is half of its memory."""
    source = """
        import os
        def handler():
            written = 0
            with open("/dev/shm/own", "wb", buffering=0) as file:
                try:
                    while written < 64 << 20:
                        written += file.write(bytes(1 << 20))
                except OSError:
                    pass
            return written
        """
    got = await cage.run(source, disk_bytes="8M")
    assert "own" not in os.listdir("/dev/shm")
    if cage.level == "container":
        assert got.kind == "exception"
        assert "PermissionError" in got.failure.message
    else:
        assert 1 << 20 <= got.value <= 8 << 20, "the control: the first bytes were written"


LOCK = """
import fcntl, os, sys
def handler():
    held = [os.open(n, os.O_RDONLY) for n in (".", "shared")]
    for fd in held:
        fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.lockf(os.open("shared", os.O_RDWR), fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


async def test_row_048_no_lock_of_a_jail_stalls_the_supervisor_or_a_sibling(any_cage):
    """One flock on a workspace would otherwise stop every later call."""
    cage = any_cage
    (cage.workspace / "shared").write_text("shared")
    beside = Beside(cage, LOCK, workspace_mode="direct")

    async def other() -> object:
        with trio.fail_after(20):
            return (await cage.command("cat", "shared")).stdout

    def control() -> int:
        held = ["flock", "-n", str(cage.workspace / "shared"), "true"]
        return subprocess.run(held, check=False).returncode

    async def both() -> object:
        return await other(), control()

    said, locked = await while_beside(beside, both)
    assert said == b"shared"
    assert locked == 1, "the control: the lock is held, and seen outside"


INOTIFY = """
import ctypes, sys
def handler():
    libc = ctypes.CDLL(None, use_errno=True)
    held = 0
    while held < 4000 and libc.inotify_init1(0) >= 0:
        held += 1
    print(held, flush=True)
    sys.stdin.read()
"""


async def test_row_049_a_flood_of_inotify_instances_leaves_others_theirs(any_cage):
    """They come out of one budget for a whole user, supervisor and siblings included."""
    cage = any_cage

    async def others() -> object:
        own = True
        try:
            os.close(probes.call("inotify_init1", 0))
        except OSError:
            own = False
        sibling = await cage.run("import ctypes\nreturn ctypes.CDLL(None).inotify_init1(0) >= 0")
        return own, sibling.value or cage.level == "container"

    beside = Beside(cage, INOTIFY)
    own, sibling = await while_beside(beside, others)
    # The control: it had instances; but at container, where the filter gives out none.
    assert (int(beside.said.split()[0]) > 0) == (cage.level != "container")
    assert own
    assert sibling


PIPES = """
import fcntl, os, sys
def handler():
    held = []
    try:
        while len(held) < 400:
            held.append(os.pipe())
            try:
                fcntl.fcntl(held[-1][0], 1031, 1 << 20)
            except OSError:
                pass
    except OSError:
        pass
    print(fcntl.fcntl(held[-1][0], 1032), flush=True)
    sys.stdin.read()
"""


async def test_row_050_a_siblings_pipes_are_whole_while_one_holds_the_budget(tmp_path, cage):
    """Pipe pages are a user's: one jail's hoard would make everybody's pipes one page long."""
    if cage.level == "container" or not IS_ROOT:
        return  # One user for all: the receipt claims nothing of the kind.
    beside = Beside(cage, PIPES, limits=replace(cage.spec().limits, open_files=1024))

    async def other() -> object:
        return (await cage.run("import fcntl, os\nreturn fcntl.fcntl(os.pipe()[0], 1032)")).value

    assert await while_beside(beside, other) == 1 << 16
    assert int(beside.said.split()[0]) < 1 << 16, "the control: its own new pipes are short by then"


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("target", ["-1", "0", "own group"])
async def test_row_052_kill_minus_one_ends_nobody_but_its_own(any_cage, target):
    """From a root supervisor's own pid namespace it would be the whole host."""
    victim = started(sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
    try:
        got = await any_cage.attack(
            f"""
            import os, signal
            def handler():
                pid = os.fork()
                if pid == 0:
                    while True:
                        signal.pause()
                try:
                    os.kill({"-os.getpgrp()" if target == "own group" else target}, signal.SIGTERM)
                except PermissionError:
                    return "refused"
                os.waitpid(pid, 0)
                os._exit(3)
            """
        )
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
    if any_cage.level == "container":
        assert got.value == "refused"
    else:
        # The control: within the jail it had its effect, on itself or on its child.
        assert got.kind in ("crashed", "exited")
    assert any_cage.victims


async def test_row_053_a_sibling_cannot_be_signalled(any_cage):
    """Two calls of one supervisor are two strangers."""
    cage = any_cage
    marker = f"marker-{secrets.token_hex(8)}"
    script = f"import sys\ndef handler():\n    print({marker!r}, flush=True)\n    sys.stdin.read()"
    beside = Beside(cage, script)

    async def attack() -> object:
        below = sorted(own_tree())
        assert below, "the control: there is somebody to be signalled"
        got = await cage.run(
            f"""
            import os, signal
            def handler():
                sent = []
                for pid in {below}:
                    if pid == os.getpid(): continue
                    try:
                        os.kill(pid, signal.SIGKILL)
                        sent.append(pid)
                    except OSError:
                        pass
                return sent
            """
        )
        return got.value, set(below) <= own_tree()

    assert await while_beside(beside, attack) == ([], True)


def own_tree() -> set[int]:
    """Every process below this one."""
    from tests.jail.conftest import pids_below

    return pids_below(os.getpid())


async def test_row_057_ignoring_every_signal_does_not_help(any_cage, kind):
    """SIGTERM first and hope later is how a tool outlives its time."""
    got = await any_cage.run(
        """
        import os, signal
        def handler():
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):
                os.kill(os.getpid(), number)
            os.write(1, b"still here\\n")
            while True:
                signal.pause()
        """,
        kind=kind,
        wall_s=0.4,
    )
    assert got.kind == "timeout"
    assert b"still here" in got.stdout, "the control: the signals are ignored"
    assert got.wall_s < 10


@pytest.mark.parametrize("whom", ["os.getpid()", "0"])
async def test_row_058_a_stopped_tree_does_not_outlast_its_deadline(any_cage, whom):
    """A stopped process takes no signal but the last."""
    got = await any_cage.run(
        f"""
        import os, signal
        def handler():
            os.write(1, b"before ")
            try:
                os.kill({whom}, signal.SIGSTOP)
            except PermissionError:
                os.kill(os.getpid(), signal.SIGSTOP)
            os.write(1, b"after ")
            signal.pause()
        """,
        wall_s=0.4,
    )
    assert got.kind == "timeout"
    assert got.stdout == b"before ", "the control: it is stopped"
    assert got.wall_s < 10


SUPERVISOR = """
import sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Limits, run_in_jail
async def main():
    spec = JailSpec(isolation=sys.argv[2], limits=Limits(wall_s=100))
    await run_in_jail(CommandHandler(argv=(sys.executable, "-I", "-S", "-c", sys.argv[1])), spec)
trio.run(main)
"""
DETACHED = """
import ctypes, os, signal
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        os.execv(PYTHON, [PYTHON, "-I", "-S", "-c", "import signal; signal.pause()", "MARKER"])
os.execv(PYTHON, [PYTHON, "-I", "-S", "-c", "import signal; signal.pause()", "MARKER"])
"""


async def test_row_059_without_its_death_signal_it_still_dies_with_the_supervisor(any_level):
    """A crash of ours would leave hostile code on the host for ever."""
    marker = f"marker-{secrets.token_hex(8)}"
    detached = DETACHED.replace("PYTHON", repr(probes_python())).replace("MARKER", marker)
    supervisor = started(sys.executable, "-c", SUPERVISOR, detached, any_level)
    try:
        with trio.fail_after(FLAG_S):
            while len(_without(marked(marker), supervisor.pid)) < 3:
                await trio.sleep(0.02)
    finally:
        supervisor.kill()
        supervisor.wait()
    with trio.fail_after(2):
        while marked(marker):
            await trio.sleep(0.02)


def _without(pids: list[int], *others: int) -> list[int]:
    """Those that run the last program, not the script that names it."""
    found = []
    for pid in set(pids) - set(others):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # A zombie has no words any more.
        if len(words) > 1 and words[-2].startswith(b"marker-"):
            found.append(pid)
    return found


async def test_row_059_control_outside_a_jail_it_outlives_its_starter():
    """Without this, the test above would show nothing but a program that ends by itself."""
    marker = f"marker-{secrets.token_hex(8)}"
    detached = DETACHED.replace("PYTHON", repr(sys.executable)).replace("MARKER", marker)
    starter = started(sys.executable, "-I", "-S", "-c", detached)
    try:
        with trio.fail_after(FLAG_S):
            while len(_without(marked(marker))) < 3:
                await trio.sleep(0.02)
        starter.kill()
        starter.wait()
        left = _without(marked(marker))
        assert len(left) == 2
    finally:
        end(_without(marked(marker)))


ORPHAN = """
import os, sys
def handler():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c",
                     "import os, signal; os.write(1, b'up\\\\n'); signal.pause()", "MARKER"])
        os._exit(0)
    os.wait()
    return "done"
"""


async def test_row_060_a_double_fork_is_gone_before_the_result_is_there(any_cage, kind):
    """The next call would run beside the last one's daemon."""
    marker = f"marker-{secrets.token_hex(8)}"
    got = await any_cage.run(ORPHAN.replace("MARKER", marker), kind=kind)
    assert marked(marker) == []
    assert (got.kind, got.value) == (None, "done")


def test_row_060_control_outside_a_jail_the_daemon_stays(tmp_path):
    """Without this, the test above would show nothing but a program that ends by itself."""
    marker = f"marker-{secrets.token_hex(8)}"
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN.replace("MARKER", marker) + "\nhandler()\n")
    out, into = os.pipe()
    subprocess.run([sys.executable, "-I", "-S", str(script)], stdout=into, check=True)
    os.close(into)
    assert os.read(out, 3) == b"up\n"
    os.close(out)
    left = marked(marker)
    end(left)
    assert len(left) == 1


async def test_row_061_a_child_by_vfork_does_not_outlast_the_deadline(any_cage):
    """Its parent is suspended until it ends, and can be asked for nothing."""
    got = await any_cage.run(
        f"""
        import ctypes, os, signal
        def handler():
            os.write(1, b"before ")
            # CLONE_VFORK, without CLONE_VM: Python goes on in the child.
            if ctypes.PyDLL(None).syscall({probes._NUMBERS["clone"][probes.COLUMN]},
                                          0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
                while True:
                    signal.pause()
            os.write(1, b"after ")
        """,
        wall_s=0.4,
    )
    assert got.kind == "timeout"
    assert got.stdout == b"before ", "the control: the parent is suspended"


async def test_row_062_an_orphan_that_holds_stdout_does_not_hold_the_call(any_cage):
    """A server in the background is the plainest way to hang a caller."""
    marker = f"1000.{secrets.randbits(24)}"
    got = await any_cage.shell(f"(sleep {marker} &) ; sleep {marker} & echo done")
    assert (got.kind, got.stdout) == (None, b"done\n")
    assert got.wall_s < 20
    assert got.outcome is not None
    assert got.outcome.stdout.closed
    assert marked(marker) == []
    # The control: who reads to the end of the pipe waits for the orphan.
    held = started("/bin/sh", "-c", f"sleep {marker} & echo done", stdout=subprocess.PIPE)
    held.wait()
    assert held.stdout is not None
    assert held.stdout.readline() == b"done\n"
    os.set_blocking(held.stdout.fileno(), False)
    with pytest.raises(BlockingIOError):
        os.read(held.stdout.fileno(), 1)
    end(marked(marker))
    held.stdout.close()


async def test_row_063_without_streams_and_channel_there_is_no_result(any_cage):
    """Silence must not pass for success."""
    got = await any_cage.run("import os\nfor fd in range(4): os.close(fd)\nreturn 1")
    assert got.kind == "exited"
    control = await any_cage.run("import os\nfor fd in range(3): os.close(fd)\nreturn 1")
    assert control.value == 1


SEND = (
    "import os, signal, struct\n"
    "def handler():\n"
    '    body = b\'{"ok":true,"value":1}\'\n'
    "    os.write(3, struct.pack('!Q', len(body)) + body)\n"
)


async def test_row_064_a_result_before_a_hang_is_a_timeout(any_cage):
    """Half of a call is not a call; what it sent is kept as unconfirmed."""
    got = await any_cage.run(SEND + "    signal.pause()", wall_s=0.4)
    assert (got.kind, got.value) == ("timeout", None)
    assert got.outcome is not None
    assert got.outcome.unconfirmed == {"ok": True, "value": 1}
    control = await any_cage.run(SEND + "    os._exit(0)")
    assert (control.kind, control.value) == (None, 1)


async def test_row_065_an_exit_of_0_without_a_result_is_no_success(any_cage):
    """os._exit(0) is what a handler does that wants to look well."""
    got = await any_cage.run("import os\nos._exit(0)")
    assert got.kind == "exited"
    assert (await any_cage.run("return None")).kind is None


CRASH = {
    "exit": "import os; os._exit(7)",
    "abort": "import os; os.abort()",
    "segfault": "import ctypes; ctypes.string_at(0)",
}
AT = {
    "import": "{do}\ndef handler(): return 1",
    "run": "def handler():\n    {do}",
    "encode": "class Odd:\n    def model_dump(self, mode):\n        {do}\n"
    "def handler(): return Odd()",
    "flush": "import sys\nclass Odd:\n    def flush(self):\n        {do}\n"
    "    def write(self, text): return 0\n"
    "def handler():\n    sys.stdout = Odd()\n    return 1",
}


@pytest.mark.parametrize("way", CRASH)
@pytest.mark.parametrize("stage", AT)
async def test_row_066_each_crash_point_has_its_signal_and_stage(cage, stage, way):
    """ "It failed" helps nobody; the fifth stage, decode, runs no handler's code here."""
    got = await cage.run(AT[stage].format(do=CRASH[way]))
    assert got.failure.stage == stage
    if way == "exit":
        assert (got.kind, got.failure.exit_code) == ("exited", 7)
    else:
        wanted = "SIGABRT" if way == "abort" else "SIGSEGV"
        assert (got.kind, got.failure.signal) == ("crashed", wanted)
    control = await cage.run(AT[stage].format(do="pass"))
    assert control.kind in (None, "invalid_output")


SIGNALS_BY_NUMBER = re.compile(r"^(os\.(kill|killpg)|signal\.pthread_kill)$")
ALLOWED_CALLS = {
    ("launch.py", "os.killpg"): "a group whose leader is unreaped until its init has ended",
    ("_cgroup_names.py", "os.kill"): "signal 0: a question, not a signal",
}


def signals_by_number(source: str) -> list[str]:
    """Each call that signals a process by its number."""
    return [
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and SIGNALS_BY_NUMBER.match(ast.unparse(node.func))
    ]


def test_row_067_the_supervisor_signals_by_pidfd_only():
    """A number may be another process's by the time that it is used."""
    folder = Path(toolcell_sandbox.__file__).parent
    found = {
        (file.name, call)
        for file in folder.glob("*.py")
        for call in signals_by_number(file.read_text())
    }
    assert found == set(ALLOWED_CALLS)
    assert signals_by_number("import os\nos.kill(1, 9)") == ["os.kill"], "the control"
