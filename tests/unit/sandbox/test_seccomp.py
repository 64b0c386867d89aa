"""The table of system calls and the program made of it, on both machines, without the kernel."""

from __future__ import annotations

import errno
import importlib.util
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from toolcell_sandbox._child import metadata, seccomp, syscall_table, syscalls
from toolcell_sandbox._child.seccomp import KILL_PROCESS, USER_NOTIF, Blocked, program
from toolcell_sandbox._child.syscall_table import ALLOW, SOCKETS

from . import bpf
from .bpf import ARCH, Refused, check, run, trace

if TYPE_CHECKING:
    from toolcell_sandbox._child.seccomp import Program
    from toolcell_sandbox._child.syscall_table import Verdict

ENOSYS = 0x50000 | errno.ENOSYS
EPERM = 0x50000 | errno.EPERM
EAFNOSUPPORT = 0x50000 | errno.EAFNOSUPPORT
EPROTONOSUPPORT = 0x50000 | errno.EPROTONOSUPPORT
ESOCKTNOSUPPORT = 0x50000 | errno.ESOCKTNOSUPPORT
ENOPROTOOPT = 0x50000 | errno.ENOPROTOOPT
DONE = 0x50000

MACHINES = ("x86_64", "aarch64")
PAIRS = tuple(SOCKETS)
CELLS = [(machine, way, network) for machine in MACHINES for way, network in PAIRS]
PROGRAMS = {cell: program(cell[0], way=cell[1], network=cell[2], kill=USER_NOTIF) for cell in CELLS}
NUMBERS = {
    machine: {
        row[0]: number
        for row in syscall_table.rows("namespaces", "none")
        if isinstance(number := row[1 + place], int)
    }
    for place, machine in enumerate(MACHINES)
}


def answer(cell: tuple[str, str, str], name: str, *arguments: int) -> int:
    """The program's answer to a call by name."""
    machine = cell[0]
    return run(PROGRAMS[cell], NUMBERS[machine][name], ARCH[machine], arguments)


def everywhere(name: str, *arguments: int, way: str | None = None) -> set[int]:
    """The answers on each machine that has the call, in each way and network asked for."""
    return {
        answer(cell, name, *arguments)
        for cell in CELLS
        if name in NUMBERS[cell[0]] and way in (None, cell[1])
    }


# ---------------------------------------------------------------- the table


def header_numbers(text: str) -> dict[str, int]:
    """Names and numbers that a unistd.h defines for 64-bit machines."""
    text = text.split("#undef __NR_syscalls")[0]
    found = {
        name: int(number)
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)
    }
    # 403 to 423 serve 32-bit machines alone; fstatat has another name on 64 bits; the others
    # are no calls, or no call of these machines.
    none = ("syscalls", "arch_specific_syscall", "sync_file_range2")
    return {
        "newfstatat" if name == "fstatat" else name: number
        for name, number in found.items()
        if not 403 <= number <= 423 and name not in none
    }


HEADERS = [
    ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    ("x86_64", "/usr/include/asm/unistd_64.h"),
    ("aarch64", "/usr/include/asm-generic/unistd.h"),
]
PRESENT = [(machine, path) for machine, path in HEADERS if Path(path).exists()]


@pytest.mark.parametrize(("machine", "path"), PRESENT)
def test_every_number_of_the_headers_is_in_the_table_and_right(machine: str, path: str) -> None:
    """One wrong number refuses a harmless call and lets a harmful one by."""
    wanted = header_numbers(Path(path).read_text(encoding="utf-8"))
    assert len(wanted) > 300
    known = NUMBERS[machine]
    assert {name: known.get(name) for name in wanted} == wanted
    newest = max(wanted.values())
    ours_alone = {name for name, number in known.items() if number <= newest} - set(wanted)
    assert ours_alone <= {"uretprobe", "uprobe"}


def test_numbers_newer_than_the_headers_are_those_of_the_kernel() -> None:
    """From 424 on all machines share them; a slip here would not show in an old header."""
    names = """cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount
    listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat
    listxattrat removexattrat open_tree_attr file_getattr file_setattr"""
    newest = dict(zip(names.split(), range(451, 470), strict=True))
    for machine in MACHINES:
        assert {n: v for n, v in NUMBERS[machine].items() if v > 450} == newest
    assert (NUMBERS["x86_64"]["uretprobe"], NUMBERS["x86_64"]["uprobe"]) == (335, 336)
    shared = [{n: v for n, v in NUMBERS[m].items() if v >= 424} for m in MACHINES]
    assert shared[0] == shared[1]


@pytest.mark.parametrize("pair", PAIRS)
def test_each_call_has_one_row_and_each_row_a_reason(pair: tuple[str, str]) -> None:
    """Of two rows the later one would win, silently."""
    rows = syscall_table.rows(*pair)
    names = [row[0] for row in rows]
    assert len(names) == len(set(names)) == 383
    for column in (1, 2):
        numbers = [row[column] for row in rows if row[column] is not None]
        assert len(numbers) == len(set(numbers))
    for name, x86_64, aarch64, _, reason in rows:
        assert (x86_64, aarch64) != (None, None), name
        assert len(reason) > 10, name
    assert set(syscall_table.PROCESS_GROUP) <= set(names)


