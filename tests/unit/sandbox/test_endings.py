"""The table of endings, row by row: evidence in, one ending out."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_sandbox import endings, failures
from toolcell_sandbox.decode import BrokenRule
from toolcell_sandbox.endings import TABLE, Evidence, classify
from toolcell_sandbox.spec import Limits

MIB = 1 << 20
LIMITS = Limits(cpu_s=2.0, memory_bytes=64 * MIB, wall_s=7.5, file_size_bytes=4 * MIB)
OK = {"ok": True, "value": 42}
BROKEN = BrokenRule("5 bytes after the frame")


def exited(code: int) -> int:
    """The wait status of an exit."""
    return code << 8


def killed(number: int) -> int:
    """The wait status of a death by signal."""
    return int(number)


def evidence(**known: Any) -> Evidence:
    """A handler that returned 42, but for what is `known`."""
    facts: dict[str, Any] = {
        "limits": LIMITS,
        "is_command": False,
        "confined": True,
        "status": exited(0),
        "init_status": exited(0),
        "stage": "run",
        "frame": OK,
    }
    return Evidence(**(facts | known))


def command(**known: Any) -> Evidence:
    """A command that returned 0, but for what is `known`."""
    return evidence(**({"is_command": True, "frame": None} | known))


def said(**message: Any) -> dict[str, Any]:
    """The frame of a handler that raised."""
    return {"ok": False, "what": "exception", "type": "E", "message": "m"} | message


def row_of(e: Evidence) -> str:
    """The first row that recognises the evidence."""
    return next(name for name, recognise in TABLE if recognise(e) is not None)


def kind_of(e: Evidence) -> str:
    """The kind of the ending; "value" for a success."""
    failure = classify(e).failure
    return "value" if failure is None else failure.kind


SETUP = {"guarantee": "fs_confined", "stage": "namespaces", "cause": "no", "errno": "EPERM"}
NOTHING_RAN: dict[str, Any] = {"confined": False, "status": None, "frame": None}

RECOGNISED: list[tuple[str, str, Evidence]] = [
    ("our own kill", "timeout", evidence(own_kill="timeout", status=killed(signal.SIGKILL))),
    ("our own kill", "cpu_time_exceeded", evidence(own_kill="cpu", cpu_s=3.0)),
    ("our own kill", "memory_exceeded", evidence(own_kill="memory", peak_memory_bytes=80 * MIB)),
    ("our own kill", "cancelled", evidence(own_kill="cancelled")),
    ("our own kill", "executor_error", evidence(own_kill="start", **NOTHING_RAN)),
    ("a stage of the jail failed", "confinement_failed", evidence(setup=SETUP, **NOTHING_RAN)),
    ("a defect before the handler ran", "executor_error", evidence(broke="TypeError: x")),
    ("a defect before the handler ran", "executor_error", evidence(**NOTHING_RAN)),
    ("the folder to run in is missing", "tool_error", command(cwd_errno=errno.ENOENT)),
    ("the command could not be started", "tool_error", command(exec_errno=errno.ENOENT)),
    (
        "kernel: a call of the filter's",
        "syscall_blocked",
        command(status=killed(signal.SIGKILL), blocked={"call": "20", "machine": "i386"}),
    ),
    (
        "kernel: a call of the filter's",
        "syscall_blocked",
        evidence(status=killed(signal.SIGSYS), filter_kills=True, frame=None),
    ),
    (
        "kernel: the cgroup's memory limit",
        "memory_exceeded",
        command(status=exited(1), oom_kills=1),
    ),
    (
        "kernel: the cgroup's memory limit",
        "memory_exceeded",
        command(status=None, segments_bytes=65 * MIB),
    ),
    (
        "kernel: RLIMIT_CPU",
        "cpu_time_exceeded",
        evidence(status=killed(signal.SIGXCPU), leader_cpu_s=1.96),
    ),
    (
        "kernel: RLIMIT_CPU",
        "cpu_time_exceeded",
        command(status=killed(signal.SIGKILL), leader_cpu_s=3.0),
    ),
    (
        "kernel: peak memory at the reap",
        "memory_exceeded",
        evidence(reaped_memory_bytes=64 * MIB + 1),
    ),
    (
        "kernel: RLIMIT_FSIZE",
        "file_size_exceeded",
        command(status=killed(signal.SIGXFSZ), file_at_limit=True),
    ),
    ("the init was lost", "crashed", evidence(status=None, init_status=killed(signal.SIGKILL))),
    ("the init was lost", "executor_error", evidence(status=None, init_status=exited(1))),
    ("the init was lost", "executor_error", evidence(status=None, init_status=None)),
    ("the leader's signal", "crashed", evidence(status=killed(signal.SIGSEGV), frame=None)),
    ("the leader's signal", "crashed", command(status=killed(signal.SIGKILL))),
    ("a command's exit code is data", "value", command(status=exited(137))),
    ("a broken frame", "protocol_error", evidence(frame=BROKEN)),
    ("no frame that counts", "exited", evidence(frame=None)),
    ("no frame that counts", "exited", evidence(status=exited(1))),
    ("what the frame says", "value", evidence()),
    ("what the frame says", "tool_error", evidence(frame=said(what="tool_error"))),
    ("what the frame says", "invalid_output", evidence(frame=said(what="invalid_output"))),
    ("what the frame says", "exception", evidence(frame=said())),
    ("what the frame says", "memory_exceeded", evidence(fenced=True, frame=said(memory=True))),
    ("what the frame says", "file_size_exceeded", evidence(frame=said(errno=errno.EFBIG))),
    ("what the frame says", "disk_exceeded", evidence(frame=said(scratch_full="bytes"))),
    ("what the frame says", "processes_exceeded", evidence(frame=said(processes=True))),
    ("what the frame says", "processes_exceeded", evidence(frame=said(), processes_refused=1)),
    ("what the frame says", "protocol_error", evidence(frame={"ok": True})),
    ("what the frame says", "protocol_error", evidence(frame={})),
]


@pytest.mark.parametrize(("row", "kind", "e"), RECOGNISED)
def test_each_row_recognises_its_evidence(row: str, kind: str, e: Evidence) -> None:
    """Otherwise a caller is told of another end than the one there was."""
    assert (row_of(e), kind_of(e)) == (row, kind)


def test_no_row_is_untested() -> None:
    """A row that is added without evidence could swallow the ends of every row below it."""
    assert {row for row, _, _ in RECOGNISED} == {name for name, _ in TABLE}


NEAR_MISSES: list[tuple[str, str, str, Evidence]] = [
    # SIGKILL without our own record of it: somebody else's.
    (
        "our own kill",
        "the leader's signal",
        "crashed",
        evidence(status=killed(signal.SIGKILL), wall_s=100.0),
    ),
    (
        "a stage of the jail failed",
        "a defect before the handler ran",
        "executor_error",
        evidence(**NOTHING_RAN),
    ),
    # Confined, and nothing heard afterwards: it may have run.
    (
        "a defect before the handler ran",
        "the init was lost",
        "executor_error",
        evidence(status=None, init_status=None, frame=None),
    ),
    # A command's own word about a folder, once it runs.
    (
        "the folder to run in is missing",
        "a command's exit code is data",
        "value",
        command(status=exited(1)),
    ),
    # 127 by itself is what the command said; only our own execve(2) tells of a start.
    (
        "the command could not be started",
        "a command's exit code is data",
        "value",
        command(status=exited(127)),
    ),
    # SIGSYS is also what a handler can send itself.
    (
        "kernel: a call of the filter's",
        "the leader's signal",
        "crashed",
        evidence(status=killed(signal.SIGSYS), frame=None),
    ),
    (
        "kernel: a call of the filter's",
        "the leader's signal",
        "crashed",
        evidence(status=killed(signal.SIGKILL), filter_kills=True, frame=None),
    ),
    # Refused forks are no harm to one that succeeds all the same.
    (
        "kernel: the cgroup's memory limit",
        "what the frame says",
        "value",
        evidence(processes_refused=3),
    ),
    # The signals of a limit, raised by the handler itself long before the limit.
    (
        "kernel: RLIMIT_CPU",
        "the leader's signal",
        "crashed",
        evidence(status=killed(signal.SIGXCPU), leader_cpu_s=1.94),
    ),
    (
        "kernel: RLIMIT_CPU",
        "the leader's signal",
        "crashed",
        evidence(status=killed(signal.SIGTERM), leader_cpu_s=2.5),
    ),
    (
        "kernel: RLIMIT_CPU",
        "the leader's signal",
        "crashed",
        evidence(limits=Limits(), status=killed(signal.SIGXCPU), leader_cpu_s=99.0),
    ),
    ("kernel: RLIMIT_CPU", "what the frame says", "value", evidence(leader_cpu_s=99.0)),
    (
        "kernel: peak memory at the reap",
        "the leader's signal",
        "crashed",
        evidence(status=killed(signal.SIGKILL), reaped_memory_bytes=64 * MIB),
    ),
    (
        "kernel: peak memory at the reap",
        "the leader's signal",
        "crashed",
        evidence(status=killed(signal.SIGKILL), peak_memory_bytes=80 * MIB),
    ),
    (
        "kernel: RLIMIT_FSIZE",
        "the leader's signal",
        "crashed",
        command(status=killed(signal.SIGXFSZ)),
    ),
    (
        "kernel: RLIMIT_FSIZE",
        "the leader's signal",
        "crashed",
        command(status=killed(signal.SIGTERM), file_at_limit=True),
    ),
    # The init dies of a signal once the leader is known: that is how a tree is taken down.
    (
        "the init was lost",
        "what the frame says",
        "value",
        evidence(init_status=killed(signal.SIGKILL)),
    ),
    # 128 + 11 as an exit code is no signal.
    (
        "the leader's signal",
        "no frame that counts",
        "exited",
        evidence(status=exited(139), frame=None),
    ),
    (
        "a command's exit code is data",
        "no frame that counts",
        "exited",
        evidence(status=exited(2), frame=None),
    ),
    ("a broken frame", "no frame that counts", "exited", evidence(frame=None)),
    ("no frame that counts", "what the frame says", "value", evidence(frame=OK)),
    (
        "what the frame says",
        "no frame that counts",
        "exited",
        evidence(frame=OK, status=exited(1)),
    ),
]


@pytest.mark.parametrize(("row", "other", "kind", "e"), NEAR_MISSES)
def test_a_near_miss_of_a_row_is_another_rows(row: str, other: str, kind: str, e: Evidence) -> None:
    """A row that takes too much calls a crash a limit, or an exit code a signal."""
    assert row != other
    assert (row_of(e), kind_of(e)) == (other, kind)


def test_every_row_has_a_near_miss() -> None:
    """Recognising alone is easy: a row that answers always would pass."""
    assert {row for row, _, _, _ in NEAR_MISSES} == {name for name, _ in TABLE}


OWN_KILL: dict[str, Any] = {"own_kill": "timeout"}
STAGE: dict[str, Any] = {"setup": SETUP}
DEFECT: dict[str, Any] = {"broke": "KeyError: 'fds'"}
NOT_STARTED: dict[str, Any] = {"exec_errno": errno.EACCES}
CPU: dict[str, Any] = {"status": killed(signal.SIGKILL), "leader_cpu_s": 2.5}
MEMORY: dict[str, Any] = {"reaped_memory_bytes": 65 * MIB}
FILE_SIZE: dict[str, Any] = {"status": killed(signal.SIGXFSZ), "file_at_limit": True}
SIGNAL: dict[str, Any] = {"status": killed(signal.SIGSEGV)}
BAD_FRAME: dict[str, Any] = {"frame": BROKEN}
NO_FRAME: dict[str, Any] = {"frame": None}
EXIT_1: dict[str, Any] = {"status": exited(1)}


@pytest.mark.parametrize(
    ("winner", "kind", "loser"),
    [
        (OWN_KILL, "timeout", STAGE),
        (OWN_KILL, "timeout", DEFECT),
        (OWN_KILL, "timeout", NOT_STARTED),
        (OWN_KILL, "timeout", CPU),
        (OWN_KILL, "timeout", MEMORY),
        (OWN_KILL, "timeout", FILE_SIZE),
        (OWN_KILL, "timeout", SIGNAL),
        (OWN_KILL, "timeout", BAD_FRAME),
        (OWN_KILL, "timeout", NO_FRAME),
        (OWN_KILL, "timeout", EXIT_1),
        (STAGE, "confinement_failed", DEFECT),
        (STAGE, "confinement_failed", EXIT_1),
        (DEFECT, "executor_error", NOT_STARTED),
        (NOT_STARTED, "tool_error", EXIT_1),
        (NOT_STARTED, "tool_error", CPU),
        (CPU, "cpu_time_exceeded", MEMORY),
        (CPU, "cpu_time_exceeded", BAD_FRAME),
        (MEMORY, "memory_exceeded", FILE_SIZE),
        (MEMORY, "memory_exceeded", SIGNAL),
        (MEMORY, "memory_exceeded", BAD_FRAME),
        (MEMORY, "memory_exceeded", NO_FRAME),
        (MEMORY, "memory_exceeded", EXIT_1),
        (MEMORY, "memory_exceeded", {"frame": OK}),
        (FILE_SIZE, "file_size_exceeded", BAD_FRAME),
        (SIGNAL, "crashed", BAD_FRAME),
        (SIGNAL, "crashed", NO_FRAME),
        (SIGNAL, "crashed", {"frame": OK}),
        (SIGNAL, "crashed", {"frame": said(memory=True), "fenced": True}),
        (BAD_FRAME, "protocol_error", EXIT_1),
        (EXIT_1, "exited", {"frame": OK}),
        (EXIT_1, "exited", {"frame": said()}),
    ],
)
def test_where_two_rows_know_the_evidence_the_stronger_decides(
    winner: dict[str, Any], kind: str, loser: dict[str, Any]
) -> None:
    """Our kill, kernel, signal, frame, exit code: in another order a limit is called a crash."""
    assert kind_of(evidence(**loser)) != kind
    assert kind_of(evidence(**(loser | winner))) == kind


def test_case_17_our_own_sigkill_is_never_out_of_memory() -> None:
    """Otherwise each timeout sends its reader after a leak that is not there."""
    e = evidence(
        own_kill="timeout",
        status=killed(signal.SIGKILL),
        frame=None,
        reaped_memory_bytes=500 * MIB,
        peak_memory_bytes=500 * MIB,
        leader_cpu_s=99.0,
        wall_s=7.51234,
    )
    failure = classify(e).failure
    assert isinstance(failure, failures.Timeout)
    assert (failure.limit_s, failure.elapsed_s, failure.retryable) == (7.5, 7.512, "maybe")


# -- what each ending says ----------------------------------------------------------------


def test_a_success_carries_the_value_and_nothing_else() -> None:
    """A value beside a failure would be used by somebody who does not look."""
    assert classify(evidence()) == endings.Ending(failure=None, value=42)
    assert classify(evidence(frame={"ok": True, "value": None})).value is None
    assert classify(evidence(frame=said())).value is None


@pytest.mark.parametrize("code", [0, 1, 127, 137, 255])
def test_a_commands_exit_code_is_data(code: int) -> None:
    """grep returns 1 for "nothing found": that is an answer, not a failure."""
    ending = classify(command(status=exited(code)))
    assert (ending.failure, ending.exit_code) == (None, code)


@pytest.mark.parametrize("frame", [BROKEN, OK, said()])
def test_a_command_is_not_judged_by_a_frame(frame: Any) -> None:
    """It has no result channel: whatever came over it is not the command's doing."""
    ending = classify(command(status=exited(4), frame=frame))
    assert (ending.failure, ending.value, ending.exit_code) == (None, None, 4)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "no such program"),
        (errno.EACCES, "may not be executed"),
        (errno.ENOEXEC, "neither a program nor a script"),
        (errno.E2BIG, "too long"),
        (errno.ELOOP, "symbolic links"),
    ],
)
def test_a_command_that_could_not_be_started_says_why(number: int, words: str) -> None:
    """ "Not found" and "not executable" are repaired in different ways."""
    failure = classify(command(exec_errno=number, status=exited(127))).failure
    assert isinstance(failure, failures.ToolError)
    assert words in failure.message


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (killed(signal.SIGSEGV), "SIGSEGV"),
        (killed(signal.SIGSEGV) | 0x80, "SIGSEGV"),
        (killed(signal.SIGRTMIN), "SIGRTMIN"),
        (killed(40), "SIG40"),
    ],
)
def test_a_crash_names_its_signal(status: int, name: str) -> None:
    """A number alone sends its reader to a table that differs between machines."""
    for e in (evidence(status=status, stage="import"), command(status=status)):
        failure = classify(e).failure
        assert isinstance(failure, failures.Crashed)
        assert failure.signal == name
        assert name in failure.message
    assert "stage import" in str(classify(evidence(status=status, stage="import")).failure)


