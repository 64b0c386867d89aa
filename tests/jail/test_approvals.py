"""What is agreed to, for what, how long, and how often: through real calls."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from toolcell import Answer, CallContext, Decision, Executor
from toolcell.approval import ApprovalRequest, unsafe_approve_all
from toolcell.prepared import PLAN_LIFE_S, Plan

WRITE = {"path": "a", "content": "x"}


class Person:
    """An approver that answers the same each time, and keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        return self.answer


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path


def executor(place: Path, approver: Any = None, **options: Any) -> Executor:
    if approver is not None:
        options["approver"] = approver
    return Executor(workspace=place / "ws", state_dir=place / "state", **options)


def error_of(result: Any) -> Any:
    """The failure; what it has besides its kind is for the test to know."""
    return result.error


def denied_by(result: Any) -> str | None:
    return None if result.decision is None else result.decision.denied_by


def codes(result: Any) -> list[str]:
    return [reason.code for reason in result.decision.reasons]


def objections(result: Any) -> list[str]:
    return [reason.code for reason in error_of(result).reasons]


def kind(result: Any) -> str | None:
    return None if result.error is None else str(result.error.kind)


def write(name: str) -> dict[str, str]:
    return {"path": name, "content": "x"}


# -- remembering --------------------------------------------------------------------------


async def test_a_first_use_is_remembered_for_the_scope_that_was_said(place: Path) -> None:
    """Too short, and a person is asked until they stop reading; too long, and it was no yes."""
    for scope, survives in (("session", False), ("project", True)):
        where = place / scope
        (where / "ws").mkdir(parents=True)
        person = Person(Answer.remember(scope))  # type: ignore[arg-type]  # one of the two
        async with executor(where, person) as box:
            for name in ("a", "b", "c"):
                assert (await box.call("write_file", write(name))).success
        assert len(person.asked) == 1
        assert person.asked[0].remember_options == ("session", "project")
        assert person.asked[0].remembers == f"every call of write_file in {where / 'ws'}"
        async with executor(where) as box:
            later = await box.call("write_file", write("d"))
        assert later.success is survives


@pytest.mark.parametrize(
    "other",
    [
        {"agent_id": "another"},
        {"mode": "build"},
    ],
)
async def test_a_grant_is_for_the_agent_that_got_it(place: Path, other: dict[str, Any]) -> None:
    """A yes to one agent is not a yes to the next; a mode that is no wider changes nothing."""
    person = Person(Answer.remember("project"))
    async with executor(place, person) as box:
        assert (await box.call("write_file", WRITE, context=CallContext(agent_id="one"))).success
    async with executor(place) as box:
        same = CallContext(agent_id="one")
        assert (await box.call("write_file", write("b"), context=same)).success
        changed = dataclasses.replace(same, **other)
        result = await box.call("write_file", write("c"), context=changed)
    assert result.success is (other == {"mode": "build"})


@pytest.mark.parametrize(
    "options",
    [
        {"network": "loopback"},
        {"workspace_mode": "direct"},
        {"policy": "strict"},
        {"waive": ["paths_masked"]},
    ],
)
async def test_a_grant_is_for_the_jail_it_was_given_for(
    place: Path, options: dict[str, Any]
) -> None:
    """What a person agreed to see written in a box is not agreed to outside of it."""
    from toolcell import Network

    if "network" in options:
        options = {"network": Network.loopback()}
    person = Person(Answer.remember("project"))
    async with executor(place, person) as box:
        assert (await box.call("write_file", WRITE)).success
    async with executor(place) as box:
        assert (await box.call("write_file", write("b"))).success, "the control"
    async with executor(place, **options) as box:
        assert kind(await box.call("write_file", write("c"))) == "approval_unavailable"


async def test_another_folder_in_the_workspaces_place_has_no_grants(place: Path) -> None:
    """Whoever swaps a folder must not inherit what was agreed to for the one that lay there."""
    async with executor(place, Person(Answer.remember("project"))) as box:
        assert (await box.call("write_file", WRITE)).success
    os.rename(place / "ws", place / "old")
    (place / "ws").mkdir()
    async with executor(place) as box:
        assert kind(await box.call("write_file", WRITE)) == "approval_unavailable"


