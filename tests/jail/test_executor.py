"""The whole road through the public `Executor`: endings, records, approvals, cancellation."""

from __future__ import annotations

import random
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Answer, CallContext, Executor, Limits, ToolCall, ToolRegistry
from toolcell.approval import deny_all, from_callback, unsafe_approve_all
from toolcell.audit import read, verify

from .tools_of_tests import ALL


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "a.txt").write_text("hello\n")
    return tmp_path.resolve()


def executor(place: Path, **options: Any) -> Any:
    defaults: dict[str, Any] = {"tools": ALL, "approver": unsafe_approve_all}
    return Executor(workspace=place / "ws", state_dir=place / "state", **(defaults | options))


def records(place: Path) -> list[dict[str, Any]]:
    return read(place / "state")


def error_kind(result) -> str | None:
    return None if result.error is None else result.error.kind


# -- the road ------------------------------------------------------------------------------


async def test_a_call_runs_end_to_end_and_leaves_two_records(place):
    """An intent without an end, or an end without an intent, is a hole in the log."""
    async with executor(place) as box:
        result = await box.call("add", {"a": 2, "b": 3})
    assert (result.success, result.output, result.content) == (True, 5, "5")
    intent, terminal = records(place)
    assert (intent["record"], terminal["record"]) == ("intent", "terminal")
    assert intent["call_id"] == terminal["call_id"] == result.call_id
    assert terminal["intent"] == intent["seq"]
    assert (intent["arguments"], terminal["kind"]) == ({"a": 2, "b": 3}, None)
    assert (intent["isolation"], intent["waived"]) == ("standard", [])
    receipt = terminal["receipt"]
    assert (receipt["isolation"], receipt["waived"]) == (result.receipt.isolation, [])
    assert receipt["held"] == sorted(result.receipt.held)
    assert terminal["usage"]["wall_s"] > 0
    assert verify(place / "state").ok


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("ad", {}, "unknown_tool"),
        ("add", {"a": 1}, "invalid_arguments"),
        ("add", {"a": 1, "b": 2, "c": 3}, "invalid_arguments"),
        ("read_file", {"path": "../secret"}, "denied"),
        ("read_file", {"path": ".env"}, "denied"),
        ("refuse", {"why": "no such branch"}, "tool_error"),
        ("crash", {}, "crashed"),
        ("leave", {}, "exited"),
        ("forge", {}, "protocol_error"),
        ("swell", {}, "memory_exceeded"),
        ("hang", {}, "timeout"),
    ],
)
async def test_each_failure_is_one_typed_value_and_one_terminal_record(
    place, name, arguments, kind
):
    """A failure that raises, or that nobody recorded, is one that an agent cannot act on."""
    async with executor(place) as box:
        wall_s = 1 if kind == "timeout" else 30
        result = await box.call(name, arguments, limits=Limits(wall_s=wall_s))
    assert error_kind(result) == kind
    assert result.success is False
    assert kind in result.content
    assert [(r["record"], r.get("kind")) for r in records(place)] == [
        ("intent", None),
        ("terminal", kind),
    ]


async def test_a_traceback_shows_no_file_of_the_host(place):
    """Where this machine keeps its interpreter is nothing that a model needs."""
    async with executor(place) as box:
        result = await box.call("python", {"code": "import json\njson.loads('{')"})
    assert error_kind(result) == "exception"
    assert 'File "<code>", line 2' in result.error.traceback
    assert result.error.traceback.count("File ") == 1


async def test_a_refused_argument_names_the_valid_ones(place):
    """case 41: otherwise a model guesses again."""
    async with executor(place) as box:
        result = await box.call("add", {"a": 1, "b": 2, "c": 3})
    assert set(result.error.valid_names) == {"a", "b"}
    assert "c" in result.content


async def test_case_41_a_list_sent_as_text_is_repaired_and_recorded(place):
    """A lossless repair saves a turn; an unrecorded one hides what was changed."""
    async with executor(place) as box:
        result = await box.call("add", {"a": "2", "b": 3})
    assert result.output == 5
    assert [repair["path"] for repair in result.repairs] == ["a"]


async def test_a_disabled_tool_is_named_as_such(place):
    """Otherwise an operator's switch looks like a typo of the model's."""
    registry = ToolRegistry(*ALL)
    registry.disable_tool("add")
    async with executor(place, registry=registry, tools=()) as box:
        assert error_kind(await box.call("add", {"a": 1, "b": 2})) == "tool_disabled"


