"""The one result, and every way in which a call can fail, as they are printed."""

from __future__ import annotations

import dataclasses
import json
import typing
from types import MappingProxyType
from typing import Any

import pytest

from toolcell import _exits, results
from toolcell.results import Failure, ToolResult, stream_json
from toolcell_policies import Decision, Outcome, Reason
from toolcell_sandbox.capture import Capture, Captured
from toolcell_sandbox.failures import FailureBase
from toolcell_sandbox.outcome import Receipt, Usage

REASON = Reason(code="network_host", text="it asks for the network", rule="r1", source="f:1")

# kind: whose doing, whether again, and evidence to build one with.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "unknown_tool": ("model", "no", {"nearest": ("read_file",)}),
    "invalid_arguments": (
        "model",
        "yes",
        {
            "problems": ({"path": "x", "message": "m", "given": "g"},),
            "valid_names": ("path",),
            "repairs": ({"path": "y"},),
        },
    ),
    "denied": ("policy", "no", {"reasons": (REASON,)}),
    "not_admitted": ("policy", "no", {"layers": ("mode",), "reasons": (REASON,)}),
    "approval_rejected": ("human", "maybe", {"why": "not now"}),
    "approval_timeout": ("human", "maybe", {"waited_s": 1.5}),
    "cancelled": ("human", "no", {}),
    "approval_unavailable": ("host", "maybe", {"cause": "nobody"}),
    "tool_disabled": ("host", "no", {}),
    "tool_unavailable": ("host", "no", {"cause": "no network here"}),
    "tool_stale": ("host", "no", {"cause": "replaced"}),
    "hook_failed": (
        "host",
        "no",
        {"hook": "h", "stage": "after", "effect_happened": True, "cause": "c"},
    ),
    "confinement_failed": (
        "host",
        "no",
        {"guarantee": "g", "stage": "s", "errno": "EPERM", "cause": "c", "fix": "f"},
    ),
    "executor_error": ("host", "maybe", {"operator_detail": "d"}),
    "tool_error": ("tool", "no", {"hint": "h"}),
    "exception": ("tool", "no", {"type": "E", "traceback": "t", "stage": "run"}),
    "timeout": ("tool", "maybe", {"limit_s": 1.0, "elapsed_s": 1.1}),
    "cpu_time_exceeded": ("tool", "no", {"limit_s": 1.0, "used_s": 1.1, "evidence": "rlimit"}),
    "memory_exceeded": (
        "tool",
        "no",
        {"limit_bytes": 1, "peak_bytes": None, "evidence": "watch"},
    ),
    "file_size_exceeded": ("tool", "no", {"limit_bytes": 1}),
    "disk_exceeded": ("tool", "no", {"limit_bytes": 1, "limit_files": 16, "reached": "files"}),
    "output_exceeded": ("tool", "no", {"limit_bytes": 1, "seen_bytes": 2}),
    "processes_exceeded": ("tool", "no", {"limit": 1}),
    "syscall_blocked": ("tool", "no", {"call": "open", "machine": "i386"}),
    "crashed": ("tool", "no", {"signal": "SIGSEGV", "stage": "run"}),
    "exited": ("tool", "no", {"exit_code": 1, "stage": "run"}),
    "protocol_error": ("tool", "no", {"rule": "r"}),
    "invalid_output": ("tool", "no", {"problems": ({"path": "$", "message": "m"},)}),
    "effects_refused": (
        "policy",
        "no",
        {"paths": ({"path": "a", "code": "c", "rule": None, "text": "t"},), "handle": None},
    ),
    "effects_rejected": ("human", "maybe", {"why": "no"}),
    "commit_conflict": ("host", "yes", {"paths": ("a",)}),
}
UNION: dict[str, Any] = {member.kind: member for member in typing.get_args(Failure)}


