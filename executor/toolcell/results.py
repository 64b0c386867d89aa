"""How a call ended: one `ToolResult`, whose `error` is one member of the `Failure` union."""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from toolcell.views import BasicResult, PhaseResult, SettledResult
from toolcell_sandbox.changeset import path_json
from toolcell_sandbox.failures import (
    Blame,
    Cancelled,
    ConfinementFailed,
    CpuTimeExceeded,
    Crashed,
    DiskExceeded,
    Exception,
    ExecutorError,
    Exited,
    FailureBase,
    FileSizeExceeded,
    InvalidOutput,
    MemoryExceeded,
    OutputExceeded,
    ProcessesExceeded,
    ProtocolError,
    Retryable,
    SyscallBlocked,
    Timeout,
    ToolError,
)

if TYPE_CHECKING:
    from toolcell_policies.decision import Decision, Reason
    from toolcell_sandbox.capture import Captured
    from toolcell_sandbox.outcome import Receipt, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownTool(FailureBase):
    """No tool has this name or alias. Call one of `nearest`, or list the tools."""

    kind: ClassVar[str] = "unknown_tool"
    blame: ClassVar[Blame] = "model"
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDisabled(FailureBase):
    """The tool exists and is switched off. Only the caller can switch it on."""

    kind: ClassVar[str] = "tool_disabled"
    blame: ClassVar[Blame] = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUnavailable(FailureBase):
    """The tool says that it cannot run here and now: its availability check said no, or raised."""

    kind: ClassVar[str] = "tool_unavailable"
    blame: ClassVar[Blame] = "host"
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStale(FailureBase):
    """The tool is another one since it was shown to whoever calls. Take a new snapshot."""

    kind: ClassVar[str] = "tool_stale"
    blame: ClassVar[Blame] = "host"
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailed(FailureBase):
    """A critical hook raised. `effect_happened` says whether what the call did was kept."""

    kind: ClassVar[str] = "hook_failed"
    blame: ClassVar[Blame] = "host"
    hook: str
    stage: Literal["before", "after"]
    effect_happened: bool
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidArguments(FailureBase):
    """The arguments break the tool's schema. Correct the fields named in `problems`, call again.

    `problems` hold path, message and given type; `valid_names` every argument that exists.
    """

    kind: ClassVar[str] = "invalid_arguments"
    blame: ClassVar[Blame] = "model"
    retryable: Retryable = "yes"
    problems: tuple[dict[str, str], ...] = ()
    valid_names: tuple[str, ...] = ()
    repairs: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied(FailureBase):
    """Policy forbids this call. Repeating it will not help; `remedy` says what would, if any."""

    kind: ClassVar[str] = "denied"
    blame: ClassVar[Blame] = "policy"
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAdmitted(FailureBase):
    """The mode, the phase, the kind of task or a ceiling leaves this call out.

    `layers` names which, and `remedy` what would admit it. Nobody's approval does.
    """

    kind: ClassVar[str] = "not_admitted"
    blame: ClassVar[Blame] = "policy"
    layers: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRejected(FailureBase):
    """A person said no. Do not ask for the same again; `why` is what they answered."""

    kind: ClassVar[str] = "approval_rejected"
    blame: ClassVar[Blame] = "human"
    retryable: Retryable = "maybe"
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalTimeout(FailureBase):
    """Nobody answered in time."""

    kind: ClassVar[str] = "approval_timeout"
    blame: ClassVar[Blame] = "human"
    retryable: Retryable = "maybe"
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalUnavailable(FailureBase):
    """There is nobody to ask, or asking failed. Configure an approver; see `remedy`."""

    kind: ClassVar[str] = "approval_unavailable"
    blame: ClassVar[Blame] = "host"
    retryable: Retryable = "maybe"
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsRefused(FailureBase):
    """What the call did to the workspace breaks a rule, so none of it was kept.

    Do without what `paths` names: each has its path, rule, code and text. Where the caller parks
    refused changes, `handle` names them for `toolcell effects show|commit`.
    """

    kind: ClassVar[str] = "effects_refused"
    blame: ClassVar[Blame] = "policy"
    paths: tuple[dict[str, str | None], ...] = ()
    handle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsRejected(FailureBase):
    """A person saw what the call changed and said no, so none of it was kept. Do not redo it."""

    kind: ClassVar[str] = "effects_rejected"
    blame: ClassVar[Blame] = "human"
    retryable: Retryable = "maybe"
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitConflict(FailureBase):
    """Somebody changed the same files meanwhile, so nothing was kept. Look again, then retry."""

    kind: ClassVar[str] = "commit_conflict"
    blame: ClassVar[Blame] = "host"
    retryable: Retryable = "yes"
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What was left out of `content`, exactly: `total == kept + omitted`, in lines and in bytes."""

    total_bytes: int
    kept_bytes: int
    omitted_bytes: int
    total_lines: int
    kept_lines: int
    omitted_lines: int

    def to_json(self) -> dict[str, int]:
        """The six counts."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """Something that was too large to be shown, kept whole; `read_retained` reads it in pages.

    `handle` is opaque and means nothing outside of the session that made it. `what` is "content",
    "output", "stdout" or "stderr".
    """

    handle: str
    what: str
    size_bytes: int
    media_type: str = "text/plain"

    def to_json(self) -> dict[str, Any]:
        """Its four fields."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a call changed in its workspace and was kept, by path, relative and POSIX style.

    `refused` is what was left out, or all that was refused: path, code, rule and text of each.
    Names that are no UTF-8 are decoded with surrogateescape (os.fsencode gives them back).
    """

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    refused: tuple[dict[str, str | None], ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is other than it was."""
        return (*self.created, *self.modified, *self.deleted)

    def to_json(self) -> dict[str, Any]:
        """Lists of `{"path"}`, or `{"path_base64"}` where a name is no UTF-8."""
        found: dict[str, Any] = {
            name: [path_json(path) for path in getattr(self, name)]
            for name in ("created", "modified", "deleted")
        }
        return found | {
            "refused": [
                {
                    **({} if one["path"] is None else path_json(one["path"])),
                    **{name: value for name, value in one.items() if name != "path"},
                }
                for one in self.refused
            ]
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Whether edits that were to be transient net out to nothing: `ok` only where that is proven.

    `effects` is what is left of them; None where calls changed the workspace in place, which
    nobody observed, so nothing can be said.
    """

    effects: Effects | None

    @property
    def ok(self) -> bool:
        """Whether nothing is left."""
        return self.effects is not None and not self.effects.paths

    @property
    def text(self) -> str:
        """What a model is told."""
        if self.effects is None:
            return "whether all edits were taken back cannot be told: calls changed files in place"
        left = self.effects.paths
        if not left:
            return "all edits were taken back"
        named = ", ".join(map(_shown, left[:20])) + (", …" if len(left) > 20 else "")
        return f"still to be taken back ({len(left)}): {named}"


__all__ = [
    "ApprovalRejected",
    "ApprovalTimeout",
    "ApprovalUnavailable",
    "Cancelled",
    "CommitConflict",
    "ConfinementFailed",
    "CpuTimeExceeded",
    "Crashed",
    "Denied",
    "DiskExceeded",
    "Effects",
    "EffectsRefused",
    "EffectsRejected",
    "Exception",
    "ExecutorError",
    "Exited",
    "Failure",
    "FileSizeExceeded",
    "HookFailed",
    "InvalidArguments",
    "InvalidOutput",
    "MemoryExceeded",
    "NotAdmitted",
    "OutputExceeded",
    "ProcessesExceeded",
    "ProtocolError",
    "Retained",
    "SyscallBlocked",
    "Timeout",
    "ToolDisabled",
    "ToolError",
    "ToolResult",
    "ToolStale",
    "ToolUnavailable",
    "Truncation",
    "UnknownTool",
    "Verification",
]

Failure = (
    UnknownTool
    | ToolDisabled
    | ToolUnavailable
    | ToolStale
    | InvalidArguments
    | HookFailed
    | NotAdmitted
    | Denied
    | ApprovalRejected
    | ApprovalTimeout
    | ApprovalUnavailable
    | ConfinementFailed
    | ToolError
    | Exception
    | Timeout
    | CpuTimeExceeded
    | MemoryExceeded
    | FileSizeExceeded
    | DiskExceeded
    | OutputExceeded
    | ProcessesExceeded
    | SyscallBlocked
    | Crashed
    | Exited
    | ProtocolError
    | InvalidOutput
    | EffectsRefused
    | EffectsRejected
    | CommitConflict
    | Cancelled
    | ExecutorError
)
"""Why a call did not succeed: one of these, told apart by `kind`, each with its own evidence."""


_DEFAULTS: dict[str, Any] = {
    "call_id": "",
    "tool_name": "",
    "success": True,
    "content": "",
    "output": None,
    "summary": "",
    "error": None,
    "metadata": {},
    "exit_code": None,
    "files_read": None,
    "files_changed": None,
    "effects": None,
    "terminate": False,
    "repairs": (),
    "stdout": None,
    "stderr": None,
    "usage": None,
    "decision": None,
    "receipt": None,
    "truncation": None,
    "retained": (),
    "parts": (),
}
_BY_SUCCESS = ("success", "output", "error", "metadata")
_BY_NAME = (
    "tool_name",
    "success",
    "content",
    "summary",
    "error",
    "files_read",
    "files_changed",
    "terminate",
)


@dataclass(frozen=True, slots=True, init=False)
class ToolResult:
    """What one call came to. `error` is None exactly when `success` is true.

    `content` is all that the model sees; `output` is the handler's value. `exit_code` is the
    command's, None for Python handlers: a nonzero one is still a success, so see `ok`.
    `files_changed` are the paths of `effects`, what was observed and kept; None where nobody
    observed it (a workspace changed in place). `files_read` is what a built-in tool says that it
    read; None where nobody knows.

    A handler may return one as well, in the words that its author knows: keywords, or
    `ToolResult(success, output, error, metadata)`, a bool first, or `ToolResult(tool_name,
    success, content, summary, error, files_read, files_changed, terminate)`, a name first. An
    error that is text is a `ToolError`; a failure without one is its content. Where no `call_id` is
    given, `files_read` and `files_changed` are empty lists until said otherwise.

    Raises:
        TypeError: a field is given twice, or there is none of that name; or no `success`.
        ValueError: a success with an error.
    """

    call_id: str
    tool_name: str
    success: bool
    content: str
    output: Any
    summary: str
    error: Failure | None
    metadata: Mapping[str, Any]
    exit_code: int | None
    files_read: tuple[str, ...] | None
    files_changed: tuple[str, ...] | None
    effects: Effects | None
    terminate: bool
    repairs: tuple[dict[str, str], ...]
    stdout: Captured | None
    stderr: Captured | None
    usage: Usage | None
    decision: Decision | None
    receipt: Receipt | None
    truncation: Truncation | None
    retained: tuple[Retained, ...]
    parts: tuple[Mapping[str, Any], ...]
    """What is not text, as content parts: `{"type": "image", "mime_type", "data" (base64)}`."""

    def __init__(self, *words: Any, **given: Any) -> None:
        order = _BY_SUCCESS if words and isinstance(words[0], bool) else _BY_NAME
        if len(words) > len(order):
            raise TypeError(f"ToolResult takes at most {len(order)} values in order")
        named = dict(zip(order, words, strict=False))
        unknown = (given.keys() - _DEFAULTS.keys()) | (named.keys() & given.keys())
        if unknown:
            raise TypeError(f"ToolResult: {min(unknown)!r} is no field, or is given twice")
        if "success" not in named and "success" not in given:
            raise TypeError("ToolResult: success is missing")
        # What a handler writes has no call_id; its author knows the two lists as empty ones.
        own: dict[str, Any] = {} if "call_id" in given else {"files_read": [], "files_changed": []}
        found = _DEFAULTS | own | named | given
        if not isinstance(found["success"], bool):
            raise TypeError("ToolResult: success is a bool")
        if not found["success"] and not isinstance(found["error"], FailureBase):
            said = found["error"] or found["content"] or "the tool reported a failure"
            found["error"] = ToolError(message=str(said))
        if found["success"] and found["error"] is not None:
            raise ValueError("a result has an error exactly when it is not a success")
        found["metadata"] = dict(found["metadata"] or {})
        for name in _DEFAULTS:
            object.__setattr__(self, name, found[name])

    @property
    def error_text(self) -> str:
        """The error's message; empty for a success."""
        return "" if self.error is None else self.error.message

    @property
    def ok(self) -> bool:
        """Success, and the command, if there was one, returned 0."""
        return self.success and self.exit_code in (None, 0)

    def as_phase(self) -> PhaseResult:
        """The view whose fields are `content`, `summary`, `files_changed` and `terminate`."""
        read, changed = self.files_read, self.files_changed
        return PhaseResult(
            tool_name=self.tool_name,
            success=self.success,
            content=self.content,
            summary=self.summary,
            error=self.error_text or None,
            files_read=None if read is None else list(read),
            files_changed=None if changed is None else list(changed),
            terminate=self.terminate,
        )

    def as_basic(self) -> BasicResult:
        """The view of success, value, error text and metadata."""
        return BasicResult(
            success=self.success,
            output=self.output,
            error=self.error_text or None,
            metadata=dict(self.metadata),
        )

    def as_settled(self) -> SettledResult:
        """The view of structured value, content parts and opaque handles."""
        text = ({"type": "text", "text": self.content},) if self.content else ()
        return SettledResult(
            value=self.output,
            parts=(*text, *self.parts),
            handles=tuple(one.handle for one in self.retained),
            error=None if self.error is None else self.error.to_json(),
        )

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints, schema 1."""
        return {
            "schema": 1,
            "call_id": self.call_id,
            "tool_name": self.tool_name,
            "success": self.success,
            "ok": self.ok,
            "content": self.content,
            "output": self.output,
            "summary": self.summary,
            "error": None if self.error is None else self.error.to_json(),
            "metadata": dict(self.metadata),
            "exit_code": self.exit_code,
            "files_read": None if self.files_read is None else list(map(_shown, self.files_read)),
            "files_changed": None
            if self.files_changed is None
            else list(map(_shown, self.files_changed)),
            "effects": None if self.effects is None else self.effects.to_json(),
            "terminate": self.terminate,
            "repairs": list(self.repairs),
            "stdout": None if self.stdout is None else stream_json(self.stdout),
            "stderr": None if self.stderr is None else stream_json(self.stderr),
            "usage": None if self.usage is None else self.usage.to_json(),
            "decision": None if self.decision is None else self.decision.to_json(),
            "receipt": None if self.receipt is None else self.receipt.to_json(),
            "truncation": None if self.truncation is None else self.truncation.to_json(),
            "retained": [one.to_json() for one in self.retained],
            "parts": [dict(part) for part in self.parts],
        }


def _shown(path: str) -> str:
    """A path as text that JSON can hold, whatever bytes its names are made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def stream_json(stream: Captured) -> dict[str, Any]:
    """One captured stream as JSON: text, raw bytes where they are not UTF-8, exact counts."""
    shown: dict[str, Any] = {"text": stream.text()}
    if not stream.is_utf8:
        shown["base64"] = base64.b64encode(stream.kept).decode("ascii")
    return shown | {
        "kept_bytes": stream.kept_bytes,
        "head_bytes": stream.head_bytes,
        "tail_bytes": stream.tail_bytes,
        "seen_bytes": stream.seen_bytes,
        "lost_bytes": stream.lost_bytes,
        "closed": stream.closed,
    }
