"""Two records per call: an intent, durable before the jail starts, and one terminal.

`<state_dir>/audit.jsonl`, one object a line. One thread of the executor's writes, so that no
call waits for another's event loop; what comes together is made durable together.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import trio

FILE = "audit.jsonl"


@dataclass(eq=False)
class _Pending:
    line: bytes
    token: trio.lowlevel.TrioToken
    done: trio.Event = field(default_factory=trio.Event)
    error: OSError | None = None


class Audit:
    """The audit log of one executor, open between `start` and `stop`."""

    def __init__(self, state_dir: str) -> None:
        self.path = os.path.join(state_dir, FILE)
        self._queue: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._fd = -1
        self._is_torn = False

    @property
    def is_open(self) -> bool:
        """Whether it takes records."""
        return self._thread is not None

    def start(self) -> None:
        """Open the log, private to this user, and start its writer.

        Raises:
            OSError: the state folder cannot be made or the log cannot be opened.
        """
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self.path, flags, 0o600)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")  # A writer that was killed left half a line: close it.
        self._thread = threading.Thread(target=self._write_all, name="toolcell-audit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued, end the writer, close the log. Harmless when never started."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
            os.close(self._fd)

    async def record(
        self,
        record: Literal["intent", "terminal"],
        *,
        call_id: str,
        tool_name: str,
        kind: str | None = None,
        isolation: str | None = None,
        waived: Sequence[str] = (),
    ) -> None:
        """Return when the record is durable. Not interrupted by a cancel: it is done or it fails.

        Of an intent, `isolation` and `waived` are what was asked for; of a terminal record, what
        the receipt says, None where no jail was built or a cancel left no receipt.

        Raises:
            OSError: it could not be made durable; for an intent, the call must not run.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        entry = {
            "record": record,
            "call_id": call_id,
            "tool_name": tool_name,
            "kind": kind,
            "isolation": isolation,
            "waived": list(waived),
            "time": now,
        }
        pending = _Pending(json.dumps(entry).encode() + b"\n", trio.lowlevel.current_trio_token())
        self._queue.put(pending)
        with trio.CancelScope(shield=True):
            await pending.done.wait()
        if pending.error is not None:
            raise pending.error

    def _write_all(self) -> None:
        while True:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            records = [pending for pending in batch if pending is not None]
            error = self._write(b"".join(pending.line for pending in records))
            for pending in records:
                pending.error = error
                _tell(pending.token, pending.done.set)
            if len(records) < len(batch):
                return

    def _write(self, lines: bytes) -> OSError | None:
        """Append whole lines; what a full disk cut short is closed before the next one."""
        try:
            if lines:
                whole = b"\n" + lines if self._is_torn else lines
                written = os.write(self._fd, whole)
                self._is_torn = written != len(whole)
                if self._is_torn:
                    return OSError("the audit log's disk is full")
            os.fdatasync(self._fd)
        except OSError as error:
            return error
        return None


def _tell(token: trio.lowlevel.TrioToken, done: Callable[[], object]) -> None:
    # A loop that is gone waits for nothing; the record is written all the same.
    with contextlib.suppress(trio.RunFinishedError):
        token.run_sync_soon(done)
