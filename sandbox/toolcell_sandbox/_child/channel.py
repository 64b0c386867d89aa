"""A handler's own line to the supervisor: what it has to say and to ask while it runs.

One JSON object a packet over a socket pair (SOCK_SEQPACKET, unix(7)): packets of several threads
and processes never mix. Closed on exec, so that no program of a handler's has it. Nothing here is
a boundary: a handler can write to the socket by itself, and the supervisor believes nothing.
"""

from __future__ import annotations

import _socket
import _thread
import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FD = 4
MESSAGE_BYTES = 4_096
SAY_S = 0.05
"""No two words of progress sooner than that; the last one is sent at the end."""

_current: Channel | None = None


class Gone(Exception):
    """There is no line to the supervisor, or no more."""


class Refused(Exception):
    """The supervisor does not take the request; the message says why."""


def current() -> Channel | None:
    """This process's line; None where the handler was started without one."""
    return _current


def open_at(fd: int, wall_s: float) -> Channel:
    """Take the line at `fd`; `wall_s` is what is left of the call's time."""
    global _current
    _current = Channel(_socket.socket(fileno=fd), wall_s)
    return _current


class Channel:
    """The worker's end. Any thread may use it; a fork may say something, and not ask."""

    def __init__(self, line: _socket.socket, wall_s: float) -> None:
        self._line = line
        self._pid = os.getpid()
        self._asking = _thread.allocate_lock()
        self._saying = _thread.allocate_lock()
        self._asked = 0
        self._unsent = 0
        self._last: dict[str, Any] | None = None
        self._said_s = 0.0
        # By CLOCK_MONOTONIC, which goes on while a tree is frozen.
        self._until_s = time.monotonic() + wall_s

    def left_s(self) -> float:
        """How much of the call's time is left, as far as it can be seen from here."""
        return max(0.0, self._until_s - time.monotonic())

    def say(self, done: float | None, total: float | None, message: str | None) -> None:
        """Tell how far the handler is; never waits. What is not sent is counted in the next."""
        with self._saying:
            self._last = {"type": "progress", "done": done, "total": total, "message": message}
            now_s = time.monotonic()
            if now_s - self._said_s < SAY_S:
                self._unsent += 1
            else:
                self._said_s = now_s
                self._send_last()

    def finish(self) -> None:
        """Send the last word of progress, if it was held back."""
        with self._saying:
            if self._last is not None:
                self._unsent -= 1
                self._send_last()

    def _send_last(self) -> None:
        packet = _packed({**(self._last or {}), "unsent": self._unsent})
        try:
            self._line.send(packet, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
        except OSError:
            self._unsent += 1  # Full, or nobody is there: progress is no promise.
        else:
            self._unsent, self._last = 0, None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask, and wait for the answer to this very request; one thread at a time.

        Raises:
            Gone: the supervisor has closed the line, or this is a fork of the handler's.
            Refused: the request is too long or no JSON, or there were too many.
        """
        if os.getpid() != self._pid:
            raise Gone("a fork of the handler cannot ask: its parent would read the answer")
        with self._asking:
            self._asked += 1
            number = self._asked
            try:
                packet = _packed({"type": "request", "id": number, "ask": request})
            except (TypeError, ValueError) as error:
                raise Refused(f"a request that is no JSON: {error}") from error
            if len(packet) > MESSAGE_BYTES:
                raise Refused(f"a request of {len(packet)} bytes; at most {MESSAGE_BYTES}")
            try:
                self._line.send(packet, _socket.MSG_NOSIGNAL)
                while True:
                    told = self._line.recv(2 * MESSAGE_BYTES)
                    if not told:
                        raise Gone("the supervisor has closed the line")
                    answer = json.loads(told)
                    if answer["id"] == number:
                        break
            except OSError as error:
                raise Gone(str(error.strerror)) from error
            self._until_s += answer["held_s"]
            if "refused" in answer:
                raise Refused(answer["refused"])
            found: dict[str, Any] = answer["answer"]
            return found


def _packed(message: dict[str, Any]) -> bytes:
    text = json.dumps(message, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode()
