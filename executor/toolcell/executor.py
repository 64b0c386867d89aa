"""The road of one call, straight down.

resolve → validate → hooks → decide → approve → record → confine → run → settle → conclude
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import trio

from toolcell._agreements import Agreement
from toolcell._answered import Asked, SupervisorRef, answer
from toolcell._asked_packs import paths_in_jail, unavailable_in_jail, worded_in_jail
from toolcell._assembly import Assembly
from toolcell._entrances import Entrances, Request
from toolcell._kept_back import without_kept_back
from toolcell._large_output import checked
from toolcell._midcall import MidCall
from toolcell._recording import Recording
from toolcell._retries import may_retry, wait_s
from toolcell.calls import ToolCall
from toolcell.confinement import confine
from toolcell.effects import Transaction
from toolcell.hooks import run_after, run_before
from toolcell.planning import PLAN_CHANGED, Ask, Planned
from toolcell.registry import Snapshot
from toolcell.results import (
    Denied,
    HookFailed,
    InvalidArguments,
    ToolResult,
)
from toolcell.retained import Retainer
from toolcell.schema import Validated, validate
from toolcell.settlement import (
    answered,
    defect,
    denied,
    finished,
    may_spool,
    nudged,
    objected,
    refused,
    settle,
)
from toolcell.tools import Tool
from toolcell_policies import Outcome
from toolcell_sandbox import StdinTooLarge, run_in_jail
from toolcell_sandbox.outcome import Receipt

if TYPE_CHECKING:
    pass

_log = logging.getLogger("toolcell")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Jailed:
    """What a call came to in its jail, and its hold on the workspace."""

    result: ToolResult
    transaction: Transaction


class Executor(Entrances):
    """Runs tool calls, each in a jail of its own, and says exactly how each ended.

    Use it as `async with Executor(...) as executor`; `Assembly` says what each option is,
    `Entrances` what it can be asked.
    """

    __doc__ = f"{__doc__}\n{Assembly.__doc__}"

    async def _recorded(self, request: Request) -> ToolResult:
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

    async def _guarded(self, request: Request, recording: Recording) -> ToolResult:
        """The road, with our own defects as a typed ending."""
        try:
            await trio.lowlevel.checkpoint()
            return await self._road(request, recording)
        except Exception as error:  # noqa: BLE001  # our own defects are an ending; Cancelled goes up
            _log.exception("call %s failed by a defect of toolcell", request.call.call_id)
            return refused(request.call, defect(error, "toolcell itself failed to run this call"))

    async def _road(self, request: Request, recording: Recording) -> ToolResult:
        call = request.call
        if request.objection is not None:
            return refused(call, objected(request.objection))
        ask = await self._asked(request)
        if isinstance(ask, ToolResult):
            return ask
        run = self._agreements.run_state(ask.tool.name, ask.valid.arguments, ask.context)
        plan = self._planner.plan(dataclasses.replace(ask, run=run))
        if request.prepared is not None and not request.prepared.is_for(plan):
            plan = plan.denied("plan_changed", PLAN_CHANGED)
        agreement = await self._agreements.agreed(request.approver, plan, call.call_id)
        plan = agreement.plan
        if agreement.failure is not None:
            return _refused(call, plan, agreement.failure, terminate=agreement.terminate)
        if plan.decision.outcome is Outcome.DENY:
            return _refused(call, plan, denied(plan.decision))
        # What it is fed is no part of the plan.
        known = None if request.stdin else self._cache.get(plan, call.call_id)
        if known is not None:
            recording.know(agreement, resumed=request.prepared is not None)
            return await self._ended(request, plan, known)
        since = self._cache.changes
        try:
            result = await self._tried(request, agreement, recording)
        except BaseException:
            self._cache.forget()
            raise
        self._cache.put(plan, result, since=-1 if request.stdin else since)
        return await self._ended(request, plan, result)

    async def _ended(self, request: Request, plan: Planned, result: ToolResult) -> ToolResult:
        """What is handed on: past the after-hooks of now, and within its bounds.

        Not to be cancelled: what was kept is kept, and the result says so.
        """
        result = await run_after(self._shown(request).after_hooks, result)
        return await finished(result, plan.tool, retain=self._retainer(request))

    async def _asked(self, request: Request) -> Ask | ToolResult:
        """What is asked for: a tool that is there, with arguments that it takes."""
        call = request.call
        shown = self._shown(request)
        tool = self._found(call.name, shown, refuse_stale=request.refuse_stale)
        if not isinstance(tool, Tool):
            return refused(call, tool)
        # An untrusted pack's own functions are asked in jails, which count as any other; and not
        # where the call is denied whatever they say.
        asks = tool.in_jail if tool.in_jail and self._shows(tool, request.context) else ()
        lacking = None
        if "availability_check" in asks:
            async with self._slots:
                lacking = await unavailable_in_jail(tool, isolation=self.choices.isolation)
        if lacking is not None:
            return refused(call, lacking, tool_name=tool.name)
        valid = validate(tool, call.arguments)
        if not isinstance(valid, Validated):
            return refused(call, valid, tool_name=tool.name)
        if request.prepared is None:
            said = await run_before(shown.before_hooks, tool.name, valid.arguments)
            if isinstance(said, HookFailed):
                return refused(call, said, tool_name=tool.name, repairs=valid.repairs)
            if said is not valid.arguments:
                again = validate(tool, said)
                if not isinstance(again, Validated):
                    return refused(call, again, tool_name=tool.name, repairs=valid.repairs)
                valid = dataclasses.replace(again, repairs=(*valid.repairs, *again.repairs))
        told: tuple[str, ...] | Denied | None = None
        if "paths" in asks:
            async with self._slots:
                told = await paths_in_jail(tool, valid.arguments, isolation=self.choices.isolation)
        if isinstance(told, Denied):
            return refused(call, told, tool_name=tool.name, repairs=valid.repairs)
        return Ask(
            tool=tool,
            valid=valid,
            context=request.context,
            limits=request.limits,
            mode=request.mode,
            told_paths=told,
        )

    async def _tried(
        self, request: Request, agreement: Agreement, recording: Recording
    ) -> ToolResult:
        """Run; and again, where that does the same as once, and what went wrong may pass."""
        # What was fed to it piece by piece is gone, and what it wrote was handed on.
        is_whole = isinstance(request.stdin, bytes | None) and request.sink is None
        retries = self._retries if is_whole else 0
        for attempt in range(1, retries + 2):
            result = await self._run(request, agreement, recording)
            if attempt > 1:
                metadata = {**result.metadata, "attempts": attempt}
                result = dataclasses.replace(result, metadata=metadata)
            if attempt > retries or not may_retry(agreement, result):
                break
            await trio.sleep(wait_s(attempt))
        return result

    async def _run(
        self, request: Request, agreement: Agreement, recording: Recording
    ) -> ToolResult:
        """Once: on record, still what was agreed to, answered by ourselves or in a jail."""
        call = request.call
        with contextlib.ExitStack() as held:
            async with self._slots:
                unrecorded = await recording.begin(agreement, resumed=request.prepared is not None)
                if unrecorded is not None:
                    return _refused(call, agreement.plan, unrecorded)
                plan = self._planner.recheck(agreement.plan)
                if plan.decision.outcome is Outcome.DENY:
                    return _refused(call, plan, denied(plan.decision))
                ref = plan.tool.handler
                if isinstance(ref, SupervisorRef):
                    return await self._answered(request, plan, ref)
                jailed = await self._jailed(request, plan, held)
            if isinstance(jailed, ToolResult):
                return jailed
            # Outside of the slots: a person may think for minutes.
            return await self._transactions.conclude(
                jailed.transaction,
                plan,
                nudged(jailed.result, plan.ask.run),
                approver=request.approver,
                review=request.review,
                park=self._parks,
            )

    async def _answered(self, request: Request, plan: Planned, ref: SupervisorRef) -> ToolResult:
        """What no jail can read, told by ourselves."""
        asked = Asked(
            retain=self._retainer(request),
            shown=self._seen(self._shown(request), request.context),
            context=request.context,
        )
        said = await answer(ref, plan.arguments, asked)
        result = answered(
            request.call, plan.tool, said, decision=plan.decision, repairs=plan.valid.repairs
        )
        return nudged(result, plan.ask.run)

    async def _jailed(
        self, request: Request, plan: Planned, held: contextlib.ExitStack
    ) -> _Jailed | ToolResult:
        """What the handler came to in its jail, which is gone; what it changed is held back."""
        call, tool = request.call, plan.tool
        handler, spec = confine(
            tool,
            plan.arguments,
            workspace=self.workspace,
            limits=plan.limits,
            choices=self.choices,
            mode=plan.mode,
            context=self._told(call, plan),
            settled=plan.settled,
        )
        problem = await self._lookout.problem(spec)
        if problem is not None:
            return _refused(call, plan, problem, receipt=Receipt())
        transaction = await self._transactions.begin(spec)
        if not isinstance(transaction, Transaction):
            return _refused(call, plan, transaction, receipt=Receipt())
        held.callback(transaction.close)
        watch = request.watch
        midcall = MidCall(
            plan,
            call_id=call.call_id,
            planner=self._planner,
            agreements=self._agreements,
            # Not the request's: an answer that came with a prepared plan is for that plan.
            approver=self._approver,
            tell=None if watch is None else watch.tell,
        )
        try:
            outcome = await run_in_jail(
                handler,
                transaction.spec,
                stdin=request.stdin,
                sink=request.sink,
                alarm=transaction.alarm,
                keep=transaction.keep,
                channel=midcall.answer,
                on_progress=None if watch is None else watch.progress,
                spool=self._retained.spool_folder if may_spool(tool) else None,
                pool=self._pool,
            )
        except StdinTooLarge as error:
            return _refused(call, plan, InvalidArguments(message=str(error)))
        outcome, large = await checked(
            outcome,
            tool,
            self._retainer(request),
            isolation=self.choices.isolation,
            waive=self.choices.waive,
        )
        gone = 0
        if tool.trusted:
            # Thousands of names: not on the loop.
            outcome, gone = await trio.to_thread.run_sync(
                without_kept_back, outcome, self._protected, self.workspace.path
            )
        repairs = plan.valid.repairs
        if large is None:
            tool = await worded_in_jail(tool, outcome, isolation=self.choices.isolation)
        result = settle(
            call,
            tool,
            outcome,
            decision=plan.decision,
            repairs=repairs,
            large=large,
            kept_back=gone,
        )
        said = midcall.marked(result.metadata, outcome.channel)
        result = dataclasses.replace(result, metadata=said)
        return _Jailed(result=result, transaction=transaction)

    def _shown(self, request: Request) -> Snapshot:
        """The tools and hooks as the caller was shown them."""
        return request.snapshot or self.registry.snapshot()

    def _retainer(self, request: Request) -> Retainer:
        """What is too large to be shown, kept for the session that the call is made for."""
        return Retainer(self._retained, request.context.session_id or self._own_session)

    def _told(self, call: ToolCall, plan: Planned) -> dict[str, Any]:
        """What a handler may know of its call: plain data, none of it the model's."""
        return {
            **dataclasses.asdict(plan.ask.context),
            "call_id": call.call_id,
            "deps": dict(self.deps),
            "workspace": self.workspace.path,
        }


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
