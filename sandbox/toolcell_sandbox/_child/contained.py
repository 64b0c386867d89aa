"""A jail without namespaces, for hosts that refuse them: isolation level `container`.

       zygote ── fork ──► init ── fork ──► worker (leader of a process group of its own)
       supervisor ── link ──┘                Landlock, seccomp; no setsid, no setpgid

The init is outside the group, the subreaper of all that is in it, and not
dumpable. Nothing leaves the group, since the filter answers setsid and setpgid without doing
them; so one `kill(-pgid)` reaches every process, and no fork outruns it: a process with a signal
pending makes none. The leader stays unreaped until then, which keeps its number from being
another group's. What is left is reaped until there is none: that is the proof of an empty tree.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import signal

from . import cgroups, landlock, links, metadata, mounts, reaper, remove, seccomp, syscalls, worker
from .report import Report, StageFailed, stage
from .state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


REMOVE_S = 0.3
"""How long a call waits for the removal of what it left behind."""


def main(config: dict[str, Any], init: Report, work: Report) -> NoReturn:
    """One jail, from fork to the last reap. Never returns and never raises."""
    try:
        _run(config, init, work)
    except StageFailed as error:
        init.send("failed", **error.facts)
    except BaseException as error:
        init.send("init_broke", cause=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(0)


def _run(config: dict[str, Any], init: Report, work: Report) -> None:
    try:
        with stage("tree_killed", "init"):
            own = os.pidfd_open(os.getpid())
            init.send("started", own)
            os.close(own)
            # Until it is in the scope that it was promised, nothing may be started in it.
            if config["is_adopted"] and not reaper.wait_for(init.link, "go"):
                return
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
            syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
            # What it does in a worker's place, the worker could do: it has no more to give.
            syscalls.drop_bounding_set(may_be_refused=True)
            syscalls.drop_capabilities()
        if config["landlock_abi"]:
            with stage("fs_confined", "init"):
                _look_at_nobody_else(config["landlock_abi"])
        config["reach"] = _reach(config)
        _jail(config, init, work)
    finally:
        _remove(config["place"])
        init.send("cleared")


def _remove(place: str) -> None:
    """Remove the jail's own folders; what takes long is left to a process of its own.

    A jail can leave millions of files, and its result must not wait for that.
    """
    try:
        is_gone = remove.remove_tree(place, within_s=REMOVE_S)
    except OSError:
        is_gone = not os.path.lexists(place)
    if is_gone or os.fork() != 0:
        return
    try:
        # Nobody waits for it, and no pipe of the call is held open by it.
        syscalls.close_range(0)
        remove.insist(place)
    finally:
        os._exit(0)


def _look_at_nobody_else(version: int) -> None:
    """A domain that is all of the file system, around the jail's: for what else a domain bounds.

    Paths are walked here in a worker's place, also below /proc. What is said there of processes
    of the same uid outside (their descriptors, their memory's map) is then refused to this
    process too, as is a signal to them (landlock(7), "Ptrace restrictions", "IPC scoping").
    """
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    rules = landlock.Ruleset(version, connect=True)
    rules.grant([("/", landlock.WRITE)])
    rules.restrict()


def _reach(config: dict[str, Any]) -> list[tuple[int, int]]:
    """Every rule of the only fence, by descriptor: with no symlink on the way to a mount."""
    rules: list[tuple[int, int]] = []
    with stage("fs_confined", "open"):
        for path in (*config["system"], *config["read_files"]):
            with contextlib.suppress(FileNotFoundError):
                rules.append((os.open(path, os.O_PATH | os.O_CLOEXEC), landlock.READ))
        for name in mounts.DEVICES:
            fd = os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)
            rules.append((fd, landlock.DEVICE))
        for path in config["private"]:
            rules.append((syscalls.open_exactly(path), landlock.WRITE))
    for entry in config["mounts"]:
        with stage("fs_confined", "open"):
            try:
                fd = syscalls.open_exactly(entry["path"])
            except FileNotFoundError:
                if entry["optional"]:
                    continue
                raise
            mounts.check_identity(entry, os.fstat(fd))
        rules.append((fd, landlock.WRITE if entry["writable"] else landlock.READ))
    return rules


def _jail(config: dict[str, Any], init: Report, work: Report) -> None:
    state = State()
    wakeup = reaper.wake_on_children()
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    theirs = links.above(theirs)
    ready, go = os.pipe2(os.O_CLOEXEC)
    entry = cgroups.Entry(config["cgroups"])
    with stage("tree_killed", "fork"):
        leader = os.fork()
    if leader == 0:
        os.close(go)
        if os.read(ready, 1) != b"1":
            os._exit(0)
        _become_leader(work, entry)
        ours.close()
        init.link.close()
        worker.main(config, work, state, theirs, ranged=False)
    theirs.close()
    work.link.close()
    group = _Group(leader, config, init, state, ours, wakeup)
    try:
        with stage("tree_killed", "group"):
            os.setpgid(leader, leader)
            if os.getpgid(leader) != leader:
                # As in a jail of this very kind, whose filter answers so without doing it.
                raise OSError(errno.EPERM, "this process may not make process groups")
        entry.put(leader)
        init.send("grouped", group=leader)
        os.write(go, b"1")
        group.say(worker.ROOT)
        group.run()
    finally:
        os.close(go)
        entry.close()
        group.end_all()
        if config["is_adopted"]:
            reaper.wait_for(init.link, "go")


def _become_leader(report: Report, entry: cgroups.Entry) -> None:
    try:
        cgroups.enter(entry.tasks)
        with stage("tree_killed", "parent"):
            syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    except StageFailed as error:
        report.send("failed", **error.facts)
        os._exit(1)


class _Group(reaper.Reaper):
    """A reaper that leaves its leader unreaped until the whole group has been killed."""

    _is_over = False

    def begin(self, call: dict[str, Any], files: list[int]) -> None:
        if files:
            with stage("fs_confined", "script"), open(self._config["script"], "wb") as file:
                mounts.copy(files[0], file.fileno())
        super().begin(call, files)

    def answer(self, blocked: seccomp.Blocked) -> bool:
        assert self.listener is not None
        tops = mounts.writable(self._config)
        return metadata.Metadata(self.listener, tops).answer(blocked)

    def reap(self) -> bool:
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if seen is None:
                return False
            if seen.si_pid == self._leader:
                return True
            self._wait(seen.si_pid)

    def end_all(self) -> None:
        """Kill the group, reap until nobody is left, and say what all of it used."""
        if self._is_over:
            return
        self._is_over = True
        ended_by_itself = self._has_ended()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._leader, signal.SIGKILL)
        leader: tuple[int, float] | None = None
        while (found := self._wait(-1)) is not None:
            pid, status, cpu_s = found
            if pid == self._leader:
                leader = status, cpu_s
        if leader is not None and ended_by_itself:
            self.tell(*leader)
        self.report.send("emptied", cpu_s=self._cpu_s, peak_memory_bytes=self._peak_kib * 1024)

    def _has_ended(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._leader, flags) is not None
        return False

    def _wait(self, pid: int) -> tuple[int, int, float] | None:
        try:
            ended, status, used = os.wait4(pid, 0)
        except ChildProcessError:
            return None
        self._count(used)
        return ended, status, used.ru_utime + used.ru_stime