@pytest.mark.parametrize("pair", [("process_group", "loopback"), ("jail", "none"), ("", "")])
def test_a_way_and_network_that_do_not_exist_have_no_filter(pair: tuple[str, str]) -> None:
    """A spelling mistake, or a loopback that would be the host's, must not get some filter."""
    way, network = pair
    with pytest.raises(ValueError, match=re.escape(repr(network))):
        program("x86_64", way=way, network=network, kill=KILL_PROCESS)


def test_an_unknown_machine_has_no_filter() -> None:
    """Numbers of one machine mean other calls on another."""
    with pytest.raises(syscalls.UnsupportedMachine):
        program("riscv64", way="namespaces", network="none", kill=KILL_PROCESS)


# ---------------------------------------------------------------- the program


@pytest.mark.parametrize("cell", CELLS)
def test_the_kernel_would_take_the_program(cell: tuple[str, str, str]) -> None:
    """A filter that is refused means that no jail starts."""
    check(PROGRAMS[cell])
    assert len(PROGRAMS[cell]) < 1000


@pytest.mark.parametrize(
    "broken",
    [
        [],
        [(bpf.LOAD, 0, 0, 0)],
        [(bpf.GO, 0, 0, 1), (bpf.RETURN, 0, 0, 0)],
        [(bpf.EQUAL, 0, 1, 0), (bpf.RETURN, 0, 0, 0)],
        [(bpf.EQUAL, 256, 0, 0), *[(bpf.RETURN, 0, 0, 0)] * 300],
        [(bpf.LOAD, 0, 0, 2), (bpf.RETURN, 0, 0, 0)],
        [(bpf.LOAD, 0, 0, 64), (bpf.RETURN, 0, 0, 0)],
        [(0x28, 0, 0, 0), (bpf.RETURN, 0, 0, 0)],
        [(bpf.RETURN, 0, 0, -1)],
        [(bpf.RETURN, 0, 0, 0)] * 4097,
    ],
)
def test_a_broken_program_is_seen(broken: Program) -> None:
    """The check above must itself be able to fail."""
    with pytest.raises(Refused):
        check(broken)


def judge(verdict: Verdict, arguments: tuple[int, ...]) -> int:
    """What the data says, without any program."""
    while not isinstance(verdict, int):
        place, mask, values, then, otherwise = verdict
        value = (arguments[place] if place < len(arguments) else 0) & 0xFFFF_FFFF & mask
        verdict = then if (value in values if values else value != 0) else otherwise
    return verdict


def interesting(verdict: Verdict) -> Iterator[tuple[int, int]]:
    """Places and values on both sides of each question: exact, a bit off, more bits, high half."""
    if isinstance(verdict, int):
        return
    place, mask, values, then, otherwise = verdict
    for value in values or (mask, mask & -mask, 1 << mask.bit_length() - 1):
        for near in (value, value ^ 1, value | 0x80800, value + 1, ~value, value | 7 << 32, 0):
            yield place, near & (1 << 64) - 1
    yield place, 0xFFFF_FFFF_0000_0000
    yield from interesting(then)
    yield from interesting(otherwise)


def combinations(verdict: Verdict) -> Iterator[tuple[int, ...]]:
    """Arguments that lead to every leaf of a verdict, and just past it."""
    found: dict[int, list[int]] = {}
    for place, value in interesting(verdict):
        values = found.setdefault(place, [])
        if value not in values:
            values.append(value)
    arguments: list[tuple[int, ...]] = [()]
    for place in range(max(found, default=-1) + 1):
        arguments = [(*a, v) for a in arguments for v in found.get(place, [0])]
    yield from arguments


@pytest.mark.parametrize("cell", CELLS)
def test_the_program_says_what_the_table_says(cell: tuple[str, str, str]) -> None:
    """A jump that is one off gives a call the answer of its neighbour."""
    machine, way, network = cell
    code, arch = PROGRAMS[cell], ARCH[machine]
    for name, x86_64, aarch64, verdict, _ in syscall_table.rows(way, network):
        number = x86_64 if machine == "x86_64" else aarch64
        if number is None:
            continue
        for arguments in combinations(verdict):
            got = run(code, number, arch, arguments)
            assert got == judge(verdict, arguments), (name, arguments)


@pytest.mark.parametrize("cell", CELLS)
def test_a_number_that_has_no_row_answers_enosys(cell: tuple[str, str, str]) -> None:
    """Row 81: a call of a kernel newer than this table would be one that nobody judged."""
    machine = cell[0]
    known = set(NUMBERS[machine].values())
    strangers = [n for n in range(1100) if n not in known]
    strangers += [0x3FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF]
    if machine == "aarch64":
        strangers += [0x4000_0000, 0x4000_0027]
    for number in strangers:
        assert run(PROGRAMS[cell], number, ARCH[machine]) == ENOSYS


