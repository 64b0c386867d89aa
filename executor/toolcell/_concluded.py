"""What becomes of a result once its call's effects are decided on: words, and lists of paths."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Final

from toolcell.results import (
    CommitConflict,
    ConfinementFailed,
    DiskExceeded,
    Effects,
    EffectsRefused,
    ExecutorError,
    Failure,
    ToolResult,
)
from toolcell_sandbox.changeset import ChangeSet
from toolcell_sandbox.commit import Conflict, Failed, Overtaken, Refused
from toolcell_sandbox.spec import Limits

NAMED_MAX: Final = 10
"""How many paths a message names; the result's own fields have more."""
TOLD_MAX: Final = 1_000
"""How many refused paths a result has: each comes with its reason, and nobody acts on more."""

Told = dict[str, str | None]
"""One path that was refused or left out: path, code, rule, text."""


def named_by_git(result: ToolResult, tracked: frozenset[str]) -> ToolResult:
    """The result with what git says wrong of hidden files that it tracks: it calls them deleted."""
    if not tracked:
        return result
    names = ", ".join(map(quoted, sorted(tracked)[:NAMED_MAX]))
    hint = (
        f"hint: git tracks {names}, hidden from every call: it says deleted, and `git commit -a` "
        "would commit that; name the files to commit. What was committed of it can be read"
    )
    metadata = {**result.metadata, "tracked_hidden": sorted(tracked)}
    return dataclasses.replace(result, content=f"{result.content}\n{hint}", metadata=metadata)


def kept(result: ToolResult, effects: Effects) -> ToolResult:
    """The result with what was kept of its call."""
    return dataclasses.replace(result, effects=effects, files_changed=effects.paths)


def nothing_kept(result: ToolResult, failure: Failure, *, terminate: bool = False) -> ToolResult:
    """The same run with this ending: nothing was kept, and what it said is still told."""
    refused = failure.paths if isinstance(failure, EffectsRefused) else ()
    text = f"error: {failure.kind}: {failure.message}"
    return dataclasses.replace(
        result,
        success=False,
        error=failure,
        output=None,
        content=f"{result.content}\n{text}".strip(),
        effects=Effects(refused=refused),
        files_changed=(),
        terminate=terminate or result.terminate,
    )


def seen_too_much(result: ToolResult, failure: ConfinementFailed) -> ToolResult:
    """The ending of a call that may have read what it should not: nothing that it said is told."""
    receipt = result.receipt
    if receipt is not None:
        held = {name: by for name, by in receipt.held.items() if name != failure.guarantee}
        receipt = dataclasses.replace(receipt, isolation="partial", held=held)
    silent = dataclasses.replace(
        result, content="", metadata={}, stdout=None, stderr=None, files_read=None, receipt=receipt
    )
    return nothing_kept(silent, failure)


def noted(result: ToolResult, notes: Mapping[str, str]) -> ToolResult:
    """The result whose receipt says more of how a guarantee is held."""
    receipt = result.receipt
    if receipt is None or not notes:
        return result
    held = {
        name: f"{by}; {notes[name]}" if name in notes else by for name, by in receipt.held.items()
    }
    return dataclasses.replace(result, receipt=dataclasses.replace(receipt, held=held))


def full(upper_fd: int, limits: Limits) -> DiskExceeded | None:
    """The limit that the jail's own file system is at, where it is: what was written is a part.

    A command that could not write may exit as it likes, and a handler swallow the error.
    """
    found = os.fstatvfs(upper_fd)
    if found.f_bavail and found.f_favail:
        return None
    what = f"{limits.disk_files} files" if found.f_bavail else f"{limits.disk_bytes} bytes"
    return DiskExceeded(
        message=f"what it may write is full ({what}), so nothing was kept",
        limit_bytes=limits.disk_bytes,
        limit_files=limits.disk_files,
        reached="files" if found.f_bavail else "bytes",
        remedy="write less in one call, or raise the limit (disk_bytes, disk_files, --disk)",
    )


def conflict(paths: tuple[str, ...]) -> CommitConflict:
    """Somebody else was there first."""
    more = f" and {len(paths) - NAMED_MAX} more" if len(paths) > NAMED_MAX else ""
    named = ", ".join(map(quoted, paths[:NAMED_MAX]))
    return CommitConflict(
        message=f"somebody else changed {named}{more} while the call ran, so nothing was kept",
        paths=paths,
        remedy="look at the files again, then repeat the call",
    )


def refused(paths: tuple[Told, ...], handle: str | None) -> EffectsRefused:
    """What breaks a rule, and where it was put aside."""
    named = "; ".join(str(one["text"]) for one in paths[:NAMED_MAX])
    more = f"; and {len(paths) - NAMED_MAX} more" if len(paths) > NAMED_MAX else ""
    what = f"parked as {handle}, for a person to decide" if handle else "nothing was kept"
    return EffectsRefused(
        message=f"{what}: {named}{more}",
        paths=paths[:TOLD_MAX],
        handle=handle,
        remedy=f"toolcell effects show {handle}" if handle else None,
    )


def not_committed(ending: Conflict | Refused | Failed | Overtaken) -> Failure:
    """How a commit that kept nothing is told."""
    match ending:
        case Overtaken():
            return conflict((".",))
        case Conflict(paths=paths):
            return conflict(paths)
        case Refused(paths=paths, text=text):
            named = tuple(told(path, "cannot_be_kept", text) for path in paths)
            return EffectsRefused(message=f"nothing was kept: {text}", paths=named)
        case Failed(text=text, unfinished=False):
            message = "the changes could not be written, so nothing was kept"
            return ExecutorError(message=message, operator_detail=text)
        case Failed(text=text):
            message = "the changes could not be written, nor what was written be undone"
            return ExecutorError(
                message=message, operator_detail=text, remedy="toolcell doctor --recover"
            )


def effects_of(changes: ChangeSet, left_out: tuple[Told, ...] = ()) -> Effects:
    """A change set that is on disk."""
    return Effects(
        created=tuple(change.path for change in changes.of_sort("created")),
        modified=tuple(change.path for change in changes.of_sort("modified")),
        deleted=tuple(change.path for change in changes.of_sort("deleted")),
        refused=left_out[:TOLD_MAX],
    )


def without(changes: ChangeSet, left_out: tuple[Told, ...]) -> ChangeSet:
    """The rest of a change set: what stays keeps the folders that it lies in."""
    paths = frozenset(one["path"] or "" for one in left_out)
    rest = changes.without(paths)
    holding = {path[:at] for path in paths for at, char in enumerate(path) if char == "/"}
    stays = (
        one
        for one in rest.changes
        if one.path not in holding or (one.after is not None and one.after.kind == "folder")
    )
    return dataclasses.replace(rest, changes=tuple(stays))


def told(path: str, code: str, text: str) -> Told:
    """One path that was refused, by no rule of the list."""
    return {"path": path, "code": code, "rule": None, "text": text}


def quoted(path: str) -> str:
    """A path in quotes, whatever bytes its names are made of."""
    return repr(os.fsencode(path).decode("utf-8", "replace"))
