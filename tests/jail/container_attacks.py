"""Handlers that attack a jail of level `container`, and who runs them: see test_container_host.

`python container_attacks.py SCENARIO WORKSPACE` runs in `docker_like.py`, which holds what an
attack would reach if it got through. Each scenario prints one JSON value: what came of the attack
in a jail, and, as its control, of the same function where no jail is.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GONE_S = 2.0
_FILE = os.path.realpath(__file__)
FORKS = 150
SOCKET_TYPES = (1, 2, 3, 5)
DEPTH = 5_000
FOLDERS = 5_000

# ---------------------------------------------------------------- handlers: all run in a jail


def attempt(act: Callable[..., object], *arguments: object) -> str:
    """ "done", or the name of the errno that it failed with."""
    try:
        act(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return "done"


def _system_call(number: int, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    wide = [ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments)]
    if libc.syscall(*wide) < 0:
        raise OSError(ctypes.get_errno(), "syscall")


def look(path: str) -> dict[str, Any]:
    """What a harmless tool does: where it is, what it may read, what it may write."""
    return {
        "entries": sorted(os.listdir(".")),
        "write": attempt(Path(path).write_text, "written"),
        "temporary": attempt(Path(tempfile.gettempdir(), "f").write_text, "written"),
        "home": attempt(Path("~/f").expanduser().write_text, "written"),
        "secrets": sorted(name for name in os.environ if "SECRET" in name),
    }


def read_outside(paths: list[str]) -> dict[str, str]:
    def read(path: str) -> None:
        with open(path, "rb") as file:
            file.read(64)

    return {path: attempt(read, path) for path in paths}


def change_outside(folder: str) -> dict[str, str]:
    """All that can be done to a file which is one's own, by its path."""
    f, d = f"{folder}/file", f"{folder}/folder"
    acts: dict[str, Callable[[], object]] = {
        "create": lambda: Path(folder, "new").touch(),
        "write": lambda: os.close(os.open(f, os.O_WRONLY)),
        "truncate": lambda: os.truncate(f, 0),
        "chmod": lambda: os.chmod(f, 0o777),
        "chmod by descriptor": lambda: _by_descriptor(folder, os.fchmod, 0o777),
        "chown": lambda: os.chown(f, os.getuid(), os.getgid()),
        "utime": lambda: os.utime(f, (0, 0)),
        "setxattr": lambda: os.setxattr(f, "user.x", b"x"),
        "hard link": lambda: os.link(f, f"{folder}/linked"),
        "symlink": lambda: os.symlink(f, f"{folder}/symlink"),
        "mkfifo": lambda: os.mkfifo(f"{folder}/fifo"),
        "rename": lambda: os.rename(f, f"{folder}/renamed"),
        "mkdir": lambda: os.mkdir(f"{folder}/made"),
        "rmdir": lambda: os.rmdir(d),
        "unlink": lambda: os.unlink(f"{folder}/other"),
        "list": lambda: os.listdir(folder),
    }
    return {name: attempt(act) for name, act in acts.items()}


def _by_descriptor(path: str, act: Callable[[int, int], None], argument: int) -> None:
    fd = os.open(path, os.O_PATH)
    try:
        os.chmod(f"/proc/self/fd/{fd}", argument)
    finally:
        os.close(fd)


def open_sockets(families: int) -> dict[str, list[str]]:
    """Each family with each type: what was answered, and by which of them."""
    found: dict[str, set[int]] = {}
    for family in range(families):
        for kind in SOCKET_TYPES:
            said = attempt(lambda f=family, k=kind: socket.socket(f, k).close())
            found.setdefault(said, set()).add(family)
    both = attempt(socket.socketpair)
    answers = {said: sorted(map(str, families)) for said, families in found.items()}
    return {**answers, "socketpair": [both]}


def touch_others(pid: int) -> dict[str, str]:
    """What a process may do to another one of its own user."""
    acts: dict[str, Callable[[], object]] = {
        "everybody": lambda: os.kill(-1, 0),
        "own group": lambda: os.kill(0, 0),
        "limits": lambda: resource.prlimit(pid, resource.RLIMIT_CORE),
        "affinity": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        "memory": lambda: open(f"/proc/{pid}/mem", "rb").close(),
        "environment": lambda: Path(f"/proc/{pid}/environ").read_bytes(),
        "command line": lambda: Path(f"/proc/{pid}/cmdline").read_bytes(),
        "working folder": lambda: os.listdir(f"/proc/{pid}/cwd/"),
        "oom score": lambda: Path(f"/proc/{pid}/oom_score_adj").write_text("1000"),
        "pidfd": lambda: _by_pidfd(pid),
        "signal": lambda: os.kill(pid, signal.SIGKILL),
    }
    return {name: attempt(act) for name, act in acts.items()}


