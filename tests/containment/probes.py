"""What a hostile handler tries, one function an attempt. Standard library only.

Runs in a jail as a Python handler (`handler`), as a command (`python3 -I -S probes.py`, the job
as JSON on stdin), and outside any jail as its own positive control. Each attempt runs in a
process of its own, so that none disturbs another; it returns what it got (anything true), or
raises OSError, or returns nothing. Whatever else it raises means that the probe is broken.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROBE_S = 10.0
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x2000000, 0x4000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x8000000, 1 << 28, 1 << 29, 1 << 30
CLONE_NEWTIME = 0x80
MS_REC_PRIVATE = 0x4000 | 1 << 18

# asm/unistd_64.h and asm-generic/unistd.h; from 424 on all machines share their numbers.
_NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clone": (56, 220),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "renameat2": (316, 276),
    "request_key": (249, 218),
    "seccomp": (317, 277),
    "semctl": (66, 191),
    "semget": (64, 190),
    "setns": (308, 268),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "capget": (125, 90),
}
_SHARED = {
    "clone3": 435,
    "fsopen": 430,
    "io_uring_setup": 425,
    "landlock_add_rule": 445,
    "landlock_create_ruleset": 444,
    "landlock_restrict_self": 446,
    "memfd_secret": 447,
    "mount_setattr": 442,
    "move_mount": 429,
    "open_tree": 428,
    "openat2": 437,
    "pidfd_getfd": 438,
    "statmount": 457,
}
COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]

Given = dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """One attempt at a row of the matrix, and where it must succeed.

    `control` is "outside" (a plain process of the supervisor's user), "space" (one with all
    capabilities in namespaces of its own), "root" (a plain process of the host's root, so no
    control for anybody else) or "itself" (the attempt asserts its own control first).
    `kernel_may_lack`: what the control lacks too is not in this kernel.
    """

    row: int
    name: str
    attempt: Callable[[Given], object]
    control: str = "outside"
    kernel_may_lack: bool = False


PROBES: dict[str, Probe] = {}


def probe(row: int, name: str, **more: Any) -> Callable[[Callable[[Given], object]], Any]:
    """Enter an attempt in the list as `row-name`."""

    def enter(attempt: Callable[[Given], object]) -> Callable[[Given], object]:
        key = f"{row}-{name}"
        assert key not in PROBES
        PROBES[key] = Probe(row, name, attempt, **more)
        return attempt

    return enter


def call(name: str | int, *arguments: Any) -> int:
    """A raw system call; strings and bytes become pointers. Raises OSError."""
    if isinstance(name, int):
        number = name
    else:
        number = _SHARED[name] if name in _SHARED else _NUMBERS[name][COLUMN]
    kept: list[Any] = []
    wide: list[Any] = []
    for argument in arguments:
        if isinstance(argument, str):
            argument = argument.encode()
        if isinstance(argument, bytes | bytearray):
            argument = ctypes.create_string_buffer(bytes(argument), len(argument) + 1)
        if isinstance(argument, ctypes.Array | ctypes.Structure):
            kept.append(argument)
            wide.append(ctypes.c_void_p(ctypes.addressof(argument)))
        elif argument is None:
            wide.append(ctypes.c_long(0))
        else:
            wide.append(ctypes.c_long(argument if argument < 1 << 63 else argument - (1 << 64)))
    LIBC.syscall.restype = ctypes.c_long
    result = int(LIBC.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(name))
    return result


def reached(name: str | int, *arguments: Any) -> object:
    """Whether a call got past every fence: another errno than theirs is the kernel's own word."""
    try:
        return f"returned {call(name, *arguments)}"
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
        return f"reached: {errno.errorcode[error.errno or 0]}"


def read(path: str | bytes) -> bytes:
    """Up to 64 KiB of a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def holds(given: Given, data: bytes) -> object:
    """Whether what was read is the host's secret."""
    return given["secret_text"].encode() in data and "the secret"


