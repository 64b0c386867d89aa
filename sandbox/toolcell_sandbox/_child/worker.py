"""The process that a handler runs in: what it gives up, in this order, before it runs anything.

ids, capabilities, session, signals, umask, limits, no_new_privs, Landlock, seccomp, descriptors.
A later step may rest on an earlier one and never undoes it.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

from . import filters, ids, landlock, mounts, python, rlimits, seccomp, syscalls
from .report import Report, StageFailed, stage
from .state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from typing import Any, NoReturn

RESULT_FD = 3
OWN = ("stdin", "stdout", "stderr", "result", "channel")
"""What only the worker holds, once it runs: its end is then the end of each."""
CHANNEL_FD = RESULT_FD + 1
_LIBRARY_SIGNALS = (32, 33)
"""The C library's own (nptl(7)); a parent can have left them ignored all the same."""
_CLOSE_RANGE_CLOEXEC = 4
# What CPython itself sets up at its start; a command gets the system's defaults for all.
_PYTHON_SIGNALS: tuple[tuple[signal.Signals, Any], ...] = (
    (signal.SIGPIPE, signal.SIG_IGN),
    (signal.SIGXFSZ, signal.SIG_IGN),
    (signal.SIGINT, signal.default_int_handler),
)


def main(
    config: dict[str, Any],
    report: Report,
    state: State,
    listeners: _socket.socket,
    *,
    ranged: bool,
) -> NoReturn:
    """Confine this process, then run the handler. Never returns and never raises.

    `listeners` takes the filter's listener to the init, and is closed.
    """
    code = 1
    try:
        _confine(config, report, listeners, ranged=ranged)
        handler = config["handler"]
        fds = config["fds"]
        if handler["kind"] == "command":
            _execute(handler["argv"], config["env"], fds, report)
        else:
            _place(fds, report)
            _become_python(config)
            code = python.run(handler, RESULT_FD, config["limits"], state)
    except StageFailed as error:
        report.send("failed", **error.facts)
    except BaseException as error:
        # Ours, or a handler that broke our own runner: both are told by the exit code alone.
        report.send("worker_broke", cause=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(code)


def _confine(
    config: dict[str, Any], report: Report, listeners: _socket.socket, *, ranged: bool
) -> None:
    has_namespaces = config["way"] == "namespaces"
    with stage("no_new_privileges", "ids"):
        syscalls.drop_bounding_set(may_be_refused=not has_namespaces)
        if ranged:
            os.setgroups([])
            os.setresgid(ids.WORKER_ID, ids.WORKER_ID, ids.WORKER_ID)
            os.setresuid(ids.WORKER_ID, ids.WORKER_ID, ids.WORKER_ID)
    with stage("no_new_privileges", "capabilities"):
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    with stage("memory_limited", "oom_score_adj"):
        rlimits.raise_oom_score(1000)
    with stage("ipc_private", "keyring"):
        syscalls.forget_session_keyring(may_be_refused=not has_namespaces)
    with stage("tree_killed", "session"):
        if has_namespaces:
            os.setsid()
        _reset_signals(is_python=config["handler"]["kind"] == "python")
        os.umask(0o022)
    with stage("cpu_limited", "rlimits"):
        # The init shares the worker's uid unless the jail has ids of its own.
        others = config["other_processes"] if not has_namespaces else 0 if ranged else 1
        rlimits.apply(config["limits"], extra_processes=others)
    _change_folder(config, report)
    # Now: /proc may be out of reach in a moment.
    config["limits"]["mapped_bytes"] = rlimits.mapped_bytes()
    with stage("no_new_privileges", "no_new_privs"):
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if config["landlock_abi"]:
        with stage("fs_confined", "landlock"):
            connect = config["network"] != "none"
            landlock.restrict(_reach(config), config["landlock_abi"], connect=connect)
    with stage("syscalls_filtered", "seccomp"):
        _filter(config, report, listeners)


def _change_folder(config: dict[str, Any], report: Report) -> None:
    try:
        os.chdir(config["cwd"])
    except OSError as error:
        # The caller's choice, unless it is the workspace itself, which has to be there.
        if config["cwd"] != config["workspace"]:
            report.send("no_folder", errno=error.errno)
            os._exit(1)
        with stage("fs_confined", "cwd"):
            raise


def _reach(config: dict[str, Any]) -> list[tuple[str | int, int]]:
    """What is seen may be read, and what is the jail's own be written: the second fence.

    Where there is no private root it is the first, and made of what was opened beforehand.
    """
    if config["way"] == "process_group":
        return list(config["reach"])
    return [
        ("/", landlock.READ),
        *((f"/dev/{name}", landlock.DEVICE) for name in mounts.DEVICES),
        *((path, landlock.WRITE) for path in mounts.writable(config)),
    ]


def _filter(config: dict[str, Any], report: Report, listeners: _socket.socket) -> None:
    """Filter the system calls of this process and all that come of it."""
    if config["filter"] == "mode_bits":
        filters.install(filters.MODE_BITS)
    else:
        machine = syscalls.platform_machine()
        wanted = {"way": config["way"], "network": config["network"]}
        told = seccomp.program(machine, kill=seccomp.USER_NOTIF, **wanted)
        try:
            listener = seccomp.install(told, listener=True)
        except OSError as error:
            # There is one listener at most above a process, some kernels know of none: then the
            # kernel kills by itself, and nobody is told for which call (seccomp(2)).
            if error.errno not in (errno.EBUSY, errno.EINVAL):
                raise
            told = seccomp.program(machine, kill=seccomp.KILL_PROCESS, **wanted)
            seccomp.install(told, listener=False)
            report.send("unheard")
        else:
            assert listener is not None
            syscalls.send_fd(listeners, listener)
            os.close(listener)
    listeners.close()


def _reset_signals(*, is_python: bool) -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    for internal in _LIBRARY_SIGNALS:
        syscalls.reset_signal(internal)
    if is_python:
        for number, action in _PYTHON_SIGNALS:
            signal.signal(number, action)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _place(fds: dict[str, int], report: Report) -> None:
    """Leave exactly 0, 1, 2, the result's pipe at 3, and a channel at 4 where there is one.

    The report ends here.
    """
    with stage("fds_closed", "descriptors"):
        high = {name: _above(fds[name]) for name in OWN if name in fds}
        report.fd = _above(report.fd)
        report.send("confined")
        for place, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(high[name], place, inheritable=True)
        os.dup2(high["result"], RESULT_FD, inheritable=False)
        if "channel" in high:
            os.dup2(high["channel"], CHANNEL_FD, inheritable=False)
        syscalls.close_range(CHANNEL_FD + ("channel" in high))


def _become_python(config: dict[str, Any]) -> None:
    """The handler's environment, and its interpreter's names, in place of the launcher's."""
    os.environ.clear()
    os.environ.update(config["env"])
    sys.executable, sys.prefix, sys.exec_prefix = config["python"]


def _execute(argv: list[str], env: dict[str, str], fds: dict[str, int], report: Report) -> None:
    with stage("fds_closed", "descriptors"):
        high = {name: _above(fds[name]) for name in ("stdin", "stdout", "stderr")}
        report.fd = _above(report.fd)
        for place, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(high[name], place, inheritable=True)
        syscalls.close_range(3, flags=_CLOSE_RANGE_CLOEXEC)
        report.send("confined")
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        report.send("exec_failed", errno=error.errno)


def let_go(fds: dict[str, int]) -> None:
    """Close what only the worker should hold, in a process that is not it."""
    for name in OWN:
        if name in fds:
            os.close(fds[name])


def _above(fd: int) -> int:
    """The same open file at a number out of the way of 0 to 3."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16)
