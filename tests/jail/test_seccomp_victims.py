"""The filter in the real kernel: processes that try what it refuses, each beside a control."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox import CommandHandler, JailSpec, run_in_jail
from toolcell_sandbox._child import seccomp, syscall_table
from toolcell_sandbox._child.syscall_table import ALLOW, ASK
from toolcell_sandbox.host import base_environment

SCRIPT = Path(__file__).with_name("seccomp_victims.py")
SANDBOX = Path(seccomp.__file__).resolve().parents[2]
MACHINE = os.uname().machine
COLUMN = 1 if MACHINE == "x86_64" else 2
AT_FDCWD = -100
NAMESPACES = {"way": "namespaces", "network": "none"}
GROUP = {"way": "process_group", "network": "none"}


def victim(do: str, **job: Any) -> Any:
    """What the helper saw of one job; its filter is for namespaces unless said otherwise."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", SCRIPT, SANDBOX],
        input=json.dumps(NAMESPACES | job | {"do": do}),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def exists(name: str) -> bool:
    """Whether this machine has the call at all."""
    rows = syscall_table.rows("namespaces", "none")
    return next(row[COLUMN] for row in rows if row[0] == name) is not None


# ---------------------------------------------------------------- refused calls

# What each call answers without the filter is not what it answers with it: no privilege is
# missing, or the arguments are wrong in a way that the kernel only sees when it runs the call.
REFUSED: list[tuple[str, list[int | str]]] = [
    ("ptrace", [0]),
    ("process_vm_readv", ["PID", 0, 0, 0, 0, 0]),
    ("process_vm_writev", ["PID", 0, 0, 0, 0, 0]),
    ("pidfd_getfd", [-1, 0, 0]),
    ("kcmp", ["PID", "PID", 0, 0, 0]),
    ("process_madvise", [-1, 0, 0, 4, 0]),
    ("process_mrelease", [-1, 0]),
    ("userfaultfd", [1]),
    ("perf_event_open", [0, 0, -1, -1, 0]),
    ("keyctl", [0, -3, 0]),
    ("add_key", [0, 0, 0, 0, 0]),
    ("request_key", [0, 0, 0, 0]),
    ("name_to_handle_at", [AT_FDCWD, "/", 0, 0, 0]),
    ("fanotify_init", [0x200, 0]),
    ("fanotify_mark", [-1, 1, 1, AT_FDCWD, 0]),
    ("open_tree", [AT_FDCWD, "/", 0]),
    ("setns", [-1, 0]),
    ("unshare", [0x10000000]),
    ("clone", [0x10000000 | 0x200]),
    ("clone", [0x00020000 | 0x200]),
    ("memfd_secret", [0]),
    ("prlimit64", ["PID", 7, 0, 0]),
    ("personality", [0x40000]),
    ("personality", [0x400000]),
    ("move_pages", [0, 0, 0, 0, 0, 0]),
    ("modify_ldt", [0, 0, 0]),
    ("ioperm", [0, 1, 0]),
    ("ioctl", [-1, 0x5412, 0]),
    ("ioctl", [-1, 0x541C, 0]),
    ("ioctl", [-1, 1 << 32 | 0x5412, 0]),
    ("chmod", ["/nonexistent", 0o4755]),
    ("fchmodat", [AT_FDCWD, "/nonexistent", 0o2755]),
    ("fchmodat2", [AT_FDCWD, "/nonexistent", 0o4755, 0]),
    ("openat", [AT_FDCWD, "/nonexistent/file", 0o101, 0o4755]),
    ("mkdirat", [AT_FDCWD, "/nonexistent/file", 0o2755]),
    ("mknodat", [AT_FDCWD, "/nonexistent/file", 0o020644, 0]),
    ("mknodat", [AT_FDCWD, "/nonexistent/file", 0o060644, 0x800]),
    ("renameat2", [AT_FDCWD, "/nonexistent/a", AT_FDCWD, "/nonexistent/b", 4]),
]
PRESENT = [row for row in REFUSED if exists(row[0])]


@pytest.fixture(scope="module")
def refused() -> list[list[int]]:
    """Every row of the list above, in one helper."""
    found: list[list[int]] = victim("tried", calls=PRESENT)
    return found


