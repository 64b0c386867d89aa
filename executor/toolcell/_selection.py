"""Choosing the tools for one request: the same request chooses the same tools in the same order.

A table of points, no model and no chance. What a tool says of itself decides how it ranks, and
never that it is there: what is off, deferred, unavailable or too dear is left out before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from toolcell._tool_search import Facets, Text, facets_of, first, popped
from toolcell.tools import Tool
from toolcell_policies.vocabulary import CostTier, Priority

POINTS: Final = {"stage": 4, "task_type": 4, "keyword": 2}
KEYWORDS_MAX: Final = 5
"""Keywords that count: who writes more of them is no better a match."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be done, as far as it is known."""

    text: str
    stage: str | None = None
    task_type: str | None = None


def select(
    tools: Iterable[Tool],
    request: Request,
    *,
    max_cost: CostTier | None,
    limit: int | None,
    is_visible: Callable[[Tool], bool],
) -> list[Tool]:
    """The tools to offer, best first; what each rule is, `Catalogue.select_tools` says.

    Raises:
        ValueError: the limit is negative.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit is a number of tools, not {limit}")
    asked = _Asked(request)
    ceiling = float("inf") if max_cost is None else max_cost.weight
    pinned: list[tuple[Any, ...]] = []
    rest: list[tuple[Any, ...]] = []
    for place, tool in enumerate(tools):
        facets, priority = facets_of(tool), tool.priority
        if facets.cost > ceiling:
            continue
        points = asked.points(facets)
        key = (-points, facets.cost, priority, -asked.likeness(facets), place, tool)
        if priority is Priority.CRITICAL or asked.forces(facets):
            pinned.append(key)
        elif points or priority is not Priority.CONTEXTUAL:
            rest.append(key)
    chosen = [tool for tool in popped(pinned) if is_visible(tool)]
    left = len(rest) if limit is None else max(limit - len(chosen), 0)
    return [*chosen, *first(popped(rest), left, is_visible)]


class _Asked:
    """A request taken apart once."""

    def __init__(self, request: Request) -> None:
        self._text = Text(request.text)
        self._stage = None if request.stage is None else request.stage.casefold()
        self._task_type = None if request.task_type is None else request.task_type.casefold()

    def points(self, facets: Facets) -> int:
        """How well the tool matches: by its stages, task types and keywords."""
        keywords = facets.phrases.count_in(self._text)
        points = POINTS["keyword"] * min(keywords, KEYWORDS_MAX) if keywords else 0
        if self._stage in facets.stages:
            points += POINTS["stage"]
        if self._task_type in facets.task_types:
            points += POINTS["task_type"]
        return points

    def likeness(self, facets: Facets) -> int:
        """How many words of its name the text has: decides between equals."""
        return len(self._text.words & facets.name)

    def forces(self, facets: Facets) -> bool:
        """Whether the text has a word that must bring this tool."""
        return facets.mandatory.count_in(self._text) > 0
