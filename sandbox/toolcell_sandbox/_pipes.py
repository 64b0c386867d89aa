"""Reading and writing the non-blocking pipes of a call."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import trio

CHUNK_BYTES = 1 << 16

PassOn = Callable[[bytes], Awaitable[None]]


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
