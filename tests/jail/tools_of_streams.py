"""Tools whose output is watched while they run."""

from __future__ import annotations

import os
import signal
from typing import Any

from toolcell import CallContext, tool


@tool
def speaks() -> str:
    """Say something, half a character of it, and wait for a word before the rest."""
    os.write(1, "before é".encode()[:-1])
    os.write(2, b"aside")
    os.read(0, 1)
    os.write(1, "é after".encode()[1:])
    return "said"


@tool
def floods(size: int) -> int:
    """Print more than anybody reads, in two streams."""
    for fd in (1, 2):
        left = size
        while left:
            left -= os.write(fd, b"x" * min(left, 1 << 16))
    return size


@tool
def stays() -> None:
    """Say that it is there, and stay, with children."""
    if os.fork() == 0:
        os.setsid()
    os.write(1, b"here")
    signal.pause()


@tool
def tells(ctx: CallContext) -> str:
    """Say how far it is, and ask for a file."""
    handler: Any = ctx
    handler.progress(1, 2, "half")
    return "yes" if handler.permission("readonly", ["there"]) else "no"
