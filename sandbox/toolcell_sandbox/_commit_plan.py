"""From a change set to the operations that make it true: pure, and each name in one place.

Only names in folders that exist and stay are operations. A created name whose folder is created
too is part of that folder's staged tree; a deleted name whose folder goes is moved aside with it;
a name that changes its kind is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ._commit_journal import How
from .changeset import Change, ChangeSet


@dataclass(slots=True, kw_only=True)
class Root:
    """One operation on a name in an existing folder, with all that comes and goes by it."""

    how: How
    change: Change
    incoming: list[Change] = field(default_factory=list)
    """What is staged: the name itself first, and each folder before what it holds."""
    outgoing: list[Change] = field(default_factory=list)
    """What is moved aside, in the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A change set, sorted out."""

    changes: tuple[Change, ...]
    """All of them, each folder before what it holds."""
    roots: tuple[Root, ...]
    new_folders: frozenset[str]
    """Folders that come, also in the place of something else."""
    gone_folders: Mapping[str, frozenset[str]]
    """Folders that go, each with every name that it may hold."""
    sources: Mapping[str, str]
    """For each hard link the name that it links to, in this set and no link, or unchanged."""


def plan(changes: ChangeSet) -> Plan:
    """Sort out a change set.

    Raises:
        ValueError: it contradicts itself: a name twice, a name created in a folder that goes, a
            name that stays there, a hard link to what is no file.
    """
    ordered = tuple(sorted(changes.changes, key=lambda change: change.path.split("/")))
    by_path = {change.path: change for change in ordered}
    if len(by_path) != len(ordered):
        raise ValueError("a change set names a path twice")
    new = frozenset(one.path for one in ordered if _comes(one))
    holds: dict[str, set[str]] = {one.path: set() for one in ordered if _goes(one)}
    roots: dict[str, Root] = {}
    inside: dict[str, Root] = {}
    for change in ordered:
        parent, _, name = change.path.rpartition("/")
        if parent in holds and change.before is not None:
            holds[parent].add(name)
        if parent in new or parent in holds:
            root = inside[parent]
            _check_inside(change, parent in new, parent in holds)
        else:
            root = roots[change.path] = Root(how=_how(change), change=change)
        if change.path in new or change.path in holds:
            inside[change.path] = root
        if root.how != "attributes":
            if change.after is not None:
                root.incoming.append(change)
            if change.before is not None:
                root.outgoing.append(change)
    return Plan(
        changes=ordered,
        roots=tuple(roots.values()),
        new_folders=new,
        gone_folders={path: frozenset(names) for path, names in holds.items()},
        sources=_sources(ordered, by_path),
    )


def _comes(change: Change) -> bool:
    return (
        change.after is not None
        and change.after.kind == "folder"
        and (change.before is None or change.before.kind != "folder")
    )


def _goes(change: Change) -> bool:
    return (
        change.before is not None
        and change.before.kind == "folder"
        and (change.after is None or change.after.kind != "folder")
    )


def _how(change: Change) -> How:
    if change.before is None:
        return "create"
    if change.after is None:
        return "delete"
    return "attributes" if change.before.kind == change.after.kind == "folder" else "replace"


def _check_inside(change: Change, in_new: bool, in_gone: bool) -> None:
    if in_gone and change.after is not None:
        raise ValueError(f"{change.path!r} would lie in a folder that goes")
    if in_new and change.before is not None:
        raise ValueError(f"{change.path!r} would lie in a folder that is yet to come")


def _sources(changes: Iterable[Change], by_path: Mapping[str, Change]) -> dict[str, str]:
    """For each hard link the name that is to be linked: one that is itself no link of the set."""
    sources: dict[str, str] = {}
    for change in changes:
        chain: dict[str, None] = {}
        path, link = change.path, change
        while link.linked_to is not None and path not in sources:
            if link.after is None or link.after.kind != "file":
                raise ValueError(f"{path!r} is no file, and cannot be a hard link")
            chain[path] = None
            path = link.linked_to
            if path in chain:
                raise ValueError(f"{path!r} is a hard link to itself")
            if path not in by_path:
                # An unchanged file, which is looked at when it is linked.
                break
            link = by_path[path]
            if link.after is None or link.after.kind != "file":
                raise ValueError(f"{change.path!r} is a hard link to what is no file")
        sources.update(dict.fromkeys(chain, sources.get(path, path)))
    return sources
