"""Choosing the tools for a request: what always comes, what never does, and in which order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from toolcell.registry import ToolRegistry
from toolcell.tools import Tool, tool


@tool
def plain(path: str) -> str:
    """Plain."""
    return path


def made(name: str, **words: Any) -> Tool:
    return dataclasses.replace(plain, name=name, **words)


def chosen(registry: ToolRegistry, text: str = "", **options: Any) -> list[str]:
    names = [t.name for t in registry.select_tools(text, **options)]
    assert [t.name for t in registry.snapshot().select_tools(text, **options)] == names
    return names


def test_critical_is_always_there_and_contextual_only_where_it_belongs() -> None:
    """Otherwise a model lacks what it always needs, or carries what it never does."""
    registry = ToolRegistry(
        made("usual"),
        made("special", priority="contextual", keywords=("blue moon",), stages=("late",)),
        made("always", priority="critical"),
    )
    assert chosen(registry, "anything") == ["always", "usual"]
    assert chosen(registry, "once in a Blue-Moon") == ["always", "special", "usual"]
    assert chosen(registry, "blue cheese, full moon") == ["always", "usual"]
    assert chosen(registry, "x", stage="LATE") == ["always", "special", "usual"]
    assert chosen(registry, "x", task_type="late") == ["always", "usual"]
    assert chosen(registry, "x", limit=0) == ["always"]


def test_a_mandatory_keyword_brings_its_tool_and_is_a_whole_word() -> None:
    """Otherwise who asks for git in so many words is offered something else."""
    registry = ToolRegistry(
        made("a", keywords=("commit",)),
        made("git", priority="contextual", mandatory_keywords=("git", "pull request")),
    )
    assert chosen(registry, "commit it", limit=1) == ["a"]
    assert chosen(registry, "commit it by git", limit=1) == ["git"]
    assert chosen(registry, "commit; open a Pull Request", limit=2) == ["git", "a"]
    assert chosen(registry, "commit digital legit gits", limit=1) == ["a"]
    assert chosen(registry, "pull the request", limit=1) == ["a"]


@pytest.mark.parametrize("way", ["off", "deferred", "unavailable", "dear"])
def test_nothing_a_tool_says_of_itself_gets_it_past_a_deny(way: str) -> None:
    """Otherwise a pack could put itself into every request."""
    registry = ToolRegistry(made("other"))
    pushy: dict[str, dict[str, Any]] = {
        "must": {"mandatory_keywords": ("go",)},
        "top": {"priority": 1},
    }
    for name, words in pushy.items():
        if way == "dear":
            words["cost_tier"] = "high"
        if way == "unavailable":
            words["availability_check"] = bool
        registry.register(made(name, **words), enabled=way != "off", deferred=way == "deferred")
    assert chosen(registry, "go", max_cost="medium", stage="go") == ["other"]
    if way == "dear":
        assert chosen(registry, "go", max_cost="high") == ["top", "must", "other"]


def test_a_phrase_of_any_length_is_found_whole() -> None:
    """Otherwise a long phrase would bring its tool by its first words, or never."""
    said = "one two three four five"
    for count in range(1, 6):
        words = " ".join(said.split()[-count:])
        registry = ToolRegistry(made("a", priority="contextual", keywords=(words, "...")))
        assert chosen(registry, f"zero {said} six") == ["a"]
        assert chosen(registry, f"zero {said}") == ["a"]
        assert chosen(registry, f"zero {said}s six") == []
    assert chosen(registry, said.replace(" ", "")) == []


def test_stages_task_types_and_keywords_rank() -> None:
    """Otherwise a limit would keep whatever was registered first."""
    registry = ToolRegistry(
        made("none"),
        made("word", keywords=("fix", "bug")),
        made("stage", stages=("testing",)),
        made("both", stages=("testing",), task_types=("Repair",)),
    )
    asked = {"stage": "testing", "task_type": "repair"}
    assert chosen(registry, "fix it", **asked) == ["both", "stage", "word", "none"]
    assert chosen(registry, "fix it", limit=2, **asked) == ["both", "stage"]
    assert chosen(registry, "fix the bug", stage="other") == ["word", "none", "stage", "both"]


def test_of_equal_matches_the_cheaper_comes_first_then_priority_name_and_order() -> None:
    """Otherwise a model reaches for the dear tool where a free one does the same."""
    registry = ToolRegistry(
        made("dear", cost_tier="high", keywords=("find",), priority="high"),
        made("low", keywords=("find",), priority="low"),
        made("cheap", keywords=("find",)),
        made("search_code", keywords=("find",)),
        made("cheap2", keywords=("find",)),
        made("better", cost_tier="high", keywords=("find", "code")),
    )
    assert chosen(registry, "find in the code") == [
        "better", "search_code", "cheap", "cheap2", "low", "dear",
    ]  # fmt: skip


def test_more_keywords_than_count_are_no_better_a_match() -> None:
    """Otherwise whoever writes the longest list comes first."""
    words = tuple("abcdefghij")
    registry = ToolRegistry(
        made("greedy", keywords=words, cost_tier="low"), made("fair", keywords=words[:5])
    )
    assert chosen(registry, " ".join(words)) == ["fair", "greedy"]


def test_a_limit_is_filled_with_what_is_available() -> None:
    """Otherwise what cannot run would take the place of what can."""
    registry = ToolRegistry(made("down", availability_check=bool), made("up"), made("up2"))
    assert chosen(registry, limit=1) == ["up"]


def test_what_cannot_be_meant_is_refused() -> None:
    """Otherwise a typing error in a ceiling would be no ceiling."""
    registry = ToolRegistry(made("a"))
    with pytest.raises(ValueError, match="limit"):
        registry.select_tools("x", limit=-1)
    with pytest.raises(ValueError, match="cheap"):
        registry.select_tools("x", max_cost="cheap")
