"""Attacks that once worked on a version of ours, each with the control that shows its teeth."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Executor, Limits
from toolcell.approval import unsafe_approve_all
from toolcell.audit import read, verify
from toolcell.confinement import Workspace
from toolcell_sandbox import CommandHandler, Mount, _zygotes, run_in_jail
from toolcell_sandbox._child import syscalls

from .conftest import pids_below
from .test_cases import kind
from .tools_of_tests import wait_for


async def test_a_worker_makes_no_user_namespace_of_its_own(jail):
    """There it would be root again: over tmpfs without bound, over file capabilities on disk."""
    outcome = await jail.shell("unshare -U true; echo $?; unshare -Ur true; echo $?")
    assert outcome.stdout.kept == b"1\n1\n"
    control = subprocess.run(["unshare", "-U", "true"], check=False)
    assert control.returncode == 0


@pytest.mark.parametrize(
    "attempt",
    [
        "os.chmod('f', 0o4755)",
        "os.chmod('f', 0o2755)",
        "os.fchmod(os.open('f', os.O_RDONLY), 0o6755)",
        "os.close(os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755))",
        "os.mkdir('d', 0o2755)",
        "os.mknod('n', 0o104755)",
        "os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)",
    ],
)
async def test_setuid_bits_never_reach_the_disk(jail, attempt):
    """What a root supervisor's worker creates is root's: with the bit it is root for everybody."""
    source = """
        import os
        def handler(attempt):
            open('f', 'w').close()
            try:
                exec(attempt)
            except PermissionError:
                return "refused"
            return "done"
        """
    refused = await jail.python(source, {"attempt": attempt})
    assert refused.value == "refused"
    found = [p.lstat().st_mode for p in jail.workspace.iterdir()]
    assert [mode & 0o6000 for mode in found] == [0] * len(found)
    harmless = attempt.replace("0o4", "0o0").replace("0o2", "0o0").replace("0o6", "0o0")
    control = await jail.python(source, {"attempt": harmless.replace("0o104", "0o100")})
    assert control.value == "done"


async def test_calls_whose_mode_a_filter_cannot_see_do_not_exist(jail):
    """openat2 and io_uring take their mode from memory: every check of a register misses it."""
    outcome = await jail.python(
        """
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        found = []
        for number in (437, 425):
            libc.syscall(ctypes.c_long(number), *(ctypes.c_long(0),) * 5)
            found.append(errno.errorcode[ctypes.get_errno()])
        return found
        """
    )
    assert outcome.value == ["ENOSYS", "ENOSYS"]


async def test_the_supervisors_session_keyring_is_not_the_workers(jail):
    """A key that a login left there is a secret like any other."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    join, keyctl = 1, syscalls.number("keyctl")
    add_key = {"x86_64": 248, "aarch64": 217}[syscalls.platform_machine()]
    libc.syscall(keyctl, join, None)
    key = libc.syscall(add_key, b"user", b"toolcell-test", b"hunter2", 7, -3)
    assert key > 0, "the kernel here has no keyrings to test with"
    search = f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        return libc.syscall({keyctl}, 10, -3, b"user", b"toolcell-test", 0)
        """
    outcome = await jail.python(search)
    assert outcome.value == -1
    assert libc.syscall(keyctl, 10, -3, b"user", b"toolcell-test", 0) == key


async def test_what_runs_outside_the_jail_has_none_of_the_callers_environment(jail):
    """LD_PRELOAD for a tool would be loaded by our zygote, which is root on the host."""
    spec = dataclasses.replace(jail.spec(), env=jail.spec().env | {"LD_PRELOAD": "/planted.so"})
    outside: list[bytes] = []
    seen = trio.Event()

    async def look() -> None:
        while not seen.is_set():
            for pid in pids_below(os.getpid()) | _zygotes.pids():
                said = read_bytes(f"/proc/{pid}/cmdline"), read_bytes(f"/proc/{pid}/environ")
                if b"bootstrap.py" in said[0] and said[1]:
                    outside.append(said[1])
                if said[0].startswith(b"sleep\0") and b"LD_PRELOAD" in said[1]:
                    seen.set()
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        nursery.start_soon(run_in_jail, CommandHandler(argv=("sleep", "1000")), spec)
        with trio.move_on_after(20):
            await seen.wait()
        nursery.cancel_scope.cancel()
    assert seen.is_set(), "the control: the command itself has the variable"
    assert outside
    assert not any(b"LD_PRELOAD" in environ for environ in outside)
    python = await run_in_jail(
        jail.handler("import os; return os.environ['LD_PRELOAD']"),
        spec,
    )
    assert python.value == "/planted.so"


def read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


async def test_a_forked_child_of_the_host_program_does_not_hold_a_kill_back(jail):
    """It inherits our end of the jail's link: closing ours would then mean nothing."""
    wait, hold = os.pipe()
    children = []

    async def fork_later() -> None:
        while len(pids_below(os.getpid())) < 2:
            await trio.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            os.close(hold)
            os.read(wait, 1)
            os._exit(0)
        children.append(pid)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fork_later)
            outcome = await jail.command("sleep", "1000", wall_s=3)
    assert kind(outcome) == "timeout"
    assert children, "the control: a child was forked while the call ran"
    os.close(hold)
    os.close(wait)
    os.waitpid(children[0], 0)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSTOP", "SIGCHLD"])
