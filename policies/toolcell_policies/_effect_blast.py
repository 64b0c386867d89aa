"""How much of a workspace a call took away or changed, all names together."""

from collections.abc import Iterable, Sequence
from typing import Final

from ._effect import Effect
from .decision import Reason

DELETED_MAX: Final = 100
CHANGED_MAX: Final = 1_000
LOST_BYTES_MAX: Final = 256 * 1024 * 1024
FOLDERS_MAX: Final = 20_000
"""Each one is watched for hidden names that come to it, and the kernel has only so many watches."""

# What programs make again by themselves.
_CACHES: Final = frozenset(
    {
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        ".cache",
        ".hypothesis",
    }
)


def blast_radius(effects: Sequence[Effect], top_entries: Iterable[str]) -> Reason | None:
    """Say that a person has to see how much there is of it; None where it is usual work.

    Counted are files and links, not folders, that were there before: over 100 deleted, over 1,000
    changed, over 256 MiB in them, or every name at the top gone where there was more than one;
    and over 20,000 folders created.
    Trees that tools made, caches and ignored files do not count, nor what git packs together, nor
    what only has another name, unless it went where the next call could delete it uncounted.
    """
    packed: set[str | None] = {
        one.repository
        for one in effects
        if one.sort == "created" and one.repository is not None and one.path.endswith(".pack")
    }
    moved = _moved(effects)
    deleted = changed = lost_bytes = 0
    gone: set[str] = set()
    for one in effects:
        if one.before_kind is None:
            continue
        if one.kind is None and "/" not in one.path:
            gone.add(one.path)
        if one.before_kind == "folder" or one.is_same or _is_made_again(one, packed):
            continue
        if one.path in moved:
            continue
        deleted += one.kind is None
        changed += one.kind is not None
        if one.content_changed:
            lost_bytes += one.before_size_bytes
    folders = sum(
        one.sort == "created" and one.kind == "folder" and not one.is_unindexed for one in effects
    )
    before = set(top_entries)
    found = []
    if deleted > DELETED_MAX:
        found.append(f"{deleted:,} files deleted")
    if changed > CHANGED_MAX:
        found.append(f"{changed:,} files changed")
    if lost_bytes > LOST_BYTES_MAX:
        found.append(f"{lost_bytes:,} bytes of files deleted or written over")
    if folders > FOLDERS_MAX:
        found.append(f"{folders:,} folders created")
    if len(before) > 1 and before <= gone:
        found.append(f"all {len(before):,} names at the top of the workspace gone")
    if not found:
        return None
    return Reason(code="blast_radius", text=f"a person has to agree to so much: {', '.join(found)}")


def _moved(effects: Sequence[Effect]) -> set[str]:
    """The names that are gone while a new one that counts, each only once, holds the same."""
    kept = {
        one.path
        for one in effects
        if one.sort == "created" and one.repository is None and not _is_made_again(one, set())
    }
    found = set()
    for one in effects:
        if one.kind is None and one.moved_to in kept:
            kept.remove(one.moved_to)
            found.add(one.path)
    return found


def _is_made_again(effect: Effect, packed: set[str | None]) -> bool:
    if effect.in_dependencies or effect.is_ignored:
        return True
    if effect.repository in packed and effect.repository is not None:
        inner = effect.path.removeprefix(effect.repository).lstrip("/")
        if inner.startswith("objects/"):
            return True
    return not _CACHES.isdisjoint(effect.path.split("/"))