def child(act: Callable[[], object]) -> bool:
    """Run `act` in a child; whether it returned something true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if act() else 1
        except OSError as error:
            code = min(error.errno or 1, 200)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code > 1:
        raise OSError(code, os.strerror(code))
    return code == 0


# ---------------------------------------------------------------- 1 to 15: files


@probe(1, "read")
def _(given: Given) -> object:
    return holds(given, read(given["secret"]))


@probe(1, "list")
def _(given: Given) -> object:
    return os.path.basename(given["secret"]) in os.listdir(given["outside"])


@probe(1, "watch_names")
def _(given: Given) -> object:
    """Learn the names of files that come and go in a folder that is not granted."""
    fd = call("inotify_init1", os.O_NONBLOCK)
    call("inotify_add_watch", fd, given["outside"], 0x100 | 0x20)
    return "watches a folder outside"


@probe(2, "dotdot")
def _(given: Given) -> object:
    relative = os.path.relpath(given["secret"], given["workspace"])
    return holds(given, read(os.path.join(given["workspace"], ".", relative)))


@probe(2, "slashes")
def _(given: Given) -> object:
    return holds(given, read("//" + given["secret"].replace("/", "//")))


@probe(3, "symlink_made")
def _(given: Given) -> object:
    link = os.path.join(given["workspace"], "made-link")
    os.symlink(given["secret"], link)
    try:
        return holds(given, read(link))
    finally:
        os.unlink(link)


@probe(4, "symlink_there")
def _(given: Given) -> object:
    return holds(given, read(os.path.join(given["workspace"], "there-link")))


@probe(5, "symlink_chain")
def _(given: Given) -> object:
    return holds(given, read(os.path.join(given["workspace"], "chain-1")))


@probe(6, "hard_link_made")
def _(given: Given) -> object:
    link = os.path.join(given["workspace"], "made-hard")
    os.link(given["secret"], link)
    try:
        return holds(given, read(link))
    finally:
        os.unlink(link)


@probe(8, "proc_root")
def _(given: Given) -> object:
    failed: OSError | None = None
    for pid in ("self", "thread-self", "1", *filter(str.isdigit, os.listdir("/proc"))):
        for way in ("root", "cwd"):
            at = f"/proc/{pid}/{way}"
            try:
                up = "/" if way == "root" else "/../../../../../../../../../../"
                if holds(given, read(at + up + given["secret"].lstrip("/"))):
                    return at
            except OSError as error:
                failed = error
    assert failed is not None
    raise failed


@probe(9, "inherited_folder")
def _(given: Given) -> object:
    name = os.path.basename(given["secret"])
    fd = os.open(name, os.O_RDONLY, dir_fd=given["folder_fd"])
    return holds(given, os.read(fd, 1 << 16))


@probe(9, "inherited_folder_by_proc")
def _(given: Given) -> object:
    name = os.path.basename(given["secret"])
    return holds(given, read(f"/proc/self/fd/{given['folder_fd']}/{name}"))


@probe(10, "openat2")
def _(given: Given) -> object:
    fd = call("openat2", AT_FDCWD, given["secret"], struct.pack("=QQQ", 0, 0, 0), 24)
    return holds(given, os.read(fd, 1 << 16))


@probe(11, "write_outside")
def _(given: Given) -> object:
    with open(os.path.join(given["outside"], "written"), "w") as file:
        file.write("x")
    return "written"


@probe(11, "write_near_miss")
def _(given: Given) -> object:
    with open(os.path.join(given["workspace"] + "-evil", "written"), "w") as file:
        file.write("x")
    return "written"


@probe(11, "write_dotdot")
def _(given: Given) -> object:
    relative = os.path.relpath(given["outside"], given["workspace"])
    with open(os.path.join(given["workspace"], relative, "written-2"), "w") as file:
        file.write("x")
    return "written"


@probe(11, "mkdir_outside")
def _(given: Given) -> object:
    os.mkdir(os.path.join(given["outside"], "made"))
    return "made"


@probe(11, "unlink_outside")
def _(given: Given) -> object:
    os.unlink(os.path.join(given["outside"], "unlink-me"))
    return "gone"


@probe(11, "chmod_outside")
def _(given: Given) -> object:
    """Mode bits are no content, but 0666 on a key file is the same to its owner."""
    os.chmod(os.path.join(given["outside"], "attributes"), 0o666)
    return "mode changed"


@probe(11, "chmod_readable")
def _(given: Given) -> object:
    """A file that may be read only: its mode is not the jail's either."""
    fd = os.open(given["readonly"], os.O_RDONLY)
    os.fchmod(fd, 0o666)
    return "mode changed"


@probe(11, "utime_outside")
def _(given: Given) -> object:
    os.utime(os.path.join(given["outside"], "attributes"), (1, 1))
    return "times changed"


@probe(11, "xattr_outside")
def _(given: Given) -> object:
    os.setxattr(os.path.join(given["outside"], "attributes"), "user.planted", b"x")
    return "attribute planted"


@probe(12, "truncate")
def _(given: Given) -> object:
    os.truncate(given["readonly"], 0)
    return "cut"


@probe(12, "open_truncate")
def _(given: Given) -> object:
    os.close(os.open(given["readonly"], os.O_RDONLY | os.O_TRUNC))
    return "cut"


@probe(12, "append")
def _(given: Given) -> object:
    os.close(os.open(given["readonly"], os.O_WRONLY | os.O_APPEND))
    return "opened to write"


@probe(13, "rename_out")
def _(given: Given) -> object:
    inside = os.path.join(given["workspace"], "goes-out")
    os.close(os.open(inside, os.O_CREAT | os.O_WRONLY, 0o600))
    os.rename(inside, os.path.join(given["outside"], "came-out"))
    return "renamed"


@probe(13, "rename_in")
def _(given: Given) -> object:
    os.rename(
        os.path.join(given["outside"], "rename-me"), os.path.join(given["workspace"], "came-in")
    )
    return "renamed"


@probe(13, "exchange")
def _(given: Given) -> object:
    inside = os.path.join(given["workspace"], "exchanged")
    os.close(os.open(inside, os.O_CREAT | os.O_WRONLY, 0o600))
    call(
        "renameat2",
        AT_FDCWD,
        inside,
        AT_FDCWD,
        os.path.join(given["outside"], "exchange-me"),
        2,
    )
    return "exchanged"


@probe(14, "mknod_whiteout")
def _(given: Given) -> object:
    place = os.path.join(given["workspace"], "whiteout")
    os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    os.unlink(place)
    return "made"


