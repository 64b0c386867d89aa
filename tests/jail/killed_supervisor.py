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
            print(one_round(chance.uniform(0.0, 0.5), workspace, mark), flush=True)


def one_round(delay_s: float, workspace: str, mark: str) -> str:
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        try:
            trio.run(supervise, workspace, mark)
        finally:
            os._exit(1)
    time.sleep(delay_s)  # The random moment itself: nothing is waited for.
    alive = ours(mark)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    os.waitpid(pid, 0)
    while left := ours(mark):
        if time.monotonic() - killed > SURVIVAL_S:
            return f"survived {len(left)}"
        time.sleep(0.01)
    return f"gone {len(alive)} {time.monotonic() - killed:.3f}"


def ours(mark: str) -> list[int]:
    """Launchers, inits and workers carry the mark in their environment or command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            said = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if f"MARK={mark}\0".encode() in said or f"sleep\0001000.{mark}\0".encode() in said:
            found.append(int(folder.name))
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
