"""The result channel's one frame: eight bytes of length, big-endian, then that much JSON."""

from __future__ import annotations

import json
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER = struct.Struct("!Q")


def send(fd: int, message: dict[str, Any]) -> None:
    """Write one whole frame. The receiver caps it; here it is only well-formed."""
    body = text(message)
    view = memoryview(HEADER.pack(len(body)) + body)
    while view:
        view = view[os.write(fd, view) :]


def text(message: dict[str, Any], *, ascii_only: bool = False) -> bytes:
    """As UTF-8, so that the cap counts what was said; escaped where a half character is in it."""
    said = json.dumps(message, allow_nan=False, ensure_ascii=ascii_only, separators=(",", ":"))
    try:
        return said.encode()
    except UnicodeEncodeError:
        return text(message, ascii_only=True)
