"""From a jail's outcome to the one result: output validated, content worded for the model.

`settle` comes before the effects are judged, `finished` after all that can add to the content.
"""

from __future__ import annotations

import base64
import dataclasses
import traceback
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolcell._finishing import finished, plain_text
from toolcell._hints import hints
from toolcell._returned import Said, by_handler, said
from toolcell.calls import ToolCall
from toolcell.content_parts import Found, parts_of
from toolcell.errors import ToolError
from toolcell.markers import Returned
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
from toolcell_sandbox.failures import ToolError as Failed
from toolcell_sandbox.outcome import Receipt

if TYPE_CHECKING:
    from toolcell._large_output import Large

__all__ = [
    "answered",
    "defect",
    "denied",
    "finished",
    "invalid_output",
    "may_spool",
    "nudged",
    "objected",
    "refused",
    "settle",
]

PYTHON_TOOL = "toolcell.builtin.python"
REASONS_TOLD = 20
PROBLEM_CHARS_MAX = 500
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
    large: Large | None = None,
    kept_back: int = 0,
) -> ToolResult:
    """The result of a call that ran, or whose jail could not be built.

    `large` is an output that was checked already, and lies on disk. `kept_back` is how many names
    were left out of it.
    """
    failure: Any = outcome.failure
    told = said(outcome.value) if large is None else large.said
    if failure is None and large is None and tool.compiled_output is not None:
        failure = invalid_output(tool, tool.compiled_output.problems(told.output))
    metadata = by_handler(told.metadata)
    output = _with_streams(tool, outcome, told.output) if _shows_streams(tool) else told.output
    if kept_back:
        metadata["kept_back"] = kept_back
    if outcome.unconfirmed is not None:
        metadata["unconfirmed_result"] = outcome.unconfirmed
    if outcome.exec_errno is not None:
        metadata["exec_errno"] = outcome.exec_errno
    parts: tuple[dict[str, Any], ...] = ()
    if large is not None:
        metadata |= large.marks
    if failure is None:
        content, parts, problem = _shown(tool, outcome, told, output, large)
        if problem is not None:
            metadata["model_output_error"] = problem
    else:
        streams = _streams_text(outcome)
        content = f"{streams}\n{_error_text(failure)}".strip() if streams else _error_text(failure)
    words = getattr(failure, "message", "")
    if _shows_streams(tool):
        last = outcome.stdout.text()[-HINTED_CHARS:] if outcome.exit_code else ""
        words = f"{last}\n{outcome.stderr.text()}\n{words}"
    content = "\n".join([content, *(f"hint: {hint}" for hint in hints(words))])
    return ToolResult(
        call_id=call.call_id,
        tool_name=tool.name,
        success=failure is None,
        content=content,
        output=output if failure is None else None,
        summary=told.summary,
        error=failure,
        metadata=metadata,
        exit_code=outcome.exit_code,
        files_read=told.files_read if tool.trusted else None,
        terminate=told.terminate,
        repairs=repairs,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        usage=outcome.usage,
        decision=decision,
        receipt=outcome.receipt,
        truncation=None if large is None or failure is not None else large.truncation,
        retained=() if large is None or large.retained is None else (large.retained,),
        parts=parts,
    )


def answered(
    call: ToolCall,
    tool: Tool,
    answer: object,
    *,
    decision: Decision,
    repairs: tuple[dict[str, str], ...] = (),
) -> ToolResult:
    """The result of a call that the supervisor answered itself: a value, `Returned` or `ToolError`.

    No jail was built: the receipt holds nothing, and the metadata say who answered.
    """
    who = {"answered_by": "supervisor"}
    if isinstance(answer, ToolError):
        failure = Failed(message=str(answer), hint=answer.hint, retryable=answer.retryable)
        result = refused(
            call,
            failure,
            tool_name=tool.name,
            decision=decision,
            repairs=repairs,
            receipt=Receipt(),
        )
        return dataclasses.replace(result, metadata=who)
    told = said(answer.as_json() if isinstance(answer, Returned) else answer)
    return ToolResult(
        call_id=call.call_id,
        tool_name=tool.name,
        success=True,
        content=plain_text(told.output) if told.content is None else told.content,
        output=told.output,
        summary=told.summary,
        metadata={**told.metadata, **who},
        repairs=repairs,
        decision=decision,
        receipt=Receipt(),
    )


def _shown(
    tool: Tool, outcome: JailOutcome, told: Said, output: Any, large: Large | None
) -> tuple[str, tuple[dict[str, Any], ...], str | None]:
    """What the model sees of a success: text, content parts, and what went wrong with it.

    The program's own word about it counts before the handler's, and that before the rendered
    output. Where the program's function raises or returns something else, the rest goes on.
    """
    problem = None
    if tool.to_model_output is not None:
        shown = "" if large is not None else _model_output(tool.to_model_output, output)
        if isinstance(shown, Found):
            return shown.text, _images(shown), None
        if large is None and not isinstance(shown, _Problem):
            return shown, (), None
        problem = "skipped: the output is too large" if large is not None else str(shown)
    if told.content is not None:
        streams = _streams_text(outcome) if large is not None and _shows_streams(tool) else ""
        return f"{streams}\n{told.content}".lstrip("\n"), (), problem
    if _shows_streams(tool):
        return _streams_text(outcome), (), problem
    found = parts_of(output)
    if found is not None:
        return found.text, _images(found), problem
    return plain_text(output), (), problem


def _images(found: Found) -> tuple[dict[str, Any], ...]:
    return tuple(part.to_json() for part in found.parts if part.text is None)


class _Problem(str):
    """What went wrong with a program's own function, in words."""

    __slots__ = ()


def _model_output(function: Callable[[Any], object], output: Any) -> str | Found | _Problem:
    """What a program's function makes of a value: text or parts, or what went wrong.

    It runs here, in the program's process: it is the program's own code.
    """
    try:
        shown = function(output)
    except Exception as error:  # noqa: BLE001 - the program's own; the result is not lost for it
        return _Problem(f"{type(error).__name__}: {error}"[:PROBLEM_CHARS_MAX])
    if isinstance(shown, str):
        return shown
    if isinstance(shown, types.CoroutineType):
        shown.close()
        return _Problem("TypeError: it is async; it has to be a plain function")
    items = shown if isinstance(shown, list | tuple) else [shown]
    found = parts_of([_marked(item) for item in items], text_alone=True)
    if found is None:
        kind = type(shown).__name__
        return _Problem(f"TypeError: it returned {kind}, neither text nor content parts")
    return found


def _marked(item: object) -> object:
    """Text and bytes as the content parts that they mean."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, bytes | bytearray):
        return {"base64": base64.b64encode(item).decode("ascii")}
    return item


def invalid_output(tool: Tool, problems: list[dict[str, str]]) -> InvalidOutput | None:
    """The failure of an output that breaks the tool's schema; None where it does not."""
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


def may_spool(tool: Tool) -> bool:
    """Whether a large output may go to disk unseen: what lists names is looked at for them first.

    The built-in tools that do return less than that.
    """
    return not tool.trusted or _shows_streams(tool)


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
        parts.append(plain_text(value["value"]))
    return "\n".join(part for part in parts if part)


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
