"""All that a decision is made from: plain values, gathered by whoever can look at the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .policy import POLICIES, Policy
from .vocabulary import LEVEL_AUTO, AccessMode, CostTier, DangerLevel, Mode

if TYPE_CHECKING:
    from ._effect import Effect, EffectGround
    from .paths import PathVerdict
    from .rules import RuleCall
    from .shell import ShellCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What the run has come to, whatever this call is.

    `problem` is why nothing may run at all. `loop` says that the same calls come again and
    again: `nudge` is told to the model, `ask` asks a person, `deny` denies.
    """

    problem: str | None = None
    problem_remedy: str | None = None
    loop: Literal["none", "nudge", "ask", "deny"] = "none"
    loop_text: str = ""
    # More questions than a person can mean to answer: none is asked for a while.
    prompts_exhausted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a decision is made from: nothing else is looked at.

    Raises:
        ValueError: there are effects, and nothing that they could be judged against.
    """

    tool_name: str
    access_mode: AccessMode
    danger: DangerLevel
    # The level that the tool's dialect, or its origin, asks for by itself
    # (an untrusted pack: 3). It can only raise; outside 0 to 3 it is clamped.
    permission_level: int = LEVEL_AUTO
    permission_tier: int = 0
    cost: CostTier = CostTier.FREE
    # The phases that the tool belongs to; none named is by its tier.
    phases: tuple[str, ...] = ()
    # Whether the tool is the one that asks to leave an investigation.
    escalation: bool = False

    policy: Policy = POLICIES["standard"]
    run: RunState = RunState()
    # What the caller's own ceilings are: a parent agent's included.
    mode: Mode = Mode.BUILD
    phase: str | None = None
    task_kind: str | None = None
    max_tier: int | None = None

    # Each path argument in each role, already resolved. None is no objection.
    paths: tuple[PathVerdict, ...] = ()
    # The command that the call runs, by its grammar; None for a tool that runs none.
    command: ShellCommand | None = None
    # What the command's words name as files, judged by the same list. Where they lie is no
    # objection: a jail shows its own /tmp, and what it does not show is not there.
    command_paths: tuple[PathVerdict, ...] = ()
    # A secret that the command's words may come by, where nothing is hidden from it.
    exposed: str | None = None
    # The call as the rules see it; None where there are no rules.
    rule_call: RuleCall | None = None

    # The jail's network: "none", "loopback" or "host".
    network: str = "none"
    # The guarantees that somebody waived by name; not what a choice by name replaces.
    waived: tuple[str, ...] = ()
    # "transaction", "read_only", "scratch" or "direct"; None where nobody said.
    workspace_mode: str | None = None
    # Host folders besides the workspace that the call may write in: nothing there is undone.
    write_folders: tuple[str, ...] = ()
    # Whether what the call does to the workspace is judged before it is kept: then what asks
    # for being written does so after the run.
    judged_after: bool = False

    # Whether a level 2 call of this shape was agreed to; `granted_by` names the grant.
    granted_first_use: bool = False
    granted_by: str | None = None
    # Where a first use of this shape could be remembered.
    remember_scopes: tuple[str, ...] = ("session",)
    plan_hash: str
    # How long the call is when shown whole to an approver.
    display_bytes: int

    # What the call did, once it has run; None before that. Then only this is decided on, and
    # what may run was decided before.
    effects: tuple[Effect, ...] | None = None
    effect_ground: EffectGround | None = None
    # Whether a person, or a rule, wants to see what was done before it is kept.
    review_wanted: bool = False

    def __post_init__(self) -> None:
        if self.effects is not None and self.effect_ground is None:
            raise ValueError("effects are judged against a workspace and its rules")

    @property
    def contained(self) -> bool:
        """Whether the call cannot leave its box, and nothing it does is kept unjudged."""
        return (
            self.network == "none"
            and not self.waived
            and not self.write_folders
            and self.workspace_mode in ("transaction", "read_only", "scratch")
        )

    @property
    def is_trusted(self) -> bool:
        """Whether the jail's own worth stands for a person's word."""
        return self.policy.trust_the_jail and self.contained
