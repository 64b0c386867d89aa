"""`toolcell retained`: what was too large to be shown, for the person whose state folder it is."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from cyclopts import Parameter

from toolcell._exits import Refused
from toolcell._options import Output
from toolcell._render import print_json, say, show_table, write_all, write_out
from toolcell._visible import visible

__all__ = ["RETAINED"]

_OUTPUT: Final = Output()
_PAGE_BYTES: Final = 16_384
_UNITS_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE: Final = re.compile(r"(\d{1,9})([smhd]?)", re.ASCII)

Handle = Annotated[str, Parameter(help="The handle, as the result named it.")]
Offset = Annotated[int, Parameter(help="The first byte to read.")]
Limit = Annotated[int, Parameter(help="How many bytes to read, at most 1048576.")]
OlderThan = Annotated[
    str | None,
    Parameter(help="Remove what is older than this, such as 36h or 7d (default: 7d)."),
]


async def list_entries(*, output: Output = _OUTPUT) -> int:
    """List what is retained, of all sessions: handle, what it is, size, age, whose."""
    import trio

    found = await trio.to_thread.run_sync(_reading(lambda store: store.entries()))
    if output.json:
        print_json({"schema": 1, "retained": [one.to_json() for one in found]})
        return 0
    rows = [
        [
            one.handle,
            one.what,
            visible(one.media_type),
            f"{one.size_bytes:,}",
            _age(time.time() - one.made_s),
            one.session[:12],
        ]
        for one in found
    ]
    if rows:
        show_table("", ["handle", "what", "type", "bytes", "age", "session"], rows)
    else:
        write_out("nothing is retained\n")
    return 0


async def read(
    handle: Handle,
    /,
    *,
    offset: Offset = 0,
    limit: Limit = _PAGE_BYTES,
    output: Output = _OUTPUT,
) -> int:
    """Read a page of what is retained under a handle, whichever session made it.

    Its bytes go to standard output as they are; on a terminal what could steer it is escaped.
    """
    import trio

    from toolcell.retained import NotRetained

    try:
        page = await trio.to_thread.run_sync(
            _reading(lambda store: store.read_as_operator(handle, offset, limit))
        )
    except NotRetained:
        raise Refused(f"nothing is retained as {visible(handle)[:80]}") from None
    except ValueError as error:
        raise Refused(str(error)) from None
    if output.json:
        print_json({"schema": 1, "handle": handle, **page.to_json()})
        return 0
    if page.encoding == "base64":
        if os.isatty(1):
            write_out(f"{page.text}\n")
        else:
            write_all(1, base64.b64decode(page.text))
    else:
        write_out(visible(page.text, keep="\n\t") if os.isatty(1) else page.text)
    if page.next_offset is not None:
        say(f"{page.size_bytes - page.next_offset:,} bytes follow: --offset {page.next_offset}")
    return 0


async def sweep(*, older_than: OlderThan = None, output: Output = _OUTPUT) -> int:
    """Remove what is retained for longer than 7 days, or is beyond the total that may be."""
    import trio

    keep_s = None if older_than is None else _seconds(older_than)
    removed = await trio.to_thread.run_sync(_reading(lambda store: store.sweep(keep_s=keep_s)))
    if output.json:
        print_json({"schema": 1, "removed": list(removed)})
    else:
        write_out(f"removed {len(removed)}\n")
    return 0


RETAINED: Final[dict[str, Callable[..., Awaitable[int]]]] = {
    "list": list_entries,
    "read": read,
    "sweep": sweep,
}


def _reading(work: Callable[[Any], Any]) -> Callable[[], Any]:
    """The work on the store of our state folder; that it cannot be used is one line."""
    from toolcell._choices import default_state_dir
    from toolcell.retained import NotRetained, RetainedStore

    store = RetainedStore(default_state_dir())

    def done() -> Any:
        try:
            return work(store)
        except NotRetained:
            raise
        except OSError as error:
            raise Refused(f"the state folder cannot be used: {error.strerror or error}") from None

    return done


def _seconds(text: str) -> float:
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise Refused(f"--older-than {text[:40]!r}: write seconds, or a number with s, m, h or d")
    return float(int(match[1]) * _UNITS_S[match[2]])


def _age(seconds: float) -> str:
    """How long ago, in its largest whole unit."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS_S[unit]:
            return f"{int(seconds // _UNITS_S[unit])} {unit}"
    return f"{max(0, int(seconds))} s"
