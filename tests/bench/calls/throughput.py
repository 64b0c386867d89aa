"""(c): calls per second at 1 to 64 at once, and what processor time each takes.

Processor time is the whole machine's, from /proc/stat (proc(5)): what a call leaves to be done
behind its back, by whatever process, is in it; so is what else runs here.
"""

from __future__ import annotations

from typing import Any

from .figures import median, say
from .job import Job
from .ours import jobs
from .peers import Peers
from .quiet import Quiet, busy_s
from .subjects import Refused, Subject

AT_ONCE = (1, 4, 16, 64)
NOT_ASKED = ("sandbox-runtime", "unshare", "crun", "runc", "minijail")
"""Of these the latency says enough."""


async def measure(
    job: Job,
    peers: Peers,
    pool: Any,
    rounds: int,
    seconds: float,
    quiet: Quiet,
    *,
    all_peers: bool,
) -> dict[str, Any]:
    """Every subject at every number at once, in turn."""
    say("(c) calls per second")
    asked = [peer for peer in peers.present if peer.name not in NOT_ASKED]
    if not all_peers:
        few = ("fork + wait", "fork + JSON", "python -I -S", "bubblewrap", "sandlock run")
        asked = [peer for peer in asked if peer.name in few]
    subjects: list[Subject] = [*jobs(job, pool), *asked]
    rates: dict[tuple[str, int], list[float]] = {}
    used: dict[tuple[str, int], list[float]] = {}
    for turn in range(rounds):
        for at_once in AT_ONCE:
            say(f"  round {turn + 1} of {rounds}, {at_once} at once")
            await quiet.look()
            for subject in subjects:
                await subject.settle()
                before = busy_s()
                try:
                    burst = await subject.burst(seconds, at_once)
                except (Refused, OSError) as error:
                    say(f"gave up: {subject.name}, {at_once} at once: {error}")
                    continue
                # What it left to be done is part of its calls.
                await subject.settle()
                used_s = (busy_s() - before) / max(1, burst.calls)
                rates.setdefault((subject.name, at_once), []).append(burst.calls / burst.took_s)
                used.setdefault((subject.name, at_once), []).append(used_s)
    return {
        subject.name: {
            str(at_once): {
                "calls_per_s": median(rates[key], 1) if key in rates else None,
                "cpu_ms_per_call": median([1e3 * s for s in used[key]], 2) if key in used else None,
            }
            for at_once in AT_ONCE
            for key in [(subject.name, at_once)]
        }
        for subject in subjects
    }
