"""Process 1 of a jail: builds the root, starts the worker, reaps, and takes the tree with it.

When it exits, the kernel kills every process of the pid namespace before the exit is reported
to its parent (pid_namespaces(7)): the end of the init is the proof that the tree is empty. It
runs no code of a handler, holds capabilities that the worker lacks, and cannot be traced.
"""

from __future__ import annotations

import _socket
import contextlib
import os
import select
import signal
import time

from . import mounts, syscalls, worker
from .report import Report, StageFailed, stage
from .state import FENCED, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

FILE_SCAN_S = 0.5
CLOCK_S = 1.0
"""How coarse a file's time stamp may be."""


def main(
    config: dict[str, Any],
    trees: list[mounts.Tree] | None,
    report: Report,
    *,
    ranged: bool,
) -> NoReturn:
    """Run the jail from the inside. Never returns and never raises."""
    try:
        _become(ranged=ranged)
        mounts.build(config, mounts.open_trees(config, None) if trees is None else trees)
        with stage("ipc_private", "hostname"):
            _socket.sethostname("toolcell")
        state = State()
        wakeup = _wake_on_children()
        with stage("tree_killed", "fork"):
            pid = os.fork()
        if pid == 0:
            worker.main(config, report, state, ranged=ranged)
        for name in ("stdin", "stdout", "stderr", "result"):
            os.close(config["fds"][name])
        try:
            _reap(pid, config, report, state, wakeup)
        except Exception as error:
            # A worker of the same uid can lower our limits; one with its own cannot.
            event = "init_broke" if ranged else "init_lost"
            report.send(event, cause=f"{type(error).__name__}: {error}"[:500])
    except StageFailed as error:
        report.send("failed", **error.facts)
    except BaseException as error:
        report.send("init_broke", cause=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(0)


def _become(*, ranged: bool) -> None:
    with stage("fs_confined", "ids"):
        if ranged:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
    with stage("tree_killed", "parent"):
        # After the ids: a change of credentials clears both (prctl(2)).
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _wake_on_children() -> int:
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    # CPython's own handler would let a worker raise KeyboardInterrupt in here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _reap(leader: int, config: dict[str, Any], report: Report, state: State, wakeup: int) -> None:
    """Until the leader ends or nobody is left to want its result."""
    poller = select.poll()
    poller.register(wakeup, select.POLLIN)
    for name in ("liveness", "launcher"):
        poller.register(config["fds"][name], select.POLLIN)
    peak_kib = 0
    started = time.time() - CLOCK_S
    while True:
        for fd, _ in poller.poll():
            if fd != wakeup:
                _end_all(report, peak_kib)
                return
            with contextlib.suppress(BlockingIOError):
                os.read(wakeup, 4096)
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            peak_kib = max(peak_kib, used.ru_maxrss)
            if pid == leader:
                report.send(
                    "ended",
                    status=status,
                    stage=state.stage,
                    fenced=state.has(FENCED),
                    leader_cpu_s=used.ru_utime + used.ru_stime,
                    peak_memory_bytes=peak_kib * 1024,
                    file_at_limit=_file_at_limit(config, status, started),
                )
                return


def _end_all(report: Report, peak_kib: int) -> None:
    """Kill all but this process, and read what they used as they are reaped.

    Left to the kernel they would reap themselves, and what they used would be nobody's
    (pid_namespaces(7)). No fork outruns kill(-1): a process with a signal pending does not fork.
    """
    if os.getpid() != 1:
        return  # Only in a pid namespace of its own does -1 mean the jail.
    with contextlib.suppress(OSError):
        while True:
            os.kill(-1, signal.SIGKILL)
            _, _, used = os.wait4(-1, 0)
            peak_kib = max(peak_kib, used.ru_maxrss)
    report.send("reaped", peak_memory_bytes=peak_kib * 1024)


def _file_at_limit(config: dict[str, Any], status: int, started: float) -> bool:
    """Whether SIGXFSZ came from the kernel: then some file reached the limit (setrlimit(2)).

    Looked for only after that signal, for a bounded time, where the handler could write, among
    what has changed since it started.
    """
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ):
        return False
    fixed = {entry["path"] for entry in config["mounts"] if not entry["writable"]}
    tops = ["/tmp", "/var/tmp", mounts.HOME, "/dev/shm"]
    tops += [entry["path"] for entry in config["mounts"] if entry["writable"]]
    limit, deadline = config["limits"]["file_size_bytes"], time.monotonic() + FILE_SCAN_S
    while tops and time.monotonic() < deadline:
        # A hostile tree may be too deep to name, or vanish: what cannot be read tells nothing.
        with contextlib.suppress(OSError), os.scandir(tops.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in fixed:
                        tops.append(entry.path)
                    continue
                found = entry.stat(follow_symlinks=False)
                if found.st_size >= limit and found.st_ctime >= started:
                    return True
                if time.monotonic() > deadline:
                    return False
    return False
