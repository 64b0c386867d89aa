"""`exec`: a command as a call like any other, its three streams joined to ours."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import trio

from toolcell._render import write_all

if TYPE_CHECKING:
    from toolcell.tools import Tool

NAME: Final = "exec"
CHUNK_BYTES: Final = 1 << 16
_FDS: Final = {"stdout": 1, "stderr": 2}


def command(argv: list[str]) -> tuple[tuple[str, ...], str, None]:
    """Run a program, without a shell."""
    return tuple(argv), ".", None


@cache
def exec_tool() -> Tool:
    """The tool behind `exec`: decided, asked about and recorded as `shell` is.

    Only the command line registers it: no model is told of it.
    """
    from toolcell.tools import CommandRef, Tool
    from toolcell_policies.vocabulary import AccessMode, DangerLevel

    words = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    return Tool(
        name=NAME,
        description="Run a program, without a shell.",
        access_mode=AccessMode.EXECUTE,
        danger_level=DangerLevel.MEDIUM,
        trusted=True,
        schema={
            "type": "object",
            "properties": {"argv": words},
            "required": ["argv"],
            "additionalProperties": False,
        },
        ref=CommandRef(f"{__name__}:{command.__name__}"),
    )


class PassThrough:
    """Writes a command's output to ours as it comes, each stream to its own descriptor.

    In a thread: whoever reads us may be slow, or stopped. When nobody reads a stream any more the
    command's own pipe is closed with it, so that SIGPIPE finds it: `exec -- yes | head -1`.
    """

    def __init__(self) -> None:
        self._dropped: set[str] = set()
        self.readers_left = False
        """Whether somebody stopped reading."""
        self.lost: OSError | None = None
        """Why output did not arrive, but for a reader that went away."""

    async def __call__(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        if name in self._dropped:
            return
        try:
            await trio.to_thread.run_sync(write_all, _FDS[name], chunk, abandon_on_cancel=True)
        except BrokenPipeError:
            self.readers_left = True
            raise
        except OSError as error:
            self._dropped.add(name)
            self.lost = error


def standard_input() -> AsyncIterator[bytes] | None:
    """What to feed a command: a pipe, a file or a socket on descriptor 0; else nothing.

    A terminal stays ours: a command that read it could answer our own question.
    """
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return _chunks(can_wait=False)
    return _chunks(can_wait=True) if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


async def _chunks(*, can_wait: bool) -> AsyncIterator[bytes]:
    while True:
        if can_wait:
            # Before the read, so that a cancel takes nothing that the next reader should get.
            await trio.lowlevel.wait_readable(0)
        try:
            chunk = await trio.to_thread.run_sync(os.read, 0, CHUNK_BYTES, abandon_on_cancel=True)
        except BlockingIOError:
            continue
        except OSError:
            return
        if not chunk:
            return
        yield chunk
