"""The moment from which on a change of a workspace may be one that a jail does not see.

By the clock that file systems stamp with, and by the one that nobody sets. Whatever was changed
before is stamped earlier, whatever is changed from here on not. The clock that files are stamped
with ticks every 1 to 10 ms. From Linux 6.13 on a stamp that is finer, once given, is the least that
any later one has ("multigrain timestamps", kernel documentation): so one is asked for.
"""

from __future__ import annotations

import os
import time

TICK_NS_MAX = 50_000_000
_REALTIME_COARSE = 5
"""include/uapi/linux/time.h"""


def fine() -> tuple[int, int] | None:
    """This moment, at once; None where the kernel gives no stamp between two ticks."""
    ticked_ns = time.clock_gettime_ns(_REALTIME_COARSE)
    asked, other = os.memfd_create("asked"), os.memfd_create("other")
    try:
        # Who was asked for its stamp since the last change gets a finer one at the next.
        _change(asked)
        fine_ns = _change(asked)
        is_floor = ticked_ns < fine_ns <= _change(other)
    finally:
        os.close(asked)
        os.close(other)
    return _by_both(fine_ns) if is_floor else None


def ticked(begun_ns: int) -> tuple[int, int]:
    """The first tick after `begun_ns`, which is waited for."""
    until_ns = time.monotonic_ns() + TICK_NS_MAX
    while (now_ns := time.clock_gettime_ns(_REALTIME_COARSE)) <= begun_ns:
        if time.monotonic_ns() > until_ns:
            break  # The clock was set back: what lies before looks younger, and is a conflict.
        time.sleep(0.0005)
    return _by_both(now_ns)


def _by_both(now_ns: int) -> tuple[int, int]:
    return now_ns, now_ns - (time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME))


def _change(fd: int) -> int:
    os.fchmod(fd, 0o600)
    return os.fstat(fd).st_ctime_ns
