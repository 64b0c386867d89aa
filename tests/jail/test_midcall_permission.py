"""What handlers ask for while they run, and what they are told: the same decision, as advice."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Answer, CallContext, Executor, Mode, Network
from toolcell._midcall import UNHEARD, MidCall, Wanted, read_request
from toolcell.approval import ApprovalRequest, deny_all, unsafe_approve_all
from toolcell.confinement import confine
from toolcell.planning import Ask
from toolcell.schema import Validated
from toolcell_sandbox import JailOutcome, Limits, PythonHandler, run_in_jail
from toolcell_sandbox._channel import ChannelUse

from . import tools_of_midcall as tools

WHO = CallContext(session_id="s-1", agent_id="a-1", message_id="m-1")


class Person:
    """An approver that gives its answers in turn, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("notes")
    (workspace / ".env").write_text("KEY=1")
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil" / "f").write_text("secret")
    (workspace / "out").symlink_to(tmp_path / "ws-evil" / "f")
    return tmp_path


def executor(place: Path, **options: Any) -> Executor:
    return Executor(workspace=place / "ws", state_dir=place / "state", builtin=False, **options)


async def run(
    box: Executor,
    tool: Any,
    arguments: dict[str, Any],
    approver: Any = deny_all,
    *,
    context: CallContext = WHO,
    told: list[Any] | None = None,
    midcalls: list[MidCall] | None = None,
    wall_s: float = 30.0,
    **options: Any,
) -> JailOutcome:
    """One call as the executor makes it, once it was agreed to, with its channel."""
    if "wanted" in arguments:
        wanted = [[action, *resources] for action, resources in arguments["wanted"]]
        arguments = arguments | {"wanted": wanted}
    plan = box._planner.plan(
        Ask(
            tool=tool,
            valid=Validated(arguments),
            context=context,
            limits=Limits(wall_s=wall_s),
            mode="direct" if tool is tools.writes_with_leave else None,
        )
    )
    handler, spec = confine(
        tool,
        plan.arguments,
        workspace=box.workspace,
        limits=plan.limits,
        choices=box.choices,
        mode=plan.mode,
        context=dataclasses.asdict(context) | {"call_id": "call-1", "deps": {"d": [1]}},
        settled=plan.settled,
    )
    assert isinstance(handler, PythonHandler)
    midcall = MidCall(
        plan,
        call_id="call-1",
        planner=box._planner,
        agreements=box._agreements,
        approver=approver,
        tell=None if told is None else told.append,
        **options,
    )
    if midcalls is not None:
        midcalls.append(midcall)
    outcome = await run_in_jail(
        dataclasses.replace(handler, channel=True),
        spec,
        channel=midcall.answer,
        on_progress=None if told is None else told.append,
    )
    assert "defect" not in str(outcome.failure)
    return outcome


def value(outcome: JailOutcome) -> Any:
    assert outcome.failure is None, outcome.failure
    return outcome.value


# -- what is decided -----------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_a_path_is_judged_as_an_argument_would_be(place: Path, isolation: str) -> None:
    """Otherwise a handler gets by asking what a model does not get by naming it."""
    wanted: list[tuple[list[Any], bool]] = [
        (["readonly", ["notes.txt"]], True),
        (["readonly", [str(place / "ws" / "notes.txt")]], True),
        (["readonly", ["notes.txt", ".env"]], False),
        (["readonly", ["out"]], False),
        (["readonly", ["../ws-evil/f"]], False),
        (["readonly", ["/etc/shadow"]], False),
        (["readonly", ["notes\u202e.txt"]], False),
        (["readonly", []], False),
    ]
    async with executor(place, isolation=isolation) as box:
        outcome = await run(box, tools.reader, {"wanted": [each for each, _ in wanted]})
    assert value(outcome) == [expected for _, expected in wanted]


