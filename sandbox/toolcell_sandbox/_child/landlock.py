"""Landlock (landlock(7)): what this process and all that come of it may reach, by path.

A second fence where a mount namespace holds the first; the only one at level `container`. Rights
that a kernel's ABI does not know are left out of what is handled, never of what is promised:
which ABI a guarantee needs is decided in `guarantees.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct

from . import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# include/uapi/linux/landlock.h
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_CHAR = 1 << 6
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SOCK = 1 << 9
MAKE_FIFO = 1 << 10
MAKE_BLOCK = 1 << 11
MAKE_SYM = 1 << 12
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15

_KNOWN_SINCE = {1: (1 << 13) - 1, 2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (
    READ
    | WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | TRUNCATE
)
"""All but device nodes and their ioctls: no jail makes one, or speaks to a driver."""
DEVICE = READ_FILE | WRITE_FILE | TRUNCATE

CONNECT_TCP = 1 << 1
SCOPE_ABSTRACT_SOCKETS = 1 << 0
SCOPE_SIGNALS = 1 << 1
_NO_LOG = 1 << 0 | 1 << 2
"""LOG_SAME_EXEC_OFF and LOG_SUBDOMAINS_OFF: what a jail is refused must not flood the audit log."""

_CREATE_VERSION = 1
_PATH_BENEATH = 1
_ABI_NET, _ABI_SCOPES, _ABI_LOG = 4, 6, 7


def abi() -> int:
    """The ABI of this kernel; 0 where there is no Landlock, or it is switched off."""
    try:
        return syscalls.syscall("landlock_create_ruleset", None, 0, _CREATE_VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def handled(version: int) -> int:
    """Every right to files that an ABI knows: what no rule grants is refused."""
    return sum(rights for since, rights in _KNOWN_SINCE.items() if since <= version)


class Ruleset:
    """What a domain will allow, by path or by descriptor, with rights; nothing else to files.

    A path that does not exist is left out: nothing is granted by it. Without `connect` no TCP
    connection can be made either, where the ABI has that; signals and abstract sockets end at the
    domain's border from ABI 6 on.
    """

    def __init__(self, version: int, *, connect: bool) -> None:
        self._version = version
        self._files = handled(version)
        net = 0 if connect or version < _ABI_NET else CONNECT_TCP
        attributes = struct.pack("=QQQ", self._files, net, SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS)
        size = 24 if version >= _ABI_SCOPES else 16 if version >= _ABI_NET else 8
        self._fd = syscalls.syscall("landlock_create_ruleset", attributes[:size], size, 0)

    def grant(self, rules: Iterable[tuple[str | int, int]]) -> None:
        """Allow more."""
        for place, rights in rules:
            if isinstance(place, int):
                self._grant(place, rights)
                continue
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
                try:
                    self._grant(fd, rights)
                finally:
                    os.close(fd)

    def _grant(self, fd: int, rights: int) -> None:
        rights &= self._files
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, fd)
        syscalls.syscall("landlock_add_rule", self._fd, _PATH_BENEATH, rule, 0)

    def restrict(self) -> None:
        """Confine this process, and all that come of it, for good. Needs no_new_privs."""
        flags = _NO_LOG if self._version >= _ABI_LOG else 0
        syscalls.syscall("landlock_restrict_self", self._fd, flags)
        os.close(self._fd)
