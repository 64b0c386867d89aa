"""What a shell knows while its text is read: variables, functions, and what taints the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from ._shell_model import Word
from ._shell_table import Table
from ._text import shown

# What the shell itself sets, or does not let be set: not what was assigned.
_OF_THE_SHELL: Final = frozenset(
    {
        "_", "BASHOPTS", "BASHPID", "BASH_ARGV0", "BASH_COMMAND", "BASH_REMATCH",
        "BASH_SUBSHELL", "BASH_VERSINFO", "COPROC", "DIRSTACK", "EPOCHREALTIME",
        "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO", "MAPFILE",
        "OLDPWD", "OPTARG", "OPTIND", "PIPESTATUS", "PPID", "PWD", "RANDOM", "REPLY",
        "SECONDS", "SHELLOPTS", "SRANDOM", "UID",
    }
)  # fmt: skip


@dataclass(slots=True)
class State:
    """What a shell knows, as far as it is known here. A subshell has a copy."""

    # None: set, or perhaps set, to what only a run can tell.
    variables: dict[str, Word | None]
    exported: dict[str, str | None] = field(default_factory=dict)
    # Functions of the text's own.
    functions: set[str] = field(default_factory=set)
    # Variables that may be kept from being set: what is assigned to them is not known to hold.
    readonly: set[str] = field(default_factory=set)
    # Why nothing that follows can be told by its name.
    taints: tuple[tuple[str, str], ...] = ()

    def copy(self) -> State:
        return replace(
            self,
            variables=dict(self.variables),
            exported=dict(self.exported),
            functions=set(self.functions),
            readonly=set(self.readonly),
        )

    def lookup(self, name: str) -> Word | None:
        """Return a variable's value; None where it is not known."""
        if name in _OF_THE_SHELL or name in self.readonly:
            return None
        return self.variables.get(name)

    def home(self) -> str | None:
        """Return what `~` is."""
        home = self.lookup("HOME")
        return home.text if home is not None else None

    def forget(self, names: Iterable[str]) -> None:
        """Take variables for set to what only a run can tell."""
        for name in names:
            self.variables[name] = None
            if name in self.exported:
                self.exported[name] = None

    def assign(self, name: str, value: Word | None, *, exports: bool) -> bool:
        """Set a variable; return whether it is in the environment."""
        known = value is not None and value.text is not None
        self.variables[name] = value if known else None
        exports = exports or name in self.exported
        if exports:
            self.exported[name] = value.text if value is not None else None
        return exports


def danger(name: str, table: Table, *, exported: bool) -> tuple[str, str] | None:
    """Return why setting a variable changes what runs; None where it does not."""
    if name in table.harmless_variables or name.startswith(table.harmless_prefixes):
        return None
    if name in table.dangerous_variables or name.startswith(table.dangerous_prefixes):
        text = f"{shown(name)} is set: it says what is run, or where it is found."
        return "command_env", text
    if exported:
        return "command_env", f"What {shown(name)} in its environment does is not known here."
    return None
