"""What a call would do, gathered and decided: the facts, the decision, the hash of both."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Mapping
from typing import Any

from toolcell._visible import shown_call
from toolcell.approval import ApprovalRequest, SessionMemory
from toolcell.calls import CallContext
from toolcell.confinement import Workspace, limits_for, protected_list
from toolcell.schema import Validated
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
from toolcell_sandbox.spec import Limits, Network

_NO_HOMES = frozenset(
    {"/bin", "/sbin", "/dev", "/usr/sbin", "/usr/bin", "/run", "/proc", "/nonexistent"}
)
"""What passwd(5) names as homes of system users."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would run, exactly, and what was decided about it."""

    tool: Tool
    valid: Validated
    limits: Limits
    decision: Decision

    @property
    def arguments(self) -> dict[str, Any]:
        """The validated arguments."""
        return self.valid.arguments

    @property
    def text(self) -> str:
        """The whole call as a person is shown it."""
        return shown_call(self.tool.name, self.arguments)

    def request(self, call_id: str) -> ApprovalRequest:
        """What an approver is asked about it."""
        return ApprovalRequest(
            call_id=call_id,
            tool_name=self.tool.name,
            arguments=self.arguments,
            level=self.decision.level,
            reasons=self.decision.reasons,
            plan_hash=self.decision.plan_hash,
            text=self.text,
            remember_options=self.decision.remember_options,
        )


class Planner:
    """Gathers the facts of a call for `decide()`; `check` and enforcement use the same one."""

    def __init__(
        self, *, workspace: Workspace, state_dir: str, network: Network, env: Mapping[str, str]
    ) -> None:
        self._workspace = workspace
        self._network = network
        self._env = dict(env)
        self._homes = _homes()
        self._sensitive = protected_list(state_dir, workspace.path)
        self._memory = SessionMemory()

    def plan(self, tool: Tool, valid: Validated, context: CallContext, limits: Limits) -> Plan:
        """The plan of this call as the world is now: paths are resolved anew each time."""
        paths = self._paths(tool, valid.arguments)
        limits = limits_for(tool, valid.arguments, limits)
        facts = Facts(
            tool_name=tool.name,
            access_mode=tool.access_mode,
            danger=tool.danger_level,
            permission_level=tool.level_floor,
            paths=paths,
            network=self._network.kind,
            granted_first_use=self._memory.knows(*_memory_key(tool, context)),
            plan_hash=self._hash(tool, valid, limits, paths),
            display_bytes=len(shown_call(tool.name, valid.arguments).encode()),
        )
        decision = decide(facts)
        # A path that is judged as written and as read may be objected to twice in the same words.
        reasons = tuple(dict.fromkeys(decision.reasons))
        decision = dataclasses.replace(decision, reasons=reasons)
        return Plan(tool=tool, valid=valid, limits=limits, decision=decision)

    def remember(self, plan: Plan, context: CallContext) -> None:
        """Note that a first use was agreed to, for this session."""
        self._memory.add(*_memory_key(plan.tool, context))

    def recheck(self, made: Plan, context: CallContext, limits: Limits) -> Plan:
        """The plan just before it runs: the one that was decided, or a denial if it changed.

        A person may have thought for minutes, or the call waited for its turn while another
        put a link where a file was.
        """
        now = self.plan(made.tool, made.valid, context, limits)
        if now.decision.outcome is Outcome.DENY:
            return now
        if now.decision.plan_hash == made.decision.plan_hash:
            return made
        reason = Reason(
            code="plan_changed", text="what the call would do has changed since it was decided"
        )
        decision = dataclasses.replace(
            now.decision, outcome=Outcome.DENY, reasons=(reason,), remember_options=()
        )
        return dataclasses.replace(now, decision=decision)

    def _hash(
        self, tool: Tool, valid: Validated, limits: Limits, paths: tuple[PathVerdict, ...]
    ) -> str:
        return plan_hash(
            tool_name=tool.name,
            spec_hash=tool.spec_hash,
            arguments=valid.arguments,
            workspace=f"{self._workspace.path}\0{self._workspace.identity}",
            network=self._network.kind,
            pack_digest=tool.handler.digest if isinstance(tool.handler, HandlerRef) else None,
            jail={
                "limits": dataclasses.asdict(limits),
                "env": self._env,
                "paths": [verdict.resolved for verdict in paths],
            },
        )

    def _paths(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[PathVerdict, ...]:
        """Every path argument, given or by default, resolved now."""
        found: list[PathVerdict] = []
        for name, role in tool.path_params.items():
            default = tool.input_schema.get("properties", {}).get(name, {}).get("default")
            value = arguments.get(name, default)
            for path in value if isinstance(value, list) else [value]:
                if isinstance(path, str):
                    # Who writes a file may read it as well: an edit returns what was there.
                    found += [
                        check_path(path, each, self._workspace.path, self._homes, self._sensitive)
                        for each in (("write", "read") if role == "write" else ("read",))
                    ]
        return tuple(found)


def _memory_key(tool: Tool, context: CallContext) -> tuple[str | None, ...]:
    return (tool.name, tool.spec_hash, context.session_id, context.agent_id)


def _homes() -> tuple[str, ...]:
    """Every home on this machine, as written and as it resolves."""
    written = {os.path.expanduser("~"), *(entry.pw_dir for entry in pwd.getpwall())}
    kept = {home for home in written if home.strip("/")} - _NO_HOMES
    return tuple(sorted(kept | {os.path.realpath(home) for home in kept}))
