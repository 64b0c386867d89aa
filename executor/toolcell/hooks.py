"""The program's own functions around each call: before it is decided on, and after it ended.

They run in the program's process, unconfined: a registry takes them from its owner alone, and a
pack can register none.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal

import trio

from toolcell._loops.callbacks import at_home
from toolcell.results import HookFailed, ToolResult

__all__ = ["Hook", "run_after", "run_before"]

AFTER_S: Final = 30.0
"""How long a hook after a call may take."""

_log = logging.getLogger("toolcell")


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """A function around calls. `critical` is that a call must not pass where it fails.

    Before a call it gets `(tool_name, arguments)` and returns None, or the arguments to use
    instead, which are validated again. After one that ran it gets `(result)` and returns None, or
    the result to hand on instead. Plain or async.
    """

    callback: Callable[..., Any]
    name: str
    critical: bool = False
    description: str = ""


async def run_before(
    hooks: Iterable[Hook], tool_name: str, arguments: Mapping[str, Any]
) -> Mapping[str, Any] | HookFailed:
    """The arguments to go on with; a failure where a critical hook raised, or returned none.

    A hook that is not critical and fails is logged, and changes nothing.
    """
    now = arguments
    for hook in hooks:
        # A copy of all of it: what a hook changes in place it has not returned, nor had validated.
        given = copy.deepcopy(dict(now))
        said, failure = await _run(hook, "before", False, tool_name, given)
        if failure is None and said is not None and not isinstance(said, Mapping):
            failure = _failed(hook, "before", False, f"it returned {type(said).__name__}")
        if failure is not None and hook.critical:
            return failure
        if failure is None and said is not None:
            now = said
    return now


async def run_after(hooks: Iterable[Hook], result: ToolResult) -> ToolResult:
    """The result to hand on; of a critical hook that fails it is `hook_failed`.

    What the call did has happened by then, was kept, and stays: the failure says so.
    """
    for hook in hooks:
        happened = result.effects is None or bool(result.effects.paths)
        said, failure = await _run(hook, "after", happened, result)
        if failure is None and isinstance(said, ToolResult):
            result = said
        if failure is not None and hook.critical:
            content = f"{result.content}\nerror: {failure.kind}: {failure.message}".lstrip("\n")
            return dataclasses.replace(
                result, success=False, error=failure, content=content, output=None
            )
    return result


async def _run(
    hook: Hook, stage: Literal["before", "after"], happened: bool, *given: Any
) -> tuple[Any, HookFailed | None]:
    try:
        said = at_home(hook.callback)(*given)
        if inspect.isawaitable(said):
            said = await _bounded(said) if stage == "after" else await said
    except Exception as error:  # noqa: BLE001  # the program's own code; Cancelled is no Exception
        cause = f"{type(error).__name__}: {error}"[:500]
        _log.warning("the %s hook %s raised %s", stage, hook.name, cause, exc_info=error)
        return None, _failed(hook, stage, happened, cause)
    return said, None


async def _bounded(said: Awaitable[Any]) -> Any:
    """What a hook after the call comes to; a cancel waits for it, since the call has happened.

    Raises:
        TimeoutError: it takes longer than `AFTER_S`.
    """
    with trio.move_on_after(AFTER_S, shield=True):
        return await said
    raise TimeoutError(f"it took longer than {AFTER_S:g} s")


def _failed(
    hook: Hook, stage: Literal["before", "after"], happened: bool, cause: str
) -> HookFailed:
    became = "before the call, which did not run"
    if stage == "after":
        became = "after the call had run" + (": what it changed was kept" if happened else "")
    return HookFailed(
        message=f"the hook {hook.name} failed {became}",
        hook=hook.name,
        stage=stage,
        effect_happened=happened,
        cause=cause,
    )
