"""The one thread of an executor that writes: what comes together is made durable together.

A transaction that fails keeps none of its intents, so none of those calls runs; the terminals in
it go to the slots that their intents took, and into the chain with the next transaction.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from toolcell._audit_records import closing
from toolcell._audit_runs import Run, Waiting, gone_runs, remove_runs
from toolcell._audit_store import RUNS, Chain, OpenCall, Store, own_folder

__all__ = ["Job", "Writer"]

BATCH_MAX: Final = 256


@dataclass(eq=False, kw_only=True)
class Job:
    """What one call wants recorded at once: its intent, its terminal, or both."""

    token: trio.lowlevel.TrioToken
    intent: Mapping[str, Any] | None = None
    terminal: Mapping[str, Any] | None = None
    opened: int = 0
    """The number of the intent: given with a terminal alone, found with an intent."""
    slot: int | None = None
    error: OSError | None = None
    done: trio.Event = field(default_factory=trio.Event)


class Writer:
    """The log of one running executor, from its start to its stop."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        # Each call that has an intent and no terminal: its id, and the slot that is kept for it.
        self._open: dict[int, tuple[Any, int]] = {}
        self._waiting: dict[int, Waiting] = {}
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="toolcell-audit", daemon=True)

    @classmethod
    def start(cls, state_dir: str, *, wait_s: float) -> Writer:
        """Open the log, close what killed executors left open, and begin to write.

        Raises:
            OSError: the folder, the log or the reserve cannot be had, or what was left open
                cannot be closed.
        """
        own_folder(state_dir, may_be_link=True)
        runs = os.path.join(state_dir, RUNS)
        own_folder(runs, may_be_link=False)
        store = Store.open(state_dir, wait_s=wait_s)
        try:
            run = _registered(store, runs)
        except BaseException:
            store.close()
            raise
        writer = cls(store, run)
        writer._thread.start()
        return writer

    def put(self, job: Job) -> None:
        """Have it written; its event is set when it is durable, or failed."""
        self._queue.put(job)

    def stop(self) -> None:
        """Write what is queued, end the thread, close the log.

        Terminals that still cannot be written stay in the reserve, for the next start.
        """
        self._queue.put(None)
        self._thread.join()
        if self._waiting:
            with contextlib.suppress(OSError):
                self._write([])
        self._run.close(remove=not self._waiting)
        with contextlib.suppress(sqlite3.Error):
            self._store.close()

    # -- the thread -----------------------------------------------------------------------

    def _write_all(self) -> None:
        is_last = False
        while not is_last:
            batch = [self._queue.get()]
            while len(batch) < BATCH_MAX and not self._queue.empty():
                batch.append(self._queue.get())
            jobs = [job for job in batch if job is not None]
            is_last = len(jobs) < len(batch)
            try:
                if jobs:
                    self._batch(jobs)
            except Exception as error:  # noqa: BLE001  # nobody may wait for ever for our own defect
                for job in jobs:
                    job.error = job.error or OSError(f"the audit log failed: {error!r}")
            for job in jobs:
                _tell(job.token, job.done.set)

    def _batch(self, jobs: list[Job]) -> None:
        for job in jobs:
            try:
                self._prepare(job)
            except OSError as error:
                job.error = error
        sound = [job for job in jobs if job.error is None]
        try:
            self._write(sound)
        except OSError as error:
            for job in sound:
                self._failed(job, error)
        else:
            for job in sound:
                self._written(job)

    def _prepare(self, job: Job) -> None:
        if job.terminal is None:
            job.slot = self._run.take()
            return
        if job.intent is None:
            found = self._open.get(job.opened)
            if found is None:
                raise OSError(f"the audit log has no open call {job.opened} of this executor")
            call_id, job.slot = found
        else:
            call_id = job.intent["call_id"]
        if call_id != job.terminal["call_id"]:
            job.slot = None
            raise OSError("the audit log takes no terminal of one call for another's intent")

    def _write(self, jobs: list[Job]) -> None:
        with self._store.transaction() as chain:
            for waiting in self._waiting.values():
                chain.terminal(waiting.body, waiting.intent)
            for job in jobs:
                self._append(chain, job)
            self._run.check_place()
        for slot in self._waiting:
            self._run.give_back(slot, written=True)
        self._waiting.clear()

    def _append(self, chain: Chain, job: Job) -> None:
        if job.intent is not None:
            job.opened = chain.intent(job.intent, self._run.name)
        if job.terminal is not None and not chain.terminal(job.terminal, job.opened):
            job.error = OSError("the audit log says that this call was closed before")

    def _written(self, job: Job) -> None:
        if job.slot is None:
            return
        if job.intent is not None:
            self._open[job.opened] = (job.intent["call_id"], job.slot)
        else:
            del self._open[job.opened]
            self._run.give_back(job.slot)

    def _failed(self, job: Job, error: OSError) -> None:
        job.error = error
        if job.slot is None:
            return
        if job.terminal is None:
            self._run.give_back(job.slot)
            return
        waiting = Waiting(job.opened, dict(job.terminal))
        try:
            self._run.write(job.slot, waiting)
        except OSError as worse:
            job.error = worse
            return
        # Durable, so the call has its end; the slot stays taken until the chain has it too.
        del self._open[job.opened]
        self._waiting[job.slot] = waiting
        job.error = None


def _registered(store: Store, runs: str) -> Run:
    """Take a place among the running, and close what those left open who are gone."""
    run: Run | None = None
    try:
        with contextlib.ExitStack() as held:
            with store.transaction() as chain:
                run = Run.register(runs)
                gone, living = held.enter_context(gone_runs(runs, run.name))
                for waiting in sorted(
                    (one for ones in gone.values() for one in ones),
                    key=lambda one: str(one.body.get("time")),
                ):
                    chain.terminal(waiting.body, waiting.intent)
                for call in chain.open_calls():
                    if call.run not in living:
                        chain.terminal(_closing(call), call.intent)
            # Durable now; they are locked until they are gone.
            remove_runs(runs, gone)
    except BaseException:
        if run is not None:
            run.close(remove=True)
        raise
    return run


def _closing(call: OpenCall) -> dict[str, Any]:
    try:
        told = json.loads(call.body)
        return closing(told["call_id"], told["tool_name"])
    except (ValueError, TypeError, KeyError, RecursionError):
        # Somebody changed it, which `verify` says; it is closed all the same.
        return closing(call.call_id, "")


def _tell(token: trio.lowlevel.TrioToken, done: Callable[[], object]) -> None:
    # A loop that is gone waits for nothing; the record is written all the same.
    with contextlib.suppress(trio.RunFinishedError):
        token.run_sync_soon(done)
