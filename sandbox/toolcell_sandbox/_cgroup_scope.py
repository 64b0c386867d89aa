"""A jail's group where only a service manager may make one: a scope around its init.

    zygote ── clone ──► init, waiting
        │ busctl StartTransientUnit(PIDs=[init])          limits are the manager's to write
        ▼
    service manager ──► makes the scope, moves the init ──► supervisor sees it, lets it go on

What the init starts is born in the scope, so nothing is ever moved but the init, and
the host program stays where it is. A scope goes with its last process, and what it saw with it:
so the init stays until that was read.
"""

from __future__ import annotations

import os
import subprocess

import trio

from . import _cgroup_names as names
from ._cgroup_bus import Bus, start_scope
from ._cgroup_files import KERNEL, Files, Place, cause_of, number, own_paths
from ._cgroup_group import Group, NotMade
from ._cgroup_limits import CPU_SHARE, INIT_MEMORY_BYTES, INIT_PROCESSES

ADOPT_S = 5.0
_POLL_S = 0.002
_HOLDS = {"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"}


class Scope(Group):
    """A group that a service manager makes: `adopt` it, with the init that is to be in it."""

    needs_adoption = True
    needs_lingering = True

    def __init__(
        self, bus: Bus, *, memory_bytes: int, processes: int, cpus: float, files: Files = KERNEL
    ) -> None:
        super().__init__((), files)
        self._bus = bus
        self._name = f"{names.new_name()}.scope"
        size = memory_bytes + INIT_MEMORY_BYTES
        count = processes + INIT_PROCESSES
        # systemd.resource-control(5); on the bus the quota is per second of wall time.
        self._properties = [
            *("MemoryMax", "t", str(size)),
            *("MemorySwapMax", "t", "0"),
            *("TasksMax", "t", str(count)),
            *("CPUQuotaPerSecUSec", "t", str(int(cpus * CPU_SHARE * 1_000_000))),
        ]

    @property
    def places(self) -> tuple[tuple[int, str], ...]:
        """None: the init is moved by the manager."""
        return ()

    @property
    def procs_files(self) -> tuple[str, ...]:
        """None: the init is in it already, and all that it starts."""
        return ()

    async def adopt(self, init_pid: int) -> None:
        """Have the manager make the scope, and wait until the init is in it.

        Cancelled, it leaves a scope that ends with the init.

        Raises:
            NotMade: the manager refused, was silent for `ADOPT_S`, or does not hold a limit.
        """
        with trio.move_on_after(ADOPT_S):
            await self._ask(init_pid)
            while (folder := self._folder(init_pid)) is None:  # noqa: ASYNC110 - a file tells
                await trio.sleep(_POLL_S)
            self._take(folder)
            return
        raise NotMade("memory", f"the service manager made no scope within {ADOPT_S:g} s")

    async def _ask(self, init_pid: int) -> None:
        words = start_scope(self._bus, self._name, init_pid, self._properties)
        try:
            done = await trio.run_process(
                words,
                env=dict(self._bus.environment),
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except OSError as error:
            raise NotMade("memory", f"{words[0]}: {cause_of(error)}", error.errno or 0) from error
        if done.returncode != 0:
            said = done.stdout.decode("utf-8", "replace").strip()[:300]
            raise NotMade("memory", f"the service manager made no scope: {said}")

    def _folder(self, init_pid: int) -> str | None:
        """Where the init is, as soon as that is the scope."""
        path = own_paths(self._files.read(f"{self._bus.proc}/{init_pid}/cgroup")).get("")
        if path is None or os.path.basename(path) != self._name:
            return None
        return self._bus.mount.folder(path)

    def _take(self, folder: str) -> None:
        self._folders = (Place(2, folder, self._bus.controllers),)
        for controller in self._bus.controllers:
            text = self._files.read(f"{folder}/{_HOLDS[controller]}") or ""
            if number(text.partition(" ")[0]) is None:
                cause = f"the scope has no {_HOLDS[controller]}: the manager was not given it"
                raise NotMade(controller, cause)
        try:
            # A delegated scope's own to set, since no property of a scope does on every version.
            self._files.write(f"{folder}/memory.oom.group", "1")
        except OSError:
            return  # Then only the largest process is ended, as on v1.

    def try_remove(self) -> bool:
        """Whether it is empty: then its manager removes it, and nobody else should."""
        self.sample()
        return self.is_empty()
