"""A parked change set, shown to a person and kept by their word: judged anew, against the floor."""

from __future__ import annotations

import contextlib
import dataclasses
import os

import trio

from toolcell._concluded import Told, conflict, effects_of, not_committed, told, without
from toolcell._effect_facts import gather, top_entries
from toolcell._parked import Parked, Parking
from toolcell._protected import Protected
from toolcell._review import Shown, shown
from toolcell.planning import effect_ground
from toolcell.results import Effects, Failure
from toolcell_policies import judge_effects
from toolcell_sandbox._child.syscalls import open_exactly
from toolcell_sandbox.commit import Leftover, commit


async def show_parked(parking: Parking, parked: Parked) -> Shown:
    """What a parked change set is, for a person.

    Raises:
        NotParked: its contents are not what was judged.
        OSError: its workspace is gone.
    """
    with parking.opened(parked) as layer_fd, contextlib.ExitStack() as held:
        place = open_exactly(parked.place.workspace)
        held.callback(os.close, place)
        return await shown(parked.changes, layer_fd=layer_fd, workspace_fd=place)


async def commit_parked(parking: Parking, handle: str) -> Effects | Failure:
    """Keep what is parked, but for what nobody may write: a person has asked for the rest.

    Raises:
        NotParked: there is no such handle, or its contents are not what was judged.
    """
    parked = parking.get(handle)
    with parking.opened(parked) as layer_fd:
        done = await trio.to_thread.run_sync(_commit, parked, layer_fd)
    if isinstance(done, Effects):
        await trio.to_thread.run_sync(parking.drop, handle)
    return done


def _commit(parked: Parked, layer_fd: int) -> Effects | Failure:
    place, changes = parked.place, parked.changes
    try:
        left_out = _left_out(parked, layer_fd)
    except FileNotFoundError:
        return conflict((".",))
    kept = dataclasses.replace(without(changes, left_out), problems=())
    if kept.conflicts:
        return conflict(kept.conflicts)
    ending = commit(kept, layer_fd, place)
    if ending is None or isinstance(ending, Leftover):
        return effects_of(kept, left_out)
    return not_committed(ending)


def _left_out(parked: Parked, layer_fd: int) -> tuple[Told, ...]:
    """What stays out of it, whoever asks."""
    place, changes = parked.place, parked.changes
    protected = Protected.here(place.state_dir, place.workspace)
    with contextlib.ExitStack() as held:
        top = open_exactly(place.workspace)
        held.callback(os.close, top)
        workspace_fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
        held.callback(os.close, workspace_fd)
        effects = gather(
            changes,
            layer_fd=layer_fd,
            workspace_fd=workspace_fd,
            workspace=place.workspace,
        )
        ground = effect_ground(protected, place.workspace, top_entries(workspace_fd))
    verdict = judge_effects(effects, ground)
    return (
        *(told(one.path, one.code, one.text) for one in changes.problems),
        *(told(one.path, one.reason.code, one.reason.text) for one in verdict.refused if one.path),
        *(told(path, code, "it is hidden from every call") for path, code in verdict.dropped),
    )
