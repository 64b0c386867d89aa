"""What the launcher, the init and the worker tell the supervisor: one JSON object a line.

The pipe is never open in a process that runs a handler's code, so its words can be trusted.
A line is shorter than PIPE_BUF, so that lines of several writers never mix (pipe(7)).
"""

from __future__ import annotations

import errno as errnos
import json
import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PIPE_BUF = 4096


class Report:
    """The writing end."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def send(self, event: str, **facts: Any) -> None:
        """Write one line; a supervisor that is gone is no error, the liveness pipe tells."""
        line = json.dumps({"event": event, **facts}).encode() + b"\n"
        if len(line) > PIPE_BUF:
            line = json.dumps({"event": event, "cause": "report too long"}).encode() + b"\n"
        try:
            os.write(self.fd, line)
        except BrokenPipeError:
            pass


class StageFailed(Exception):
    """One stage of building the jail failed: which guarantee that costs, and why."""

    def __init__(self, guarantee: str, stage: str, cause: str, errno: int | None) -> None:
        super().__init__(cause)
        self.facts = {
            "guarantee": guarantee,
            "stage": stage,
            "cause": cause[:500],
            "errno": None if errno is None else errnos.errorcode.get(errno, str(errno)),
        }


@contextmanager
def stage(guarantee: str, name: str) -> Iterator[None]:
    """Name what is being built, so that any failure inside says what it costs."""
    try:
        yield
    except StageFailed:
        raise
    except OSError as error:
        what = f": {error.filename}" if error.filename else ""
        raise StageFailed(guarantee, name, f"{error.strerror}{what}", error.errno) from error
    except Exception as error:
        raise StageFailed(guarantee, name, f"{type(error).__name__}: {error}", None) from error
