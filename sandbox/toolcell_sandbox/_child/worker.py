"""The process that a handler runs in: what it gives up, in this order, before it runs anything.

ids, capabilities, session, signals, umask, limits, no_new_privs, Landlock, seccomp, descriptors.
A later step may rest on an earlier one and never undoes it. All but the last are taken before the
call is known: a call reaches a process that has given up the rest already.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes an enum of every number
import _socket
import errno
import fcntl
import os
import signal
import sys
import time

from . import (
    filters,
    ids,
    landlock,
    links,
    mounts,
    python,
    rlimits,
    seccomp,
    syscalls,
)
from .report import Report, StageFailed, stage
from .state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

ROOT = b"r"
"""The jail's root stands, but for what a call decides."""
GO = b"g"
"""All is there for the call, whose name follows."""
_WORD_BYTES = 64
# Texts that are made ahead, and not in each worker: what it touches is copied.
_READY = links.pack({"event": "ready"})
_ORDER = links.pack({"handler": {"arguments": {"a": [1, None]}}, "env": {"HOME": "/"}})
_CONFINED = b'{"event":"confined","at_s":%f}'
RESULT_FD = 3
CHANNEL_FD = RESULT_FD + 1
STREAMS = ("stdin", "stdout", "stderr")
# What CPython itself sets up at its start; a command gets the system's defaults for all.
_PYTHON_SIGNALS: tuple[tuple[int, Any], ...] = (
    (int(signal.SIGPIPE), _signal.SIG_IGN),
    (int(signal.SIGXFSZ), _signal.SIG_IGN),
    (int(signal.SIGINT), _signal.default_int_handler),
)


