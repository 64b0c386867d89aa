"""What a hostile handler may send, read; and the supervisor's end of a real socket pair."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from toolcell_sandbox import _channel
from toolcell_sandbox._cgroup_files import Files, Place
from toolcell_sandbox._cgroup_group import Group
from toolcell_sandbox._channel import Allowance, Channel, Progress, Request, read_packet
from toolcell_sandbox._hold import Hold
from toolcell_sandbox.decode import BrokenRule

GOOD = {"type": "progress", "done": 1, "total": 2.5, "message": "on it", "unsent": 3}
ASK = {"type": "request", "id": 1, "ask": {"action": "write"}}


def packed(message: object) -> bytes:
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (GOOD, Progress(1, 2.5, "on it", 3)),
        (GOOD | {"done": None, "total": None, "message": None}, Progress(None, None, None, 3)),
        (GOOD | {"message": "é" * 600}, Progress(1, 2.5, "é" * 500, 3)),
        (ASK, Request(1, {"action": "write"})),
    ],
)
def test_what_keeps_the_rules_is_read(message: object, expected: object) -> None:
    """The near miss of all that is refused."""
    assert read_packet(packed(message)) == expected


@pytest.mark.parametrize(
    ("packet", "rule"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "JSON object"),
        (b"x" * 4_097, "more than 4096 bytes"),
        (packed({}), "neither"),
        (packed({"id": 1, "held_s": 0, "answer": {"allowed": True}}), "neither"),
        (packed({"type": "result", "ok": True}), "neither"),
        (packed(GOOD | {"more": 1}), "nothing else"),
        (packed(GOOD | {"done": "1"}), "amounts"),
        (packed(GOOD | {"done": True}), "amounts"),
        (packed(GOOD | {"total": []}), "amounts"),
        (packed(GOOD | {"done": 1e999}), "not JSON"),
        (packed(GOOD | {"done": 1 << 70}), "64 bits"),
        (packed(GOOD | {"message": 1}), "a text and a count"),
        (packed(GOOD | {"unsent": -1}), "a text and a count"),
        (packed(GOOD | {"unsent": True}), "a text and a count"),
        (packed(GOOD | {"unsent": 1 << 31}), "a text and a count"),
        (packed(GOOD | {"unsent": 1.0}), "neither"),
        (b'{"type":"progress","type":"request"}', "same key"),
        (b'{"type":"request","id":1,"ask":{"a":"\\ud800"}}', "not JSON"),
        (packed(ASK | {"more": 1}), "nothing else"),
        (packed(ASK | {"id": -1}), "a number"),
        (packed(ASK | {"id": True}), "a number"),
        (packed(ASK | {"ask": "write"}), "neither"),
        (b'{"type":"request","id":1,"ask":{"a":' + b"[" * 200 + b"]" * 200 + b"}}", "deeper"),
    ],
)
def test_what_breaks_a_rule_names_it(packet: bytes, rule: str) -> None:
    """Otherwise a handler finds the odd corners of whoever reads it."""
    found = read_packet(packet)
    assert isinstance(found, BrokenRule)
    assert rule in found.rule


def test_a_burst_passes_and_a_flood_is_a_trickle() -> None:
    """Otherwise one handler's progress is all that a watcher gets to see."""
    allowance = Allowance(10, 3)
    assert [allowance.takes(0.0) for _ in range(5)] == [True, True, True, False, False]
    assert [allowance.takes(0.1), allowance.takes(0.1)] == [True, False]
    # However long it was quiet, no more than a burst.
    assert [allowance.takes(100.0) for _ in range(4)] == [True, True, True, False]


# -- a line, without a jail ----------------------------------------------------------------


@contextmanager
def line(
    answer: Any = None, on_progress: Callable[[Progress], None] | None = None
) -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield Channel(ours, Hold(Group(())), answer=answer, on_progress=on_progress), theirs


def says(theirs: socket.socket, count: int, **more: Any) -> None:
    for number in range(count):
        theirs.send(packed(GOOD | {"done": number, "unsent": 0} | more))


def answers(theirs: socket.socket) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        try:
            told = theirs.recv(8_192)
        except BlockingIOError:
            return found
        if not told:
            return found
        found.append(json.loads(told))


