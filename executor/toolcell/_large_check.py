"""Inside a jail: a result that is too large for the supervisor, checked and taken apart.

Reads the frame's body from standard input, writes the output's own text, or bytes, to standard
output, and returns a few facts. Memory and time are the jail's; a result that needs more is
refused. Every rule of the channel holds, but for the number of values.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, BinaryIO, Final

METADATA_BYTES_MAX: Final = 256 << 10
CONTENT_CHARS_MAX: Final = 1 << 20
WORDS_CHARS_MAX: Final = 500
CHUNK_BYTES: Final = 1 << 20


def check(schema: dict[str, Any] | None, lines: int, size: int, rest: str) -> dict[str, Any]:
    """What is wrong with the result, or what it is; `rest` is said where something is left out."""
    return checked(
        sys.stdin.buffer, sys.stdout.buffer, schema=schema, lines=lines, size=size, rest=rest
    )


def checked(
    source: BinaryIO,
    target: BinaryIO,
    *,
    schema: dict[str, Any] | None,
    lines: int,
    size: int,
    rest: str,
) -> dict[str, Any]:
    """The same between two files: `{"rule"}`, `{"problems"}`, or the facts of a good result."""
    from toolcell._returned import said
    from toolcell_sandbox.decode import BrokenRule, parse

    message = parse(source.read(), items_max=0)
    if isinstance(message, BrokenRule):
        return {"rule": message.rule}
    if message.get("ok") is not True or "value" not in message:
        return {"rule": "a large frame that is no value"}
    found = said(message.pop("value"))
    if schema is not None:
        from toolcell.schema import Compiled

        problems = Compiled(schema).problems(found.output)
        if problems:
            return {"problems": [_short(problem) for problem in problems]}
    return {
        "metadata": _small(found.metadata),
        "files_read": found.files_read,
        "summary": found.summary,
        "terminate": found.terminate,
        **_content(target, found.output, found.content, lines=lines, size=size, rest=rest),
    }


def _content(
    target: BinaryIO, output: Any, content: str | None, *, lines: int, size: int, rest: str
) -> dict[str, Any]:
    """The output written out, and what the model is shown of it."""
    from toolcell._output_summary import summary
    from toolcell.bounding import Bounds, bounded, summarised
    from toolcell.content_parts import parts_of

    data, media_type = _bytes_of(output)
    _write(target, data)
    facts = {"media_type": media_type, "size_bytes": len(data), "truncation": None}
    parts = parts_of(output)
    if content is not None and content != output:
        shown = bounded(content[:CONTENT_CHARS_MAX], Bounds(lines=lines, bytes=size))
        note = f"[toolcell: the whole output, {len(data):,} bytes, is kept; {rest}]"
        return {**facts, "content": f"{shown.text}\n{note}"}
    if parts is not None:
        return {**facts, "content": f"{parts.text}\n[toolcell: {rest}]"}
    if isinstance(output, str):
        text = bounded(output, Bounds(lines=lines, bytes=size), rest=rest)
        told = None if text.truncation is None else dataclasses.asdict(text.truncation)
        return {**facts, "content": text.text, "truncation": told}
    shown_instead = summary(output, size_bytes=len(data), room_bytes=size, rest=rest)
    left_out = dataclasses.asdict(summarised(len(data)))
    return {**facts, "content": shown_instead, "truncation": left_out}


def _bytes_of(output: Any) -> tuple[bytes, str]:
    """The output as it is kept: text and bytes as they are, anything else as compact JSON."""
    import orjson

    from toolcell.content_parts import parts_of

    if isinstance(output, str):
        return output.encode(), "text/plain"
    parts = parts_of(output)
    if parts is not None and len(parts.parts) == 1:
        return parts.parts[0].data, parts.parts[0].mime_type
    return orjson.dumps(output), "application/json"


def _write(target: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    for at in range(0, len(view), CHUNK_BYTES):
        target.write(view[at : at + CHUNK_BYTES])
    target.flush()


def _small(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata, unless it is large itself: then a word in its place."""
    import orjson

    size = len(orjson.dumps(metadata))
    if size <= METADATA_BYTES_MAX:
        return metadata
    return {"metadata_dropped": f"{size} bytes; at most {METADATA_BYTES_MAX} beside a large output"}


def _short(problem: dict[str, str]) -> dict[str, str]:
    return {name: str(text)[:WORDS_CHARS_MAX] for name, text in problem.items()}
