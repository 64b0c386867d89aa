"""`Snapshot`: the tools as they were at one moment, for one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolcell._arguments import shown_name
from toolcell._catalogue import Catalogue
from toolcell._problems import nearest
from toolcell.availability import unavailable
from toolcell.calls import ToolCall
from toolcell.hooks import Hook
from toolcell.results import ToolDisabled, ToolResult, ToolStale, UnknownTool
from toolcell.tools import Tool

LISTED_MAX = 20
"""Names that an unknown one is answered with."""


class Settler(Protocol):
    """What runs a call with the tools of the snapshot that it belongs to."""

    async def __call__(self, call: ToolCall, *, refuse_stale: bool = False) -> ToolResult: ...


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(Catalogue):
    """The tools as they were at one moment. Never changes, and can be read from any thread.

    A call that is given the snapshot uses the tools in it, whatever was registered since.
    """

    tools: Mapping[str, Tool]
    """Those in effect, by canonical name; a name keeps its place when it is registered again."""
    names: Mapping[str, str]
    """Canonical name by every name and alias."""
    disabled: frozenset[str]
    deferred: frozenset[str] = frozenset()
    """Not advertised: found by search, and callable as any other."""
    before_hooks: tuple[Hook, ...] = ()
    after_hooks: tuple[Hook, ...] = ()
    is_shown: Callable[[Tool], bool] | None = None
    """What hides a tool from those who list, select and search; no authorization."""
    settler: Settler | None = None

    def _seen(self) -> Snapshot:
        return self

    def get(self, name: str) -> Tool | None:
        """The tool of that name or alias, switched on or not."""
        canonical = self.names.get(name)
        return None if canonical is None else self.tools[canonical]

    def enabled(self, name: str) -> bool:
        """Whether there is such a tool and it is switched on."""
        canonical = self.names.get(name)
        return canonical is not None and canonical not in self.disabled

    def is_visible(self, tool: Tool) -> bool:
        """Whether a tool is neither hidden nor unavailable now; asks its availability check."""
        if self.is_shown is not None and not self.is_shown(tool):
            return False
        return tool.availability_check is None or unavailable(tool) is None

    def list_tools(
        self, only_enabled: bool = True, *, only_available: bool = False
    ) -> tuple[Tool, ...]:
        """The tools in the order of registration, deferred ones too.

        `only_available` asks each availability check, and leaves out what is hidden.
        """
        return tuple(
            tool
            for tool in self.tools.values()
            if not (only_enabled and tool.name in self.disabled)
            and (not only_available or self.is_visible(tool))
        )

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """What to advertise: `{"name", "description", "input_schema"}` of each tool that is shown.

        In the order of registration; copies. Not among them is what is off, deferred, unavailable
        now or hidden.
        """
        told = ("name", "description", "input_schema")
        return [{key: schema[key] for key in told} for schema in self.get_tool_schemas()]

    def search(self, text: str, limit: int = 10) -> list[Tool]:
        """`search_tools`."""
        return self.search_tools(text, limit)

    def resolve(self, name: str) -> Tool | UnknownTool | ToolDisabled:
        """The tool to call, or why there is none to call. Does not ask whether it is available."""
        found = self.get(name)
        if found is None:
            return self._unknown(name)
        if found.name in self.disabled:
            message = f"the tool {found.name} exists, and is switched off"
            return ToolDisabled(message=message, remedy="Only the operator can switch it on.")
        return found

    def digest_of(self, name: str) -> str | None:
        """The spec hash of the tool of that name or alias; None where there is none."""
        found = self.get(name)
        return None if found is None else found.spec_hash

    def stale(self, name: str, now: Snapshot) -> ToolStale | None:
        """Whether that name means another tool by `now`, or none; None where it is the same.

        The same is what has the same spec hash, whoever registered it. A name that is not in this
        snapshot cannot be stale.
        """
        shown, current = self.get(name), now.get(name)
        if shown is None or shown is current:
            return None
        if current is not None and current.spec_hash == shown.spec_hash:
            return None
        cause = "it was taken back" if current is None else "it was replaced by another"
        return ToolStale(
            message=f"the tool {shown.name} is not the one that was shown: {cause}",
            cause=cause,
            remedy="List the tools again, and call what is there now.",
        )

    async def settle(self, call: ToolCall, *, refuse_stale: bool = False) -> ToolResult:
        """Run a call with these tools; how it ended. Cancelled, as `Executor.call`.

        With `refuse_stale` it is `tool_stale` where the tool is another one by now.

        Raises:
            RuntimeError: the snapshot is a registry's, which can run nothing.
        """
        if self.settler is None:
            raise RuntimeError(
                "a registry's snapshot cannot run calls: take it from an executor: "
                "executor.snapshot()"
            )
        return await self.settler(call, refuse_stale=refuse_stale)

    def _unknown(self, name: str) -> UnknownTool:
        usable = [n for n, canonical in self.names.items() if canonical not in self.disabled]
        close = nearest(name, usable)
        listed = [t.name for t in self.list_tools() if t.name not in self.deferred]
        if close:
            told = f"did you mean {' or '.join(close)}?"
        elif listed:
            told = f"there are: {', '.join(listed[:LISTED_MAX])}"
        elif usable:
            told = "search for one"
        else:
            told = "there are no tools"
        message = f"there is no tool named {shown_name(name) or '(nothing)'}; {told}"
        return UnknownTool(message=message, nearest=close)