@pytest.mark.parametrize("answer", [Answer.remember("project"), Answer.remember("session")])
async def test_level_3_is_never_remembered(place: Path, answer: Answer) -> None:
    """A yes to one command must not become a yes to all commands."""
    person = Person(answer)
    async with executor(place, person) as box:
        result = await box.call("python", {"code": "1"})
    assert person.asked[0].remember_options == ()
    assert kind(result) == "approval_unavailable", "what was not offered is no answer"


@pytest.mark.parametrize("command", ["touch a && touch b", "git add .", "env touch a", "touch $X"])
async def test_only_a_plain_command_is_remembered(place: Path, command: str) -> None:
    """What is remembered has to be exactly what was shown (opencode 40158)."""
    person = Person(Answer.remember("session"))
    options: dict[str, Any] = {"policy": "coding", "workspace_mode": "direct"}
    async with executor(place, person, **options) as box:
        assert (await box.call("shell", {"command": "touch one"})).success
        assert (await box.call("shell", {"command": "touch one"})).success
        assert len(person.asked) == 1, "the control: a plain command is"
        await box.call("shell", {"command": "touch two"})
        assert len(person.asked) == 2, "and is itself alone"
        refused = await box.call("shell", {"command": command})
    assert person.asked[-1].remember_options == ()
    assert kind(refused) == "approval_unavailable"


async def test_a_no_is_remembered_until_the_executor_ends(place: Path) -> None:
    """A model that asks again until somebody slips must not find that it works."""
    person = Person(Answer.reject("not this one"))
    async with executor(place, person) as box:
        first = await box.call("write_file", WRITE)
        person.answer = Answer.once()
        again = await box.call("write_file", WRITE)
        other = await box.call("write_file", write("b"))
    assert [kind(one) for one in (first, again, other)] == ["approval_rejected"] * 2 + [None]
    assert len(person.asked) == 2
    assert "not this one" in error_of(again).message


async def test_a_damaged_store_is_empty_so_it_asks(place: Path) -> None:
    """A file that cannot be read says yes to nothing, and stops nothing either."""
    person = Person(Answer.remember("project"))
    async with executor(place, person) as box:
        assert (await box.call("write_file", WRITE)).success
    (place / "state" / "grants.sqlite").write_bytes(b"\0" * 4096)
    async with executor(place, person) as box:
        assert (await box.call("write_file", write("b"))).success
    assert len(person.asked) == 2


# -- loops and floods ---------------------------------------------------------------------


async def test_the_same_call_over_and_over_is_told_asked_and_ended(place: Path) -> None:
    """An agent that repeats itself burns money, and a person's patience (opencode 50073)."""
    context = CallContext(session_id="s")
    person = Person(Answer.once())
    async with executor(place, person, policy="coding") as box:
        ended = [await box.call("shell", {"command": "true"}, context=context) for _ in range(6)]
        other = await box.call("shell", {"command": "echo other"}, context=context)
        fresh = await box.call("shell", {"command": "true"}, context=context)
    told = ["loop" in one.metadata for one in ended]
    assert [kind(one) for one in ended] == [None, None, None, None, "denied", "denied"]
    assert told[:4] == [False, False, True, True]
    assert "again" in ended[2].content or "in a row" in ended[2].content
    assert len(person.asked) == 1
    assert (other.success, fresh.success) == (True, True)


async def test_a_circle_of_calls_is_noticed_across_turns(place: Path) -> None:
    """Two calls that undo each other look like work (opencode 47845)."""
    commands = ["echo a", "echo b", "echo c"]
    async with executor(place, policy="coding") as box:
        ended = [
            await box.call(
                "shell",
                {"command": commands[number % 3]},
                context=CallContext(session_id="s", message_id=str(number)),
            )
            for number in range(9)
        ]
    assert ["loop" in one.metadata for one in ended] == [False] * 8 + [True]


