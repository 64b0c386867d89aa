"""A supervisor to be killed: `python killed_supervisor.py ROUNDS SEED MARK`.

Each round forks one that runs calls which leave orphans, kills it with SIGKILL at a random
moment, and waits until nothing of it is left. Prints one line a round: what was alive when it
was killed, and how long after the last of it was gone; "survived" where something was not.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import trio

from toolcell_sandbox import CommandHandler, JailSpec, Limits, run_in_jail
from toolcell_sandbox.host import base_environment, id_base

SURVIVAL_S = 2.0
CALLS = 8


def main(rounds: int, seed: int, mark: str) -> None:
    chance = random.Random(seed)
    id_base()
    with tempfile.TemporaryDirectory() as workspace:
        for _ in range(rounds):
            print(one_round(chance.uniform(0.0, 0.8), workspace, mark), flush=True)


def one_round(delay_s: float, workspace: str, mark: str) -> str:
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        try:
            trio.run(supervise, workspace, mark)
        finally:
            os._exit(1)
    time.sleep(delay_s)  # The random moment itself: nothing is waited for.
    # Stopped first, so that it starts nothing between the look and the kill.
    os.kill(pid, signal.SIGSTOP)
    known = descendants({(pid, 0)}) - {(pid, 0)}
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    os.waitpid(pid, 0)
    left = known
    while left := {one for one in descendants(left) if is_there(one)} | marked(mark):
        if time.monotonic() - killed > SURVIVAL_S:
            return f"survived {len(left)}"
        time.sleep(0.01)
    return f"gone {len(known)} {time.monotonic() - killed:.3f}"


def processes() -> dict[int, tuple[int, int]]:
    """Parent and start of every process of this machine."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = (int(fields[1]), int(fields[19]))
    return found


def descendants(known: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Known processes (pid, start) with all that they have started meanwhile."""
    found, everything = set(known), processes()
    while True:
        pids = {pid for pid, _ in found}
        more = {(pid, start) for pid, (parent, start) in everything.items() if parent in pids}
        if more <= found:
            return found
        found |= more


def is_there(process: tuple[int, int]) -> bool:
    """Whether it runs still. A zombie does not: reaping it is the host's init's own affair."""
    try:
        fields = Path(f"/proc/{process[0]}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z" and int(fields[19]) == process[1]


def marked(mark: str) -> set[tuple[int, int]]:
    """Workers, wherever they hang by now: they carry the mark in their environment."""
    found = set()
    for pid, (_, start) in processes().items():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if f"MARK={mark}\0".encode() in environ:
            found.add((pid, start))
    return found


async def supervise(workspace: str, mark: str) -> None:
    script = f"(setsid sleep 1000.{mark} &) & sleep 1000.{mark} & sleep 0.0{mark}; exit 0"
    spec = JailSpec(
        workspace=workspace,
        env={**base_environment(), "MARK": mark},
        limits=Limits(wall_s=60),
    )

    async def again() -> None:
        while True:
            await run_in_jail(CommandHandler(argv=("/bin/sh", "-c", script)), spec)

    async with trio.open_nursery() as nursery:
        for _ in range(CALLS):
            nursery.start_soon(again)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
