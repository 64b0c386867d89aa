"""Reading the log while others write it: all records, calls, and whether the chain holds."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from toolcell._audit_chain import Row, Verdict, judge
from toolcell._audit_runs import is_run, open_run, waiting_in
from toolcell._audit_store import FILE, RUNS, os_error

__all__ = ["RecordedCall", "calls", "read", "verify"]

WAIT_S: Final = 5.0
_NO_RECORD: Final = "the audit log holds a record that is none; `toolcell audit verify` says which"
_COLUMNS: Final = "seq, time, record, call_id, intent, body, prev, hash"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """An intent, and its terminal if there is one yet."""

    intent: dict[str, Any]
    terminal: dict[str, Any] | None


def read(state_dir: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every record in order: its body, with `seq`, `prev` and `hash`. Empty without a log.

    Raises:
        OSError: it cannot be read, or a body is none.
    """
    try:
        with _opened(os.fspath(state_dir)) as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM records ORDER BY seq")
            return [_told(Row(*row)) for row in rows]
    except FileNotFoundError:
        return []


def calls(
    state_dir: str | os.PathLike[str], *, call_id: str | None = None, since: str | None = None
) -> Iterator[RecordedCall]:
    """The calls, the newest first; `since` is a time as records have it.

    Raises:
        OSError: it cannot be read.
    """
    wanted = {"i.call_id = ?": call_id, "i.time >= ?": since}
    given = {clause: value for clause, value in wanted.items() if value is not None}
    where = "".join(f" AND {clause}" for clause in given)
    query = (
        "SELECT i.body, t.body FROM records i LEFT JOIN records t ON t.intent = i.seq "
        f"WHERE i.record = 'intent'{where} ORDER BY i.seq DESC"
    )
    with _opened(os.fspath(state_dir)) as connection:
        for intent, terminal in connection.execute(query, tuple(given.values())):
            yield RecordedCall(_body(intent), None if terminal is None else _body(terminal))


def verify(path: str | os.PathLike[str], *, head: str | None = None) -> Verdict:
    """Look at the whole chain of a log: its file, or the state folder that it lies in.

    Finds records that were changed, removed from the middle, moved or inserted, terminals
    without an intent and second ones. What it cannot find without a `head` noted elsewhere:
    records removed from the end, and a whole log written anew.
    """
    place = os.fspath(path)
    try:
        with _opened(place) as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM records ORDER BY seq")
            verdict = judge(map(Row._make, rows), head=head and head.lower())
    except FileNotFoundError:
        return Verdict(ok=False, problem="there is no audit log")
    except OSError as error:
        return Verdict(ok=False, problem=error.strerror or str(error))
    waiting = _waiting(os.path.dirname(_file(place)))
    return Verdict(
        ok=verdict.ok,
        records=verdict.records,
        first_bad=verdict.first_bad,
        problem=verdict.problem,
        dangling=verdict.dangling,
        waiting=waiting,
        head=verdict.head,
    )


def _file(place: str) -> str:
    place = os.path.abspath(place)
    return os.path.join(place, FILE) if os.path.isdir(place) else place


@contextlib.contextmanager
def _opened(place: str) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, in one snapshot.

    Raises:
        FileNotFoundError: there is no log.
        OSError: it cannot be read.
    """
    path = _file(place)
    if not stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode):
        raise OSError(errno.EINVAL, f"{path} is no plain file")
    # An archive in a folder that nobody may write has no log beside it, and needs none.
    is_still = not os.access(os.path.dirname(path), os.W_OK) and not os.path.exists(f"{path}-wal")
    how = "immutable=1" if is_still else "mode=ro"
    try:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?{how}", uri=True, timeout=WAIT_S, isolation_level=None
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        told = os_error(error)
        raise OSError(told.errno, f"the audit log cannot be read: {error}") from error


def _waiting(state_dir: str) -> int:
    """Terminals that wait in reserves, whoever's they are."""
    folder, count = os.path.join(state_dir, RUNS), 0
    with contextlib.suppress(FileNotFoundError):
        for name in filter(is_run, os.listdir(folder)):
            fd = open_run(folder, name)
            if fd is not None:
                try:
                    count += sum(1 for _ in waiting_in(fd))
                finally:
                    os.close(fd)
    return count


def _told(row: Row) -> dict[str, Any]:
    return {**_body(row.body), "seq": row.seq, "prev": row.prev.hex(), "hash": row.hash.hex()}


def _body(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OSError(errno.EBADMSG, f"{_NO_RECORD}: {error}") from error
    if not isinstance(found, dict):
        raise OSError(errno.EBADMSG, _NO_RECORD)
    return found
