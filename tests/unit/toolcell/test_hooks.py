"""The program's own functions around each call."""

from __future__ import annotations

from typing import Any

import pytest

from toolcell.hooks import Hook, run_after, run_before
from toolcell.results import Effects, HookFailed, ToolError, ToolResult


def raising(*given: Any) -> None:
    raise ValueError("no")


def result(**known: Any) -> ToolResult:
    return ToolResult(**({"tool_name": "t", "success": True, "content": "c"} | known))


async def test_before_hooks_see_each_others_arguments_in_order():
    """Otherwise the second hook would undo the first."""
    seen: list[Any] = []

    def first(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "a": 2}

    async def second(name: str, arguments: dict[str, Any]) -> None:
        seen.append((name, arguments))
        arguments["a"] = 3
        arguments.get("in", []).append(3)

    hooks = (Hook(first, "first"), Hook(second, "second"))
    assert await run_before(hooks, "t", {"a": 1, "b": 1}) == {"a": 2, "b": 1}
    assert seen[0][0] == "t"
    # What a hook does to the copy that it was given changes nothing.
    given = {"a": 1, "in": [2]}
    assert await run_before((Hook(second, "second"),), "t", given) is given
    assert given == {"a": 1, "in": [2]}, "and would be run without having been validated"


@pytest.mark.parametrize("callback", [raising, lambda *given: 5])
async def test_only_a_critical_before_hook_blocks(callback):
    """Otherwise a broken logger stops all work; or a broken guard lets all pass."""
    blocked = await run_before((Hook(callback, "guard", critical=True),), "t", {})
    assert isinstance(blocked, HookFailed)
    assert (blocked.hook, blocked.stage, blocked.effect_happened) == ("guard", "before", False)
    assert "did not run" in blocked.message
    assert await run_before((Hook(callback, "log"),), "t", {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("effects", "happened"),
    [(None, True), (Effects(), False), (Effects(created=("a",)), True)],
)
async def test_a_critical_after_hook_fails_the_result_and_says_whether_the_effect_happened(
    effects, happened
):
    """Otherwise an agent would do again what was done, or trust what was not."""
    before = result(effects=effects, output=5)
    after = await run_after((Hook(raising, "audit", critical=True),), before)
    assert isinstance(after.error, HookFailed)
    assert (after.success, after.output, after.effects) == (False, None, effects)
    assert (after.error.effect_happened, after.error.cause) == (happened, "ValueError: no")
    assert after.content.startswith("c\nerror: hook_failed: the hook audit failed after the call")
    assert ("was kept" in after.error.message) is happened


async def test_an_after_hook_may_hand_on_another_result_and_fail_unheard():
    """Otherwise nobody could redact an output; and a broken logger would fail good calls."""
    better = result(content="redacted")

    async def redact(found: ToolResult) -> ToolResult:
        return better

    seen: list[ToolResult] = []
    hooks = (Hook(raising, "log"), Hook(redact, "redact"), Hook(seen.append, "see"))
    assert await run_after(hooks, result()) is better
    assert seen == [better]
    failed = result(success=False, error=ToolError(message="m"))
    assert await run_after((Hook(raising, "log"),), failed) is failed
