"""Large results end to end: bounded, kept whole, read back in pages, with little memory."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import trio

from toolcell import CallContext, Executor, Limits, _large_output
from toolcell._large_output import checked
from toolcell.results import ProtocolError
from toolcell.retained import RetainedStore, Retainer
from toolcell.tools import Tool
from toolcell_sandbox import JailSpec, Mount, PythonHandler, run_in_jail

MIB = 1 << 20
RSS_GROWTH_MAX = 64 * MIB
"""Of the supervising process, for a result of 200 MB."""

PACK = '''
from pathlib import Path

from toolcell import tool, ReadPath, WritePath

PNG = b"\\x89PNG\\r\\n\\x1a\\n" + bytes(100)

@tool
def rows(count: int) -> list[dict[str, int]]:
    """Rows of numbers."""
    return [{"id": number, "twice": 2 * number} for number in range(count)]

@tool
def lines(count: int) -> str:
    """Numbered lines."""
    return "".join(f"line {number}\\n" for number in range(count))

@tool
def blocks(count: int) -> dict[str, list[str]]:
    """Blocks of a megabyte each."""
    return {"blocks": ["x" * 1_000_000] * count}

@tool(output_schema={"type": "array", "items": {"type": "integer"}})
def integers(count: int, last: str) -> list[object]:
    """Integers, and one other."""
    return [*range(count), last]

@tool
def picture() -> bytes:
    """An image."""
    return PNG

@tool
def keep(path: WritePath, count: int) -> list[int]:
    """Write a file, and return a lot."""
    Path(path).write_text("kept")
    return list(range(count))

@tool
def forged(body: str) -> None:
    """Send a frame of its own making, and end as if all were well."""
    import os, struct
    data = body.encode() + b" " * (9 << 20)
    os.write(3, struct.pack("!Q", len(data)))
    view = memoryview(data)
    while view:
        view = view[os.write(3, view):]
    os._exit(0)
'''


@pytest.fixture
def pack(tmp_path: Path) -> dict[str, Any]:
    """The pack's tools, from a file outside of the workspace."""
    import importlib.util

    file = tmp_path / "pack_of_output.py"
    file.write_text(dedent(PACK))
    spec = importlib.util.spec_from_file_location("pack_of_output", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pack_of_output"] = module
    spec.loader.exec_module(module)
    (tmp_path / "ws").mkdir()
    return {name: value for name, value in vars(module).items() if isinstance(value, Tool)}


def opened(tmp_path: Path, pack: dict[str, Any], **known: Any) -> Executor:
    from toolcell.approval import unsafe_approve_all

    return Executor(
        tools=pack.values(),
        workspace=tmp_path / "ws",
        state_dir=tmp_path / "state",
        approver=unsafe_approve_all,
        limits=Limits(result_bytes="64M"),
        **known,
    )


async def pages(executor: Executor, handle: str, **known: Any) -> str:
    """All that a model reads with the tool, page by page."""
    found: list[str] = []
    offset = 0
    while True:
        page = await executor.call(
            "read_retained", {"handle": handle, "offset": offset, "limit": 32_768}, **known
        )
        assert page.success, page.content
        assert page.truncation is None
        assert page.retained == ()
        found.append(page.output["text"])
        if page.output["next_offset"] is None:
            return "".join(found)
        offset = page.output["next_offset"]


async def test_results_are_bounded_kept_whole_and_read_back_by_the_tool(
    tmp_path: Path, pack: dict[str, Any]
) -> None:
    """A model sees little of a large result; with the handle it has all of it (CASES 44)."""
    async with opened(tmp_path, pack) as executor:
        text = await executor.call("lines", {"count": 9_000})
        rows = await executor.call("rows", {"count": 5_000})
        small = await executor.call("rows", {"count": 3})
        for result in (text, rows):
            assert len(result.content.encode()) <= 50 * 1024
            assert len(result.content.splitlines()) <= 2_000
            assert str(tmp_path) not in json.dumps(result.to_json()["retained"])
        assert await pages(executor, text.retained[0].handle) == text.output
        whole = json.loads(await pages(executor, rows.retained[0].handle))
        assert whole == rows.output == [{"id": n, "twice": 2 * n} for n in range(5_000)]
        assert (small.retained, small.truncation) == ((), None)
        # No jail was built for a page, and the receipt claims none.
        page = await executor.call("read_retained", {"handle": rows.retained[0].handle})
        assert page.receipt is not None
        assert (page.receipt.isolation, dict(page.receipt.held)) == ("partial", {})
        assert page.metadata["answered_by"] == "supervisor"
        # A session is as good as its word: neither another, nor none, reads this one's.
        mine = CallContext(session_id="mine")
        held = await executor.call("lines", {"count": 9_000}, context=mine)
        handle = held.retained[0].handle
        assert await pages(executor, handle, context=mine) == held.output
        for context in (CallContext(session_id="other"), CallContext()):
            refused = await executor.call("read_retained", {"handle": handle}, context=context)
            assert refused.error is not None
            assert refused.error.kind == "tool_error"
        picture = await executor.call("picture", {})
        assert picture.content == "[image/png, 108 bytes]"
        assert base64.b64decode(picture.parts[0]["data"]) == pack_png()
    async with opened(tmp_path, pack) as other:
        gone = await other.call("read_retained", {"handle": text.retained[0].handle})
        assert not gone.success


def pack_png() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(100)


async def test_a_large_output_is_checked_in_a_jail_and_kept_on_disk(
    tmp_path: Path, pack: dict[str, Any]
) -> None:
    """What the caller allowed is not refused for its number of values, nor let by unchecked."""
    async with opened(tmp_path, pack) as executor:
        many = await executor.call("keep", {"path": "made.txt", "count": 600_000})
        assert many.success, many.content
        assert many.output is None
        assert (many.metadata["output"], many.metadata["output_bytes"]) == ("retained", 4_088_891)
        assert "an array of 600,000 items" in many.content
        assert many.files_changed == ("made.txt",)
        handle = many.retained[0].handle
        page = await executor.call("read_retained", {"handle": handle, "limit": 20})
        assert page.output["text"] == "[0,1,2,3,4,5,6,7,8,9"
        # Its schema holds, and its last item is the 600,001st.
        wrong = await executor.call("integers", {"count": 600_000, "last": "x"})
        assert wrong.error is not None
        assert wrong.error.kind == "invalid_output"
        assert wrong.error.to_json()["problems"][0]["path"] == "[600000]"
        assert wrong.retained == ()
        # Every rule of the channel holds, and a success is no other word for one.
        forged = '{"ok":true,"value":{"a":1,"a":2}}'
        result = await executor.call("forged", {"body": forged})
        assert isinstance(result.error, ProtocolError)
        assert "the same key twice" in result.error.rule
        fine = await executor.call("forged", {"body": '{"ok":true,"value":[1]}'})
        assert fine.success
        # Nothing but what results name is left of all that.
        kept = os.listdir(tmp_path / "state" / "retained")
        assert sorted(kept) == sorted(one.handle for r in (many, fine) for one in r.retained)


JAILED = """
def value(count):
    return ["x" * 1_000_000] * count
"""


async def large(tmp_path: Path, count: int, spool: str | None) -> Any:
    file = tmp_path / "handler_of_blocks.py"
    file.write_text(JAILED)
    handler = PythonHandler(
        module="handler_of_blocks", qualname="value", file=str(file), arguments={"count": count}
    )
    spec = JailSpec(mounts=(Mount(path=str(file), owned=True),), limits=Limits(result_bytes="64M"))
    return await run_in_jail(handler, spec, spool=spool)


async def test_what_cannot_be_checked_or_kept_is_refused_and_said(
    tmp_path: Path, pack: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that ran out of memory must not count as passed, nor a lost output as kept."""
    store = RetainedStore(str(tmp_path / "state"))
    retain, rows = Retainer(store, "s"), pack["rows"]
    # The positive control: the very same result is good where there is room for it.
    outcome = await large(tmp_path, 9, store.spool_folder)
    found, good = await checked(outcome, rows, retain)
    assert found.failure is None
    assert good is not None
    assert good.retained is not None
    # Without room in the store the output is gone, and the result says so.
    tight = Retainer(RetainedStore(str(tmp_path / "state"), cap_bytes=4 * MIB), "s")
    outcome = await large(tmp_path, 9, store.spool_folder)
    found, lost = await checked(outcome, rows, tight)
    assert found.failure is None
    assert lost is not None
    assert lost.retained is None
    assert lost.marks["output"] == "lost"
    assert "could not be retained and is gone: File too large" in str(lost.said.content)
    # Without memory to check it, it is refused.
    monkeypatch.setattr(_large_output, "MEMORY_BASE_BYTES", 16 * MIB)
    monkeypatch.setattr(_large_output, "MEMORY_FACTOR", 1)
    outcome = await large(tmp_path, 9, store.spool_folder)
    found, none = await checked(outcome, rows, retain)
    assert none is None
    assert isinstance(found.failure, ProtocolError)
    assert "cannot be checked" in found.failure.rule
    # Without a folder for it there is no result, and it is not the tool's fault.
    outcome = await large(tmp_path, 9, str(tmp_path / "none"))
    assert outcome.failure is not None
    assert outcome.failure.kind == "executor_error"
    assert "could not be kept on disk" in outcome.failure.message
    # And without a spool it is in memory, as ever.
    outcome = await large(tmp_path, 9, None)
    assert len(outcome.value) == 9
    assert outcome.spooled is None


async def test_a_cancel_while_a_large_output_is_checked_leaves_nothing(
    tmp_path: Path, pack: dict[str, Any]
) -> None:
    """A descriptor and a file of hundreds of megabytes for each call that somebody stopped."""
    store = RetainedStore(str(tmp_path / "state"))
    outcome = await large(tmp_path, 9, store.spool_folder)
    before = set(os.listdir("/proc/self/fd"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await checked(outcome, pack["rows"], Retainer(store, "s"))
    assert scope.cancelled_caught
    assert outcome.spooled.fd == -1
    assert os.listdir(store.spool_folder) == []
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0


MEASURED = """
import json, resource, sys
import trio
sys.path.insert(0, sys.argv[1])
import pack_of_output
from toolcell import Executor, Limits
from toolcell.settlement import settle  # what a first call imports

async def main():
    limits = Limits(result_bytes="256M")
    async with Executor(
        tools=[pack_of_output.blocks], workspace=sys.argv[2], state_dir=sys.argv[3], limits=limits
    ) as executor:
        await executor.call("blocks", {"count": 1})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await executor.call("blocks", {"count": 200})
        handle, pages, at = result.retained[0].handle, 0, 150_000_000
        while at is not None and pages < 20:
            page = await executor.call("read_retained", {"handle": handle, "offset": at})
            at, pages = page.output["next_offset"], pages + 1
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({
            "growth": (after - before) * 1024, "content": result.content, "output": result.output,
            "size": result.retained[0].size_bytes, "error": result.error_text, "next": at,
            "total": result.truncation.total_bytes,
        }))

trio.run(main)
"""


def test_200_mb_pass_by_a_supervisor_of_little_memory(tmp_path: Path, pack: dict[str, Any]) -> None:
    """A supervisor that holds what any tool returns is ended for it, with all its other calls."""
    assert "blocks" in pack
    done = subprocess.run(
        [
            sys.executable, "-c", MEASURED,
            str(tmp_path), str(tmp_path / "ws"), str(tmp_path / "state"),
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["error"] == ""
    assert found["output"] is None
    assert found["size"] == found["total"] == 200_000_612
    assert len(found["content"]) < 50 * 1024
    assert "an array of 200 items" in found["content"]
    assert found["next"] == 150_000_000 + 20 * 16_384
    assert found["growth"] < RSS_GROWTH_MAX
