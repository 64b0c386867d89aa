"""The init's answers to calls that ask, in this process: a fake listener, real files and memory."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox._child import metadata, seccomp, syscall_table, syscalls

from .bpf import ARCH

MACHINE = syscalls.platform_machine()
NUMBERS = {
    row[0]: row[1] if MACHINE == "x86_64" else row[2]
    for row in syscall_table.rows("process_group", "none")
}
CWD = (1 << 64) - 100
LISTENER = 77


class Kernel:
    """The kernel's side of a listener: who waits, and what was answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[int] = []
        self.asked = 0
        self.waits: Callable[[int], bool] = lambda asked: True
        monkeypatch.setattr(seccomp, "still_waits", self._still_waits)
        monkeypatch.setattr(seccomp, "answer", self._answer)

    def _still_waits(self, listener: int, blocked: seccomp.Blocked) -> bool:
        assert listener == LISTENER
        self.asked += 1
        return self.waits(self.asked)

    def _answer(self, listener: int, blocked: seccomp.Blocked, number: int) -> None:
        assert listener == LISTENER
        self.answers.append(number)

    def ask(self, tops: list[str], name: str, *arguments: int | bytes) -> int:
        """What the init answers this process to a call; words are pointers."""
        kept = [ctypes.create_string_buffer(a) for a in arguments if isinstance(a, bytes)]
        pointers = iter(ctypes.addressof(buffer) for buffer in kept)
        wide = [a if isinstance(a, int) else next(pointers) for a in arguments]
        number = NUMBERS[name]
        assert isinstance(number, int)
        told = (*wide, *(0,) * (6 - len(wide)))
        blocked = seccomp.Blocked(1, os.getpid(), ARCH[MACHINE], number, told)
        before = len(os.listdir("/proc/self/fd"))
        assert metadata.Metadata(LISTENER, tops).answer(blocked)
        assert len(os.listdir("/proc/self/fd")) == before, "a descriptor stays open"
        return self.answers.pop()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a file in it, as the working folder, beside one of nearly its name."""
    top = tmp_path.resolve() / "ws"
    for folder in (top, tmp_path / "ws-evil", tmp_path / "w"):
        folder.mkdir()
        (folder / "f").touch(0o600)
    monkeypatch.chdir(top)
    return top


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    "path",
    ["../ws-evil/f", "../w/f", "..", "../ws/../ws-evil/f", "/", "/dev/null", "out", "way/f", "//"],
)
def test_a_near_miss_is_no_place_of_the_jail(kernel: Kernel, top: Path, path: str) -> None:
    """A name that begins as the workspace's does is another folder's."""
    (top / "out").symlink_to("../ws-evil/f")
    (top / "way").symlink_to("../ws-evil")
    before = os.stat(path).st_mode, os.stat(path).st_ctime_ns
    # The mode that it has: it would be the machine's own, if this should ever fail.
    same = stat.S_IMODE(before[0])
    for name in (path, f"{top}/{path}" if not path.startswith("/") else path):
        assert kernel.ask([str(top)], "fchmodat", CWD, name.encode(), same) == errno.EACCES
    assert (os.stat(path).st_mode, os.stat(path).st_ctime_ns) == before


@pytest.mark.parametrize("path", ["f", "./f", "//{}/f", "{}/f", "../ws-evil/../ws/f", "in", "{}"])
def test_every_name_of_an_own_file_leads_to_it(kernel: Kernel, top: Path, path: str) -> None:
    """The control: what decides is where the file lies, not how it is called."""
    (top / "in").symlink_to("../ws/f")
    name = path.format(top)
    assert kernel.ask([str(top)], "fchmodat", CWD, name.encode(), 0o740) == 0
    assert mode(Path(name)) == 0o740


def test_a_single_file_that_may_be_written_is_a_place(kernel: Kernel, top: Path) -> None:
    """What is granted may be a file; what lies beside it, or begins like it, is not granted."""
    (top / "f.old").touch(0o600)
    tops = [str(top / "f")]
    assert kernel.ask(tops, "fchmodat", CWD, b"f", 0o640) == 0
    assert kernel.ask(tops, "fchmodat", CWD, b"f.old", 0o640) == errno.EACCES
    assert kernel.ask([], "fchmodat", CWD, b"f", 0o600) == errno.EACCES
    assert (mode(top / "f"), mode(top / "f.old")) == (0o640, 0o600)


def test_a_file_without_a_name_is_where_it_was(kernel: Kernel, top: Path) -> None:
    """Temporary files are made by unlinking them; a folder of that name is not theirs."""
    fd = os.open(top / "f", os.O_RDONLY)
    os.unlink(top / "f")
    assert kernel.ask([str(top)], "fchmod", fd, 0o640) == 0
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    assert kernel.ask([str(top / "f")], "fchmod", fd, 0o600) == errno.EACCES
    os.close(fd)
    pipe = os.pipe()
    assert kernel.ask([str(top), "/"], "fchmod", pipe[0], 0o600) == errno.EACCES
    for fd in pipe:
        os.close(fd)


@pytest.mark.parametrize("last", range(3))
@pytest.mark.parametrize(
    "arguments", [("fchmodat", CWD, b"f", 0o777), ("utimensat", CWD, b"f", b"")]
)
def test_a_caller_that_is_gone_is_not_acted_for(
    kernel: Kernel, top: Path, last: int, arguments: Any
) -> None:
    """Its pid may be another's by now, whose memory, folder and files would be taken for its own.

    Each time that something was opened by that pid, the kernel is asked again.
    """
    before = os.stat("f").st_ctime_ns, mode(top / "f")
    kernel.waits = lambda asked: asked <= last
    name, *told = arguments
    if name == "utimensat":
        told[-1] = bytes(32)
    questions = 3 if name == "utimensat" else 2
    answer = kernel.ask([str(top)], name, *told)
    assert kernel.asked == min(last + 1, questions)
    if last < questions:
        assert answer == errno.ESRCH
        assert (os.stat("f").st_ctime_ns, mode(top / "f")) == before
    else:
        assert answer == 0


def test_the_words_are_read_once(kernel: Kernel, top: Path) -> None:
    """Another thread rewrites them: what is judged must be what is done."""
    words = ctypes.create_string_buffer(b"f", 64)

    def rewrite(asked: int) -> bool:
        if asked == 2:
            words.value = b"../ws-evil/f"
        return True

    kernel.waits = rewrite
    assert kernel.ask([str(top)], "fchmodat", CWD, ctypes.addressof(words), 0o740) == 0
    assert words.value == b"../ws-evil/f"
    assert (mode(top / "f"), mode(top.parent / "ws-evil" / "f")) == (0o740, 0o600)


def test_registers_are_wider_than_what_they_hold(kernel: Kernel, top: Path) -> None:
    """Modes, flags, ids and descriptors are 32 bits wide: whatever stands above is nobody's."""
    fd = os.open("f", os.O_RDONLY)
    high = 0xDEAD_BEEF << 32
    tops = [str(top)]
    assert kernel.ask(tops, "fchmodat", high | CWD & 0xFFFF_FFFF, b"f", high | 0o640) == 0
    assert kernel.ask(tops, "fchmod", high | fd, high | 0x8000 | 0o604) == 0
    assert kernel.ask(tops, "fchmodat2", CWD, b"f", 0o600, high) == 0
    assert kernel.ask(tops, "fchown", fd, high | 0xFFFF_FFFF, 0xFFFF_FFFF) == 0
    assert mode(top / "f") == 0o600
    os.close(fd)


