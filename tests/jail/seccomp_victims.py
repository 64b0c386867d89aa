"""Processes that install the real filter and try: `python -I -S seccomp_victims.py SANDBOX`.

Reads a job in JSON from stdin and writes what it saw to stdout; with an argv of its own it
filters itself and becomes that program. One thread, no trio, so that it may fork.
"""

from __future__ import annotations

import array
import ctypes
import errno
import functools
import json
import mmap
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

sys.path.insert(0, sys.argv[1])

from toolcell_sandbox._child import seccomp, syscall_table, syscalls

MACHINE = os.uname().machine
COLUMN = 1 if MACHINE == "x86_64" else 2
LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER_AND_MOUNTS = 0x10000000 | 0x00020000

# mov eax, NUMBER; mov ebx, ARGUMENT; int 0x80 (i386) or syscall (x32); ret; with rbx kept.
FOREIGN = {"i386": b"\xcd\x80", "x32": b"\x0f\x05"}


def number_of(name: str) -> int:
    for row in syscall_table.rows("namespaces", "none"):
        if row[0] == name:
            found = row[COLUMN]
            assert isinstance(found, int), name
            return found
    raise KeyError(name)


def call(what: str | int, *arguments: int | str) -> int:
    """What the kernel returns: -errno, or a result. Strings become pointers."""
    number = what if isinstance(what, int) else number_of(what)
    kept = [ctypes.create_string_buffer(a.encode()) for a in arguments if isinstance(a, str)]
    pointers = iter(ctypes.addressof(buffer) for buffer in kept)
    wide = [a if isinstance(a, int) else next(pointers) for a in arguments]
    mask = (1 << 64) - 1
    registers = [ctypes.c_ulong(a & mask) for a in (*wide, *(0,) * (6 - len(wide)))]
    LIBC.syscall.restype = ctypes.c_long
    result = int(LIBC.syscall(ctypes.c_long(number), *registers))
    return -ctypes.get_errno() if result == -1 else result


def foreign(machine: str, number: int, argument: int = 0) -> int:
    """A call as another machine makes it; what it returns."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    save, restore = b"\x53", b"\x5b\xc3"
    load = b"\xb8" + number.to_bytes(4, "little") + b"\xbb" + argument.to_bytes(4, "little")
    code.write(save + load + FOREIGN[machine] + restore)
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(at)())


def confine(job: dict[str, Any], *, listener: bool = False) -> int | None:
    """Filter this process as the job says."""
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    kill = seccomp.USER_NOTIF if listener else seccomp.KILL_PROCESS
    code = seccomp.program(MACHINE, way=job["way"], network=job["network"], kill=kill)
    return seccomp.install(seccomp.Filter(code), listener=listener)


def forked(act: Callable[[], Any]) -> Any:
    """What `act` returns in a child, or by which signal it died."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            os.write(write, json.dumps(act()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return json.loads(said) if status == 0 else {"signal": -status}


def tried(job: dict[str, Any]) -> list[list[Any]]:
    """Each call twice, each time in a process of its own: without the filter, and with it."""

    def act(name: str | int, arguments: list[int | str], *, filtered: bool) -> int:
        if job.get("space"):
            syscalls.unshare(NEW_USER_AND_MOUNTS)
        if filtered:
            confine(job)
        own = [os.getpid() if a == "PID" else a for a in arguments]
        return call(name, *own)

    answers = []
    for name, arguments in job["calls"]:
        controls = [] if job.get("only_filtered") else [False]
        answers.append(
            [
                forked(functools.partial(act, name, arguments, filtered=filtered))
                for filtered in (*controls, True)
            ]
        )
    return answers


# ---------------------------------------------------------------- threads


def threads(job: dict[str, Any]) -> dict[str, Any]:
    """The same call in a thread made before the filter, in one made after, and in the main one."""
    go, seen = threading.Event(), {}

    def ask(who: str) -> None:
        seen[who] = call("personality", 0x40000)

    def early() -> None:
        seen["without"] = call("personality", 0xFFFFFFFF)
        ready.set()
        go.wait()
        ask("before")

    ready = threading.Event()
    first = threading.Thread(target=early)
    first.start()
    ready.wait()
    confine(job, listener=job["listener"])
    go.set()
    first.join()
    last = threading.Thread(target=ask, args=("after",))
    last.start()
    last.join()
    ask("main")
    return seen


# ---------------------------------------------------------------- foreign calls


def _call_foreign(job: dict[str, Any]) -> Any:
    number = job.get("number", 20)
    where = job.get("where", "process")
    if where == "thread":
        thread = threading.Thread(target=foreign, args=(job["foreign"], number))
        thread.start()
        thread.join()
        return "lived"
    if where == "grandchild":
        return forked(lambda: foreign(job["foreign"], number))
    return foreign(job["foreign"], number)


def unwatched(job: dict[str, Any]) -> Any:
    """A foreign call without filter, then with a filter that kills by itself."""

    def act() -> Any:
        confine(job)
        return _call_foreign(job)

    def control() -> Any:
        return "ran" if _call_foreign(job) == os.getpid() else "not on this kernel"

    return {"without": forked(control), "with": forked(act)}


