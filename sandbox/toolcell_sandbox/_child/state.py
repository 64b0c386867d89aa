"""One page that the worker shares with its init: how far the handler came, what it ran into.

The worker writes it and may lie: it words a message, it never decides an ending by itself.
"""

from __future__ import annotations

import mmap

STAGES = ("start", "import", "decode", "run", "encode", "flush", "done")
FENCED = 1
PROCESSES = 2


class State:
    """Shared memory of two bytes, made before the fork that shares it."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    @property
    def stage(self) -> str:
        """The last stage that was entered."""
        place = self._page[0]
        return STAGES[place] if place < len(STAGES) else "unknown"

    def enter(self, stage: str) -> None:
        """Say that the handler has come to `stage`."""
        self._page[0] = STAGES.index(stage)

    def note(self, flag: int) -> None:
        """Say that a limit was met: FENCED or PROCESSES."""
        self._page[1] |= flag

    def has(self, flag: int) -> bool:
        """Whether that was said."""
        return bool(self._page[1] & flag)
