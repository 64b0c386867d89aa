"""A service manager that can be asked for a delegated scope, and whether there is one."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass

from . import host
from ._cgroup_files import Files, Mounted, cause_of, listed


@dataclass(frozen=True, slots=True)
class Bus:
    """How to reach the manager, and what it has to give.

    `controllers` are those that the manager itself was given: it takes a limit on any other
    without a word, and does not hold it.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    mount: Mounted
    proc: str
    controllers: tuple[str, ...]


def find(
    mount: Mounted, run: str, proc: str, busctl: str | None, files: Files
) -> tuple[Bus | None, str | None]:
    """The manager for this user: the system's for root, else the user's own; or why there is none.

    Only looked for, never asked: a scope cannot be tried without a process to put into it.
    """
    uid = os.geteuid()
    command = busctl or shutil.which("busctl", path=host.PATH)
    if command is None:
        return None, "busctl, to ask the service manager by, is not installed"
    if uid == 0:
        at, which, folder = f"{run}/dbus/system_bus_socket", "--system", mount.point
    else:
        at, which = f"{run}/user/{uid}/bus", "--user"
        folder = mount.folder(f"/user.slice/user-{uid}.slice/user@{uid}.service") or ""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as end:
            end.connect(at)
    except OSError as error:
        return None, f"{at}: {cause_of(error)}"
    # Constant but for where the bus is: the caller's own may name anything.
    environment = {
        "PATH": host.PATH,
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": f"{run}/user/{uid}",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={at}",
    }
    controllers = listed(files, f"{folder}/cgroup.controllers")
    return Bus((command, which), tuple(environment.items()), mount, proc, controllers), None


def start_scope(bus: Bus, name: str, pid: int, properties: list[str]) -> list[str]:
    """The words that start a scope around a running process (org.freedesktop.systemd1(5)).

    `properties` are busctl's own: name, type, value (busctl(1), PARAMETER FORMATTING).
    """
    fixed = ["PIDs", "au", "1", str(pid), "Delegate", "b", "true"]
    fixed += ["CollectMode", "s", "inactive-or-failed"]
    fixed += ["Description", "s", "a call in a jail of toolcell"]
    count = str((len(properties) + len(fixed) - 1) // 3)
    return [
        *bus.command,
        "--quiet",
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        name,
        "fail",
        count,
        *fixed,
        *properties,
        "0",
    ]
