"""Level `container`: modes, owners and times of files, and every other way out that was tried.

Landlock has no right for metadata, so the init does such calls for the jail where it may write
(`_child/metadata.py`). An attack is judged by what it leaves outside, not by its errno alone, and
beside it stands a control: the same attack without the fence, or the same call inside.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell_sandbox import (
    CommandHandler,
    JailOutcome,
    JailSpec,
    Limits,
    Mount,
    PythonHandler,
    _zygotes,
    run_in_jail,
)
from toolcell_sandbox._child import syscall_table
from toolcell_sandbox.host import base_environment

from .conftest import pids_below

ATTACKERS = Path(__file__).with_name("container_attackers.py")
COLUMN = 1 if os.uname().machine == "x86_64" else 2
NUMBERS = {row[0]: row[COLUMN] for row in syscall_table.rows("namespaces", "none")}
EPERM, EACCES, ESRCH = -errno.EPERM, -errno.EACCES, -errno.ESRCH
KILL_S = 0.25


@dataclass(frozen=True)
class State:
    """All of a file's metadata that a call could change, its change time too."""

    mode: int
    uid: int
    gid: int
    modified_ns: int
    changed_ns: int
    content: bytes

    @classmethod
    def of(cls, path: Path) -> State:
        found = path.lstat()
        content = (
            path.read_bytes() if stat.S_ISREG(found.st_mode) and found.st_mode & 0o400 else b""
        )
        return cls(
            found.st_mode,
            found.st_uid,
            found.st_gid,
            found.st_mtime_ns,
            found.st_ctime_ns,
            content,
        )


class Place:
    """A workspace, and what lies outside of it."""

    def __init__(self, top: Path) -> None:
        self.workspace = top / "workspace"
        self.outside = top / "outside"
        self.evil = top / "workspace-evil"
        self.readable = top / "readable"
        self.tools = top / "tools"
        for folder in (self.workspace, self.outside, self.evil, self.readable, self.tools):
            folder.mkdir()
        for file in (self.outside / "key", self.evil / "key", self.readable / "file"):
            file.write_text("secret")
            file.chmod(0o600)
        (self.outside / "link").symlink_to("key")
        (self.outside / "empty").mkdir()
        (self.outside / "program").write_text("#!/bin/true\n")
        (self.outside / "program").chmod(0o755)
        (self.tools / ATTACKERS.name).write_bytes(ATTACKERS.read_bytes())

    def not_ours(self) -> dict[str, State]:
        tops = (self.outside, self.evil, self.readable)
        files = [p for top in tops for p in (top, *sorted(top.iterdir()))]
        return {str(path): State.of(path) for path in files}

    def spec(self, *, level: str = "container", mode: str = "direct", **more: Any) -> JailSpec:
        limits = {"wall_s": 60.0} | more.pop("limits", {})
        granted = (Mount(path=str(self.tools)), Mount(path=str(self.readable)))
        return JailSpec(
            workspace=str(self.workspace),
            workspace_mode=mode,
            isolation=level,
            env=base_environment(),
            mounts=granted,
            limits=Limits(**limits),
            **more,
        )

    async def outcome(self, act: str, arguments: dict[str, Any], **spec: Any) -> JailOutcome:
        handler = PythonHandler(
            module=ATTACKERS.stem,
            qualname=act,
            file=str(self.tools / ATTACKERS.name),
            arguments=arguments,
        )
        return await run_in_jail(handler, self.spec(**spec))

    async def run(self, act: str, *, numbers: bool = True, spec: Any = None, **told: Any) -> Any:
        """What an attacker returned, from a jail that held what it promised."""
        arguments = {"numbers": NUMBERS} if numbers else {}
        outcome = await self.outcome(act, arguments | told, **(spec or {}))
        assert outcome.failure is None, (outcome.failure, outcome.stderr.kept.decode())
        if not (spec or {}).get("waive"):
            assert {"fs_confined", "syscalls_filtered"} <= outcome.receipt.held.keys()
        return outcome.value


