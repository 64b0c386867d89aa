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
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii")
    view = memoryview(HEADER.pack(len(body)) + body)
    while view:
        view = view[os.write(fd, view) :]
