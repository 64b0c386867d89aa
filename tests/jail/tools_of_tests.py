"""Tools that the executor's tests call: honest and hostile ones, each with a known ending."""

from __future__ import annotations

import os
import signal
from typing import Any

from toolcell import ReadPath, ToolError, WritePath, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def shout(path: ReadPath, out: WritePath) -> str:
    """Write a file's text in capitals to another."""
    out.write_text(path.read_text().upper())
    return "done"


@tool
def refuse(why: str) -> None:
    """Say that it cannot be done."""
    raise ToolError(why, hint="try add")


@tool
def crash() -> None:
    """Die of a signal."""
    os.kill(os.getpid(), signal.SIGSEGV)


@tool
def leave() -> None:
    """Exit without a result."""
    os._exit(9)


@tool
def hang() -> None:
    """Never return, and leave children that would not either."""
    if os.fork() == 0:
        os.setsid()
        signal.pause()
    signal.pause()


@tool
def forge() -> None:
    """Write half a result by hand."""
    os.write(3, b"\0\0\0\0")
    os._exit(0)


@tool
def flood(size: int) -> int:
    """Print more than anybody reads."""
    left = size
    while left:
        left -= os.write(1, b"x" * min(left, 1 << 16))
    return size


@tool
def swell() -> int:
    """Ask for more memory than there is."""
    return len(bytearray(1 << 40))


@tool
def wait_for(path: ReadPath) -> str:
    """Wait until a file is there."""
    while not path.exists():
        os.sched_yield()
    return "there"


@tool
def orphans() -> str:
    """Leave orphans in sessions of their own behind and return."""
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.pause()
            os._exit(0)
    return "left"


@tool
def overwrite(path: ReadPath) -> None:
    """Say that it only reads, and write."""
    path.write_text("overwritten")


ALL: list[Any] = [add, shout, refuse, crash, leave, hang, forge, flood, swell, orphans, wait_for]
