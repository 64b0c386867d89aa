"""Asking a person: anything but a clear yes is a no, each with its own code."""

from __future__ import annotations

import functools
import threading
from collections.abc import Generator
from typing import Any

import pytest
import trio
import trio.testing

from toolcell import _terminal, approval
from toolcell.approval import (
    Answer,
    Approval,
    ApprovalRequest,
    approve,
    ask_terminal,
    deny_all,
    from_callback,
    unsafe_approve_all,
)
from toolcell.results import ApprovalRejected, ApprovalTimeout, ApprovalUnavailable
from toolcell_policies import Decision, Outcome, Reason

REASONS = (Reason(code="a", text="it writes"), Reason(code="b", text="outside the workspace"))
DECISION = Decision(
    outcome=Outcome.ASK,
    level=2,
    reasons=REASONS,
    plan_hash="h1",
    remember_options=("session",),
)


def request(**known: Any) -> ApprovalRequest:
    facts: dict[str, Any] = {
        "call_id": "c1",
        "tool_name": "t",
        "arguments": {"a": 1},
        "level": 2,
        "reasons": REASONS,
        "plan_hash": "h1",
        "text": "t",
        "remember_options": ("session",),
    }
    return ApprovalRequest(**(facts | known))


YES = Approval(plan_hash="h1")


async def asked(approver: Any, **known: Any) -> Approval:
    return await approve(approver, request(**known), DECISION)


async def refusal(approver: Any, **known: Any) -> Any:
    """Why asking was no yes; nothing is remembered then, and nobody was told to stop."""
    found = await asked(approver, **known)
    assert found == Approval(plan_hash="h1", failure=found.failure)
    assert found.failure is not None
    return found.failure


def says(answer: Any) -> Any:
    async def approver(request: ApprovalRequest) -> Any:
        return answer

    return approver


async def never(request: ApprovalRequest) -> Answer:
    await trio.sleep_forever()
    raise AssertionError


async def test_a_clear_yes_is_for_the_plan_that_was_asked_about() -> None:
    """A yes without its plan could be used for another call."""
    assert await asked(says(Answer.once())) == YES
    assert await asked(unsafe_approve_all, plan_hash="h2") == Approval(plan_hash="h2")
    assert YES.failure is None


async def test_what_was_offered_can_be_remembered() -> None:
    """Asked for each of a hundred files, a person stops reading."""
    found = await asked(says(Answer.remember("session")))
    assert found == Approval(plan_hash="h1", remembered="session")


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        (Answer.remember("session"), ()),
        (Answer("remember", scope="project"), ("session",)),
        (Answer("remember", scope=None), ("session",)),
        (Answer("remember", scope="SESSION"), ("session",)),  # type: ignore[arg-type]  # nonsense
    ],
)
async def test_to_remember_what_was_not_offered_is_no_yes(
    answer: Answer, options: tuple[str, ...]
) -> None:
    """At level 3 nothing is remembered; an approver must not be able to widen what it was asked."""
    found = await refusal(says(answer), remember_options=options)
    assert isinstance(found, ApprovalUnavailable)
    assert found.cause == "the answer was to remember what was not offered"


@pytest.mark.parametrize(
    ("answer", "terminate"),
    [
        (Answer.reject(), False),
        (Answer.reject("not today"), False),
        (Answer.stop(), True),
        (Answer.stop("enough"), True),
    ],
)
async def test_a_no_is_a_persons_and_a_stop_also_ends_the_agent(
    answer: Answer, terminate: bool
) -> None:
    """ "No" and "nobody there" ask for different things of whoever called."""
    whole = await asked(says(answer))
    found = whole.failure
    assert isinstance(found, ApprovalRejected)
    assert whole == Approval(plan_hash="h1", failure=found, terminate=terminate)
    assert found.why == answer.why
    assert found.message == "a person said no" + (f": {answer.why}" if answer.why else "")
    assert (found.blame, found.retryable) == ("human", "maybe")


@pytest.mark.parametrize(
    ("approver", "cause"),
    [
        (deny_all, "no approver is configured"),
        (says(Answer.unavailable("the terminal is gone")), "the terminal is gone"),
        (says(Answer.unavailable()), "nobody is there to ask"),
    ],
)
async def test_case_35_where_nobody_is_there_the_answer_is_nobodys(
    approver: Any, cause: str
) -> None:
    """Told as a person's no, it would send its reader to a person who was never asked."""
    found = await refusal(approver)
    assert isinstance(found, ApprovalUnavailable)
    assert found.cause == cause
    assert "it writes; outside the workspace" in found.message
    assert cause in found.message
    assert found.remedy is not None


@pytest.mark.parametrize(
    "answer",
    [None, True, 1, "yes", "once", {"kind": "once"}, Answer, Answer("maybe")],  # type: ignore[arg-type]  # nonsense is the point
)
async def test_an_answer_that_is_none_is_no_yes(answer: Any) -> None:
    """Truth is not consent: `return input()` would approve the word "no"."""
    found = await refusal(says(answer))
    assert isinstance(found, ApprovalUnavailable)
    assert "not an Answer" in (found.cause or "")


async def test_an_approver_that_raises_has_not_said_yes() -> None:
    """And its message may hold what is not the model's to read."""

    async def raises(request: ApprovalRequest) -> Answer:
        raise ConnectionError("token=secret")

    def raises_plainly(request: ApprovalRequest) -> Answer:
        raise ConnectionError("token=secret")

    for approver in (raises, raises_plainly):
        found = await refusal(approver)
        assert isinstance(found, ApprovalUnavailable)
        assert found.cause == "asking failed: ConnectionError"
        assert "secret" not in str(found.to_json())


