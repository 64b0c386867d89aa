"""The registry's basics."""

from __future__ import annotations

import pytest

from toolcell.registry import ToolRegistry
from toolcell.results import ToolDisabled, UnknownTool
from toolcell.tools import Tool, tool


def read_file(path: str) -> str:
    return path


@tool(aliases=("remove", "rm"))
def delete_file(path: str) -> str:
    return path


def broken(x: list) -> None:  # type: ignore[type-arg]  # that is the point
    ...


@pytest.fixture
def registry() -> ToolRegistry:
    return ToolRegistry(read_file, delete_file)


def test_three_ways_to_register() -> None:
    """Each dialect registers in its own way; one that is lost breaks its programs."""
    registry = ToolRegistry()
    registry.register(delete_file)
    registry.register("reader", read_file)
    registry.register({"a": read_file, "b": read_file}, enabled=False)
    assert [t.name for t in registry.list_tools(only_enabled=False)] == [
        "delete_file", "reader", "a", "b",
    ]  # fmt: skip
    assert [t.name for t in registry.list_tools()] == ["delete_file", "reader"]


def test_an_alias_leads_to_the_canonical_tool(registry: ToolRegistry) -> None:
    """Otherwise a rule for the tool would not hold for its alias."""
    assert registry.get("rm") is delete_file
    assert registry.resolve("rm") is delete_file
    assert registry.get("nothing") is None


@pytest.mark.parametrize(
    ("name", "aliases", "words"),
    [
        ("read_file", (), "named read_file already"),
        ("rm", (), "name rm of tool rm is taken by tool delete_file"),
        ("other", ("rm",), "alias rm of tool other is taken by tool delete_file"),
        ("other", ("read_file",), "alias read_file of tool other is taken by tool read_file"),
    ],
)
def test_a_taken_name_is_refused_and_both_owners_are_named(
    registry: ToolRegistry, name: str, aliases: tuple[str, ...], words: str
) -> None:
    """Otherwise a pack could put its own tool behind a trusted name."""
    before = registry.snapshot()
    with pytest.raises(ValueError, match=words):
        registry.register(tool(name=name, aliases=aliases)(read_file))
    assert registry.snapshot() is before


def test_a_mapping_is_registered_as_a_whole_or_not_at_all(registry: ToolRegistry) -> None:
    """Half a set of tools is a state that nobody asked for."""
    with pytest.raises(ValueError, match="taken"):
        registry.register({"fine": read_file, "rm": read_file})
    assert registry.get("fine") is None


def test_a_tool_that_providers_reject_is_refused_at_once() -> None:
    """Where whoever wrote it still reads the reason."""
    with pytest.raises(ValueError, match="untyped array"):
        ToolRegistry(broken)


def test_switching_says_whether_it_changed_anything(registry: ToolRegistry) -> None:
    """A caller that mistyped the name would think that the tool is off."""
    assert registry.disable_tool("rm") is True
    assert registry.disable_tool("delete_file") is False
    assert registry.is_tool_enabled("rm") is False
    assert registry.enable_tool("delete_file") is True
    assert registry.enable_tool("delete_file") is False
    assert registry.enable_tool("nothing") is False
    assert registry.is_tool_enabled("nothing") is False


def test_a_disabled_tool_is_told_from_an_unknown_one(registry: ToolRegistry) -> None:
    """The model should stop asking for the first, and correct the second."""
    registry.disable_tool("delete_file")
    found = registry.resolve("rm")
    assert isinstance(found, ToolDisabled)
    assert "delete_file" in found.message
    unknown = registry.resolve("raed_file")
    assert isinstance(unknown, UnknownTool)
    assert unknown.nearest == ("read_file",)
    assert "did you mean read_file?" in unknown.message


@pytest.mark.parametrize("name", ["", "x" * 1_000_000, "\u202e\x1b[2J", "READ_FILE\n", "zzz"])
def test_any_name_has_a_short_printable_answer(registry: ToolRegistry, name: str) -> None:
    """The name is the model's: it may be a megabyte, or escape codes."""
    found = registry.resolve(name)
    assert isinstance(found, UnknownTool)
    assert len(found.message) < 500
    assert found.message.isprintable()


def test_a_snapshot_does_not_see_what_comes_later(registry: ToolRegistry) -> None:
    """What was advertised is what is looked up."""
    snapshot = registry.snapshot()
    registry.disable_tool("read_file")
    registry.register("later", read_file)
    assert isinstance(snapshot.resolve("read_file"), Tool)
    assert snapshot.get("later") is None
    assert registry.snapshot().get("later") is not None


def test_what_a_model_is_told_is_a_copy(registry: ToolRegistry) -> None:
    """An adapter that edits a schema must not change what arguments are checked against."""
    told = registry.get_tool_schemas()
    assert [t["name"] for t in told] == ["read_file", "delete_file"]
    assert told[0].keys() == {"name", "description", "input_schema"}
    told[0]["input_schema"].clear()
    assert registry.get_tool_schemas()[0]["input_schema"]["type"] == "object"