async def test_a_program_that_names_no_agent_may_repeat_itself(place: Path) -> None:
    """A loop in a program is meant; it is remarked, and no more."""
    async with executor(place, policy="coding") as box:
        ended = [await box.call("shell", {"command": "true"}) for _ in range(7)]
    assert all(one.success for one in ended)
    assert len({one.content for one in ended}) == 1
    assert ["loop" in one.metadata for one in ended] == [False] * 2 + [True] * 5


async def test_a_flood_of_questions_ends(place: Path) -> None:
    """Who is asked ten times in ten seconds says yes to the eleventh without reading."""
    person = Person(Answer.reject())
    async with executor(place, person) as box:
        ended = [
            await box.call("write_file", write(f"f{number}"), context=CallContext(session_id="s"))
            for number in range(12)
        ]
        other = await box.call("write_file", WRITE, context=CallContext(session_id="t"))
    assert [kind(one) for one in ended] == ["approval_rejected"] * 10 + ["denied"] * 2
    assert codes(ended[-1])[-1] == "prompts_exhausted"
    assert kind(other) == "approval_rejected", "another session is asked for itself"
    assert len(person.asked) == 11
    async with executor(place, unsafe_approve_all) as box:
        many = [
            await box.call("write_file", write(f"g{number}"), context=CallContext(session_id="s"))
            for number in range(12)
        ]
    assert all(one.success for one in many), "who approves all reads nothing, and is not flooded"


# -- answers that come later --------------------------------------------------------------


def carried(plan: Plan) -> Plan:
    """The plan, after a trip through a store."""
    return Plan.from_json(json.loads(json.dumps(plan.to_json())))


async def prepared(box: Executor, name: str = "python", **arguments: Any) -> Plan:
    found = await box.prepare(name, arguments or {"code": "print('ran')"})
    assert isinstance(found, Plan)
    return found


async def test_a_plan_is_answered_once_and_by_another_process_as_well(place: Path) -> None:
    """A web backend cannot hold a coroutine for an hour, nor may an answer be used twice."""
    async with executor(place) as box:
        plan = await prepared(box)
        assert (plan.outcome, plan.level) == ("ask", 3)
        assert "print('ran')" in plan.text
    async with executor(place) as box:
        ran = await box.resume(carried(plan), Answer.once())
        again = await box.resume(carried(plan), Answer.once())
    assert (ran.success, ran.stdout.text() if ran.stdout else None) == (True, "ran\n")
    assert (kind(again), objections(again)) == ("denied", ["plan_spent"])
    async with executor(place) as box:
        assert objections(await box.resume(carried(plan), Answer.once())) == ["plan_spent"]
        no = await box.resume(carried(await prepared(box)), Answer.reject("no"))
    assert (kind(no), error_of(no).why) == ("approval_rejected", "no")


@pytest.mark.parametrize(
    "changed",
    [
        {"arguments": {"code": "print('other')"}},
        {"name": "shell"},
        {"context": {"agent_id": "another"}},
        {"context": {"no_such": "word"}},
        {"call_id": "x" * 1000},
        {"workspace_mode": "direct"},
        {"plan_hash": "0" * 64},
        {"expires_s": 1e12},
        {"nonce": "0" * 32},
        {"seal": "0" * 64},
        {"seal": ""},
        {"arguments": {"code": {"not": "plain", "n": 2**70}}},
    ],
)
async def test_a_plan_that_was_changed_on_the_way_is_refused(
    place: Path, changed: dict[str, Any]
) -> None:
    """What a person agreed to is what runs, whoever carried it (extra 139)."""
    async with executor(place) as box:
        plan = await prepared(box)
        result = await box.resume(dataclasses.replace(plan, **changed), Answer.once())
        assert (kind(result), objections(result)) == ("denied", ["plan_forged"])
        assert (await box.resume(plan, Answer.once())).success, "the control"


