"""`ToolRegistry`: which tools there are, by which names, and which of them are switched on.

A snapshot is the current state itself, so taking one costs nothing and what a call looked up
cannot change below it. Nothing here is global to the process, and a registry holds no executor
and asks nobody: it says what there is, never what may be done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from toolcell._catalogue import Catalogue, search_deferred
from toolcell._snapshot import Settler, Snapshot
from toolcell._stacks import Stacks
from toolcell._tool_search import facets_of
from toolcell.availability import refuse_async_check
from toolcell.hooks import Hook
from toolcell.registrations import PLACEMENTS, Entry, Placement, Registration, grouped
from toolcell.results import ToolDisabled, UnknownTool
from toolcell.tools import Tool, as_tool, check

__all__ = ["Registration", "Settler", "Snapshot", "ToolRegistry", "search_deferred"]

Registrable = Any
"""A `Tool`, a function, a `ToolDefinition`, or a `BaseTool`: an instance or the class."""


class ToolRegistry(Catalogue):
    """Tools by name and alias. Each name means one tool; changes never reach a snapshot.

    Any thread may use it: a change is whole or not there, and reading a snapshot takes no lock.
    """

    def __init__(self, *tools: Registrable) -> None:
        self._lock = threading.Lock()
        self._stacks = Stacks()
        self._before: tuple[Hook, ...] = ()
        self._after: tuple[Hook, ...] = ()
        # None where something has changed since; written under the lock.
        self._now: Snapshot | None = None
        if tools:
            self._add([as_tool(item, None) for item in tools])

    def register(
        self,
        what: Registrable | str | Mapping[str, Registrable],
        item: Registrable | None = None,
        *,
        enabled: bool = True,
        group: str | None = None,
        deferred: bool = False,
        placement: Placement = "application",
        shadow: bool = True,
    ) -> Registration:
        """Add tools: `register(tool)`, `register("name", tool)`, `register({"name": tool})`.

        A key given beside a tool is its name. Of a mapping, all are added or none. The latest
        registration of a name that is not closed is in effect, but one of a "location" always
        stands above one of the "application"; `shadow=False` refuses a taken name instead. With
        `group` the names become `<group>_<name>`, aliases too. `deferred` tools are not advertised:
        search finds them, and they are called as any other.

        A name that was switched off stays off when it is registered again.

        Raises:
            ValueError: a name is given twice, or is the alias of another tool; a group's name is
                too long, or is another's; a schema, handler or check cannot be used.
            TypeError: what was given is no tool and cannot become one.
        """
        if isinstance(what, str):
            if item is None:
                raise TypeError(f"register({what!r}, …) needs the tool as well")
            given = [as_tool(item, what)]
        elif item is not None:
            raise TypeError("register takes a tool, a name and a tool, or a mapping of them")
        elif isinstance(what, Mapping):
            given = [as_tool(below, key) for key, below in what.items()]
        else:
            given = [as_tool(what, None)]
        if placement not in PLACEMENTS:
            raise ValueError(f"placement {placement!r:.50} is none of: {', '.join(PLACEMENTS)}")
        return self._add(
            given,
            enabled=enabled,
            group=group,
            deferred=deferred,
            placement=placement,
            shadow=shadow,
        )

    def _add(
        self,
        given: list[Tool],
        *,
        enabled: bool = True,
        group: str | None = None,
        deferred: bool = False,
        placement: Placement = "application",
        shadow: bool = True,
    ) -> Registration:
        entries = tuple(
            Entry(
                tool=_ready(tool, group),
                placement=placement,
                group=group,
                deferred=deferred,
            )
            for tool in given
        )
        with self._lock:
            self._stacks.add(entries, enabled=enabled, shadow=shadow)
            self._now = None
        return Registration(entries, self._remove)

    def _remove(self, entries: tuple[Entry, ...]) -> None:
        with self._lock:
            if self._stacks.remove(entries):
                self._now = None

    # -- what there is --------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The present state, in constant time; later changes do not reach it."""
        now = self._now
        if now is not None:
            return now
        with self._lock:
            # Another thread may have been quicker.
            self._now = self._now or Snapshot(
                *self._stacks.shared(), before_hooks=self._before, after_hooks=self._after
            )
            return self._now

    def _seen(self) -> Snapshot:
        return self.snapshot()

    def get(self, name: str) -> Tool | None:
        """The tool of that name or alias, switched on or not."""
        with self._lock:
            return self._stacks.get(name)

    def resolve(self, name: str) -> Tool | UnknownTool | ToolDisabled:
        """The tool to call, or why there is none to call. Does not ask whether it is available."""
        return self.snapshot().resolve(name)

    def list_tools(self, only_enabled: bool = True, *, only_available: bool = False) -> list[Tool]:
        """The tools in the order of registration, deferred ones too.

        `only_available` asks each availability check.
        """
        return list(self.snapshot().list_tools(only_enabled, only_available=only_available))

    def __len__(self) -> int:
        with self._lock:
            return len(self._stacks)

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return name in self._stacks

    # -- on and off -----------------------------------------------------------------------

    def enable_tool(self, name: str) -> bool:
        """Switch a tool on; whether that changed anything known."""
        return self._switch(name, on=True)

    def disable_tool(self, name: str) -> bool:
        """Switch a tool off; whether that changed anything known.

        The name stays off, also where it is taken back and registered again.
        """
        return self._switch(name, on=False)

    def is_tool_enabled(self, name: str) -> bool:
        """Whether there is such a tool and it is switched on."""
        with self._lock:
            return self._stacks.enabled(name)

    def get_tool_states(self) -> dict[str, bool]:
        """Whether each tool is switched on, by canonical name, in the order of registration."""
        now = self.snapshot()
        return {name: name not in now.disabled for name in now.tools}

    def set_tool_states(self, states: Mapping[str, bool]) -> tuple[str, ...]:
        """Switch many on and off at once; the names that are not known.

        A name that is not known and is to be off is off from the moment it is registered, until
        it is switched on.
        """
        with self._lock:
            unknown = tuple(name for name in states if name not in self._stacks)
            for name, on in states.items():
                if name in self._stacks:
                    self._stacks.switch(name, on=bool(on))
                elif not on:
                    self._stacks.switch_off_in_advance(name)
            self._now = None
        return unknown

    def _switch(self, name: str, *, on: bool) -> bool:
        with self._lock:
            has_changed = self._stacks.switch(name, on=on)
            if has_changed:
                self._now = None
            return has_changed

    # -- hooks ----------------------------------------------------------------------------

    def register_before_hook(
        self,
        hook: Hook | Callable[..., Any],
        critical: bool = False,
        name: str | None = None,
        description: str = "",
    ) -> Hook:
        """Have a function of the program's run before each call, in the order of registration.

        It gets `(tool_name, arguments)`, and may return other arguments, which are validated.
        Where a critical one fails, the call does not run. A `Hook` is taken as it is.

        Raises:
            TypeError: it cannot be called.
        """
        made = _hook(hook, critical, name, description)
        with self._lock:
            self._before, self._now = (*self._before, made), None
        return made

    def register_after_hook(
        self,
        hook: Hook | Callable[..., Any],
        critical: bool = False,
        name: str | None = None,
        description: str = "",
    ) -> Hook:
        """Have a function of the program's run after each call, in the order of registration.

        It gets `(result)`. Where a critical one fails, so does the result, which says that what
        the call did has happened. A `Hook` is taken as it is.

        Raises:
            TypeError: it cannot be called.
        """
        made = _hook(hook, critical, name, description)
        with self._lock:
            self._after, self._now = (*self._after, made), None
        return made

    def remove_hook(self, hook: Hook) -> bool:
        """Take a hook back, wherever it was registered; whether it was."""
        with self._lock:
            before = tuple(one for one in self._before if one is not hook)
            after = tuple(one for one in self._after if one is not hook)
            has_changed = len(before) + len(after) < len(self._before) + len(self._after)
            if has_changed:
                self._before, self._after, self._now = before, after, None
            return has_changed


def _ready(tool: Tool, group: str | None) -> Tool:
    """The tool as it is registered, looked at now, while whoever registers it reads the reason."""
    found = grouped(tool, group)
    refuse_async_check(found)
    facets_of(found)
    if found is not tool and not found.trusted:
        check(found)
    return found


def _hook(
    given: Hook | Callable[..., Any], critical: bool, name: str | None, description: str
) -> Hook:
    if isinstance(given, Hook):
        return given
    if not callable(given):
        raise TypeError(f"a hook is a function, not {type(given).__name__}")
    called = name or getattr(given, "__name__", None) or type(given).__name__
    return Hook(callback=given, name=called, critical=critical, description=description)