@probe(14, "mknod_disk", control="root")
def _(given: Given) -> object:
    place = os.path.join(given["workspace"], "disk")
    os.mknod(place, stat.S_IFBLK | 0o600, os.makedev(254, 0))
    os.unlink(place)
    return "made"


@probe(14, "rename_whiteout")
def _(given: Given) -> object:
    inside = os.path.join(given["workspace"], "hidden")
    os.close(os.open(inside, os.O_CREAT | os.O_WRONLY, 0o600))
    call("renameat2", AT_FDCWD, inside, AT_FDCWD, inside + "-2", 4)
    os.unlink(inside)
    return "left a whiteout"


@probe(15, "setuid_program", control="root")
def _(given: Given) -> object:
    """A root-owned setuid copy of id(1); the control runs as a user that is nobody."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(into, 1)
        try:
            os.execv(given["setuid_id"], ["id", "-u"])
        finally:
            os._exit(127)
    os.close(into)
    said = os.read(out, 64)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(errno.EACCES, "it did not run")
    return said.strip() == b"0" and "root"


@probe(15, "setuid_bit")
def _(given: Given) -> object:
    place = os.path.join(given["workspace"], "bits")
    os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
    os.chmod(place, 0o4755)
    return stat.S_IMODE(os.stat(place).st_mode) & 0o4000


# ---------------------------------------------------------------- 23 to 31: devices, proc, sys


@probe(23, "device_ioctl")
def _(given: Given) -> object:
    """RNDGETENTCNT: any user may ask it of a real device node."""
    with open("/dev/urandom", "rb", buffering=0) as device:
        return 1 + int.from_bytes(fcntl.ioctl(device, 0x80045200, bytes(4)), sys.byteorder)


@probe(23, "other_devices")
def _(given: Given) -> object:
    """The kernel's log, a new terminal, a disk's name: nodes that no handler needs."""
    found = [p for p in ("/dev/kmsg", "/dev/ptmx", "/dev/fuse", "/dev/kvm") if openable(p)]
    return found


def openable(path: str) -> bool:
    """Whether it can be opened for reading or for writing."""
    for way in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(path, way | os.O_NONBLOCK | os.O_NOCTTY))
        except OSError:
            continue
        return True
    return False


def _in_proc(given: Given, name: str) -> object:
    """Look for the marker in that file of every process but this one's relatives."""
    seen = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) in (os.getpid(), os.getppid()):
            continue
        try:
            data = read(f"/proc/{pid}/{name}")
        except OSError:
            continue
        seen += 1
        if given["marker"].encode() in data:
            return f"{name} of process {pid}"
    if not seen and not os.path.isdir("/proc/1"):
        raise OSError(errno.EACCES, "no process at all")
    return None


@probe(24, "environ")
def _(given: Given) -> object:
    return _in_proc(given, "environ")


@probe(24, "cmdline")
def _(given: Given) -> object:
    return _in_proc(given, "cmdline")


@probe(24, "maps")
def _(given: Given) -> object:
    return b"[heap]" in read(f"/proc/{given['victims']['look']}/maps") and "maps"


@probe(24, "mem")
def _(given: Given) -> object:
    os.close(os.open(f"/proc/{given['victims']['look']}/mem", os.O_RDWR))
    return "memory opened"


@probe(25, "own_mem_into_a_file")
def _(given: Given) -> object:
    """/proc/self/mem ignores page protection: it must not reach the file behind a mapping."""
    with open(given["readonly"], "rb") as file:
        shared = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    address = _address_of(given["readonly"])
    fd = os.open("/proc/self/mem", os.O_RDWR)
    os.pwrite(fd, b"changed", address)
    shared.close()
    return read(given["readonly"]).startswith(b"changed")


def _address_of(path: str) -> int:
    for line in read("/proc/self/maps").decode(errors="replace").splitlines():
        if line.endswith(path):
            return int(line.split("-")[0], 16)
    raise OSError(errno.ENOENT, "not mapped")


@probe(26, "core_pattern", control="root")
def _(given: Given) -> object:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return "opened to write"


@probe(26, "sysrq", control="root", kernel_may_lack=True)
def _(given: Given) -> object:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "opened to write"


@probe(26, "sysctl", control="root")
def _(given: Given) -> object:
    os.close(os.open("/proc/sys/vm/drop_caches", os.O_WRONLY))
    return "opened to write"


@probe(26, "sysctl_of_the_space", control="space")
def _(given: Given) -> object:
    os.close(os.open("/proc/sys/user/max_user_namespaces", os.O_WRONLY))
    return "opened to write"


@probe(27, "oom_score_adj")
def _(given: Given) -> object:
    before = int(read("/proc/self/oom_score_adj"))
    place = "/proc/self/oom_score_adj"
    if before < 20:
        _write(place, str(before + 20))
        before += 20
    _write(place, str(before - 10))
    return int(read(place)) < before and "lowered"


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


@probe(28, "uid_map")
def _(given: Given) -> object:
    uid = os.getuid()
    try:
        call("unshare", CLONE_NEWUSER)
    except OSError as error:
        print("unshare", error, file=sys.stderr)
    _write("/proc/self/uid_map", f"0 {uid} 1")
    return os.getuid() == 0


