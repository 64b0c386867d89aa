"""A metadata-rich tool set: `BaseTool` classes and `@tool` functions that say all about themselves.

The stages, tasks and keywords are those of a small agent that looks after a text collection.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import secrets
import socket
import time
from pathlib import Path
from typing import Any, ClassVar

from toolcell import (
    AccessMode,
    BaseTool,
    CallContext,
    CostTier,
    DangerLevel,
    ExecutionCategory,
    Limits,
    Network,
    Priority,
    ReadPath,
    ToolError,
    ToolMetadata,
    ToolResult,
    WritePath,
    tool,
)

MACHINE = {"has_gpu": False}
"""What this process knows of the machine; `embed` asks it before it is shown, and before a call."""


@dataclasses.dataclass
class Counted:
    """What `count_words` returns."""

    words: int
    longest: str | None


@tool(
    name="count_words",
    aliases=["wc", "words"],
    cost_tier="low",
    category="text",
    keywords=["words", "length", "statistics"],
    use_cases=["How long is a text?"],
    examples=['count_words(path="a.txt")'],
    priority_hints=["cheaper than reading the whole"],
    priority=Priority.HIGH,
    access_mode=AccessMode.READONLY,
    danger_level=DangerLevel.SAFE,
    stages=["survey", "report"],
    task_types=["analysis"],
    mandatory_keywords=["word count"],
    progress_params=["path"],
    execution_category="compute",
    availability_check=lambda: True,
    limits=Limits(open_files=64),
    network="none",
    output_model=Counted,
    is_idempotent=True,
    timeout=20,
)
def count_words(path: ReadPath, top: int | None = None, honest: bool = True) -> Any:
    """Count the words of a file. Fast and free of surprises.

    Args:
        path: the file to count
        top: only the first so many words
        honest: whether to keep to what it says that it returns
    """
    words = Path(path).read_text().split()[:top]
    if not honest:
        return {"words": "many", "longest": None}
    return Counted(len(words), max(words, key=len, default=None))


@tool(
    keywords=["surroundings"],
    network=Network.loopback(),
    limits=Limits(open_files=64),
    cost_tier="free",
)
def surroundings() -> dict[str, Any]:
    """Say what the jail gives: its limits, and whom it can speak to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    return {"open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "loopback": True}


@tool(keywords=["surroundings"], network=Network.none())
def alone() -> str:
    """Say why nobody can be spoken to, whatever network others have."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        return type(error).__name__
    return "not alone"


@tool(is_idempotent=True, category="chance", cost_tier=CostTier.FREE)
def throw(sides: int = 10**18) -> int:
    """Throw a die of many sides."""
    return secrets.randbelow(sides)


@tool(access_mode="write", execution_category="write", stages=["tidy"], priority="low")
def append(path: WritePath, text: str) -> list[int]:
    """Append a line, and say from when to when that took, on the monotonic clock."""
    began = time.monotonic_ns()
    with open(path, "a") as file:
        file.write(f"{text}\n")
    return [began, time.monotonic_ns()]


@tool(timeout=0.3, keywords=["wait"], priority=Priority.CONTEXTUAL)
def wait_for_ever() -> None:
    """Wait for what never comes."""
    while True:
        time.sleep(60)


@tool(
    access_mode=AccessMode.EXECUTE,
    danger_level=DangerLevel.CRITICAL,
    mandatory_keywords=["publish"],
)
def publish(where: str) -> str:
    """Publish the collection."""
    return f"published to {where}"


def lines_of(name: str) -> list[str]:
    """The lines of a file."""
    return Path(name).read_text().splitlines()


class Grep(BaseTool):
    """A tool as a class: a JSON Schema, and `execute`."""

    name = "grep"
    description = "Find lines that hold a text. Plain text, no patterns."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to look for"},
            "paths": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": "integer", "default": 2},
            "case": {"enum": ["exact", "any"], "default": "exact"},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    is_idempotent = True
    stages = ("survey",)
    keywords = ("find", "search", "lines")
    execution_category = "read_only"

    async def execute(self, _exec_ctx: dict[str, Any], **kwargs: Any) -> ToolResult:
        """Look through the files of the working directory."""
        text, limit = kwargs["text"], kwargs["limit"]
        fold = str.casefold if kwargs["case"] == "any" else str
        found = [
            f"{name}: {line}"
            for name in kwargs.get("paths") or sorted(os.listdir())
            for line in lines_of(name)
            if fold(text) in fold(line)
        ]
        if not found:
            return ToolResult(False, None, f"no line has {text!r}", {"looked_for": text})
        seen = {"session": _exec_ctx["session_id"], "found": len(found)}
        return ToolResult(True, found[:limit], None, seen)


class Embed(BaseTool):
    """A dear tool, with properties in the place of attributes, that needs what is not here."""

    name = "embed"
    description = "Turn a text into numbers."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }

    @property
    def cost_tier(self) -> CostTier:
        """Much."""
        return CostTier.HIGH

    @property
    def metadata(self) -> ToolMetadata:
        """Said in one place."""
        return ToolMetadata(
            category="numbers",
            keywords=["vector", "meaning"],
            priority=Priority.HIGH,
            stages=["report"],
            task_types=["analysis"],
            execution_category=ExecutionCategory.COMPUTE,
        )

    @staticmethod
    def availability_check() -> bool:
        """Whether the machine has what it takes."""
        return MACHINE["has_gpu"]

    def execute(self, _exec_ctx: CallContext, text: str) -> list[int]:
        """Not very good numbers."""
        return [len(text), len(set(text))]


class Note(BaseTool):
    """One that says nothing about itself: what selection goes by is generated."""

    name = "take_note"
    description = "Keeps a reminder for later. Nothing is sent."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"reminder": {"type": "string"}},
        "required": ["reminder"],
    }

    async def execute(self, _exec_ctx: CallContext, **kwargs: Any) -> str:
        """Refuse what is empty."""
        if not kwargs["reminder"]:
            raise ToolError("nothing to remember")
        return f"{_exec_ctx.session_id} remembers {kwargs['reminder']}"


ALL = (count_words, surroundings, alone, throw, append, wait_for_ever, publish, Grep(), Embed, Note)
