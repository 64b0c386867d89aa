"""`Registration`: what `register` returns, to take back those tools and no others."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Self

from toolcell.tools import NAME, Tool

__all__ = ["Entry", "Placement", "Registration", "grouped"]

Placement = Literal["application", "location"]
PLACEMENTS: Final = ("application", "location")
"""From below to above: what a location registers hides what the application did."""

_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Entry:
    """One tool of one registration. The same tool registered twice is two of these."""

    tool: Tool
    placement: Placement
    group: str | None
    deferred: bool


class Registration:
    """Tools that were registered together, until `close`, or the end of a `with` block.

    Closing removes these and reveals what they hid; closing again does nothing. Forgetting it
    closes nothing: a program that never takes its tools back has no use for it.
    """

    __slots__ = ("_close", "_closed", "_entries")

    def __init__(
        self, entries: tuple[Entry, ...], close: Callable[[tuple[Entry, ...]], None]
    ) -> None:
        self._entries = entries
        self._close = close
        self._closed = False

    @property
    def names(self) -> tuple[str, ...]:
        """The canonical names, as they were registered: with their group."""
        return tuple(entry.tool.name for entry in self._entries)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, whether or not others hide them."""
        return tuple(entry.tool for entry in self._entries)

    @property
    def closed(self) -> bool:
        """Whether they have been taken back."""
        return self._closed

    def close(self) -> None:
        """Take them back. Snapshots that have them keep them."""
        self._close(self._entries)
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:5]) + (", …" if len(self.names) > 5 else "")
        return f"<Registration of {shown}{' (closed)' if self._closed else ''}>"


def grouped(tool: Tool, group: str | None) -> Tool:
    """The tool as `<group>_<tool>`, its aliases likewise: a group claims no name outside of it.

    Raises:
        ValueError: the group cannot begin a name, or a name becomes too long.
    """
    if group is None:
        return tool
    if _GROUP.fullmatch(group) is None:
        raise ValueError(f"{group!r:.100} cannot name a group: write {_GROUP.pattern}")
    for name in (tool.name, *tool.aliases):
        if NAME.fullmatch(f"{group}_{name}") is None:
            raise ValueError(
                f"{group}_{name} is {len(group) + 1 + len(name)} characters long, and a tool's "
                "name at most 64: take a shorter group, or give the tool a shorter key"
            )
    aliases = tuple(f"{group}_{alias}" for alias in tool.aliases)
    return dataclasses.replace(tool, name=f"{group}_{tool.name}", aliases=aliases)
