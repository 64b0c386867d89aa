"""What people reported of this kind of software, as inputs. The number is that of the report."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell_sandbox import CommandHandler, run_in_jail
from toolcell_sandbox._child import syscalls

from .conftest import left_below, pids_below


def kind(outcome: Any) -> Any:
    return None if outcome.failure is None else outcome.failure.kind


# -- output and pipes ----------------------------------------------------------------------


async def test_case_03_a_large_stdin_is_fed_while_the_child_writes(jail):
    """Otherwise both sides wait for the other to read."""
    data = b"0123456789abcdef" * (1 << 17)
    outcome = await jail.command("cat", stdin=data)
    assert kind(outcome) is None
    assert outcome.stdout.seen_bytes == len(data)


async def test_case_03_a_child_that_stops_reading_is_no_error(jail):
    """EPIPE on stdin is how `head` says that it has enough."""
    outcome = await jail.command("head", "-c", "3", stdin=b"abcdef" * (1 << 20))
    assert (kind(outcome), outcome.exit_code) == (None, 0)
    assert outcome.stdout.kept == b"abc"


async def test_case_03_a_child_that_never_reads_does_not_hold_the_call(jail):
    """Otherwise a large input outlives its reader."""
    outcome = await jail.command("true", stdin=bytes(1 << 22))
    assert outcome.exit_code == 0


async def test_case_04_a_timeout_kills_the_children_that_hold_a_fifo(jail):
    """Otherwise the shell dies and its child keeps the pipe, and us."""
    outcome = await jail.shell("mkfifo /tmp/f; (cat /tmp/f; sleep 1000) & cat /tmp/f", wall_s=1)
    assert kind(outcome) == "timeout"
    assert outcome.stdout.closed


@pytest.mark.parametrize("start", ["sleep 1000 &", "setsid sleep 1000 &"])
async def test_case_05_a_server_left_in_the_background_does_not_hold_the_call(jail, start):
    """Otherwise `server &` never returns, since it holds stdout."""
    outcome = await jail.shell(f"{start} echo started")
    assert (kind(outcome), outcome.exit_code) == (None, 0)
    assert outcome.stdout.kept == b"started\n"
    assert outcome.stdout.closed


async def test_case_10_a_bare_cat_ends_at_once(jail):
    """Otherwise a command that wants input waits for a person who is not there."""
    outcome = await jail.command("cat")
    assert (outcome.exit_code, outcome.stdout.seen_bytes) == (0, 0)


async def test_case_11_a_result_printed_to_stdout_is_only_output(jail):
    """Otherwise a tool's log line becomes its result."""
    forged = '{"ok":true,"value":"forged"}'
    outcome = await jail.python(
        f"""
        import struct, sys
        body = {forged.encode()!r}
        sys.stdout.buffer.write(struct.pack("!Q", len(body)) + body)
        return "real"
        """
    )
    assert outcome.value == "real"
    assert forged.encode() in outcome.stdout.kept


# -- processes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sleep 73519 &",
        "(setsid sh -c '(sleep 73519 &) &' &) &",
        "trap '' TERM HUP INT; nohup setsid sleep 73519 >/dev/null 2>&1 &",
    ],
)
async def test_case_12_nothing_survives_a_normal_exit(jail, escape):
    """Otherwise a double fork is all it takes to stay."""
    own = os.getpid()
    before = pids_below(own)
    outcome = await jail.shell(f"{escape} echo $!")
    assert outcome.exit_code == 0
    assert not left_below(own, before)
    # The marker is the argument, not the pid: an orphan would have another parent.
    assert b"sleep\x0073519\x00" not in command_lines()


def command_lines() -> list[bytes]:
    """That of every process of this machine."""
    return [_reads(path) for path in Path("/proc").glob("[0-9]*/cmdline")]


