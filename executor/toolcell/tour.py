"""`tour`: real calls on this folder, then a hostile pack, and how each ended.

What only reads runs on the folder itself; what may write gets a copy of a few of its files. The
state folder, the copy, the planted secret and the listener are the tour's own and gone at its end.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from toolcell import _probes
from toolcell._exits import Refused
from toolcell._render import painted, print_json, show_table, write_out
from toolcell._visible import visible
from toolcell.approval import unsafe_approve_all
from toolcell.executor import Executor
from toolcell.packs import PackError, load_pack
from toolcell.results import ToolResult
from toolcell_sandbox.spec import GUARANTEES, Limits

PACK: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tour_pack.py")
FLOOD_MEBIBYTES: Final = 100
_COPIED_FILES_MAX: Final = 20
_COPIED_BYTES_MAX: Final = 1 << 20
_SAMPLE: Final = "# A sample\n\nThis folder was made by `toolcell tour`.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One call of the tour, and what has to be true of its end."""

    tool: str
    does: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits | None = None
    ends_as: str = "success"
    by: str
    """The guarantee, or part of toolcell, that this end is due to."""
    holds: Callable[[ToolResult], bool] = lambda _: True
    """What else has to be true of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one stop ended."""

    stop: Stop
    result: ToolResult
    took_ms: int

    @property
    def how(self) -> str:
        """`success`, or the kind of the failure."""
        return "success" if self.result.error is None else self.result.error.kind

    @property
    def as_expected(self) -> bool:
        """Whether it ended as it should, by what it should."""
        claimed = self.stop.by not in GUARANTEES or self.stop.by in self._held
        return self.how == self.stop.ends_as and claimed and self.stop.holds(self.result)

    @property
    def mechanism(self) -> str:
        """The guarantee with its mechanism, as the receipt of this very call has it."""
        by = self.stop.by
        return f"{by} ({self._held[by]})" if by in self._held else by

    @property
    def _held(self) -> Mapping[str, str]:
        return {} if self.result.receipt is None else self.result.receipt.held

    def to_json(self) -> dict[str, Any]:
        """One entry of `calls` in `tour --json`."""
        return {
            "tool": self.stop.tool,
            "does": self.stop.does,
            "ended": self.how,
            "expected": self.stop.ends_as,
            "as_expected": self.as_expected,
            "took_ms": self.took_ms,
            "by": self.mechanism,
            "message": None if self.result.error is None else self.result.error.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The whole tour: how each call ended, and whether one reached what lies outside."""

    real: tuple[Ended, ...]
    hostile: tuple[Ended, ...]
    reached_outside: bool

    @property
    def stops(self) -> tuple[Ended, ...]:
        """Every call, in order."""
        return (*self.real, *self.hostile)

    @property
    def as_expected(self) -> bool:
        """Whether every call ended as it should."""
        return not self.reached_outside and all(ended.as_expected for ended in self.stops)


def report(taken: Taken, *, as_json: bool) -> int:
    """Print the tour, and return the exit code: 0 when every call ended as expected, else 1."""
    code = 0 if taken.as_expected else 1
    if as_json:
        print_json(
            {
                "schema": 1,
                "as_expected": taken.as_expected,
                "reached_outside": taken.reached_outside,
                "calls": [ended.to_json() for ended in taken.stops],
            }
        )
        return code
    reads = "Real calls. Whoever reads only, reads this folder; the rest works on a copy."
    _table(reads, taken.real)
    write_out("\n")
    _table("A hostile tool pack, each tool on its own, nobody else hurt.", taken.hostile)
    write_out(f"\n{_verdict(taken)}\n")
    return code


async def take() -> Taken:
    """Take the tour.

    Raises:
        Refused: this host cannot even describe a pack.
    """
    with ExitStack() as held:
        return await _taken(held)


async def _taken(held: ExitStack) -> Taken:
    base = held.enter_context(tempfile.TemporaryDirectory(prefix="toolcell-tour-"))
    copy, secret, state = (os.path.join(base, name) for name in ("copy", "secret", "state"))
    _copy_some(os.getcwd(), copy)
    planted = secrets.token_hex(16)
    _probes.write(secret, planted)
    os.mkdir(os.path.join(copy, "conf"))
    _probes.write(os.path.join(copy, "conf", ".env"), planted)
    listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.setblocking(False)
    try:
        pack = await load_pack(PACK)
    except PackError as error:
        raise Refused(f"the tour cannot start: {error} (see `toolcell doctor`)", 1) from None
    calls = real_calls()
    async with _executor(_readable(copy), state) as here, _executor(copy, state, pack) as there:
        real = [await _one(here if stop.tool in _READERS else there, stop) for stop in calls]
        hostile = [
            await _one(there, stop)
            for stop in hostile_calls(secret, planted, listener.getsockname()[1])
        ]
    return Taken(real=tuple(real), hostile=tuple(hostile), reached_outside=_was_connected(listener))


def _executor(workspace: str, state: str, tools: Any = ()) -> Executor:
    # The tour agrees to its own calls: they are written here, and work on a copy.
    return Executor(tools=tools, workspace=workspace, approver=unsafe_approve_all, state_dir=state)


def _readable(copy: str) -> str:
    """The current folder where a workspace may be; else the copy."""
    from toolcell.confinement import Workspace

    try:
        return Workspace.open(os.getcwd(), state_dir=copy).path
    except ValueError:
        return copy


async def _one(executor: Executor, stop: Stop) -> Ended:
    started_s = trio.current_time()
    result = await executor.call(stop.tool, stop.arguments, limits=stop.limits)
    took_ms = round((trio.current_time() - started_s) * 1000)
    return Ended(stop=stop, result=result, took_ms=took_ms)


def _copy_some(folder: str, copy: str) -> None:
    """A few small files of a folder; a sample where there is nothing to read."""
    os.mkdir(copy)
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    small = [
        entry.name
        for entry in entries
        if entry.is_file(follow_symlinks=False)
        and entry.stat().st_size <= _COPIED_BYTES_MAX
        and os.access(entry.path, os.R_OK)
    ]
    for name in small[:_COPIED_FILES_MAX]:
        shutil.copyfile(os.path.join(folder, name), os.path.join(copy, name))
    if "README.md" not in os.listdir(copy):
        _probes.write(os.path.join(copy, "README.md"), _SAMPLE)


def _was_connected(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


# -- the stops ----------------------------------------------------------------------------

_READERS: Final = ("read_file", "list_directory", "search")


def real_calls() -> list[Stop]:
    """What an agent does all day."""
    has_readme = os.path.isfile("README.md")
    return [
        Stop(
            tool="read_file" if has_readme else "list_directory",
            does="reads README.md" if has_readme else "lists this folder",
            arguments={"path": "README.md"} if has_readme else {},
            by="fs_confined",
        ),
        Stop(
            tool="search",
            does="searches for a word",
            arguments={"pattern": "tool", "limit": 5},
            by="fs_confined",
        ),
        Stop(
            tool="python",
            does="computes 6*7",
            arguments={"code": "print('hello from a jail')\n6*7"},
            by="fs_confined",
            holds=lambda result: result.output["value"] == 42,
        ),
        Stop(
            tool="shell",
            does="counts lines with a pipeline",
            arguments={"command": "cat README.md | wc -l"},
            by="fs_confined",
            holds=lambda result: result.exit_code == 0,
        ),
    ]


def hostile_calls(secret: str, planted: str, port: int) -> list[Stop]:
    """What a tool does that means harm, and how toolcell should have it end."""
    return [
        Stop(
            tool="read_secret",
            does="reads a planted secret",
            arguments={"path": secret},
            ends_as="exception",
            by="fs_confined",
            holds=lambda result: planted not in str(result.to_json()),
        ),
        Stop(
            tool="open_socket",
            does="sends it to a listener",
            arguments={"port": port},
            ends_as="exception",
            by="net_blocked",
        ),
        Stop(
            tool="fork_without_end",
            does="forks without end",
            limits=Limits(processes=32, wall_s=20),
            ends_as="processes_exceeded",
            by="tree_killed",
        ),
        Stop(
            tool="fill_memory",
            does="fills memory",
            limits=Limits(memory_bytes=128 << 20, wall_s=20),
            ends_as="memory_exceeded",
            by="memory_limited",
        ),
        Stop(
            tool="flood_stdout",
            does=f"floods stdout with {FLOOD_MEBIBYTES} MiB",
            arguments={"mebibytes": FLOOD_MEBIBYTES},
            by="capture (both ends kept, every byte counted)",
            holds=_counted,
        ),
        Stop(tool="segfault", does="crashes", ends_as="crashed", by="tree_killed"),
        Stop(
            tool="hang",
            does="hangs, deaf to signals",
            limits=Limits(wall_s=1),
            ends_as="timeout",
            by="cpu_limited",
        ),
        Stop(
            tool="forge_result",
            does="forges a result",
            ends_as="protocol_error",
            by="result channel (one frame, then exit 0)",
            holds=lambda result: result.output is None,
        ),
        Stop(
            tool="delete_everything",
            does="deletes the workspace",
            ends_as="effects_refused",
            by="writes_transactional",
            holds=lambda result: result.files_changed == (),
        ),
        Stop(
            tool="plant_a_key",
            does="gives itself a way in",
            ends_as="effects_refused",
            by="writes_transactional",
            holds=lambda result: result.files_changed == (),
        ),
    ]


def _counted(result: ToolResult) -> bool:
    """Whether what was kept is bounded, and all that was written was seen."""
    out = result.stdout
    return (
        out is not None
        and out.seen_bytes > (FLOOD_MEBIBYTES - 1) << 20
        and out.kept_bytes <= 64 << 10
        and out.seen_bytes == out.kept_bytes + out.lost_bytes
    )


# -- what is shown ------------------------------------------------------------------------


def _table(title: str, stops: tuple[Ended, ...]) -> None:
    head = ["tool", "what it does", "how it ended", "ms", "by"]
    rows = [
        [
            ended.stop.tool,
            ended.stop.does,
            ended.how if ended.as_expected else f"{ended.how}, NOT AS EXPECTED",
            str(ended.took_ms),
            ended.mechanism,
        ]
        for ended in stops
    ]
    show_table(title, head, rows, [ended.as_expected for ended in stops])


def _verdict(taken: Taken) -> str:
    if taken.as_expected:
        return painted(f"All {len(taken.stops)} calls ended as expected.", good=True)
    lines = ["a tool reached a listener outside its jail"] if taken.reached_outside else []
    for ended in taken.stops:
        if not ended.as_expected:
            error = ended.result.error
            why = "" if error is None else f": {visible(error.message)}"
            lines.append(f"{ended.stop.tool} ended as {ended.how}, not {ended.stop.ends_as}{why}")
    return painted("\n".join(lines), good=False)
