"""From what a jail came to, to what a caller and a model are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcell import results
from toolcell.calls import ToolCall
from toolcell.markers import RETURNED
from toolcell.settlement import PYTHON_TOOL, refused, settle
from toolcell.tools import CommandRef, HandlerRef, Tool
from toolcell_policies import AccessMode, DangerLevel, Decision, Outcome, Reason
from toolcell_sandbox.capture import Capture, Captured
from toolcell_sandbox.outcome import JailOutcome, Receipt, Usage

CALL = ToolCall("t_alias", {"a": 1}, "c1")
DECISION = Decision(outcome=Outcome.ALLOW, level=0, reasons=(), plan_hash="h")
USAGE = Usage(wall_s=1.0, cpu_s=0.5, peak_memory_bytes=5, memory_from="watch")
RECEIPT = Receipt(held={"fs_confined": "x"})
REPAIRS = ({"path": "a", "from": "'1'", "to": "1", "why": "w"},)


def stream(data: bytes) -> Captured:
    capture = Capture(100, 100)
    capture.feed(data)
    capture.closed = True
    return capture.captured()


def tool(kind: str = "handler", **known: Any) -> Tool:
    ref: HandlerRef | CommandRef = HandlerRef("m", "f")
    if kind == "command":
        ref = CommandRef("m:f")
    elif kind == "python":
        ref = HandlerRef(PYTHON_TOOL, "f")
        known.setdefault("trusted", True)
    facts: dict[str, Any] = {
        "name": "t",
        "description": "d",
        "access_mode": AccessMode.READONLY,
        "danger_level": DangerLevel.SAFE,
        "schema": {"type": "object"},
        "ref": ref,
    }
    return Tool(**(facts | known))


def settled(
    tool: Tool, *, out: bytes = b"", err: bytes = b"", failure: Any = None, **known: Any
) -> results.ToolResult:
    outcome = JailOutcome(
        failure=failure,
        stdout=stream(out),
        stderr=stream(err),
        usage=USAGE,
        receipt=RECEIPT,
        **known,
    )
    found = settle(CALL, tool, outcome, decision=DECISION, repairs=REPAIRS)
    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    return found


def test_a_refused_call_says_so_and_ran_nothing() -> None:
    """Streams or a receipt beside a refusal would claim that something ran."""
    found = refused(CALL, results.ToolDisabled(message="t is switched off"))
    assert found.content == "error: tool_disabled: t is switched off"
    assert (found.call_id, found.tool_name, found.success) == ("c1", "t_alias", False)
    assert (found.stdout, found.stderr, found.usage, found.receipt) == (None,) * 4
    assert not found.terminate


def test_a_refused_call_keeps_the_tools_own_name_and_why() -> None:
    """An alias in a log is searched for under the tool's name."""
    asked = Decision(
        outcome=Outcome.ASK, level=1, reasons=(Reason(code="c", text="x"),), plan_hash="h"
    )
    failure = results.ApprovalRejected(message="a person said no: later", why="later")
    found = refused(CALL, failure, tool_name="t", decision=asked, repairs=REPAIRS, terminate=True)
    assert (found.tool_name, found.decision, found.repairs) == ("t", asked, REPAIRS)
    assert found.terminate
    assert found.error is failure


def test_a_denial_lists_every_reason_and_what_would_help() -> None:
    """A model that is told one of three reasons comes back twice."""
    failure = results.Denied(
        message="not allowed",
        reasons=(Reason(code="a", text="first"), Reason(code="b", text="second")),
        remedy="ask for read access",
    )
    assert refused(CALL, failure).content == (
        "error: denied: not allowed\n- first\n- second\nwhat would help: ask for read access"
    )


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, "null"),
        ("text\nas it is", "text\nas it is"),
        ("", ""),
        (0, "0"),
        (False, "false"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        ([], "[]"),
    ],
)
def test_a_handlers_value_is_output_and_its_text_is_content(value: object, content: str) -> None:
    """All that the model sees: text as it is, otherwise compact JSON."""
    found = settled(tool(), value=value, out=b"printed\n")
    assert found.success
    assert (found.output, found.content, found.error, found.exit_code) == (
        value,
        content,
        None,
        None,
    )
    assert found.stdout is not None
    assert found.stdout.kept == b"printed\n"
    assert (found.tool_name, found.usage, found.receipt, found.decision, found.repairs) == (
        "t",
        USAGE,
        RECEIPT,
        DECISION,
        REPAIRS,
    )


def test_returned_is_taken_apart() -> None:
    """Its envelope is ours and nothing for a model."""
    inner = {"output": [1], "metadata": {"lines": 3}, "content": "three lines"}
    found = settled(tool(), value={RETURNED: inner})
    assert (found.output, dict(found.metadata), found.content) == (
        [1],
        {"lines": 3},
        "three lines",
    )
    plain = settled(tool(), value={RETURNED: {"output": {"a": 1}}})
    assert (plain.output, dict(plain.metadata), plain.content) == ({"a": 1}, {}, '{"a":1}')
    silent = settled(tool(), value={RETURNED: {"output": 1, "content": ""}})
    assert silent.content == ""


@pytest.mark.parametrize(
    "value",
    [
        {RETURNED: {"output": 1, "metadata": [1], "content": {"a": 1}}},
        {RETURNED: {"output": 1, "metadata": None, "content": None}},
    ],
)
def test_a_returned_of_the_wrong_shape_loses_only_what_is_wrong(value: object) -> None:
    """Any handler can write the envelope by hand, and write it badly."""
    found = settled(tool(), value=value)
    assert (found.output, dict(found.metadata), found.content) == (1, {}, "1")