@probe(29, "fresh_proc", control="space")
def _(given: Given) -> object:
    call("unshare", CLONE_NEWPID | CLONE_NEWNS)
    return child(lambda: call("mount", "proc", "/tmp", "proc", 0, None) == 0)


@probe(30, "sys_listed")
def _(given: Given) -> object:
    return [p for p in ("/sys/kernel", "/sys/fs/cgroup", "/sys/class") if _listable(p)]


def _listable(path: str) -> bool:
    try:
        return bool(os.listdir(path))
    except OSError:
        return False


@probe(30, "cgroup_left", control="root")
def _(given: Given) -> object:
    """Open the root group's list of processes for writing, wherever it may be mounted."""
    failed: OSError | None = None
    for line in read("/proc/self/mountinfo").decode().splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup"):
            try:
                os.close(os.open(fields.split()[4] + "/cgroup.procs", os.O_WRONLY))
            except OSError as error:
                failed = error
                continue
            return "opened to write"
    raise failed or OSError(errno.ENOENT, "none is mounted")


@probe(30, "cgroup_mounted", control="space")
def _(given: Given) -> object:
    call("unshare", CLONE_NEWCGROUP)
    call("mount", "none", "/tmp", "cgroup2", 0, None)
    return os.path.exists("/tmp/cgroup.procs")


@probe(31, "proc_net")
def _(given: Given) -> object:
    port = f":{given['ports']['tcp']:04X}"
    table = read("/proc/net/tcp").decode()
    links = [line.split(":")[0].strip() for line in read("/proc/net/dev").decode().splitlines()[2:]]
    return port in table and f"the listener, and links {links}"


# ---------------------------------------------------------------- 32 to 43: network


def _connect(family: int, address: Any, protocol: int = 0) -> object:
    with socket.socket(family, socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(3)
        sock.connect(address)
        sock.sendall(b"x")
    return "connected"


@probe(32, "tcp")
def _(given: Given) -> object:
    return _connect(socket.AF_INET, ("127.0.0.1", given["ports"]["tcp"]))


@probe(33, "fast_open")
def _(given: Given) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(3)
        sock.sendto(b"x", 0x20000000, ("127.0.0.1", given["ports"]["fast_open"]))
    return "sent with the handshake"


@probe(34, "mptcp", kernel_may_lack=True)
def _(given: Given) -> object:
    return _connect(socket.AF_INET, ("127.0.0.1", given["ports"]["mptcp"]), 262)


@probe(34, "mptcp_socket", kernel_may_lack=True)
def _(given: Given) -> object:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
    return "made"


@probe(35, "udp")
def _(given: Given) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", given["ports"]["udp"]))
    return "sent"


@probe(35, "udp_connected")
def _(given: Given) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", given["ports"]["udp"]))
        sock.send(b"x")
    return "sent"


@probe(36, "raw", control="space")
def _(given: Given) -> object:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).close()
    return "made"


@probe(36, "packet", control="space")
def _(given: Given) -> object:
    socket.socket(17, socket.SOCK_RAW, 0).close()
    return "made"


@probe(36, "packet_old", control="space")
def _(given: Given) -> object:
    socket.socket(socket.AF_INET, 10, 0x300).close()
    return "made"


@probe(36, "xdp", control="space", kernel_may_lack=True)
def _(given: Given) -> object:
    socket.socket(44, socket.SOCK_RAW, 0).close()
    return "made"


@probe(36, "icmp", control="space")
def _(given: Given) -> object:
    try:
        _write("/proc/sys/net/ipv4/ping_group_range", "0 0")
    except OSError as error:
        print("ping_group_range", error, file=sys.stderr)
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).close()
    return "made"


def _family(row: int, name: str, number: int, kind: int, protocol: int = 0, **more: Any) -> None:
    """A family of sockets whose mere creation must be refused."""

    def attempt(given: Given) -> object:
        socket.socket(number, kind, protocol).close()
        return "made"

    probe(row, name, kernel_may_lack=True, **more)(attempt)


_family(37, "vsock", 40, socket.SOCK_STREAM)
_family(37, "vsock_datagram", 40, socket.SOCK_DGRAM)
_family(38, "alg", 38, socket.SOCK_SEQPACKET)
_family(38, "tipc", 30, socket.SOCK_STREAM)
_family(38, "key", 15, socket.SOCK_RAW, 2, control="space")
_family(38, "netlink_route", 16, socket.SOCK_RAW, 0)
_family(38, "netlink_audit", 16, socket.SOCK_RAW, 9)
_family(38, "netlink_netfilter", 16, socket.SOCK_RAW, 12)
_family(38, "can", 29, socket.SOCK_RAW, 1)
_family(38, "bluetooth", 31, socket.SOCK_RAW, 1)
_family(38, "smc", 43, socket.SOCK_STREAM)
_family(38, "rds", 21, socket.SOCK_SEQPACKET)
_family(38, "sctp", socket.AF_INET, socket.SOCK_SEQPACKET)
_family(38, "dccp", socket.AF_INET, 6)
_family(38, "udplite", socket.AF_INET, socket.SOCK_DGRAM, 136)


@probe(39, "io_uring")
def _(given: Given) -> object:
    os.close(call("io_uring_setup", 4, bytes(120)))
    return "a ring"


