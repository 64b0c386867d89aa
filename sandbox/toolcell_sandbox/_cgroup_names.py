"""Whose group is whose: names that tell a supervisor that lives from one that is gone."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import re
from dataclasses import dataclass

_count = itertools.count(1)
_PATTERN = re.compile(r"toolcell-(\d+)-(\d+)-(\d+)-(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """A process by what is never used twice: its pid with its start, in its pid namespace.

    The namespace counts since a pid says nothing elsewhere: two containers that share a group
    would each take the other's supervisor for gone, and end its calls. `start_ticks` is since
    the machine's start (proc_pid_stat(5), field 22).
    """

    namespace: int
    pid: int
    start_ticks: int

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended. Of one in another pid namespace nothing is known."""
        if self.namespace != own_namespace():
            return False
        try:
            return _start_ticks(self.pid) != self.start_ticks
        except (FileNotFoundError, ProcessLookupError):
            # /proc may hide what there is (hidepid, proc(5)). Signal 0 is none (kill(2)).
            try:
                os.kill(self.pid, 0)
            except OSError as error:
                return error.errno == errno.ESRCH
            return False
        except OSError:
            return False


def own_namespace() -> int:
    """The inode of this process's pid namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def myself() -> Supervisor:
    """This process; after a fork, the child."""
    return _myself(os.getpid())


@functools.lru_cache(maxsize=1)
def _myself(pid: int) -> Supervisor:
    return Supervisor(own_namespace(), pid, _start_ticks(pid) or 0)


def new_name() -> str:
    """A name that this process gives once."""
    own = myself()
    return f"toolcell-{own.namespace}-{own.pid}-{own.start_ticks}-{next(_count)}"


def leaf_name() -> str:
    """Where this process itself goes inside a group that was delegated to it. Never swept."""
    own = myself()
    return f"toolcell-supervisor-{own.namespace}-{own.pid}-{own.start_ticks}"


def maker(name: str) -> Supervisor | None:
    """Who made the group of this name; None for a name that is not ours."""
    match = _PATTERN.fullmatch(name)
    return Supervisor(*map(int, match.groups()[:3])) if match else None


def _start_ticks(pid: int) -> int | None:
    """When a process started; None for one that waits only to be reaped."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        text = file.read(4096)
    # The name may hold anything, parentheses too; the fields start after the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
