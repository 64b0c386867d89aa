"""A scoped registry and its settlement, as users of that dialect write it: Tool.make, snapshots.

    python -m tests.conformance.dialects.settlement [WORKSPACE STATE_DIR]

Registrations come and go; a request takes a snapshot, shows its definitions and settles calls.
Runs under asyncio, and at the end without any loop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance.dialects import tools_of_scopes as light
from tests.conformance.dialects import tools_of_settlement as tools

from toolcell import (
    Answer,
    ApprovalRequest,
    BlockingExecutor,
    CallContext,
    Executor,
    Registration,
    Snapshot,
    ToolCall,
    ToolRegistry,
    ToolResult,
)
from toolcell.approval import from_callback
from toolcell.events import Answered, Output, Progress

FILES = {"a.tmp": "1", "b.tmp": "2", "c.txt": "3"}
REPORTS = {**tools.TABLES, **light.REPORTS}
NO_EDITS = """\
[[rule]]
id = "look-only"
action = "edit"
outcome = "deny"
reason = "this week nothing is changed"
"""


def make(workspace: Path) -> None:
    """The workspace."""
    workspace.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (workspace / name).write_text(text)


def write_text(file: Path, text: str) -> None:
    """Put a text in a file."""
    file.write_text(text)


def text_of(file: Path) -> str:
    """What is in it."""
    return file.read_text()


class Session:
    """One conversation with a model: whose calls are settled through snapshots."""

    def __init__(self, workspace: Path, state_dir: Path, **options: Any) -> None:
        self.registry = ToolRegistry()
        self.context = CallContext(session_id="s-1", agent_id="main", message_id="m-7")
        self.asked: list[ApprovalRequest] = []
        self.box = Executor(
            self.registry,
            workspace=workspace,
            state_dir=state_dir,
            approver=from_callback(self._answer),
            deps={"team": "blue"},
            **options,
        )

    def _answer(self, request: ApprovalRequest) -> Answer | bool:
        self.asked.append(request)
        if "source" not in request.arguments:
            return True
        return "b.tmp" not in str(request.arguments["resources"])

    def shown(self) -> Snapshot:
        """What the model is shown next."""
        return self.box.snapshot(self.context)

    async def settle(self, name: str, arguments: dict[str, Any] | None = None) -> ToolResult:
        """One call of a new request."""
        return await self.shown().settle(ToolCall(name, arguments or {}))


def kind(result: ToolResult) -> str | None:
    """How it failed, if it did."""
    return None if result.error is None else result.error.kind


async def scopes(session: Session) -> dict[str, Any]:
    """The latest registration of a name counts, and closing it reveals the one before."""
    registry = session.registry
    found: dict[str, Any] = {}

    async def note(when: str) -> None:
        # In other words each time: the same call over and over is taken for a circle.
        result = await session.settle("hello", {"whom": when})
        found[when] = result.output or kind(result)

    await note("before")
    app = registry.register({"hello": light.HELLO})
    await note("application")
    here = registry.register("hello", light.HERE, placement="location")
    again = registry.register({"hello": light.NOW})
    await note("location")
    here.close()
    here.close()
    await note("latest")
    again.close()
    with registry.register({"hello": light.NOW}) as scoped:
        assert isinstance(scoped, Registration)
        shown = session.shown()
        await note("within")
    await note("revealed")
    # A request goes on with what it was shown, unless it asks to be told.
    captured = await shown.settle(ToolCall("hello", {"whom": "captured"}))
    stale = await shown.settle(ToolCall("hello", {"whom": "stale"}), refuse_stale=True)
    definition = next(one for one in shown.definitions if one["name"] == "hello")
    app.close()
    await note("after")
    found |= {
        "captured": captured.output,
        "stale": kind(stale),
        "closed": [each.closed for each in (app, here, again, scoped)],
        "definition": definition,
    }
    return found


async def groups(session: Session) -> dict[str, Any]:
    """Names below a group; tools that are found rather than shown; tools that are off."""
    registry = session.registry
    own = registry.register(REPORTS, group="report", deferred=True)
    off = registry.register({"hello": light.HELLO}, group="off", enabled=False)
    shown = session.shown()
    names = [one["name"] for one in shown.definitions]
    called = await shown.settle(ToolCall("report_table", {"rows": 2}))
    disabled = await shown.settle(ToolCall("off_hello", {}))
    found = {
        "registered": list(own.names),
        "shown": [name for name in names if name.startswith(("report", "off"))],
        "searched": [tool.name for tool in shown.search("a table of numbers", limit=2)],
        "called": [called.output, called.as_settled().value == called.output],
        "disabled": kind(disabled),
        "in_order": names == [one["name"] for one in session.shown().definitions],
    }
    try:
        registry.register({"table": light.HELLO}, group="g" * 60)
    except ValueError as error:
        found["too_long"] = "at most 64" in str(error)
    own.close()
    off.close()
    return found


async def settlement(session: Session) -> dict[str, Any]:
    """What a model is shown of a value; what is left out of it, exactly; how to read the rest."""
    session.registry.register({**REPORTS, **tools.EDITS})
    small = await session.settle("table", {"rows": 2})
    large = await session.settle("table", {"rows": 4_000})
    text = await session.settle("log", {"rows": 100})
    picture = await session.settle("picture", {})
    worded = await session.settle("summary", {"rows": 3})
    wrote = await session.settle("edit", {"path": "new.txt", "text": "new"})
    lied = await session.settle("patch", {"path": "c.txt", "text": "changed"})
    view = large.as_settled()
    whole = await pages(session, view.handles[0])
    assert large.truncation is not None
    assert text.truncation is not None
    left_out = {
        name: one.to_json() for name, one in (("json", large.truncation), ("text", text.truncation))
    }
    stranger = CallContext(session_id="s-2")
    page = {"handle": view.handles[0], "offset": 0, "limit": 10}
    refused = await session.box.call("read_retained", page, context=stranger)
    parts = picture.as_settled().parts
    return {
        "small": [small.output, small.content, list(small.as_settled().handles)],
        "large": {
            "is_whole": len(large.output),
            "content": large.content.splitlines()[0].replace(view.handles[0], "HANDLE"),
            "bytes": len(large.content.encode()),
            "retained": [[one.what, one.size_bytes, one.media_type] for one in large.retained],
            "read_back": json.loads(whole) == large.output,
            "opaque": str(session.box.state_dir) in json.dumps(large.to_json()),
            "stranger": kind(refused),
        },
        "text": {
            "lines": len(text.content.splitlines()),
            "first": text.content.splitlines()[0],
            "last": text.content.splitlines()[-1],
            "read_back": await pages(session, text.retained[0].handle) == text.output,
        },
        "left_out": left_out,
        "picture": {
            "content": picture.content,
            "parts": [[part["type"], part.get("mime_type")] for part in parts],
            "is_png": base64.b64decode(parts[-1]["data"]).startswith(b"\x89PNG"),
        },
        "worded": [worded.content, worded.output[-1]],
        "wrote": [wrote.output, list(wrote.files_changed or ())],
        "lied": [kind(lied), list(lied.files_changed or ())],
        "error": lied.as_settled().error is not None,
    }


async def pages(session: Session, handle: str) -> str:
    """All that is behind a handle, as a model reads it."""
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await session.settle("read_retained", {"handle": handle, "offset": offset})
        found.append(page.output["text"])
        offset = page.output["next_offset"]
    return "".join(found)


async def midcall(session: Session) -> dict[str, Any]:
    """A handler says how far it is, and asks about what it only now knows."""
    session.registry.register({"clean": tools.CLEAN})
    session.asked.clear()
    call = ToolCall("clean", {"suffix": ".tmp"}, "call-1")
    text, steps, answers, order = "", [], [], []
    async with session.box.stream(call, context=session.context) as watched:
        async for event in watched:
            order.append(type(event).__name__)
            match event:
                case Output(stream="stdout", text=more):
                    text += more
                case Progress():
                    steps.append(event)
                case Answered(allowed=allowed):
                    answers.append(allowed)
    result = watched.result
    assert result is not None
    nothing = await session.settle("clean", {"suffix": ".none"})
    source = dict(session.asked[1].arguments["source"])
    return {
        "output": result.output,
        "changed": list(result.files_changed or ()),
        "permissions": [
            [one["action"], [Path(path).name for path in one["resources"]], one["answer"]]
            for one in result.metadata["permissions"]
        ],
        "source": {name: source[name] for name in sorted(source)},
        "asked": [one.tool_name for one in session.asked],
        "order": [order[0], order.count("Asked"), order[-1]],
        "text": text,
        "last_step": [steps[-1].done, steps[-1].total, steps[-1].message],
        "steps": len(steps) + sum(step.left_out for step in steps),
        "answers": answers,
        "ended": event is result,
        "nothing": [kind(nothing), nothing.content],
    }


async def rules(workspace: Path, state_dir: Path) -> dict[str, Any]:
    """One rule about an action hides, and denies, all tools that share it."""
    policy = state_dir.parent / "no-edits.toml"
    write_text(policy, NO_EDITS)
    session = Session(workspace, state_dir, policy=policy)
    session.registry.register({**tools.EDITS, "clean": tools.CLEAN, "hello": light.HELLO})
    async with session.box:
        shown = [one["name"] for one in session.shown().definitions]
        results = [
            await session.settle(name, {"path": "c.txt", "text": "4"}) for name in tools.EDITS
        ]
    listed = session.registry.list_tools()
    return {
        "shared": [tool.name for tool in listed if tool.action == "edit"],
        "shown": [name for name in (*tools.EDITS, "clean", "hello") if name in shown],
        "denied": [kind(result) for result in results],
        "text": [result.error_text for result in results[:1]],
        "left": text_of(workspace / "c.txt"),
    }


async def main(workspace: Path, state_dir: Path) -> dict[str, Any]:
    """Every section, in one session; then the same tools under a rule."""
    make(workspace)
    session = Session(workspace, state_dir)
    async with session.box:
        sections = (scopes, groups, settlement, midcall)
        found = {section.__name__: await section(session) for section in sections}
    return {**found, "rules": await rules(workspace, state_dir)}


def plain(workspace: Path, state_dir: Path) -> dict[str, Any]:
    """The same registry from code that awaits nothing."""
    registry = ToolRegistry()
    registry.register({"hello": light.HELLO})
    shown = registry.snapshot()
    with BlockingExecutor(registry, workspace=workspace, state_dir=state_dir) as box:
        with registry.register({"hello": light.NOW}):
            now = box.call("hello", {"whom": "now"})
            stale = box.call("hello", {"whom": "x"}, snapshot=shown, refuse_stale=True)
        with box.stream("hello", {"whom": "watched"}) as events:
            names = [type(event).__name__ for event in events]
        results = box.call_many([ToolCall("hello", {"whom": "one"}), ToolCall("no_such_tool")])
    return {
        "now": now.output,
        "stale": kind(stale),
        "events": names,
        "many": [result.output or kind(result) for result in results],
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        places = sys.argv[1:] or [f"{scratch}/workspace", f"{scratch}/state"]
        workspace, state_dir = map(Path, places)
        found = asyncio.run(main(workspace, state_dir))
        print(json.dumps({**found, "plain": plain(workspace, state_dir)}, indent=1))
