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

from . import mounts, reaper, syscalls, worker
from .report import Report, StageFailed, stage
from .state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def main(
    config: dict[str, Any],
    trees: list[mounts.Tree] | None,
    report: Report,
    *,
    ranged: bool,
) -> NoReturn:
    """Run the jail from the inside. Never returns and never raises."""
    try:
        _become(ranged=ranged)
        opened = mounts.open_trees(config, None) if trees is None else trees
        _hand_over(config, mounts.build(config, opened))
        _own_names(config)
        state = State()
        wakeup = reaper.wake_on_children()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        with stage("tree_killed", "fork"):
            pid = os.fork()
        if pid == 0:
            ours.close()
            worker.main(config, report, state, theirs, ranged=ranged)
        theirs.close()
        worker.let_go(config["fds"])
        try:
            reaper.Reaper(pid, config, report, state, ours, wakeup).run()
        except Exception as error:
            # A worker of the same uid can lower our limits; one with its own cannot.
            event = "init_broke" if ranged else "init_lost"
            report.send(event, cause=f"{type(error).__name__}: {error}"[:500])
    except StageFailed as error:
        report.send("failed", **error.facts)
    except BaseException as error:
        report.send("init_broke", cause=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(0)


def _hand_over(config: dict[str, Any], upper: tuple[int, dict[str, Any]] | None) -> None:
    """Give the supervisor the layer that takes the workspace's changes, before anybody writes.

    Its file system lives as long as a descriptor of it, also after this namespace. With it goes
    the time from which on a change of the real workspace may be one that the jail did not see.
    """
    if upper is None:
        return
    import json

    fd, owners = upper
    with stage("writes_transactional", "hand over"):
        link = _socket.socket(fileno=config["fds"]["layer"])
        told = {"owners": owners, "marker": _marker(config["begun_ns"])}
        syscalls.send_fd(link, fd, json.dumps(told).encode())
        link.close()
        os.close(fd)


def _marker(begun_ns: int) -> tuple[int, int]:
    """Now, by the clock that file systems stamp with, and by the one that nobody sets.

    That clock ticks every 1 to 10 ms (clock_gettime(2), CLOCK_REALTIME_COARSE): waits until it
    has passed `begun_ns`, so that whatever was changed before the call is stamped earlier.
    """
    until_ns = time.monotonic_ns() + TICK_NS_MAX
    while (now_ns := time.clock_gettime_ns(_REALTIME_COARSE)) <= begun_ns:
        if time.monotonic_ns() > until_ns:
            break  # The clock was set back: what lies before looks younger, and is a conflict.
        time.sleep(0.0005)
    ahead_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return now_ns, now_ns - ahead_ns


TICK_NS_MAX = 50_000_000
_REALTIME_COARSE = 5
"""include/uapi/linux/time.h"""


def _own_names(config: dict[str, Any]) -> None:
    """The jail's own host name and cgroup root; a loopback of its own where it is to have one."""
    with stage("ipc_private", "hostname"):
        _socket.sethostname("toolcell")
    with stage("fs_confined", "namespaces"):
        syscalls.unshare(syscalls.CLONE_NEWCGROUP)
    if config["network"] == "loopback":
        with stage("net_loopback", "loopback"):
            syscalls.raise_link("lo")


def _become(*, ranged: bool) -> None:
    with stage("fs_confined", "ids"):
        if ranged:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
    with stage("tree_killed", "parent"):
        # After the ids: a change of credentials clears both (prctl(2)).
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
