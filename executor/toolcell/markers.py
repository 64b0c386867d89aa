"""What a handler writes beside its annotations, and what it may return. Light: runs in jails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

__all__ = [
    "RETURNED",
    "SETTLED",
    "Above",
    "AtLeast",
    "PathRole",
    "ReadPath",
    "Returned",
    "WritePath",
]

SETTLED: dict[str, str] = {}
"""In a jail: each path argument of a built-in tool, and where it led when it was decided on."""

RETURNED = "__toolcell_returned__"
"""The one key of the object that `Returned` becomes on its way out of the jail."""


class PathRole(StrEnum):
    """What a tool does with the path in an argument. The gate checks it before the jail starts."""

    READ = "read"
    WRITE = "write"

    @property
    def note(self) -> str:
        """The words that the JSON Schema says about such an argument."""
        return f"a path to {self.value}, relative to the workspace or absolute"

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "description": self.note}


ReadPath = Annotated[Path, PathRole.READ]
"""An argument that names a file or folder to read. JSON: a string; handler: a `Path`."""

WritePath = Annotated[Path, PathRole.WRITE]
"""An argument that names a file or folder to write. It makes the tool's access mode `write`."""


class AtLeast:
    """`Annotated[int, AtLeast(1)]`: the schema's `minimum`, without pydantic in the jail."""

    keyword = "minimum"
    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core_schema), self.keyword: self.value}


class Above(AtLeast):
    """`Annotated[float, Above(0)]`: the schema's `exclusiveMinimum`."""

    keyword = "exclusiveMinimum"
    __slots__ = ()


class Returned:
    """A handler's value together with what should be said about it.

    `output` is the value, as if it had been returned alone. `metadata` is merged into the
    result's. `content` is what the model sees instead of the rendered output; None means
    rendered. `files_read` are the paths that were read, which counts for built-in tools only.
    `summary` is one line about it, `terminate` a proposal to end the run.
    Leaves the jail as `{RETURNED: {"output", "metadata", "content", "files_read"}}`, with
    "summary" and "terminate" where they say something, which any handler could also return by
    hand: it is a convenience, and no claim in it is trusted.
    """

    __slots__ = ("content", "files_read", "metadata", "output", "summary", "terminate")

    def __init__(
        self,
        output: object,
        metadata: Mapping[str, object] | None = None,
        content: str | None = None,
        files_read: Sequence[str] | None = None,
        summary: str | None = None,
        terminate: bool = False,
    ) -> None:
        self.output = output
        self.metadata = dict(metadata or {})
        self.content = content
        self.files_read = None if files_read is None else list(files_read)
        self.summary = summary
        self.terminate = terminate

    def as_json(self) -> dict[str, dict[str, object]]:
        """The object that crosses the private channel."""
        found = {
            "output": self.output,
            "metadata": self.metadata,
            "content": self.content,
            "files_read": self.files_read,
            **({"summary": self.summary} if self.summary else {}),
            **({"terminate": True} if self.terminate else {}),
        }
        return {RETURNED: found}
