"""Process 1 of a jail: builds the root, starts the worker, reaps, and takes the tree with it.

When it exits, the kernel kills every process of the pid namespace before the exit is reported
to its parent (pid_namespaces(7)): the end of the init is the proof that the tree is empty. It
runs no code of a handler, holds capabilities that the worker lacks, and cannot be traced.
"""

from __future__ import annotations

import _socket
import os
import signal

from . import (
    cgroups,
    ids,
    links,
    mounts,
    networks,
    overlay,
    reaper,
    rlimits,
    stamps,
    syscalls,
    worker,
)
from .report import Report, StageFailed, stage
from .state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def main(
    config: dict[str, Any],
    trees: list[mounts.Tree] | None,
    init: Report,
    work: Report,
    *,
    ranged: bool,
) -> NoReturn:
    """Run the jail from the inside. Never returns and never raises.

    `init` and `work` are this process's link to the supervisor and the worker's.
    """
    try:
        cgroups.enter(config["tasks"])
        _become(ranged=ranged)
        # Until it is in the scope that it was promised, nothing may be started in it.
        if config["is_adopted"] and not reaper.wait_for(init.link, "go"):
            os._exit(0)
        with stage("fs_confined", "namespaces"):
            syscalls.unshare(syscalls.CLONE_NEWCGROUP)
        wakeup = reaper.wake_on_children()
        jail = _Jails(config, init, wakeup, ranged=ranged)
        (jail.serve_all if config["renews"] else jail.serve_one)(trees, work)
    except StageFailed as error:
        init.send("failed", **error.facts)
    except BaseException as error:
        init.send("init_broke", cause=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(0)


class _Jails:
    """What one init makes: one jail, or one after the other."""

    def __init__(self, config: dict[str, Any], init: Report, wakeup: int, *, ranged: bool) -> None:
        self._config = config
        self._init = init
        self._wakeup = wakeup
        self._ranged = ranged

    def serve_one(self, trees: list[mounts.Tree] | None, work: Report) -> None:
        """One call.

        Its worker is forked before the root is built: the two then work side by side, and what
        this process touches from here on is its own, at the call as well. A new root becomes the
        worker's too, which is in the same mount namespace (pivot_root(2)).
        """
        leader = self._fork(work)
        opened = mounts.open_trees(self._config, None) if trees is None else trees
        root = mounts.build(self._config, opened, renews=False)
        laid = mounts.prepare(self._config, root)
        _own_names(self._config)
        self._run(leader, laid, work)

    def serve_all(self, trees: list[mounts.Tree] | None, work: Report) -> None:
        """One call after the other, of one plan.

        None of them finds anything of an earlier one: each has a worker, a copy of the root in a
        mount namespace, an IPC namespace and file systems of its own, and is begun only once
        wait4(2) has said that nobody is left of the one before, nobody of whom had to be killed,
        and no socket is. What they share is what no worker can change: ids, host name, a network
        without a link, and this process's memory, which hears of a call when it began and how it
        ended, no more. What the earlier ones used in sum can be read in /proc/1.
        """
        assert trees is not None, "an init with the worker's uid would be the worker's to stop"
        root = mounts.build(self._config, trees, renews=True)
        _own_names(self._config)
        with stage("no_new_privileges", "ids"):
            # Each worker has what this process is bounded by, and as much address space.
            syscalls.drop_bounding_set(may_be_refused=False)
            self._config["is_bounded"] = True
        self._config["limits"]["mapped_bytes"] = rlimits.mapped_bytes()
        bare = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        own = syscalls.CLONE_NEWNS
        if "ipc_namespace" in self._config["layers"]:
            own |= syscalls.CLONE_NEWIPC
        following: Report | None = work
        while following is not None:
            with stage("fs_confined", "namespaces"):
                syscalls.unshare(own)
            laid = mounts.prepare(self._config, root)
            is_calm = self._run(self._fork(following), laid, following)
            if not is_calm or networks.is_anything_left():
                return
            with stage("fs_confined", "namespaces"):
                syscalls.enter_mounts(bare)
            mounts.forget_numbers(root)
            following = self._await_next()

    def _fork(self, work: Report) -> _Worker:
        state = State()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        theirs = links.above(theirs)
        with stage("tree_killed", "fork"):
            pid = os.fork()
        if pid == 0:
            ours.close()
            self._init.link.close()
            # At once: what this process has open leads to the layers below the workspace, to a
            # /proc without masks, to the root of later calls.
            syscalls.close_all_but(work.link.fileno(), theirs.fileno())
            worker.main(self._config, work, state, theirs, ranged=self._ranged)
        theirs.close()
        return _Worker(pid, state, ours)

    def _run(self, leader: _Worker, laid: mounts.Laid, work: Report) -> bool:
        """The call in its jail; whether another one may follow it."""
        jail = _Jail(leader, self._config, self._init, self._wakeup, laid, work)
        jail.say(worker.ROOT)
        if not links.is_told(self._init.link, links.SOON_MS):
            jail.rehearse()
        try:
            jail.run()
            if not (jail.is_calm and self._config["renews"]):
                jail.linger()
                return False
        except StageFailed:
            raise
        except Exception as error:
            # A worker of the same uid can lower our limits; one with its own cannot.
            event = "init_broke" if self._ranged else "init_lost"
            jail.report.send(event, cause=f"{type(error).__name__}: {error}"[:500])
            return False
        jail.close()
        return True

    def _await_next(self) -> Report | None:
        """The link of the next call's worker; None where there is none to be."""
        message, files = links.receive(self._init.link)
        if message is None or message["event"] != "again":
            return None
        return Report(links.above(links.of(files[0])))


class _Worker:
    """A worker that was forked, and what its init has of it."""

    def __init__(self, pid: int, state: State, link: _socket.socket) -> None:
        self.pid = pid
        self.state = state
        self.link = link


class _Jail(reaper.Reaper):
    """A reaper that lays into the root what its call decides."""

    def __init__(
        self,
        leader: _Worker,
        config: dict[str, Any],
        report: Report,
        wakeup: int,
        laid: mounts.Laid,
        work: Report,
    ) -> None:
        super().__init__(leader.pid, config, report, leader.state, leader.link, wakeup)
        self._laid = laid
        self._work = work

    def rehearse(self) -> None:
        super().rehearse()
        for layers in self._laid.layers:
            overlay.rehearse(layers)

    def linger(self) -> None:
        """Stay until the supervisor lets go: it is not to wait for a processor that this one has.

        Nor, where there is a scope, for what that saw, which goes with its last process.
        """
        reaper.wait_for(self.report.link, "go")

    def begin(self, call: dict[str, Any], files: list[int]) -> None:
        if self._laid.keeps and call["marker"] is None:
            call["marker"] = stamps.ticked(call["begun_ns"])
        script = files[0] if files else None
        kept = mounts.furnish(self._config, self._laid, call["masks"], script)
        super().begin(call, files)
        if kept is not None:
            # Said where the supervisor looks when it has something else to do, which need not wake
            # for that. Its file system lives as long as a descriptor of it, also after this
            # namespace. With it goes from when on a change of the real workspace may be one that
            # the jail did not see: before the overlay was laid, which took in what was there.
            fd, owners = kept
            self._work.send("layer", fd, owners=owners, marker=call["marker"])
            os.close(fd)
        self._work.link.close()


def _own_names(config: dict[str, Any]) -> None:
    """The jail's own host name; a loopback of its own where it is to have one."""
    with stage("ipc_private", "hostname"):
        _socket.sethostname("toolcell")
    if config["network"] == "loopback":
        with stage("net_loopback", "loopback"):
            syscalls.raise_link("lo")


def _become(*, ranged: bool) -> None:
    with stage("fs_confined", "ids"):
        if ranged:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        else:
            ids.map_self()
    with stage("tree_killed", "parent"):
        # After the ids: a change of credentials clears both (prctl(2)).
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
