"""What a handler gets of its call, without a jail: a thread in the supervisor's place."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell._signature import signature
from toolcell.calls import CallContext
from toolcell.context import HandlerContext, injected
from toolcell.errors import ToolError
from toolcell_sandbox._child import channel

CONTEXT = HandlerContext(session_id="s", call_id="c", deps={"a": 1})


class Supervisor(threading.Thread):
    """Keeps what it is told, and answers what it is asked from a list."""

    def __init__(self, line: socket.socket, answers: list[dict[str, Any]]) -> None:
        super().__init__()
        self.line, self.answers = line, answers
        self.heard: list[dict[str, Any]] = []

    def run(self) -> None:
        while told := self.line.recv(8_192):
            heard = json.loads(told)
            self.heard.append(heard)
            if heard["type"] == "request":
                answer = {"id": heard["id"], "held_s": 0.0} | self.answers[0]
                self.line.send(json.dumps(answer).encode())
                del self.answers[0]


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr(channel, "_current", None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        found = Supervisor(ours, [])
        found.start()
        line = channel.open_at(theirs.detach(), 30.0)
        yield found
        line._line.close()
        found.join()


def handler(
    ctx: CallContext, other: HandlerContext, plain: dict[str, Any], context: dict[str, Any]
) -> None:
    """Take a context in each way."""


def test_each_annotation_gets_its_kind_of_context() -> None:
    """Ids that are no part of a context, and what is unset, are left out."""
    found = injected(
        signature(handler), {"session_id": "s", "mode": None, "odd": 1, "call_id": "c"}
    )
    assert set(found) == {"ctx", "other", "context"}
    assert isinstance(found["ctx"], HandlerContext)
    assert found["ctx"] == found["other"] == CallContext(session_id="s")
    assert found["context"] == {"session_id": "s", "mode": None, "odd": 1, "call_id": "c"}
    assert injected(signature(test_each_annotation_gets_its_kind_of_context), {}) == {}


def test_a_context_equals_whom_it_is_for() -> None:
    """A handler's own tests compare it with the context that they made."""
    plain = CallContext(session_id="s")
    assert plain == CONTEXT
    assert CONTEXT.__eq__(plain) is True
    assert hash(CONTEXT) == hash(HandlerContext(session_id="s", call_id="other"))
    assert CallContext(session_id="t") != CONTEXT
    assert CONTEXT != "s"


def test_a_handler_can_be_tried_with_a_context_of_a_callers_own() -> None:
    """Otherwise what is annotated `CallContext` has no `progress` for a type checker, or a test."""
    mine = CallContext("s")
    assert (mine.session_id, mine.call_id, mine.deps, mine.deadline_s) == ("s", None, {}, None)
    mine.progress("to nobody")
    with pytest.raises(ToolError, match="no running handler"):
        mine.permission("readonly", "x")
    with pytest.raises(ToolError, match="no running handler"):
        asyncio.run(mine.apermission("readonly", "x"))


def test_without_a_line_progress_is_nothing_and_a_question_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler's own tests run it as a plain function."""
    monkeypatch.setattr(channel, "_current", None)
    for loaded in (True, False):
        if not loaded:
            monkeypatch.delitem(sys.modules, "toolcell_sandbox._child.channel")
        CONTEXT.progress(1)
        assert CONTEXT.deadline_s is None
        with pytest.raises(ToolError, match="has no line"):
            CONTEXT.permission("readonly", "x")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"answer": {"allowed": True}}, True),
        ({"answer": {"allowed": False}}, False),
        ({"answer": {"allowed": "yes"}}, False),
        ({"answer": {}}, False),
        ({"refused": "too many"}, False),
    ],
)
def test_only_a_clear_yes_is_one(
    supervised: Supervisor, answer: dict[str, Any], expected: bool
) -> None:
    """Otherwise an answer that was misread is a permission."""
    supervised.answers.append(answer)
    assert CONTEXT.permission("write", ["a"], save=["a"]) is expected
    assert supervised.heard[0]["ask"] == {"action": "write", "resources": ["a"], "save": ["a"]}


def test_one_resource_and_a_path_are_taken_for_what_they_mean(supervised: Supervisor) -> None:
    """A text is not a list of its letters; a path object is a place, whatever the folder is."""
    supervised.answers += [{"answer": {"allowed": True}}] * 2
    assert CONTEXT.permission("write", "ab", save="ab")
    assert CONTEXT.permission("write", Path("ab"))
    assert [each["ask"]["resources"] for each in supervised.heard] == [
        ["ab"],
        [os.path.abspath("ab")],
    ]
    assert supervised.heard[0]["ask"]["save"] == ["ab"]