def _by_pidfd(pid: int) -> None:
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signal.SIGCONT)
    finally:
        os.close(fd)


def share_memory() -> dict[str, str]:
    """System V objects of the whole host, which nobody would remove."""
    # shmget, semget, msgget; IPC_PRIVATE; IPC_CREAT with all rights.
    numbers = (29, 64, 68) if os.uname().machine == "x86_64" else (194, 190, 186)
    flags = 0o1000 | 0o600
    return {
        "shm": attempt(_system_call, numbers[0], 0, 4096, flags),
        "sem": attempt(_system_call, numbers[1], 0, 1, flags),
        "msg": attempt(_system_call, numbers[2], 0, flags),
    }


def daemon() -> int:
    """Leave a process behind in the ways of old: double fork, session, group; its pid."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.write(write, str(os.getpid()).encode())
            for fd in range(64):
                with contextlib.suppress(OSError):
                    os.close(fd)
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))


def bomb(count: int) -> int:
    """Processes that stay; as many as there may be, but no more than are easily ended."""
    for number in range(count):
        try:
            pid = os.fork()
        except OSError:
            count = number
            break
        if pid == 0:
            os.setsid()
            while True:
                signal.pause()
    Path("forked").write_text(str(count))
    while True:
        signal.pause()


def hold() -> None:
    """Have a tree of one's own, and files; say so, and stay."""
    Path(tempfile.gettempdir(), "left").write_text("behind")
    pid = daemon()
    Path("up.new").write_text(str(pid))
    os.rename("up.new", "up")
    while True:
        signal.pause()


def flood(folders: int) -> str:
    """Leave more in one's temporary folder than is removed in a moment."""
    top = tempfile.gettempdir()
    for number in range(folders):
        os.mkdir(f"{top}/{number}")
    return "flooded"


def litter(canary: str, depth: int) -> str:
    """Leave in every folder of one's own what a careless removal trips over."""
    for top in (tempfile.gettempdir(), os.path.expanduser("~"), "."):
        os.mkdir(f"{top}/closed")
        Path(top, "closed", "inside").touch()
        os.symlink(canary, f"{top}/closed/link")
        os.symlink(canary, f"{top}/link")
        os.symlink(os.path.dirname(canary), f"{top}/folder")
        os.mkfifo(f"{top}/fifo")
        os.chmod(f"{top}/closed", 0)
    here = os.open(".", os.O_PATH)
    os.chdir(tempfile.gettempdir())
    for _ in range(depth):
        os.mkdir("d" * 40)
        os.chdir("d" * 40)
    os.symlink(canary, "link")
    os.fchdir(here)
    return "littered"


# ---------------------------------------------------------------- scenarios: run outside


def run(
    workspace: str,
    handler: Callable[..., Any] | tuple[str, ...],
    arguments: dict[str, Any] | None = None,
    *,
    mode: str = "direct",
    isolation: str = "container",
    **limits: Any,
) -> Any:
    """One call in a jail; its outcome."""
    import trio

    async def main() -> Any:
        return await _call(workspace, handler, arguments or {}, mode, isolation, limits)

    return trio.run(main)


async def _call(
    workspace: str,
    handler: Callable[..., Any] | tuple[str, ...],
    arguments: dict[str, Any],
    mode: Any,
    isolation: Any,
    limits: dict[str, Any],
) -> Any:
    from toolcell_sandbox import CommandHandler, JailSpec, Limits, PythonHandler, run_in_jail
    from toolcell_sandbox.spec import Mount

    spec = JailSpec(
        workspace=workspace,
        workspace_mode=mode,
        isolation=isolation,
        mounts=(Mount(path=_FILE, owned=True),),
        limits=Limits(**({"wall_s": 60} | limits)),
    )
    if isinstance(handler, tuple):
        return await run_in_jail(CommandHandler(argv=handler), spec)
    name = handler.__name__
    python = PythonHandler(
        module="container_attacks", qualname=name, file=_FILE, arguments=arguments
    )
    return await run_in_jail(python, spec)


