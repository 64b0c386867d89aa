"""Making what a call did true in the real workspace: all of it, or nothing.

        look ─► journal: plan ─► stage ─► journal: committing ─► rename ─► journal: applied ─► clean
         │                        │                                │          │
         └── Conflict             └── Refused, Failed              └──────────┤ point of no return

Content is staged under temporary names in the folders of its targets, so that publishing is
nothing but renames within one folder, each by a descriptor that was reached through no link and
no mount. `recovery.py` does the rest for a commit that was cut off.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from ._commit_copy import copy_content
from ._commit_folders import Folders, Gone
from ._commit_journal import Journal
from ._commit_kernel import open_workspace
from ._commit_look import Check, clashes
from ._commit_operations import operations
from ._commit_place import Place, generation, locked, next_generation, open_state
from ._commit_plan import Plan, plan
from ._commit_publish import Displacing, loosen, publish, tell_displaced
from ._commit_results import (
    Clash,
    Conflict,
    Failed,
    Leftover,
    Overtaken,
    Recovered,
    Refusal,
    Refused,
)
from ._commit_stage import Stage, sync_folders
from ._commit_undo import finish, undo
from .changeset import ChangeSet
from .recovery import recover_locked

__all__ = [
    "Conflict",
    "Ending",
    "Failed",
    "Leftover",
    "Overtaken",
    "Place",
    "Recovered",
    "Refused",
    "commit",
    "copy_content",
    "generation",
]

Ending = Conflict | Refused | Failed | Leftover | Overtaken


def commit(
    changes: ChangeSet,
    layer_fd: int,
    place: Place,
    *,
    check: Check = lambda: None,
    displaced: Displacing | None = None,
    on_recovered: Callable[[Recovered], None] = lambda recovered: None,
    judged_at: int | None = None,
) -> Ending | None:
    """Make a change set true: None when all of it is on disk.

    The change set alone says what happens; `layer_fd` is a folder that holds the new content of
    files at the same paths, and `user.*` attributes. Modes, owners, groups and times are the
    change set's. Files are never setuid or setgid. A new name in a setgid folder keeps the group
    that the folder gives; one whose owner or group is not ours to give is ours; a changed file's
    must be given back, or it is `Refused`. The mtime of folders that exist is the kernel's.

    A file of which only mode, owner or attributes differ is staged and exchanged like one with
    new content, not changed in place: its inode may have other names, outside of the workspace
    too, that the call never saw and nobody has judged; what the call changed was a copy.

    **Who wins** where a person edits during the call: the person. A file that was saved since the
    call's workspace was mounted has another ctime, inode or size, and one that somebody has open
    for writing is seen by the lease that cannot be had: `Conflict`, nothing is kept. In the
    instant of the swap: what a rename has displaced is looked at again, when no path leads to it
    any more; an editor's save that came between is put back, and all is undone. Not seen is only
    a write between the two looks that is closed again, keeps the size and sets the mtime back;
    and, where no lease can be had (see `is_open_for_writing`), one by who had the file open. Who
    opens a file for writing and reads it only afterwards reads ours.

    One writer per workspace at a time, across processes: waits for the others. A commit that was
    cut off is ended first, and `on_recovered` told of it. `check` is called often, and may raise
    to break off, up to the point of no return: all is undone. `displaced` is called for each
    changed name before that point, while what was there can still be read, in no set order; a
    commit may still be undone afterwards. Blocks: to be called in a thread.

    `judged_at` is the `generation` that the change set was judged in: where another commit has
    ended since, the two together may be what neither is alone, and it is `Overtaken`.

    Costs in proportion to the changes; a new folder is one rename, whatever it holds.

    Raises:
        ValueError: the change set contradicts itself, or is another workspace's.
        Whatever `check` or `displaced` raise; nothing is kept then.
    """
    if changes.workspace != place.workspace:
        raise ValueError(f"{changes.workspace!r} is not {place.workspace!r}")
    sorted_out = plan(changes)
    if (ending := _unacceptable(changes)) is not None or not changes.changes:
        return ending
    with ExitStack() as stack:
        try:
            state = open_state(place)
            stack.callback(os.close, state)
            stack.enter_context(locked(state))
        except OSError as error:
            return _failed(error)
        recovered = recover_locked(state, place)
        if isinstance(recovered, Failed):
            return recovered
        if recovered is not None:
            on_recovered(recovered)
        check()
        if judged_at is not None and generation(place) != judged_at:
            return Overtaken()
        return _in_workspace(sorted_out, layer_fd, place, state, check, displaced)


def _unacceptable(changes: ChangeSet) -> Ending | None:
    if changes.conflicts:
        return Conflict(paths=changes.conflicts)
    if changes.problems:
        text = "; ".join(problem.text for problem in changes.problems[:8])
        return Refused(paths=tuple(problem.path for problem in changes.problems), text=text)
    special = tuple(
        change.path
        for change in changes.changes
        if change.after is not None and change.after.kind in ("device", "socket")
    )
    if special:
        return Refused(paths=special, text="devices and sockets are never kept; remove them")
    return None


def _in_workspace(
    sorted_out: Plan,
    layer_fd: int,
    place: Place,
    state: int,
    check: Check,
    displaced: Displacing | None,
) -> Ending | None:
    try:
        workspace = open_workspace(place.workspace)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return Conflict(paths=(".",))
        return _failed(error)
    try:
        found = os.fstat(workspace)
        if (found.st_dev, found.st_ino) != place.identity:
            return Conflict(paths=(".",))
        with Folders(workspace) as folders, Folders(layer_fd, ours=True) as layer:
            try:
                wrong = tuple(sorted(set(clashes(sorted_out, folders, check))))
                if wrong:
                    return Conflict(paths=wrong)
                journal = Journal(
                    state=state,
                    identifier=secrets.token_hex(8),
                    workspace=place.workspace,
                    identity=place.identity,
                    operations=operations(sorted_out, folders, layer),
                )
                journal.write_plan()
            except Gone as error:
                return Conflict(paths=(error.path or ".",))
            except OSError as error:
                return _failed(error)
            try:
                return _carried_out(
                    sorted_out, journal, workspace, folders, layer, check, displaced
                )
            finally:
                journal.close()
    finally:
        os.close(workspace)


def _carried_out(
    sorted_out: Plan,
    journal: Journal,
    workspace: int,
    folders: Folders,
    layer: Folders,
    check: Check,
    displaced: Displacing | None,
) -> Ending | None:
    try:
        loosen(journal, folders)
        staged = Stage(sorted_out, journal, workspace, layer, check).fill()
        journal.write_committing(staged)
        publish(sorted_out, journal, folders, check)
        if displaced is not None:
            tell_displaced(sorted_out, journal, folders, check, displaced)
        touched = {one.parent for one in journal.operations}
        touched |= {one.path for one in journal.operations if one.how == "attributes"}
        sync_folders(workspace, folders, touched)
        check()
        journal.write_applied()
    except Clash as error:
        return _undone(journal, workspace, Conflict(paths=error.paths))
    except Gone as error:
        return _undone(journal, workspace, Conflict(paths=(error.path or ".",)))
    except Refusal as error:
        return _undone(journal, workspace, Refused(paths=(error.path,), text=error.text))
    except OSError as error:
        return _undone(journal, workspace, _failed(error))
    except BaseException as error:
        # Whether the record is on disk is not known after an interrupt in the midst of it: then
        # the journal stays, for recovery to read.
        if not journal.applied:
            ending = _undone(journal, workspace, Conflict(paths=()))
            if isinstance(ending, Failed):
                error.add_note(ending.text)
        raise
    try:
        finish(journal, workspace)
        next_generation(journal.state)
        journal.remove()
    except OSError as error:
        return Leftover(
            text=f"what was displaced could not be removed: {error}",
            errno=error.errno or errno.EIO,
        )
    return None


def _undone(
    journal: Journal, workspace: int, ending: Conflict | Refused | Failed
) -> Conflict | Refused | Failed:
    """The ending, when all is as before; another one where it could not be made so."""
    try:
        kept = undo(journal, workspace)
        journal.remove()
    except OSError as error:
        return Failed(
            text=f"the commit cannot be undone: {error}; before that: {ending}",
            errno=error.errno or errno.EIO,
            unfinished=True,
        )
    return replace(ending, kept=kept) if kept else ending


def _failed(error: OSError) -> Failed:
    return Failed(text=f"nothing was kept: {error}", errno=error.errno or errno.EIO)
