"""The road of one call, straight down.

resolve → validate → decide → approve → confine → run → settle
"""

from __future__ import annotations

import dataclasses
import logging
import os
import traceback
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import trio

from toolcell.approval import Approver, approve, ask_terminal, deny_all
from toolcell.audit import Audit
from toolcell.calls import CallContext, ToolCall, new_call_id
from toolcell.confinement import Workspace, confine
from toolcell.planning import Plan, Planner
from toolcell.registry import ToolRegistry
from toolcell.results import (
    Denied,
    ExecutorError,
    InvalidArguments,
    ToolDisabled,
    ToolResult,
    UnknownTool,
)
from toolcell.schema import Validated, validate
from toolcell.settlement import refused, settle
from toolcell.tools import Tool
from toolcell_policies import Decision, Outcome
from toolcell_sandbox import StdinTooLarge, run_in_jail
from toolcell_sandbox.spec import Limits, Network, check_environment

if TYPE_CHECKING:
    from toolcell_sandbox._call import Sink

_log = logging.getLogger("toolcell")

Stdin = bytes | AsyncIterable[bytes] | None

CONCURRENT_CALLS = 64
"""Calls at once unless `max_concurrency` says otherwise: each holds some ten descriptors."""


def default_state_dir() -> str:
    """`TOOLCELL_STATE_DIR`, else the user's state folder of this platform."""
    named = os.environ.get("TOOLCELL_STATE_DIR")
    if named:
        return os.path.abspath(named)
    import platformdirs

    return platformdirs.user_state_dir("toolcell")


def refuse_unknown_choices(*, policy: str | None = None, isolation: str | None = None) -> None:
    """What was chosen, by argument or by environment, is offered, or nothing runs.

    Raises:
        ValueError: TOOLCELL_POLICY, TOOLCELL_ISOLATION or the argument names what this version
            has not got; it never slides to what it has.
    """
    for what, given in (("policy", policy), ("isolation", isolation)):
        chosen = given or os.environ.get(f"TOOLCELL_{what.upper()}") or "standard"
        if chosen != "standard":
            raise ValueError(f"{what} {chosen!r} is not offered; this version has 'standard'")


