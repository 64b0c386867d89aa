"""A phase-gated runner, as users of that dialect write it: ToolDefinition, RunDeps, ToolRuntime.

    python -m tests.conformance.dialects.phases [WORKSPACE STATE_DIR]

Investigating, editing, verifying. The model's turns are a list; what happened is returned. Runs
under asyncio.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance.dialects import tools_of_phases as tools

from toolcell import (
    Answer,
    ApprovalRequest,
    RunDeps,
    ToolRegistry,
    ToolResult,
    ToolRuntime,
    admits_transient_edit,
    is_edit_intent,
    phase_admits_tool,
)
from toolcell.approval import from_callback

FILES = {
    "app.py": "def half(n):\n    return n / 2\n",
    "checks.py": "from app import half\nassert half(5) == 2, half(5)\n",
}

# What the model says, turn by turn.
EDIT = (
    ("read", {"path": "app.py"}),
    ("check", {"path": "checks.py"}),
    ("replace", {"path": "app.py", "old": "n / 3", "new": "n // 2"}),
    ("replace", {"path": "app.py", "old": "n / 2", "new": "n // 2"}),
    ("read", {"path": "/etc/shadow"}),
    ("replace", {"path": "../outside.txt", "old": "a", "new": "b"}),
    ("replace", {"path": "app.py", "old": ""}),
    ("erase", {"why": "tidy"}),
    ("publish", {"why": "it is done"}),
    ("replace", {"path": "app.py", "old": "half", "new": "third"}),
    ("check", {"path": "checks.py"}),
)
INVESTIGATE = (
    ("replace", {"path": "app.py", "old": "return", "new": "print(n)\n    return"}),
    ("read", {"path": "nowhere.py"}),
    ("replace", {"path": "app.py", "old": "print(n)\n    return", "new": "return"}),
    ("ask_for_edits", {"why": "half rounds"}),
)


class Runner:
    """Moves through the phases of one task as its model calls tools."""

    def __init__(self, workspace: Path, task_kind: str, **options: Any) -> None:
        self.registry = ToolRegistry(*tools.ALL)
        self.asked: list[ApprovalRequest] = []
        self.deps = RunDeps(
            workspace=workspace,
            phase="investigating",
            task_kind=task_kind,
            extra={"author": "ada"},
            approver=from_callback(self._answer),
        )
        self.runtime = ToolRuntime(self.registry, self.deps, **options)
        self.log: list[dict[str, Any]] = []

    async def run(self, turns: Any) -> dict[str, Any]:
        """The model's calls, one after the other, and what became of each."""
        offered: dict[str, list[str]] = {}
        verified: list[Any] = []
        async with self.runtime:
            for name, raw_input in turns:
                offered.setdefault(str(self.deps.phase), self._offered())
                self._move_on(name)
                result = await self.runtime.execute(name, raw_input)
                self._note(name, result)
                if self._edits_must_go(name):
                    found = await self.runtime.verify()
                    verified.append([found.ok, found.text])
                if result.terminate and self.deps.phase == "verifying":
                    break
                if result.terminate:
                    self._phase("verifying")
            offered.setdefault(str(self.deps.phase), self._offered())
        return {
            "offered": offered,
            "calls": self.log,
            "asked": [[one.tool_name, one.level, dict(one.arguments)] for one in self.asked],
            "verified": verified,
        }

    def _phase(self, phase: str) -> None:
        self.deps = self.runtime.deps = dataclasses.replace(self.deps, phase=phase)

    def _move_on(self, name: str) -> None:
        """The first edit of a task that is about edits begins them."""
        tool = self.registry.get(name)
        assert tool is not None
        begins = self.deps.phase == "investigating" and is_edit_intent(self.deps.task_kind, tool)
        if begins and phase_admits_tool(self.deps.phase, self.deps.task_kind, tool):
            self._phase("editing")

    def _edits_must_go(self, name: str) -> bool:
        tool = self.registry.get(name)
        return tool is not None and admits_transient_edit(self.deps.task_kind, tool)

    def _offered(self) -> list[str]:
        """What the model is shown: what the runtime would call, and no more than the phase has."""
        phase, kind = self.deps.phase, self.deps.task_kind
        admitted = [tool.name for tool in self.registry.admitted_for(phase, kind)]
        shown = [tool.name for tool in self.runtime.active_tools()]
        # The tier that is never granted, the registry does not know about.
        assert set(shown) == set(admitted) - {"erase"}, (shown, admitted)
        return shown

    def _note(self, name: str, result: ToolResult) -> None:
        view = result.as_phase()
        self.log.append(
            {
                "tool": name,
                "phase": str(self.deps.phase),
                "success": view.success,
                "kind": None if result.error is None else result.error.kind,
                "content": view.content,
                "summary": view.summary,
                "files_read": view.files_read,
                "files_changed": view.files_changed,
                "terminate": view.terminate,
            }
        )

    def _answer(self, request: ApprovalRequest) -> Answer:
        """What the person of this run says: edits all along, checks each time, no publishing."""
        self.asked.append(request)
        if request.tool_name == "publish":
            return Answer.stop("not on a Friday")
        if "session" in request.remember_options:
            return Answer.remember("session")
        return Answer.once()


def make(workspace: Path) -> None:
    """The checkout, and a file beside it."""
    workspace.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (workspace / name).write_text(text)
    (workspace.parent / "outside.txt").write_text("a")


def text_of(file: Path) -> str:
    """What is in it."""
    return file.read_text()


async def main(workspace: Path, state_dir: Path) -> dict[str, Any]:
    """Both kinds of task on one small checkout."""
    make(workspace)
    found: dict[str, Any] = {}
    for kind, turns in (("investigate", INVESTIGATE), ("edit", EDIT)):
        runner = Runner(workspace, kind, state_dir=state_dir)
        found[kind] = await runner.run(turns)
    # Without `async with`, and without an approver, the same things hold.
    alone = ToolRuntime(runner.registry, RunDeps(workspace, "editing", "edit"), state_dir=state_dir)
    result = await alone.execute("publish", {"why": "nobody is there"})
    found["nobody"] = None if result.error is None else result.error.kind
    found["by_phase"] = {
        phase: [tool.name for tool in runner.registry.active_for_phase(phase)]
        for phase in ("investigating", "editing", "verifying", "resting")
    }
    found["left"] = {name: text_of(workspace / name) for name in FILES}
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        places = sys.argv[1:] or [f"{scratch}/checkout", f"{scratch}/state"]
        found = asyncio.run(main(Path(places[0]), Path(places[1])))
        print(json.dumps(found, indent=1))
