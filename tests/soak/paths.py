"""Paths that are swapped while they are used: `python tests/soak/paths.py --checks 10000 --seed N`.

Half of the checks in this process, half in jails, in every spelling (`tests/jail/path_races.py`),
then calls by the whole road while this process swaps on the host. Prints one page; exits 0 when
nothing outside was read or written, each race was one, and the naive control was led astray.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import trio

from toolcell import Executor
from toolcell.approval import unsafe_approve_all

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "jail"))

import path_races  # type: ignore[import-not-found] # a script beside the tests

CHECKS_IN_ONE_JAIL: Final = 2_500
CHECKS_FOR_A_CALL: Final = 100
"""A call by the whole road is made for as many checks."""
ENDS: Final = {"none", "denied", "tool_error", "confinement_failed"}


class Report:
    """One page, and whether all of it is good."""

    def __init__(self) -> None:
        self.good = True

    def line(self, text: str, *, good: bool = True) -> None:
        """One line of it."""
        self.good = self.good and good
        print(text if good else f"{text}   <── WRONG", flush=True)

    def race(self, name: str, told: dict[str, Any]) -> None:
        """What a race came to."""
        counts = ", ".join(f"{told[what]:,} {what}" for what in ("denied", "done", "refused"))
        wrong = told["wrong"]
        self.line(
            f"  {name}: {told['checks']:,} checks: {counts}, {len(wrong)} wrong", good=not wrong
        )
        for found in wrong[:3]:
            print(f"    {found}")
        was_one = told["checks"] < 500 or min(told["denied"], told["done"]) > told["checks"] // 50
        self.line("    let through and denied, both many times", good=was_one)

    def control(self, name: str, told: dict[str, Any]) -> None:
        """What the naive way came to: a race that it wins is none."""
        wrong = told["wrong"]
        first = f"first astray within {told['checks']:,} checks" if wrong else "never astray"
        self.line(f"  {name}, control, the name opened again: {first}", good=bool(wrong))


def here(report: Report, folder: Path, checks: int, seed: int) -> None:
    """In this process."""
    report.line(f"in this process, seed {seed}")
    spellings = {"usual": path_races.PLAIN, "other": path_races.ODD}
    for number, (name, spelling) in enumerate(spellings.items()):
        for naive in (True, False):
            place = folder / f"{name}-{naive}"
            (place / "ws").mkdir(parents=True)
            count = 50_000 if naive else checks // 2
            told = path_races.raced(
                str(place / "ws"), str(place / "out"), count, seed + number, spelling, naive=naive
            )
            (report.control if naive else report.race)(f"{name} spelling", told)


async def in_jails(report: Report, folder: Path, checks: int, seed: int) -> None:
    """The same code as the tool `python`, on a jail's own layer."""
    report.line("in jails")
    ws = folder / "jailed"
    ws.mkdir()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    naive = {"checks": 0, "wrong": []}
    async with _box(ws, folder) as box:
        for start in range(0, checks, CHECKS_IN_ONE_JAIL):
            count = min(CHECKS_IN_ONE_JAIL, checks - start)
            code = path_races.program(str(ws), count, seed + start)
            result = await box.call("python", {"code": code})
            if not result.success:
                report.line(f"  {result.content[:300]}", good=False)
                continue
            *told, naive = result.output["value"]
            for one in told:
                wrong += one.pop("wrong")
                counts.update(one)
    report.race("both spellings", {**counts, "wrong": wrong} if counts else _NOTHING)
    report.control("usual spelling", naive)


_NOTHING: Final = {"checks": 0, "denied": 0, "done": 0, "refused": 0, "wrong": ["no jail ran"]}


async def by_the_whole_road(report: Report, folder: Path, calls: int, seed: int) -> None:
    """Real calls, while this process swaps what they name."""
    ws = folder / "swapped"
    ws.mkdir()
    ground = path_races.Ground(str(ws), str(folder / "swapped-out"), seed)
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    wrong = 0
    async with _box(ws, folder) as box:
        with ground.swapping():
            for _ in range(calls):
                ground.hot = rng.choice(list(ground.ways))
                path = rng.choice((*path_races.PLAIN, *path_races.ODD)).format(ground.hot, ws=ws)
                result = await box.call("read_file", {"path": path})
                said = json.dumps(result.to_json())
                wrong += "BESIDE" in said or "SECRET" in said
                ends["none" if result.error is None else result.error.kind] += 1
    counts = ", ".join(f"{count} {name}" for name, count in ends.most_common())
    report.line(f"{calls} calls while the host swaps: {counts}", good=set(ends) <= ENDS)
    report.line(f"  told what lies outside or is protected: {wrong}", good=not wrong)


def _box(ws: Path, folder: Path) -> Executor:
    return Executor(workspace=ws, state_dir=folder / "state", approver=unsafe_approve_all)


def main() -> int:
    """All of it; the exit code."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--checks", type=int, default=10_000)
    words.add_argument("--seed", type=int, default=None)
    told = words.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if told.seed is None else told.seed
    report = Report()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name).resolve()
        here(report, folder, told.checks // 2, seed)
        os.chdir("/")
        trio.run(in_jails, report, folder, told.checks - told.checks // 2, seed)
        calls = max(4, told.checks // CHECKS_FOR_A_CALL)
        trio.run(by_the_whole_road, report, folder, calls, seed)
    report.line(f"{told.checks:,} checks in {time.monotonic() - began:.0f} s, seed {seed}")
    report.line("no wrong allow" if report.good else "A PROMISE WAS BROKEN")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
