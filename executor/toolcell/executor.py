"""The road of one call, straight down.

resolve → validate → hooks → decide → approve → record → confine → run → settle → conclude
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from toolcell._agreements import FORGED, Agreement, answering
from toolcell._answered import Asked, SupervisorRef, answer
from toolcell._asked_packs import paths_in_jail, unavailable_in_jail, worded_in_jail
from toolcell._assembly import Assembly
from toolcell._choices import chosen_mode
from toolcell._events import LiveEvents, Stream, stream
from toolcell._kept_back import without_kept_back
from toolcell._large_output import checked
from toolcell._loops.anywhere import anywhere, iterated_anywhere
from toolcell._midcall import MidCall
from toolcell._recording import Recording
from toolcell._retries import may_retry, wait_s
from toolcell.approval import Answer, Approver
from toolcell.availability import unavailable
from toolcell.calls import CallContext, ToolCall, new_call_id
from toolcell.confinement import confine
from toolcell.effects import Transaction
from toolcell.hooks import run_after, run_before
from toolcell.parallel import in_parallel
from toolcell.planning import PLAN_CHANGED, Ask, Planned
from toolcell.prepared import Plan, prepared
from toolcell.registry import Snapshot
from toolcell.results import (
    Denied,
    ExecutorError,
    Failure,
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
from toolcell_policies import Decision, ExecutionCategory, Outcome, Reason
from toolcell_sandbox import StdinTooLarge, run_in_jail
from toolcell_sandbox.outcome import Receipt
from toolcell_sandbox.spec import Limits, WorkspaceMode

if TYPE_CHECKING:
    from toolcell_sandbox._call import Sink

_log = logging.getLogger("toolcell")

Stdin = bytes | AsyncIterable[bytes] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One call as its caller made it, on its way down the road."""

    call: ToolCall
    context: CallContext
    limits: Limits
    mode: WorkspaceMode | None
    review: bool
    approver: Approver
    snapshot: Snapshot | None = None
    """The tools as the caller was shown them; None is as they are now."""
    refuse_stale: bool = False
    prepared: Plan | None = None
    """The plan that was answered, where the answer came before the call."""
    objection: Reason | None = None
    """What speaks against that plan."""
    stdin: Stdin = None
    sink: Sink | None = None
    watch: LiveEvents | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Jailed:
    """What a call came to in its jail, and its hold on the workspace."""

    result: ToolResult
    transaction: Transaction


