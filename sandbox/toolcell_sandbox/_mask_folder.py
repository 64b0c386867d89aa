"""What is remembered of one watched folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

ENVIRONMENT: Final = "pyvenv.cfg"
PACKAGES: Final = "site-packages"
MODULES: Final = "node_modules"
_NO_NAMES: Final[frozenset[str]] = frozenset()


class Folder:
    """A folder that is walked: it has a watch, or is about to get one. Files are not remembered.

    Never moved: a folder that is renamed is forgotten and walked where it is now.
    """

    __slots__ = (
        "_asked",
        "_left_out",
        "_masks",
        "_within",
        "has_environment",
        "is_gone",
        "name",
        "parent",
        "wd",
    )

    def __init__(self, parent: Folder | None, name: str) -> None:
        self.parent = parent
        self.name = name
        # None before the folder is walked, and once the kernel has taken the watch off.
        self.wd: int | None = None
        self.is_gone = False
        self.has_environment = False
        # Made when first needed: most folders have none of most of them.
        self._within: dict[str, Folder] | None = None
        self._masks: set[str] | None = None
        self._left_out: set[str] | None = None
        self._asked: dict[str, int] | None = None

    @property
    def path(self) -> str:
        """Below the top; "" for the top."""
        names: list[str] = []
        here = self
        while here.parent is not None:
            names.append(here.name)
            here = here.parent
        return "/".join(reversed(names))

    @property
    def within(self) -> dict[str, Folder]:
        """The walked folders in it, by name. To change it, use `add` and `remove`."""
        return self._within or {}

    @property
    def masks(self) -> set[str] | frozenset[str]:
        """The forbidden names in it."""
        return self._masks or _NO_NAMES

    @property
    def left_out(self) -> set[str] | frozenset[str]:
        """The folders in it that are not walked."""
        return self._left_out or _NO_NAMES

    @property
    def asked(self) -> dict[str, int]:
        """The files in it that what they hold decides on, with the watch of each."""
        return self._asked or {}

    def knows(self, name: str) -> bool:
        """Whether anything is remembered of a name."""
        return (
            name in self.masks or name in self.within or name in self.left_out or name in self.asked
        )

    def add(self, name: str) -> Folder:
        """A new folder in this one, not yet walked."""
        if self._within is None:
            self._within = {}
        self._within[name] = folder = Folder(self, name)
        return folder

    def remove(self, name: str) -> None:
        """Forget a folder in this one."""
        if self._within is not None:
            self._within.pop(name, None)

    def mask(self, name: str) -> None:
        """Remember a name as forbidden."""
        self._masks = self._masks or set()
        self._masks.add(name)

    def unmask(self, name: str) -> None:
        """Forget it."""
        if self._masks is not None:
            self._masks.discard(name)

    def leave_out(self, name: str) -> None:
        """Remember a folder as one that is not walked."""
        self._left_out = self._left_out or set()
        self._left_out.add(name)

    def take_up(self, name: str) -> None:
        """Forget it."""
        if self._left_out is not None:
            self._left_out.discard(name)

    def ask(self, name: str, wd: int) -> None:
        """Remember a file that what it holds decides on."""
        self._asked = self._asked or {}
        self._asked[name] = wd

    def unask(self, name: str) -> None:
        """Forget it."""
        if self._asked is not None:
            self._asked.pop(name, None)

    def all_below(self) -> Iterator[Folder]:
        """This folder, and every walked one below it."""
        pending = [self]
        while pending:
            here = pending.pop()
            pending += here.within.values()
            yield here

    def skips(self, name: str) -> bool:
        """Whether a folder in this one holds what tools made: then it is not walked."""
        if name == MODULES:
            return True
        if name == "objects":
            return posixpath.basename(self.path) == ".git"
        return name == PACKAGES and self._is_in_environment()

    def _is_in_environment(self) -> bool:
        here: Folder | None = self
        while here is not None:
            if here.has_environment:
                return True
            here = here.parent
        return False
