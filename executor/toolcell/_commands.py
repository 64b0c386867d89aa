"""The commands themselves, a few lines each over the library."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from toolcell._audit_commands import AUDIT
from toolcell._effects_commands import EFFECTS
from toolcell._exits import BROKEN_PIPE, CHECK, EXEC_OURS, WRONG_CALL, Refused, exec_code, run_code
from toolcell._given import STDIN, given, read_text
from toolcell._grant_commands import GRANTS, trust
from toolcell._options import ISOLATION, Flags, Output, Packs, level_of
from toolcell._policy_commands import POLICY
from toolcell._render import (
    print_json,
    say,
    show_decision,
    show_facts,
    show_failure,
    show_result,
    show_table,
)
from toolcell._retained_commands import RETAINED
from toolcell._session import Interrupted, ProgressLine, load_tools, opened, until_signalled
from toolcell.calls import ToolCall
from toolcell.results import Cancelled, ToolResult
from toolcell.settlement import refused

__all__ = ["COMMANDS", "GROUPS"]

_FLAGS: Final = Flags()
_PACKS: Final = Packs()
_OUTPUT: Final = Output()

HIDDEN_SHOWN: Final = 20
"""How many hidden names `check` names."""

ToolName = Annotated[str, Parameter(help="A tool's name or alias; see `toolcell tools`.")]
Arguments = Annotated[
    str, Parameter(help="One JSON object, - for standard input, @FILE, or key=value words.")
]


async def run(tool: ToolName, /, *arguments: Arguments, flags: Flags = _FLAGS) -> int:
    """Run one call of a tool.

    A value in key=value is JSON where it parses as JSON, else text.
    Exit code: 0 success, 1 the tool failed, 2 usage, 3 the call is wrong, 4 not permitted,
    5 a limit, 6 crashed or ended for a blocked system call, 7 confinement failed, 70 our own
    failure, 130 cancelled.
    """
    words = given(arguments)
    call = ToolCall(tool)
    line = ProgressLine(tool)

    async def work() -> ToolResult:
        async with opened(flags) as executor:
            ready = words.arguments(executor.registry.get(tool))
            return await executor.call(tool, ready, call_id=call.call_id, watch=line)

    result = await _ended(work, call, progress=line)
    return _delivered(result, flags)


async def python(file: str, /, *, flags: Flags = _FLAGS) -> int:
    """Run a file, or standard input (-), with the python tool. Exit codes as for run.

    Parameters
    ----------
    file
        A Python file, or - for standard input.
    """
    code = read_text(file if file == STDIN else f"@{file}")
    call = ToolCall("python", {"code": code})

    async def work() -> ToolResult:
        async with opened(flags) as executor:
            return await executor.call(call)

    return _delivered(await _ended(work, call, progress="python"), flags)


async def exec_(*command: str, flags: Flags = _FLAGS) -> int:
    """Run a command: write it after --. Its output and exit code pass through.

    Exit code: the command's own; 124 a limit, 125 our failure or confinement, 126 not permitted
    or not executable, 127 not found, 128+N killed by signal N, 130 cancelled.

    Parameters
    ----------
    command
        The program and its words, after --.
    """
    from dataclasses import replace

    from toolcell._passthrough import NAME, PassThrough, exec_tool, standard_input
    from toolcell_sandbox.spec import MAX_SIZE_BYTES

    if not command or not command[0]:
        raise Refused("exec needs a command: toolcell exec [flags] -- COMMAND ...")
    if any("\udc80" <= char <= "\udcff" for word in command for char in word):
        raise Refused("exec: the words of the command must be UTF-8")
    call = ToolCall(NAME, {"argv": list(command)})
    sink = None if flags.json else PassThrough()
    # All of it is passed through, so no cap may cut it silently.
    limits = replace(flags.limits(), stdin_bytes=MAX_SIZE_BYTES)

    async def work() -> ToolResult:
        async with opened(flags, extra=(exec_tool(),), limits=limits) as executor:
            return await executor.call(call, stdin=standard_input(), sink=sink)

    result = await _ended(work, call)
    code = exec_code(result)
    if flags.json:
        print_json(result.to_json())
    else:
        expected = code == BROKEN_PIPE and sink is not None and sink.readers_left
        if result.error is not None and not expected:
            show_failure(result.error)
        if flags.verbose:
            show_facts(result)
    if sink is not None and sink.lost is not None:
        say(f"the command's output could not be written: {sink.lost.strerror}")
        return EXEC_OURS
    return code


async def check(tool: ToolName, /, *arguments: Arguments, flags: Flags = _FLAGS) -> int:
    """Say what would be decided about a call, and every reason; runs nothing.

    Exit code: 0 allow, 10 ask, 11 deny, 3 the call is wrong.
    """
    from toolcell_policies import Decision
    from toolcell_sandbox.failures import FailureBase

    words = given(arguments)

    idle: list[dict[str, Any]] = []

    async def work() -> tuple[str, Decision | FailureBase, dict[str, Any]]:
        async with opened(flags) as executor:
            rules = executor.policy.rules
            idle.extend(dict(one.to_json()) for one in (() if rules is None else rules.ignored))
            found = executor.registry.get(tool)
            name = tool if found is None else found.name
            jail = {} if found is None else executor.jail_of(found)
            if found is not None and jail["workspace_mode"] in ("transaction", "read_only"):
                names, by_git = await executor.hidden()
                more = len(names) - HIDDEN_SHOWN
                jail["hidden"] = [_text(name) for name in names[:HIDDEN_SHOWN]]
                jail["hidden"] += [f"... and {more} more"] if more > 0 else []
                jail["hidden_but_tracked_by_git"] = list(map(_text, sorted(by_git)[:HIDDEN_SHOWN]))
            return name, executor.check(tool, words.arguments(found)), jail

    name, decision, jail = await until_signalled(work)
    if not isinstance(decision, Decision):
        if flags.json:
            print_json({"schema": 1, "tool_name": name, "error": decision.to_json()})
        else:
            show_failure(decision)
        return WRONG_CALL
    if flags.json:
        more = {
            "remember_options": list(decision.remember_options),
            "remedy": decision.remedy,
            "jail": jail,
            "not_counted": idle,
        }
        print_json({"schema": 1, "tool_name": name, "error": None, **decision.to_json(), **more})
    else:
        show_decision(decision, jail, idle)
    return CHECK[decision.outcome.value]


async def tools(
    *,
    packs: Packs = _PACKS,
    level: Annotated[
        Literal["full", "compact", "stub"],
        Parameter(help="How much of each tool: all, without the prose, or what a call needs."),
    ] = "full",
    dialect: Annotated[
        Literal["json-schema", "mcp", "openai", "anthropic"],
        Parameter(help="Whose words the schemas are in; all but json-schema print JSON."),
    ] = "json-schema",
    output: Output = _OUTPUT,
) -> int:
    """List the tools: what each does, and the approval level that it starts from.

    With --json or a dialect, as a model is told of them, in one JSON object.
    """
    from toolcell.builtin import builtin_tools
    from toolcell.dialects import schemas_of
    from toolcell.registry import ToolRegistry

    async def work() -> ToolRegistry:
        return ToolRegistry(*builtin_tools(), *await load_tools(packs))

    try:
        known = (await until_signalled(work)).list_tools()
        told = schemas_of(known, level, dialect)
    except ValueError as error:
        raise Refused(str(error)) from None
    if dialect != "json-schema":
        print_json({"schema": 1, "dialect": dialect, "tools": told})
        return 0
    levels = [
        max(t.access_mode.approval_level(), t.danger_level.approval_level(), t.level_floor)
        for t in known
    ]
    if output.json:
        listed = [
            {
                "name": t.name,
                "aliases": list(t.aliases),
                "access_mode": t.access_mode.value,
                "danger_level": t.danger_level.value,
                "level": approval,
                **schema,
            }
            for t, approval, schema in zip(known, levels, told, strict=True)
        ]
        print_json({"schema": 1, "dialect": dialect, "tools": listed})
        return 0
    rows = [
        [t.name, t.access_mode.value, str(approval), schema["description"]]
        for t, approval, schema in zip(known, levels, told, strict=True)
    ]
    show_table("", ["tool", "access", "level", "what it does"], rows)
    return 0


async def doctor(
    *,
    isolation: Annotated[str | None, ISOLATION] = None,
    recover: Annotated[
        bool,
        Parameter(help="Finish or undo what a killed process left half committed.", negative=()),
    ] = False,
    output: Output = _OUTPUT,
) -> int:
    """Prove each guarantee on this host, by probes that try to break it from inside a jail.

    Exit code: 0 when that level holds, else 1. With --recover it mends workspaces instead: 0 when
    each is whole.
    """
    from toolcell.doctor import findings, recovered, report

    _refuse_choices()
    if recover:
        return await until_signalled(functools.partial(recovered, as_json=output.json))
    level = level_of(isolation)
    look = functools.partial(findings, isolation=level)
    found = await until_signalled(look, progress="the probes")
    return report(found, isolation=level, as_json=output.json)


async def tour(*, output: Output = _OUTPUT) -> int:
    """Show real calls on this folder, then a hostile tool pack, and how each ended.

    Exit code: 0 when every one ended as expected, else 1.
    """
    from toolcell.tour import report, take

    _refuse_choices()
    return report(await until_signalled(take, progress="the tour"), as_json=output.json)


COMMANDS: Final[dict[str, Callable[..., Awaitable[int]]]] = {
    "run": run,
    "exec": exec_,
    "python": python,
    "check": check,
    "tools": tools,
    "trust": trust,
    "doctor": doctor,
    "tour": tour,
}
GROUPS: Final[dict[str, tuple[str, dict[str, Callable[..., Awaitable[int]]]]]] = {
    "policy": ("Whether a policy file says what is meant: lint or test it.", POLICY),
    "audit": ("What ran, by whose leave, and how it ended: show or verify it.", AUDIT),
    "grants": ("What may run without asking again: list or revoke it.", GRANTS),
    "effects": ("What was refused and parked: show, commit or drop it.", EFFECTS),
    "retained": ("What was too large to be shown: list, read or sweep it.", RETAINED),
}
"""Commands that have commands of their own, with what they are for."""


def _text(path: str) -> str:
    """A path that any program can read, whatever bytes its names are made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _refuse_choices() -> None:
    from toolcell._choices import refuse_unknown_choices

    try:
        refuse_unknown_choices()
    except ValueError as error:
        raise Refused(str(error)) from None


async def _ended(
    work: Callable[[], Awaitable[ToolResult]],
    call: ToolCall,
    *,
    progress: str | ProgressLine | None = None,
) -> ToolResult:
    """The call's result; after a signal, the result that says so, its tree being gone."""
    try:
        return await until_signalled(work, progress=progress)
    except Interrupted as interrupted:
        message = f"{interrupted}; nothing of the call runs any more"
        return refused(call, Cancelled(message=message))


def _delivered(result: ToolResult, flags: Flags) -> int:
    if flags.json:
        print_json(result.to_json())
    else:
        show_result(result, verbose=flags.verbose)
        if (
            flags.review
            and result.effects is not None
            and not result.effects.paths
            and result.success
        ):
            say("nothing was changed, so there was nothing to review")
    return run_code(result)
