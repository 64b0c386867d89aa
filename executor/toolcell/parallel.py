"""Many calls of one turn: together where their categories do not conflict, else in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from toolcell_policies import ExecutionCategory

T = TypeVar("T")


async def in_parallel(
    work: Sequence[tuple[ExecutionCategory, Callable[[], Awaitable[T]]]],
    *,
    limit: int | None = None,
) -> list[T]:
    """What each came to, in the order given.

    A call waits until every earlier one that its category conflicts with has ended, so what reads
    after a write sees it; and then for one of `limit` places, first come, first served. Cancelled,
    it cancels all and waits for them.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError("limit is at least 1")
    results: dict[int, T] = {}
    running: set[int] = set()
    begun: set[int] = set()
    waiting = Counter(category for category, _ in work)
    first = 0

    async def one(number: int) -> None:
        results[number] = await work[number][1]()
        running.discard(number)
        start_what_may()

    def start_what_may() -> None:
        # In order, with the categories of all earlier ones that have not ended.
        nonlocal first
        ahead: set[ExecutionCategory] = set()
        while first in results:
            first += 1
        for number in range(first, len(work)):
            # As soon as none that waits may start: thousands of calls are not looked at each time.
            if all(any(map(kind.conflicts_with, ahead)) for kind in +waiting):
                return
            if number in results:
                continue
            category = work[number][0]
            if number not in begun and not any(map(category.conflicts_with, ahead)):
                if limit is not None and len(running) >= limit:
                    return
                running.add(number)
                begun.add(number)
                waiting[category] -= 1
                nursery.start_soon(one, number)
            ahead.add(category)

    async with trio.open_nursery() as nursery:
        start_what_may()
    return [results[number] for number in range(len(work))]
