"""`ToolMetadata`: what was said stands, the rest is generated, and nothing gets safer by it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from toolcell.markers import ReadPath
from toolcell.metadata import KEYWORDS_MAX, ToolMetadata, metadata_of
from toolcell.tools import Tool, tool
from toolcell_policies.vocabulary import AccessMode, Priority


def searchFiles(pattern: str, limit: int = 5) -> None:  # as some users write
    """Search files for a pattern, and for 42 others. It is quick."""


def read(path: ReadPath, other: str) -> None:
    """Read."""


def test_nothing_said_is_generated_from_what_the_tool_is() -> None:
    """Selection would find no tool whose author wrote no words for it."""
    found = metadata_of(tool(searchFiles))
    assert found == ToolMetadata(
        name="searchFiles",
        description="Search files for a pattern, and for 42 others. It is quick.",
        category="read",
        keywords=("search", "files", "pattern", "others", "quick"),
        use_cases=("Search files for a pattern, and for 42 others.",),
        priority=Priority.MEDIUM,
        access_mode="readonly",
        danger_level="safe",
        execution_category="read_only",
        cost_tier="free",
        progress_params=("pattern",),
        is_explicit=False,
    )
    assert metadata_of(tool(read)).progress_params == ("path",)


def test_what_was_said_stands_and_its_gaps_are_filled() -> None:
    """A generated word over an author's would be the worse of the two."""
    said = tool(
        keywords=["k"], use_cases=["u"], progress_params=["limit"], stages=["s"], category="c"
    )(searchFiles)
    found = metadata_of(said)
    assert (found.keywords, found.use_cases, found.category) == (("k",), ("u",), "c")
    assert (found.stages, found.progress_params, found.is_explicit) == (("s",), ("limit",), True)
    gaps = metadata_of(tool(priority="high")(searchFiles))
    assert (gaps.priority, gaps.category) == (Priority.HIGH, "general")
    assert gaps.keywords[0] == "search"


@pytest.mark.parametrize("mode", list(AccessMode))
def test_generated_metadata_is_no_safer_than_the_tool(mode: AccessMode) -> None:
    """Whoever reads it may decide by it."""
    found = metadata_of(tool(access_mode=mode, danger_level="critical", cost_tier="high")(read))
    assert (found.access_mode, found.danger_level, found.cost_tier) == (mode, "critical", "high")


def test_generated_words_are_few() -> None:
    """A description may be long, and each word is kept for every tool."""
    text = " ".join(f"word{n}" for n in range(500))
    assert len(metadata_of(tool(description=text)(read)).keywords) == KEYWORDS_MAX
    bare = Tool(
        name="x", description="", access_mode="readonly", danger_level="safe",  # type: ignore[arg-type]  # text is taken too
        schema={"type": "object"},
    )  # fmt: skip
    found = metadata_of(bare)
    assert (found.keywords, found.use_cases, found.progress_params) == ((), (), ())


def test_words_may_be_lists_sets_and_text() -> None:
    """It is how authors of another dialect write them."""
    words: dict[str, Any] = {"keywords": ["b", "a"], "stages": {"b", "a"}, "examples": "one"}
    found = ToolMetadata("n", **words, priority="critical", access_mode="write", cost_tier="low")
    assert (found.keywords, found.stages, found.examples) == (("b", "a"), ("a", "b"), ("one",))
    assert (found.priority, found.access_mode) == (Priority.CRITICAL, AccessMode.WRITE)
    assert ToolMetadata(priority=2).priority is Priority.HIGH
    assert found.words() == {
        "keywords": ("b", "a"), "stages": ("a", "b"), "examples": ("one",), "priority": 1,
        "access_mode": "write", "cost_tier": "low",
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"keywords": [5]}, {"priority": "urgent"}, {"priority": 9}, {"access_mode": "root"},
        {"cost_tier": "gratis"}, {"danger_level": "none"}, {"execution_category": "x"},
    ],
)  # fmt: skip
def test_a_word_that_nobody_knows_is_refused(wrong: dict[str, Any]) -> None:
    """Ignored, it would be a guard that is not there."""
    with pytest.raises(ValueError, match=r"."):
        ToolMetadata(**wrong)


def test_the_same_tool_has_the_same_metadata_in_every_run() -> None:
    """Prompts, and their caches, are made of it."""
    code = (
        "from toolcell.metadata import ToolMetadata, metadata_of\n"
        "from toolcell.tools import Tool\n"
        "print(metadata_of(Tool(name='x', description='Find some words in the files of a folder',"
        " access_mode='readonly', danger_level='safe', schema={'type': 'object'},"
        " stages={'a', 'b', 'c', 'd'})))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
