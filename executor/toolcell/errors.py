"""The one exception a handler raises on purpose. Light: it is imported inside every jail."""

from __future__ import annotations

from typing import Literal

__all__ = ["ToolError"]


class ToolError(Exception):
    """An expected failure, worded for the model: "no such branch: mian; did you mean main?".

    `hint` is a second sentence on what to try instead. `retryable` is what the tool itself
    thinks: "yes", "no" or "maybe".
    """

    beside: object = None
    """What a handler's own failed `ToolResult` says beside its error, as it crosses the channel."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        retryable: Literal["yes", "no", "maybe"] = "no",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retryable = retryable
