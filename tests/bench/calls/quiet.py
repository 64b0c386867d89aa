"""Whether the machine was ours alone: what it did while nothing was measured.

Other work slows a small peer more than a large one, and so moves every ratio, also for the better:
a disturbed run proves nothing either way.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import trio

from .figures import percentile

LOOK_S = 0.4
DISTURBED = 0.1
"""So much of all processors in the median look, or three times that in one look of ten."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def busy_s() -> float:
    """Processor seconds that this machine has spent on anything but idling (proc(5), stat)."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, interrupts, soft, stolen = map(
            int, file.readline().split()[1:9]
        )
    return (user + nice + system + interrupts + soft + stolen) / _TICKS_PER_S


class Quiet:
    """Looks taken between measurements."""

    def __init__(self) -> None:
        self._shares: list[float] = []

    async def look(self) -> None:
        """Do nothing for a moment, and see who does not."""
        began_s, before_s = time.monotonic(), busy_s()
        await trio.sleep(LOOK_S)
        took_s = (time.monotonic() - began_s) * (os.cpu_count() or 1)
        self._shares.append((busy_s() - before_s) / took_s)

    def to_json(self) -> dict[str, Any]:
        """Shares of all processors, 0 to 1, that others had."""
        usual, often = statistics.median(self._shares), percentile(self._shares, 90)
        return {
            "looks": len(self._shares),
            "least": round(min(self._shares), 3),
            "median": round(usual, 3),
            "most": round(max(self._shares), 3),
            "is_disturbed": usual > DISTURBED or often > 3 * DISTURBED,
        }