def test_a_tree_that_was_ended_from_inside_is_a_crash_with_its_signal() -> None:
    """A handler that kills its own init has not found a way to be called our defect."""
    failure = classify(evidence(status=None, init_status=killed(signal.SIGXCPU))).failure
    assert isinstance(failure, failures.Crashed)
    assert failure.signal == "SIGXCPU"


def test_a_defect_keeps_its_detail_from_the_model() -> None:
    """Host paths and our own names are nothing for a model, and all that an operator has."""
    e = evidence(broke="OSError: /root/secret", notes="Traceback: x", **NOTHING_RAN)
    failure = classify(e).failure
    assert isinstance(failure, failures.ExecutorError)
    assert "/root" not in failure.message
    assert failure.operator_detail == (
        "the jail ended before its handler ran; OSError: /root/secret; Traceback: x"
    )


def test_confinement_that_failed_names_guarantee_stage_errno_and_fix() -> None:
    """Without the fix its reader turns the confinement off."""
    failure = classify(evidence(setup=SETUP, **NOTHING_RAN)).failure
    assert isinstance(failure, failures.ConfinementFailed)
    assert (failure.guarantee, failure.stage, failure.errno) == (
        "fs_confined",
        "namespaces",
        "EPERM",
    )
    assert "CLONE_NEWUSER" in failure.fix or "user namespaces" in failure.fix
    assert failure.remedy == failure.fix
    assert failure.message.startswith(failure.fix)


