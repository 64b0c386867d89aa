"""Tools as the users of each dialect write them, and what each of them is handed."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import os
from pathlib import Path
from typing import Any, ClassVar

import pydantic
import trio

from toolcell.base_tool import BaseTool
from toolcell.calls import CallContext, RunDeps
from toolcell.definition import ToolDefinition
from toolcell.errors import ToolError
from toolcell.markers import ReadPath
from toolcell.results import ToolResult
from toolcell.tools import Tool, tool


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Found:
    path: Path
    when: datetime.date
    colour: Colour
    raw: bytes


class Report(pydantic.BaseModel):
    count: int
    note: str | None = None


@tool(output_model=Report, timeout=20, is_idempotent=True, execution_category="compute")
def reported(count: int, honest: bool = True) -> Any:
    """Report a count."""
    return Report(count=count) if honest else {"count": "many"}


@tool
def rich() -> Found:
    """Return what has no JSON form of its own."""
    return Found(Path("a/b"), datetime.date(2024, 2, 29), Colour.RED, b"\xff")


# -- phases and tiers ----------------------------------------------------------------------


class Look(pydantic.BaseModel):
    path: ReadPath
    names: list[str] = []
    depth: int = pydantic.Field(default=1, le=3)


def look(args: Look, deps: RunDeps) -> ToolResult:
    if args.depth == 3:
        wrong = {"metadata": {"what": object()}} if args.names else {"metadata": {"depth": 3}}
        return ToolResult("look", False, error="too deep", summary="no", terminate=True, **wrong)
    return ToolResult(
        "look",
        True,
        content=f"{type(args).__name__} {args.path} {args.depth}",
        summary="looked",
        terminate=args.depth == 2,
        metadata={
            "phase": deps.phase,
            "extra": dict(deps.extra),
            "here": os.path.samefile(deps.workspace, "."),
            "approver": deps.approver,
        },
    )


async def look_alone(args: Look) -> list[str]:
    await trio.lowlevel.checkpoint()
    return [type(args.path).__name__, *args.names]


def look_with_context(args: Look, context: Any) -> list[Any]:
    return [type(context).__name__, context.session_id]


DEFINITIONS = [
    ToolDefinition("look", "Look.", Look, look, ("investigating", "editing")),
    ToolDefinition("look_alone", "Look alone.", Look, look_alone, {"investigating"}),
    ToolDefinition("look_with_context", "Look.", Look, look_with_context, ("investigating",)),
]


# -- metadata and modes --------------------------------------------------------------------


class Grep(BaseTool):
    name = "grep"
    description = "Search text."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "context": {"type": "integer", "default": 2},
            "options": {
                "type": "object",
                "properties": {"case": {"type": "boolean", "default": True}},
            },
        },
        "required": ["pattern"],
    }

    async def execute(self, _exec_ctx: dict[str, Any], **kwargs: Any) -> ToolResult:
        return ToolResult(True, {"who": _exec_ctx["session_id"], "given": kwargs}, None, {"n": 1})


class Counter(BaseTool):
    name = "counter"
    description = "Counts from where it was made to start."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}
    factory = f"{__name__}:counter"

    def __init__(self, start: int) -> None:
        self.start = start

    def execute(self, ctx: CallContext) -> list[Any]:
        return [self.start, ctx.agent_id]


def counter() -> Counter:
    return Counter(40)


# -- parts, registered under a key ---------------------------------------------------------


def shout(input: Look, context: CallContext) -> str:
    return f"{input.path} for {context.session_id}!"


async def plain(input: dict[str, Any]) -> Any:
    if input["text"] == "fail":
        raise ToolError("it failed")
    return {"text": input["text"], "times": input["times"]}


SHOUT = Tool.make(description="Shout.", input=Look, output=str, execute=shout)
PLAIN = Tool.make(
    description="Repeat.",
    input={
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"count": {"type": "integer", "minimum": 1}},
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "times": {"$ref": "#/definitions/count", "default": 1},
        },
        "required": ["text"],
    },
    output={"type": "object", "properties": {"times": {"maximum": 5}}},
    execute=plain,
)
