"""The registry's basics."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
import trio

from toolcell.calls import ToolCall
from toolcell.hooks import Hook
from toolcell.registry import Snapshot, ToolRegistry
from toolcell.results import ToolDisabled, ToolResult, UnknownTool
from toolcell.tools import Tool, tool
from toolcell_policies.phases import phase_admits_tool
from toolcell_policies.vocabulary import CostTier, Phase, TaskKind


def read_file(path: str) -> str:
    return path


@tool(aliases=("remove", "rm"))
def delete_file(path: str) -> str:
    return path


def write_file(path: str) -> str:
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
        ("rm", (), "name rm of tool rm is taken by tool delete_file"),
        ("other", ("rm",), "alias rm of tool other is taken by tool delete_file"),
        ("other", ("read_file",), "alias read_file of tool other is taken by tool read_file"),
    ],
)
def test_a_taken_name_is_refused_and_both_owners_are_named(
    registry: ToolRegistry, name: str, aliases: tuple[str, ...], words: str
) -> None:
    """Otherwise one name would mean two tools, and which of them a rule is about is chance.

    The name itself may be registered again: the latest is in effect (test_registrations.py).
    """
    before = registry.snapshot()
    with pytest.raises(ValueError, match=words):
        registry.register(tool(name=name, aliases=aliases)(read_file))
    assert registry.snapshot() is before


def test_a_taken_name_is_refused_where_that_is_asked_for(registry: ToolRegistry) -> None:
    """Otherwise a pack could put its own tool behind a trusted name."""
    before = registry.snapshot()
    with pytest.raises(ValueError, match="named read_file already; register it under another"):
        registry.register(read_file, shadow=False)
    assert registry.snapshot() is before
    registry.register("another", read_file, shadow=False)


def test_two_tools_of_one_name_in_one_registration_are_refused() -> None:
    """Nobody means that, and one of the two would never be seen."""
    with pytest.raises(ValueError, match="two tools of one registration are named read_file"):
        ToolRegistry(read_file, delete_file, read_file)
    with pytest.raises(ValueError, match="name rm of tool rm is taken by tool delete_file"):
        ToolRegistry().register({"delete_file": delete_file, "rm": read_file})


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


def test_what_was_switched_off_stays_off_when_it_is_registered_again(
    registry: ToolRegistry,
) -> None:
    """Otherwise a server that connects again switches its tools back on."""
    registry.disable_tool("read_file")
    with registry.register("read_file", write_file):
        assert not registry.is_tool_enabled("read_file")
    later = registry.register("later", read_file)
    registry.disable_tool("later")
    later.close()
    registry.register("later", read_file)
    assert not registry.is_tool_enabled("later")
    assert registry.enable_tool("later")
    assert registry.is_tool_enabled("later")


def test_what_is_registered_off_is_off_though_the_name_was_on(registry: ToolRegistry) -> None:
    """Otherwise an earlier word about another tool would switch this one on."""
    registry.disable_tool("read_file")
    registry.enable_tool("read_file")
    with registry.register("read_file", write_file, enabled=False):
        assert not registry.is_tool_enabled("read_file")
    assert registry.is_tool_enabled("read_file")


def test_states_are_read_and_set_together(registry: ToolRegistry) -> None:
    """A session that is restored would come back with tools that were switched off."""
    registry.disable_tool("rm")
    saved = registry.get_tool_states()
    assert saved == {"read_file": True, "delete_file": False}
    again = ToolRegistry(read_file)
    assert again.set_tool_states({**saved, "nobody": True}) == ("delete_file", "nobody")
    again.register(delete_file)
    assert again.get_tool_states() == saved
    assert again.set_tool_states({"read_file": False, "rm": True}) == ()
    assert again.get_tool_states() == {"read_file": False, "delete_file": True}


def test_a_name_that_is_off_in_advance_may_be_an_alias() -> None:
    """Otherwise a saved state would be lost by the name that it was saved under."""
    registry = ToolRegistry()
    registry.set_tool_states({"rm": False})
    registry.register(delete_file)
    assert not registry.is_tool_enabled("delete_file")
    assert registry.enable_tool("delete_file")
    assert registry.is_tool_enabled("rm")


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
    assert snapshot.enabled("read_file")
    assert not registry.snapshot().enabled("read_file")
    assert not snapshot.enabled("later")


def test_what_a_model_is_told_is_a_copy(registry: ToolRegistry) -> None:
    """An adapter that edits a schema must not change what arguments are checked against."""
    told = registry.get_tool_schemas()
    assert [t["name"] for t in told] == ["read_file", "delete_file"]
    assert told[0].keys() == {"name", "description", "input_schema"}
    told[0]["input_schema"].clear()
    assert registry.get_tool_schemas()[0]["input_schema"]["type"] == "object"


def test_a_tool_that_cannot_be_said_does_not_hide_the_others(
    registry: ToolRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise one tool, of a pack that nobody trusts, takes every tool from the model."""
    either: dict[str, Any] = {"type": "object", "properties": {}, "oneOf": [{}, False]}
    elsewhere: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"$anchor": "here", "type": "string"}},
    }
    base = registry.get("read_file")
    assert isinstance(base, Tool)
    for name, schema in (("either", either), ("elsewhere", elsewhere)):
        registry.register(dataclasses.replace(base, name=name, schema=schema))
    for dialect, lacking in (("json-schema", {"elsewhere"}), ("openai", {"either", "elsewhere"})):
        caplog.clear()
        told = registry.get_tool_schemas(dialect=dialect)  # type: ignore[arg-type]  # a Dialect
        assert len(told) == 4 - len(lacking)
        assert {record.args[0] for record in caplog.records if record.args} == lacking  # type: ignore[index]  # the tool's name
    for wrong in ({"level": "short"}, {"dialect": "xml"}):
        with pytest.raises(ValueError, match=r"short|xml"):
            ToolRegistry().get_tool_schemas(**wrong)  # type: ignore[arg-type]  # the point


