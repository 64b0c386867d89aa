"""Back to before, or on to the end: for a commit that failed, and for one that was cut off.

Both may be cut off at any point and begun again. What a person has changed since is not ours any
more, and stays.

        target        temporary       undone by
        ours          absent          a created name: removed
        ours          what was there  exchanged back
        absent        what was there  renamed back
        a person's    what was there  the person has had the last word: the temporary goes
        as before     ours            not yet renamed: the temporary goes

"Ours" is the inode that was staged, and a digest that tells whether it was touched.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from ._commit_copy import give_owner
from ._commit_folders import Folders, Gone
from ._commit_journal import Journal, Operation, Owned, Staged
from ._commit_kernel import RENAME_EXCHANGE, RENAME_NOREPLACE, look, remove, rename
from ._commit_look import digest
from ._commit_publish import set_attributes
from ._commit_stage import sync_folders

_OnName = Callable[[Journal, Operation, int], bool]
_OnFolder = Callable[[Operation, Owned, Owned, str], bool]


def undo(journal: Journal, workspace: int) -> tuple[str, ...]:
    """Everything as it was, but what a person has changed meanwhile: the paths of that.

    The journal is for the caller to remove.

    Raises:
        OSError: something stays as it is; to be begun again.
    """
    return _each(journal, workspace, _undo_name, _undo_folder)


def finish(journal: Journal, workspace: int) -> tuple[str, ...]:
    """Remove what was displaced, and give folders their last modes; as `undo` otherwise."""
    return _each(journal, workspace, _finish_name, _finish_folder)


def _each(
    journal: Journal, workspace: int, on_name: _OnName, on_folder: _OnFolder
) -> tuple[str, ...]:
    kept: list[str] = []
    touched: set[str] = set()
    with Folders(workspace) as folders:
        for operation in journal.operations:
            if operation.how != "attributes":
                try:
                    if not on_name(journal, operation, folders.at(operation.parent)):
                        kept.append(operation.path or ".")
                    touched.add(operation.parent)
                except Gone:
                    kept.append(operation.path or ".")
        # Deepest first: what is above may close the way.
        for operation in reversed(journal.operations):
            if operation.old is not None and operation.new is not None:
                try:
                    here = f"/proc/self/fd/{folders.at(operation.path)}"
                    if not on_folder(operation, operation.old, operation.new, here):
                        kept.append(operation.path or ".")
                    touched.add(operation.path)
                except Gone:
                    kept.append(operation.path or ".")
        sync_folders(workspace, folders, touched)
    return tuple(kept)


def _undo_name(journal: Journal, operation: Operation, folder: int) -> bool:
    """Whether the name is as before; False where a person's change stays."""
    temporary = journal.temporary(operation)
    remove(folder, journal.doomed(operation))
    as_before = True
    if journal.staged is not None:
        staged = journal.staged.get(operation.number)
        if staged is None:
            as_before = _put_back(folder, operation.name, temporary)
        elif operation.how == "create":
            as_before = _take_back(folder, operation.name, temporary, staged)
        else:
            as_before = _swap_back(folder, operation.name, temporary, staged)
    _discard(journal, operation, folder)
    return as_before


def _put_back(folder: int, name: str, temporary: str) -> bool:
    """What was deleted."""
    if look(folder, temporary) is None:
        return True
    try:
        rename(folder, temporary, name, RENAME_NOREPLACE)
    except FileExistsError:
        return False
    return True


def _take_back(folder: int, name: str, temporary: str, staged: Staged) -> bool:
    """What was created."""
    if look(folder, temporary) is not None or look(folder, name) is None:
        return True
    if not _is_ours(folder, name, staged):
        return False
    rename(folder, name, temporary, RENAME_NOREPLACE)
    if _is_ours(folder, temporary, staged):
        return True
    # A person was faster than our look: theirs again, unless they have made yet another one.
    _put_back(folder, name, temporary)
    return False


def _swap_back(folder: int, name: str, temporary: str, staged: Staged) -> bool:
    """What was replaced."""
    displaced = look(folder, temporary)
    if displaced is None:
        # Undone already; or somebody has removed our temporary, and the old with it.
        return not _is_ours(folder, name, staged)
    if (displaced.st_dev, displaced.st_ino) == staged.inode:
        return True
    if not _is_ours(folder, name, staged):
        return False
    rename(folder, temporary, name, RENAME_EXCHANGE)
    if _is_ours(folder, temporary, staged):
        return True
    rename(folder, temporary, name, RENAME_EXCHANGE)
    return False


def _is_ours(folder: int, name: str, staged: Staged) -> bool:
    found = look(folder, name)
    return (
        found is not None
        and (found.st_dev, found.st_ino) == staged.inode
        and digest(folder, name) == staged.digest
    )


def _finish_name(journal: Journal, operation: Operation, folder: int) -> bool:
    remove(folder, journal.doomed(operation))
    _discard(journal, operation, folder)
    return True


def _discard(journal: Journal, operation: Operation, folder: int) -> None:
    """Remove the temporary; a folder under another name, since it is not whole meanwhile."""
    temporary, doomed = journal.temporary(operation), journal.doomed(operation)
    found = look(folder, temporary)
    if found is not None and stat.S_ISDIR(found.st_mode):
        rename(folder, temporary, doomed, 0)
        temporary = doomed
    remove(folder, temporary)


def _undo_folder(operation: Operation, old: Owned, new: Owned, here: str) -> bool:
    found = os.stat(here)
    mode = stat.S_IMODE(found.st_mode)
    modes = {side.mode | bits for side in (old, new) for bits in (0, operation.held)}
    if (
        mode not in modes
        or found.st_uid not in (old.uid, new.uid)
        or found.st_gid not in (old.gid, new.gid)
    ):
        return False
    if (missed := give_owner(here, found, (old.uid, old.gid))) is not None:
        raise PermissionError(errno.EPERM, f"owner and group {missed} are not ours", operation.path)
    ours = set_attributes(here, operation, after=False)
    if stat.S_IMODE(os.stat(here).st_mode) != old.mode:
        os.chmod(here, old.mode)
    return ours


def _finish_folder(operation: Operation, old: Owned, new: Owned, here: str) -> bool:
    mode = stat.S_IMODE(os.stat(here).st_mode)
    if mode == new.mode | operation.held != new.mode:
        os.chmod(here, new.mode)
        return True
    return mode == new.mode