def test_what_cannot_be_asked_is_a_no_and_nobody_is_an_error(supervised: Supervisor) -> None:
    """The one is an answer; the other is a handler that talks to a wall."""
    assert CONTEXT.permission("write", "x" * 5_000) is False
    assert CONTEXT.permission("write", "\udc80") is False
    assert supervised.heard == []
    supervised.line.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ToolError, match="cannot be asked for"):
        CONTEXT.permission("write", "x")
    CONTEXT.progress(1)


def test_a_line_that_closes_while_it_is_asked_is_an_error(supervised: Supervisor) -> None:
    """Otherwise a handler waits for ever, or takes silence for an answer."""
    supervised.answers.append({"answer": {"allowed": True}, "id": 99})
    got: list[str] = []

    def ask() -> None:
        try:
            CONTEXT.permission("write", "x")
        except ToolError as error:
            got.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    while supervised.answers:
        os.sched_yield()
    supervised.line.shutdown(socket.SHUT_RDWR)
    asking.join()
    assert "closed the line" in got[0]


def test_the_time_that_a_tree_was_held_is_not_the_handlers(supervised: Supervisor) -> None:
    """Otherwise a person's lunch is what a handler thinks its time went to."""
    before = CONTEXT.deadline_s
    assert before is not None
    assert 29 < before <= 30
    supervised.answers.append({"answer": {"allowed": True}, "held_s": 100.0})
    assert CONTEXT.permission("write", "x")
    after = CONTEXT.deadline_s
    assert after is not None
    assert 129 < after <= 130


class Odd:
    def __str__(self) -> str:
        raise LookupError


def test_progress_is_told_whatever_it_is(supervised: Supervisor) -> None:
    """It never raises, and what it sends never costs the handler its line."""
    line = channel.current()
    assert line is not None
    cases: list[tuple[tuple[Any, Any, Any], list[Any]]] = [
        ((1, 2.5, "on it"), [1, 2.5, "on it"]),
        ((True, 10**30, Odd()), [1, 1e30, None]),
        ((float("inf"), "x", "\udc80" * 2), [None, None, "??"]),
        ((10**400, [], "\0" * 600), [None, None, "\0" * 500]),
        (("half way", None, None), [None, None, "half way"]),
    ]
    for given, _ in cases:
        line._said_s = 0.0
        CONTEXT.progress(*given)
    CONTEXT.progress(7)
    CONTEXT.progress(8)
    line.finish()
    line.finish()
    supervised.answers.append({"answer": {"allowed": True}})
    assert CONTEXT.permission("readonly", "x")
    told = [
        ([each["done"], each["total"], each["message"]], each["unsent"])
        for each in supervised.heard[:-1]
    ]
    assert told == [*((expected, 0) for _, expected in cases), ([8, None, None], 1)]


def test_a_full_line_makes_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a supervisor that is busy slows every handler down."""
    monkeypatch.setattr(channel, "_current", None)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        line = channel.open_at(mine.detach(), 1.0)
        for number in range(2_000):
            line._said_s = 0.0
            CONTEXT.progress(number)
        assert line._unsent > 0
        line._line.close()


def test_a_fork_cannot_ask(supervised: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent would read the answer."""
    monkeypatch.setattr(channel.current(), "_pid", 1)
    with pytest.raises(ToolError, match="fork"):
        CONTEXT.permission("readonly", "x")


async def test_an_async_handler_asks_without_stopping_its_loop(supervised: Supervisor) -> None:
    """Under either loop; the thread that waits is nobody's to end."""
    supervised.answers += [{"answer": {"allowed": True}}] * 2
    assert await CONTEXT.apermission("readonly", "x")
    answer = await trio.to_thread.run_sync(
        lambda: asyncio.run(CONTEXT.apermission("readonly", "x"))
    )
    assert answer


def test_without_trio_the_loop_is_asyncios(
    supervised: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler of asyncio's has no trio loaded."""
    monkeypatch.delitem(sys.modules, "trio")
    supervised.answers.append({"answer": {"allowed": True}})
    assert asyncio.run(CONTEXT.apermission("readonly", "x"))


def test_the_context_is_light() -> None:
    """Every call whose handler takes one pays for its import."""
    code = (
        "import sys, toolcell.context\n"
        "print([n for n in ('trio', 'pydantic', 'asyncio', 'orjson') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
