"""Words of CATALOGUE.md and API.md, tried as somebody who has read nothing else would."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio

import toolcell
from toolcell import CallContext, Executor, RunDeps, ToolCall, ToolError, ToolResult, tool
from toolcell.approval import deny_all


@tool
def wordy(size: int) -> str:
    """Say much."""
    return "ab" * size


@tool
def asks(context: CallContext, path: str) -> list[bool]:
    """Ask in the words of whoever wrote it."""
    context.progress("asking")
    return [context.permission(action, [path]) for action in ("read", "readonly", "edit")]


@tool
async def imports_its_loop(n: int) -> int:
    """Wait on the loop that it imports itself; this module's is the other one as well."""
    from trio.lowlevel import checkpoint

    await checkpoint()
    return n


@pytest.mark.parametrize("name", [n for n in toolcell.__all__ if n[0] != "_"])
def test_every_public_member_says_what_it_is(name: str) -> None:
    """Otherwise an author has to read the source to know what a word means."""
    value = getattr(toolcell, name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    assert not (value.__doc__ or "").startswith(f"{name}(")
    members = vars(value).items() if inspect.isclass(value) else ()
    for member, found in members:
        is_said = inspect.isfunction(found) or isinstance(
            found, property | classmethod | staticmethod
        )
        if member[0] != "_" and is_said:
            assert inspect.getdoc(getattr(value, member)), f"{name}.{member}"


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(True, {"a": [1]}, None, {"k": "v"}),
        ToolResult("t", False, "shown", "short", "why", ["a"], ["b"], True),
    ],
)
def test_a_result_can_be_copied_and_sent(result: ToolResult) -> None:
    """Otherwise an agent's history cannot hold what its tools said."""
    assert copy.deepcopy(result) == result
    assert result.to_json()["success"] is result.success


def test_what_a_caller_hands_in_may_be_given_in_order() -> None:
    """The order is in the specification, so there is code that relies on it."""
    whom = CallContext("s", "a", "m", "editing", "edit", "build", 1)
    assert (whom.session_id, whom.agent_id, whom.message_id) == ("s", "a", "m")
    assert (whom.phase, whom.task_kind, whom.mode, whom.tier) == ("editing", "edit", "build", 1)
    deps = RunDeps(".", "editing", "edit", {"k": 1}, deny_all)
    assert (deps.phase, deps.task_kind, deps.extra, deps.approver) == (
        "editing",
        "edit",
        {"k": 1},
        deny_all,
    )
    assert ToolCall("t", {"a": 1}, "c").call_id == "c"


Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.mark.parametrize(
    "run", [trio.run, lambda main: asyncio.run(main())], ids=["trio", "asyncio"]
)
def test_each_word_works_under_either_loop(run: Run, tmp_path: Path) -> None:
    """Otherwise a word of the catalogue holds in one kind of program only."""
    (tmp_path / "ws").mkdir()
    mine = CallContext("mine")

    async def main() -> None:
        async with Executor(
            tools=[wordy, asks, imports_its_loop],
            workspace=tmp_path / "ws",
            state_dir=tmp_path / "state",
        ) as box:
            seen = [event async for event in box.stream("asks", {"path": "x"}, context=mine)]
            result = seen[-1]
            assert isinstance(result, ToolResult)
            assert result.output == [True, True, False]
            assert "asking" in [getattr(event, "message", None) for event in seen]
            assert (await box.call("imports_its_loop", {"n": 3})).output == 3

            (kept,) = (await box.call("wordy", {"size": 40_000}, context=mine)).retained
            page = await box.read_retained(kept.handle, 79_998, 10, context=mine)
            asked = {"handle": kept.handle, "offset": 79_998, "limit": 10}
            told = await box.call("read_retained", asked, context=mine)
            assert told.output == page.to_json()
            assert (page.text, page.next_offset) == ("ab", None)
            with pytest.raises(LookupError, match="for this session"):
                await box.read_retained(kept.handle, context=CallContext("another"))

            # What only other arguments can help is not tried again with the same.
            past = await box.call("read_retained", asked | {"offset": 80_001}, context=mine)
            broken = await box.call("search", {"pattern": "("})
            for failed in (past, broken):
                assert isinstance(failed.error, toolcell.results.ToolError)
                assert "attempts" not in failed.metadata
            assert isinstance(ToolError("x"), Exception)

    run(main)
