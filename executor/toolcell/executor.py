"""The road of one call, straight down.

resolve → validate → decide → approve → confine → run → settle → conclude
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import trio

from toolcell._choices import (
    check_types,
    choices_of,
    chosen_mode,
    default_state_dir,
    refuse_unknown_choices,
)
from toolcell._ledger import Baseline
from toolcell._protected import Protected
from toolcell._sensitive_files import Lookout
from toolcell.approval import Approver, approve, ask_terminal, deny_all
from toolcell.audit import Audit
from toolcell.calls import CallContext, ToolCall, new_call_id
from toolcell.confinement import Workspace, confine
from toolcell.effects import Transaction, Transactions
from toolcell.folders import Folders
from toolcell.planning import Plan, Planner
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
from toolcell.settlement import defect, denied, refused, settle
from toolcell.tools import Tool
from toolcell_policies import Decision, Outcome
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
    stdin: Stdin
    sink: Sink | None


class Executor:
    """Runs tool calls, each in a jail of its own, and says exactly how each ended.

    Use it as `async with Executor(...) as executor`. The built-in tools are registered unless
    `builtin` is false or a registry has tools of those names. Without an `approver` nothing
    that needs a person runs. One executor takes many calls at once, `max_concurrency` of them
    in jails.

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
        policy: str | None = None,
        approver: Approver = deny_all,
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
        refuse_unknown_choices(policy=policy, isolation=isolation)
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
        self._planner = Planner(workspace=self.workspace, protected=protected, choices=self.choices)
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
            await self._transactions.start()
        except BaseException:
            self._audit.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transactions.stop()
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

        Leaves two records: an intent before anything else, one terminal at the end. Cancelled,
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
            stdin=stdin,
            sink=sink,
        )
        kind: str | None = "cancelled"
        receipt: Receipt | None = None
        try:
            await self._audit.record(
                "intent",
                call_id=call.call_id,
                tool_name=_named(call),
                isolation=self.choices.isolation,
                waived=self.choices.waive,
            )
        except OSError as error:
            return refused(call, defect(error, "the audit log takes no record, so nothing runs"))
        try:
            result = await self._guarded(request)
            kind = None if result.error is None else result.error.kind
            receipt = result.receipt
        finally:
            unrecorded = await self._end(call, kind, receipt)
        return result if unrecorded is None else refused(call, unrecorded)

    async def _end(
        self, call: ToolCall, kind: str | None, receipt: Receipt | None
    ) -> ExecutorError | None:
        try:
            await self._audit.record(
                "terminal",
                call_id=call.call_id,
                tool_name=_named(call),
                kind=kind,
                isolation=None if receipt is None else receipt.isolation,
                waived=() if receipt is None else receipt.waived,
            )
        except OSError as error:
            return defect(error, "the call ended, and its end could not be recorded")
        return None

    async def _guarded(self, request: _Request) -> ToolResult:
        """The road, with our own defects as a typed ending."""
        try:
            await trio.lowlevel.checkpoint()
            return await self._road(request)
        except Exception as error:  # noqa: BLE001  # our own defects are an ending; Cancelled goes up
            _log.exception("call %s failed by a defect of toolcell", request.call.call_id)
            return refused(request.call, defect(error, "toolcell itself failed to run this call"))

    async def _road(self, request: _Request) -> ToolResult:
        call, context = request.call, request.context
        tool = self.registry.snapshot().resolve(call.name)
        if not isinstance(tool, Tool):
            return refused(call, tool)
        valid = validate(tool, call.arguments)
        if not isinstance(valid, Validated):
            return refused(call, valid, tool_name=tool.name)
        plan = self._planner.plan(tool, valid, context, request.limits, request.mode)
        if plan.decision.outcome is Outcome.ASK:
            answer = await approve(self._approver, plan.request(call.call_id), plan.decision)
            if answer.failure is not None:
                return _refused(call, plan, answer.failure, terminate=answer.terminate)
            if answer.remembered:
                self._planner.remember(plan)
        with contextlib.ExitStack() as held:
            async with self._slots:
                plan = self._planner.recheck(plan, context, request.limits, request.mode)
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
            # Outside of the slots: a person may think for minutes.
            return await self._transactions.conclude(
                transaction,
                plan,
                result,
                approver=self._approver,
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
        context = context or CallContext()
        return self._planner.plan(tool, valid, context, self.limits, mode).decision


def _refused(
    call: ToolCall,
    plan: Plan,
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


def _named(call: ToolCall) -> str:
    """The name as it was asked for, bounded: a record is a line, not a place to store things."""
    return str(call.name)[:200]
