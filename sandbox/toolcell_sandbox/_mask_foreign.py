"""Which paths belong to another user or group: what a jail of ours could not change in place."""

from __future__ import annotations

import os
from typing import Final

from . import _mask_open
from ._beneath import GONE, PATH_FLAGS

KEPT: Final = 1_000


class Foreign:
    """Some of the paths whose (uid, gid) is another. A change of owner makes no event that we
    listen to, so what is told is looked at again each time."""

    def __init__(self, ids: tuple[int, int] | None) -> None:
        self.ids = ids
        self._paths: dict[str, None] = {}
        self._has_more = False

    def note(self, path: str, found: os.stat_result | None) -> None:
        """What was found at a path; None where it is not ours to see."""
        if self.ids is None or (found is not None and (found.st_uid, found.st_gid) == self.ids):
            return
        if len(self._paths) < KEPT:
            self._paths[path] = None
        else:
            self._has_more = True

    def first(self, top: int) -> str | None:
        """One that still is; "." is the top, which `top` is open on."""
        while self._paths:
            path = next(iter(self._paths))
            if self._is_still(top, path):
                return path
            del self._paths[path]
        return None

    def needs_walk(self) -> bool:
        """Whether there were more than are remembered, and all of these are put right."""
        return self._has_more and not self._paths

    def _is_still(self, top: int, path: str) -> bool:
        try:
            fd = _mask_open.open_below(top, path, PATH_FLAGS)
        except OSError as error:
            return error.errno not in GONE
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return (found.st_uid, found.st_gid) != self.ids
