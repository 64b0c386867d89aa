"""The zygotes of this process: started when they are needed, again when they have died.

One per way of building jails and set of preloaded modules. Each is started from one thread that
lives as long as this process: the kernel ties a parent-death signal to the thread that started
the child (prctl(2)).
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import subprocess
import sysconfig
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import trio

from . import host
from ._child import links, mountinfo
from .guarantees import Way
from .plan import Plan

BOOTSTRAP = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_child", "bootstrap.py")
JAILS_MAX = 10_000
"""How many jails one zygote makes before the next one takes its place."""
PLANS_MAX = 64
ZYGOTES_MAX = 4
"""Those used last; any other ends once its last jail has."""
_ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)
"""So that the import of a numeric library starts no threads, which a fork would lose."""


@dataclass(frozen=True, slots=True)
class Preload:
    """Modules that a zygote has imported, and the folders where they are looked for."""

    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


NOTHING = Preload()


def library_path() -> tuple[str, ...]:
    """Where this interpreter's installed packages lie; not where the program was started."""
    found = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if path))


_GONE = (errno.EPIPE, errno.ECONNRESET, errno.EBADF)
"""Of a link: nobody reads, or it was let go of while this one waited to send."""


class ZygoteGone(OSError):
    """The zygote ended before it had made a jail: another one can be tried."""