async def test_the_init_takes_no_signal_from_inside(jail, name):
    """An init that can be ended or stopped takes the evidence of how the call ended with it."""
    outcome = await jail.shell(f"kill -{name.removeprefix('SIG')} 1; echo alive")
    assert (kind(outcome), outcome.stdout.kept) == (None, b"alive\n")


async def test_a_leader_that_has_itself_traced_has_not_ended_when_it_stops(jail):
    """A command that was killed in the midst of its work would be a success."""
    code = "import ctypes, os; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), 10)"
    spec = dataclasses.replace(jail.spec(), waive=("syscalls_filtered", "net_blocked"))
    command = CommandHandler(argv=(sys.executable, "-c", code))
    outcome = await run_in_jail(command, spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "crashed"
    assert outcome.failure.signal == "SIGKILL"
    # The control: what is not traced ends of that signal.
    untraced = CommandHandler(argv=(sys.executable, "-c", "import os; os.kill(os.getpid(), 10)"))
    assert (await run_in_jail(untraced, spec)).failure.signal == "SIGUSR1"


async def test_an_init_cannot_be_hobbled_from_inside(jail):
    """A worker of the same uid could lower its limits, and what it then reports is nothing."""
    outcome = await jail.python(
        """
        import errno, resource
        for number in (1, 2):
            try:
                resource.prlimit(number, resource.RLIMIT_NOFILE, (1, 1))
            except PermissionError:
                continue
            return number
        own = resource.prlimit(0, resource.RLIMIT_NOFILE)
        return "refused" if own[0] > 1 else own
        """
    )
    assert outcome.value == "refused"


async def test_a_tree_too_deep_to_name_does_not_break_the_init(jail):
    """A walk that recurses is one that a hostile tree can end."""
    outcome = await jail.python(
        """
        import os, signal
        def handler():
            os.chdir("/tmp")
            for _ in range(3_000):
                os.mkdir("d")
                os.chdir("d")
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGXFSZ)
        """
    )
    assert (kind(outcome), outcome.failure.signal) == ("crashed", "SIGXFSZ")


async def test_a_busy_workspace_does_not_keep_others_from_starting(jail):
    """Files that come and go in its top are seen and gone between two looks."""
    script = "while :; do : > a; : > b; : > c; rm -f a b c; done"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jail.shell, script)
        while not any((jail.workspace / name).exists() for name in "abc"):
            await trio.sleep(0.01)
        kinds = [kind(await jail.command("true")) for _ in range(12)]
        nursery.cancel_scope.cancel()
    assert kinds == [None] * 12


async def test_ignoring_the_end_of_children_does_not_hide_their_time(jail):
    """Children that nobody waits for appear in nobody's sums."""
    outcome = await jail.python(
        """
        import os, signal, time
        def handler():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            while True:
                if os.fork() == 0:
                    end = time.process_time() + 0.3
                    while time.process_time() < end: pass
                    os._exit(0)
                try:
                    os.wait()
                except ChildProcessError:
                    pass
        """,
        cpu_s=1,
        wall_s=20,
    )
    assert kind(outcome) == "cpu_time_exceeded"


async def test_standard_output_can_be_opened_again_by_name(jail):
    """`tee /dev/stderr` is what scripts do; the pipe is not the worker's own."""
    outcome = await jail.shell("echo out > /dev/stdout; echo err | tee /dev/stderr")
    assert (outcome.stdout.kept, outcome.stderr.kept) == (b"out\nerr\n", b"err\n")


