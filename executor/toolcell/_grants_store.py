"""The file that grants lie in: opened without trust in what is there, and never in the way.

A store that is damaged, or that somebody else could have written, is moved aside and a new one
made in its place: it is empty, so whoever was asked before is asked again. It is SQLite with a
rollback journal: readers map no memory that another process could cut short, and a read-only
store can still be read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from toolcell._grants_schema import Damaged, damage_of, error_code, examine, transaction

FILE: Final = "grants.sqlite"
BUSY_S: Final = 0.25
"""How long an operation waits for another process's."""

_LOCK_S: Final = 1.0
_STORE_BYTES_MAX: Final = 64 << 20
_KEPT_ASIDE_MAX: Final = 3
_BESIDE: Final = ("-journal", "-wal", "-shm")
"""What SQLite opens beside a database (sqlite.org/tempfiles.html); it would wait for a FIFO."""

_ERRNO: Final = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}

_CHANGED: Final = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_IOERR}
"""What is said where the file was emptied or cut under an open connection: look at it anew."""

_log = logging.getLogger("toolcell")
_T = TypeVar("_T")
_Identity = tuple[int, int]


class StoreUnavailable(OSError):
    """The store cannot be read or written now: locked for long, read-only, or its disk is full.

    Nothing was changed. Whoever looked something up goes on as if nothing was remembered.
    """


