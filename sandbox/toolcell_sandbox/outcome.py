"""What one jail came to: the handler's value or a failure, with what it used and what held."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ._channel import ChannelUse
from ._spool import Spooled
from .capture import Captured
from .failures import FailureBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Which guarantees held for this call, each with its mechanism.

    `isolation` is the level, or "partial" where something that it demands was neither held nor
    waived by name, or where no jail was built. `waived` is what was given up by name.
    """

    isolation: str = "partial"
    held: Mapping[str, str] = field(default_factory=dict)
    waived: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """`{"isolation","held","waived"}`."""
        return {
            "isolation": self.isolation,
            "held": dict(self.held),
            "waived": list(self.waived),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the call used. `cpu_s` is the tree's, from wait4(2) and the watch, the larger.

    `peak_memory_bytes` is the largest figure that anybody saw, `memory_from` who: "watch" is
    the tree's sampled sum, "ru_maxrss" its largest single process at the reap (getrusage(2)),
    "cgroup" the kernel's own figure for the tree.
    """

    wall_s: float
    cpu_s: float | None
    peak_memory_bytes: int | None
    memory_from: Literal["watch", "ru_maxrss", "cgroup"] | None

    def to_json(self) -> dict[str, Any]:
        """`{"wall_s","cpu_s","peak_memory_bytes","memory_from"}`."""
        return {
            "wall_s": round(self.wall_s, 6),
            "cpu_s": None if self.cpu_s is None else round(self.cpu_s, 6),
            "peak_memory_bytes": self.peak_memory_bytes,
            "memory_from": self.memory_from,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a call came how far, in seconds since it was made; None for what it never reached.

    `confined_s`: its process had given up all that it must not have. `result_s`: the whole result
    was read. `ended_s`: the process tree was proven empty. `was_waiting` tells whether its jail
    had been made ahead.
    """

    confined_s: float | None = None
    result_s: float | None = None
    ended_s: float | None = None
    was_waiting: bool = False


@dataclass(slots=True, kw_only=True)
class Upper:
    """The layer that a jail wrote its workspace's changes into: a descriptor of its folder.

    The file system is gone once it is closed; whoever was handed it closes it. `uids` and `gids`
    map what stat(2) says there to the ids on disk that the jail's stand for; any other id is the
    workspace owner's, `owner`. None where the jail had no ids but the supervisor's own.
    """

    fd: int
    mounted_ns: tuple[int, int]
    """When the jail's first process could look at the workspace: the clock that file systems
    stamp with (CLOCK_REALTIME_COARSE), and the same moment by CLOCK_BOOTTIME."""
    owner: tuple[int, int] | None = None
    uids: Mapping[int, int] = field(default_factory=dict)
    gids: Mapping[int, int] = field(default_factory=dict)

    def close(self) -> None:
        """Let go of it; harmless when that was done already."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class JailOutcome:
    """The end of one call: `failure` is None when the handler returned or the command ran.

    The whole process tree is gone before this exists. `value` is the handler's, `exit_code` the
    command's. `unconfirmed` is a result that was sent by a process that then did not exit 0.
    `spooled` is a result that nobody has looked at, in place of `value`: whoever gets the outcome
    closes it, and holds the call to be unfinished until it was checked.
    """

    failure: FailureBase | None
    value: Any = None
    exit_code: int | None = None
    exec_errno: int | None = None
    stdout: Captured
    stderr: Captured
    usage: Usage
    receipt: Receipt
    timing: Timing = field(default_factory=Timing)
    unconfirmed: Any = None
    channel: ChannelUse | None = None
    """What came over the handler's channel, where it had one."""
    spooled: Spooled | None = None
