"""The limits of one group, as data: which file holds what, in which order, and what may miss."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._cgroup_files import Files, Mounted, Version, number, upwards

INIT_MEMORY_BYTES = 8 << 20
"""What a jail's init, a small Python process that lives in the group too, may use on top."""
INIT_PROCESSES = 1
CPU_PERIOD_US = 100_000
CPU_SHARE = 0.95
_QUOTA_MIN_US = 1_000
"""The kernel takes no less (sched-bwc.rst)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One file to be written. An optional one is left out where the kernel does not have it."""

    file: str
    text: str
    optional: bool = False
    instead: Setting | None = None
    """Written where an optional one could not be."""


Limits = Mapping[str, Mapping[Version, tuple[Setting, ...]]]


def limits_of(memory_bytes: int, processes: int, cpus: float) -> Limits:
    """The settings that hold a group to this, by controller and version.

    Swap is none: else a limit on memory only moves the harm to the disk. On v1 the two limits
    are written in this order, since that of memory and swap together may never be below that
    of memory alone (cgroup-v1/memory.rst, EINVAL); a kernel that does not account swap has no
    such file, and is asked not to swap the group at all.

    The group is ended as a whole when it runs out of memory on v2 (memory.oom.group), so that
    no half of a tool goes on; v1 has no such thing.

    CPU time: all CPUs that the supervisor may use, but for a twentieth. A spinning tree is
    stopped for the last 5 ms of each 100 ms on every CPU, so however many threads it has, the
    supervisor's deadline is looked at within a period; one call alone still gets 95 % of the
    machine. Several calls share by equal weight, as groups do by default. A shorter period
    would cost more switches than it gains.
    """
    quota = str(max(_QUOTA_MIN_US, int(cpus * CPU_SHARE * CPU_PERIOD_US)))
    size = str(memory_bytes)
    pids = (Setting("pids.max", str(processes)),)
    return {
        "memory": {
            2: (
                Setting("memory.max", size),
                Setting("memory.swap.max", "0", optional=True),
                Setting("memory.oom.group", "1", optional=True),
            ),
            1: (
                Setting("memory.limit_in_bytes", size),
                Setting(
                    "memory.memsw.limit_in_bytes",
                    size,
                    optional=True,
                    instead=Setting("memory.swappiness", "0", optional=True),
                ),
                # Inherited, and when it is on the tree hangs at its limit instead of ending.
                Setting("memory.oom_control", "0", optional=True),
            ),
        },
        "pids": {2: pids, 1: pids},
        "cpu": {
            2: (Setting("cpu.max", f"{quota} {CPU_PERIOD_US}"),),
            1: (
                Setting("cpu.cfs_period_us", str(CPU_PERIOD_US)),
                Setting("cpu.cfs_quota_us", quota),
            ),
        },
    }


def set_limits(files: Files, version: Version, group: str, limits: Limits) -> None:
    """Write every setting of these controllers.

    Raises:
        OSError: one that is not optional was refused.
    """
    for by_version in limits.values():
        for setting in by_version[version]:
            _write(files, group, setting)


def _write(files: Files, group: str, setting: Setting) -> None:
    try:
        files.write(f"{group}/{setting.file}", setting.text)
    except OSError:
        if not setting.optional:
            raise
        if setting.instead is not None:
            _write(files, group, setting.instead)


def cpus_to_share(files: Files, mounts: Sequence[Mounted], own: Mapping[str, str]) -> float:
    """The CPUs that this process may use, by its affinity and by every quota above it.

    v1 refuses a group more than the one above it has; v2 takes it, and it would mean nothing.
    """
    least = float(len(os.sched_getaffinity(0)))
    for mount in mounts:
        if mount.version == 1 and "cpu" not in mount.controllers:
            continue
        folder = mount.folder(own.get("" if mount.version == 2 else "cpu"))
        for group in () if folder is None else upwards(folder, mount.point):
            quota, period = _quota(files, mount.version, group)
            if quota is not None and period and quota > 0:
                least = min(least, quota / period)
    return least


def _quota(files: Files, version: Version, group: str) -> tuple[int | None, int | None]:
    if version == 2:
        quota, _, period = (files.read(f"{group}/cpu.max") or "").partition(" ")
        return number(quota), number(period)
    return (
        number(files.read(f"{group}/cpu.cfs_quota_us")),
        number(files.read(f"{group}/cpu.cfs_period_us")),
    )
