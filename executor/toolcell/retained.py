"""What was too large to be shown, kept whole under a handle and read back in pages.

It lies in our state folder, which no jail sees. A handle is opaque and random; only the session
that made it may read it. The operator, on the command line, may read all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

import trio

from toolcell import _retained_store as _store
from toolcell._audit_store import own_folder
from toolcell._retained_page import PAGE_BYTES_MAX, Page, read_page
from toolcell._retained_store import HEADER_BYTES, Entry
from toolcell.results import Retained

__all__ = [
    "CAP_BYTES",
    "KEEP_S",
    "PAGE_BYTES_MAX",
    "Entry",
    "NotRetained",
    "Page",
    "RetainedStore",
    "Retainer",
    "Unretained",
    "Writer",
]

CAP_BYTES: Final = 1 << 30
KEEP_S: Final = 7 * 24 * 3600.0
_SWEEP_S: Final = 60.0
_SWEEP_SHARE: Final = 64
"""After one part in so many of the cap is written, it is swept again."""
_CHUNK_BYTES: Final = 1 << 20
FREE_BYTES: Final = 32 << 20
"""Left free on the disk: what is retained never takes the room that the audit log needs."""


class NotRetained(LookupError):
    """There is no such handle for this session: never made, another's, swept, or damaged.

    Which of them is not said: a session learns nothing of another's handles.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Unretained:
    """Something could not be kept; `why` is for anybody, and names no path."""

    why: str


class Writer:
    """One entry being written. It is nothing until `finish`; after `drop`, or our end, it is gone.

    For one thread at a time.
    """

    def __init__(
        self, store: RetainedStore, *, session: str, what: str, media_type: str, handle: str
    ) -> None:
        self.handle = handle
        self.size_bytes = 0
        self._store = store
        self._session = session
        self._what = what
        self.media_type = media_type
        self._until_sweep = 0
        with contextlib.ExitStack() as held:
            self._folder = held.enter_context(_store.opened_folder(store.state_dir, make=True))
            self._fd = _store.create(self._folder, handle)
            held.callback(os.close, self._fd)
            self._held: contextlib.ExitStack | None = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def write(self, data: bytes) -> None:
        """Append; room is made by removing the oldest entries.

        Raises:
            OSError: it cannot be written, or would be larger than all that may be retained.
        """
        self.size_bytes += len(data)
        if self.size_bytes > self._store.cap_bytes:
            raise OSError(
                errno.EFBIG, f"larger than the {self._store.cap_bytes} bytes that may be retained"
            )
        self._until_sweep -= len(data)
        if self._until_sweep <= 0:
            self._until_sweep = self._store.make_room(
                self._folder, len(data), spare=self.handle, session=self._session
            )
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def finish(self) -> Retained:
        """Make it an entry, durably.

        Raises:
            OSError: it cannot be made one; nothing is left of it.
        """
        entry = Entry(
            handle=self.handle,
            session=_store.session_digest(self._session),
            what=self._what,
            media_type=self.media_type,
            size_bytes=self.size_bytes,
            made_s=time.time(),
        )
        try:
            _store.publish(self._fd, entry)
        except BaseException:
            self.drop()
            raise
        self._close()
        return Retained(
            handle=self.handle,
            what=self._what,
            size_bytes=self.size_bytes,
            media_type=self.media_type,
        )

    def drop(self) -> None:
        """Remove what is not finished; harmless afterwards."""
        if self._held is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.handle, dir_fd=self._folder)
            self._close()

    def _close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()
            # Never another's descriptor, should somebody write to it once more.
            self._fd = self._folder = -1


