"""What the jails of a plan see of the host, as something that can be compared with itself later.

A jail that waits was built earlier; it is handed out only if what it sees is what one that is built
now would see. This is asked for each call, so what costs much is looked at only when something near
it has changed (`_child/places.py`).
"""

from __future__ import annotations

import os
import time

from . import _zygotes, host
from ._child import ids, mountinfo, places, syscalls
from .plan import Plan

OWNERS_S = 1.0
"""How long the owners in a folder stay believed in that has not changed: a file there may have been
given to somebody else. A call that comes before it is noticed cannot change that file."""


class Sight:
    """What the jails of one plan see."""

    def __init__(self, plan: Plan, mounts: mountinfo.Around) -> None:
        self._plan = plan
        self._mounts = mounts
        # Beside what the plan says of its own: nothing of this may be another, or be covered.
        seen = [path for path, _ in plan.seen]
        self._shown = (*host.SYSTEM_FOLDERS, *seen)
        self._places = places.Places(seen)
        self._owned = [
            _Owners(entry["path"])
            for entry in plan.told["mounts"]
            if entry["owned"] and not entry["shared"] and os.geteuid() == 0
        ]

    def look(self) -> object:
        """Which folders, whose, and mounts: equal to an earlier one if a new jail sees that too."""
        return (
            self._places.look(),
            tuple(owners.look() for owners in self._owned),
            self._mounts.look(self._plan.key, self._shown),
            _zygotes.namespaces(),
            _system.look(),
        )


class _Owners:
    """Whose what lies in a folder is: a jail maps these ids, as they were when it was made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._until_s = 0.0
        self._seen: object = None

    def look(self) -> object:
        """The uids and gids in it."""
        stamp, now_s = places.stamp(self._path), time.monotonic()
        if stamp != self._stamp or now_s >= self._until_s:
            now_ns = time.time_ns()
            self._seen = _owners(self._path)
            self._stamp = stamp if places.is_old(stamp, now_ns) else None
            self._until_s = now_s + OWNERS_S
        return self._seen


_system = places.Places(host.SYSTEM_FOLDERS)


def _owners(path: str) -> object:
    try:
        fd = syscalls.open_exactly(path)
    except OSError:
        return None
    try:
        return ids.owners_of(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
