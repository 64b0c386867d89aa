"""Following a path on a file system by hand, link by link.

`os.path.realpath` will not do: it returns a loop unchanged, raises for some
paths even when it is not strict, and gives up on long ones with a live link
still in them (measured with CPython 3.11). Here each hop is shown to the
caller before it is followed, and whatever the kernel refuses is a failure.
"""

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ._text import absolute, components

# path_resolution(7): more links than this are ELOOP.
LINKS_MAX: Final = 40
# limits.h, PATH_MAX without its NUL. The kernel would allow a longer path to
# come about by links; nothing honest needs one.
RESOLVED_BYTES_MAX: Final = 4095


class FileFacts(Protocol):
    """What is asked of an entry; `os.stat_result` is one."""

    @property
    def st_mode(self) -> int:
        """Type and permissions, as in inode(7)."""

    @property
    def st_nlink(self) -> int:
        """How many names the file has."""


class Filesystem(Protocol):
    """The two questions that a path check asks of a file system.

    Both raise `OSError` as their namesakes in `os` do.
    """

    def lstat(self, path: str) -> FileFacts:
        """Return the facts of an entry itself, a link not followed."""

    def readlink(self, path: str) -> str:
        """Return where a link points, as it is written."""


class RealFilesystem:
    """The file system of this machine."""

    __slots__ = ()

    def lstat(self, path: str) -> FileFacts:
        """Return `os.lstat(path)`."""
        return os.lstat(path)

    def readlink(self, path: str) -> str:
        """Return `os.readlink(path)`."""
        return os.readlink(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One link, and what it makes of the path that led to it."""

    # The link's own place, without links above it.
    link: str
    # What it says, to the letter.
    target: str
    # Where it points: absolute, as written, `..` still inside.
    head: str
    # The same with the rest of the path behind it.
    whole: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Where a path led, or why it could not be followed to its end."""

    hops: tuple[Hop, ...]
    # Without links and `..`; None where the walk was stopped or failed. Names
    # that do not exist yet are kept, below their nearest existing parent.
    resolved: str | None = None
    # Of what `resolved` names; None where it does not exist or ends in `..`.
    facts: FileFacts | None = None
    # The kernel's errno, where it or a bound of ours ended the walk.
    failure: int | None = None


def walk(path: str, fs: Filesystem, admit: Callable[[Hop], bool] = lambda hop: True) -> Walk:
    """Follow an absolute path to its end, one component and one link at a time.

    `admit` sees each hop before anything is looked up behind it, and ends the
    walk with False. Never raises for anything a file system does. A missing
    name is no failure, nor is a file where a folder should be: both are for
    the tool to report.
    """
    hops: list[Hop] = []
    here: list[str] = []
    ahead = list(reversed(components(path)))
    facts: FileFacts | None = None

    def failed(number: int) -> Walk:
        return Walk(hops=tuple(hops), failure=number)

    try:
        while ahead:
            name = ahead.pop()
            facts = None
            if name == "..":
                del here[-1:]
                continue
            entry = absolute([*here, name])
            if len(entry.encode("utf-8", "surrogateescape")) > RESOLVED_BYTES_MAX:
                return failed(errno.ENAMETOOLONG)
            try:
                facts = fs.lstat(entry)
            except (FileNotFoundError, NotADirectoryError):
                here.append(name)
                continue
            if not stat.S_ISLNK(facts.st_mode):
                here.append(name)
                continue
            if len(hops) == LINKS_MAX:
                return failed(errno.ELOOP)
            target = fs.readlink(entry)
            if target.startswith("/"):
                here.clear()
            head = [*here, *components(target)]
            whole = absolute([*head, *reversed(ahead)])
            hops.append(Hop(link=entry, target=target, head=absolute(head), whole=whole))
            if not admit(hops[-1]):
                return Walk(hops=tuple(hops))
            if len(whole) > RESOLVED_BYTES_MAX:
                return failed(errno.ENAMETOOLONG)
            ahead.extend(reversed(components(target)))
    except OSError as error:
        return failed(error.errno or errno.EIO)
    except ValueError:  # a NUL or an unpaired surrogate in a link or a workspace
        return failed(errno.EILSEQ)
    return Walk(hops=tuple(hops), resolved=absolute(here), facts=facts)
