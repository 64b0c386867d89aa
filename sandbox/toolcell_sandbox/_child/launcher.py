"""The process between the supervisor and a jail: outside the jail's namespaces, alone, trusted.

       supervisor ── Popen ──► launcher ── clone ──► init (pid 1 inside) ── fork ──► worker
           │ liveness pipe ───────┴──────────────────────┘                              │
           └──────────────◄ report ◄───────(never open in a handler)         result ────┘

It gives the jail its ids, waits for its init, and kills it when the supervisor closes the
liveness pipe or dies. The init's end, seen by wait4(2) here, is the tree's end.
"""

from __future__ import annotations

import functools
import operator
import os
import select
import signal
import stat

from . import contained, ids, init, mounts, rlimits, syscalls, worker
from .cgroups import enter_cgroups
from .report import Report, StageFailed, stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INIT_GRACE_MS = 150
NAMESPACES = (
    syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS
)
"""What every jail has; its cgroup namespace is made by the init, once it is in its cgroup."""
BY_LAYER = {
    "network_namespace": syscalls.CLONE_NEWNET,
    "ipc_namespace": syscalls.CLONE_NEWIPC,
}


def run(config: dict[str, Any]) -> None:
    """One jail, from clone to reap. Everything that goes wrong is in the report."""
    report = Report(config["fds"]["report"])
    try:
        _follow_supervisor(config)
        if config["way"] == "process_group":
            contained.run(config, report)
        else:
            _jail(config, report)
    except StageFailed as error:
        report.send("failed", **error.facts)
    except BaseException as error:
        report.send("launcher_broke", cause=f"{type(error).__name__}: {error}"[:500])


def _follow_supervisor(config: dict[str, Any]) -> None:
    with stage("tree_killed", "parent"):
        if config["way"] == "namespaces":
            # Its end takes the jail along. Where it would not, the liveness pipe tells.
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != config["supervisor_pid"]:
            os._exit(1)
    with stage("tree_killed", "signals"):
        # Whatever the supervisor's program had set up for itself is no affair of a jail's.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
    # Under memory pressure the kernel ends a jail before it ends its supervisor, and the worker,
    # which raises its own to the most there is, before what watches over it.
    with stage("memory_limited", "oom_score_adj"):
        rlimits.raise_oom_score(500)


def _jail(config: dict[str, Any], report: Report) -> None:
    if config["is_adopted"]:
        # Until it is in the scope that it was promised, nothing may be started in it.
        report.send("waiting")
        if os.read(config["fds"]["gate"], 1) != b"1":
            os._exit(0)
    own = config["ids"]
    identity = ids.Ids(own["base"], os.getuid(), os.getgid())
    # Only host root may id-map a mount, and only in its own namespace: so before the clone.
    trees = mounts.open_trees(config, identity.base) if identity.is_ranged else None
    if identity.base is not None:
        # So that the worker may open /dev/stdout again by name.
        for name in ("stdin", "stdout", "stderr"):
            if stat.S_ISFIFO(os.fstat(config["fds"][name]).st_mode):
                os.fchown(config["fds"][name], identity.base + 1, identity.base + 1)
    ready, go = os.pipe2(os.O_CLOEXEC)
    chosen = (flag for layer, flag in BY_LAYER.items() if layer in config["layers"])
    with stage("fs_confined", "namespaces"):
        pid = syscalls.clone(functools.reduce(operator.or_, chosen, NAMESPACES))
    if pid == 0:
        os.close(go)
        if os.read(ready, 1) != b"1":
            os._exit(0)
        # Kept: it ends when this launcher does.
        config["fds"]["launcher"] = ready
        init.main(config, trees, report, ranged=identity.is_ranged)
    try:
        with stage("fs_confined", "id maps"):
            ids.write_maps(
                pid,
                identity.namespace_map(identity.uid),
                identity.namespace_map(identity.gid),
                ranged=identity.is_ranged,
            )
        enter_cgroups(pid, config["cgroups"])
        report.send("started", init_pid=pid)
        os.write(go, b"1")
        worker.let_go(config["fds"])
        _outlive(pid, config["fds"]["liveness"])
    finally:
        os.close(go)
        _, status, used = os.wait4(pid, 0)
        cpu_s, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
        report.send("done", status=status, cpu_s=cpu_s, peak_memory_bytes=peak)
        if config["is_adopted"]:
            # The scope goes with its last process, and with it what it saw.
            os.read(config["fds"]["gate"], 1)


def _outlive(pid: int, liveness: int) -> None:
    """Wait until the init has ended; end it as soon as the supervisor lets go or is gone."""
    poller = select.poll()
    pidfd = os.pidfd_open(pid)
    poller.register(pidfd, select.POLLIN)
    poller.register(liveness, select.POLLIN)
    if pidfd in dict(poller.poll()):
        return
    # The init saw it as well, and ends the tree by itself; if it does not, it is ended.
    poller.unregister(liveness)
    if not poller.poll(INIT_GRACE_MS):
        os.kill(pid, signal.SIGKILL)
