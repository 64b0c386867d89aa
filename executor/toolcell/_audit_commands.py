"""`toolcell audit`: what was called, by whose leave, how it ended; and whether the log is whole."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Final

from cyclopts import Parameter

from toolcell._audit_read import RecordedCall, calls
from toolcell._audit_read import verify as verify_log
from toolcell._exits import Refused
from toolcell._options import Output
from toolcell._render import print_json, show_table, write_out
from toolcell._visible import visible

__all__ = ["AUDIT"]

_OUTPUT: Final = Output()
_HEAD: Final = ("time", "call", "tool", "level", "decided", "ended", "ms")
_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DANGLING_SHOWN: Final = 20


def _flag(name: str, text: str) -> Parameter:
    return Parameter(name=name, help=text, show_default=False)


async def show(
    *,
    call: Annotated[str | None, _flag("--call", "Only the call of this id.")] = None,
    tool: Annotated[str | None, _flag("--tool", "Only calls of this tool.")] = None,
    kind: Annotated[
        str | None,
        _flag("--kind", "Only calls that ended so: a failure's kind, success, abandoned, or open."),
    ] = None,
    since: Annotated[
        str | None, _flag("--since", "Only calls from then on: 90s, 1h, 2d, or 2026-01-31T12:00.")
    ] = None,
    limit: Annotated[int, _flag("--limit", "The newest so many (default: 50; 0 is all).")] = 50,
    output: Output = _OUTPUT,
) -> int:
    """Show calls, the oldest first, one a line: when, which tool, by whose leave, how it ended."""
    if limit < 0:
        raise Refused("--limit: write a whole number, 0 for all")
    try:
        found = calls(_state_dir(), call_id=call, since=None if since is None else _since(since))
        wanted = (one for one in found if _is_wanted(one, tool, kind))
        newest = list(itertools.islice(wanted, limit or None))
    except FileNotFoundError:
        newest = []
    except OSError as error:
        raise Refused(error.strerror or str(error)) from None
    newest.reverse()
    if output.json:
        told = [{"intent": one.intent, "terminal": one.terminal} for one in newest]
        print_json({"schema": 1, "calls": told})
    elif newest:
        show_table("", _HEAD, [list(_cells(one)) for one in newest])
    else:
        write_out("nothing is recorded\n")
    return 0


async def verify(
    *,
    head: Annotated[
        str | None, _flag("--head", "A hash that was noted before: the log must still hold it.")
    ] = None,
    output: Output = _OUTPUT,
) -> int:
    """Check the whole log: nothing changed, moved, inserted or missing from its middle.

    Note the head that it prints somewhere else, and give it back with --head: without that
    nobody can tell that the end is missing, or that all of it was written anew.
    Exit code: 0 it is whole, 1 it is not.
    """
    verdict = verify_log(_state_dir(), head=head)
    if output.json:
        print_json(
            {
                "schema": 1,
                "ok": verdict.ok,
                "records": verdict.records,
                "first_bad": verdict.first_bad,
                "problem": verdict.problem,
                "dangling": list(verdict.dangling),
                "waiting": verdict.waiting,
                "head": verdict.head,
            }
        )
        return 0 if verdict.ok else 1
    where = "" if verdict.first_bad is None else f" at record {verdict.first_bad}"
    said = "whole" if verdict.ok else f"broken{where}: {visible(verdict.problem or '')}"
    lines = [f"{said}; {verdict.records} records fit", f"head {verdict.head}"]
    if verdict.dangling:
        shown = ", ".join(visible(one) for one in verdict.dangling[:_DANGLING_SHOWN])
        more = " …" if len(verdict.dangling) > _DANGLING_SHOWN else ""
        lines.append(f"without an end yet ({len(verdict.dangling)}): {shown}{more}")
    if verdict.waiting:
        lines.append(f"ends that wait for the disk to take them: {verdict.waiting}")
    write_out("".join(f"{line}\n" for line in lines))
    return 0 if verdict.ok else 1


AUDIT: Final[dict[str, Callable[..., Awaitable[int]]]] = {"show": show, "verify": verify}


def _state_dir() -> str:
    from toolcell._choices import default_state_dir

    return default_state_dir()


def _is_wanted(one: RecordedCall, tool: str | None, kind: str | None) -> bool:
    is_tool = tool is None or tool in (one.intent.get("tool_name"), _end(one).get("tool_name"))
    return is_tool and kind in (None, _ended(one))


def _end(one: RecordedCall) -> dict[str, Any]:
    return {} if one.terminal is None else one.terminal


def _ended(one: RecordedCall) -> str:
    if one.terminal is None:
        return "open"
    return str(one.terminal.get("kind") or "success")


def _cells(one: RecordedCall) -> Iterator[str]:
    decision = one.intent.get("decision") or _end(one).get("decision") or {}
    approval = one.intent.get("approval") or {}
    how = approval.get("how")
    wall_s = (_end(one).get("usage") or {}).get("wall_s")
    yield _local(str(one.intent.get("time", "")))
    yield str(one.intent.get("call_id", ""))
    yield str(one.intent.get("tool_name", ""))
    yield str(decision.get("level", ""))
    yield str(decision.get("outcome", "") if how in (None, "not_asked") else how)
    yield _ended(one)
    yield "" if wall_s is None else f"{float(wall_s) * 1_000:.0f}"


def _local(time: str) -> str:
    try:
        found = datetime.datetime.fromisoformat(time).astimezone()
    except (ValueError, OverflowError, OSError):
        return time
    return found.strftime("%Y-%m-%d %H:%M:%S")


def _since(given: str) -> str:
    """A time as records have it: UTC, to the microsecond."""
    ago = _AGO.fullmatch(given)
    try:
        if ago is None:
            then = datetime.datetime.fromisoformat(given).astimezone(datetime.UTC)
        else:
            seconds = int(ago.group(1)) * _SECONDS[ago.group(2)]
            then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    except (ValueError, OverflowError, OSError):
        raise Refused(
            f"--since {given[:40]!r}: write a time such as 90s, 1h, 2d, or 2026-01-31T12:00"
        ) from None
    return then.isoformat(timespec="microseconds")
