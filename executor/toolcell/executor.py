"""The road of one call, straight down:

resolve → validate → decide → approve → confine → run → settle
"""

from __future__ import annotations

import dataclasses
import logging
import os
import traceback
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import trio

from toolcell._visible import shown_call
from toolcell.approval import (
    ApprovalRequest,
    Approved,
    Approver,
    SessionMemory,
    approve,
    deny_all,
)
from toolcell.audit import Audit
from toolcell.calls import CallContext, ToolCall, new_call_id
from toolcell.confinement import Workspace, confine, limits_for, protected_list
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
from toolcell.tools import HandlerRef, Tool
from toolcell_policies import (
    Decision,
    Facts,
    Outcome,
    PathVerdict,
    Reason,
    check_path,
    decide,
    plan_hash,
)
from toolcell_sandbox import run_in_jail
from toolcell_sandbox.spec import Limits, Network

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What would run, exactly, and what was decided about it."""

    tool: Tool
    arguments: dict[str, Any]
    limits: Limits
    paths: tuple[PathVerdict, ...]
    decision: Decision


class _Streams(NamedTuple):
    """What a caller joins to a handler's own streams."""

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
    """

    def __init__(
        self,
        registry: ToolRegistry | None = None,
        *,
        tools: Iterable[Any] = (),
        workspace: str | os.PathLike[str],
        policy: str = "standard",
        approver: Approver = deny_all,
        isolation: str = "standard",
        limits: Limits | None = None,
        network: Network | None = None,
        env: Mapping[str, str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        max_concurrency: int | None = None,
        builtin: bool = True,
    ) -> None:
        if policy != "standard":
            raise ValueError(f"policy {policy!r} is not offered; this version has 'standard'")
        if isolation != "standard":
            raise ValueError(f"isolation {isolation!r} is not offered; this version has 'standard'")
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
        self._approver = approver
        self._memory = SessionMemory()
        self._homes = _homes()
        self._sensitive = protected_list(self.state_dir)
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
            call = ToolCall(call, arguments or {}, call_id or new_call_id())
        context = context or CallContext()
        kind: str | None = "cancelled"
        try:
            await self._audit.record("intent", call_id=call.call_id, tool_name=_named(call))
        except OSError as error:
            return refused(call, _defect(error, "the audit log takes no record, so nothing runs"))
        try:
            streams = _Streams(stdin, sink)
            result = await self._guarded(call, context, limits or self.limits, streams)
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

    async def _guarded(
        self, call: ToolCall, context: CallContext, limits: Limits, streams: _Streams
    ) -> ToolResult:
        """The road, with our own defects as a typed ending."""
        try:
            await trio.lowlevel.checkpoint()
            return await self._road(call, context, limits, streams)
        except Exception as error:  # noqa: BLE001  # our own defects are an ending; Cancelled goes up
            _log.exception("call %s failed by a defect of toolcell", call.call_id)
            return refused(call, _defect(error, "toolcell itself failed to run this call"))

    async def _road(
        self, call: ToolCall, context: CallContext, limits: Limits, streams: _Streams
    ) -> ToolResult:
        tool = self.registry.snapshot().resolve(call.name)
        if not isinstance(tool, Tool):
            return refused(call, tool)
        valid = validate(tool, call.arguments)
        if not isinstance(valid, Validated):
            return refused(call, valid, tool_name=tool.name)
        plan = self._decide(tool, valid, context, limits)
        if plan.decision.outcome is Outcome.ASK:
            answer, terminate = await self._approve(call, plan, context)
            if not isinstance(answer, Approved):
                return self._refused(call, plan, valid, answer, terminate=terminate)
            plan = self._unchanged(plan, self._decide(tool, valid, context, limits), answer)
        if plan.decision.outcome is Outcome.DENY:
            return self._refused(call, plan, valid, _denied(plan.decision))
        handler, spec = confine(
            tool,
            plan.arguments,
            workspace=self.workspace,
            limits=plan.limits,
            network=self.network,
            env=self._env,
            context=dataclasses.asdict(context) | {"call_id": call.call_id},
        )
        async with self._slots:
            outcome = await run_in_jail(handler, spec, stdin=streams.stdin, sink=streams.sink)
        return settle(call, tool, outcome, decision=plan.decision, repairs=valid.repairs)

    def _refused(
        self,
        call: ToolCall,
        plan: _Plan,
        valid: Validated,
        failure: Any,
        *,
        terminate: bool = False,
    ) -> ToolResult:
        return refused(
            call,
            failure,
            tool_name=plan.tool.name,
            decision=plan.decision,
            repairs=valid.repairs,
            terminate=terminate,
        )

    # -- decide and approve ---------------------------------------------------------------

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
        return self._decide(tool, valid, context or CallContext(), self.limits).decision

    def _decide(self, tool: Tool, valid: Validated, context: CallContext, limits: Limits) -> _Plan:
        paths = self._paths(tool, valid.arguments)
        limits = limits_for(tool, valid.arguments, limits)
        digest = tool.handler.digest if isinstance(tool.handler, HandlerRef) else None
        hashed = plan_hash(
            tool_name=tool.name,
            spec_hash=tool.spec_hash,
            arguments=valid.arguments,
            workspace=f"{self.workspace.path}\0{self.workspace.identity}",
            network=self.network.kind,
            pack_digest=digest,
            jail={
                "limits": dataclasses.asdict(limits),
                "env": dict(self._env),
                "paths": [verdict.resolved for verdict in paths],
            },
        )
        facts = Facts(
            tool_name=tool.name,
            access_mode=tool.access_mode,
            danger=tool.danger_level,
            permission_level=tool.level_floor,
            paths=paths,
            network=self.network.kind,
            granted_first_use=self._memory.knows(*self._memory_key(tool, context)),
            plan_hash=hashed,
            display_bytes=len(shown_call(tool.name, valid.arguments).encode()),
        )
        return _Plan(
            tool=tool,
            arguments=valid.arguments,
            limits=limits,
            paths=paths,
            decision=decide(facts),
        )

    def _paths(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[PathVerdict, ...]:
        """Every path argument, given or by default, resolved now."""
        found = []
        for name, role in tool.path_params.items():
            default = tool.input_schema.get("properties", {}).get(name, {}).get("default")
            value = arguments.get(name, default)
            for path in value if isinstance(value, list) else [value]:
                if isinstance(path, str):
                    # Who writes a file may read it as well: an edit returns what was there.
                    found += [
                        check_path(path, each, self.workspace.path, self._homes, self._sensitive)
                        for each in (("write", "read") if role == "write" else ("read",))
                    ]
        return tuple(found)

    async def _approve(self, call: ToolCall, plan: _Plan, context: CallContext) -> tuple[Any, bool]:
        decision = plan.decision
        request = ApprovalRequest(
            call_id=call.call_id,
            tool_name=plan.tool.name,
            arguments=plan.arguments,
            level=decision.level,
            reasons=decision.reasons,
            plan_hash=decision.plan_hash,
            text=shown_call(plan.tool.name, plan.arguments),
            remember_options=decision.remember_options,
        )
        answer, terminate = await approve(self._approver, decision, request)
        if isinstance(answer, Approved) and answer.remembered:
            self._memory.add(*self._memory_key(plan.tool, context))
        return answer, terminate

    def _unchanged(self, asked: _Plan, now: _Plan, answer: Approved) -> _Plan:
        """The plan as it stands just before it runs: the approved one, or a denial."""
        if now.decision.outcome is Outcome.DENY:
            return now
        if now.decision.plan_hash == answer.plan_hash == asked.decision.plan_hash:
            return asked
        reason = Reason(
            code="plan_changed",
            text="what the call would do has changed since it was approved",
        )
        decision = dataclasses.replace(
            now.decision, outcome=Outcome.DENY, reasons=(reason,), remember_options=()
        )
        return dataclasses.replace(now, decision=decision)

    def _memory_key(self, tool: Tool, context: CallContext) -> tuple[str | None, ...]:
        return (tool.name, tool.spec_hash, context.session_id, context.agent_id)


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


def _homes() -> tuple[str, ...]:
    """Every home on this machine, as written and as it resolves."""
    import pwd

    written = {os.path.expanduser("~"), *(entry.pw_dir for entry in pwd.getpwall())}
    kept = {home for home in written if home.count("/") >= 1 and home.strip("/")}
    system = {"/bin", "/sbin", "/dev", "/usr/sbin", "/usr/bin", "/run", "/proc", "/nonexistent"}
    kept -= system
    return tuple(sorted(kept | {os.path.realpath(home) for home in kept}))
