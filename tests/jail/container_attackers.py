"""What runs inside a jail for test_container_metadata.py: attackers, and callers at the edges.

Each function is a handler. The kernel is called by number, past every library: `numbers` are
those of this machine. Answers are results, or -errno.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
CWD = -100
NOFOLLOW, EMPTY_PATH = 0x100, 0x1000
RENAME_EXCHANGE = 2
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2

Numbers = dict[str, int | None]
Row = tuple[str, tuple[Any, ...]]


def call(numbers: Numbers, name: str, *arguments: int | bytes | None) -> int | None:
    """What the kernel returns, or -errno; None where this machine has no such call."""
    number = numbers[name]
    if number is None:
        return None
    wide: list[Any] = [
        ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_ulong((a or 0) & (1 << 64) - 1)
        for a in (*arguments, *(0,) * (6 - len(arguments)))
    ]
    result = int(LIBC.syscall(ctypes.c_long(number), *wide))
    return -ctypes.get_errno() if result == -1 else result


def attempt(act: Callable[[], Any]) -> str:
    """The errno's name, or "done"."""
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


# ---------------------------------------------------------------- files that are not the jail's

TIMES = struct.pack("=4q", 11, 0, 22, 0)
TIMEVALS = struct.pack("=4q", 11, 0, 22, 0)


def by_path(path: bytes, folder: int = CWD, mode: int = 0o777) -> list[Row]:
    """Every call that takes a path, of one that is named."""
    rows: list[Row] = [
        ("fchmodat", (folder, path, mode)),
        ("fchmodat2", (folder, path, mode, 0)),
        ("fchmodat2", (folder, path, mode, EMPTY_PATH)),
        ("fchownat", (folder, path, os.getuid(), os.getgid(), 0)),
        ("fchownat", (folder, path, -1, -1, EMPTY_PATH)),
        ("utimensat", (folder, path, TIMES, 0)),
        ("utimensat", (folder, path, None, 0)),
        ("futimesat", (folder, path, TIMEVALS)),
    ]
    if folder == CWD:
        rows += [
            ("chmod", (path, mode)),
            ("chown", (path, os.getuid(), os.getgid())),
            ("lchown", (path, os.getuid(), os.getgid())),
            ("utime", (path, TIMES[:16])),
            ("utimes", (path, None)),
            ("utimes", (path, TIMEVALS)),
        ]
    return rows


def by_descriptor(fd: int, mode: int = 0o777) -> list[Row]:
    """Every call that takes a descriptor alone, or with an empty path."""
    own = b"/proc/self/fd/%d" % fd
    return [
        ("fchmod", (fd, mode)),
        ("fchown", (fd, os.getuid(), os.getgid())),
        ("fchmodat2", (fd, b"", mode, EMPTY_PATH)),
        ("fchownat", (fd, b"", os.getuid(), os.getgid(), EMPTY_PATH)),
        ("utimensat", (fd, None, TIMES, 0)),
        ("utimensat", (fd, b"", TIMES, EMPTY_PATH)),
        ("futimesat", (fd, None, TIMEVALS)),
        ("chmod", (own, mode)),
        ("utimensat", (CWD, own, TIMES, 0)),
        ("fchownat", (CWD, own, os.getuid(), os.getgid(), 0)),
    ]