async def test_check_says_what_enforcement_does(place):
    """Two functions would disagree one day."""
    async with executor(place, approver=deny_all) as box:
        for name, arguments, outcome, kind in (
            ("add", {"a": 1, "b": 2}, "allow", None),
            ("shell", {"command": "true"}, "ask", "approval_unavailable"),
            ("read_file", {"path": "/etc/shadow"}, "deny", "denied"),
        ):
            decision = box.check(name, arguments)
            assert decision.outcome == outcome
            result = await box.call(name, arguments)
            assert error_kind(result) == kind
            assert result.decision.reasons == decision.reasons
            assert result.decision.plan_hash == decision.plan_hash


async def test_a_write_tool_writes_and_a_read_tool_cannot(place):
    """The access mode is enforced by the jail, not believed."""
    async with executor(place) as box:
        wrote = await box.call("shout", {"path": "a.txt", "out": "b.txt"})
        read = await box.call("add", {"a": 1, "b": 1})
    assert wrote.success
    assert (place / "ws" / "b.txt").read_text() == "HELLO\n"
    assert read.receipt.held["fs_confined"]


async def test_an_executor_that_is_not_open_runs_nothing(place):
    """A call without a record must not happen."""
    result = await executor(place).call("add", {"a": 1, "b": 2})
    assert error_kind(result) == "executor_error"
    assert "async with" in result.error.operator_detail


