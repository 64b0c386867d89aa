"""The last step of settling: content within its bounds, and what that leaves out retained.

Only `content` is bounded. `output` stays whole for the program, since it asked for that much
(`result_bytes`). Structured values are never cut in the middle: a summary takes their place.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from toolcell._output_summary import summary
from toolcell.bounding import BYTES, LINES, Bounds, bounded, is_within, summarised
from toolcell.content_parts import PART_BYTES_MAX, PARTS_MAX
from toolcell.results import Retained, ToolResult, Truncation
from toolcell.retained import Retainer, Unretained, not_kept, words

if TYPE_CHECKING:
    from toolcell.tools import Tool

PARTS_RETAINED_MAX: Final = 20
"""Parts that get a handle each; those beyond are retained as one list, in JSON."""
STRUCTURED_SHARE: Final = 8
"""A structured value below one part in so many of the bounds is text like any other."""


def bounds_of(tool: Tool | None) -> Bounds:
    """The bounds of a tool's content: its own, else the default."""
    if tool is None:
        return Bounds()
    return Bounds(
        lines=LINES if tool.content_lines is None else tool.content_lines,
        bytes=BYTES if tool.content_bytes is None else tool.content_bytes,
    )


def plain_text(value: Any) -> str:
    """Text as it is, otherwise compact JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


async def finished(result: ToolResult, tool: Tool | None, *, retain: Retainer) -> ToolResult:
    """The result with `content` within the tool's bounds, and the whole of it behind a handle.

    Text keeps its head and its tail; `truncation` counts what is left out. A structured output
    becomes a summary, and counts as left out whole: one line of so many bytes. Parts that are too
    large, or too many, are retained and named. What cannot be retained (a full disk) is bounded
    all the same, and `content` and `metadata["unretained"]` say why the rest is gone.

    Not to be cancelled: effects may have been kept already. It ends within what the disk takes.
    """
    bounds = bounds_of(tool)
    found = _Finishing(result, bounds, retain)
    await found.parts()
    if not is_within(found.content, bounds):
        await found.structured()
    if not is_within(found.content, bounds):
        await found.text()
    return found.result()


def how_to_read(kept: Retained | Unretained) -> str:
    """Where the rest is, or why it is nowhere."""
    return words(kept.handle) if isinstance(kept, Retained) else not_kept(kept.why)


class _Finishing:
    """One result on its way to be bounded."""

    def __init__(self, result: ToolResult, bounds: Bounds, retain: Retainer) -> None:
        self.content = result.content
        self._result = result
        self._bounds = bounds
        self._retain = retain
        self._parts: list[Mapping[str, Any]] = []
        self._kept: list[Retained] = []
        self._lost: list[str] = []
        self._truncation: Truncation | None = result.truncation

    def result(self) -> ToolResult:
        """The result as it is now."""
        metadata = dict(self._result.metadata)
        if self._lost:
            metadata["unretained"] = self._lost[0]
        return dataclasses.replace(
            self._result,
            content=self.content,
            metadata=metadata,
            truncation=self._truncation,
            retained=(*self._result.retained, *self._kept),
            parts=tuple(self._parts),
        )

    async def parts(self) -> None:
        """Parts within their caps as they are; the others retained, and a line for each."""
        notes: list[str] = []
        beyond: list[Mapping[str, Any]] = []
        for part in self._result.parts:
            data = str(part.get("data", ""))
            size = len(data) // 4 * 3 - data.endswith("=") - data.endswith("==")
            if len(self._parts) < PARTS_MAX and size <= PART_BYTES_MAX:
                self._parts.append(part)
                continue
            if len(notes) == PARTS_RETAINED_MAX:
                beyond.append(part)
                continue
            kept = await self._put(
                base64.b64decode(data), "part", str(part.get("mime_type", "text/plain"))
            )
            notes.append(f"[toolcell: a part is not shown: {how_to_read(kept)}]")
        if beyond:
            kept = await self._put(orjson.dumps(beyond), "part", "application/json")
            notes.append(f"[toolcell: {len(beyond):,} parts are not shown: {how_to_read(kept)}]")
        if notes:
            self.content = "\n".join([self.content, *notes])

    async def structured(self) -> None:
        """The JSON of the output, where it stands in the content, replaced by a summary of it."""
        for value in _structured(self._result.output):
            text = plain_text(value)
            size = len(text.encode())
            if size < self._bounds.bytes // STRUCTURED_SHARE or text not in self.content:
                continue
            kept = await self._put(text.encode(), "output", "application/json")
            shown = summary(
                value,
                size_bytes=size,
                room_bytes=self._bounds.bytes,
                rest=how_to_read(kept),
            )
            self.content = self.content.replace(text, shown, 1)
            self._truncation = summarised(size)
            return

    async def text(self) -> None:
        """The content's head and tail, and the whole of it retained."""
        kept = await self._put(
            self.content.encode("utf-8", "backslashreplace"), "content", "text/plain"
        )
        cut = bounded(self.content, self._bounds, rest=how_to_read(kept))
        self.content, self._truncation = cut.text, cut.truncation

    async def _put(self, data: bytes, what: str, media_type: str) -> Retained | Unretained:
        kept = await self._retain.put(data, what=what, media_type=media_type)
        if isinstance(kept, Retained):
            self._kept.append(kept)
        else:
            self._lost.append(kept.why)
        return kept


def _structured(output: Any) -> Iterator[Any]:
    """What of an output may stand as JSON in the content: itself, or the value of `python`."""
    if isinstance(output, Mapping | list):
        yield output
    if isinstance(output, Mapping) and isinstance(output.get("value"), Mapping | list):
        yield output["value"]
