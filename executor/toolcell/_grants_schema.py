"""The tables that grants lie in, and the proof that a database is one that we wrote."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Final

_APPLICATION_ID: Final = 0x74636772
_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE grants ("
    "id TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, "
    "scope TEXT NOT NULL CHECK (scope IN ('session', 'project')), "
    "session BLOB NOT NULL CHECK (typeof(session) = 'blob'), "
    "mode TEXT NOT NULL CHECK (mode IN ('explore', 'plan', 'build')), "
    "tool_name BLOB NOT NULL CHECK (typeof(tool_name) = 'blob'), "
    "shape BLOB NOT NULL CHECK (typeof(shape) = 'blob'), "
    "workspace BLOB NOT NULL CHECK (typeof(workspace) = 'blob'), "
    "agent_id BLOB CHECK (typeof(agent_id) IN ('blob', 'null')), "
    "created REAL NOT NULL CHECK (typeof(created) = 'real'), "
    "expires REAL NOT NULL CHECK (typeof(expires) = 'real'), "
    "UNIQUE (key, scope, session, mode))",
    "CREATE TABLE consumed (nonce TEXT NOT NULL PRIMARY KEY, expires REAL NOT NULL)",
    "CREATE TABLE seal (one INTEGER PRIMARY KEY CHECK (one = 1), "
    "key BLOB NOT NULL CHECK (typeof(key) = 'blob' AND length(key) = 32))",
    "CREATE TABLE trusted (digest TEXT NOT NULL PRIMARY KEY, "
    "path BLOB NOT NULL CHECK (typeof(path) = 'blob'), "
    "since REAL NOT NULL CHECK (typeof(since) = 'real'))",
)
"""Free text is kept as bytes, since a path or an id may hold what UTF-8 has no form for."""

_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


class Damaged(Exception):
    """The store is not what we would have written; says how."""


def examine(connection: sqlite3.Connection) -> None:
    """Prove that the store is ours and whole; a new file gets its tables, all at once.

    Raises:
        Damaged: it is not.
    """
    # Text that no longer is any is other text: it matches nothing.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for setting in (
        "trusted_schema = OFF",
        "cell_size_check = ON",
        "mmap_size = 0",
        "temp_store = MEMORY",
        "synchronous = FULL",
    ):
        connection.execute(f"PRAGMA {setting}")
    with transaction(connection, "BEGIN"):
        is_new = _is_new(connection)
    if is_new:
        with transaction(connection, "BEGIN IMMEDIATE"):
            if _is_new(connection):
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    # Last, since it would change the header of a database that is not ours.
    connection.execute("PRAGMA journal_mode = TRUNCATE")


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether nothing was ever written; in one transaction, so that all is of one moment."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    schema = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master") if sql]
    if (application, version, schema) == (0, 0, []):
        return True
    if application != _APPLICATION_ID:
        raise Damaged("it is no store of grants")
    if version != _SCHEMA_VERSION:
        raise Damaged(f"it has version {version}, not {_SCHEMA_VERSION}")
    if sorted(schema) != sorted(_SCHEMA):
        raise Damaged("its tables are not ours")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Damaged(f"it is damaged: {verdict}")
    return False


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """All of it, or, whatever ends it, nothing."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def damage_of(error: sqlite3.Error) -> str | None:
    """What an error says about damage; None where it only says that it cannot be used now."""
    return f"it is damaged: {error}" if error_code(error) in _DAMAGED else None


def error_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code (sqlite.org/rescode.html); 0 for the module's own errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