@pytest.mark.parametrize("kill", [KILL_PROCESS, USER_NOTIF])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_call_of_another_architecture_is_killed(pair: tuple[str, str], kill: int) -> None:
    """Row 80: its numbers mean other calls: 20 is writev here and getpid on i386."""
    for machine in MACHINES:
        code = program(machine, way=pair[0], network=pair[1], kill=kill)
        for name, arch in ARCH.items():
            if name != machine:
                for number in (0, 1, 20, 39, 437, 0xFFFF_FFFF):
                    assert run(code, number, arch) == kill
        assert run(code, 0, 0) == kill
    code = program("x86_64", way=pair[0], network=pair[1], kill=kill)
    for number in (0, 39, 512, 547, 0x3FFF_FFFF):
        assert run(code, 0x4000_0000 | number, ARCH["x86_64"]) == kill


@pytest.mark.parametrize("cell", CELLS)
def test_a_call_that_is_always_allowed_asks_for_no_argument(cell: tuple[str, str, str]) -> None:
    """The kernel skips the filter for calls that it sees allowed by their number alone."""
    machine, way, network = cell
    code, arch = PROGRAMS[cell], ARCH[machine]
    for name, x86_64, aarch64, verdict, _ in syscall_table.rows(way, network):
        number = x86_64 if machine == "x86_64" else aarch64
        if number is None or verdict != ALLOW:
            continue
        _, steps = trace(code, number, arch)
        assert [value for code, _, _, value in steps if code == bpf.LOAD] == [4, 0], name
        assert len(steps) <= 14, name


def test_branches_longer_than_a_jump_still_arrive() -> None:
    """A jump is eight bits wide: a longer branch would be cut silently."""
    long = syscall_table.equals(1, tuple(range(200)), EPERM, ALLOW)
    for place in range(3):
        long = syscall_table.equals(0, (place, place + 10, place + 20), long, ENOSYS)
        long = syscall_table.any_bit(2, 1 << place, ENOSYS, long)
    code = [*seccomp._decide(long)]
    check(code)
    for arguments in combinations(long):
        assert run(code, 0, 0, arguments) == judge(long, arguments)


# ---------------------------------------------------------------- promises, row by row


DANGEROUS = """ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise
process_mrelease userfaultfd bpf perf_event_open keyctl add_key request_key open_by_handle_at
name_to_handle_at fanotify_init fanotify_mark mount umount2 fsopen fsconfig fsmount fspick
open_tree open_tree_attr move_mount mount_setattr pivot_root chroot setns quotactl quotactl_fd
swapon swapoff reboot kexec_load kexec_file_load init_module finit_module delete_module acct
syslog settimeofday clock_settime adjtimex clock_adjtime iopl ioperm modify_ldt vhangup
sethostname setdomainname move_pages migrate_pages memfd_secret lsm_set_self_attr"""


@pytest.mark.parametrize("name", DANGEROUS.split())
def test_a_dangerous_call_answers_eperm(name: str) -> None:
    """Rows 29, 47, 54, 55, 69 to 73, 75 to 78: each is a way out or into the kernel."""
    assert everywhere(name) == {EPERM}
    assert everywhere(name, *[(1 << 64) - 1] * 6) == {EPERM}


DISPENSABLE = """clone3 openat2 io_uring_setup io_uring_enter io_uring_register io_setup io_submit
statmount listmount lookup_dcookie nfsservctl"""


@pytest.mark.parametrize("name", DISPENSABLE.split())
def test_a_call_that_callers_can_do_without_answers_enosys(name: str) -> None:
    """Rows 39 and 68: EPERM would stop programs that fall back when a call does not exist."""
    assert everywhere(name, 1, 2, 3, 4, 5, 6) == {ENOSYS}


FENCES = "seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"


@pytest.mark.parametrize("name", FENCES.split())
def test_a_handler_may_fence_itself_in_further(name: str) -> None:
    """Row 86: a browser or a package manager that sandboxes its own parts must not break."""
    assert everywhere(name, 1, 8) == {ALLOW}


MODES = {
    "chmod": (0, None),
    "fchmod": (0, None),
    "creat": (0, None),
    "mkdir": (0, None),
    "mknod": (0, None),
    "fchmodat": (1, None),
    "fchmodat2": (1, None),
    "mkdirat": (1, None),
    "mknodat": (1, None),
    "open": (1, 0o100),
    "openat": (2, 0o100),
}


BROKERED = """chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat
utime utimes futimesat utimensat"""


@pytest.mark.parametrize("name", MODES)
def test_setuid_and_setgid_bits_are_refused(name: str) -> None:
    """Row 15: a bit on disk would give whoever runs the file its owner's rights on the host."""
    zeros, creates = MODES[name]
    before = [0, *[7] * zeros]
    if creates is not None:
        before[-1] = creates
    # Without namespaces the init is asked, whatever the mode; it refuses the bits itself.
    ways = ("namespaces",) if name in BROKERED.split() else (None,)
    for way in ways:
        for mode in (0o4755, 0o2755, 0o6000, 0o4000, 0o2000, 9 << 40 | 0o4711):
            assert everywhere(name, *before, mode, way=way) == {EPERM}
        for mode in (0o755, 0o1777, 0, 0o4000 << 32):
            assert everywhere(name, *before, mode, way=way) == {ALLOW}