@probe(40, "unix_path")
def _(given: Given) -> object:
    return _connect(socket.AF_UNIX, given["unix_path"])


@probe(40, "unix_path_datagram")
def _(given: Given) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", given["unix_path"] + "-datagram")
    return "sent"


@probe(40, "unix_in_workspace")
def _(given: Given) -> object:
    return _connect(socket.AF_UNIX, os.path.join(given["workspace"], "host-socket"))


@probe(40, "fifo_in_workspace")
def _(given: Given) -> object:
    """The host has it open to read: nobody else has."""
    place = os.path.join(given["workspace"], "host-fifo")
    os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK))
    return "somebody outside reads it"


@probe(48, "lock_in_workspace")
def _(given: Given) -> object:
    """The host holds a lock on it: who sees that could hold one that the host would wait for."""
    fd = os.open(os.path.join(given["workspace"], "host-lock"), os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "the host's lock"
    raise OSError(errno.ENOLCK, "the file has a lock of its own here")


@probe(41, "unix_abstract")
def _(given: Given) -> object:
    return _connect(socket.AF_UNIX, "\0" + given["unix_abstract"])


@probe(41, "unix_abstract_datagram")
def _(given: Given) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", "\0" + given["unix_abstract"] + "-datagram")
    return "sent"


@probe(42, "receive_a_descriptor")
def _(given: Given) -> object:
    """Ask every descriptor that there is for one that somebody may have put into it."""
    failed: OSError | None = None
    for fd in range(1024):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as sock:
                sock.setblocking(False)
                _, extra, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(4))
        except OSError as error:
            failed = error
            continue
        if extra:
            return f"descriptor {array.array('i', extra[0][2])[0]} through {fd}"
    raise failed or OSError(errno.ENOTSOCK, "no socket")


# ---------------------------------------------------------------- 44 to 47: IPC


@probe(44, "shm")
def _(given: Given) -> object:
    return 1 + call("shmget", given["ipc_key"], 0, 0)


@probe(44, "sem")
def _(given: Given) -> object:
    return 1 + call("semget", given["ipc_key"], 0, 0)


@probe(44, "msg")
def _(given: Given) -> object:
    return 1 + call("msgget", given["ipc_key"], 0)


@probe(44, "shm_by_id")
def _(given: Given) -> object:
    LIBC.shmat.restype = ctypes.c_void_p
    address = call("shmat", given["shm_id"], 0, 0)
    return ctypes.string_at(address, 4) == b"host" and "attached"


@probe(45, "mq")
def _(given: Given) -> object:
    return 1 + call("mq_open", given["mq"], os.O_RDWR, 0, None)


@probe(46, "dev_shm")
def _(given: Given) -> object:
    return holds(given, read(given["dev_shm"]))


@probe(47, "session_keyring")
def _(given: Given) -> object:
    """KEYCTL_SEARCH for what a login left in the keyring that every process inherits."""
    return call("keyctl", 10, -3, "user", given["key"], 0)


@probe(47, "add_key")
def _(given: Given) -> object:
    return call("add_key", "user", "toolcell-probe", b"x", 1, -1)


# ---------------------------------------------------------------- 51 to 67: signals


@probe(51, "kill")
def _(given: Given) -> object:
    os.kill(given["victims"]["kill"], signal.SIGKILL)
    return "sent"


@probe(51, "ask")
def _(given: Given) -> object:
    os.kill(given["supervisor"], 0)
    return "could be signalled"


@probe(51, "pidfd")
def _(given: Given) -> object:
    fd = os.pidfd_open(given["victims"]["pidfd"])
    signal.pidfd_send_signal(fd, signal.SIGKILL)
    return "sent"


@probe(51, "queue")
def _(given: Given) -> object:
    """tgkill, the other way in."""
    pid = given["victims"]["tgkill"]
    call({0: 234, 1: 131}[COLUMN], pid, pid, signal.SIGKILL)
    return "sent"


@probe(54, "ptrace")
def _(given: Given) -> object:
    pid = given["victims"]["ptrace"]
    call("ptrace", 16, pid, 0, 0)
    os.waitpid(pid, 0x40000000)
    call("ptrace", 17, pid, 0, 0)
    return "attached"


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _spans(given: Given) -> tuple[Any, Any, Any]:
    own = ctypes.create_string_buffer(8)
    local = _Span(ctypes.addressof(own), 8)
    return own, local, _Span(given["victim_address"], 8)


@probe(54, "vm_read")
def _(given: Given) -> object:
    own, local, remote = _spans(given)
    call("process_vm_readv", given["victims"]["look"], local, 1, remote, 1, 0)
    return f"read {own.raw[:4]!r}"


@probe(54, "vm_write")
def _(given: Given) -> object:
    _own, local, remote = _spans(given)
    call("process_vm_writev", given["victims"]["look"], local, 1, remote, 1, 0)
    return "wrote"


@probe(54, "pidfd_getfd")
def _(given: Given) -> object:
    fd = os.pidfd_open(given["victims"]["look"])
    return 1 + call("pidfd_getfd", fd, 0, 0)


@probe(55, "ptrace_child")
def _(given: Given) -> object:
    return child(lambda: call("ptrace", 0, 0, 0, 0) == 0)