async def yes(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
    async with hold() as is_held:
        return {"asked": ask, "is_held": is_held}


async def test_all_progress_is_told_or_counted_and_the_last_is_told(
    autojump_clock: MockClock,
) -> None:
    """Otherwise a watcher believes that it saw everything, or misses that it is done."""
    seen: list[Progress] = []
    with line(on_progress=seen.append) as (channel, theirs):
        says(theirs, 100, unsent=1)
        theirs.shutdown(socket.SHUT_WR)
        await channel.serve()
        channel.end()
        assert channel.use.told == len(seen) < 100
        assert channel.use.told + channel.use.left_out == 200
        assert channel.use.left_out == sum(each.left_out for each in seen)
        assert seen[-1].done == 99
        assert channel.use.broken is None


async def test_a_flood_is_read_at_the_supervisors_pace(autojump_clock: MockClock) -> None:
    """Otherwise a handler that writes without end has a core of the supervisor's to itself."""
    with line() as (channel, theirs):
        says(theirs, 5 * _channel.BATCH)
        theirs.shutdown(socket.SHUT_WR)
        began_s = trio.current_time()
        await channel.serve()
        assert trio.current_time() - began_s >= 5 * _channel.PAUSE_S


async def test_requests_are_answered_one_at_a_time_and_capped(autojump_clock: MockClock) -> None:
    """Otherwise a handler buries a person in questions, or has two answers raced."""
    running: list[int] = []

    async def slow(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
        running.append(ask["n"])
        await trio.sleep(1)
        assert running.pop() == ask["n"]
        assert not running
        return ask

    with line(answer=slow) as (channel, theirs):
        for number in range(_channel.REQUESTS_MAX + 2):
            theirs.send(packed(ASK | {"id": number, "ask": {"n": number}}))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.serve)
            await trio.sleep(_channel.REQUESTS_MAX + 1)
            channel.end()
        told = {each["id"]: each for each in answers(theirs)}
        assert [told[n].get("answer") for n in range(_channel.REQUESTS_MAX)] == [
            {"n": n} for n in range(_channel.REQUESTS_MAX)
        ]
        assert all("more than" in told[_channel.REQUESTS_MAX + n]["refused"] for n in (0, 1))
        assert (channel.use.requests, channel.use.refused) == (_channel.REQUESTS_MAX + 2, 2)


async def test_where_nobody_answers_a_request_is_refused() -> None:
    """Otherwise a handler waits for ever."""
    with line() as (channel, theirs):
        theirs.send(packed(ASK))
        theirs.shutdown(socket.SHUT_WR)
        await channel.serve()
        assert "nobody answers" in answers(theirs)[0]["refused"]


async def test_a_broken_rule_closes_the_line_and_gives_up_what_is_open() -> None:
    """Otherwise a person is asked on behalf of a handler that is known to lie."""
    asked = trio.Event()

    async def never(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
        asked.set()
        await trio.sleep_forever()
        raise AssertionError

    with line(answer=never) as (channel, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.serve)
            theirs.send(packed(ASK))
            await asked.wait()
            theirs.send(b"nonsense")
        assert "not JSON" in str(channel.use.broken)
        with pytest.raises(BrokenPipeError):
            theirs.send(packed(GOOD))
        channel.end()


async def test_answers_that_nobody_reads_never_make_the_supervisor_wait(
    autojump_clock: MockClock,
) -> None:
    """Otherwise a handler stops its own supervisor by not listening."""
    with line() as (channel, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.serve)
            for number in range(2_000):
                try:
                    theirs.send(packed(ASK | {"id": number}))
                except BlockingIOError:
                    await trio.sleep(_channel.PAUSE_S)
                except (BrokenPipeError, ConnectionResetError):
                    break
        assert channel.use.broken == "its answers are not read"


async def test_a_line_that_is_gone_ends_quietly() -> None:
    """A handler may close its end whenever it likes: that is no defect of anybody's."""
    gone = trio.Event()

    async def late(ask: Mapping[str, Any], hold: Any) -> Mapping[str, Any]:
        theirs.close()
        gone.set()
        return {}

    with line(answer=late) as (channel, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.serve)
            theirs.send(packed(ASK))
            await gone.wait()
        channel.end()
        assert channel.use.broken is None
    with line(answer=yes) as (channel, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.serve)
            await trio.testing.wait_all_tasks_blocked()
            channel.end()
    with line(answer=yes) as (channel, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.serve)
            theirs.send(packed(ASK))
            await trio.testing.wait_all_tasks_blocked()
            # With an answer unread at its end the kernel says ECONNRESET (unix(7)).
            theirs.close()
    with line() as (channel, theirs):
        theirs.send(packed(ASK))
        theirs.close()
        await channel.serve()
        assert (channel.use.refused, channel.use.broken) == (1, None)


async def test_what_is_left_at_the_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a buffer that somebody made large is read to its end before a result is."""
    monkeypatch.setattr(_channel, "LEFT_MAX", 3)
    with line() as (channel, theirs):
        says(theirs, 5)
        channel.end()
        assert channel.use.told == 3


async def test_what_is_sent_after_the_end_of_a_line_is_dropped() -> None:
    """An answer may come when nobody is left to hear it."""
    with line(answer=yes) as (channel, theirs):
        theirs.send(packed(GOOD | {"unsent": 0}))
        theirs.send(packed(ASK))
        channel.end()
        assert (channel.use.told, channel.use.refused) == (1, 1)
        channel.end()
        channel._send({"id": 1})


# -- the clock -----------------------------------------------------------------------------


class Tree(Files):
    """A control group whose freezer takes a while, or never comes to it."""

    def __init__(self, *, obeys: bool = True, fails: bool = False, looks: int = 2) -> None:
        self.obeys, self.fails, self.looks = obeys, fails, looks
        self.written: list[str] = []

    def read(self, path: str) -> str | None:
        # It takes some looks until everybody stands still.
        self.looks -= 1
        frozen = self.obeys and self.looks < 0 and self.written[-1] == "1"
        return f"populated 1\nfrozen {int(frozen)}\n"

    def write(self, path: str, text: str) -> None:
        if self.fails:
            raise OSError(19, os.strerror(19))
        self.written.append(text)


def group(version: Any, files: Files) -> Group:
    return Group((Place(version, "/group", ()),), files)


async def test_a_tree_is_held_only_where_all_of_it_stands_still(autojump_clock: MockClock) -> None:
    """Otherwise a handler that cannot be stopped has time for nothing."""
    tree = Tree()
    async with Hold(group(2, tree)).hold() as is_held:
        assert is_held
    assert tree.written[-1] == "0"
    tree = Tree(obeys=False)
    async with Hold(group(2, tree)).hold() as is_held:
        assert not is_held
        assert tree.written[-1] == "0"
    for no in (group(2, Tree(fails=True)), group(1, Tree()), Group(())):
        async with Hold(no).hold() as is_held:
            assert not is_held


async def test_the_clock_stands_exactly_while_the_tree_does(autojump_clock: MockClock) -> None:
    """Too long, and a limit is none; too short, and a person's lunch ends the call."""
    for files, over_s in ((Tree(), 10 + 100 + 7), (Tree(obeys=False), 10)):
        hold = Hold(group(2, files))
        began_s = trio.current_time()
        clock = trio.CancelScope(deadline=hold.deadline(began_s, 10))

        def look(hold: Hold = hold, clock: trio.CancelScope = clock) -> None:
            clock.deadline = hold.deadline(began_s, 10)  # noqa: B023 - called in this turn only

        hold.on_change = look

        async def think(hold: Hold = hold) -> None:
            await trio.sleep(3)
            async with hold.hold():
                await trio.sleep(100)
                assert hold.held_s in (0, pytest.approx(100))
            async with hold.hold():
                await trio.sleep(7)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(think)
            with clock:
                await trio.sleep_forever()
            assert trio.current_time() - began_s == pytest.approx(over_s, abs=0.01)
            nursery.cancel_scope.cancel()


async def test_a_tree_that_is_to_be_ended_is_never_frozen_again(autojump_clock: MockClock) -> None:
    """A frozen init does not see that nobody wants its result, and its tree is there for ever."""
    tree = Tree()
    hold = Hold(group(2, tree))
    async with hold.hold() as is_held:
        assert is_held
        await trio.sleep(5)
        hold.let_go()
        assert tree.written[-1] == "0"
        await trio.sleep(5)
    assert hold.held_s == pytest.approx(5)
    written = list(tree.written)
    async with hold.hold() as is_held:
        assert not is_held
    assert tree.written == written
    # While it was on its way to stand still.
    tree = Tree(looks=20)
    hold = Hold(group(2, tree))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def freeze() -> None:
            async with hold.hold() as is_held:
                assert not is_held

        await trio.sleep(0.005)
        hold.let_go()
    assert tree.written[-1] == "0"
    # Before it was told to, and it stood still all the same.
    tree = Tree()

    class Late(Group):
        async def freeze(self) -> bool:
            hold.let_go()
            return await super().freeze()

    hold = Hold(Late((Place(2, "/group", ()),), tree))
    async with hold.hold() as is_held:
        assert not is_held
        assert tree.written == ["0", "1", "0"]


async def test_a_cancel_lets_the_tree_go_on(autojump_clock: MockClock) -> None:
    """Otherwise a tree that nobody waits for stays frozen for ever."""
    tree = Tree()
    with trio.move_on_after(1):
        async with Hold(group(2, tree)).hold():
            await trio.sleep_forever()
    assert tree.written[-1] == "0"
    tree = Tree(obeys=False)
    with trio.move_on_after(0.1):
        async with Hold(group(2, tree)).hold():
            raise AssertionError("it never stood still")
    assert tree.written[-1] == "0"