@pytest.mark.parametrize("at", range(len(PRESENT)), ids=[f"{n}-{a}" for n, a in PRESENT])
def test_a_refused_call_answers_eperm_and_does_not_run(refused: list[list[int]], at: int) -> None:
    """Rows 14, 15, 47, 54 to 56, 68 to 79, 82: else each of them is tried on the kernel itself."""
    without, filtered = refused[at]
    assert filtered == -errno.EPERM
    assert without != filtered


MISSING: list[tuple[str, list[int | str]]] = [
    ("clone3", [0, 0]),
    ("openat2", [AT_FDCWD, "/", 0, 0]),
    ("io_uring_setup", [0, 0]),
    ("io_uring_enter", [-1, 0, 0, 0, 0, 0]),
    ("io_uring_register", [-1, 0, 0, 0]),
    ("io_setup", [0, 0]),
    ("io_destroy", [0]),
]


def test_a_call_that_does_not_exist_in_a_jail_answers_enosys() -> None:
    """Rows 39 and 68: programs fall back then; on EPERM they give up."""
    for (name, _), (without, filtered) in zip(MISSING, victim("tried", calls=MISSING), strict=True):
        assert filtered == -errno.ENOSYS, name
        assert without != filtered, name


# In namespaces of its own a process has capabilities: here nothing but the filter stands.
PRIVILEGED: list[tuple[str, list[int | str]]] = [
    ("mount", ["none", "/", 0, 0x44000, 0]),
    ("umount2", ["/nonexistent", 0]),
    ("chroot", ["/"]),
    ("pivot_root", ["/nonexistent", "/nonexistent"]),
    ("fsopen", ["tmpfs", 0]),
    ("fsmount", [-1, 0, 0]),
    ("fspick", [AT_FDCWD, "/nonexistent", 0]),
    ("move_mount", [-1, "", -1, "", 0]),
    ("mount_setattr", [AT_FDCWD, "/nonexistent", 0, 0, 32]),
    ("unshare", [0x20000]),
    ("unshare", [0x80]),
]


def test_the_filter_holds_also_where_capabilities_would_allow_it() -> None:
    """Rows 70 and 71: the worker has none, and if it ever got some, this is the next fence."""
    seen = victim("tried", calls=PRIVILEGED, space=True)
    for (name, _), (without, filtered) in zip(PRIVILEGED, seen, strict=True):
        assert filtered == -errno.EPERM, name
        assert without != filtered, name


@pytest.mark.parametrize("cell", [NAMESPACES, GROUP], ids=["namespaces", "process_group"])
def test_every_row_that_is_refused_outright_is_refused_by_the_kernel(cell: dict[str, str]) -> None:
    """The simulator is ours: it could share a mistake with the program that it runs."""
    rows = syscall_table.rows(cell["way"], cell["network"])
    # What asks is refused here: nobody listens.
    wanted = {
        row[0]: -errno.EPERM if row[3] == ASK else -(row[3] & 0xFFFF)
        for row in rows
        if isinstance(row[3], int) and row[3] != ALLOW and row[COLUMN] is not None
    }
    assert len(wanted) > 60
    calls = [(name, [-1] * 6) for name in wanted]
    seen = victim("tried", calls=calls, only_filtered=True, **cell)
    assert dict(zip(wanted, (answer for (answer,) in seen), strict=True)) == wanted


def test_a_number_that_no_table_knows_answers_enosys() -> None:
    """Row 81: on a newer kernel it would be a call that nobody judged."""
    known = {row[COLUMN] for row in syscall_table.rows("namespaces", "none")}
    calls = [
        (number, [-1] * 6) for number in (*range(320, 600), (1 << 30) - 1) if number not in known
    ]
    seen = victim("tried", calls=calls, only_filtered=True)
    assert {answer for (answer,) in seen} == {-errno.ENOSYS}


# ---------------------------------------------------------------- sockets

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
MPTCP, ICMP, ROUTE, GENERIC = 262, 1, 0, 16