@pytest.mark.parametrize(("name", "before"), [("open", (0,)), ("openat", (3, 0))])
def test_a_mode_counts_only_where_a_file_is_made(name: str, before: tuple[int, ...]) -> None:
    """Else it is whatever the register held, and reading a file would fail by chance."""
    o_path, o_directory, o_tmpfile = 0o10000000, 0o200000, 0o20200000
    for flags in (0, o_path, o_directory, 0o100 << 32):
        assert everywhere(name, *before, flags, 0o6755) == {ALLOW}
    for flags in (0o100, 0o1101, o_tmpfile, 0o20000000, o_path | 0o100):
        assert everywhere(name, *before, flags, 0o6755) == {EPERM}
        assert everywhere(name, *before, flags, 0o755) == {ALLOW}


@pytest.mark.parametrize(("name", "before"), [("mknod", (0,)), ("mknodat", (3, 0))])
def test_only_fifos_sockets_and_files_can_be_made_by_mknod(
    name: str, before: tuple[int, ...]
) -> None:
    """Row 14: a device opens hardware, and the 0:0 character device hides a lower file."""
    for kind in (0o020000, 0o060000, 0o040000, 0o120000, 0o170000, 0o030000):
        assert everywhere(name, *before, kind | 0o600, 0) == {EPERM}
    for kind in (0, 0o010000, 0o100000, 0o140000, 0o020000 << 32):
        assert everywhere(name, *before, kind | 0o600, 0) == {ALLOW}
        assert everywhere(name, *before, kind | 0o4600, 0) == {EPERM}


def test_a_rename_leaves_no_whiteout() -> None:
    """Row 14: a whiteout would hide a lower file that the rename never touched."""
    for flags in (4, 5, 6, 1 << 32 | 4):
        assert everywhere("renameat2", 3, 0, 3, 0, flags) == {EPERM}
    for flags in (0, 1, 2, 8, 4 << 32):
        assert everywhere("renameat2", 3, 4, 3, 4, flags) == {ALLOW}


NAMESPACES = {
    "mnt": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}


@pytest.mark.parametrize("kind", NAMESPACES)
def test_no_new_namespace_is_made(kind: str) -> None:
    """Row 68: in a new user namespace a handler has capabilities to try on the kernel."""
    flag, sigchld = NAMESPACES[kind], 17
    for flags in (flag, flag | sigchld, flag | 0x3D0F00, 1 << 35 | flag):
        assert everywhere("clone", flags) == {EPERM}
        assert everywhere("unshare", flags) == {EPERM}
    assert everywhere("clone", flag << 32 | sigchld) == {ALLOW}


def test_a_new_time_namespace_is_refused_and_a_signal_is_not_taken_for_one() -> None:
    """Its flag is 0x80, which lies in the signal's bits of clone(2) but not of unshare(2)."""
    assert everywhere("unshare", 0x80) == {EPERM}
    assert everywhere("clone", 0x80 | 17) == {ALLOW}


def test_forks_and_threads_of_libraries_go_on() -> None:
    """glibc's fork, vfork and pthread_create, and musl's: without them nothing runs."""
    for flags in (17, 0x1200011, 0x4111, 0x3D0F00, 0x7D0F00, 0x80000000 | 17):
        assert everywhere("clone", flags) == {ALLOW}
    for flags in (0, 0x100, 0x200, 0x400, 0x600, 0x40000, 0x10000):
        assert everywhere("unshare", flags) == {ALLOW}
    # A namespace that Linux may add.
    assert everywhere("unshare", 0x1) == everywhere("unshare", 0x80000000) == {EPERM}


@pytest.mark.parametrize("command", [0x5412, 0x541C, 0x541D, 0x5423])
def test_a_terminal_is_not_typed_into(command: int) -> None:
    """Row 82: TIOCSTI runs a command in the shell that started us; the kernel drops high bits."""
    assert everywhere("ioctl", 0, command) == {EPERM}
    assert everywhere("ioctl", 0, 1 << 32 | command) == {EPERM}
    assert everywhere("ioctl", 0, command, 0x5412) == {EPERM}


def test_terminals_and_files_keep_their_other_ioctls() -> None:
    """TCGETS, TIOCGWINSZ, TIOCSCTTY, TIOCSPTLCK, TIOCGPTN, FIONREAD, FICLONE, FS_IOC_GETFLAGS."""
    for command in (0x5401, 0x5413, 0x540E, 0x40045431, 0x80045430, 0x541B, 0x40049409, 0x80086601):
        assert everywhere("ioctl", 0, command) == {ALLOW}
    assert everywhere("ioctl", 0x5412, 0x5401, 0x5412) == {ALLOW}
    assert everywhere("ioctl", 0, 0x5412 << 32) == {ALLOW}