def attack(
    numbers: Numbers, outside: str, readable: str, evil: str, system: list[str]
) -> dict[str, list[Any]]:
    """Change files outside by every name they have; per name, what each call answered.

    `outside` is a folder that is not granted, `readable` one that may be read, `evil` has a name
    that begins as the workspace's does. `system` are files of the machine: none, where no jail
    holds this.
    """
    os.makedirs("sub", exist_ok=True)
    os.symlink(f"{outside}/key", "link")
    os.symlink("link", "chain")
    os.symlink(outside, "way")
    relative = os.path.relpath(outside)
    paths = {
        "absolute": f"{outside}/key",
        "doubled slashes": outside.replace("/", "//") + "/./key",
        "relative": f"{relative}/key",
        "through a folder of ours": f"sub/../{relative}/key",
        "a symlink": "link",
        "a chain of symlinks": "chain",
        "a symlink to its folder": "way/key",
        "the near miss": f"{evil}/key",
        "the folder itself": outside,
        "what may be read": f"{readable}/file",
        "the read folder": readable,
        "the parent": "..",
    }
    found: dict[str, list[Row]] = {name: by_path(os.fsencode(p)) for name, p in paths.items()}
    for path in system:
        # The mode that it has: it would be the machine's own, if a fence should fail.
        same = os.stat(path).st_mode & 0o1777
        found[path] = by_path(os.fsencode(path), mode=same)
        if path.startswith("/dev/"):
            found[f"{path}, open"] = by_descriptor(os.open(path, os.O_RDWR), same)
    at = os.open(outside, os.O_PATH)
    found["a folder by O_PATH"] = by_path(b"key", at)
    read = os.open(readable, os.O_RDONLY | os.O_DIRECTORY)
    found["a folder that is read"] = by_path(b"file", read)
    found["out of a folder that is read"] = by_path(
        os.fsencode(os.path.relpath(f"{outside}/key", readable)), read
    )
    found["a descriptor by O_PATH"] = by_descriptor(os.open(f"{outside}/key", os.O_PATH))
    nofollow = os.open(f"{outside}/link", os.O_PATH | os.O_NOFOLLOW)
    found["a symlink's own descriptor"] = by_descriptor(nofollow)
    found["a descriptor that reads"] = by_descriptor(os.open(f"{readable}/file", os.O_RDONLY))
    found["a folder's descriptor"] = by_descriptor(at)
    answers = {name: [call(numbers, c, *a) for c, a in rows] for name, rows in found.items()}
    links: list[Row] = [
        ("lchown", (os.fsencode(f"{outside}/link"), os.getuid(), os.getgid())),
        ("fchownat", (at, b"link", os.getuid(), os.getgid(), NOFOLLOW)),
        ("utimensat", (at, b"link", TIMES, NOFOLLOW)),
        ("fchmodat2", (at, b"link", 0o600, NOFOLLOW)),
    ]
    answers["a symlink itself"] = [call(numbers, c, *a) for c, a in links]
    home = os.getcwd()
    os.chdir(outside)
    inside: list[Row] = [
        *(by_path(b"key") + by_path(b"./link")),
        *(by_path(b"/proc/self/cwd/key") + by_path(b"/proc/self/root" + os.fsencode(outside))),
        *(("fchmodat2", (CWD, b"", 0o777, EMPTY_PATH)), ("chmod", (b".", 0o777))),
    ]
    answers["its folder as the working folder"] = [call(numbers, c, *a) for c, a in inside]
    os.chdir(home)
    # The control: the same calls, where the jail may write.
    with open("mine", "w") as file:
        ours = by_path(b"mine") + by_path(os.fsencode(f"{home}/sub/../mine"))
        ours += by_descriptor(file.fileno())
        answers["mine"] = [call(numbers, c, *a) for c, a in ours]
    return answers


def change_all(paths: list[str]) -> list[str]:
    """Mode and times of files, by their paths."""

    def change(path: str) -> None:
        os.chmod(path, 0o777)
        os.utime(path, (1, 1))

    return [attempt(functools.partial(change, path)) for path in paths]


# ---------------------------------------------------------------- races


ENOUGH, PATIENCE_S = 20, 30.0


def race(
    numbers: Numbers, path: bytes | int, count: int, swap: Callable[[], None]
) -> dict[str, int]:
    """At least `count` modes set while another process swaps, until both sides were met."""
    swapper = os.fork()
    if swapper == 0:
        while True:
            swap()
    seen = {"inside": 0, "refused": 0}
    deadline = time.monotonic() + PATIENCE_S
    try:
        while sum(seen.values()) < count or min(seen.values()) < ENOUGH:
            done = call(numbers, "fchmodat", CWD, path, 0o600 | sum(seen.values()) % 8)
            seen["inside" if done == 0 else "refused"] += 1
            if time.monotonic() > deadline:
                break
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)
    return seen


def swap_folder(numbers: Numbers, outside: str, count: int) -> dict[str, int]:
    """A folder changes places with a symlink to one outside, while modes are set in it."""
    os.mkdir("folder")
    with open("folder/key", "w"):
        pass
    os.symlink(outside, "other")

    def swap() -> None:
        call(numbers, "renameat2", CWD, b"folder", CWD, b"other", RENAME_EXCHANGE)

    return race(numbers, b"folder/key", count, swap)


def swap_words(numbers: Numbers, outside: str, count: int) -> dict[str, int]:
    """The path is rewritten in memory, between one inside and one outside of one length."""
    target = os.fsencode(f"{outside}/key")
    good = b"." + b"/" * (len(target) - 5) + b"mine"
    with open("mine", "w"):
        pass
    shared = mmap.mmap(-1, 8192)
    shared[: len(good)] = good

    def swap() -> None:
        shared[: len(target)] = target
        shared[: len(good)] = good

    address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    return race(numbers, address, count, swap)


def die_in_mid_call(numbers: Numbers, rounds: int) -> dict[str, int]:
    """Children that set modes without end, each killed while it does; then one's own call."""
    with open("mine", "w"):
        pass
    killed = 0
    for _ in range(rounds):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, b"1")
            while True:
                call(numbers, "fchmodat", CWD, b"mine", 0o600)
        os.read(read, 1)
        os.kill(pid, signal.SIGKILL)
        killed += os.waitpid(pid, 0)[1] == signal.SIGKILL
        os.close(read)
        os.close(write)
    return {"killed": killed, "then": call(numbers, "fchmodat", CWD, b"mine", 0o640) or 0}


# ---------------------------------------------------------------- as the kernel would


