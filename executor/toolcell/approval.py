"""Asking a person: what they are shown, what they may answer, and who is asked.

Anything but a clear yes is a no, each with its own code. An answer is for one plan, named by
its hash, and is used once.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import trio

from toolcell._loops.callbacks import approver_at_home, for_trio
from toolcell.results import ApprovalRejected, ApprovalTimeout, ApprovalUnavailable
from toolcell_policies import Reason
from toolcell_policies.remedies import APPROVER

if TYPE_CHECKING:
    from toolcell_policies import Decision

DEADLINE_S = 300.0
PEOPLE_MAX = 256
"""Plain approvers that wait at once."""
_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("approvers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What an approver is asked: the whole call, every reason, and what could be remembered.

    `text` is ready to be shown: escaped, nothing left out. `remembers` is exactly what a yes
    that is remembered would be a yes to. `stage` is "before" the run; `diff` is None then.
    """

    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    level: int
    reasons: tuple[Reason, ...]
    plan_hash: str
    text: str
    remember_options: tuple[str, ...] = ()
    remembers: str | None = None
    stage: Literal["before", "after"] = "before"
    diff: str | None = None
    deadline_s: float = DEADLINE_S


@dataclass(frozen=True, slots=True)
class Answer:
    """What an approver says: `once()`, `remember(scope)`, `reject(why)` or `stop(why)`.

    `unavailable(why)` is the answer of nobody: the call is not permitted, and no person said so.
    """

    kind: Literal["once", "remember", "reject", "stop", "unavailable"]
    scope: Literal["session", "project"] | None = None
    why: str | None = None

    @classmethod
    def once(cls) -> Answer:
        """Yes, to exactly this call."""
        return cls("once")

    @classmethod
    def remember(cls, scope: Literal["session", "project"]) -> Answer:
        """Yes, and do not ask for the like again in this scope; only where it was offered.

        "session" ends with the session; "project" is kept for 30 days (`toolcell grants`).
        """
        return cls("remember", scope=scope)

    @classmethod
    def reject(cls, why: str | None = None) -> Answer:
        """No; `why` is told to the model."""
        return cls("reject", why=why)

    @classmethod
    def stop(cls, why: str | None = None) -> Answer:
        """No, and the agent should stop: the result proposes to terminate."""
        return cls("stop", why=why)

    @classmethod
    def unavailable(cls, why: str | None = None) -> Answer:
        """Nobody is there to answer."""
        return cls("unavailable", why=why)


Approver = Callable[[ApprovalRequest], Awaitable[Answer] | Answer]


@for_trio
async def deny_all(request: ApprovalRequest) -> Answer:
    """Nobody is asked: whatever needs a person is `approval_unavailable`, at once."""
    return Answer.unavailable("no approver is configured")


@for_trio
async def unsafe_approve_all(request: ApprovalRequest) -> Answer:
    """Yes to everything that would be asked. What policy denies stays denied."""
    return Answer.once()


def from_callback(fn: Callable[[ApprovalRequest], Any]) -> Approver:
    """An approver from a function, plain or async, that returns an `Answer` or a bool."""

    @for_trio
    async def approver(request: ApprovalRequest) -> Answer:
        said = await asked(approver_at_home(fn), request)
        if isinstance(said, bool):
            return Answer.once() if said else Answer.reject()
        return said if isinstance(said, Answer) else Answer.unavailable("the answer was no Answer")

    return approver


@for_trio
async def ask_terminal(request: ApprovalRequest) -> Answer:
    """Ask on the controlling terminal: once, session, no. One question at a time."""
    from toolcell._terminal import ask

    return await ask(request)


def _people() -> trio.CapacityLimiter:
    """Threads for who waits for a person, apart from those that anything else needs."""
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(made := trio.CapacityLimiter(PEOPLE_MAX))
        return made


async def asked(fn: Callable[[ApprovalRequest], Any], request: ApprovalRequest) -> Any:
    """What an approver says; a plain one runs in a thread, since it may wait for a person."""
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004  # asks whether the call is async, not if it is
    ):
        said = fn(request)
    else:
        # In a tuple: a plain function may return something to await, which trio would refuse.
        (said,) = await trio.to_thread.run_sync(
            lambda: (fn(request),), abandon_on_cancel=True, limiter=_people()
        )
    return await said if inspect.isawaitable(said) else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """How asking went: a clear yes for the one plan with this hash, or a failure."""

    plan_hash: str
    failure: ApprovalRejected | ApprovalTimeout | ApprovalUnavailable | None = None
    remembered: Literal["session", "project"] | None = None
    terminate: bool = False
    """The person wants the agent to stop; whoever owns the loop decides."""


async def approve(approver: Approver, request: ApprovalRequest, decision: Decision) -> Approval:
    """Ask, and read the answer strictly.

    A cancel while waiting goes on up. An approver that raises, answers nonsense, or remembers
    what was not offered has not said yes.
    """
    said: Any = None
    started = trio.current_time()
    with trio.move_on_after(request.deadline_s) as scope:
        try:
            said = await asked(approver, request)
        except Exception as error:  # noqa: BLE001  # foreign code; Cancelled is no Exception
            said = Answer.unavailable(f"asking failed: {type(error).__name__}")
    hashed = request.plan_hash
    if scope.cancelled_caught:
        waited_s = round(trio.current_time() - started, 3)
        message = f"nobody answered within {request.deadline_s:g} s, so the call did not run"
        return Approval(
            plan_hash=hashed, failure=ApprovalTimeout(message=message, waited_s=waited_s)
        )
    match said:
        case Answer(kind="once"):
            return Approval(plan_hash=hashed)
        case Answer(kind="remember", scope=where) if where in request.remember_options:
            return Approval(plan_hash=hashed, remembered=where)
        case Answer(kind="remember"):
            cause = "the answer was to remember what was not offered"
        case Answer(kind="reject" | "stop", why=why):
            message = "a person said no" + (f": {why}" if why else "")
            rejected = ApprovalRejected(message=message, why=why)
            return Approval(plan_hash=hashed, failure=rejected, terminate=said.kind == "stop")
        case Answer(kind="unavailable", why=why):
            cause = why or "nobody is there to ask"
        case _:
            cause = f"the approver returned {type(said).__name__}, not an Answer"
    return Approval(plan_hash=hashed, failure=_unavailable(cause, decision))


def _unavailable(cause: str, decision: Decision) -> ApprovalUnavailable:
    because = "; ".join(reason.text for reason in decision.reasons)
    return ApprovalUnavailable(
        message=f"this call needs a person's approval ({because}), and there is none: {cause}",
        cause=cause,
        remedy=decision.remedy or APPROVER,
    )
