"""What can be said of a layer's names only when all of them are known: links, and removals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .changeset import Change, Entry


@dataclass(frozen=True, slots=True)
class Linked:
    """One of several names of a file in the layer."""

    change: Change
    """What it is, or would be: without anything that differs it is none."""
    differs: bool


def order(path: str) -> str:
    """Sorts paths by their components: no name holds a NUL, which comes before everything."""
    return path.replace("/", "\0")


def later_names(groups: Iterable[list[Linked]]) -> Iterator[Change]:
    """Of each regular file with several names, all but its first, as links to that.

    Symlinks and FIFOs are no links of one another: they have no bytes that a copy would double.
    A name that differs in nothing from the workspace is one of them too, unless both were one
    file there. A masked name is neither first nor link: whoever leaves it out of the set would
    have the others be links to what lies there really.
    """
    for names in groups:
        plain = sorted((n for n in names if _may_be_linked(n.change)), key=_place)
        for name in plain[1:]:
            first = plain[0].change
            if name.differs or not _one_file(first.before, name.change.before):
                yield replace(name.change, linked_to=first.path)


def removed_by_others(
    uprooted: Iterable[Change],
    changes: Iterable[Change],
    linked: Mapping[tuple[int, int], list[Linked]],
) -> Iterator[str]:
    """Which of the names that the call had from below, where nothing is now, it did not put there.

    What it renamed or gave another name looks the same as what somebody else has removed, but the
    place that it left shows: something of this size, time and kind is gone from there, or the file
    has another name that still has something below.
    """
    left = {
        _content(change.before)
        for change in changes
        if change.before is not None
        and (change.after is None or _content(change.after) != _content(change.before))
    }
    for change in uprooted:
        if change.after is None or _content(change.after) in left:
            continue
        names = linked.get(change.after.inode, [])
        if all(name.change.before is None for name in names):
            yield change.path


def _may_be_linked(change: Change) -> bool:
    return not change.masked and change.after is not None and change.after.kind == "file"


def _place(name: Linked) -> str:
    return order(name.change.path)


def _content(entry: Entry) -> tuple[str, int, int, str | None]:
    return entry.kind, entry.size_bytes, entry.mtime_ns, entry.target


def _one_file(first: Entry | None, second: Entry | None) -> bool:
    return first is not None and second is not None and first.inode == second.inode
