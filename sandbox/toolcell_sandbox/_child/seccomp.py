"""The table of system calls as a seccomp-BPF program, and what init sees of a call to be killed.

The program asks for the architecture, then searches the number in halves: the kernel keeps the
calls that are always allowed in a bitmap and does not run it for these at all (Linux 5.11).

A call by another architecture (i386, x32, aarch32) must kill its process. SIGSYS would not say
which call it was, so the program hands it to a listener: it waits there, outside, until it is
read and its process killed. It never runs: nobody ever answers it, and without a listener it
fails (seccomp_unotify(2)).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

from . import syscall_table, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .syscall_table import Verdict

    # Instructions of classic BPF: code, jump if true, jump if false, value.
    Program = list[tuple[int, int, int, int]]

KILL_PROCESS = 0x8000_0000
USER_NOTIF = 0x7FC0_0000
"""SECCOMP_RET_KILL_PROCESS and SECCOMP_RET_USER_NOTIF: what `kill` can be."""

# struct seccomp_notif and the ioctls on a listener (include/uapi/linux/seccomp.h).
SECCOMP_IOCTL_NOTIF_RECV = 0xC050_2100
SECCOMP_IOCTL_NOTIF_SEND = 0xC018_2101
SECCOMP_IOCTL_NOTIF_ID_VALID = 0x4008_2102
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")

_SET_MODE_FILTER = 1
_TSYNC, _NEW_LISTENER, _TSYNC_ESRCH = 1, 8, 16
_WAIT_KILLABLE_RECV = 32
"""A call that was read is broken off by no signal but a deadly one (Linux 5.19): chmod(2) and its
kin never answer EINTR, and programs do not expect it."""

_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_MACHINES = {
    0xC000_003E: "x86_64",
    0x4000_0003: "i386",
    0xC000_00B7: "aarch64",
    0x4000_0028: "aarch32",
}
_X32_BIT, _NEGATIVE = 0x4000_0000, 0x8000_0000
_PIDFD_THREAD = os.O_EXCL
_SHARED_FROM = 424
"""From here on all architectures share their numbers."""

_LOAD, _AND, _GO, _RETURN = 0x20, 0x54, 0x05, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
# struct seccomp_data: nr, arch, instruction_pointer, args[6]; little-endian, low halves first.
_NR, _ARCH, _ARGS = 0, 4, 16


def program(machine: str, *, way: str, network: str, kill: int) -> Program:
    """The filter for a machine, a way to hold a jail, a network, and what is done to kill.

    Raises:
        UnsupportedMachine: Neither x86_64 nor aarch64.
        ValueError: There is no table for this way and network.
    """
    if machine not in _AUDIT_ARCH:
        raise syscalls.UnsupportedMachine(f"no system call table for {machine}")
    column = 1 if machine == "x86_64" else 2
    known: dict[int, Verdict] = {}
    for row in syscall_table.rows(way, network):
        number = row[column]
        if isinstance(number, int):
            unheard = row[3] == syscall_table.ASK and kill != USER_NOTIF
            known[number] = syscall_table.EPERM if unheard else row[3]
    runs: list[tuple[int, Verdict]] = []
    following = 0
    for number in sorted(known):
        if number > following:
            _extend(runs, following, syscall_table.ENOSYS)
        _extend(runs, number, known[number])
        following = number + 1
    _extend(runs, following, syscall_table.ENOSYS)
    if machine == "x86_64":
        # -1 has the bit too, and is no call of x32: it is what a tracer leaves of a skipped one.
        runs += [(_X32_BIT, kill), (_NEGATIVE, syscall_table.ENOSYS)]
    native: Program = [(_LOAD, 0, 0, _NR), *_search(runs, 0, len(runs))]
    return [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, kill),
        *native,
    ]


def _extend(runs: list[tuple[int, Verdict]], start: int, verdict: Verdict) -> None:
    if not runs or runs[-1][1] != verdict:
        runs.append((start, verdict))


def _search(runs: list[tuple[int, Verdict]], low: int, high: int) -> Program:
    """A binary search among runs of numbers that share a verdict; each is found at its leaf."""
    if high - low == 1:
        return _decide(runs[low][1])
    middle = (low + high) // 2
    above, below = _search(runs, middle, high), _search(runs, low, middle)
    return _branch(_AT_LEAST, runs[middle][0], above, below)


def _decide(verdict: Verdict) -> Program:
    if isinstance(verdict, int):
        return [(_RETURN, 0, 0, verdict)]
    place, mask, values, then, otherwise = verdict
    code: Program = [(_LOAD, 0, 0, _ARGS + 8 * place)]
    yes, no = _decide(then), _decide(otherwise)
    if not values:
        return [*code, *_branch(_ANY_BIT, mask, yes, no)]
    if mask != syscall_table.ALL:
        code.append((_AND, 0, 0, mask))
    last = _branch(_EQUAL, values[-1], yes, no)
    # Each earlier value jumps over the later ones, and over the last one's own branch, to `yes`.
    over = len(last) - len(yes) - len(no)
    for place_of, value in enumerate(values[:-1]):
        code.append((_EQUAL, len(values) - 2 - place_of + over, 0, value))
    return [*code, *last]


def _branch(test: int, value: int, yes: Program, no: Program) -> Program:
    """If, then, else. A conditional jump is eight bits wide, the plain one 32."""
    if len(yes) < 256:
        return [(test, 0, len(yes), value), *yes, *no]
    return [(test, 1, 0, value), (_GO, 0, 0, len(yes)), *yes, *no]


class Filter:
    """A program as the kernel takes it (struct sock_fprog)."""

    def __init__(self, program: Program) -> None:
        steps = b"".join(struct.pack("=HBBI", *step) for step in program)
        # The header has its address: it must stay where it lies.
        self._steps = ctypes.create_string_buffer(steps, len(steps))
        self.header = struct.pack("@HP", len(program), ctypes.addressof(self._steps))


@functools.cache
def assembled(way: str, network: str, *, kill: int) -> Filter:
    """The filter for this machine: asked for once ahead of a fork, it is the child's as well."""
    return Filter(program(syscalls.platform_machine(), way=way, network=network, kill=kill))


