"""Process 1 of a jail: builds the root, starts the worker, reaps, and takes the tree with it.

When it exits, the kernel kills every process of the pid namespace before the exit is reported
to its parent (pid_namespaces(7)): the end of the init is the proof that the tree is empty. It
runs no code of a handler, holds capabilities that the worker lacks, and cannot be traced.
"""

from __future__ import annotations

import _socket
import os
import signal
import time

from . import cgroups, ids, links, mounts, reaper, syscalls, worker
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
        """Stay until what the jail's scope saw was read, which goes with its last process."""
        if self._config["is_adopted"]:
            reaper.wait_for(self.report.link, "go")

    def rehearse(self) -> None:
        """Do once what a call does: what it touches first is then no longer to be copied."""
        super().rehearse()
        if any(layers.keeps for layers in self._root.layers):
            _marker(0)

    def begin(self, call: dict[str, Any]) -> None:
        if any(layers.keeps for layers in self._root.layers):
            # Before the overlays, which take in what their folders hold from here on.
            marker = _marker(call["begun_ns"])
        upper = mounts.furnish(self._config, self._root, call["masks"], call["script"])
        if upper is not None:
            fd, owners = upper
            # Handed over before anybody writes. Its file system lives as long as a descriptor of
            # it, also after this namespace. With it goes the time from which on a change of the
            # real workspace may be one that the jail did not see. Said where the supervisor looks
            # when it has something else to do: it need not wake for that.
            self._work.send("layer", fd, owners=owners, marker=marker)
            os.close(fd)
        self._work.link.close()
        super().begin(call)


def _marker(begun_ns: int) -> tuple[int, int]:
    """Now, by the clock that file systems stamp with, and by the one that nobody sets.

    Whatever was changed before the call is stamped earlier, whatever is changed from here on not.
    The clock that files are stamped with ticks every 1 to 10 ms. From Linux 6.13 on a stamp that
    is finer, once given, is the least that any later one has ("multigrain timestamps", kernel
    documentation): so one is asked for. Elsewhere this waits for the next tick.
    """
    now_ns = _fine_stamp() or _next_tick(begun_ns)
    ahead_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return now_ns, now_ns - ahead_ns


def _fine_stamp() -> int | None:
    """A stamp between those of two ticks, and proof that later ones are not before it."""
    ticked_ns = time.clock_gettime_ns(_REALTIME_COARSE)
    asked, other = os.memfd_create("asked"), os.memfd_create("other")
    try:
        # Who was asked for its stamp since the last change gets a finer one at the next.
        _change(asked)
        fine_ns = _change(asked)
        is_floor = ticked_ns < fine_ns <= _change(other)
    finally:
        os.close(asked)
        os.close(other)
    return fine_ns if is_floor else None


def _change(fd: int) -> int:
    os.fchmod(fd, 0o600)
    return os.fstat(fd).st_ctime_ns


def _next_tick(begun_ns: int) -> int:
    until_ns = time.monotonic_ns() + TICK_NS_MAX
    while (now_ns := time.clock_gettime_ns(_REALTIME_COARSE)) <= begun_ns:
        if time.monotonic_ns() > until_ns:
            break  # The clock was set back: what lies before looks younger, and is a conflict.
        time.sleep(0.0005)
    return now_ns


TICK_NS_MAX = 50_000_000
_REALTIME_COARSE = 5
"""include/uapi/linux/time.h"""


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
