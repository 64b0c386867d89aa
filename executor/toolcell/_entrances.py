"""What an executor can be asked: one call or a turn of them, and what would come of one.

All of it is a way onto the road, which is `executor.py`; nothing here decides or runs anything.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolcell._agreements import FORGED, answering
from toolcell._assembly import Assembly
from toolcell._choices import chosen_mode
from toolcell._events import LiveEvents, Stream, stream
from toolcell._loops.anywhere import anywhere, iterated_anywhere
from toolcell.approval import Answer, Approver
from toolcell.availability import unavailable
from toolcell.calls import CallContext, ToolCall, new_call_id
from toolcell.parallel import in_parallel
from toolcell.planning import Ask
from toolcell.prepared import Plan, prepared
from toolcell.registry import Snapshot
from toolcell.results import ExecutorError, Failure, ToolResult
from toolcell.schema import Validated, validate
from toolcell.settlement import refused
from toolcell.tools import Tool
from toolcell_policies import Decision, ExecutionCategory, Reason
from toolcell_sandbox.spec import Limits, WorkspaceMode

if TYPE_CHECKING:
    from toolcell_sandbox._supervise import Sink

Stdin = bytes | AsyncIterable[bytes] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
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


class Entrances(Assembly, abc.ABC):
    """The public methods of an executor; the road that they lead to is its own."""

    # -- the road, from outside -----------------------------------------------------------

    @abc.abstractmethod
    async def _recorded(self, request: Request) -> ToolResult:
        """Walk the whole road; how it ended is on record."""

    @abc.abstractmethod
    async def _asked(self, request: Request) -> Ask | ToolResult:
        """What is asked for: a tool that is there, with arguments that it takes."""

    def _found(self, name: str, shown: Snapshot, *, refuse_stale: bool) -> Tool | Failure:
        """The tool to call, or why there is none to call."""
        tool = shown.resolve(name)
        if not isinstance(tool, Tool):
            return tool
        stale = shown.stale(tool.name, self.registry.snapshot()) if refuse_stale else None
        return stale or unavailable(tool) or tool

    # -- one call -------------------------------------------------------------------------

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
        request = Request(
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

        return dataclasses.replace(self._seen(now, context), settler=settler)

    def _seen(self, tools: Snapshot, context: CallContext) -> Snapshot:
        """The same tools, but for what is hidden from whoever a call is made for."""
        return dataclasses.replace(tools, is_shown=lambda tool: self._shows(tool, context))

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
        request = Request(
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
        request = Request(
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
