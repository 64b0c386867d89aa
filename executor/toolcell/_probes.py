"""What `doctor` runs inside a jail: each function tries to break one guarantee, in several ways.

Standard library only. Each returns its attempts, `{"tried", "got", "broke"}`: `broke` is true
where the attempt worked, and then the guarantee does not hold. Nothing here is trusted to hold
anything; it only tries.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

Attempt = dict[str, Any]


def attempt(tried: str, act: Callable[[], object]) -> Attempt:
    """Do it; an OSError is how the kernel says no."""
    try:
        got = act()
    except OSError as error:
        return {"tried": tried, "got": error.strerror or str(error), "broke": False}
    return {"tried": tried, "got": f"it worked: {got!r:.80}", "broke": True}


def seen(tried: str, what: object, *, broke: bool) -> Attempt:
    """An attempt that is judged by what it saw."""
    return {"tried": tried, "got": f"{what}"[:200], "broke": broke}


def read(path: str) -> str:
    """The first few characters of a file."""
    with open(path, errors="replace") as file:
        return file.read(64)


def write(path: str, text: str = "planted") -> str:
    """Make a file, and return its path."""
    with open(path, "w") as file:
        file.write(text)
    return path


def files(secret: str, prefix: str) -> list[Attempt]:
    """fs_confined: a planted file outside, the host's root through /proc, our own interpreter."""
    return [
        attempt("read a planted file outside", lambda: read(secret)),
        attempt("read it through /proc/1/root", lambda: read(f"/proc/1/root{secret}")),
        attempt("read it through ..", lambda: read(f"/tmp/../../..{secret}")),
        attempt("read /etc/shadow", lambda: read("/etc/shadow")),
        attempt("write below /usr", lambda: write("/usr/toolcell-probe")),
        attempt("write into the interpreter", lambda: write(f"{prefix}/toolcell-probe")),
        attempt("make a block device", lambda: os.mknod("/tmp/sda", 0o060600, os.makedev(8, 0))),
    ]


def network(port: int, abstract: str) -> list[Attempt]:
    """net_blocked: a listener on the host's loopback, an abstract socket, a far address."""
    links = [name for _, name in socket.if_nameindex()]
    return [
        attempt("connect to a listener on 127.0.0.1", lambda: _connect(("127.0.0.1", port))),
        attempt("connect to an abstract Unix socket", lambda: _connect("\0" + abstract)),
        attempt("connect to a far address", lambda: _connect(("192.0.2.1", 80))),
        attempt("send a datagram", lambda: _send(("192.0.2.1", 53))),
        seen("look for network links", ", ".join(links), broke=bool(set(links) - {"lo"})),
    ]


def _connect(address: tuple[str, int] | str) -> str:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(3)
        link.connect(address)
    return "connected"


def _send(address: tuple[str, int]) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        return link.sendto(b"x", address)


def outlive() -> list[Attempt]:
    """tree_killed: a daemon, by double fork and setsid, deaf to signals, that holds stdout.

    That it is gone is seen outside: stdout ends only when nobody holds it.
    """
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _be_a_daemon(write)
        os._exit(0)
    os.wait()
    pid = int(os.read(read, 16))
    os.kill(pid, 0)
    return [seen("leave a daemon behind", "it was alive when the handler returned", broke=False)]


def _be_a_daemon(write: int) -> NoReturn:
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    os.write(write, str(os.getpid()).encode())
    while True:
        time.sleep(60)


def ipc(key: int, shared: str, namespace: str) -> list[Attempt]:
    """ipc_private: a System V queue and a POSIX shared memory file of the host."""
    return [
        attempt("open a System V message queue of the host", lambda: open_queue(key)),
        attempt("open a file of the host's /dev/shm", lambda: read(shared)),
        seen(
            "compare the ipc namespace",
            "another than the host's",
            broke=os.readlink("/proc/self/ns/ipc") == namespace,
        ),
    ]


def open_queue(key: int, flags: int = 0) -> int:
    """msgget(2).

    Raises:
        OSError: there is no such queue here, or it may not be opened.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    found = int(libc.msgget(key, flags))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def environment(name: str, value: str) -> list[Attempt]:
    """env_scrubbed: a variable of the supervisor's, here and in every process that can be seen."""
    found = [seen("look for it in os.environ", "absent", broke=name in os.environ)]
    for pid in [entry for entry in os.listdir("/proc") if entry.isdigit()]:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                content = file.read()
        except OSError as error:
            content = (error.strerror or "").encode()
        broke = value.encode() in content
        found.append(seen(f"look in /proc/{pid}/environ", "absent", broke=broke))
    return found


def descriptors(secret: str) -> list[Attempt]:
    """fds_closed: files that the supervisor held open, and left inheritable."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            content = os.pread(fd, 256, 0)
        except OSError:
            continue  # a pipe, a folder, or closed since it was listed
        found.append(
            seen(f"read descriptor {fd}", "not the file", broke=secret.encode() in content)
        )
    high = [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 3]
    # One of them is the listing itself.
    found.append(seen("count descriptors above 3", f"{len(high) - 1}", broke=len(high) > 1))
    return found


def privileges() -> list[Attempt]:
    """no_new_privileges: become root, mount, chroot, and what the kernel says of this process."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount() -> int:
        if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return 0

    with open("/proc/self/status") as file:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    held = [name for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb") if int(status[name], 16)]
    return [
        attempt("setuid(0)", lambda: os.setuid(0)),
        attempt("mount a file system", mount),
        attempt("chroot", lambda: os.chroot("/tmp")),
        seen("count capabilities", ", ".join(held) or "none", broke=bool(held)),
        seen("read no_new_privs", status["NoNewPrivs"], broke=status["NoNewPrivs"] != "1"),
    ]


_HOG = "data = bytearray()\nwhile True: data += b'x' * (4 << 20)"


def memory() -> list[Attempt]:
    """memory_limited: a child, out of reach of the handler's own fence, fills memory."""
    code = subprocess.run([sys.executable, "-I", "-S", "-c", _HOG], check=False).returncode
    return [seen("fill memory in a child", f"the child ended with {code}", broke=True)]


def processor() -> list[Attempt]:
    """cpu_limited: never stop."""
    while True:
        pass


def sleep() -> list[Attempt]:
    """cpu_limited, by the wall: never stop, and use nothing."""
    while True:
        time.sleep(60)


def file_limits(size_bytes: int, open_files: int) -> list[Attempt]:
    """files_limited: a file too large, too many files, and the limits themselves raised."""
    return [
        attempt("write past the file size limit", lambda: _grow("/tmp/large", size_bytes + 1)),
        attempt("open too many files", lambda: _open_many(open_files + 1)),
        attempt("raise the limits", _raise_limits),
    ]


def _grow(path: str, size_bytes: int) -> int:
    with open(path, "wb", buffering=0) as file:
        while file.tell() < size_bytes:
            if not file.write(b"\0" * min(1 << 16, size_bytes - file.tell())):
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return file.tell()


def _open_many(count: int) -> int:
    held: list[int] = []
    try:
        while len(held) < count:
            held.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for fd in held:
            os.close(fd)
    return count


def _raise_limits() -> str:
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        _, hard = resource.getrlimit(limit)
        try:
            resource.setrlimit(limit, (hard + 1, hard + 1))
        except (ValueError, OSError) as error:
            # CPython words EPERM on the hard limit as a ValueError.
            refusal = str(error)
        else:
            return "raised"
    raise PermissionError(errno.EPERM, refusal)
