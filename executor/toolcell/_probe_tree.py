"""Probes of a jail's processes: who outlives it, and whom it can signal."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import signal
import socket
import struct
import sys
from typing import NoReturn

from toolcell._probes import Attempt, attempt, checked, python, seen, syscall, why

_CLONE_PARENT = 0x8000
_SET_CHILD_SUBREAPER = 36
_F_SETSIG, _F_SETOWN_EX, _FIOSETOWN = 10, 15, 0x8901
_HARMLESS = signal.SIGURG
"""Ignored by default: where it does arrive it harms nobody, and the kernel asks the same."""

# A daemon deaf to signals, known from outside by its last word; it says that it is ready.
_DAEMON = """
import os, signal, sys, time
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
os.write(int(sys.argv[1]), b"x")
while True:
    time.sleep(60)
"""


def outlive(mark: str) -> list[Attempt]:
    """tree_killed: daemons, each by another way out, deaf to signals, that hold stdout.

    That they are gone is seen outside: by stdout, which ends only when nobody holds it, and by
    `mark`, which stands in each one's command line.
    """
    ready, said = os.pipe()
    ways = {
        "by setsid and a double fork": _double_fork,
        "in a process group of its own": _own_group,
        "as a child of its parent's parent": _as_a_sibling,
        "below a reaper of its own": _own_reaper,
    }
    found = []
    for way, leave in ways.items():
        tried = f"leave a daemon behind, {way}"
        try:
            leave(said, mark)
        except OSError as error:
            found.append(seen(tried, why(error), broke=False))
            continue
        alive = os.read(ready, 1) == b"x"
        found.append(seen(tried, "it was alive when the handler returned", broke=not alive))
    return found


def _daemon(said: int, mark: str) -> NoReturn:
    os.set_inheritable(said, True)
    try:
        os.execv(sys.executable, python(_DAEMON, str(said), mark))
    finally:
        os._exit(1)


def _double_fork(said: int, mark: str) -> None:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            os.setsid()
        if os.fork() == 0:
            _daemon(said, mark)
        os._exit(0)
    os.waitpid(pid, 0)


def _own_group(said: int, mark: str) -> None:
    if os.fork() == 0:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        _daemon(said, mark)


def _as_a_sibling(said: int, mark: str) -> None:
    if checked(syscall(56, 220, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)) == 0:
        _daemon(said, mark)


def _own_reaper(said: int, mark: str) -> None:
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _double_fork(said, mark)


# ---------------------------------------------------------------- signals


def signals(outsiders: list[int], *, everybody: bool) -> list[Attempt]:
    """signals_scoped: processes outside, by number, in each way that there is.

    `outsiders` are numbers as the host has them. What arrived is seen outside; with `everybody`
    also kill(-1).
    """
    signal.signal(_HARMLESS, signal.SIG_IGN)
    ours = _own_numbers()
    found = []
    for pid in outsiders:
        if pid in ours:
            continue  # In here the number is a process of the jail's own.
        act = functools.partial(os.kill, pid, _HARMLESS)
        found.append(attempt("signal a process outside", act))
    if outsiders and outsiders[0] not in ours:
        pid = outsiders[0]
        found += [
            attempt("queue a signal to it", lambda: _queued(pid)),
            attempt("signal its thread", lambda: checked(syscall(234, 131, pid, pid, _HARMLESS))),
            attempt("signal it by a pidfd", lambda: _by_pidfd(pid)),
            attempt("signal its group", lambda: os.killpg(pid, _HARMLESS)),
            attempt("read its limits", lambda: _limits_of(pid)),
            attempt("slow it down", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)),
        ]
    for way in ("F_SETOWN", "F_SETOWN_EX", "FIOSETOWN"):
        got = _by_owner(way, outsiders)
        found.append(seen(f"have the kernel signal them by {way}", got, broke=False))
    if everybody:
        everyone = attempt("signal everybody", lambda: os.kill(-1, _HARMLESS))
        found.append({**everyone, "broke": False})
    return found


def _own_numbers() -> set[int]:
    """The processes that are to be seen; without /proc at least this one."""
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return {os.getpid()}


def _queued(pid: int) -> int:
    info = struct.pack("=iiii", _HARMLESS, 0, -1, 0) + bytes(112)
    return checked(syscall(129, 138, pid, _HARMLESS, info))


def _by_pidfd(pid: int) -> int:
    fd = os.pidfd_open(pid)
    try:
        return checked(syscall(424, 424, fd, _HARMLESS, 0, 0))
    finally:
        os.close(fd)


def _limits_of(pid: int) -> int:
    return checked(syscall(302, 261, pid, 7, 0, bytes(16)))


def _by_owner(way: str, outsiders: list[int]) -> str:
    """Have SIGIO, as a harmless signal, sent to each; whether it arrives is seen outside."""
    said = "nobody was refused"
    for pid in outsiders:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                fcntl.fcntl(ours, _F_SETSIG, _HARMLESS)
                if way == "F_SETOWN":
                    fcntl.fcntl(ours, fcntl.F_SETOWN, pid)
                elif way == "F_SETOWN_EX":
                    fcntl.fcntl(ours, _F_SETOWN_EX, struct.pack("=ii", 1, pid))
                else:
                    fcntl.ioctl(ours, _FIOSETOWN, struct.pack("=i", pid))
                flags = fcntl.fcntl(ours, fcntl.F_GETFL)
                fcntl.fcntl(ours, fcntl.F_SETFL, flags | os.O_ASYNC)
                theirs.send(b"x")
            except OSError as error:
                said = why(error)
    return said


def listen_for_signals() -> int:
    """A jail beside it, that counts what arrives until its standard input ends."""
    arrived = 0

    def count(number: int, frame: object) -> None:
        nonlocal arrived
        arrived += 1

    signal.signal(_HARMLESS, count)
    os.write(1, b"ready\n")
    while os.read(0, 1):
        pass
    return arrived
