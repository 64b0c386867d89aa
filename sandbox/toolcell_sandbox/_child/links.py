"""Messages between the supervisor and its own processes: one JSON object a packet, files beside it.

Over socket pairs (SOCK_SEQPACKET, unix(7)), so that packets of several writers never mix. None of
them is open in a process that runs a handler's code: what is said over them can be trusted. A long
message travels as a file in memory (memfd_create(2)), since a packet has to fit the buffer.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import json
import os
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

HIGH = 16
"""The first number that is out of the way of a handler's."""
INLINE_BYTES = 8 << 10
SOON_MS = 10
"""Where many calls are made, the next one comes sooner."""
FILES_MAX = 16
_CONTROL_BYTES = _socket.CMSG_SPACE(4 * FILES_MAX)
_BY_FILE = b"\0"
# Made once: what a process touches after it was forked is copied.
_text = json.JSONEncoder(separators=(",", ":")).encode
_message = json.JSONDecoder().raw_decode


def of(fd: int) -> _socket.socket:
    """The link that an open file is."""
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)


def above(link: _socket.socket) -> _socket.socket:
    """A link out of the way of all that a handler is given, which takes another one's place."""
    found = of(fcntl.fcntl(link.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH))
    link.close()
    return found


def pack(message: dict[str, Any]) -> bytes:
    """The text of a message."""
    return _text(message).encode()


def send(link: _socket.socket, text: bytes, files: Sequence[int] = (), flags: int = 0) -> None:
    """Send one message, and open files with it.

    Raises:
        BlockingIOError: the link does not block, and its buffer is full.
        OSError: nobody reads any more.
    """
    if len(text) <= INLINE_BYTES:
        _send(link, text, files, flags)
        return
    held = os.memfd_create("message")
    try:
        with os.fdopen(os.dup(held), "wb") as file:
            file.write(text)
        _send(link, _BY_FILE, [*files, held], flags)
    finally:
        os.close(held)


def _send(link: _socket.socket, text: bytes, files: Sequence[int], flags: int) -> None:
    flags |= _socket.MSG_NOSIGNAL
    if not files:
        link.send(text, flags)
        return
    rights = struct.pack(f"{len(files)}i", *files)
    link.sendmsg([text], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)], flags)


def is_told(link: _socket.socket, within_ms: int) -> bool:
    """Whether there is something to be received, or comes soon."""
    poller = select.poll()
    poller.register(link.fileno(), select.POLLIN)
    return bool(poller.poll(within_ms))


class Truncated(OSError):
    """Part of a message is lost: it was too long, or its files are more than can be open."""


def receive(link: _socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message and the files that came with it, close-on-exec; None at the end.

    Of a message that is none, nothing stays open.

    Raises:
        BlockingIOError: the link does not block, and nothing is there.
        Truncated: part of it is lost (recvmsg(2)).
        ValueError: it is no JSON.
    """
    flags = _socket.MSG_CMSG_CLOEXEC
    text, control, told, _ = link.recvmsg(INLINE_BYTES, _CONTROL_BYTES, flags)
    files: list[int] = []
    for _, kind, data in control:
        if kind == _socket.SCM_RIGHTS:
            # The kernel may cut in the midst of a number that it did not give.
            files += struct.unpack_from(f"{len(data) // 4}i", data)
    if not text and not files:
        return None, []
    try:
        if told & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
            raise Truncated(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        if text == _BY_FILE and files:
            held = files.pop()
            with os.fdopen(held, "rb") as file:
                file.seek(0)
                text = file.read()
        message: dict[str, Any] = _message(text.decode())[0]
    except BaseException:
        for fd in files:
            os.close(fd)
        raise
    return message, files
