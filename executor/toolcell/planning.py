"""What a call would do, gathered and decided: the facts, the decision, the hash of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from toolcell._choices import Choices
from toolcell._protected import Protected
from toolcell._visible import shown_call
from toolcell.approval import ApprovalRequest, SessionMemory
from toolcell.calls import CallContext
from toolcell.confinement import Workspace, limits_for
from toolcell.schema import Validated
from toolcell.tools import HandlerRef, Tool
from toolcell_policies import (
    SYSTEM_FOLDERS,
    Decision,
    Effect,
    EffectGround,
    EffectReason,
    Facts,
    Outcome,
    PathVerdict,
    Reason,
    Role,
    check_path,
    decide,
    judge_effects,
    plan_hash,
)
from toolcell_sandbox import host
from toolcell_sandbox.spec import Limits, WorkspaceMode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would run, exactly, and what was decided about it."""

    tool: Tool
    valid: Validated
    limits: Limits
    mode: WorkspaceMode
    decision: Decision
    first_use: tuple[object, ...]
    """What a first use that was agreed to is remembered by."""
    paths: tuple[PathVerdict, ...]

    @property
    def arguments(self) -> dict[str, Any]:
        """The validated arguments."""
        return self.valid.arguments

    @property
    def settled(self) -> dict[str, str]:
        """Each path among the arguments, and where it led when it was decided on."""
        return {one.path_as_given: one.resolved for one in self.paths if one.resolved is not None}

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was decided about what a call did; each path with its code, rule and text.

    `refused` is never kept, `asked` once a person agrees, `dropped` is left out of what is kept.
    """

    decision: Decision
    refused: tuple[dict[str, str | None], ...] = ()
    asked: tuple[dict[str, str | None], ...] = ()
    dropped: tuple[dict[str, str | None], ...] = ()


_KEPT = "it is hidden from every call, and stays as it is"


def _as_json(found: EffectReason) -> dict[str, str | None]:
    reason = found.reason
    return {"path": found.path, "code": reason.code, "rule": reason.rule, "text": reason.text}


def effect_ground(
    protected: Protected, workspace: str, top_entries: tuple[str, ...]
) -> EffectGround:
    """What effects in a workspace are judged against."""
    return EffectGround(
        rules=protected.rules,
        homes=protected.homes,
        workspace=workspace,
        top_entries=top_entries,
        program_folders=(*SYSTEM_FOLDERS, *host.interpreter_folders()),
    )


class Planner:
    """Gathers the facts of a call for `decide()`; `check` and enforcement use the same one."""

    def __init__(self, *, workspace: Workspace, protected: Protected, choices: Choices) -> None:
        self._workspace = workspace
        self._protected = protected
        self._choices = choices
        self._folders = choices.folders.for_policy()
        self._memory = SessionMemory()

    def plan(
        self,
        tool: Tool,
        valid: Validated,
        context: CallContext,
        limits: Limits,
        mode: WorkspaceMode | None = None,
    ) -> Plan:
        """The plan of this call as the world is now: paths are resolved anew each time.

        `mode` is the call's own choice of a workspace mode, where it makes one.
        """
        paths = self._paths(tool, valid.arguments)
        limits = limits_for(tool, valid.arguments, limits)
        ready = self._choices.mode_of(tool, mode)
        first_use = _first_use(tool, context, ready, paths)
        facts = Facts(
            tool_name=tool.name,
            access_mode=tool.access_mode,
            danger=tool.danger_level,
            permission_level=tool.level_floor,
            paths=paths,
            network=self._choices.network.kind,
            waived=self._choices.waive,
            judged_after=ready == "transaction",
            granted_first_use=self._memory.knows(*first_use),
            plan_hash=self._hash(tool, valid, limits, ready, paths),
            display_bytes=len(shown_call(tool.name, valid.arguments).encode()),
        )
        decision = decide(facts)
        # A path that is judged as written and as read may be objected to twice in the same words.
        reasons = tuple(dict.fromkeys(decision.reasons))
        decision = dataclasses.replace(decision, reasons=reasons)
        return Plan(
            tool=tool,
            valid=valid,
            limits=limits,
            mode=ready,
            decision=decision,
            first_use=first_use,
            paths=paths,
        )

    def remember(self, plan: Plan) -> None:
        """Note that a first use was agreed to, for this session."""
        self._memory.add(*plan.first_use)

    def recheck(
        self,
        made: Plan,
        context: CallContext,
        limits: Limits,
        mode: WorkspaceMode | None = None,
    ) -> Plan:
        """The plan just before it runs: the one that was decided, or a denial if it changed.

        A person may have thought for minutes, or the call waited for its turn while another
        put a link where a file was.
        """
        now = self.plan(made.tool, made.valid, context, limits, mode)
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

    def judge(
        self, plan: Plan, effects: tuple[Effect, ...], top_entries: tuple[str, ...], *, review: bool
    ) -> Judgement:
        """What is to become of what a call did: by the same `decide()` as before it ran."""
        ground = effect_ground(self._protected, self._workspace.path, top_entries)
        facts = self._facts(plan.tool, plan.decision.plan_hash, effects, ground, review=review)
        decision = decide(facts)
        if decision.outcome is Outcome.ALLOW and not decision.reasons:
            return Judgement(decision=decision)
        found = judge_effects(effects, ground, review_wanted=review)
        return Judgement(
            decision=decision,
            refused=tuple(map(_as_json, found.refused)),
            asked=tuple(map(_as_json, found.asks)),
            dropped=tuple(
                {"path": path, "code": code, "rule": None, "text": _KEPT}
                for path, code in found.dropped
            ),
        )

    def _facts(
        self,
        tool: Tool,
        plan_hash: str,
        effects: tuple[Effect, ...],
        ground: EffectGround,
        *,
        review: bool,
    ) -> Facts:
        return Facts(
            tool_name=tool.name,
            access_mode=tool.access_mode,
            danger=tool.danger_level,
            permission_level=tool.level_floor,
            plan_hash=plan_hash,
            display_bytes=0,
            effects=effects,
            effect_ground=ground,
            review_wanted=review,
        )

    def _hash(
        self,
        tool: Tool,
        valid: Validated,
        limits: Limits,
        mode: WorkspaceMode,
        paths: tuple[PathVerdict, ...],
    ) -> str:
        """One name for the call and for the whole jail that it would run in."""
        choices = self._choices
        return plan_hash(
            tool_name=tool.name,
            spec_hash=tool.spec_hash,
            arguments=valid.arguments,
            workspace=f"{self._workspace.path}\0{self._workspace.identity}",
            network=choices.network.kind,
            waived=choices.waive,
            pack_digest=tool.handler.digest if isinstance(tool.handler, HandlerRef) else None,
            jail={
                "limits": dataclasses.asdict(limits),
                "env": choices.environment,
                "isolation": choices.isolation,
                "workspace_mode": mode,
                "folders": [dataclasses.asdict(one) for one in choices.folders.granted],
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
                    roles: tuple[Role, ...] = ("write", "read") if role == "write" else ("read",)
                    found += [self._verdict(path, each) for each in roles]
        return tuple(found)

    def _verdict(self, path: str, role: Role) -> PathVerdict:
        known = self._protected
        return check_path(
            path, role, self._workspace.path, known.homes, known.rules, folders=self._folders
        )


def _first_use(
    tool: Tool, context: CallContext, mode: WorkspaceMode, paths: tuple[PathVerdict, ...]
) -> tuple[object, ...]:
    """What a yes to a first use is a yes to: this tool, in this workspace mode, in these folders.

    Who may write in a workspace of the jail's own may not for that in the real one, nor in a
    folder that was granted besides it.
    """
    folders = frozenset(one.folder for one in paths if one.role == "write")
    return (
        tool.name, tool.spec_hash, context.session_id, context.agent_id, mode, folders
    )  # fmt: skip
