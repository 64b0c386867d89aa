"""Whether a command would come by a secret by a pattern or a folder, where none is hidden."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

LOOKED_AT_MAX: Final = 5_000
"""As many names are looked at for one call; of more it cannot be told."""

_MADE_BY_TOOLS: Final = frozenset({"node_modules", "site-packages", "objects"})


def exposed(read: Iterable[tuple[str, bool]], is_secret: Callable[[str], bool]) -> str | None:
    """A name that may be read and is secret, or why that cannot be told; None where there is none.

    `read` is each path, and whether it is a pattern, as bash matches it: a leading dot only by a
    dot. A folder stands for all below it: whether a command goes down is not known here. A plain
    name is judged as such by the list, and not once more here.
    """
    reached = itertools.chain.from_iterable(_reached(*one) for one in read)
    for number, found in enumerate(reached):
        if number >= LOOKED_AT_MAX:
            return f"one of more than {LOOKED_AT_MAX:,} names"
        if is_secret(found):
            return found
    return None


def _reached(path: str, is_pattern: bool) -> Iterator[str]:
    """What a pattern fits, and what lies below that; of a plain name only the latter."""
    if not is_pattern:
        yield from _below(path)
        return
    for found in glob.iglob(path):
        yield found
        yield from _below(found)


def _below(folder: str) -> Iterator[str]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry.path
                    if entry.is_dir(follow_symlinks=False) and entry.name not in _MADE_BY_TOOLS:
                        waiting.append(entry.path)
        except (OSError, ValueError):
            continue
