"""Host folders that somebody grants to tools besides the workspace, checked once, by name.

A grant is a promise about one folder: its real path is what a jail sees, its identity what the
jail checks again. What is granted for writing is changed in place, and nothing of it is undone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from toolcell._protected import Protected
from toolcell.confinement import SHARED_FOLDERS, Workspace, holds
from toolcell_policies import HostFolders
from toolcell_sandbox import host
from toolcell_sandbox.spec import Mount, WorkspaceMode

Kind = Literal["read", "write"]

_KERNEL = ("/proc", "/sys", "/dev")
"""Windows to the kernel and its devices: no folders of anybody's."""
_SYSTEM = ("/boot", "/etc", *host.SYSTEM_FOLDERS)
"""What tools may be shown parts of, and never write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """One host folder, by its real path, and which folder that was when it was granted."""

    path: str
    identity: tuple[int, int]
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """All folders granted to the tools of one executor; none lies in another of the same right."""

    granted: tuple[Granted, ...] = ()

    @classmethod
    def open(
        cls,
        read: Iterable[str | os.PathLike[str]],
        write: Iterable[str | os.PathLike[str]],
        *,
        workspace: Workspace,
        protected: Protected,
    ) -> Folders:
        """Check every folder and take its identity.

        Raises:
            ValueError: one is no folder, or none that a tool may be given; says why, and what
                to name instead.
        """
        found: dict[str, Granted] = {}
        kinds: tuple[tuple[Kind, Iterable[str | os.PathLike[str]]], ...] = (
            ("read", read),
            ("write", write),
        )
        for kind, folders in kinds:
            if isinstance(folders, str | bytes | os.PathLike):
                raise ValueError(f"{kind} takes a list of folders, such as [{folders!r}]")
            for folder in folders:
                one = _open(os.fspath(folder), kind, workspace, protected)
                found[one.path] = one
        kept = [one for one in found.values() if not _is_within(one, found.values())]
        return cls(granted=tuple(sorted(kept, key=lambda one: one.path)))

    def for_policy(self) -> HostFolders:
        """As `check_path` takes them."""
        return HostFolders(
            read=tuple(one.path for one in self.granted if not one.writable),
            write=tuple(one.path for one in self.granted if one.writable),
        )

    def mounts(self, workspace: str, mode: WorkspaceMode, *, writes: bool) -> list[Mount]:
        """What a jail is shown of them: writable only for a tool that writes or executes.

        What a workspace in this mode gives already is left out: a folder of its own there would
        take away from it. In a transaction that is also what may be written: there it is judged.
        """
        shown: list[Mount] = []
        for one in self.granted:
            writable = one.writable and writes
            is_there = holds(workspace, one.path) and mode != "scratch"
            if not is_there or (writable and mode not in ("direct", "transaction")):
                shown.append(
                    Mount(
                        path=one.path,
                        writable=writable,
                        owned=True,
                        identity=one.identity,
                        layered=not writable,
                    )
                )
        return shown


def _is_within(one: Granted, others: Iterable[Granted]) -> bool:
    """Whether another grant gives the same or more."""
    return any(
        other.path != one.path
        and holds(other.path, one.path)
        and (other.writable or not one.writable)
        for other in others
    )


def _open(given: str, kind: Kind, workspace: Workspace, protected: Protected) -> Granted:
    named = f"--{kind} {given!r} ({kind}=)"
    if not given:
        raise ValueError(f"{named} is empty; name a folder")
    try:
        real = os.path.realpath(given)
        found = os.stat(real)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{named} cannot be granted: {why}; name a folder that exists") from None
    if not os.path.isdir(real):
        raise ValueError(f"{named} is not a folder; name the folder that holds it")
    problem = _problem(real, protected) or _named_by_the_list(real, kind, protected)
    if kind == "write":
        problem = problem or _unwritable(real, workspace)
    if problem is not None:
        raise ValueError(f"{named} cannot be granted: {problem}")
    return Granted(path=real, identity=(found.st_dev, found.st_ino), writable=kind == "write")


def _problem(real: str, protected: Protected) -> str | None:
    """What stands against any grant of a folder, by where it lies."""
    below = "name a folder below it"
    for what, other in (
        ("the root folder", "/"),
        *((f"a jail's private {private}", private) for private in host.PRIVATE_FOLDERS),
        ("your home folder", os.path.realpath(os.path.expanduser("~"))),
        *(("somebody's home folder", home) for home in protected.own_homes),
    ):
        if holds(real, other):
            return f"it is or holds {what}; {below}"
    for folder in _KERNEL:
        if holds(folder, real):
            return f"it lies in {folder}, which is the kernel's; a jail has its own"
    return None


def _named_by_the_list(real: str, kind: Kind, protected: Protected) -> str | None:
    """What the sensitive list says about a folder, and about what has its place below it."""
    rules, homes = protected.rules, protected.homes
    for rule in rules.match(real, role=kind, homes=homes):
        if kind == "write" or rule.forbids(kind):
            return f"it is protected ({rule.category}, {rule.id}); name a folder outside of that"
    for rule, way in rules.leads_below(real, role=kind, homes=homes):
        if kind == "write" or rule.forbids(kind):
            there = _found(real, way)
            if there is not None:
                return (
                    f"it may hold what is protected ({rule.category}, {rule.id}: {there}); "
                    "name a folder below it"
                )
    return None


def _found(folder: str, way: tuple[str, ...]) -> str | None:
    """The place that casefolded names lead to, if there is one, or it cannot be told."""
    if not way:
        return folder
    try:
        names = [name for name in os.listdir(folder) if name.casefold() == way[0]]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return folder
    places = (_found(os.path.join(folder, name), way[1:]) for name in names)
    return next((place for place in places if place is not None), None)


def _unwritable(real: str, workspace: Workspace) -> str | None:
    """What stands against a grant for writing: a tool would reach the program that runs it."""
    if holds(real, workspace.path):
        return (
            "it is or holds the workspace; name the workspace's own mode instead, with "
            "--workspace-mode direct"
        )
    for folder in _SYSTEM:
        if holds(folder, real) or holds(real, folder):
            return f"{folder} is the system's and stays read-only; name a folder elsewhere"
    if real in SHARED_FOLDERS:
        return "it is shared by many; name a folder below it"
    for link in host.links_to_interpreter():
        if holds(real, link):
            return (
                f"the running interpreter is reached through the link {link!r} in it; name a "
                "folder below it"
            )
    imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    for entry in (*sys.path, *imported):
        # An empty entry of sys.path is the current folder.
        if isinstance(entry, str) and holds(real, os.path.realpath(entry or ".")):
            return (
                f"this process imports from it ({entry or '.'}), and would run what a tool "
                "writes there; name a folder that holds no code"
            )
    return None
