"""What a tool of toolcell's finds in its jail, and what a pack can say about itself."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolcell import Executor
from toolcell.approval import deny_all, unsafe_approve_all
from toolcell.packs import PackError, load_pack


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path.resolve()


async def run_pack(
    place: Path, source: str, name: str, arguments: Any = None, **options: Any
) -> Any:
    pack = place / "pack.py"
    pack.write_text(dedent(source))
    tools = await load_pack(pack)
    options = {"approver": unsafe_approve_all} | options
    async with Executor(
        tools=tools, workspace=place / "ws", state_dir=place / "state", **options
    ) as box:
        return await box.call(name, arguments or {})


async def test_the_public_names_load_neither_trio_nor_pydantic_in_a_jail(place):
    """141 ms of pydantic in every call is the price of one careless import."""
    result = await run_pack(
        place,
        """
        import sys
        from toolcell import ReadPath, ToolError, ToolResult, tool

        @tool
        def loaded() -> list[str]:
            '''What is imported here.'''
            return sorted({name.partition(".")[0] for name in sys.modules})
        """,
        "loaded",
    )
    assert "toolcell" in result.output
    assert {"trio", "pydantic", "psutil", "orjson", "rich", "jsonschema_rs"} & set(
        result.output
    ) == set()


async def test_a_pack_is_imported_in_a_jail_only(place):
    """Importing a tool's module in the supervisor to get its schema runs it as us."""
    result = await run_pack(
        place,
        f"""
        import os
        from toolcell import tool

        try:
            open({str(place / "escaped")!r}, "w")
            SEEN = "written, in the jail's own /tmp"
        except OSError:
            SEEN = "refused"

        @tool
        def seen(n: int = 1) -> str:
            '''What happened at import.'''
            return SEEN
        """,
        "seen",
    )
    assert result.output in ("refused", "written, in the jail's own /tmp")
    assert not (place / "escaped").exists()


async def test_a_packs_words_about_itself_do_not_lower_its_level(place):
    """A hostile pack calls itself readonly and safe."""
    source = """
        from toolcell import tool

        @tool(access_mode="readonly", danger_level="safe")
        def harmless() -> int:
            '''Harmless.'''
            return 1
        """
    denied = await run_pack(place, source, "harmless", approver=deny_all)
    assert denied.error.kind == "approval_unavailable"
    assert denied.decision.level == 3
    assert (await run_pack(place, source, "harmless")).output == 1


async def test_a_pack_that_changed_after_it_was_described_does_not_run(place):
    """What was approved is the file as it was."""
    pack = place / "pack.py"
    pack.write_text(
        "from toolcell import tool\n@tool\ndef f() -> int:\n    '''F.'''\n    return 1\n"
    )
    tools = await load_pack(pack)
    pack.write_text(pack.read_text().replace("return 1", "return 2"))
    async with Executor(
        tools=tools,
        workspace=place / "ws",
        state_dir=place / "state",
        approver=unsafe_approve_all,
    ) as box:
        result: Any = await box.call("f")
    assert result.error.kind == "exception"
    assert "has changed" in result.error.message


@pytest.mark.parametrize(
    "source",
    ["1/0", "import os; os._exit(0)", "x =", "import os; os.abort()", "while True: pass"],
)
async def test_a_pack_that_cannot_be_described_is_one_clear_line(place, source):
    """A traceback of ours about a file of theirs helps nobody."""
    from toolcell_sandbox.spec import Limits

    pack = place / "bad.py"
    pack.write_text(source)
    with pytest.raises(PackError) as raised:
        await load_pack(pack, limits=Limits(wall_s=2))
    assert "\n" not in str(raised.value)
    assert "bad.py" in str(raised.value)


async def test_async_handlers_run_under_the_loop_that_they_use(place):
    """A tool author should not have to know ours."""
    source = """
        import asyncio
        import trio
        from toolcell import tool

        @tool
        async def with_trio() -> str:
            '''Uses trio.'''
            await trio.sleep(0)
            return "trio"
        """
    assert (await run_pack(place, source, "with_trio")).output == "trio"
    source = source.replace("        import trio\n", "").replace("trio.sleep", "asyncio.sleep")
    assert (await run_pack(place, source, "with_trio")).output == "trio"


async def test_the_running_interpreter_in_a_writable_workspace_stays_read_only(place):
    """A tool that can write our site-packages is root's next import."""
    import dataclasses
    import os

    from toolcell_sandbox import CommandHandler, JailSpec, Mount, host, run_in_jail

    # As if the interpreter lay two folders below the workspace.
    ours = place / "ws" / "sub" / "venv"
    ours.mkdir(parents=True)
    (ours / "file").write_text("ours")
    spec = JailSpec(
        workspace=str(place / "ws"),
        workspace_mode="direct",
        env=host.base_environment(),
        mounts=(Mount(path=str(ours), owned=True),),
    )
    script = (
        "echo x > sub/venv/file; rm -rf sub/venv/file; mv sub other; mv sub/venv sub/v2;"
        "echo fine > sub/new && echo fine > new && cat sub/venv/file"
    )
    outcome = await run_in_jail(CommandHandler(argv=("/bin/sh", "-c", script)), spec)
    assert outcome.stdout.kept == b"ours"
    assert sorted(os.listdir(place / "ws")) == ["new", "sub"]
    assert sorted(os.listdir(ours.parent)) == ["new", "venv"]
    # The control: without these mounts, the same script takes it away.
    bare = dataclasses.replace(spec, mounts=())
    await run_in_jail(CommandHandler(argv=("/bin/sh", "-c", script)), bare)
    assert sorted(os.listdir(place / "ws")) == ["new", "other"]


async def test_a_handler_chooses_its_loop_by_what_it_names_itself(place):
    """A module may import both."""
    source = """
        import asyncio
        import trio
        from toolcell import tool

        @tool
        async def one() -> str:
            '''Uses asyncio.'''
            await asyncio.sleep(0)
            return asyncio.get_running_loop().__class__.__name__

        @tool
        async def two() -> str:
            '''Uses trio.'''
            async with trio.open_nursery():
                await trio.sleep(0)
            return "trio"
        """
    assert "Loop" in (await run_pack(place, source, "one")).output
    assert (await run_pack(place, source, "two")).output == "trio"


async def test_a_handler_may_return_a_result_of_its_own(place):
    """It is what authors of other dialects write; dumped as data it would mean nothing."""
    source = """
        from toolcell import ToolResult, tool

        @tool
        def said(well: bool) -> dict[str, int]:
            '''Says how it went.'''
            if not well:
                return ToolResult(False, None, "no such branch")
            return ToolResult("said", True, "shown to the model")
        """
    good = await run_pack(place, source, "said", {"well": True})
    assert (good.success, good.content) == (True, "shown to the model")
    bad = await run_pack(place, source, "said", {"well": False})
    assert (bad.error.kind, bad.error.message) == ("tool_error", "no such branch")
