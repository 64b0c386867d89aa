"""The raw system calls that Python does not offer, by ctypes. Numbers, flags, and thin calls.

Every call raises OSError with the kernel's errno; none retries or hides one.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os
import signal
import struct
import sys

# include/uapi/asm-generic/unistd.h for aarch64; arch/x86/entry/syscalls/syscall_64.tbl.
# From 424 on, all architectures share their numbers.
_NUMBERS = {
    "x86_64": {
        "clone": 56,
        "pivot_root": 155,
        "capset": 126,
        "rt_sigaction": 13,
        "keyctl": 250,
        "utimensat": 280,
        "syncfs": 306,
        "renameat2": 316,
        "seccomp": 317,
    },
    "aarch64": {
        "clone": 220,
        "pivot_root": 41,
        "capset": 91,
        "rt_sigaction": 134,
        "keyctl": 219,
        "utimensat": 88,
        "syncfs": 267,
        "renameat2": 276,
        "seccomp": 277,
    },
}
_SHARED = {
    "open_tree": 428,
    "move_mount": 429,
    "clone3": 435,
    "close_range": 436,
    "openat2": 437,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_INTO_CGROUP = 0x2_0000_0000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MNT_DETACH = 2

OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_IDMAP = 0x00100000

SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
KEYCTL_JOIN_SESSION_KEYRING = 1
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_GET_NO_NEW_PRIVS = 39
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAP_VERSION_3 = 0x20080522
_CAPABILITIES_MAX = 64

libc = ctypes.CDLL(None, use_errno=True)
"""The C library, by calls that let go of the interpreter lock and keep errno."""
# Holds the GIL across the call, as a fork must: the child runs Python at once.
_libc_gil = ctypes.PyDLL(None, use_errno=True)
for _name in ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child"):
    getattr(ctypes.pythonapi, _name).restype = None
# Told once what they take, so that a call makes no objects of its own for that: in a process that
# was just forked each one touched is a page copied.
_call, _prctl, _mount = libc["syscall"], libc["prctl"], libc["mount"]
_fork_call = _libc_gil["syscall"]
_fork_call.restype = ctypes.c_long
_fork_call.argtypes = [ctypes.c_long, *[ctypes.c_void_p] * 5]
_call.restype = ctypes.c_long
_call.argtypes = [ctypes.c_long, *[ctypes.c_void_p] * 6]
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]
_NOTHING = (0, 0, 0, 0, 0, 0)


class UnsupportedMachine(OSError):
    """This processor's system calls are not in the table."""


def number(name: str) -> int:
    """The number of a system call on this machine."""
    found = _known.get(name)
    if found is None:
        raise UnsupportedMachine(f"toolcell knows x86_64 and aarch64, not {platform_machine()}")
    return found


def platform_machine() -> str:
    """x86_64 or aarch64 as uname(2) says; a 32-bit interpreter is no machine of ours."""
    return os.uname().machine if sys.maxsize > 1 << 32 else f"32-bit {os.uname().machine}"


_known = {**_SHARED, **_NUMBERS.get(platform_machine(), {})}


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def syscall(name: str, *arguments: object) -> int:
    """The call of that name; integers are as wide as registers, bytes are passed by address."""
    result: int = _call(number(name), *arguments, *_NOTHING[len(arguments) :])
    return _check(result, name)


