"""Many calls of one turn: together where they do not conflict, else in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from toolcell.parallel import in_parallel
from toolcell_policies import ExecutionCategory

READ, WRITE = ExecutionCategory.READ_ONLY, ExecutionCategory.WRITE
Work = tuple[ExecutionCategory, Callable[[], Awaitable[str]]]


class Log:
    def __init__(self) -> None:
        self.events: list[str] = []

    def work(self, category: ExecutionCategory, name: str, seconds: float = 1) -> Work:
        async def run() -> str:
            self.events.append(f"{name}(")
            await trio.sleep(seconds)
            self.events.append(f"){name}")
            return name

        return category, run


async def test_what_conflicts_runs_in_order_and_the_rest_at_once(autojump_clock):
    """Otherwise a read after a write reads what was before; or ten reads take ten times as long."""
    log = Log()
    work = [log.work(READ, "a"), log.work(READ, "b"), log.work(WRITE, "c"), log.work(READ, "d")]
    work.append(log.work(ExecutionCategory.COMPUTE, "e"))
    assert await in_parallel(work) == ["a", "b", "c", "d", "e"]
    assert trio.current_time() == pytest.approx(3)
    order = log.events
    assert {order.index("a("), order.index("b("), order.index("e(")} == {0, 1, 2}
    assert order.index("c(") > max(order.index(")a"), order.index(")b"))
    assert order.index("d(") > order.index(")c")


async def test_at_most_the_limit_runs_first_come_first_served(autojump_clock):
    """Otherwise one call could wait for ever, or all memory be taken at once."""
    log = Log()
    work = [log.work(READ, str(n), seconds=n + 1) for n in range(6)]
    assert await in_parallel(work, limit=2) == [str(n) for n in range(6)]
    begun = [event for event in log.events if event.endswith("(")]
    assert {*begun[:2]} == {"0(", "1("}
    assert begun[2:] == [f"{n}(" for n in range(2, 6)]
    open_now = most = 0
    for event in log.events:
        open_now += 1 if event.endswith("(") else -1
        most = max(most, open_now)
    assert most == 2


async def test_a_cancel_ends_all_of_them(autojump_clock):
    """Otherwise a turn that was called off goes on."""
    log = Log()
    with trio.move_on_after(0.5):
        await in_parallel([log.work(WRITE, "a"), log.work(WRITE, "b")])
    assert log.events == ["a("]


async def test_none_is_none_and_no_limit_is_below_one():
    """Otherwise an empty turn waits for ever."""
    assert await in_parallel([]) == []
    with pytest.raises(ValueError, match="at least 1"):
        await in_parallel([], limit=0)


def test_conflicts_are_symmetric_and_what_changes_the_workspace_is_alone_in_it():
    """Otherwise the order of two words decides whether they clash."""
    every = tuple(ExecutionCategory)
    for one in every:
        for other in every:
            assert one.conflicts_with(other) is other.conflicts_with(one)
    changing = {ExecutionCategory.WRITE, ExecutionCategory.EXECUTE, ExecutionCategory.MIXED}
    for one in changing:
        assert all(one.conflicts_with(other) for other in (*changing, READ))
    assert not READ.conflicts_with(READ)
    network = ExecutionCategory.NETWORK
    assert [one for one in every if one.conflicts_with(network)] == [ExecutionCategory.MIXED]
    assert not any(one.conflicts_with(ExecutionCategory.COMPUTE) for one in every)