def told(outcome: Any) -> dict[str, Any]:
    """What a test asks about an outcome."""
    failure = None if outcome.failure is None else outcome.failure.to_json()
    if failure is not None and failure["kind"] == "executor_error":
        print(failure["operator_detail"], file=sys.stderr)
    return {
        "value": outcome.value,
        "exit_code": outcome.exit_code,
        "stdout": outcome.stdout.kept.decode(),
        "error": failure,
        "isolation": outcome.receipt.isolation,
        "held": sorted(outcome.receipt.held),
        "waived": sorted(outcome.receipt.waived),
    }


def unjailed(handler: Callable[..., Any], **arguments: Any) -> Any:
    """The same function in a plain child of this process: the control."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(handler(**arguments)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text)


@contextlib.contextmanager
def victim() -> Iterator[int]:
    """A process that an attack is to leave alone."""
    pid = os.fork()
    if pid == 0:
        os.environ.clear()
        while True:
            signal.pause()
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def others() -> list[int]:
    """Every process in here but the first, this one, and its zygotes; the dead too.

    But for inits that have ended and that their zygote has not yet taken out of the table.
    """
    from toolcell_sandbox import _zygotes

    stay = _zygotes.pids()
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    return [p for p in pids if p not in {1, _OWN, *stay} and not _awaits(p, stay)]


def _awaits(pid: int, reapers: frozenset[int]) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return fields[0] == "Z" and int(fields[1]) in reapers


_OWN = os.getpid()


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it comes to hold in time; what it asks about is another process's doing."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def leftovers() -> list[str]:
    """The private folders of jails that are still there."""
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("toolcell-")]


def _outside(workspace: str, name: str) -> str:
    """A folder beside the workspace, of the same user: the near miss of a prefix too."""
    folder = f"{workspace}-{name}"
    os.makedirs(f"{folder}/folder")
    for file in ("file", "other"):
        Path(folder, file).write_text("secret")
    return folder


def scenario_standard(workspace: str) -> Any:
    outcome = run(workspace, ("touch", "ran"), isolation="standard")
    return {**told(outcome), "ran": os.path.exists(f"{workspace}/ran")}


def scenario_modes(workspace: str) -> Any:
    os.environ["A_SECRET"] = "1"
    Path(workspace, "there").touch()
    found = {}
    for mode in ("read_only", "scratch", "direct"):
        python = run(workspace, look, {"path": "made"}, mode=mode)
        command = run(workspace, ("/bin/sh", "-c", "ls; echo x > by-sh && cat by-sh"), mode=mode)
        found[mode] = [told(python), told(command), sorted(os.listdir(workspace))]
    return found


def scenario_read(workspace: str) -> Any:
    secret = Path(_outside(workspace, "evil"), "file")
    os.symlink(secret, f"{workspace}/link")
    own = os.getpid()
    paths = [
        str(secret),
        f"{workspace}/link",
        f"{workspace}/../{secret.parent.name}/file",
        f"{workspace}//..//{secret.parent.name}//file",
        f"/proc/{own}/environ",
        f"/proc/{own}/cmdline",
        f"/proc/{own}/root{secret}",
        f"/proc/{own}/cwd/{secret.name}",
        "/proc/self/environ",
        "/proc/1/cmdline",
        "/proc/mounts",
    ]
    os.chdir(secret.parent)
    control = unjailed(read_outside, paths=paths)
    outcome = run(workspace, read_outside, {"paths": [*paths, "/proc/1/environ"]})
    return {"control": control, **told(outcome)}


def scenario_change(workspace: str) -> Any:
    control = unjailed(change_outside, folder=_outside(workspace, "control"))
    folder = _outside(workspace, "evil")
    before = os.stat(f"{folder}/file")
    found = told(run(workspace, change_outside, {"folder": folder}))
    after = os.stat(f"{folder}/file")
    same = [
        (s.st_mode, s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_nlink) for s in (before, after)
    ]
    kept = Path(folder, "file").read_text(), sorted(os.listdir(folder))
    own = told(run(workspace, change_outside, {"folder": _inside(workspace)}))
    return {"control": control, **found, "same": same[0] == same[1], "kept": kept, "own": own}


def _inside(workspace: str) -> str:
    folder = _outside(workspace, "x")
    os.rename(folder, f"{workspace}/mine")
    return f"{workspace}/mine"


def scenario_sockets(workspace: str) -> Any:
    control = unjailed(open_sockets, families=4)
    return {"control": control, **told(run(workspace, open_sockets, {"families": 64}))}


def scenario_others(workspace: str) -> Any:
    with victim() as pid:
        found = told(run(workspace, touch_others, {"pid": pid}))
        supervisor = told(run(workspace, touch_others, {"pid": os.getpid()}))
        lives = os.waitpid(pid, os.WNOHANG) == (0, 0)
        control = unjailed(touch_others, pid=pid)
        killed = os.waitpid(pid, 0)[1]
    return {
        "control": control,
        **found,
        "of the supervisor": supervisor["value"],
        "lives": lives,
        "killed": killed,
    }


def scenario_ipc(workspace: str) -> Any:
    return {"control": unjailed(share_memory), **told(run(workspace, share_memory))}


def scenario_daemon(workspace: str) -> Any:
    pid = unjailed(daemon)
    control = os.path.exists(f"/proc/{pid}")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not others())
    found = told(run(workspace, daemon))
    return {"control": control, **found, "left": others()}


def scenario_bomb(workspace: str) -> Any:
    outcome = run(workspace, bomb, {"count": FORKS}, wall_s=4, processes=60)
    # Before anything else has had time to reap them.
    left = others()
    return {**told(outcome), "left": left, "forked": int(Path(workspace, "forked").read_text())}


def _held(workspace: str) -> tuple[int, Callable[[], bool]]:
    """A supervisor of its own with a tree under it; and whether the tree is up."""
    pid = os.fork()
    if pid == 0:
        try:
            run(workspace, hold)
        finally:
            os._exit(1)
    return pid, lambda: os.path.exists(f"{workspace}/up")


def scenario_supervisor(workspace: str) -> Any:
    pid, is_up = _held(workspace)
    up = until(is_up)
    alive, folders = len(others()), len(leftovers())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    gone = until(lambda: not others(), GONE_S)
    folders_gone = until(lambda: not leftovers(), 10)
    return {
        "up": up,
        "alive": alive,
        "folders": folders,
        "gone": gone,
        "folders_gone": folders_gone,
    }


def scenario_init(workspace: str) -> Any:
    """The jail's own init is killed from outside, such as by the kernel for want of memory."""
    import trio

    from toolcell_sandbox import _zygotes

    found: dict[str, Any] = {}
    up = trio.Path(workspace, "up")

    async def kill_it() -> None:
        while not await up.exists():
            await trio.sleep(0.005)
        found["alive"] = len(others())
        (init,) = [pid for pid in others() if _parent(pid) in _zygotes.pids()]
        os.kill(init, signal.SIGKILL)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_it)
            found.update(told(await _call(workspace, hold, {}, "direct", "container", {})))

    trio.run(main)
    # Whoever was killed last is reaped by process 1, in its own time.
    found["gone"] = until(lambda: not others(), GONE_S)
    found["folders_gone"] = until(lambda: not leftovers(), 10)
    return found


