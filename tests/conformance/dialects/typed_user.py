"""A program by somebody who lives by the type checker: every public name, by its types.

`make types` is the test: what `assert_type` says is checked there, without running anything.
`test_identifiers.py` sees to it that no name is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, assert_never, assert_type

from pydantic import BaseModel

from toolcell import (
    AccessMode,
    Answer,
    ApprovalRequest,
    BaseTool,
    BlockingExecutor,
    CallContext,
    CostTier,
    DangerLevel,
    Decision,
    ExecutionCategory,
    Executor,
    Failure,
    Hook,
    Limits,
    Mode,
    Network,
    Policy,
    Priority,
    ReadPath,
    Registration,
    RunDeps,
    SchemaLevel,
    Snapshot,
    Tool,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolFailure,
    ToolMetadata,
    ToolMetadataRegistry,
    ToolRegistry,
    ToolResult,
    ToolRuntime,
    ToolValidationResult,
    WritePath,
    admits_transient_edit,
    is_edit_intent,
    phase_admits_tool,
    tool,
)
from toolcell.approval import deny_all, from_callback
from toolcell.context import HandlerContext
from toolcell.events import Event
from toolcell.prepared import Plan
from toolcell.results import Denied, Retained, Truncation, Verification


class Query(BaseModel):
    """What to look for."""

    path: ReadPath
    text: str


@tool
def lines(path: ReadPath, top: int = 10) -> list[str]:
    """The first lines."""
    return path.read_text().splitlines()[:top]


@tool(
    access_mode=AccessMode.WRITE,
    danger_level=DangerLevel.LOW,
    cost_tier=CostTier.LOW,
    priority=Priority.HIGH,
    execution_category=ExecutionCategory.WRITE,
    network=Network.none(),
    limits=Limits(wall_s=5, memory_bytes="512M"),
    timeout=5,
)
async def save(path: WritePath, text: str, context: CallContext) -> int:
    """Write a text."""
    if context.mode == Mode.EXPLORE:
        raise ToolError("not while exploring", retryable="no", hint="build")
    return path.write_text(text)


def find(args: Query, deps: RunDeps) -> ToolResult:
    """In the words of phases."""
    if args.text not in args.path.read_text():
        raise ToolFailure("it is not there")
    return ToolResult("find", True, summary=f"found for {deps.task_kind}")


def count(input: Query, context: HandlerContext) -> dict[str, int]:
    """In the words of parts."""
    context.progress(0, 1, "counting")
    assert_type(context.permission("readonly", [input.path]), bool)
    return {"count": input.path.read_text().count(input.text)}


class Grep(BaseTool):
    """In the words of metadata."""

    name = "grep"
    description = "Find."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}
    cost_tier = CostTier.LOW
    is_idempotent = True

    @property
    def metadata(self) -> ToolMetadata:
        """All of it."""
        return ToolMetadata(keywords=["find"], priority=Priority.LOW)

    async def execute(self, _exec_ctx: CallContext, **kwargs: Any) -> ToolResult:
        """Nothing."""
        return ToolResult(True, None, None, {})


def path_of(args: Query) -> list[Path]:
    """What the gate looks at."""
    return [args.path]


def plain_functions() -> None:
    """A tool is still the function that it was."""
    assert_type(lines(Path("a")), list[str])
    assert_type(lines.input_schema, dict[str, Any])
    assert_type(lines.validate_parameters(path="a"), bool)
    found = Grep().validate_parameters_detailed(x=1)
    assert_type(found, ToolValidationResult)
    assert_type(found.invalid_params, Mapping[str, str])
    assert_type(Grep().to_schema(SchemaLevel.STUB), dict[str, Any])
    made = Tool.make(description="Count.", input=Query, output=dict[str, int], execute=count)
    assert_type(made, Tool)


def registries(registry: ToolRegistry) -> None:
    """Registration, and what can be asked."""
    definition = ToolDefinition(
        "find", "Find.", Query, find, ("editing",), paths=lambda a: [a.path]
    )
    assert_type(registry.register(lines), Registration)
    with registry.register({"find": definition, "grep": Grep}, group="text") as scoped:
        assert_type(scoped.closed, bool)
    known = registry.get("find")
    assert_type(known, Tool | None)
    if known is not None:
        assert_type(phase_admits_tool("editing", "edit", known), bool)
        assert_type(is_edit_intent("edit", known), bool)
        assert_type(admits_transient_edit("investigate", known), bool)
    assert_type(registry.select_tools("find", max_cost=CostTier.LOW), list[Tool])
    assert_type(registry.get_cost_summary(), dict[str, list[str]])
    assert_type(registry.get_tool_states(), dict[str, bool])
    assert_type(registry.snapshot(), Snapshot)
    assert_type(registry.register_before_hook(Hook(print, "log")), Hook)
    index = ToolMetadataRegistry(registry)
    assert_type(index.get_metadata("find"), ToolMetadata | None)
    assert_type(index.get_statistics()["total_tools"], int)


async def person(request: ApprovalRequest) -> Answer:
    """Somebody who is careful."""
    return Answer.once() if request.level < 3 else Answer.reject(f"no {request.tool_name}")


async def calls(tools: Iterable[Tool]) -> ToolResult:
    """The executor, and what a call comes to."""
    async with Executor(
        tools=tools,
        workspace=".",
        policy=Policy(name="mine", max_cost=CostTier.LOW),
        approver=person,
        network=Network.loopback(),
    ) as executor:
        decision = executor.check("lines", {"path": "a"})
        assert_type(decision, Decision | Failure)
        plan = await executor.prepare("save", {"path": "a", "text": "b"})
        assert_type(executor.snapshot().definitions, list[dict[str, Any]])
        results = await executor.call_many([ToolCall("lines", {"path": "a"})])
        assert_type(results, list[ToolResult])
        result = await executor.snapshot().settle(ToolCall("lines", {"path": "a"}, "call-1"))
        assert_type(plan, Plan | Failure)
        async with executor.stream("lines", {"path": "a"}) as events:
            async for event in events:
                assert_type(event, Event)
    assert_type(result.error, Failure | None)
    assert_type(result.retained, tuple[Retained, ...])
    assert_type(result.truncation, Truncation | None)
    assert_type(result.as_phase().files_changed, list[str] | None)
    assert_type(result.as_basic().error, str | None)
    assert_type(result.as_settled().handles, tuple[str, ...])
    return result


def told(error: Failure) -> str:
    """What kind of end it is, by its class or its word."""
    match error:
        case Denied(reasons=reasons):
            return "; ".join(reason.text for reason in reasons)
        case _:
            return f"{error.kind}: {error.message} ({error.blame}, {error.retryable})"


async def runs() -> Verification:
    """The runner of phases."""
    deps = RunDeps(".", "investigating", "investigate", {"a": 1}, from_callback(lambda _: True))
    async with ToolRuntime(ToolRegistry(lines), deps) as runtime:
        assert_type(await runtime.execute("lines", {"path": "a"}), ToolResult)
        return await runtime.verify()


def without_a_loop() -> None:
    """Plain code."""
    with BlockingExecutor(workspace=".", approver=deny_all) as executor:
        assert_type(executor.call("lines", {"path": "a"}), ToolResult)


def weight(tier: CostTier) -> float:
    """An enum that is matched whole."""
    match tier:
        case CostTier.FREE | CostTier.LOW | CostTier.MEDIUM | CostTier.HIGH:
            return tier.weight
        case _:
            assert_never(tier)
