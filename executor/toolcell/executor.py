"""The road of one call, straight down.

resolve → validate → decide → approve → record → confine → run → settle → conclude
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import trio

from toolcell._agreements import FORGED, Agreements, answering
from toolcell._choices import (
    check_types,
    choices_of,
    chosen_ceiling,
    chosen_mode,
    default_state_dir,
    refuse_unknown_choices,
)
from toolcell._ledger import Baseline
from toolcell._policies import policy_of
from toolcell._protected import Protected
from toolcell._recording import Recording
from toolcell._sensitive_files import Lookout
from toolcell.approval import Answer, Approver, ask_terminal, deny_all
from toolcell.audit import Audit
from toolcell.calls import CallContext, ToolCall, new_call_id
from toolcell.confinement import Workspace, confine
from toolcell.effects import Transaction, Transactions
from toolcell.folders import Folders
from toolcell.planning import PLAN_CHANGED, Ask, Planned, Planner
from toolcell.prepared import Plan, prepared
from toolcell.registry import ToolRegistry
from toolcell.results import (
    Effects,
    ExecutorError,
    InvalidArguments,
    ToolDisabled,
    ToolResult,
    UnknownTool,
)
from toolcell.schema import Validated, validate
from toolcell.settlement import defect, denied, nudged, objected, refused, settle
from toolcell.tools import Tool
from toolcell_policies import Decision, Mode, Outcome, Policy, Reason
from toolcell_sandbox import StdinTooLarge, run_in_jail
from toolcell_sandbox.outcome import Receipt
from toolcell_sandbox.spec import Limits, Network, WorkspaceMode

if TYPE_CHECKING:
    from toolcell_sandbox._call import Sink

_log = logging.getLogger("toolcell")

Stdin = bytes | AsyncIterable[bytes] | None

CONCURRENT_CALLS = 64
"""Calls at once unless `max_concurrency` says otherwise: each holds some ten descriptors."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One call as its caller made it, on its way down the road."""

    call: ToolCall
    context: CallContext
    limits: Limits
    mode: WorkspaceMode | None
    review: bool
    approver: Approver
    prepared: Plan | None
    """The plan that was answered, where the answer came before the call."""
    objection: Reason | None
    """What speaks against that plan."""
    stdin: Stdin
    sink: Sink | None


