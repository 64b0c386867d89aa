"""Network namespaces with nothing in them, each of one jail at a time.

To make one and to remove it costs as much as the rest of a jail. It has no address and no link
that is up, and belongs to the zygote's user namespace: no jail has a capability over it, so none
can leave anything in it but what the kernel counts (`/proc/net/snmp`). It is another's once the
jail's init was reaped, and every process with it (pid_namespaces(7)), if no socket is left.
"""

from __future__ import annotations

import os

from . import syscalls

_FREE_MAX = 16


class Networks:
    """Those of one zygote. From the first on it is in one of its own while it forks no jail.

    Only the host's root could go back to the host's (setns(2)): so jails that are to have that are
    forked from another zygote.
    """

    def __init__(self) -> None:
        self._home: int | None = None
        self._free: list[int] = []
        self._taken: dict[int, int] = {}

    def enter(self) -> int:
        """Go into one that nobody is in, made where there is none; a descriptor of it."""
        if self._home is None:
            self._home = _new()
        while self._free:
            found = self._free.pop()
            syscalls.enter_network(found)
            if not is_anything_left():
                return found
            os.close(found)
        return _new()

    def leave(self, found: int, pid: int | None) -> None:
        """Come back; it is the jail's whose init is `pid`, or nobody's."""
        assert self._home is not None, "it was entered"
        syscalls.enter_network(self._home)
        if pid is None:
            self._keep(found)
        else:
            self._taken[pid] = found

    def reaped(self, pid: int) -> None:
        """The init is gone, and all that were in its network with it."""
        found = self._taken.pop(pid, None)
        if found is not None:
            self._keep(found)

    def _keep(self, found: int) -> None:
        if len(self._free) < _FREE_MAX:
            self._free.append(found)
        else:
            os.close(found)


def is_anything_left() -> bool:
    """Whether this process's network has a socket: in flight, one outlives whoever sent it.

    The kernel collects those, and the files that they carry, in its own time (unix(7), SCM_RIGHTS).
    """
    with open("/proc/self/net/unix", "rb") as file:
        return len(file.readlines()) > 1


def _new() -> int:
    syscalls.unshare(syscalls.CLONE_NEWNET)
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
