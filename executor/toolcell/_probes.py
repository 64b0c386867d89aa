"""What every probe of `doctor` is made of: attempts, and what is to be seen of them.

A probe is a function that runs inside a jail and tries to break one guarantee, in several ways;
`_probe_*.py` hold them by theme. Standard library only. Each returns its attempts,
`{"tried", "got", "broke"}`: `broke` is true where the attempt worked, and then the guarantee does
not hold. Nothing here is trusted to hold anything; it only tries.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

Attempt = dict[str, Any]

_MASK = (1 << 64) - 1
IS_X86_64 = os.uname().machine == "x86_64"


def why(error: OSError) -> str:
    """How the kernel says no, in words."""
    return error.strerror or str(error)


def attempt(tried: str, act: Callable[[], object]) -> Attempt:
    """Do it; an OSError is how the kernel says no."""
    try:
        got = act()
    except OSError as error:
        return {"tried": tried, "got": why(error), "broke": False}
    return {"tried": tried, "got": f"it worked: {got!r:.80}", "broke": True}


def works(tried: str, act: Callable[[], object]) -> Attempt:
    """Do what has to be possible: here the refusal is what breaks the promise."""
    try:
        act()
    except OSError as error:
        return {"tried": tried, "got": why(error), "broke": True}
    return {"tried": tried, "got": "it works", "broke": False}


def seen(tried: str, what: object, *, broke: bool) -> Attempt:
    """An attempt that is judged by what it saw."""
    return {"tried": tried, "got": f"{what}"[:200], "broke": broke}


def refused(tried: str, result: int, *by: int) -> Attempt:
    """A call that has to be refused with one of these errors: another one came from elsewhere."""
    got = errno.errorcode.get(-result, f"it worked: {result}") if result < 0 else "it worked"
    return {"tried": tried, "got": got, "broke": -result not in by}


def read(path: str) -> str:
    """The first few characters of a file."""
    with open(path, errors="replace") as file:
        return file.read(64)


def write(path: str, text: str = "planted") -> str:
    """Make a file, and return its path."""
    with open(path, "w") as file:
        file.write(text)
    return path


def append(path: str) -> int:
    """Write to the end of a file that is there."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        return os.write(fd, b"more")
    finally:
        os.close(fd)


def own(name: str) -> str:
    """A path in the temporary folder that a jail has for itself."""
    return os.path.join(tempfile.gettempdir(), f"toolcell-probe-{name}-{os.getpid()}")


def syscall(x86_64: int | None, aarch64: int | None, *arguments: int | bytes) -> int:
    """A raw call: its result, or a negative error number. ENOSYS where there is no such call."""
    number = x86_64 if IS_X86_64 else aarch64
    if number is None:
        return -errno.ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_char_p(a) if isinstance(a, bytes) else a & _MASK for a in arguments]
    padded = [w if isinstance(w, ctypes.c_char_p) else ctypes.c_ulong(w) for w in (*words, 0, 0)]
    result = int(libc.syscall(ctypes.c_long(number), *padded))
    return -ctypes.get_errno() if result == -1 else result


def checked(result: int) -> int:
    """The result of a raw call.

    Raises:
        OSError: it was refused.
    """
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def python(code: str, *words: str) -> list[str]:
    """The command line of another interpreter, here or outside."""
    return [sys.executable, "-I", "-S", "-c", code, *words]