def shut(link: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """End a link of this process's, whoever else has a copy of its end (shutdown(2)).

    A close alone is heard only when the last copy is closed, and a child that the host program
    forks has one of each.
    """
    with contextlib.suppress(OSError):
        link.shutdown(how)


class Zygote:
    """One, as the supervisor sees it."""

    def __init__(self, way: Way, preload: Preload) -> None:
        ranged = host.id_base() is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = _at_home(lambda: _start(theirs.fileno(), preload))
            except BaseException:
                ours.close()
                raise
        self._control = ours
        self.moment: tuple[object, ...] = ()
        # Several event loops of one process, a thread each, share it.
        self._lock = threading.Lock()
        self._plans: dict[str, None] = {}
        self.made = 0
        self.is_let_go = False
        """Whether there is to be nothing new of it."""
        told = {
            "way": way,
            "ranged": ranged,
            "supervisor_pid": os.getpid(),
            "preload": preload.modules,
            "sys_path": preload.path,
        }
        with contextlib.suppress(OSError):
            links.send(self._control, links.pack(told))
        self._control.setblocking(False)

    @property
    def pid(self) -> int:
        """The process's own."""
        return self._process.pid

    @property
    def control_fd(self) -> int:
        """Our end of its control link."""
        return self._control.fileno()

    async def make(self, plan: Plan, own: Mapping[str, Any], files: list[int]) -> None:
        """Ask for one jail; what comes of it is said over its own links, whose ends are `files`.

        Raises:
            ZygoteGone: it has ended.
            OSError: this process has no descriptors left to ask with.
        """
        # Many may wait at once, and only one task may wait for a descriptor.
        while not self._is_sent(plan, own, files):  # noqa: ASYNC110 - the kernel tells
            await trio.sleep(0.001)

    def _is_sent(self, plan: Plan, own: Mapping[str, Any], files: list[int]) -> bool:
        # Whether a plan is known is true of this place in the order of what the zygote hears.
        with self._lock:
            told = None if plan.key in self._plans else plan.told
            try:
                text = links.pack({"key": plan.key, "plan": told, "own": own})
                links.send(self._control, text, files)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                raise ZygoteGone(error.errno, "the zygote has ended") from error
            # The one used last comes last. What is not counted on here is sent again.
            self._plans.pop(plan.key, None)
            self._plans[plan.key] = None
            while len(self._plans) > PLANS_MAX:
                del self._plans[next(iter(self._plans))]
            self.made += 1
            return True

    def is_gone(self) -> bool:
        """Whether it has ended; then it is reaped as well."""
        return self._process.poll() is not None

    def let_go(self) -> None:
        """Take no more of it: it ends when its last jail has."""
        self.is_let_go = True
        shut(self._control)
        self._control.close()

    def kill(self) -> None:
        """End it now, and every jail of its with it."""
        self._process.kill()


def _start(fd: int, preload: Preload) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [host.EXECUTABLE, "-I", "-S", BOOTSTRAP, str(fd)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(fd,),
        # Constant: it runs outside the jails, where a caller's LD_PRELOAD would be ours.
        env={**host.base_environment(), **(_ONE_THREAD if preload.modules else {})},
        cwd="/",
        start_new_session=True,
    )


class _World:
    """Where this process stands: a zygote sees the host as that was when it was started.

    What is mounted later reaches it where mounts are shared (mount_namespaces(7)), as systemd has
    it; elsewhere, as in most containers, there has to be a new one.
    """

    def __init__(self) -> None:
        self._watch = mountinfo.Watch()
        self._mounted = self._watch.read()
        self._changes = 0

    def moment(self) -> tuple[object, ...]:
        """Differs from an earlier one where a zygote of then would show another host."""
        if self._watch.has_changed():
            before, self._mounted = self._mounted, self._watch.read()
            self._changes += not mountinfo.is_passed_on(before, self._mounted)
        return self._changes, *namespaces()

    def close(self) -> None:
        """Let go of it."""
        self._watch.close()


def namespaces() -> tuple[int, int]:
    """The mount and network namespaces that this process is in (namespaces(7))."""
    return os.stat("/proc/self/ns/mnt").st_ino, os.stat("/proc/self/ns/net").st_ino


class _Home:
    """The thread that starts them, and those that run. One per process, also after a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.uid = os.geteuid()
        self.lock = threading.Lock()
        self.world = _World()
        self.zygotes: dict[tuple[Way, Preload, bool], Zygote] = {}
        self.retired: list[Zygote] = []
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="toolcell zygotes", daemon=True).start()

    def _run(self) -> None:
        while True:
            act, done = self._work.get()
            try:
                done.set_result(act())
            except BaseException as error:  # noqa: BLE001  # raised again where it was asked for
                done.set_exception(error)

    def leave(self) -> None:
        """Let go of all of it, as who this process is no more."""
        for each in self.zygotes.values():
            each.let_go()
        self.world.close()

    def do(self, act: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        self._work.put((act, done))
        return done.result()


_home: _Home | None = None
_home_lock = threading.Lock()


def _the_home() -> _Home:
    global _home
    with _home_lock:
        if _home is None or (_home.pid, _home.uid) != (os.getpid(), os.geteuid()):
            # A forked child's thread, and whoever has another uid by now, starts its own.
            if _home is not None and _home.pid == os.getpid():
                _home.leave()
            _home = _Home()
        return _home


def _at_home(act: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    done: subprocess.Popen[bytes] = _the_home().do(act)
    return done


def zygote(way: Way, preload: Preload = NOTHING, *, on_host: bool = False) -> Zygote:
    """The one that makes jails this way; started where there is none, or it has ended.

    `on_host`: for jails in the host's own network, which no other zygote is in for long.

    Raises:
        OSError, NoIds: it could not be started.
    """
    home = _the_home()
    with home.lock:
        key = way, preload, on_host
        found = home.zygotes.get(key)
        moment = home.world.moment()
        if found is not None and (
            found.is_gone() or found.made >= JAILS_MAX or found.moment != moment
        ):
            found.let_go()
            home.retired.append(found)
            found = None
        home.retired = [each for each in home.retired if not each.is_gone()]
        if found is None:
            found = Zygote(way, preload)
            found.moment = moment
        # The one used last comes last.
        home.zygotes.pop(key, None)
        home.zygotes[key] = found
        while len(home.zygotes) > ZYGOTES_MAX:
            oldest = home.zygotes.pop(next(iter(home.zygotes)))
            oldest.let_go()
            home.retired.append(oldest)
        return found


def retire(gone: Zygote) -> None:
    """Use this one no more."""
    home = _the_home()
    with home.lock:
        for key, found in list(home.zygotes.items()):
            if found is gone:
                del home.zygotes[key]
                gone.let_go()
                home.retired.append(gone)


def retire_all() -> None:
    """Use none of those that run any more: a new one has the limits and groups of then.

    What they have made goes on; each ends when its last jail has.
    """
    home = _the_home()
    with home.lock:
        for each in home.zygotes.values():
            each.let_go()
        home.retired += home.zygotes.values()
        home.zygotes.clear()


def end(stuck: Zygote) -> None:
    """Use this one no more, and kill it: it does not answer."""
    retire(stuck)
    stuck.kill()


def pids() -> frozenset[int]:
    """The processes that this one keeps for its jails."""
    home = _the_home()
    with home.lock:
        return frozenset(each.pid for each in (*home.zygotes.values(), *home.retired))


def descriptors() -> frozenset[int]:
    """What this process holds open for them."""
    home = _the_home()
    with home.lock:
        return frozenset(each.control_fd for each in home.zygotes.values())