def as_the_kernel(numbers: Numbers) -> list[Any]:
    """Ordinary and odd calls on the jail's own files: what each answers, and the mode after it."""
    with open("f", "w"):
        pass
    os.mkdir("d")
    os.mkdir("closed")
    with open("closed/f", "w"):
        pass
    os.chmod("closed", 0)
    os.symlink("f", "s")
    os.symlink("loop", "loop")
    fd, folder = os.open("f", os.O_RDONLY), os.open("d", os.O_RDONLY)
    at = os.open("f", os.O_PATH)
    maps = [mmap.mmap(-1, 8192) for _ in range(2)]
    whole, cut = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in maps)
    for start in (whole, cut):
        assert LIBC.munmap(start + 4096, 4096) == 0
    ctypes.memmove(whole + 4094, b"f\0", 2)
    ctypes.memmove(cut + 4095, b"f", 1)
    uid, gid = os.getuid(), os.getgid()
    rows: list[Row] = [
        ("fchmodat", (CWD, b"f", 0o600)),
        ("fchmodat", (CWD, b"", 0o600)),
        ("fchmodat", (CWD, None, 0o600)),
        ("fchmodat", (CWD, b"missing", 0)),
        ("fchmodat", (CWD, b"f/x", 0)),
        ("fchmodat", (CWD, b"f/", 0o640)),
        ("fchmodat", (CWD, b"loop", 0)),
        ("fchmodat", (CWD, b"s", 0o640)),
        ("fchmodat", (CWD, b"d/.", 0o755)),
        ("fchmodat", (CWD, b"closed/f", 0o600)),
        ("fchmodat", (CWD, b"f", 0xFFFF_8000 | 0o644)),
        ("fchmodat", (CWD, b"f", 9 << 32 | 0o604)),
        ("fchmodat", (CWD, b"f", 0o10640)),
        ("fchmodat", (CWD, b"f", 0o7777)),
        ("fchmodat", (CWD, b"f", 0o4755)),
        ("fchmodat", (CWD, b"f", 0o1755)),
        # The path ends where its page does; it does not end there; it is nowhere.
        ("fchmodat", (CWD, whole + 4094, 0o600)),
        ("fchmodat", (CWD, cut + 4095, 0)),
        *(("fchmodat", (CWD, a, 0)) for a in (1, 8, 1 << 47, 1 << 63, (1 << 64) - 1, cut + 4096)),
        # 4,095 bytes and the NUL are the most that a path may have.
        ("fchmodat", (CWD, b"./" * 2047 + b"f", 0o600)),
        ("fchmodat", (CWD, b"./" * 2046 + b"././f"[1:], 0o600)),
        ("fchmodat", (CWD, b"./" * 2046 + b".//f", 0o600)),
        ("fchmodat", (CWD, b"./" * 2500, 0o600)),
        ("fchmodat", (CWD, b"a" * 255, 0)),
        ("fchmodat", (CWD, b"a" * 256, 0)),
        ("fchmodat", (CWD, b"f\0/../../..", 0o600)),
        ("fchmod", (fd, 0o640)),
        ("fchmod", (1 << 32 | fd, 0o600)),
        *(("fchmod", (number, 0)) for number in (-1, CWD, 999, 0x7FFF_FFFF)),
        ("fchmodat", (folder, b"../f", 0o600)),
        ("fchmodat", (fd, b"x", 0)),
        ("fchmodat", (-1, b"f", 0)),
        ("fchmodat", (folder, None, 0o700)),
        ("fchmodat2", (CWD, b"s", 0o600, NOFOLLOW)),
        ("fchmodat2", (fd, b"", 0o600, EMPTY_PATH)),
        ("fchmodat2", (at, b"", 0o600, EMPTY_PATH)),
        ("fchmodat2", (CWD, b"", 0o755, EMPTY_PATH)),
        ("fchmodat2", (fd, b"", 0o600, 0)),
        ("fchmodat2", (fd, None, 0o600, EMPTY_PATH)),
        *(("fchmodat2", (CWD, b"f", 0, flags)) for flags in (1, 0x200, 0x400, 1 << 31)),
        ("fchownat", (CWD, b"f", -1, -1, 0)),
        ("fchownat", (CWD, b"f", uid, gid, 0)),
        ("fchownat", (CWD, b"f", 7 << 32 | uid, 0xFFFF_FFFF, 0)),
        ("fchownat", (CWD, b"loop", uid, gid, NOFOLLOW)),
        ("fchownat", (fd, b"", -1, gid, EMPTY_PATH)),
        ("fchownat", (fd, b"", -1, -1, 0)),
        ("fchownat", (CWD, b"f", -1, -1, 0x400)),
        ("fchown", (fd, -1, -1)),
        ("fchown", (-1, -1, -1)),
        ("lchown", (b"s", uid, -1)),
        ("utimensat", (CWD, b"f", None, 0)),
        ("utimensat", (fd, None, None, 0)),
        ("utimensat", (fd, None, None, NOFOLLOW)),
        ("utimensat", (CWD, None, None, 0)),
        ("utimensat", (-1, None, None, 0)),
        ("utimensat", (CWD, b"loop", TIMES, NOFOLLOW)),
        ("utimensat", (CWD, b"f", TIMES, 0x200)),
        *(("utimensat", (CWD, b"f", a, 0)) for a in (1, 1 << 63, cut + 4096 - 16)),
        *(("utimes", (b"f", a)) for a in (None, 1, 1 << 63)),
        ("utime", (b"f", 1)),
        ("futimesat", (fd, None, None)),
        ("futimesat", (CWD, None, None)),
        ("chmod", (b"/proc/self/fd/%d" % fd, 0o600)),
    ]
    for nanoseconds in (5, 999_999_999, 1_000_000_000, -1, UTIME_NOW, UTIME_OMIT, 1 << 40):
        told = struct.pack("=4q", 1, nanoseconds, 2, 6)
        rows += [("utimensat", (CWD, b"f", told, 0)), ("utimes", (b"f", told))]
    rows.append(("utimensat", (CWD, b"f", struct.pack("=4q", 1, UTIME_OMIT, 2, UTIME_OMIT), 0)))
    answers = []
    for name, arguments in rows:
        answer = call(numbers, name, *arguments)
        after = os.lstat("f")
        # Times of long ago were told; that of the call itself is no two times the same.
        touched = after.st_mtime_ns if after.st_mtime_ns < 10**16 else "now"
        answers.append([name, answer, oct(after.st_mode), touched])
    os.chmod("closed", 0o700)
    return answers


