"""The renames of a commit: each looked at just before, and what it displaced just after."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from ._beneath import PATH_FLAGS, open_beneath, reopen
from ._commit_copy import TOO_MUCH, attributes_do_not_fit, give_owner, not_ours_to_give
from ._commit_folders import Folders, Gone
from ._commit_journal import Journal, Operation
from ._commit_kernel import NO_SUCH_CALL, RENAME_EXCHANGE, RENAME_NOREPLACE, look, rename
from ._commit_look import Check, Displaced, busy, moved_same, same, same_folder, verify_displaced
from ._commit_plan import Plan, Root
from ._commit_results import Clash, Refusal
from .changeset import Change, Entry

Displacing = Callable[[str, Entry | None, int | None], None]
"""Told each changed path, what was there, and its content where that is a readable file."""

_NO_RENAME: Final = (
    "the file system of the workspace cannot {what}, without which nothing can be kept safely. "
    "Put the workspace on ext4, xfs, btrfs or tmpfs, or use --workspace-mode direct."
)


def loosen(journal: Journal, folders: Folders) -> None:
    """Give folders that their owner, us, may not write in the bits that we need meanwhile."""
    for operation in journal.operations:
        old, held = operation.old, operation.held
        if old is not None and old.mode | held != old.mode:
            os.chmod(f"/proc/self/fd/{folders.at(operation.path)}", old.mode | held)


def publish(
    plan: Plan,
    journal: Journal,
    folders: Folders,
    check: Check,
) -> None:
    """Make every operation visible; what it displaces lies under the temporary name afterwards.

    Raises:
        Clash: a target is not what was looked at; what was published stays for `undo`.
        Refusal: the file system lacks the rename, or an owner is not ours to give.
        OSError: a rename fails otherwise.
    """
    for operation, root in zip(journal.operations, plan.roots, strict=False):
        if operation.how != "attributes":
            check()
            try:
                _swap(operation, root, plan, journal, folders, check)
            except Gone as error:
                raise Clash(error.path) from None
    # Deepest first: what is above may close the way.
    for operation in reversed(journal.operations):
        if operation.how == "attributes":
            check()
            try:
                _change_folder(operation, folders.at(operation.path), journal.workspace)
            except Gone as error:
                raise Clash(error.path) from None


def tell_displaced(
    plan: Plan, journal: Journal, folders: Folders, check: Check, displaced: Displacing
) -> None:
    """Call `displaced` for each changed name, while all that was there is still there."""
    for operation, root in zip(journal.operations, plan.roots, strict=False):
        if root.how == "attributes":
            displaced(root.change.path, root.change.before, None)
            continue
        for change in root.incoming:
            if change.before is None:
                check()
                displaced(change.path, None, None)
        parent = folders.at(operation.parent)
        with Displaced(root, parent, journal.temporary(operation)) as old:
            for change in root.outgoing:
                check()
                _tell(change, old, displaced)


def _tell(change: Change, old: Displaced, displaced: Displacing) -> None:
    folder, name = old.of(change.path)
    held = open_beneath(folder, name, PATH_FLAGS)
    try:
        fd = None
        if stat.S_ISREG(os.fstat(held).st_mode):
            try:
                fd = reopen(held, os.O_RDONLY)
            except PermissionError:
                fd = None
        try:
            displaced(change.path, change.before, fd)
        finally:
            if fd is not None:
                os.close(fd)
    finally:
        os.close(held)


def _swap(
    operation: Operation,
    root: Root,
    plan: Plan,
    journal: Journal,
    folders: Folders,
    check: Check,
) -> None:
    folder = folders.at(operation.parent)
    name, temporary = operation.name, journal.temporary(operation)
    if operation.how == "create":
        try:
            _rename(folder, temporary, name, RENAME_NOREPLACE, operation.path)
        except FileExistsError:
            raise Clash(operation.path) from None
        return
    before = root.change.before
    found = look(folder, name)
    if before is None or found is None:
        raise Clash(operation.path)
    if not _as_seen(before, found) or (before.kind == "file" and busy(folder, name)):
        raise Clash(operation.path)
    try:
        if operation.how == "replace":
            _rename(folder, temporary, name, RENAME_EXCHANGE, operation.path)
        else:
            _rename(folder, name, temporary, RENAME_NOREPLACE, operation.path)
    except FileNotFoundError:
        raise Clash(operation.path) from None
    wrong = tuple(verify_displaced(root, plan, folder, temporary, check))
    if wrong:
        raise Clash(*wrong)


def _as_seen(before: Entry, found: os.stat_result) -> bool:
    if before.kind == "folder":
        return same_folder(before, found)
    # Of a file with several names, we may have moved or linked another one just now: its ctime
    # was compared before we began.
    return moved_same(before, found) if before.links > 1 else same(before, found)


def _rename(folder: int, old: str, new: str, flags: int, path: str) -> None:
    try:
        rename(folder, old, new, flags)
    except OSError as error:
        if error.errno in NO_SUCH_CALL:
            what = "exchange two names" if flags == RENAME_EXCHANGE else "rename without replacing"
            raise Refusal(path, _NO_RENAME.format(what=what)) from None
        if error.errno == errno.EXDEV:
            # rename(2) of a folder from a lower layer, on an overlay without redirect_dir.
            raise Refusal(path, _NO_RENAME.format(what=f"rename the folder {path!r}")) from None
        raise


def _change_folder(operation: Operation, held: int, workspace: str) -> None:
    old, new = operation.old, operation.new
    if old is None or new is None:
        raise ValueError(f"{operation.path!r} has no attributes to change")
    here = f"/proc/self/fd/{held}"
    found = os.fstat(held)
    if (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) != (
        old.mode | operation.held,
        old.uid,
        old.gid,
    ):
        raise Clash(operation.path or ".")
    if (old, operation.attributes) == (new, ()):
        return
    missed = give_owner(here, found, (new.uid, new.gid))
    if missed is not None:
        raise not_ours_to_give(operation.path, missed, workspace)
    try:
        set_attributes(here, operation, after=True)
    except OSError as error:
        if error.errno in TOO_MUCH:
            raise attributes_do_not_fit(operation.path) from None
        raise
    if (old.mode, old.uid, old.gid) != (new.mode, new.uid, new.gid):
        wanted = new.mode | operation.held
        os.chmod(here, wanted)
        if stat.S_IMODE(os.fstat(held).st_mode) != wanted:
            # chmod(2) drops the setgid bit for who is not in the group.
            raise not_ours_to_give(operation.path, (-1, new.gid), workspace)


def set_attributes(here: str, operation: Operation, *, after: bool) -> bool:
    """Extended attributes of a folder, from one side of the change to the other.

    False where one of them has a third value by now, which stays.
    """
    ours = True
    for name, *sides in operation.attributes:
        wanted, known = (sides[1], sides[0]) if after else (sides[0], sides[1])
        try:
            current = os.getxattr(here, name)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
            current = None
        if current not in (wanted, known):
            ours = False
        elif current != wanted and wanted is not None:
            os.setxattr(here, name, wanted)
        elif current != wanted:
            os.removexattr(here, name)
    return ours
