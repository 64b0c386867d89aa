"""The supervisor's end of a handler's channel: what it says and asks while it runs.

    worker ── {"type":"progress",…} ──► a rate, a count ──► on_progress
           ── {"type":"request",…}  ──► a cap, one at a time ──► answer
           ◄── {"id","held_s","answer" or "refused"}

One JSON object a packet (SOCK_SEQPACKET). Whoever writes is hostile: packets are capped in size,
number and rate, and the first that breaks a rule closes the channel, with a remark and nothing
else: the handler runs on. Descriptors that are sent along are closed by the kernel, since nothing
here reads control messages (unix(7), SCM_RIGHTS). Nothing here waits for the handler.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

import trio

from ._hold import Hold
from .decode import BrokenRule, parse

MESSAGE_BYTES: Final = 4_096
TEXT_MAX: Final = 500
"""Characters of a word of progress; the rest is cut off."""
REQUESTS_MAX: Final = 16
BATCH: Final = 32
PAUSE_S: Final = 0.025
"""After so many packets nothing is read for so long: a flood costs a few percent of a core."""
RATE_PER_S: Final = 40.0
BURST: Final = 40.0
LEFT_MAX: Final = 1_024
"""As many packets are read once their writers are gone; the kernel holds some hundreds."""

Holding = Callable[[], AbstractAsyncContextManager[bool]]
Answerer = Callable[[Mapping[str, Any], Holding], Awaitable[Mapping[str, Any]]]
"""Answers a request, which is untrusted; its second argument holds the tree while a person
thinks, and yields whether it is held. What it returns becomes JSON of at most 3 KiB."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a handler says that it is, in units of its own: untrusted, to be shown escaped.

    `left_out` is how many words of progress came to nothing since the one that was told before.
    """

    done: float | None = None
    total: float | None = None
    message: str | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a handler: its number, and what it asks."""

    id: int
    ask: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelUse:
    """What came over a channel. `told + left_out` is all the progress that the handler made.

    `broken` is the rule for which the channel was closed.
    """

    told: int = 0
    left_out: int = 0
    requests: int = 0
    refused: int = 0
    broken: str | None = None


def read_packet(packet: bytes) -> Progress | Request | BrokenRule:
    """One packet, or the rule that it breaks. Pure; time linear in its size."""
    if len(packet) > MESSAGE_BYTES:
        return BrokenRule(f"a message of more than {MESSAGE_BYTES} bytes")
    found = parse(packet)
    if isinstance(found, BrokenRule):
        return found
    match found:
        case {"type": "progress", "done": done, "total": total, "message": text, "unsent": int()}:
            if len(found) != 5 or not (_is_amount(done) and _is_amount(total)):
                return BrokenRule("progress has amounts that are numbers, and nothing else")
            if not (text is None or isinstance(text, str)) or not _is_count(found["unsent"]):
                return BrokenRule("progress has a text and a count")
            text = text if text is None else text[:TEXT_MAX]
            return Progress(done, total, text, found["unsent"])
        case {"type": "request", "id": int(number), "ask": dict(ask)}:
            if len(found) != 3 or not _is_count(number):
                return BrokenRule("a request has a number, what it asks, and nothing else")
            return Request(number, ask)
    return BrokenRule("neither progress nor a request")


def _is_amount(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


class Allowance:
    """How much may pass: `per_s` on average, and `burst` at once."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._left = burst
        self._at_s: float | None = None

    def takes(self, now_s: float) -> bool:
        """Whether one more may pass now."""
        if self._at_s is not None:
            self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Channel:
    """One call's channel; `serve` it while the tree lives, then `end` it."""

    def __init__(
        self,
        line: socket.socket,
        hold: Hold,
        *,
        answer: Answerer | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._line = line
        self._hold = hold
        self._answer = answer
        self._on_progress = on_progress
        self._allowance = Allowance(RATE_PER_S, BURST)
        # One question at a time; the others wait in the order in which they came.
        self._turn = trio.Lock()
        self._scope = trio.CancelScope()
        self._is_closed = False
        # The last word that was left out, until a later one is told; and how many were.
        self._kept_back: Progress | None = None
        self._left_out = 0
        self._told = self._left_out_before = self._requests = self._refused = 0
        self._broken: str | None = None

    @property
    def use(self) -> ChannelUse:
        """What came so far."""
        return ChannelUse(
            told=self._told,
            left_out=self._left_out_before + self._left_out,
            requests=self._requests,
            refused=self._refused,
            broken=self._broken,
        )

    async def serve(self) -> None:
        """Read and answer until the handler's end is closed, or broke a rule."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                await self._read(nursery)
                self._close()

    async def _read(self, nursery: trio.Nursery) -> None:
        read = 0
        while not self._is_closed:
            packet = self._received()
            if packet is None:
                try:
                    await trio.lowlevel.wait_readable(self._line)
                except trio.ClosedResourceError:
                    return
            elif not self._takes(packet, nursery):
                return
            else:
                read += 1
                if read % BATCH == 0:
                    await trio.sleep(PAUSE_S)

    def end(self) -> None:
        """Take what was said before the tree's end, and close; open questions are given up."""
        for _ in range(LEFT_MAX):
            packet = None if self._is_closed else self._received()
            if packet is None or not self._takes(packet, None):
                break
        if self._kept_back is not None:
            self._left_out -= 1
            self._tell(self._kept_back)
        self._close()

    def _received(self) -> bytes | None:
        """The next packet; b"" at the end; None where none is there yet."""
        try:
            return self._line.recv(MESSAGE_BYTES + 1)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _takes(self, packet: bytes, nursery: trio.Nursery | None) -> bool:
        """Do what a packet says; whether another may follow."""
        if not packet:
            return False
        found = read_packet(packet)
        if isinstance(found, Progress):
            self._take_progress(found)
        elif isinstance(found, Request):
            self._take_request(found, nursery)
        else:
            self._broken = found.rule
        return self._broken is None

    def _take_progress(self, progress: Progress) -> None:
        self._left_out += progress.left_out
        if self._allowance.takes(trio.current_time()):
            self._tell(progress)
        else:
            self._left_out += 1
            self._kept_back = progress

    def _tell(self, progress: Progress) -> None:
        self._told += 1
        progress = replace(progress, left_out=self._left_out)
        self._left_out_before += self._left_out
        self._left_out, self._kept_back = 0, None
        if self._on_progress is not None:
            self._on_progress(progress)

    def _take_request(self, request: Request, nursery: trio.Nursery | None) -> None:
        self._requests += 1
        if self._answer is None or nursery is None:
            self._refuse(request, "nobody answers requests of this call")
        elif self._requests > REQUESTS_MAX:
            self._refuse(request, f"more than {REQUESTS_MAX} requests in one call")
        else:
            nursery.start_soon(self._reply, request, self._answer)

    def _refuse(self, request: Request, why: str) -> None:
        self._refused += 1
        self._send({"id": request.id, "held_s": 0.0, "refused": why})

    async def _reply(self, request: Request, answer: Answerer) -> None:
        async with self._turn:
            before_s = self._hold.held_s
            told = await answer(request.ask, self._hold.hold)
            held_s = self._hold.held_s - before_s
        self._send({"id": request.id, "held_s": round(held_s, 6), "answer": dict(told)})

    def _send(self, message: dict[str, Any]) -> None:
        packet = json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii")
        if self._is_closed:
            return
        try:
            self._line.send(packet, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self._broken = "its answers are not read"
            self._close()
        except OSError:
            self._close()

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            trio.lowlevel.notify_closing(self._line)
            self._line.close()
        self._scope.cancel()