def test_the_kernel_refuses_other_families_and_protocols() -> None:
    """Rows 34, 36 to 38: MPTCP, ping, routes, netlink's inside: each works without the filter."""
    calls = [
        ("socket", [INET, 1, MPTCP]),
        ("socket", [INET6, 1, 1 << 32 | MPTCP]),
        ("socket", [NETLINK, 3, ROUTE]),
        ("socket", [NETLINK, 3, GENERIC]),
        ("socket", [UNIX, 3, 0]),
    ]
    none = [errno.EPROTONOSUPPORT] * 2 + [errno.EAFNOSUPPORT] * 2 + [errno.EPERM]
    seen = victim("tried", calls=calls)
    assert [filtered for _, filtered in seen] == [-e for e in none]
    assert all(without > 0 for without, _ in seen)
    seen = victim("tried", calls=calls, network="loopback")
    assert seen[2][1] > 0
    assert seen[3][1] == -errno.EPROTONOSUPPORT


def test_a_kernel_tls_layer_is_not_put_on_a_connection() -> None:
    """It is a frequent way into the kernel; without it a TLS library does the work itself."""
    seen = victim("tried", calls=[("setsockopt", [-1, 6, 31, 0, 0]), ("setsockopt", [-1, 6, 1])])
    assert seen == [[-errno.EBADF, -errno.ENOPROTOOPT], [-errno.EBADF, -errno.EBADF]]


def test_ordinary_sockets_are_made_and_exotic_ones_are_not() -> None:
    """Rows 37 and 38: AF_VSOCK reaches the host's other side past every namespace."""
    ordinary = [(f, k) for f in (UNIX, INET, INET6) for k in (1, 2, 1 | 0o2004000)]
    calls: list[Any] = [("socket", [f, k, 0]) for f, k in ordinary]
    calls += [("socket", [family, 2, 0]) for family in (9, 15, 17, 30, 31, 38, 40, 43, 44)]
    answers = [filtered for _, filtered in victim("tried", calls=calls)]
    assert all(answer > 0 for answer in answers[: len(ordinary)])
    assert set(answers[len(ordinary) :]) == {-errno.EAFNOSUPPORT}


# ---------------------------------------------------------------- everywhere


@pytest.mark.parametrize("listener", [False, True])
def test_every_thread_is_filtered_also_one_that_was_there_before(listener: bool) -> None:
    """Row 84: one thread without the filter makes every call for the others."""
    seen = victim("threads", listener=listener)
    assert seen["without"] >= 0
    assert [seen[who] for who in ("before", "after", "main")] == [-errno.EPERM] * 3


def test_a_handlers_own_filter_tightens_and_never_loosens() -> None:
    """Row 86: seccomp and Landlock stay open to it, and must not be a way out."""
    seen = victim("own_fences")
    assert seen["before"] == seen["loosened"] == -errno.EPERM
    assert seen["tightened"] == -errno.EPROTO
    # The version of Landlock, or no Landlock in this kernel; never a refusal of ours.
    assert seen["landlock"] != -errno.EPERM


# ---------------------------------------------------------------- foreign calls

GETPID = {"i386": 20, "x32": 0x4000_0000 | 39}
CALLED = {"i386": "20", "x32": "getpid"}
FOREIGN = tuple(GETPID) if MACHINE == "x86_64" else ()


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_call_kills_its_process(foreign: str) -> None:
    """Row 80: the same number is another call there, which this table has not judged."""
    seen = victim("unwatched", foreign=foreign, number=GETPID[foreign])
    assert seen["with"] == {"signal": 31}
    # The process lives on without the filter; a kernel may lack x32 altogether.
    assert seen["without"] in ("ran", "not on this kernel")
    assert foreign != "i386" or seen["without"] == "ran"


@pytest.mark.parametrize("foreign", FOREIGN)
def test_the_init_knows_which_call_was_blocked_and_ends_its_process(foreign: str) -> None:
    """A death by SIGSYS says nothing: whoever reads the result could not tell what to change."""
    seen = victim("watched", foreign=foreign, number=GETPID[foreign])
    assert (seen["machine"], seen["call"]) == (foreign, CALLED[foreign])
    assert seen["is_leader"]
    assert seen["status"] == -9
    assert (seen["waits"], seen["waits_after"]) == (True, False)
    assert seen["hangs_up"]
    assert seen["then"] is None


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_call_of_a_thread_ends_the_whole_process(foreign: str) -> None:
    """A notification names a thread; killing by that number must not leave the others."""
    seen = victim("watched", foreign=foreign, number=GETPID[foreign], where="thread")
    assert not seen["is_main_thread"]
    assert seen["is_leader"]
    assert seen["status"] == -9


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_call_of_a_grandchild_ends_only_it(foreign: str) -> None:
    """Who is ended must be who called, not the leader."""
    seen = victim("watched", foreign=foreign, number=GETPID[foreign], where="grandchild")
    assert not seen["is_leader"]
    assert seen["status"] == 0


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_handlers_own_filter_does_not_hide_a_foreign_call(foreign: str) -> None:
    """The kernel takes the strictest answer: its own permission must not be that."""
    seen = victim("watched", foreign=foreign, number=GETPID[foreign], own_filter=True)
    assert (seen["machine"], seen["status"]) == (foreign, -9)