@pytest.mark.parametrize(
    ("tool", "cases"),
    [
        (
            tools.reader,
            [
                (["write", ["notes.txt"]], "not for this tool"),
                (["execute", ["rm -rf /"]], "not for this tool"),
                (["edit", ["notes.txt"]], "not for this tool"),
            ],
        ),
        (
            tools.writer,
            [
                (["execute", ["make"]], "not for this tool"),
                (["mixed", ["x"]], "not for this tool"),
                (["readonly", ["notes.txt"]], None),
                (["write", ["new.txt"]], None),
                (["edit", ["new.txt"]], None),
                (["write", ["../ws-evil/f"]], "outside"),
            ],
        ),
        (tools.runner, [(["execute", ["make test"]], None), (["execute", []], None)]),
        (tools.caller, [(["network", ["example.org"]], "no network")]),
    ],
)
async def test_a_tool_may_ask_for_what_its_own_word_has_in_it(
    place: Path, tool: Any, cases: list[tuple[list[Any], str | None]]
) -> None:
    """Otherwise a tool that said it reads collects leave to write, from whoever says yes."""
    midcalls: list[MidCall] = []
    wanted = [each for each, _ in cases]
    async with executor(place) as box:
        outcome = await run(box, tool, {"wanted": wanted}, unsafe_approve_all, midcalls=midcalls)
    assert value(outcome) == [expected is None for _, expected in cases]
    for said, (_, expected) in zip(midcalls[0].marked({})["permissions"], cases, strict=True):
        answer = {None: "allowed", "not for this tool": "refused"}.get(expected, "denied")
        assert said["answer"] == answer
        assert expected is None or expected in said["reason"]


async def test_where_it_would_ask_a_person_is_asked_and_told_by_whom(place: Path) -> None:
    """Otherwise a yes is given to nobody knows what, for nobody knows whom."""
    person = Person(Answer.once(), Answer.reject("not today"))
    told: list[Any] = []
    midcalls: list[MidCall] = []
    wanted = [["write", ["new.txt"]], ["write", ["b"]], ["write", ["b"]]]
    async with executor(place) as box:
        outcome = await run(
            box, tools.writer, {"wanted": wanted}, person, told=told, midcalls=midcalls
        )
    # What was said no to is not asked again in this session.
    assert value(outcome) == [True, False, False]
    assert len(person.asked) == 2
    request = person.asked[0]
    assert (request.call_id, request.tool_name, request.level) == ("call-1", "writer", 2)
    assert request.arguments == {
        "action": "write",
        "resources": ["new.txt"],
        "source": {
            "type": "tool",
            "tool": "writer",
            "call_id": "call-1",
            "message_id": "m-1",
            "session_id": "s-1",
            "agent_id": "a-1",
        },
    }
    for word in ("while it runs", "writer", "call-1", "m-1", "s-1", "a-1", "new.txt"):
        assert word in request.text
    assert str(place / "ws" / "new.txt") in request.text
    assert request.remember_options == ()
    said = midcalls[0].marked({})["permissions"]
    assert [(each["answer"], each["how"]) for each in said] == [
        ("allowed", "once"),
        ("denied", None),
        ("denied", None),
    ]
    assert "not today" in said[1]["reason"]
    assert [type(event).__name__ for event in told] == ["Asked", "Answered"] * 3
    assert [event.allowed for event in told[1::2]] == [True, False, False]


async def test_nobody_to_ask_is_a_no(place: Path) -> None:
    """Otherwise a question that nobody hears is a yes."""
    async with executor(place) as box:
        outcome = await run(box, tools.writer, {"wanted": [["write", ["a"]]]})
        assert value(outcome) == [False]
        # A ceiling holds for what is asked as well: who explores writes nothing that stays.
        context = dataclasses.replace(WHO, mode=Mode.PLAN.value)
        outcome = await run(
            box, tools.writer, {"wanted": [["write", ["a"]]]}, unsafe_approve_all, context=context
        )
        assert value(outcome) == [False]
    async with executor(place, network=Network.loopback()) as box:
        outcome = await run(box, tools.caller, {"wanted": [["network", ["localhost"]]]})
        assert value(outcome) == [True]


