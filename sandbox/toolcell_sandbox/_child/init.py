"""Process 1 of a jail: builds the root, starts the worker, reaps, and takes the tree with it.

When it exits, the kernel kills every process of the pid namespace before the exit is reported
to its parent (pid_namespaces(7)): the end of the init is the proof that the tree is empty. It
runs no code of a handler, holds capabilities that the worker lacks, and cannot be traced.
"""

from __future__ import annotations

import _socket
import os
import signal

from . import cgroups, ids, links, mounts, reaper, stamps, syscalls, worker
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
        state = State()
        wakeup = reaper.wake_on_children()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        # Before the root is built: the two then work side by side, and what this process touches
        # from here on is its own, at the call as well. A new root becomes the worker's too, which
        # is in the same mount namespace (pivot_root(2)).
        with stage("tree_killed", "fork"):
            pid = os.fork()
        if pid == 0:
            ours.close()
            init.link.close()
            for tree in trees or ():
                os.close(tree.fd)
            worker.main(config, work, state, theirs, ranged=ranged)
        theirs.close()
        opened = mounts.open_trees(config, None) if trees is None else trees
        root = mounts.build(config, opened)
        jail = _Jail(pid, config, init, state, ours, wakeup, root, work)
        jail.say(worker.ROOT)
        _own_names(config)
        if not links.is_told(init.link):
            jail.rehearse()
        _serve(jail, ranged=ranged)
    except StageFailed as error:
        init.send("failed", **error.facts)
    except BaseException as error:
        init.send("init_broke", cause=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(0)


def _serve(jail: _Jail, *, ranged: bool) -> None:
    try:
        jail.run()
        jail.linger()
    except StageFailed:
        raise
    except Exception as error:
        # A worker of the same uid can lower our limits; one with its own cannot.
        event = "init_broke" if ranged else "init_lost"
        jail.report.send(event, cause=f"{type(error).__name__}: {error}"[:500])


class _Jail(reaper.Reaper):
    """A reaper that lays into the root what its call decides."""

    def __init__(
        self,
        leader: int,
        config: dict[str, Any],
        report: Report,
        state: State,
        leader_link: _socket.socket,
        wakeup: int,
        root: mounts.Root,
        work: Report,
    ) -> None:
        super().__init__(leader, config, report, state, leader_link, wakeup)
        self._root = root
        self._work = work

    def linger(self) -> None:
        """Stay until the supervisor lets go: it is not to wait for a processor that this one has.

        Nor, where there is a scope, for what that saw, which goes with its last process.
        """
        reaper.wait_for(self.report.link, "go")

    def begin(self, call: dict[str, Any]) -> None:
        keeps = any(layers.keeps for layers in self._root.layers)
        if keeps and call["marker"] is None:
            call["marker"] = stamps.ticked(call["begun_ns"])
        kept = mounts.furnish(self._config, self._root, call["masks"], call["script"])
        super().begin(call)
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