def test_a_blocked_call_is_named_where_the_init_saw_it() -> None:
    """ "Unknown" leaves an author with a bisection."""
    blocked = {"call": "execve", "machine": "x32"}
    seen = classify(command(status=killed(signal.SIGKILL), blocked=blocked)).failure
    assert isinstance(seen, failures.SyscallBlocked)
    assert (seen.call, seen.machine) == ("execve", "x32")
    assert "execve (x32)" in seen.message
    unseen = classify(command(status=killed(signal.SIGSYS), filter_kills=True)).failure
    assert isinstance(unseen, failures.SyscallBlocked)
    assert (unseen.call, unseen.machine) == ("unknown", "unknown")


def test_memory_that_a_cgroup_held_says_so() -> None:
    """A sampler's word and a bound are worth differently."""
    e = command(oom_kills=2, peak_memory_bytes=64 * MIB, memory_from="cgroup")
    by_kernel = classify(e).failure
    assert isinstance(by_kernel, failures.MemoryExceeded)
    assert (by_kernel.evidence, by_kernel.peak_bytes) == ("cgroup", 64 * MIB)
    segments = classify(command(status=None, segments_bytes=70 * MIB)).failure
    assert isinstance(segments, failures.MemoryExceeded)
    assert (segments.evidence, segments.peak_bytes) == ("watch", 70 * MIB)


