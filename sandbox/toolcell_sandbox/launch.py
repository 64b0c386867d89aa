"""The launcher of one jail from the supervisor's side: its process, pipes and configuration."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import trio

from . import contained, host, idpool
from ._child import syscalls
from ._child.mounts import SCRIPT
from .cgroup import Group
from .guarantees import Promise
from .outcome import Upper
from .spec import CommandHandler, Handler, JailSpec, Mount, PythonHandler

REMOVE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_child", "remove.py")
BOOTSTRAP = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_child", "bootstrap.py")
PIPE_BYTES = 1 << 18
NOTES_BYTES = 4096
TOLD_BYTES = 1 << 16


class Launch:
    """A started launcher. Everything it holds is closed, and it is reaped, with `held`.

    `ends` are our non-blocking ends of its pipes: stdout, stderr, result and report to read,
    liveness and, where it is fed or has to wait, stdin and gate to write.

    Raises:
        OSError: a pipe or the process could not be had; nothing is left of it.
        LookupError: the host's root, and no ids are free for a jail.
        contained.Contained: the spec cannot be had without namespaces.
    """

    def __init__(
        self,
        handler: Handler,
        spec: JailSpec,
        agreed: Promise,
        held: ExitStack,
        *,
        group: Group,
        feeds: bool,
    ) -> None:
        self.ends: dict[str, int] = {}
        self._fds: dict[str, int] = {}
        self._reaped = False
        self._place: str | None = None
        self._layer: socket.socket | None = None
        self.line: socket.socket | None = None
        """Our end of the handler's channel, where it has one."""
        with ExitStack() as theirs:
            if _keeps(spec):
                self._layer = self._link("layer", held, theirs)
            if isinstance(handler, PythonHandler) and handler.channel:
                self.line = self._link("channel", held, theirs)
            fed = ["stdin"] * feeds + ["liveness"] + ["gate"] * group.needs_adoption
            self._pipes(held, theirs, fed)
            layered = "overlay" in agreed.layers
            told = _configuration(handler, spec, self._fds, layered=layered) | {
                "cgroups": group.procs_files,
                "is_adopted": group.needs_adoption,
                **_layers(agreed),
            }
            if agreed.way == "namespaces":
                told |= _own_ids(agreed, held)
            else:
                told = contained.configuration(told, spec, held)
                self._place = told["place"]
            config = _held(theirs, os.memfd_create("config"))
            with os.fdopen(os.dup(config), "wb") as file:
                file.write(json.dumps(told).encode())
            os.lseek(config, 0, os.SEEK_SET)
            self._errors = _held(held, os.memfd_create("errors"))
            # In this thread, which lives as long as the run: the kernel ties a parent-death
            # signal to the thread that started the child (prctl(2)).
            self._process = subprocess.Popen(
                [host.EXECUTABLE, "-I", "-S", BOOTSTRAP, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(config, *self._fds.values()),
                # Constant: it runs outside the jail, where a caller's LD_PRELOAD would be ours.
                env=host.base_environment(),
                cwd="/",
                start_new_session=True,
            )
            held.callback(self._abandon)
            self._pidfd = _held(held, os.pidfd_open(self._process.pid))

    def _link(self, name: str, held: ExitStack, theirs: ExitStack) -> socket.socket:
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        held.callback(ours.close)
        theirs.callback(other.close)
        ours.setblocking(False)
        self._fds[name] = other.fileno()
        return ours

    def take_upper(self) -> Upper | None:
        """The layer that the jail's changes are in, whoever ended it; None where there was none.

        Whoever takes it closes it.
        """
        if self._layer is None:
            return None
        try:
            told, fd = syscalls.receive(self._layer, TOLD_BYTES)
        except BlockingIOError:
            return None  # It ended before its root was built.
        if fd is None:
            return None
        found = json.loads(told)
        owners = found["owners"]
        return Upper(
            fd=fd,
            mounted_ns=(found["marker"][0], found["marker"][1]),
            owner=tuple(owners["owner"]) if owners else None,
            uids={int(host): disk for host, disk in owners.get("uids", {}).items()},
            gids={int(host): disk for host, disk in owners.get("gids", {}).items()},
        )

    def _pipes(self, held: ExitStack, theirs: ExitStack, fed: list[str]) -> None:
        for name in ("stdout", "stderr", "result", "report"):
            read, write = os.pipe2(os.O_CLOEXEC)
            self.ends[name] = read
            held.callback(self.close, name)
            self._fds[name] = _held(theirs, write)
            os.set_blocking(read, False)
        for name in fed:
            read, write = os.pipe2(os.O_CLOEXEC)
            self._fds[name] = _held(theirs, read)
            self.ends[name] = write
            held.callback(self.close, name)
            os.set_blocking(write, False)
        if "stdin" not in fed:
            self._fds["stdin"] = _held(theirs, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for name in ("stdout", "stderr"):
            # Over the user's budget for pipe pages (pipe(7)) the default size works too.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.ends[name], fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def close(self, name: str) -> None:
        """Close one of our ends; harmless when it is closed already."""
        fd = self.ends.pop(name, None)
        if fd is not None:
            trio.lowlevel.notify_closing(fd)
            os.close(fd)

    def let_go(self) -> None:
        """Make the launcher kill its init, and with it the tree.

        By a byte as well as by the end of the pipe: a child that the host program has forked
        meanwhile holds the pipe open too.
        """
        if "liveness" in self.ends:
            with contextlib.suppress(OSError):
                os.write(self.ends["liveness"], b"x")
        self.close("liveness")

    @property
    def pid(self) -> int:
        """The launcher's own."""
        return self._process.pid

    def go_on(self) -> None:
        """Let a launcher that waits at the gate do what comes next."""
        with contextlib.suppress(OSError):
            os.write(self.ends["gate"], b"1")

    async def wait(self) -> None:
        """Until the launcher has ended, which it does only after the whole tree."""
        await trio.lowlevel.wait_readable(self._pidfd)

    def clear_up(self) -> None:
        """Have the jail's own folders removed, where its init did not live to do it.

        By a process that outlives this call: a jail can leave millions of files.
        """
        if self._place is not None and os.path.lexists(self._place):
            argv = [host.EXECUTABLE, "-I", "-S", REMOVE, self._place]
            quiet = subprocess.DEVNULL
            environment = host.base_environment()
            subprocess.run(
                argv, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, cwd="/", check=False
            )

    def kill(self, group: int | None) -> None:
        """End the launcher itself; its init ends with it, unproven.

        Without namespaces it is the init, and its process group has to be ended first.
        """
        self.kill_group(group)
        self._process.kill()

    @staticmethod
    def kill_group(group: int | None) -> None:
        """End a jail's process group; None is no group."""
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def reap(self) -> None:
        """Take the ended launcher out of the process table."""
        self._process.wait()
        self._reaped = True

    def notes(self) -> str:
        """What our own code said on its standard error: nothing, unless it is broken."""
        return os.pread(self._errors, NOTES_BYTES, 0).decode("utf-8", "replace").strip()

    def _abandon(self) -> None:
        """After a defect of ours only: whoever supervises has reaped it."""
        if not self._reaped:
            self.let_go()
            self.kill(None)
            self.reap()


def _held(stack: ExitStack, fd: int) -> int:
    """The same descriptor, closed with `stack`."""
    stack.callback(os.close, fd)
    return fd


def _layers(agreed: Promise) -> dict[str, Any]:
    """What to build: a jail is made of what was promised, and of nothing less."""
    return {
        "way": agreed.way,
        "layers": sorted(agreed.layers),
        "landlock_abi": agreed.landlock_abi,
        "filter": agreed.filter,
    }


def _own_ids(agreed: Promise, held: ExitStack) -> dict[str, Any]:
    """The host ids that the jail has until `held` is closed, and what follows from having none."""
    base = idpool.lease(held)
    # Without ids nobody in the jail can set a limit on segments, and without a cgroup nothing
    # outside sees them: then its init looks.
    is_bounded = "cgroup_memory" in agreed.layers or base is not None
    return {"ids": {"base": base}, "watches_segments": not is_bounded}


def _keeps(spec: JailSpec) -> bool:
    """Whether the workspace's changes go into a layer that outlives the jail."""
    return spec.workspace is not None and spec.workspace_mode == "transaction"


def _configuration(
    handler: Handler, spec: JailSpec, fds: dict[str, int], *, layered: bool
) -> dict[str, Any]:
    """All that a jail is told, by a memfd: nothing of it is in a command line.

    Unless `layered` can be had, what would be is shown as it is, read-only.
    """
    mounts: dict[str, dict[str, Any]] = {}
    for mount in _mounts(spec):
        mounts[mount.path] = {
            **asdict(mount),
            "layered": mount.layered and layered,
            "keeps": False,
            "masks": list(spec.masks.get(mount.path, ())),
        }
    if spec.workspace in mounts:
        mounts[spec.workspace]["identity"] = spec.workspace_identity
        mounts[spec.workspace]["keeps"] = _keeps(spec)
    told: dict[str, Any]
    if isinstance(handler, CommandHandler):
        words = [] if handler.script is None else [SCRIPT]
        told = {
            "kind": "command",
            "argv": [*handler.argv, *words],
            "script": handler.script,
        }
    else:
        told = {"kind": "python", **asdict(handler)}
    return {
        "supervisor_pid": os.getpid(),
        "begun_ns": time.time_ns(),
        "fds": fds,
        "system": host.SYSTEM_FOLDERS,
        "mounts": list(mounts.values()),
        "private": [*host.PRIVATE_FOLDERS, *_scratch_workspace(spec)],
        "files": host.network_files() if spec.network.kind == "host" else {},
        "network": spec.network.kind,
        "workspace": spec.workspace or "/tmp",
        "cwd": spec.cwd or spec.workspace or "/tmp",
        "env": dict(spec.env),
        "limits": asdict(spec.limits),
        "handler": told,
        "python": [host.executable_inside(), *map(os.path.realpath, (sys.prefix, sys.exec_prefix))],
    }


def _scratch_workspace(spec: JailSpec) -> list[str]:
    """The workspace, where the jail has an empty one of its own in its place."""
    is_scratch = spec.workspace is not None and spec.workspace_mode == "scratch"
    return [spec.workspace] if is_scratch and spec.workspace is not None else []


def _mounts(spec: JailSpec) -> list[Mount]:
    """What the jail sees of the host beyond the system folders; read-only wins over writable.

    What is read-only inside a writable workspace has each of its parents pinned as a mount of
    its own: a mount cannot be renamed away (rename(2), EBUSY), and its parent could be.
    """
    found = {mount.path: mount for mount in host.interpreter_mounts()}
    for mount in spec.mounts:
        if mount.path not in found or not mount.writable:
            found[mount.path] = mount
    top = spec.workspace
    if top is not None:
        if top in found:
            raise ValueError(f"the workspace {top!r} is a folder that has to stay read-only")
        fixed = [mount.path for mount in found.values() if not mount.writable]
        writable = spec.workspace_mode == "direct"
        if spec.workspace_mode != "scratch":
            found[top] = Mount(path=top, writable=writable, owned=True, layered=not writable)
        for path in fixed if writable else ():
            parent = os.path.dirname(path)
            while parent.startswith(f"{top}/"):
                if not any(f"{parent}/".startswith(f"{other}/") for other in fixed):
                    found[parent] = Mount(path=parent, writable=True, owned=True)
                parent = os.path.dirname(parent)
    return list(found.values())
