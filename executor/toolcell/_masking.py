"""What calls may not see in the folders that they are given: looked up, then watched."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio

from toolcell._concluded import quoted
from toolcell._masked_names import MaskedNames
from toolcell._protected import Protected
from toolcell.results import ConfinementFailed
from toolcell_sandbox.endings import unconfined
from toolcell_sandbox.mask_index import Doubt, MaskIndex, Masks, NotIndexed
from toolcell_sandbox.spec import JailSpec

SKIPPED_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """What one call cannot see: `masks` for its spec, and the watch over what comes to it."""

    masks: Mapping[str, tuple[str, ...]]
    watched: tuple[tuple[MaskIndex, Masks], ...] = ()

    async def alarm(self) -> Mapping[str, Any]:
        """Returns, with the facts of a broken promise, when a name appears that it could see."""
        seen: list[str] = []
        async with trio.open_nursery() as nursery:

            async def watch(index: MaskIndex, masks: Masks) -> None:
                seen.append(await index.changed(masks))
                nursery.cancel_scope.cancel()

            for index, masks in self.watched:
                nursery.start_soon(watch, index, masks)
        return _broken(seen[0])

    async def broken(self) -> ConfinementFailed | None:
        """Whether such a name came while it ran, also where the run was over before the alarm."""
        for index, masks in self.watched:
            news = await index.news(masks)
            if news is not None:
                return unconfined({**_broken(news), "stage": "run"}, "Nothing was kept")
        return None

    def notes(self) -> dict[str, str]:
        """What a receipt adds to a guarantee: what was not looked into, what is another's."""
        found: dict[str, str] = {}
        skipped = [path for _, masks in self.watched for path in masks.skipped]
        count = sum(masks.skipped_count for _, masks in self.watched)
        if skipped:
            named = ", ".join(map(quoted, skipped[:SKIPPED_SHOWN]))
            more = f" and {count - SKIPPED_SHOWN} more" if count > SKIPPED_SHOWN else ""
            found["paths_masked"] = f"not looked into: {named}{more}"
        foreign = next((masks.foreign for _, masks in self.watched if masks.foreign), None)
        if foreign is not None:
            found["writes_transactional"] = (
                f"files of another owner or group, such as {quoted(foreign)}, can be replaced and "
                "not changed in place (chgrp -R to your own group, or run as root)"
            )
        return found


class Masking:
    """The mask indexes of one executor, one for each folder that its calls are shown."""

    def __init__(self, protected: Protected) -> None:
        self._protected = protected
        self._indexes: dict[str, MaskIndex] = {}

    async def hidden(self, spec: JailSpec) -> Hidden | ConfinementFailed:
        """What is to be masked for a jail now; or why that cannot be told, so that none may run."""
        if "paths_masked" in spec.waive or spec.isolation == "container":
            return Hidden(masks={})
        masks: dict[str, tuple[str, ...]] = {}
        watched: list[tuple[MaskIndex, Masks]] = []
        for top, identity in _layered(spec):
            try:
                index = await self._index(top, identity)
                found = await index.current()
            except NotIndexed as error:
                return _unmasked(error, top, identity)
            masks[top] = found.paths
            watched.append((index, found))
        return Hidden(masks=masks, watched=tuple(watched))

    async def names(self, top: str, identity: tuple[int, int]) -> tuple[str, ...]:
        """What of a folder is hidden now.

        Raises:
            NotIndexed: that cannot be told.
        """
        return (await (await self._index(top, identity)).current()).paths

    async def _index(self, top: str, identity: tuple[int, int]) -> MaskIndex:
        if top not in self._indexes:
            judge = await trio.to_thread.run_sync(MaskedNames, top, self._protected)
            own = None if os.geteuid() == 0 else (os.geteuid(), os.getegid())
            if top not in self._indexes:
                self._indexes[top] = MaskIndex(top, identity, judge, foreign_ids=own)
        return self._indexes[top]

    def close(self) -> None:
        """Let go of what watches."""
        for index in self._indexes.values():
            index.close()
        self._indexes.clear()


def _broken(seen: str) -> dict[str, str]:
    cause = f"{quoted(seen)} appeared in the folder while the call ran"
    if isinstance(seen, Doubt):
        cause = f"while the call ran, it was not known any more what it could see: {seen}"
    return {"guarantee": "paths_masked", "cause": cause}


def _layered(spec: JailSpec) -> Iterator[tuple[str, tuple[int, int]]]:
    """The folders that a jail sees through an overlay, each with its identity."""
    if spec.workspace is not None and spec.workspace_mode in ("transaction", "read_only"):
        assert spec.workspace_identity is not None
        yield spec.workspace, spec.workspace_identity
    for mount in spec.mounts:
        if mount.layered and mount.identity is not None:
            yield mount.path, mount.identity


def _unmasked(error: NotIndexed, top: str, identity: tuple[int, int]) -> ConfinementFailed:
    """Why a folder could not be looked through; or that it is another one by now."""
    facts = {"guarantee": "paths_masked", "stage": "mask index", "cause": error.cause}
    fix: str | None = f"{error.fix}; or accept it by name: --waive paths_masked"
    try:
        found = os.stat(top, follow_symlinks=False)
        is_same = (found.st_dev, found.st_ino) == identity
    except OSError:
        is_same = False
    if not is_same:
        cause = f"{quoted(top)} is not the folder that it was when the executor started"
        facts, fix = {"guarantee": "fs_confined", "stage": "workspace", "cause": cause}, None
    what = "The call did not run, since what it may not see could not be told"
    return unconfined(facts, what, fix=fix)
