"""A result too large for the supervisor's memory: an unnamed file on disk, unread and unchecked.

Not a memfd: that is memory too. Whoever is handed one has it read by a process that may be lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

SPOOL_BYTES = 8 << 20
"""A larger result is spooled, where the caller named a folder for it."""
FLUSH_BYTES = 1 << 20
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
"""How a file system or kernel says that it has no unnamed files (open(2), O_TMPFILE)."""


class Spooled:
    """The body of one whole frame: JSON by its sender's word only. Whoever is handed it closes it.

    Not to be decoded in a process that matters: nothing bounds what it takes but its size.
    """

    __slots__ = ("fd", "size_bytes")

    def __init__(self, fd: int, size_bytes: int) -> None:
        self.fd = fd
        self.size_bytes = size_bytes

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, a mebibyte at a time, from the start. Blocks: call it in a thread.

        Raises:
            OSError: it cannot be read.
        """
        at = 0
        while at < self.size_bytes:
            chunk = os.pread(self.fd, min(FLUSH_BYTES, self.size_bytes - at), at)
            if not chunk:
                raise OSError(errno.EIO, "the spooled result is shorter than it was")
            at += len(chunk)
            yield chunk

    def close(self) -> None:
        """Let go of it; harmless when that was done already."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # A cancel can come between whoever made it and whoever closes it.
        self.close()


class Unspooled:
    """A result that could not be put on disk, and why."""

    __slots__ = ("why",)

    def __init__(self, error: OSError) -> None:
        self.why = error.strerror or type(error).__name__


class Spool:
    """Where the body of a frame goes: made at the first write, gone with `close`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd = -1
        self.size_bytes = 0
        self.broken: Unspooled | None = None

    def write(self, data: bytes | bytearray) -> None:
        """Append; what cannot be written is remembered, and the rest dropped."""
        if self.broken is not None:
            return
        try:
            if self._fd < 0:
                self._fd = _unnamed(self._folder)
            self.size_bytes += len(data)
            with memoryview(data) as whole:
                at = 0
                while at < len(whole):
                    at += os.write(self._fd, whole[at:])
        except OSError as error:
            self.broken = Unspooled(error)

    def take(self) -> Spooled | Unspooled:
        """All that was written; the caller's to close."""
        if self.broken is not None:
            return self.broken
        fd, self._fd = self._fd, -1
        return Spooled(fd, self.size_bytes)

    def close(self) -> None:
        """Drop what was not taken."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _unnamed(folder: str) -> int:
    """A file of ours alone that no name leads to.

    Raises:
        OSError: it cannot be made.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
    path = os.path.join(folder, f"spool-{os.urandom(16).hex()}")
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return fd
