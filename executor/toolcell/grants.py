"""What people agreed to, and for how long: grants, plans that were used, policy files they trust.

One store for each state folder, which no jail sees. Whatever is wrong with it, it answers as if
nothing was remembered, so somebody is asked; nothing here turns a damaged store into a yes.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast, get_args

from toolcell._grants_store import Store, StoreUnavailable

Scope = Literal["session", "project"]
Mode = Literal["explore", "plan", "build"]

PROJECT_DAYS: Final = 30
SESSION_DAYS: Final = 1
"""A session's grants end with it, and with this: a session that was killed ends nothing."""

TEXT_CHARS_MAX: Final = 256 << 10
DENIALS_MAX: Final = 4096

_DAY_S: Final = 86_400.0
_CLOCK_S: Final = 60.0
"""How far a grant may lie in the future before the clock is not believed."""

_MODES: Final = get_args(Mode)
"""The strictest first; a grant holds in the mode that granted it and in those before."""

_COLUMNS: Final = (
    "id, key, scope, session, mode, tool_name, shape, workspace, agent_id, created, expires"
)
_FOUND: Final = (
    f"SELECT {_COLUMNS} FROM grants WHERE key = ? AND (scope = 'project' OR session = ?)"
    " AND expires > ? AND created <= ?"
)
_LISTED: Final = f"SELECT {_COLUMNS} FROM grants WHERE expires > ? ORDER BY created, id"
_ADDED: Final = f"INSERT OR REPLACE INTO grants ({_COLUMNS}) VALUES ({', '.join('?' * 11)})"

