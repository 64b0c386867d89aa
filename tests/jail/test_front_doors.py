"""The four front doors, each through a real jail, as its dialect's users call it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolcell import CallContext, Executor
from toolcell.approval import unsafe_approve_all
from toolcell.packs import PackError, ask_pack, load_pack

from . import tools_of_dialects as dialects


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path.resolve()


def executor(place: Path, tools: Any, **options: Any) -> Any:
    return Executor(
        tools=tools,
        workspace=place / "ws",
        state_dir=place / "state",
        approver=unsafe_approve_all,
        **options,
    )


CONTEXT = CallContext(session_id="s", agent_id="a", phase="investigating", task_kind="investigate")


async def test_a_definitions_handler_gets_its_model_and_its_run(place):
    """A phase-gated runner's handlers would have to be rewritten, one by one."""
    async with executor(place, dialects.DEFINITIONS, deps={"ticket": 7}) as box:
        found = await box.call("look", {"path": "a/b", "depth": 2}, context=CONTEXT)
        assert (found.success, found.content) == (True, "Look a/b 2")
        assert (found.summary, found.terminate) == ("looked", True)
        assert found.metadata["phase"] == "investigating"
        assert found.metadata["extra"] == {"ticket": 7}
        assert (found.metadata["here"], found.metadata["approver"]) == (True, None)
        bad = await box.call("look", {"path": "a", "depth": 3})
        assert (bad.error.kind, bad.error.message) == ("tool_error", "too deep")
        assert (bad.summary, bad.terminate, bad.metadata["depth"]) == ("no", True, 3)
        worse = await box.call("look", {"path": "a", "depth": 3, "names": ["x"]})
        assert (worse.error.kind, worse.terminate) == ("invalid_output", False)
        wrong = await box.call("look", {"path": "a", "depth": 4})
        assert wrong.error.kind == "invalid_arguments"
        alone = await box.call("look_alone", {"path": "a", "names": ["x"]})
        assert alone.output == ["PosixPath", "x"]
        told = await box.call("look_with_context", {"path": "a"}, context=CONTEXT)
        assert told.output[1] == "s"


async def test_a_base_tool_is_built_in_the_jail_and_given_its_arguments(place):
    """An object that crossed would bring whatever it holds; arguments must be what was decided."""
    async with executor(place, [dialects.Grep, dialects.Counter(40)]) as box:
        found = await box.call("grep", {"pattern": "x", "options": {}}, context=CONTEXT)
        given = {"pattern": "x", "context": 2, "options": {"case": True}}
        assert found.output == {"who": "s", "given": given}
        assert found.metadata["n"] == 1
        forged = await box.call("grep", {"pattern": "x", "_exec_ctx": {"session_id": "root"}})
        assert forged.error.kind == "invalid_arguments"
        counted = await box.call("counter", {}, context=CONTEXT)
        assert counted.output == [40, "a"]


async def test_a_tool_of_parts_runs_under_the_key_that_it_is_registered_by(place):
    """Two registrations of one record must each be called by their own name."""
    registry = {"shout": dialects.SHOUT, "again": dialects.SHOUT, "plain": dialects.PLAIN}
    async with executor(place, []) as box:
        box.registry.register(registry)
        for name in ("shout", "again"):
            found = await box.call(name, {"path": "p"}, context=CONTEXT)
            assert (found.tool_name, found.output) == (name, "p for s!")
        assert (await box.call("plain", {"text": "a"})).output == {"text": "a", "times": 1}
        few = await box.call("plain", {"text": "a", "times": 0})
        assert few.error.kind == "invalid_arguments"
        many = await box.call("plain", {"text": "a", "times": 6})
        assert many.error.kind == "invalid_output"
        assert (await box.call("plain", {"text": "fail"})).error.message == "it failed"


async def test_what_a_function_returns_is_held_to_its_output_model(place):
    """A schema that is only advertised is a promise that nobody keeps."""
    async with executor(place, [dialects.reported, dialects.rich]) as box:
        good = await box.call("reported", {"count": 2})
        assert good.output == {"count": 2, "note": None}
        bad = await box.call("reported", {"count": 2, "honest": False})
        assert (bad.error.kind, bad.output) == ("invalid_output", None)
        found = await box.call("rich", {})
        assert found.output == {
            "path": "a/b", "when": "2024-02-29", "colour": "red", "raw": {"base64": "/w=="},
        }  # fmt: skip


