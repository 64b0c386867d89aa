"""Around the call: hooks, one turn's calls, what is cached and tried again, runtimes, snapshots."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell import (
    CallContext,
    Decision,
    Executor,
    RunDeps,
    ToolCall,
    ToolRegistry,
    ToolResult,
    ToolRuntime,
)
from toolcell.approval import unsafe_approve_all
from toolcell.audit import read
from toolcell.builtin import search_tool
from toolcell.packs import load_pack
from toolcell.results import Denied, HookFailed

from .tools_of_turns import ALL, again, number, remember


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "a.txt").write_text("hello\n")
    return tmp_path.resolve()


def executor(place: Path, **options: Any) -> Executor:
    defaults: dict[str, Any] = {"tools": ALL, "approver": unsafe_approve_all}
    return Executor(workspace=place / "ws", state_dir=place / "state", **(defaults | options))


# -- hooks ---------------------------------------------------------------------------------------


async def test_a_before_hooks_arguments_are_validated_decided_on_and_run(place):
    """Otherwise a hook could get by the schema, or the gate, in the model's name."""
    seen: list[tuple[str, Any]] = []
    instead: dict[str, Any] = {}

    def before(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        seen.append((name, arguments))
        return instead or None

    async with executor(place) as box:
        hook = box.registry.register_before_hook(before, critical=True, name="other")
        assert (await box.call("read_file", {"path": "a.txt"})).output == "hello\n"
        assert seen == [("read_file", {"path": "a.txt"})]
        for wanted, kind in (
            ({"path": 5}, "invalid_arguments"),
            ({"path": "/etc/shadow"}, "denied"),
            ({"path": "missing"}, "tool_error"),
        ):
            instead.update(wanted)
            result = await box.call("read_file", {"path": "a.txt"})
            assert result.error is not None
            assert result.error.kind == kind, result.content
        assert box.registry.remove_hook(hook)
        assert not box.registry.remove_hook(hook)
        assert (await box.call("read_file", {"path": "a.txt"})).success


async def test_a_critical_hook_blocks_before_and_fails_after_what_has_happened(place):
    """Otherwise a guard that broke guards nothing; or a kept change is said not to be."""

    def broken(*given: Any) -> None:
        raise RuntimeError("down")

    async with executor(place) as box:
        before = box.registry.register_before_hook(broken, critical=True, name="guard")
        result = await box.call("write_file", {"path": "b.txt", "content": "b"})
        assert isinstance(result.error, HookFailed)
        assert (result.error.stage, result.error.effect_happened) == ("before", False)
        assert not (place / "ws" / "b.txt").exists()
        box.registry.remove_hook(before)
        box.registry.register_after_hook(broken, critical=True, name="audit")
        result = await box.call("write_file", {"path": "b.txt", "content": "b"})
        assert isinstance(result.error, HookFailed)
        assert (result.error.stage, result.error.effect_happened) == ("after", True)
        assert result.files_changed == ("b.txt",)
        assert (place / "ws" / "b.txt").read_text() == "b"
        # What never ran has no after.
        denied = await box.call("read_file", {"path": "/etc/shadow"})
        assert denied.error is not None
        assert denied.error.kind == "denied"
    ends = [one["kind"] for one in read(place / "state") if one["record"] == "terminal"]
    assert ends == ["hook_failed", "hook_failed", "denied"]


# -- one turn ------------------------------------------------------------------------------------


async def test_one_turns_calls_come_in_order_and_a_read_after_a_write_sees_it(place):
    """Otherwise a model that edits and reads in one turn reads what was before."""
    write = {"path": "a.txt", "content": "new"}
    calls = [
        ToolCall("read_file", {"path": "a.txt"}),
        ToolCall("write_file", write),
        ToolCall("read_file", {"path": "a.txt"}),
        ToolCall("nothing", {}),
    ]
    async with executor(place) as box:
        results = await box.call_many(calls, limit=2)
    assert [one.output for one in results] == [
        "hello\n",
        {"bytes_written": 3, "created": False},
        "new",
        None,
    ]
    assert [one.call_id for one in results] == [call.call_id for call in calls]
    ends = [one for one in read(place / "state") if one["record"] == "terminal"]
    assert len(ends) == 4


# -- idempotent calls ----------------------------------------------------------------------------


async def test_an_idempotent_call_is_given_again_while_nothing_was_changed(place):
    """Otherwise it costs twice; or a read after a write, or a denial, is answered from before."""
    async with executor(place, cache_s=60) as box:
        first = await box.call("number", {})
        again = await box.call("number", {})
        assert (again.output, again.metadata["cached_from"]) == (first.output, first.call_id)
        assert again.call_id != first.call_id
        other = await box.call("number", {}, context=CallContext(session_id="other"))
        assert "cached_from" not in other.metadata
        # Permission comes first: what is forbidden by now is not given from the cache.
        explored = CallContext(tier=-0, mode="explore", phase="verifying")
        assert (await box.call("number", {}, context=explored)).success
        # It passes the hooks after a call as well, those of now.
        hook = box.registry.register_after_hook(
            lambda result: dataclasses.replace(result, output="hidden"), critical=True, name="hide"
        )
        assert (await box.call("number", {})).output == "hidden"
        box.registry.remove_hook(hook)
        box.registry.disable_tool("number")
        assert (await box.call("number", {})).error is not None
        box.registry.enable_tool("number")
        assert "cached_from" in (await box.call("number", {})).metadata
        await box.call("write_file", {"path": "c", "content": "c"})
        assert "cached_from" not in (await box.call("number", {})).metadata
    ends = [one for one in read(place / "state") if one["record"] == "terminal"]
    assert len(ends) == 9, "each has its record, the cached ones too"
    (told,) = [one for one in ends if one["call_id"] == again.call_id]
    assert (told["cached_from"], "receipt" in told) == (first.call_id, False), "nothing ran"
    asked = [one for one in read(place / "state") if one["record"] == "intent"][1]
    assert (asked["call_id"], asked["approval"]["how"]) == (again.call_id, "not_asked")
    async with executor(place) as box:
        assert (await box.call("number", {})).output != (await box.call("number", {})).output


async def test_only_what_does_the_same_twice_is_tried_again(place):
    """Otherwise a payment is made three times."""
    async with executor(place, retries=2) as box:
        result = await box.call("again", {})
        assert result.error is not None
        assert (result.error.kind, result.metadata["attempts"]) == ("tool_error", 3)
        assert again.is_idempotent
        result = await box.call("once", {})
        assert result.error is not None
        assert "attempts" not in result.metadata
    records = read(place / "state")
    assert [one["record"] for one in records] == ["intent", "terminal"] * 2


async def test_what_a_call_is_fed_is_its_own(place):
    """Otherwise it is answered for what another was fed; or tried again on nothing."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"c"

    async with executor(place, cache_s=60, retries=1) as box:
        for fed in (b"a", b"b"):
            result = await box.call("fed", {}, stdin=fed)
            assert (result.output, "cached_from" in result.metadata) == (fed.decode(), False)
        fed_whole = await box.call("fed", {"fails": True}, stdin=b"b")
        assert (fed_whole.error_text, fed_whole.metadata["attempts"]) == ("b", 2)
        in_pieces = await box.call("fed", {"fails": True}, stdin=pieces())
        assert (in_pieces.error_text, "attempts" in in_pieces.metadata) == ("c", False)


# -- runtimes and snapshots ----------------------------------------------------------------------


async def test_a_runtime_runs_under_its_phase_and_hands_on_its_data(place):
    """Otherwise the phase dialect's users run ungated, or without what their handlers need."""
    registry = ToolRegistry(remember, number)
    deps = RunDeps(place / "ws", "editing", "edit", {"greeting": "hej"}, unsafe_approve_all)
    runtime = ToolRuntime(registry, deps, state_dir=place / "state")
    result = await runtime.execute("remember", {"text": "x"})
    assert (result.success, result.output) == (True, "hej x editing")
    assert {tool.name for tool in runtime.active_tools()} == {"remember", "number"}
    with pytest.raises(RuntimeError, match="async with"):
        await runtime.verify()
    async with runtime:
        runtime.deps = RunDeps(place / "ws", "verifying", "edit")
        result = await runtime.execute("remember", {"text": "x"}, call_id="mine")
        assert result.error is not None
        assert (result.error.kind, result.call_id) == ("not_admitted", "mine")
        assert {tool.name for tool in runtime.active_tools()} == {"number"}


async def test_an_investigation_that_edits_is_verified_to_net_out_to_nothing(place):
    """Otherwise a look around leaves its marks, and nobody is told."""
    registry = ToolRegistry()
    deps = RunDeps(place / "ws", "investigating", "investigate", {}, unsafe_approve_all)
    async with ToolRuntime(registry, deps, state_dir=place / "state", builtin=True) as runtime:
        assert (await runtime.verify()).ok
        wrote = await runtime.execute("write_file", {"path": "a.txt", "content": "debug"})
        assert wrote.success, wrote.content
        left = await runtime.verify()
        assert not left.ok
        assert left.effects is not None
        assert (left.effects.paths, "a.txt" in left.text) == (("a.txt",), True)
        await runtime.execute("write_file", {"path": "a.txt", "content": "hello\n"})
        assert (await runtime.verify()).ok
    options: dict[str, Any] = {"builtin": True, "workspace_mode": "direct"}
    async with ToolRuntime(registry, deps, state_dir=place / "state", **options) as runtime:
        wrote = await runtime.execute("write_file", {"path": "a.txt", "content": "debug"})
        assert (wrote.files_changed, wrote.metadata["files_changed"][:7]) == (None, "unknown")
        verified = await runtime.verify()
        assert (verified.ok, verified.effects) == (False, None)
        assert "cannot be told" in verified.text


async def test_a_snapshot_calls_what_it_showed_and_says_when_that_is_stale(place):
    """Otherwise a tool that was swapped after the model saw it runs under its name."""
    registry = ToolRegistry(number)
    async with executor(place, registry=registry, tools=(), builtin=False) as box:
        shown = box.snapshot()
        assert [one["name"] for one in shown.definitions] == ["number"]
        registration = registry.register("number", remember)
        result = await shown.settle(ToolCall("number", {}))
        assert result.success, "the captured one"
        result = await box.call("number", {}, snapshot=shown, refuse_stale=True)
        assert result.error is not None
        assert result.error.kind == "tool_stale"
        assert (await box.call("number", {})).error is not None, "the new one wants a text"
        registration.close()
        result = await box.call("number", {}, snapshot=shown, refuse_stale=True)
        assert result.success, result.content
    with pytest.raises(RuntimeError, match="executor"):
        await registry.snapshot().settle(ToolCall("number", {}))


async def test_a_deferred_tool_is_found_by_words_and_called_under_the_same_gates(place):
    """Otherwise what is not listed is never used; or it is used past its gate."""
    registry = ToolRegistry(search_tool())
    registry.register({"number": number, "remember": remember}, group="lab", deferred=True)
    async with executor(place, registry=registry, tools=(), builtin=False) as box:
        assert [one["name"] for one in box.snapshot().definitions] == ["search_tools"]
        found = await box.call("search_tools", {"text": "a number that is another"})
        (first, *_) = found.output["tools"]
        assert first["name"] == "lab_number"
        assert first["input_schema"] == number.input_schema
        assert found.metadata["answered_by"] == "supervisor"
        assert (await box.call("lab_number", {})).success
        context = CallContext(mode="plan")
        refused = await box.call("lab_remember", {"text": "x"}, context=context)
        assert refused.error is not None
        assert refused.error.kind == "not_admitted"
        assert (await box.call("search_tools", {"text": "zebra"})).output == {"tools": []}
        # What a ceiling leaves out is not found under it.
        told = {"text": "lab remember"}
        assert "lab_remember" in str((await box.call("search_tools", told)).output)
        found = await box.call("search_tools", told, context=context)
        assert "lab_remember" not in str(found.output)
    assert {tool.name for tool in box.admitted()} == {"search_tools"}


async def test_what_no_call_may_do_is_not_shown(place):
    """Otherwise a model spends its turns on tools that are never admitted."""
    rules = place / "policy.toml"
    rules.write_text('[[rule]]\nid = "no"\noutcome = "deny"\ntool = "shell"\nreason = "no"\n')
    async with executor(place, policy=rules) as box:

        def names(context: CallContext | None = None) -> set[str]:
            return {one["name"] for one in box.snapshot(context).definitions}

        assert "shell" not in names()
        assert "python" in names()
        assert {"write_file", "python"} & names(CallContext(mode="plan")) == set()
        denied = await box.snapshot().settle(ToolCall("shell", {"command": "true"}))
        assert denied.error is not None
        assert denied.error.kind == "denied", "and if it is called all the same, it is decided on"


# -- what lists and searches never tell (CASES 39) -------------------------------------------------

WAYS: list[dict[str, Any]] = [
    {},
    {"workspace_mode": "direct"},
    {"isolation": "container", "workspace_mode": "direct", "waive": ("paths_masked",)},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.get("isolation", str(len(way))))
async def test_a_list_and_a_search_name_no_file_that_read_file_denies(place, way):
    """Otherwise what must not be read is read line by line, by searching for a dot."""
    for path in (".env", "node_modules/x/.env", "sub/.ssh/id_rsa"):
        (place / "ws" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "ws" / path).write_text("hello SECRET\n")
    os.mkdir(place / "ws" / "node_modules" / "y")
    (place / "ws" / "node_modules" / "y" / "near.env.txt").write_text("hello\n")
    async with executor(place, **way) as box:
        listed = await box.call("list_directory", {"depth": 5})
        found = await box.call("search", {"pattern": "hello"})
        denied = await box.call("read_file", {"path": "node_modules/x/.env"})
    assert denied.error is not None
    assert denied.error.kind == "denied"
    paths = {one["path"] for one in listed.output["entries"]}
    assert {"a.txt", "node_modules/x", "sub", "node_modules/y/near.env.txt"} <= paths
    assert not [path for path in paths if path.endswith((".env", "id_rsa"))]
    assert {one["path"] for one in found.output["matches"]} == {
        "a.txt",
        "node_modules/y/near.env.txt",
    }
    assert found.metadata["kept_back"] >= 1
    for result in (listed, found):
        assert "SECRET" not in str(result.to_json())
        assert not [path for path in result.files_read or () if path.endswith(".env")]


# -- views ---------------------------------------------------------------------------------------

VIEWS: list[tuple[str, Callable[[ToolResult], Any]]] = [
    ("phase", lambda result: result.as_phase().files_changed),
    ("basic", lambda result: result.as_basic().output),
    ("settled", lambda result: result.as_settled().value),
]


async def test_each_dialect_has_its_own_view_of_one_result(place):
    """Otherwise three kinds of agent code each need a wrapper of their own."""
    async with executor(place) as box:
        wrote = await box.call("write_file", {"path": "v", "content": "v"})
        failed = await box.call("read_file", {"path": "missing"})
    assert [view(wrote) for _, view in VIEWS] == [["v"], wrote.output, wrote.output]
    phase, basic, settled = failed.as_phase(), failed.as_basic(), failed.as_settled()
    assert (phase.success, basic.success) == (False, False)
    assert phase.error == basic.error == failed.error_text
    assert settled.error is not None
    assert settled.error["kind"] == "tool_error"
    assert settled.parts == ({"type": "text", "text": failed.content},)
    assert settled.handles == ()


# -- packs: nobody trusts them ---------------------------------------------------------------------

PACK = """
import os
from toolcell import tool

def where(arguments):
    if arguments["name"] == "raise":
        raise ValueError("no idea")
    return [arguments["name"]]

def words(value):
    assert "PLANTED" not in os.environ, "it runs where we do"
    return f"in words: {value['text']}"

def broken(value):
    raise ValueError("no words")

def never():
    return False

@tool(paths=where, to_model_output=words)
def reads(name: str) -> dict:
    return {"text": open(name).read()}

@tool(to_model_output=broken)
def plain() -> int:
    return 5

@tool(availability_check=never)
def absent() -> int:
    return 1
"""


async def test_a_packs_own_functions_are_asked_in_a_jail_and_take_calls_away_only(
    place, monkeypatch
):
    """Otherwise a pack's code runs in our process; or its paths are not looked at."""
    monkeypatch.setenv("PLANTED", "1")
    (place / "pack.py").write_text(PACK)
    (place / "ws" / ".env").write_text("SECRET")
    tools = await load_pack(place / "pack.py")
    async with executor(place, tools=tools) as box:
        read_it = await box.call("reads", {"name": "a.txt"})
        assert (read_it.content, read_it.output) == ("in words: hello\n", {"text": "hello\n"})
        for name, code in ((".env", "path_protected"), ("raise", "paths_unknown")):
            result = await box.call("reads", {"name": name})
            assert result.error is not None
            assert result.error.kind == "denied", result.content
            assert isinstance(result.error, Denied)
            assert code in {reason.code for reason in result.error.reasons}, result.error.reasons
        shown = await box.call("plain", {})
        assert (shown.content, shown.output) == ("5", 5)
        assert "no words" in str(shown.metadata["model_output_error"])
        gone = await box.call("absent", {})
        assert gone.error is not None
        assert gone.error.kind == "tool_unavailable"
        # Nothing is started to answer what would be decided: it says that it cannot be told.
        check = box.check("reads", {"name": "a.txt"})
        assert isinstance(check, Decision)
        assert check.reasons[0].code == "paths_unknown"
