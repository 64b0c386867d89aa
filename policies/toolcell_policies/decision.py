"""What a decision is: an outcome, a level, and every reason for it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypedDict

LEVELS: Final = range(4)


class Outcome(StrEnum):
    """Whether a call may run, has to be asked about, or may not run."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class ReasonJson(TypedDict):
    """A reason as the command line and a result print it."""

    code: str
    text: str
    rule: str | None
    source: str | None


class DecisionJson(TypedDict):
    """A decision as the command line and a result print it."""

    outcome: str
    level: int
    reasons: list[ReasonJson]
    plan_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One ground of a decision, for a model and a person to act on."""

    # Stable snake_case: programs compare this, never `text`.
    code: str
    # One plain sentence without control, bidi or other unprintable characters.
    text: str
    # The id of the rule or of the sensitive-path row, where one spoke.
    rule: str | None = None
    # Where that rule is written: `file` or `file:line`.
    source: str | None = None

    def to_json(self) -> ReasonJson:
        """Return the reason as plain data."""
        return {"code": self.code, "text": self.text, "rule": self.rule, "source": self.source}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer of `decide()`: what happens, at which level, and every reason why.

    Raises:
        ValueError: it would deny or ask without a reason, have a level
            outside 0 to 3, or offer to remember what is not asked at level 2.
    """

    outcome: Outcome
    # 0 to 3; also set for a deny, where it is the level the call would have had.
    level: int
    # In the order of the passes. Never empty where the outcome is deny or ask.
    reasons: tuple[Reason, ...]
    # What an answer binds to: it is worth nothing for any other plan.
    plan_hash: str
    # What "yes, and remember it" may be offered; empty at level 3.
    remember_options: tuple[str, ...] = ()
    # The smallest change that would let the call go on, where there is one.
    remedy: str | None = None
    # Whether it is about what a call would do, or about what it did.
    stage: Literal["before", "after"] = "before"
    # The step of the order that denies, where it is denied before the run.
    denied_by: Literal["run_state", "floor", "rule", "ceiling", "nobody"] | None = None

    @property
    def rule_ids(self) -> tuple[str, ...]:
        """Every rule that spoke, each once."""
        return tuple(dict.fromkeys(one.rule for one in self.reasons if one.rule is not None))

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"level must be 0 to 3, not {self.level}")
        if self.outcome is not Outcome.ALLOW and not self.reasons:
            raise ValueError(f"a decision to {self.outcome} needs a reason")
        if self.remember_options and (self.outcome is not Outcome.ASK or self.level != 2):
            raise ValueError("only what is asked at level 2 can be remembered")

    def to_json(self) -> DecisionJson:
        """Return the decision as plain data, in the documented shape."""
        return {
            "outcome": self.outcome.value,
            "level": self.level,
            "reasons": [reason.to_json() for reason in self.reasons],
            "plan_hash": self.plan_hash,
        }
