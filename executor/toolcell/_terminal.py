"""The question on the terminal: the whole call, every reason, and a clear answer or none.

It speaks with the controlling terminal itself, whatever standard input and output are. Text is
escaped before it is shown; what was typed before the question does not answer it.
"""

from __future__ import annotations

import os
import termios
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import trio

from toolcell._visible import source_of, visible

if TYPE_CHECKING:
    from toolcell.approval import Answer, ApprovalRequest

__all__ = ["ask", "is_asking"]

TERMINAL: Final = "/dev/tty"
TRIES: Final = 3
LINE_BYTES_MAX: Final = 4_096

TURN_S: Final = 0.05

_asking = threading.Lock()
"""Held while a question stands: one terminal, whatever event loops this process has."""
_turns: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("turns")
"""The order of those who wait in one loop."""


def is_asking() -> bool:
    """Whether a question stands on the terminal, so that nobody else should write to it."""
    return _asking.locked()


@asynccontextmanager
async def _turn() -> AsyncIterator[None]:
    """Have the terminal, after everybody who came before in this loop."""
    try:
        turns = _turns.get()
    except LookupError:
        _turns.set(turns := trio.Lock())
    async with turns:
        while not _asking.acquire(blocking=False):  # noqa: ASYNC110  # another loop sets no event here
            await trio.sleep(TURN_S)
        try:
            yield
        finally:
            _asking.release()


async def ask(request: ApprovalRequest) -> Answer:
    """Ask about one call: once, for the session where that is offered, no, or stop.

    Other calls wait for their turn. A cancel ends the question and restores the terminal.
    Without a terminal, or from its background, the answer is `Answer.unavailable`.
    """
    from toolcell.approval import Answer

    async with _turn():
        try:
            with _terminal() as fd:
                return await _question(fd, request)
        except OSError as error:
            return Answer.unavailable(f"the terminal cannot be asked: {error.strerror or error}")


@contextmanager
def _terminal() -> Iterator[int]:
    """The controlling terminal, reading whole lines, as it was before when this ends."""
    # A descriptor of its own: non-blocking here is then nobody else's business.
    fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.tcgetpgrp(fd) != os.getpgrp():
            # Reading would stop this process with SIGTTIN (termios(3)).
            raise OSError(0, "toolcell runs in the background of its terminal")
        before = termios.tcgetattr(fd)
        during = list(before)
        during[0] |= termios.ICRNL
        during[1] |= termios.OPOST | termios.ONLCR
        during[3] |= termios.ICANON | termios.ECHO | termios.ISIG
        termios.tcsetattr(fd, termios.TCSADRAIN, during)
        try:
            yield fd
        finally:
            termios.tcsetattr(fd, termios.TCSANOW, before)
    finally:
        trio.lowlevel.notify_closing(fd)
        os.close(fd)


async def _question(fd: int, request: ApprovalRequest) -> Answer:
    from toolcell.approval import Answer

    offered = request.remember_options
    await _write(fd, _shown(request))
    keys = ["[y] yes, once", *(_KEYS[scope] for scope in offered), "[n] no", "[q] no, and stop"]
    for _ in range(TRIES):
        termios.tcflush(fd, termios.TCIFLUSH)
        asked = "Run it?" if request.stage == "before" else "Keep it?"
        await _write(fd, f"{asked}  {'  '.join(keys)}: ")
        line = await _line(fd)
        if line is None:
            return Answer.reject("the terminal was closed without an answer")
        word, _, why = line.strip().partition(" ")
        reason = why.strip() or None
        match word.lower():
            case "y" | "yes" | "once" if reason is None:
                return Answer.once()
            case "s" | "session" if "session" in offered and reason is None:
                return Answer.remember("session")
            case "p" | "project" if "project" in offered and reason is None:
                return Answer.remember("project")
            case "n" | "no":
                return Answer.reject(reason)
            case "q" | "quit" | "stop":
                return Answer.stop(reason)
            case _:
                await _write(fd, "Type one of the letters; after n or q you may say why.\n")
    return Answer.reject("no clear answer was given")


_KEYS: Final = {
    "session": "[s] yes, for this session",
    "project": "[p] yes, for 30 days",
}


def _shown(request: ApprovalRequest) -> str:
    """Everything that the answer is about. `request.text` is escaped already, line by line."""
    what = f"A call needs your approval (level {request.level}, {visible(request.call_id)}):"
    if request.stage == "after":
        name = visible(request.tool_name)
        shown_id = visible(request.call_id)
        what = f"{name} ran; this is what it changed, and nothing is kept yet ({shown_id}):"
    lines = [
        "",
        what,
        "",
        *(f"  {visible(line)}" for line in request.text.split("\n")),
        "",
        *(f"  {visible(line)}" for line in (request.diff or "").split("\n") if request.diff),
        "",
        *(
            f"  because {visible(one.text + source_of(one.rule, one.source))}"
            for one in request.reasons
        ),
    ]
    if request.remember_options:
        keys = " and ".join(f"[{scope[0]}]" for scope in request.remember_options)
        lines.append(f"  {keys} also allow, later on: {visible(request.remembers or '')}")
    return "\n".join([*lines, "", ""])


async def _write(fd: int, text: str) -> None:
    left = memoryview(text.encode("utf-8", "backslashreplace"))
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(fd)


async def _line(fd: int) -> str | None:
    """One line as it was typed; None at the end of input."""
    typed = b""
    while b"\n" not in typed and len(typed) < LINE_BYTES_MAX:
        await trio.lowlevel.wait_readable(fd)
        try:
            part = os.read(fd, LINE_BYTES_MAX)
        except BlockingIOError:
            continue
        if not part:
            return None
        typed += part
    return typed.partition(b"\n")[0].decode("utf-8", "replace")
