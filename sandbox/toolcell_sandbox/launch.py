"""A jail that was asked for: its links, its ids and control group; and a call that it is given."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import trio

from . import _zygotes, cgroup, contained, host, idpool, watch
from ._child import links, stamps
from .cgroup import Group
from .guarantees import Promise
from .outcome import Upper
from .plan import Plan, order_of
from .spec import Handler, JailSpec, Limits, PythonHandler

_log = logging.getLogger("toolcell")

REMOVE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_child", "remove.py")
PIPE_BYTES = 1 << 18
START_S = 60.0
"""A jail that is not ready by then is a defect, not a slow machine."""
REAP_S = 10.0
"""How long a killed tree may take to be gone before that is a defect."""
GROUP_S = 0.002
"""How often a killed process group is looked at."""
CALLS_MAX = 100
"""How many calls one init makes jails for."""
END_S = 2.0
"""How long an init may take to end by itself, when nothing is left for it to do."""


class Jail:
    """A jail from the supervisor's side. What it holds is let go of by `close`, its end or not.

    `init` and `work` are our ends of its init's and its worker's links, which do not block.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.agreed = plan.agreed
        self.group = Group(())
        self.reports: dict[str, Mapping[str, Any]] = {}
        self.pidfd: int | None = None
        """Of the init: readable once it has ended, and the whole tree with it."""
        self._pid: int | None = None
        self.is_silent = False
        """Whether nobody is left who could say anything of the jail: not its zygote either."""
        self.upper: Upper | None = None
        self.base: int | None = None
        """The first of the host ids that the jail has, where it has any."""
        self.place: contained.Place | None = None
        self._is_cleared = False
        """Whether its process group is known to be gone, and its number may be another's."""
        self.held = ExitStack()
        self.zygote: _zygotes.Zygote | None = None
        """Who was asked for it; before that there is nothing to be waited for."""
        self.looks: object = None
        """How the host looked just before it was made, where somebody has asked."""
        self.was_ahead = False
        """Whether it was not made for the call that it is given."""
        self.served = 0
        """How many calls its init has had before this one."""
        self._renews = False
        self._theirs: list[socket.socket] = []
        self._streams: Streams | None = None
        self._has_lost = False
        try:
            self.init = self._link()
            self.work = self._link()
        except BaseException:
            self.close()
            raise

    def _link(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.held.callback(self._close_link, ours)
        self._theirs.append(theirs)
        ours.setblocking(False)
        return ours

    @staticmethod
    def _close_link(link: socket.socket) -> None:
        if link.fileno() >= 0:
            trio.lowlevel.notify_closing(link)
        _zygotes.shut(link)
        link.close()

    async def ask(self, zygote: _zygotes.Zygote, spec: JailSpec, *, renews: bool = False) -> None:
        """Have it made. Cancelled, or when it fails, `see_out` is still to be called.

        `renews`: its init may make others after it, where that can be.

        Raises:
            ZygoteGone: the zygote has ended.
            NotMade, NoIds, contained.Contained, OSError: the jail cannot be had.
        """
        self.group = self.held.enter_context(limited(self.agreed, spec.limits))
        own: dict[str, Any] = {
            "base": None,
            "cgroups": self.group.places,
            "is_adopted": self.group.needs_adoption,
            "watches_segments": False,
        }
        if self.agreed.way == "namespaces":
            self.base = idpool.lease(self.held)
            own["base"] = self.base
            # Without ids nobody in the jail can set a limit on segments, and without a cgroup
            # nothing outside sees them: then its init looks.
            own["watches_segments"] = not (
                "cgroup_memory" in self.agreed.layers or self.base is not None
            )
        else:
            self.place = contained.Place(self.plan, spec, self.held)
            own |= self.place.own
        # Only an init that has another uid than its worker outlasts it for sure; and what is in a
        # network with a link may have left something there.
        self._renews = (
            renews
            and self.base is not None
            and self.plan.told["network"] == "none"
            and "network_namespace" in self.agreed.layers
            # Without the filter there are keyrings, which belong to the user.
            and self.agreed.filter == "all"
        )
        own["renews"] = self._renews
        await zygote.make(self.plan, own, [link.fileno() for link in self._theirs])
        self.zygote = zygote
        self._let_theirs_go()
        # While it is made. Where no descriptor is left for them, its call says so.
        with contextlib.suppress(OSError):
            self._streams = Streams(self.base)

    def _let_theirs_go(self) -> None:
        while self._theirs:
            self._theirs.pop().close()

    def renew(self, spec: JailSpec) -> bool:
        """Have its init make another jail in its place, for the next call; whether it will.

        For one whose call had `spec`, and is over. Nothing that a worker could have changed is in
        the next one (`_child/init.py`), and only what ended by itself, with nothing left and
        nothing refused, is followed by another. Of names that were masked the init has heard, and
        the next worker is forked from it: so not after those.
        """
        ended = self.reports.get("ended", {})
        is_well = ended.get("calm") and ended.get("status") == 0 and "confined" in self.reports
        told = self.reports.keys() & {"blocked", "segments", "unheard", "failed", "worker_broke"}
        if not (self._renews and is_well) or told or self._has_lost or any(spec.masks.values()):
            return False
        if self.served + 1 >= CALLS_MAX or self.is_silent or self._has_ended():
            return False
        if self.zygote is None or self.zygote.is_let_go:
            return False
        if not self.group.renew():
            return False
        self._close_link(self.work)
        try:
            self.work = self._link()
            links.send(self.init, links.pack({"event": "again"}), [self._theirs[0].fileno()])
            self._streams = Streams(self.base)
        except OSError:
            return False
        finally:
            self._let_theirs_go()
        self.reports.clear()
        self.served += 1
        return True

    async def started(self) -> None:
        """Until it is known who its init is, or that it has none; more may have been said by then.

        Raises:
            ZygoteGone: nobody is left who could say anything.
            OSError: what it said cannot be held: this process has no descriptor left.
        """
        self.hear(self.init)
        # An init that fails at once may say so before its zygote says who it is.
        while not (self.is_silent or self._has_lost or "started" in self.reports):
            await trio.lowlevel.wait_readable(self.init)
            self.hear(self.init)
        if not self.reports:
            raise _zygotes.ZygoteGone(0, "the zygote ended while it made a jail")
        if self.pidfd is None and not self.reports.keys() & {"failed", "zygote_broke"}:
            raise OSError(errno.EMFILE, "no descriptor is left to hold the jail by")

    async def adopt(self) -> None:
        """Have the init put into its group, where only a service manager can, and let it go on.

        Raises:
            NotMade: as `Group.adopt`.
            OSError: this process has no descriptor left to find out who it is.
        """
        if self.pid is None:
            raise OSError(errno.EMFILE, "no descriptor is left to know the jail's init by")
        await self.group.adopt(self.pid)
        self.say("go")

    async def ready(self) -> bool:
        """Until it waits for its call; False where it never will, or not within `START_S`."""
        link = self.work
        with trio.move_on_after(START_S):
            while not self.is_ready:
                if self.is_over():
                    return False
                await trio.lowlevel.wait_readable(link)
                if not self.hear(self.work):
                    # At its end it can always be read; the init has yet to say why.
                    link = self.init
                self.hear(self.init)
            return True
        if self.zygote is not None:
            # Others would be forked from the same state.
            _zygotes.retire(self.zygote)
        return False

    @property
    def pid(self) -> int | None:
        """The init's number as this process sees it; None where there is no init.

        None also where it cannot be read now, for want of a descriptor.
        """
        if self._pid is None and self.pidfd is not None:
            with contextlib.suppress(OSError):
                self._pid = _pid_of(self.pidfd)
        return self._pid

    @property
    def is_ready(self) -> bool:
        """Whether all that can be done ahead is done, and nothing of it failed."""
        return "ready" in self.reports and "failed" not in self.reports

    def is_over(self) -> bool:
        """Whether it has ended, or will never run a call."""
        self.hear(self.init)
        told = self.reports.keys() & {"failed", "ended", "done", "reaped"}
        return self.is_silent or bool(told) or self._has_ended()

    def _has_ended(self) -> bool:
        """Whether its init has; who would say so may have ended with it, and not be gone yet."""
        if self.pidfd is None:
            return False
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(0))

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the tree is left: its init said so, or never began.

        Without namespaces the init has more to do first.
        """
        said = self.reports.keys() & {"ended", "reaped"}
        return (bool(said) and self.agreed.way == "namespaces") or (
            self.pidfd is None and self.is_silent
        )

    def hear(self, link: socket.socket) -> bool:
        """Take what is there to be heard of it, without waiting; whether more may come."""
        while link.fileno() >= 0:
            try:
                message, files = links.receive(link)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                message, files = None, []
            except OSError as error:
                self._lose(str(error))
                continue
            if message is None:
                if link is self.init:
                    self.is_silent = True
                return False
            self._take(message, files)
        return False

    def _take(self, message: dict[str, Any], files: list[int]) -> None:
        event = message.pop("event")
        if event == "started" and files:
            (self.pidfd,) = files
            self.held.callback(os.close, self.pidfd)
        elif event == "layer" and not files:
            self._lose("no descriptor was left for the workspace's layer")
        elif event == "layer":
            owners, marker = message["owners"], message["marker"]
            self.upper = Upper(
                fd=files[0],
                mounted_ns=(marker[0], marker[1]),
                owner=tuple(owners["owner"]) if owners else None,
                uids={int(host): disk for host, disk in owners.get("uids", {}).items()},
                gids={int(host): disk for host, disk in owners.get("gids", {}).items()},
            )
        self.reports.setdefault(event, message)

    def _lose(self, why: str) -> None:
        """Something that was said cannot be had (recvmsg(2), MSG_CTRUNC): no such call counts."""
        self._has_lost = True
        cause = f"what the jail said is lost: {why}"
        self.reports.setdefault("init_broke", {"cause": cause})

    def say(self, event: str, **facts: Any) -> None:
        """Tell the init something; one that is gone hears nothing."""
        with contextlib.suppress(OSError):
            links.send(self.init, links.pack({"event": event, **facts}))

    def kill(self) -> None:
        """End the init itself, and with it the tree; without namespaces its group first."""
        self.kill_group()
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def kill_group(self) -> None:
        """End the jail's process group, where it has no pid namespace."""
        group = self._group
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    @property
    def _group(self) -> int | None:
        """The process group; none once it is empty, since its number may be another's then."""
        if self._is_cleared or self.reports.keys() & {"ended", "emptied"}:
            return None
        group = self.reports.get("grouped", {}).get("group")
        return None if group is None else int(group)

    async def clear_up(self) -> None:
        """Do what the init of a jail without namespaces did not live to do; it has ended.

        Its group is gone, as far as that can be had, and its own folders are being removed: by a
        process that outlives this call, since a jail can leave millions of files.
        """
        if self.place is None or self.pidfd is None or self._is_cleared:
            return
        self.hear(self.init)
        self.kill_group()
        if self._group is not None:
            await _group_is_gone(self._group)
        self._is_cleared = True
        if "cleared" not in self.reports:
            argv = [host.EXECUTABLE, "-I", "-S", REMOVE, self.place.path]
            quiet = subprocess.DEVNULL
            await trio.run_process(
                argv,
                stdin=quiet,
                stdout=quiet,
                stderr=quiet,
                env=host.base_environment(),
                cwd="/",
                check=False,
            )

    def take_streams(self) -> Streams:
        """The pipes of its call. Whoever takes them closes them.

        Raises:
            OSError: no descriptor is left.
        """
        streams, self._streams = self._streams, None
        return Streams(self.base) if streams is None else streams

    def take_upper(self) -> Upper | None:
        """The layer that the jail's changes are in, whoever ended it; None where there was none.

        Whoever takes it closes it.
        """
        upper, self.upper = self.upper, None
        return upper

    def let_go(self) -> None:
        """Want no more of it: it ends, and can still be heard."""
        self._let_theirs_go()
        for link in (self.init, self.work):
            _zygotes.shut(link, socket.SHUT_WR)

    def see_out(self) -> None:
        """Have it end, and let go of it once it has; whoever had its call need not wait."""
        self.let_go()
        if self.zygote is None:
            self.close()
        else:
            trio.lowlevel.spawn_system_task(self.end)

    async def end(self) -> None:
        """Have it end, wait until it is gone, and let go of what it holds. Cannot be cancelled."""
        self.let_go()
        with trio.CancelScope(shield=True):
            try:
                await self._gone()
            except Exception:  # noqa: BLE001  # of a system task: it would end the whole loop
                # Nobody has seen it end: so what it holds is let go of only once it is told to.
                self.kill()
                _log.exception("a jail could not be seen out")
            finally:
                self.close()

    async def _gone(self) -> None:
        """Until its init has ended, and its control group is removed.

        One that is still on its way has its ids and its group until nobody can make it any more.
        """
        if not await self._is_met(START_S) and self.zygote is not None:
            _zygotes.end(self.zygote)
            await self._is_met(REAP_S)
        if self.pidfd is not None:
            with trio.move_on_after(END_S):
                await trio.lowlevel.wait_readable(self.pidfd)
            # One that has ended is no more to be found.
            self.kill()
            with trio.move_on_after(REAP_S):
                await trio.lowlevel.wait_readable(self.pidfd)
        await self.clear_up()
        await self.group.remove()

    async def _is_met(self, within_s: float) -> bool:
        """Whether it is known who its init is, or that it has none."""
        with trio.move_on_after(within_s):
            while self.pidfd is None and not self.is_silent:
                await trio.lowlevel.wait_readable(self.init)
                self.hear(self.init)
            return True
        return False

    def close(self) -> None:
        """Let go of all of it, and wait for nothing."""
        self._let_theirs_go()
        if self._streams is not None:
            self._streams.close()
        if self.upper is not None:
            self.upper.close()
        self.held.close()


