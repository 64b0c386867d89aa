"""Reading and writing the non-blocking pipes of a call."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import trio

CHUNK_BYTES = 1 << 16
FLOOD_BYTES = 1 << 18
"""As much as our pipes hold."""

PassOn = Callable[[bytes], Awaitable[None]]


class Flood:
    """One buffer for all that is read: nothing is allocated for a chunk, or copied but its ends."""

    def __init__(self) -> None:
        self._buffer = bytearray(FLOOD_BYTES)
        self._view = memoryview(self._buffer)

    def read(self, fd: int) -> memoryview | None:
        """What is there now, until the next read; empty at the end, None where nothing is yet."""
        try:
            count = os.readv(fd, [self._view])
        except BlockingIOError:
            return None
        return self._view[:count]


async def read_to_end(fd: int, take: Callable[[bytes], None], sink: PassOn | None = None) -> None:
    """Hand on what comes through a non-blocking pipe, until its end."""
    reads = 0
    while True:
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(fd)
            continue
        if not chunk:
            return
        take(chunk)
        if sink is not None:
            await sink(chunk)
        reads += 1
        if reads % 16 == 0:
            # A flood must not keep the deadline from being looked at.
            await trio.lowlevel.checkpoint()


async def write_all(fd: int, data: bytes | memoryview) -> None:
    """All of it; raises BrokenPipeError where nobody reads any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view[:CHUNK_BYTES]) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(fd)