def test_a_snapshot_is_the_same_one_until_something_changes(registry: ToolRegistry) -> None:
    """Otherwise a request that takes a snapshot would pay for every tool there is."""
    before = registry.snapshot()
    assert registry.snapshot() is before
    assert registry.enable_tool("read_file") is False
    assert registry.get("rm") is delete_file
    assert len(registry) == 2
    assert "rm" in registry
    assert registry.snapshot() is before
    registry.register("more", read_file)
    assert registry.snapshot() is not before
    assert "more" not in before.tools


def test_a_snapshot_can_be_read_while_others_register(registry: ToolRegistry) -> None:
    """Otherwise a thread would find a name that leads to no tool, or half of a registration."""
    pair = {"left": read_file, "right": read_file}
    wrong: list[str] = []

    def read() -> None:
        for _ in range(300):
            now = registry.snapshot()
            if not set(now.names.values()) <= set(now.tools):
                wrong.append("a name without a tool")
            if ("left" in now.tools) is not ("right" in now.tools):
                wrong.append("half of a registration")

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        registry.register(pair).close()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("name",), "needs the tool as well"),
        ((read_file, delete_file), "takes a tool"),
    ],
)
def test_what_is_no_registration_is_said_at_once(given: tuple[Any, ...], words: str) -> None:
    """Otherwise the second argument would be lost without a word."""
    with pytest.raises(TypeError, match=words):
        ToolRegistry().register(*given)


@pytest.mark.parametrize("tool_of", ["registry", "snapshot"])
def test_tools_by_cost(tool_of: str) -> None:
    """Otherwise a session with a ceiling is shown what it may not pay for."""
    registry = ToolRegistry(
        read_file,
        tool(name="cheap", cost_tier="low")(read_file),
        tool(name="dear", cost_tier="high")(read_file),
    )
    registry.disable_tool("cheap")
    asked = registry if tool_of == "registry" else registry.snapshot()
    assert [t.name for t in asked.get_tools_by_cost("medium")] == ["read_file"]
    assert [t.name for t in asked.get_tools_by_cost(CostTier.LOW, only_enabled=False)] == [
        "read_file", "cheap",
    ]  # fmt: skip
    assert [t.name for t in asked.get_tools_by_cost()] == ["read_file", "dear"]
    assert asked.get_cost_summary() == {
        "free": ["read_file"], "low": [], "medium": [], "high": ["dear"],
    }  # fmt: skip
    assert asked.get_cost_summary(only_enabled=False)["low"] == ["cheap"]
    with pytest.raises(ValueError, match="cheap"):
        asked.get_tools_by_cost("cheap")


def test_a_phase_shows_what_the_predicate_admits(registry: ToolRegistry) -> None:
    """Otherwise a model is shown what it may not call, or never sees what it may."""
    registry.register(tool(name="change", access_mode="write")(read_file))
    registry.register(tool(name="late", phases=("verifying",))(read_file))
    registry.register(tool(name="ask", escalation=True)(read_file))
    registry.register("unseen", read_file, deferred=True)
    registry.register("off", read_file, enabled=False)
    tools = [t for t in registry.list_tools() if t.name != "unseen"]
    for phase in (*Phase, "nonsense", None):
        for task in (*TaskKind, "nonsense", None):
            admitted = [t for t in tools if phase_admits_tool(phase, task, t)]
            assert registry.admitted_for(phase, task) == admitted
            assert registry.snapshot().admitted_for(phase, task) == admitted
        assert registry.active_for_phase(phase) == registry.admitted_for(phase, None)
    assert [t.name for t in registry.active_for_phase("verifying")] == [
        "read_file", "delete_file", "late",
    ]  # fmt: skip


