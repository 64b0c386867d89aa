"""What a call did to its workspace, as plain data: what each name was before, and is after.

Nothing here touches a file. `upper.py` finds a change set, the policies judge it, `commit.py`
makes it true.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

Kind = Literal["file", "folder", "symlink", "fifo", "socket", "device"]
Sort = Literal["created", "modified", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one name stands for. Ids are the host's own, as they are or will be on disk.

    `mode` is the permission bits with setuid, setgid and sticky (0o7777). `inode` is
    (st_dev, st_ino); of what a call left it tells which names share one file.
    """

    kind: Kind
    mode: int
    uid: int
    gid: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    links: int
    inode: tuple[int, int]
    target: str | None = None
    """Where a symlink points, as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One name that is other than it was. Paths are relative to the workspace, POSIX style.

    Names are decoded with surrogateescape, so that any bytes come back losslessly (os.fsencode).

    Raises:
        ValueError: nothing before and nothing after, or a path that leads out.
    """

    path: str
    before: Entry | None
    """What the real workspace has; None where it has nothing of that name."""
    after: Entry | None
    """What the call left; None where it left nothing."""
    masked: bool = False
    """Whether the call could not see what is there: it is on the mask list."""
    content_changed: bool = True
    """False where a file kept every byte, and only its mode, owner, times or attributes differ."""
    linked_to: str | None = None
    """An earlier path of the same file, by hard link: one of this set, or one that is unchanged."""
    attributes: tuple[str, ...] = ()
    """The extended attributes that differ, by name."""

    def __post_init__(self) -> None:
        if self.before is None and self.after is None:
            raise ValueError(f"{self.path!r}: nothing was there, and nothing is")
        names = self.path.split("/")
        if not self.path or any(name in ("", ".", "..") for name in names) or "\0" in self.path:
            raise ValueError(f"{self.path!r} is no path inside a workspace")

    @property
    def sort(self) -> Sort:
        """Created, modified or deleted."""
        if self.before is None:
            return "created"
        return "deleted" if self.after is None else "modified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A name that cannot be kept as it is, whoever agrees; `code` says why.

    `device`, `socket`, `attribute` (an extended attribute that cannot be carried over),
    `path_too_long`, `submount` (another file system lies there), `unreadable`.
    """

    path: str
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """All that one call changed in one workspace, in the order of its paths, folders first.

    Every deleted name is listed by itself, also below a folder that went as a whole. `conflicts`
    are names that somebody else has changed since the call's workspace was mounted.
    """

    workspace: str
    changes: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.problems)

    def of_sort(self, sort: Sort) -> Iterator[Change]:
        """The changes of one sort."""
        return (change for change in self.changes if change.sort == sort)

    def without(self, paths: frozenset[str]) -> Self:
        """The same, but for these paths and all below them.

        Of a file that loses its first name here the next one becomes the first.
        """
        gone = tuple(path + "/" for path in paths)

        def stays(path: str) -> bool:
            return path not in paths and not (gone and path.startswith(gone))

        kept: list[Change] = []
        first: dict[str, str | None] = {}
        for one in self.changes:
            if not stays(one.path):
                first.setdefault(one.path, None)
                continue
            if one.linked_to in first:
                to = first[one.linked_to]
                first[one.linked_to] = to or one.path
                one = replace(one, linked_to=to)
            kept.append(one)
        conflicts = tuple(path for path in self.conflicts if stays(path))
        return replace(self, changes=tuple(kept), conflicts=conflicts)

    def to_json(self) -> dict[str, Any]:
        """As plain data, whole: `from_json` reads it back. Use an encoder that escapes
        surrogates, as `json.dumps` does: a name may be no UTF-8."""
        return {
            "workspace": self.workspace,
            "changes": [asdict(change) for change in self.changes],
            "conflicts": list(self.conflicts),
            "problems": [asdict(problem) for problem in self.problems],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote.

        Raises:
            ValueError, TypeError, KeyError: it is something else.
        """
        return cls(
            workspace=data["workspace"],
            changes=tuple(_change(one) for one in data["changes"]),
            conflicts=tuple(data["conflicts"]),
            problems=tuple(Problem(**one) for one in data["problems"]),
        )

    def digest(self, contents: Mapping[str, str]) -> str:
        """One name for exactly these changes; `contents` has the hash of each file's bytes."""
        told = {"set": self.to_json(), "contents": dict(contents)}
        for change in told["set"]["changes"]:
            for side in ("before", "after"):
                # What a look itself may change, or a copy of the same content has other.
                for name in ("ctime_ns", "inode") if change[side] else ():
                    del change[side][name]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def path_json(path: str) -> dict[str, str]:
    """`{"path"}`, or `{"path_base64"}` where a name is no UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return {"path_base64": base64.b64encode(path.encode("utf-8", "surrogateescape")).decode()}
    return {"path": path}


def _change(data: Mapping[str, Any]) -> Change:
    sides = {
        side: None
        if data[side] is None
        else Entry(**{**data[side], "inode": tuple(data[side]["inode"])})
        for side in ("before", "after")
    }
    return Change(**{**data, **sides, "attributes": tuple(data["attributes"])})