class Store:
    """One store of one state folder, for any number of processes and threads."""

    def __init__(self, state_dir: str) -> None:
        """Open the folder, made where it is missing, for us alone; and the store, if it can be.

        Raises:
            OSError: the folder cannot be made or opened, is somebody else's, or others may write
                in it.
        """
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        self._folder = os.path.realpath(state_dir)
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        # The file that `_connection` has open. Where another lies in its place, it is reopened.
        self._identity: _Identity | None = None
        self.notice: str | None = None
        try:
            found = os.fstat(self._folder_fd)
            if found.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it is somebody else's folder", state_dir)
            if found.st_mode & 0o022:
                why = "others may write in it (chmod 700 helps)"
                raise PermissionError(errno.EPERM, why, state_dir)
            with contextlib.suppress(StoreUnavailable):
                self._current()
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """Where the store lies."""
        return os.path.join(self._folder, FILE)

    def close(self) -> None:
        """Close what is open. Harmless when repeated; nothing can be read afterwards."""
        with self._lock:
            self._disconnect()
            if self._folder_fd >= 0:
                os.close(self._folder_fd)
                self._folder_fd = -1

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of one query.

        Raises:
            StoreUnavailable: it cannot be read now.
        """
        return self._tried(lambda connection: connection.execute(sql, values).fetchall())

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do `work` in one transaction: whole and durable when this returns, or not at all.

        Raises:
            StoreUnavailable: it cannot be written now; nothing was changed.
        """

        def whole(connection: sqlite3.Connection) -> _T:
            with transaction(connection, "BEGIN IMMEDIATE"):
                return work(connection)

        return self._tried(whole)

    def _tried(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._lock:
            for again in (True, False):
                connection = self._current()
                try:
                    return work(connection)
                except sqlite3.Error as error:
                    why = damage_of(error)
                    if why is not None:
                        self._set_aside(self._identity, why)
                    elif again and error_code(error) in _CHANGED:
                        self._disconnect()
                    else:
                        raise self._unavailable(error) from error
            raise self._unavailable("it is damaged again and again")

    # -- opening --------------------------------------------------------------------------

    def _current(self) -> sqlite3.Connection:
        """A connection to the store that lies in its place now."""
        if self._folder_fd < 0:
            raise self._unavailable("it is closed")
        if self._connection is not None:
            found = self._look(FILE)
            if found is not None and (found.st_dev, found.st_ino) == self._identity:
                return self._connection
        for _ in range(3):
            try:
                return self._open()
            except Damaged as error:
                self._set_aside(self._identity, str(error))
        raise self._unavailable("it is damaged again and again")

    def _open(self) -> sqlite3.Connection:
        self._disconnect()
        try:
            # mknod(2) makes a file without opening it: to close a descriptor of a database gives
            # up the locks that this process has on it (sqlite.org/howtocorrupt.html, 2.2).
            with contextlib.suppress(FileExistsError):
                os.mknod(FILE, stat.S_IFREG | 0o600, dir_fd=self._folder_fd)
            self._make_private()
            try:
                connection = self._connection = sqlite3.connect(
                    self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
                )
                examine(connection)
            except sqlite3.Error as error:
                why = damage_of(error)
                if why is None:
                    raise
                raise Damaged(why) from error
            found = os.stat(self.path, follow_symlinks=False)
            if (found.st_dev, found.st_ino) != self._identity:
                raise OSError(errno.EBUSY, "it was replaced while it was opened")
        except (OSError, sqlite3.Error) as error:
            self._disconnect()
            raise self._unavailable(error) from error
        return connection

    def _make_private(self) -> None:
        """Only what nobody else can have written is opened; who could read it no longer can.

        Raises:
            Damaged: it is no file, or not ours, or others could write it.
            OSError: it cannot be looked at or changed.
        """
        for name in (FILE, *(FILE + suffix for suffix in _BESIDE)):
            found = self._look(name)
            if name == FILE:
                if found is None:
                    raise OSError(errno.EBUSY, "it was moved while it was opened")
                self._identity = (found.st_dev, found.st_ino)
            if found is None:
                continue
            why = foreign(found, os.geteuid())
            if why is not None:
                raise Damaged(f"{name} {why}")
            if found.st_mode & 0o7777 != 0o600:
                # No link: it was looked at, and only we can change names here.
                os.chmod(name, 0o600, dir_fd=self._folder_fd)

    def _look(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- damage ---------------------------------------------------------------------------

    def _set_aside(self, judged: _Identity | None, why: str) -> None:
        """Move what was judged out of the way, once, whoever else found it damaged too."""
        self._disconnect()
        try:
            with self._locked_folder():
                found = self._look(FILE)
                if found is None or (found.st_dev, found.st_ino) != judged:
                    return
                name = self._free_name()
                # Journals first: one that is left would be played back into the next store.
                for suffix in (*_BESIDE, ""):
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(
                            FILE + suffix,
                            name + suffix,
                            src_dir_fd=self._folder_fd,
                            dst_dir_fd=self._folder_fd,
                        )
                self.notice = (
                    f"the store of grants is empty, so what was remembered is asked again: {why}; "
                    f"the old one was set aside as {os.path.join(self._folder, name)}"
                )
                _log.warning("%s", self.notice)
                self._drop_old()
        except OSError as error:
            raise self._unavailable(error) from error

    def _free_name(self) -> str:
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name, number = f"{FILE}.damaged-{at}", 1
        while self._look(name) is not None:
            number += 1
            name = f"{FILE}.damaged-{at}.{number}"
        return name

    def _drop_old(self) -> None:
        """Keep the latest few: what is damaged again and again must not fill the disk."""
        aside = [
            name
            for name in os.listdir(self._folder_fd)
            if name.startswith(f"{FILE}.damaged-") and not name.endswith(_BESIDE)
        ]
        by_age = sorted(aside, key=lambda name: self._age(name))
        for name in by_age[:-_KEPT_ASIDE_MAX]:
            for suffix in ("", *_BESIDE):
                with contextlib.suppress(OSError):
                    os.unlink(name + suffix, dir_fd=self._folder_fd)

    def _age(self, name: str) -> int:
        # Its ctime is when it was renamed.
        found = self._look(name)
        return 0 if found is None else found.st_ctime_ns

    @contextlib.contextmanager
    def _locked_folder(self) -> Iterator[None]:
        """Be the only one who sets aside. The lock ends with its holder (flock(2))."""
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder_fd)
        try:
            until_s = time.monotonic() + _LOCK_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.005)
            yield
        finally:
            os.close(fd)

    def _unavailable(self, why: Exception | str) -> StoreUnavailable:
        code = errno.EIO
        if isinstance(why, OSError):
            code = why.errno or code
            why = why.strerror or str(why)
        elif isinstance(why, sqlite3.Error):
            code = _ERRNO.get(error_code(why), code)
        return StoreUnavailable(code, f"the store of grants cannot be used: {why}", self.path)


def foreign(found: os.stat_result, uid: int) -> str | None:
    """Why a file is not to be taken for ours, or None."""
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_uid != uid:
        return f"is owned by user {found.st_uid}"
    if found.st_mode & 0o022:
        return "could be written by others"
    if found.st_nlink != 1:
        return "has another name elsewhere"
    if found.st_size > _STORE_BYTES_MAX:
        return "is larger than any store of ours"
    return None