def clone(flags: int, group: int | None = None) -> int:
    """fork(2) into new namespaces; returns 0 in the child, the child's pid in the parent.

    With `group`, the folder of a v2 control group, the child is born in that (clone3(2)).

    Calls CPython's own fork hooks around clone(2): without them two children would draw the
    same random numbers. Only for a process with one thread.
    """
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("clone needs a process with one thread")
    # struct clone_args: flags, four that are not used, and from the exit signal on those too.
    told = struct.pack(
        "=11Q", flags | CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, *[0] * 5, group or 0
    )
    ctypes.pythonapi.PyOS_BeforeFork()
    if group is None:
        pid = int(_fork_call(number("clone"), flags | signal.SIGCHLD, 0, 0, 0, 0))
    else:
        pid = int(_fork_call(number("clone3"), told, len(told), 0, 0, 0))
    failed = ctypes.get_errno()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(failed, os.strerror(failed), "clone")
    return pid


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2)."""
    result: int = _mount(
        None if source is None else os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        flags,
        data.encode() or None,
    )
    if result < 0:
        _check(result, f"mount {target}")


def bind(source: bytes, target: bytes) -> None:
    """mount(2) with MS_BIND, for who does it many times."""
    result: int = _mount(source, target, None, MS_BIND, None)
    if result < 0:
        _check(result, f"mount {os.fsdecode(target)}")


def umount_detach(target: str) -> None:
    """umount2(2) with MNT_DETACH."""
    _check(int(libc.umount2(os.fsencode(target), MNT_DETACH)), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2)."""
    syscall("pivot_root", os.fsencode(new), os.fsencode(old))


_EXACTLY = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS)


def open_exactly(path: str) -> int:
    """An O_PATH descriptor of `path`, no component of which may be a symlink (openat2(2)).

    Raises:
        OSError: ELOOP where a component has become a symlink since the path was resolved.
    """
    return syscall("openat2", AT_FDCWD, os.fsencode(path), _EXACTLY, len(_EXACTLY))


def open_within(folder: int, path: bytes, *, follow: bool) -> int:
    """An O_PATH descriptor of `path` from `folder` on, through no magic link of /proc."""
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    how = struct.pack("=QQQ", flags, 0, RESOLVE_NO_MAGICLINKS)
    return syscall("openat2", folder, path, how, len(how))


def open_beneath(folder: int, path: bytes, flags: int, *, across: bool = True) -> int:
    """Open `path` from `folder` on, through no link and not out of it (openat2(2)).

    Raises:
        OSError: ELOOP where a component is a link; EXDEV where the path leads out, or, unless
            `across`, into another file system.
    """
    resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
    if not across:
        resolve |= RESOLVE_NO_XDEV
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
    return syscall("openat2", folder, path, how, len(how))


def clone_tree(fd: int) -> int:
    """A detached copy of the mounts at `fd` and below (open_tree(2)); a descriptor of it."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH
    return syscall("open_tree", fd, b"", flags)


def clone_path(path: str) -> int:
    """As `clone_tree`, by a path of our own that nobody else can change."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    return syscall("open_tree", AT_FDCWD, os.fsencode(path), flags)


def set_tree(fd: int, attributes: int, *, userns_fd: int = 0) -> None:
    """Mount attributes for a detached copy and all below it (mount_setattr(2)).

    Also cuts it off from the mounts it was copied from: as a member of their peer group, what
    is mounted onto it in the jail would appear on the host.
    """
    what = struct.pack("=QQQQ", attributes, 0, MS_PRIVATE, userns_fd)
    empty = b""
    flags = AT_EMPTY_PATH | AT_RECURSIVE
    syscall("mount_setattr", fd, empty, flags, what, len(what))


def move_tree(fd: int, target_fd: int) -> None:
    """Attach a detached copy on top of `target_fd` (move_mount(2))."""
    empty = b""
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    syscall("move_mount", fd, empty, target_fd, empty, flags)


