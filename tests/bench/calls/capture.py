"""(d): how fast output is taken in, beside `cat >/dev/null` fed by the same producer."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from toolcell_sandbox import CommandHandler, JailSpec, run_in_jail

from .figures import median, say
from .job import EXECUTABLE, Job
from .ours import checked

READER = "import os\nwhile os.read(0, 1 << 16): pass"


async def measure(job: Job, pool: Any, rounds: int, size_bytes: int) -> dict[str, Any]:
    """Gigabytes per second from the call to the last byte, by three readers in turn."""
    say(f"(d) capture of {size_bytes >> 20} MiB")
    producer = ["head", "-c", str(size_bytes), "/dev/zero"]
    spec = JailSpec(workspace=job.workspace)
    rates: dict[str, list[float]] = {}
    for turn in range(rounds):
        say(f"  round {turn + 1} of {rounds}")
        for name in ("toolcell", "cat >/dev/null", "os.read of 64 KiB"):
            begun = time.perf_counter()
            if name == "toolcell":
                outcome = await run_in_jail(CommandHandler(argv=tuple(producer)), spec, pool=pool)
                took_s = time.perf_counter() - begun
                assert checked(outcome).stdout.seen_bytes == size_bytes, outcome.stdout
            else:
                reader = ["cat"] if name.startswith("cat") else [EXECUTABLE, "-ISc", READER]
                took_s = _piped(producer, reader)
            rates.setdefault(name, []).append(size_bytes / took_s / 1e9)
    found = {name: {"gb_per_s": median(rate, 2)} for name, rate in rates.items()}
    return {"size_bytes": size_bytes, "rounds": rounds, "readers": found}


def _piped(producer: list[str], reader: list[str]) -> float:
    begun = time.perf_counter()
    with subprocess.Popen(producer, stdout=subprocess.PIPE) as first:
        second = subprocess.run(reader, stdin=first.stdout, stdout=subprocess.DEVNULL, check=True)
    took_s = time.perf_counter() - begun
    assert first.returncode == second.returncode == 0
    return took_s