@pytest.mark.parametrize("value", [{RETURNED: 1}, {RETURNED: {}, "more": 1}, [RETURNED]])
def test_what_only_resembles_returned_is_the_value(value: object) -> None:
    """A value that is taken for our envelope is lost."""
    assert settled(tool(), value=value).output == value


def test_a_commands_output_is_its_exit_code_and_streams() -> None:
    """A nonzero exit is an answer: kept, shown, and no error."""
    found = settled(tool("command"), out=b"one\n", err=b"two\n", exit_code=3)
    assert found.success
    assert not found.ok
    assert found.exit_code == 3
    assert found.output == {"exit_code": 3, "stdout": "one\n", "stderr": "two\n"}
    assert found.content == "one\ntwo\nexit code 3"


def test_the_python_tool_shows_streams_and_value() -> None:
    """What a model wrote with print() is what it wants to see."""
    found = settled(tool("python"), out=b"printed\n", value={"value": 42})
    assert found.output == {"value": 42, "stdout": "printed\n", "stderr": ""}
    assert found.content == "printed\n42"
    assert settled(tool("python"), value={"value": None}).content == ""
    text = settled(tool("python"), value={"value": "a"}, err=b"warned\n")
    assert text.content == "warned\na"
    # What is no object has its place beside the streams all the same.
    assert settled(tool("python"), value=7).output == {"value": 7, "stdout": "", "stderr": ""}


def test_only_our_own_python_tool_is_the_python_tool() -> None:
    """A pack that names itself so would have its prints read as its result."""
    found = settled(tool("python", trusted=False), out=b"printed\n", value={"value": 42})
    assert (found.output, found.content) == ({"value": 42}, '{"value":42}')


def test_a_failure_shows_what_was_printed_and_then_how_it_ended() -> None:
    """The last lines before a timeout are the best clue that there is."""
    failure = results.Timeout(
        message="stopped after 1 s", limit_s=1.0, elapsed_s=1.0, remedy="do less"
    )
    found = settled(tool(), out=b"line 1\n\n", err=b"warned\n", failure=failure)
    assert not found.success
    assert found.error is failure
    assert found.output is None
    assert found.content == (
        "line 1\nwarned\nerror: timeout: stopped after 1 s\nwhat would help: do less"
    )
    assert settled(tool(), failure=failure).content.startswith("error: timeout:")
    by_command = settled(tool("command"), out=b"half", failure=failure)
    assert by_command.output is None
    assert by_command.content.startswith("half\nerror: timeout")


def test_an_exception_shows_the_handlers_own_frames_and_a_tool_error_its_hint() -> None:
    """A model that wrote the code can find its line."""
    raised = results.Exception(
        message="ValueError: bad", type="ValueError", traceback="File x\n", stage="run"
    )
    assert settled(tool(), failure=raised).content == ("error: exception: ValueError: bad\nFile x")
    bare = results.Exception(message="E", type="E", traceback="", stage="run")
    assert settled(tool(), failure=bare).content == "error: exception: E"
    hinted = results.ToolError(message="no branch mian", hint="did you mean main?")
    assert settled(tool(), failure=hinted).content == (
        "error: tool_error: no branch mian\nhint: did you mean main?"
    )


def test_evidence_that_did_not_count_is_kept_in_metadata() -> None:
    """A result that was sent before a crash is not confirmed, and not lost."""
    failure = results.Crashed(message="died", signal="SIGSEGV", stage="flush")
    found = settled(tool(), failure=failure, unconfirmed={"ok": True, "value": 1})
    assert found.metadata["unconfirmed_result"] == {"ok": True, "value": 1}
    assert "exec_errno" not in found.metadata
    started = results.ToolError(message="could not be started")
    assert settled(tool("command"), failure=started, exec_errno=2).metadata["exec_errno"] == 2


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


def test_an_output_that_keeps_its_schema_passes() -> None:
    """A schema that is only documentation is no promise."""
    found = settled(tool(output_schema=SCHEMA), value={"n": 1})
    assert (found.success, found.output) == (True, {"n": 1})
    # The output itself is held against it, not our envelope.
    assert settled(tool(output_schema=SCHEMA), value={RETURNED: {"output": {"n": 1}}}).success


@pytest.mark.parametrize(
    ("value", "path"), [({"n": "x"}, "n"), ({}, "n"), ([], "the top"), (None, "the top")]
)
def test_an_output_that_breaks_its_schema_is_refused_by_its_place(value: object, path: str) -> None:
    """Whoever relies on the schema must not find out in its own code."""
    found = settled(tool(output_schema=SCHEMA), value=value)
    assert not found.success
    assert isinstance(found.error, results.InvalidOutput)
    assert found.error.problems
    assert f"does not allow, at {path}: " in found.error.message
    assert found.output is None
    assert found.content == f"error: invalid_output: {found.error.message}"


def test_a_failure_is_not_judged_by_the_output_schema() -> None:
    """A timeout that is called invalid output hides that it was one."""
    failure = results.Exited(message="m", exit_code=1, stage="run")
    assert settled(tool(output_schema=SCHEMA), failure=failure).error is failure


def test_an_empty_output_schema_allows_everything() -> None:
    """`{}` is a schema: the one that says nothing."""
    assert settled(tool(output_schema={}), value=[1]).success
