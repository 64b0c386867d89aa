"""A metadata-rich tool set at work, as users of that dialect write it: BaseTool, @tool, registries.

    python -m tests.conformance.dialects.metadata [WORKSPACE STATE_DIR]

What tools say of themselves chooses, filters and runs them; each section returns what it saw. Runs
under trio.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio
from tests.conformance.dialects import tools_of_metadata as tools

from toolcell import (
    AccessMode,
    Answer,
    ApprovalRequest,
    CallContext,
    CostTier,
    Decision,
    ExecutionCategory,
    Executor,
    Hook,
    Mode,
    Network,
    Policy,
    Priority,
    SchemaLevel,
    ToolCall,
    ToolMetadataRegistry,
    ToolRegistry,
    ToolResult,
    ToolValidationResult,
)
from toolcell.approval import unsafe_approve_all
from toolcell.results import HookFailed, InvalidArguments

FILES = {"a.txt": "the quick brown fox\nThe lazy dog\n", "b.txt": "a fox and a fox\n"}


def make(workspace: Path) -> None:
    """The collection."""
    workspace.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (workspace / name).write_text(text)


def costs(registry: ToolRegistry) -> dict[str, Any]:
    """What is affordable."""
    registry.disable_tool("append")
    found = {
        "upto": {
            str(tier): [tool.name for tool in registry.get_tools_by_cost(tier)] for tier in CostTier
        },
        "weights": [tier.weight for tier in CostTier],
        "summary": registry.get_cost_summary(),
        "summary_of_all": registry.get_cost_summary(only_enabled=False),
        "low_of_all": len(registry.get_tools_by_cost("low", only_enabled=False)),
    }
    registry.enable_tool("append")
    return found


def states(registry: ToolRegistry) -> dict[str, Any]:
    """On and off."""
    found: dict[str, Any] = {
        "changed": [
            registry.disable_tool("wc"),
            registry.disable_tool("count_words"),
            registry.disable_tool("nothing"),
        ],
        "enabled": [registry.is_tool_enabled(name) for name in ("words", "grep", "nothing")],
        "listed": [tool.name for tool in registry.list_tools(only_enabled=True)],
        "all": len(registry.list_tools(only_enabled=False)),
        "states": {name: on for name, on in registry.get_tool_states().items() if not on},
        "unknown": registry.set_tool_states({"grep": False, "count_words": True, "later": False}),
        "after": {name: registry.is_tool_enabled(name) for name in ("grep", "count_words")},
        "back": [registry.enable_tool("grep"), registry.enable_tool("grep")],
    }
    got = registry.get("words")
    found["alias"] = None if got is None else got.name
    return found


def schemas(registry: ToolRegistry) -> dict[str, Any]:
    """What a model is told, in every provider's shape, at every level."""
    found: dict[str, Any] = {"sizes": {}}
    for dialect in ("json-schema", "mcp", "openai", "anthropic"):
        told = {level: registry.get_tool_schemas(True, level, dialect) for level in SchemaLevel}
        found["sizes"][dialect] = [len(json.dumps(told[level])) for level in SchemaLevel]
        found[dialect] = {key: told[SchemaLevel.FULL][0][key] for key in told[SchemaLevel.FULL][0]}
        found[f"{dialect} stub"] = told[SchemaLevel.STUB][0]
    found["grep"] = tools.Grep().to_schema(SchemaLevel.COMPACT)
    # What a model makes of a stub alone is a valid call.
    stub = tools.Grep().to_schema(SchemaLevel.STUB)["input_schema"]
    least = dict.fromkeys(stub["required"], "x")
    found["stub_is_enough"] = tools.Grep().validate_parameters(**least)
    return found