@pytest.mark.parametrize("uid", [0xFFFF_FFFE, 0x8000_0000, 0x7FFF_FFFF])
@pytest.mark.parametrize("place", [0, 1])
def test_ids_have_no_sign(
    kernel: Kernel, top: Path, monkeypatch: pytest.MonkeyPatch, uid: int, place: int
) -> None:
    """Python takes no uid below -1: an exception in the init would be the end of the jail."""
    told = [0xFFFF_FFFF, 0xFFFF_FFFF]
    told[place] = uid
    seen: list[Any] = []
    monkeypatch.setattr(os, "chown", lambda path, *ids: seen.append(ids))
    assert kernel.ask([str(top)], "fchownat", CWD, b"f", *told, 0) == 0
    assert seen == [tuple(-1 if number == 0xFFFF_FFFF else number for number in told)]


@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6000, 0xFFFF_FFFF, 0o4000])
def test_no_setuid_bit_is_set_for_a_jail(kernel: Kernel, top: Path, bits: int) -> None:
    """Row 15: the filter does not see it any more where it asks, so it is seen here."""
    tops, fd = [str(top)], os.open("f", os.O_RDONLY)
    assert kernel.ask(tops, "fchmodat", CWD, b"f", bits) == errno.EPERM
    assert kernel.ask(tops, "fchmodat2", CWD, b"f", bits, 0) == errno.EPERM
    assert kernel.ask(tops, "fchmod", fd, bits) == errno.EPERM
    os.close(fd)
    assert mode(top / "f") == 0o600


@pytest.mark.parametrize("refusal", [ValueError("odd"), OverflowError("wide")])
def test_what_python_refuses_is_an_answer_and_not_the_end(
    kernel: Kernel, top: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """The init ends with its first exception, and the jail with it."""

    def refuse(*_: Any) -> None:
        raise refusal

    monkeypatch.setattr(os, "chmod", refuse)
    assert kernel.ask([str(top)], "fchmodat", CWD, b"f", 0o600) == errno.EINVAL


@pytest.mark.parametrize(
    ("arch", "name"), [("i386", "chmod"), ("aarch32", "chmod"), (MACHINE, "kexec_load")]
)
def test_another_call_is_left_to_whoever_ends_its_process(
    kernel: Kernel, arch: str, name: str
) -> None:
    """90 is mmap on i386: a number of another machine must not be taken for one that asks."""
    number = NUMBERS[name] or 90
    blocked = seccomp.Blocked(1, os.getpid(), ARCH[arch], number, (0,) * 6)
    assert not metadata.Metadata(LISTENER, ["/"]).answer(blocked)
    assert kernel.answers == []
