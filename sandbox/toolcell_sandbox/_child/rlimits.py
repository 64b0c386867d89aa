"""Resource limits of a worker (getrlimit(2)), and the address-space fence of Python handlers."""

from __future__ import annotations

import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FENCE_SLACK_BYTES = 256 << 20
"""Address space is not memory: thread stacks and allocators reserve what they never touch."""


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, never above the hard one that is in force."""
    _, ceiling = resource.getrlimit(which)
    wanted = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, wanted = min(soft, ceiling), min(wanted, ceiling)
    resource.setrlimit(which, (soft, wanted))


def apply(limits: dict[str, Any], *, extra_processes: int) -> None:
    """Limit this process and what it starts. `extra_processes` are ours and share its uid."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_MEMLOCK, 64 << 10)
    _lower(resource.RLIMIT_NOFILE, limits["open_files"])
    _lower(resource.RLIMIT_FSIZE, limits["file_size_bytes"])
    _lower(resource.RLIMIT_NPROC, limits["processes"] + extra_processes)
    if limits["cpu_s"] is not None:
        # Behind the watch, which is exact: the kernel counts this one by clock ticks, and on a
        # busy machine a process pays for whole ticks of which it had a part.
        _lower(resource.RLIMIT_CPU, 2 * max(1, -int(-limits["cpu_s"] // 1)) + 5)


def raise_oom_score(wanted: int) -> None:
    """Be ended sooner when memory is short (proc_pid_oom_score_adj(5)); never later than now.

    In a jail of ours it is at its highest already, and cannot be written.
    """
    fd = os.open("/proc/self/oom_score_adj", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if int(os.read(fd, 16)) >= wanted:
            return
    finally:
        os.close(fd)
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(wanted).encode())
    finally:
        os.close(fd)


def mapped_bytes() -> int:
    """The address space of this process (proc_pid_statm(5))."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 128).split()[0]) * os.sysconf("SC_PAGESIZE")
    finally:
        os.close(fd)


def raise_fence(memory_bytes: int, mapped: int) -> int | None:
    """Limit this interpreter's own address space; returns the soft limit, None if it has none.

    Soft, so that `lift_fence` can restore it for what the handler spawns: node reserves tens of
    gigabytes that it never touches. Generous: twice the memory limit on top of what is mapped.
    """
    soft = mapped + 2 * memory_bytes + FENCE_SLACK_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY and soft >= hard:
        return None
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return soft


def lift_fence() -> None:
    """Restore the soft address-space limit to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
