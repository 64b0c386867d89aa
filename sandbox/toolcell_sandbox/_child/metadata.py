"""Modes, owners and times of files, for a jail whose only fence is Landlock.

Landlock has no right for them (landlock(7), "Current limitations"): a worker of the supervisor's
own uid could open a private key to everybody by `chmod`. So the filter hands each such call that
names a path to the init, which does it in the caller's place, where the caller may write:

    worker: chmod("x", 0o600) ── filter ──► init: read "x" out of the caller's memory
                                                  open it once, never following /proc links
                                                  is it below what the jail may write?
            returns 0 or errno ◄─────────────     change the very file that was opened

What changes meanwhile in the caller's memory or on its path changes nothing: the words are read
once, and the file is judged by the descriptor that is then used. A call by descriptor is asked
about too: a file that could be opened to be read is not one that may be changed. The init has no
capabilities either, and a Landlock domain of its own keeps it from others' entries in /proc.

Answers are the kernel's own, but for descriptors by O_PATH, which serve here by themselves too,
and for a caller whose memory cannot be read (PR_SET_DUMPABLE 0): EACCES.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import seccomp, syscalls
from .syscall_table import SETUID_SETGID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # Place of the descriptor (None: the working folder) and of the path (None: it has none).
    Names = tuple[int | None, int | None]
    Act = Callable[["_Call"], None]

PATH_MAX = 4096
_PAGE = 4096
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
_OWN_DESCRIPTOR = b"/proc/self/fd/"
_OF_TIMESPECS = 32
_OF_TIMEVALS = 32
_OF_UTIMBUF = 16


class Metadata:
    """Answers the calls that a filter hands over, for a jail that may write below `tops`."""

    def __init__(self, listener: int, tops: list[str]) -> None:
        self._listener = listener
        self._tops = tops

    def answer(self, blocked: seccomp.Blocked) -> bool:
        """Do the call or refuse it; False where it is none of these, and was not answered."""
        wanted = CALLS.get(blocked.call) if blocked.is_native else None
        if wanted is None:
            return False
        names, flags, act = wanted
        try:
            call = _Call(blocked, self._listener, self._tops, names, flags)
            try:
                act(call)
            finally:
                os.close(call.file)
        except OSError as error:
            seccomp.answer(self._listener, blocked, error.errno or errno.EPERM)
        except (ValueError, OverflowError):
            # Python's own refusals of what was told: they must not end the init.
            seccomp.answer(self._listener, blocked, errno.EINVAL)
        else:
            seccomp.answer(self._listener, blocked, 0)
        return True


class _Call:
    """One call: its arguments, and the file that it means, opened and found to be the jail's."""

    def __init__(
        self,
        blocked: seccomp.Blocked,
        listener: int,
        tops: list[str],
        names: Names,
        flags: str | int,
    ) -> None:
        self._blocked = blocked
        self._listener = listener
        folder_at, path_at = names
        self.flags = flags if isinstance(flags, int) else self.argument(int(flags[-1]))
        if self.flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH):
            raise OSError(errno.EINVAL, "no such flag")
        folder = syscalls.AT_FDCWD if folder_at is None else self.argument(folder_at)
        path = b""
        if self._has_no_path(folder, path_at):
            if self.flags:
                raise OSError(errno.EINVAL, "flags are for paths")
            if folder < 0:
                raise OSError(errno.EBADF, "no such descriptor")
        else:
            path = self._text(blocked.arguments[path_at or 0])
            if not path and not self.flags & AT_EMPTY_PATH:
                raise FileNotFoundError(errno.ENOENT, "an empty path")
            number = path.removeprefix(_OWN_DESCRIPTOR)
            if number != path and number.isdigit() and not self.flags & AT_SYMLINK_NOFOLLOW:
                # How C libraries say AT_EMPTY_PATH or AT_SYMLINK_NOFOLLOW where a kernel does not.
                folder, path = int(number), b""
        self.file = self._open(folder, path)
        try:
            where = os.readlink(f"/proc/self/fd/{self.file}")
            if not any(where == top or where.startswith(f"{top}/") for top in tops):
                raise PermissionError(errno.EACCES, "not the jail's own")
        except OSError:
            os.close(self.file)
            raise

    @property
    def name(self) -> str:
        """A name of the very file that was opened: this process's own, so no race."""
        return f"/proc/self/fd/{self.file}"

    def _has_no_path(self, folder: int, path_at: int | None) -> bool:
        """Whether the descriptor alone is meant; utimensat(2) says so by a null pointer."""
        if path_at is None:
            return True
        is_null = not self._blocked.arguments[path_at]
        return is_null and folder != syscalls.AT_FDCWD and self._blocked.call in _MAY_LACK_PATH

    def argument(self, place: int) -> int:
        """An argument as the kernel takes it: a signed 32-bit number."""
        low = self._blocked.arguments[place] & 0xFFFF_FFFF
        return low - (1 << 32) if low & 0x8000_0000 else low

    def memory(self, place: int, size: int) -> bytes | None:
        """What an argument points to; None for a null pointer."""
        address = self._blocked.arguments[place]
        return self._read(address, size) if address else None

    def _read(self, address: int, size: int) -> bytes:
        fd = os.open(f"/proc/{self._blocked.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Now the descriptor is of whoever has that number: is it still the caller?
            if not seccomp.still_waits(self._listener, self._blocked):
                raise ProcessLookupError(errno.ESRCH, "the caller is gone")
            return os.pread(fd, size, address)
        except OverflowError as error:
            raise OSError(errno.EFAULT, "no such address") from error
        except OSError as error:
            if error.errno == errno.EIO:  # How /proc says that nothing is mapped there.
                raise OSError(errno.EFAULT, "no such address") from error
            raise
        finally:
            os.close(fd)

    def _text(self, address: int) -> bytes:
        """A path out of the caller's memory, page by page: the next one may not be there."""
        text = b""
        while len(text) < PATH_MAX:
            part = self._read(address + len(text), _PAGE - (address + len(text)) % _PAGE)
            end = part.find(b"\0")
            if end >= 0:
                return text + part[:end]
            if not part:
                raise OSError(errno.EFAULT, "no such address")
            text += part
        raise OSError(errno.ENAMETOOLONG, "the path is too long")

    def _open(self, folder: int, path: bytes) -> int:
        is_cwd = folder == syscalls.AT_FDCWD
        base = f"/proc/{self._blocked.pid}/{'cwd' if is_cwd else f'fd/{folder}'}"
        try:
            start = os.open("/" if path.startswith(b"/") else base, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise OSError(errno.EBADF, "no such descriptor") from error
        try:
            if not seccomp.still_waits(self._listener, self._blocked):
                raise ProcessLookupError(errno.ESRCH, "the caller is gone")
            if not path:
                return os.dup(start)
            return syscalls.open_within(start, path, follow=not self.flags & AT_SYMLINK_NOFOLLOW)
        finally:
            os.close(start)


def _change_mode(place: int) -> Act:
    def act(call: _Call) -> None:
        mode = call.argument(place)
        if mode & SETUID_SETGID:
            raise PermissionError(errno.EPERM, "no jail sets these bits")
        os.chmod(call.name, mode & 0o7777)

    return act


def _change_owner(uid_at: int) -> Act:
    def act(call: _Call) -> None:
        uid, gid = call.argument(uid_at), call.argument(uid_at + 1)
        # Ids have no sign, but for the one that leaves what is there.
        os.chown(call.name, *(n if n >= -1 else n + (1 << 32) for n in (uid, gid)))

    return act


def _set_times(place: int, size: int, as_timespecs: Callable[[bytes], bytes]) -> Act:
    def act(call: _Call) -> None:
        told = call.memory(place, size)
        if told is not None and len(told) != size:
            raise OSError(errno.EFAULT, "no such address")
        times = None if told is None else ctypes.c_char_p(as_timespecs(told))
        name = ctypes.c_char_p(call.name.encode())
        syscalls.syscall("utimensat", syscalls.AT_FDCWD, name, times, 0)

    return act


def _from_timevals(told: bytes) -> bytes:
    a_s, a_us, m_s, m_us = struct.unpack("=4q", told)
    if not (0 <= a_us < 1_000_000 and 0 <= m_us < 1_000_000):
        raise ValueError("microseconds")
    return struct.pack("=4q", a_s, a_us * 1000, m_s, m_us * 1000)


def _from_utimbuf(told: bytes) -> bytes:
    accessed_s, modified_s = struct.unpack("=2q", told)
    return struct.pack("=4q", accessed_s, 0, modified_s, 0)


def _as_told(told: bytes) -> bytes:
    return told


_MAY_LACK_PATH = ("futimesat", "utimensat")
CALLS: dict[str, tuple[Names, str | int, Act]] = {
    # name: where the descriptor and the path stand, the flags or where they stand, what is done.
    "chmod": ((None, 0), 0, _change_mode(1)),
    "fchmod": ((0, None), 0, _change_mode(1)),
    "fchmodat": ((0, 1), 0, _change_mode(2)),
    "fchmodat2": ((0, 1), "at 3", _change_mode(2)),
    "chown": ((None, 0), 0, _change_owner(1)),
    "fchown": ((0, None), 0, _change_owner(1)),
    "lchown": ((None, 0), AT_SYMLINK_NOFOLLOW, _change_owner(1)),
    "fchownat": ((0, 1), "at 4", _change_owner(2)),
    "utime": ((None, 0), 0, _set_times(1, _OF_UTIMBUF, _from_utimbuf)),
    "utimes": ((None, 0), 0, _set_times(1, _OF_TIMEVALS, _from_timevals)),
    "futimesat": ((0, 1), 0, _set_times(2, _OF_TIMEVALS, _from_timevals)),
    "utimensat": ((0, 1), "at 3", _set_times(2, _OF_TIMESPECS, _as_told)),
}
"""What the table of system calls asks about; extended attributes are refused there."""
