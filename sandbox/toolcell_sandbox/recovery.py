"""A workspace whose commit was cut off, by SIGKILL or a power cut, made whole again."""

from __future__ import annotations

import errno
import os

from . import _commit_journal as journals
from ._commit_journal import Journal
from ._commit_kernel import open_workspace
from ._commit_place import Place, locked, next_generation, open_state
from ._commit_results import Failed, Recovered
from ._commit_undo import finish, undo

__all__ = ["Failed", "Place", "Recovered", "recover"]


def recover(place: Place) -> Recovered | Failed | None:
    """Undo a commit that was cut off, or finish it; None where nothing was left over.

    Before the record "applied" all is undone, after it all is finished: the workspace is wholly
    before or wholly after, and nothing of ours is left in it. A name that a person has changed
    since, by another inode, size or mtime than we gave it, stays as it is and is named in `kept`.
    Only content of ours goes with it: and the version before ours, which that person replaced.

    Waits for a commit that is under way, which has then ended. Blocks: to be called in a thread.
    May itself be killed at any point, and called again. Costs one look where there is nothing.

    `Failed`, always `unfinished`, where the workspace is not at its place any more, or the system
    refuses a step: the journal stays, and it can be called again.
    """
    if not any(os.path.lexists(os.path.join(place.folder, name)) for name in journals.NAMES):
        return None
    try:
        state = open_state(place)
    except OSError as error:
        return _failed(error)
    try:
        with locked(state):
            return recover_locked(state, place)
    except OSError as error:
        return _failed(error)
    finally:
        os.close(state)


def recover_locked(state: int, place: Place) -> Recovered | Failed | None:
    """The same, for who holds the lock."""
    try:
        journal = journals.read(state)
    except ValueError as error:
        return Failed(
            text=f"the journal {place.folder}/journal cannot be read: {error}",
            errno=errno.EBADMSG,
            unfinished=True,
        )
    except OSError as error:
        return _failed(error)
    if journal is None:
        return None
    try:
        workspace = open_workspace(journal.workspace)
    except OSError as error:
        return _failed(error)
    try:
        found = os.fstat(workspace)
        if (found.st_dev, found.st_ino) != journal.identity:
            return Failed(
                text=f"{journal.workspace!r} is another folder than the one whose commit was cut "
                f"off; put that one back, or remove {place.folder}/journal",
                errno=errno.ESTALE,
                unfinished=True,
            )
        kept = end(journal, workspace)
        if journal.applied:
            next_generation(state)
        journal.remove()
    except OSError as error:
        return _failed(error)
    finally:
        os.close(workspace)
    return Recovered(
        outcome="finished" if journal.applied else "undone",
        # Not the folders that we only needed to write in.
        paths=tuple(
            one.path
            for one in journal.operations
            if one.how != "attributes" or one.old != one.new or one.attributes
        ),
        kept=kept,
    )


def end(journal: Journal, workspace: int) -> tuple[str, ...]:
    """Wholly after, if that was decided; else wholly before."""
    return finish(journal, workspace) if journal.applied else undo(journal, workspace)


def _failed(error: OSError) -> Failed:
    return Failed(
        text=f"a commit that was cut off cannot be ended: {error}",
        errno=error.errno or errno.EIO,
        unfinished=True,
    )


def pending(state_dir: str) -> list[Place | Failed]:
    """Every workspace whose commit was cut off, or is under way now; a journal that is damaged.

    Raises:
        OSError: the state folder cannot be read.
    """
    found: list[Place | Failed] = []
    top = os.path.join(state_dir, "workspaces")
    names = sorted(os.listdir(top)) if os.path.isdir(top) else []
    for name in names:
        state = os.open(os.path.join(top, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            journal = journals.read(state)
        except ValueError as error:
            text = f"the journal in {os.path.join(top, name)} cannot be read: {error}"
            found.append(Failed(text=text, errno=errno.EBADMSG, unfinished=True))
            continue
        finally:
            os.close(state)
        if journal is not None:
            place = Place(
                workspace=journal.workspace, identity=journal.identity, state_dir=state_dir
            )
            found.append(place)
    return found
