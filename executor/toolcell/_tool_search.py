"""Finding tools by words: what is not advertised has to be found.

The same text finds the same tools in the same order on every machine: whole words, counted.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from toolcell.tools import Tool

QUERY_MAX_CHARS: Final = 2_000
PROSE_MAX_CHARS: Final = 4_000
"""How much of a query, and of a description, is looked at: both may be anybody's."""

_NOTHING: Final = """
a an and any as at be by can do for from how i if in into is it me my of on or please that the
then this to use what which with you
"""
_COMMON: Final = frozenset(_NOTHING.split())
"""Words that say nothing about a tool."""

_WORD = re.compile(r"[^\W_]+")
_INNER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SINGULAR_MIN_CHARS: Final = 4


RUN_MAX_WORDS: Final = 4

_EXACT: Final = 1 << 60
_IN_NAME: Final = 1 << 40
_IN_KEYWORDS: Final = 1 << 20
_IN_PROSE: Final = 1
"""What each word of a query adds: it has too few words for one kind to reach the next."""


class Text:
    """A text taken apart once, to find phrases in: all its runs of a few words, as a set."""

    __slots__ = ("runs", "whole", "words")

    def __init__(self, text: str) -> None:
        words = _WORD.findall(text.casefold())
        self.words = frozenset(words)
        self.whole = f" {' '.join(words)} "
        runs = set(words)
        for length in range(2, RUN_MAX_WORDS + 1):
            parts = (words[skipped:] for skipped in range(length))
            runs.update(map(" ".join, zip(*parts, strict=False)))
        self.runs = frozenset(runs)


@dataclass(frozen=True, slots=True)
class Phrases:
    """Words and runs of words, to be found whole in a text: "git" is not in "digital"."""

    short: frozenset[str]
    longer: tuple[str, ...]
    """Runs of more words than a text keeps, with a blank around."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Phrases:
        """Each text as one phrase; what has no word in it is none."""
        found = dict.fromkeys(filter(None, map(phrase, texts)))
        longer = [one for one in found if one.count(" ") >= RUN_MAX_WORDS]
        return cls(frozenset(found).difference(longer), tuple(f" {one} " for one in longer))

    def count_in(self, text: Text) -> int:
        """How many are in a text."""
        found = len(text.runs & self.short)
        for one in self.longer:
            found += one in text.whole
        return found


@dataclass(frozen=True, slots=True)
class Facets:
    """What a tool can be found and chosen by, taken apart once."""

    exact: frozenset[str]
    """Its name and aliases, as words with a blank between."""
    name: frozenset[str]
    """The words of its name and aliases."""
    weights: dict[str, int]
    """What each word adds that it is found by."""
    words: frozenset[str]
    """The same words."""
    phrases: Phrases
    """The keywords as they are written: whole phrases, for choosing."""
    mandatory: Phrases
    stages: frozenset[str]
    task_types: frozenset[str]
    cost: float


def facets_of(tool: Tool) -> Facets:
    """The tool's facets. Kept with the tool, which never changes."""
    kept: Facets | None = tool.__dict__.get("_facets")
    if kept is not None:
        return kept
    names = (tool.name, *tool.aliases)
    said = " ".join((tool.description[:PROSE_MAX_CHARS], *tool.use_cases))
    name = frozenset(word for one in names for word in _folded(one))
    keywords = frozenset(word for keyword in tool.keywords for word in _folded(keyword))
    prose = _folded(f"{said} {tool.category}" if tool.has_metadata else said) - _COMMON
    weights: dict[str, int] = {}
    for words, weight in ((name, _IN_NAME), (keywords, _IN_KEYWORDS), (prose, _IN_PROSE)):
        for word in words:
            weights[word] = weights.get(word, 0) + weight
    found = Facets(
        exact=frozenset(map(_joined, names)),
        name=name,
        weights=weights,
        words=frozenset(weights),
        phrases=Phrases.of(tool.keywords),
        mandatory=Phrases.of(tool.mandatory_keywords),
        stages=frozenset(stage.casefold() for stage in tool.stages),
        task_types=frozenset(task.casefold() for task in tool.task_types),
        cost=tool.cost_tier.weight,
    )
    tool.__dict__["_facets"] = found
    return found


def ranked(tools: Iterable[Tool], text: str) -> Iterator[Tool]:
    """The tools that the text finds, best first, equals by name.

    First the one whose name or alias it is, then by how many of its words are in the name, then
    in the keywords, then in description, use cases and category. A word counts as a whole; a
    plural "s" and words that say nothing ("the", "with") do not.
    """
    text = text[:QUERY_MAX_CHARS]
    whole, wanted = _joined(text), _folded(text) - _COMMON
    found: list[tuple[Any, ...]] = []
    for tool in tools:
        facets = facets_of(tool)
        score = _EXACT if whole in facets.exact else 0
        if not wanted.isdisjoint(facets.words):
            for word in wanted & facets.words:
                score += facets.weights[word]
        if score:
            found.append((-score, tool.name, tool))
    return popped(found)


def popped(found: list[tuple[Any, ...]]) -> Iterator[Tool]:
    """The tools at the end of tuples, in the order of what stands before, which is never equal.

    A heap: seldom is more wanted than the first few of many.
    """
    heapq.heapify(found)
    while found:
        tool: Tool = heapq.heappop(found)[-1]
        yield tool


def first(tools: Iterable[Tool], limit: int, is_visible: Callable[[Tool], bool]) -> Iterator[Tool]:
    """The first `limit` tools that can be seen; the rest is not even asked.

    Raises:
        ValueError: the limit is negative.
    """
    if limit < 0:
        raise ValueError(f"limit is a number of tools, not {limit}")
    count = 0
    for tool in tools:
        if count == limit:
            return
        if is_visible(tool):
            count += 1
            yield tool


def phrase(text: str) -> str:
    """Text as small words with one blank between, for finding one in another."""
    return " ".join(_WORD.findall(text.casefold()))


def _joined(text: str) -> str:
    return phrase(_INNER.sub(" ", text))


def _folded(text: str) -> frozenset[str]:
    """The words of a text, those inside of camelCase too, without a plural "s"."""
    words = [*_WORD.findall(text.casefold()), *_joined(text).split()]
    return frozenset(_singular(word) for word in words)


def _singular(word: str) -> str:
    if len(word) < _SINGULAR_MIN_CHARS or not word.endswith("s"):
        return word
    return word if word.endswith(("ss", "us", "is")) else word[:-1]
