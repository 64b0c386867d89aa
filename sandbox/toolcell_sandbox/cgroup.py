"""One control group per jail, made outside of it: the limits that the kernel itself holds.

    found = cgroup.offered()                    once per process; sweeps after a crash
    with cgroup.make(found, memory_bytes=..., processes=...) as group:
        ...                                     the init enters each of group.places
        group.sample()                          what it used, and what was refused
        await group.remove()

The parts: `_cgroup_offer` looks at the host, `_cgroup_limits` says which file holds what,
`_cgroup_group` is one jail's group, `_cgroup_scope` one that a service manager makes,
`_cgroup_sweep` removes what a killed supervisor left.
"""

from __future__ import annotations

import os
import threading

from ._cgroup_files import CONTROLLERS, KERNEL, Files, Place
from ._cgroup_group import Group, NotMade, make_group
from ._cgroup_limits import INIT_MEMORY_BYTES, INIT_PROCESSES
from ._cgroup_offer import CgroupOffer, offer
from ._cgroup_scope import Scope
from ._cgroup_sweep import sweep_groups

__all__ = [
    "CONTROLLERS",
    "INIT_MEMORY_BYTES",
    "INIT_PROCESSES",
    "KERNEL",
    "CgroupOffer",
    "Files",
    "Group",
    "NotMade",
    "Place",
    "Scope",
    "forget",
    "make",
    "offer",
    "offered",
    "sweep",
]

_lock = threading.Lock()
# By pid, so that a forked child looks for itself.
_offered: dict[int, CgroupOffer] = {}


def offered() -> CgroupOffer:
    """What this host offers to this process, as it was at first use; that one sweeps as well.

    Blocks for a millisecond or two, or for up to two seconds where a supervisor was killed and
    processes have to be ended: call it first in a thread.
    """
    with _lock:
        pid = os.getpid()
        if pid not in _offered:
            _offered.clear()
            _offered[pid] = offer()
            sweep_groups(_offered[pid])
        return _offered[pid]


def forget() -> None:
    """Look again next time: a group that was given to this process may have been taken away."""
    with _lock:
        _offered.clear()


def sweep() -> tuple[str, ...]:
    """Remove the groups of supervisors that are gone, and name them. See `sweep_groups`."""
    return sweep_groups(offered())


def make(offer: CgroupOffer, *, memory_bytes: int, processes: int, files: Files = KERNEL) -> Group:
    """A group with these limits and nobody in it, in each hierarchy that the offer names.

    The init's own share comes on top of both. Of what is not offered nothing is limited: with
    an empty offer the group is one that has no files and knows no figures.

    Raises:
        NotMade: the kernel refused a group or a limit; nothing is left of it.
    """
    if offer.bus is not None:
        return Scope(
            offer.bus,
            memory_bytes=memory_bytes,
            processes=processes,
            cpus=offer.cpus,
            files=files,
        )
    return make_group(offer, memory_bytes=memory_bytes, processes=processes, files=files)
