"""What the journal is told before anything happens: each operation, with a folder's old state."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import Final

from ._commit_copy import user_attributes
from ._commit_folders import Folders
from ._commit_journal import Attributes, Operation, Owned
from ._commit_plan import Plan
from .changeset import Change, Entry

_OWNERS_BITS: Final = stat.S_IRWXU


def operations(plan: Plan, folders: Folders, layer: Folders) -> tuple[Operation, ...]:
    """The plan's roots in their order, then folders that we only need to write in.

    Raises:
        Gone: a folder is not there any more.
        OSError: one cannot be looked at.
    """
    above = _above(root.change.path for root in plan.roots)
    found: list[Operation] = []
    for number, root in enumerate(plan.roots):
        path = root.change.path
        if root.how == "attributes":
            found.append(_folder_change(number, root.change, folders, layer, path in above))
        else:
            found.append(Operation(number=number, how=root.how, path=path))
    above.difference_update(root.change.path for root in plan.roots)
    for path in sorted(above, key=lambda path: path.split("/")):
        now = _owned(os.fstat(folders.at(path)))
        held = _held(now, now)
        if held:
            found.append(
                Operation(
                    number=len(found), how="attributes", path=path, old=now, new=now, held=held
                )
            )
    return tuple(found)


def _above(paths: Iterable[str]) -> set[str]:
    """Every folder on the way to one of these, with the workspace itself, ""."""
    above = {""}
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent not in above:
            above.add(parent)
            parent = parent.rpartition("/")[0]
    return above


def _folder_change(
    number: int, change: Change, folders: Folders, layer: Folders, above: bool
) -> Operation:
    if change.before is None or change.after is None:
        raise ValueError(f"{change.path!r} has no attributes to change")
    old = _owned(os.fstat(folders.at(change.path)))
    new = _wanted(change.after)
    return Operation(
        number=number,
        how="attributes",
        path=change.path,
        old=old,
        new=new,
        held=_held(old, new) if above else 0,
        attributes=_attributes(change, folders, layer),
    )


def _attributes(change: Change, folders: Folders, layer: Folders) -> Attributes:
    if not change.attributes:
        return ()
    before = user_attributes(f"/proc/self/fd/{folders.at(change.path)}")
    after = user_attributes(f"/proc/self/fd/{layer.at(change.path)}")
    for name in change.attributes:
        if not name.startswith("user.") or name.startswith("user.overlay."):
            raise OSError(errno.EOPNOTSUPP, f"attribute {name!r} cannot be kept", change.path)
    return tuple((name, before.get(name), after.get(name)) for name in change.attributes)


def _owned(found: os.stat_result) -> Owned:
    return Owned(mode=stat.S_IMODE(found.st_mode), uid=found.st_uid, gid=found.st_gid)


def _wanted(entry: Entry) -> Owned:
    return Owned(mode=entry.mode & 0o3777, uid=entry.uid, gid=entry.gid)


def _held(old: Owned, new: Owned) -> int:
    """The owner's own bits, where the owner is us, lacks some of them, and is not root.

    Not for a setgid folder of a group that we are not in: a chmod(2) would take that bit.
    """
    if os.geteuid() == 0 or old.uid != os.geteuid():
        return 0
    if old.mode & new.mode & _OWNERS_BITS == _OWNERS_BITS:
        return 0
    if old.mode & stat.S_ISGID and old.gid not in (os.getegid(), *os.getgroups()):
        return 0
    return _OWNERS_BITS