def install(program: Filter, *, listener: bool) -> int | None:
    """Filter every thread of this process and all that come of it; needs no_new_privs.

    All threads or none (TSYNC): where one holds another filter, ESRCH. The listener's descriptor
    must leave this process before anything untrusted runs in it: who holds it can answer.

    Raises:
        OSError: EBUSY where a filter with a listener is in force already; there can be one.
    """
    if listener:
        flags = _TSYNC | _NEW_LISTENER | _TSYNC_ESRCH
        try:
            return _set_filter(flags | _WAIT_KILLABLE_RECV, program)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return _set_filter(flags, program)
    result = _set_filter(_TSYNC, program)
    if result:
        raise OSError(errno.ESRCH, f"thread {result} cannot be filtered", "seccomp")
    return None


def _set_filter(flags: int, program: Filter) -> int:
    return syscalls.syscall("seccomp", _SET_MODE_FILTER, flags, program.header)


@functools.cache
def _names(column: int) -> dict[int | None, str]:
    rows = syscall_table.rows("namespaces", "none")
    return {row[1] if column == 1 else row[2]: row[0] for row in rows}


class Blocked:
    """A call that waits at the listener: the kernel will never run it."""

    __slots__ = ("arguments", "id", "machine", "number", "pid")

    def __init__(
        self, id: int, pid: int, arch: int, number: int, arguments: tuple[int, ...] = ()
    ) -> None:
        self.id = id
        # As in the registers: 64 bits each, whatever the call's own types are.
        self.arguments = arguments
        # Of the calling thread, as the reader's pid namespace numbers it.
        self.pid = pid
        # x86_64, i386, x32, aarch64, aarch32, or the number in <linux/audit.h>.
        self.machine = _MACHINES.get(arch, hex(arch))
        self.number = number
        if self.machine == "x86_64" and number & _X32_BIT:
            self.machine, self.number = "x32", number & ~_X32_BIT

    @property
    def is_native(self) -> bool:
        """Whether it is a call of this machine's own: one that asks, not one to be killed for."""
        return self.machine == syscalls.platform_machine()

    @property
    def call(self) -> str:
        """The call's name as far as our table tells, else its number on that machine."""
        column = {"x86_64": 1, "x32": 1, "aarch64": 2}.get(self.machine)
        if column is None and self.number >= _SHARED_FROM:
            column = 1
        known = _names(column) if column else {}
        return known.get(self.number, str(self.number))


def receive(listener_fd: int) -> Blocked | None:
    """The next call that waits, never blocking: None where none does, or its process is gone.

    For the one reader of a listener. POLLHUP on it means that the last filtered process has
    ended: poll it no longer.
    """
    import fcntl
    import select

    poller = select.poll()
    poller.register(listener_fd, select.POLLIN)
    if not any(events & select.POLLIN for _, events in poller.poll(0)):
        return None
    notification = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener_fd, SECCOMP_IOCTL_NOTIF_RECV, notification)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    id, pid, _, number, arch, _, *arguments = _NOTIFICATION.unpack(notification)
    return Blocked(id, pid, arch, number, tuple(arguments))


def answer(listener_fd: int, blocked: Blocked, number: int) -> None:
    """Let the caller go on, with 0 or an errno for its answer; one that is gone needs none."""
    import fcntl

    # struct seccomp_notif_resp: id, val, error, flags.
    told = struct.pack("=QqiI", blocked.id, 0, -number, 0)
    try:
        fcntl.ioctl(listener_fd, SECCOMP_IOCTL_NOTIF_SEND, told)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def end_caller(listener_fd: int, blocked: Blocked) -> None:
    """Kill the whole process that makes the call, and surely no other that has its pid by now.

    First a descriptor of whatever has the pid, then the question whether the call still waits:
    if it does, the descriptor is its caller's (pidfd_open(2), seccomp_unotify(2)).
    """
    import signal

    try:
        fd = os.pidfd_open(blocked.pid, _PIDFD_THREAD)
    except ProcessLookupError:
        return
    except OSError as error:
        # Before Linux 6.9 there is no such flag, and no pidfd of a thread that leads no process.
        if error.errno != errno.EINVAL:
            raise
        if still_waits(listener_fd, blocked):
            os.kill(blocked.pid, signal.SIGKILL)
        return
    try:
        if still_waits(listener_fd, blocked):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def still_waits(listener_fd: int, blocked: Blocked) -> bool:
    """Whether the call waits yet: if not, its pid may be another process's by now."""
    import fcntl

    try:
        fcntl.ioctl(listener_fd, SECCOMP_IOCTL_NOTIF_ID_VALID, struct.pack("=Q", blocked.id))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    return True
