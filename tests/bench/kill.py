"""`make bench`: how long after its deadline a killed call returns, with 16 of them running.

Each call is a tree of eight processes that are deaf to every signal that can be ignored, half of
them in sessions of their own. The call has returned only when the tree is proven empty; that is
looked at once more from outside, by a file that each process holds locked. Prints JSON, exit
code 1 where p99 is past the bound.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio

from toolcell_sandbox import JailSpec, Limits, PythonHandler, run_in_jail

BOUND_MS = 250
PROCESSES = 8
TEMPORARY = os.path.realpath(tempfile.gettempdir())
HANDLER = f"""
import fcntl, os, signal, time

def handler(held):
    file = open(held, "r+")
    fcntl.flock(file, fcntl.LOCK_SH)
    for number in set(signal.valid_signals()) - {{signal.SIGKILL, signal.SIGSTOP}}:
        signal.signal(number, signal.SIG_IGN)
    for place in range({PROCESSES} - 1):
        if os.fork() == 0:
            if place % 2:
                os.setsid()
            break
    while True:
        time.sleep(3600)
"""


async def one(folder: Path, place: int, isolation: Any, wall_s: float) -> dict[str, object]:
    """Run one call to its deadline; what it took beyond it, and whether anybody is left."""
    workspace = folder / str(place)
    workspace.mkdir()
    (workspace / "handler.py").write_text(HANDLER)
    held = workspace / "held"
    held.touch()
    spec = JailSpec(
        workspace=str(workspace),
        workspace_mode="direct",
        isolation=isolation,
        limits=Limits(wall_s=wall_s),
    )
    handler = PythonHandler(
        module="handler",
        qualname="handler",
        file=str(workspace / "handler.py"),
        arguments={"held": str(held)},
    )
    outcome = await run_in_jail(handler, spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "timeout", outcome.failure
    with held.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_empty = True
        except BlockingIOError:
            is_empty = False
    return {"late_ms": (outcome.usage.wall_s - wall_s) * 1000, "is_empty": is_empty}


async def rounds(
    isolation: str, count: int, at_once: int, wall_s: float
) -> list[dict[str, object]]:
    """`count` rounds of `at_once` calls."""
    found: list[dict[str, object]] = []

    async def call(folder: Path, place: int) -> None:
        found.append(await one(folder, place, isolation, wall_s))

    for _ in range(count):
        with tempfile.TemporaryDirectory(dir=TEMPORARY) as folder:
            async with trio.open_nursery() as nursery:
                for place in range(at_once):
                    nursery.start_soon(call, Path(folder), place)
    return found


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser()
    levels = ["standard", "container"] + ["hardened"] * (os.geteuid() == 0)
    parser.add_argument("--isolation", choices=levels, action="append")
    parser.add_argument("--rounds", type=int, default=13)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--wall", type=float, default=3.0)
    given = parser.parse_args()
    report = {}
    for isolation in given.isolation or levels:
        started = time.monotonic()
        calls = trio.run(rounds, isolation, given.rounds, given.at_once, given.wall)
        late = sorted(float(str(call["late_ms"])) for call in calls)
        report[isolation] = {
            "calls": len(late),
            "at_once": given.at_once,
            "p50_ms": round(statistics.median(late), 1),
            "p99_ms": round(late[-1 - len(late) // 100], 1),
            "worst_ms": round(late[-1], 1),
            "bound_ms": BOUND_MS,
            "trees_left": sum(not call["is_empty"] for call in calls),
            "took_s": round(time.monotonic() - started, 1),
        }
    print(json.dumps({"kill": report}, indent=2))
    held = all(r["p99_ms"] <= BOUND_MS and not r["trees_left"] for r in report.values())
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
