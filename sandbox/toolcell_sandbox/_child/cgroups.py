"""Entering the control groups that the supervisor made for a jail."""

from __future__ import annotations

from .report import stage


def enter_cgroups(pid: int, files: list[str]) -> None:
    """Put a process into its groups before it has any child or any memory to speak of.

    `files` are their cgroup.procs; whatever it starts is born in them (cgroups(7)).
    """
    with stage("memory_limited", "cgroup"):
        for path in files:
            with open(path, "w") as file:
                file.write(str(pid))
