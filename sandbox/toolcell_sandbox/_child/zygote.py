"""The zygote: one process per set of preloaded modules, from which every jail is forked. Trusted.

       supervisor ── Popen ──► zygote ── clone ──► init (pid 1 inside) ── fork ──► worker
           │  control ────────────┘                  │                              │
           │  init link ─────────────────────────────┘ (never open in a handler)    │
           └─ work link ────────────────────────────────────────────────────────────┘

It has one thread, a constant environment and few modules, so that a fork costs little and copies
nothing that a handler should not find. It gives a jail its ids, reaps its init and says over the
jail's own link who that is and how it ended: nothing that it is told comes from a jail. When
the supervisor is gone it is gone, and with it every jail (prctl(2), PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import _socket
import contextlib
import gc
import os
import select
import signal
import stat
import sys

from . import (
    cgroups,
    contained,
    ids,
    init,
    links,
    mounts,
    networks,
    python,
    rlimits,
    seccomp,
    syscalls,
    template,
)
from .report import Report, StageFailed, stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMESPACES = (
    syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS
)
"""What every jail has; its cgroup namespace is made by the init, once it is in its cgroup."""
_PLANS_MAX = 256
_LIBRARY_SIGNALS = (32, 33)
"""The C library's own (nptl(7)); a parent can have left them ignored all the same."""


def run(control: _socket.socket, told: dict[str, Any]) -> None:
    """Fork jails until the supervisor lets go and the last of them has ended."""
    zygote = _Zygote(control, told)
    try:
        zygote.prepare()
    except StageFailed as error:
        # Every jail that is asked for is then refused, for this reason.
        zygote.lack = error.facts
    zygote.serve()


def _born(flags: int, entry: cgroups.Entry) -> tuple[int, bool]:
    if entry.group is None:
        return syscalls.clone(flags), True
    try:
        return syscalls.clone(flags, entry.group), True
    except OSError:
        # Before Linux 5.7, or where a filter knows no clone3(2). For anything else that is wrong
        # the plain way says what it is.
        return syscalls.clone(flags), False


