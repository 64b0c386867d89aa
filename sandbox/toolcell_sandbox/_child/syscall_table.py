"""Every Linux system call up to 6.18, and the filter's answer to it: data, no code that decides.

A row is a name, its number on x86-64 and on aarch64 (None: it has none there), a verdict and a
reason. What has no row is answered ENOSYS, as by a kernel that has never heard of it.

Numbers: asm/unistd_64.h and asm-generic/unistd.h of the kernel's user API; from 424 on all
machines share them. Reasons: the call's page in section 2 of the manual, unless said otherwise.
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    # An answer (a return value of seccomp(2)), or a question about one argument:
    # its place, a mask, values, the verdict if it holds, the verdict if not.
    # With values: is the masked argument one of them? Without: has it any bit of the mask?
    # Only low halves are asked about: each such argument is 32 bits wide for the kernel too.
    Check = tuple[int, int, tuple[int, ...], "Verdict", "Verdict"]
    Verdict = int | Check
    Row = tuple[str, int | None, int | None, Verdict, str]
    # Rows of one reason, each plainly allowed: name, x86-64, aarch64.
    Allowed = tuple[tuple[str, tuple[tuple[str, int | None, int | None], ...]], ...]

ALL = 0xFFFF_FFFF
ALLOW = 0x7FFF_0000


def refuse(number: int) -> int:
    """The call does not run and answers this errno; 0 is a lie that it has succeeded."""
    return 0x0005_0000 | number


def any_bit(place: int, bits: int, then: Verdict, otherwise: Verdict) -> Check:
    """`then` where the argument has any of these bits."""
    return (place, bits, (), then, otherwise)


def equals(
    place: int, values: tuple[int, ...], then: Verdict, otherwise: Verdict, mask: int = ALL
) -> Check:
    """`then` where what the mask leaves of the argument is one of these values."""
    return (place, mask, values, then, otherwise)


EPERM = refuse(errno.EPERM)
ENOSYS = refuse(errno.ENOSYS)
EAFNOSUPPORT = refuse(errno.EAFNOSUPPORT)
EPROTONOSUPPORT = refuse(errno.EPROTONOSUPPORT)
ESOCKTNOSUPPORT = refuse(errno.ESOCKTNOSUPPORT)
ENOPROTOOPT = refuse(errno.ENOPROTOOPT)
EOPNOTSUPP = refuse(errno.EOPNOTSUPP)
EMFILE = refuse(errno.EMFILE)
DONE = refuse(0)
ASK = 0x7FC0_0000
"""The init is asked, does the call in the caller's place or refuses it (SECCOMP_RET_USER_NOTIF);
without a listener it is refused."""

# ---------------------------------------------------------------- modes and nodes

SETUID_SETGID = 0o6000
# O_CREAT and __O_TMPFILE: with neither, the mode is whatever the register held (open(2)).
CREATES = 0o100 | 0o20000000
# S_IFMT, and what makes no device: 0 (which means S_IFREG), S_IFREG, S_IFIFO, S_IFSOCK.
FILE_TYPE, NO_DEVICES = 0o170000, (0, 0o100000, 0o010000, 0o140000)
RENAME_WHITEOUT = 4


_NO_WHITEOUT = any_bit(4, RENAME_WHITEOUT, EPERM, ALLOW)


def _mode_at(place: int, *, flags: int | None = None) -> Verdict:
    mode = any_bit(place, SETUID_SETGID, EPERM, ALLOW)
    return mode if flags is None else any_bit(flags, CREATES, mode, ALLOW)


def _node_at(place: int) -> Verdict:
    return equals(place, NO_DEVICES, _mode_at(place), EPERM, FILE_TYPE)


# ---------------------------------------------------------------- processes

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME (0x80) is no flag
# of clone(2): the low eight bits are the signal there, and only clone3 and unshare take it.
NEW_NAMESPACES = 0x0002_0000 | 0x7E00_0000
# CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM: no namespaces.
UNSHARE_OWN = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000
INIT = 1
PRIO_PROCESS, PRIO_USER = 0, 2
IOPRIO_WHO_PROCESS, IOPRIO_WHO_USER = 1, 3
# PER_LINUX, and the question which it is now (personality(2)).
PERSONALITIES = (0, 0xFFFF_FFFF)
NEGATIVE = 0x8000_0000
PIDFD_SIGNAL_PROCESS_GROUP = 4
F_SETOWN, F_SETOWN_EX = 8, 15
# F_SETLEASE, and F_SETDELEG of Linux 6.19: its owner may lease a file that was opened to be read.
LEASES = (1024, 1040)


_NO_NAMESPACES = any_bit(0, NEW_NAMESPACES, EPERM, ALLOW)
_ONLY_OWN = any_bit(0, ALL & ~UNSHARE_OWN, EPERM, ALLOW)
_PLAIN_PERSONALITY = equals(0, PERSONALITIES, ALLOW, EPERM)
_NO_LEASES = equals(1, LEASES, EPERM, ALLOW)
_NOT_PID_1 = equals(0, (INIT,), EPERM, ALLOW)


def _not_the_init(whole_user: int) -> Verdict:
    return equals(0, (whole_user,), EPERM, equals(1, (INIT,), EPERM, ALLOW))


def _oneself_at(place: int) -> Verdict:
    return equals(place, (0,), ALLOW, EPERM)


# ---------------------------------------------------------------- terminals and sockets

# TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD (ioctl_tty(2)). TIOCSETD loads line disciplines.
TERMINAL_ATTACKS = (0x5412, 0x541C, 0x541D, 0x5423)
# FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION, EXT4_IOC_SETVERSION,
# FS_IOC_ENABLE_VERITY (nobody writes to that file ever again), FS_IOC_SET_ENCRYPTION_POLICY,
# FAT_IOCTL_SET_ATTRIBUTES: attributes of a file that was opened to be read.
ATTRIBUTES_BY_DESCRIPTOR = (
    *(0x4008_6602, 0x401C_5820, 0x4008_7602, 0x4008_6604, 0x4080_6685, 0x800C_6613),
    0x4004_7211,
)
# Btrfs makes snapshots and subvolumes below a folder that was opened to be read. Its number is
# shared by FICLONE, FICLONERANGE and FIDEDUPERANGE, which any file system may know.
IOCTL_TYPE, OF_BTRFS, CLONES = 0xFF00, 0x9400, (0x4004_9409, 0x4020_940D, 0xC018_9436)
# Any socket tells the machine's interfaces and their addresses. FIOGETOWN, SIOCGPGRP, SIOCATMARK.
OF_SOCKETS, OF_ONE_SOCKET = 0x8900, (0x8903, 0x8904, 0x8905)
# FIOSETOWN, SIOCSPGRP: who gets a socket's signals, by a pointer.
OWNER_BY_POINTER = (0x8901, 0x8902)

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
STREAM, DGRAM, RAW, SEQPACKET, PACKET = 1, 2, 3, 5, 10
# The kernel's own SOCK_TYPE_MASK; above it are SOCK_NONBLOCK and SOCK_CLOEXEC.
SOCKET_TYPE = 0xF
IPPROTO_TCP, IPPROTO_UDP = 6, 17
NETLINK_ROUTE = 0
SOL_TCP, TCP_ULP = 6, 31

_NO_TERMINAL_ATTACKS = equals(1, TERMINAL_ATTACKS, EPERM, ALLOW)
_ONLY_UNIX = equals(0, (AF_UNIX,), ALLOW, EAFNOSUPPORT)
# A datagram socket of a pair sends to any address: sendto(2) would reach the host's services.
_ONLY_CONNECTED_UNIX = equals(
    0, (AF_UNIX,), equals(1, (STREAM, SEQPACKET), ALLOW, EPERM, SOCKET_TYPE), EAFNOSUPPORT
)
_NO_UPPER_LAYERS = equals(1, (SOL_TCP,), equals(2, (TCP_ULP,), ENOPROTOOPT, ALLOW), ALLOW)
_UNIX = equals(
    1,
    (STREAM, DGRAM, SEQPACKET),
    equals(2, (0, AF_UNIX), ALLOW, EPROTONOSUPPORT),
    equals(1, (RAW, PACKET), EPERM, ESOCKTNOSUPPORT, SOCKET_TYPE),
    SOCKET_TYPE,
)
# No SOCK_SEQPACKET: with protocol 0 the kernel takes the first of that type, which is SCTP.
_INTERNET = equals(
    1,
    (STREAM, DGRAM),
    equals(2, (0, IPPROTO_TCP, IPPROTO_UDP), ALLOW, EPROTONOSUPPORT),
    equals(1, (RAW, PACKET), EPERM, ESOCKTNOSUPPORT, SOCKET_TYPE),
    SOCKET_TYPE,
)
# netlink(7): raw and datagram mean the same. getifaddrs(3) asks routes, servers ask getifaddrs.
_NETLINK = equals(
    1,
    (RAW, DGRAM),
    equals(2, (NETLINK_ROUTE,), ALLOW, EPROTONOSUPPORT),
    ESOCKTNOSUPPORT,
    SOCKET_TYPE,
)


def _families(otherwise: Verdict) -> Verdict:
    return equals(0, (AF_UNIX,), _UNIX, equals(0, (AF_INET, AF_INET6), _INTERNET, otherwise))


_NO_ROUTES = _families(EAFNOSUPPORT)
_WITH_ROUTES = _families(equals(0, (AF_NETLINK,), _NETLINK, EAFNOSUPPORT))
SOCKETS: dict[tuple[str, str], Verdict] = {
    ("namespaces", "none"): _NO_ROUTES,
    ("namespaces", "loopback"): _WITH_ROUTES,
    ("namespaces", "host"): _WITH_ROUTES,
    # No namespace holds the network there, and no Landlock rule the Unix sockets of others.
    ("process_group", "none"): EPERM,
    ("process_group", "host"): equals(0, (AF_UNIX,), EPERM, _WITH_ROUTES),
}
"""What socket() makes, by way and network. No loopback without a network namespace."""

# ---------------------------------------------------------------- the rows

ALLOWED: Allowed = (
    (
        "files: open, read, write, seek, sync; which ones is for Landlock and the mount namespace",
        (
            ("read", 0, 63),
            ("write", 1, 64),
            ("close", 3, 57),
            ("stat", 4, None),
            ("fstat", 5, 80),
            ("lstat", 6, None),
            ("lseek", 8, 62),
            ("pread64", 17, 67),
            ("pwrite64", 18, 68),
            ("readv", 19, 65),
            ("writev", 20, 66),
            ("access", 21, None),
            ("dup", 32, 23),
            ("dup2", 33, None),
            ("sendfile", 40, 71),
            ("flock", 73, 32),
            ("fsync", 74, 82),
            ("fdatasync", 75, 83),
            ("truncate", 76, 45),
            ("ftruncate", 77, 46),
            ("getdents", 78, None),
            ("statfs", 137, 43),
            ("fstatfs", 138, 44),
            ("sync", 162, 81),
            ("readahead", 187, 213),
            ("getdents64", 217, 61),
            ("fadvise64", 221, 223),
            ("newfstatat", 262, 79),
            ("faccessat", 269, 48),
            ("splice", 275, 76),
            ("tee", 276, 77),
            ("sync_file_range", 277, 84),
            ("vmsplice", 278, 75),
            ("fallocate", 285, 47),
            ("dup3", 292, 24),
            ("preadv", 295, 69),
            ("pwritev", 296, 70),
            ("syncfs", 306, 267),
            ("copy_file_range", 326, 285),
            ("preadv2", 327, 286),
            ("pwritev2", 328, 287),
            ("statx", 332, 291),
            ("close_range", 436, 436),
            ("faccessat2", 439, 439),
            ("cachestat", 451, 451),
        ),
    ),
    (
        "names and places: the kernel checks each path",
        (
            ("getcwd", 79, 17),
            ("chdir", 80, 49),
            ("fchdir", 81, 50),
            ("rename", 82, None),
            ("rmdir", 84, None),
            ("link", 86, None),
            ("unlink", 87, None),
            ("symlink", 88, None),
            ("readlink", 89, None),
            ("umask", 95, 166),
            ("utime", 132, None),
            ("utimes", 235, None),
            ("futimesat", 261, None),
            ("unlinkat", 263, 35),
            ("renameat", 264, 38),
            ("linkat", 265, 37),
            ("symlinkat", 266, 36),
            ("readlinkat", 267, 78),
            ("utimensat", 280, 88),
        ),
    ),
    (
        "owners and attributes: the kernel asks for capabilities that a worker lacks",
        (
            ("chown", 92, None),
            ("fchown", 93, 55),
            ("lchown", 94, None),
            ("setxattr", 188, 5),
            ("lsetxattr", 189, 6),
            ("fsetxattr", 190, 7),
            ("getxattr", 191, 8),
            ("lgetxattr", 192, 9),
            ("fgetxattr", 193, 10),
            ("listxattr", 194, 11),
            ("llistxattr", 195, 12),
            ("flistxattr", 196, 13),
            ("removexattr", 197, 14),
            ("lremovexattr", 198, 15),
            ("fremovexattr", 199, 16),
            ("fchownat", 260, 54),
            ("setxattrat", 463, 463),
            ("getxattrat", 464, 464),
            ("listxattrat", 465, 465),
            ("removexattrat", 466, 466),
            ("file_getattr", 468, 468),
            ("file_setattr", 469, 469),
        ),
    ),
    (
        "waiting: poll, epoll, eventfd, timerfd, signalfd, inotify; on descriptors already held",
        (
            ("poll", 7, None),
            ("pipe", 22, None),
            ("select", 23, None),
            ("epoll_create", 213, None),
            ("epoll_wait", 232, None),
            ("epoll_ctl", 233, 21),
            ("inotify_init", 253, None),
            ("inotify_add_watch", 254, 27),
            ("inotify_rm_watch", 255, 28),
            ("pselect6", 270, 72),
            ("ppoll", 271, 73),
            ("epoll_pwait", 281, 22),
            ("signalfd", 282, None),
            ("timerfd_create", 283, 85),
            ("eventfd", 284, None),
            ("timerfd_settime", 286, 86),
            ("timerfd_gettime", 287, 87),
            ("signalfd4", 289, 74),
            ("eventfd2", 290, 19),
            ("epoll_create1", 291, 20),
            ("pipe2", 293, 59),
            ("inotify_init1", 294, 26),
            ("epoll_pwait2", 441, 441),
        ),
    ),
    (
        "memory: this process's own",
        (
            ("mmap", 9, 222),
            ("mprotect", 10, 226),
            ("munmap", 11, 215),
            ("brk", 12, 214),
            ("mremap", 25, 216),
            ("msync", 26, 227),
            ("mincore", 27, 232),
            ("madvise", 28, 233),
            ("mlock", 149, 228),
            ("munlock", 150, 229),
            ("mlockall", 151, 230),
            ("munlockall", 152, 231),
            ("remap_file_pages", 216, 234),
            ("mbind", 237, 235),
            ("set_mempolicy", 238, 237),
            ("get_mempolicy", 239, 236),
            ("memfd_create", 319, 279),
            ("membarrier", 324, 283),
            ("mlock2", 325, 284),
            ("pkey_mprotect", 329, 288),
            ("pkey_alloc", 330, 289),
            ("pkey_free", 331, 290),
            ("set_mempolicy_home_node", 450, 450),
            ("map_shadow_stack", 453, 453),
            ("mseal", 462, 462),
        ),
    ),
    (
        "processes: begin, run, wait, end; the filter is inherited by each (seccomp(2))",
        (
            ("getpid", 39, 172),
            ("fork", 57, None),
            ("vfork", 58, None),
            ("execve", 59, 221),
            ("exit", 60, 93),
            ("wait4", 61, 260),
            ("setpgid", 109, 154),
            ("getppid", 110, 173),
            ("getpgrp", 111, None),
            ("setsid", 112, 157),
            ("getpgid", 121, 155),
            ("getsid", 124, 156),
            ("gettid", 186, 178),
            ("set_tid_address", 218, 96),
            ("restart_syscall", 219, 128),
            ("exit_group", 231, 94),
            ("waitid", 247, 95),
            ("execveat", 322, 281),
            ("pidfd_open", 434, 434),
        ),
    ),
    (
        "signals: the receiver is held by the pid namespace and by Landlock's scope",
        (
            ("rt_sigaction", 13, 134),
            ("rt_sigprocmask", 14, 135),
            ("rt_sigreturn", 15, 139),
            ("pause", 34, None),
            ("kill", 62, 129),
            ("rt_sigpending", 127, 136),
            ("rt_sigtimedwait", 128, 137),
            ("rt_sigqueueinfo", 129, 138),
            ("rt_sigsuspend", 130, 133),
            ("sigaltstack", 131, 132),
            ("tkill", 200, 130),
            ("tgkill", 234, 131),
            ("rt_tgsigqueueinfo", 297, 240),
            ("pidfd_send_signal", 424, 424),
        ),
    ),
    (
        "threads and locks: this process's own",
        (
            ("arch_prctl", 158, None),
            ("futex", 202, 98),
            ("set_robust_list", 273, 99),
            ("get_robust_list", 274, 100),
            ("rseq", 334, 293),
            ("futex_waitv", 449, 449),
            ("futex_wake", 454, 454),
            ("futex_wait", 455, 455),
            ("futex_requeue", 456, 456),
        ),
    ),
    (
        "scheduling: read anybody's that can be seen; the limits bound the rest",
        (
            ("sched_yield", 24, 124),
            ("getpriority", 140, 141),
            ("sched_getparam", 143, 121),
            ("sched_getscheduler", 145, 120),
            ("sched_get_priority_max", 146, 125),
            ("sched_get_priority_min", 147, 126),
            ("sched_rr_get_interval", 148, 127),
            ("sched_getaffinity", 204, 123),
            ("ioprio_get", 252, 31),
            ("getcpu", 309, 168),
            ("sched_getattr", 315, 275),
        ),
    ),
    (
        "time: read, sleep, own timers",
        (
            ("nanosleep", 35, 101),
            ("getitimer", 36, 102),
            ("alarm", 37, None),
            ("setitimer", 38, 103),
            ("gettimeofday", 96, 169),
            ("times", 100, 153),
            ("time", 201, None),
            ("timer_create", 222, 107),
            ("timer_settime", 223, 110),
            ("timer_gettime", 224, 108),
            ("timer_getoverrun", 225, 109),
            ("timer_delete", 226, 111),
            ("clock_gettime", 228, 113),
            ("clock_getres", 229, 114),
            ("clock_nanosleep", 230, 115),
        ),
    ),
    (
        "identity: credentials can only be given up (no_new_privs, no capabilities)",
        (
            ("getuid", 102, 174),
            ("getgid", 104, 176),
            ("setuid", 105, 146),
            ("setgid", 106, 144),
            ("geteuid", 107, 175),
            ("getegid", 108, 177),
            ("setreuid", 113, 145),
            ("setregid", 114, 143),
            ("getgroups", 115, 158),
            ("setgroups", 116, 159),
            ("setresuid", 117, 147),
            ("getresuid", 118, 148),
            ("setresgid", 119, 149),
            ("getresgid", 120, 150),
            ("setfsuid", 122, 151),
            ("setfsgid", 123, 152),
            ("capget", 125, 90),
            ("capset", 126, 91),
            ("lsm_get_self_attr", 459, 459),
            ("lsm_list_modules", 461, 461),
        ),
    ),
    (
        "system facts and own limits",
        (
            ("uname", 63, 160),
            ("getrlimit", 97, 163),
            ("getrusage", 98, 165),
            ("sysinfo", 99, 179),
            ("prctl", 157, 167),
            ("setrlimit", 160, 164),
            ("getrandom", 318, 278),
        ),
    ),
    (
        "sockets that exist: which can exist is the rule for socket and socketpair",
        (
            ("connect", 42, 203),
            ("accept", 43, 202),
            ("sendto", 44, 206),
            ("recvfrom", 45, 207),
            ("sendmsg", 46, 211),
            ("recvmsg", 47, 212),
            ("shutdown", 48, 210),
            ("bind", 49, 200),
            ("listen", 50, 201),
            ("getsockname", 51, 204),
            ("getpeername", 52, 205),
            ("getsockopt", 55, 209),
            ("accept4", 288, 242),
            ("recvmmsg", 299, 243),
            ("sendmmsg", 307, 269),
        ),
    ),
    (
        "System V IPC and POSIX queues: of this jail's ipc namespace alone",
        (
            ("shmget", 29, 194),
            ("shmat", 30, 196),
            ("shmctl", 31, 195),
            ("semget", 64, 190),
            ("semop", 65, 193),
            ("semctl", 66, 191),
            ("shmdt", 67, 197),
            ("msgget", 68, 186),
            ("msgsnd", 69, 189),
            ("msgrcv", 70, 188),
            ("msgctl", 71, 187),
            ("semtimedop", 220, 192),
            ("mq_open", 240, 180),
            ("mq_unlink", 241, 181),
            ("mq_timedsend", 242, 182),
            ("mq_timedreceive", 243, 183),
            ("mq_notify", 244, 184),
            ("mq_getsetattr", 245, 185),
        ),
    ),
    (
        "fences: a handler may tighten itself further; filters and domains only add up",
        (
            ("seccomp", 317, 277),
            ("landlock_create_ruleset", 444, 444),
            ("landlock_add_rule", 445, 445),
            ("landlock_restrict_self", 446, 446),
        ),
    ),
    (
        "tracing of the host: its uprobes put these into any process; by hand they are SIGILL",
        (
            ("uretprobe", 335, None),
            ("uprobe", 336, None),
        ),
    ),
)

_SETUID = "setuid and setgid bits on disk would hold for the whole host"
_DEVICES = "devices, and the 0:0 device that is an overlay's whiteout"
_RING = "does calls that no filter sees; callers fall back to epoll and threads"
_AIO = "its contexts come out of one budget for the whole host (fs.aio-max-nr)"
_NAMESPACES = "a new user namespace brings capabilities, and much kernel code to try them on"
_TERMINAL = "types into a terminal, takes the console, loads line disciplines"
_SLOWED = "the init, where it has the worker's uid, would be slowed"
_PERSONALITY = "turns off address randomisation, or makes what is readable executable"
_FAMILIES = "families, types and protocols by name; the rest is kernel code that nobody needs"
_ULP = "TCP's upper layers (kernel TLS) are a frequent way in; callers fall back"
_MOUNTINFO = "shows mounts and their host paths; callers fall back to mountinfo"
_GONE = "obsolete: gone, never there on these machines, or called by nothing"


JUDGED: tuple[Row, ...] = (
    ("chmod", 90, None, _mode_at(1), _SETUID),
    ("fchmod", 91, 52, _mode_at(1), _SETUID),
    ("creat", 85, None, _mode_at(1), _SETUID),
    ("mkdir", 83, None, _mode_at(1), _SETUID),
    ("fchmodat", 268, 53, _mode_at(2), _SETUID),
    ("fchmodat2", 452, 452, _mode_at(2), _SETUID),
    ("mkdirat", 258, 34, _mode_at(2), _SETUID),
    ("open", 2, None, _mode_at(2, flags=1), _SETUID),
    ("openat", 257, 56, _mode_at(3, flags=2), _SETUID),
    ("openat2", 437, 437, ENOSYS, "its mode lies in memory; callers fall back to openat"),
    ("mknod", 133, None, _node_at(1), _DEVICES),
    ("mknodat", 259, 33, _node_at(2), _DEVICES),
    ("renameat2", 316, 276, _NO_WHITEOUT, "the whiteout it leaves would hide a lower file"),
    ("io_uring_setup", 425, 425, ENOSYS, _RING),
    ("io_uring_enter", 426, 426, ENOSYS, _RING),
    ("io_uring_register", 427, 427, ENOSYS, _RING),
    ("io_setup", 206, 0, ENOSYS, _AIO),
    ("io_submit", 209, 2, ENOSYS, _AIO),
    ("io_cancel", 210, 3, ENOSYS, _AIO),
    ("io_getevents", 208, 4, ENOSYS, _AIO),
    ("io_pgetevents", 333, 292, ENOSYS, _AIO),
    ("io_destroy", 207, 1, ENOSYS, _AIO),
    ("fcntl", 72, 25, _NO_LEASES, "whoever opens the file waits for the lease, up to 45 seconds"),
    ("clone", 56, 220, _NO_NAMESPACES, _NAMESPACES),
    ("clone3", 435, 435, ENOSYS, "its flags lie in memory; callers fall back to clone"),
    ("unshare", 272, 97, _ONLY_OWN, _NAMESPACES),
    ("setns", 308, 268, EPERM, "enters another namespace"),
    ("ioctl", 16, 29, _NO_TERMINAL_ATTACKS, _TERMINAL),
    ("prlimit64", 302, 261, _oneself_at(0), "limits of another process, such as the init"),
    ("setpriority", 141, 140, _not_the_init(PRIO_USER), _SLOWED),
    ("ioprio_set", 251, 30, _not_the_init(IOPRIO_WHO_USER), _SLOWED),
    ("sched_setparam", 142, 118, _NOT_PID_1, _SLOWED),
    ("sched_setscheduler", 144, 119, _NOT_PID_1, _SLOWED),
    ("sched_setattr", 314, 274, _NOT_PID_1, _SLOWED),
    ("sched_setaffinity", 203, 122, _NOT_PID_1, _SLOWED),
    ("ptrace", 101, 117, EPERM, "reads and steers another process"),
    ("process_vm_readv", 310, 270, EPERM, "reads and steers another process"),
    ("process_vm_writev", 311, 271, EPERM, "reads and steers another process"),
    ("pidfd_getfd", 438, 438, EPERM, "takes a descriptor out of another process"),
    ("kcmp", 312, 272, EPERM, "compares kernel pointers of two processes"),
    ("process_madvise", 440, 440, EPERM, "changes another process's memory"),
    ("process_mrelease", 448, 448, EPERM, "changes another process's memory"),
    ("userfaultfd", 323, 282, EPERM, "stops the kernel in mid-copy: a tool of exploits"),
    ("bpf", 321, 280, EPERM, "loads programs into the kernel"),
    ("perf_event_open", 298, 241, EPERM, "a wide door into the kernel, and it watches others"),
    ("add_key", 248, 217, EPERM, "keyrings are shared beyond a jail"),
    ("request_key", 249, 218, EPERM, "keyrings are shared beyond a jail"),
    ("keyctl", 250, 219, EPERM, "keyrings are shared beyond a jail"),
    ("open_by_handle_at", 304, 265, EPERM, "opens a file by handle, past every folder above it"),
    ("name_to_handle_at", 303, 264, EPERM, "a handle is of use only to open_by_handle_at"),
    ("fanotify_init", 300, 262, EPERM, "watches and stops other processes' file access"),
    ("fanotify_mark", 301, 263, EPERM, "watches and stops other processes' file access"),
    ("mount", 165, 40, EPERM, "changes what is mounted"),
    ("umount2", 166, 39, EPERM, "changes what is mounted"),
    ("fsopen", 430, 430, EPERM, "changes what is mounted"),
    ("fsconfig", 431, 431, EPERM, "changes what is mounted"),
    ("fsmount", 432, 432, EPERM, "changes what is mounted"),
    ("fspick", 433, 433, EPERM, "changes what is mounted"),
    ("open_tree", 428, 428, EPERM, "changes what is mounted"),
    ("open_tree_attr", 467, 467, EPERM, "changes what is mounted"),
    ("move_mount", 429, 429, EPERM, "changes what is mounted"),
    ("mount_setattr", 442, 442, EPERM, "changes what is mounted"),
    ("pivot_root", 155, 41, EPERM, "changes the root"),
    ("chroot", 161, 51, EPERM, "changes the root"),
    ("statmount", 457, 457, ENOSYS, _MOUNTINFO),
    ("listmount", 458, 458, ENOSYS, _MOUNTINFO),
    ("quotactl", 179, 60, EPERM, "quotas are the host's"),
    ("quotactl_fd", 443, 443, EPERM, "quotas are the host's"),
    ("swapon", 167, 224, EPERM, "swap is the host's"),
    ("swapoff", 168, 225, EPERM, "swap is the host's"),
    ("reboot", 169, 142, EPERM, "the host's power and next kernel"),
    ("kexec_load", 246, 104, EPERM, "the host's power and next kernel"),
    ("kexec_file_load", 320, 294, EPERM, "the host's power and next kernel"),
    ("init_module", 175, 105, EPERM, "modules are the host's kernel"),
    ("finit_module", 313, 273, EPERM, "modules are the host's kernel"),
    ("delete_module", 176, 106, EPERM, "modules are the host's kernel"),
    ("acct", 163, 89, EPERM, "process accounting is the host's"),
    ("syslog", 103, 116, EPERM, "the kernel's log shows addresses and other jails"),
    ("settimeofday", 164, 170, EPERM, "the clock is the host's"),
    ("clock_settime", 227, 112, EPERM, "the clock is the host's"),
    ("adjtimex", 159, 171, EPERM, "the clock is the host's"),
    ("clock_adjtime", 305, 266, EPERM, "the clock is the host's"),
    ("iopl", 172, None, EPERM, "hardware ports"),
    ("ioperm", 173, None, EPERM, "hardware ports"),
    ("modify_ldt", 154, None, EPERM, "16-bit segments: for emulators of old systems"),
    ("vhangup", 153, 58, EPERM, "hangs up the terminal"),
    ("sethostname", 170, 161, EPERM, "the name is the jail's, set by the init"),
    ("setdomainname", 171, 162, EPERM, "the name is the jail's, set by the init"),
    ("move_pages", 279, 239, EPERM, "moves pages, also of other processes"),
    ("migrate_pages", 256, 238, EPERM, "moves pages, also of other processes"),
    ("memfd_secret", 447, 447, EPERM, "memory that the kernel itself cannot read"),
    ("personality", 135, 92, _PLAIN_PERSONALITY, _PERSONALITY),
    ("lsm_set_self_attr", 460, 460, EPERM, "a security profile is not a handler's to change"),
    ("socket", 41, 198, _NO_ROUTES, _FAMILIES),
    ("socketpair", 53, 199, _ONLY_UNIX, _FAMILIES),
    ("setsockopt", 54, 208, _NO_UPPER_LAYERS, _ULP),
    ("uselib", 134, None, ENOSYS, _GONE),
    ("ustat", 136, None, ENOSYS, _GONE),
    ("sysfs", 139, None, ENOSYS, _GONE),
    ("_sysctl", 156, None, ENOSYS, _GONE),
    ("create_module", 174, None, ENOSYS, _GONE),
    ("get_kernel_syms", 177, None, ENOSYS, _GONE),
    ("query_module", 178, None, ENOSYS, _GONE),
    ("nfsservctl", 180, 42, ENOSYS, _GONE),
    ("getpmsg", 181, None, ENOSYS, _GONE),
    ("putpmsg", 182, None, ENOSYS, _GONE),
    ("afs_syscall", 183, None, ENOSYS, _GONE),
    ("tuxcall", 184, None, ENOSYS, _GONE),
    ("security", 185, None, ENOSYS, _GONE),
    ("vserver", 236, None, ENOSYS, _GONE),
    ("epoll_ctl_old", 214, None, ENOSYS, _GONE),
    ("epoll_wait_old", 215, None, ENOSYS, _GONE),
    ("set_thread_area", 205, None, ENOSYS, _GONE),
    ("get_thread_area", 211, None, ENOSYS, _GONE),
    ("lookup_dcookie", 212, 18, ENOSYS, _GONE),
)


def _commands(otherwise: Verdict) -> Verdict:
    judged = TERMINAL_ATTACKS + OWNER_BY_POINTER + ATTRIBUTES_BY_DESCRIPTOR
    return equals(1, judged, EPERM, otherwise)


_BTRFS = equals(1, (OF_BTRFS,), equals(1, CLONES, ALLOW, EPERM), ALLOW, IOCTL_TYPE)
_IPC = "one namespace for the whole container: others' queues and segments, and none is gone after"
_IPC_CALLS = (
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend"),
    *("mq_timedreceive", "mq_notify", "mq_getsetattr"),
)
_METADATA = "Landlock has no right for it, and the worker's uid owns more than the jail may write"
_METADATA_CALLS = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
_ATTRIBUTE_CALLS = (
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "file_setattr"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
_OTHERS = "a process of the same uid outside the jail, which no Landlock scope covers"
PROCESS_GROUP: dict[str, tuple[Verdict, str]] = {
    "setsid": (DONE, "nothing leaves the group by which the tree is killed; daemons go on"),
    "setpgid": (DONE, "nothing leaves the group by which the tree is killed; shells go on"),
    "kill": (
        any_bit(0, NEGATIVE, EPERM, equals(0, (0,), EPERM, ALLOW)),
        "0, -1 and groups: there is one group, the whole jail; ESRCH would read as already gone",
    ),
    "pidfd_send_signal": (
        any_bit(3, PIDFD_SIGNAL_PROCESS_GROUP, EPERM, ALLOW),
        "a group by pidfd is the group that kill(0) would reach",
    ),
    "fcntl": (
        equals(
            1,
            (F_SETOWN_EX, *LEASES),
            EPERM,
            equals(1, (F_SETOWN,), any_bit(2, NEGATIVE, EPERM, ALLOW), ALLOW),
        ),
        "leases as everywhere; F_SETOWN of a group, F_SETOWN_EX by pointer: SIGIO to others",
    ),
    "ioctl": (
        _commands(_BTRFS),
        "terminals as everywhere; FIOSETOWN and SIOCSPGRP as F_SETOWN_EX; files' attributes",
    ),
    "socketpair": (
        _ONLY_CONNECTED_UNIX,
        "a datagram socket of a pair sends to any address, past the rule for socket",
    ),
    "sched_setparam": (_oneself_at(0), _OTHERS),
    "sched_setscheduler": (_oneself_at(0), _OTHERS),
    "sched_setattr": (_oneself_at(0), _OTHERS),
    "sched_setaffinity": (_oneself_at(0), _OTHERS),
    "setpriority": (equals(0, (PRIO_PROCESS,), _oneself_at(1), EPERM), _OTHERS),
    "ioprio_set": (equals(0, (IOPRIO_WHO_PROCESS,), _oneself_at(1), EPERM), _OTHERS),
    **dict.fromkeys(_IPC_CALLS, (EPERM, _IPC)),
    **dict.fromkeys(_METADATA_CALLS, (ASK, _METADATA)),
    **dict.fromkeys(_ATTRIBUTE_CALLS, (EOPNOTSUPP, _METADATA)),
    **dict.fromkeys(
        ("inotify_init", "inotify_init1"),
        (EMFILE, "instances come out of the user's own budget; programs fall back to looking"),
    ),
    "inotify_add_watch": (EPERM, "tells the names in folders that Landlock lets nobody list"),
}
"""What is judged otherwise where no namespace stands around the jail."""

NO_NETWORK: dict[str, tuple[Verdict, str]] = {
    "ioctl": (
        _commands(
            equals(1, (OF_SOCKETS,), equals(1, OF_ONE_SOCKET, ALLOW, EPERM), _BTRFS, IOCTL_TYPE)
        ),
        f"{PROCESS_GROUP['ioctl'][1]}; interfaces and addresses, by a pair's socket",
    ),
}
"""What is judged otherwise there where the jail has no network besides."""


def rows(way: str, network: str) -> list[Row]:
    """The whole table for one way of holding a jail and one network.

    Raises:
        ValueError: There is no such pair. `process_group` has no loopback of its own.
    """
    if (way, network) not in SOCKETS:
        raise ValueError(f"no system call table for way {way!r} with network {network!r}")
    changed = PROCESS_GROUP if way == "process_group" else {}
    if changed and network == "none":
        changed = {**changed, **NO_NETWORK}
    found: list[Row] = [
        (name, x86_64, aarch64, *changed.get(name, (ALLOW, reason)))
        for reason, group in ALLOWED
        for name, x86_64, aarch64 in group
    ]
    for name, x86_64, aarch64, verdict, reason in JUDGED:
        if name == "socket":
            verdict = SOCKETS[way, network]
        found.append((name, x86_64, aarch64, *changed.get(name, (verdict, reason))))
    return found
