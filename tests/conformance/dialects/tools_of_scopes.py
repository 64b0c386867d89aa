"""Three tools for one name, from three places; a log, and a picture.

Light: their inputs are JSON Schemas, and nothing but toolcell is imported in a jail.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from toolcell import Tool


def hello(input: dict[str, Any]) -> str:
    """The application's own greeting."""
    return f"{input['whom']}, from the application"


def hello_here(input: dict[str, Any]) -> str:
    """A location's."""
    return f"{input['whom']}, from here"


def hello_now(input: dict[str, Any]) -> str:
    """A session's."""
    return f"{input['whom']}, just for now"


WHOM = {
    "type": "object",
    "properties": {"whom": {"type": "string"}},
    "required": ["whom"],
    "additionalProperties": False,
}
HELLO, HERE, NOW = (
    Tool.make(description=f"Greet: {greet.__doc__}", input=WHOM, output=str, execute=greet)
    for greet in (hello, hello_here, hello_now)
)


def log(input: dict[str, Any]) -> str:
    """Numbered lines."""
    return "".join(f"line {number} \N{SNOWMAN}\n" for number in range(input["rows"]))


def pixels(input: dict[str, Any]) -> list[Any]:
    """A picture of one colour, and a word about it."""
    width = input["width"]
    raw = b"".join(b"\0" + b"\x80" * width for _ in range(width))
    header = struct.pack(">IIBBBBB", width, width, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return [{"type": "text", "text": f"{width} by {width}"}, png]


REPORTS = {
    "log": Tool.make(
        description="A log.",
        input={"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]},
        output={"type": "string"},
        execute=log,
        content_lines=20,
    ),
    "picture": Tool.make(
        description="A picture.",
        input={"type": "object", "properties": {"width": {"type": "integer", "default": 8}}},
        execute=pixels,
    ),
}