def validation() -> dict[str, Any]:
    """What is wrong with arguments, by parameter."""
    grep = tools.Grep()
    wrong: ToolValidationResult = grep.validate_parameters_detailed(
        limit="five", paths=["a", 5], case="loud", colour="red"
    )
    return {
        "plain": [
            grep.validate_parameters(text="x"),
            grep.validate_parameters(text=5),
            tools.count_words.validate_parameters(path="a", top=None),
        ],
        "valid": wrong.valid,
        "errors": list(wrong.errors),
        "invalid_params": dict(wrong.invalid_params),
        "good": grep.validate_parameters_detailed(text="x", limit=3).valid,
    }


def selection(registry: ToolRegistry) -> dict[str, Any]:
    """Which tools a request needs: the same every time."""

    def chosen(text: str, **options: Any) -> list[str]:
        names = [tool.name for tool in registry.select_tools(text, **options)]
        assert names == [tool.name for tool in registry.select_tools(text, **options)]
        return names

    return {
        "by_words": chosen("find lines that say fox", limit=2),
        "by_stage": chosen("go on", stage="tidy", limit=1),
        "by_task": chosen("go on", task_type="analysis", limit=1),
        "forced": chosen("search, and publish what you find", limit=1),
        "contextual": ["wait_for_ever" in chosen(text) for text in ("go on", "wait a while")],
        "affordable": "count_words" in chosen("word count", max_cost=CostTier.FREE),
        "mandatory": chosen("word count", max_cost="low", limit=1),
    }


def metadata(registry: ToolRegistry) -> dict[str, Any]:
    """The index of what tools say."""
    index = ToolMetadataRegistry(registry)
    shared = ToolMetadataRegistry.get_instance()
    needed = [shared.needs_reindex(tools.ALL), shared.refresh_from_tools(tools.ALL)]
    needed += [shared.needs_reindex(tools.ALL), shared.refresh_from_tools(tools.ALL)]
    words, embed, note = map(index.get_metadata, ("wc", "embed", "take_note"))
    assert words is not None
    assert embed is not None
    assert note is not None
    return {
        "reindexed": needed,
        "same": shared is ToolMetadataRegistry.get_instance(),
        "words": {
            "name": words.name,
            "category": words.category,
            "priority": words.priority,
            "stages": list(words.stages),
            "progress_params": list(words.progress_params),
            "use_cases": list(words.use_cases),
            "examples": list(words.examples),
            "priority_hints": list(words.priority_hints),
        },
        "embed": [embed.category, str(embed.cost_tier), embed.is_explicit],
        "note": {
            "is_explicit": note.is_explicit,
            "category": note.category,
            "keywords": list(note.keywords),
            "access": [str(note.access_mode), str(note.danger_level)],
        },
        "by_category": index.get_tools_by_category("Text"),
        "by_keyword": [one.name for one in index.get_by_keyword("SEARCH")],
        "matching": index.get_tools_matching_text("search for the meaning of words"),
        "statistics": index.get_statistics(),
        "nobody": index.get_metadata("nothing"),
        "defaults": [
            str(tools.Note().cost_tier),
            tools.Note().is_idempotent,
            tools.Note().metadata,
        ],
    }


def brief(result: ToolResult) -> list[Any]:
    """Success, value and error's text, as this dialect reads them."""
    view = result.as_basic()
    return [view.success, view.output, view.error]


async def calls(box: Executor) -> dict[str, Any]:
    """Results in the words of this dialect; what is bounded by what a tool said."""
    context = CallContext(session_id="s1")
    found = await box.call("grep", {"text": "FOX", "case": "any"}, context=context)
    nothing = await box.call("grep", {"text": "cat"})
    counted = await box.call("wc", {"path": "a.txt", "top": None})
    lied = await box.call("words", {"path": "a.txt", "honest": False})
    wrong = await box.call("count_words", {"path": 5, "bottom": 1})
    noted = await box.call("take_note", {"reminder": "the milk"}, context=context)
    empty = await box.call("take_note", {"reminder": ""})
    outside = [
        await box.call("count_words", {"path": "/etc/shadow"}),
        await box.call("append", {"path": "../log.txt", "text": "x"}),
    ]
    around = await box.call("surroundings", {})
    late = await box.call("wait_for_ever", {})
    assert isinstance(wrong.error, InvalidArguments)
    return {
        "grep": [*brief(found), {key: found.metadata[key] for key in ("session", "found")}],
        "nothing": [*brief(nothing), nothing.metadata["looked_for"]],
        "counted": [counted.tool_name, *brief(counted)],
        "lied": [lied.error and lied.error.kind, lied.output],
        "wrong": [wrong.error.kind, sorted(wrong.error.valid_names)],
        "noted": brief(noted),
        "empty": brief(empty),
        "outside": [result.error and result.error.kind for result in outside],
        "around": brief(around),
        "late": late.error and late.error.kind,
    }