def test_memory_says_who_saw_it_and_the_larger_peak() -> None:
    """A sampled peak below the limit beside "exceeded" reads like a mistake."""
    by_watch = classify(evidence(own_kill="memory", peak_memory_bytes=70 * MIB)).failure
    assert isinstance(by_watch, failures.MemoryExceeded)
    assert (by_watch.evidence, by_watch.peak_bytes) == ("watch", 70 * MIB)
    at_reap = classify(evidence(reaped_memory_bytes=65 * MIB, peak_memory_bytes=None)).failure
    assert isinstance(at_reap, failures.MemoryExceeded)
    assert (at_reap.evidence, at_reap.peak_bytes) == ("ru_maxrss", 65 * MIB)
    both = classify(evidence(reaped_memory_bytes=65 * MIB, peak_memory_bytes=90 * MIB)).failure
    assert isinstance(both, failures.MemoryExceeded)
    assert both.peak_bytes == 90 * MIB
    fence = classify(evidence(fenced=True, frame=said(memory=True))).failure
    assert isinstance(fence, failures.MemoryExceeded)
    assert (fence.evidence, fence.limit_bytes) == ("address_space", 64 * MIB)


def test_a_memory_error_without_a_fence_is_an_exception() -> None:
    """A handler that raises MemoryError by hand ran into no limit of ours."""
    assert kind_of(evidence(frame=said(memory=True))) == "exception"
    assert kind_of(evidence(fenced=True, frame=said(memory="yes"))) == "exception"