def main(
    config: dict[str, Any],
    report: Report,
    state: State,
    init: _socket.socket,
    *,
    ranged: bool,
) -> NoReturn:
    """Confine this process, then wait for a call and run it. Never returns and never raises.

    `init` takes the filter's listener to the init, which says over it when the root stands, and
    when it is whole. It and the report's link are out of the way of a handler's files.
    """
    code = 1
    try:
        _give_up(config, ranged=ranged)
        python.begin(state)
        if init.recv(1) != ROOT:
            os._exit(1)
        late = _fence(config, report, init)
        report.say(_READY)
        if not links.is_told(report.link, links.SOON_MS):
            _warm_up(config)
        call, files = links.receive(report.link)
        if call is None:
            os._exit(0)
        handler = call["handler"]
        is_command = handler["kind"] == "command"
        first = _place(dict(zip(call["files"], files, strict=True)), is_command=is_command)
        if not is_command:
            _become_python(config, call["env"])
        # What is above rests on no root that is whole, and is done while the init completes it.
        word = init.recv(_WORD_BYTES)
        if not word:
            os._exit(1)
        if word != GO + call["order"].encode():
            raise ValueError("the init was told of another call")
        _change_folder(call["cwd"], config["workspace"], report)
        if late is not None:
            with stage("fs_confined", "landlock"):
                late.grant((path, landlock.WRITE) for path in mounts.writable_late(config))
                late.restrict()
        if is_command:
            _execute(handler["argv"], call["env"], report)
        else:
            with stage("fds_closed", "descriptors"):
                report.say(_CONFINED % time.monotonic())
                # The report ends here.
                syscalls.close_range(first)
            limits = {**config["limits"], "wall_s": call["wall_s"]}
            code = python.run(handler, RESULT_FD, limits, state)
    except StageFailed as error:
        report.send("failed", **error.facts)
    except BaseException as error:
        # Ours, or a handler that broke our own runner: both are told by the exit code alone.
        report.send("worker_broke", cause=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(code)


def _give_up(config: dict[str, Any], *, ranged: bool) -> None:
    """Give up what a handler must not have, as far as that rests on no root."""
    has_namespaces = config["way"] == "namespaces"
    with stage("no_new_privileges", "ids"):
        if not config.get("is_bounded"):
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
        _reset_signals()
        os.umask(0o022)
    with stage("cpu_limited", "rlimits"):
        # The init shares the worker's uid unless the jail has ids of its own.
        others = config["other_processes"] if not has_namespaces else 0 if ranged else 1
        rlimits.apply(config["limits"], extra_processes=others)
    # Now: /proc may be out of reach in a moment.
    if "mapped_bytes" not in config["limits"]:
        config["limits"]["mapped_bytes"] = rlimits.mapped_bytes()
    with stage("no_new_privileges", "no_new_privs"):
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def _fence(config: dict[str, Any], report: Report, init: _socket.socket) -> landlock.Ruleset | None:
    """Bound what the root shows and the kernel does; what is returned is left for the call.

    That is the one step that rests on a workspace which is not there yet.
    """
    late: landlock.Ruleset | None = None
    if config["landlock_abi"]:
        with stage("fs_confined", "landlock"):
            connect = config["network"] != "none"
            rules = landlock.Ruleset(config["landlock_abi"], connect=connect)
            rules.grant(_reach(config))
            above = mounts.above_late(config)
            rules.grant((path, landlock.WRITE) for path in above or ())
            if above is None:
                late = rules
            else:
                rules.restrict()
    for place in config.get("reach", ()):
        os.close(place[0])
    with stage("syscalls_filtered", "seccomp"):
        _filter(config, report, init)
    return late


def _warm_up(config: dict[str, Any]) -> None:
    """Go the way of a call once: what it touches first is then no longer to be copied."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    links.send(ours, _ORDER, [0])
    call, (fd,) = links.receive(theirs)
    for file in (ours, theirs):
        file.close()
    os.close(fd)
    assert call is not None, "it was sent"
    _become_python(config, call["env"])
    python.rehearse(config["limits"])


def _change_folder(folder: str, workspace: str, report: Report) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        # The caller's choice, unless it is the workspace itself, which has to be there.
        if folder != workspace:
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
        *((path, landlock.DEVICE) for path in mounts.devices(config)),
        *((path, landlock.WRITE) for path in mounts.writable_now(config)),
    ]


def _filter(config: dict[str, Any], report: Report, init: _socket.socket) -> None:
    """Filter the system calls of this process and all that come of it."""
    if config["filter"] == "mode_bits":
        filters.install(filters.MODE_BITS)
        return
    wanted = config["way"], config["network"]
    try:
        listener = seccomp.install(
            seccomp.assembled(*wanted, kill=seccomp.USER_NOTIF), listener=True
        )
    except OSError as error:
        # There is one listener at most above a process, some kernels know of none: then the
        # kernel kills by itself, and nobody is told for which call (seccomp(2)).
        if error.errno not in (errno.EBUSY, errno.EINVAL):
            raise
        told = seccomp.assembled(*wanted, kill=seccomp.KILL_PROCESS)
        seccomp.install(told, listener=False)
        report.send("unheard")
    else:
        assert listener is not None
        syscalls.send_fd(init, listener)
        os.close(listener)


def _reset_signals() -> None:
    """As CPython starts; the zygote has seen to all that are not ours."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    for number, action in _PYTHON_SIGNALS:
        _signal.signal(number, action)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _place(fds: dict[str, int], *, is_command: bool) -> int:
    """Put the call's files where its handler expects them: the first number that is not one's.

    0, 1, 2, for Python the result's pipe at 3, and a channel at 4 where there is one.
    """
    with stage("fds_closed", "descriptors"):
        high = {
            name: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, links.HIGH) for name, fd in fds.items()
        }
        for place, name in enumerate(STREAMS):
            os.dup2(high[name], place, inheritable=True)
        if is_command:
            return RESULT_FD
        os.dup2(high["result"], RESULT_FD, inheritable=False)
        if "channel" not in high:
            return CHANNEL_FD
        os.dup2(high["channel"], CHANNEL_FD, inheritable=False)
        return CHANNEL_FD + 1


def _become_python(config: dict[str, Any], env: dict[str, str]) -> None:
    """The handler's environment, and its interpreter's names, in place of the zygote's."""
    if os.environ:
        os.environ.clear()
    for name, value in env.items():
        os.environ[name] = value
    sys.executable, sys.prefix, sys.exec_prefix = config["python"]


def _execute(argv: list[str], env: dict[str, str], report: Report) -> None:
    for number, _ in _PYTHON_SIGNALS:
        _signal.signal(number, _signal.SIG_DFL)
    with stage("fds_closed", "descriptors"):
        # Not only at the exec, which opens what is named there first.
        syscalls.close_all_but(report.link.fileno())
        report.say(_CONFINED % time.monotonic())
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        report.send("exec_failed", errno=error.errno)
