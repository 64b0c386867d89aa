"""Which calls are tried again, and when: only what does the same twice, and may pass by itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from toolcell._agreements import Agreement
    from toolcell.results import ToolResult

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
_TRANSIENT: Final = frozenset({"commit_conflict", "executor_error"})
"""Somebody was faster, or something of ours was lost."""


def may_retry(agreement: Agreement, result: ToolResult) -> bool:
    """Whether the same call may run once more: an answer is for one run, so nothing that asked.

    Neither before it ran nor while it did.
    """
    if not agreement.plan.tool.is_idempotent or result.error is None:
        return False
    if agreement.how == "once" or "permissions" in result.metadata:
        return False
    error = result.error
    return error.kind in _TRANSIENT or (error.kind == "tool_error" and error.retryable == "yes")


def wait_s(attempt: int) -> float:
    """How long to wait before the attempt after this one (1, 2, …): doubled each time, jittered.

    Half of it by chance, so that calls that clashed do not clash again.
    """
    longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (attempt - 1))
    return longest * (0.5 + random.random() / 2)