def odd_ids(numbers: Numbers) -> list[int | None]:
    """Owners that nobody has, of which 2^32 - 2 is one, then a call that is fine."""
    with open("f", "w"):
        pass
    ids = (-2, 0x8000_0000, 0x7FFF_FFFF, 1 << 40 | 12345)
    answers = [call(numbers, "fchownat", CWD, b"f", number, -1, 0) for number in ids]
    answers += [call(numbers, "fchownat", CWD, b"f", -1, number, 0) for number in ids]
    return [*answers, call(numbers, "fchmodat", CWD, b"f", 0o600)]


def from_everywhere(numbers: Numbers) -> dict[str, Any]:
    """The same call from a thread, a grandchild, a child whose parent is held, one that hides."""
    with open("f", "w"):
        pass
    seen: dict[str, Any] = {}

    def ask(name: str, mode: int) -> None:
        seen[name] = [call(numbers, "fchmodat", CWD, b"f", mode), os.stat("f").st_mode & 0o777]

    thread = threading.Thread(target=ask, args=("thread", 0o601))
    thread.start()
    thread.join()

    def child(act: Callable[[], None], start: Callable[[], int]) -> int:
        pid = start()
        if pid == 0:
            act()
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def grandchild() -> None:
        os._exit(child(lambda: os._exit(-(chmod(0o602) or 0)), os.fork) and 1)

    def chmod(mode: int) -> int | None:
        return call(numbers, "fchmodat", CWD, b"f", mode)

    seen["grandchild"] = [child(grandchild, os.fork), os.stat("f").st_mode & 0o777]

    def held() -> int:
        # CLONE_VFORK: the parent does not run until the child has ended.
        return call(numbers, "clone", 0x4000 | signal.SIGCHLD) or 0

    seen["held"] = [child(lambda: os._exit(1 if chmod(0o604) else 0), held)]
    seen["held"].append(os.stat("f").st_mode & 0o777)
    program = subprocess.run(["chmod", "0610", "f"])
    seen["program"] = [program.returncode, os.stat("f").st_mode & 0o777]
    call(numbers, "prctl", 4, 0)
    ask("hidden", 0o777)
    call(numbers, "prctl", 4, 1)
    ask("seen again", 0o620)
    # struct sock_fprog with one instruction, which allows everything; then a listener's flag.
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
    header = struct.pack("@HP", 1, ctypes.addressof(allow))
    seen["own filter"] = call(numbers, "seccomp", 1, 0, header)
    ask("filtered twice", 0o621)
    seen["own listener"] = call(numbers, "seccomp", 1, 8, header)
    rules = call(numbers, "landlock_create_ruleset", struct.pack("=Q", 1 << 8), 8, 0) or -1
    seen["own domain"] = call(numbers, "landlock_restrict_self", rules, 0)
    ask("confined twice", 0o622)
    seen["the domain"] = attempt(lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY)))
    return seen


