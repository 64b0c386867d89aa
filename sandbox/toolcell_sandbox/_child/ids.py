"""User and group ids: the maps of a jail's user namespace, and of id-mapped mounts.

A root supervisor's jail has a small host range of its own: the init is its first id, the worker
its second, owners found in the workspace the rest. Anybody else has one id, the supervisor's own.
See user_namespaces(7) and mount_setattr(2).
"""

from __future__ import annotations

import os
import stat
import time

from . import syscalls

INIT_ID = 0
WORKER_ID = 1000
"""What a worker sees as its own uid and gid. Not 0: tar and npm chown as root."""
OWNER_IDS = range(2000, 2000 + 12)
"""What a worker sees as the owners of what others put into the workspace."""


class Ids:
    """The host ids of a jail. `base` is None for a supervisor that has only its own."""

    def __init__(self, base: int | None, uid: int, gid: int) -> None:
        self.base = base
        self.uid = uid
        self.gid = gid

    @property
    def is_ranged(self) -> bool:
        """Whether the supervisor is the host's root and gives the jail ids of its own."""
        return self.base is not None

    def namespace_map(self, own: int) -> str:
        """The uid_map or gid_map of the jail, `own` being the supervisor's uid or gid."""
        if self.base is None:
            return f"{WORKER_ID} {own} 1\n"
        owners = f"{OWNER_IDS.start} {self.base + 2} {len(OWNER_IDS)}\n"
        return f"{INIT_ID} {self.base} 1\n{WORKER_ID} {self.base + 1} 1\n{owners}"


OWNERS_SEEN_MAX = 10_000
RANGE = 2 + len(OWNER_IDS)
"""Host ids that a root supervisor's jail takes."""


def owners_map(base: int, owner: int, others: set[int]) -> str:
    """The map of an id-mapped mount: `owner` on disk is the worker, others are themselves.

    More owners than there are ids for stay unmapped: what is theirs can be read where its mode
    says so, and not be changed.
    """
    lines = [f"{owner} {base + 1} 1\n"]
    rest = sorted(others - {owner})[: len(OWNER_IDS)]
    lines += [f"{other} {base + 2 + place} 1\n" for place, other in enumerate(rest)]
    return "".join(lines)


def on_disk(owners: str) -> dict[int, int]:
    """Which id on disk each host id of an `owners_map` stands for."""
    rows = (tuple(map(int, line.split())) for line in owners.splitlines())
    return {host: disk for disk, host, _ in rows}


def owners_of(fd: int) -> tuple[set[int], set[int]]:
    """The uids and gids of a folder and of what lies directly in it; of a file, its own.

    By descriptor, so that a name that means something else by now is not followed.
    """
    own = os.fstat(fd)
    uids, gids = {own.st_uid}, {own.st_gid}
    if stat.S_ISDIR(own.st_mode):
        with os.scandir(f"/proc/self/fd/{fd}") as entries:
            for _, entry in zip(range(OWNERS_SEEN_MAX), entries, strict=False):
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # Somebody else works here, and it is gone.
                uids.add(found.st_uid)
                gids.add(found.st_gid)
    return uids, gids


def owners_lately(fd: int) -> tuple[set[int], set[int]]:
    """As `owners_of`, as it was up to `LATELY_S` ago: for what a jail cannot change anyway.

    A name that is new is seen at once, by the folder's own time stamp.
    """
    own = os.fstat(fd)
    key = own.st_dev, own.st_ino, own.st_mtime_ns, own.st_ctime_ns
    known = _lately.pop(key, None)
    now_s = time.monotonic()
    if known is None or now_s >= known[0]:
        known = now_s + LATELY_S, owners_of(fd)
    _lately[key] = known
    if len(_lately) > _LATELY_MAX:
        del _lately[next(iter(_lately))]
    return known[1]


LATELY_S = 1.0
_LATELY_MAX = 64
_lately: dict[tuple[int, ...], tuple[float, tuple[set[int], set[int]]]] = {}


def write_maps(pid: int, uid_map: str, gid_map: str, *, ranged: bool) -> None:
    """Give the new user namespace of `pid` its ids, from outside it.

    Whoever maps only its own group must give up setgroups(2) first (user_namespaces(7)).
    """
    if not ranged:
        _write(f"/proc/{pid}/setgroups", "deny")
    _write(f"/proc/{pid}/uid_map", uid_map)
    _write(f"/proc/{pid}/gid_map", gid_map)


def map_self(uid: int = WORKER_ID, gid: int = WORKER_ID) -> None:
    """Give this process's new user namespace its one id, from inside (user_namespaces(7)).

    It stands for who this process was when `remember` was called.
    """
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {_remembered[0]} 1\n")
    _write("/proc/self/gid_map", f"{gid} {_remembered[1]} 1\n")


def remember() -> None:
    """Note who this process is: in a new user namespace everybody is nobody at first."""
    _remembered[:] = [os.geteuid(), os.getegid()]


_remembered = [-1, -1]


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


_MAPPINGS_MAX = 128
# By the maps; the one used last comes last.
_mapping_namespaces: dict[tuple[str, str], int] = {}


def mapping_namespace(uid_map: str, gid_map: str) -> int:
    """A user namespace that exists only as a map for mount_setattr(2); a descriptor of it.

    Kept for the next mount with the same owners: making one takes a process. It is good until
    the next is asked for.
    """
    key = (uid_map, gid_map)
    found = _mapping_namespaces.pop(key, None)
    if found is None:
        found = _new_namespace(uid_map, gid_map)
    _mapping_namespaces[key] = found
    if len(_mapping_namespaces) > _MAPPINGS_MAX:
        os.close(_mapping_namespaces.pop(next(iter(_mapping_namespaces))))
    return found


def _new_namespace(uid_map: str, gid_map: str) -> int:
    # Its one process waits for the end of a pipe, so that it also ends when this one is killed.
    wait, hold = os.pipe2(os.O_CLOEXEC)
    pid = syscalls.clone(syscalls.CLONE_NEWUSER)
    if pid == 0:
        try:
            os.close(hold)
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(wait)
    try:
        write_maps(pid, uid_map, gid_map, ranged=True)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(hold)
        os.waitpid(pid, 0)