def test_only_own_limits_can_be_set() -> None:
    """A worker of the init's uid could take the init's descriptors and processor time away."""
    assert everywhere("prlimit64", 0, 7) == everywhere("prlimit64", 1 << 32, 7) == {ALLOW}
    for pid in (1, 2, 4242, 0xFFFF_FFFF, 1 << 32 | 1):
        assert everywhere("prlimit64", pid, 7) == {EPERM}


def test_the_personality_can_be_asked_for_but_not_changed() -> None:
    """Row 79: READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE weaken whatever runs next."""
    assert everywhere("personality", 0xFFFF_FFFF) == everywhere("personality", 0) == {ALLOW}
    assert everywhere("personality", (1 << 64) - 1) == {ALLOW}
    for persona in (8, 0x20000, 0x40000, 0x100000, 0x400000, 0x440000, 0xFFFF_FFFE, 5 << 32 | 8):
        assert everywhere("personality", persona) == {EPERM}


def test_a_kernel_tls_layer_is_not_put_on_a_connection() -> None:
    """TCP's upper layers are a frequent way into the kernel, and no program depends on them."""
    assert everywhere("setsockopt", 5, 6, 31) == everywhere("setsockopt", 5, 6, 1 << 32 | 31)
    assert everywhere("setsockopt", 5, 6, 31) == {ENOPROTOOPT}
    for level, option in ((6, 1), (1, 31), (41, 31), (6, 30)):
        assert everywhere("setsockopt", 5, level, option) == {ALLOW}


