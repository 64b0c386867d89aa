"""One attack for each guarantee that a receipt can list, and those on a jail's own limits."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from toolcell import _probe_attacks, _probe_files, _probe_limits, _probe_own
from toolcell._probe_run import Probe, plain_child
from toolcell._probe_traps import Trap
from toolcell_sandbox.host import PRIVATE_FOLDERS
from toolcell_sandbox.spec import Limits

_BEYOND: Final = 200
"""A descriptor that nobody gets by chance."""


async def _environment(probe: Probe) -> None:
    name, value = "TOOLCELL_DOCTOR_SECRET", secrets.token_hex(16)
    os.environ[name] = value
    probe.held.callback(os.environ.pop, name)
    code = f"import os; print(os.environ[{name!r}])"
    if (await plain_child(code)).strip() == value:
        probe.control = "outside, a child inherits the variable"
    await probe.tries(_probe_own.environment, {"name": name, "value": value})


async def _descriptors(probe: Probe) -> None:
    secret = secrets.token_hex(16)
    fd = os.memfd_create("doctor", 0)
    probe.held.callback(os.close, fd)
    os.write(fd, secret.encode())
    high = fcntl.fcntl(fd, fcntl.F_DUPFD, _BEYOND)
    probe.held.callback(os.close, high)
    code = f"import os; print(os.pread({high}, 64, 0).decode())"
    if (await plain_child(code)).strip() == secret:
        probe.control = "outside, a child reads the inherited descriptor"
    await probe.tries(_probe_own.descriptors, {"secret": secret})


async def _memory(probe: Probe) -> None:
    limits, ended = Limits(wall_s=30, memory_bytes=64 << 20), "memory_exceeded"
    most = {"most_bytes": 2 * limits.memory_bytes}
    await probe.ends("fill memory in a child", ended, _probe_limits.memory, limits=limits)
    tried = "fill memory that nobody maps"
    await probe.ends(tried, ended, _probe_limits.unmapped_memory, most, limits=limits)
    if probe.has_namespaces and "cgroup" in str(probe.finding().mechanism):
        # Else a file on the jail's own tmpfs is disk, and bounded as such.
        told = {**most, "folder": "/dev/shm"}
        tried = "fill memory by files"
        await probe.ends(tried, ended, _probe_limits.scratch_memory, told, limits=limits)


async def _processor(probe: Probe) -> None:
    burns = Limits(wall_s=30, cpu_s=0.5)
    ended = "cpu_time_exceeded"
    await probe.ends("run without end", ended, _probe_limits.processor, limits=burns)
    await probe.ends("let children run without end", ended, _probe_limits.processors, limits=burns)
    slept = Limits(wall_s=0.5)
    await probe.ends("sleep without end", "timeout", _probe_limits.sleep, limits=slept)


async def _processes(probe: Probe) -> None:
    limits = Limits(wall_s=30, processes=24)
    # Where every process of the user counts, others may end meanwhile and leave more room.
    slack = 0 if probe.has_namespaces else 64
    told = {"limit": limits.processes + slack, "most": 2 * limits.processes + slack}
    await probe.tries(_probe_limits.processes, told, limits=limits)
    if all(each["broke"] is False for each in probe.attempts):
        # Only now: what does not bound a count would not bound a bomb either.
        ended = "processes_exceeded"
        await probe.ends("let each child fork too", ended, _probe_limits.bomb, limits=limits)


async def _disk(probe: Probe) -> None:
    limits = Limits(wall_s=30, disk_bytes=8 << 20, disk_files=64)
    trap = Trap(probe.held)
    places = [*PRIVATE_FOLDERS, trap.folder]
    told = {"limit_bytes": limits.disk_bytes, "limit_files": limits.disk_files, "places": places}
    scratch = {"workspace": trap.folder, "mode": "scratch"}
    await probe.tries(_probe_files.fill, told, limits=limits, **scratch)
    layered = {**scratch, "mode": "transaction"}
    await probe.tries(_probe_files.fill, told, limits=limits, **layered)
    await probe.tries(_probe_files.elsewhere, {"places": places}, **scratch)
    trap.look(probe)


async def _file_limits(probe: Probe) -> None:
    limits = Limits(wall_s=30, file_size_bytes=1 << 20, open_files=64)
    told = {"size_bytes": limits.file_size_bytes, "open_files": limits.open_files}
    await probe.tries(_probe_own.file_limits, told, limits=limits)


ATTACKS: Final[dict[str, Callable[[Probe], Awaitable[None]]]] = {
    "fs_confined": _probe_attacks.files,
    "paths_masked": _probe_attacks.masks,
    "writes_transactional": _probe_attacks.transactions,
    "net_blocked": _probe_attacks.network,
    "net_loopback": _probe_attacks.loopback,
    "syscalls_filtered": _probe_attacks.system_calls,
    "tree_killed": _probe_attacks.tree,
    "memory_limited": _memory,
    "processes_limited": _processes,
    "cpu_limited": _processor,
    "files_limited": _file_limits,
    "disk_limited": _disk,
    "env_scrubbed": _environment,
    "fds_closed": _descriptors,
    "no_new_privileges": _probe_attacks.privileges,
    "signals_scoped": _probe_attacks.signals,
    "ipc_private": _probe_attacks.ipc,
    "devices_minimal": _probe_attacks.devices,
}
"""Every guarantee that there is, in the order of receipts."""

ALONE: Final = frozenset({"processes_limited"})
"""What must run alone where every process of the user counts."""
