"""How a call that reached its jail ended: evidence in, one ending out. Pure, one table.

Rows are asked in order and the first that recognises the evidence decides:

    our own kill, recorded before its signal → what stopped the start → kernel evidence
    → the signal → the frame → the exit code

so that our own SIGKILL is never called out-of-memory, and a signal that a handler sent to
itself is that signal and never a limit.
"""

from __future__ import annotations

import errno as errnos
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import failures
from .decode import BrokenRule
from .failures import FailureBase
from .fixes import fix_for
from .spec import Limits

OwnKill = Literal["timeout", "cpu", "memory", "output", "cancelled", "start", "broken"]
_CPU_SLACK_S = 0.05
"""RLIMIT_CPU is checked at the clock tick (getrlimit(2)), rusage is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known about an end. What was not seen is None or empty."""

    limits: Limits
    is_command: bool
    own_kill: OwnKill | None = None
    wall_s: float = 0.0
    """Since the worker was confined."""
    setup: Mapping[str, Any] | None = None
    """The stage that failed: guarantee, stage, cause, errno."""
    broke: str | None = None
    """A defect of ours in the zygote, the init, or the worker before it ran the handler."""
    confined: bool = False
    cwd_errno: int | None = None
    """The folder that the command was to start in could not be entered."""
    exec_errno: int | None = None
    blocked: Mapping[str, Any] | None = None
    """The call that the filter handed to the init: call, machine."""
    filter_kills: bool = False
    """Whether the filter kills by SIGSYS, having nobody to hand a call to."""
    oom_kills: int = 0
    """Processes of the tree that the kernel ended at the cgroup's limit."""
    segments_bytes: int | None = None
    """What shared memory segments held when the init ended the tree for them."""
    processes_refused: int = 0
    """Forks and threads that the cgroup's limit refused."""
    status: int | None = None
    """The leader's wait status; None where the init did not live to see it."""
    init_status: int | None = None
    init_lost: bool = False
    """The init, which had the worker's own uid, failed while the worker ran."""
    stage: str = "start"
    fenced: bool = False
    file_at_limit: bool = False
    leader_cpu_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int | None = None
    memory_from: Literal["watch", "cgroup"] = "watch"
    reaped_memory_bytes: int | None = None
    """The largest single process that was reaped (ru_maxrss)."""
    output_bytes: int = 0
    """What was seen of stdout and stderr."""
    frame: Mapping[str, Any] | BrokenRule | None = None
    notes: str = ""
    """What our own code wrote to its standard error."""

    @property
    def signal(self) -> int | None:
        """The signal that the leader died of."""
        if self.status is not None and os.WIFSIGNALED(self.status):
            return os.WTERMSIG(self.status)
        return None

    @property
    def exit_code(self) -> int | None:
        """The leader's own exit code."""
        if self.status is not None and os.WIFEXITED(self.status):
            return os.WEXITSTATUS(self.status)
        return None

    @property
    def is_whole(self) -> bool:
        """Whether a result counts: one well-formed frame, then exit 0 by itself."""
        return isinstance(self.frame, Mapping) and self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`failure` is None for a success; `value` then is the handler's."""

    failure: FailureBase | None
    value: Any = None
    exit_code: int | None = None


def classify(evidence: Evidence) -> Ending:
    """The one ending of this evidence."""
    for _, recognise in TABLE:
        ending = recognise(evidence)
        if ending is not None:
            return ending
    return _fail(_defect("no row of the table knows this evidence", evidence))


def _fail(failure: FailureBase) -> Ending:
    return Ending(failure=failure)


