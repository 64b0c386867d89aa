"""What is mounted in this process's namespace, and what of that concerns whom.

See proc_pid_mountinfo(5). A change is noticed without reading: poll(2) tells of it, once.
"""

from __future__ import annotations

import os
import re
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMESPACE = "/proc/self/ns/mnt"
_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mounted:
    """One mount: a line of the table."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        fields = line.split(b" - ")[0].split()
        self.number, self.parent = fields[0], fields[1]
        # Spaces and the like are written in octal there.
        self.point = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), fields[4])
        # Whether what is mounted on it appears in copies of its namespace as well.
        self.is_shared = any(field.startswith(b"shared:") for field in fields[6:])


class Watch:
    """The table of the namespace that this process is in."""

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self._namespace = os.stat(_NAMESPACE).st_ino
        self._fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poller = select.poll()
        self._poller.register(self._fd, select.POLLPRI)

    def has_changed(self) -> bool:
        """Whether anything was mounted, unmounted or changed since this was asked last."""
        if os.stat(_NAMESPACE).st_ino != self._namespace:
            # An open table stays that of the namespace that was left (setns(2), unshare(2)).
            self.close()
            self._open()
            return True
        return bool(self._poller.poll(0))

    def read(self) -> list[Mounted]:
        """All that is mounted now."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self._fd, 1 << 16):
            parts.append(part)
        return [Mounted(line) for line in b"".join(parts).splitlines()]

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)


class Around:
    """What is mounted at, below or on the way to certain paths; read again when that changes."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._mounted: list[Mounted] | None = None
        # By the caller's name for the paths.
        self._known: dict[str, tuple[bytes, ...]] = {}

    def look(self, name: str, paths: Iterable[str]) -> tuple[bytes, ...]:
        """The mounts around these paths, whose name is worth as much as they are."""
        mounted = self.mounted()
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = around(mounted, paths)
        return found

    def mounted(self) -> list[Mounted]:
        """All that is mounted now."""
        if self._watch.has_changed() or self._mounted is None:
            self._mounted, self._known = self._watch.read(), {}
        return self._mounted

    def close(self) -> None:
        """Let go of it."""
        self._watch.close()


def read() -> list[Mounted]:
    """All that is mounted in the namespace that this process is in now."""
    watch = Watch()
    try:
        return watch.read()
    finally:
        watch.close()


def around(mounted: Iterable[Mounted], paths: Iterable[str]) -> tuple[bytes, ...]:
    """The lines of what is mounted at one of the paths, below it, or on the way to it."""
    tops = {os.fsencode(path) for path in paths}
    ways = {step for top in tops for step in _steps(top)}
    return tuple(
        each.line
        for each in mounted
        if each.point in ways or not tops.isdisjoint(_steps(each.point))
    )


def _steps(path: bytes) -> list[bytes]:
    """A path, and every folder above it."""
    found = [path]
    while path != b"/":
        path = os.path.dirname(path)
        found.append(path)
    return found


def is_passed_on(before: list[Mounted], after: list[Mounted]) -> bool:
    """Whether a namespace that was copied before, as a slave, shows what has changed.

    What is mounted on a shared mount, or unmounted from one, appears there too; nothing else does,
    flags least of all (mount_namespaces(7)).
    """
    then, now = ({each.number: each for each in table} for table in (before, after))
    for number in then.keys() | now.keys():
        old, new = then.get(number), now.get(number)
        if old is not None and new is not None:
            if old.line != new.line:
                return False
            continue
        table, one = (then, old) if old is not None else (now, new)
        assert one is not None, "it is in one of the two"
        parent = table.get(one.parent)
        if parent is None or not parent.is_shared:
            return False
    return True
