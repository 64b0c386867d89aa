"""What is known of an upper layer beforehand: whose it is, and when it was mounted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

# include/uapi/linux/time.h; Python has no name for it.
_CLOCK_REALTIME_COARSE = 5
_APART_NS = 50_000
"""Two clocks count as read at once when both reads around them are no further apart."""


def _offset_ns() -> int:
    """How far the wall clock is ahead of the clock that nobody sets (clock_gettime(2))."""
    tries = []
    for _ in range(20):
        first_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        apart_ns = abs(time.clock_gettime_ns(time.CLOCK_REALTIME) - first_ns)
        tries.append((apart_ns, first_ns - boot_ns))
        if apart_ns < _APART_NS:
            break
    return min(tries)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The moment when an overlay was mounted, by the clock that file systems stamp with.

    Take it before the mount. `realtime_ns` is CLOCK_REALTIME_COARSE: a stamp that is made later
    is never smaller, unless the wall clock is set; `boottime_ns` is the same moment by
    CLOCK_BOOTTIME, which cannot be set, so that a step of the wall clock is seen.
    """

    realtime_ns: int
    boottime_ns: int

    @classmethod
    def now(cls) -> Self:
        """This moment."""
        realtime_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        return cls(realtime_ns=realtime_ns, boottime_ns=realtime_ns - _offset_ns())

    def threshold_ns(self) -> int:
        """What is stamped at or after this may be younger than the mount.

        Earlier than the mount by as much as the wall clock has been set back since. A clock that
        is set back and forth again between two calls of this is not seen.
        """
        stepped_back_ns = self.realtime_ns - self.boottime_ns - _offset_ns()
        return self.realtime_ns - max(0, stepped_back_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The upper folder of a jail whose processes have all ended."""

    fd: int
    """A descriptor of the folder; it stays good when the jail's mounts are gone."""
    uids: Mapping[int, int]
    """The user id that stat(2) of the layer says, to the one that goes to disk."""
    gids: Mapping[int, int]
    owner: tuple[int, int]
    """User and group id on disk for any other."""
    marker: Marker
    groups: frozenset[int] | None = None
    """Where the jail had no ids but the supervisor's own: the groups that it may give a file. A
    changed name keeps the group that it had, where that is one of them. None where ids tell."""
    masks: frozenset[str]
    """The names that the mask layer hid, as paths from the workspace."""


class TooMany(Exception):
    """There are more names to be looked at than are allowed; how many are, it says."""

    def __init__(self, entries_max: int) -> None:
        super().__init__(
            f"the call's change set has more than {entries_max} names to be looked at, "
            "with all that lies below the folders it removed"
        )
        self.entries_max = entries_max