@pytest.mark.parametrize(
    ("limit_s", "used_s", "kind"),
    [
        (0.2, 0.96, "cpu_time_exceeded"),
        (0.2, 0.94, "crashed"),
        (1.5, 1.96, "cpu_time_exceeded"),
        (1.5, 1.6, "crashed"),
    ],
)
def test_cpu_is_measured_against_whole_seconds(limit_s: float, used_s: float, kind: str) -> None:
    """RLIMIT_CPU knows only whole seconds: a SIGKILL before that is not its doing."""
    e = evidence(limits=Limits(cpu_s=limit_s), status=killed(signal.SIGKILL), leader_cpu_s=used_s)
    assert kind_of(e) == kind


def test_cpu_says_who_saw_it_and_what_was_used() -> None:
    """The tree may have used what its leader did not."""
    watched = classify(evidence(own_kill="cpu", leader_cpu_s=0.1, cpu_s=2.34567)).failure
    assert isinstance(watched, failures.CpuTimeExceeded)
    assert (watched.evidence, watched.used_s, watched.limit_s) == ("watch", 2.346, 2.0)
    unlimited = classify(evidence(own_kill="cpu", limits=Limits())).failure
    assert isinstance(unlimited, failures.CpuTimeExceeded)
    assert unlimited.limit_s == 0.0


