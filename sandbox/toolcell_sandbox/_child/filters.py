"""seccomp-BPF filters as tables: which calls, which bits of which argument, and why (seccomp(2)).

The least that is always filtered, also where the whole table (`syscall_table.py`, which has the
same rows) was waived by name: setuid and setgid bits. A root supervisor's worker creates files
that are root's on disk, so a mode bit that it sets there would be root's for everybody on the host.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    # By name: its number on x86-64 and on aarch64 (None: it has none there), the place of its
    # mode, and the place of the flags without which it takes no mode.
    Table = dict[str, tuple[int | None, int | None, int | None, int | None]]
    Program = list[tuple[int, int, int, int]]

SETUID_SETGID = 0o6000
# With neither O_CREAT nor __O_TMPFILE the mode of open(2) is whatever the register held.
_CREATES = os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY)

# No place of a mode: refused with ENOSYS, since what it is told lies in memory, which a filter
# cannot read; callers fall back to openat.
MODE_BITS: Table = {
    "chmod": (90, None, 1, None),
    "fchmod": (91, 52, 1, None),
    "fchmodat": (268, 53, 2, None),
    "fchmodat2": (452, 452, 2, None),
    "creat": (85, None, 1, None),
    "mkdir": (83, None, 1, None),
    "mkdirat": (258, 34, 2, None),
    "mknod": (133, None, 1, None),
    "mknodat": (259, 33, 2, None),
    "open": (2, None, 2, 1),
    "openat": (257, 56, 3, 2),
    "openat2": (437, 437, None, None),
    "io_uring_setup": (425, 425, None, None),
}

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x4000_0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
# struct seccomp_data: nr, arch, instruction_pointer, args[6]; only low halves are looked at here.
_NR, _ARCH, _ARGS = 0, 4, 16


def program(table: Table, machine: str) -> Program:
    """The table as BPF instructions (code, jump if true, jump if false, value)."""
    enosys, eperm = _ERRNO | errno.ENOSYS, _ERRNO | errno.EPERM
    code: Program = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, enosys),
        (_LOAD, 0, 0, _NR),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, enosys)]
    for x86_64, aarch64, mode, flags in table.values():
        number = x86_64 if machine == "x86_64" else aarch64
        if number is None:
            continue
        body: Program = [(_RETURN, 0, 0, enosys)]
        if mode is not None:
            body = [
                (_LOAD, 0, 0, _ARGS + 8 * mode),
                (_ANY_BIT, 0, 1, SETUID_SETGID),
                (_RETURN, 0, 0, eperm),
                (_RETURN, 0, 0, _ALLOW),
            ]
        if flags is not None:
            creates: Program = [(_LOAD, 0, 0, _ARGS + 8 * flags), (_ANY_BIT, 1, 0, _CREATES)]
            body = [*creates, (_RETURN, 0, 0, _ALLOW), *body]
        code += [(_EQUAL, 0, len(body), number), *body]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def install(table: Table) -> None:
    """Filter this process and all that come of it; needs no_new_privs."""
    code = program(table, syscalls.platform_machine())
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in code))
    header = struct.pack("@HP", len(code), ctypes.addressof(packed))
    pointer = ctypes.create_string_buffer(header)
    syscalls.prctl(syscalls.PR_SET_SECCOMP, syscalls.SECCOMP_MODE_FILTER, ctypes.addressof(pointer))