def scenario_flood(workspace: str) -> Any:
    """What a supervisor does besides, while what a jail has left is being removed."""
    import trio

    found: dict[str, Any] = {}

    async def tick() -> None:
        before, longest = time.monotonic(), 0.0
        while "error" not in found:
            await trio.sleep(0.001)
            now = time.monotonic()
            longest, before = max(longest, now - before), now
        found["longest_s"] = longest

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            folders = {"folders": FOLDERS}
            found.update(told(await _call(workspace, flood, folders, "direct", "container", {})))

    begun = time.monotonic()
    trio.run(main)
    found["gone"] = until(lambda: not leftovers(), 60)
    found["whole_s"] = time.monotonic() - begun
    return found


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def scenario_litter(workspace: str) -> Any:
    folder = _outside(workspace, "canary")
    canary = f"{folder}/file"
    found = {}
    for mode, depth in (("scratch", DEPTH), ("direct", 10)):
        outcome = run(workspace, litter, {"canary": canary, "depth": depth}, mode=mode)
        gone = until(lambda: not leftovers(), 60)
        here = gone, Path(canary).read_text(), sorted(os.listdir(folder))
        found[mode] = {**told(outcome), "kept": here}
    return found


if __name__ == "__main__":
    print(json.dumps(globals()[f"scenario_{sys.argv[1]}"](os.path.realpath(sys.argv[2]))))