PACK = """
    import os
    from typing import Any
    import pydantic
    from toolcell.base_tool import BaseTool
    from toolcell.definition import ToolDefinition
    from toolcell.tools import Tool, tool

    class In(pydantic.BaseModel):
        text: str

    class _Common(BaseTool):
        parameters = {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}

    class Named(_Common):
        name = "named"
        description = "Says its number."
        priority = "critical"

        def execute(self, _exec_ctx, n):
            return [n, _exec_ctx.session_id]

    class Told(_Common):
        description = "Says what it was told."

        def __init__(self, word):
            self.name, self.word = "told_" + word, word

        async def execute(self, _exec_ctx, **kwargs):
            return [self.word, kwargs]

    told = Told("b")

    def handle(args, deps):
        return [args.text, deps.phase]

    defined = ToolDefinition("defined", "Defined.", In, handle, ("investigating",))

    def run(input):
        return input.text.upper()

    made = Tool.make(description="Made.", input=In, output=str, execute=run)

    @tool(
        availability_check=lambda: not os.path.exists("/nowhere"),
        paths=lambda arguments: [arguments["text"], 5][: 1 + (arguments["text"] == "two")],
        to_model_output=lambda value: f"shown {value}",
        keywords=["odd"], network="host", permission_action="edit", timeout=5,
    )
    def asked(text: str) -> str:
        '''Asked.'''
        return text

    @tool(availability_check=lambda: False)
    def away() -> None:
        '''Away.'''
    """


async def test_a_packs_tools_of_every_dialect_run_and_say_nothing_outside_of_a_jail(place):
    """A pack's callables, run here to be asked about it, would run as us."""
    pack = place / "pack.py"
    pack.write_text(dedent(PACK))
    tools = {tool.name: tool for tool in await load_pack(pack)}
    assert list(tools) == ["named", "told_b", "defined", "made", "asked", "away"]
    asked = tools["asked"]
    assert asked.in_jail == {"availability_check", "paths", "to_model_output"}
    assert (asked.paths, asked.network, asked.action) == (None, None, "asked")
    assert (asked.keywords, asked.timeout_s, asked.has_metadata) == (("odd",), 5, True)
    assert (tools["defined"].phases, tools["named"].priority) == (("investigating",), 2)
    with pytest.raises(ValueError, match="only inside a jail"):
        asked.paths_of({"text": "a"})
    assert await ask_pack(asked, "availability_check") is True
    assert await ask_pack(asked, "paths", {"text": "a/b"}) == ("a/b",)
    assert await ask_pack(asked, "to_model_output", 5) == "shown 5"
    with pytest.raises(PackError, match="paths of tool asked"):
        await ask_pack(asked, "paths", {"text": "two"})
    with pytest.raises(ValueError, match="has no paths"):
        await ask_pack(tools["made"], "paths", {})
    async with executor(place, tools.values()) as box:
        for name, arguments, output in (
            ("named", {}, [3, "s"]),
            ("told_b", {"n": 4}, ["b", {"n": 4}]),
            ("defined", {"text": "a"}, ["a", "investigating"]),
            ("made", {"text": "a"}, "A"),
        ):
            found = await box.call(name, arguments, context=CONTEXT)
            assert (found.error, found.output) == (None, output)
        # What is denied whatever it says is not asked.
        for phase, kind in (("investigating", "tool_unavailable"), ("editing", "not_admitted")):
            away = dataclasses.replace(tools["away"], phases=("investigating",))
            with box.registry.register("away_now", away):
                found = await box.call("away_now", context=CallContext(phase=phase))
            assert found.error.kind == kind


SCRIPT = """
    import sys
    import pydantic
    import trio
    from toolcell import Executor
    from toolcell.base_tool import BaseTool
    from toolcell.definition import ToolDefinition
    from toolcell.tools import Tool

    class In(pydantic.BaseModel):
        text: str

    def look(args, deps):
        return [type(args).__name__, dict(deps.extra)]

    look = ToolDefinition("look", "Look.", In, look, ("editing",))

    def shout(input):
        return input.text.upper()

    shout = Tool.make(description="Shout.", input=In, output=str, execute=shout)

    class Count(BaseTool):
        name = "count"
        description = "Count."
        parameters = {"properties": {"text": {"type": "string"}}}
        factory = "__main__:count"

        def __init__(self, start):
            self.start = start

        async def execute(self, _exec_ctx, text=""):
            return self.start + len(text)

    def count():
        return Count(10)

    async def main():
        tools = Executor(tools=[look, Count], workspace=sys.argv[1], deps={"a": 1})
        tools.registry.register("shout", shout)
        async with tools:
            for name in ("look", "shout", "count"):
                result = await tools.call(name, {"text": "ab"})
                print(result.output, result.error)

    if __name__ == "__main__":
        trio.run(main)
    """


def test_every_front_door_is_found_in_the_script_that_is_run(place):
    """The first program that anybody writes is one file, run as it is."""
    script = place / "my-script.py"
    script.write_text(dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script), str(place / "ws")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TOOLCELL_STATE_DIR": str(place / "state")},
    )
    assert done.stdout.splitlines() == ["['In', {'a': 1}] None", "AB None", "12 None"], done.stderr
