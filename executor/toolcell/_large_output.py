"""A result of more than the supervisor takes into its memory: checked in a jail, kept on disk.

The sandbox leaves it unread in an unnamed file. Another jail, with limits of its own, checks it
by every rule and by the output schema, and what it writes is the output itself, streamed to what
is retained. The supervisor sees chunks of it and a few facts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from toolcell._finishing import bounds_of
from toolcell._returned import Said
from toolcell.bounding import Bounds
from toolcell.confinement import library_mounts, library_path
from toolcell.results import InvalidOutput, ProtocolError, Retained, Truncation
from toolcell.retained import Retainer, Unretained, Writer, not_kept, unretained, words
from toolcell_sandbox import JailOutcome, run_in_jail
from toolcell_sandbox._spool import FLUSH_BYTES, Spooled
from toolcell_sandbox.failures import FailureBase
from toolcell_sandbox.spec import Isolation, JailSpec, Limits, PythonHandler

if TYPE_CHECKING:
    from toolcell.tools import Tool

FACTS_BYTES_MAX: Final = 4 << 20
MEMORY_BASE_BYTES: Final = 512 << 20
MEMORY_FACTOR: Final = 12
"""Of the result's size: what its text, its values and their text again take, at most twelvefold
for anything but millions of empty containers."""
TIME_BASE_S: Final = 20.0
BYTES_PER_S: Final = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """A large output that was checked: what was said with it, and where it is.

    `said.output` is None and `said.content` what the model is shown of it.
    """

    said: Said
    size_bytes: int
    retained: Retained | None
    unretained: str | None = None
    truncation: Truncation | None = None
    marks: dict[str, Any] = field(default_factory=dict)
    """What the result's metadata says of it."""


async def checked(
    outcome: JailOutcome,
    tool: Tool,
    retain: Retainer,
    *,
    isolation: Isolation = "standard",
    waive: tuple[str, ...] = (),
) -> tuple[JailOutcome, Large | None]:
    """The outcome with its spooled result looked at: a failure, or `Large`; else as it was."""
    if outcome.spooled is None:
        return outcome, None
    bounds = bounds_of(tool)
    found = await looked_at(
        outcome.spooled, tool, retain, bounds=bounds, isolation=isolation, waive=waive
    )
    if isinstance(found, Large):
        return dataclasses.replace(outcome, spooled=None), found
    return dataclasses.replace(outcome, spooled=None, failure=found), None


async def looked_at(
    spooled: Spooled,
    tool: Tool,
    retain: Retainer,
    *,
    bounds: Bounds,
    isolation: Isolation = "standard",
    waive: tuple[str, ...] = (),
) -> Large | FailureBase:
    """Check a spooled result in a jail and retain its output; closes it.

    Cancelled, nothing of it is left. What cannot be checked within 12 times its size of memory
    and half a second for each mebibyte is refused, as `protocol_error`.
    """
    output = _Output(retain)
    try:
        rest = words(output.handle)
        limits = Limits(
            wall_s=TIME_BASE_S + spooled.size_bytes / BYTES_PER_S,
            memory_bytes=MEMORY_BASE_BYTES + MEMORY_FACTOR * spooled.size_bytes,
            stdin_bytes=spooled.size_bytes,
            result_bytes=FACTS_BYTES_MAX,
        )
        known = {
            "schema": tool.output_schema,
            "lines": bounds.lines,
            "size": bounds.bytes,
            "rest": rest,
        }
        handler = PythonHandler(
            module="toolcell._large_check",
            qualname="check",
            arguments=known,
            sys_path=library_path(),
        )
        spec = JailSpec(mounts=library_mounts(), limits=limits, isolation=isolation, waive=waive)
        await output.begin()
        found = await run_in_jail(handler, spec, stdin=_Chunks(spooled), sink=output.take)
        facts = found.value
        if found.failure is not None:
            return _uncheckable(found.failure, spooled.size_bytes)
        if not isinstance(facts, Mapping):
            return _broken("nothing was found out about a large result")
        if "rule" in facts:
            return _broken(str(facts["rule"]))
        if "problems" in facts:
            return _invalid(tool, facts["problems"]) or _broken("an empty list of problems")
        kept = await output.finish(str(facts["media_type"]))
        return _large(facts, kept, rest)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(output.drop)
        spooled.close()


