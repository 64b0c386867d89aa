"""`make bench`: what a contained call costs, beside its peers in the same run.

`python -m tests.bench.calls` from the top of the repository; `--quick` for three minutes, `--docs`
to write the page of the documentation anew. Exit code 1 where a target is missed that must be
reached; one that could not be measured is not missed, and says so. Exit code 2 where the machine
was not ours alone: then there is no verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from toolcell_sandbox import Pool

from . import capture, growth, latency, memory, peers, plot, report, targets, throughput, work
from .figures import say
from .job import Job
from .quiet import Quiet

DOCS = Path(__file__).resolve().parents[3] / "docs"
PARTS = ("calls", "throughput", "capture", "memory", "work", "growth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything a run measures."""

    rounds: int
    burst_rounds: int
    burst_s: float
    capture_rounds: int
    capture_bytes: int
    calls: int
    work_rounds: int
    growth_rounds: int
    files_max: int


QUICK = Sizes(
    rounds=40,
    burst_rounds=2,
    burst_s=0.5,
    capture_rounds=3,
    capture_bytes=1 << 30,
    calls=1_000,
    work_rounds=5,
    growth_rounds=10,
    files_max=10_000,
)
FULL = Sizes(
    rounds=250,
    burst_rounds=4,
    burst_s=1.0,
    capture_rounds=7,
    capture_bytes=2 << 30,
    calls=10_000,
    work_rounds=15,
    growth_rounds=30,
    files_max=1_000_000,
)


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The parts that were asked for."""
    sizes = QUICK if args.quick else FULL
    rounds = args.rounds or sizes.rounds
    for name in ("ws", "scratch", "growth"):
        (folder / name).mkdir()
    job = Job(folder / "ws")
    installed = peers.Installed(args.peers, folder / "scratch")
    quiet = Quiet()
    await quiet.look()
    others = await peers.find(job, installed)
    found: dict[str, Any] = {
        "quick": args.quick,
        "machine": report.machine(),
        "peers": [peer.name for peer in others.present],
        "missing": others.missing,
    }
    try:
        async with Pool(waiting=args.waiting) as pool:
            if "calls" in args.part:
                found["job"] = await latency.job_calls(job, others, pool, rounds, quiet)
                found["true"] = await latency.true_calls(job, installed, pool, rounds, quiet)
            if "throughput" in args.part:
                found["throughput"] = await throughput.measure(
                    job,
                    others,
                    pool,
                    sizes.burst_rounds,
                    sizes.burst_s,
                    quiet,
                    all_peers=not args.quick,
                )
            if "capture" in args.part:
                found["capture"] = await capture.measure(
                    job, pool, sizes.capture_rounds, args.capture_bytes or sizes.capture_bytes
                )
            if "memory" in args.part:
                found["waiting"] = await memory.waiting(job, installed, args.waiting)
                calls = args.calls or sizes.calls
                found["growth_of_supervisor"] = await memory.growth(job, pool, calls)
            if "work" in args.part:
                found["handlers"] = await work.handlers(folder / "work", pool, sizes.work_rounds)
                found["programs"] = await work.programs(folder / "made", pool, sizes.work_rounds)
    finally:
        others.close()
    if "growth" in args.part:
        most = args.files_max or sizes.files_max
        found["growth"] = await growth.measure(folder / "growth", sizes.growth_rounds, most)
    await quiet.look()
    found["others"] = quiet.to_json()
    found["targets"] = targets.judged(found)
    return found


def arguments() -> argparse.Namespace:
    """What may be asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about three minutes")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; repeatable")
    parser.add_argument("--peers", type=Path, help="a folder that install.py has filled")
    parser.add_argument("--waiting", type=int, default=4, help="jails that wait for each spec")
    parser.add_argument("--rounds", type=int, help="of one call at a time")
    parser.add_argument("--calls", type=int, help="calls over which growth is measured")
    parser.add_argument("--capture-bytes", type=int)
    parser.add_argument("--files-max", type=int, help="of the largest workspace")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md and its plot")
    args = parser.parse_args()
    args.part = args.part or list(PARTS)
    args.peers = None if args.peers is None else args.peers.resolve()
    if args.docs and set(args.part) != set(PARTS):
        parser.error("--docs writes the whole page: leave out --part")
    return args


def main() -> int:
    """Measure, write, judge."""
    args = arguments()
    begun = time.monotonic()
    top = os.path.realpath(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="toolcell-bench-", dir=top) as folder:
        found = trio.run(measure, args, Path(folder))
    found["took_s"] = round(time.monotonic() - begun, 1)
    page = report.page(found)
    print(page)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    if args.docs and found["others"]["is_disturbed"]:
        say("the page is left as it is: a run without a verdict is none to publish")
    elif args.docs:
        (DOCS / "benchmarks.md").write_text(page)
        (DOCS / "benchmarks.svg").write_text(plot.svg(found["job"]))
    missed = [row["what"] for row in found["targets"] if row["reached"] is False]
    for what in missed:
        say(f"MISSED: {what}")
    say(f"took {found['took_s']} s")
    if found["others"]["is_disturbed"]:
        say(f"DISTURBED: others worked here meanwhile, this run proves nothing: {found['others']}")
        return 2
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