def _reads(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_case_14_nine_hundred_short_children_leave_no_zombie(jail):
    """Otherwise orphans fill the process table of the jail, and then its limit."""
    outcome = await jail.python(
        """
        import os
        def handler():
            for _ in range(900):
                pid = os.fork()
                if pid == 0:
                    if os.fork() == 0:
                        os._exit(0)
                    os._exit(0)
                os.waitpid(pid, 0)
            # The init reaps orphans as they come: ask until the last is gone.
            while any(is_zombie(pid) for pid in os.listdir("/proc") if pid.isdigit()):
                os.sched_yield()
            return "reaped"
        def is_zombie(pid):
            try:
                return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                return False
        """,
        processes=60,
    )
    assert (kind(outcome), outcome.value) == (None, "reaped")


async def test_case_14_eighty_forks_in_sequence_fit_under_a_cap_of_fifty(jail):
    """Otherwise the cap counts what has ended."""
    outcome = await jail.python(
        """
        import os
        for _ in range(80):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        return 80
        """,
        processes=50,
    )
    assert (kind(outcome), outcome.value) == (None, 80)


async def test_the_process_cap_binds(jail):
    """The control of case 14: without a cap that binds, fitting under it says nothing."""
    outcome = await jail.python(
        """
        import os
        def handler():
            while True:
                if os.fork() == 0:
                    os.read(os.pipe()[0], 1)
        """,
        processes=50,
    )
    assert kind(outcome) == "processes_exceeded"


async def test_case_15_yes_into_head_ends_by_sigpipe(jail):
    """Otherwise an ignored SIGPIPE makes `yes` complain, or run for ever."""
    outcome = await jail.shell("yes | head -1")
    assert (kind(outcome), outcome.exit_code) == (None, 0)
    assert (outcome.stdout.kept, outcome.stderr.kept) == (b"y\n", b"")


# -- limits and classification -------------------------------------------------------------


async def test_case_16_too_large_an_array_is_memory_exceeded(jail):
    """Otherwise it succeeds, or the machine pays."""
    outcome = await jail.python("return len(bytearray(2 << 30))", memory_bytes="64M")
    assert kind(outcome) == "memory_exceeded"
    assert outcome.failure.evidence == "address_space"


async def test_case_16_also_for_a_command_by_the_watch(jail):
    """Commands have no fence; what they touch is seen and ended."""
    script = "x = bytearray(1)\nwhile True: x += bytes(1 << 22)"
    outcome = await jail.command(_python(), "-c", script, memory_bytes="64M")
    assert kind(outcome) == "memory_exceeded"


def _python() -> str:
    folder = os.path.realpath(os.path.dirname(sys.executable))
    return os.path.join(folder, os.path.basename(sys.executable))


async def test_case_17_our_own_timeout_is_never_called_out_of_memory(jail):
    """Both end by SIGKILL: the reason is recorded before the signal."""
    outcome = await jail.python("while True: pass", wall_s=1, memory_bytes="64M")
    assert kind(outcome) == "timeout"


async def test_case_17_an_exit_code_of_137_is_data(jail):
    """128 + 9 is what a shell says of a killed child, and it may be the script's own word."""
    outcome = await jail.shell("exit 137")
    assert (kind(outcome), outcome.exit_code) == (None, 137)


async def test_case_18_a_grandchild_over_its_memory_is_told_although_the_wrapper_exits_1(jail):
    """Otherwise the wrapper's exit code hides why."""
    script = "x = bytearray(1)\nwhile True: x += bytes(1 << 22)"
    outcome = await jail.shell(f"{_python()} -c '{script}' || exit 1", memory_bytes="64M")
    assert kind(outcome) == "memory_exceeded"


async def test_case_19_node_starts_under_a_memory_limit(jail):
    """Node reserves tens of gigabytes of address space and touches little of it."""
    node = shutil.which("node", path="/usr/local/bin:/usr/bin")
    program = node or _python()
    reserve = (
        "console.log('up')"
        if node
        else "import mmap; mmap.mmap(-1, 32 << 30, mmap.MAP_PRIVATE | 0x4000 | "
        "mmap.MAP_ANONYMOUS); print('up')"
    )
    outcome = await jail.command(program, "-e" if node else "-c", reserve, memory_bytes="512M")
    assert (kind(outcome), outcome.stdout.kept) == (None, b"up\n")


async def test_case_19_also_when_a_python_handler_starts_it(jail):
    """The fence is the interpreter's own: what it spawns must not inherit it."""
    outcome = await jail.python(
        """
        import subprocess, sys
        script = ("import mmap; mmap.mmap(-1, 32 << 30, mmap.MAP_PRIVATE | 0x4000"
                  " | mmap.MAP_ANONYMOUS); print('up')")
        return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
        """,
        memory_bytes="256M",
    )
    assert outcome.value == "up\n"


async def test_case_20_a_fork_bomb_leaves_the_supervisor_its_descriptors(jail):
    """Otherwise watching a bomb is what kills the watcher."""
    import resource

    before = len(os.listdir("/proc/self/fd"))
    most = before

    async def count() -> None:
        nonlocal most
        while True:
            most = max(most, len(os.listdir("/proc/self/fd")))
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        outcome = await jail.python(
            """
            import os
            def handler():
                while True:
                    try:
                        os.fork()
                    except OSError:
                        pass
            """,
            processes=100,
            memory_bytes="64M",
            wall_s=3,
        )
        nursery.cancel_scope.cancel()
    assert kind(outcome) in ("timeout", "memory_exceeded")
    assert most - before < 20 < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    left = left_below(os.getpid())
    assert not left, {pid: _reads(Path(f"/proc/{pid}/stat")) for pid in left}


# -- files and secrets ---------------------------------------------------------------------


async def test_case_22_the_environment_is_the_jails_own(jail, monkeypatch):
    """Otherwise every tool reads every token."""
    monkeypatch.setenv("TOKEN_OF_OURS", "s3cret")
    outcome = await jail.python(
        """
        import os
        return [dict(os.environ), open("/proc/self/environ").read()]
        """
    )
    environ, raw = outcome.value
    assert "s3cret" not in str(outcome.value)
    assert dict(line.split("=", 1) for line in raw.rstrip("\0").split("\0")) == environ
    assert set(environ) == {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "TERM",
    }  # fmt: skip


async def test_case_25_inherited_descriptors_are_closed(jail, tmp_path):
    """Otherwise an open file of ours is an open file of every tool's."""
    import fcntl

    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    with secret.open() as file:
        copy = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD, 900)
        low = os.dup(file.fileno())
        os.set_inheritable(copy, True)
        os.set_inheritable(low, True)
        try:
            python = await jail.python(
                'import os; return sorted(map(int, set(os.listdir("/proc/self/fd"))))'
            )
            command = await jail.shell("ls /proc/self/fd")
        finally:
            os.close(copy)
            os.close(low)
    # The last of each list is the descriptor that lists.
    assert python.value == [0, 1, 2, 3, 4]
    assert command.stdout.kept == b"0\n1\n2\n3\n"


