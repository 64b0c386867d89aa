"""Two records per call: an intent, durable before the jail starts, and exactly one terminal.

`<state_dir>/audit.sqlite`, one chain of hashes for all processes that share the folder. What is
recorded is in `_audit_records`, the chain in `_audit_chain`, the file in `_audit_store`, who
writes and the reserve in `_audit_runs` and `_audit_writer`; docs/audit.md says what it promises.
"""

from __future__ import annotations

import os
from typing import Final

import trio

from toolcell._audit_chain import Verdict
from toolcell._audit_read import read, verify
from toolcell._audit_records import (
    ABANDONED,
    Intent,
    Terminal,
    body_of,
    decision_facts,
    terminal_of,
)
from toolcell._audit_redact import redact
from toolcell._audit_store import FILE
from toolcell._audit_writer import Job, Writer

__all__ = [
    "ABANDONED",
    "FILE",
    "Audit",
    "Intent",
    "Terminal",
    "Verdict",
    "decision_facts",
    "read",
    "redact",
    "terminal_of",
    "verify",
]

WAIT_S: Final = 5.0
"""How long a record waits for another process to let go of the log."""


class Audit:
    """The audit log of one executor, open between `start` and `stop`."""

    def __init__(self, state_dir: str, *, wait_s: float = WAIT_S) -> None:
        self.path = os.path.join(os.path.abspath(state_dir), FILE)
        self._wait_s = wait_s
        self._writer: Writer | None = None

    @property
    def is_open(self) -> bool:
        """Whether it takes records."""
        return self._writer is not None

    def start(self) -> None:
        """Open the log, private to this user; close calls that a killed executor left open.

        Those get a terminal of kind "abandoned". A living executor's calls are never closed.

        Raises:
            OSError: the state folder, the log or its reserve cannot be had; says what to do.
        """
        if self._writer is None:
            self._writer = Writer.start(os.path.dirname(self.path), wait_s=self._wait_s)

    def stop(self) -> None:
        """Write what is queued, end the writer, close the log. Harmless when never started."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()

    async def intent(self, entry: Intent) -> int:
        """Record what is about to run; durable, and with a place for its terminal, on return.

        Returns the number that its terminal needs. Not interrupted by a cancel: it is done or
        it fails.

        Raises:
            OSError: it could not be made durable; the call must not run.
        """
        return await self._record(intent=entry)

    async def terminal(self, entry: Terminal, *, intent: Intent | int) -> None:
        """Record how a call ended; durable on return. Not interrupted by a cancel.

        `intent` is the number that `intent()` gave, or, for a call that ended before anything
        was recorded of it, the intent itself: both are then written in one transaction.

        Raises:
            OSError: it could not be made durable, or that call has a terminal already.
        """
        if isinstance(intent, Intent):
            await self._record(intent=intent, terminal=entry)
        else:
            await self._record(terminal=entry, opened=intent)

    async def _record(
        self, *, intent: Intent | None = None, terminal: Terminal | None = None, opened: int = 0
    ) -> int:
        if self._writer is None:
            raise OSError("the audit log is not open")
        job = Job(
            token=trio.lowlevel.current_trio_token(),
            intent=None if intent is None else body_of(intent),
            terminal=None if terminal is None else body_of(terminal),
            opened=opened,
        )
        self._writer.put(job)
        with trio.CancelScope(shield=True):
            await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.opened
