"""Probes of how much a jail may use: processes, memory, and processor time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import NoReturn

from toolcell._probes import Attempt, python, seen, why


def processes(limit: int, most: int) -> list[Attempt]:
    """processes_limited: processes, then threads, until one is refused or `most` are there."""
    children: list[int] = []
    happened = "none was refused"
    try:
        while len(children) < most:
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)
    except OSError as error:
        happened = why(error)
    forked = f"{happened} after {len(children)} processes"
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    started, go = 0, threading.Event()
    happened = "none was refused"
    try:
        while started < most:
            threading.Thread(target=go.wait, daemon=True).start()
            started += 1
    except RuntimeError as error:
        happened = str(error)
    go.set()
    return [
        seen("fork without end", forked, broke=len(children) >= limit),
        seen(
            "start threads without end",
            f"{happened} after {started} threads",
            broke=started >= limit,
        ),
    ]


def bomb() -> NoReturn:
    """processes_limited: fork, and let each child fork."""
    while True:
        os.fork()


_HELD_S = 5
_HOG = "data = bytearray()\nwhile True: data += b'x' * (4 << 20)"


def memory() -> list[Attempt]:
    """memory_limited: a child, out of reach of the handler's own fence, fills memory."""
    code = subprocess.run(python(_HOG), check=False).returncode
    return [seen("fill memory in a child", f"the child ended with {code}", broke=True)]


def unmapped_memory(most_bytes: int) -> list[Attempt]:
    """memory_limited: memory that no process maps, in a file of memory; at most `most_bytes`.

    Held for a while: a sampler looks now and then only.
    """
    fd, block, written = os.memfd_create("hog"), b"x" * (1 << 20), 0
    while written < most_bytes:
        written += os.write(fd, block)
    time.sleep(_HELD_S)
    return [seen("fill memory that nobody maps", f"{written} bytes", broke=True)]


def scratch_memory(most_bytes: int, folder: str) -> list[Attempt]:
    """memory_limited: memory in files of a tmpfs; at most `most_bytes`."""
    block, written = b"x" * (1 << 20), 0
    with open(os.path.join(folder, "hog"), "wb", buffering=0) as file:
        while written < most_bytes:
            written += file.write(block)
    return [seen("fill memory by files", f"{written} bytes", broke=True)]


def processor() -> NoReturn:
    """cpu_limited: never stop."""
    while True:
        pass


def processors() -> NoReturn:
    """cpu_limited: children that never stop, while this one uses nothing."""
    for _ in range(2):
        if os.fork() == 0:
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
            processor()
    while True:
        with contextlib.suppress(ChildProcessError):
            os.wait()
        time.sleep(60)


def sleep() -> NoReturn:
    """cpu_limited, by the wall: never stop, and use nothing."""
    while True:
        time.sleep(60)
