"""Transactions for a long time: `python tests/soak/transactions.py --kills 300 --seed N`.

Kills as many calls as it is told, at random moments of run and commit (see
`tests/jail/killed_transactions.py`), has random calls run against the plain-folder model, and one
call make 100,000 files and another remove them. Prints one page; exits 0 when every promise held
and each phase was hit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

JAIL: Final = Path(__file__).resolve().parents[1] / "jail"
FILES: Final = 100_000
GROWTH_BYTES_MAX: Final = 200 << 20
PHASES: Final = {
    "fell": ("before", "undone", "finished", "after"),
    "stage": ("none", "planned", "committing", "applied"),
    "victim": ("supervisor", "zygote", "init", "worker"),
    "way": ("doctor", "executor"),
}

MANY: Final = """
import json, sys
from pathlib import Path
import trio
from toolcell import Executor, Limits
from toolcell.approval import unsafe_approve_all

def memory(field):
    text = Path("/proc/self/status").read_text()
    return int(text.partition(field + ":")[2].split()[0]) << 10

async def main(what, ws, state, files):
    limits = Limits(wall_s=600, disk_files=2 * files + 1000, disk_bytes="4G", memory_bytes="4G")
    make = (
        "import os\\nfor n in range(100):\\n    os.makedirs(f'many/{n}')\\n"
        f"for n in range({files}): open(f'many/{{n % 100}}/{{n}}', 'w').write(str(n))"
    )
    code = make if what == "created" else "import shutil; shutil.rmtree('many')"
    async with Executor(
        workspace=ws, state_dir=state, approver=unsafe_approve_all, limits=limits
    ) as box:
        await box.call("python", {"code": f"open('one', 'w').write({what!r})"})
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        began = trio.current_time()
        result = await box.call("python", {"code": code})
        print(json.dumps({
            "what": what,
            "kind": None if result.error is None else result.error.kind,
            "said": result.content[:300],
            "told": len(getattr(result.effects, what)),
            "seconds": round(trio.current_time() - began, 1),
            "there": sum(1 for path in Path(ws).rglob("*") if path.is_file()) - 1,
            "growth_bytes": memory("VmHWM") - before,
        }), flush=True)

trio.run(main, *sys.argv[1:4], int(sys.argv[4]))
"""


class Report:
    """One page, and whether all of it is good."""

    def __init__(self) -> None:
        self.good = True

    def line(self, text: str, *, good: bool = True) -> None:
        """One line of it."""
        self.good = self.good and good
        print(text if good else f"{text}   <── WRONG", flush=True)


def kills(report: Report, folder: Path, count: int, seed: int) -> None:
    """Calls that are cut off."""
    began = time.monotonic()
    argv = [sys.executable, str(JAIL / "killed_transactions.py"), str(folder), str(count)]
    rounds: list[dict[str, Any]] = []
    with subprocess.Popen([*argv, str(seed)], stdout=subprocess.PIPE, text=True) as killer:
        assert killer.stdout is not None
        learned = json.loads(killer.stdout.readline() or "{}")
        for line in killer.stdout:
            rounds.append(json.loads(line))
            if rounds[-1]["wrong"]:
                report.line(f"  round {rounds[-1]}", good=False)
    report.line(f"kills: {len(rounds)} of {count} in {time.monotonic() - began:.0f} s, seed {seed}")
    report.line(f"  a call that nobody kills: {learned}")
    report.line(f"  exit code of the killer {killer.returncode}", good=killer.returncode == 0)
    report.line("  all rounds were run", good=len(rounds) == count)
    # Few kills cannot hit every phase; then they are only told.
    demanded = count >= 100
    for field, wanted in PHASES.items():
        found = Counter(one[field] for one in rounds)
        good = not demanded or all(found[name] for name in wanted)
        told = ", ".join(f"{name} {found[name]}" for name in wanted)
        report.line(f"  {field:7} {told}", good=good)
    wrong = sum(bool(one["wrong"]) for one in rounds)
    report.line(f"  neither wholly before nor wholly after, or not clean: {wrong}", good=not wrong)


def model(report: Report, folder: Path, examples: int) -> None:
    """Random calls against a plain folder; the failing one is printed by pytest."""
    began = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"),
            *("-o", "faulthandler_timeout=0", f"--basetemp={folder / 'model'}"),
            str(JAIL / "test_transactions_model.py"),
        ],
        env={**os.environ, "TOOLCELL_MODEL_EXAMPLES": str(examples)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = next((line for line in done.stdout.splitlines() if line.startswith("model:")), "")
    if done.returncode:
        print(done.stdout[-20_000:])
    seconds = time.monotonic() - began
    report.line(f"{told or 'model'} in {seconds:.0f} s", good=done.returncode == 0)


def many(report: Report, folder: Path) -> None:
    """100,000 files, made by one call and removed by another."""
    (folder / "many").mkdir(mode=0o755)
    rounds = []
    for what in ("created", "deleted"):
        done = subprocess.run(
            [
                *(sys.executable, "-c", MANY, what),
                *(str(folder / "many"), str(folder / "many-state"), str(FILES)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        rounds += [json.loads(line) for line in done.stdout.splitlines()]
    report.line(f"{FILES:,} files", good=len(rounds) == 2)
    for one in rounds:
        expected = FILES if one["what"] == "created" else 0
        good = (
            one["kind"] is None
            and one["there"] == expected
            and one["told"] >= FILES
            and one["growth_bytes"] < GROWTH_BYTES_MAX
        )
        report.line(f"  {one}", good=good)


def main() -> int:
    """All of it; the exit code."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kills", type=int, default=300)
    words.add_argument("--seed", type=int, default=None)
    words.add_argument("--examples", type=int, default=200, help="of the model")
    words.add_argument("--no-files", action="store_true", help="without the 100,000 files")
    told = words.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if told.seed is None else told.seed
    report = Report()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        kills(report, folder / "kills", told.kills, seed)
        if told.examples:
            model(report, folder, told.examples)
        if not told.no_files:
            many(report, folder)
    report.line("every promise held" if report.good else "A PROMISE WAS BROKEN")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
