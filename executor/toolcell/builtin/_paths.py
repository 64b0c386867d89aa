"""What the file tools share: how paths are shown, opened, missed and written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final, NoReturn

from toolcell.builtin._settled import Changed, open_settled, parent_of
from toolcell.errors import ToolError

FILE_BYTES_MAX: Final = 32 << 20
BOM: Final = b"\xef\xbb\xbf"

# Only what the path itself is to blame for: a full disk or a file-size limit is not ours to word.
_REASONS: Final = {
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.EROFS: "this tool may not write there: it is read-only",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "the links in it lead round in a circle",
    errno.EISDIR: "it is a folder",
    errno.ETXTBSY: "it is a program that is running",
    errno.ENXIO: "it is not a regular file",
}


def shown(path: str | os.PathLike[str]) -> str:
    """A path as a model should read and repeat it: relative where it lies in the workspace."""
    text = os.path.normpath(os.fspath(path))
    here = os.getcwd()
    if text.startswith(here + os.sep):
        text = text[len(here) + 1 :]
    elif text == here:
        text = "."
    return os.fsencode(text).decode("utf-8", "replace")


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of at most 32 MiB.

    Raises:
        ToolError: missing, a folder, not a regular file, huge, or not readable.
    """
    try:
        # Without O_NONBLOCK a FIFO would block the open itself (open(2)).
        fd = open_settled(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        failed(path, error)
    try:
        # Before it becomes a file object: os.fdopen refuses a folder with an error of its own.
        require_regular(path, found := os.fstat(fd))
        if found.st_size > FILE_BYTES_MAX:
            raise ToolError(
                f"{shown(path)} is too large: {found.st_size} bytes, at most {FILE_BYTES_MAX}",
                hint=f"Look at a part of it, with shell: sed -n '1,200p' {shown(path)}",
            )
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(FILE_BYTES_MAX)
    finally:
        os.close(fd)


def decoded(path: Path, content: bytes) -> tuple[str, str]:
    """The text of a file and its encoding: UTF-8, with or without a mark, or UTF-16 with one.

    Raises:
        ToolError: it is binary, or text in another encoding.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode("utf-16"), "utf-16"
    if b"\0" in content:
        raise ToolError(
            f"{shown(path)} is a binary file of {len(content)} bytes",
            hint="Use python to read its bytes.",
        )
    encoding = "utf-8-sig" if content.startswith(BOM) else "utf-8"
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ToolError(
            f"{shown(path)} is not UTF-8 text: byte 0x{content[error.start]:02x} in line {line}",
            hint="Read it with python: open(path, encoding='latin-1').read()",
        ) from None


def require_regular(path: Path, found: os.stat_result) -> None:
    """Refuse folders, FIFOs, devices and sockets."""
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{shown(path)} is a folder", hint="Use list_directory for folders.")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{shown(path)} is not a regular file")


def failed(path: Path, error: OSError) -> NoReturn:
    """Word an error that the path is to blame for; raise any other as it is."""
    if isinstance(error, Changed):
        raise ToolError(f"{shown(path)}: {error.strerror}") from None
    if error.errno == errno.ENOENT:
        missing(path)
    if error.errno in _REASONS:
        raise ToolError(f"{shown(path)}: {_REASONS[error.errno]}") from None
    raise error


def missing(path: Path) -> NoReturn:
    """Say that there is no such file, and what is there that looks like it."""
    import difflib

    if path.is_symlink():
        raise ToolError(f"{shown(path)} is a link to something that does not exist")
    folder = path.parent
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(1_000), entries, strict=False)]
    except OSError:
        existing = next((p for p in folder.parents if p.is_dir()), Path())
        message = f"{shown(path)} does not exist, nor does its folder"
        raise ToolError(message, hint=f"The nearest folder is {shown(existing)}.") from None
    close = difflib.get_close_matches(path.name[:255], names, n=3)
    hint = f"Did you mean {' or '.join(shown(folder / n) for n in close)}?" if close else None
    raise ToolError(f"{shown(path)} does not exist", hint=hint)


def write_atomic(path: Path, content: bytes) -> bool:
    """Replace a file's content as a whole, or create it; whether it was created.

    Written beside the target and renamed over it (rename(2)), so a reader sees the old or the
    new, never a part. A link is followed; the mode of an existing file is kept. Missing folders
    are created.

    Raises:
        ToolError: the target is a folder, not regular, not writable, or a link to nothing.
    """
    try:
        if path.is_symlink() and not path.exists():
            missing(path)
        with parent_of(path, make=True) as (folder, name):
            mode = _existing_mode(path, folder, name)
            _replace(folder, name, content, mode)
    except OSError as error:
        failed(path, error)
    return mode is None


def _existing_mode(path: Path, folder: int, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise Changed
    require_regular(path, found)
    if not os.access(name, os.W_OK, dir_fd=folder):
        # Renaming over it would get by its mode.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return stat.S_IMODE(found.st_mode) & 0o777


def _replace(folder: int, name: str, content: bytes, mode: int | None) -> None:
    # In bytes: a name of 255 leaves no room for more around it.
    beside = f".{os.fsdecode(os.fsencode(name)[:100])}.{os.urandom(6).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(beside, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