async def test_a_full_audit_disk_stops_calls_instead_of_hiding_them(place):
    """What ran unrecorded is what nobody can be asked about later."""
    async with executor(place) as box:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        # What may not grow is full; the test on a real full disk is in test_audit_commands.py.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
        try:
            result = await box.call("shout", {"path": "a.txt", "out": "b.txt"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert records(place) == []
        control = await box.call("shout", {"path": "a.txt", "out": "c.txt"})
    assert error_kind(result) == "executor_error"
    assert not (place / "ws" / "b.txt").exists()
    assert control.success
    assert (place / "ws" / "c.txt").exists()


@pytest.mark.parametrize("bad", ["/", "~", "..", "missing"])
def test_a_workspace_that_no_tool_may_have_is_refused(place, monkeypatch, bad):
    """A home as workspace gives every tool every key."""
    monkeypatch.setenv("HOME", str(place / "ws" / "home"))
    (place / "ws" / "home").mkdir()
    path = {"~": place / "ws" / "home", "..": place / "ws", "missing": place / "none"}.get(bad, bad)
    with pytest.raises(ValueError, match="workspace"):
        Executor(workspace=path, state_dir=place / "state")


# -- approvals -----------------------------------------------------------------------------


async def test_case_35_headless_is_denied_at_once(place):
    """Otherwise an agent without a terminal waits for ever."""
    async with executor(place, approver=deny_all) as box:
        result = await box.call("shell", {"command": "touch ran"})
    assert error_kind(result) == "approval_unavailable"
    assert "approver" in result.content
    assert not (place / "ws" / "ran").exists()


@pytest.mark.parametrize(
    ("answer", "kind", "terminate"),
    [
        (Answer.once(), None, False),
        (Answer.reject("not today"), "approval_rejected", False),
        (Answer.stop("enough"), "approval_rejected", True),
        (Answer.remember("session"), "approval_unavailable", False),
        (None, "approval_unavailable", False),
        ("yes", "approval_unavailable", False),
        (True, None, False),
        (False, "approval_rejected", False),
    ],
)
async def test_anything_but_a_clear_yes_is_a_no_with_its_own_kind(place, answer, kind, terminate):
    """A broken approver must not be a permissive one; level 3 is never remembered."""
    async with executor(place, approver=from_callback(lambda request: answer)) as box:
        result = await box.call("shell", {"command": "true"})
    assert error_kind(result) == kind
    assert result.terminate is terminate


async def test_an_approver_that_raises_denies(place):
    """A crash of the asking is not an answer."""

    def broken(request):
        raise RuntimeError("lost the connection")

    async with executor(place, approver=broken) as box:
        result = await box.call("shell", {"command": "true"})
    assert error_kind(result) == "approval_unavailable"
    assert "lost the connection" not in result.content


async def test_a_first_use_is_asked_once_where_it_was_remembered(place):
    """Asking each time trains people to say yes."""
    asked = []

    async def approver(request):
        asked.append(request)
        return Answer.remember("session")

    async with executor(place, approver=approver) as box:
        for _ in range(2):
            result = await box.call("write_file", {"path": "n.txt", "content": "x"})
            assert result.success
        other = CallContext(session_id="another")
        await box.call("write_file", {"path": "n.txt", "content": "x"}, context=other)
    assert len(asked) == 2
    assert asked[0].remember_options == ("session", "project")
    assert '"n.txt"' in asked[0].text


async def test_what_changed_while_a_person_thought_does_not_run(place):
    """An answer is for one plan: a path that means another file by now is another plan."""
    (place / "ws" / "target.txt").write_text("old")
    (place / "ws" / "other.txt").write_text("old")

    async def approver(request):
        (place / "ws" / "target.txt").unlink()
        (place / "ws" / "target.txt").symlink_to("other.txt")
        return Answer.once()

    async with executor(place, approver=approver) as box:
        result = await box.call("write_file", {"path": "target.txt", "content": "new"})
    assert error_kind(result) == "denied"
    assert result.error.reasons[0].code == "plan_changed"
    assert (place / "ws" / "other.txt").read_text() == "old"


async def test_nobody_answers_in_time(place, monkeypatch):
    """A person who went to lunch must not hold an agent for ever."""
    import toolcell.planning as module
    from toolcell.approval import ApprovalRequest

    def hasty(**facts):
        return ApprovalRequest(**facts, deadline_s=0.05)

    monkeypatch.setattr(module, "ApprovalRequest", hasty)

    async def nobody(request):
        await trio.sleep_forever()

    async with executor(place, approver=nobody) as box:
        result = await box.call("shell", {"command": "true"})
    assert error_kind(result) == "approval_timeout"


# -- cancellation --------------------------------------------------------------------------


class CancelAt(trio.abc.Instrument):
    """Cancels scopes when so many steps of tasks were made."""

    def __init__(self, *at: tuple[int, trio.CancelScope]) -> None:
        self.steps = 0
        self._at = dict(at)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps in self._at:
            self._at[self.steps].cancel()


async def test_case_43_a_cancel_at_any_await_leaves_nothing_and_one_record(place):
    """One await that forgets its clean-up is one leaked tree per unlucky user."""
    step = 0
    async with executor(place) as box:
        while True:
            step += 1
            with trio.CancelScope() as scope:
                instrument = CancelAt((step, scope))
                trio.lowlevel.add_instrument(instrument)
                try:
                    result = await box.call("orphans", call_id=f"step-{step}")
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            if not scope.cancelled_caught:
                assert result.output == "left"
                if instrument.steps < step:
                    break
    assert step > 20, "a call has more awaits than that: the walk did not walk"
    by_call: dict[str, list[Any]] = {}
    for record in records(place):
        by_call.setdefault(record["call_id"], []).append((record["record"], record.get("kind")))
    assert len(by_call) == step
    cancelled = [("intent", None), ("terminal", "cancelled")]
    finished = [("intent", None), ("terminal", None)]
    assert all(found in (cancelled, finished) for found in by_call.values())
    assert by_call["step-1"] == cancelled
    assert by_call[f"step-{step}"] == finished


async def test_a_second_cancel_during_the_cleanup_changes_nothing(place):
    """Otherwise whoever presses Ctrl-C twice keeps the tree."""
    async with executor(place) as box:
        for first in range(4, 40, 4):
            with trio.CancelScope() as outer, trio.CancelScope() as inner:
                instrument = CancelAt((first, inner), (first + 2, outer), (first + 5, outer))
                trio.lowlevel.add_instrument(instrument)
                try:
                    await box.call("hang", call_id=f"first-{first}")
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            assert inner.cancelled_caught or outer.cancelled_caught
    kinds = Counter((r["record"], r.get("kind")) for r in records(place))
    assert kinds == {("intent", None): 9, ("terminal", "cancelled"): 9}


# -- many ----------------------------------------------------------------------------------

PLANS: list[tuple[str, dict[str, Any], str | None]] = [
    ("add", {"a": 1, "b": 2}, None),
    ("read_file", {"path": "a.txt"}, None),
    ("shell", {"command": "cat a.txt"}, None),
    ("list_directory", {}, None),
    ("python", {"code": "6 * 7"}, None),
    ("add", {"a": "1", "b": 2}, None),
    ("refuse", {"why": "no"}, "tool_error"),
    ("ad", {}, "unknown_tool"),
]
HOSTILE: list[tuple[str, dict[str, Any], str | None]] = [
    ("crash", {}, "crashed"),
    ("leave", {}, "exited"),
    ("forge", {}, "protocol_error"),
    ("swell", {}, "memory_exceeded"),
    ("hang", {}, "timeout"),
    ("flood", {"size": 3_000_000}, None),
    ("orphans", {}, None),
    ("shell", {"command": "setsid sleep 1000 & kill -9 $$"}, "crashed"),
    ("python", {"code": "import os\nwhile True:\n  os.fork()"}, "processes_exceeded"),
]


async def test_five_hundred_calls_at_once_end_each_as_expected(place):
    """One call in three is hostile: the others must not notice, and nothing may stay."""
    random.seed(20261130)
    plans = [random.choice(HOSTILE if n % 3 == 0 else PLANS) for n in range(500)]
    wrong = []
    async with executor(place, max_concurrency=16) as box:

        async def one(number: int) -> None:
            name, arguments, expected = plans[number]
            small = name in ("hang",)
            limits = Limits(wall_s=1 if small else 60, processes=12, memory_bytes="512M")
            call = ToolCall(name, arguments, f"call-{number}")
            result = await box.call(call, limits=limits)
            if error_kind(result) != expected:
                wrong.append((name, expected, result.error))

        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(one, number)
    assert wrong == []
    ends = {r["call_id"]: r["kind"] for r in records(place) if r["record"] == "terminal"}
    assert ends == {f"call-{n}": plans[n][2] for n in range(500)}
    assert len(records(place)) == 1_000


# -- what an outside tester found ----------------------------------------------------------


async def test_case_27_a_long_shell_command_runs_and_is_in_no_command_line(place):
    """A word of execve has 128 KiB at most, and everybody on the machine can read it."""
    async with executor(place) as box:
        command = f"# {'x' * 200_000}\ntr '\\0' ' ' < /proc/$$/cmdline; echo $0"
        result = await box.call("shell", {"command": command})
    assert result.success
    assert "xxx" not in result.output["stdout"]
    assert result.output["stdout"].endswith("/run/command\n")


async def test_a_choice_of_the_environment_that_is_not_offered_is_refused(place, monkeypatch):
    """An operator who sets `hardenend` must not get less in silence."""
    for name in ("TOOLCELL_ISOLATION", "TOOLCELL_POLICY"):
        monkeypatch.setenv(name, "hardenend")
        with pytest.raises(ValueError, match="not offered"):
            executor(place)
        monkeypatch.setenv(name, "standard")
    executor(place)


def test_our_own_code_is_no_workspace(place):
    """A tool that can write it is the next version of us."""
    import toolcell
    import toolcell_policies

    for package in (toolcell, toolcell_policies):
        folder = Path(str(package.__file__)).parent
        for inside in (folder, folder / "__pycache__"):
            inside.mkdir(exist_ok=True)
            with pytest.raises(ValueError, match="read-only"):
                Executor(workspace=inside, state_dir=place / "state")


@pytest.mark.parametrize("system", ["/etc", "/boot", "/proc", "/sys", "/dev", "/opt", "/home"])
def test_a_system_folder_is_no_workspace(place, system):
    """Root's executor would let a tool write the host's own configuration."""
    with pytest.raises(ValueError, match="workspace"):
        Executor(workspace=system, state_dir=place / "state")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"limits": {"wall_s": 1}}, TypeError),
        ({"network": "host"}, TypeError),
        ({"approver": 5}, TypeError),
        ({"env": {"A": 1}}, ValueError),
        ({"env": {"A=B": "x"}}, ValueError),
        ({"max_concurrency": 0}, ValueError),
        ({"isolation": "Standard"}, ValueError),
        ({"isolation": ""}, ValueError),
        ({"workspace_mode": "overlay"}, ValueError),
        ({"workspace_mode": "readonly"}, ValueError),
        ({"read": "/srv"}, ValueError),
        ({"write": ["/nowhere"]}, ValueError),
        ({"waive": "net_blocked"}, ValueError),
        ({"waive": ["networks"]}, ValueError),
        ({"waive": ["fs_confined"]}, ValueError),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(place, options, error):
    """Found at the first call, it looks like a defect of ours."""
    with pytest.raises(error):
        executor(place, **options)


async def test_a_name_that_is_no_text_is_an_unknown_tool(place):
    """Models send what they like."""
    async with executor(place) as box:
        for name in (None, 5):
            assert error_kind(await box.call(name, {})) == "unknown_tool"


async def test_each_reason_is_given_once(place):
    """The same sentence twice reads like two different faults."""
    async with executor(place) as box:
        reasons = box.check("write_file", {"path": ".env", "content": "x"}).reasons
    assert len(reasons) == len(set(reasons))