async def test_a_plan_is_refused_where_what_it_would_run_has_changed(place: Path) -> None:
    """A tool that is put in the place of the one that was shown must not run on its yes."""
    script = place / "ws" / "build.sh"
    script.write_text("#!/bin/sh\necho first\n")
    script.chmod(0o755)
    async with executor(place) as box:
        plan = await prepared(box, "shell", command="./build.sh")
        other = await prepared(box, "shell", command="./build.sh")
        assert (await box.resume(other, Answer.once())).success, "the control"
        script.write_text("#!/bin/sh\necho other\n")
        result = await box.resume(plan, Answer.once())
    assert (kind(result), codes(result)) == ("denied", ["plan_changed"])


async def test_a_program_that_changes_while_a_person_thinks_is_not_run(place: Path) -> None:
    """The yes was to what lay there when it was asked."""
    script = place / "ws" / "build.sh"
    script.write_text("#!/bin/sh\necho first\n")
    script.chmod(0o755)

    async def replaces(request: ApprovalRequest) -> Answer:
        script.write_text("#!/bin/sh\necho other\n")
        return Answer.once()

    async with executor(place, replaces) as box:
        result = await box.call("shell", {"command": "./build.sh"})
        same = await box.call("shell", {"command": "cat ./build.sh"})
    assert (kind(result), codes(result)) == ("denied", ["plan_changed"])
    assert same.success, "what is only read may change"