async def test_an_interrupt_while_asking_goes_on_up() -> None:
    """Ctrl-C at the question ends the program; it is no answer."""

    async def interrupts(request: ApprovalRequest) -> Answer:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await asked(interrupts)


async def test_nobody_answering_in_time_is_a_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A question that is never answered must not hold its call for ever."""
    started = trio.current_time()

    async def sleeps(request: ApprovalRequest) -> Answer:
        await trio.sleep(3_600)
        return Answer.once()

    found = await refusal(sleeps, deadline_s=30.0)
    assert isinstance(found, ApprovalTimeout)
    assert found.waited_s == pytest.approx(30.0, abs=0.01)
    assert trio.current_time() - started == pytest.approx(30.0, abs=0.01)
    assert "30 s" in found.message
    assert (found.blame, found.retryable) == ("human", "maybe")


async def test_the_deadline_by_default_is_five_minutes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Long enough to fetch a coffee, short enough to be noticed."""
    found = await refusal(never)
    assert isinstance(found, ApprovalTimeout)
    assert found.waited_s == pytest.approx(approval.DEADLINE_S, abs=0.01) == 300


async def test_an_answer_at_the_last_moment_counts(autojump_clock: trio.testing.MockClock) -> None:
    """A person who answered was there."""

    async def just_in_time(request: ApprovalRequest) -> Answer:
        await trio.sleep(request.deadline_s - 0.5)
        return Answer.once()

    assert await asked(just_in_time, deadline_s=10.0) == YES


async def test_a_cancel_while_asking_goes_on_up(autojump_clock: trio.testing.MockClock) -> None:
    """The caller's cancel is not the deadline: taken for it, the call would go on."""
    came_back = False
    with trio.move_on_after(5) as scope:
        await asked(never, deadline_s=60.0)
        came_back = True
    assert scope.cancelled_caught
    assert not came_back


async def test_an_approvers_own_timeout_is_not_ours(autojump_clock: trio.testing.MockClock) -> None:
    """It failed to ask; nobody was silent for our deadline."""

    async def gives_up(request: ApprovalRequest) -> Answer:
        with trio.fail_after(1):
            await trio.sleep_forever()
        raise AssertionError

    found = await refusal(gives_up, deadline_s=60.0)
    assert isinstance(found, ApprovalUnavailable)
    assert found.cause == "asking failed: TooSlowError"


async def test_a_plain_function_waits_in_a_thread_and_holds_nobody_up() -> None:
    """input() in the event loop stops every other call, and their deadlines."""
    release = threading.Event()
    here = threading.get_ident()
    threads = []

    def waits(request: ApprovalRequest) -> Answer:
        threads.append(threading.get_ident())
        assert release.wait(10)
        return Answer.once()

    async def goes_on() -> None:
        release.set()

    found = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(goes_on)
        found = await asked(waits)
    assert found == YES
    assert here not in threads


async def test_a_plain_function_that_never_returns_is_left_behind_at_the_deadline() -> None:
    """A thread cannot be killed; the call need not wait for it."""
    release = threading.Event()

    def waits(request: ApprovalRequest) -> Answer:
        release.wait(10)
        return Answer.once()

    try:
        assert isinstance(await refusal(waits, deadline_s=0.01), ApprovalTimeout)
    finally:
        release.set()


class AsyncObject:
    """An approver with state, as a class."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    async def __call__(self, request: ApprovalRequest) -> Answer:
        self.threads.append(threading.get_ident())
        return Answer.once()


async def test_an_approver_may_be_an_object_a_partial_or_a_function_that_gives_an_awaitable() -> (
    None
):
    """Whatever is awaitable must be awaited here: trio's things do not work in a thread."""
    held = AsyncObject()
    assert await asked(held) == YES
    assert held.threads == [threading.get_ident()]

    async def with_more(word: str, request: ApprovalRequest) -> Answer:
        await trio.lowlevel.checkpoint()
        return Answer.reject(word)

    found = await refusal(functools.partial(with_more, "x"))
    assert isinstance(found, ApprovalRejected)

    assert found.why == "x"

    class Later:
        def __await__(self) -> Generator[Any, Any, Answer]:
            return with_more("y", request()).__await__()

    found = await refusal(lambda request: Later())
    assert isinstance(found, ApprovalRejected)
    assert found.why == "y"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (True, Answer.once()),
        (False, Answer.reject()),
        (Answer.stop("x"), Answer.stop("x")),
        (1, Answer.unavailable("the answer was no Answer")),
        ("yes", Answer.unavailable("the answer was no Answer")),
        (None, Answer.unavailable("the answer was no Answer")),
    ],
)
async def test_a_callback_says_an_answer_or_a_bool(said: Any, answer: Answer) -> None:
    """A function that forgets to return has not said yes."""

    async def later(request: ApprovalRequest) -> Any:
        return said

    for callback in (lambda request: said, later):
        approver = from_callback(callback)
        given = approver(request())
        assert not isinstance(given, Answer)
        assert await given == answer


async def test_the_terminal_is_asked_only_when_it_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The module that opens a terminal is loaded for that alone."""
    seen = []

    async def fake(request: ApprovalRequest) -> Answer:
        seen.append(request.call_id)
        return Answer.once()

    monkeypatch.setattr(_terminal, "ask", fake)
    assert await asked(ask_terminal) == YES
    assert seen == ["c1"]


def test_a_request_is_before_the_run_and_has_no_diff() -> None:
    """A reviewer after the run sees a change set; here there is none yet."""
    assert (request().stage, request().diff, request().deadline_s) == ("before", None, 300.0)