class _Zygote:
    def __init__(self, control: _socket.socket, told: dict[str, Any]) -> None:
        self._control = control
        self._told = told
        self.lack: dict[str, Any] | None = None
        self._plans: dict[str, dict[str, Any]] = {}
        self._templates = template.Templates()
        self._networks = networks.Networks()
        # The link of each init that has not been reaped, by its pid.
        self._links: dict[int, _socket.socket] = {}
        self._is_let_go = False
        # Its end is this process's, in every init.
        self._alive, self._living = os.pipe2(os.O_CLOEXEC)
        self._wakeup = -1

    def prepare(self) -> None:
        """Become what every jail can be forked from."""
        with stage("tree_killed", "signals"):
            # Whatever the supervisor's program had set up for itself is no affair of a jail's.
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for number in signal.valid_signals():
                if number not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(number, signal.SIG_DFL)
            for internal in _LIBRARY_SIGNALS:
                syscalls.reset_signal(internal)
            os.umask(0o022)
            read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            # A stop from the terminal is the supervisor's to answer.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            self._wakeup = read
        # Under memory pressure the kernel ends a jail before it ends its supervisor, and the
        # worker, which raises its own to the most there is, before what watches over it.
        with stage("memory_limited", "oom_score_adj"):
            rlimits.raise_oom_score(500)
        ids.remember()
        if self._told["way"] == "namespaces":
            with stage("fs_confined", "namespaces"):
                self._leave_host()
        with stage("tree_killed", "parent"):
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._told["supervisor_pid"]:
                os._exit(1)
        self._preload()
        if self._told["way"] == "process_group":
            # Workers of the same uid share its pid namespace. The other way nobody can name it.
            syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        # A handler has an environment of its own.
        os.environ.clear()
        gc.collect()
        gc.freeze()
        # Of what is frozen nothing is looked at; a worker collects again.
        gc.disable()

    def _leave_host(self) -> None:
        """A mount namespace of its own, for the template; what the host mounts later is seen."""
        if self._told["ranged"]:
            syscalls.unshare(syscalls.CLONE_NEWNS)
        else:
            own = os.geteuid(), os.getegid()
            syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
            ids.map_self(own[0], own[1])
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)

    def _preload(self) -> None:
        """Import what handlers would import: trusted code, which must not start threads."""
        import importlib

        for entry in self._told["sys_path"]:
            sys.path.append(entry)
        for name in self._told["preload"]:
            try:
                importlib.import_module(name)
            except Exception as error:
                raise StageFailed(
                    "preload", name, f"{type(error).__name__}: {error}", None
                ) from error
            if len(os.listdir("/proc/self/task")) != 1:
                raise StageFailed("preload", name, "its import starts threads", None)
        for entry in self._told["sys_path"]:
            sys.path.remove(entry)
        python.preload()

    # -- serve ----------------------------------------------------------------------------

    def serve(self) -> None:
        """Fork and reap."""
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        poller.register(self._control.fileno(), select.POLLIN)
        while not (self._is_let_go and not self._links):
            for fd, _ in poller.poll():
                if fd == self._wakeup:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                elif not self._take():
                    poller.unregister(fd)
                    self._is_let_go = True
            self._reap()

    def _take(self) -> bool:
        """One word of the supervisor's; False when it has let go."""
        try:
            message, files = links.receive(self._control)
        except ConnectionError:
            return False
        except (OSError, ValueError):
            # One that nobody can read: whoever asked hears the end of the links that it sent.
            return True
        if message is None:
            return False
        try:
            self._note_plan(message)
            link, work = files
            ends = [links.above(links.of(fd)) for fd in _sockets(link, work)]
        except Exception:
            # As above. It is one jail's; the others go on.
            for fd in files:
                os.close(fd)
            return True
        self._make(message, *ends)
        return True

    def _note_plan(self, message: dict[str, Any]) -> None:
        key = message["key"]
        # More are kept than the supervisor counts on, so that none is forgotten under it.
        plan = message["plan"] or self._plans.pop(key, None)
        if plan is not None:
            self._plans[key] = plan
        if len(self._plans) > _PLANS_MAX:
            del self._plans[next(iter(self._plans))]

    def _make(self, asked: dict[str, Any], link: _socket.socket, work: _socket.socket) -> None:
        """One jail; its init says the rest."""
        try:
            if self.lack is not None:
                raise StageFailed(**self.lack)
            self._links[self._fork(asked, link, work)] = link
        except StageFailed as error:
            _refuse(link, "failed", **error.facts)
        except Exception as error:
            _refuse(link, "zygote_broke", cause=f"{type(error).__name__}: {error}"[:500])
        finally:
            work.close()

    def _fork(self, asked: dict[str, Any], link: _socket.socket, work: _socket.socket) -> int:
        config = {
            **self._plans[asked["key"]],
            **asked["own"],
            "alive": self._alive,
        }
        if config["filter"] != "mode_bits":
            seccomp.assembled(config["way"], config["network"], kill=seccomp.USER_NOTIF)
        if config["way"] == "process_group":
            return self._contained(config, link, work)
        ranged = config["base"] is not None
        made = self._templates.of(config, asked["key"], ranged=ranged)
        config["pieces"], config["links"] = made.pieces, made.links
        # Only host root may id-map a mount, and only in its own namespace: so before the clone.
        trees = mounts.open_trees(config, config["base"], self._templates.seen) if ranged else None
        ready, go = os.pipe2(os.O_CLOEXEC)
        entry, pid = None, 0
        try:
            entry = cgroups.Entry(config["cgroups"])
            with stage("fs_confined", "namespaces"):
                pid, is_inside = self._clone(config, entry)
            waits = ranged or not is_inside
            if pid == 0:
                try:
                    kept = (*entry.tasks, *(tree.fd for tree in trees or ()))
                    self._only(link, work, ready, *kept)
                    if not waits or os.read(ready, 1) == b"1":
                        config["tasks"] = entry.tasks
                        init.main(config, trees, Report(link), Report(work), ranged=ranged)
                finally:
                    os._exit(0)
            if waits:
                if ranged:
                    self._give_ids(pid, config["base"])
                if not is_inside:
                    entry.put(pid)
                os.write(go, b"1")
            # Beside the init, which has enough to do: a descriptor says who it is in any namespace.
            with stage("tree_killed", "init"):
                own = os.pidfd_open(pid)
            Report(link).send("started", own)
            os.close(own)
        except StageFailed as error:
            if pid == 0:
                raise  # Nothing was forked.
            self._links[pid] = link
            Report(link).send("failed", **error.facts)
            return pid
        finally:
            os.close(ready)
            os.close(go)
            if entry is not None:
                entry.close()
            for tree in trees or ():
                os.close(tree.fd)
        return pid

    def _clone(self, config: dict[str, Any], entry: cgroups.Entry) -> tuple[int, bool]:
        """The init, in a network of its own; and whether it was born in its v2 group, or has none.

        A loopback that is up is never another jail's.
        """
        flags = NAMESPACES
        if "ipc_namespace" in config["layers"] and not config["renews"]:
            flags |= syscalls.CLONE_NEWIPC
        if "network_namespace" not in config["layers"]:
            return _born(flags, entry)
        if config["network"] == "loopback":
            return _born(flags | syscalls.CLONE_NEWNET, entry)
        network, pid = self._networks.enter(), None
        try:
            pid, is_inside = _born(flags, entry)
        finally:
            if pid != 0:
                self._networks.leave(network, pid)
        return pid, is_inside

    def _give_ids(self, pid: int, base: int) -> None:
        """The ids that only who is outside can give."""
        with stage("fs_confined", "id maps"):
            given = ids.Ids(base, os.getuid(), os.getgid())
            maps = given.namespace_map(given.uid), given.namespace_map(given.gid)
            ids.write_maps(pid, *maps, ranged=True)

    def _contained(self, config: dict[str, Any], link: _socket.socket, work: _socket.socket) -> int:
        with stage("tree_killed", "fork"):
            pid = os.fork()
        if pid == 0:
            try:
                self._only(link, work)
                with contextlib.suppress(OSError):
                    os.setsid()
                contained.main(config, Report(link), Report(work))
            finally:
                os._exit(0)
        return pid

    def _only(self, link: _socket.socket, work: _socket.socket, *more: int) -> None:
        """In an init: close what is the zygote's, and other jails'."""
        signal.set_wakeup_fd(-1)
        syscalls.close_all_but(link.fileno(), work.fileno(), self._alive, *more)

    def _reap(self) -> None:
        """Say of each init that has ended how it did."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._networks.reaped(pid)
            link = self._links.pop(pid, None)
            if link is None:
                continue
            cpu_s, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
            told = {"event": "done", "status": status, "cpu_s": cpu_s, "peak_memory_bytes": peak}
            with contextlib.suppress(OSError):
                links.send(link, links.pack(told), flags=_socket.MSG_DONTWAIT)
            link.close()


def _sockets(*files: int) -> tuple[int, ...]:
    for fd in files:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise ValueError("a link is a socket")
    return files


def _refuse(link: _socket.socket, event: str, **facts: Any) -> None:
    """Say why there is no jail, if anybody is there to hear it."""
    with contextlib.suppress(OSError):
        Report(link).send(event, **facts)
    link.close()