def _sigio(given: Given, victim: str, own: Callable[[int, int], object]) -> object:
    """Make the kernel send SIGIO, which ends who has no handler, to somebody else."""
    ours, theirs = socket.socketpair()
    fd = ours.fileno()
    own(fd, given["victims"][victim])
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    theirs.send(b"x")
    return None  # Whether it arrived is seen by the victim's end alone.


@probe(56, "set_owner")
def _(given: Given) -> object:
    return _sigio(given, "sigio", lambda fd, pid: fcntl.fcntl(fd, fcntl.F_SETOWN, pid))


@probe(56, "set_owner_by_pointer")
def _(given: Given) -> object:
    def own(fd: int, pid: int) -> object:
        return fcntl.fcntl(fd, 15, struct.pack("=ii", 1, pid))

    return _sigio(given, "sigio_ex", own)


@probe(56, "set_owner_by_ioctl")
def _(given: Given) -> object:
    def own(fd: int, pid: int) -> object:
        return fcntl.ioctl(fd, 0x8901, struct.pack("=i", pid))

    return _sigio(given, "sigio_ioctl", own)


# ---------------------------------------------------------------- 68 to 86: calls


def _unshare(name: str, flags: int) -> None:
    def attempt(given: Given) -> object:
        call("unshare", flags)
        return "a new one"

    probe(68, f"unshare_{name}", control="outside" if flags & CLONE_NEWUSER else "space")(attempt)


for _name, _flag in (
    ("user", CLONE_NEWUSER),
    ("mount", CLONE_NEWNS),
    ("pid", CLONE_NEWPID),
    ("net", CLONE_NEWNET),
    ("ipc", CLONE_NEWIPC),
    ("uts", CLONE_NEWUTS),
    ("cgroup", CLONE_NEWCGROUP),
    ("time", CLONE_NEWTIME),
    ("user_and_net", CLONE_NEWUSER | CLONE_NEWNET),
):
    _unshare(_name, _flag)


@probe(68, "clone_user")
def _(given: Given) -> object:
    pid = call("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a child in a new one"


@probe(68, "clone3")
def _(given: Given) -> object:
    return reached("clone3", bytes(64), 1)


@probe(69, "setns", control="space")
def _(given: Given) -> object:
    call("setns", os.pidfd_open(os.getpid()), CLONE_NEWUTS)
    return "entered"


@probe(70, "mount", control="space")
def _(given: Given) -> object:
    call("mount", "none", "/tmp", "tmpfs", 0, None)
    return "mounted"


@probe(70, "bind", control="space")
def _(given: Given) -> object:
    call("mount", "/", "/tmp", None, 0x1000 | 0x4000, None)
    return "mounted"


@probe(70, "umount", control="space")
def _(given: Given) -> object:
    return reached("umount2", given["workspace"], 2)


@probe(70, "fsopen", control="space")
def _(given: Given) -> object:
    os.close(call("fsopen", "tmpfs", 0))
    return "opened"


@probe(70, "open_tree", control="space")
def _(given: Given) -> object:
    os.close(call("open_tree", AT_FDCWD, "/tmp", 1))
    return "cloned"


@probe(70, "move_mount", control="space")
def _(given: Given) -> object:
    return reached("move_mount", -1, "", -1, "", 0x44)


@probe(70, "mount_setattr", control="space")
def _(given: Given) -> object:
    return reached("mount_setattr", AT_FDCWD, "/tmp", 0, bytes(32), 32)


@probe(70, "pivot_root", control="space")
def _(given: Given) -> object:
    return reached("pivot_root", "/tmp", "/tmp")


@probe(71, "chroot", control="space")
def _(given: Given) -> object:
    call("chroot", "/tmp")
    return "another root"


@probe(72, "bpf", control="root")
def _(given: Given) -> object:
    os.close(call("bpf", 0, struct.pack("=IIII", 2, 4, 8, 1) + bytes(56), 72))
    return "a map"


@probe(72, "perf_event_open")
def _(given: Given) -> object:
    # perf_event_attr: software, its size, cpu-clock, and exclude_kernel | exclude_hv.
    attributes = struct.pack("=IIQQQQQ", 1, 64, 0, 0, 0, 0, 1 << 5 | 1 << 6) + bytes(16)
    os.close(call("perf_event_open", attributes, 0, -1, -1, 0))
    return "an event"


@probe(72, "kexec_load", control="root", kernel_may_lack=True)
def _(given: Given) -> object:
    return reached("kexec_load", 0, 1 << 20, 0, 0)


@probe(72, "kexec_file_load", control="root", kernel_may_lack=True)
def _(given: Given) -> object:
    return reached("kexec_file_load", -1, -1, 0, "", 0)


@probe(72, "init_module", control="root", kernel_may_lack=True)
def _(given: Given) -> object:
    return reached("init_module", 0, 0, "")


@probe(72, "finit_module", control="root", kernel_may_lack=True)
def _(given: Given) -> object:
    return reached("finit_module", -1, "", 0)


@probe(72, "delete_module", control="root", kernel_may_lack=True)
def _(given: Given) -> object:
    return reached("delete_module", "no-such-module-of-toolcell", 0)


@probe(72, "reboot", control="root")
def _(given: Given) -> object:
    """With a wrong magic number: with the right to reboot it says EINVAL."""
    return reached("reboot", 1, 2, 3, 0)


@probe(73, "userfaultfd")
def _(given: Given) -> object:
    os.close(call("userfaultfd", 1))
    return "a descriptor"


@probe(74, "memfd_exec")
def _(given: Given) -> object:
    """A program that lies on no disk, which then does what its caller may not."""
    fd = os.memfd_create("program")
    with open("/bin/cat", "rb") as file:
        os.write(fd, file.read())
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(into, 1)
        try:
            os.execve(fd, ["cat", given["granted"], given["secret"]], {})
        finally:
            os._exit(127)
    os.close(into)
    said = b""
    while part := os.read(out, 1 << 16):
        said += part
    os.waitpid(pid, 0)
    assert b"granted" in said, "the program from memory did not run"
    return holds(given, said)


@probe(75, "memfd_secret", kernel_may_lack=True)
def _(given: Given) -> object:
    os.close(call("memfd_secret", 0))
    return "a descriptor"


@probe(76, "keyctl")
def _(given: Given) -> object:
    return call("keyctl", 0, -3, 1)


@probe(76, "request_key")
def _(given: Given) -> object:
    return reached("request_key", "user", "no-such-key-of-toolcell", None, 0)


@probe(77, "name_to_handle")
def _(given: Given) -> object:
    handle, mount_id = struct.pack("=Ii", 128, 0) + bytes(128), bytes(8)
    call("name_to_handle_at", AT_FDCWD, given["workspace"], handle, mount_id, 0)
    return "a handle"


@probe(77, "open_by_handle", control="root")
def _(given: Given) -> object:
    return reached("open_by_handle_at", AT_FDCWD, struct.pack("=Ii", 8, 1) + bytes(8), 0)


@probe(78, "fanotify")
def _(given: Given) -> object:
    os.close(call("fanotify_init", 0x200, 0))
    return "a descriptor"


@probe(79, "no_randomisation")
def _(given: Given) -> object:
    call("personality", 0x40000)
    return call("personality", 0xFFFFFFFF) & 0x40000


@probe(79, "read_implies_exec")
def _(given: Given) -> object:
    call("personality", 0x400000)
    return call("personality", 0xFFFFFFFF) & 0x400000


# mov eax, NUMBER; int 0x80 (i386) or syscall (x32); ret.
_FOREIGN = {"i386": (20, b"\xcd\x80"), "x32": (0x40000000 | 39, b"\x0f\x05")}


def _foreign(machine: str) -> object:
    number, instruction = _FOREIGN[machine]
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8" + number.to_bytes(4, "little") + instruction + b"\xc3")
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(at)()) == os.getpid() and "its own pid"


