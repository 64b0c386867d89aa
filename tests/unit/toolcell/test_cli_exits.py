"""The exit codes, as tables."""

from __future__ import annotations

import errno
import typing

import pytest

from toolcell import results
from toolcell._exits import CHECK, EXEC, RUN, exec_code, run_code
from toolcell.results import ToolResult
from toolcell_policies import Outcome

KINDS = {failure.kind for failure in typing.get_args(results.Failure)}


def ended(failure: typing.Any = None, **more: typing.Any) -> ToolResult:
    return ToolResult(call_id="c", tool_name="t", success=failure is None, error=failure, **more)


@pytest.mark.parametrize("table", [RUN, EXEC], ids=["run", "exec"])
def test_every_failure_has_an_exit_code(table: dict[str, int]) -> None:
    """A kind without one would end in a traceback, or in success."""
    assert set(table) == KINDS
    assert 0 not in table.values()


def test_the_codes_of_run_are_the_documented_ones() -> None:
    """Scripts branch on these numbers."""
    by_code: dict[int, set[str]] = {}
    for kind, code in RUN.items():
        by_code.setdefault(code, set()).add(kind)
    assert by_code[1] == {
        "tool_error",
        "exception",
        "exited",
        "protocol_error",
        "invalid_output",
        "commit_conflict",
    }
    assert by_code[3] == {
        "unknown_tool",
        "tool_disabled",
        "tool_unavailable",
        "tool_stale",
        "invalid_arguments",
    }
    assert by_code[4] == {
        "denied",
        "hook_failed",
        "approval_rejected",
        "approval_timeout",
        "approval_unavailable",
        "not_admitted",
        "effects_refused",
        "effects_rejected",
    }
    assert by_code[5] == {"timeout", *(kind for kind in KINDS if kind.endswith("_exceeded"))}
    assert by_code[6] == {"crashed", "syscall_blocked"}
    assert by_code[7] == {"confinement_failed"}
    assert by_code[70] == {"executor_error"}
    assert by_code[130] == {"cancelled"}


def test_every_outcome_of_a_decision_has_an_exit_code() -> None:
    """`check` in a script is only its exit code."""
    assert CHECK == {"allow": 0, "ask": 10, "deny": 11}
    assert set(CHECK) == {outcome.value for outcome in Outcome}


def test_a_command_that_returned_7_is_0_for_run_and_7_for_exec() -> None:
    """A nonzero exit is data for `run`, and the whole answer for `exec`."""
    result = ended(exit_code=7)
    assert run_code(result) == 0
    assert exec_code(result) == 7


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOENT, 127), (errno.EACCES, 126), (errno.ENOEXEC, 126), (errno.E2BIG, 126)],
)
def test_a_command_that_could_not_start_has_the_shells_code(number: int, code: int) -> None:
    """127 says "install it", 126 says "it is there": a script tells them apart."""
    failure = results.ToolError(message="no")
    assert exec_code(ended(failure, metadata={"exec_errno": number})) == code


def test_a_signal_is_128_and_its_number() -> None:
    """As a shell says it; a signal that nobody knows is our failure, not success."""
    assert exec_code(ended(results.Crashed(message="", signal="SIGSEGV", stage="run"))) == 139
    assert exec_code(ended(results.Crashed(message="", signal="SIG40", stage="run"))) == 168


def test_a_command_that_was_ended_for_a_system_call_is_128_and_sigsys() -> None:
    """As a shell says of what a filter ends: 125 would say that the command never ran."""
    failure = results.SyscallBlocked(message="", call="unknown", machine="i386")
    assert exec_code(ended(failure)) == 159
    assert run_code(ended(failure)) == 6


def test_limits_permissions_and_our_own_failures_of_exec() -> None:
    """`timeout` has 124, and 125 and 126 say that the command never spoke."""
    assert {EXEC[kind] for kind in KINDS if kind == "timeout" or kind.endswith("_exceeded")} == {
        124
    }
    assert EXEC["confinement_failed"] == EXEC["executor_error"] == 125
    assert EXEC["denied"] == EXEC["approval_unavailable"] == 126
    assert EXEC["cancelled"] == 130
