"""(e): what a waiting jail takes, and whether the supervisor grows with its calls."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolcell_sandbox import JailSpec, Pool, PythonHandler, run_in_jail

from .figures import say
from .job import EXECUTABLE, Job
from .ours import checked
from .peers import Installed, bubblewrap
from .subjects import Refused

IDLE = "import sys\nprint(flush=True)\nsys.stdin.read()"
WARM_UP_CALLS = 100
AT_ONCE = 4


def pss_bytes(pid: int) -> int:
    """Pages of one process, each divided by how many share it (proc(5), smaps_rollup)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no Pss of {pid}")


def rss_bytes(pid: int) -> int:
    """Resident pages of one process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def parent(pid: int) -> int:
    """Who made a process (proc(5), stat; its name may hold anything but its last bracket)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            found += tree(int(child))
    return found


def mib(sizes: Iterable[int]) -> float:
    """Their sum, for a report."""
    return round(sum(sizes) / (1 << 20), 2)


async def waiting(job: Job, installed: Installed, count: int) -> dict[str, Any]:
    """PSS of a jail that waits, beside other processes that do."""
    say("(e) memory of what waits")
    found: dict[str, Any] = {}
    spec = JailSpec(workspace=job.workspace, workspace_mode="transaction")
    async with Pool(waiting=count) as pool:
        jails = await pool.fill(spec)
        try:
            pids = [pid for init in pool.waiting_pids() for pid in tree(init)]
            assert len(pids) == 2 * jails, "each has an init and a worker"
            above = {parent(pid) for pid in pids} - {*pids, os.getpid()}
            found["toolcell, a waiting jail"] = {
                "pss_mib": round(mib(map(pss_bytes, pids)) / jails, 2),
                "processes": round(len(pids) / jails, 1),
                "of": jails,
            }
            zygotes = {"pss_mib": mib(map(pss_bytes, above)), "processes": len(above), "of": 1}
            found["toolcell, the zygote, one for all jails"] = zygotes
        except OSError as error:
            found["toolcell, a waiting jail"] = {"missing": str(error.strerror)}
    python = [EXECUTABLE, "-I", "-S", "-c", IDLE]
    beside = {"python -I -S": python}
    try:
        beside["bubblewrap"] = [*bubblewrap(installed, job.readable), *python]
    except Refused as error:
        found["bubblewrap"] = {"missing": str(error)}
    for name, argv in beside.items():
        found[name] = _idle(argv, count)
    return found


def _idle(argv: list[str], count: int) -> dict[str, Any]:
    running = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        pids = [pid for process in running for pid in tree(process.pid)]
        pss = round(mib(map(pss_bytes, pids)) / count, 2)
        return {"pss_mib": pss, "processes": round(len(pids) / count, 1), "of": count}
    except OSError as error:
        return {"missing": str(error.strerror)}
    finally:
        for process in running:
            process.communicate(b"")


async def growth(job: Job, pool: Any, calls: int) -> dict[str, Any]:
    """How much larger the supervisor is after so many calls, and what it left open."""
    say(f"(e) growth over {calls:,} calls")
    import trio

    spec = JailSpec(workspace=job.workspace)

    async def run(count: int) -> None:
        left = iter(range(count))

        async def work() -> None:
            for n in left:
                handler = PythonHandler(
                    module="handler", qualname="handler", file=job.handler, arguments={"n": n}
                )
                checked(await run_in_jail(handler, spec, pool=pool), {"n": n})

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(work)

    await run(WARM_UP_CALLS)
    before = await _now(pool, spec)
    await run(calls)
    after = await _now(pool, spec)
    grown = {name: after[name] - before[name] for name in before}
    return {
        "calls": calls,
        "rss_before_mib": mib([before["rss_bytes"]]),
        "grown_mib": mib([grown["rss_bytes"]]),
        "grown_mib_per_10000_calls": round(mib([grown["rss_bytes"]]) * 10_000 / calls, 2),
        "grown_open_files": grown["open_files"],
        "grown_threads": grown["threads"],
    }


async def _now(pool: Any, spec: JailSpec) -> dict[str, int]:
    await pool.fill(spec)
    gc.collect()
    return {
        "rss_bytes": rss_bytes(os.getpid()),
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }
