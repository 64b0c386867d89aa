"""One result as each of the three kinds of agent code knows it; made by `ToolResult`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BasicResult", "PhaseResult", "SettledResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """What a phase-gated runner reads: words for the model, and what was changed.

    `files_changed` and `files_read` are None where nobody knows. `terminate` is a proposal: the
    loop's owner decides.
    """

    tool_name: str
    success: bool
    content: str
    summary: str
    error: str | None
    files_read: list[str] | None
    files_changed: list[str] | None
    terminate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicResult:
    """What a metadata-rich tool set reads: a value or an error's text."""

    success: bool
    output: Any
    error: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledResult:
    """What a scoped registry's settlement reads: the value, what a model sees, opaque handles.

    `parts` are content parts: text first, then what is not text. `handles` name what was too large
    to be shown, for `read_retained`; none of them is a path. `error` is a failure's own JSON.
    """

    value: Any
    parts: tuple[Mapping[str, Any], ...]
    handles: tuple[str, ...]
    error: Mapping[str, Any] | None
