"""Whether a folder holds files that no tool may read: looked at before each jail that hides none.

At level `container` nothing in a workspace can be masked, so a call there runs only where there
is nothing to mask, or where somebody waived it by name. Each call is told by a walk that began
after it came: names may change at any time, so nothing older is trusted. Calls that wait at the
same time share one walk.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from toolcell._protected import Protected
from toolcell.confinement import Workspace
from toolcell.results import ConfinementFailed
from toolcell_policies import SensitiveRule
from toolcell_sandbox.endings import unconfined
from toolcell_sandbox.spec import JailSpec

ENTRIES_MAX: Final = 200_000
CPU_S: Final = 5.0
WALL_S: Final = 60.0
"""Above what the walk itself needs: others may be using the machine, or the disk."""
DEPTH_MAX: Final = 200
"""Each level holds one descriptor open."""
_GUARANTEE: Final = "paths_masked"
_STAGE: Final = "sensitive files"


class NotTold(Exception):
    """A folder could not be looked through; says why, as the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a walk came to: how many names are protected, and the first of them in their order."""

    count: int = 0
    first: str = ""


@dataclass(eq=False, slots=True)
class _Shared:
    """A walk for everybody who came before it began."""

    problem: ConfinementFailed | None = None
    is_done: bool = False


@dataclass(slots=True, kw_only=True)
class Lookout:
    """Says of each call whether its jail would show what is protected."""

    workspace: Workspace
    protected: Protected
    _eyes: dict[str, Eye] = field(default_factory=dict)
    _ahead: dict[tuple[str, ...], _Shared] = field(default_factory=dict)
    _turn: trio.Lock = field(default_factory=trio.Lock)

    async def problem(self, spec: JailSpec) -> ConfinementFailed | None:
        """Why a call may not run in this jail; None where nothing stands against it."""
        if spec.isolation != "container" or _GUARANTEE in spec.waive:
            return None
        tops = tuple(self._tops(spec))
        if not tops:
            return None
        walk = self._ahead.setdefault(tops, _Shared())
        async with self._turn:
            if not walk.is_done:
                # It begins now: whoever comes from here on waits for the next one.
                if self._ahead.get(tops) is walk:
                    del self._ahead[tops]
                walk.problem = await trio.to_thread.run_sync(self._look, tops)
                walk.is_done = True
        return walk.problem

    def _tops(self, spec: JailSpec) -> Iterator[str]:
        """The folders of the host that a jail is shown, but for what programs are made of."""
        if spec.workspace is not None and spec.workspace_mode != "scratch":
            yield spec.workspace
        for mount in spec.mounts:
            if mount.identity is not None:
                yield mount.path

    def _look(self, tops: Sequence[str]) -> ConfinementFailed | None:
        budget = Budget(trio.from_thread.check_cancelled)
        count, first = 0, ""
        for top in tops:
            is_workspace = top == self.workspace.path
            try:
                # What a name means stays true; which names are there is looked at each time.
                eye = self._eyes.setdefault(top, Eye(top, self.protected))
                found = walk(eye, budget)
            except NotTold as error:
                where = "the workspace" if is_workspace else f"the granted folder {shown(top)}"
                return _failed(f"{where} may hold files that no tool may read: {error}")
            if found.count and not count:
                first = found.first if is_workspace else os.path.join(top, found.first)
            count += found.count
        if not count:
            return None
        what = "1 file" if count == 1 else f"{count:,} files"
        return _failed(f"{what} that no tool may read would be in reach, first {shown(first)}")


def _failed(cause: str) -> ConfinementFailed:
    """The ending of a call that did not run; the fix first, as everywhere."""
    facts = {"guarantee": _GUARANTEE, "stage": _STAGE, "cause": cause}
    return unconfined(facts, "The call did not run, since this isolation level hides no file")


def shown(path: str) -> str:
    """A path in quotes, whatever bytes its names are made of."""
    return repr(os.fsencode(path).decode("utf-8", "replace"))


class Budget:
    """What is left of the bounds, for all folders of one call together.

    `check` is called with each folder, and may end the walk by raising.
    """

    def __init__(self, check: Callable[[], object] = lambda: None) -> None:
        self._check = check
        self._entries = 0
        self._cpu_s = time.thread_time() + CPU_S
        self._wall_s = time.monotonic() + WALL_S

    def spend(self, entries: int) -> None:
        """Count the entries of one more folder.

        Raises:
            NotTold: that is too many, or it takes too long.
        """
        self._check()
        self._entries += entries
        if self._entries > ENTRIES_MAX:
            raise NotTold(f"it has more than {ENTRIES_MAX:,} entries, too many to look at")
        if time.thread_time() > self._cpu_s or time.monotonic() > self._wall_s:
            raise NotTold("looking through it took too long")


@dataclass(slots=True)
class _Open:
    """A folder on the way down: its descriptor, its path below the top, and the names to come."""

    fd: int
    inner: str
    names: list[tuple[str, bool]]
    """Each with whether it is a folder; taken from the end."""
    in_environment: bool


def walk(eye: Eye, budget: Budget) -> Found:
    """Look at every name below a folder, following no link.

    Left out is what tools made: node_modules, site-packages below a pyvenv.cfg, .git/objects.

    Raises:
        NotTold: there is too much of it, or a folder that a jail could read cannot be read here.
    """
    count, first = 0, ""
    stack: list[_Open] = []
    try:
        stack += _opened(None, eye.top, budget)
        while stack:
            here = stack[-1]
            if not here.names:
                os.close(stack.pop().fd)
                continue
            name, is_folder = here.names.pop()
            if eye.forbids(here.inner, name):
                count, first = count + 1, first or os.path.join(here.inner, name)
            elif is_folder and not _is_left_out(here, name):
                if len(stack) == DEPTH_MAX:
                    raise NotTold(f"it is more than {DEPTH_MAX} folders deep")
                stack += _opened(here, name, budget)
    finally:
        for each in stack:
            os.close(each.fd)
    return Found(count=count, first=first)


_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def _opened(parent: _Open | None, name: str, budget: Budget) -> list[_Open]:
    """A folder to look through; none where it is gone, or is not a jail's to read either."""
    at = None if parent is None else parent.fd
    inner = "" if parent is None else os.path.join(parent.inner, name)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=at)
    except OSError as error:
        if parent is not None and error.errno in _GONE:
            return []
        if parent is not None and error.errno == errno.EACCES and _is_shut(parent.fd, name):
            return []
        raise NotTold(f"{shown(inner or '.')} cannot be read ({error.strerror})") from None
    try:
        with os.scandir(fd) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        budget.spend(len(names))
    except BaseException:
        os.close(fd)
        raise
    in_environment = (parent is not None and parent.in_environment) or any(
        each == "pyvenv.cfg" for each, _ in names
    )
    names.sort(reverse=True)
    return [_Open(fd, inner, names, in_environment)]


