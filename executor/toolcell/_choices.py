"""What whoever runs the executor chose for its jails: checked once, and never by a call's words."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from toolcell._git_identity import git_settings
from toolcell.confinement import writes
from toolcell.folders import Folders
from toolcell.tools import Tool
from toolcell_policies import Mode
from toolcell_sandbox.spec import (
    GUARANTEES,
    Isolation,
    Limits,
    Network,
    WorkspaceMode,
    check_environment,
    check_waivers,
)

_log = logging.getLogger("toolcell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The jails of one executor: their level, network, folders, environment, and what is waived.

    `workspace_mode` None is nobody's choice: a tool that only reads cannot write; what any other
    changes is judged before it is kept, or, at a level that cannot do that, changed in place.
    """

    isolation: Isolation
    network: Network
    workspace_mode: WorkspaceMode | None
    folders: Folders
    env: Mapping[str, str]
    waive: tuple[str, ...]
    git: Mapping[str, str]
    """Settings for git: the person's name, where they have one; `env` comes before them."""

    @property
    def environment(self) -> dict[str, str]:
        """What jails get besides their own."""
        return {**({} if "GIT_CONFIG_COUNT" in self.env else self.git), **self.env}

    def mode_of(self, tool: Tool, asked: WorkspaceMode | None = None) -> WorkspaceMode:
        """The workspace that a call of this tool gets; `asked` is the call's own choice."""
        named = asked or self.workspace_mode
        if named is None:
            named = "direct" if self.isolation == "container" else "transaction"
        if named in ("direct", "transaction") and not writes(tool):
            # Its own word is that it reads: nobody who names a mode gives it more than that.
            return "read_only"
        return named

    def network_of(self, tool: Tool) -> Network:
        """The network of this tool's jails: its own, where it was registered with one."""
        return self.network if tool.network is None else tool.network

    def jail_of(self, tool: Tool, asked: WorkspaceMode | None = None) -> dict[str, Any]:
        """The jail of a call of this tool, as `check` shows it."""
        granted = self.folders.granted
        return {
            "isolation": self.isolation,
            "network": self.network_of(tool).kind,
            "workspace_mode": self.mode_of(tool, asked),
            "waived": list(self.waive),
            "read": [one.path for one in granted if not (one.writable and writes(tool))],
            "write": [one.path for one in granted if one.writable and writes(tool)],
        }


def default_state_dir() -> str:
    """`TOOLCELL_STATE_DIR`, else the user's state folder of this platform."""
    named = os.environ.get("TOOLCELL_STATE_DIR")
    if named:
        return os.path.abspath(named)
    import platformdirs

    return platformdirs.user_state_dir("toolcell")


def chosen_isolation(given: str | None) -> Isolation:
    """The isolation level: as given, else TOOLCELL_ISOLATION, else standard.

    Raises:
        ValueError: it is not offered; it never slides to one that is.
    """
    named = os.environ.get("TOOLCELL_ISOLATION") or "standard"
    what, level = ("TOOLCELL_ISOLATION", named) if given is None else ("isolation", given)
    if level not in get_args(Isolation):
        offered = ", ".join(get_args(Isolation))
        raise ValueError(f"{what} {level!r} is not offered; choose one of: {offered}")
    return cast("Isolation", level)


def chosen_mode(given: str | None) -> WorkspaceMode | None:
    """The workspace mode as given; None is nobody's choice.

    Raises:
        ValueError: it is not offered.
    """
    offered = get_args(WorkspaceMode)
    if given is not None and given not in offered:
        raise ValueError(
            f"workspace_mode {given!r} is not offered; choose one of: {', '.join(offered)}"
        )
    return cast("WorkspaceMode | None", given)


def chosen_ceiling(given: Mode | str) -> Mode:
    """The mode as given.

    Raises:
        ValueError: it is not offered.
    """
    offered = tuple(mode.value for mode in Mode)
    if given not in offered:
        raise ValueError(f"mode {given!r:.50} is not offered; choose one of: {', '.join(offered)}")
    return Mode(given)


def refuse_unknown_choices(*, isolation: str | None = None) -> None:
    """What was chosen, by argument or by environment, is offered, or nothing runs.

    Raises:
        ValueError: TOOLCELL_ISOLATION or the argument names what this version has not got; it
            never slides to what it has.
    """
    chosen_isolation(isolation)


def choices_of(
    *,
    isolation: str | None,
    network: Network | None,
    workspace_mode: str | None,
    folders: Folders,
    env: Mapping[str, str] | None,
    waive: Iterable[str],
) -> Choices:
    """What was given, checked; one warning names every waiver.

    Raises:
        ValueError: a choice is not offered, a waiver or a variable is none.
    """
    given = waive if isinstance(waive, str) else tuple(waive)
    check_waivers(given)
    env = dict(env or {})
    check_environment(env)
    made = Choices(
        isolation=chosen_isolation(isolation),
        network=network or Network.none(),
        workspace_mode=chosen_mode(workspace_mode),
        folders=folders,
        env=env,
        waive=tuple(name for name in GUARANTEES if name in given),
        git=git_settings(),
    )
    if made.waive:
        _log.warning("%s", waiver_warning(made.waive))
    return made


def waiver_warning(waive: Iterable[str]) -> str:
    """What is said, once, about guarantees that calls may do without."""
    return f"waived by name: {', '.join(waive)}; calls may run without, and ask a person each time"


def check_types(
    limits: object, network: object, approver: object, max_concurrency: int | None
) -> None:
    """Refuse an option of another type than it says.

    Raises:
        TypeError: limits, network or approver is not one.
        ValueError: max_concurrency is below 1.
    """
    kinds: tuple[tuple[str, Any, type], ...] = (
        ("limits", limits, Limits),
        ("network", network, Network),
    )
    for name, value, kind in kinds:
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} takes a {kind.__name__}, not {type(value).__name__}")
    if not callable(approver):
        raise TypeError(f"approver takes a function, not {type(approver).__name__}")
    if max_concurrency is not None and max_concurrency < 1:
        raise ValueError("max_concurrency is at least 1")