@pytest.mark.parametrize("foreign", FOREIGN[:1])
def test_a_foreign_call_that_a_signal_breaks_off_has_not_run(foreign: str) -> None:
    """A process can outrun its init by its own signals; the call must not slip through."""
    without = victim("interrupted", listener=False)
    assert without == {"returned": 0o22, "umask": 0o77}
    seen = victim("interrupted", listener=True)
    assert seen == {"returned": -errno.EINTR, "umask": 0o22}


@pytest.mark.parametrize("foreign", FOREIGN[:1])
def test_a_jail_in_a_jail_has_a_filter_without_a_listener(foreign: str) -> None:
    """There can be one listener: the inner jail must fall back to SIGSYS, not to no filter."""
    seen = victim("second_listener")
    assert seen == {"listener": "EBUSY", "mode": 2, "dies": {"signal": 31}}


# ---------------------------------------------------------------- without namespaces


def test_nothing_leaves_its_group_and_no_group_is_signalled() -> None:
    """Rows 52 and 60: the group is how the tree of such a jail is killed."""
    without, filtered = victim("group", **GROUP)
    assert without == {"stayed": False, "group": 0, "named": 0, "self": 0}
    eperm = -errno.EPERM
    assert filtered == {"stayed": True, "group": eperm, "named": eperm, "self": 0}


def test_a_jail_without_namespaces_has_no_network_queues_or_power_over_others() -> None:
    """Rows 32 to 45: no Landlock rule stands where a namespace would."""
    calls: list[Any] = [
        *(("socket", [family, 1, 0]) for family in (UNIX, INET, INET6)),
        ("socket", [NETLINK, 3, 0]),
        ("shmget", [0x7C7C7C01, 4096, 0]),
        ("msgctl", [-1, 0, 0]),
        ("mq_unlink", ["nonexistent"]),
        ("sched_setaffinity", ["PID", 0, 0]),
        ("sched_setparam", ["PID", 0]),
        ("setpriority", [0, "PID", 19]),
        ("setpriority", [2, 0, 0]),
        ("ioprio_set", [1, "PID", 0x6000]),
        ("socketpair", [UNIX, 2, 0, "four bytes and four"]),
        ("socketpair", [UNIX, 3, 0, "four bytes and four"]),
        ("fcntl", [0, 15, 0]),
        ("fcntl", [-1, 8, -1]),
        ("ioctl", [-1, 0x8902, 0]),
    ]
    seen = victim("tried", calls=calls, **GROUP)
    for (name, arguments), (without, filtered) in zip(calls, seen, strict=True):
        assert filtered == -errno.EPERM, (name, arguments)
        assert without != filtered, (name, arguments)


def test_oneself_may_be_rescheduled_without_namespaces_too() -> None:
    """`nice`, `taskset` and numeric libraries act on the caller; they must go on."""
    calls: list[Any] = [
        ("setpriority", [0, 0, 19]),
        ("ioprio_set", [1, 0, 0x6000]),
        ("prlimit64", [0, 7, 0, 0]),
        ("socketpair", [UNIX, 1, 0, "four bytes and four"]),
        ("kill", ["PID", 0]),
        ("fcntl", [0, 8, "PID"]),
    ]
    assert [filtered for _, filtered in victim("tried", calls=calls, **GROUP)] == [0] * 6


def test_a_call_that_was_read_is_answered_though_a_signal_has_come() -> None:
    """chmod(2) never answers EINTR: a program that sets an alarm would take it for a failure."""
    seen = victim("signalled", **GROUP)
    assert seen == {"call": "fchmod", "waits": True, "answer": errno.EXDEV}


