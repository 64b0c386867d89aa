"""What a call would do, gathered and decided: the facts, the decision, the hash of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolcell._choices import Choices
from toolcell._command_facts import CommandFacts, command_facts
from toolcell._executables import Programs
from toolcell._exposed import exposed
from toolcell._protected import Protected
from toolcell._visible import shown_call, visible
from toolcell.approval import ApprovalRequest
from toolcell.calls import CallContext
from toolcell.confinement import Workspace, limits_for, writes
from toolcell.schema import Validated
from toolcell.tools import HandlerRef, Tool
from toolcell_policies import (
    SYSTEM_FOLDERS,
    Decision,
    Effect,
    EffectGround,
    EffectReason,
    Facts,
    Mode,
    Outcome,
    PathVerdict,
    Policy,
    Reason,
    Role,
    RunState,
    admits,
    check_path,
    decide,
    judged_effects,
    plan_hash,
)
from toolcell_policies.grant_key import grant_key
from toolcell_policies.paths import Filesystem, StillFilesystem
from toolcell_sandbox import host
from toolcell_sandbox.spec import Limits, WorkspaceMode

if TYPE_CHECKING:
    from toolcell_policies.rules import RuleCall


PATHS_MAX = 1_000
"""As many paths of one call are resolved."""

_ROLES: dict[Role, tuple[Role, ...]] = {"read": ("read",), "write": ("write", "read")}

PLAN_CHANGED = "what the call would do has changed since it was decided"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One call as it is asked for, before anything is looked up."""

    tool: Tool
    valid: Validated
    context: CallContext
    limits: Limits
    mode: WorkspaceMode | None = None
    """The call's own choice of a workspace mode, where it makes one."""
    run: RunState = dataclasses.field(default_factory=RunState)
    told_paths: tuple[str, ...] | None = None
    """What an untrusted pack's own `paths` said in a jail; None where nobody asked it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What would run, exactly, and what was decided about it."""

    ask: Ask
    limits: Limits
    mode: WorkspaceMode
    facts: Facts
    decision: Decision
    grant: GrantShape

    @property
    def tool(self) -> Tool:
        """The tool."""
        return self.ask.tool

    @property
    def valid(self) -> Validated:
        """The arguments, with what was repaired in them."""
        return self.ask.valid

    @property
    def arguments(self) -> dict[str, Any]:
        """The validated arguments."""
        return self.valid.arguments

    @property
    def settled(self) -> dict[str, str]:
        """Each path among the arguments, and where it led when it was decided on."""
        return _settled(self.facts.paths)

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
            remembers=self.grant.text if self.decision.remember_options else None,
        )

    def decided(self, **changed: Any) -> Planned:
        """The same plan, decided again with some facts changed."""
        facts = dataclasses.replace(self.facts, **changed)
        return dataclasses.replace(self, facts=facts, decision=_decision(facts))

    def denied(self, code: str, text: str) -> Planned:
        """The same plan, denied for one reason."""
        decision = dataclasses.replace(
            self.decision,
            outcome=Outcome.DENY,
            reasons=(Reason(code=code, text=text),),
            remember_options=(),
            remedy=None,
            denied_by="run_state",
        )
        return dataclasses.replace(self, decision=decision)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GrantShape:
    """What a yes that is remembered would be a yes to."""

    key: str
    mode: Mode
    text: str


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
    """Gathers the facts of a call for `decide()`; `check` and enforcement use the same one.

    `granted` says by which grant a first use of a shape was agreed to, if it was.
    """

    def __init__(
        self,
        *,
        workspace: Workspace,
        protected: Protected,
        choices: Choices,
        policy: Policy,
        mode: Mode,
        granted: Callable[[GrantShape, CallContext], str | None],
    ) -> None:
        self._workspace = workspace
        self._protected = protected
        self._choices = choices
        self._policy = policy
        self._mode = mode.stricter(policy.mode)
        self._granted = granted
        self._folders = choices.folders.for_policy()
        self._writable = tuple(one.path for one in choices.folders.granted if one.writable)
        self._programs = Programs(writable=(workspace.path, *self._writable))
        self._environment = {**host.base_environment(), **choices.environment}

    def plan(self, ask: Ask) -> Planned:
        """The plan of this call as the world is now: paths are resolved anew each time."""
        tool, arguments = ask.tool, ask.valid.arguments
        # Of one moment: what is judged as written and as read is then one place.
        fs = StillFilesystem()
        paths = self._paths(ask, fs)
        limits = limits_for(tool, arguments, ask.limits)
        ceiling = self._ceiling(ask.context)
        ready = self._ready(tool, ask.mode, ceiling)
        command = command_facts(
            tool,
            arguments,
            workspace=self._workspace.path,
            environment=self._environment,
            programs=self._programs,
            judge=lambda path, role: self._verdict(path, role, fs),
            must_hash=self._policy.rules is not None,
            settled=_settled(paths),
        )
        shape = self._shape(ask, ready, ceiling, paths, command)
        facts = Facts(
            **self._words(tool, ask.context, ceiling),
            run=ask.run,
            paths=paths,
            command=None if command is None else command.command,
            command_paths=() if command is None else command.paths,
            exposed=self._exposed(command, ready),
            rule_call=self._rule_call(tool, arguments, paths, command),
            network=self._choices.network_of(tool).kind,
            waived=self._choices.waive,
            workspace_mode=ready,
            write_folders=self._writable if writes(tool) else (),
            judged_after=ready == "transaction",
            remember_scopes=("session", "project"),
            plan_hash=self._hash(ask, limits, ready, paths, command),
            display_bytes=len(shown_call(tool.name, arguments).encode()),
        )
        decision = _decision(facts)
        if decision.remember_options:
            grant = self._granted(shape, ask.context)
            if grant is not None:
                facts = dataclasses.replace(facts, granted_first_use=True, granted_by=grant)
                decision = _decision(facts)
        return Planned(
            ask=ask, limits=limits, mode=ready, facts=facts, decision=decision, grant=shape
        )

    def workspace_mode(self, tool: Tool) -> WorkspaceMode:
        """The workspace that a call of this tool gets where nobody asks for another."""
        return self._ready(tool, None, self._mode)

    def _exposed(self, command: CommandFacts | None, mode: WorkspaceMode) -> str | None:
        """What secret a command's words may come by, where words decide and nothing is hidden."""
        if command is None or mode != "direct" or not self._policy.trust_the_jail:
            return None
        known = self._protected

        def is_secret(path: str) -> bool:
            rules = known.rules.match(path, role="read", homes=known.homes)
            return any(rule.forbids("read") for rule in rules)

        return exposed(command.reads(), is_secret)

    def admits(self, tool: Tool, context: CallContext) -> bool:
        """Whether the ceilings leave a tool in: the pass that `decide()` asks, of no call yet."""
        ceiling = self._ceiling(context)
        facts = Facts(
            **self._words(tool, context, ceiling),
            workspace_mode=self._ready(tool, None, ceiling),
            plan_hash="",
            display_bytes=0,
        )
        return admits(facts)

    def denies(self, tool: Tool) -> bool:
        """Whether a rule denies every call of a tool, whatever its arguments are."""
        if self._policy.rules is None:
            return False
        asked = self._rule_call(tool, {}, (), None)
        return asked is not None and bool(self._policy.rules.judge(asked).denies)

    def _ceiling(self, context: CallContext) -> Mode:
        return self._mode if context.mode is None else self._mode.stricter(Mode(context.mode))

    def _words(self, tool: Tool, context: CallContext, ceiling: Mode) -> dict[str, Any]:
        """The facts that a tool and whom it is called for give, whatever the arguments are."""
        return {
            "tool_name": tool.name,
            "access_mode": tool.access_mode,
            "danger": tool.danger_level,
            "permission_level": tool.level_floor,
            "permission_tier": tool.permission_tier,
            "cost": tool.cost_tier,
            "phases": tool.phases,
            "escalation": tool.escalation,
            "policy": self._policy,
            "mode": ceiling,
            "phase": context.phase,
            "task_kind": context.task_kind,
            "max_tier": context.tier,
        }

    def _ready(self, tool: Tool, asked: WorkspaceMode | None, ceiling: Mode) -> WorkspaceMode:
        """The workspace mode; what explores gets a scratch one, unless somebody named another."""
        is_named = asked is not None or self._choices.workspace_mode is not None
        if ceiling is Mode.EXPLORE and writes(tool) and not is_named:
            return "scratch"
        return self._choices.mode_of(tool, asked)

    def recheck(self, made: Planned) -> Planned:
        """The plan just before it runs: the one that was decided, or a denial if it changed.

        A person may have thought for minutes, or the call waited for its turn while another
        put a link where a file was, or other content into a program that it runs. So does a
        grant that was revoked meanwhile change it, or a reason to ask that nobody was told.
        """
        now = self.plan(made.ask)
        if now.decision.outcome is Outcome.DENY:
            return now
        is_other = now.decision.plan_hash != made.decision.plan_hash
        if now.decision.outcome is Outcome.ASK:
            untold = set(now.decision.reasons) - set(made.decision.reasons)
            is_other = is_other or made.decision.outcome is not Outcome.ASK or bool(untold)
        return now.denied("plan_changed", PLAN_CHANGED) if is_other else made

    def judge(
        self,
        plan: Planned,
        effects: tuple[Effect, ...],
        top_entries: tuple[str, ...],
        *,
        review: bool,
    ) -> Judgement:
        """What is to become of what a call did: by the same `decide()` as before it ran."""
        ground = effect_ground(self._protected, self._workspace.path, top_entries)
        facts = dataclasses.replace(
            plan.facts, effects=effects, effect_ground=ground, review_wanted=review
        )
        decision = decide(facts)
        if decision.outcome is Outcome.ALLOW and not decision.reasons:
            return Judgement(decision=decision)
        found = judged_effects(facts)
        return Judgement(
            decision=decision,
            refused=tuple(map(_as_json, found.refused)),
            asked=tuple(map(_as_json, found.asks)),
            dropped=tuple(
                {"path": path, "code": code, "rule": None, "text": _KEPT}
                for path, code in found.dropped
            ),
        )

    def _hash(
        self,
        ask: Ask,
        limits: Limits,
        mode: WorkspaceMode,
        paths: tuple[PathVerdict, ...],
        command: CommandFacts | None,
    ) -> str:
        """One name for the call and for the whole jail that it would run in."""
        choices, tool = self._choices, ask.tool
        return plan_hash(
            tool_name=tool.name,
            spec_hash=tool.spec_hash,
            arguments=ask.valid.arguments,
            workspace=f"{self._workspace.path}\0{self._workspace.identity}",
            network=choices.network_of(tool).kind,
            waived=choices.waive,
            pack_digest=tool.handler.digest if isinstance(tool.handler, HandlerRef) else None,
            jail={
                "limits": dataclasses.asdict(limits),
                "env": choices.environment,
                "isolation": choices.isolation,
                "workspace_mode": mode,
                "folders": [dataclasses.asdict(one) for one in choices.folders.granted],
                "paths": [verdict.resolved for verdict in paths],
                "programs": [] if command is None else [list(one) for one in command.replaceable],
                "policy": self._policy.epoch,
                "agent": ask.context.agent_id,
            },
        )

    def _shape(
        self,
        ask: Ask,
        mode: WorkspaceMode,
        ceiling: Mode,
        paths: tuple[PathVerdict, ...],
        command: CommandFacts | None,
    ) -> GrantShape:
        """What a yes to a first use is a yes to.

        To this tool in this workspace mode and in these folders: who may write in a workspace of
        the jail's own may not for that in the real one. To a command, as it stands: its program
        by path and content, its very words, variables and folder. To each with the host folders
        that it could write in, named or not: nothing there is undone.
        """
        tool, choices = ask.tool, self._choices
        where = visible(self._workspace.path)
        shape: dict[str, Any]
        if command is None:
            folders = sorted({one.folder or "" for one in paths if one.role == "write"})
            shape = {"tool": tool.name, "folders": folders}
            named = [visible(folder) for folder in folders if folder]
            text = f"every call of {tool.name} in {' and '.join([where, *named])}"
        else:
            shape = {
                "programs": [
                    None if one is None else [one.path, one.identity if one.is_replaceable else ""]
                    for one in command.programs
                ],
                "command": command.command.text,
                "env": dict(choices.env),
                "cwd": command.cwd,
            }
            text = f"exactly this command, in {visible(command.cwd)}"
        shape["write"] = sorted(self._writable) if writes(tool) else []
        key = grant_key(
            workspace=self._workspace.path,
            workspace_identity=self._workspace.identity,
            agent_id=ask.context.agent_id,
            tool_name=tool.name,
            spec_hash=tool.spec_hash,
            policy_epoch=self._policy.epoch,
            network=choices.network_of(tool).kind,
            workspace_mode=mode,
            waived=choices.waive,
            isolation=choices.isolation,
            shape=shape,
        )
        return GrantShape(key=key, mode=ceiling, text=text)

    def _rule_call(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        paths: tuple[PathVerdict, ...],
        command: CommandFacts | None,
    ) -> RuleCall | None:
        if self._policy.rules is None:
            return None
        from toolcell_policies.rules import RuleCall, RulePath

        named = (*paths, *(() if command is None else command.paths))
        return RuleCall(
            tool_name=tool.name,
            action=tool.action,
            access=tool.access_mode.value,
            arguments=arguments,
            paths=tuple(
                RulePath(real=one.resolved or one.path_as_given, role=one.role) for one in named
            ),
            segments=None if command is None else command.rule_segments(),
            workspace=self._workspace.path,
            homes=self._protected.homes,
        )

    def _paths(self, ask: Ask, fs: Filesystem) -> tuple[PathVerdict, ...]:
        """Every path argument, given or by default, resolved now; and what `paths` names."""
        tool, arguments = ask.tool, ask.valid.arguments
        named: list[tuple[str, Role]] = []
        try:
            told = tool.paths_of(arguments) if ask.told_paths is None else ask.told_paths
        except ValueError as error:
            return (_unresolved("paths_unknown", str(error)),)
        role: Role = "write" if writes(tool) else "read"
        named += [(path, each) for path in told for each in _ROLES[role]]
        for name, role in tool.path_params.items():
            default = tool.input_schema.get("properties", {}).get(name, {}).get("default")
            value = arguments.get(name, default)
            for path in value if isinstance(value, list) else [value]:
                if isinstance(path, str):
                    # Who writes a file may read it as well: an edit returns what was there.
                    named += [(path, each) for each in _ROLES[role]]
        if len(named) > PATHS_MAX:
            text = f"the call names {len(named):,} paths; {PATHS_MAX:,} are looked at"
            return (_unresolved("path_too_many", text),)
        return tuple(self._verdict(path, role, fs) for path, role in named)

    def _verdict(self, path: str, role: Role, fs: Filesystem) -> PathVerdict:
        known = self._protected
        return check_path(
            path,
            role,
            self._workspace.path,
            # A command's `~` is the jail's own: what would be a secret in a home is one there too.
            (*known.homes, self._environment["HOME"]),
            known.rules,
            fs,
            self._folders,
        )


def _unresolved(code: str, text: str) -> PathVerdict:
    return PathVerdict(
        path_as_given="",
        resolved=None,
        role="read",
        inside=False,
        denied=True,
        reasons=(Reason(code=code, text=text),),
        level_floor=0,
        links=(),
    )


def _settled(paths: tuple[PathVerdict, ...]) -> dict[str, str]:
    return {one.path_as_given: one.resolved for one in paths if one.resolved is not None}


def _decision(facts: Facts) -> Decision:
    """Decide; of two objections in the same words (a path in two roles) one is told."""
    decision = decide(facts)
    return dataclasses.replace(decision, reasons=tuple(dict.fromkeys(decision.reasons)))