_log = logging.getLogger("toolcell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One agreement that need not be asked for again. Times are seconds since the epoch."""

    id: str
    key: str
    scope: Scope
    session: str | None
    """The one session that it holds in; None for a project's."""
    mode: Mode
    tool_name: str
    shape: str
    """What was shown: exactly what is remembered, as text."""
    workspace: str
    agent_id: str | None
    created: float
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """A policy file that a person trusts, by its content; `path` is where it lay then."""

    digest: str
    path: str
    since: float


class Grants:
    """The store of one state folder; for any number of processes and threads at once.

    Each call goes to the file, so that what is revoked here is revoked everywhere at once. What
    looks something up never raises; what changes something is durable when it returns. A call
    waits at most `BUSY_S` for another process. Not to be carried across a fork.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._has_warned = False

    @classmethod
    def open(cls, state_dir: str | os.PathLike[str]) -> Grants:
        """The store of a state folder, made where there is none; close it when done.

        One that is damaged, somebody else's, writable by others, of another version or no
        regular file is set aside as `grants.sqlite.damaged-<time>`, with one warning in the
        log, and starts empty. One that others could only read no longer can be read by them.

        Raises:
            OSError: the folder itself cannot be used: it cannot be made, it is somebody else's,
                or others may write in it.
        """
        return cls(Store(os.fspath(state_dir)))

    @property
    def notice(self) -> str | None:
        """What was last found wrong with the store, for a person; None where nothing was."""
        return self._store.notice

    def close(self) -> None:
        """Give the file back. Harmless when repeated; then nothing is remembered any more."""
        self._store.close()

    def __enter__(self) -> Grants:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- grants ---------------------------------------------------------------------------

    def lookup(self, key: str, *, mode: str, session: str, now: float) -> Grant | None:
        """The grant that covers this key, or None, and then a person has to be asked.

        A project's holds in every session, a session's in its own; in the mode that granted it or
        a stricter one; until it expires, and not before it was given. An unknown mode has none.
        """
        if mode not in _MODES:
            return None
        values = (_name(key), _bytes(session), now, now + _CLOCK_S)
        for row in self._read(_FOUND, values):
            found = _grant(row)
            if _MODES.index(mode) <= _MODES.index(found.mode):
                return found
        return None

    def add(
        self,
        key: str,
        *,
        scope: str,
        session: str,
        mode: str,
        tool_name: str,
        shape: str,
        workspace: str,
        agent_id: str | None,
        now: float,
        days: float = PROJECT_DAYS,
    ) -> Grant:
        """Remember an agreement; the same one again is renewed and keeps its id.

        `days` is at most 30, and counts for a project; a session's ends after a day at the latest.

        Raises:
            OSError: it cannot be made durable, so nothing is remembered; the answer itself, for
                this once, is as good as before.
            ValueError: a value is none that a grant can have; it is never cut to fit.
        """
        if scope not in get_args(Scope) or mode not in _MODES:
            raise ValueError(f"no scope {scope!r} or no mode {mode!r}")
        if not 0 < days <= PROJECT_DAYS:
            raise ValueError(f"a grant lasts more than 0 and at most {PROJECT_DAYS} days")
        if not (key and key.isascii() and shape and (session or scope == "project")):
            raise ValueError("a grant needs a key, a session and what was shown")
        if max(map(len, (key, session, tool_name, shape, workspace, agent_id or ""))) > (
            TEXT_CHARS_MAX
        ):
            raise ValueError(f"a text of more than {TEXT_CHARS_MAX} characters is not remembered")
        lasts = days if scope == "project" else min(days, SESSION_DAYS)
        grant = Grant(
            id="",
            key=key,
            scope="session" if scope == "session" else "project",
            session=session if scope == "session" else None,
            mode=cast("Mode", mode),
            tool_name=tool_name,
            shape=shape,
            workspace=workspace,
            agent_id=agent_id,
            created=float(now),
            expires=now + lasts * _DAY_S,
        )
        return self._store.write(lambda connection: _insert(connection, grant))

    def list(self, now: float) -> tuple[Grant, ...]:
        """Every grant that has not expired, the oldest first.

        Raises:
            OSError: the store cannot be read now, so nobody knows.
        """
        return tuple(_grant(row) for row in self._store.read(_LISTED, (now,)))

    def revoke(self, what: str) -> int:
        """Forget a grant by its id, those of a workspace by its absolute path, or "all".

        Returns how many there were. No lookup finds them any more, in whatever process.

        Raises:
            OSError: it cannot be made durable; nothing was revoked.
        """
        if what == "all":
            return self._change("DELETE FROM grants")
        if what.startswith("/"):
            return self._change("DELETE FROM grants WHERE workspace = ?", _bytes(what))
        return self._change("DELETE FROM grants WHERE id = ?", _name(what))

    def end_session(self, session: str) -> int:
        """Forget what was agreed to in one session; returns how many there were.

        It never raises: where nothing can be written they end after a day all the same.
        """
        gone = "DELETE FROM grants WHERE scope = 'session' AND session = ?"
        try:
            return self._change(gone, _bytes(session))
        except StoreUnavailable as error:
            _log.info("the grants of a session were not removed: %s", error)
            return 0

    def sweep(self, now: float) -> int:
        """Remove what has expired, for room; nothing that has is found before that either.

        A used plan is kept for a day more: by then a clock that was set back has been noticed.

        Raises:
            OSError: it cannot be done now.
        """

        def work(connection: sqlite3.Connection) -> int:
            gone = connection.execute("DELETE FROM grants WHERE expires <= ?", (now,)).rowcount
            used = "DELETE FROM consumed WHERE expires <= ?"
            return gone + connection.execute(used, (now - _DAY_S,)).rowcount

        return self._store.write(work)

    # -- plans ----------------------------------------------------------------------------

    def consume(self, plan_nonce: str, expires: float) -> bool:
        """Use up a plan: True exactly once for each nonce, across processes and restarts.

        `expires` is when the plan does, which its caller has to check first.

        Raises:
            OSError: it cannot be made durable, so the plan must not run; it may be tried again.
            ValueError: this is no nonce.
        """
        if not (0 < len(plan_nonce) <= 256 and plan_nonce.isascii()):
            raise ValueError("a nonce has 1 to 256 characters of ASCII")
        used = "INSERT OR IGNORE INTO consumed (nonce, expires) VALUES (?, ?)"
        return self._change(used, plan_nonce, float(expires)) == 1

    def seal_key(self) -> bytes:
        """32 random bytes that only we know, to seal plans with; made when first asked for.

        Ask each time: a store that was set aside takes its key with it, and what was used up
        under that key is not known any more.

        Raises:
            OSError: there is none, and none can be made.
        """
        found = self._store.read("SELECT key FROM seal")
        if not found:
            made = (secrets.token_bytes(32),)
            self._store.write(
                lambda connection: (
                    connection.execute(
                        "INSERT OR IGNORE INTO seal (one, key) VALUES (1, ?)", made
                    ).rowcount
                )
            )
            found = self._store.read("SELECT key FROM seal")
        return bytes(found[0][0])

    # -- policy files ---------------------------------------------------------------------

    def trust(self, digest: str, path: str, now: float) -> Trusted:
        """Trust a policy file by the hash of its content, wherever it lies.

        Raises:
            OSError: it cannot be made durable; it is not trusted.
            ValueError: this is no sha256 in hexadecimal digits, or no path.
        """
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ValueError("a digest has 64 hexadecimal digits")
        if not 0 < len(path) <= TEXT_CHARS_MAX:
            raise ValueError("this is no path")
        told = "INSERT OR REPLACE INTO trusted (digest, path, since) VALUES (?, ?, ?)"
        self._change(told, digest, _bytes(path), float(now))
        return Trusted(digest=digest, path=path, since=float(now))

    def is_trusted(self, digest: str) -> bool:
        """Whether a person trusts a policy file of this content."""
        return bool(self._read("SELECT 1 FROM trusted WHERE digest = ?", (_name(digest),)))

    def trusted_digests(self) -> frozenset[str]:
        """The content of every trusted policy file; none where the store cannot be read."""
        return frozenset(digest for (digest,) in self._read("SELECT digest FROM trusted"))

    def trusted(self) -> tuple[Trusted, ...]:
        """Every trusted policy file, the oldest first.

        Raises:
            OSError: the store cannot be read now, so nobody knows.
        """
        found = self._store.read("SELECT digest, path, since FROM trusted ORDER BY since, digest")
        return tuple(
            Trusted(digest=digest, path=_str(path), since=since) for digest, path, since in found
        )

    def distrust(self, what: str) -> int:
        """Trust no longer, by digest or by the absolute path it lay at; returns how many.

        Raises:
            OSError: it cannot be made durable; nothing has changed.
        """
        if what.startswith("/"):
            return self._change("DELETE FROM trusted WHERE path = ?", _bytes(what))
        return self._change("DELETE FROM trusted WHERE digest = ?", _name(what))

    # -- the store ------------------------------------------------------------------------

    def _read(self, sql: str, values: Sequence[object] = ()) -> Sequence[tuple[Any, ...]]:
        try:
            return self._store.read(sql, values)
        except StoreUnavailable as error:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("nothing is remembered, so it is asked again: %s", error)
            return ()

    def _change(self, sql: str, *values: object) -> int:
        return self._store.write(lambda connection: connection.execute(sql, values).rowcount)


class SessionDenials:
    """What a person said no to, until the executor ends: it is not asked again.

    Of more than `DENIALS_MAX` the oldest is forgotten, and is then asked about again.
    """

    def __init__(self) -> None:
        self._why: OrderedDict[str, str] = OrderedDict()

    def denied(self, key: str) -> str | None:
        """Why this was refused before, "" where no reason was given; None where it was not."""
        return self._why.get(key)

    def add(self, key: str, why: str = "") -> None:
        """Remember a no, and what was said with it."""
        self._why[key] = why
        if len(self._why) > DENIALS_MAX:
            self._why.popitem(last=False)


def _insert(connection: sqlite3.Connection, grant: Grant) -> Grant:
    session = _bytes(grant.session or "")
    same = "SELECT id FROM grants WHERE key = ? AND scope = ? AND session = ? AND mode = ?"
    found = connection.execute(same, (grant.key, grant.scope, session, grant.mode)).fetchall()
    grant = replace(grant, id=found[0][0] if found else _free_id(connection))
    values = (
        grant.id,
        grant.key,
        grant.scope,
        session,
        grant.mode,
        _bytes(grant.tool_name),
        _bytes(grant.shape),
        _bytes(grant.workspace),
        None if grant.agent_id is None else _bytes(grant.agent_id),
        grant.created,
        grant.expires,
    )
    connection.execute(_ADDED, values)
    return grant


def _free_id(connection: sqlite3.Connection) -> str:
    while True:
        made = secrets.token_hex(4)
        if not connection.execute("SELECT 1 FROM grants WHERE id = ?", (made,)).fetchall():
            return made


def _grant(row: tuple[Any, ...]) -> Grant:
    made, key, scope, session, mode, tool_name, shape, workspace, agent_id, created, expires = row
    return Grant(
        id=made,
        key=key,
        scope=scope,
        session=_str(session) if scope == "session" else None,
        mode=mode,
        tool_name=_str(tool_name),
        shape=_str(shape),
        workspace=_str(workspace),
        agent_id=None if agent_id is None else _str(agent_id),
        created=created,
        expires=expires,
    )


def _bytes(text: str) -> bytes:
    """Any text, one to one: the parts of a path that are not UTF-8 are lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _str(stored: bytes) -> str:
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return stored.decode("utf-8", "backslashreplace")


def _name(text: str) -> str:
    """A key, an id or a digest, which are ASCII; any other text is a name that nothing has."""
    return text.encode("ascii", "backslashreplace").decode()