async def test_a_yes_is_remembered_only_where_the_handler_asked_for_that(place: Path) -> None:
    """Otherwise one yes to one file is a yes to the next call's."""
    for save, asked in ((False, 2), (True, 1)):
        person = Person(Answer.remember("session"))
        if not save:
            person = Person(Answer.once())
        async with executor(place) as box:
            for name in ("a", "b"):
                arguments = {"wanted": [["write", [name]]], "save": save}
                assert value(await run(box, tools.writer, arguments, person)) == [True]
        assert len(person.asked) == asked
        assert person.asked[0].remember_options == (("session", "project") if save else ())
        if save:
            assert person.asked[0].remembers == (
                f"every write that writer asks for while it runs in {place / 'ws'}"
            )


async def test_there_are_eight_questions_in_a_call(place: Path) -> None:
    """Otherwise a handler asks until somebody tires."""
    wanted = [["readonly", ["notes.txt"]]] * 10
    midcalls: list[MidCall] = []
    async with executor(place) as box:
        outcome = await run(box, tools.reader, {"wanted": wanted}, midcalls=midcalls)
    assert value(outcome) == [True] * 8 + [False] * 2
    assert len(midcalls[0].permissions) == 8


# -- what an answer is not -----------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_no_answer_widens_the_jail(place: Path, isolation: str) -> None:
    """Otherwise a handler that answers itself has what it asked for."""
    secret = place / "ws-evil" / "f"
    async with executor(place, isolation=isolation) as box:
        outcome = await run(box, tools.says_yes_to_itself, {"path": str(secret)})
        assert value(outcome)["allowed"] == [True]
        assert "did" not in (outcome.value["read"], outcome.value["write"])
        # The near miss: what the jail shows can be read, and still not be written.
        outcome = await run(box, tools.says_yes_to_itself, {"path": "notes.txt"})
        assert value(outcome)["read"] == "did"
        assert outcome.value["write"] != "did"
    assert secret.read_text() == "secret"


async def test_a_true_yes_does_not_widen_it_either(place: Path) -> None:
    """The answer is advice: what the jail shows read-only stays so."""
    (place / "ws" / "written").mkdir()
    async with executor(place) as box:
        arguments = {"path": "written/f"}
        outcome = await run(box, tools.writes_with_leave, arguments, unsafe_approve_all)
        assert value(outcome) == [True, None]
        (place / "ws" / ".git").mkdir()
        (place / "ws" / ".git" / "config").write_text("[core]\n")
        arguments = {"path": ".git/config"}
        outcome = await run(box, tools.writes_with_leave, arguments, deny_all)
        assert value(outcome)[0] is False


# -- while a person thinks -----------------------------------------------------------------


async def test_waiting_is_capped_and_no_answer_is_a_no(place: Path) -> None:
    """Otherwise a call waits for a person who went home: eight times, and holds its place."""
    asked: list[ApprovalRequest] = []

    async def never(request: ApprovalRequest) -> Answer:
        assert request.deadline_s == 0.2
        asked.append(request)
        await trio.sleep_forever()
        raise AssertionError

    midcalls: list[MidCall] = []
    async with executor(place) as box:
        wanted = [["write", ["a"]], ["write", ["b"]], ["write", ["c"]]]
        outcome = await run(
            box, tools.writer, {"wanted": wanted}, never, wait_s=0.2, midcalls=midcalls
        )
    assert value(outcome) == [False] * 3
    first, *others = midcalls[0].marked({})["permissions"]
    assert "nobody answered" in first["reason"]
    assert first["waited_s"] >= 0.2
    assert [(each["answer"], each["reason"]) for each in others] == [("denied", UNHEARD)] * 2
    assert len(asked) == 1


async def test_a_cancel_while_a_person_thinks_leaves_the_question_unanswered(place: Path) -> None:
    """Otherwise the record says that somebody answered."""
    midcalls: list[MidCall] = []
    with trio.CancelScope() as scope:

        async def cancels(request: ApprovalRequest) -> Answer:
            scope.cancel()
            await trio.sleep_forever()
            raise AssertionError

        async with executor(place) as box:
            await run(box, tools.writer, {"wanted": [["write", ["a"]]]}, cancels, midcalls=midcalls)
    assert scope.cancelled_caught
    assert [each.answer for each in midcalls[0].permissions] == ["unanswered"]


