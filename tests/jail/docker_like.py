"""A host as in a Docker container by default: `python docker_like.py [OFF...] PROGRAM ARG...`.

       caller ── unshare ──► 1: reaps, alone ── fork ──► PROGRAM: masks, capabilities, filter
                              its own /proc, network,
                              process numbers, queues

PROGRAM cannot make namespaces or mounts, and part of its /proc is covered, so that nobody may
mount a fresh one (mount_namespaces(7)). Everything in it ends with it: what a test of this
repository attacks there is never the machine's own. `OFF` is any of --no-filter, --no-masks and
--no-caps, which leave out one part each.

After Docker's documentation ("Seccomp security profiles for Docker", "Runtime privilege and Linux
capabilities") and the masked paths of the OCI runtime specification.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys
from typing import NoReturn

from toolcell_sandbox._child import ids, syscall_table, syscalls

REFUSED = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen"),
    *("fsconfig", "fsmount", "fspick", "mount_setattr", "keyctl", "add_key", "request_key"),
    *("bpf", "perf_event_open", "userfaultfd"),
)
"""What the default profile answers EPERM, of what a jail or an attack on one would use."""
NEW_NAMESPACES = 0x7E02_0000
MASKED = (
    *("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
)
# Besides /sys and all below it.
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
# sys_chroot, mknod, audit_write, setfcap (capability.h)
CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})

_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16
_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}


def main(argv: list[str]) -> int:
    """Run the program in there; its exit code, 128 and the signal where one ended it."""
    off = {word for word in argv if word in ("--no-filter", "--no-masks", "--no-caps")}
    program = argv[len(off) :]
    _enter()
    first = os.fork()
    if first == 0:
        _be_the_first(program, off)
    return _code(os.waitpid(first, 0)[1])


def _enter() -> None:
    flags = (
        syscalls.CLONE_NEWNS
        | syscalls.CLONE_NEWPID
        | syscalls.CLONE_NEWIPC
        | syscalls.CLONE_NEWUTS
        | syscalls.CLONE_NEWNET
    )
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        syscalls.unshare(flags)
        return
    # Whoever is not root has the rights to do this in a user namespace only.
    syscalls.unshare(flags | syscalls.CLONE_NEWUSER)
    ids.write_maps(os.getpid(), f"{uid} {uid} 1\n", f"{gid} {gid} 1\n", ranged=False)


def _be_the_first(program: list[str], off: set[str]) -> NoReturn:
    """Process 1: starts the program, reaps whatever falls to it, ends with the program."""
    code = 1
    try:
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        safe = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
        syscalls.mount("proc", "/proc", "proc", safe)
        syscalls.raise_link("lo")
        if "--no-masks" not in off:
            _mask(safe)
        main_pid = os.fork()
        if main_pid == 0:
            _become(program, off)
        while True:
            pid, status = os.wait()
            if pid == main_pid:
                code = _code(status)
                break
    finally:
        os._exit(code)


def _mask(safe: int) -> None:
    bind, again = syscalls.MS_BIND, syscalls.MS_REMOUNT | syscalls.MS_BIND
    for path in MASKED:
        if os.path.isdir(path):
            syscalls.mount("tmpfs", path, "tmpfs", safe | syscalls.MS_RDONLY, "size=0")
        elif os.path.exists(path):
            syscalls.mount("/dev/null", path, None, bind)
    for path in READ_ONLY:
        if os.path.exists(path):
            syscalls.mount(path, path, None, bind)
            syscalls.mount(None, path, None, again | safe | syscalls.MS_RDONLY)
    # All of /sys, with the control groups below it.
    place = syscalls.open_exactly("/sys")
    tree = syscalls.clone_tree(place)
    syscalls.set_tree(tree, syscalls.MOUNT_ATTR_RDONLY)
    syscalls.move_tree(tree, place)
    os.close(tree)
    os.close(place)


def _become(program: list[str], off: set[str]) -> NoReturn:
    try:
        if "--no-filter" not in off:
            # While there is a capability to do so: Docker does not set no_new_privs either.
            _install_filter()
        if "--no-caps" not in off:
            with open("/proc/sys/kernel/cap_last_cap") as file:
                last = int(file.read())
            for capability in set(range(last + 1)) - CAPABILITIES:
                syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # A mark that this is a container, as several runtimes leave one.
        os.execvpe(program[0], program, {**os.environ, "container": "docker-like"})
    finally:
        os._exit(127)


def _install_filter() -> None:
    machine = syscalls.platform_machine()
    column = 1 if machine == "x86_64" else 2
    known: dict[str, int] = {}
    for row in syscall_table.rows("namespaces", "none"):
        number = row[column]
        if isinstance(number, int):
            known[row[0]] = number
    eperm, enosys = _REFUSE | errno.EPERM, _REFUSE | errno.ENOSYS
    code = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, eperm),
        (_LOAD, 0, 0, _NR),
    ]
    for name in REFUSED:
        code += [(_EQUAL, 0, 1, known[name]), (_RETURN, 0, 0, eperm)]
    code += [
        (_EQUAL, 0, 1, known["clone3"]),
        (_RETURN, 0, 0, enosys),
        (_EQUAL, 0, 3, known["clone"]),
        (_LOAD, 0, 0, _ARG0),
        (_ANY_BIT, 0, 1, NEW_NAMESPACES),
        (_RETURN, 0, 0, eperm),
        (_RETURN, 0, 0, _ALLOW),
    ]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(packed)))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, syscalls.SECCOMP_MODE_FILTER, ctypes.addressof(header))


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
