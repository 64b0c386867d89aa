"""The group of one jail: its limits, what it saw, and its end."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from types import TracebackType
from typing import Self

import trio

from . import _cgroup_names as names
from ._cgroup_files import KERNEL, Files, Place, cause_of, flat_keyed, number
from ._cgroup_limits import INIT_MEMORY_BYTES, INIT_PROCESSES, limits_of, set_limits
from ._cgroup_offer import CgroupOffer

REMOVE_S = 2.0
"""How long `remove` keeps at it; a group is empty some milliseconds after its last process."""
CLOSE_S = 0.02
FREEZE_S = 0.5
"""How long a tree may take to stand still; one that does not is let go on."""
_GUARANTEES = {
    "memory": "memory_limited",
    "pids": "processes_limited",
    "cpu": "cpu_limited",
}


class NotMade(OSError):
    """A jail's group could not be made, or does not hold its limits; nothing of it is left.

    The call has to fail closed as `confinement_failed`: trying again helps only where the
    offer is looked for again, since a group of ours was taken away.
    """

    stage = "cgroup"

    def __init__(self, controller: str, cause: str, number: int = 0) -> None:
        super().__init__(number, cause)
        self.guarantee = _GUARANTEES.get(controller, "tree_killed")
        self.cause = cause
        self.errno_name = errno.errorcode.get(number)


class Group:
    """One group, in as many hierarchies as it takes. Made by `make`; removed when it is closed.

    Every figure counts from the group's making. Each is the largest that was seen, and stays
    when the group is gone. Memory and processes are those of the whole tree, the init's too.
    """

    needs_adoption = False
    """Whether `adopt` has to be awaited before the init makes its worker."""
    needs_lingering = False
    """Whether the init must stay until `sample` was called after the init's end."""

    def __init__(self, folders: tuple[Place, ...], files: Files = KERNEL) -> None:
        self._folders = folders
        self._files = files
        self._seen: dict[str, int] = {}
        self._is_settled = False
        # What was counted before the call that it is for now.
        self._before: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- joining --------------------------------------------------------------------------

    @property
    def places(self) -> tuple[tuple[int, str], ...]:
        """Each group that the init has to be in before it goes on: its version, its folder.

        One that it cannot enter means that a limit does not hold.
        """
        return tuple((folder.version, folder.folder) for folder in self._folders)

    @property
    def procs_files(self) -> tuple[str, ...]:
        """Each cgroup.procs of it: who is in it, and where a pid takes its whole process there."""
        return tuple(f"{folder.folder}/cgroup.procs" for folder in self._folders)

    async def adopt(self, init_pid: int) -> None:
        """Put the init into the group, where only a service manager can. Else nothing.

        Raises:
            NotMade: the manager refused, was silent, or does not hold what it was asked for.
        """
        await trio.lowlevel.checkpoint()

    # -- evidence -------------------------------------------------------------------------

    def sample(self) -> None:
        """Read every figure now: what the group saw outlives it."""
        self.oom_kills()
        self.peak_memory_bytes()
        self.processes_refused()
        self.cpu_s()

    def settle(self) -> None:
        """Read what evidence needs for the last time: nobody is left in it who could change it.

        Not the CPU time, which its processes were reaped with: to sum it up costs the kernel much.
        """
        self.oom_kills()
        self.peak_memory_bytes()
        self.processes_refused()
        self._is_settled = True

    def renew(self) -> bool:
        """Count anew from here on, for another call by the same init; False where it cannot be.

        Nobody but the init is in it. What an earlier call still has of its memory, such as files
        of its own that somebody looks at, would be taken from the next: no more of that than an
        init's own share. A peak can be set back on v1 only (cgroup-v1/memory.rst,
        max_usage_in_bytes): v2 has that per descriptor, from Linux 6.12 on.
        """
        memory = self._with("memory")
        if memory is not None:
            if memory.version != 1:
                return False
            used = number(self._files.read(f"{memory.folder}/memory.usage_in_bytes"))
            if used is None or used > INIT_MEMORY_BYTES:
                return False
            try:
                self._files.write(f"{memory.folder}/memory.max_usage_in_bytes", "0")
            except OSError:
                return False
        self._is_settled = False
        self.cpu_s()
        for key, value in self._seen.items():
            if key != "peak":
                self._before[key] = self._before.get(key, 0) + value
        self._seen.clear()
        return True

    def oom_kills(self) -> int:
        """How many processes the kernel has ended for memory: the group's limit, or the host's.

        On v2 the whole tree is ended and each process counts (memory.events, oom_kill). A limit
        that was only reached (failcnt, max) is no harm done, so it does not count.
        """
        return self._counted("memory", "oom_kill", ("memory.oom_control", "memory.events")) or 0

    def processes_refused(self) -> int:
        """How many forks and threads were refused for the limit on processes (EAGAIN)."""
        return self._counted("pids", "max", ("pids.events", "pids.events")) or 0

    def peak_memory_bytes(self) -> int | None:
        """The most that the tree used at once, page cache and tmpfs included; None if unknown.

        Linux 5.19 has it on v2 (memory.peak).
        """
        folder = self._with("memory")
        if folder is None or self._is_settled:
            return self._seen.get("peak")
        file = ("memory.max_usage_in_bytes", "memory.peak")[folder.version - 1]
        return self._most("peak", number(self._files.read(f"{folder.folder}/{file}")))

    def cpu_s(self) -> float | None:
        """CPU time of all who ever were in the tree, reaped or not; None if unknown."""
        used_ns: int | None = None
        for folder in () if self._is_settled else self._folders:
            if folder.version == 2:
                usage = flat_keyed(self._files.read(f"{folder.folder}/cpu.stat")).get("usage_usec")
                used_ns = None if usage is None else usage * 1000
            else:
                used_ns = number(self._files.read(f"{folder.folder}/cpuacct.usage"))
            if used_ns is not None:
                break
        used_ns = self._most("cpu", used_ns)
        return None if used_ns is None else used_ns / 1e9

    def is_empty(self) -> bool:
        """Whether nobody is left in it. Zombies do not count; a group that is gone is empty.

        One that is there and cannot be read now (no descriptors left) is not known to be empty.
        """
        for folder in self._folders:
            if folder.version == 2:
                text = self._files.read(f"{folder.folder}/cgroup.events")
                if text is None:
                    return not self._files.exists(folder.folder)
                # A process is in every hierarchy, so v2 speaks for all.
                return flat_keyed(text).get("populated", 0) == 0
        return all(
            self._files.read(file) == "" or not self._files.exists(file)
            for file in self.procs_files
        )

    # -- the end --------------------------------------------------------------------------

    def kill(self) -> None:
        """Send SIGKILL to all who are in it, once; `is_empty` tells when they have ended.

        By cgroup.kill (v2, Linux 5.14), which no fork outruns; elsewhere one by one, where there
        is v2 with all of them frozen: who is frozen makes no more (cgroup-v2.rst).
        """
        for folder in self._folders:
            if folder.version == 2:
                if kill_at_once(self._files, folder.folder):
                    return
                with contextlib.suppress(OSError):
                    self._files.write(f"{folder.folder}/cgroup.freeze", "1")
        for folder in self._folders:
            kill_one_by_one(self._files, folder.folder)

    async def freeze(self) -> bool:
        """Stop all who are in it until `thaw`; whether they stand still now.

        By cgroup.freeze (v2, Linux 5.2), which a deadly signal still ends. Elsewhere False, and
        nobody is stopped. Cancelled, it lets them go on.
        """
        await trio.lowlevel.checkpoint()
        folder = next((one.folder for one in self._folders if one.version == 2), None)
        if folder is None:
            return False
        is_frozen = False
        try:
            self._files.write(f"{folder}/cgroup.freeze", "1")
            with trio.move_on_after(FREEZE_S):
                while not (is_frozen := self._is_frozen(folder)):  # noqa: ASYNC110 - a file tells
                    await trio.sleep(0.001)
        except OSError:
            return False
        finally:
            if not is_frozen:
                self.thaw()
        return is_frozen

    def _is_frozen(self, folder: str) -> bool:
        return flat_keyed(self._files.read(f"{folder}/cgroup.events")).get("frozen") == 1

    def thaw(self) -> None:
        """Let all who are in it go on; harmless where they do."""
        for folder in self._folders:
            if folder.version == 2:
                with contextlib.suppress(OSError):
                    self._files.write(f"{folder.folder}/cgroup.freeze", "0")

    def try_remove(self) -> bool:
        """Remove what can be removed now; True when nothing is left. Never waits or raises."""
        if not self._is_settled:
            self.sample()
        left = [folder for folder in self._folders if not removed(self._files, folder.folder)]
        self._folders = tuple(left)
        return not left

    async def remove(self, within_s: float = REMOVE_S) -> bool:
        """Remove the group, ending who is in it; False where it is still there in the end.

        Does not block the loop. Cancelled while it waits, it leaves the rest to `close` and the
        next sweep, so shield it. What is left is removed by the sweep of a later supervisor.
        """
        pause_s = 0.0005
        with trio.move_on_after(within_s):
            while not self.try_remove():
                self.kill()
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.02)
        return self.try_remove()

    def close(self) -> None:
        """Remove the group at once, waiting some milliseconds at most. For an ExitStack.

        After `remove` there is nothing left to do.
        """
        deadline = time.monotonic() + CLOSE_S
        while not self.try_remove() and time.monotonic() < deadline:
            self.kill()
            time.sleep(0.001)

    # -- reading --------------------------------------------------------------------------

    def _with(self, controller: str) -> Place | None:
        for folder in self._folders:
            if controller in folder.controllers:
                return folder
        return None

    def _counted(self, controller: str, key: str, files: tuple[str, str]) -> int | None:
        folder = self._with(controller)
        text = None
        if folder is not None and not self._is_settled:
            text = self._files.read(f"{folder.folder}/{files[folder.version - 1]}")
        return self._most(key, flat_keyed(text).get(key))

    def _most(self, name: str, value: int | None) -> int | None:
        if value is not None:
            value -= self._before.get(name, 0)
            self._seen[name] = max(self._seen.get(name, 0), value)
        return self._seen.get(name)


