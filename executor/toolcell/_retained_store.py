"""One folder of entries, each a file under an opaque handle; several processes share it.

An entry is its content after a header of a fixed size, which is written last, once the content is
on disk: what has no whole header is no entry. While it is written it is locked (flock(2)), so a
sweep can tell what is unfinished from what was left by a process that died. What is no entry of
ours by its name, owner or kind is never opened and never removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from toolcell._audit_store import own_folder

FOLDER: Final = "retained"
HEADER_BYTES: Final = 512
MAGIC: Final = b"toolcell retained 1\n"
HANDLE: Final = re.compile(r"ret_[a-z2-7]{26}", re.ASCII)
UNFINISHED_S: Final = 600.0
"""A file without a header that nobody writes is removed when it is that old."""
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_WHATS: Final = frozenset({"content", "output", "stdout", "stderr", "part"})
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a header says. `session` is a digest; `made_s` seconds since the epoch."""

    handle: str
    session: str
    what: str
    media_type: str
    size_bytes: int
    made_s: float

    def to_json(self) -> dict[str, Any]:
        """All of it, as `toolcell retained list --json` prints it."""
        return {
            "handle": self.handle,
            "session": self.session,
            "what": self.what,
            "media_type": self.media_type,
            "size_bytes": self.size_bytes,
            "made_s": self.made_s,
        }


def new_handle() -> str:
    """130 random bits, as text that needs no quoting anywhere."""
    return "ret_" + "".join(secrets.choice(_ALPHABET) for _ in range(26))


def session_digest(session: str) -> str:
    """What stands for a session in an entry."""
    text = f"toolcell retained session\0{session}"
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


@contextlib.contextmanager
def opened_folder(state_dir: str, *, make: bool) -> Iterator[int]:
    """A descriptor of the folder, 0700 and our own.

    Raises:
        FileNotFoundError: there is none, and none is to be made.
        OSError: it cannot be had, or others may write in it.
    """
    path = os.path.join(state_dir, FOLDER)
    if make:
        own_folder(path, may_be_link=False)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(errno.EPERM, f"{path} is not a folder of ours alone; chmod 700")
        yield fd
    finally:
        os.close(fd)


def create(folder: int, handle: str) -> int:
    """An empty file of that name, 0600, locked while the descriptor is open.

    Raises:
        OSError: it cannot be made, or there is one.
    """
    fd = os.open(handle, _MAKE, 0o600, dir_fd=folder)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.lseek(fd, HEADER_BYTES, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def publish(fd: int, entry: Entry) -> None:
    """Make a file whose content is written an entry, durably.

    Raises:
        OSError: it cannot be written.
    """
    os.fdatasync(fd)
    told = entry.to_json()
    del told["handle"]
    body = json.dumps(told, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    header = (MAGIC + digest + b"\n" + body + b"\n").ljust(HEADER_BYTES, b"\0")
    if len(header) != HEADER_BYTES:
        raise OSError(errno.EINVAL, "the entry's description is too long")
    os.pwrite(fd, header, 0)


@contextlib.contextmanager
def opened_entry(folder: int, handle: str) -> Iterator[tuple[int, Entry] | None]:
    """An entry's descriptor and what it says of itself; None where there is no whole one."""
    fd: int | None = None
    with contextlib.suppress(OSError):
        fd = os.open(handle, _READ, dir_fd=folder)
    if fd is None:
        yield None
        return
    try:
        entry = _entry(fd, handle)
        yield None if entry is None else (fd, entry)
    finally:
        os.close(fd)


def _entry(fd: int, handle: str) -> Entry | None:
    found = os.fstat(fd)
    if not is_ours(found):
        return None
    header = os.pread(fd, HEADER_BYTES, 0)
    if not header.startswith(MAGIC):
        return None
    digest, _, rest = header[len(MAGIC) :].partition(b"\n")
    body = rest.partition(b"\n")[0]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    try:
        entry = Entry(handle=handle, **json.loads(body))
    except (ValueError, TypeError):
        return None
    size = entry.size_bytes
    whole = type(size) is int and found.st_size == HEADER_BYTES + size
    told = (entry.session, entry.what, entry.media_type)
    is_sound = whole and all(isinstance(each, str) for each in told)
    is_sound = is_sound and isinstance(entry.made_s, int | float)
    return entry if is_sound and entry.what in _WHATS else None


def is_ours(found: os.stat_result) -> bool:
    """A plain file of this user that nobody else can open by its mode."""
    own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return own and not found.st_mode & 0o077


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of the folder that is, or was to be, an entry."""

    handle: str
    size_bytes: int
    changed_s: float


def listed(folder: int) -> list[Listed]:
    """All of them, the oldest first."""
    found: list[Listed] = []
    for name in os.listdir(folder):
        if not HANDLE.fullmatch(name):
            continue
        try:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if is_ours(facts):
            found.append(Listed(name, facts.st_size, facts.st_mtime))
    return sorted(found, key=lambda one: (one.changed_s, one.handle))


def sweep(
    folder: int, *, keep_s: float, cap_bytes: int, spare: str = "", session: str = ""
) -> tuple[tuple[str, ...], int]:
    """Remove what is too old, then make the rest fit the cap: of whoever has most, the oldest.

    So a tool that retains without end takes room from its own session alone. Returns the handles
    that were removed and how many bytes are left. `spare`, which `session` is writing, is never
    removed, nor what somebody else is writing, but both are counted.
    """
    now_s = time.time()
    left: list[Listed] = []
    removed: list[str] = []
    for one in listed(folder):
        age_s = now_s - one.changed_s
        is_due = one.handle != spare and (age_s > keep_s or age_s > UNFINISHED_S)
        if is_due and _removed(folder, one, old=age_s > keep_s):
            removed.append(one.handle)
        else:
            left.append(one)
    total = sum(one.size_bytes for one in left)
    if total > cap_bytes:
        for one in _surplus(folder, left, total - cap_bytes, spare, session):
            removed.append(one.handle)
            total -= one.size_bytes
    return tuple(removed), total


def _surplus(
    folder: int, left: list[Listed], lacking: int, spare: str, session: str
) -> Iterator[Listed]:
    """Remove entries until so many bytes are free, each of the session that has most then."""
    entries: dict[str, deque[Listed]] = {}
    taken: dict[str, int] = {}
    for one in left:
        owner = session if one.handle == spare else _session_of(folder, one.handle)
        taken[owner] = taken.get(owner, 0) + one.size_bytes
        if one.handle != spare:
            entries.setdefault(owner, deque()).append(one)
    while lacking > 0 and entries:
        owner = max(entries, key=lambda each: taken[each])
        one = entries[owner].popleft()
        if not entries[owner]:
            del entries[owner]
        if _removed(folder, one, old=True):
            taken[owner] -= one.size_bytes
            lacking -= one.size_bytes
            yield one


def _session_of(folder: int, handle: str) -> str:
    """Whose an entry is, by its digest; "" of what is none, or not yet."""
    with opened_entry(folder, handle) as opened:
        return "" if opened is None else opened[1].session


def _removed(folder: int, one: Listed, *, old: bool) -> bool:
    """Remove one file, unless it is being written; an entry only when it is `old`."""
    try:
        fd = os.open(one.handle, _READ, dir_fd=folder)
    except OSError:
        return False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if not old and _entry(fd, one.handle) is not None:
            return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one.handle, dir_fd=folder)
        return True
    finally:
        os.close(fd)