def _defect(what: str, e: Evidence) -> failures.ExecutorError:
    detail = filter(None, [what, e.broke, e.notes])
    return failures.ExecutorError(
        message="toolcell itself failed to run this call; the operator's log has the detail",
        operator_detail="; ".join(detail),
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _own_kill(e: Evidence) -> Ending | None:
    limits = e.limits
    match e.own_kill:
        case "timeout":
            return _fail(
                failures.Timeout(
                    message=f"stopped after {limits.wall_s:g} s, the wall limit of this call; its "
                    "output so far is kept",
                    limit_s=limits.wall_s,
                    elapsed_s=round(e.wall_s, 3),
                    remedy="do less in one call, or raise the limit (wall_s, --wall)",
                )
            )
        case "cpu":
            return _fail(_cpu(e, "watch"))
        case "memory":
            return _fail(_memory(e, e.memory_from, e.peak_memory_bytes))
        case "output":
            return _fail(
                failures.OutputExceeded(
                    message=f"stopped when it had written {e.output_bytes:,} bytes to stdout and "
                    f"stderr; the caller asked for at most {limits.output_bytes or 0:,}",
                    limit_bytes=limits.output_bytes or 0,
                    seen_bytes=e.output_bytes,
                    remedy="write less, or raise the limit (output_bytes)",
                )
            )
        case "cancelled":
            return _fail(failures.Cancelled(message="the caller cancelled this call"))
        case "start":
            return _fail(_defect("the jail was not ready in time", e))
        case "broken":
            return _fail(unconfined(e.setup or {}, "The call was stopped, and nothing kept"))
        case None:  # pragma: no branch - OwnKill has no other value
            return None


def _cpu(e: Evidence, evidence: Literal["rlimit", "watch"]) -> failures.CpuTimeExceeded:
    limit_s = e.limits.cpu_s or 0.0
    used_s = max(e.leader_cpu_s, e.cpu_s)
    return failures.CpuTimeExceeded(
        message=f"stopped after {used_s:.2f} s of processor time; the limit is {limit_s:g} s",
        limit_s=limit_s,
        used_s=round(used_s, 3),
        evidence=evidence,
        remedy="do less in one call, or raise the limit (cpu_s, --cpu)",
    )


def _memory(
    e: Evidence,
    evidence: Literal["watch", "address_space", "ru_maxrss", "cgroup"],
    peak_bytes: int | None,
) -> failures.MemoryExceeded:
    return failures.MemoryExceeded(
        message=f"needed more than the {e.limits.memory_bytes} bytes of memory it may have",
        limit_bytes=e.limits.memory_bytes,
        peak_bytes=peak_bytes,
        evidence=evidence,
        remedy="work in smaller pieces, or raise the limit (memory_bytes, --memory)",
    )


def _setup(e: Evidence) -> Ending | None:
    if e.setup is None:
        return None
    return _fail(unconfined(e.setup, "The call did not run, since this host could not confine it"))


def unconfined(
    facts: Mapping[str, Any], what: str, *, fix: str | None = None
) -> failures.ConfinementFailed:
    """A broken promise as a failure, from a stage's facts; the fix is the table's unless given."""
    cause, fix = str(facts.get("cause")), fix or fix_for(facts)
    guarantee, stage = str(facts.get("guarantee")), str(facts.get("stage"))
    return failures.ConfinementFailed(
        # The fix first: whoever reads one line only needs that one.
        message=f"{fix}. {what}: {guarantee}, stage {stage}: {cause}",
        guarantee=guarantee,
        stage=stage,
        errno=facts.get("errno"),
        cause=cause,
        fix=fix,
        remedy=fix,
    )


def _broken(e: Evidence) -> Ending | None:
    if e.broke is not None or not e.confined:
        return _fail(_defect("the jail ended before its handler ran", e))
    return None


def _no_folder(e: Evidence) -> Ending | None:
    if e.cwd_errno is None:
        return None
    why = {errnos.ENOENT: "does not exist", errnos.ENOTDIR: "is no folder"}.get(
        e.cwd_errno, f"cannot be entered: {os.strerror(e.cwd_errno)}"
    )
    return _fail(failures.ToolError(message=f"the folder to run in {why}"))


def _not_started(e: Evidence) -> Ending | None:
    if e.exec_errno is None:
        return None
    why = {
        errnos.ENOENT: "no such program in the jail's PATH, or its interpreter is missing",
        errnos.EACCES: "it may not be executed",
        errnos.ENOEXEC: "it is neither a program nor a script with a #! line",
        errnos.E2BIG: "its arguments are too long; pass them by a file or standard input",
    }.get(e.exec_errno, os.strerror(e.exec_errno))
    return _fail(failures.ToolError(message=f"the command could not be started: {why}"))


def _blocked(e: Evidence) -> Ending | None:
    """The init says so before it sends its signal, and nothing in a jail can write its report."""
    facts = e.blocked
    if facts is None:
        if not (e.filter_kills and e.signal == signal.SIGSYS):
            return None
        facts = {}
    call, machine = str(facts.get("call", "unknown")), str(facts.get("machine", "unknown"))
    which = "a blocked system call" if call == "unknown" else f"the system call {call} ({machine})"
    return _fail(
        failures.SyscallBlocked(
            message=f"ended for {which}, which nothing in a jail may make; it did not run",
            call=call,
            machine=machine,
            remedy="use a program built for this machine (64-bit, not x32)",
        )
    )


def _kernel_oom(e: Evidence) -> Ending | None:
    """Also when a grandchild was ended and whoever waited for it exits with 1."""
    if e.segments_bytes is not None:
        return _fail(_memory(e, "watch", max(e.segments_bytes, e.peak_memory_bytes or 0)))
    return _fail(_memory(e, "cgroup", e.peak_memory_bytes)) if e.oom_kills else None


def _kernel_cpu(e: Evidence) -> Ending | None:
    if e.limits.cpu_s is None or e.signal not in (signal.SIGXCPU, signal.SIGKILL):
        return None
    whole_s = max(1, -int(-e.limits.cpu_s // 1))
    return _fail(_cpu(e, "rlimit")) if e.leader_cpu_s >= whole_s - _CPU_SLACK_S else None


def _kernel_memory(e: Evidence) -> Ending | None:
    reaped = e.reaped_memory_bytes
    if e.status is None or reaped is None or reaped <= e.limits.memory_bytes:
        return None
    return _fail(_memory(e, "ru_maxrss", max(reaped, e.peak_memory_bytes or 0)))


def _kernel_file_size(e: Evidence) -> Ending | None:
    if e.signal == signal.SIGXFSZ and e.file_at_limit:
        return _fail(_file_size(e))
    return None


def _file_size(e: Evidence) -> failures.FileSizeExceeded:
    limit = e.limits.file_size_bytes
    return failures.FileSizeExceeded(
        message=f"a file would have grown past {limit} bytes, the limit for one file",
        limit_bytes=limit,
        remedy="write several files, or raise the limit (file_size_bytes, --file-size)",
    )


def _init_lost(e: Evidence) -> Ending | None:
    """The init was ended from inside: a worker of the same uid can lower its limits."""
    if e.status is not None:
        return None
    killed = e.init_status is not None and os.WIFSIGNALED(e.init_status)
    if killed or e.init_lost:
        name = _signal_name(os.WTERMSIG(e.init_status or 0) if killed else signal.SIGKILL)
        return _fail(
            failures.Crashed(
                message=f"the whole process tree was ended at once by {name}: from inside, or by "
                "the host for want of memory",
                signal=name,
                stage=e.stage,
            )
        )
    return _fail(_defect("the init ended without a report", e))


def _signalled(e: Evidence) -> Ending | None:
    if e.signal is None:
        return None
    name = _signal_name(e.signal)
    who = "the command" if e.is_command else f"the handler (stage {e.stage})"
    stage = "run" if e.is_command else e.stage
    return _fail(failures.Crashed(message=f"{who} died of {name}", signal=name, stage=stage))


def _command(e: Evidence) -> Ending | None:
    if not e.is_command:
        return None
    return Ending(failure=None, exit_code=e.exit_code)


def _bad_frame(e: Evidence) -> Ending | None:
    if isinstance(e.frame, BrokenRule):
        rule, remedy = e.frame.rule, e.frame.remedy
        message = f"the result was not one whole frame: {rule}"
        return _fail(failures.ProtocolError(message=message, rule=rule, remedy=remedy))
    return None


def _exited(e: Evidence) -> Ending | None:
    if e.is_whole:
        return None
    code = -1 if e.exit_code is None else e.exit_code
    return _fail(
        failures.Exited(
            message=f"the handler's process exited with code {code} before its result counted "
            f"(stage {e.stage})",
            exit_code=code,
            stage=e.stage,
        )
    )


def _framed(e: Evidence) -> Ending | None:
    message = e.frame
    assert isinstance(message, Mapping)
    if message.get("ok") is True and "value" in message:
        return Ending(failure=None, value=message["value"])
    reader = {
        "tool_error": _said_tool_error,
        "invalid_output": _said_invalid,
        "exception": _said_exception,
    }.get(str(message.get("what")))
    if message.get("ok") is not False or reader is None:
        rule = "a frame that is neither a value nor a known failure"
        return _fail(failures.ProtocolError(message=f"the result was {rule}", rule=rule))
    failed = reader(message, e)
    # What the handler said of its own failure; nothing else that fails has a value.
    value = message.get("value") if isinstance(failed, failures.ToolError) else None
    return Ending(failure=failed, value=value)


def _said(message: Mapping[str, Any], name: str) -> str:
    return str(message.get(name, ""))[:40_000]


def _said_tool_error(message: Mapping[str, Any], _: Evidence) -> FailureBase:
    hint, retryable = message.get("hint"), message.get("retryable")
    return failures.ToolError(
        message=_said(message, "message"),
        hint=None if hint is None else _said(message, "hint"),
        retryable=retryable if retryable in ("yes", "maybe") else "no",
    )


def _said_invalid(message: Mapping[str, Any], _: Evidence) -> FailureBase:
    where, why = _said(message, "where"), _said(message, "message")
    return failures.InvalidOutput(
        message=f"the handler's value cannot be sent as JSON, at {where}: {why}",
        problems=({"path": where, "message": why},),
    )


def _said_exception(message: Mapping[str, Any], e: Evidence) -> FailureBase:
    if message.get("memory") is True and e.fenced:
        peak = max(e.peak_memory_bytes or 0, e.reaped_memory_bytes or 0)
        return _memory(e, "address_space", peak or None)
    if message.get("errno") == errnos.EFBIG:
        return _file_size(e)
    full = message.get("scratch_full")
    if full in ("bytes", "files"):
        limits = e.limits
        limit = limits.disk_bytes if full == "bytes" else limits.disk_files
        return failures.DiskExceeded(
            message=f"the scratch space is full: it holds {limit} {full} at most",
            limit_bytes=limits.disk_bytes,
            limit_files=limits.disk_files,
            reached=full,
            remedy=f"remove what is not needed, or raise the limit (disk_{full})",
        )
    if message.get("processes") is True or e.processes_refused:
        return failures.ProcessesExceeded(
            message=f"wanted more than the {e.limits.processes} processes and threads it may have",
            limit=e.limits.processes,
            remedy="start fewer at once, or raise the limit (processes, --processes)",
        )
    kind, text = _said(message, "type"), _said(message, "message")
    return failures.Exception(
        message=f"{kind}: {text}" if text else kind,
        type=kind,
        traceback=_said(message, "traceback"),
        stage=_said(message, "stage"),
    )


TABLE: tuple[tuple[str, Callable[[Evidence], Ending | None]], ...] = (
    ("our own kill", _own_kill),
    ("a stage of the jail failed", _setup),
    ("the folder to run in is missing", _no_folder),
    ("a defect before the handler ran", _broken),
    ("the command could not be started", _not_started),
    ("kernel: a call of the filter's", _blocked),
    ("kernel: the cgroup's memory limit", _kernel_oom),
    ("kernel: RLIMIT_CPU", _kernel_cpu),
    ("kernel: peak memory at the reap", _kernel_memory),
    ("kernel: RLIMIT_FSIZE", _kernel_file_size),
    ("the init was lost", _init_lost),
    ("the leader's signal", _signalled),
    ("a command's exit code is data", _command),
    ("a broken frame", _bad_frame),
    ("no frame that counts", _exited),
    ("what the frame says", _framed),
)
"""The order of classification. Each row is asked in turn; the first answer is the ending."""