# ---------------------------------------------------------------- programs

PYTHON = """
import asyncio, multiprocessing, os, subprocess, sys, tempfile, threading

def work(number):
    return number + 1

async def main():
    process = await asyncio.create_subprocess_exec("true")
    assert await process.wait() == 0
    assert await asyncio.to_thread(work, 1) == 2

if __name__ == "__main__":
    threads = [threading.Thread(target=work, args=(1,)) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert subprocess.run(["sh", "-c", "exit 3"], start_new_session=True).returncode == 3
    asyncio.run(main())
    # Pools need POSIX semaphores, which lie in /dev/shm: at level `container` there is none.
    for method in ("fork", "spawn") if "pools" in sys.argv else ():
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            assert pool.map(work, [1, 2]) == [2, 3]
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o1777)
        os.utime(place, (1, 1))
        os.chown(place, os.getuid(), -1)
        assert (os.stat(place).st_mode, os.stat(place).st_mtime) == (0o41777, 1)
    print("fine")
"""
PROGRAMS = {
    "sh": ["sh", "-c", "mkfifo f; (echo fine > f &); cat f | tr a-z a-z; umask; wait"],
    "bash": ["bash", "-c", "set -m; sleep 0 & wait; cat <<< fine; timeout 5 true"],
    "git": ["sh", "-c", "git init -q . && git add -A && git status -s && echo fine"],
    "gcc": [
        "sh",
        "-c",
        "echo 'int main(){return 0;}' > a.c; gcc -O1 -pipe a.c && ./a.out; echo fine",
    ],
    "make": ["sh", "-c", "printf 'all: a b\\na b:\\n\\t@true\\n' > Makefile; make -sj2; echo fine"],
    "node": ["node", "-e", "require('child_process').execSync('true'); console.log('fine')"],
    "tar": [
        "sh",
        "-c",
        "mkdir -m 700 d; echo x > d/y; chmod 640 d/y; touch -d @99 d/y d; tar cf z.tar d && "
        "rm -r d && tar xf z.tar && test $(stat -c %a%Y d/y d | tr '\\n' +) = 64099+70099+ && "
        "echo fine",
    ],
    "cp": [
        "sh",
        "-c",
        "mkdir d; echo x > d/y; ln -s y d/z; touch -h -d @99 d/*; cp -a d e && "
        "test $(stat -c %Y e/y e/z | tr '\\n' +) = 99+99+ && install -m 500 d/y q && "
        "test $(stat -c %a q) = 500 && echo fine",
    ],
}
HERE = [name for name, argv in PROGRAMS.items() if shutil.which(name) and shutil.which(argv[0])]


@pytest.mark.parametrize("name", ["python", *HERE])
def test_ordinary_programs_do_not_notice(name: str, tmp_path: Path) -> None:
    """A filter that breaks what agents run every day is switched off."""
    script = tmp_path / "program.py"
    script.write_text(PYTHON)
    argv = [sys.executable, script, "pools"] if name == "python" else PROGRAMS[name]
    done = subprocess.run(
        [sys.executable, "-I", "-S", SCRIPT, SANDBOX, "namespaces", "none", *argv],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert (done.returncode, "fine" in done.stdout) == (0, True), done.stderr


@pytest.fixture
def workspace(tmp_path: Path) -> str:
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "program.py").write_text(PYTHON)
    return os.path.realpath(place)


@pytest.mark.parametrize("name", ["python", *HERE])
async def test_ordinary_programs_do_not_notice_who_changes_their_files(
    name: str, workspace: str
) -> None:
    """Without namespaces the init does chmod, chown and utimes for them: it has to be there."""
    argv = [sys.executable, "program.py"] if name == "python" else PROGRAMS[name]
    spec = JailSpec(
        workspace=workspace,
        workspace_mode="direct",
        isolation="container",
        env=base_environment(),
    )
    outcome = await run_in_jail(CommandHandler(argv=tuple(argv)), spec)
    assert outcome.failure is None
    said = outcome.stderr.kept.decode()
    assert (outcome.exit_code, b"fine" in outcome.stdout.kept) == (0, True), said