# ---------------------------------------------------------------- sockets

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
CLOEXEC_NONBLOCK = 0o2004000
OPEN = [pair for pair in PAIRS if pair != ("process_group", "none")]
WITH_UNIX = [pair for pair in OPEN if pair[0] == "namespaces"]
OTHER_FAMILIES = [f for f in range(47) if f not in (UNIX, INET, INET6, NETLINK)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("pair", OPEN)
def test_the_internet_and_unix_are_the_only_families(machine: str, pair: tuple[str, str]) -> None:
    """Rows 36 to 38: AF_VSOCK reaches the host past every namespace; ALG, TIPC, XDP the kernel."""
    cell = (machine, *pair)
    for family in (*OTHER_FAMILIES, 0xFFFF_FFFF, 1 << 20):
        for kind in (1, 2, 3, 5, 1 | CLOEXEC_NONBLOCK):
            assert answer(cell, "socket", family, kind) == EAFNOSUPPORT
    for family in (UNIX, INET, INET6):
        wanted = EPERM if family == UNIX and pair not in WITH_UNIX else ALLOW
        for kind in (1, 2, 1 | CLOEXEC_NONBLOCK, 2 | 0o2000000, 9 << 32 | 1):
            assert answer(cell, "socket", family, kind, 0) == wanted
            assert answer(cell, "socket", 7 << 32 | family, kind, 3 << 32) == wanted


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("pair", OPEN)
def test_tcp_and_udp_are_the_only_protocols(machine: str, pair: tuple[str, str]) -> None:
    """Row 34: MPTCP is not covered by Landlock's TCP rules; SCTP and ICMP are the kernel's."""
    cell = (machine, *pair)
    for family in (INET, INET6):
        for kind in (1, 2, 1 | CLOEXEC_NONBLOCK):
            for protocol in (0, 6, 17):
                assert answer(cell, "socket", family, kind, protocol) == ALLOW
            for protocol in (1, 2, 33, 58, 132, 136, 255, 256, 262, 0xFFFF_FFFF, 6 << 32 | 262):
                assert answer(cell, "socket", family, kind, protocol) == EPROTONOSUPPORT
    if pair in WITH_UNIX:
        assert answer(cell, "socket", UNIX, 1, 1) == ALLOW
        assert answer(cell, "socket", UNIX, 1, 6) == EPROTONOSUPPORT


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("pair", OPEN)
def test_raw_and_packet_sockets_are_refused(machine: str, pair: tuple[str, str]) -> None:
    """Row 36: they read and forge whatever passes by."""
    cell = (machine, *pair)
    for family in (UNIX, INET, INET6):
        for kind in (3, 10, 3 | CLOEXEC_NONBLOCK, 10 | 0o2000000):
            assert answer(cell, "socket", family, kind, 0) == EPERM
        is_refused_anyway = family == UNIX and pair not in WITH_UNIX
        for kind in (0, 4, 6, 7, 15):
            wanted = EPERM if is_refused_anyway else ESOCKTNOSUPPORT
            assert answer(cell, "socket", family, kind, 0) == wanted


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("pair", OPEN)
def test_sequenced_packets_are_for_unix_alone(machine: str, pair: tuple[str, str]) -> None:
    """Between addresses, protocol 0 of that type is the first registered one: SCTP."""
    cell = (machine, *pair)
    unix = ALLOW if pair in WITH_UNIX else EPERM
    assert answer(cell, "socket", UNIX, 5 | CLOEXEC_NONBLOCK, 0) == unix
    for family in (INET, INET6):
        assert answer(cell, "socket", family, 5, 0) == ESOCKTNOSUPPORT


@pytest.mark.parametrize("machine", MACHINES)
def test_netlink_is_for_routes_where_there_is_a_network(machine: str) -> None:
    """Row 38: getifaddrs needs routes; the other protocols are the kernel's inside."""
    for pair in PAIRS:
        cell = (machine, *pair)
        for kind in (2, 3, 3 | CLOEXEC_NONBLOCK):
            for protocol in range(24):
                wanted = ALLOW if protocol == 0 else EPROTONOSUPPORT
                if pair[1] == "none":
                    wanted = EAFNOSUPPORT if pair[0] == "namespaces" else EPERM
                assert answer(cell, "socket", NETLINK, kind, protocol) == wanted
    assert answer((machine, "namespaces", "host"), "socket", NETLINK, 1, 0) == ESOCKTNOSUPPORT


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("network", ["none", "host"])
def test_without_namespaces_no_unix_socket_is_made(machine: str, network: str) -> None:
    """Row 40: no Landlock rule stands before a socket that has a name: docker.sock is one."""
    cell = (machine, "process_group", network)
    for kind in (0, 1, 2, 3, 5, 10, 1 | CLOEXEC_NONBLOCK, 9 << 32 | 2):
        for protocol in (0, 1, 6):
            assert answer(cell, "socket", UNIX, kind, protocol) == EPERM
            assert answer(cell, "socket", 1 << 32 | UNIX, kind, protocol) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_and_network_no_socket_is_made(machine: str) -> None:
    """Rows 32 to 41: nothing else stands between such a jail and the container's network."""
    for family in range(48):
        for kind in (1, 2, 3):
            assert answer((machine, "process_group", "none"), "socket", family, kind) == EPERM


def test_pairs_of_sockets_are_unix_everywhere() -> None:
    """asyncio and node need them at every level; a pair of TIPC sockets nobody does."""
    for kind in (1, 5, 1 | CLOEXEC_NONBLOCK, 7 << 32 | 5):
        assert everywhere("socketpair", UNIX, kind) == {ALLOW}
        assert everywhere("socketpair", 1 << 32 | UNIX, kind) == {ALLOW}
    assert everywhere("socketpair", UNIX, 2, way="namespaces") == {ALLOW}
    for family in (0, 2, 10, 16, 30, 40):
        assert everywhere("socketpair", family, 1) == {EAFNOSUPPORT}


def test_a_pair_that_could_send_to_any_address_is_not_made_without_namespaces() -> None:
    """Row 40: sendto(2) on one end of a datagram pair reaches whatever listens in the container."""
    # SOCK_RAW of AF_UNIX is SOCK_DGRAM (unix_create).
    for kind in (2, 3, 2 | CLOEXEC_NONBLOCK, 3 | 0o2000000, 1 << 32 | 2):
        assert everywhere("socketpair", UNIX, kind, way=GROUP) == {EPERM}
        assert everywhere("socketpair", 1 << 32 | UNIX, kind, way=GROUP) == {EPERM}


# ---------------------------------------------------------------- without namespaces

GROUP = "process_group"
IPC = """shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr"""


@pytest.mark.parametrize("name", IPC.split())
def test_queues_and_segments_need_a_namespace_of_their_own(name: str) -> None:
    """Rows 44 and 45: without one they are the whole container's, and stay behind."""
    assert everywhere(name, 1, 2, 3, way=GROUP) == {EPERM}
    assert everywhere(name, 1, 2, 3, way="namespaces") == {ALLOW}


@pytest.mark.parametrize("name", ["setsid", "setpgid"])
def test_nothing_leaves_the_group(name: str) -> None:
    """Row 60: the tree is killed by its group; an errno would break daemons and shells."""
    assert everywhere(name, 0, 0, way=GROUP) == {DONE}
    assert everywhere(name, 4242, 4242, way=GROUP) == {DONE}
    assert everywhere(name, 0, 0, way="namespaces") == {ALLOW}


def test_signals_go_to_single_processes() -> None:
    """Row 52: kill(-1) would reach each process of that uid in the container, kill(0) the jail."""
    minus_one = (1 << 64) - 1
    for pid in (0, minus_one, 0xFFFF_FFFF, -4242 & minus_one, 0x8000_0000, 7 << 32):
        assert everywhere("kill", pid, 15, way=GROUP) == {EPERM}
        assert everywhere("kill", pid, 15, way="namespaces") == {ALLOW}
    for pid in (1, 4242, 0x7FFF_FFFF):
        assert everywhere("kill", pid, 15) == {ALLOW}


def test_a_group_is_not_signalled_by_its_pidfd() -> None:
    """PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9) is kill(-group) by another name."""
    assert everywhere("pidfd_send_signal", 5, 15, 0, 4, way=GROUP) == {EPERM}
    for flags in (0, 1, 2, 4 << 32):
        assert everywhere("pidfd_send_signal", 5, 15, 4, flags) == {ALLOW}
    assert everywhere("pidfd_send_signal", 5, 15, 0, 4, way="namespaces") == {ALLOW}


def test_nobody_else_is_made_to_get_sigio() -> None:
    """Row 56: who owns a descriptor gets its signals; by pointer it cannot be seen who."""
    minus = (1 << 64) - 4242
    assert everywhere("fcntl", 5, 8, minus, way=GROUP) == {EPERM}
    assert everywhere("fcntl", 5, 15, 0x1000, way=GROUP) == {EPERM}
    assert everywhere("fcntl", 5, 8, minus, way="namespaces") == {ALLOW}
    # F_SETOWN of a process (Landlock's scope holds it), F_DUPFD, F_SETFL, F_SETLKW, F_GETOWN_EX.
    for command in (8, 0, 4, 7, 16, 1030):
        assert everywhere("fcntl", 5, command, 4242) == {ALLOW}
    assert everywhere("fcntl", 5, 4, minus) == {ALLOW}
    for command in (0x8901, 0x8902, 1 << 32 | 0x8902):
        assert everywhere("ioctl", 5, command, way=GROUP) == {EPERM}
        assert everywhere("ioctl", 5, command, way="namespaces") == {ALLOW}


UNHEARD = {
    (machine, network): program(machine, way=GROUP, network=network, kill=KILL_PROCESS)
    for machine, way, network in CELLS
    if way == GROUP
}


@pytest.mark.parametrize("name", BROKERED.split())
def test_metadata_of_files_is_asked_about_and_refused_where_nobody_listens(name: str) -> None:
    """Landlock has no right for them: by `chmod` the uid's private key is everybody's."""
    for arguments in ((), (1, 0o600), (3, 0x1000, 0o4755, 0), [(1 << 64) - 1] * 6):
        assert everywhere(name, *arguments, way=GROUP) == {USER_NOTIF}
        for (machine, _), code in UNHEARD.items():
            if name in NUMBERS[machine]:
                assert run(code, NUMBERS[machine][name], ARCH[machine], tuple(arguments)) == EPERM
    assert everywhere(name, 3, 0, 0, 0, way="namespaces") == {ALLOW}


def test_nothing_but_metadata_is_asked_about_and_each_is_answered() -> None:
    """The init ends who makes a call that it does not know: a row too many would kill tools."""
    asked = {row[0] for row in syscall_table.rows(GROUP, "none") if row[3] == syscall_table.ASK}
    assert asked == set(BROKERED.split()) == set(metadata.CALLS)
    for pair in PAIRS:
        if pair[0] == "namespaces":
            assert all(row[3] != syscall_table.ASK for row in syscall_table.rows(*pair))


ATTRIBUTES = """setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr
removexattrat file_setattr"""


@pytest.mark.parametrize("name", ATTRIBUTES.split())
def test_attributes_of_files_cannot_be_set_without_namespaces(name: str) -> None:
    """No Landlock right covers them either; as on a file system that has none, tools go on."""
    assert everywhere(name, 3, 4, 5, way=GROUP) == {0x50000 | errno.EOPNOTSUPP}
    assert everywhere(name, 3, 4, 5, way="namespaces") == {ALLOW}


def test_a_file_opened_to_be_read_keeps_its_attributes_without_namespaces() -> None:
    """By ioctl, an owner makes a file append-only, verity's for ever, or snapshots a folder."""
    setters = (0x40086602, 0x401C5820, 0x40087602, 0x40086604, 0x40806685, 0x800C6613, 0x40047211)
    # BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, SNAP_DESTROY, SNAP_CREATE_V2, SUBVOL_SETFLAGS.
    btrfs = (0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x4008941A)
    for command in (*setters, *btrfs):
        for wide in (command, 1 << 32 | command):
            assert everywhere("ioctl", 3, wide, way=GROUP) == {EPERM}
            assert everywhere("ioctl", 3, wide, way="namespaces") == {ALLOW}
    # FICLONE, FICLONERANGE, FIDEDUPERANGE: what `cp` tries first. FS_IOC_GETFLAGS, FSGETXATTR.
    for command in (0x40049409, 0x4020940D, 0xC0189436, 0x80086601, 0x801C581F):
        assert everywhere("ioctl", 3, command) == {ALLOW}


@pytest.mark.parametrize("command", [1024, 1040])
def test_nobody_who_opens_a_file_waits_for_a_lease(command: int) -> None:
    """Row 48: a lease on a file that may only be read holds up its owner's open for 45 seconds."""
    for kind in (0, 1, 2):
        assert everywhere("fcntl", 5, command, kind) == {EPERM}
        assert everywhere("fcntl", 5, 1 << 32 | command, kind) == {EPERM}
    # F_GETLEASE, F_SETLKW, F_OFD_SETLKW.
    for other in (1025, 7, 38):
        assert everywhere("fcntl", 5, other, 1) == {ALLOW}


def test_a_pair_of_sockets_does_not_tell_the_machines_addresses() -> None:
    """Row 31: any socket answers for all interfaces, also one that was made by socketpair."""
    # SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFHWADDR, SIOCETHTOOL, private.
    for command in (0x8910, 0x8912, 0x8913, 0x8915, 0x8927, 0x8946, 0x89F0, 1 << 32 | 0x8912):
        for machine in MACHINES:
            assert answer((machine, GROUP, "none"), "ioctl", 3, command) == EPERM
            assert answer((machine, GROUP, "host"), "ioctl", 3, command) == ALLOW
        assert everywhere("ioctl", 3, command, way="namespaces") == {ALLOW}
    for command in (0x8903, 0x8904, 0x8905, 0x541B, 0x5411):
        assert everywhere("ioctl", 3, command) == {ALLOW}


def test_folders_are_not_watched_without_namespaces() -> None:
    """A watch tells the names in folders that Landlock lets nobody list."""
    assert everywhere("inotify_add_watch", 3, 0x1000, 0xFFF, way=GROUP) == {EPERM}
    assert everywhere("inotify_add_watch", 3, 0x1000, 0xFFF, way="namespaces") == {ALLOW}


SCHEDULING = "sched_setparam sched_setscheduler sched_setattr sched_setaffinity"


@pytest.mark.parametrize("name", SCHEDULING.split())
def test_only_the_caller_is_rescheduled(name: str) -> None:
    """No Landlock scope covers it: the supervisor could be bound to one slow processor."""
    for pid in (1, 4242, 0xFFFF_FFFF, 1 << 32 | 1):
        assert everywhere(name, pid, way=GROUP) == {EPERM}
    assert everywhere(name, 0) == everywhere(name, 1 << 32) == {ALLOW}


@pytest.mark.parametrize("name", SCHEDULING.split())
def test_the_init_is_not_rescheduled(name: str) -> None:
    """It ends the jail on time; threads by their number are left to numeric libraries."""
    assert everywhere(name, 1, way="namespaces") == {EPERM}
    assert everywhere(name, 2, way="namespaces") == {ALLOW}


@pytest.mark.parametrize(
    ("name", "process", "group", "user"), [("setpriority", 0, 1, 2), ("ioprio_set", 1, 2, 3)]
)
def test_only_the_caller_is_slowed(name: str, process: int, group: int, user: int) -> None:
    """By uid, `nice` would reach the supervisor, or the init."""
    assert everywhere(name, process, 0, 19) == {ALLOW}
    assert everywhere(name, user, 0, 19) == everywhere(name, process, 1, 19) == {EPERM}
    assert everywhere(name, group, 0, 19, way=GROUP) == {EPERM}
    assert everywhere(name, process, 4242, 19, way=GROUP) == {EPERM}
    assert everywhere(name, process, 4242, 19, way="namespaces") == {ALLOW}


# ---------------------------------------------------------------- notifications


def test_the_constants_are_those_of_the_header() -> None:
    """An ioctl that is one bit off answers EINVAL, and no blocked call would ever be seen."""
    notification, response = struct.calcsize("=QIIiIQ6Q"), struct.calcsize("=QqiI")
    assert (notification, response) == (80, 24)

    def ioctl(direction: int, number: int, size: int) -> int:
        return direction << 30 | size << 16 | ord("!") << 8 | number

    assert ioctl(3, 0, notification) == seccomp.SECCOMP_IOCTL_NOTIF_RECV
    assert ioctl(3, 1, response) == seccomp.SECCOMP_IOCTL_NOTIF_SEND
    assert ioctl(1, 2, 8) == seccomp.SECCOMP_IOCTL_NOTIF_ID_VALID


@pytest.mark.parametrize(
    ("arch", "number", "machine", "call"),
    [
        (ARCH["i386"], 20, "i386", "20"),
        (ARCH["i386"], 435, "i386", "clone3"),
        (ARCH["aarch32"], 20, "aarch32", "20"),
        (ARCH["x86_64"], 0x4000_0027, "x32", "getpid"),
        (ARCH["x86_64"], 0x4000_0200, "x32", "512"),
        (ARCH["x86_64"], 39, "x86_64", "getpid"),
        (ARCH["aarch64"], 172, "aarch64", "getpid"),
        (0x1234, 5, "0x1234", "5"),
    ],
)
def test_a_blocked_call_is_known_by_its_name(
    arch: int, number: int, machine: str, call: str
) -> None:
    """39 means mkdir on i386: a name from the wrong table would accuse the wrong call."""
    blocked = Blocked(7, 42, arch, number)
    assert (blocked.machine, blocked.call) == (machine, call)
    assert (blocked.id, blocked.pid) == (7, 42)


# ---------------------------------------------------------------- the page


def test_the_page_shows_the_table_as_it_is() -> None:
    """Whoever judges the filter by its page would judge another filter."""
    script = Path(__file__).resolve().parents[3] / "scripts" / "syscall_docs.py"
    spec = importlib.util.spec_from_file_location("syscall_docs", script)
    assert spec is not None
    assert spec.loader is not None
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    page = docs.PAGE.read_text(encoding="utf-8")
    assert docs.renew(page) == page
    assert "`kexec_load`" in page
    assert docs.renew(page.replace("`kexec_load`", "`kexec_lode`")) == page
