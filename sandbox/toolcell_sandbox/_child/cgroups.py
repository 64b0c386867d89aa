"""Entering the control groups that the supervisor made for a jail (cgroups(7)).

To move a process by its number makes the kernel wait until no processor can be in a fork or an
exit: some ten milliseconds on a machine that was idle. A thread that moves itself, by a 0 in
`tasks` of a v1 group, waits for nothing, and neither does a process that is born in a v2 group
(clone3(2), CLONE_INTO_CGROUP).
"""

from __future__ import annotations

import os

from .report import stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Entry:
    """The way into a jail's groups, each a version and a folder, for a process not yet forked.

    `tasks` are files by which it moves itself (`enter`), and `group` is the folder of the v2 group
    that it can be born in; `put` moves one that was not. Whatever it starts is born in them.

    Raises:
        StageFailed: one of them is gone, or may not be entered.
    """

    def __init__(self, groups: Sequence[tuple[int, str]]) -> None:
        self.tasks: list[int] = []
        self.group: int | None = None
        self._procs: str | None = None
        try:
            with stage("memory_limited", "cgroup"):
                for version, folder in groups:
                    if version == 1:
                        self.tasks.append(os.open(f"{folder}/tasks", os.O_WRONLY | os.O_CLOEXEC))
                    else:
                        self.group = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                        self._procs = f"{folder}/cgroup.procs"
        except BaseException:
            self.close()
            raise

    def put(self, pid: int) -> None:
        """Move a process into the v2 group, which it was not born in."""
        if self._procs is not None:
            with stage("memory_limited", "cgroup"):
                fd = os.open(self._procs, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, str(pid).encode())
                finally:
                    os.close(fd)

    def close(self) -> None:
        """Let go of them."""
        while self.tasks:
            os.close(self.tasks.pop())
        if self.group is not None:
            os.close(self.group)
            self.group = None


def enter(tasks: Sequence[int]) -> None:
    """Move this process, which has one thread, into each v1 group; the files are then closed."""
    with stage("memory_limited", "cgroup"):
        for fd in tasks:
            os.write(fd, b"0")
            os.close(fd)
