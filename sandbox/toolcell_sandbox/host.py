"""What this host is: its system folders, its interpreter, the ids it can give, and its fixes."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import pwd
import sys

from ._child import ids
from ._child.mounts import HOME, PRIVATE
from .spec import Mount

SYSTEM_FOLDERS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/debian_version",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/manpath.config",
    "/etc/maven",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/perl",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/redhat-release",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/etc/wgetrc",
    # Debian and Ubuntu keep what a Java is configured by there, and link to it.
    *sorted(glob.glob("/etc/java-*")),
)
"""What of the host's system a jail sees, read-only. Nothing here holds a secret by custom."""

EXECUTABLE = os.path.realpath(sys.executable)
"""The interpreter itself, taken once: a link on the way to it could be replaced by a jail."""

PRIVATE_FOLDERS = PRIVATE
"""What a jail has of its own instead of the host's."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment() -> dict[str, str]:
    """The whole environment of a jail, before what the caller adds."""
    interpreter = os.path.dirname(EXECUTABLE)
    path = PATH if interpreter in PATH.split(":") else f"{PATH}:{interpreter}"
    return {
        "PATH": path,
        "HOME": HOME,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/sh",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }


def executable_inside() -> str:
    """What a jail calls the interpreter: the venv's name for it, through no link but that one."""
    folder, name = os.path.split(os.path.abspath(sys.executable))
    return os.path.join(os.path.realpath(folder), name)


@functools.cache
def interpreter_folders() -> tuple[str, ...]:
    """What the running interpreter consists of: never writable by a jail, wherever it lies."""
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, own}
    found.add(os.path.dirname(os.path.dirname(EXECUTABLE)))
    real = {os.path.realpath(path) for path in found}
    return tuple(sorted(path for path in real if os.path.isdir(path) and path != "/"))


def links_to_interpreter() -> tuple[str, ...]:
    """Every symlink that is followed to find the running interpreter and this code."""
    found: list[str] = []
    for path in (sys.executable, sys.prefix, sys.base_prefix, __file__):
        found += _links_of(os.path.abspath(path), 40)
    return tuple(dict.fromkeys(found))


def _links_of(path: str, hops: int) -> list[str]:
    """Where the links on the way of `path` lie, each by a path that has none before it."""
    here, found = "/", []
    for place, name in enumerate(parts := path.strip("/").split("/")):
        step = os.path.join(here, name)
        if os.path.islink(step):
            found.append(step)
            rest = os.path.join(here, os.readlink(step), *parts[place + 1 :])
            return found + (_links_of(os.path.normpath(rest), hops - 1) if hops else [])
        here = step
    return found


def network_files() -> dict[str, str]:
    """What a program on the host's network needs to find names, as the host has it now."""
    found: dict[str, str] = {}
    for path in ("/etc/resolv.conf", "/etc/hosts"):
        with contextlib.suppress(OSError), open(path, errors="replace") as file:
            found[path] = file.read(1 << 16)
    return found


def interpreter_mounts() -> tuple[Mount, ...]:
    """`interpreter_folders` as mounts, but for what the system folders show already."""
    return tuple(
        Mount(path=path, owned=True)
        for path in interpreter_folders()
        if path not in SYSTEM_FOLDERS and not path.startswith("/usr/")
    )


_ID_BASES = (0x7A00_0000, 0x6A00_0000, 0x5A00_0000, 0x3A00_0000, 61_000, 60_000, 50_000)


def id_slots(base: int) -> int:
    """How many jails at once have ids of their own above a base."""
    return 4096 if base > 1 << 16 else 32


class NoIds(LookupError):
    """No user ids can be had for a jail: another one has to end first, or the host to be told."""


@functools.cache
def id_base() -> int | None:
    """The first host id of the range that a root supervisor gives its jails; None for others.

    Taken from what /proc/self/uid_map and gid_map prove to exist and nobody else claims: no
    user of the host, no subordinate range (subuid(5)).

    Raises:
        NoIds: the host's root, and no range of `ids.RANGE` ids is free.
    """
    if os.geteuid() != 0 or not _is_host_root():
        return None
    spans = [_spans("/proc/self/uid_map"), _spans("/proc/self/gid_map")]
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    claimed = [*_claims("/etc/subuid"), *_claims("/etc/subgid")]
    for base in _ID_BASES:
        last = base + id_slots(base) * ids.RANGE - 1
        mapped = all(any(a <= base and last <= b for a, b in found) for found in spans)
        free = not any(base <= one <= last for one in taken)
        if mapped and free and not any(a <= last and base <= b for a, b in claimed):
            return base
    raise NoIds("no free range of user ids")


def _is_host_root() -> bool:
    try:
        with open("/proc/self/uid_map") as file:
            inside, outside, _ = file.readline().split()
    except OSError:
        return False  # Without /proc nobody can say so.
    return inside == outside == "0"


def _spans(path: str) -> list[tuple[int, int]]:
    with open(path) as file:
        rows = [tuple(map(int, line.split())) for line in file]
    return [(inside, inside + count - 1) for inside, _, count in rows]


def _claims(path: str) -> list[tuple[int, int]]:
    try:
        with open(path) as file:
            rows = [line.strip().split(":") for line in file if line.count(":") == 2]
    except OSError:
        return []
    return [
        (int(r[1]), int(r[1]) + int(r[2]) - 1) for r in rows if r[1].isdigit() and r[2].isdigit()
    ]
