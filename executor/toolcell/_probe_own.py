"""Probes of what a jail got from its supervisor: variables, descriptors, and limits on files."""

from __future__ import annotations

import errno
import os
import resource
import subprocess

from toolcell._probes import Attempt, attempt, own, python, seen, why

_LAST_FD = 1 << 16
_EXPECTED = {0, 1, 2, 3}
"""Standard streams, and the channel that the result goes through."""


def environment(name: str, value: str) -> list[Attempt]:
    """env_scrubbed: a variable of the supervisor's, here and in every process that can be seen."""
    code = f"import os; print(os.environ.get({name!r}))"
    done = subprocess.run(python(code), capture_output=True, text=True, check=False)
    found = [
        seen("look for it in os.environ", "absent", broke=name in os.environ),
        seen("look for it in a child", "absent", broke=value in done.stdout),
    ]
    try:
        numbers = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError as error:
        numbers = [str(os.getpid()), str(os.getppid())]
        found.append(seen("list the processes", why(error), broke=False))
    for pid in numbers:
        content, said = b"", "absent"
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                content = file.read()
        except OSError as error:
            said = why(error)
        broke = value.encode() in content
        found.append(seen(f"look in /proc/{pid}/environ", said, broke=broke))
    return found


def descriptors(secret: str) -> list[Attempt]:
    """fds_closed: files that the supervisor held open, and left inheritable."""
    held = [fd for fd in range(_LAST_FD) if _is_open(fd)]
    extra = sorted(set(held) - _EXPECTED)
    found = [seen("count descriptors above 3", f"{len(extra)}", broke=bool(extra))]
    for fd in held:
        content = b""
        try:
            content = os.pread(fd, 256, 0)
            said = "not the file"
        except OSError as error:
            said = why(error)
        found.append(seen(f"read descriptor {fd}", said, broke=secret.encode() in content))
    return found


def _is_open(fd: int) -> bool:
    try:
        os.get_inheritable(fd)
    except OSError:
        return False
    return True


def file_limits(size_bytes: int, open_files: int) -> list[Attempt]:
    """files_limited: a file too large, too many files, and the limits themselves raised."""
    return [
        attempt("write past the file size limit", lambda: _grow(own("large"), size_bytes + 1)),
        attempt("make a file longer than it", lambda: _stretch(own("long"), size_bytes + 1)),
        attempt("open too many files", lambda: _open_many(open_files + 1)),
        attempt("raise the limits", _raise_limits),
    ]


def _grow(path: str, size_bytes: int) -> int:
    with open(path, "wb", buffering=0) as file:
        while file.tell() < size_bytes:
            if not file.write(b"\0" * min(1 << 16, size_bytes - file.tell())):
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return file.tell()


def _stretch(path: str, size_bytes: int) -> int:
    with open(path, "wb") as file:
        return file.truncate(size_bytes)


def _open_many(count: int) -> int:
    held: list[int] = []
    try:
        while len(held) < count:
            held.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for fd in held:
            os.close(fd)
    return count


def _raise_limits() -> str:
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        _, hard = resource.getrlimit(limit)
        if hard == resource.RLIM_INFINITY:
            return "there is none to raise"
        try:
            resource.setrlimit(limit, (hard + 1, hard + 1))
        except (ValueError, OSError) as error:
            # CPython words EPERM on the hard limit as a ValueError.
            refusal = str(error)
        else:
            return "raised"
    raise PermissionError(errno.EPERM, refusal)