def test_every_failure_is_known_here() -> None:
    """A kind that is added without its blame and exit code reaches programs that know neither."""
    assert UNION.keys() == KINDS.keys()
    assert len(typing.get_args(Failure)) == len(UNION)
    assert _exits.RUN.keys() == KINDS.keys()
    assert _exits.EXEC.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_class_is_its_kind_in_camel_case(kind: str) -> None:
    """Documented: whoever reads `kind` finds the class without a table."""
    name = "".join(word.capitalize() for word in kind.split("_"))
    assert getattr(results, name) is UNION[kind]
    assert UNION[kind].__name__ == name
    assert name in results.__all__


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_says_whose_doing_it_was_and_whether_to_try_again(kind: str) -> None:
    """An agent that blames itself for the host's fault corrects arguments for ever."""
    blame, retryable, known = KINDS[kind]
    said = UNION[kind](message="m", **known).to_json()
    assert list(said)[:3] == ["kind", "message", "blame"]
    assert (said["kind"], said["blame"], said["retryable"]) == (kind, blame, retryable)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_with_all_its_evidence_is_json(kind: str) -> None:
    """`--json` that raises for one kind loses exactly the calls that went wrong."""
    _, _, known = KINDS[kind]
    failure = UNION[kind](message="m", remedy="try this", **known)
    said = failure.to_json()
    assert json.loads(json.dumps(said)) == said
    assert {"kind", "message", "blame", "retryable", "remedy"} <= said.keys()
    assert (said["message"], said["remedy"]) == ("m", "try this")
    fields = {field.name for field in dataclasses.fields(failure)}
    assert said.keys() == fields | {"kind", "blame"}
    # Evidence was given for every field that a kind adds.
    base = {field.name for field in dataclasses.fields(FailureBase)}
    assert known.keys() == fields - base


def test_a_denial_shows_every_reason_with_its_rule() -> None:
    """ "Denied" without the rule and its file cannot be contested."""
    said = results.Denied(message="m", reasons=(REASON,)).to_json()
    assert said["reasons"] == [
        {
            "code": "network_host",
            "text": "it asks for the network",
            "rule": "r1",
            "source": "f:1",
        }
    ]


# -- the result ---------------------------------------------------------------------------


def stream(data: bytes, cap: int = 100) -> Captured:
    capture = Capture(cap, cap)
    capture.feed(data)
    capture.closed = True
    return capture.captured()


def result(**known: Any) -> ToolResult:
    facts: dict[str, Any] = {"call_id": "c1", "tool_name": "t", "success": True}
    return ToolResult(**(facts | known))


def test_a_result_has_an_error_exactly_when_it_is_no_success() -> None:
    """Else two readers of one result disagree on whether it worked."""
    with pytest.raises(ValueError, match="exactly when"):
        result(success=True, error=results.ToolDisabled(message="m"))
    assert result(success=False).error is not None


@pytest.mark.parametrize(
    ("made", "message", "content", "output"),
    [
        (lambda: ToolResult(True, [1]), None, "", [1]),
        (lambda: ToolResult(False, None, "no such branch", {"n": 1}), "no such branch", "", None),
        (lambda: ToolResult("t", True, "shown", "short"), None, "shown", None),
        (lambda: ToolResult("t", False, "said"), "said", "said", None),
        (lambda: ToolResult(tool_name="t", success=False, error="why"), "why", "", None),
        (lambda: ToolResult("t", True, "c", files_read=["a"]), None, "c", None),
        (lambda: ToolResult(success=False), "the tool reported a failure", "", None),
    ],
)
def test_a_handler_may_write_a_result_in_the_words_it_knows(
    made: Any, message: str | None, content: str, output: object
) -> None:
    """Authors come from three kinds of agent code; each shape must mean what it says there."""
    found = made()
    assert (found.error_text or None, found.content, found.output) == (message, content, output)
    assert found.success is (message is None)


def test_a_handlers_own_result_has_lists_of_its_own_and_ours_says_unknown() -> None:
    """Otherwise a loop over `files_changed`, which its author knows as a list, raises."""
    one, two = ToolResult("t", True), ToolResult("t", True)
    lists: list[Any] = [one.files_read, one.files_changed]
    assert lists == [[], []]
    assert one.files_changed is not two.files_changed
    assert (result().files_read, result().files_changed) == (None, None)


@pytest.mark.parametrize(
    "made",
    [
        lambda: ToolResult(True, 1, None, {}, "more"),
        lambda: ToolResult(True, success=False),
        lambda: ToolResult(colour="red"),
        lambda: ToolResult(success="yes"),
        lambda: ToolResult("t"),
        lambda: ToolResult(output=5),
    ],
)
def test_a_result_of_no_known_shape_is_refused(made: Any) -> None:
    """A field that is dropped in silence is one that its author relies on."""
    with pytest.raises(TypeError):
        made()


