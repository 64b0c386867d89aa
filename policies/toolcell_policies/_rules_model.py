"""What a rule file says, as values; and the question and the answer of `RuleSet.judge`."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, Literal

from ._text import shown
from .decision import Outcome, Reason
from .sensitive import Role
from .vocabulary import LEVEL_ALWAYS, LEVEL_AUTO, CostTier, Mode

Extends = Literal["standard", "coding", "ci", "strict"]
Scalar = str | int | float | bool

EVERY_TOOL: Final = ("*",)


class Scope(StrEnum):
    """Whose file it is."""

    USER = "user"
    # Comes with a repository: it may only tighten, until its content is trusted.
    PROJECT = "project"
    BUILTIN = "builtin"


class Match(IntEnum):
    """Whether a rule speaks about something."""

    NO = 0
    # A word that only a run can tell stands where it would matter.
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """The exact program: where it really lies, and the digest of what is in it."""

    path: str | None = None
    sha256: str | None = None

    @property
    def exact(self) -> bool:
        """Whether it names one program and one content."""
        return self.path is not None and self.sha256 is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The conditions of a rule: all that are given must hold.

    Empty or None is no condition, but for `only_flags`, where empty is no flag at all.
    """

    # As written: relative to the workspace, from the root, or from any home.
    path: tuple[str, ...] = ()
    role: Role | None = None
    # For each word of the command its alternatives.
    command: tuple[tuple[str, ...], ...] = ()
    flags: tuple[str, ...] = ()
    not_flags: tuple[str, ...] = ()
    only_flags: tuple[str, ...] | None = None
    executable: Executable | None = None
    host: tuple[str, ...] = ()
    # For each argument its alternatives.
    arguments: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()
    access: tuple[str, ...] = ()

    @property
    def about_commands(self) -> bool:
        """Whether it speaks about the commands of a shell."""
        return bool(
            self.command
            or self.flags
            or self.not_flags
            or self.only_flags is not None
            or self.executable
        )

    @property
    def about_paths(self) -> bool:
        """Whether it speaks about paths."""
        return bool(self.path or self.role)

    @property
    def about_hosts(self) -> bool:
        """Whether it speaks about hosts."""
        return bool(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example of a rule: a command, a path, a host, a name, or a table of arguments."""

    text: str
    # Set where the example is a table.
    arguments: Mapping[str, object] | None = field(default=None, compare=False)
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule, as it is written."""

    id: str
    outcome: Outcome
    # Names or patterns of tools; ("*",) where the file names none.
    tools: tuple[str, ...] = EVERY_TOOL
    # Names or patterns of actions; empty is no condition.
    actions: tuple[str, ...] = ()
    when: When = When()
    # For a model to act on: one printable line. Empty only where the rule allows.
    reason: str = ""
    remedy: str | None = None
    # What an `ask` asks for: 2 or 3.
    level: int = LEVEL_ALWAYS
    scope: Scope
    # `file:line`
    source: str
    # The first and the last line of it.
    lines: tuple[int, int]
    match: tuple[Example, ...] = ()
    not_match: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What no call may exceed, whatever a rule says; None is no ceiling."""

    max_cost: CostTier | None = None
    mode: Mode | None = None
    tier: int | None = None

    def stricter(self, other: "Ceilings") -> "Ceilings":
        """Return the lower of each two."""
        modes = [one for one in (self.mode, other.mode) if one is not None]
        costs = [one for one in (self.max_cost, other.max_cost) if one is not None]
        tiers = [one for one in (self.tier, other.tier) if one is not None]
        return Ceilings(
            max_cost=min(costs, key=lambda cost: cost.weight, default=None),
            mode=functools.reduce(Mode.stricter, modes) if modes else None,
            tier=min(tiers, default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """One rule file that was read whole, and whose examples hold."""

    file: str
    scope: Scope
    extends: Extends | None
    rules: tuple[Rule, ...]
    ceilings: Ceilings
    # SHA-256 of the text, in hexadecimal: what trust is given to.
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePath:
    """One path of a call, resolved, and what is done with it."""

    real: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSegment:
    """One command of a shell call, wrappers unwrapped and quoting resolved."""

    # None for a word that only a run can tell: a variable, a substitution, a glob.
    argv: tuple[str | None, ...]
    executable: str | None = None
    executable_path: str | None = None
    executable_sha256: str | None = None
    # Whether argv is what will run. Else no rule allows it, and the command may begin anywhere.
    understood: bool = True
    # It runs code that its words do not show: no rule allows it by its words.
    opaque: bool = False
    # Names of the variables that are set for it: with any, no rule allows it.
    env: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The words in one quoted line, an unknown one as an ellipsis; safe to print."""
        words = ("\N{HORIZONTAL ELLIPSIS}" if word is None else word for word in self.argv)
        return shown(" ".join(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCall:
    """All of a call that rules are matched against."""

    tool_name: str
    action: str = ""
    access: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    paths: tuple[RulePath, ...] = ()
    # None for a tool that runs no command.
    segments: tuple[RuleSegment, ...] | None = None
    hosts: tuple[str, ...] = ()
    workspace: str
    homes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A rule that speaks about a call, and the part of it that it is about."""

    rule: Rule
    # The path, the command, the host, or the tool's name: quoted, bounded, safe to print.
    what: str
    # Not certain: an unknown word may be what the rule is about.
    certain: bool = True

    @property
    def level(self) -> int:
        """The level it asks for: always 3 where it is not certain, 0 for what allows."""
        if self.rule.outcome is Outcome.ALLOW:
            return LEVEL_AUTO
        return self.rule.level if self.certain else LEVEL_ALWAYS

    def reason(self) -> Reason:
        """Return the hit as a reason: `rule_deny`, `rule_ask`, `rule_allow` or `rule_maybe`."""
        rule = self.rule
        if self.certain:
            code, text = f"rule_{rule.outcome}", f"a rule {_VERBS[rule.outcome]} {self.what}"
        else:
            code = "rule_maybe"
            text = (
                f"a rule {_VERBS[rule.outcome]} what {self.what} may be, "
                f"which only a run of it can tell"
            )
        if rule.reason:
            text += f": {rule.reason}"
        return Reason(code=code, text=text, rule=rule.id, source=rule.source)


_VERBS: Final = {Outcome.ALLOW: "allows", Outcome.ASK: "asks about", Outcome.DENY: "denies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """What all rules together say about a call."""

    # Certain ones only: each denies the call.
    denies: tuple[Hit, ...]
    # Those of rules that ask, and those of rules that deny what only may be meant.
    asks: tuple[Hit, ...]
    # Each allow rule, with what it covers; they need not cover all.
    allows: tuple[Hit, ...]
    # Whether allow rules cover every part of the call, in every combination.
    allowed: bool
    # Whether rules that name each program by path and digest do.
    allowed_exactly: bool