def _large(facts: Mapping[str, Any], kept: Retained | Unretained, rest: str) -> Large:
    content, told, size = str(facts["content"]), facts["truncation"], int(facts["size_bytes"])
    read = facts["files_read"]
    marks: dict[str, Any] = {"output": "retained", "output_bytes": size}
    lost = None
    if isinstance(kept, Unretained):
        lost = kept.why
        content = content.replace(rest, not_kept(lost))
        marks = {"output": "lost", "output_bytes": size, "unretained": lost}
    return Large(
        said=Said(
            output=None,
            metadata=dict(facts["metadata"]),
            content=content,
            files_read=None if read is None else tuple(map(str, read)),
            summary=str(facts["summary"]),
            terminate=facts["terminate"] is True,
        ),
        size_bytes=size,
        retained=kept if isinstance(kept, Retained) else None,
        unretained=lost,
        truncation=None if told is None else Truncation(**told),
        marks=marks,
    )


def _broken(rule: str) -> ProtocolError:
    return ProtocolError(message=f"the result was not one whole frame: {rule}", rule=rule)


def _invalid(tool: Tool, problems: list[dict[str, str]]) -> InvalidOutput | None:
    from toolcell.settlement import invalid_output

    return invalid_output(tool, problems)


def _uncheckable(failure: FailureBase, size_bytes: int) -> FailureBase:
    """A jail that could not be had is that; one whose limits it took is the result's own doing."""
    if failure.kind in ("confinement_failed", "executor_error"):
        return failure
    rule = f"a large result that cannot be checked: {failure.kind}"
    return ProtocolError(
        message=f"the result of {size_bytes:,} bytes could not be checked within the memory and "
        f"time that its size allows ({failure.kind})",
        rule=rule,
        remedy="return fewer values, or write them to a file in the workspace",
    )


class _Chunks:
    """A spooled body as standard input; read in a thread. No generator: nothing is left open."""

    def __init__(self, spooled: Spooled) -> None:
        self._chunks: Iterator[bytes] = spooled.chunks()

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        chunk = await trio.to_thread.run_sync(next, self._chunks, None)
        if chunk is None:
            raise StopAsyncIteration
        return chunk


class _Output:
    """The output on its way to what is retained: a failure to keep it is remembered, not raised."""

    def __init__(self, retain: Retainer) -> None:
        from toolcell._retained_store import new_handle

        self.handle = new_handle()
        self._retain = retain
        self._writer: Writer | None = None
        self._pending = bytearray()
        self._problem: Unretained | None = None

    async def begin(self) -> None:
        await trio.to_thread.run_sync(self._begin)

    def _begin(self) -> None:
        try:
            self._writer = self._retain.store.begin(
                session=self._retain.session, what="output", handle=self.handle
            )
        except OSError as error:
            self._problem = unretained(error)

    async def take(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        if name == "stdout" and self._problem is None:
            self._pending += chunk
            if len(self._pending) >= FLUSH_BYTES:
                await trio.to_thread.run_sync(self._flush)

    def _flush(self) -> None:
        data, self._pending = bytes(self._pending), bytearray()
        if self._writer is None or self._problem is not None:
            return
        try:
            self._writer.write(data)
        except OSError as error:
            self._problem = unretained(error)
            self.drop()

    async def finish(self, media_type: str) -> Retained | Unretained:
        return await trio.to_thread.run_sync(self._finish, media_type)

    def _finish(self, media_type: str) -> Retained | Unretained:
        self._flush()
        if self._writer is None or self._problem is not None:
            return self._problem or Unretained(why="nothing was written")
        self._writer.media_type = media_type
        try:
            return self._writer.finish()
        except OSError as error:
            return unretained(error)

    def drop(self) -> None:
        if self._writer is not None:
            self._writer.drop()