def test_an_exit_without_a_result_says_how_far_it_came() -> None:
    """os._exit in a library's import and in the handler are found in different files."""
    failure = classify(evidence(status=exited(3), stage="import", frame=None)).failure
    assert isinstance(failure, failures.Exited)
    assert (failure.exit_code, failure.stage) == (3, "import")
    # A stopped leader is no end that waitpid(2) reports here; it is still told, not guessed.
    stopped = classify(evidence(status=(signal.SIGSTOP << 8) | 0x7F)).failure
    assert isinstance(stopped, failures.Exited)
    assert stopped.exit_code == -1


@pytest.mark.parametrize("retryable", ["yes", "maybe", "no", "soon", None, 1, ["yes"]])
def test_a_tool_error_takes_only_known_words_on_retrying(retryable: object) -> None:
    """The frame is the tool's: a fourth word would reach programs that know three."""
    frame = said(what="tool_error", message="no branch", hint="main?", retryable=retryable)
    failure = classify(evidence(frame=frame)).failure
    assert isinstance(failure, failures.ToolError)
    assert (failure.message, failure.hint) == ("no branch", "main?")
    assert failure.retryable == (retryable if retryable in ("yes", "maybe") else "no")


def test_a_tool_error_without_a_hint_has_none() -> None:
    """ "None" as a hint would be read to the model."""
    failure = classify(evidence(frame=said(what="tool_error", hint=None))).failure
    assert isinstance(failure, failures.ToolError)
    assert failure.hint is None


