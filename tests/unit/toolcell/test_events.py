"""Live events: lossy text with an exact count of the loss, and an end that is always seen."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from toolcell._events import (
    Answered,
    Asked,
    Event,
    LiveEvents,
    Output,
    Progress,
    Started,
    Stream,
    stream,
)
from toolcell.calls import ToolCall
from toolcell.results import ToolResult

RESULT = ToolResult("t", True, content="done")


async def drained(events: LiveEvents) -> list[Event]:
    found: list[Event] = []
    while not found or not isinstance(found[-1], ToolResult):
        found.append(await events.next())
    return found


def outputs(found: list[Event], name: str = "stdout") -> list[tuple[str, int]]:
    return [(e.text, e.left_out) for e in found if isinstance(e, Output) and e.stream == name]


# -- what is left out ----------------------------------------------------------------------


async def test_a_character_is_never_cut_in_half() -> None:
    """Otherwise every chunk that ends inside one shows two odd marks."""
    events = LiveEvents()
    for byte in "aé𝄞".encode():
        await events.output("stdout", bytes([byte]))
    await events.output("stderr", "é".encode()[:1])
    events.finish(RESULT)
    found = await drained(events)
    assert "".join(text for text, _ in outputs(found)) == "aé𝄞"
    assert outputs(found, "stderr") == [("\N{REPLACEMENT CHARACTER}", 0)]
    assert found[-1] == RESULT


async def test_a_slow_watcher_is_told_how_much_it_missed() -> None:
    """Otherwise it takes a part for the whole; and without a bound, memory is what it costs."""
    events = LiveEvents(chars=10)
    await events.output("stdout", b"12345678")
    await events.output("stderr", b"abc")
    await events.output("stdout", b"90")
    events.finish(RESULT)
    found = await drained(events)
    assert found[:2] == [Output("stderr", "abc"), Output("stdout", "90", 8)]
    events = LiveEvents(events=2)
    for letter in b"abcde":
        await events.output("stdout", bytes([letter]))
    assert await events.next() == Output("stdout", "d", 3)
    assert await events.next() == Output("stdout", "e", 0)


async def test_what_was_missed_is_told_even_when_nothing_comes_after_it() -> None:
    """Otherwise the last text that was lost was never there."""
    events = LiveEvents(chars=4)
    await events.output("stderr", b"lost")
    await events.output("stdout", b"kept")
    events.finish(RESULT)
    assert await drained(events) == [
        Output("stdout", "kept"),
        Output("stderr", "", 4),
        RESULT,
    ]


async def test_of_progress_the_latest_is_kept_and_no_word_uncounted() -> None:
    """A watcher wants to know where it is, and not where it was."""
    events = LiveEvents()
    events.progress(Progress(1))
    await events.output("stdout", b"x")
    events.progress(Progress(2, left_out=5))
    events.progress(Progress(3))
    events.finish(RESULT)
    assert await drained(events) == [
        Output("stdout", "x"),
        Progress(3, left_out=7),
        RESULT,
    ]


async def test_questions_and_answers_are_never_left_out() -> None:
    """Otherwise a watcher does not know what a call was permitted."""
    events = LiveEvents(chars=1, events=1)
    asked, answered = Asked("write", ("a",)), Answered("write", ("a",), allowed=True, reason="")
    events.tell(asked)
    await events.output("stdout", b"abc")
    events.tell(answered)
    events.finish(RESULT)
    assert await drained(events) == [asked, answered, Output("stdout", "", 3), RESULT]


@given(
    st.lists(
        st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=8), st.booleans()),
        max_size=30,
    )
)
def test_text_and_what_was_left_out_add_up(writes: list[tuple[Any, str, bool]]) -> None:
    """Otherwise the count of the loss is a guess."""

    async def main() -> None:
        events = LiveEvents(chars=12, events=4)
        found: list[Event] = []
        for name, text, is_read in writes:
            await events.output(name, text.encode())
            assert events._chars <= 12
            if is_read and events._waiting:
                found.append(await events.next())
        events.finish(RESULT)
        found += await drained(events)
        for name in ("stdout", "stderr"):
            told = outputs(found, name)
            written = "".join(text for stream, text, _ in writes if stream == name)
            assert sum(len(text) + left_out for text, left_out in told) == len(written)

    trio.run(main)


# -- the stream ----------------------------------------------------------------------------


class Fake:
    """An executor of one call: the conformance of the real one is in tests/jail/test_stream.py."""

    def __init__(self, body: Callable[[LiveEvents], Awaitable[object]]) -> None:
        self.body = body
        self.given: dict[str, Any] = {}
        self.ended: list[str] = []

    async def call(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        sink: Any = None,
        watch: LiveEvents | None = None,
        **options: Any,
    ) -> ToolResult:
        assert watch is not None
        assert sink == watch.output
        self.given = {"call": call, "arguments": arguments, **options}
        try:
            await self.body(watch)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            self.ended.append("cancelled")
            raise
        self.ended.append("finished")
        return RESULT


async def writes(events: LiveEvents) -> None:
    await events.output("stdout", b"one")
    await wait_all_tasks_blocked()
    await events.output("stdout", b"two")


async def forever(events: LiveEvents) -> None:
    await events.output("stdout", b"one")
    await trio.sleep_forever()


async def test_a_call_is_seen_from_its_start_to_its_result() -> None:
    """The last event is the result, exactly as `call` gives it; then the iteration ends."""
    fake = Fake(writes)
    async with stream(fake, "t", {"a": 1}, review=True) as events:
        found = [event async for event in events]
        assert events.result is RESULT
        assert [event async for event in events] == []
    assert found == [
        Started("t"),
        Output("stdout", "one"),
        Output("stdout", "two"),
        RESULT,
    ]
    assert fake.given == {"call": "t", "arguments": {"a": 1}, "review": True}
    # A plain loop, and a call that has its own name.
    plain = stream(Fake(writes), ToolCall("u"))
    assert await anext(plain) == Started("u")
    await plain.aclose()


@pytest.mark.parametrize("how", ["break", "raise", "cancel", "aclose"])
async def test_leaving_early_ends_the_call_before_anything_goes_on(
    autojump_clock: MockClock, how: str
) -> None:
    """Otherwise what was meant to be stopped still writes."""
    fake = Fake(forever)
    with trio.CancelScope() as scope:
        try:
            async with stream(fake, "t") as events:
                async for event in events:
                    if isinstance(event, Output):
                        if how == "break":
                            break
                        if how == "raise":
                            raise LookupError
                        if how == "aclose":
                            await events.aclose()
                        if how == "cancel":
                            scope.cancel()
        except LookupError:
            assert how == "raise"
    assert fake.ended == ["cancelled"]
    assert scope.cancelled_caught is (how == "cancel")


async def test_a_stream_that_is_dropped_ends_its_call_too(autojump_clock: MockClock) -> None:
    """Otherwise `break` in a plain loop leaves a tool running that nobody looks at."""
    fake = Fake(forever)
    async for event in stream(fake, "t"):
        if isinstance(event, Output):
            break
    gc.collect()
    await trio.sleep(2)
    assert fake.ended == ["cancelled"]


async def test_a_stream_that_was_never_begun_runs_nothing() -> None:
    """Making one is no call."""
    fake = Fake(forever)
    async with stream(fake, "t"):
        pass
    left = stream(fake, "t")
    await left.aclose()
    assert [event async for event in left] == []
    assert fake.ended == []


async def test_a_misuse_is_raised_to_whoever_watches() -> None:
    """A wrong option is the caller's own, and no event."""

    async def wrong(events: LiveEvents) -> None:
        raise ValueError("no such workspace mode")

    events = stream(Fake(wrong), "t")
    assert await anext(events) == Started("t")
    with pytest.raises(ValueError, match="no such workspace mode"):
        await anext(events)
    assert [event async for event in events] == []


def test_the_end_of_the_loop_ends_a_call_that_was_left_behind() -> None:
    """Otherwise a program that returns from its main function leaves jails behind."""
    fake = Fake(forever)
    left: list[Stream] = []

    async def main() -> None:
        left.append(stream(fake, "t"))
        async for event in left[0]:
            if isinstance(event, Output):
                return

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert fake.ended == ["cancelled"]
    # Collected when nothing runs any more.
    left.clear()
    gc.collect()