async def _group_is_gone(group: int) -> None:
    """Until nobody is in a process group that was killed, or that takes too long.

    To kill(2) whoever is dead and not reaped is there, and its parent is process 1 by now, which
    reaps nobody in some containers: so /proc has the last word.
    """
    with trio.move_on_after(REAP_S), contextlib.suppress(ProcessLookupError, PermissionError):
        while True:
            os.killpg(group, 0)
            if not watch.lives_in_group(group):
                return
            await trio.sleep(GROUP_S)


def limited(agreed: Promise, limits: Limits) -> Group:
    """The control group that a promise rests on; one that limits nothing where it does not."""
    rests = any(layer.startswith("cgroup_") for layer in agreed.layers)
    offer = cgroup.offered() if rests else cgroup.CgroupOffer()
    return cgroup.make(offer, memory_bytes=limits.memory_bytes, processes=limits.processes)


class Streams:
    """The pipes of one call. `ends` are ours: stdout, stderr and result to read, stdin to write.

    None of ours blocks. All of them are closed by `close`, or one by one. `base` is the first of
    the host ids of the jail that they are for: its worker may open its /dev/stdout by name.

    Raises:
        OSError: no descriptor is left.
    """

    def __init__(self, base: int | None) -> None:
        self._base = base
        self.ends: dict[str, int] = {}
        self.theirs: dict[str, int] = {}
        self.line: socket.socket | None = None
        """Our end of the handler's channel, where it has one."""
        self._line: socket.socket | None = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.theirs["stdin"] = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for name in ("stdout", "stderr", "result"):
            self.ends[name], self.theirs[name] = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self.ends[name], False)
        for name in ("stdout", "stderr"):
            # Over the user's budget for pipe pages (pipe(7)) the default size works too.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.ends[name], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._give(self.theirs[name])

    def suit(self, handler: Handler, *, feeds: bool) -> None:
        """Add what a call has besides: standard input that is fed, a channel.

        Raises:
            OSError: no descriptor is left.
        """
        if feeds:
            os.close(self.theirs.pop("stdin"))
            self.theirs["stdin"], self.ends["stdin"] = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(self.theirs["stdin"], True)
            self._give(self.theirs["stdin"])
        if isinstance(handler, PythonHandler) and handler.channel:
            self.line, self._line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.line.setblocking(False)
            self.theirs["channel"] = self._line.fileno()

    def _give(self, fd: int) -> None:
        if self._base is not None:
            os.fchown(fd, self._base + 1, self._base + 1)

    def let_theirs_go(self) -> None:
        """Close what only the worker should hold."""
        if self._line is not None:
            self._line.close()
            self._line = None
            self.theirs.pop("channel", None)
        while self.theirs:
            os.close(self.theirs.popitem()[1])

    def close_end(self, name: str) -> None:
        """Close one of our ends; harmless when it is closed already."""
        fd = self.ends.pop(name, None)
        if fd is not None:
            trio.lowlevel.notify_closing(fd)
            os.close(fd)

    def close(self) -> None:
        """Close all of them; nobody waits for one any more."""
        self.let_theirs_go()
        while self.ends:
            os.close(self.ends.popitem()[1])
        if self.line is not None:
            self.line.close()


