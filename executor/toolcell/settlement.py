"""From a jail's outcome to the one result: output validated, content worded for the model."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping
from typing import Any

import orjson

from toolcell._hints import hints
from toolcell.calls import ToolCall
from toolcell.markers import RETURNED
from toolcell.results import (
    Denied,
    ExecutorError,
    Failure,
    InvalidOutput,
    NotAdmitted,
    ToolResult,
)
from toolcell.tools import CommandRef, HandlerRef, Tool
from toolcell_policies import Decision, Reason, RunState
from toolcell_sandbox import JailOutcome
from toolcell_sandbox.failures import Exception as RaisedException
from toolcell_sandbox.outcome import Receipt

PYTHON_TOOL = "toolcell.builtin.python"
REASONS_TOLD = 20
HINTED_CHARS = 2_000
"""How much of a failed command's standard output is looked at for what a hint answers."""


_LAYERS = {
    "mode": ("mode_explore", "mode_plan"),
    "phase": ("phase",),
    "tier": ("tier", "tier_never"),
    "cost": ("cost",),
}
"""The ceilings, by the codes of their reasons."""


def refused(
    call: ToolCall,
    failure: Failure,
    *,
    tool_name: str | None = None,
    decision: Decision | None = None,
    repairs: tuple[dict[str, str], ...] = (),
    terminate: bool = False,
    receipt: Receipt | None = None,
) -> ToolResult:
    """The result of a call that never reached a jail."""
    return ToolResult(
        call_id=call.call_id,
        tool_name=tool_name or call.name,
        success=False,
        content=_error_text(failure),
        error=failure,
        decision=decision,
        repairs=repairs,
        terminate=terminate,
        receipt=receipt,
    )


def denied(decision: Decision) -> Denied | NotAdmitted:
    """The failure of a call that policy does not allow: every reason, and what would help."""
    if decision.denied_by == "ceiling":
        layers = {
            code: layer
            for layer, codes in _LAYERS.items()
            for code in codes
            if any(reason.code == code for reason in decision.reasons)
        }
        return NotAdmitted(
            message="this call is not admitted: "
            + "; ".join(r.text for r in decision.reasons if r.code in layers),
            layers=tuple(dict.fromkeys(layers.values())),
            reasons=decision.reasons,
            remedy=decision.remedy,
        )
    return Denied(
        message=f"policy does not allow this call: {_texts(decision.reasons)}",
        reasons=decision.reasons,
        remedy=decision.remedy,
    )


def _texts(reasons: tuple[Reason, ...]) -> str:
    """As many as a model reads; all are in the decision."""
    told = [reason.text for reason in reasons[:REASONS_TOLD]]
    more = len(reasons) - len(told)
    return "; ".join([*told, *([f"and {more:,} more reasons"] if more else [])])


def objected(reason: Reason) -> Denied:
    """The failure of a plan that came back, and is not to be answered."""
    return Denied(
        message=f"this plan does not run: {reason.text}",
        reasons=(reason,),
        remedy="prepare the call again, and ask again",
    )


def defect(error: BaseException, message: str) -> ExecutorError:
    """A failure of ours: the message is for anybody, the traceback for the operator."""
    return ExecutorError(
        message=message,
        operator_detail="".join(traceback.format_exception(error))[-8_000:],
    )


def settle(
    call: ToolCall,
    tool: Tool,
    outcome: JailOutcome,
    *,
    decision: Decision,
    repairs: tuple[dict[str, str], ...],
) -> ToolResult:
    """The result of a call that ran, or whose jail could not be built."""
    failure: Any = outcome.failure
    output, metadata, content, read = _returned(outcome.value)
    if failure is None and tool.compiled_output is not None:
        failure = _invalid(tool, tool.compiled_output.problems(output))
    if _shows_streams(tool):
        output = _with_streams(tool, outcome, output)
    if outcome.unconfirmed is not None:
        metadata["unconfirmed_result"] = outcome.unconfirmed
    if outcome.exec_errno is not None:
        metadata["exec_errno"] = outcome.exec_errno
    if failure is None:
        if content is None:
            content = _streams_text(outcome) if _shows_streams(tool) else _plain_text(output)
    else:
        streams = _streams_text(outcome)
        content = f"{streams}\n{_error_text(failure)}".strip() if streams else _error_text(failure)
    said = getattr(failure, "message", "")
    if _shows_streams(tool):
        last = outcome.stdout.text()[-HINTED_CHARS:] if outcome.exit_code else ""
        said = f"{last}\n{outcome.stderr.text()}\n{said}"
    content = "\n".join([content, *(f"hint: {hint}" for hint in hints(said))])
    return ToolResult(
        call_id=call.call_id,
        tool_name=tool.name,
        success=failure is None,
        content=content,
        output=output if failure is None else None,
        error=failure,
        metadata=metadata,
        exit_code=outcome.exit_code,
        files_read=read if tool.trusted else None,
        repairs=repairs,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        usage=outcome.usage,
        decision=decision,
        receipt=outcome.receipt,
    )


