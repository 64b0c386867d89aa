"""The watch: what a jail's process tree uses, sampled from outside. A sampler is not a bound.

One census of /proc serves every jail of this process: a tree walk costs a read per process of
the whole machine (there is no list of children without CONFIG_PROC_CHILDREN), so many jails
that sample in the same moment share it. Memory is confirmed with psutil where it decides.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass

import psutil

_PAGE = os.sysconf("SC_PAGESIZE")
_TICK = os.sysconf("SC_CLK_TCK")
CENSUS_AGE_S = 0.02
SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class _Row:
    parent: int
    cpu_ticks: int
    resident_pages: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What is below a root at one moment. Memory is resident, shared pages once per process.

    The root, a jail's init, counts with its time only: its memory is ours, not the handler's.
    """

    pids: tuple[int, ...]
    memory_bytes: int
    cpu_s: float


class Census:
    """All processes of this machine, at most `CENSUS_AGE_S` old."""

    def __init__(self) -> None:
        self._taken_at = float("-inf")
        self._children: dict[int, list[int]] = {}
        self._rows: dict[int, _Row] = {}
        self.cost_s = 0.0

    def tree(self, root: int) -> Sample:
        """What `root` and everything below it use now; empty once it is gone."""
        self._refresh()
        pids, pending = [], [root] if root in self._rows else []
        while pending:
            pid = pending.pop()
            pids.append(pid)
            pending += self._children.get(pid, ())
        rows = [self._rows[pid] for pid in pids]
        return Sample(
            tuple(pids[1:]),
            sum(row.resident_pages for row in rows[1:]) * _PAGE,
            sum(row.cpu_ticks for row in rows) / _TICK,
        )

    def _refresh(self) -> None:
        started = time.monotonic()
        if started - self._taken_at < CENSUS_AGE_S:
            return
        self._rows, self._children = {}, defaultdict(list)
        for name in os.listdir("/proc"):
            if name.isdigit() and (row := _read(int(name))) is not None:
                self._rows[int(name)] = row
                self._children[row.parent].append(int(name))
        self._taken_at = time.monotonic()
        self.cost_s = self._taken_at - started


def _read(pid: int) -> _Row | None:
    """One line of /proc/PID/stat (proc_pid_stat(5)); None for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return None
    # The name may hold anything, parentheses too; the fields start after the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    # utime, stime, and those of children that were waited for: who died is not lost.
    ticks = sum(int(fields[place]) for place in (11, 12, 13, 14))
    return _Row(int(fields[1]), ticks, int(fields[21]))


def proportional_bytes(sample: Sample) -> int:
    """The tree's memory with each shared page counted once in all (PSS, proc_pid_smaps(5)).

    Slow, so only for a decision. A process that cannot be read counts with its resident size.
    """
    total = 0
    for pid in sample.pids:
        try:
            process = psutil.Process(pid)
            try:
                total += process.memory_full_info().pss
            except psutil.AccessDenied:
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


census = Census()
"""The one census of this process."""