async def test_an_old_plan_is_no_longer_answered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A yes that lies around for weeks is a key under the mat."""
    import time

    async with executor(place) as box:
        plan = await prepared(box)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + PLAN_LIFE_S + 1)
        result = await box.resume(plan, Answer.once())
    assert objections(result) == ["plan_expired"]


async def test_human_time_is_not_the_calls_time(place: Path, mock_clock: MockClock) -> None:
    """Otherwise a call is over before it begins, because somebody read it first."""

    async def slow(request: ApprovalRequest) -> Answer:
        mock_clock.jump(250)
        return Answer.once()

    from toolcell import Limits

    async with executor(place, slow, limits=Limits(wall_s=100)) as box:
        mock_clock.rate = 1
        result = await box.call("python", {"code": "1"})
    assert result.success, result.error


@pytest.mark.parametrize("data", [{}, {"version": 1}, {"version": 2}, [], None])
def test_what_is_no_plan_is_not_read_as_one(data: Any) -> None:
    """A plan with a field left out would be decided on with a default."""
    with pytest.raises(ValueError, match="plan"):
        Plan.from_json(data)


async def test_a_wrong_call_has_no_plan(place: Path) -> None:
    """A person must not be asked about what could never run."""
    async with executor(place) as box:
        unknown = await box.prepare("no_such_tool", {})
        wrong = await box.prepare("python", {"cod": "1"})
    assert (unknown.kind, wrong.kind) == ("unknown_tool", "invalid_arguments")  # type: ignore[union-attr]  # neither is a plan


# -- nobody there -------------------------------------------------------------------------


async def test_with_nobody_to_ask_the_answer_is_there_at_once(place: Path) -> None:
    """Headless and `ask` must never be a hang (opencode 36762), and says both ways out."""
    with trio.fail_after(30):
        async with executor(place) as box:
            result = await box.call("python", {"code": "1"})
        async with executor(place, policy="ci") as box:
            direct = await box.call("python", {"code": "1"}, workspace_mode="direct")
            inside = await box.call("python", {"code": "1"})
    assert kind(result) == "approval_unavailable"
    assert "approver" in error_of(result).remedy
    assert 'policy "coding"' in error_of(result).remedy
    assert (kind(direct), denied_by(direct)) == ("denied", "nobody")
    assert inside.success


# -- ceilings -----------------------------------------------------------------------------


async def test_a_ceiling_is_named_with_what_would_admit_the_call(place: Path) -> None:
    """A model that is told only no tries the same in other words."""
    async with executor(place, unsafe_approve_all, mode="plan") as box:
        planning = await box.call("write_file", WRITE)
        reading = await box.call("list_directory", {})
    async with executor(place, unsafe_approve_all) as box:
        phase = await box.call(
            "write_file", WRITE, context=CallContext(phase="verifying", task_kind="edit")
        )
        tier = await box.call("python", {"code": "1"}, context=CallContext(tier=1))
    assert reading.success
    assert [kind(one) for one in (planning, phase, tier)] == ["not_admitted"] * 3
    assert [error_of(one).layers for one in (planning, phase, tier)] == [
        ("mode",),
        ("phase",),
        ("tier",),
    ]
    assert "build" in error_of(planning).remedy
    assert not (place / "ws" / "a").exists()


@pytest.mark.parametrize("mode", ["explore", "plan", "build"])
def test_what_is_shown_is_what_is_admitted(place: Path, mode: str) -> None:
    """A model that is shown a tool which is then refused wastes a turn, and learns to distrust."""
    box = executor(place, mode=mode)
    arguments: dict[str, dict[str, Any]] = {
        "read_file": {"path": "a"},
        "read_retained": {"handle": "a"},
        "search": {"pattern": "a"},
        "write_file": WRITE,
        "edit_file": {"path": "a", "old": "b", "new": "c"},
        "shell": {"command": "true"},
        "python": {"code": "1"},
    }
    shown: set[int] = set()
    phases = (None, "investigating", "editing", "verifying")
    for phase, kind_of_task, tier in itertools.product(
        phases, (None, "edit", "test_only", "investigate"), (None, 0, 1, 2)
    ):
        context = CallContext(phase=phase, task_kind=kind_of_task, tier=tier)
        names = {tool.name for tool in box.admitted(context)}
        shown.add(len(names))
        for tool in box.registry.list_tools():
            found = box.check(tool.name, arguments.get(tool.name, {}), context=context)
            assert isinstance(found, Decision)
            assert (found.denied_by == "ceiling") is (tool.name not in names), (tool, context)
    assert (len(shown) > 1) is (mode != "plan"), "what plans has the same tools everywhere"


async def test_what_explores_writes_to_a_workspace_of_its_own(place: Path) -> None:
    """An agent that only looks around must find nothing of it changed."""
    (place / "ws" / "kept").write_text("x")
    async with executor(place, policy="coding", mode="explore") as box:
        result = await box.call("shell", {"command": "ls -A; echo x > made; ls -A"})
        real = await box.call("shell", {"command": "ls"}, workspace_mode="transaction")
    assert (result.success, result.stdout.text() if result.stdout else "") == (True, "made\n")
    assert os.listdir(place / "ws") == ["kept"]
    assert (kind(real), error_of(real).layers) == ("not_admitted", ("mode",))


@pytest.mark.parametrize(
    "wrong", [{"phase": "later"}, {"task_kind": "play"}, {"mode": "yolo"}, {"tier": 5}]
)
def test_a_context_with_a_word_that_is_none_is_not_made(wrong: dict[str, Any]) -> None:
    """A ceiling that was misspelt must not become no ceiling."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CallContext(**wrong)


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ("cat *.txt", 0),
        ("grep -rn x src", 0),
        ("cat .e*", 3),
        ("cat .en?", 3),
        ("cat s*/.e*", 0),
        ("grep -r x .", 3),
        ("cat deep/*", 3),
        ("ls deep", 3),
    ],
)
def test_a_pattern_or_a_folder_does_not_read_a_secret_unasked(
    place: Path, command: str, level: int
) -> None:
    """Where nothing is hidden, `cat .e*` is `cat .env` in other words."""
    ws = place / "ws"
    for folder in ("src", "deep/er"):
        (ws / folder).mkdir(parents=True)
    for name in ("a.txt", ".env", ".env.example", "src/.eslintrc", "src/a.py", "deep/er/id_rsa"):
        (ws / name).write_text("x")
    box = executor(place, policy="coding")
    found = box.check("shell", {"command": command}, workspace_mode="direct")
    assert isinstance(found, Decision)
    assert found.level == level, found
    hidden = box.check("shell", {"command": command})
    assert isinstance(hidden, Decision)
    assert hidden.level == 1, "where it is hidden there is nothing to read"