async def test_a_path_that_leads_elsewhere_by_the_answer_is_a_no(place: Path) -> None:
    """A person may think for minutes, and say yes to what it was."""

    async def swaps(request: ApprovalRequest) -> Answer:
        (place / "ws" / "later").symlink_to(place / "ws" / "notes.txt")
        return Answer.once()

    midcalls: list[MidCall] = []
    async with executor(place) as box:
        outcome = await run(
            box, tools.writer, {"wanted": [["write", ["later"]]]}, swaps, midcalls=midcalls
        )
    assert value(outcome) == [False]
    assert "changed" in midcalls[0].permissions[0].reason


async def test_what_cannot_be_decided_is_a_no(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a defect of ours ends a call that only wanted to know, or says yes."""

    async def broken(*_: object) -> None:
        raise LookupError("on purpose")

    async with executor(place) as box:
        monkeypatch.setattr(box._agreements, "agreed", broken)
        outcome = await run(box, tools.reader, {"wanted": [["readonly", ["notes.txt"]]]})
    assert value(outcome) == [False]


# -- how a handler asks --------------------------------------------------------------------


@pytest.mark.parametrize("tool", [tools.on_trio, tools.on_asyncio])
async def test_async_handlers_go_on_while_they_ask(place: Path, tool: Any) -> None:
    """Otherwise a handler that serves two things stops for the one that it asks about."""
    async with executor(place) as box:
        assert value(await run(box, tool, {"path": "notes.txt"})) == [[True], True]


async def test_a_context_says_for_whom_and_how_long(place: Path) -> None:
    """The same facts, whatever a handler calls it; and progress never raises."""
    told: list[Any] = []
    midcalls: list[MidCall] = []
    async with executor(place) as box:
        outcome = await run(box, tools.tells, {}, told=told, midcalls=midcalls)
    found = value(outcome)
    forged = {"permissions": [{"answer": "allowed"}], "channel_closed": "no", "own": 1}
    assert midcalls[0].marked(forged, outcome.channel) == {"own": 1}
    assert midcalls[0].marked({}, ChannelUse(broken="why")) == {"channel_closed": "why"}
    assert 0 < found.pop("left") <= 30
    assert found == {
        "is": [True, True, False],
        "session_id": "s-1",
        "mode": None,
        "call_id": "call-1",
        "deps": {"d": [1]},
        "dict": "s-1",
        "child": 5,
    }
    assert (told[0].done, told[0].total, told[0].message) == (1, 2, "half")
    assert (told[-1].done, told[-1].total, told[-1].message) == (1, 1e30, None)
    assert sum(1 + each.left_out for each in told) == 3


# -- requests, read without a jail ---------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ({"action": "write", "resources": ["a"], "save": None}, None),
        ({"action": "write", "resources": ["a"], "save": ["a"]}, None),
        ({"action": "write", "resources": ["a"]}, "a request has"),
        ({"action": "write", "resources": ["a"], "save": None, "tool": "x"}, "a request has"),
        ({"action": ["write"], "resources": ["a"], "save": None}, "a request has"),
        ({"action": "write", "resources": "a", "save": None}, "a request has"),
        ({"action": "write", "resources": ["a"] * 17, "save": None}, "at most 16"),
        ({"action": "write", "resources": [1], "save": None}, "text of at most"),
        ({"action": "write", "resources": ["é" * 2_049], "save": None}, "text of at most"),
        ({"action": "write", "resources": ["a"], "save": True}, "a list of texts"),
        ({"action": "write", "resources": ["a"], "save": [1]}, "a list of texts"),
        ({"action": "write", "resources": [], "save": None}, "needs the paths"),
        ({"action": "read", "resources": ["a"], "save": None}, None),
        ({"action": "root", "resources": ["a"], "save": None}, "edit, readonly, write"),
    ],
)
def test_a_request_is_read_strictly(ask: Mapping[str, Any], expected: str | None) -> None:
    """What is not exactly a request is not guessed at."""
    found = read_request(ask, tools.writer)
    if expected is None:
        assert isinstance(found, Wanted)
        assert found.saves is (ask["save"] is not None)
    else:
        assert isinstance(found, str)
        assert expected in found
