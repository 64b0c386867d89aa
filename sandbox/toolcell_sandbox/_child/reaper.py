"""What an init does while its jail runs: reap, end who makes a blocked call, tell of the end."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes an enum of every number
import _socket
import contextlib
import os
import select
import signal
import time

from . import links, mounts, seccomp, syscalls, worker
from .report import Report
from .state import FENCED, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SEGMENTS_MS = 100
"""How often a reaper looks at shared memory segments, where no limit bounds them."""
FILE_SCAN_S = 0.5
_WORD = links.pack({"event": "rehearsal", "masks": {"/": []}, "order": "", "marker": [0, 0]})
CLOCK_S = 1.0
"""How coarse a file's time stamp may be."""


def wake_on_children() -> int:
    """A descriptor that can be read after a child has ended."""
    # CPython's own handler would let a worker raise KeyboardInterrupt in here.
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    # Blocked it stays pending, whatever would be done about it (signal(7)).
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGCHLD,))
    return syscalls.signal_descriptor(_signal.SIGCHLD)


def wait_for(link: _socket.socket, event: str) -> bool:
    """Wait until the supervisor says so; False when it wants no more of this jail, or is gone."""
    while True:
        message, _ = links.receive(link)
        if message is None or message["event"] == "end":
            return False
        if message["event"] == event:
            return True


