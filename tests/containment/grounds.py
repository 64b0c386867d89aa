"""The proving ground: a host's secrets, listeners and processes, made for the probes to attack.

Everything here is the test's own. What a probe changed is seen from outside too, whatever it
said itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from toolcell_sandbox.host import interpreter_folders

from . import probes

SCRIPT = Path(__file__).with_name("probes.py")
VICTIMS = ("look", "kill", "pidfd", "tgkill", "ptrace", "sigio", "sigio_ex", "sigio_ioctl")
_VICTIM = """
import ctypes, signal
text = ctypes.create_string_buffer(b"host", 8)
print(ctypes.addressof(text), flush=True)
while True:
    signal.pause()
"""
LOADER_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "GIT_SSH")
_LISTENERS = ("tcp", "fast_open", "mptcp")
_PLANTED = {
    "11-write_outside": "written",
    "11-write_dotdot": "written-2",
    "11-mkdir_outside": "made",
    "13-rename_out": "came-out",
}
_TAKEN = {"11-unlink_outside": "unlink-me", "13-rename_in": "rename-me"}


class Ground:
    """One host to attack, in a folder of its own; `with` it. `given` is what probes are told.

    The folder is in /var/tmp: everybody can enter it, as a control that is nobody has to, and a
    socket's name in it is short enough (unix(7)).
    """

    def __init__(self) -> None:
        self.folder = Path(f"/var/tmp/toolcell-{secrets.token_hex(6)}").resolve()
        self.workspace = self.folder / "workspace"
        self.outside = self.folder / "outside"
        self.granted = self.folder / "granted"
        self.given: dict[str, Any] = {}
        self.inherited: list[int] = []
        self._held = ExitStack()
        self._victims: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Ground:
        with ExitStack() as building:
            building.callback(self._held.close)
            self._files()
            self._sockets()
            self._processes()
            self._ipc()
            self._descriptors()
            building.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    # ------------------------------------------------------------ what is there

    def _files(self) -> None:
        text = f"s3cret-{secrets.token_hex(8)}"
        self._held.callback(shutil.rmtree, self.folder, ignore_errors=True)
        for path in (self.workspace, self.outside, self.granted, self._evil, self.temporary):
            path.mkdir(parents=True)
        secret = self.outside / "secret"
        for name in ("secret", "unlink-me", "rename-me", "exchange-me", "attributes"):
            (self.outside / name).write_text(text)
            (self.outside / name).chmod(0o600)
        os.utime(self.outside / "attributes", (7, 7))
        (self.granted / "file").write_text("granted")
        (self.granted / "readonly").write_text("read me only")
        (self.granted / "readonly").chmod(0o644)
        (self.workspace / "there-link").symlink_to(secret)
        (self.workspace / "chain-1").symlink_to("chain-2")
        (self.workspace / "chain-2").symlink_to("../workspace/chain-3")
        (self.workspace / "chain-3").symlink_to(secret)
        script = self.granted / "probes.py"
        shutil.copy(SCRIPT, script)
        setuid_id = self.granted / "setuid-id"
        shutil.copy("/usr/bin/id", setuid_id)
        setuid_id.chmod(0o4755)
        dev_shm = Path("/dev/shm") / f"toolcell-probe-{secrets.token_hex(4)}"
        dev_shm.write_text(text)
        self._held.callback(dev_shm.unlink, missing_ok=True)
        self.given |= {
            "workspace": str(self.workspace),
            "outside": str(self.outside),
            "granted": str(self.granted / "file"),
            "readonly": str(self.granted / "readonly"),
            "secret": str(secret),
            "secret_text": text,
            "setuid_id": str(setuid_id),
            "dev_shm": str(dev_shm),
            "loader_variables": list(LOADER_VARIABLES),
            "interpreter_folders": list(interpreter_folders()),
        }

    @property
    def temporary(self) -> Path:
        """The supervisor's temporary folder."""
        return self.folder / "temporary"

    @property
    def _evil(self) -> Path:
        return self.folder / "workspace-evil"

    def copy_into_workspace(self) -> str:
        """The probes and the file that may be read, for who is granted nothing beside it."""
        (self.workspace / "granted").write_text("granted")
        return shutil.copy(self.script, str(self.workspace))

    @property
    def script(self) -> str:
        """The probes, where a jail can read them."""
        return str(self.granted / "probes.py")

    def _sockets(self) -> None:
        self._tcp: dict[str, socket.socket] = {}
        for name in _LISTENERS:
            listener = self._held.enter_context(socket.create_server(("127.0.0.1", 0)))
            if name == "fast_open":
                listener.setsockopt(socket.IPPROTO_TCP, 23, 16)
            listener.setblocking(False)
            self._tcp[name] = listener
        self._udp = self._held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        path, abstract = str(self.outside / "s"), f"toolcell-{secrets.token_hex(8)}"
        for address in (path, "\0" + abstract):
            stream = self._held.enter_context(socket.socket(socket.AF_UNIX))
            stream.bind(address)
            stream.listen(8)
            datagram = self._held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            datagram.bind(address + "-datagram")
        held = self._held.enter_context(socket.socket(socket.AF_UNIX))
        held.bind(str(self.workspace / "host-socket"))
        held.listen(8)
        os.mkfifo(self.workspace / "host-fifo")
        flags = os.O_RDONLY | os.O_NONBLOCK
        self._held.callback(os.close, os.open(self.workspace / "host-fifo", flags))
        locked = os.open(self.workspace / "host-lock", os.O_RDWR | os.O_CREAT, 0o644)
        self._held.callback(os.close, locked)
        fcntl.flock(locked, fcntl.LOCK_EX)
        for name in ("host-socket", "host-fifo", "host-lock"):
            os.chmod(self.workspace / name, 0o666)
        ports = {name: sock.getsockname()[1] for name, sock in self._tcp.items()}
        self.given |= {
            "ports": {**ports, "udp": self._udp.getsockname()[1]},
            "unix_path": path,
            "unix_abstract": abstract,
        }

    def _processes(self) -> None:
        marker = f"marker-{secrets.token_hex(8)}"
        for name in VICTIMS:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _VICTIM, marker],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env={"PATH": "/usr/bin:/bin", "TOOLCELL_PROBE": marker},
            )
            self._victims[name] = process
            self._held.callback(_end, process)
        said = [process.stdout for process in self._victims.values()]
        addresses = [int(out.readline()) for out in said if out is not None]
        self.given |= {
            "marker": marker,
            "victims": {name: process.pid for name, process in self._victims.items()},
            "victim_address": addresses[0],
            "supervisor": os.getpid(),
        }

    def _ipc(self) -> None:
        key = secrets.randbits(30) | 1
        created = 0o1666
        self._shm = probes.call("shmget", key, 4096, created)
        self._held.callback(probes.call, "shmctl", self._shm, 0, None)
        probes.LIBC.shmat.restype = ctypes.c_void_p
        address = probes.call("shmat", self._shm, 0, 0)
        ctypes.memmove(address, b"host", 4)
        probes.LIBC.shmdt(ctypes.c_void_p(address))
        self._held.callback(probes.call, "semctl", probes.call("semget", key, 1, created), 0, 0, 0)
        message = probes.call("msgget", key, created)
        self._held.callback(_msgctl_remove, message)
        name = f"toolcell-{secrets.token_hex(8)}"
        os.close(probes.call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o666, None))
        self._held.callback(probes.call, "mq_unlink", name)
        # KEYCTL_JOIN_SESSION_KEYRING, so that the key is in a keyring that children inherit.
        probes.call("keyctl", 1, None)
        probes.call("add_key", "user", name, b"s3cret", 6, -3)
        self.given |= {"ipc_key": key, "shm_id": self._shm, "mq": name, "key": name}

    def _descriptors(self) -> None:
        """A folder outside, and a socket with a descriptor in it, both inheritable."""
        folder = os.open(self.outside, os.O_RDONLY | os.O_DIRECTORY)
        self._held.callback(os.close, folder)
        ours, theirs = socket.socketpair()
        self._held.callback(ours.close)
        self._held.callback(theirs.close)
        for _ in range(4):
            socket.send_fds(ours, [b"x"], [folder])
        self.inherited = [folder, theirs.fileno()]
        for fd in self.inherited:
            os.set_inheritable(fd, True)
        self.given["folder_fd"] = folder

    def hostile_environment(self) -> dict[str, str]:
        """What a supervisor may have: secrets, and what a loader or an interpreter follows."""
        return dict.fromkeys(LOADER_VARIABLES, "/nonexistent") | {
            "TOOLCELL_PROBE": self.given["marker"]
        }

    # ------------------------------------------------------------ what became of it

    def taken(self) -> dict[str, str]:
        """Probes that got through by what is to be seen here, and what that is."""
        found: dict[str, str] = {}
        for name, listener in self._tcp.items():
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                row = {"tcp": "32-tcp", "fast_open": "33-fast_open", "mptcp": "34-mptcp"}[name]
                found[row] = "the listener was reached"
        self._udp.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._udp.recv(16)
            found["35-udp"] = "the datagram arrived"
        for probe, name in _PLANTED.items():
            if (self.outside / name).exists():
                found[probe] = f"{name} is there"
        for probe, name in _TAKEN.items():
            if not (self.outside / name).exists():
                found[probe] = f"{name} is gone"
        if (self._evil / "written").exists():
            found["11-write_near_miss"] = "written is there"
        attributes = self.outside / "attributes"
        if stat.S_IMODE(attributes.stat().st_mode) != 0o600:
            found["11-chmod_outside"] = f"mode {attributes.stat().st_mode:o}"
        if attributes.stat().st_mtime != 7:
            found["11-utime_outside"] = f"time {attributes.stat().st_mtime}"
        if os.listxattr(attributes):
            found["11-xattr_outside"] = str(os.listxattr(attributes))
        readonly = self.granted / "readonly"
        if stat.S_IMODE(readonly.stat().st_mode) != 0o644:
            found["11-chmod_readable"] = f"mode {readonly.stat().st_mode:o}"
        if readonly.read_text() != "read me only":
            found["12-truncate"] = found["25-own_mem_into_a_file"] = "the file has changed"
        for probe, victim in (
            ("51-kill", "kill"),
            ("51-pidfd", "pidfd"),
            ("51-queue", "tgkill"),
            ("56-set_owner", "sigio"),
            ("56-set_owner_by_pointer", "sigio_ex"),
            ("56-set_owner_by_ioctl", "sigio_ioctl"),
        ):
            if self._victims[victim].poll() is not None:
                found[probe] = f"the victim ended by {self._victims[victim].returncode}"
        return found

    def outside_jail(self, names: list[str], *, space: bool = False) -> dict[str, Any]:
        """The same attempts by a plain process of this user: the positive control."""
        done = subprocess.run(
            [sys.executable, "-I", "-S", self.script],
            input=json.dumps({"names": names, "given": self.given, "space": space}).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.workspace,
            env={**os.environ, **self.hostile_environment()},
            pass_fds=self.inherited,
            timeout=120,
            check=True,
        )
        return with_effects(json.loads(done.stdout), self.taken())


def with_effects(said: dict[str, Any], taken: dict[str, str]) -> dict[str, Any]:
    """What the probes said, corrected by what was seen from outside."""
    for name, effect in taken.items():
        if name in said:
            said[name] = {**said[name], "through": True, "said": effect}
    return said


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _msgctl_remove(message: int) -> None:
    probes.LIBC.msgctl(message, 0, None)