async def hooks(box: Executor) -> dict[str, Any]:
    """Functions of the program's around each call."""
    seen: list[Any] = []

    def stay_here(tool_name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        seen.append([tool_name, dict(arguments)])
        if tool_name == "count_words":
            return {**arguments, "path": Path(arguments["path"]).name}
        return None

    async def look(result: ToolResult) -> None:
        seen.append([result.tool_name, result.success])

    def no_long_words(result: ToolResult) -> None:
        if isinstance(result.output, Mapping) and result.output.get("words") == 7:
            raise ValueError("seven words are too many")

    registry = box.registry
    first = registry.register_before_hook(
        stay_here, critical=True, name="here", description="stays in the workspace"
    )
    looks = registry.register_after_hook(look, name="look")
    guard = registry.register_after_hook(Hook(callback=no_long_words, name="short", critical=True))
    replaced = await box.call("count_words", {"path": "/elsewhere/b.txt"})
    failed = await box.call("count_words", {"path": "a.txt", "top": 7})
    assert isinstance(failed.error, HookFailed)
    for hook in (first, looks, guard):
        registry.remove_hook(hook)
    free = await box.call("count_words", {"path": "a.txt", "top": 8})
    return {
        "seen": seen,
        "replaced": brief(replaced),
        "failed": [failed.error.kind, failed.error.hook, failed.error.effect_happened],
        "removed": free.success,
        "hook": [first.name, first.critical, first.description, guard.name],
    }


async def modes(box: Executor) -> dict[str, Any]:
    """What may be done at all: explore, plan, build."""
    found: dict[str, Any] = {}
    for mode in Mode:
        context = CallContext(mode=mode)
        wrote = await box.call("append", {"path": f"{mode}.txt", "text": "x"}, context=context)
        found[str(mode)] = {
            "hidden": sorted(
                {tool.name for tool in box.registry.list_tools(only_available=True)}
                - {one["name"] for one in box.snapshot(context).definitions}
            ),
            "append": None if wrote.error is None else wrote.error.kind,
            "kept": (Path(box.workspace.path) / f"{mode}.txt").exists(),
        }
    return found


async def availability(box: Executor) -> dict[str, Any]:
    """What the machine cannot do now is not shown, and not called."""

    async def asked() -> list[Any]:
        shown = "embed" in {one["name"] for one in box.registry.get_tool_schemas()}
        result = await box.call("embed", {"text": "ada"})
        return [shown, result.output, None if result.error is None else result.error.kind]

    before = await asked()
    tools.MACHINE["has_gpu"] = True
    now = await asked()
    explored = await box.call("embed", {"text": "ada"}, context=CallContext(mode="explore"))
    tools.MACHINE["has_gpu"] = False
    return {"before": before, "now": now, "explored": explored.error and explored.error.kind}


async def together(box: Executor) -> dict[str, Any]:
    """One turn's calls: at once where they do not disturb each other, else one after the other."""
    waiting = 0
    all_there = trio.Event()

    async def meet(tool_name: str, arguments: dict[str, Any]) -> None:
        nonlocal waiting
        if tool_name != "throw":
            return
        waiting += 1
        if waiting == 2:
            all_there.set()
        with trio.fail_after(30):
            await all_there.wait()

    hook = box.registry.register_before_hook(meet, critical=True)
    line = {"path": "log.txt", "text": "1"}
    results = await box.call_many(
        [
            ToolCall("append", line),
            ToolCall("throw", {"sides": 10**17}),
            ToolCall("throw", {"sides": 10**16}),
            ToolCall("append", {**line, "text": "2"}),
        ]
    )
    box.registry.remove_hook(hook)
    first, second = results[0].output, results[3].output
    return {
        "ok": [result.success for result in results],
        "met": waiting,
        "in_turn": first[1] <= second[0],
        "log": (Path(box.workspace.path) / "log.txt").read_text(),
        "conflicts": [
            ExecutionCategory.WRITE.conflicts_with(ExecutionCategory.READ_ONLY),
            ExecutionCategory.READ_ONLY.conflicts_with(ExecutionCategory.READ_ONLY),
            ExecutionCategory("compute").conflicts_with(ExecutionCategory.MIXED),
        ],
    }


async def cached(box: Executor) -> dict[str, Any]:
    """The same question again, while nothing was changed."""
    first = await box.call("throw", {})
    again = await box.call("throw", {})
    other = await box.call("throw", {"sides": 5 * 10**17})
    await box.call("append", {"path": "a.txt", "text": "more"})
    later = await box.call("throw", {})
    return {
        "again": again.output == first.output,
        "from": again.metadata.get("cached_from") == first.call_id,
        "other": "cached_from" in other.metadata,
        "later": "cached_from" in later.metadata,
    }


async def decisions(box: Executor, state_dir: Path) -> dict[str, Any]:
    """What would be decided, and what a person is asked."""
    asked: list[ApprovalRequest] = []

    async def person(request: ApprovalRequest) -> Answer:
        asked.append(request)
        return Answer.reject("not today")

    decision = box.check("publish", {"where": "home"})
    assert isinstance(decision, Decision)
    careful = Policy(name="careful", max_cost=CostTier.FREE)
    async with Executor(
        tools=tools.ALL,
        builtin=False,
        workspace=box.workspace.path,
        state_dir=state_dir,
        policy=careful,
        approver=person,
        network=Network.loopback(),
    ) as other:
        alone = await other.call("alone", {})
        rejected = await other.call("publish", {"where": "home"})
        dear = await other.call("count_words", {"path": "a.txt"})
    return {
        "outcome": [str(decision.outcome), decision.level],
        "reasons": sorted(reason.code for reason in decision.reasons),
        "asked": [[one.tool_name, one.level, one.stage] for one in asked],
        "rejected": rejected.error and [rejected.error.kind, rejected.error.message],
        "dear": dear.error and dear.error.kind,
        "alone": alone.output,
    }


async def main(workspace: Path, state_dir: Path) -> dict[str, Any]:
    """Every section, on one small collection of texts."""
    make(workspace)
    registry = ToolRegistry(*tools.ALL)
    asked = {
        "costs": costs(registry),
        "states": states(registry),
        "schemas": schemas(registry),
        "validation": validation(),
        "selection": selection(registry),
        "metadata": metadata(registry),
        "words": [int(Priority.CRITICAL), int(Priority.CONTEXTUAL), AccessMode("write").name],
    }
    async with Executor(
        registry,
        workspace=workspace,
        builtin=False,
        approver=unsafe_approve_all,
        state_dir=state_dir,
        cache_s=60,
    ) as box:
        sections = (calls, hooks, modes, availability, together, cached)
        ran = {section.__name__: await section(box) for section in sections}
        return {**asked, **ran, "decisions": await decisions(box, state_dir)}


if __name__ == "__main__":
    # A hook that fails is logged, with where it failed.
    logging.getLogger("toolcell").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as scratch:
        places = sys.argv[1:] or [f"{scratch}/texts", f"{scratch}/state"]
        print(json.dumps(trio.run(main, Path(places[0]), Path(places[1])), indent=1))