def _check_types(
    limits: object, network: object, approver: object, max_concurrency: int | None
) -> None:
    for name, value, kind in (("limits", limits, Limits), ("network", network, Network)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} takes a {kind.__name__}, not {type(value).__name__}")
    if not callable(approver):
        raise TypeError(f"approver takes a function, not {type(approver).__name__}")
    if max_concurrency is not None and max_concurrency < 1:
        raise ValueError("max_concurrency is at least 1")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One call as its caller made it, on its way down the road."""

    call: ToolCall
    context: CallContext
    limits: Limits
    stdin: Stdin
    sink: Sink | None


class Executor:
    """Runs tool calls, each in a jail of its own, and says exactly how each ended.

    Use it as `async with Executor(...) as executor`. The built-in tools are registered unless
    `builtin` is false or a registry has tools of those names. Without an `approver` nothing
    that needs a person runs. One executor takes many calls at once, `max_concurrency` of them
    in jails.

    Raises:
        ValueError: the workspace is one that no tool may have, or a choice is not offered.
        TypeError: an option is of another type than it says.
    """

    def __init__(
        self,
        registry: ToolRegistry | None = None,
        *,
        tools: Iterable[Any] = (),
        workspace: str | os.PathLike[str],
        policy: str | None = None,
        approver: Approver = deny_all,
        isolation: str | None = None,
        limits: Limits | None = None,
        network: Network | None = None,
        env: Mapping[str, str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        max_concurrency: int | None = None,
        builtin: bool = True,
    ) -> None:
        refuse_unknown_choices(policy=policy, isolation=isolation)
        _check_types(limits, network, approver, max_concurrency)
        self.registry = ToolRegistry() if registry is None else registry
        if builtin:
            from toolcell.builtin import builtin_tools

            for tool in builtin_tools():
                if tool.name not in self.registry:
                    self.registry.register(tool)
        for tool in tools:
            self.registry.register(tool)
        self.state_dir = os.fspath(state_dir) if state_dir is not None else default_state_dir()
        self.workspace = Workspace.open(os.fspath(workspace), state_dir=self.state_dir)
        self.limits = limits or Limits()
        self.network = network or Network.none()
        self._env = dict(env or {})
        check_environment(self._env)
        self._approver = approver
        if approver is ask_terminal:
            # Now, before a tool can put a module of that name where this process would find it.
            import toolcell._terminal  # noqa: F401  # for its effect on sys.modules
        self._planner = Planner(
            workspace=self.workspace,
            state_dir=self.state_dir,
            network=self.network,
            env=self._env,
        )
        self._audit = Audit(self.state_dir)
        self._slots = trio.CapacityLimiter(max_concurrency or CONCURRENT_CALLS)

    async def __aenter__(self) -> Self:
        self._audit.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._audit.stop()

    # -- the road -------------------------------------------------------------------------

    async def call(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        context: CallContext | None = None,
        limits: Limits | None = None,
        stdin: Stdin = None,
        sink: Sink | None = None,
    ) -> ToolResult:
        """Run one call and return how it ended, whatever the tool or the model did.

        `stdin` is fed to the handler, None is nothing to read; `sink` is awaited with each chunk
        of output as it comes. Neither is part of what is decided.

        Leaves two records: an intent before anything else, one terminal at the end. Cancelled,
        it kills the tree, waits until it is gone, writes the terminal record, and lets
        `trio.Cancelled` go on up.
        """
        if not isinstance(call, ToolCall):
            call = ToolCall(str(call), arguments or {}, call_id or new_call_id())
        if not self._audit.is_open:
            message = "the executor is not open: use `async with Executor(...) as executor`"
            return refused(call, ExecutorError(message=message, operator_detail=message))
        request = _Request(
            call=call,
            context=context or CallContext(),
            limits=limits or self.limits,
            stdin=stdin,
            sink=sink,
        )
        kind: str | None = "cancelled"
        try:
            await self._audit.record("intent", call_id=call.call_id, tool_name=_named(call))
        except OSError as error:
            return refused(call, _defect(error, "the audit log takes no record, so nothing runs"))
        try:
            result = await self._guarded(request)
            kind = None if result.error is None else result.error.kind
        finally:
            unrecorded = await self._end(call, kind)
        return result if unrecorded is None else refused(call, unrecorded)

    async def _end(self, call: ToolCall, kind: str | None) -> ExecutorError | None:
        try:
            await self._audit.record(
                "terminal", call_id=call.call_id, tool_name=_named(call), kind=kind
            )
        except OSError as error:
            return _defect(error, "the call ended, and its end could not be recorded")
        return None

    async def _guarded(self, request: _Request) -> ToolResult:
        """The road, with our own defects as a typed ending."""
        try:
            await trio.lowlevel.checkpoint()
            return await self._road(request)
        except Exception as error:  # noqa: BLE001  # our own defects are an ending; Cancelled goes up
            _log.exception("call %s failed by a defect of toolcell", request.call.call_id)
            return refused(request.call, _defect(error, "toolcell itself failed to run this call"))

    async def _road(self, request: _Request) -> ToolResult:
        call, context = request.call, request.context
        tool = self.registry.snapshot().resolve(call.name)
        if not isinstance(tool, Tool):
            return refused(call, tool)
        valid = validate(tool, call.arguments)
        if not isinstance(valid, Validated):
            return refused(call, valid, tool_name=tool.name)
        plan = self._planner.plan(tool, valid, context, request.limits)
        if plan.decision.outcome is Outcome.ASK:
            answer = await approve(self._approver, plan.request(call.call_id), plan.decision)
            if answer.failure is not None:
                return _refused(call, plan, answer.failure, terminate=answer.terminate)
            if answer.remembered:
                self._planner.remember(plan, context)
        async with self._slots:
            plan = self._planner.recheck(plan, context, request.limits)
            if plan.decision.outcome is Outcome.DENY:
                return _refused(call, plan, _denied(plan.decision))
            handler, spec = confine(
                tool,
                plan.arguments,
                workspace=self.workspace,
                limits=plan.limits,
                network=self.network,
                env=self._env,
                context=dataclasses.asdict(context) | {"call_id": call.call_id},
            )
            try:
                outcome = await run_in_jail(handler, spec, stdin=request.stdin, sink=request.sink)
            except StdinTooLarge as error:
                return _refused(call, plan, InvalidArguments(message=str(error)))
        return settle(call, tool, outcome, decision=plan.decision, repairs=valid.repairs)

    def check(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: CallContext | None = None,
    ) -> Decision | UnknownTool | ToolDisabled | InvalidArguments:
        """What would be decided about a call, and every reason; runs nothing, records nothing."""
        tool = self.registry.snapshot().resolve(name)
        if not isinstance(tool, Tool):
            return tool
        valid = validate(tool, arguments or {})
        if not isinstance(valid, Validated):
            return valid
        return self._planner.plan(tool, valid, context or CallContext(), self.limits).decision


def _refused(call: ToolCall, plan: Plan, failure: Any, *, terminate: bool = False) -> ToolResult:
    return refused(
        call,
        failure,
        tool_name=plan.tool.name,
        decision=plan.decision,
        repairs=plan.valid.repairs,
        terminate=terminate,
    )


def _denied(decision: Decision) -> Denied:
    return Denied(
        message="policy does not allow this call: " + "; ".join(r.text for r in decision.reasons),
        reasons=decision.reasons,
        remedy=decision.remedy,
    )


def _defect(error: BaseException, message: str) -> ExecutorError:
    return ExecutorError(
        message=message,
        operator_detail="".join(traceback.format_exception(error))[-8_000:],
    )


def _named(call: ToolCall) -> str:
    """The name as it was asked for, bounded: a record is a line, not a place to store things."""
    return str(call.name)[:200]
