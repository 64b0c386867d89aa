"""What `doctor` sets up outside a jail: files, servers and processes that tell if they were hit."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Final

import trio

from toolcell import _probes
from toolcell._probe_run import Probe


class Trap:
    """A folder outside that anybody may change, with one file in it; it tells whether anybody did.

    Nobody can replace the file but its owner (the folder is sticky), so that who looks after it
    never follows another one's link.
    """

    def __init__(self, held: ExitStack) -> None:
        # Where there is one, a short place: a socket's name has 108 bytes (unix(7)).
        short = next((f for f in ("/tmp", "/var/tmp") if os.access(f, os.W_OK)), None)
        base = tempfile.TemporaryDirectory(prefix="toolcell-doctor-", dir=short)
        self.base = os.path.realpath(held.enter_context(base))
        os.chmod(self.base, 0o755)
        self.folder = os.path.join(self.base, "open")
        os.mkdir(self.folder)
        self.file = _probes.write(os.path.join(self.folder, "secret"))
        os.chmod(self.file, 0o666)
        os.chmod(self.folder, 0o1777)
        self._before = self._state()

    def _state(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for path in (self.folder, *(e.path for e in os.scandir(self.folder))):
            s = os.lstat(path)
            found[path] = (s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, s.st_ctime_ns)
            if stat.S_ISREG(s.st_mode) and path == self.file:
                found[path] += (_probes.read(path),)
        return found

    def look(self, probe: Probe) -> None:
        """Let the probe know whether anything is different from how it was left."""
        now = self._state()
        changed = [p for p in {**now, **self._before} if now.get(p) != self._before.get(p)]
        names = ", ".join(os.path.basename(path) for path in changed)
        probe.saw("look outside", f"changed: {names}" if names else "unchanged", broke=bool(names))


def has_something(server: socket.socket) -> bool:
    """Whether somebody has come to a server, or sent to it."""
    server.setblocking(False)
    try:
        if server.type == socket.SOCK_DGRAM:
            server.recv(1)
        else:
            server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


OUTSIDER: Final = f"""
import os, signal
signal.signal({signal.SIGURG.value}, lambda *_: os.write(1, b"s"))
os.write(1, b"r")
while os.read(0, 1):
    pass
"""


@contextlib.asynccontextmanager
async def outsider() -> AsyncIterator[trio.Process]:
    """A process outside that writes a byte for each signal it gets."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-S", "-c", OUTSIDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await trio.aclose_forcefully(stream)


def marked(mark: str) -> list[int]:
    """The processes of this machine whose command line has the mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                if mark.encode() in file.read().split(b"\0"):
                    found.append(int(name))
    return found


def new_name() -> str:
    """A name that nobody else has."""
    return f"toolcell-doctor-{secrets.token_hex(8)}"
