"""What a plan asks for is shown wherever it lies, also where the jail's own pieces are put."""

from __future__ import annotations

import itertools

import pytest

from .elsewhere import supervised

SHOWN = """
import json, os, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Mount, Pool, run_in_jail

async def main():
    handler = CommandHandler(argv=("cat", *(f"{path}/seen" for path in sys.argv[1:])))
    mounts = tuple(Mount(path=path) for path in sys.argv[1:])
    # Before, between and after jails that ask for nothing there.
    specs = [JailSpec(), JailSpec(mounts=mounts)] * 2
    found = []
    async with Pool(waiting=1) as pool:
        for spec in specs:
            outcome = await run_in_jail(handler, spec)
            await pool.fill(spec)
            again = await run_in_jail(handler, spec, pool=pool)
            assert again.timing.was_waiting, again
            assert again.stdout.text() == outcome.stdout.text(), again
            found.append([outcome.failure and outcome.failure.kind, outcome.stdout.text()])
    print(json.dumps(found))

trio.run(main)
"""


@pytest.mark.parametrize(
    "places",
    [
        ["/sys/class"],
        ["/sys/class/sub"],
        ["/sys"],
        ["/mnt"],
        ["/mnt/sub", "/media/sub"],
        ["/sys", "/srv/sub", "/mnt"],
    ],
    ids=str,
)
def test_what_is_asked_for_is_not_covered(places: list[str]) -> None:
    """A folder that was granted, and is not there or empty, is a tool that fails for no reason."""
    prepare = "mount -t tmpfs tmpfs /sys; mkdir /sys/class /sys/bus"
    for folder in ("/mnt", "/media", "/srv"):
        prepare += f"; mount -t tmpfs tmpfs {folder}"
    for place in places:
        prepare += f"; mkdir -p {place}; echo {place} > {place}/seen"
    found = supervised(SHOWN, *places, prepare=prepare)
    shown = "".join(f"{place}\n" for place in places)
    assert found == [[None, ""], [None, shown]] * 2


WORKS = """
import json, os, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, run_in_jail

async def main():
    workspace, mode = sys.argv[1:]
    os.makedirs(workspace, exist_ok=True)
    handler = CommandHandler(argv=("/bin/sh", "-c", "pwd; touch x && ls; touch /tmp/own"))
    outcome = await run_in_jail(handler, JailSpec(workspace=workspace, workspace_mode=mode))
    kind = outcome.failure and outcome.failure.kind
    print(json.dumps([kind, outcome.stdout.text(), outcome.stderr.text(), os.listdir(workspace)]))

trio.run(main)
"""


@pytest.mark.parametrize(
    ("workspace", "mode"),
    [
        # Not layered: this machine may have a disk below it.
        ("/mnt", "direct"),
        ("/mnt", "scratch"),
        *itertools.product(
            ("/mnt/ws", "/media/ws", "/srv/ws", "/run/ws"), ("direct", "transaction", "scratch")
        ),
    ],
)
def test_a_workspace_may_lie_where_the_jails_own_would_be_put(workspace: str, mode: str) -> None:
    """Where other disks are mounted by custom, /mnt, is where many keep their projects."""
    prepare = "; ".join(f"mount -t tmpfs tmpfs /{name}" for name in ("mnt", "media", "srv", "run"))
    kept = ["x"] if mode == "direct" else []
    found = supervised(WORKS, workspace, mode, prepare=prepare)
    assert found == [None, f"{workspace}\nx\n", "", kept]
