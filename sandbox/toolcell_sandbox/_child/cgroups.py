"""Entering the control groups that the supervisor made for a jail."""

from __future__ import annotations

import os

from .report import stage


def enter_cgroups(pid: int, files: list[str]) -> None:
    """Put a process into its groups before it has any child or any memory to speak of.

    `files` are their cgroup.procs; whatever it starts is born in them (cgroups(7)).
    """
    with stage("memory_limited", "cgroup"):
        for path in files:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, str(pid).encode())
            finally:
                os.close(fd)
