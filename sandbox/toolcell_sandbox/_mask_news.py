"""What has become forbidden, and since when: kept for calls that run under an older list."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

APPEARED_MAX: Final = 20_000


class Doubt(str):
    """Why the names in a folder are no longer known; a text where else a name would be."""

    __slots__ = ()


class News:
    """Counts changes, and says what came after a given count. Outlives the walks."""

    def __init__(self) -> None:
        self.generation = 0
        # Each name once, by the last time it came, the oldest first.
        self._appeared: dict[str, int] = {}
        # Of what came up to here some is forgotten.
        self._floor = 0
        self._doubt = Doubt()
        self._doubted = 0

    def appeared(self, path: str) -> None:
        """A name is forbidden from now on, or was for a moment."""
        self.generation += 1
        self._appeared.pop(path, None)
        self._appeared[path] = self.generation
        if len(self._appeared) > APPEARED_MAX:
            oldest = next(iter(self._appeared))
            self._floor = self._appeared.pop(oldest)

    def vanished(self) -> None:
        """A name is no longer forbidden, or no longer there."""
        self.generation += 1

    def doubted(self, why: str) -> None:
        """Nothing is sure for those who hold an older list."""
        self.generation += 1
        self._doubt, self._doubted = Doubt(why), self.generation

    def since(self, generation: int, hidden: Set[str]) -> str | None:
        """The first name that came later and is not hidden by one of these; or a Doubt."""
        if generation < self._doubted:
            return self._doubt
        if generation < self._floor:
            return Doubt(f"more than {APPEARED_MAX:,} forbidden names have come")
        first = None
        for path, came in reversed(self._appeared.items()):
            if came <= generation:
                break
            if not is_hidden(path, hidden):
                first = path
        return first


def is_hidden(path: str, hidden: Set[str]) -> bool:
    """Whether a path or a folder above it is among these."""
    while path not in hidden:
        path = path.rpartition("/")[0]
        if not path:
            return False
    return True