def test_an_exception_keeps_type_traceback_and_stage() -> None:
    """Without them its author has nothing to look at."""
    frame = said(type="ValueError", message="bad", traceback="File x", stage="import")
    failure = classify(evidence(frame=frame)).failure
    assert isinstance(failure, failures.Exception)
    assert (failure.message, failure.type, failure.traceback, failure.stage) == (
        "ValueError: bad",
        "ValueError",
        "File x",
        "import",
    )
    bare = classify(evidence(frame=said(type="KeyError", message=""))).failure
    assert bare is not None
    assert bare.message == "KeyError"


def test_words_from_a_frame_are_bounded() -> None:
    """A frame may be megabytes; what a model is told may not."""
    frame = said(message="x" * 100_000, traceback=["y" * 100_000], type={"a": 1})
    failure = classify(evidence(frame=frame)).failure
    assert isinstance(failure, failures.Exception)
    assert len(failure.message) < 41_000
    assert len(failure.traceback) <= 40_000


def test_invalid_output_names_the_place() -> None:
    """ "Not JSON-able" about a whole report finds nothing."""
    frame = said(what="invalid_output", where="$.rows[3]", message="set has no JSON form")
    failure = classify(evidence(frame=frame)).failure
    assert isinstance(failure, failures.InvalidOutput)
    assert failure.problems == ({"path": "$.rows[3]", "message": "set has no JSON form"},)


@pytest.mark.parametrize(
    "frame",
    [
        {"ok": 1, "value": 2},
        {"ok": "true", "value": 2},
        {"ok": True, "valeu": 2},
        {"ok": False},
        {"ok": False, "what": "timeout"},
        {"ok": False, "what": ["exception"]},
        {"ok": None, "what": "exception"},
        {"what": "exception"},
    ],
)
def test_a_frame_of_no_known_shape_is_a_protocol_error(frame: Mapping[str, Any]) -> None:
    """A handler that writes its own frames must not reach an ending that is not its to give."""
    assert kind_of(evidence(frame=frame)) == "protocol_error"


def test_no_frame_can_claim_an_ending_of_ours() -> None:
    """A tool that could say `denied` or `timeout` would put its doing on somebody else."""
    for kind in ("timeout", "cancelled", "executor_error", "confinement_failed", "denied"):
        assert kind_of(evidence(frame=said(what=kind))) == "protocol_error"


