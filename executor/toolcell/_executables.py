"""Which program a command's word is, and what it holds: so that an answer is for that very one."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolcell.confinement import holds
from toolcell_sandbox import host

HASHED_BYTES_MAX = 32 << 20
"""A program larger than this is known by its inode and times instead of by its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program as it is now. `digest` is sha256 of its content; None where it was not read."""

    path: str
    digest: str | None
    is_replaceable: bool
    """Whether it lies where a tool may write."""
    identity: str
    """The content, or, of what was not read, inode, size and times."""


@dataclass(slots=True)
class Programs:
    """Finds programs as a jail would: by its PATH, and by the real path of what is found."""

    writable: Sequence[str]
    _digests: dict[tuple[int, ...], str] = field(default_factory=dict)

    def find(
        self, name: str, cwd: str | None, env: Mapping[str, str], *, must_hash: bool = False
    ) -> Program | None:
        """The program of that name; None where there is none, or it cannot be told which."""
        for place in self._places(name, cwd, env):
            named = os.path.join(place, name)
            try:
                os.stat(named)  # most folders of a PATH have none of that name
                path = os.path.realpath(named)
                found = os.stat(path)
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o111:
                replaceable = any(holds(folder, path) for folder in self.writable)
                return self._known(path, found, replaceable, hashed=must_hash or replaceable)
        return None

    def _places(self, name: str, cwd: str | None, env: Mapping[str, str]) -> Sequence[str]:
        if "/" in name:
            return ("/",) if name.startswith("/") else () if cwd is None else (cwd,)
        path = env.get("PATH", host.PATH).split(os.pathsep)
        return [os.path.join(cwd or "/", place) for place in path]

    def _known(
        self, path: str, found: os.stat_result, replaceable: bool, *, hashed: bool
    ) -> Program:
        key = (
            found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        )  # fmt: skip
        digest = self._digest(path, key) if hashed else None
        return Program(
            path=path,
            digest=digest,
            is_replaceable=replaceable,
            identity=digest or f"stat:{':'.join(map(str, key))}",
        )

    def _digest(self, path: str, key: tuple[int, ...]) -> str | None:
        if key[2] > HASHED_BYTES_MAX:
            return None
        if key not in self._digests:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                return None
            with open(fd, "rb") as file:
                self._digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
            if len(self._digests) > 4096:
                self._digests.pop(next(iter(self._digests)))
        return self._digests[key]
