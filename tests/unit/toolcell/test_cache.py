"""Results of idempotent calls, given again while nothing was changed."""

from __future__ import annotations

from typing import Any

import pytest

from toolcell import CallContext, ToolResult
from toolcell._cache import ENTRIES_MAX, ResultCache
from toolcell._retries import LONGEST_WAIT_S, may_retry, wait_s
from toolcell.results import (
    CommitConflict,
    Effects,
    ExecutorError,
    Failure,
    Timeout,
    ToolError,
)
from toolcell_policies import AccessMode


class Thing:
    """What the cache and the retries look at of a plan and of an agreement."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


def plan(
    digest: str = "h",
    *,
    access: AccessMode = AccessMode.READONLY,
    again: bool = True,
    who: str = "s",
) -> Any:
    return Thing(
        tool=Thing(is_idempotent=again, access_mode=access),
        decision=Thing(plan_hash=digest),
        ask=Thing(context=CallContext(session_id=who)),
    )


def result(**known: Any) -> ToolResult:
    facts = {"call_id": "c1", "tool_name": "t", "success": True, "output": 5, "effects": Effects()}
    return ToolResult(**(facts | known))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_same_call_of_the_same_session_has_its_result_again_for_as_long_as_it_may():
    """Otherwise a call costs twice; or an old answer is given for ever, or to another session."""
    clock = Clock()
    cache = ResultCache(life_s=10, now=clock)
    assert cache.get(plan(), "c2") is None
    cache.put(plan(), result())
    found = cache.get(plan(), "c2")
    assert found is not None
    assert (found.call_id, found.output, found.metadata) == ("c2", 5, {"cached_from": "c1"})
    assert cache.get(plan("other"), "c3") is None
    assert cache.get(plan(who="another"), "c3") is None
    clock.now = 10
    assert cache.get(plan(), "c4") is None
    clock.now = 0
    assert cache.get(plan(), "c4") is None, "it is gone for good"


@pytest.mark.parametrize(
    "known",
    [
        {"again": False},
        {"access": AccessMode.WRITE},
        {"access": AccessMode.EXECUTE},
        {"access": AccessMode.MIXED},
    ],
)
def test_what_may_change_something_is_run_each_time(known):
    """Otherwise a write that was asked for does not happen."""
    cache = ResultCache(life_s=10, now=Clock())
    cache.put(plan(**known), result())
    assert cache.get(plan(**known), "c2") is None


@pytest.mark.parametrize("effects", [Effects(modified=("a",)), None])
def test_what_a_call_changed_or_may_have_empties_it(effects):
    """Otherwise a read after a write shows what was there before."""
    cache = ResultCache(life_s=10, now=Clock())
    cache.put(plan(), result())
    cache.put(plan("w", access=AccessMode.WRITE), result(effects=effects))
    assert cache.get(plan(), "c2") is None


def test_a_failure_is_not_kept_and_neither_is_anything_by_default():
    """Otherwise what went wrong once goes wrong until the time is up."""
    cache = ResultCache(life_s=10, now=Clock())
    cache.put(plan(), result(success=False, output=None, error=ToolError(message="m")))
    assert cache.get(plan(), "c2") is None
    off = ResultCache(life_s=0, now=Clock())
    off.put(plan(), result())
    assert off.get(plan(), "c2") is None


def test_the_least_recently_used_goes_first():
    """Otherwise a long session holds every result that it ever had."""
    cache = ResultCache(life_s=10, now=Clock())
    for number in range(ENTRIES_MAX):
        cache.put(plan(str(number)), result())
    assert cache.get(plan("0"), "x") is not None
    cache.put(plan("more"), result())
    assert cache.get(plan("1"), "x") is None
    assert cache.get(plan("0"), "x") is not None


# -- retries ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (CommitConflict(message="m"), True),
        (ExecutorError(message="m", operator_detail="d"), True),
        (ToolError(message="m", retryable="yes"), True),
        (ToolError(message="m"), False),
        (ToolError(message="m", retryable="maybe"), False),
        (Timeout(message="m", limit_s=1, elapsed_s=1), False),
        (None, False),
    ],
)
def test_only_what_may_pass_by_itself_is_tried_again(error: Failure | None, again: bool):
    """Otherwise a bug is run three times; or a lost race is an error that nobody had to see."""
    found = result(success=error is None, output=None, error=error)
    agreement: Any = Thing(plan=plan(), how="grant")
    assert may_retry(agreement, found) is again
    agreement = Thing(plan=plan(again=False), how="grant")
    assert not may_retry(agreement, found)
    # A person said yes to one run.
    agreement = Thing(plan=plan(), how="once")
    assert not may_retry(agreement, found)


def test_waits_grow_and_end():
    """Otherwise two that clashed clash for ever; or one waits for hours."""
    for attempt in range(1, 20):
        longest = min(LONGEST_WAIT_S, 0.1 * 2 ** (attempt - 1))
        assert longest / 2 <= wait_s(attempt) <= longest
