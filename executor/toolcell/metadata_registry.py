"""`ToolMetadataRegistry`: what tools say of themselves, indexed by category and keyword.

It decides nothing: which tools there are and which may be called, the registry and the policy say.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypedDict

from toolcell._tool_search import Phrases, Text, phrase
from toolcell.metadata import ToolMetadata, metadata_of
from toolcell.registry import ToolRegistry
from toolcell.tools import Tool, as_tool

__all__ = ["Statistics", "ToolMetadataRegistry"]


class Statistics(TypedDict):
    """How much is known of how many tools. `categories` are names, sorted."""

    total_tools: int
    tools_with_explicit_metadata: int
    tools_with_auto_metadata: int
    total_categories: int
    total_keywords: int
    categories: list[str]


@dataclass(frozen=True, slots=True)
class _Index:
    """The metadata of some tools. Replaced as a whole, never changed."""

    tools: tuple[Tool, ...]
    entries: Mapping[str, ToolMetadata]
    names: Mapping[str, str]
    by_category: Mapping[str, Sequence[str]]
    by_keyword: Mapping[str, Sequence[str]]
    phrases: Mapping[str, Phrases]


class ToolMetadataRegistry:
    """The metadata of a registry's tools, or of those that it was last given.

    Over a registry it is a view: each question is answered about the tools that are registered
    now, switched on or not, and indexes them anew where they have changed. Without one it knows the
    tools of the last `refresh_from_tools`. Names come in the order of registration. Any thread may
    ask.
    """

    _instance: ClassVar[ToolMetadataRegistry | None] = None
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, registry: ToolRegistry | None = None) -> None:
        self._registry = registry
        self._follows = registry is not None
        self._index = _indexed(())
        # What of the registry was indexed; another snapshot may have the same tools.
        self._seen: object = None

    @classmethod
    def get_instance(cls) -> ToolMetadataRegistry:
        """The one that this process shares, for programs that hand none around; it has no registry.

        Nothing in toolcell reads it.
        """
        with ToolMetadataRegistry._instance_lock:
            if ToolMetadataRegistry._instance is None:
                ToolMetadataRegistry._instance = ToolMetadataRegistry()
            return ToolMetadataRegistry._instance

    def needs_reindex(self, tools: Iterable[Any] | None = None) -> bool:
        """Whether those tools, by default the registry's, say other than what is indexed.

        Raises:
            TypeError: there is no registry, and no tools were given.
        """
        return not _says_the_same(self._index, self._given(tools))

    def refresh_from_tools(self, tools: Iterable[Any] | None = None, force: bool = False) -> bool:
        """Index those tools, by default the registry's, where that is needed; whether it was.

        A view that was given tools shows them until it is refreshed without. `force` indexes anew
        in any case.

        Raises:
            TypeError: there is no registry, and no tools were given; or one cannot be a tool.
            ValueError: one cannot be used; the message says why.
        """
        given = self._given(tools)
        self._follows = tools is None
        if not force and _says_the_same(self._index, given):
            return False
        self._index = _indexed(given)
        return True

    def get_metadata(self, name: str) -> ToolMetadata | None:
        """What the tool of that name or alias says, or what was generated; None for no tool."""
        index = self._now()
        canonical = index.names.get(name)
        return None if canonical is None else index.entries[canonical]

    def get_all_metadata(self) -> dict[str, ToolMetadata]:
        """The metadata of every tool, by name."""
        return dict(self._now().entries)

    def get_tools_by_category(self, category: str) -> list[str]:
        """The names of the tools of a category, in either case."""
        return list(self._now().by_category.get(category.casefold(), ()))

    def get_by_keyword(self, keyword: str) -> list[ToolMetadata]:
        """The metadata of the tools that have a keyword, in either case."""
        index = self._now()
        return [index.entries[name] for name in index.by_keyword.get(phrase(keyword), ())]

    def get_tools_matching_text(self, text: str) -> list[str]:
        """The names of the tools of which a keyword is in the text, as whole words."""
        asked = Text(text)
        phrases = self._now().phrases
        return [name for name, each in phrases.items() if each.count_in(asked)]

    def get_statistics(self) -> Statistics:
        """How much is known of how many tools."""
        index = self._now()
        explicit = sum(entry.is_explicit for entry in index.entries.values())
        return Statistics(
            total_tools=len(index.entries),
            tools_with_explicit_metadata=explicit,
            tools_with_auto_metadata=len(index.entries) - explicit,
            total_categories=len(index.by_category),
            total_keywords=len(index.by_keyword),
            categories=sorted({str(entry.category) for entry in index.entries.values()}),
        )

    def _given(self, tools: Iterable[Any] | None) -> tuple[Tool, ...]:
        if tools is not None:
            return tuple(as_tool(item, None) for item in tools)
        if self._registry is None:
            raise TypeError("there is no registry to look at: give the tools")
        return tuple(self._registry.snapshot().tools.values())

    def _now(self) -> _Index:
        if self._follows and self._registry is not None:
            snapshot = self._registry.snapshot()
            if snapshot is not self._seen:
                self.refresh_from_tools()
                self._seen = snapshot
        return self._index


def _says_the_same(index: _Index, tools: tuple[Tool, ...]) -> bool:
    if tools == index.tools:
        return True
    known = list(index.entries.values())
    return len(tools) == len(known) and list(map(metadata_of, tools)) == known


def _indexed(tools: tuple[Tool, ...]) -> _Index:
    entries = {tool.name: metadata_of(tool) for tool in tools}
    names = {alias: tool.name for tool in tools for alias in (tool.name, *tool.aliases)}
    by_category: dict[str, list[str]] = {}
    by_keyword: dict[str, list[str]] = {}
    for name, entry in entries.items():
        by_category.setdefault(str(entry.category).casefold(), []).append(name)
        for keyword in dict.fromkeys(filter(None, map(phrase, entry.keywords))):
            by_keyword.setdefault(keyword, []).append(name)
    return _Index(
        tools=tools,
        entries=MappingProxyType(entries),
        names=MappingProxyType(names),
        by_category=MappingProxyType(by_category),
        by_keyword=MappingProxyType(by_keyword),
        phrases=MappingProxyType({n: Phrases.of(entry.keywords) for n, entry in entries.items()}),
    )
