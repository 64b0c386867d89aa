"""search_tools: how a model finds tools that are not advertised. The supervisor answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from toolcell.errors import ToolError
from toolcell.markers import AtLeast, Returned

if TYPE_CHECKING:
    from toolcell._answered import Asked


def search_tools(text: str, limit: Annotated[int, AtLeast(1)] = 5) -> dict[str, Any]:
    """Find tools that are not listed, by words: each with what it takes, to be called by name.

    Args:
        text: words of what is wanted, or a name
        limit: how many to return at most
    """
    raise ToolError("it is answered by an executor; call it through one")


async def answer(*, asked: Asked, text: str, limit: float = 5) -> Returned:
    """The deferred tools that the words lead to, best first."""
    from toolcell.registry import search_deferred

    found = [
        {**told, "input_schema": asked.shown.tools[told["name"]].input_schema}
        for told in search_deferred(asked.shown, text, int(limit))
    ]
    content = None if found else "no tool was found; try other words"
    return Returned({"tools": found}, content=content)
