"""`ToolMetadata`: what selection goes by, as the author said it, or generated from the tool."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolcell._tool_record import SELECTION, Tool
from toolcell_policies.vocabulary import (
    AccessMode,
    CostTier,
    DangerLevel,
    ExecutionCategory,
    Priority,
)

__all__ = ["ToolMetadata", "metadata_of"]

KEYWORDS_MAX: Final = 24
"""As many are generated."""
_WORD: Final = re.compile(r"[a-z0-9]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s")
_WORD_CHARS_MIN: Final = 3
_STOP: Final = frozenset(
    word
    for line in (
        "about after all also and any are been before but can does each for from get has have how",
        "into its may more most not one only other out over same set some such than that the their",
        "them then there these they this those through under until use used uses using very was",
        "were what when where which while who will with without you your",
    )
    for word in line.split()
)
"""Words that say nothing of a tool."""

_CATEGORIES: Final = {
    AccessMode.READONLY: "read",
    AccessMode.WRITE: "write",
    AccessMode.EXECUTE: "execute",
    AccessMode.NETWORK: "network",
    AccessMode.MIXED: "mixed",
}
_NOT_WORDS: Final = frozenset({"name", "description", "is_explicit"})


@dataclass(frozen=True, slots=True)
class ToolMetadata:
    """All that is said about a tool beside what it does.

    A `BaseTool.metadata` or a `ToolDefinition(metadata=)` may be one. What is None, or empty, is
    not said: the access mode and the danger are then the tool's own. They never make a tool safer
    than it declares itself, nor cheaper. Words may be given as lists, enum members as text.

    Raises:
        ValueError: a word is none of its enum's.
    """

    name: str = ""
    description: str = ""
    aliases: Sequence[str] = ()
    category: str | None = None
    keywords: Sequence[str] = ()
    use_cases: Sequence[str] = ()
    examples: Sequence[str] = ()
    priority_hints: Sequence[str] = ()
    priority: Priority | int | str | None = None
    access_mode: AccessMode | str | None = None
    danger_level: DangerLevel | str | None = None
    stages: Sequence[str] = ()
    task_types: Sequence[str] = ()
    mandatory_keywords: Sequence[str] = ()
    progress_params: Sequence[str] = ()
    execution_category: ExecutionCategory | str | None = None
    cost_tier: CostTier | str | None = None
    is_explicit: bool = True
    """Whether somebody said it; else it is generated."""

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if one.default == ():
                object.__setattr__(self, one.name, _texts(one.name, value))
            elif value is not None and one.name in _ENUMS:
                object.__setattr__(self, one.name, _member(_ENUMS[one.name], value))

    def words(self) -> dict[str, Any]:
        """What it says of a tool's fields, and nothing of what it does not say."""
        return {
            one.name: getattr(self, one.name)
            for one in dataclasses.fields(self)
            if one.name not in _NOT_WORDS and getattr(self, one.name) not in (None, ())
        }


_ENUMS: Final[dict[str, Any]] = {
    "priority": Priority,
    "access_mode": AccessMode,
    "danger_level": DangerLevel,
    "execution_category": ExecutionCategory,
    "cost_tier": CostTier,
}


def _texts(name: str, given: Iterable[str]) -> tuple[str, ...]:
    words = (given,) if isinstance(given, str) else tuple(given)
    if isinstance(given, set | frozenset):
        words = tuple(sorted(words))  # the same in every run
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"{name} are words")
    return words


def _member(kind: Any, value: Any) -> Any:
    if kind is Priority and isinstance(value, str):
        if value.upper() not in Priority.__members__:
            raise ValueError(f"{value!r:.50} is no priority")
        return Priority[value.upper()]
    return kind(value)


def metadata_of(tool: Tool) -> ToolMetadata:
    """What selection goes by, of any tool; the same in every run.

    What the author said stands. Keywords, use cases and the parameters that show progress are
    generated where there are none; the category where nothing at all was said. Access mode,
    danger and cost are the tool's own, so nothing generated is safer or cheaper.
    """
    said = {name: getattr(tool, name) for name in SELECTION}
    said["keywords"] = tool.keywords or _keywords(tool)
    said["use_cases"] = tool.use_cases or _use_cases(tool)
    if not tool.has_metadata:
        said["category"] = _CATEGORIES[tool.access_mode]
    return ToolMetadata(
        name=tool.name,
        description=tool.description,
        aliases=tool.aliases,
        access_mode=tool.access_mode,
        danger_level=tool.danger_level,
        execution_category=tool.runs_as,
        cost_tier=tool.cost_tier,
        progress_params=tool.progress_params or _progress(tool),
        is_explicit=tool.has_metadata,
        **said,
    )


def _keywords(tool: Tool) -> tuple[str, ...]:
    """The telling words of name and description, in their order, each once."""
    text = f"{_CAMEL.sub(' ', tool.name)} {tool.description}".lower()
    words = (word for word in _WORD.findall(text) if len(word) >= _WORD_CHARS_MIN)
    kept = dict.fromkeys(word for word in words if word not in _STOP and not word.isdigit())
    return tuple(kept)[:KEYWORDS_MAX]


def _use_cases(tool: Tool) -> tuple[str, ...]:
    first = _SENTENCE.split(" ".join(tool.description.split()), maxsplit=1)[0]
    return (first,) if first else ()


def _progress(tool: Tool) -> tuple[str, ...]:
    """Paths first, else the first argument that a call must name."""
    required = tool.input_schema.get("required", ())
    return tuple(tool.path_params) or tuple(required[:1])