if COLUMN == 0:
    probe(80, "i386", kernel_may_lack=True)(lambda given: _foreign("i386"))
    probe(80, "x32", kernel_may_lack=True)(lambda given: _foreign("x32"))


@probe(81, "unlisted")
def _(given: Given) -> object:
    return reached("statmount", None, 0, 0, 0)


@probe(82, "tiocsti")
def _(given: Given) -> object:
    return _terminal(0x5412, b"x")


@probe(82, "tioclinux")
def _(given: Given) -> object:
    return _terminal(0x541C, b"\x06")


@probe(82, "tiocsti_high_bits")
def _(given: Given) -> object:
    return _terminal(1 << 32 | 0x5412, b"x")


def _terminal(request: int, data: bytes) -> object:
    """Type into a controlling terminal of one's own; without one, into whatever is there."""
    fd = 0
    try:
        _, fd = os.openpty()
        os.setsid()
        fcntl.ioctl(fd, 0x540E, 0)
    except OSError as error:
        print("no terminal", error, file=sys.stderr)
    return reached({0: 16, 1: 29}[COLUMN], fd, request, data)


@probe(83, "capabilities", control="space")
def _(given: Given) -> object:
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    call("capget", header, data)
    return any(data.raw) and data.raw.hex()


@probe(83, "bounding_set")
def _(given: Given) -> object:
    return [c for c in range(41) if call("prctl", 23, c, 0, 0, 0)]


@probe(83, "privileges_by_exec")
def _(given: Given) -> object:
    return call("prctl", 39, 0, 0, 0, 0) == 0 and "no_new_privs is off"


@probe(84, "threads")
def _(given: Given) -> object:
    """Every thread asks for what the filter refuses; one that gets it is one too many."""
    got: list[str] = []

    def ask(who: int) -> None:
        try:
            call("userfaultfd", 1)
        except OSError:
            return
        got.append(f"thread {who}")

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


@probe(84, "children")
def _(given: Given) -> object:
    return child(lambda: child(lambda: call("userfaultfd", 1) > 0))


def _filter(steps: list[tuple[int, int, int, int]]) -> None:
    """A seccomp filter of the handler's own."""
    call("prctl", 38, 1, 0, 0, 0)
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *s) for s in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(packed))
    call("seccomp", 1, 0, ctypes.create_string_buffer(program))


ALLOW = (0x06, 0, 0, 0x7FFF0000)


@probe(86, "own_filter_loosens")
def _(given: Given) -> object:
    _filter([ALLOW])
    os.close(call("userfaultfd", 1))
    return "a descriptor"


