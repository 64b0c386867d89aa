"""Probes of what a jail may ask of the kernel: calls, foreign machines, and privileges."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import socket
import stat
import subprocess

from toolcell._probes import (
    Attempt,
    attempt,
    own,
    python,
    refused,
    seen,
    syscall,
    why,
    write,
)

# Namespaces (clone(2)), and what makes the call fail by itself where nobody forbids it.
_NEW_USER, _NEW_NET, _SHARES_FS = 0x1000_0000, 0x4000_0000, 0x200
_SEIZE = 0x4206
_NO_RANDOMISATION = 0x0004_0000
_TIOCSTI = 0x5412
_AT_FDCWD = -100
_UNKNOWN_FLAG = 0x8000_0000
# What an unprivileged process may ask for (userfaultfd(2), fanotify_init(2)).
_USER_MODE_ONLY, _REPORT_FID = 1, 0x200
_AF_ALG, _AF_PACKET, _AF_NETLINK, _AF_VSOCK, _MPTCP = 38, 17, 16, 40, 262

# Each with arguments that the kernel itself answers otherwise, even to a process without any
# privilege: so the answer tells who gave it. Name, number on x86-64 and on aarch64, arguments.
_FORBIDDEN: tuple[tuple[str, int | None, int | None, tuple[int | bytes, ...]], ...] = (
    ("unshare a user namespace", 272, 97, (_NEW_USER,)),
    ("unshare the network", 272, 97, (_NEW_USER | _NEW_NET,)),
    ("clone into a user namespace", 56, 220, (_NEW_USER | _SHARES_FS, 0, 0, 0, 0)),
    ("setns", 308, 268, (-1, 0)),
    ("mount", 165, 40, (1, 1, 1, 0, 0)),
    ("umount2", 166, 39, (b"/", _UNKNOWN_FLAG)),
    ("open_tree", 428, 428, (_AT_FDCWD, b"/", 0)),
    ("mount_setattr", 442, 442, (-1, b"", 0, 0, 0)),
    ("chroot", 161, 51, (1,)),
    ("process_vm_readv", 310, 270, (-1, 0, 0, 0, 0, 0)),
    ("kcmp", 312, 272, (-1, -1, 0, 0, 0)),
    ("pidfd_getfd", 438, 438, (-1, 0, 0)),
    ("keyctl", 250, 219, (0, -1, 1)),
    ("add_key", 248, 217, (1, 1, 0, 0, -1)),
    ("bpf", 321, 280, (9999, 0, 0)),
    ("userfaultfd", 323, 282, (_USER_MODE_ONLY,)),
    ("perf_event_open", 298, 241, (1, 0, -1, -1, 0)),
    ("open_by_handle_at", 304, 265, (-1, 1, 0)),
    ("fanotify_init", 300, 262, (_REPORT_FID, 0)),
    ("personality", 135, 92, (_NO_RANDOMISATION,)),
    ("type into a terminal", 16, 29, (-1, _TIOCSTI, 0)),
    ("limits of another process", 302, 261, (2, 999, 0, 0)),
    ("memfd_secret", 447, 447, (_UNKNOWN_FLAG,)),
)
_UNHEARD_OF = (
    ("io_uring_setup", 425, 425, (0, 0)),
    ("clone3", 435, 435, (0, 0)),
    ("openat2", 437, 437, (_AT_FDCWD, b"/", 0, 0)),
)
_SOCKETS = (
    ("a socket of AF_VSOCK", _AF_VSOCK, socket.SOCK_STREAM, 0),
    ("a socket of AF_ALG", _AF_ALG, socket.SOCK_SEQPACKET, 0),
    ("a socket of AF_PACKET", _AF_PACKET, socket.SOCK_RAW, 0),
    ("a raw netlink socket", _AF_NETLINK, socket.SOCK_RAW, 15),
    ("a raw internet socket", socket.AF_INET, socket.SOCK_RAW, 1),
    ("a multipath TCP socket", socket.AF_INET, socket.SOCK_STREAM, _MPTCP),
)


def calls() -> list[Attempt]:
    """syscalls_filtered: namespaces, mounts, other processes, and the wide doors of the kernel."""
    found = [
        refused(name, syscall(x86_64, aarch64, *arguments), errno.EPERM)
        for name, x86_64, aarch64, arguments in _FORBIDDEN
    ]
    found += [
        refused(name, syscall(x86_64, aarch64, *arguments), errno.ENOSYS)
        for name, x86_64, aarch64, arguments in _UNHEARD_OF
    ]
    found.append(refused("ptrace of a child", _trace_a_child(), errno.EPERM))
    for name, family, kind, protocol in _SOCKETS:
        got = syscall(41, 198, family, kind, protocol)
        found.append(refused(name, got, errno.EPERM, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT))
    return found


def _trace_a_child() -> int:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        return syscall(101, 117, _SEIZE, pid, 0, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# ---------------------------------------------------------------- foreign machines

_GETPID = {"x32": (0x4000_0000 | 39, b"\x0f\x05"), "i386": (20, b"\xcd\x80")}


def foreign_call(machine: str) -> int:
    """getpid(2) as another machine makes it: mov eax, NUMBER; the instruction; ret."""
    number, instruction = _GETPID[machine]
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8" + number.to_bytes(4, "little") + instruction + b"\x5b\xc3")
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(at)())


def foreign() -> list[Attempt]:
    """syscalls_filtered: calls of x32 and i386, past a filter that knows x86-64 only.

    The first is made by a child. Nothing is returned where the second ends this process; where a
    container's own filter came first, both may just be refused.
    """
    pid = os.fork()
    if pid == 0:
        got = 255
        try:
            got = 7 if foreign_call("x32") == os.getpid() else 0
        finally:
            os._exit(got)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = "it ran" if code == 7 else "refused" if code >= 0 else "its caller was ended"
    ran = foreign_call("i386") == os.getpid()
    return [
        seen("make a call of x32", said, broke=code == 7),
        seen("make a call of i386", "it ran" if ran else "refused", broke=ran),
    ]


# ---------------------------------------------------------------- privileges

_GET_NO_NEW_PRIVS, _CAPBSET_READ, _CAP_AMBIENT, _IS_SET = 39, 23, 47, 1
_CAPABILITIES = 41
_CAPGET_VERSION_3 = 0x2008_0522
_SPECIAL = 0o4755, 0o2755
_OTHER_ID = 54_321
_CAPGET = """
import ctypes, struct
libc = ctypes.CDLL(None)
data = ctypes.create_string_buffer(24)
libc.capget(ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0)), data)
print(sum(struct.unpack("=6I", data.raw)))
"""


def privileges() -> list[Attempt]:
    """no_new_privileges: become another, leave a setuid file, gain by executing."""
    libc = ctypes.CDLL(None, use_errno=True)
    path, folder = write(own("file")), own("folder")
    os.mkdir(folder)
    other = _OTHER_ID
    ambient = [c for c in range(_CAPABILITIES) if libc.prctl(_CAP_AMBIENT, _IS_SET, c, 0, 0) == 1]
    kept = libc.prctl(_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
    capabilities = _capabilities()
    after = subprocess.run(python(_CAPGET), capture_output=True, text=True, check=False).stdout
    found = [
        attempt("give a file away", lambda: os.chown(path, other, other)),
        attempt("set the setuid bit", lambda: os.chmod(path, _SPECIAL[0])),
        attempt("set the setgid bit", lambda: os.chmod(path, _SPECIAL[1])),
        attempt("set it on a folder", lambda: os.chmod(folder, _SPECIAL[1])),
        attempt("make a setuid file", lambda: os.open(own("su"), os.O_CREAT, _SPECIAL[0])),
        attempt("make a setgid node", lambda: os.mknod(own("sg"), stat.S_IFREG | _SPECIAL[1])),
        seen("look at its mode", oct(os.stat(path).st_mode), broke=bool(_bits(path, folder))),
        seen("count capabilities", capabilities, broke=bool(capabilities)),
        seen("count ambient capabilities", len(ambient), broke=bool(ambient)),
        seen("count those of a program it runs", after.strip(), broke=after.strip() != "0"),
        seen("read no_new_privs", kept, broke=kept != 1),
    ]
    if os.getuid() != 0:
        found += [
            attempt("become root", lambda: os.setuid(0)),
            attempt("give a file to root", lambda: os.chown(path, 0, 0)),
            *(_by_setuid_program(*command) for command in _SETUID_PROGRAMS),
        ]
    # Last, since nothing of the above could be judged once one of these has worked.
    return [
        *found,
        attempt("join a group", lambda: os.setgroups([other])),
        attempt("become another group", lambda: os.setresgid(other, other, other)),
        attempt("become another user", lambda: os.setresuid(other, other, other)),
    ]


_SETUID_PROGRAMS = (("su", "-c", "id -u"), ("sudo", "-n", "id", "-u"))


def _bits(*paths: str) -> int:
    return sum(os.stat(path).st_mode & 0o6000 for path in paths)


def _capabilities() -> int:
    """How many bits are set among what is effective, permitted and inheritable (capget(2))."""
    header = _CAPGET_VERSION_3.to_bytes(4, "little") + bytes(4)
    data = ctypes.create_string_buffer(24)
    ctypes.CDLL(None, use_errno=True).capget(ctypes.create_string_buffer(header), data)
    return sum(byte.bit_count() for byte in data.raw)


def _by_setuid_program(*command: str) -> Attempt:
    tried = f"gain by {command[0]}"
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        return seen(tried, why(error), broke=False)
    return seen(tried, f"exit code {done.returncode}", broke=done.stdout.strip() == "0")