@pytest.fixture
def place(ledger: None) -> Iterator[Place]:
    """In a short folder: a socket's name has 108 bytes (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as folder:
        yield Place(Path(folder).resolve())


# ---------------------------------------------------------------- what is not the jail's


SYSTEM = ["/", "/dev/null", "/etc/passwd", "/usr/bin", "/proc/self/comm", "/tmp"]


def unconfined(place: Place, act: str, **told: Any) -> Any:
    """The same attacker in a process that no jail holds: a control. Nothing of the machine's."""
    source = "import json, sys, container_attackers as a; told = json.loads(sys.argv[1])\n"
    source += "print(json.dumps(getattr(a, told.pop('act'))(**told)))"
    done = subprocess.run(
        [sys.executable, "-c", source, json.dumps({"act": act, "numbers": NUMBERS} | told)],
        cwd=place.workspace,
        env={"PYTHONPATH": str(place.tools), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def targets(place: Place) -> dict[str, Any]:
    return {name: str(getattr(place, name)) for name in ("outside", "readable", "evil")}


async def test_no_name_of_a_file_outside_leads_to_its_metadata(place):
    """A worker has the supervisor's uid: one chmod, and a private key is everybody's."""
    before = place.not_ours()
    answers = await place.run("attack", system=SYSTEM, **targets(place))
    mine = answers.pop("mine")
    assert place.not_ours() == before
    refused = {-e for e in (errno.EACCES, errno.ELOOP, errno.EBADF, errno.EINVAL, errno.EPERM)}
    for name, row in answers.items():
        # The links themselves are the jail's own: lchown(2) may have them.
        done = {0} if name in ("a symlink", "a chain of symlinks") else set()
        assert set(row) - {None} <= refused | done, (name, row)
        assert len(row) >= 4
    assert len(answers) > 20
    # The control: the same calls on the jail's own file are done, with each of its names.
    assert set(mine) - {None} == {0}
    assert stat.S_IMODE((place.workspace / "mine").stat().st_mode) == 0o777


async def test_the_same_names_lead_there_without_a_jail(place):
    """The control: it is the filter and the init that hold, not the file system."""
    before = place.not_ours()
    answers = unconfined(place, "attack", system=[], **targets(place))
    assert [name for name, row in answers.items() if 0 not in row] == []
    after = place.not_ours()
    changed = {path for path in before if after[path] != before[path]}
    keys = (place.outside / "key", place.evil / "key", place.outside / "link", place.outside)
    assert changed >= {str(path) for path in (*keys, place.readable / "file", place.readable)}


async def test_a_hard_link_that_was_there_is_the_jails_own(place):
    """What its owner has linked into the workspace may be written by that name: a documented rule.

    A jail cannot make such a link itself.
    """
    os.link(place.outside / "key", place.workspace / "hard")
    key = str(place.outside / "key")
    answers = await place.run("change_all", numbers=False, paths=["hard", key])
    assert answers == ["done", "EACCES"]


async def test_a_descriptor_that_was_passed_is_no_better_than_the_one_sent(place):
    """Row 42: it opens what may be read, and reading is all."""
    before = place.not_ours()
    answer = await place.run("pass_descriptors", readable=str(place.readable))
    assert answer == EACCES
    assert place.not_ours() == before


async def test_a_workspace_that_is_read_only_keeps_its_metadata(place):
    """`read_only` says that a call changes nothing; a mode or a time is something."""
    file = place.workspace / "file"
    file.write_text("x")
    file.chmod(0o640)
    before = State.of(file), place.workspace.stat().st_mode
    spec = {"mode": "read_only"}
    seen = await place.run("read_only", numbers=False, spec=spec, outside=str(place.outside))
    # The control is in it: in a folder of its own it sets both.
    assert seen.pop("own") == "done"
    assert seen.pop("setxattr") in ("EOPNOTSUPP", "ENOTSUP")
    assert seen.pop("flags") == "EPERM"
    assert set(seen.values()) == {"EACCES"}
    assert (State.of(file), place.workspace.stat().st_mode) == before


# ---------------------------------------------------------------- races


@pytest.mark.parametrize("act", ["swap_folder", "swap_words"])
async def test_what_changes_while_a_call_is_judged_changes_nothing_outside(place, act):
    """Row 18: judged by its name and done by its name, a file could be another in between."""
    before = place.not_ours()
    seen = await place.run(act, outside=str(place.outside), count=2000)
    assert place.not_ours() == before
    assert seen["inside"] + seen["refused"] >= 2000
    # The control: the race was on, and both sides of it were met.
    assert min(seen.values()) >= 20, seen


async def test_a_caller_that_is_killed_in_mid_call_harms_nobody(place):
    """Its pid may be another's by the time that the init looks: it must not act on that one."""
    before = place.not_ours()
    seen = await place.run("die_in_mid_call", rounds=200)
    assert seen == {"killed": 200, "then": 0}
    assert stat.S_IMODE((place.workspace / "mine").stat().st_mode) == 0o640
    assert place.not_ours() == before


# ---------------------------------------------------------------- as the kernel would


async def test_calls_on_own_files_answer_as_the_kernel_does(tmp_path, ledger):
    """A tool that takes ENOENT for granted breaks on any other errno."""
    answers = {}
    for level in ("standard", "container"):
        (tmp_path / level).mkdir()
        answers[level] = await Place((tmp_path / level).resolve()).run(
            "as_the_kernel", spec={"level": level}
        )
    kernels, ours = answers["standard"], answers["container"]
    assert len(kernels) > 90
    differ = [[*k, "not", *o] for k, o in zip(kernels, ours, strict=True) if k != o]
    assert differ == []
    # The control: the list meets success and each ordinary failure.
    names = "ENOENT ENOTDIR ELOOP EBADF EFAULT EINVAL ENAMETOOLONG EACCES EPERM EOPNOTSUPP"
    met = {answer for _, answer, *_ in kernels}
    assert {0, *(-getattr(errno, name) for name in names.split())} <= met


async def test_owners_that_nobody_has_do_not_end_the_init(place):
    """uid 2^32 - 2 is none that Python takes for one of its own: an exception would be the end."""
    *odd, then = await place.run("odd_ids")
    assert set(odd) <= {EPERM, -errno.EINVAL}
    assert then == 0


async def test_threads_grandchildren_and_fenced_callers_are_served(place):
    """Who asks is a thread; that it is the leader's only one must not be taken for granted."""
    seen = await place.run("from_everywhere")
    assert seen["thread"] == [0, 0o601]
    assert seen["grandchild"] == [0, 0o602]
    assert seen["held"] == [0, 0o604]
    assert seen["program"] == [0, 0o610]
    # Who hides its memory from its own uid hides the path too: refused, and the init goes on.
    assert seen["hidden"] == [EACCES, 0o610]
    assert seen["seen again"] == [0, 0o620]
    assert (seen["own filter"], seen["filtered twice"]) == (0, [0, 0o621])
    assert seen["own listener"] == -errno.EBUSY
    assert (seen["own domain"], seen["confined twice"]) == (0, [0, 0o622])
    assert seen["the domain"] == "EACCES"


async def test_signals_break_no_call_off_that_their_handler_restarts(place):
    """chmod(2) never answers EINTR, so no program tries again.

    Where the handler does not restart calls, a signal that comes before the init has read the
    call still breaks it off (seccomp_unotify(2)); one that comes later does not.
    """
    seen = await place.run("interrupted")
    assert (seen["restarting"], seen["restarting, done"]) == (0, 3000)
    assert seen["breaking"] + seen["breaking, done"] == 3000


# ---------------------------------------------------------------- floods


async def test_many_callers_at_once_are_all_served(place):
    """Row 102: the init has one thread, and a build sets modes from all its processes."""
    assert await place.run("flood", processes=16, count=20_000) == {"good": 16}


async def test_a_flood_of_calls_does_not_put_the_deadline_off(place):
    """The init answers the flood, and is the one that ends it."""
    arguments = {"numbers": NUMBERS, "processes": 16, "count": 0}
    outcome = await place.outcome("flood", arguments, limits={"wall_s": 1.5})
    assert type(outcome.failure).__name__ == "Timeout"
    assert (place.workspace / "started").exists()
    assert 1.5 <= outcome.usage.wall_s < 1.5 + KILL_S


async def test_a_flood_of_calls_is_cancelled_at_once(place):
    """A user who gives up on a call must not wait for it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            place.outcome, "flood", {"numbers": NUMBERS, "processes": 16, "count": 0}
        )
        await appears(place.workspace / "started")
        started = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - started < KILL_S


async def appears(path: Path) -> None:
    with trio.fail_after(30):
        while not await trio.Path(path).exists():
            await trio.sleep(0.01)


def the_init() -> int:
    """The one init below this process's zygotes."""
    found = [
        pid
        for pid in pids_below(os.getpid())
        if b"bootstrap.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and parent_of(pid) in _zygotes.pids()
    ]
    (pid,) = found
    return pid


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def holdings(pid: int) -> tuple[int, int]:
    """Memory in KiB, and the size of the table of descriptors; for all to see (proc(5))."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(told["VmRSS"].split()[0]), int(told["FDSize"])


async def test_the_init_grows_by_nothing_that_it_is_asked(place):
    """A descriptor a call, and after a thousand calls a build fails for no reason."""
    found: list[Any] = []

    async def run() -> None:
        found.append(await place.run("in_two_parts", count=600))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await appears(place.workspace / "first")
        init = the_init()
        first = holdings(init)
        (place.workspace / "go on").touch()
        await appears(place.workspace / "second")
        second = holdings(init)
        (place.workspace / "end").touch()
    # Of nine calls a round four succeed: more than five thousand calls in all.
    assert found == [620 * 4]
    assert second[0] - first[0] < 512
    assert second[1] == first[1]


# ---------------------------------------------------------------- other processes


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this uid that has nothing to do with any jail."""
    with subprocess.Popen(
        [
            "sh",
            "-c",
            "echo; read line",
        ],  # Once it has answered it is what it stays: no exec follows.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        yield process
        process.kill()


def traits(pid: int) -> tuple[Any, ...]:
    """What others of its uid could change of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        *(os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)),
        *(os.sched_getaffinity(pid), resource.prlimit(pid, resource.RLIMIT_NOFILE)),
        *(os.getpgid(pid), os.getsid(pid), Path(f"/proc/{pid}/oom_score_adj").read_text()),
        "T (stopped)" in status,
    )


REFUSED = (EPERM, EACCES, "EPERM", "EACCES")


async def test_no_process_outside_is_signalled_slowed_or_read(place, victim):
    """Rows 51 to 56: all of them share one uid, which is all that the kernel asks for."""
    before = traits(victim.pid)
    told = {"victim": victim.pid, "group": os.getpgid(victim.pid), "supervisor": os.getpid()}
    seen = await place.run("at_others", **told)
    assert victim.poll() is None
    assert traits(victim.pid) == before
    for name, answer in seen.items():
        # A timer's thread has to be one's own, and a kernel may know nothing of core scheduling.
        also = (-errno.EINVAL,) if name.endswith((" timer", " core")) else ()
        assert answer in (*REFUSED, *also), (name, answer)
    assert len(seen) > 130


def test_the_uid_alone_would_let_them_all_through(victim):
    """The control: on this machine nothing else stands in the way, such as another uid or Yama."""
    os.kill(victim.pid, 0)
    os.setpriority(os.PRIO_PROCESS, victim.pid, 19)
    os.sched_setaffinity(victim.pid, {0})
    resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (3, 3))
    assert os.getpriority(os.PRIO_PROCESS, victim.pid) == 19
    assert Path(f"/proc/{victim.pid}/environ").read_bytes()
    with Path(f"/proc/{victim.pid}/mem").open("rb"):
        pass
    os.kill(victim.pid, signal.SIGTERM)
    assert victim.wait(10) == -signal.SIGTERM


async def test_the_init_tells_nothing_of_processes_that_the_jail_may_not_see(place, victim):
    """It walks paths for the jail: below /proc it would be asked for others' memory maps."""
    others = [f"/proc/{victim.pid}/{name}" for name in ("cwd", "root", "exe", "map_files/1-2")]
    answers = await place.run("change_all", numbers=False, paths=others)
    assert answers == ["EACCES"] * 4


# ---------------------------------------------------------------- files, sockets, devices


async def test_no_way_leads_to_what_is_not_granted(place):
    """Rows 1 to 15, 23 to 31, 40 to 42, 68 to 78, without a namespace that would stand around."""
    with contextlib.ExitStack() as held:
        listeners = {}
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            listeners[kind] = held.enter_context(socket.socket(socket.AF_UNIX, kind))
            listeners[kind].setblocking(False)
            listeners[kind].bind(str(place.outside / f"{kind}.sock"))
            if kind != socket.SOCK_DGRAM:
                listeners[kind].listen()
        before = place.not_ours()
        seen = await place.run("beyond", **reached(place))
        assert place.not_ours() == before
        assert heard(listeners) == []
        # The control: a process that no jail holds reaches the sockets by pairs of its own.
        unconfined(place, "send_by_pairs", **reached(place))
        assert heard(listeners) == [socket.SOCK_DGRAM] * 3
    assert seen.pop("a program in memory") == "ran 0, then 1"
    allowed: set[Any] = {
        "EPERM",
        "EACCES",
        "EXDEV",
        "EISCONN",
        "EOPNOTSUPP",
        "ENOTSUP",
        EPERM,
        EACCES,
    }
    allowed |= {-errno.EXDEV, "EBADF", -errno.EBADF, "EINVAL", "ENOENT", -errno.ENOENT, "EROFS"}
    for name, answer in seen.items():
        assert answer in allowed, (name, answer)
    assert len(seen) > 60
    assert not (place.workspace / "hard").exists()
    assert not (place.workspace / "stolen").exists()


def reached(place: Place) -> dict[str, str]:
    return {"outside": str(place.outside), "readable": str(place.readable)}


def heard(listeners: dict[Any, socket.socket]) -> list[int]:
    """Which of the sockets somebody has spoken to, once for each time."""
    found = []
    for kind, listener in listeners.items():
        with contextlib.suppress(BlockingIOError):
            while True:
                if kind == socket.SOCK_DGRAM:
                    assert listener.recv(100) == b"from the jail"
                else:
                    listener.accept()[0].close()
                found.append(int(kind))
    return found


# ---------------------------------------------------------------- the end of the tree


def sleeper() -> list[str]:
    """A command line that no other process has."""
    return ["/bin/sleep", f"100{time.monotonic_ns() % 10**12}.5"]


def alive(command: list[str]) -> list[int]:
    """Processes with that command line that are no zombies."""
    wanted = "\0".join(command).encode() + b"\0"
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == wanted:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def test_nothing_leaves_the_group_by_which_the_tree_is_killed(place):
    """Row 60: a process in another group would outlive its call, in the container, for ever."""
    command = sleeper()
    seen = await place.run("leave", sleeper=command)
    assert alive(command) == []
    assert seen["started"] > 15
    assert seen["groups"] == 1


async def test_the_tree_is_gone_though_its_init_was_killed(place, monkeypatch):
    """The init is what ends the tree: without it the supervisor has to."""
    command = sleeper()
    found: list[JailOutcome] = []
    monkeypatch.setattr(tempfile, "tempdir", str(place.outside / "empty"))

    async def run() -> None:
        found.append(await place.outcome("sleep_on", {"sleeper": command, "count": 5}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await appears(place.workspace / "started")
        await all_run(command, 5)
        assert len(os.listdir(place.outside / "empty")) == 1
        os.kill(the_init(), signal.SIGKILL)
    assert found[0].failure is not None
    await all_run(command, 0)
    assert os.listdir(place.outside / "empty") == []


async def all_run(command: list[str], count: int) -> None:
    with trio.fail_after(10):
        while len(alive(command)) != count:
            await trio.sleep(0.01)


async def test_the_tree_is_gone_though_its_init_was_stopped(place):
    """An init that does nothing any more must not keep a deadline from being kept."""
    command = sleeper()
    found: list[JailOutcome] = []

    async def run() -> None:
        arguments = {"sleeper": command, "count": 5}
        found.append(await place.outcome("sleep_on", arguments, limits={"wall_s": 1.0}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await appears(place.workspace / "started")
        os.kill(the_init(), signal.SIGSTOP)
    assert type(found[0].failure).__name__ == "Timeout"
    await all_run(command, 0)


SUPERVISOR = """
import sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, run_in_jail
from toolcell_sandbox.host import base_environment

workspace, *command = sys.argv[1:]
script = "for i in 1 2 3; do setsid \\"$@\\" & done; \\"$@\\" & : > started; wait"
argv = ("/bin/sh", "-c", script, "sh", *command)
spec = JailSpec(workspace=workspace, workspace_mode="direct", isolation="container",
                env=base_environment())
trio.run(run_in_jail, CommandHandler(argv=argv), spec)
"""


async def test_the_tree_is_gone_after_its_supervisor_was_killed(place):
    """Row 59: a crash of ours must not leave hostile code running in the container."""
    command = sleeper()
    argv = [sys.executable, "-c", SUPERVISOR, str(place.workspace), *command]
    own = place.outside / "empty"
    supervisor = await trio.lowlevel.open_process(argv, env=os.environ | {"TMPDIR": str(own)})
    await appears(place.workspace / "started")
    await all_run(command, 4)
    supervisor.kill()
    await supervisor.wait()
    killed = trio.current_time()
    await all_run(command, 0)
    assert trio.current_time() - killed < 2
    with trio.fail_after(5):
        while os.listdir(own):
            await trio.sleep(0.01)


# ---------------------------------------------------------------- what tools need


TOOLS = """
set -e
umask 022
mkdir -p a/b; echo x > a/b/f; ln -s f a/b/l; chmod 640 a/b/f; chmod 700 a
touch -d @86400 a/b/f a/b; touch -h -d @7 a/b/l
cp -a a c; test "$(stat -c %a.%Y c/b/f c/b/l c/b c | tr '\\n' ' ')" = \
    "$(stat -c %a.%Y a/b/f a/b/l a/b a | tr '\\n' ' ')"
tar cf t.tar a; mkdir e; tar xpf t.tar -C e
test "$(stat -c %a.%Y e/a/b/f e/a/b/l e/a/b | tr '\\n' ' ')" = "640.86400 777.7 755.86400 "
chmod 000 a/b/f; rm -rf a; install -d -m 750 i; install -m 555 -p c/b/f i/g
test "$(stat -c %a.%Y i/g)" = 555.86400
printf 'g: f\\n\\tcp -p f g\\n' > c/b/Makefile; make -s -C c/b; test c/b/g -ot c/b/Makefile
chmod -R u+rwX,go-rwx c; test "$(stat -c %a c/b/f)" = 600
chown -R "$(id -u)" c; chgrp -h "$(id -g)" c/b/l; mktemp > m; test "$(stat -c %a "$(cat m)")" = 600
echo fine
"""


async def test_programs_that_keep_modes_and_times_keep_them(place):
    """cp -a, tar, install, make and chmod -R are half of what a build does."""
    outcome = await run_in_jail(CommandHandler(argv=("/bin/bash", "-c", TOOLS)), place.spec())
    said = outcome.stderr.kept.decode()
    assert (outcome.exit_code, outcome.stdout.kept, said) == (0, b"fine\n", ""), said
