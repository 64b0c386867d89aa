"""Exit codes, as data: what a script is told about an ending. `cli.py` only looks them up."""

from __future__ import annotations

import errno
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from toolcell.results import ToolResult

USAGE: Final = 2
WRONG_CALL: Final = 3
OUR_FAILURE: Final = 70
CANCELLED: Final = 130
BROKEN_PIPE: Final = 128 + signal.SIGPIPE
"""`exec` whose output nobody reads any more, as a command that SIGPIPE ends."""

RUN: Final = {
    "tool_error": 1,
    "exception": 1,
    "exited": 1,
    "protocol_error": 1,
    "invalid_output": 1,
    "commit_conflict": 1,
    "unknown_tool": WRONG_CALL,
    "tool_disabled": WRONG_CALL,
    "tool_unavailable": WRONG_CALL,
    "tool_stale": WRONG_CALL,
    "invalid_arguments": WRONG_CALL,
    "not_admitted": 4,
    "denied": 4,
    "hook_failed": 4,
    "approval_rejected": 4,
    "approval_timeout": 4,
    "approval_unavailable": 4,
    "effects_refused": 4,
    "effects_rejected": 4,
    "timeout": 5,
    "cpu_time_exceeded": 5,
    "memory_exceeded": 5,
    "file_size_exceeded": 5,
    "disk_exceeded": 5,
    "output_exceeded": 5,
    "processes_exceeded": 5,
    "crashed": 6,
    "syscall_blocked": 6,
    "confinement_failed": 7,
    "executor_error": OUR_FAILURE,
    "cancelled": CANCELLED,
}
"""`run` and `python`: the exit code of each kind of failure."""

EXEC_LIMIT: Final = 124
EXEC_OURS: Final = 125
EXEC_NOT_PERMITTED: Final = 126
EXEC_NOT_FOUND: Final = 127

EXEC: Final = {
    **dict.fromkeys(RUN, EXEC_OURS),
    **{kind: EXEC_LIMIT for kind, code in RUN.items() if code == 5},
    **{kind: EXEC_NOT_PERMITTED for kind, code in RUN.items() if code == 4},
    # The filter ended it by SIGSYS: as a shell says of any command under one. 125 would say that
    # the command never ran.
    "syscall_blocked": 128 + signal.SIGSYS,
    "cancelled": CANCELLED,
}
"""`exec`: likewise, as timeout(1) and env(1) have it; `exec_code` adds what needs evidence."""

CHECK: Final = {"allow": 0, "ask": 10, "deny": 11}


class Refused(Exception):
    """What was asked for cannot be done: one line for a person, and the exit code.

    `lines` are shown below it: the place in a file that it is about.
    """

    def __init__(self, message: str, code: int = USAGE, *, lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.lines = lines


def refused_policy(text: str) -> Refused:
    """What is wrong with a policy file, the place of it with a caret below."""
    first, *lines = text.split("\n")
    return Refused(first, lines=tuple(lines))


def run_code(result: ToolResult) -> int:
    """The exit code of `run`: a command's own nonzero exit is a success, so it is 0."""
    return 0 if result.error is None else RUN[result.error.kind]


def exec_code(result: ToolResult) -> int:
    """The exit code of `exec`: the command's own, or why there is none."""
    failure = result.error
    if failure is None:
        return result.exit_code or 0
    exec_errno = result.metadata.get("exec_errno")
    if failure.kind == "tool_error" and exec_errno is not None:
        return EXEC_NOT_FOUND if exec_errno == errno.ENOENT else EXEC_NOT_PERMITTED
    if failure.kind == "crashed":
        return 128 + _signal_number(getattr(failure, "signal", ""))
    return EXEC[failure.kind]


def _signal_number(name: str) -> int:
    """Of a signal by its name; real-time signals have none but SIG and their number."""
    if name in signal.Signals.__members__:
        return signal.Signals[name]
    return int(name.removeprefix("SIG"))