async def test_case_27_a_large_argument_travels(jail):
    """execve takes 128 KiB a word: whoever puts arguments there fails at that size."""
    text = "a" * (1 << 20)
    outcome = await jail.python("def handler(text): return len(text)", {"text": text})
    assert outcome.value == 1 << 20


async def test_case_27_arguments_are_in_no_command_line(jail):
    """Every user of a machine can read every command line."""
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.update(command_lines())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        outcome = await jail.python(
            """
            def handler(token):
                return open("/proc/self/cmdline").read()
            """,
            {"token": "s3cret-in-an-argument"},
        )
    finally:
        stop.set()
        thread.join()
    assert kind(outcome) is None
    assert any(b"bootstrap.py" in line for line in seen), "the watcher saw no jail at all"
    assert not any(b"s3cret-in-an-argument" in line for line in seen)


async def test_case_45_signals_masks_and_umask_are_reset(jail):
    """A parent that ignores SIGTERM or blocks SIGCHLD would pass that on to every tool."""
    import signal

    handler = jail.handler(
        """
        import os, signal
        mask = os.umask(0)
        status = open("/proc/self/status").read()
        return [mask, [line.split()[1] for line in status.splitlines()
                       if line.startswith(("SigBlk", "SigIgn"))]]
        """
    )
    old_umask = os.umask(0o777)
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    _ignore_library_signal(32)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
    try:
        command = await jail.shell("grep -E '^Sig(Blk|Ign)' /proc/self/status; umask")
        python = await run_in_jail(handler, jail.spec())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGUSR1, old)
        syscalls.reset_signal(32)
        os.umask(old_umask)
    assert command.stdout.kept == b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0022\n"
    ignored_by_python = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert python.value == [0o022, ["0" * 16, f"{ignored_by_python:016x}"]]


def _ignore_library_signal(number: int) -> None:
    import ctypes

    ignore = (1).to_bytes(8, sys.byteorder) + bytes(24)
    call = ctypes.c_long(syscalls.number("rt_sigaction"))
    libc = ctypes.CDLL(None)
    assert libc.syscall(call, ctypes.c_long(number), ignore, None, ctypes.c_long(8)) == 0


# -- confinement, with controls ------------------------------------------------------------


