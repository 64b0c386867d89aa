"""`Catalogue`: what can be asked of a registry as of a snapshot: which tools to show.

Shown is what is switched on, not deferred, available now, and not hidden by whoever took the
snapshot. To be shown is no permission: every call is decided on by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from toolcell._selection import Request, select
from toolcell._tool_search import facets_of, first, ranked
from toolcell.tools import Tool
from toolcell_policies.phases import phase_admits_tool
from toolcell_policies.vocabulary import CostTier, SchemaLevel

if TYPE_CHECKING:
    from toolcell._snapshot import Snapshot
    from toolcell.dialects import Dialect


class Found(TypedDict):
    """What a search says of one tool."""

    name: str
    description: str


class Catalogue(ABC):
    """The questions. `only_enabled=False` asks about what is switched off as well."""

    __slots__ = ()

    @abstractmethod
    def _seen(self) -> Snapshot:
        """The tools that are asked about."""

    def get_tool_schemas(
        self,
        only_enabled: bool = True,
        level: SchemaLevel | str = SchemaLevel.FULL,
        dialect: Dialect = "json-schema",
    ) -> list[dict[str, Any]]:
        """What a model is told of each tool that is shown, in the order of registration; copies.

        `dialect` is "json-schema" (`{"name", "description", "input_schema"}`), "mcp", "openai" or
        "anthropic". Deferred and unavailable tools are not among them, and neither is one whose
        schema the dialect cannot say: a warning in the log names it, `dialects.lint` tells why.

        Raises:
            ValueError: there is no such level or dialect.
        """
        from toolcell.dialects import sayable

        now = self._seen()
        offered = _offered(now, lambda tool: not only_enabled or tool.name not in now.disabled)
        return sayable(offered, level, dialect)

    def get_tools_by_cost(
        self, max_tier: CostTier | str = CostTier.HIGH, only_enabled: bool = True
    ) -> list[Tool]:
        """The tools that are no dearer than that, in the order of registration.

        Raises:
            ValueError: there is no such tier.
        """
        ceiling = CostTier(max_tier).weight
        tools = self._seen().list_tools(only_enabled)
        return [tool for tool in tools if facets_of(tool).cost <= ceiling]

    def get_cost_summary(self, only_enabled: bool = True) -> dict[str, list[str]]:
        """The names of the tools by tier: "free", "low", "medium" and "high", empty ones too."""
        summary: dict[str, list[str]] = {tier.value: [] for tier in CostTier}
        for tool in self._seen().list_tools(only_enabled):
            summary[tool.cost_tier.value].append(tool.name)
        return summary

    def active_for_phase(self, phase: str | None) -> list[Tool]:
        """The tools to show in a phase, whatever the task; an unknown phase has none.

        By `phase_admits_tool`, which also decides whether a call is admitted.
        """
        return self.admitted_for(phase, None)

    def admitted_for(self, phase: str | None, task_kind: str | None) -> list[Tool]:
        """The tools to show in a phase of a task of this kind; unknown words have none.

        By `phase_admits_tool`, which also decides whether a call is admitted.
        """
        now = self._seen()
        return list(
            _offered(
                now,
                lambda tool: (
                    tool.name not in now.disabled and phase_admits_tool(phase, task_kind, tool)
                ),
            )
        )

    def search_tools(self, text: str, limit: int = 10) -> list[Tool]:
        """The tools that words lead to, deferred ones too, best first; see `ranked`.

        An exact name or alias comes first, then words of names, of keywords, of descriptions;
        equals by name. What is off, unavailable or hidden is not found.

        Raises:
            ValueError: the limit is negative.
        """
        now = self._seen()
        return list(first(ranked(now.list_tools(), text), limit, now.is_visible))

    def select_tools(
        self,
        text: str,
        *,
        stage: str | None = None,
        task_type: str | None = None,
        max_cost: CostTier | str | None = None,
        limit: int | None = None,
    ) -> list[Tool]:
        """The tools to show for one request, best first; the same for the same request.

        Chosen from what is shown and no dearer than `max_cost`, which nothing gets past. A tool
        of priority critical, and one with a mandatory keyword in the text, is always chosen and
        stands first, beyond `limit` too; a contextual one only where its stage, task type or a
        keyword matches. The rest rank by how well those match, equals by cost, then priority,
        then likeness of the name, then registration. Words count as a whole.

        Raises:
            ValueError: there is no such tier, or the limit is negative.
        """
        now = self._seen()
        return select(
            (tool for tool in now.list_tools() if tool.name not in now.deferred),
            Request(text, stage, task_type),
            max_cost=None if max_cost is None else CostTier(max_cost),
            limit=limit,
            is_visible=now.is_visible,
        )


def search_deferred(snapshot: Snapshot, text: str, limit: int = 10) -> list[Found]:
    """The deferred tools that words lead to, best first, as a model is told of them.

    Raises:
        ValueError: the limit is negative.
    """
    deferred = [tool for tool in snapshot.list_tools() if tool.name in snapshot.deferred]
    found = first(ranked(deferred, text), limit, snapshot.is_visible)
    return [Found(name=tool.name, description=tool.description) for tool in found]


def _offered(now: Snapshot, is_wanted: Callable[[Tool], bool]) -> Iterator[Tool]:
    """Of the wanted tools, those to show. Whether a tool is available is asked last."""
    for tool in now.tools.values():
        if tool.name not in now.deferred and is_wanted(tool) and now.is_visible(tool):
            yield tool