def interrupted(numbers: Numbers) -> dict[str, int]:
    """Modes set under a timer whose handler breaks calls off, and whose handler does not."""
    with open("f", "w"):
        pass
    seen = {}
    signal.signal(signal.SIGALRM, lambda *_: None)
    for name, breaks in (("breaking", True), ("restarting", False)):
        signal.siginterrupt(signal.SIGALRM, breaks)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        answers = [call(numbers, "fchmodat", CWD, b"f", 0o600) for _ in range(3000)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        seen[name] = answers.count(-errno.EINTR)
        seen[f"{name}, done"] = answers.count(0)
    return seen


# ---------------------------------------------------------------- floods


def flood(numbers: Numbers, processes: int, count: int) -> dict[str, int]:
    """Modes set by many processes at once: `count` in all, or without end."""
    with open("f", "w"):
        pass
    each = count // processes if count else 1 << 62
    children = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            done, left = 0, each
            while left:
                done += call(numbers, "fchmodat", CWD, b"f", 0o600) == 0
                left -= 1
            os._exit(0 if done == each else 1)
        children.append(pid)
    with open("started", "w"):
        pass
    good = sum(os.waitpid(pid, 0)[1] == 0 for pid in children)
    return {"good": good}


def in_two_parts(numbers: Numbers, count: int) -> int:
    """A few calls of every kind, then, when the test says so, `count` rounds more of them."""
    with open("f", "w"):
        pass
    fd = os.open("f", os.O_RDONLY)

    def all_kinds() -> int:
        done = 0
        done += call(numbers, "fchmodat", CWD, b"f", 0o600) == 0
        done += call(numbers, "fchmod", fd, 0o600) == 0
        done += call(numbers, "utimensat", CWD, b"f", TIMES, 0) == 0
        done += call(numbers, "fchownat", CWD, b"f", -1, -1, 0) == 0
        call(numbers, "fchmodat", CWD, b"/etc/passwd", 0o600)
        call(numbers, "fchmodat", CWD, b"missing/f", 0o600)
        call(numbers, "fchmodat", 77, b"f", 0o600)
        call(numbers, "fchmodat", CWD, 1, 0o600)
        call(numbers, "utimensat", CWD, b"f", 1, 0)
        return done

    done = sum(all_kinds() for _ in range(20))
    _signal_and_wait("first", "go on")
    done += sum(all_kinds() for _ in range(count))
    _signal_and_wait("second", "end")
    return done


def _signal_and_wait(said: str, awaited: str) -> None:
    with open(said, "w"):
        pass
    while not os.path.exists(awaited):
        os.sched_yield()


def read_only(outside: str) -> dict[str, str]:
    """Change what lies in a workspace that may only be read."""
    fd = os.open("file", os.O_RDONLY)
    return {
        "chmod": attempt(lambda: os.chmod("file", 0o777)),
        "fchmod": attempt(lambda: os.fchmod(fd, 0o777)),
        "utime": attempt(lambda: os.utime("file", (1, 1))),
        "futimens": attempt(lambda: os.utime(fd, (1, 1))),
        "chown": attempt(lambda: os.chown("file", os.getuid(), os.getgid())),
        "folder": attempt(lambda: os.chmod(".", 0o777)),
        "setxattr": attempt(lambda: os.setxattr("file", "user.a", b"1")),
        "flags": attempt(lambda: fcntl.ioctl(fd, 0x40086602, struct.pack("@l", 0x40))),
        "own": attempt(lambda: _own_scratch()),
    }


def _own_scratch() -> None:
    path = os.path.join(os.environ["TMPDIR"], "mine")
    with open(path, "w"):
        pass
    os.chmod(path, 0o600)
    os.utime(path, (1, 1))


# ---------------------------------------------------------------- other processes


def at_others(numbers: Numbers, victim: int, group: int, supervisor: int) -> dict[str, Any]:
    """Every way to a process of the same uid outside: signals, limits, memory, descriptors."""

    def ask(name: str, *arguments: Any) -> int | None:
        return call(numbers, name, *arguments)

    info = struct.pack("=iii", signal.SIGTERM, 0, -1) + bytes(116)
    seen: dict[str, Any] = {}
    others = {"victim": victim, "supervisor": supervisor, "init": os.getppid()}
    for who, pid in others.items():
        pidfd = ask("pidfd_open", pid, 0) or -1
        seen |= {
            f"{who} kill": ask("kill", pid, signal.SIGTERM),
            f"{who} kill 0": ask("kill", pid, 0),
            f"{who} tkill": ask("tkill", pid, signal.SIGTERM),
            f"{who} tgkill": ask("tgkill", pid, pid, signal.SIGTERM),
            f"{who} rt_sigqueueinfo": ask("rt_sigqueueinfo", pid, signal.SIGTERM, info),
            f"{who} rt_tgsigqueueinfo": ask("rt_tgsigqueueinfo", pid, pid, signal.SIGTERM, info),
            f"{who} pidfd": ask("pidfd_send_signal", pidfd, signal.SIGTERM, None, 0),
            f"{who} pidfd group": ask("pidfd_send_signal", pidfd, signal.SIGTERM, None, 4),
            f"{who} stop": ask("kill", pid, signal.SIGSTOP),
            f"{who} pidfd_getfd": ask("pidfd_getfd", pidfd, 0, 0),
            f"{who} process_madvise": ask("process_madvise", pidfd, bytes(16), 1, 4, 0),
            f"{who} setns": ask("setns", pidfd, 0x20000),
            f"{who} nice": ask("setpriority", 0, pid, 19),
            f"{who} nice of its group": ask("setpriority", 1, group, 19),
            f"{who} nice of its user": ask(
                "setpriority", 2, os.getuid(), os.getpriority(os.PRIO_USER, 0)
            ),
            f"{who} ioprio": ask("ioprio_set", 1, pid, 0x6000),
            f"{who} affinity": ask("sched_setaffinity", pid, 8, struct.pack("=Q", 1)),
            f"{who} scheduler": ask("sched_setscheduler", pid, 3, bytes(4)),
            f"{who} attributes": ask("sched_setattr", pid, struct.pack("=II", 48, 3) + bytes(40)),
            f"{who} limits": ask("prlimit64", pid, 7, struct.pack("=QQ", 3, 3), None),
            f"{who} limits read": ask("prlimit64", pid, 7, None, bytes(16)),
            f"{who} ptrace": ask("ptrace", 16, pid, None, None),
            f"{who} vm_readv": ask("process_vm_readv", pid, bytes(16), 1, bytes(16), 1, 0),
            f"{who} vm_writev": ask("process_vm_writev", pid, bytes(16), 1, bytes(16), 1, 0),
            f"{who} kcmp": ask("kcmp", pid, os.getpid(), 1, 0, 0),
            f"{who} robust list": ask("get_robust_list", pid, bytes(8), bytes(8)),
            f"{who} pages": ask("move_pages", pid, 0, None, None, None, 0),
            f"{who} perf": ask("perf_event_open", bytes(128), pid, -1, -1, 0),
            f"{who} core": ask("prctl", 62, 2, pid, 0, 0),
            # SIGEV_THREAD_ID: a timer's signal to a thread that is not one's own.
            f"{who} timer": ask(
                "timer_create", 1, struct.pack("=Qiii", 0, 15, 4, pid) + bytes(44), bytes(8)
            ),
        }
        for name in (
            "mem",
            "environ",
            "cmdline",
            "maps",
            "status",
            "fd",
            "fd/0",
            "cwd/.",
            "root/.",
        ):
            seen[f"{who} /proc {name}"] = _opened(f"/proc/{pid}/{name}")
        for name in ("oom_score_adj", "comm", "coredump_filter"):
            seen[f"{who} /proc {name}"] = _opened(f"/proc/{pid}/{name}", os.O_WRONLY)
        for link in ("exe", "cwd", "root", "fd/0", "ns/net"):
            seen[f"{who} link {link}"] = _linked(f"/proc/{pid}/{link}")
    seen |= {
        # Signal 0 only asks, and the user's own nice value changes nothing, if a fence should fail.
        "kill everybody": ask("kill", -1, 0),
        "kill its group": ask("kill", -group, signal.SIGTERM),
        "kill own group": ask("kill", 0, signal.SIGTERM),
        "queues": ask("mq_notify", 0, bytes(64)),
        "sigio by group": _owner(8, -group),
        "sigio by pointer": _owner(15, struct.pack("=ii", 1, victim)),
        "sigio by ioctl": attempt(
            lambda: fcntl.ioctl(_pair()[0], 0x8901, struct.pack("i", victim))
        ),
    }
    # Setting the owner is no crime; being sent the signal would be.
    ours, theirs = _pair()
    with contextlib.suppress(OSError):
        fcntl.fcntl(ours, fcntl.F_SETOWN, victim)
        fcntl.fcntl(ours, 10, signal.SIGTERM)
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
        os.write(theirs.fileno(), b"1")
    return seen


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def _owner(command: int, argument: Any) -> str:
    return attempt(lambda: fcntl.fcntl(_pair()[0], command, argument))


def _opened(path: str, flags: int = os.O_RDONLY) -> str:
    return attempt(lambda: os.close(os.open(path, flags)))


def _linked(path: str) -> str:
    return attempt(lambda: os.readlink(path))


def send_by_pairs(numbers: Numbers, outside: str, readable: str) -> dict[str, str]:
    """Reach sockets that have a name, with ends of pairs: no socket() is called."""

    def sent(kind: int, name: int) -> None:
        first, _ = socket.socketpair(socket.AF_UNIX, kind)
        first.sendto(b"from the jail", f"{outside}/{name}.sock")

    def connected(kind: int) -> None:
        first, _ = socket.socketpair(socket.AF_UNIX, kind)
        # AF_UNSPEC first: it dissolves a datagram socket's connection.
        LIBC.connect(first.fileno(), bytes(16), 16)
        first.connect(f"{outside}/{kind}.sock")
        first.send(b"from the jail")

    def listening(kind: int) -> None:
        first, _ = socket.socketpair(socket.AF_UNIX, kind)
        first.bind(f"own.{kind}.sock")
        first.listen()

    stream, datagram, raw, sequence = 1, 2, 3, 5
    acts: dict[str, Callable[[], None]] = {
        "a datagram": lambda: sent(datagram, datagram),
        "a raw datagram": lambda: sent(raw, datagram),
        "a stream": lambda: sent(stream, stream),
        "datagrams connected anew": lambda: connected(datagram),
        "a stream connected anew": lambda: connected(stream),
        "a sequence connected anew": lambda: connected(sequence),
        "a stream that listens": lambda: listening(stream),
        "a sequence that listens": lambda: listening(sequence),
    }
    return {name: attempt(act) for name, act in acts.items()}


def beyond(numbers: Numbers, outside: str, readable: str) -> dict[str, Any]:
    """Ways to files, sockets and devices outside that take neither a mode nor a time."""
    key, held = f"{outside}/key", f"{readable}/file"
    with open("mine", "w"):
        pass

    def ask(name: str, *arguments: Any) -> int | None:
        return call(numbers, name, *arguments)

    def opened(path: str, flags: int) -> str:
        return attempt(lambda: os.close(os.open(path, flags, 0o600)))

    fd = os.open(held, os.O_RDONLY)
    memory = os.memfd_create("program")
    with open("/bin/true", "rb") as file:
        os.write(memory, file.read())
    return {
        "read": opened(key, os.O_RDONLY),
        "write": opened(key, os.O_WRONLY),
        "append": opened(held, os.O_WRONLY | os.O_APPEND),
        "create": opened(f"{outside}/new", os.O_CREAT | os.O_WRONLY),
        "create beside": opened("../new", os.O_CREAT | os.O_WRONLY),
        "create in what is read": opened(f"{readable}/new", os.O_CREAT | os.O_WRONLY),
        "nameless file": opened(outside, os.O_TMPFILE | os.O_WRONLY),
        "truncate at opening": opened(held, os.O_TRUNC | os.O_RDONLY),
        "truncate": attempt(lambda: os.truncate(key, 0)),
        "truncate what is read": attempt(lambda: os.truncate(held, 0)),
        "ftruncate": attempt(lambda: os.ftruncate(fd, 0)),
        "fallocate": ask("fallocate", fd, 0, 0, 1 << 20),
        "list": attempt(lambda: os.listdir(outside)),
        "list by O_PATH": attempt(lambda: os.listdir(os.open(outside, os.O_PATH))),
        "rename out": attempt(lambda: os.rename("mine", f"{outside}/new")),
        "rename in": attempt(lambda: os.rename(key, "stolen")),
        "exchange": ask("renameat2", CWD, b"mine", CWD, os.fsencode(key), RENAME_EXCHANGE),
        "rename in what is read": attempt(lambda: os.rename(held, f"{readable}/x")),
        "link in": attempt(lambda: os.link(key, "hard")),
        "link what is read": attempt(lambda: os.link(held, "hard")),
        "link what is open": ask("linkat", fd, b"", CWD, b"hard", EMPTY_PATH),
        "link by proc": ask("linkat", CWD, b"/proc/self/fd/%d" % fd, CWD, b"hard", 0x400),
        "link a program": attempt(lambda: os.link("/bin/sh", "hard")),
        "link out": attempt(lambda: os.link("mine", f"{outside}/hard")),
        "unlink": attempt(lambda: os.unlink(key)),
        "unlink what is read": attempt(lambda: os.unlink(held)),
        "mkdir": attempt(lambda: os.mkdir(f"{outside}/d")),
        "rmdir": attempt(lambda: os.rmdir(f"{outside}/empty")),
        "symlink": attempt(lambda: os.symlink("x", f"{outside}/s")),
        "fifo": attempt(lambda: os.mkfifo(f"{outside}/p")),
        "device": attempt(lambda: os.mknod("n", 0o20666, os.makedev(1, 3))),
        "execute": attempt(lambda: os.execv(f"{outside}/program", ["x"])),
        "map to write": attempt(lambda: mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)),
        "setxattr": attempt(lambda: os.setxattr(key, "user.a", b"1")),
        "setxattr on what is open": attempt(lambda: os.setxattr(fd, "user.a", b"1")),
        "removexattr": attempt(lambda: os.removexattr(key, "user.kept")),
        "flags": attempt(lambda: fcntl.ioctl(fd, 0x40086602, struct.pack("@l", 0x20))),
        "extended flags": attempt(lambda: fcntl.ioctl(fd, 0x401C5820, bytes(28))),
        "generation": attempt(lambda: fcntl.ioctl(fd, 0x40087602, struct.pack("@l", 7))),
        "verity": attempt(lambda: fcntl.ioctl(fd, 0x40806685, bytes(128))),
        "interfaces": attempt(lambda: fcntl.ioctl(_pair()[0], 0x8912, struct.pack("@iL", 0, 0))),
        "lease": attempt(lambda: fcntl.fcntl(fd, 1024, fcntl.F_RDLCK)),
        "watch": ask("inotify_add_watch", os.eventfd(0), os.fsencode(outside), 0xFFF),
        "by handle": ask("name_to_handle_at", CWD, os.fsencode(key), bytes(64), bytes(4), 0),
        "mount": ask("mount", b"none", os.fsencode(outside), b"tmpfs", 0, None),
        "open_tree": ask("open_tree", CWD, os.fsencode(outside), 1),
        "chroot": ask("chroot", os.fsencode(outside)),
        "namespace": ask("unshare", 0x10000000),
        "unix socket": attempt(lambda: socket.socket(socket.AF_UNIX).close()),
        "internet socket": attempt(lambda: socket.socket().close()),
        "netlink": attempt(lambda: socket.socket(socket.AF_NETLINK).close()),
        **send_by_pairs(numbers, outside, readable),
        "terminal": opened("/dev/tty", os.O_RDWR),
        "new terminal": opened("/dev/ptmx", os.O_RDWR),
        "shared memory": opened("/dev/shm/toolcell-test", os.O_CREAT | os.O_RDWR),
        "disk": opened("/dev/sda", os.O_RDONLY),
        "kernel memory": opened("/dev/kmsg", os.O_WRONLY),
        "sysctl": opened("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        "control groups": opened("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY),
        "mounts": opened("/proc/self/mountinfo", os.O_RDONLY),
        "own memory": opened("/proc/self/mem", os.O_RDWR),
        "a program in memory": _runs_filtered(memory),
    }


