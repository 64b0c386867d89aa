"""Results of idempotent calls, given again to the same call while nothing was changed.

Asked only once a call is permitted: what is cached was allowed, and may not be by now.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import orjson
import trio

from toolcell_policies import AccessMode

if TYPE_CHECKING:
    from toolcell.planning import Planned
    from toolcell.results import ToolResult

ENTRIES_MAX: Final = 256
ENTRY_BYTES_MAX: Final = 1 << 20
"""Of one result, as JSON: a tool that returns 8 MiB each time is run each time."""
_READING: Final = frozenset({AccessMode.READONLY, AccessMode.NETWORK})


class ResultCache:
    """At most `ENTRIES_MAX` results, the least recently used dropped first; each for `life_s`.

    The key is the plan's hash, which names the tool's very definition, the arguments, the whole
    jail, the workspace and the policy; with whom the call is made for. What somebody outside
    changes in the workspace within that time is not seen: so it is off unless it was asked for.
    """

    def __init__(self, *, life_s: float, now: Callable[[], float] = trio.current_time) -> None:
        self._life_s = life_s
        self._now = now
        self._found: OrderedDict[tuple[object, ...], tuple[float, ToolResult]] = OrderedDict()
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often it was emptied: of a call that began before the last time nothing is kept."""
        return self._changes

    def get(self, plan: Planned, call_id: str) -> ToolResult | None:
        """The result of the same call before, as this one's; None where there is none to give."""
        key = self._key(plan)
        if key is None or key not in self._found:
            return None
        until, result = self._found[key]
        if self._now() >= until:
            del self._found[key]
            return None
        self._found.move_to_end(key)
        return dataclasses.replace(
            result,
            call_id=call_id,
            decision=plan.decision,
            metadata={**result.metadata, "cached_from": result.call_id},
        )

    def put(self, plan: Planned, result: ToolResult, *, since: int) -> None:
        """Keep a success of a call that only reads; anything that a call may have changed empties.

        `since` is what `changes` was before it ran: what it read is older than a later change.
        What was asked for while it ran was agreed to for that run alone, so it is not kept.
        """
        if result.metadata.get("answered_by") == "supervisor":
            return
        if result.effects is None or result.effects.paths or plan.facts.write_folders:
            self.forget()
            return
        key = self._key(plan)
        is_asked = "permissions" in result.metadata
        if key is None or not result.success or is_asked or since != self._changes:
            return
        if not _is_small(result):
            return
        self._found[key] = (self._now() + self._life_s, result)
        self._found.move_to_end(key)
        if len(self._found) > ENTRIES_MAX:
            self._found.popitem(last=False)

    def forget(self) -> None:
        """Drop everything: something was changed, or may have been."""
        self._changes += 1
        self._found.clear()

    def _key(self, plan: Planned) -> tuple[object, ...] | None:
        tool = plan.tool
        if not self._life_s or not tool.is_idempotent or tool.access_mode not in _READING:
            return None
        return plan.decision.plan_hash, plan.ask.context


def _is_small(result: ToolResult) -> bool:
    """Whether a result may wait in memory; what cannot be told is not kept."""
    try:
        told = orjson.dumps(
            [result.output, result.content, dict(result.metadata), list(result.parts)]
        )
    except (TypeError, ValueError):
        return False
    return len(told) <= ENTRY_BYTES_MAX
