"""`make bench`: what a transaction costs on a small and on a large workspace, side by side.

The same call, 100 changes of all kinds, in a tree of 10,000 files and in one of 1,000,000,
interleaved. Finding the change set, judging and committing it has to cost what changed, not what
is there: the medians may differ by the factor BOUND. The first walk of the mask index, which does
cost what is there, is measured apart, by processor time a file. Prints JSON; exit code 1 where a
bound is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from toolcell._effect_facts import gather, top_entries
from toolcell._masked_names import MaskedNames
from toolcell._protected import Protected
from toolcell.planning import effect_ground
from toolcell_policies import judge_effects
from toolcell_sandbox import CommandHandler, JailSpec, run_in_jail
from toolcell_sandbox.commit import Place, commit
from toolcell_sandbox.mask_index import MaskIndex
from toolcell_sandbox.outcome import Upper
from toolcell_sandbox.upper import Layer, Marker, changes_of

BOUND = 1.5
LINEAR = 2.0
"""How much dearer a file may be to walk in the large tree than in the small one."""
FILES_A_FOLDER = 200
TEMPORARY = os.path.realpath(tempfile.gettempdir())
COMMAND = """
for n in $(seq 1 30); do echo $n > changed/new$n; done
for n in $(seq 1 30); do echo more >> changed/old$n; done
for n in $(seq 31 50); do rm changed/old$n; done
mkdir changed/made; for n in $(seq 1 18); do echo $n > changed/made/$n; done; ln -s old1 changed/l
"""


def plant(top: Path, files: int) -> None:
    """A tree of empty files, and the folder that calls work in."""
    for number in range(files // FILES_A_FOLDER):
        folder = top / f"d{number // 100}" / f"e{number}"
        folder.mkdir(parents=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for name in range(FILES_A_FOLDER):
            os.close(os.open(f"f{name}.py", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
        os.close(fd)


def prepare(top: Path) -> None:
    """The folder that is changed, as it is before each call."""
    shutil.rmtree(top / "changed", ignore_errors=True)
    (top / "changed").mkdir()
    for number in range(1, 51):
        (top / "changed" / f"old{number}").write_text("old\n")


@contextmanager
def timed(into: dict[str, list[float]], name: str) -> Iterator[None]:
    """Milliseconds of the block."""
    started = time.perf_counter()
    yield
    into.setdefault(name, []).append(1000 * (time.perf_counter() - started))


class Bench:
    """One workspace, and what its calls took."""

    def __init__(self, top: Path, state: Path, files: int) -> None:
        self.top, self.files = top, files
        found = top.stat()
        self.identity = (found.st_dev, found.st_ino)
        self.place = Place(workspace=str(top), identity=self.identity, state_dir=str(state))
        self.protected = Protected.here(str(state), str(top))
        self.took: dict[str, list[float]] = {}

    async def walk(self) -> float:
        """Processor seconds of the mask index's first walk."""
        index = MaskIndex(str(self.top), self.identity, MaskedNames(str(self.top), self.protected))
        started = time.process_time()
        await index.current()
        used_s = time.process_time() - started
        with timed(self.took, "index_again"):
            await index.current()
        index.close()
        return used_s

    async def call(self) -> None:
        """One call, and each of the steps after it."""
        prepare(self.top)
        spec = JailSpec(
            workspace=str(self.top),
            workspace_identity=self.identity,
            workspace_mode="transaction",
        )
        kept: list[Upper] = []
        handler = CommandHandler(argv=("/bin/sh", "-c", COMMAND))
        with timed(self.took, "run"):
            outcome = await run_in_jail(handler, spec, keep=kept.append)
        assert outcome.exit_code == 0, outcome
        (upper,) = kept
        workspace_fd = os.open(self.top, os.O_RDONLY | os.O_DIRECTORY)
        layer = Layer(
            fd=upper.fd,
            uids=upper.uids,
            gids=upper.gids,
            owner=upper.owner or (os.geteuid(), os.getegid()),
            marker=Marker(realtime_ns=upper.mounted_ns[0], boottime_ns=upper.mounted_ns[1]),
            masks=frozenset(),
        )
        with timed(self.took, "after"):
            with timed(self.took, "changes"):
                changes = changes_of(layer, workspace_fd, str(self.top))
            with timed(self.took, "judge"):
                effects = gather(
                    changes,
                    layer_fd=upper.fd,
                    workspace_fd=workspace_fd,
                    workspace=str(self.top),
                )
                ground = effect_ground(self.protected, str(self.top), top_entries(workspace_fd))
                judge_effects(effects, ground)
            with timed(self.took, "commit"):
                ending = commit(changes, upper.fd, self.place)
        assert ending is None, ending
        assert len(changes.changes) == 100, len(changes.changes)
        os.close(workspace_fd)
        upper.close()

    def medians(self) -> dict[str, float]:
        """Milliseconds of each step."""
        return {name: round(statistics.median(took), 3) for name, took in self.took.items()}


async def measure(sizes: tuple[int, int], calls: int) -> dict[str, Any]:
    """Both trees, their calls interleaved."""
    with tempfile.TemporaryDirectory(prefix="toolcell-bench-", dir=TEMPORARY) as folder:
        base = Path(folder)
        benches: list[Bench] = []
        for files in sizes:
            top = base / f"ws{files}"
            top.mkdir()
            plant(top, files)
            benches.append(Bench(top, base / "state", files))
        walks = {bench.files: await bench.walk() for bench in benches}
        for _ in range(calls):
            for bench in benches:
                await bench.call()
        small, large = (bench.medians() for bench in benches)
        per_file = [1e6 * walks[bench.files] / bench.files for bench in benches]
        return {
            "files": list(sizes),
            "calls": calls,
            "median_ms": {str(bench.files): bench.medians() for bench in benches},
            "ratio": {name: round(large[name] / small[name], 2) for name in small},
            "first_walk_cpu_s": {str(files): round(used, 3) for files, used in walks.items()},
            "first_walk_cpu_us_a_file": [round(each, 2) for each in per_file],
            "holds": large["after"] <= BOUND * small["after"]
            and per_file[1] <= LINEAR * per_file[0],
        }


def main() -> int:
    """Measure, print, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs=2, default=(10_000, 1_000_000))
    parser.add_argument("--calls", type=int, default=15)
    args = parser.parse_args()
    found = trio.run(measure, tuple(args.files), args.calls)
    print(json.dumps(found, indent=2))
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
