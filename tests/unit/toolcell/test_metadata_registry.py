"""The view of what tools say of themselves."""

from __future__ import annotations

import pytest

from toolcell.metadata import ToolMetadata
from toolcell.metadata_registry import ToolMetadataRegistry
from toolcell.registry import ToolRegistry
from toolcell.tools import tool


@tool(category="Search", keywords=["find", "Full Text"], aliases=("rg",))
def grep(pattern: str) -> str:
    """Looks through files."""
    return pattern


@tool
def weather(town: str) -> str:
    """Tells the forecast of a town."""
    return town


def forecast(town: str) -> str:
    """Tells the forecast of a town."""
    return town


@pytest.fixture
def registry() -> ToolRegistry:
    return ToolRegistry(grep, weather)


def test_metadata_is_found_by_name_category_keyword_and_text(registry: ToolRegistry) -> None:
    """Otherwise a program of this dialect selects from nothing."""
    view = ToolMetadataRegistry(registry)
    found = view.get_metadata("rg")
    assert isinstance(found, ToolMetadata)
    assert (found.name, found.category, found.is_explicit) == ("grep", "Search", True)
    assert view.get_metadata("nothing") is None
    assert list(view.get_all_metadata()) == ["grep", "weather"]
    assert view.get_tools_by_category("search") == ["grep"]
    assert view.get_tools_by_category("nothing") == []
    assert [entry.name for entry in view.get_by_keyword("FULL-TEXT")] == ["grep"]
    assert [entry.name for entry in view.get_by_keyword("forecast")] == ["weather"]
    assert view.get_by_keyword("full") == []
    assert view.get_tools_matching_text("Find the forecast") == ["grep", "weather"]
    assert view.get_tools_matching_text("some full text here") == ["grep"]
    # Near misses: parts of words and of phrases.
    assert view.get_tools_matching_text("finding of text that is full") == []


def test_statistics_tell_what_was_said_from_what_was_generated(registry: ToolRegistry) -> None:
    """Otherwise nobody sees which tools still have to be described."""
    view = ToolMetadataRegistry(registry)
    found = view.get_statistics()
    assert found["total_tools"] == 2
    assert found["tools_with_explicit_metadata"] == 1
    assert found["tools_with_auto_metadata"] == 1
    assert found["total_categories"] == len(found["categories"]) == 2
    assert "Search" in found["categories"]
    keywords = {phrase for entry in view.get_all_metadata().values() for phrase in entry.keywords}
    assert found["total_keywords"] == len(keywords)


def test_a_view_answers_about_the_tools_of_now(registry: ToolRegistry) -> None:
    """Otherwise a tool that was taken back would be selected, and a new one never."""
    view = ToolMetadataRegistry(registry)
    assert view.needs_reindex() is True
    assert view.refresh_from_tools() is True
    assert view.refresh_from_tools() is False
    assert view.refresh_from_tools(force=True) is True
    assert view.needs_reindex() is False
    registry.disable_tool("grep")
    assert view.needs_reindex() is False
    with registry.register("later", forecast):
        assert view.needs_reindex() is True
        assert view.get_metadata("later") is not None
        assert view.needs_reindex() is False
    assert view.get_metadata("later") is None
    assert view.get_metadata("grep") is not None


def test_a_view_that_was_given_tools_shows_those(registry: ToolRegistry) -> None:
    """Otherwise the tools that it was given would be gone at the first question."""
    view = ToolMetadataRegistry(registry)
    assert view.needs_reindex([forecast]) is True
    assert view.refresh_from_tools([forecast]) is True
    assert list(view.get_all_metadata()) == ["forecast"]
    # A function is made a tool anew each time, and says the same.
    assert view.needs_reindex([forecast]) is False
    assert view.needs_reindex([weather]) is True
    assert view.needs_reindex([]) is True
    assert view.refresh_from_tools() is True
    assert list(view.get_all_metadata()) == ["grep", "weather"]


def test_the_shared_one_is_one_and_each_other_is_its_own(registry: ToolRegistry) -> None:
    """Otherwise two sessions would see each other's tools."""
    shared = ToolMetadataRegistry.get_instance()
    assert ToolMetadataRegistry.get_instance() is shared
    shared.refresh_from_tools(registry.list_tools())
    try:
        assert shared.get_metadata("grep") is not None
        other = ToolMetadataRegistry()
        assert other.get_metadata("grep") is None
        assert other.get_statistics()["total_tools"] == 0
    finally:
        shared.refresh_from_tools([])
    assert shared.get_metadata("grep") is None


def test_without_a_registry_the_tools_have_to_be_given() -> None:
    """Otherwise it would say that nothing has changed, of nothing."""
    with pytest.raises(TypeError, match="give the tools"):
        ToolMetadataRegistry().needs_reindex()
    with pytest.raises(TypeError, match="give the tools"):
        ToolMetadataRegistry().refresh_from_tools()
