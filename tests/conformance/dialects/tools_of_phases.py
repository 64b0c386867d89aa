"""The tools of a phase-gated agent: pydantic inputs, `handler(args, deps)`, phases and tiers."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from pydantic import BaseModel, Field

from toolcell import RunDeps, ToolDefinition, ToolError, ToolFailure, ToolResult


class ReadInput(BaseModel):
    """Read a text file."""

    path: str = Field(description="the file, relative to the workspace")
    first_lines: int = Field(default=50, ge=1, le=500)


def read(args: ReadInput, deps: RunDeps) -> ToolResult:
    """Reads, in the words of this dialect."""
    file = Path(deps.workspace) / args.path
    if not file.exists():
        raise ToolFailure(f"there is no {args.path}")
    text = "".join(file.read_text().splitlines(keepends=True)[: args.first_lines])
    return ToolResult(
        "read", True, content=text, summary=f"read {args.path}", files_read=[args.path]
    )


class ReplaceInput(BaseModel):
    """Replace text in a file, once."""

    path: str
    old: str = Field(min_length=1)
    new: str


def replace(args: ReplaceInput, deps: RunDeps) -> ToolResult:
    """Edits, and says that it changed more than it did: what is reported is what was observed."""
    file = Path(deps.workspace) / args.path
    text = file.read_text()
    if text.count(args.old) != 1:
        return ToolResult(
            tool_name="replace",
            success=False,
            summary="nothing replaced",
            error=f"{args.old!r} is not there exactly once",
        )
    file.write_text(text.replace(args.old, args.new))
    return ToolResult(
        tool_name="replace",
        success=True,
        content=f"replaced in {args.path}",
        summary=f"edited {args.path} as {deps.extra['author']}, {deps.phase}",
        files_changed=[args.path, "elsewhere.txt"],
    )


def place(args: ReadInput | ReplaceInput) -> list[str]:
    """Which values of an input are paths: the gate looks at them before a handler runs."""
    return [args.path]


class CheckInput(BaseModel):
    """Run a file of checks."""

    path: str


async def check(args: CheckInput) -> ToolResult:
    """Runs, and proposes that the run ends where all is well."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        runpy.run_path(args.path)
    except AssertionError as error:
        raise ToolError(f"a check failed: {error}") from None
    return ToolResult("check", True, content="checks passed", summary="done", terminate=True)


class WhyInput(BaseModel):
    """Say why."""

    why: str


def ask_for_edits(args: WhyInput, deps: RunDeps) -> ToolResult:
    """Asks whoever owns the loop to make an investigation a task that edits."""
    said = f"wants to edit: {args.why} (approver here: {deps.approver})"
    return ToolResult("ask_for_edits", True, summary=said, terminate=True)


def publish(args: WhyInput) -> str:
    """What nobody may do without a person."""
    return f"published: {args.why}"


ANYWHERE = ("investigating", "editing", "verifying")

READ = ToolDefinition("read", "Read a file.", ReadInput, read, ANYWHERE, paths=place)
REPLACE = ToolDefinition(
    "replace", "Edit a file.", ReplaceInput, replace, ("editing",), permission_tier=1, paths=place
)
CHECK = ToolDefinition("check", "Run checks.", CheckInput, check, ("verifying",), 2)
ASK_FOR_EDITS = ToolDefinition(
    name="ask_for_edits",
    description="Ask for leave to edit.",
    input_model=WhyInput,
    handler=ask_for_edits,
    phases={"investigating"},
    escalation=True,
)
PUBLISH = ToolDefinition("publish", "Publish.", WhyInput, publish, ("editing",), 3)
ERASE = ToolDefinition("erase", "Never granted.", WhyInput, publish, ("editing",), 4)

ALL = (READ, REPLACE, CHECK, ASK_FOR_EDITS, PUBLISH, ERASE)