@pytest.mark.parametrize(
    ("known", "ok"),
    [
        ({}, True),
        ({"exit_code": 0}, True),
        ({"exit_code": 1}, False),
        ({"success": False, "error": results.ToolDisabled(message="m")}, False),
        ({"success": False, "error": results.ToolDisabled(message="m"), "exit_code": 0}, False),
    ],
)
def test_ok_is_success_and_an_exit_code_of_zero(known: dict[str, Any], ok: bool) -> None:
    """A test run that returned 1 is a success of the tool, and not fine."""
    assert result(**known).ok is ok
    assert result(**known).to_json()["ok"] is ok


NAMES = [
    "schema", "call_id", "tool_name", "success", "ok", "content", "output", "summary", "error",
    "metadata", "exit_code", "files_read", "files_changed", "effects", "terminate", "repairs",
    "stdout", "stderr", "usage", "decision", "receipt", "truncation", "retained", "parts",
]  # fmt: skip


def test_a_bare_result_prints_every_name() -> None:
    """A name that is sometimes missing breaks whoever reads it by name."""
    said = result().to_json()
    assert list(said) == NAMES
    assert said["schema"] == 1
    for name in ("error", "files_changed", "stdout", "stderr", "usage", "decision", "receipt"):
        assert said[name] is None
    assert json.loads(json.dumps(said)) == said


def test_a_full_result_is_json() -> None:
    """Everything in it travels."""
    full = result(
        success=False,
        error=results.Exited(message="m", exit_code=3, stage="run"),
        metadata=MappingProxyType({"a": 1}),
        files_read=("r",),
        files_changed=("x", "\udcff"),
        effects=results.Effects(
            created=("x",),
            deleted=("\udcff",),
            refused=(
                {"path": "y", "code": "c", "rule": None, "text": "t"},
                {"path": None, "code": "d", "rule": None, "text": "all"},
            ),
        ),
        repairs=({"path": "p"},),
        stdout=stream(b"out\n"),
        stderr=stream(b"\xff"),
        usage=Usage(wall_s=1.0, cpu_s=None, peak_memory_bytes=None, memory_from=None),
        decision=Decision(outcome=Outcome.ASK, level=2, reasons=(REASON,), plan_hash="h"),
        receipt=Receipt(held={"fs_confined": "mount namespace"}),
    )
    said = full.to_json()
    assert json.loads(json.dumps(said)) == said
    assert list(said) == NAMES
    assert said["error"]["kind"] == "exited"
    assert said["decision"]["plan_hash"] == "h"
    assert said["receipt"]["held"] == {"fs_confined": "mount namespace"}
    assert said["usage"]["wall_s"] == 1.0
    assert (said["files_read"], said["files_changed"]) == (["r"], ["x", "\\xff"])
    assert said["effects"]["created"] == [{"path": "x"}]
    assert said["effects"]["deleted"] == [{"path_base64": "/w=="}]
    assert said["effects"]["refused"] == [
        {"path": "y", "code": "c", "rule": None, "text": "t"},
        {"code": "d", "rule": None, "text": "all"},
    ]


def test_a_stream_is_printed_with_exact_counts_and_raw_only_where_it_is_no_text() -> None:
    """Text twice would double every log; bytes lost by replacement could not be had back."""
    counts = {"head_bytes", "tail_bytes", "kept_bytes", "seen_bytes", "lost_bytes", "closed"}
    said = stream_json(stream(b"ok"))
    assert said.keys() == {"text"} | counts
    assert (said["text"], said["seen_bytes"], said["lost_bytes"]) == ("ok", 2, 0)
    raw = stream_json(stream(b"a\xffb"))
    assert raw.keys() == {"text", "base64"} | counts
    assert raw["base64"] == "Yf9i"
    cut = stream_json(stream(b"x" * 10, cap=2))
    assert (cut["head_bytes"], cut["tail_bytes"], cut["kept_bytes"], cut["lost_bytes"]) == (
        2,
        2,
        4,
        6,
    )
    assert cut["closed"] is True
