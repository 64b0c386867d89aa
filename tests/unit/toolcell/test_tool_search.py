"""Finding tools by words: the same words find the same tools in the same order."""

from __future__ import annotations

import pytest

from toolcell._tool_search import QUERY_MAX_CHARS, ranked
from toolcell.registry import ToolRegistry, search_deferred
from toolcell.tools import Tool


def made(name: str, description: str = "-", *keywords: str, aliases: tuple[str, ...] = ()) -> Tool:
    return Tool(
        name=name,
        description=description,
        access_mode="readonly",  # type: ignore[arg-type]  # a word, as users write it
        danger_level="safe",  # type: ignore[arg-type]  # a word, as users write it
        keywords=keywords,
        aliases=aliases,
        trusted=True,
        schema={"type": "object", "properties": {}, "additionalProperties": False},
    )


TOOLS = (
    made("weather", "Tells what the sky does today."),
    made("get_forecast", "Tells the days ahead.", "weather"),
    made("calendar", "Lists days; shows the weather of each."),
    made("weather_map", "Draws a picture."),
    made("readFile", "Opens a thing.", aliases=("cat",)),
    made("grep", "Searches files for text.", "find text", "pattern"),
    made("delete", "Removes one."),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("weather", ["weather", "weather_map", "get_forecast", "calendar"]),
        ("the weather, please", ["weather", "weather_map", "get_forecast", "calendar"]),
        ("WEATHER MAP", ["weather_map", "weather", "get_forecast", "calendar"]),
        ("readFile", ["readFile", "grep"]),
        ("read_file", ["readFile", "grep"]),
        ("readfile", ["readFile"]),
        ("cat", ["readFile"]),
        ("days", ["calendar", "get_forecast"]),
        ("day", ["calendar", "get_forecast"]),
        ("texts", ["grep"]),
        # Near misses: parts of words, words that say nothing, nothing.
        ("eather", []),
        ("let", []),
        ("the of with", []),
        ("", []),
        ("☃", []),
        ("ss", []),
    ],
)
def test_exact_names_come_first_then_names_keywords_and_prose(text: str, names: list[str]) -> None:
    """Otherwise a deferred tool is as good as gone."""
    assert [t.name for t in ranked(TOOLS, text)] == names
    assert [t.name for t in ranked(TOOLS[::-1], text)] == names


def test_a_word_that_ends_in_s_by_itself_is_kept() -> None:
    """Otherwise "pass" would find "pas", and "bus" would find "bu"."""
    tools = (made("pas"), made("bu"), made("thi"), made("pass"), made("bus"), made("gas"))
    assert [t.name for t in ranked(tools, "pass bus this gas")] == ["bus", "gas", "pass"]


def test_a_query_is_looked_at_up_to_a_bound() -> None:
    """Otherwise a model could have megabytes of its own text searched at each turn."""
    assert list(ranked(TOOLS, " " * QUERY_MAX_CHARS + "weather")) == []
    assert list(ranked(TOOLS, " " * (QUERY_MAX_CHARS - 7) + "weather"))


def test_a_search_finds_deferred_tools_too_and_no_other_than_usable_ones() -> None:
    """Otherwise what is not advertised could not be found, or what is off would be."""
    registry = ToolRegistry()
    registry.register(TOOLS[0])
    registry.register(TOOLS[3], deferred=True)
    registry.register(TOOLS[1], deferred=True, enabled=False)
    registry.register(TOOLS[2], deferred=True)
    assert [t.name for t in registry.search_tools("weather")] == [
        "weather", "weather_map", "calendar",
    ]  # fmt: skip
    now = registry.snapshot()
    assert now.search("weather", limit=2) == registry.search_tools("weather", 2)
    assert [t.name for t in now.search("weather", 2)] == ["weather", "weather_map"]
    assert now.search("weather", 0) == []
    assert search_deferred(now, "weather") == [
        {"name": "weather_map", "description": "Draws a picture."},
        {"name": "calendar", "description": "Lists days; shows the weather of each."},
    ]
    assert search_deferred(now, "weather", limit=1) == search_deferred(now, "weather")[:1]


def test_a_negative_limit_is_refused() -> None:
    """Otherwise it would mean all, or all but the last."""
    registry = ToolRegistry(TOOLS[0])
    with pytest.raises(ValueError, match="limit is a number of tools, not -1"):
        registry.search_tools("weather", limit=-1)
    with pytest.raises(ValueError, match="limit is a number of tools, not -1"):
        search_deferred(registry.snapshot(), "weather", limit=-1)