class Executor(Assembly):
    """Runs tool calls, each in a jail of its own, and says exactly how each ended.

    Use it as `async with Executor(...) as executor`; `Assembly` says what each option is.
    """

    __doc__ = f"{__doc__}\n{Assembly.__doc__}"

    # -- the road -------------------------------------------------------------------------

    @anywhere
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
        watch: LiveEvents | None = None,
        snapshot: Snapshot | None = None,
        refuse_stale: bool = False,
    ) -> ToolResult:
        """Run one call and return how it ended, whatever the tool or the model did.

        `workspace_mode` and `review` are this call's, instead of the executor's. `stdin` is fed
        to the handler, None is nothing to read; `sink` is awaited with each chunk of output as it
        comes; `watch` is told what happens (see `stream`). None of it is part of what is decided.
        With `snapshot` the tool is the one that was
        captured there; with `refuse_stale` it is `tool_stale` where it is another one by now.

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
            message = "the executor is not open: enter it, `async with Executor(...) as executor`"
            return refused(call, ExecutorError(message=message, operator_detail=message))
        request = _Request(
            call=call,
            context=context or CallContext(),
            limits=limits or self.limits,
            mode=mode,
            review=self._review if review is None else review,
            approver=self._approver,
            snapshot=snapshot,
            refuse_stale=refuse_stale,
            stdin=stdin,
            sink=sink,
            watch=watch,
        )
        return await self._recorded(request)

    @iterated_anywhere
    def stream(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Stream:
        """One call, event by event, then its result; `options` are those of `call`: see `Stream`.

        Live text is lossy and bounded, so that nobody who watches slows a call down.
        """
        return stream(self, call, arguments, **options)

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

    async def _ended(self, request: _Request, plan: Planned, result: ToolResult) -> ToolResult:
        """What is handed on: past the after-hooks of now, and within its bounds.

        Not to be cancelled: what was kept is kept, and the result says so.
        """
        result = await run_after(self._shown(request).after_hooks, result)
        return await finished(result, plan.tool, retain=self._retainer(request))

    async def _asked(self, request: _Request) -> Ask | ToolResult:
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

    def _found(self, name: str, shown: Snapshot, *, refuse_stale: bool) -> Tool | Failure:
        """The tool to call, or why there is none to call."""
        tool = shown.resolve(name)
        if not isinstance(tool, Tool):
            return tool
        stale = shown.stale(tool.name, self.registry.snapshot()) if refuse_stale else None
        return stale or unavailable(tool) or tool

    async def _tried(
        self, request: _Request, agreement: Agreement, recording: Recording
    ) -> ToolResult:
        """Run; and again, where that does the same as once, and what went wrong may pass."""
        # What was fed to it piece by piece is gone.
        retries = self._retries if isinstance(request.stdin, bytes | None) else 0
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
        self, request: _Request, agreement: Agreement, recording: Recording
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

    async def _answered(self, request: _Request, plan: Planned, ref: SupervisorRef) -> ToolResult:
        """What no jail can read, told by ourselves."""
        asked = Asked(
            retain=self._retainer(request), registry=self.registry, context=request.context
        )
        said = await answer(ref, plan.arguments, asked)
        result = answered(
            request.call, plan.tool, said, decision=plan.decision, repairs=plan.valid.repairs
        )
        return nudged(result, plan.ask.run)

    async def _jailed(
        self, request: _Request, plan: Planned, held: contextlib.ExitStack
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

    def _shown(self, request: _Request) -> Snapshot:
        """The tools and hooks as the caller was shown them."""
        return request.snapshot or self.registry.snapshot()

    def _retainer(self, request: _Request) -> Retainer:
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

    # -- many at once ---------------------------------------------------------------------

    @anywhere
    async def call_many(
        self,
        calls: Iterable[ToolCall],
        *,
        context: CallContext | None = None,
        snapshot: Snapshot | None = None,
        limit: int | None = None,
    ) -> list[ToolResult]:
        """All calls of one turn: at once where their categories do not conflict, else in order.

        What reads after a write waits for it; results come in the order of the calls. At most
        `limit` run at a time, first come, first served. A cancel ends all, as in `call`.

        Raises:
            ValueError: `limit` is below 1.
        """
        shown = snapshot or self.registry.snapshot()

        def category(call: ToolCall) -> ExecutionCategory:
            tool = shown.get(call.name)
            return ExecutionCategory.COMPUTE if tool is None else tool.runs_as

        def run(call: ToolCall) -> Any:
            return lambda: self.call(call, context=context, snapshot=shown)

        return await in_parallel([(category(one), run(one)) for one in calls], limit=limit)

    def snapshot(self, context: CallContext | None = None) -> Snapshot:
        """The tools to show a model for one request: `definitions`, and `settle` to call them.

        What a ceiling leaves out or a rule denies whatever the arguments are is not in
        `definitions`; that is what is seen, and no authorization: each call is decided on anew.
        """
        now = self.registry.snapshot()
        context = context or CallContext()

        async def settler(call: ToolCall, *, refuse_stale: bool = False) -> ToolResult:
            return await self.call(call, context=context, snapshot=now, refuse_stale=refuse_stale)

        def is_shown(tool: Tool) -> bool:
            return self._shows(tool, context)

        return dataclasses.replace(now, settler=settler, is_shown=is_shown)

    def _shows(self, tool: Tool, context: CallContext) -> bool:
        """Whether a tool is not denied whatever its arguments are."""
        return self._planner.admits(tool, context) and not self._planner.denies(tool)

    # -- what would be decided ------------------------------------------------------------

    def check(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: CallContext | None = None,
        workspace_mode: WorkspaceMode | None = None,
    ) -> Decision | Failure:
        """What would be decided about a call, and every reason; runs nothing, records nothing.

        Hooks are not run: the arguments are judged as they are given.

        Raises:
            ValueError: the workspace mode is not offered.
        """
        mode = chosen_mode(workspace_mode)
        tool = self._found(name, self.registry.snapshot(), refuse_stale=False)
        if not isinstance(tool, Tool):
            return tool
        valid = validate(tool, arguments or {})
        if not isinstance(valid, Validated):
            return valid
        context = context or CallContext()
        ask = Ask(tool=tool, valid=valid, context=context, limits=self.limits, mode=mode)
        return self._planner.plan(ask).decision

    @anywhere
    async def prepare(
        self,
        call: ToolCall | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        context: CallContext | None = None,
        workspace_mode: WorkspaceMode | None = None,
    ) -> Plan | Failure:
        """What would be decided about a call, as data that a person can be shown somewhere else.

        Runs nothing but the hooks before a call, and asks nobody. `resume` takes the plan with an
        answer, once, for a day.

        Raises:
            ValueError: the workspace mode is not offered.
            OSError: the state folder cannot keep the key that plans are sealed with.
        """
        mode = chosen_mode(workspace_mode)
        if not isinstance(call, ToolCall):
            call = ToolCall(str(call), arguments or {}, call_id or new_call_id())
        request = _Request(
            call=call,
            context=context or CallContext(),
            limits=self.limits,
            mode=mode,
            review=False,
            approver=self._approver,
        )
        ask = await self._asked(request)
        if isinstance(ask, ToolResult):
            assert ask.error is not None
            return ask.error
        call = ToolCall(call.name, ask.valid.arguments, call.call_id)
        return prepared(call, self._planner.plan(ask), self._agreements.seal_key())

    @anywhere
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