async def test_what_is_outside_the_workspace_does_not_exist(jail, tmp_path):
    """The control is the same file inside: what can be read there cannot be read elsewhere."""
    (tmp_path / "secret").write_text("s3cret")
    (jail.workspace / "open").write_text("fine")
    outcome = await jail.shell(f"cat open; cat {tmp_path}/secret; cat ../secret; ls {tmp_path}")
    assert outcome.stdout.kept == b"fine" + b"workspace\n"
    assert b"s3cret" not in outcome.stderr.kept


async def test_a_readonly_workspace_cannot_be_written(jail):
    """The control is the same write where it is allowed."""
    denied = await run_in_jail(
        CommandHandler(argv=("/bin/sh", "-c", "echo x > new; echo y >> old; rm old")),
        jail.spec(writable=False),
    )
    assert not (jail.workspace / "new").exists()
    assert b"Read-only" in denied.stderr.kept
    assert (await jail.shell("echo x > new")).exit_code == 0
    assert (jail.workspace / "new").read_text() == "x\n"


async def test_what_a_jail_creates_belongs_to_whoever_owns_the_workspace(jail):
    """A root supervisor's worker is not root: what it leaves must still be ours to edit."""
    own = jail.workspace.stat()
    (jail.workspace / "private").write_text("mine")
    (jail.workspace / "private").chmod(0o600)
    outcome = await jail.shell("cat private; echo more >> private; mkdir d; echo x > d/f; id -u")
    assert outcome.stdout.kept == b"mine1000\n"
    for made in ("d", "d/f", "private"):
        found = (jail.workspace / made).stat()
        assert (found.st_uid, found.st_gid) == (own.st_uid, own.st_gid)


async def test_the_worker_is_not_root_on_the_host(jail):
    """RLIMIT_NPROC and file modes bind nobody who is uid 0."""
    seen = trio.Event()
    found: list[int] = []

    async def look() -> None:
        while not found:
            found.extend(_owners(b"sleep\x00"))
            await trio.sleep(0.01)
        seen.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        with trio.move_on_after(20):
            nursery.start_soon(jail.command, "sleep", "1000")
            await seen.wait()
        nursery.cancel_scope.cancel()
    assert found
    assert found[0] != 0


def _owners(command: bytes) -> list[int]:
    pids = [
        pid
        for pid in pids_below(os.getpid())
        if _reads(Path(f"/proc/{pid}/cmdline")).startswith(command)
    ]
    return [os.stat(f"/proc/{pid}").st_uid for pid in pids]


async def test_there_is_no_network(jail):
    """The control is a connection to the same listener from outside."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        outcome = await jail.python(
            """
            import socket
            def handler(port):
                links = [line.split(":")[0].strip() for line in open("/proc/net/dev")][2:]
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=2)
                except OSError as error:
                    return [isinstance(error, OSError), links]
            """,
            {"port": port},
        )
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    assert outcome.value == [True, ["lo"]]


async def test_a_workspace_that_was_replaced_is_refused(jail, tmp_path):
    """A folder swapped for a link between start and call must not be followed."""
    from dataclasses import replace

    found = jail.workspace.stat()
    spec = replace(jail.spec(), workspace_identity=(found.st_dev, found.st_ino))
    good = await run_in_jail(CommandHandler(argv=("true",)), spec)
    assert good.exit_code == 0
    jail.workspace.rename(tmp_path / "moved")
    (tmp_path / "workspace").symlink_to("/etc")
    linked = await run_in_jail(CommandHandler(argv=("true",)), spec)
    assert kind(linked) == "confinement_failed"
    (tmp_path / "workspace").unlink()
    (tmp_path / "workspace").mkdir()
    other = await run_in_jail(CommandHandler(argv=("true",)), spec)
    assert kind(other) == "confinement_failed"
    assert other.receipt.held == {}


async def test_the_jail_starts_with_the_standard_library_only(jail):
    """What is imported in every jail is paid, and exposed, in every call."""
    outcome = await jail.python("import sys; return sorted(sys.modules)")
    loaded = {name.partition(".")[0] for name in outcome.value}
    ours = {"handler_1", "toolcell_sandbox", "__main__", "__mp_main__"}
    assert loaded - set(sys.stdlib_module_names) - ours == set()


async def test_a_module_in_the_workspace_shadows_nothing(jail):
    """A `json.py` in a hostile checkout must not run because a handler imports json."""
    (jail.workspace / "json.py").write_text("raise SystemExit('shadowed')")
    (jail.workspace / "sitecustomize.py").write_text("raise SystemExit('customised')")
    outcome = await jail.python("import json; return json.dumps([1])")
    assert outcome.value == "[1]"