class Reaper:
    """Runs until the leader has ended, or nobody is left to want its result.

    A call that the filter hands over never runs: its caller is ended here, and the call is
    known by its name.
    """

    def __init__(
        self,
        leader: int,
        config: dict[str, Any],
        report: Report,
        state: State,
        leader_link: _socket.socket,
        wakeup: int,
    ) -> None:
        self._leader = leader
        self._config = config
        self.report = report
        self._state = state
        # The worker's filter comes over it, and it is told when all is there for its call.
        self._worker = leader_link
        self._wakeup = wakeup
        self.listener: int | None = None
        self._has_ended_callers = False
        self.is_calm = False
        """Whether the leader has ended by itself, and nobody else was left."""
        self._peak_kib = 0
        # Of the whole tree, as far as anybody has waited for it.
        self._cpu_s = 0.0
        self._started = time.time() - CLOCK_S
        self._poller = select.poll()

    def run(self) -> None:
        """To the end of the leader, or of those who want to know."""
        link = self.report.link.fileno()
        alive: int = self._config["alive"]
        for fd in (self._wakeup, self._worker.fileno(), link, alive):
            self._poller.register(fd, select.POLLIN)
        timeout_ms = SEGMENTS_MS if self._config["watches_segments"] else None
        while True:
            for fd, event in self._poller.poll(timeout_ms):
                if fd == alive:
                    self.report.send("zygote_lost")
                if fd == alive or (fd == link and not self._take_word()):
                    self.end_all()
                    return
                if fd == self._wakeup:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup, 4096)
                elif fd == self.listener:
                    self._end_caller(event)
                elif fd == self._worker.fileno():
                    self._take_listener()
            if self.reap():
                return
            if timeout_ms is not None and self._segments_are_over():
                self.end_all()
                return

    def rehearse(self) -> None:
        """Hear and say something as at a call, to nobody."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        links.send(theirs, _WORD)
        link, self.report = self.report, Report(ours)
        self._take_word()
        self.tell(0, 0.0)
        self.report = link
        ours.close()
        theirs.close()
        self.reap()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(os.getpid(), os.WNOHANG)

    def _take_word(self) -> bool:
        """Do what the supervisor says; False when it has let go of this jail, or is gone."""
        message, files = links.receive(self.report.link)
        if message is None or message["event"] == "end":
            return False
        if message["event"] == "call":
            self.begin(message, files)
        for fd in files:
            os.close(fd)
        return True

    def begin(self, call: dict[str, Any], files: list[int]) -> None:
        """All is there for the call, with its script where it has one: let the worker go."""
        self._started = time.time() - CLOCK_S
        self.say(worker.GO + call["order"].encode())

    def say(self, word: bytes) -> None:
        """Tell the worker how far its jail is; one that is gone by now has said why itself."""
        with contextlib.suppress(OSError):
            self._worker.send(word, _socket.MSG_NOSIGNAL)

    def _segments_are_over(self) -> bool:
        """Whether the jail's shared memory segments alone take more than it may have.

        One that nobody has attached is in no process's memory, so no watch from outside sees it
        (proc_sysvipc(5): the last two columns are resident and swapped bytes).
        """
        with open("/proc/sysvipc/shm") as file:
            used = sum(sum(map(int, line.split()[-2:])) for line in file.readlines()[1:])
        if used <= self._config["limits"]["memory_bytes"]:
            return False
        self.report.send("segments", memory_bytes=used)
        return True

    def reap(self) -> bool:
        """Reap whoever has ended; whether the leader is among them."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if os.WIFSTOPPED(status):
                # Of who had itself traced (ptrace(2), PTRACE_TRACEME), which only a waived filter
                # allows: a stop is no end, and nobody lets it go on. Not reaped, it is nobody else.
                os.kill(pid, signal.SIGKILL)
                continue
            self._count(used)
            if pid == self._leader:
                leader_cpu_s = used.ru_utime + used.ru_stime
                self.is_calm = not self.end_rest() and not self._has_ended_callers
                self.tell(status, leader_cpu_s)
                return True

    def _count(self, used: Any) -> None:
        self._peak_kib = max(self._peak_kib, used.ru_maxrss)
        self._cpu_s += used.ru_utime + used.ru_stime

    def tell(self, status: int, leader_cpu_s: float) -> None:
        """Report the leader's end."""
        self.report.send(
            "ended",
            status=status,
            calm=self.is_calm,
            stage=self._state.stage,
            fenced=self._state.has(FENCED),
            leader_cpu_s=leader_cpu_s,
            cpu_s=self._cpu_s,
            peak_memory_bytes=self._peak_kib * 1024,
            file_at_limit=_file_at_limit(self._config, status, self._started),
        )

    def end_all(self) -> None:
        """Kill all but this process, and tell what they used."""
        if os.getpid() != 1:
            return  # Only in a pid namespace of its own does -1 mean the jail.
        self.end_rest()
        self.report.send("reaped", cpu_s=self._cpu_s, peak_memory_bytes=self._peak_kib * 1024)

    def end_rest(self) -> bool:
        """Kill all but this process, and read what they used as they are reaped; whether any was.

        Left to the kernel they would reap themselves, and what they used would be nobody's
        (pid_namespaces(7)). No fork outruns kill(-1): with a signal pending none is made.
        """
        if os.getpid() != 1:
            return False
        flags = os.WNOHANG
        try:
            while True:
                pid, _, used = os.wait4(-1, flags)
                if pid:
                    self._count(used)
                # Not at first: mostly nobody is left.
                flags = 0
                os.kill(-1, signal.SIGKILL)
        except OSError:
            return flags == 0  # Nobody is left to be killed, or to be waited for.

    def close(self) -> None:
        """Let go of what it has of its jail."""
        self._worker.close()
        if self.listener is not None:
            os.close(self.listener)

    def _take_listener(self) -> None:
        """The worker's filter hands its calls over here; without one, the socket just ends."""
        listener = syscalls.receive_fd(self._worker)
        self._poller.unregister(self._worker.fileno())
        if listener is not None:
            self.listener = listener
            self._poller.register(listener, select.POLLIN)

    def _end_caller(self, event: int) -> None:
        """End the process of a blocked call; what is blocked is said before the signal is sent."""
        assert self.listener is not None
        if event & select.POLLHUP:
            # Nobody is left under the filter.
            self._poller.unregister(self.listener)
            return
        blocked = seccomp.receive(self.listener)
        if blocked is None or self.answer(blocked):
            return  # The caller has ended meanwhile, or got what it asked for.
        if self._is_leaders(blocked.pid):
            self.report.send("blocked", call=blocked.call, machine=blocked.machine)
        self._has_ended_callers = True
        seccomp.end_caller(self.listener, blocked)

    def answer(self, blocked: seccomp.Blocked) -> bool:
        """Whether the call is one that asks, and has got its answer."""
        return False

    def _is_leaders(self, thread: int) -> bool:
        return os.path.exists(f"/proc/{self._leader}/task/{thread}")


def _file_at_limit(config: dict[str, Any], status: int, started: float) -> bool:
    """Whether SIGXFSZ came from the kernel: then some file reached the limit (setrlimit(2)).

    Looked for only after that signal, for a bounded time, where the handler could write, among
    what has changed since it started.
    """
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ):
        return False
    fixed = {entry["path"] for entry in config["mounts"] if not entry["writable"]}
    tops = mounts.writable(config)
    limit, deadline = config["limits"]["file_size_bytes"], time.monotonic() + FILE_SCAN_S
    while tops and time.monotonic() < deadline:
        # A hostile tree may be too deep to name, or vanish: what cannot be read tells nothing.
        with contextlib.suppress(OSError), os.scandir(tops.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in fixed:
                        tops.append(entry.path)
                    continue
                found = entry.stat(follow_symlinks=False)
                if found.st_size >= limit and found.st_ctime >= started:
                    return True
                if time.monotonic() > deadline:
                    return False
    return False
