"""Live events of real calls: what is seen while they run, and what is true at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from toolcell import Executor, ToolCall, ToolResult
from toolcell._events import Event, Output, Started, Stream, stream
from toolcell.audit import read

from . import tools_of_streams as tools


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path


def executor(place: Path) -> Executor:
    found = [tools.speaks, tools.floods, tools.stays, tools.tells]
    return Executor(workspace=place / "ws", state_dir=place / "state", builtin=False, tools=found)


def text(found: list[Event], name: str) -> str:
    return "".join(e.text for e in found if isinstance(e, Output) and e.stream == name)


async def test_output_is_seen_while_the_handler_runs_and_the_result_is_as_ever(
    place: Path,
) -> None:
    """Otherwise a build of ten minutes is ten minutes of silence."""
    found: list[Event] = []
    seen = trio.Event()

    async def go_on() -> AsyncIterator[bytes]:
        await seen.wait()
        yield b"x"

    async with executor(place) as box:
        async with stream(box, "speaks", stdin=go_on()) as events:
            async for event in events:
                found.append(event)
                if text(found, "stdout") == "before " and text(found, "stderr") == "aside":
                    # It cannot end before this.
                    seen.set()
        plain = await box.call("speaks", stdin=b"x")
    assert found[0] == Started("speaks")
    assert text(found, "stdout") == "before é after"
    result = found[-1]
    assert isinstance(result, ToolResult)
    assert result is events.result
    assert (result.success, result.output) == (plain.success, plain.output) == (True, "said")
    assert result.stdout is not None
    assert plain.stdout is not None
    assert result.stdout.kept == plain.stdout.kept == "before é after".encode()


async def test_a_slow_watcher_slows_no_call_and_is_told_what_it_missed(place: Path) -> None:
    """Otherwise whoever looks at a tool holds it up, or believes that it saw all."""
    size = 3 << 20
    async with executor(place) as box, stream(box, "floods", {"size": size}) as events:
        found = [await anext(events)]
        # Nobody reads until it is all over.
        await events._over.wait()
        found += [event async for event in events]
    result = events.result
    assert result is not None
    assert result.output == size
    for name, captured in (("stdout", result.stdout), ("stderr", result.stderr)):
        assert captured is not None
        assert captured.seen_bytes == size
        seen = [e for e in found if isinstance(e, Output) and e.stream == name]
        assert sum(len(e.text) + e.left_out for e in seen) == size
    assert len(text(found, "stdout")) + len(text(found, "stderr")) <= 1 << 18


@pytest.mark.parametrize("how", ["block", "cancel", "dropped"])
async def test_who_stops_looking_ends_the_call_and_it_is_on_record(place: Path, how: str) -> None:
    """Otherwise a tool runs on that nobody waits for. The ledger sees what is left."""
    async with executor(place) as box:
        with trio.CancelScope() as scope:
            events: Stream | None = stream(box, ToolCall("stays", {}, "call-1"))
            assert events is not None
            async for event in events:
                if isinstance(event, Output):
                    break
            if how == "cancel":
                scope.cancel()
                await anext(events)
            elif how == "block":
                async with events:
                    pass
            events = None
            if how == "dropped":
                # It is asked for; the executor's end waits for nobody, so this does.
                while not _ended(place):
                    await trio.sleep(0.01)
        if how != "dropped":
            assert _ended(place)


def _ended(place: Path) -> bool:
    records = list(read(str(place / "state")))
    return [(each["record"], each.get("kind")) for each in records if each["record"] != "run"] == [
        ("intent", None),
        ("terminal", "cancelled"),
    ]


# -- through the executor ------------------------------------------------------------------


async def test_progress_and_questions_are_seen_and_in_the_result(place: Path) -> None:
    """Otherwise nobody knows what a call was permitted while it ran."""
    (place / "ws" / "there").touch()
    async with executor(place) as box, box.stream("tells", {}, call_id="call-1") as events:
        found = [event async for event in events]
    assert [type(event).__name__ for event in found] == [
        "Started",
        "Progress",
        "Asked",
        "Answered",
        "ToolResult",
    ]
    result = events.result
    assert result is not None
    assert result.output == "yes"
    (said,) = result.metadata["permissions"]
    assert (said["action"], said["resources"], said["answer"]) == ("readonly", ["there"], "allowed")
    (terminal,) = [one for one in read(place / "state") if one["record"] == "terminal"]
    (recorded,) = terminal["permissions"]
    assert recorded == {
        "action": "readonly",
        "resources": ["there"],
        "answer": "allowed",
        "how": said["how"],
    }
