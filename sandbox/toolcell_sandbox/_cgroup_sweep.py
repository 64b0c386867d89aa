"""Removes the groups that a supervisor left when it was killed, with whoever is still in them."""

from __future__ import annotations

import os
import time

from . import _cgroup_names as names
from ._cgroup_files import KERNEL, Files
from ._cgroup_group import kill_at_once, kill_one_by_one, removed
from ._cgroup_offer import CgroupOffer

SWEEP_S = 2.0
_PAUSE_S = 0.002


def sweep_groups(offer: CgroupOffer, *, files: Files = KERNEL) -> tuple[str, ...]:
    """Remove each group beside our own whose supervisor is known to be gone; return their paths.

    Waits for those whom it ends, `SWEEP_S` at most in all, so run it in a thread. Only groups
    with our own name and of our own user are looked into, and only who is in one is signalled.
    Never raises.
    """
    # v2 first: it ends at once whoever is in the groups of the other hierarchies as well.
    places = sorted(offer.places, key=lambda place: -place.version)
    left = [
        (place.version, os.path.join(place.folder, name))
        for place in places
        for name in files.names(place.folder)
        if (maker := names.maker(name)) is not None
        and maker.is_gone
        and files.owner(os.path.join(place.folder, name)) == os.geteuid()
    ]
    swept: list[str] = []
    deadline = time.monotonic() + SWEEP_S
    while left:
        for version, group in left:
            if removed(files, group):
                swept.append(group)
            elif version == 1 or not kill_at_once(files, group):
                kill_one_by_one(files, group)
        left = [each for each in left if each[1] not in swept]
        if left and time.monotonic() > deadline:
            break
        if left:
            time.sleep(_PAUSE_S)
    return tuple(swept)
