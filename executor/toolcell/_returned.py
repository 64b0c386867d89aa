"""What a handler returned, taken apart: the words of an untrusted tool, each checked and capped.

Light: also runs in the jail that looks at a large result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcell.markers import RETURNED

SUMMARY_CHARS_MAX: Final = 2_000
FILES_READ_MAX: Final = 10_000
OURS: Final = frozenset(
    {
        "answered_by", "attempts", "cached_from", "channel_closed", "exec_errno", "files_changed",
        "handler", "kept_back", "loop", "model_output_error", "output", "output_bytes",
        "permissions", "tracked_hidden", "unconfirmed_result", "unretained",
    }
)  # fmt: skip
"""The names in a result's metadata that are toolcell's own word. No handler speaks under them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A handler's value, and what it says about it. No word of it is trusted."""

    output: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    content: str | None = None
    """What the model sees in place of the rendered output."""
    files_read: tuple[str, ...] | None = None
    summary: str = ""
    terminate: bool = False
    """A proposal: whoever owns the loop decides."""


def said(value: Any) -> Said:
    """A `Returned`, or a handler's own result, apart; any other value is the output itself."""
    inner = value[RETURNED] if isinstance(value, Mapping) and value.keys() == {RETURNED} else None
    if not isinstance(inner, Mapping):
        return Said(output=value)
    metadata, content, read = (inner.get(name) for name in ("metadata", "content", "files_read"))
    summary = inner.get("summary")
    return Said(
        output=inner.get("output"),
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
        content=content if isinstance(content, str) else None,
        files_read=tuple(map(str, read[:FILES_READ_MAX])) if isinstance(read, list) else None,
        summary=_cut(summary) if isinstance(summary, str) else "",
        terminate=inner.get("terminate") is True,
    )


def by_handler(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A handler's metadata, with what it says under our names below "handler": not lost, not ours.

    Otherwise a tool could say of itself that nothing was cut, or that a person was asked.
    """
    found = {name: value for name, value in metadata.items() if name not in OURS}
    taken = {name: value for name, value in metadata.items() if name in OURS}
    return {**found, "handler": taken} if taken else found


def _cut(text: str) -> str:
    return text if len(text) <= SUMMARY_CHARS_MAX else f"{text[: SUMMARY_CHARS_MAX - 1]}…"