def _is_shut(parent: int, name: str) -> bool:
    """Whether a jail of the same user can neither enter a folder nor make it its own to enter."""
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return found.st_uid != os.geteuid() and not os.access(name, os.X_OK, dir_fd=parent)


def _is_left_out(here: _Open, name: str) -> bool:
    return (
        name == "node_modules"
        or (name == "site-packages" and here.in_environment)
        or (name == "objects" and os.path.basename(here.inner) == ".git")
    )


class Eye:
    """Says of each name below one folder whether it is protected; remembers single names.

    A row that yields is silent where the folder itself lies under it, as everywhere.
    """

    def __init__(self, top: str, protected: Protected) -> None:
        self.top = top
        self._protected = protected
        self._silent: frozenset[str] = frozenset()
        self._silent = frozenset(rule.id for rule in self._rules(top) if rule.yields)
        self._by_name = protected.rules.names_decide_below(top, role="read", homes=protected.homes)
        self._known: dict[str, bool] = {}

    def forbids(self, inner: str, name: str) -> bool:
        """Whether a name in the folder `inner`, which is not protected itself, may not be read."""
        if not self._by_name:
            return bool(self._rules(os.path.join(self.top, inner, name)))
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= ENTRIES_MAX:
                self._known.clear()
            found = self._known[name] = bool(self._rules(os.path.join(self.top, name)))
        return found

    def _rules(self, path: str) -> list[SensitiveRule]:
        known = self._protected
        rules = known.rules.match(path, role="read", homes=known.homes)
        return [rule for rule in rules if rule.forbids("read") and rule.id not in self._silent]
