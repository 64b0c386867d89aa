"""The watch: what a jail's process tree uses, sampled from outside. A sampler is not a bound.

One census of /proc serves every jail of this process: a tree walk costs a read per process of
the whole machine (there is no list of children without CONFIG_PROC_CHILDREN), so many jails
that sample in the same moment share it. Memory is confirmed with psutil where it decides.
"""

from __future__ import annotations

import contextlib
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
    started_ticks: int
    own_ticks: int
    reaped_ticks: int
    resident_pages: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What is below a root at one moment. Memory is resident, shared pages once per process.

    `memfd_bytes` is what files in memory hold (memfd_create(2)), mapped or not, each file once.

    `cpu_s` is the time of the living and of those whom they have waited for; `own_cpu_s` that
    of each process alone, by (pid, start), since whoever ignores SIGCHLD waits for nobody.
    The root, a jail's init, counts with its time only: its memory is ours, not the handler's.
    """

    pids: tuple[int, ...]
    memory_bytes: int
    memfd_bytes: int
    cpu_s: float
    own_cpu_s: dict[tuple[int, int], float]


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
            _memfd_bytes(pids[1:]),
            sum(row.own_ticks + row.reaped_ticks for row in rows) / _TICK,
            {
                (pid, row.started_ticks): row.own_ticks / _TICK
                for pid, row in zip(pids, rows, strict=True)
            },
        )

    def _refresh(self) -> None:
        started = time.monotonic()
        if started - self._taken_at < CENSUS_AGE_S:
            return
        try:
            names = os.listdir("/proc")
        except OSError:
            return  # Out of descriptors: what was seen last stands until there are some.
        rows: dict[int, _Row] = {}
        children: dict[int, list[int]] = defaultdict(list)
        for pid in (int(name) for name in names if name.isdigit()):
            row = _read(pid, last=self._rows.get(pid))
            if row is not None:
                rows[pid] = row
                children[row.parent].append(pid)
        self._rows, self._children = rows, children
        self._taken_at = time.monotonic()
        self.cost_s = self._taken_at - started


def lives_in_group(group: int) -> bool:
    """Whether anybody is alive in a process group, by a look at every process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, _, its_group = file.read(4096).rpartition(b") ")[2].split()[:3]
                if int(its_group) == group and state not in b"ZX":
                    return True
    return False


def _read(pid: int, *, last: _Row | None) -> _Row | None:
    """One line of /proc/PID/stat (proc_pid_stat(5)); None for a process that is gone.

    One that is there and cannot be read now is as it was.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return last
    # The name may hold anything, parentheses too; the fields start after the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    user, system, reaped_user, reaped_system = map(int, fields[11:15])
    return _Row(
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
        own_ticks=user + system,
        reaped_ticks=reaped_user + reaped_system,
        resident_pages=int(fields[21]),
    )


def _memfd_bytes(pids: list[int]) -> int:
    """What the files in memory that these processes hold open take, each once.

    One that nobody has mapped is in no process's resident size.
    """
    found: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):
                        seen = os.stat(entry.path)
                        found[seen.st_ino] = seen.st_blocks * 512
    return sum(found.values())


def _shared_bytes(pid: int) -> int:
    """The part of a process's PSS that is of files in memory (proc_pid_smaps(5))."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss_Shmem:"):
                return int(line.split()[1]) << 10
    return 0


def proportional_bytes(sample: Sample) -> int:
    """The tree's memory with each shared page counted once in all (PSS, proc_pid_smaps(5)).

    Files in memory count with what of them is not mapped. Slow, so only for a decision. A
    process that cannot be read counts with its resident size.
    """
    total, mapped = 0, 0
    for pid in sample.pids:
        try:
            process = psutil.Process(pid)
            try:
                total += process.memory_full_info().pss
                mapped += _shared_bytes(pid)
            except psutil.AccessDenied:
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        except OSError:
            return sample.memory_bytes
    return total + max(0, sample.memfd_bytes - mapped)


census = Census()
"""The one census of this process."""
