"""The write-ahead journal of a commit: what it is about to do, and how far it has come.

        (nothing) ──► planned ──► committing ──► applied ──► (nothing)
                      temporaries  renames        removal of what was displaced
        undone       ◄──────────────────────┤    ├──────────────►  finished

The plan is written whole before the first temporary exists; each later state is one appended
line. A line that was cut off was never acted upon, and does not count. All is fsynced before the
step that it speaks of begins.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

How = Literal["create", "replace", "delete", "attributes"]
Attributes = tuple[tuple[str, bytes | None, bytes | None], ...]
"""Name, value before, value after; None where there is none."""

PREFIX: Final = ".toolcell-"
TEMPORARY: Final = re.compile(r"\.toolcell-[0-9a-f]{16}-[0-9]+(-x)?")
"""Every name that `Journal.temporary` and `Journal.doomed` give."""
_NAME: Final = "journal"
_NEW: Final = "journal.new"
NAMES: Final = (_NAME, _NEW)
"""What a commit that was cut off leaves in our state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Mode and owner of an existing folder."""

    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One name in an existing folder that is created, replaced, deleted, or a folder's attributes.

    Trees count once, by their topmost name.
    """

    number: int
    how: How
    path: str
    old: Owned | None = None
    """For `attributes`."""
    new: Owned | None = None
    """For `attributes`; the same as `old` for a folder that we only need to write in."""
    held: int = 0
    """Mode bits that a folder is given in addition, until all is done: for us to write in it."""
    attributes: Attributes = ()

    @property
    def parent(self) -> str:
        """The existing folder; "" is the workspace."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The name in it."""
        return self.path.rpartition("/")[2]


@dataclass(slots=True, kw_only=True)
class Staged:
    """What was made ready for a name: how to know that it is ours, and as we made it."""

    inode: tuple[int, int]
    digest: str


@dataclass(slots=True, kw_only=True)
class Journal:
    """One commit's plan and state. A folder of our state holds at most one."""

    state: int
    """The folder's descriptor."""
    identifier: str
    workspace: str
    identity: tuple[int, int]
    operations: tuple[Operation, ...]
    # Invariant: None until the record "committing" is on disk; no rename comes before it.
    staged: dict[int, Staged] | None = None
    applied: bool = False
    _fd: int | None = field(default=None, repr=False)

    def temporary(self, operation: Operation) -> str:
        """The name, in the target's own folder, that it is staged and displaced under."""
        return f"{PREFIX}{self.identifier}-{operation.number}"

    def doomed(self, operation: Operation) -> str:
        """The name of a folder that is being removed, and no longer whole."""
        return self.temporary(operation) + "-x"

    def write_plan(self) -> None:
        """On disk, whole or not at all.

        Raises:
            OSError: not on disk; nothing of it is left.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(_NEW, flags, 0o600, dir_fd=self.state)
        try:
            _write(fd, self._plan())
            os.rename(_NEW, _NAME, src_dir_fd=self.state, dst_dir_fd=self.state)
            self._fd = fd
            os.fsync(self.state)
        except BaseException:
            self._fd = None
            os.close(fd)
            for name in (_NEW, _NAME):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self.state)
            raise

    def write_committing(self, staged: dict[int, Staged]) -> None:
        """All is staged and on disk: renames may begin."""
        self._append(
            {"committing": [[n, *one.inode, one.digest] for n, one in staged.items()]},
        )
        self.staged = staged

    def write_applied(self) -> None:
        """All renames are on disk: from here on there is no way back."""
        self._append({"applied": True})
        self.applied = True

    def remove(self) -> None:
        """All is done. On disk before it returns: a plan that comes back would be acted upon."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_NAME, dir_fd=self.state)
        os.fsync(self.state)

    def close(self) -> None:
        """Close the file; it stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, record: dict[str, Any]) -> None:
        if self._fd is None:
            raise RuntimeError("a journal that was read back is not written on")
        _write(self._fd, record)

    def _plan(self) -> dict[str, Any]:
        return {
            "version": 1,
            "identifier": self.identifier,
            "workspace": self.workspace,
            "identity": list(self.identity),
            "operations": [_operation_json(one) for one in self.operations],
        }


def read(state: int) -> Journal | None:
    """The journal of a commit that was cut off; None where there is none.

    Raises:
        ValueError: it is none of ours.
        OSError: it cannot be read.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NEW, dir_fd=state)
    try:
        fd = os.open(_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=state)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        lines = file.read().split(b"\n")
    # What follows the last newline was cut off.
    try:
        plan, *records = [json.loads(line) for line in lines[:-1]]
        if plan["version"] != 1:
            raise ValueError("a version of toolcell that this one does not know")
        journal = Journal(
            state=state,
            identifier=plan["identifier"],
            workspace=plan["workspace"],
            identity=(plan["identity"][0], plan["identity"][1]),
            operations=tuple(_operation(one) for one in plan["operations"]),
        )
        for record in records:
            journal.applied = journal.applied or "applied" in record
            if "committing" in record:
                journal.staged = {
                    n: Staged(inode=(device, inode), digest=digest)
                    for n, device, inode, digest in record["committing"]
                }
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the journal is not as we write it: {error!r}") from None
    return journal


def _write(fd: int, record: dict[str, Any]) -> None:
    start = os.lseek(fd, 0, os.SEEK_CUR)
    left = memoryview(json.dumps(record).encode() + b"\n")
    try:
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    except BaseException:
        # Half a line, or one that is not on disk, must not come to count later.
        os.ftruncate(fd, start)
        os.lseek(fd, start, os.SEEK_SET)
        raise


def _operation_json(one: Operation) -> dict[str, Any]:
    told: dict[str, Any] = {"n": one.number, "how": one.how, "path": one.path}
    if one.old is not None and one.new is not None:
        told["old"] = [one.old.mode, one.old.uid, one.old.gid]
        told["new"] = [one.new.mode, one.new.uid, one.new.gid]
        told["held"] = one.held
        told["attributes"] = [
            [name, *(None if v is None else base64.b64encode(v).decode() for v in values)]
            for name, *values in one.attributes
        ]
    return told


def _operation(told: dict[str, Any]) -> Operation:
    old, new = (
        Owned(mode=told[side][0], uid=told[side][1], gid=told[side][2]) if side in told else None
        for side in ("old", "new")
    )
    return Operation(
        number=told["n"],
        how=told["how"],
        path=told["path"],
        old=old,
        new=new,
        held=told.get("held", 0),
        attributes=tuple(
            (
                name,
                None if before is None else base64.b64decode(before),
                None if after is None else base64.b64decode(after),
            )
            for name, before, after in told.get("attributes", ())
        ),
    )