async def test_a_link_on_the_way_to_a_mount_is_not_followed(jail, tmp_path):
    """The zygote of a root supervisor could open anything for it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "h.py").write_text("s3cret")
    (jail.workspace / "tools").symlink_to(tmp_path / "elsewhere")
    mount = Mount(path=str(jail.workspace / "tools" / "h.py"), owned=True)
    spec = dataclasses.replace(jail.spec(), mounts=(mount,))
    outcome = await run_in_jail(CommandHandler(argv=("cat", mount.path)), spec)
    assert kind(outcome) == "confinement_failed"
    assert outcome.failure.errno == "ELOOP"
    assert os.listdir(tmp_path / "elsewhere") == ["h.py"]


# -- the executor --------------------------------------------------------------------------


async def test_a_file_that_became_a_link_while_the_call_waited_is_not_read(tmp_path, ledger):
    """Decided, then queued: another call has the time to put a secret behind the name."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "notes").write_text("notes")
    (workspace / ".env").write_text("SECRET=1")
    results: dict[str, Any] = {}
    async with Executor(
        tools=[wait_for],
        workspace=workspace,
        state_dir=tmp_path / "state",
        approver=unsafe_approve_all,
        max_concurrency=1,
    ) as box:

        async def call(key: str, name: str, path: str) -> None:
            results[key] = await box.call(name, {"path": path})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "first", "wait_for", "go")
            while box._slots.borrowed_tokens == 0:
                await trio.sleep(0.01)
            nursery.start_soon(call, "second", "read_file", "notes")
            while box._slots.statistics().tasks_waiting == 0:
                await trio.sleep(0.01)
            (workspace / "notes").unlink()
            (workspace / "notes").symlink_to(".env")
            (workspace / "go").write_text("")
    assert results["first"].output == "there"
    assert kind_of(results["second"]) == "denied"
    assert "SECRET" not in results["second"].content


def kind_of(result: Any) -> str | None:
    return None if result.error is None else result.error.kind


@pytest.mark.parametrize("private", ["/tmp", "/var/tmp", "/dev/shm"])
def test_a_folder_that_a_jail_has_of_its_own_is_no_workspace(private, tmp_path):
    """What is written there would be a success and gone."""
    with pytest.raises(ValueError, match="private"):
        Workspace.open(private, state_dir=str(tmp_path / "state"))


def test_an_interpreter_that_is_reached_by_a_link_in_the_workspace_is_refused(
    tmp_path, monkeypatch
):
    """One call replaces the link; the next start of ours runs what it leads to, outside."""
    workspace = tmp_path / "ws"
    (workspace / "envs" / "v" / "bin").mkdir(parents=True)
    (workspace / "envs" / "v" / "bin" / "python").symlink_to(sys.executable)
    (workspace / ".venv").symlink_to("envs/v")
    state = str(tmp_path / "state")
    Workspace.open(str(workspace), state_dir=state)
    monkeypatch.setattr(sys, "executable", str(workspace / ".venv" / "bin" / "python"))
    with pytest.raises(ValueError, match="link"):
        Workspace.open(str(workspace), state_dir=state)


async def test_a_module_folder_inside_the_workspace_cannot_be_written(
    tmp_path, ledger, monkeypatch
):
    """What a tool writes there is this process's next import."""
    workspace = tmp_path.resolve() / "ws"
    (workspace / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(workspace / "lib")])
    async with Executor(
        workspace=workspace, state_dir=tmp_path / "state", approver=unsafe_approve_all
    ) as box:
        named = await box.call("write_file", {"path": "lib/termios.py", "content": "x"})
        shell = await box.call("shell", {"command": "echo x > lib/termios.py; mv lib l2; ls"})
        control = await box.call("write_file", {"path": "termios.py", "content": "x"})
    assert kind_of(named) == "denied"
    assert list((workspace / "lib").iterdir()) == []
    assert shell.output["stdout"] == "lib\n"
    assert control.success


async def test_more_values_than_a_person_could_mean_are_refused(tmp_path, ledger):
    """Checking them one by one holds up every other call of the process."""
    async with Executor(workspace=_new(tmp_path / "ws"), state_dir=tmp_path / "state") as box:
        result = await box.call("read_file", {"path": ["a"] * 300_000})
    assert kind_of(result) == "invalid_arguments"


def _new(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_limit_that_would_mean_none_is_refused():
    """tmpfs takes size=0 for no bound at all."""
    with pytest.raises(ValueError, match="disk_bytes"):
        Limits(disk_bytes=0)


async def test_a_record_that_a_full_disk_cut_short_does_not_swallow_the_next(tmp_path, ledger):
    """Half a record and a whole one are one that nobody can read."""
    async with Executor(workspace=_new(tmp_path / "ws"), state_dir=tmp_path / "state") as box:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The first page of the log's write-ahead file fits, and no more of it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limits[1]))
        try:
            first = await box.call("list_directory")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        second = await box.call("list_directory")
    assert kind_of(first) == "executor_error"
    assert second.success
    found = [(r["record"], r["call_id"]) for r in read(tmp_path / "state")]
    assert found == [("intent", second.call_id), ("terminal", second.call_id)]
    assert verify(tmp_path / "state").ok


def test_the_signals_of_this_process_are_as_they_were():
    """The tests above ignore and block; what they leave would be the next test's surprise."""
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
