"""Results of idempotent calls, given again while nothing was changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from toolcell import CallContext, ToolResult
from toolcell._cache import ENTRIES_MAX, ENTRY_BYTES_MAX, ResultCache
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
    write: tuple[str, ...] = (),
) -> Any:
    return Thing(
        tool=Thing(is_idempotent=again, access_mode=access),
        decision=Thing(plan_hash=digest),
        ask=Thing(context=CallContext(session_id=who)),
        facts=Thing(write_folders=write),
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
    cache.put(plan(), result(), since=cache.changes)
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
    cache.put(plan(**known), result(), since=cache.changes)
    assert cache.get(plan(**known), "c2") is None


@pytest.mark.parametrize("effects", [Effects(modified=("a",)), None])
def test_what_a_call_changed_or_may_have_empties_it(effects):
    """Otherwise a read after a write shows what was there before."""
    cache = ResultCache(life_s=10, now=Clock())
    cache.put(plan(), result(), since=cache.changes)
    cache.put(plan("w", access=AccessMode.WRITE), result(effects=effects), since=cache.changes)
    assert cache.get(plan(), "c2") is None


def test_a_failure_is_not_kept_and_neither_is_anything_by_default():
    """Otherwise what went wrong once goes wrong until the time is up."""
    cache = ResultCache(life_s=10, now=Clock())
    cache.put(
        plan(),
        result(success=False, output=None, error=ToolError(message="m")),
        since=cache.changes,
    )
    assert cache.get(plan(), "c2") is None
    off = ResultCache(life_s=0, now=Clock())
    off.put(plan(), result(), since=0)
    assert off.get(plan(), "c2") is None


def test_the_least_recently_used_goes_first():
    """Otherwise a long session holds every result that it ever had."""
    cache = ResultCache(life_s=10, now=Clock())
    for number in range(ENTRIES_MAX):
        cache.put(plan(str(number)), result(), since=cache.changes)
    assert cache.get(plan("0"), "x") is not None
    cache.put(plan("more"), result(), since=cache.changes)
    assert cache.get(plan("1"), "x") is None
    assert cache.get(plan("0"), "x") is not None


@pytest.mark.parametrize("write", [(), ("/outside",)])
def test_what_was_read_before_a_change_is_not_kept_after_it(write):
    """Otherwise a slow read that a write overtook is what everybody is told from then on."""
    cache = ResultCache(life_s=10, now=Clock())
    since = cache.changes
    written = Effects() if write else Effects(created=("a",))
    changing = plan("w", access=AccessMode.WRITE, write=write)
    cache.put(changing, result(effects=written), since=since)
    cache.put(plan(), result(), since=since)
    assert cache.get(plan(), "c2") is None
    cache.put(plan(), result(), since=cache.changes)
    assert cache.get(plan(), "c2") is not None


def test_what_a_person_was_asked_while_it_ran_is_neither_kept_nor_run_again():
    """Otherwise one yes to one run is a yes to the next; or a no is asked about three times."""
    cache = ResultCache(life_s=10, now=Clock())
    asked = {"permissions": [{"answer": "allowed"}]}
    cache.put(plan(), result(metadata=asked), since=cache.changes)
    assert cache.get(plan(), "c2") is None
    failure = ToolError(message="m", retryable="yes")
    found = result(success=False, output=None, error=failure, metadata=asked)
    agreement: Any = Thing(plan=plan(), how="grant")
    assert not may_retry(agreement, found)
    assert may_retry(agreement, dataclasses.replace(found, metadata={}))


@pytest.mark.parametrize("output", ["x" * ENTRY_BYTES_MAX, object()])
def test_what_is_large_is_not_kept(output):
    """Otherwise 256 results of 8 MiB each are two gigabytes of ours, for as long as it may."""
    cache = ResultCache(life_s=10, now=Clock())
    cache.put(plan(), result(output=output), since=cache.changes)
    assert cache.get(plan(), "c2") is None
    cache.put(plan(), result(output="x" * (ENTRY_BYTES_MAX - 50)), since=cache.changes)
    assert cache.get(plan(), "c2") is not None


def test_a_page_of_what_is_retained_leaves_the_cache_as_it_is():
    """Otherwise whoever reads a long result in pages has no cache."""
    cache = ResultCache(life_s=10, now=Clock())
    cache.put(plan(), result(), since=cache.changes)
    answered = result(effects=None, metadata={"answered_by": "supervisor"})
    cache.put(plan("r"), answered, since=cache.changes)
    assert cache.get(plan(), "c2") is not None
    assert cache.get(plan("r"), "c3") is None


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
