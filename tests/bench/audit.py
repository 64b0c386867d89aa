"""`python tests/bench/audit.py [--json]`: what two records per call cost.

Calls a second, by one task and by sixteen: an intent and a terminal each, durable, with the usual
redaction; against the same tasks with a log that records nothing, in the same run. `waits` is one
task's log when each record is synced alone; sixteen share their syncs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from toolcell.audit import Audit, Intent, Terminal, redact, verify

ARGUMENTS = {"command": "pytest -q tests/unit && git status --short | head -20", "cwd": "."}
DECISION = {
    "outcome": "allow",
    "level": 1,
    "reasons": [{"code": "trusted_jail", "rule": "coding.jail", "source": "coding"}],
    "plan_hash": "0" * 64,
}
RECEIPT = {"isolation": "standard", "held": [f"guarantee_{n}" for n in range(16)], "waived": []}


class Log(Protocol):
    """What a call asks of a log."""

    async def intent(self, entry: Intent) -> int:
        """Record what is about to run."""
        ...

    async def terminal(self, entry: Terminal, *, intent: Intent | int) -> None:
        """Record how it ended."""
        ...


class Nothing:
    """A log that records nothing, after as many steps of the loop."""

    async def intent(self, entry: Intent) -> int:
        """Nothing."""
        await trio.lowlevel.checkpoint()
        return 0

    async def terminal(self, entry: Terminal, *, intent: Intent | int) -> None:
        """Nothing."""
        await trio.lowlevel.checkpoint()


async def one(log: Log, call_id: str) -> float:
    """One call's two records; seconds."""
    started = time.perf_counter()
    intent = Intent(
        call_id=call_id,
        tool_name="shell",
        session_id="session-1",
        arguments=redact(ARGUMENTS),
        workspace="/home/somebody/project",
        isolation="standard",
        network="none",
        workspace_mode="transaction",
        decision=DECISION,
        approval={"how": "not_asked", "grant": None, "waited_s": 0.0},
    )
    opened = await log.intent(intent)
    terminal = Terminal(
        call_id=call_id,
        tool_name="shell",
        kind=None,
        receipt=RECEIPT,
        exit_code=0,
        usage={"wall_s": 0.123456, "cpu_s": 0.1, "peak_memory_bytes": 12_345_678},
        effects={name: {"count": 0, "paths": []} for name in ("created", "modified", "deleted")},
    )
    await log.terminal(terminal, intent=opened)
    return time.perf_counter() - started


async def by(log: Log, tasks: int, calls: int) -> dict[str, Any]:
    """So many tasks at once, so many calls in all."""
    took: list[float] = []

    async def task(name: str) -> None:
        for number in range(calls // tasks):
            took.append(await one(log, f"call_{name}_{number:028x}"))

    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(task, str(number))
    whole_s = time.perf_counter() - started
    return {
        "calls_per_s": round(len(took) / whole_s),
        "per_call_us": round(whole_s / len(took) * 1e6),
        "latency_p50_us": round(statistics.median(took) * 1e6),
        "latency_p99_us": round(sorted(took)[-1 - len(took) // 100] * 1e6),
    }


async def measured(state: str, calls: int) -> dict[str, Any]:
    """Each with and without, in turn."""
    audit = Audit(state)
    started = time.perf_counter()
    audit.start()
    report: dict[str, Any] = {"start_ms": round((time.perf_counter() - started) * 1e3, 1)}
    await by(audit, 1, 10)
    for tasks in (1, 16):
        on, off = await by(audit, tasks, calls), await by(Nothing(), tasks, calls)
        ratio = round(on["per_call_us"] / max(off["per_call_us"], 1), 1)
        report[f"tasks_{tasks}"] = {"on": on, "off": off, "on_by_off": ratio}
    started = time.perf_counter()
    audit.stop()
    report["stop_ms"] = round((time.perf_counter() - started) * 1e3, 1)
    return report


def timed(work: Callable[[], object], times: int) -> float:
    """Microseconds of one."""
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times * 1e6


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=1_600)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = os.path.join(folder, "state")
        run: Callable[[str, int], Awaitable[dict[str, Any]]] = measured
        report = trio.run(run, state, given.calls)
        started = time.perf_counter()
        verdict = verify(state)
        verified_s = time.perf_counter() - started
        assert verdict.ok, verdict
        size = os.stat(os.path.join(state, "audit.sqlite")).st_size
    report["bytes_per_call"] = round(size / (verdict.records / 2))
    report["verified_records_per_s"] = round(verdict.records / verified_s)
    report["redact_us"] = round(timed(lambda: redact(ARGUMENTS), 2_000))
    if given.json:
        print(json.dumps({"audit": report}))
    else:
        print(json.dumps({"audit": report}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