def test_evidence_that_no_row_knows_is_our_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no "other": what cannot be classified is a bug of ours and says so."""
    monkeypatch.setattr(endings, "TABLE", ())
    failure = classify(evidence()).failure
    assert isinstance(failure, failures.ExecutorError)
    assert "no row of the table" in failure.operator_detail


def test_a_status_is_an_exit_or_a_signal_or_neither() -> None:
    """Read in one way here and in another there, one death has two names."""
    assert (evidence(status=exited(3)).exit_code, evidence(status=exited(3)).signal) == (3, None)
    assert (evidence(status=killed(9)).exit_code, evidence(status=killed(9)).signal) == (None, 9)
    assert (evidence(status=None).exit_code, evidence(status=None).signal) == (None, None)
    assert evidence().is_whole
    assert not evidence(frame=BROKEN).is_whole
    assert not evidence(status=killed(9)).is_whole


# -- all of it ----------------------------------------------------------------------------

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
FRAMES = st.one_of(
    st.none(),
    st.just(BROKEN),
    st.builds(lambda value: {"ok": True, "value": value}, PLAIN),
    st.dictionaries(st.text(max_size=4), PLAIN, max_size=4),
    st.fixed_dictionaries(
        {"ok": st.sampled_from([True, False, None, 1])},
        optional={
            "value": PLAIN,
            "what": st.sampled_from(["tool_error", "invalid_output", "exception", "x"]) | PLAIN,
            "message": PLAIN,
            "hint": PLAIN,
            "retryable": PLAIN,
            "memory": PLAIN,
            "errno": st.sampled_from([errno.EFBIG, None]) | PLAIN,
            "scratch_full": PLAIN,
            "processes": PLAIN,
            "where": PLAIN,
            "type": PLAIN,
            "traceback": PLAIN,
            "stage": PLAIN,
        },
    ),
)
STATUS = st.none() | st.one_of(
    st.integers(0, 255).map(exited),
    st.integers(1, 64).map(killed),
    st.integers(1, 64).map(lambda number: number | 0x80),
)
SIZES = st.none() | st.integers(0, 1 << 40)
SECONDS = st.floats(0, 1e6)
EVIDENCE = st.builds(
    Evidence,
    limits=st.sampled_from([LIMITS, Limits()]),
    is_command=st.booleans(),
    own_kill=st.sampled_from([None, "timeout", "cpu", "memory", "cancelled", "start"]),
    wall_s=SECONDS,
    setup=st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "guarantee": st.text(max_size=4),
            "stage": st.sampled_from(["namespaces", "proc", "idmap", "?"]),
            "cause": st.text(max_size=4),
            "errno": st.sampled_from([None, "EPERM", "ENOSPC"]),
        },
    ),
    broke=st.none() | st.text(max_size=4),
    confined=st.booleans(),
    exec_errno=st.none() | st.integers(1, 133),
    blocked=st.none() | st.just({"call": "20", "machine": "i386"}),
    filter_kills=st.booleans(),
    oom_kills=st.integers(0, 2),
    segments_bytes=SIZES,
    processes_refused=st.integers(0, 2),
    memory_from=st.sampled_from(["watch", "cgroup"]),
    status=STATUS,
    init_status=STATUS,
    stage=st.sampled_from(["start", "import", "run", "unknown"]),
    fenced=st.booleans(),
    file_at_limit=st.booleans(),
    leader_cpu_s=SECONDS,
    cpu_s=SECONDS,
    peak_memory_bytes=SIZES,
    reaped_memory_bytes=SIZES,
    frame=FRAMES,
    notes=st.text(max_size=4),
)
OWN_KILLS = {
    "timeout": "timeout",
    "cpu": "cpu_time_exceeded",
    "memory": "memory_exceeded",
    "cancelled": "cancelled",
    "start": "executor_error",
}


@settings(max_examples=200, deadline=None)
@given(e=EVIDENCE)
def test_any_evidence_has_exactly_one_ending_and_an_own_kill_always_wins(e: Evidence) -> None:
    """A classifier that raises loses the call's one record; an own kill that loses lies."""
    ending = classify(e)
    assert classify(e) == ending
    if e.own_kill is not None:
        assert ending.failure is not None
        assert ending.failure.kind == OWN_KILLS[e.own_kill]
    if ending.failure is None:
        assert e.signal is None
        assert e.is_command or (e.is_whole and isinstance(e.frame, Mapping))
        assert e.is_command or ending.exit_code is None
    else:
        assert (ending.value, ending.exit_code) == (None, None)
        said_so = ending.failure.to_json()
        assert json.loads(json.dumps(said_so)) == said_so
        assert ending.failure.message
        if isinstance(ending.failure, failures.ExecutorError):
            assert ending.failure.operator_detail
