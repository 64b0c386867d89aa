"""Control groups as files: how they are read and written, and where this process is in them.

Everything that touches a control group goes through `Files`, so that a test can put another
host's tree in its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

READ_BYTES = 1 << 16
Version = Literal[1, 2]
CONTROLLERS = ("memory", "pids", "cpu")
"""What a jail is limited by. All else that a hierarchy controls is left as it is."""


class Files:
    """The kernel's own files. A group may vanish at any time, so reading one never raises."""

    def read(self, path: str) -> str | None:
        """The text of a file; None where it is gone (ENOENT, ENODEV) or not for us."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            parts = []
            while part := os.read(fd, READ_BYTES):
                parts.append(part)
            return b"".join(parts).decode("utf-8", "surrogateescape")
        except OSError:
            return None
        finally:
            os.close(fd)

    def write(self, path: str, text: str) -> None:
        """One write(2): the kernel takes a value whole or not at all. Never makes a file."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def mkdir(self, path: str) -> None:
        """Make a group."""
        os.mkdir(path, 0o755)

    def rmdir(self, path: str) -> None:
        """Remove an empty group (EBUSY where somebody is in it)."""
        os.rmdir(path)

    def names(self, path: str) -> list[str]:
        """What a folder holds; nothing where it is gone."""
        try:
            return os.listdir(path)
        except OSError:
            return []

    def owner(self, path: str) -> int | None:
        """The uid that owns a group; None where it is gone."""
        try:
            return os.lstat(path).st_uid
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or group."""
        return os.path.exists(path)

    def can_write(self, path: str) -> bool:
        """Whether this process may write a file, without doing so."""
        return os.access(path, os.W_OK, effective_ids=True)

    def attribute(self, path: str, name: str) -> str | None:
        """An extended attribute; None where there is none, or it is not for us."""
        try:
            return os.getxattr(path, name).decode("utf-8", "replace")
        except OSError:
            return None


KERNEL = Files()


def flat_keyed(text: str | None) -> dict[str, int]:
    """A "flat keyed" file, such as cgroup.events (cgroup-v2.rst, Interface Files)."""
    found = {}
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        # v1's pids.events has a space before its only key as well.
        if not key:
            key, _, value = value.partition(" ")
        if value.isdigit():
            found[key] = int(value)
    return found


def listed(files: Files, path: str) -> tuple[str, ...]:
    """Which of our controllers a file names."""
    words = (files.read(path) or "").split()
    return tuple(controller for controller in CONTROLLERS if controller in words)


def number(text: str | None) -> int | None:
    """A single value; None for "max", and for what could not be read."""
    word = (text or "").strip()
    return int(word) if word.lstrip("-").isdigit() else None


@dataclass(frozen=True, slots=True)
class Place:
    """A folder below which groups can be made, and what they limit there.

    With no controllers it is v2 of a hybrid host: good for cgroup.kill, cgroup.events, cpu.stat.
    """

    version: Version
    folder: str
    controllers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mounted:
    """One hierarchy, mounted: `root` is the part of it that is seen at `point`.

    `controllers` are those of a v1 hierarchy, which may share one (cpu,cpuacct); those of v2
    are in its cgroup.controllers.
    """

    version: Version
    point: str
    root: str
    controllers: frozenset[str] = frozenset()

    def folder(self, path: str | None) -> str | None:
        """Where a group named as in /proc/PID/cgroup is; None where this mount shows it not.

        Both names are relative to the reader's cgroup namespace (cgroup_namespaces(7)): a mount
        or a group from outside of it starts with "/..". A container without a namespace of its
        own has the host's name in both.
        """
        if path is None:
            return None
        if self.root == "/":
            below = path
        elif path == self.root or path.startswith(f"{self.root}/"):
            below = path[len(self.root) :]
        else:
            return None
        parts = [part for part in below.split("/") if part]
        return None if ".." in parts else os.path.join(self.point, *parts)


def mounted(mountinfo: str | None, below: str) -> list[Mounted]:
    """Each hierarchy that is mounted at `below` or deeper (proc_pid_mountinfo(5))."""
    found: dict[str, Mounted] = {}
    for line in (mountinfo or "").splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        root, point = (_unescaped(field) for field in fields[3:5])
        kind, _, options = fields[fields.index("-", 6) + 1 :][:3]
        if point != below and not point.startswith(f"{below}/"):
            continue
        # What is mounted later at the same point covers what was there.
        found.pop(point, None)
        if kind == "cgroup2":
            found[point] = Mounted(2, point, root)
        elif kind == "cgroup":
            found[point] = Mounted(1, point, root, frozenset(options.split(",")))
    return list(found.values())


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def own_paths(cgroup: str | None) -> dict[str, str]:
    """A process's group in each hierarchy, by controller; "" is v2's (cgroups(7))."""
    found = {}
    for line in (cgroup or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def cause_of(error: OSError) -> str:
    """What a receipt or a remedy says of an error: the errno's text."""
    return f"{error.strerror or error} (errno {error.errno})"


def upwards(folder: str, top: str) -> Iterator[str]:
    """A group and those above it, up to the top of what is mounted."""
    while True:
        yield folder
        if folder == top:
            return
        folder = os.path.dirname(folder)