def _returned(
    value: Any,
) -> tuple[Any, dict[str, Any], str | None, tuple[str, ...] | None]:
    """A `Returned` apart: output, metadata, content, files read. Else it is the output itself."""
    if not (isinstance(value, dict) and value.keys() == {RETURNED}):
        return value, {}, None, None
    inner = value[RETURNED]
    if not isinstance(inner, dict):
        return value, {}, None, None
    metadata, content, read = (inner.get(name) for name in ("metadata", "content", "files_read"))
    return (
        inner.get("output"),
        dict(metadata) if isinstance(metadata, dict) else {},
        content if isinstance(content, str) else None,
        tuple(map(str, read)) if isinstance(read, list) else None,
    )


def _invalid(tool: Tool, problems: list[dict[str, str]]) -> InvalidOutput | None:
    if not problems:
        return None
    first = problems[0]
    return InvalidOutput(
        message=f"{tool.name} returned what its output schema does not allow, at "
        f"{first.get('path') or 'the top'}: {first.get('message')}",
        problems=tuple(problems),
    )


def nudged(result: ToolResult, run: RunState) -> ToolResult:
    """The result, with a word to an agent that goes in circles; to a program only a remark."""
    if not run.loop_text:
        return result
    content = result.content
    if run.loop != "none":
        content = f"{content}\n[toolcell: {run.loop_text}]".lstrip("\n")
    metadata = {**result.metadata, "loop": run.loop_text}
    return dataclasses.replace(result, content=content, metadata=metadata)


def _shows_streams(tool: Tool) -> bool:
    """Whether what it prints is what it is called for: a command, or the `python` tool."""
    if isinstance(tool.handler, HandlerRef):
        return tool.trusted and tool.handler.module == PYTHON_TOOL
    return True


def _with_streams(tool: Tool, outcome: JailOutcome, output: Any) -> dict[str, Any]:
    streams = {"stdout": outcome.stdout.text(), "stderr": outcome.stderr.text()}
    if isinstance(tool.handler, CommandRef):
        return {"exit_code": outcome.exit_code, **streams}
    return {**(output if isinstance(output, Mapping) else {"value": output}), **streams}


def _streams_text(outcome: JailOutcome) -> str:
    """What a program said, then how it ended, as a model can act on it."""
    parts = [outcome.stdout.text().rstrip("\n"), outcome.stderr.text().rstrip("\n")]
    if outcome.failure is None and outcome.exit_code is not None:
        parts.append(f"exit code {outcome.exit_code}")
    value = outcome.value
    if isinstance(value, Mapping) and value.get("value") is not None:
        parts.append(_plain_text(value["value"]))
    return "\n".join(part for part in parts if part)


def _plain_text(value: Any) -> str:
    """Text as it is, otherwise compact JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _error_text(failure: Failure) -> str:
    lines = [f"error: {failure.kind}: {failure.message}"]
    if isinstance(failure, RaisedException) and failure.traceback:
        lines.append(failure.traceback.rstrip())
    if isinstance(failure, Denied):
        lines += [f"- {reason.text}" for reason in failure.reasons]
    hint = getattr(failure, "hint", None)
    lines += [f"hint: {hint}"] if hint else []
    lines += [f"what would help: {failure.remedy}"] if failure.remedy else []
    return "\n".join(lines)