@probe(86, "own_filter_does_nothing", control="itself")
def _(given: Given) -> object:
    """The other way round: what a handler forbids itself must be forbidden."""
    getppid = {0: 110, 1: 173}[COLUMN]
    assert call(getppid) >= 0
    _filter([(0x20, 0, 0, 0), (0x15, 0, 1, getppid), (0x06, 0, 0, 0x00050000 | 71), ALLOW])
    try:
        call(getppid)
    except OSError as error:
        if error.errno == 71:
            return None
    return "its own filter was not in force"


def _own_landlock(rights: int, granted: str) -> None:
    call("prctl", 38, 1, 0, 0, 0)
    ruleset = call("landlock_create_ruleset", struct.pack("=Q", rights), 8, 0)
    folder = os.open(granted, os.O_PATH)
    call("landlock_add_rule", ruleset, 1, struct.pack("=Qi", rights, folder), 0)
    call("landlock_restrict_self", ruleset, 0)


@probe(86, "own_landlock_loosens")
def _(given: Given) -> object:
    _own_landlock(0b1100, "/")
    return holds(given, read(given["secret"]))


@probe(86, "own_landlock_does_nothing", control="itself")
def _(given: Given) -> object:
    assert read(given["granted"])
    _own_landlock(0b0100, "/usr")
    try:
        return read(given["granted"])
    except PermissionError:
        return None


# ---------------------------------------------------------------- 96 to 139: the rest


@probe(104, "core_limit")
def _(given: Given) -> object:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    except ValueError:
        return None  # What Python says for EPERM.
    return "cores allowed"


@probe(107, "oom_score")
def _(given: Given) -> object:
    return (score := int(read("/proc/self/oom_score_adj"))) < 1000 and f"only {score}"


@probe(127, "descriptors")
def _(given: Given) -> object:
    """Whatever was open at the start besides the streams and the result channel."""
    return given["open_at_start"]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@probe(128, "secret_in_environ")
def _(given: Given) -> object:
    return given["marker"] in str(dict(os.environ)) and "the marker"


@probe(128, "secret_in_proc_environ")
def _(given: Given) -> object:
    found = read("/proc/self/environ")
    with_parents = found + b"".join(_quietly(f"/proc/{p}/environ") for p in (1, os.getppid()))
    return given["marker"].encode() in with_parents and "the marker"


def _quietly(path: str) -> bytes:
    try:
        return read(path)
    except OSError:
        return b""


@probe(129, "loader_variables")
def _(given: Given) -> object:
    return [name for name in given["loader_variables"] if name in os.environ]


@probe(130, "interpreter_tree")
def _(given: Given) -> object:
    """A file beside the running interpreter's modules is the supervisor's next import."""
    found = []
    for folder in given["interpreter_folders"]:
        place = os.path.join(folder, "planted-by-a-probe.pth")
        try:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError:
            continue
        os.unlink(place)
        found.append(folder)
    return found


@probe(139, "kind_of_handler")
def _(given: Given) -> object:
    """Every kind of handler is in the same jail: uid, root, filter."""
    return call("prctl", 21, 0, 0, 0, 0) != 2 and "no filter is in force"


# ---------------------------------------------------------------- running them


def enter_space() -> None:
    """Namespaces of one's own, and all capabilities in them; the host's are out of reach."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    call("unshare", flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")
    call("mount", "none", "/", None, MS_REC_PRIVATE, None)


def tried(one: Probe, given: Given, *, space: bool) -> dict[str, Any]:
    """What one attempt got, in a process of its own and within `PROBE_S`."""
    out, into = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            os.write(into, json.dumps(_outcome(one, given, space=space)).encode())
        finally:
            os._exit(0)
    os.close(into)
    said = b""
    while select.select([out], [], [], PROBE_S)[0]:
        part = os.read(out, 1 << 16)
        if not part:
            break
        said += part
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(out)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        return {"through": False, "said": signal.Signals(-code).name, "broke": None}
    found: dict[str, Any] = json.loads(said)
    return found


def _outcome(one: Probe, given: Given, *, space: bool) -> dict[str, Any]:
    try:
        if space:
            enter_space()
        got = one.attempt(given)
    except OSError as error:
        return {"through": False, "said": errno.errorcode.get(error.errno or 0, str(error))}
    except Exception as error:  # noqa: BLE001  # a broken probe is told, whatever broke it
        return {"through": False, "said": "", "broke": f"{type(error).__name__}: {error}"[:300]}
    return {"through": bool(got), "said": str(got)[:300]}


def handler(
    names: list[str], given: Given, space: bool = False, first: int = 4
) -> dict[str, dict[str, Any]]:
    """Each attempt by its name: whether it got through, and what was said.

    `first` is the lowest descriptor that nobody promised: 3 is the result channel.
    """
    given = {**given, "open_at_start": [fd for fd in range(first, 4096) if _is_open(fd)]}
    return {name: tried(PROBES[name], given, space=space) for name in names}


def main() -> None:
    """One job from stdin."""
    job = json.load(sys.stdin)
    json.dump(handler(job["names"], job["given"], job["space"], first=3), sys.stdout)


if __name__ == "__main__":
    main()