def _runs_filtered(memory: int) -> str:
    """A program out of a memfd is under the same fences; "done" would be a way out."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            os.execve(memory, ["true"], {})
        os._exit(9)
    status = os.waitpid(pid, 0)[1]
    code = "import os; os.chmod('/', os.stat('/').st_mode & 0o777)"
    inner = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode
    return f"ran {status}, then {inner}"


# ---------------------------------------------------------------- leaving the group


def leave(numbers: Numbers, sleeper: list[str]) -> dict[str, Any]:
    """Processes that try to leave the group by every means; all sleep on when this returns."""
    group = os.getpgid(0)
    children: list[int] = []

    def sleep() -> None:
        os.execvp(sleeper[0], sleeper)

    def start(act: Callable[[], Any], how: Callable[[], int] = os.fork) -> None:
        pid = how()
        if pid == 0:
            try:
                act()
                sleep()
            finally:
                os._exit(1)
        children.append(pid)

    def raw(flags: int) -> Callable[[], int]:
        return lambda: call(numbers, "clone", flags) or 0

    def again(act: Callable[[], Any], how: Callable[[], int] = os.fork) -> Callable[[], None]:
        def twice() -> None:
            os.setsid()
            if how() > 0:
                os._exit(0)
            act()

        return twice

    def below_a_subreaper() -> None:
        call(numbers, "prctl", 36, 1)
        if os.fork():
            sleep()
        os.setsid()

    start(os.setsid)
    start(lambda: os.setpgid(0, 0))
    start(lambda: call(numbers, "setpgid", os.getpid(), os.getpid()))
    start(lambda: call(numbers, "setpgid", 0, os.getppid()))
    start(again(os.setsid))
    start(again(lambda: call(numbers, "setsid")))
    start(again(os.setsid, raw(signal.SIGCHLD)))
    start(again(os.setsid, raw(0)))  # No signal at its end: some waits do not see it.
    start(os.setsid, raw(0x8000 | signal.SIGCHLD))  # CLONE_PARENT: the init's own child.
    start(os.setsid, raw(0))
    start(lambda: call(numbers, "prctl", 36, 1))  # PR_SET_CHILD_SUBREAPER
    start(below_a_subreaper)
    start(lambda: call(numbers, "prctl", 1, 0))  # PR_SET_PDEATHSIG: none
    start(lambda: signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)))
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    start(lambda: None)
    path = "/bin/sleep"
    environ = dict(os.environ)
    children.append(os.posix_spawn(path, sleeper, environ, setpgroup=0))
    with contextlib.suppress(NotImplementedError):
        children.append(os.posix_spawn(path, sleeper, environ, setsid=True))
    children.append(subprocess.Popen(sleeper, start_new_session=True).pid)
    children.append(subprocess.Popen(["setsid", "-f", *sleeper]).pid)
    for child in children:
        call(numbers, "setpgid", child, child)
    groups = set()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            groups.add(os.getpgid(child))
    return {"started": len(children), "groups": len(groups | {group})}


def sleep_on(sleeper: list[str], count: int) -> None:
    """Orphans, then a wait without end."""
    for _ in range(count):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp(sleeper[0], sleeper)
            os._exit(0)
    with open("started", "w"):
        pass
    while True:
        time.sleep(1000)


def pass_descriptors(numbers: Numbers, readable: str) -> int | None:
    """A descriptor that came over a pair of sockets is no better than the one that was sent."""
    ours, theirs = socket.socketpair()
    fd = os.open(f"{readable}/file", os.O_RDONLY)
    ours.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)
    control = theirs.recvmsg(1, socket.CMSG_SPACE(4))[1]
    return call(numbers, "fchmod", struct.unpack("i", control[0][2][:4])[0], 0o777)