def move_tree_to(fd: int, path: str) -> None:
    """Attach a detached copy at a path of our own that nobody else can change (move_mount(2))."""
    target = os.fsencode(path)
    syscall("move_mount", fd, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(int(libc.unshare(flags)), "unshare")


def enter_network(fd: int) -> None:
    """Put this process into a network namespace (setns(2)); needs CAP_SYS_ADMIN over it."""
    _check(int(libc.setns(fd, CLONE_NEWNET)), "setns")


def enter_mounts(fd: int) -> None:
    """Put this process into a mount namespace, at its root (setns(2))."""
    _check(int(libc.setns(fd, CLONE_NEWNS)), "setns")


def raise_link(name: str) -> None:
    """Set a network link of this namespace up (netdevice(7)). Needs CAP_NET_ADMIN over it."""
    import fcntl

    link = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    try:
        request = struct.pack("16sh22x", name.encode(), 0)
        flags = struct.unpack_from("16xh", fcntl.ioctl(link.fileno(), SIOCGIFFLAGS, request))[0]
        request = struct.pack("16sh22x", name.encode(), flags | IFF_UP)
        fcntl.ioctl(link.fileno(), SIOCSIFFLAGS, request)
    finally:
        link.close()


def send_fd(link: _socket.socket, fd: int, told: bytes = b"f") -> None:
    """Hand an open file to whoever reads the other end, with a few words (unix(7))."""
    link.sendmsg([told], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", fd))])


def receive_fd(link: _socket.socket) -> int | None:
    """The open file that was sent; None when the other end was closed without one."""
    return receive(link, 1)[1]


def receive(link: _socket.socket, told_bytes: int) -> tuple[bytes, int | None]:
    """The words that were sent, and the open file with them, close-on-exec.

    socket.recv_fds of CPython 3.11 drops its flags, so that what it receives is inherited.
    """
    told, control, _, _ = link.recvmsg(told_bytes, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
    for _, kind, data in control:
        if kind == _socket.SCM_RIGHTS:
            return told, int(struct.unpack("i", data[:4])[0])
    return told, None


def close_range(first: int, last: int = 0xFFFFFFFF, *, flags: int = 0) -> None:
    """Close every descriptor from `first` on, or do what `flags` say (close_range(2))."""
    syscall("close_range", first, last, flags)


def close_all_but(*kept: int) -> None:
    """Close every descriptor but 0, 1, 2 and these."""
    first = 3
    for fd in sorted({*kept}):
        if fd > first:
            close_range(first, fd - 1)
        first = max(first, fd + 1)
    close_range(first)


def prctl(option: int, argument: int = 0, second: int = 0) -> int:
    """prctl(2)."""
    result: int = _prctl(option, argument, second, 0, 0)
    return _check(result, f"prctl {option}") if result < 0 else result


def signal_descriptor(signal_number: int) -> int:
    """A descriptor that can be read while a blocked signal is pending (signalfd(2)).

    Close-on-exec, and does not block.
    """
    mask = struct.pack("=Q", 1 << (signal_number - 1)) + bytes(120)
    return _check(int(libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK)), "signalfd")


def reset_signal(signal_number: int) -> None:
    """SIG_DFL by rt_sigaction(2) itself: the C library refuses the two that it keeps for itself."""
    default = bytes(32)
    syscall("rt_sigaction", signal_number, default, None, 8)


def forget_session_keyring(*, may_be_refused: bool) -> None:
    """A new, empty session keyring (keyctl(2)) in place of the inherited one.

    A container's own filter may refuse every use of keyrings: then there is none to be reached.
    """
    try:
        syscall("keyctl", KEYCTL_JOIN_SESSION_KEYRING, None)
    except OSError as error:
        # A kernel without keyrings has none to forget.
        if error.errno != errno.ENOSYS and not (may_be_refused and error.errno == errno.EPERM):
            raise


def drop_bounding_set(*, may_be_refused: bool) -> None:
    """No exec can bring a capability back (capabilities(7)). Needs CAP_SETPCAP: do it first.

    Who has not got it is refused; no_new_privs then does the same alone.
    """
    for capability in range(_CAPABILITIES_MAX):
        if _prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
            continue
        number = ctypes.get_errno()
        if number == errno.EINVAL and capability:
            return  # This kernel knows no more of them.
        if number == errno.EPERM and may_be_refused:
            return
        raise OSError(number, os.strerror(number), "bounding set")


def drop_capabilities() -> None:
    """Empty the permitted, effective, inheritable and ambient sets (capset(2))."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", _CAP_VERSION_3, 0)
    syscall("capset", header, bytes(24))
