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
from typing import Final, Protocol, TypeVar

from ._text import absolute, components

# path_resolution(7): more links than this are ELOOP.
LINKS_MAX: Final = 40
# limits.h, PATH_MAX without its NUL. The kernel would allow a longer path to
# come about by links; nothing honest needs one.
RESOLVED_BYTES_MAX: Final = 4095
# What all hops of one path may come to together. Without it forty links of 4 KB
# each are judged name by name, thirty thousand look-ups and 1.6 s for one path.
WALKED_NAMES_MAX: Final = 2048
WALKED_BYTES_MAX: Final = 8 * RESOLVED_BYTES_MAX


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


class StillFilesystem:
    """A file system that is asked each question once, and then gives the same answer.

    For all looks at the paths of one call: a path that is judged as written and as
    read leads to one place in both, whatever is swapped meanwhile.
    """

    __slots__ = ("_facts", "_fs", "_targets")

    def __init__(self, fs: Filesystem | None = None) -> None:
        self._fs = RealFilesystem() if fs is None else fs
        self._facts: dict[str, FileFacts | OSError] = {}
        self._targets: dict[str, str | OSError] = {}

    def lstat(self, path: str) -> FileFacts:
        """Return, or raise, what the first look came to."""
        return _once(self._facts, path, self._fs.lstat)

    def readlink(self, path: str) -> str:
        """Return, or raise, what the first look came to."""
        return _once(self._targets, path, self._fs.readlink)


_Answer = TypeVar("_Answer")


def _once(known: dict[str, _Answer | OSError], path: str, ask: Callable[[str], _Answer]) -> _Answer:
    if path not in known:
        try:
            known[path] = ask(path)
        except OSError as error:
            known[path] = error
    answer = known[path]
    if isinstance(answer, OSError):
        raise answer.with_traceback(None)
    return answer


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
    the tool to report. Links that make too much of a path are one: no path is
    looked at for longer than `WALKED_NAMES_MAX` and `WALKED_BYTES_MAX` allow.
    """
    hops: list[Hop] = []
    here: list[str] = []
    ahead = list(reversed(components(path)))
    facts: FileFacts | None = None
    walked_names = walked_bytes = 0

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
            if _size_bytes(entry) > RESOLVED_BYTES_MAX:
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
            names = components(target)
            head = [*here, *names]
            whole = absolute([*head, *reversed(ahead)])
            hops.append(Hop(link=entry, target=target, head=absolute(head), whole=whole))
            size_bytes = _size_bytes(whole)
            walked_bytes += size_bytes
            walked_names += len(head) + len(ahead)
            if (
                size_bytes > RESOLVED_BYTES_MAX
                or walked_bytes > WALKED_BYTES_MAX
                or walked_names > WALKED_NAMES_MAX
            ):
                return failed(errno.ENAMETOOLONG)
            if not admit(hops[-1]):
                return Walk(hops=tuple(hops))
            ahead.extend(reversed(names))
    except OSError as error:
        return failed(error.errno or errno.EIO)
    except ValueError:  # a NUL or an unpaired surrogate in a link or a workspace
        return failed(errno.EILSEQ)
    return Walk(hops=tuple(hops), resolved=absolute(here), facts=facts)


def _size_bytes(path: str) -> int:
    return len(path.encode("utf-8", "surrogateescape"))