class NotBegun(Exception):
    """A jail could not be given its call, of which nothing can run now; the cause is ours."""


class Outdated(Exception):
    """What a jail sees of the host is not what a new one would see. Nothing of its call ran."""


def begin(
    jail: Jail,
    handler: Handler,
    spec: JailSpec,
    streams: Streams,
    is_current: Callable[[], bool] = lambda: True,
) -> None:
    """Give a jail its call; one that is gone says so itself, or its end does.

    `is_current` tells whether what it sees of the host is as it should be.

    Raises:
        NotBegun: this process has no descriptors, or no memory, left to do it with.
        Outdated: it is not current; it is to be ended.
    """
    work, call, script = order_of(handler, spec)
    if jail.place is not None:
        jail.place.adjust(work, spec, has_script=script is not None)
    written: list[int] = []
    try:
        if script is not None:
            # As a file, so that the init never has it in its memory.
            written.append(os.memfd_create("script"))
            with os.fdopen(os.dup(written[0]), "wb") as file:
                file.write(os.fsencode(script))
        files = dict(streams.theirs)
        # The two halves of an order have a name in common, so that no two orders are ever mixed.
        order = os.urandom(8).hex()
        text = links.pack({**work, "files": list(files), "order": order})
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # First, since the worker has to wait for it.
            marker = stamps.fine() if jail.plan.keeps else None
            call = {**call, "order": order, "begun_ns": time.time_ns(), "marker": marker}
            links.send(jail.init, links.pack(call), written)
            # Meanwhile, and in time: the worker goes on only with its own half.
            if not is_current():
                raise Outdated
            links.send(jail.work, text, list(files.values()))
    except OSError as error:
        raise NotBegun(f"{type(error).__name__}: {error}") from error
    finally:
        for fd in written:
            os.close(fd)
        streams.let_theirs_go()


def _pid_of(pidfd: int) -> int | None:
    """The process's number as this one sees it (proc_pid_fdinfo(5))."""
    for line in _lines(f"/proc/self/fdinfo/{pidfd}"):
        if line.startswith("Pid:"):
            return int(line.split()[1])
    return None


def _lines(path: str) -> Iterator[str]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from os.read(fd, 4096).decode().splitlines()
    finally:
        os.close(fd)