class Executor:
    """Runs tool calls, each in a jail of its own, and says exactly how each ended.

    Use it as `async with Executor(...) as executor`. The built-in tools are registered unless
    `builtin` is false or a registry has tools of those names. Without an `approver` nothing
    that needs a person runs. One executor takes many calls at once, `max_concurrency` of them
    in jails.

    `policy` is "standard", "coding", "ci" or "strict", a file, or a `Policy`; by default
    TOOLCELL_POLICY, else "standard". `mode` is a ceiling: "explore", "plan" or "build".
    `isolation` names the guarantees that every jail must hold, or the call fails closed; by
    default TOOLCELL_ISOLATION, else "standard". `waive` names guarantees that calls may do
    without: each one is then asked about, and a warning names them. `workspace_mode` is what
    tools get of the workspace: "transaction" (what they change is judged before it is kept),
    "read_only", "scratch" (an empty one of the jail's own) or "direct" (changed in place); None
    gives it to a tool that only reads for reading, and to any other as a transaction, or
    directly at level "container", which has none. With `review` the approver is shown what each
    call changed before it is kept. `on_refused` "park" keeps refused changes under a handle, for
    `toolcell effects`. `read` and `write` are host folders that tools see besides it, at their real
    paths; only tools that write or execute may write in the latter, and nothing there is undone.
    `env` is added to the jail's own environment; nothing of this process's is inherited.

    Raises:
        ValueError: the workspace or a folder is one that no tool may have, or a choice is not
            offered.
        TypeError: an option is of another type than it says.
    """

    def __init__(
        self,
        registry: ToolRegistry | None = None,
        *,
        tools: Iterable[Any] = (),
        workspace: str | os.PathLike[str],
        policy: str | os.PathLike[str] | Policy | None = None,
        approver: Approver = deny_all,
        mode: Mode | str = Mode.BUILD,
        isolation: str | None = None,
        limits: Limits | None = None,
        network: Network | None = None,
        workspace_mode: WorkspaceMode | None = None,
        review: bool = False,
        on_refused: Literal["all", "park"] = "all",
        read: Iterable[str | os.PathLike[str]] = (),
        write: Iterable[str | os.PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        waive: Iterable[str] = (),
        state_dir: str | os.PathLike[str] | None = None,
        max_concurrency: int | None = None,
        builtin: bool = True,
    ) -> None:
        refuse_unknown_choices(isolation=isolation)
        check_types(limits, network, approver, max_concurrency)
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
        protected = Protected.here(self.state_dir, self.workspace.path)
        self.choices = choices_of(
            isolation=isolation,
            network=network,
            workspace_mode=workspace_mode,
            folders=Folders.open(read, write, workspace=self.workspace, protected=protected),
            env=env,
            waive=waive,
        )
        if on_refused not in ("all", "park"):
            raise ValueError(f"on_refused {on_refused!r} is not offered; choose one of: all, park")
        self._approver, self._review, self._parks = approver, review, on_refused == "park"
        if approver is ask_terminal or review:
            # Now, before a tool can put a module of that name where this process would find it.
            import toolcell._terminal  # noqa: F401  # for its effect on sys.modules
        self._agreements = Agreements(state_dir=self.state_dir, workspace=self.workspace.path)
        self.policy = policy_of(
            policy,
            workspace=self.workspace.path,
            is_trusted=self._agreements.is_trusted,
        )
        self._planner = Planner(
            workspace=self.workspace,
            protected=protected,
            choices=self.choices,
            policy=self.policy,
            mode=chosen_ceiling(mode),
            granted=self._agreements.granted,
        )
        self._transactions = Transactions(
            workspace=self.workspace,
            protected=protected,
            choices=self.choices,
            planner=self._planner,
            state_dir=self.state_dir,
        )
        self._lookout = Lookout(workspace=self.workspace, protected=protected)
        self._audit = Audit(self.state_dir)
        self._slots = trio.CapacityLimiter(max_concurrency or CONCURRENT_CALLS)

    async def __aenter__(self) -> Self:
        self._audit.start()
        try:
            self._agreements.start()
            await self._transactions.start()
        except BaseException:
            self._audit.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transactions.stop()
        self._agreements.stop()
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
        workspace_mode: WorkspaceMode | None = None,
        review: bool | None = None,
        stdin: Stdin = None,
        sink: Sink | None = None,
    ) -> ToolResult:
        """Run one call and return how it ended, whatever the tool or the model did.

        `workspace_mode` and `review` are this call's, instead of the executor's. `stdin` is fed
        to the handler, None is nothing to read; `sink` is awaited with each chunk of output as it
        comes. Neither is part of what is decided.

        Leaves two records: an intent, durable before its jail starts, and one terminal. Cancelled,
        it kills the tree, waits until it is gone, keeps nothing, writes the terminal record, and
        lets `trio.Cancelled` go on up.

        Raises:
            ValueError: the workspace mode is not offered.
        """
        mode = chosen_mode(workspace_mode)
        if not isinstance(call, ToolCall):
            call = ToolCall(str(call), arguments or {}, call_id or new_call_id())
        if not self._audit.is_open:
            message = "the executor is not open: use `async with Executor(...) as executor`"
            return refused(call, ExecutorError(message=message, operator_detail=message))
        request = _Request(
            call=call,
            context=context or CallContext(),
            limits=limits or self.limits,
            mode=mode,
            review=self._review if review is None else review,
            approver=self._approver,
            prepared=None,
            objection=None,
            stdin=stdin,
            sink=sink,
        )
        return await self._recorded(request)

    async def _recorded(self, request: _Request) -> ToolResult:
        """The road, and how it ended on record."""
        call = request.call
        recording = Recording.of(
            self._audit,
            call,
            request.context,
            workspace=self.workspace.path,
            isolation=self.choices.isolation,
            waived=self.choices.waive,
        )
        ending: ToolResult | None = None
        try:
            result = ending = await self._guarded(request, recording)
        finally:
            unrecorded = await recording.end(ending)
        return result if unrecorded is None else refused(call, unrecorded)

    async def _guarded(self, request: _Request, recording: Recording) -> ToolResult:
        """The road, with our own defects as a typed ending."""
        try:
            await trio.lowlevel.checkpoint()
            return await self._road(request, recording)
        except Exception as error:  # noqa: BLE001  # our own defects are an ending; Cancelled goes up
            _log.exception("call %s failed by a defect of toolcell", request.call.call_id)
            return refused(request.call, defect(error, "toolcell itself failed to run this call"))

    async def _road(self, request: _Request, recording: Recording) -> ToolResult:
        call, context = request.call, request.context
        if request.objection is not None:
            return refused(call, objected(request.objection))
        tool = self.registry.snapshot().resolve(call.name)
        if not isinstance(tool, Tool):
            return refused(call, tool)
        valid = validate(tool, call.arguments)
        if not isinstance(valid, Validated):
            return refused(call, valid, tool_name=tool.name)
        run = self._agreements.run_state(tool.name, valid.arguments, context)
        plan = self._planner.plan(
            Ask(
                tool=tool,
                valid=valid,
                context=context,
                limits=request.limits,
                mode=request.mode,
                run=run,
            )
        )
        if request.prepared is not None and not request.prepared.is_for(plan):
            plan = plan.denied("plan_changed", PLAN_CHANGED)
        agreement = await self._agreements.agreed(request.approver, plan, call.call_id)
        plan = agreement.plan
        if agreement.failure is not None:
            return _refused(call, plan, agreement.failure, terminate=agreement.terminate)
        if plan.decision.outcome is Outcome.DENY:
            return _refused(call, plan, denied(plan.decision))
        with contextlib.ExitStack() as held:
            async with self._slots:
                unrecorded = await recording.begin(agreement, resumed=request.prepared is not None)
                if unrecorded is not None:
                    return _refused(call, plan, unrecorded)
                plan = self._planner.recheck(plan)
                if plan.decision.outcome is Outcome.DENY:
                    return _refused(call, plan, denied(plan.decision))
                handler, spec = confine(
                    tool,
                    plan.arguments,
                    workspace=self.workspace,
                    limits=plan.limits,
                    choices=self.choices,
                    mode=plan.mode,
                    context=dataclasses.asdict(context) | {"call_id": call.call_id},
                    settled=plan.settled,
                )
                problem = await self._lookout.problem(spec)
                if problem is not None:
                    return _refused(call, plan, problem, receipt=Receipt())
                transaction = await self._transactions.begin(spec)
                if not isinstance(transaction, Transaction):
                    return _refused(call, plan, transaction, receipt=Receipt())
                held.callback(transaction.close)
                try:
                    outcome = await run_in_jail(
                        handler,
                        transaction.spec,
                        stdin=request.stdin,
                        sink=request.sink,
                        alarm=transaction.alarm,
                        keep=transaction.keep,
                    )
                except StdinTooLarge as error:
                    return _refused(call, plan, InvalidArguments(message=str(error)))
            result = settle(call, tool, outcome, decision=plan.decision, repairs=valid.repairs)
            result = nudged(result, run)
            # Outside of the slots: a person may think for minutes.
            return await self._transactions.conclude(
                transaction,
                plan,
                result,
                approver=request.approver,
                review=request.review,
                park=self._parks,
            )

    async def hidden(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """What of the workspace no call can see now, and which of it git tracks.

        Git calls the latter deleted, and what was committed of it can be read from its objects.
        """
        return await self._transactions.hidden()

    # -- what calls came to ---------------------------------------------------------------

    def baseline(self) -> Baseline:
        """This moment of the workspace, for `changes_since`."""
        return self._transactions.ledger.baseline()

    async def changes_since(self, baseline: Baseline) -> Effects | None:
        """What of all that calls have changed since is other than it was: nothing, if it nets out.

        Compares kinds, modes, contents and where links point, of what was committed by this
        executor since the baseline, with the workspace as it is now. None where a call changed
        something in place, which nobody observed.

        Raises:
            ValueError: the baseline is another executor's.
            OSError: the workspace cannot be read any more.
        """
        return await self._transactions.changes_since(baseline)

    def check(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: CallContext | None = None,
        workspace_mode: WorkspaceMode | None = None,
    ) -> Decision | UnknownTool | ToolDisabled | InvalidArguments:
        """What would be decided about a call, and every reason; runs nothing, records nothing.

        Raises:
            ValueError: the workspace mode is not offered.
        """
        mode = chosen_mode(workspace_mode)
        tool = self.registry.snapshot().resolve(name)
        if not isinstance(tool, Tool):
            return tool
        valid = validate(tool, arguments or {})
        if not isinstance(valid, Validated):
            return valid
        ask = Ask(
            tool=tool,
            valid=valid,
            context=context or CallContext(),
            limits=self.limits,
            mode=mode,
        )
        return self._planner.plan(ask).decision

    def jail_of(self, tool: Tool) -> dict[str, Any]:
        """The jail that a call of this tool would get, as `toolcell check` shows it."""
        return self.choices.jail_of(tool, self._planner.workspace_mode(tool))

    def admitted(self, context: CallContext | None = None) -> tuple[Tool, ...]:
        """The tools to show a model: those that are switched on, and that no ceiling leaves out.

        What is not among them would be `not_admitted` when it is called, and nothing else would.
        """
        context = context or CallContext()
        tools = self.registry.snapshot().list_tools()
        return tuple(tool for tool in tools if self._planner.admits(tool, context))

    # -- answers that come later ----------------------------------------------------------

    async def prepare(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        context: CallContext | None = None,
        workspace_mode: WorkspaceMode | None = None,
    ) -> Plan | UnknownTool | ToolDisabled | InvalidArguments:
        """What would be decided about a call, as data that a person can be shown somewhere else.

        Runs nothing and asks nobody. `resume` takes the plan with an answer, once, for a day.

        Raises:
            ValueError: the workspace mode is not offered.
            OSError: the state folder cannot keep the key that plans are sealed with.
        """
        mode = chosen_mode(workspace_mode)
        if not isinstance(call, ToolCall):
            call = ToolCall(str(call), arguments or {}, call_id or new_call_id())
        tool = self.registry.snapshot().resolve(call.name)
        if not isinstance(tool, Tool):
            return tool
        valid = validate(tool, call.arguments)
        if not isinstance(valid, Validated):
            return valid
        ask = Ask(
            tool=tool,
            valid=valid,
            context=context or CallContext(),
            limits=self.limits,
            mode=mode,
        )
        return prepared(call, self._planner.plan(ask), self._agreements.seal_key())

    async def resume(
        self, plan: Plan, answer: Answer, *, stdin: Stdin = None, sink: Sink | None = None
    ) -> ToolResult:
        """Run a prepared call as `call` does, with this answer to what it asks; once.

        Refused (`denied`) where the plan is not as it was made, is older than a day, was resumed
        before, or what it would do has changed: an argument, a program that it runs, a path, the
        policy, or what speaks against it. What asks after the run asks this executor's approver.
        """
        objection = self._agreements.objection(plan)
        is_ours = objection is None or objection.code != FORGED
        request = _Request(
            # Of a plan that is none of ours nothing is believed.
            call=plan.call if is_ours else ToolCall(str(plan.name)),
            context=plan.caller if is_ours else CallContext(),
            limits=self.limits,
            mode=plan.workspace_mode if is_ours else None,
            review=self._review,
            approver=answering(answer, self._approver),
            prepared=plan,
            objection=objection,
            stdin=stdin,
            sink=sink,
        )
        return await self._recorded(request)


def _refused(
    call: ToolCall,
    plan: Planned,
    failure: Any,
    *,
    terminate: bool = False,
    receipt: Receipt | None = None,
) -> ToolResult:
    return refused(
        call,
        failure,
        tool_name=plan.tool.name,
        decision=plan.decision,
        repairs=plan.valid.repairs,
        terminate=terminate,
        receipt=receipt,
    )
