"""The ways in which a call that reached the jail can fail, each a value with its evidence.

Each class is one `kind`; its docstring says what the caller, or the model, should do next.
`message` is worded for a model: it never holds a host path or our own internals.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

Blame = Literal["model", "policy", "human", "tool", "host"]
Retryable = Literal["yes", "no", "maybe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureBase:
    """What every failure has: a kind, a message, whose doing it is, and what may help."""

    kind: ClassVar[str]
    blame: ClassVar[Blame] = "tool"
    message: str
    retryable: Retryable = "no"
    remedy: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The `error` object of `--json`: kind, message, blame, retryable, remedy, evidence."""
        head = {"kind": self.kind, "message": self.message, "blame": self.blame}
        rest = {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "message"}
        return {**head, **rest}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    to_json = getattr(value, "to_json", None)
    return to_json() if to_json is not None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinementFailed(FailureBase):
    """The jail could not be built; the handler never ran.

    Retrying will not help: the host lacks `guarantee`. See `fix`.
    """

    kind: ClassVar[str] = "confinement_failed"
    blame: ClassVar[Blame] = "host"
    guarantee: str
    stage: str
    errno: str | None = None
    cause: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolError(FailureBase):
    """The tool said that it could not do this, in words for the model. Read them, then adapt."""

    kind: ClassVar[str] = "tool_error"
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exception(FailureBase):
    """The handler raised something that it did not mean to. The tool's author should look.

    `traceback` holds the handler's own frames only. `stage` is import, decode, run, encode
    or flush.
    """

    kind: ClassVar[str] = "exception"
    type: str
    traceback: str
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout(FailureBase):
    """The call ran into our wall deadline. Its output so far is kept; raise `wall_s` or do less."""

    kind: ClassVar[str] = "timeout"
    limit_s: float
    elapsed_s: float
    retryable: Retryable = "maybe"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimeExceeded(FailureBase):
    """The call used up its processor time. Raise `cpu_s` or do less."""

    kind: ClassVar[str] = "cpu_time_exceeded"
    limit_s: float
    used_s: float
    evidence: Literal["rlimit", "watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputExceeded(FailureBase):
    """The call wrote more than its caller wants to hear. Write less, or raise `output_bytes`."""

    kind: ClassVar[str] = "output_exceeded"
    limit_bytes: int
    seen_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryExceeded(FailureBase):
    """The call needed more memory than it may have. Raise `memory_bytes` or work in pieces."""

    kind: ClassVar[str] = "memory_exceeded"
    limit_bytes: int
    peak_bytes: int | None
    evidence: Literal["watch", "address_space", "ru_maxrss", "cgroup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSizeExceeded(FailureBase):
    """A file grew past `file_size_bytes`. Raise it, or write several files."""

    kind: ClassVar[str] = "file_size_exceeded"
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskExceeded(FailureBase):
    """The jail's private scratch (/tmp, HOME, /dev/shm) is full. Raise `disk_bytes` or clean up."""

    kind: ClassVar[str] = "disk_exceeded"
    limit_bytes: int
    limit_files: int
    reached: Literal["bytes", "files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesExceeded(FailureBase):
    """The call wanted more processes or threads than it may have. Raise `processes`, or do less."""

    kind: ClassVar[str] = "processes_exceeded"
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyscallBlocked(FailureBase):
    """The handler was ended for a system call that no jail makes: of a foreign machine, or x32.

    `call` and `machine` are what the init saw, else "unknown". The call did not run.
    """

    kind: ClassVar[str] = "syscall_blocked"
    call: str
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(FailureBase):
    """The handler died of a signal that is not one of our limits."""

    kind: ClassVar[str] = "crashed"
    signal: str
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(FailureBase):
    """The handler's process ended without sending a result. A tool returns; it does not exit."""

    kind: ClassVar[str] = "exited"
    exit_code: int
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolError(FailureBase):
    """What came over the result channel is not one well-formed result. The tool is to blame."""

    kind: ClassVar[str] = "protocol_error"
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidOutput(FailureBase):
    """The handler returned something that is not JSON-able, or that breaks its output schema."""

    kind: ClassVar[str] = "invalid_output"
    problems: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(FailureBase):
    """The caller's scope was cancelled: a record, never a value that `call` returns."""

    kind: ClassVar[str] = "cancelled"
    blame: ClassVar[Blame] = "human"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorError(FailureBase):
    """A defect of ours or lost infrastructure. `operator_detail` is for the operator's log only."""

    kind: ClassVar[str] = "executor_error"
    blame: ClassVar[Blame] = "host"
    retryable: Retryable = "maybe"
    operator_detail: str = ""