def watched(job: dict[str, Any]) -> dict[str, Any]:
    """As an init: take the worker's listener, wait for a call, end its caller."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            listener = confine(job, listener=True)
            assert listener is not None
            rights = array.array("i", [listener])
            theirs.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            os.close(listener)
            ours.close()
            theirs.close()
            if job.get("own_filter"):
                allow_all()
            _call_foreign(job)
            code = 0
        finally:
            os._exit(code)
    theirs.close()
    _, control, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    listener = int.from_bytes(control[0][2][:4], sys.byteorder)
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    poller.poll()
    blocked = seccomp.receive(listener)
    assert blocked is not None
    waits = seccomp.still_waits(listener, blocked)
    process = process_of(blocked.pid)
    seccomp.end_caller(listener, blocked)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seccomp.end_caller(listener, blocked)
    return {
        "call": blocked.call,
        "machine": blocked.machine,
        "is_leader": process == pid,
        "is_main_thread": blocked.pid == process,
        "waits": waits,
        "waits_after": seccomp.still_waits(listener, blocked),
        "status": status,
        "hangs_up": bool(poller.poll()[0][1] & select.POLLHUP),
        "then": seccomp.receive(listener),
    }


def process_of(thread: int) -> int:
    """The process that a thread belongs to."""
    with open(f"/proc/{thread}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Tgid:"))


def allow_all() -> None:
    """A handler's own filter, the loosest there is."""
    seccomp.install(seccomp.Filter([(0x06, 0, 0, syscall_table.ALLOW)]), listener=False)


def interrupted(job: dict[str, Any]) -> Any:
    """A foreign umask(0o77) that nobody reads, broken off by a signal; then the umask."""

    def act() -> dict[str, Any]:
        os.umask(0o22)
        signal.signal(signal.SIGALRM, lambda *_: None)
        if job["listener"]:
            confine(job, listener=True)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        returned = foreign("i386", 60, 0o77)
        return {"returned": returned, "umask": os.umask(0)}

    return forked(act)


def signalled(job: dict[str, Any]) -> dict[str, Any]:
    """As an init: read a call that asks, let a signal come to its caller, and answer after it."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            signal.signal(signal.SIGUSR1, lambda *_: None)
            signal.siginterrupt(signal.SIGUSR1, True)
            listener = confine(job, listener=True)
            assert listener is not None
            rights = array.array("i", [listener])
            theirs.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            code = -call("fchmod", 0, 0o600)
        finally:
            os._exit(code)
    _, control, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    listener = int.from_bytes(control[0][2][:4], sys.byteorder)
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    poller.poll()
    blocked = seccomp.receive(listener)
    assert blocked is not None
    os.kill(pid, signal.SIGUSR1)
    mask = 1 << signal.SIGUSR1 - 1
    while not pending(pid) & mask and seccomp.still_waits(listener, blocked):
        os.sched_yield()
    seen = {"call": blocked.call, "waits": seccomp.still_waits(listener, blocked)}
    seccomp.answer(listener, blocked, errno.EXDEV)
    return seen | {"answer": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


def pending(pid: int) -> int:
    """The signals that a process has not taken yet (proc_pid_status(5))."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("ShdPnd:"))


def second_listener(job: dict[str, Any]) -> dict[str, Any]:
    """A jail in a jail: its own listener, then the filter without one."""

    def act() -> dict[str, Any]:
        confine(job, listener=True)
        seen = {}
        try:
            confine(job, listener=True)
        except OSError as error:
            seen["listener"] = errno.errorcode[error.errno or 0]
        confine(job)
        return seen | {"mode": call("prctl", 21), "dies": forked(lambda: foreign("i386", 20))}

    return dict(forked(act))


def own_fences(job: dict[str, Any]) -> dict[str, Any]:
    """A handler that allows itself everything, then less."""

    def act() -> dict[str, Any]:
        confine(job)
        before = call("personality", 0x40000)
        allow_all()
        loosened = call("personality", 0x40000)
        getppid = number_of("getppid")
        refused = syscall_table.refuse(errno.EPROTO)
        tighter = [
            (0x20, 0, 0, 0),
            (0x15, 0, 1, getppid),
            (0x06, 0, 0, refused),
            (0x06, 0, 0, syscall_table.ALLOW),
        ]
        seccomp.install(seccomp.Filter(tighter), listener=False)
        landlock = call("landlock_create_ruleset", 0, 0, 1)
        return {
            "before": before,
            "loosened": loosened,
            "tightened": call("getppid"),
            "landlock": landlock,
        }

    return dict(forked(act))


# ---------------------------------------------------------------- without namespaces


def group(job: dict[str, Any]) -> list[Any]:
    """Session, group and signals, without the filter and with it."""

    def act(*, filtered: bool) -> dict[str, Any]:
        os.setpgid(0, 0)
        own = os.getpgid(0)
        if filtered:
            confine(job)
        child = os.fork()
        if child == 0:
            session, moved = call("setsid"), call("setpgid", 0, 0)
            os._exit(0 if os.getpgid(0) == own and (session, moved) == (0, 0) else 7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # Signal 0 only asks whether it could be sent.
        return {
            "stayed": code == 0,
            "group": call("kill", 0, 0),
            "named": call("kill", -own, 0),
            "self": call("kill", os.getpid(), 0),
        }

    return [forked(functools.partial(act, filtered=filtered)) for filtered in (False, True)]


JOBS: dict[str, Callable[[dict[str, Any]], Any]] = {
    act.__name__: act
    for act in (
        *(tried, threads, unwatched, watched, interrupted, second_listener, own_fences),
        *(group, signalled),
    )
}


def main() -> None:
    """One job from stdin, or a program by argv: WAY NETWORK PROGRAM ARGUMENT..."""
    if len(sys.argv) > 2:
        way, network, *argv = sys.argv[2:]
        confine({"way": way, "network": network})
        os.execvp(argv[0], argv)
    job = json.load(sys.stdin)
    json.dump(JOBS[job["do"]](job), sys.stdout)


if __name__ == "__main__":
    main()
