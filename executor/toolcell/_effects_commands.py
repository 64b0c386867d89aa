"""`toolcell effects`: what was refused and parked, for a person to look at and decide on."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from cyclopts import Parameter

from toolcell._exits import RUN, Refused
from toolcell._options import Output
from toolcell._render import print_json, say, show_failure, show_table, write_out
from toolcell._session import until_signalled
from toolcell._visible import visible

__all__ = ["EFFECTS"]

_OUTPUT: Final = Output()

Handle = Annotated[str, Parameter(help="The handle, as the refused call named it.")]


async def show(handle: str = "", /, *, output: Output = _OUTPUT) -> int:
    """Show what is parked under a handle, with diffs; without one, list what there is.

    Parameters
    ----------
    handle
        The handle, as the refused call named it.
    """
    from toolcell._parked import NotParked
    from toolcell._parked_commit import show_parked

    parking = _parking()
    if not handle:
        return _list(output)
    try:
        parked = parking.get(handle)
        shown = await until_signalled(functools.partial(show_parked, parking, parked))
    except NotParked as error:
        raise Refused(str(error)) from None
    if output.json:
        told = parked.changes.to_json()
        more = {"handle": handle, "parked_s": parked.parked_s, "diff": shown.diff}
        print_json({"schema": 1, **more, **told})
        return 0
    where = visible(parked.place.workspace)
    write_out(f"{handle}: changes of {where}, parked {_when(parked.parked_s)}\n")
    write_out(f"{shown.summary}\n")
    if shown.diff:
        write_out(f"\n{shown.diff}\n")
    return 0


async def commit(handle: Handle, /, *, output: Output = _OUTPUT) -> int:
    """Keep what is parked under a handle, but for what nobody may write; it is judged anew.

    Exit code: 0 kept, 4 refused, 1 somebody changed the same files since, 2 no such handle.
    """
    from toolcell._parked import NotParked
    from toolcell._parked_commit import commit_parked
    from toolcell.results import Effects

    parking = _parking()
    try:
        work = functools.partial(commit_parked, parking, handle)
        done = await until_signalled(work, progress="the commit")
    except NotParked as error:
        raise Refused(str(error)) from None
    if output.json:
        kept = done.to_json() if isinstance(done, Effects) else None
        error_json = None if isinstance(done, Effects) else done.to_json()
        print_json({"schema": 1, "handle": handle, "effects": kept, "error": error_json})
    elif isinstance(done, Effects):
        write_out(f"kept {len(done.paths)} changes\n")
        for one in done.refused:
            say(f"left out {one['path']}: {one['text']}")
    else:
        show_failure(done)
    return 0 if isinstance(done, Effects) else RUN[done.kind]


async def drop(handle: Handle, /, *, output: Output = _OUTPUT) -> int:
    """Remove what is parked under a handle, for good."""
    from toolcell._parked import NotParked

    try:
        _parking().drop(handle)
    except NotParked as error:
        raise Refused(str(error)) from None
    if output.json:
        print_json({"schema": 1, "handle": handle, "dropped": True})
    return 0


EFFECTS: Final[dict[str, Callable[..., Awaitable[int]]]] = {
    "show": show,
    "commit": commit,
    "drop": drop,
}


def _parking() -> Any:
    from toolcell._choices import default_state_dir
    from toolcell._parked import Parking

    return Parking(default_state_dir())


def _list(output: Output) -> int:
    parking = _parking()
    found = [parking.get(handle) for handle in parking.handles()]
    if output.json:
        listed = [
            {
                "handle": one.handle,
                "workspace": os.fsencode(one.place.workspace).decode("utf-8", "backslashreplace"),
                "changes": len(one.changes.changes),
                "parked_s": one.parked_s,
            }
            for one in found
        ]
        print_json({"schema": 1, "parked": listed})
        return 0
    rows = [
        [one.handle, str(len(one.changes.changes)), _when(one.parked_s), one.place.workspace]
        for one in found
    ]
    if rows:
        show_table("", ["handle", "changes", "parked", "workspace"], rows)
    else:
        write_out("nothing is parked\n")
    return 0


def _when(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