class RetainedStore:
    """All that is retained in one state folder; several processes share it.

    An entry is kept for `keep_s` seconds, and all together take `cap_bytes`: then the oldest goes
    first of the session that has most, which takes room from itself by that. Each process looks at
    the total after a part in 64 of the cap, so it may be exceeded by that much for each. Every
    method blocks: call it in a thread. For many threads at once.
    """

    def __init__(
        self, state_dir: str, *, cap_bytes: int = CAP_BYTES, keep_s: float = KEEP_S
    ) -> None:
        self.state_dir = state_dir
        self.cap_bytes = cap_bytes
        self.keep_s = keep_s
        self._lock = threading.Lock()
        self._unswept_bytes = 0
        self._swept_s: float | None = None

    @property
    def spool_folder(self) -> str:
        """Where a result goes that is too large for memory, until it was looked at: our folder."""
        with contextlib.suppress(OSError):
            own_folder(os.path.join(self.state_dir, _store.FOLDER), may_be_link=False)
        return os.path.join(self.state_dir, _store.FOLDER)

    def begin(
        self, *, session: str, what: str, media_type: str = "text/plain", handle: str | None = None
    ) -> Writer:
        """Start an entry that is written piece by piece, under a new handle.

        Raises:
            OSError: it cannot be made.
        """
        return Writer(
            self,
            session=session,
            what=what,
            media_type=media_type,
            handle=_store.new_handle() if handle is None else handle,
        )

    def put(
        self,
        data: bytes | Iterable[bytes],
        *,
        session: str,
        what: str,
        media_type: str = "text/plain",
        handle: str | None = None,
    ) -> Retained:
        """Keep something whole.

        Raises:
            OSError: it cannot be kept (a full disk, too large); nothing is left of it.
        """
        with self.begin(session=session, what=what, media_type=media_type, handle=handle) as new:
            for chunk in (data,) if isinstance(data, bytes) else data:
                new.write(chunk)
            return new.finish()

    def read(self, handle: str, offset: int, limit: int, *, session: str) -> Page:
        """A page of what a session retained, at most 1 MiB of it.

        `offset` and `limit` are bytes of what is retained. A page of text begins and ends between
        two characters: an offset inside of one goes back to its start, and a page holds whole
        characters, one at least, so it may be up to three bytes longer than `limit`.

        Raises:
            NotRetained: there is no such handle for this session.
            ValueError: the offset is negative or past the end, or the limit is not above 0.
        """
        return self._page(handle, offset, limit, session)

    def read_as_operator(self, handle: str, offset: int, limit: int) -> Page:
        """A page of what any session retained: for the person whose state folder it is.

        Raises:
            NotRetained, ValueError: as for `read`.
        """
        return self._page(handle, offset, limit, None)

    def entries(self) -> list[Entry]:
        """Every entry, of all sessions, the oldest first; for the operator."""
        found: list[Entry] = []
        with self._opened() as folder:
            for one in () if folder is None else _store.listed(folder):
                assert folder is not None
                with _store.opened_entry(folder, one.handle) as opened:
                    if opened is not None and not self._is_old(opened[0]):
                        found.append(opened[1])
        return found

    def sweep(self, *, keep_s: float | None = None) -> tuple[str, ...]:
        """Remove what is too old, or over the cap; the handles that were.

        Raises:
            OSError: the folder cannot be read.
        """
        removed: tuple[str, ...] = ()
        keep_s = self.keep_s if keep_s is None else keep_s
        with self._opened() as folder:
            if folder is not None:
                removed, _ = _store.sweep(folder, keep_s=keep_s, cap_bytes=self.cap_bytes)
        return removed

    def make_room(self, folder: int, size_bytes: int, *, spare: str, session: str) -> int:
        """Before so much is written: sweep when it is time; how much may follow until the next.

        Raises:
            OSError: the folder cannot be read, or the disk is all but full.
        """
        disk = os.fstatvfs(folder)
        spared = min(FREE_BYTES, disk.f_blocks * disk.f_frsize // 4)
        if disk.f_bavail * disk.f_frsize < size_bytes + spared:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        share = self.cap_bytes // _SWEEP_SHARE
        with self._lock:
            self._unswept_bytes += size_bytes
            now_s = time.monotonic()
            recent = self._swept_s is not None and now_s - self._swept_s < _SWEEP_S
            if recent and self._unswept_bytes < share:
                return min(share - self._unswept_bytes, _CHUNK_BYTES)
            self._unswept_bytes, self._swept_s = 0, now_s
        room = max(0, self.cap_bytes - size_bytes - HEADER_BYTES)
        _store.sweep(
            folder,
            keep_s=self.keep_s,
            cap_bytes=room,
            spare=spare,
            session=_store.session_digest(session),
        )
        return min(share, _CHUNK_BYTES)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int | None]:
        """The folder; None where nothing was ever retained."""
        with contextlib.ExitStack() as held:
            folder = None
            with contextlib.suppress(FileNotFoundError):
                folder = held.enter_context(_store.opened_folder(self.state_dir, make=False))
            yield folder

    def _is_old(self, fd: int) -> bool:
        return time.time() - os.fstat(fd).st_mtime > self.keep_s

    def _page(self, handle: str, offset: int, limit: int, session: str | None) -> Page:
        for name, value, least in (("offset", offset, 0), ("limit", limit, 1)):
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is a whole number of at least {least}")
        unknown = f"nothing is retained as {handle[:40]!r} for this session"
        if not _store.HANDLE.fullmatch(handle):
            raise NotRetained(unknown)
        with self._opened_entry(handle) as opened:
            if opened is None or self._is_old(opened[0]):
                raise NotRetained(unknown)
            fd, entry = opened
            if session is not None and _store.session_digest(session) != entry.session:
                raise NotRetained(unknown)
            if offset > entry.size_bytes:
                raise ValueError(
                    f"it has {entry.size_bytes} bytes; there is nothing at offset {offset}"
                )
            page = read_page(fd, entry, offset, min(limit, PAGE_BYTES_MAX))
        return page

    @contextlib.contextmanager
    def _opened_entry(self, handle: str) -> Iterator[tuple[int, Entry] | None]:
        with self._opened() as folder:
            if folder is None:
                yield None
            else:
                with _store.opened_entry(folder, handle) as opened:
                    yield opened


@dataclass(frozen=True, slots=True)
class Retainer:
    """A store and the session that what is retained belongs to: all that settlement needs."""

    store: RetainedStore
    session: str

    async def put(
        self, data: bytes, *, what: str, media_type: str = "text/plain"
    ) -> Retained | Unretained:
        """Keep something whole, or say why that cannot be; in a thread.

        Not to be cancelled: it ends within what the disk takes for `data`.
        """
        with trio.CancelScope(shield=True):
            kept = await trio.to_thread.run_sync(self._put, data, what, media_type)
        return kept

    def _put(self, data: bytes, what: str, media_type: str) -> Retained | Unretained:
        try:
            return self.store.put(data, session=self.session, what=what, media_type=media_type)
        except OSError as error:
            return unretained(error)


def unretained(error: OSError) -> Unretained:
    """Why something could not be kept, without our own folders' names."""
    return Unretained(why=os.strerror(error.errno) if error.errno else type(error).__name__)


def words(handle: str) -> str:
    """Where the rest is, for whoever can call a tool."""
    return f'read_retained(handle="{handle}") reads it'


def not_kept(why: str) -> str:
    """The words in place of those, where it could not be kept."""
    return f"it could not be retained and is gone: {why}"
