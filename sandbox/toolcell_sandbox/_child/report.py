"""What the zygote, an init and a worker tell the supervisor: one message each, see `links`.

The link is never open in a process that runs a handler's code, so its words can be trusted.
"""

from __future__ import annotations

import errno as errnos
import os

from . import links

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Sequence
    from typing import Any


class Report:
    """The writing end."""

    def __init__(self, link: _socket.socket) -> None:
        self.link = link

    def send(self, event: str, *files: int, **facts: Any) -> None:
        """Say one thing; a supervisor that is gone is no error, the link's end tells."""
        self.say(links.pack({"event": event, **facts}), files)

    def say(self, text: bytes, files: Sequence[int] = ()) -> None:
        """As `send`, of what is text already."""
        try:
            links.send(self.link, text, files)
        except (BrokenPipeError, ConnectionResetError):
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


class stage:  # reads as a word: `with stage(...)`
    """Names what is being built, so that any failure inside says what it costs."""

    __slots__ = ("_guarantee", "_name")

    def __init__(self, guarantee: str, name: str) -> None:
        self._guarantee = guarantee
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, StageFailed):
            return
        number: int | None = None
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):
            what = f": {error.filename}" if error.filename else ""
            number = error.errno
            cause = f"{error.strerror or os.strerror(number or 0)}{what}"
        raise StageFailed(self._guarantee, self._name, cause, number) from error
