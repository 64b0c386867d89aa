"""`ToolRegistry`: which tools there are, by which names, and which of them are switched on.

Copy on write: a snapshot is the current state itself, so taking one costs nothing and what a
call looked up cannot change below it. Nothing here is global to the process.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from toolcell._arguments import shown_name
from toolcell._problems import nearest
from toolcell.results import ToolDisabled, UnknownTool
from toolcell.schema import check_schema
from toolcell.tools import Tool, tool

__all__ = ["Snapshot", "ToolRegistry"]

Registrable = Tool | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tools as they were at one moment. Never changes."""

    tools: Mapping[str, Tool]
    """By canonical name, in the order of registration."""
    names: Mapping[str, str]
    """Canonical name by every name and alias."""
    disabled: frozenset[str]

    def get(self, name: str) -> Tool | None:
        """The tool of that name or alias, switched on or not."""
        canonical = self.names.get(name)
        return None if canonical is None else self.tools[canonical]

    def enabled(self, name: str) -> bool:
        """Whether there is such a tool and it is switched on."""
        canonical = self.names.get(name)
        return canonical is not None and canonical not in self.disabled

    def list_tools(self, only_enabled: bool = True) -> tuple[Tool, ...]:
        """The tools in the order of registration."""
        tools = self.tools.values()
        return tuple(t for t in tools if not only_enabled or t.name not in self.disabled)

    def resolve(self, name: str) -> Tool | UnknownTool | ToolDisabled:
        """The tool to call, or why there is none to call."""
        found = self.get(name)
        if found is None:
            return self._unknown(name)
        if found.name in self.disabled:
            message = f"the tool {found.name} exists, and is switched off"
            return ToolDisabled(message=message, remedy="Only the operator can switch it on.")
        return found

    def _unknown(self, name: str) -> UnknownTool:
        usable = [n for n, canonical in self.names.items() if canonical not in self.disabled]
        close = nearest(name, usable)
        if close:
            told = f"did you mean {' or '.join(close)}?"
        elif usable:
            told = f"there are: {', '.join(t.name for t in self.list_tools()[:20])}"
        else:
            told = "there are no tools"
        message = f"there is no tool named {shown_name(name) or '(nothing)'}; {told}"
        return UnknownTool(message=message, nearest=close)


_EMPTY = Snapshot(MappingProxyType({}), MappingProxyType({}), frozenset())


class ToolRegistry:
    """Tools by name and alias. Each name means one tool; changes never reach a snapshot."""

    def __init__(self, *tools: Registrable) -> None:
        self._now = _EMPTY
        for item in tools:
            self.register(item)

    def register(
        self,
        what: Registrable | str | Mapping[str, Registrable],
        item: Registrable | None = None,
        *,
        enabled: bool = True,
    ) -> None:
        """Add tools: `register(tool)`, `register("name", tool)`, `register({"name": tool})`.

        A key given beside a tool is its name. A plain function becomes a tool. Of a mapping,
        all are added or none.

        Raises:
            ValueError: a name or alias is taken, or a schema or handler cannot be used.
            TypeError: what was given is no tool and cannot become one.
        """
        if isinstance(what, str):
            if item is None:
                raise TypeError(f"register({what!r}, …) needs the tool as well")
            given: list[Tool] = [_as_tool(item, what)]
        elif item is not None:
            raise TypeError("register takes a tool, a name and a tool, or a mapping of them")
        elif isinstance(what, Mapping):
            given = [_as_tool(below, key) for key, below in what.items()]
        else:
            given = [_as_tool(what, None)]
        tools, names = dict(self._now.tools), dict(self._now.names)
        for added in given:
            for name in (added.name, *added.aliases):
                if name in names:
                    raise ValueError(_collision(added, name, names[name]))
                names[name] = added.name
            tools[added.name] = added
        off = () if enabled else (t.name for t in given)
        self._now = Snapshot(
            MappingProxyType(tools), MappingProxyType(names), self._now.disabled.union(off)
        )

    def snapshot(self) -> Snapshot:
        """The present state, in constant time; later changes do not reach it."""
        return self._now

    def get(self, name: str) -> Tool | None:
        """The tool of that name or alias, switched on or not."""
        return self._now.get(name)

    def resolve(self, name: str) -> Tool | UnknownTool | ToolDisabled:
        """The tool to call, or why there is none to call."""
        return self._now.resolve(name)

    def list_tools(self, only_enabled: bool = True) -> list[Tool]:
        """The tools in the order of registration."""
        return list(self._now.list_tools(only_enabled))

    def enable_tool(self, name: str) -> bool:
        """Switch a tool on; whether that changed anything known."""
        return self._switch(name, on=True)

    def disable_tool(self, name: str) -> bool:
        """Switch a tool off; whether that changed anything known."""
        return self._switch(name, on=False)

    def is_tool_enabled(self, name: str) -> bool:
        """Whether there is such a tool and it is switched on."""
        return self._now.enabled(name)

    def get_tool_schemas(self, only_enabled: bool = True) -> list[dict[str, Any]]:
        """What a model is told of each tool: `{"name", "description", "input_schema"}`, copies."""
        return [
            {
                "name": t.name,
                "description": t.description,
                "input_schema": copy.deepcopy(t.input_schema),
            }
            for t in self._now.list_tools(only_enabled)
        ]

    def _switch(self, name: str, *, on: bool) -> bool:
        canonical = self._now.names.get(name)
        if canonical is None or (canonical not in self._now.disabled) is on:
            return False
        now = self._now.disabled
        disabled = now - {canonical} if on else now | {canonical}
        self._now = dataclasses.replace(self._now, disabled=disabled)
        return True

    def __len__(self) -> int:
        return len(self._now.tools)

    def __contains__(self, name: object) -> bool:
        return name in self._now.names


def _as_tool(item: Registrable, key: str | None) -> Tool:
    found = item if isinstance(item, Tool) else tool(item)
    if key is not None and key != found.name:
        found = found.renamed(key)
    if not found.trusted:
        # Now, while whoever registers it can still read the reason.
        check_schema(found.input_schema)
        _ = found.compiled, found.compiled_output, found.spec_hash
    return found


def _collision(added: Tool, name: str, owner: str) -> str:
    if name == added.name == owner:
        return f"there is a tool named {name} already; register it under another name"
    as_what = "name" if name == added.name else "alias"
    return f"the {as_what} {name} of tool {added.name} is taken by tool {owner}"