def make_group(
    offer: CgroupOffer, *, memory_bytes: int, processes: int, files: Files = KERNEL
) -> Group:
    """A group in each place of the offer, with its limits set, and nobody in it yet."""
    limits = limits_of(memory_bytes + INIT_MEMORY_BYTES, processes + INIT_PROCESSES, offer.cpus)
    name = names.new_name()
    made: list[Place] = []
    for place in offer.places:
        path = os.path.join(place.folder, name)
        controller = next(iter(place.controllers), "")
        try:
            files.mkdir(path)
            made.append(Place(place.version, path, place.controllers))
            for controller in place.controllers:
                set_limits(files, place.version, path, {controller: limits[controller]})
        except OSError as error:
            for folder in made:
                removed(files, folder.folder)
            cause = f"a group below {place.folder}: {cause_of(error)}"
            raise NotMade(controller, cause, error.errno or 0) from error
    return Group(tuple(made), files)


def removed(files: Files, group: str) -> bool:
    """Whether the group is gone now, by our doing or another's."""
    try:
        files.rmdir(group)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENODEV)
    return True


def members(files: Files, group: str) -> list[int]:
    """Who is in a group, but for us, and for those of whom this pid namespace knows nothing."""
    words = (files.read(f"{group}/cgroup.procs") or "").split()
    return [int(word) for word in words if word.isdigit() and int(word) not in (0, os.getpid())]


def kill_at_once(files: Files, group: str) -> bool:
    """End a v2 group as one; False where the kernel cannot."""
    try:
        files.write(f"{group}/cgroup.kill", "1")
    except OSError:
        return not files.exists(group)
    return True


def kill_one_by_one(files: Files, group: str) -> None:
    """Send SIGKILL to each member. One that forks meanwhile is met the next time.

    A pid is looked up again once it is held by a descriptor: no other process is ever meant.
    """
    for pid in members(files, group):
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if pid in members(files, group):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except OSError:
            continue
        finally:
            os.close(pidfd)
