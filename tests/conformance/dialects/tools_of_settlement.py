"""Tools of parts, nameless until they are registered: input, output, `execute`, what a model sees.

Three of them edit, and share one permission action.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from toolcell import Tool, ToolError, WritePath
from toolcell.context import HandlerContext


class File(BaseModel):
    """A file, and what is to be in it."""

    path: WritePath
    text: str


class Kept(BaseModel):
    """How much was written."""

    written: int = Field(ge=0)


def write(input: File) -> Kept:
    """Write a file."""
    return Kept(written=Path(input.path).write_text(input.text))


def claim(input: File) -> dict[str, Any]:
    """Write, and say something else than was agreed."""
    Path(input.path).write_text(input.text)
    return {"written": "all of it"}


EDITS = {
    "edit": Tool.make(
        description="Edit a file.",
        input=File,
        output=Kept,
        execute=write,
        access_mode="write",
        permission_action="edit",
    ),
    "write": Tool.make(
        description="Write a file.",
        input=File,
        output=Kept,
        execute=write,
        permission_action="edit",
    ),
    "patch": Tool.make(
        description="Patch a file, and return what was not agreed.",
        input=File,
        output=Kept,
        execute=claim,
        permission_action="edit",
    ),
}


class Size(BaseModel):
    """How much."""

    rows: int = Field(ge=0, le=100_000)


class Row(BaseModel):
    """One of many."""

    id: int
    twice: int


def table(input: Size) -> list[Row]:
    """A table, as large as one likes."""
    return [Row(id=number, twice=2 * number) for number in range(input.rows)]


def worded(rows: list[dict[str, int]]) -> str:
    """What a model is shown of a table."""
    return f"{len(rows)} rows, the last is {rows[-1] if rows else 'nowhere'}"


TABLES = {
    "table": Tool.make(
        description="A table of numbers.", input=Size, output=list[Row], execute=table
    ),
    "summary": Tool.make(
        description="A table in words.",
        input=Size,
        output=list[Row],
        execute=table,
        to_model_output=worded,
    ),
}


class Pattern(BaseModel):
    """Which files."""

    suffix: str = Field(pattern=r"\.[a-z]+")


def clean(input: Pattern, context: HandlerContext) -> dict[str, Any]:
    """Remove what is found, as far as whoever is asked allows it."""
    found = sorted(name for name in os.listdir() if name.endswith(input.suffix))
    if not found:
        raise ToolError(f"no file ends with {input.suffix}", hint="List the files first.")
    kept, removed = [], []
    for number, name in enumerate(found, 1):
        context.progress(number, len(found), name)
        print(f"looking at {name}", flush=True)
        if context.permission("edit", [Path(name).resolve()]):
            os.unlink(name)
            removed.append(name)
        else:
            kept.append(name)
    return {"removed": removed, "kept": kept, "for": [context.session_id, context.deps["team"]]}


CLEAN = Tool.make(
    description="Remove files by their suffix.",
    input=Pattern,
    output={"type": "object", "required": ["removed", "kept"]},
    execute=clean,
    access_mode="write",
    permission_action="edit",
)
