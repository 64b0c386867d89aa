"""Probes of whom a jail can talk to: networks, sockets of the host, and its queues and memory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct

from toolcell._probes import Attempt, attempt, checked, read, refused, seen, syscall, works

_FAR = "192.0.2.1"
"""TEST-NET-1 (RFC 5737): no host has it."""
_AF_VSOCK, _VSOCK_HOST = 40, 2
_MSG_FASTOPEN = 0x2000_0000
_PATIENCE_S = 3
_IPC_PRIVATE, _IPC_CREAT, _IPC_RMID = 0, 0o1000, 0

Address = tuple[str, int] | str


def network(tcp: int, udp: int, abstract: str, path: str) -> list[Attempt]:
    """net_blocked: listeners on the host's loopback, its Unix sockets, far addresses.

    What arrived is seen outside as well.
    """
    return [
        attempt("connect to a listener on 127.0.0.1", lambda: connect(("127.0.0.1", tcp))),
        attempt("send to it by Fast Open", lambda: _fast_open(("127.0.0.1", tcp))),
        attempt("connect to it by IPv6", lambda: connect(("::ffff:127.0.0.1", tcp))),
        attempt("send a datagram to 127.0.0.1", lambda: _send(("127.0.0.1", udp))),
        attempt("connect to an abstract Unix socket", lambda: connect("\0" + abstract)),
        attempt("connect to a Unix socket by its path", lambda: connect(path)),
        attempt("connect to a far address", lambda: connect((_FAR, 80))),
        attempt("send a datagram to a far address", lambda: _send((_FAR, 53))),
        attempt("speak to the machine's host (AF_VSOCK)", _vsock),
        attempt("listen on every address", _listen_everywhere),
        seen("look for network links", _links() or "none", broke=_links() not in ("", "lo")),
    ]


def connect(address: Address) -> str:
    """A stream to there.

    Raises:
        OSError: there is none to be had.
    """
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    if not isinstance(address, str) and ":" in address[0]:
        family = socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(_PATIENCE_S)
        link.connect(address)
    return "connected"


def _fast_open(address: Address) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
        # Not settimeout(): a socket that does not block says EINPROGRESS, though it is under way.
        wait = struct.pack("@ll", _PATIENCE_S, 0)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        return link.sendto(b"x", _MSG_FASTOPEN, address)


def _send(address: Address) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        return link.sendto(b"x", address)


def _vsock() -> str:
    with socket.socket(_AF_VSOCK, socket.SOCK_STREAM) as link:
        link.settimeout(_PATIENCE_S)
        link.connect((_VSOCK_HOST, 22))
    return "connected"


def _listen_everywhere() -> str:
    with socket.create_server(("", 0)):
        connect((_FAR, 80))
    return "listening"


def _links() -> str:
    try:
        return ", ".join(name for _, name in socket.if_nameindex())
    except OSError:
        return ""


# ---------------------------------------------------------------- loopback


def serve(port: int, abstract: str) -> int:
    """A jail beside it, with a server on its loopback until its standard input ends."""
    arrived = 0
    with socket.create_server(("127.0.0.1", port)) as server:
        with socket.socket(socket.AF_UNIX) as local:
            local.bind("\0" + abstract)
            local.listen()
            os.write(1, b"ready\n")
            while os.read(0, 1):
                pass
        server.setblocking(False)
        try:
            while server.accept():
                arrived += 1
        except BlockingIOError:
            return arrived


def loopback(tcp: int, beside: int, abstract: str) -> list[Attempt]:
    """net_loopback: the host's listener, another jail's, and a server of its own."""
    return [
        attempt("connect to a listener of the host", lambda: connect(("127.0.0.1", tcp))),
        attempt("connect to another jail's server", lambda: connect(("127.0.0.1", beside))),
        attempt("connect to its abstract socket", lambda: connect("\0" + abstract)),
        attempt("connect to a far address", lambda: connect((_FAR, 80))),
        works("serve on the very same port, inside", lambda: _serve_oneself(beside)),
    ]


def _serve_oneself(port: int) -> str:
    with socket.create_server(("127.0.0.1", port)):
        return connect(("127.0.0.1", port))


# ---------------------------------------------------------------- queues and memory


def ipc(key: int, mq: str, shared: str, abstract: str, namespace: str) -> list[Attempt]:
    """ipc_private: System V and POSIX queues and memory of the host, its abstract sockets.

    `namespace` is the host's, or empty where the jail has to share it and may use none of it.
    """
    found = [
        attempt("open a System V queue of the host", lambda: queue(key)),
        attempt("open its System V memory", lambda: memory(key)),
        attempt("open its System V semaphores", lambda: semaphores(key)),
        attempt("open a POSIX queue of the host", lambda: posix_queue(mq)),
        attempt("open a file of the host's /dev/shm", lambda: read(shared)),
        attempt("connect to an abstract socket of the host", lambda: connect("\0" + abstract)),
        attempt("send to one without a connection", lambda: _send_abstract(abstract)),
    ]
    if namespace:
        here = os.readlink("/proc/self/ns/ipc")
        said = "another than the host's"
        return [*found, seen("compare the ipc namespace", said, broke=here == namespace)]
    # Where it is the host's own namespace, nothing may be made in it either.
    made = syscall(29, 194, _IPC_PRIVATE, 4096, 0o600), syscall(68, 186, _IPC_PRIVATE, 0o600)
    posix = syscall(240, 180, mq.encode(), os.O_RDWR | os.O_CREAT, 0o600, 0)
    libc = ctypes.CDLL(None)
    libc.shmctl(made[0], _IPC_RMID, None)
    libc.msgctl(made[1], _IPC_RMID, None)
    return [
        *found,
        refused("make System V memory", made[0], errno.EPERM),
        refused("make a System V queue", made[1], errno.EPERM),
        refused("make a POSIX queue", posix, errno.EPERM),
    ]


def queue(key: int, flags: int = 0) -> int:
    """msgget(2).

    Raises:
        OSError: there is no such queue here, or it may not be opened.
    """
    return checked(syscall(68, 186, key, flags))


def memory(key: int, flags: int = 0) -> int:
    """shmget(2), likewise."""
    return checked(syscall(29, 194, key, 1, flags))


def semaphores(key: int, flags: int = 0) -> int:
    """semget(2), likewise."""
    return checked(syscall(64, 190, key, 1, flags))


def posix_queue(name: str, flags: int = 0) -> int:
    """mq_open(2), likewise: a descriptor."""
    return checked(syscall(240, 180, name.encode(), os.O_RDONLY | flags, 0o666, 0))


def removals(key: int, mq: str) -> None:
    """Remove what was made by these names, as far as it is there."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(OSError):
        libc.msgctl(queue(key), _IPC_RMID, None)
    with contextlib.suppress(OSError):
        libc.shmctl(memory(key), _IPC_RMID, None)
    with contextlib.suppress(OSError):
        libc.semctl(semaphores(key), 0, _IPC_RMID)
    syscall(241, 181, mq.encode())


def _send_abstract(abstract: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        return link.sendto(b"x", "\0" + abstract)