def test_a_hidden_tool_is_shown_nowhere_and_can_be_called(registry: ToolRegistry) -> None:
    """Otherwise a tool that a policy denies as a whole would be offered, and then refused."""
    registry.register("secret", read_file, deferred=True)
    hidden = {"read_file", "secret"}
    now = dataclasses.replace(registry.snapshot(), is_shown=lambda t: t.name not in hidden)
    assert [d["name"] for d in now.definitions] == ["delete_file"]
    assert [t.name for t in now.list_tools(only_available=True)] == ["delete_file"]
    assert now.search("read secret") == []
    assert [t.name for t in now.select_tools("read the secret file")] == ["delete_file"]
    assert [t.name for t in now.active_for_phase("editing")] == ["delete_file"]
    assert isinstance(now.resolve("read_file"), Tool)


def test_schemas_in_other_levels_and_dialects_are_asked_for_by_name(registry: ToolRegistry) -> None:
    """Otherwise a typing error in a level would silently tell a model something else."""
    with pytest.raises(ValueError, match="short"):
        registry.get_tool_schemas(level="short")
    registry.disable_tool("rm")
    assert [t["name"] for t in registry.get_tool_schemas()] == ["read_file"]
    assert [t["name"] for t in registry.get_tool_schemas(only_enabled=False)] == [
        "read_file", "delete_file",
    ]  # fmt: skip


def test_a_registrys_snapshot_says_that_it_cannot_run_calls(registry: ToolRegistry) -> None:
    """A registry holds no executor: whoever mixed them up has to read it."""
    with pytest.raises(RuntimeError, match=r"take it from an executor: executor\.snapshot"):
        trio.run(registry.snapshot().settle, ToolCall("read_file"))


def test_settle_hands_the_call_to_the_executor_that_took_the_snapshot(
    registry: ToolRegistry,
) -> None:
    """Otherwise the words of one dialect would have a road of their own."""
    seen: list[tuple[ToolCall, bool]] = []

    async def settler(call: ToolCall, *, refuse_stale: bool = False) -> ToolResult:
        seen.append((call, refuse_stale))
        await trio.lowlevel.checkpoint()
        return ToolResult(True, "done")

    now: Snapshot = dataclasses.replace(registry.snapshot(), settler=settler)
    call = ToolCall("read_file")
    assert trio.run(now.settle, call).output == "done"
    assert seen == [(call, False)]

    async def strictly() -> ToolResult:
        return await now.settle(call, refuse_stale=True)

    trio.run(strictly)
    assert seen[1] == (call, True)


def before_call(name: str, arguments: dict[str, Any]) -> None: ...


class AfterCall:
    def __call__(self, result: ToolResult) -> None: ...


def test_hooks_are_kept_in_order_and_taken_back(registry: ToolRegistry) -> None:
    """Otherwise a guard would run after what it guards, or after it was taken back."""
    before = registry.snapshot()
    first = registry.register_before_hook(before_call, critical=True, description="guards")
    made = Hook(before_call, "made")
    assert registry.register_before_hook(made) is made
    after = registry.register_after_hook(AfterCall())
    named = registry.register_after_hook(before_call, name="other")
    assert (first.name, first.critical, first.description) == ("before_call", True, "guards")
    assert (after.name, after.critical, named.name) == ("AfterCall", False, "other")
    now = registry.snapshot()
    assert now.before_hooks == (first, made)
    assert now.after_hooks == (after, named)
    assert before.before_hooks == ()
    assert registry.remove_hook(made) is True
    assert registry.remove_hook(made) is False
    assert registry.remove_hook(after) is True
    assert registry.snapshot().before_hooks == (first,)
    assert registry.snapshot().after_hooks == (named,)
    with pytest.raises(TypeError, match="a hook is a function, not str"):
        registry.register_before_hook("guard")  # type: ignore[arg-type]  # that is the point


def test_two_registries_share_nothing(registry: ToolRegistry) -> None:
    """Otherwise a test, or a session, would see the tools of another."""
    other = ToolRegistry()
    registry.register_before_hook(before_call)
    assert len(other) == 0
    assert other.snapshot().before_hooks == ()
    assert "read_file" not in other
