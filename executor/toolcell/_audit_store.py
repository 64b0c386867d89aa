"""The file that the chain lies in: `<state_dir>/audit.sqlite`, one for all who share the folder.

SQLite in WAL mode: one fdatasync(2) of the log makes a transaction durable, and readers hold up
nobody. `synchronous=EXTRA` asks for that sync at each commit (sqlite.org/pragma.html). The chain's
one lock is SQLite's write lock, taken before the last hash is read (BEGIN IMMEDIATE).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolcell._audit_chain import GENESIS, Row, chained_hash, column
from toolcell._audit_records import encoded

__all__ = ["FILE", "RUNS", "Chain", "OpenCall", "Store", "os_error", "own_folder", "synced"]

FILE: Final = "audit.sqlite"
RUNS: Final = "audit-runs"
"""The folder of the executors that write: see `_audit_runs`."""
VERSION: Final = 1
_SCHEMA: Final = f"""
CREATE TABLE records (
    seq INTEGER PRIMARY KEY, time TEXT NOT NULL, record TEXT NOT NULL, call_id TEXT NOT NULL,
    intent INTEGER UNIQUE, body TEXT NOT NULL, prev BLOB NOT NULL, hash BLOB NOT NULL
);
CREATE INDEX by_call ON records (call_id) WHERE record = 'intent';
CREATE TABLE open_calls (intent INTEGER PRIMARY KEY, run TEXT NOT NULL);
PRAGMA user_version = {VERSION};
"""
_ERRORS: Final = {
    sqlite3.SQLITE_FULL: (errno.ENOSPC, "its disk is full"),
    sqlite3.SQLITE_BUSY: (errno.EBUSY, "another process keeps it locked"),
    sqlite3.SQLITE_READONLY: (errno.EROFS, "it cannot be written"),
    sqlite3.SQLITE_PERM: (errno.EACCES, "it may not be opened"),
    sqlite3.SQLITE_CANTOPEN: (errno.EACCES, "it cannot be opened"),
    sqlite3.SQLITE_CORRUPT: (errno.EBADMSG, "it is damaged; move it away to start a new one"),
    sqlite3.SQLITE_NOTADB: (errno.EBADMSG, "it is no audit log; move it away to start a new one"),
}
_MOVED: Final = "somebody moved, removed or replaced it; a new executor starts with what is there"


def os_error(error: sqlite3.Error) -> OSError:
    """What SQLite says, as an `OSError` that names what to do about it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    number, why = _ERRORS.get(code, (errno.EIO, str(error)))
    return OSError(number, f"the audit log takes no record: {why}")


def own_folder(path: str, *, may_be_link: bool) -> None:
    """Make a folder for this user alone, durably; one that is there is looked at.

    Raises:
        OSError: it cannot be made, or others may write in it.
    """
    parent = os.path.dirname(path)
    if not os.path.isdir(path):
        if not os.path.isdir(parent):
            own_folder(parent, may_be_link=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            synced(parent)
    found = os.stat(path, follow_symlinks=may_be_link)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is no folder")
    if found.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, f"{path} belongs to another user")
    if found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, f"others may write in {path}; chmod 700 it")


def synced(folder: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """An intent without a terminal, and whose it is."""

    intent: int
    run: str
    call_id: str
    body: str


class Store:
    """One connection. For one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        # Which files these were: a name that leads elsewhere now is not ours to be trusted.
        self._identities: dict[str, tuple[int, int]] = {}

    @classmethod
    def open(cls, state_dir: str, *, wait_s: float) -> Store:
        """Open the log, made if there is none.

        Raises:
            OSError: it cannot be had, is somebody else's, or is none.
        """
        path = os.path.join(state_dir, FILE)
        if not os.path.lexists(path):
            _make(state_dir, path)
        _check_private(path)
        try:
            connection = _connect(path, wait_s)
        except sqlite3.Error as error:
            raise os_error(error) from error
        return cls(connection, path)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Chain]:
        """The chain, with its lock held; durable when this ends, or not written at all.

        What changed nothing is not synced. What was written is only told to be durable while
        the name still leads to the file.

        Raises:
            OSError: it could not be locked, written or synced, or is not the file it was.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_place()
                yield Chain(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise os_error(error) from error
        self._check_place()

    def _check_place(self) -> None:
        for path in (self._path, f"{self._path}-wal"):
            try:
                found = os.stat(path, follow_symlinks=False)
            except OSError as error:
                raise OSError(error.errno, f"the audit log takes no record: {_MOVED}") from error
            identity = (found.st_dev, found.st_ino)
            if self._identities.setdefault(path, identity) != identity:
                raise OSError(errno.ESTALE, f"the audit log takes no record: {_MOVED}")

    def close(self) -> None:
        """Close it; what is in the log of the last one to close is moved into the file."""
        self._connection.close()


class Chain:
    """The records, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        last = connection.execute("SELECT seq, hash FROM records ORDER BY seq DESC LIMIT 1")
        self._seq: int = 0
        self._hash: bytes = GENESIS
        for self._seq, self._hash in last:
            break

    def intent(self, body: Mapping[str, Any], run: str) -> int:
        """Append an intent; the call is open, and the run's."""
        seq = self._append(body, None)
        self._connection.execute("INSERT INTO open_calls VALUES (?, ?)", (seq, run))
        return seq

    def terminal(self, body: Mapping[str, Any], intent: int) -> bool:
        """Append the terminal of an open call; false where it is not open any more."""
        done = self._connection.execute("DELETE FROM open_calls WHERE intent = ?", (intent,))
        if done.rowcount != 1:
            return False
        self._append(body, intent)
        return True

    def open_calls(self) -> list[OpenCall]:
        """All that have no terminal, in order."""
        rows = self._connection.execute(
            "SELECT seq, run, call_id, body FROM open_calls o JOIN records ON seq = o.intent "
            "ORDER BY seq"
        )
        return [OpenCall(*row) for row in rows]

    def _append(self, body: Mapping[str, Any], intent: int | None) -> int:
        seq = self._seq + 1
        text = encoded(body if intent is None else {**body, "intent": intent})
        digest = chained_hash(seq, self._hash, text)
        self._connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            Row(
                seq=seq,
                time=body["time"],
                record=body["record"],
                call_id=column(body["call_id"]),
                intent=intent,
                body=text,
                prev=self._hash,
                hash=digest,
            ),
        )
        self._seq, self._hash = seq, digest
        return seq


# -- making and opening ---------------------------------------------------------------------


def _connect(path: str, wait_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=wait_s, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            why = "the file system cannot hold it; use a state folder on a local disk"
            raise OSError(errno.ENOTSUP, f"the audit log takes no record: {why}")
        connection.execute("PRAGMA synchronous = EXTRA")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            why = f"it is of another version ({version}); move it away to start a new one"
            raise OSError(errno.EBADMSG, f"the audit log takes no record: {why}")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(state_dir: str, path: str) -> None:
    """Make an empty log under another name and give it its own at once, whole.

    SQLite's locks are the process's: a descriptor of a log in use must never be closed by us,
    so the file is never opened by any other way than SQLite's.
    """
    draft = os.path.join(state_dir, RUNS, f"new-{os.urandom(8).hex()}")
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
        finally:
            connection.close()
        # Somebody else may have been first.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        synced(state_dir)
    except sqlite3.Error as error:
        raise os_error(error) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


def _check_private(path: str) -> None:
    found = os.stat(path, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{FILE} is no plain file")
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{FILE} belongs to another user")
    if found.st_mode & 0o077:
        raise PermissionError(errno.EPERM, f"{FILE} is open to others; chmod 600 it")
