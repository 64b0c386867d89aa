"""The words a tool says about itself, and the level each word asks for.

A level is what has to happen before a call may run:

| level | what happens |
|---|---|
| 0 | nothing: it runs |
| 1 | it runs, and is logged |
| 2 | a person confirms the first use; the session may remember it |
| 3 | a person confirms every time; nothing is remembered |
"""

from enum import IntEnum, StrEnum
from typing import Final

LEVEL_AUTO: Final = 0
LEVEL_LOG: Final = 1
LEVEL_FIRST_USE: Final = 2
LEVEL_ALWAYS: Final = 3


class AccessMode(StrEnum):
    """What a tool does to the world: reads, writes, executes, or speaks to others.

    It is the tool's own word. The jail enforces it (a `readonly` tool gets a
    read-only workspace and no network), so a tool that lies fails instead of
    doing harm.
    """

    READONLY = "readonly"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    MIXED = "mixed"

    @property
    def requires_approval(self) -> bool:
        """Whether a person has to agree: true for write, execute and mixed."""
        return self in _NEEDS_APPROVAL

    @property
    def is_safe(self) -> bool:
        """Whether nothing can change and nothing can leave: readonly alone."""
        return self is AccessMode.READONLY

    def approval_level(self) -> int:
        """Return the level, 0 to 3, that this access asks for by itself."""
        return _ACCESS_LEVELS[self]


class DangerLevel(StrEnum):
    """How much harm a tool can do when it is used wrongly.

    It can only raise what the access mode asks for, never lower it.
    """

    SAFE = "safe"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def weight(self) -> int:
        """The place in the order from safe (0) to critical (4)."""
        return _DANGER_WEIGHTS[self]

    def approval_level(self) -> int:
        """Return the level, 0 to 3, below which this danger never lets a call go.

        Medium and high confirm on first use, critical confirms every time.
        """
        return _DANGER_LEVELS[self]


class CostTier(StrEnum):
    """What a call costs, roughly: a ceiling refuses what is dearer than it."""

    FREE = "free"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def weight(self) -> float:
        """0.0 for free, to 3.0 for high."""
        return float(tuple(CostTier).index(self))


class Priority(IntEnum):
    """How readily a tool is offered: critical always, contextual only where the request is its."""

    CRITICAL = 1
    HIGH = 2
    MEDIUM = 3
    LOW = 4
    CONTEXTUAL = 5


class ExecutionCategory(StrEnum):
    """What a call occupies while it runs: calls that conflict run one after the other."""

    READ_ONLY = "read_only"
    WRITE = "write"
    COMPUTE = "compute"
    NETWORK = "network"
    EXECUTE = "execute"
    MIXED = "mixed"

    def conflicts_with(self, other: "ExecutionCategory") -> bool:
        """Whether a call of this kind and one of `other` must not run at once; symmetric."""
        return frozenset({self, other}) in _CONFLICTS


class SchemaLevel(StrEnum):
    """How much of a tool a model is told: all, without the prose, or what a valid call needs."""

    FULL = "full"
    COMPACT = "compact"
    STUB = "stub"


class Mode(StrEnum):
    """How far an agent may go at all: a ceiling, whatever a person would agree to.

    `explore` writes and executes on a scratch workspace alone, and is not for dear calls;
    `plan` reads and uses the network; `build` does all.
    """

    EXPLORE = "explore"
    PLAN = "plan"
    BUILD = "build"

    def stricter(self, other: "Mode") -> "Mode":
        """Return the stricter of two modes: explore, then plan, then build."""
        order = tuple(Mode)
        return min(self, other, key=order.index)


class Phase(StrEnum):
    """Where in its task an agent is."""

    INVESTIGATING = "investigating"
    EDITING = "editing"
    VERIFYING = "verifying"


class TaskKind(StrEnum):
    """What an agent was asked to do."""

    EDIT = "edit"
    TEST_ONLY = "test_only"
    INVESTIGATE = "investigate"


TIER_READ: Final = 0
TIER_EDIT: Final = 1
TIER_COMMAND: Final = 2
TIER_ALWAYS: Final = 3
TIER_NEVER: Final = 4


def tier_level(tier: int) -> int:
    """Return the approval level that a permission tier asks for.

    0 reads (level 0), 1 edits (2), 2 runs commands (3), 3 always asks (3), 4 is never granted.
    """
    return _TIER_LEVELS[max(TIER_READ, min(tier, TIER_NEVER))]


def tier_of(access: AccessMode, tier: int) -> int:
    """Return the tier that a ceiling measures: the tool's own, and no less than what it does."""
    return max(tier, _ACCESS_TIERS[access])


_CHANGING: Final = (
    ExecutionCategory.WRITE,
    ExecutionCategory.EXECUTE,
    ExecutionCategory.MIXED,
)
_CONFLICTS: Final = frozenset(
    frozenset({one, other})
    for one in _CHANGING
    for other in (*_CHANGING, ExecutionCategory.READ_ONLY)
) | {frozenset({ExecutionCategory.MIXED, ExecutionCategory.NETWORK})}
"""What changes the workspace is alone in it; mixed may speak to others as well; computing and
reading disturb nobody."""

_NEEDS_APPROVAL: Final = frozenset({AccessMode.WRITE, AccessMode.EXECUTE, AccessMode.MIXED})

_ACCESS_LEVELS: Final = {
    AccessMode.READONLY: LEVEL_AUTO,
    AccessMode.NETWORK: LEVEL_LOG,
    AccessMode.WRITE: LEVEL_FIRST_USE,
    AccessMode.EXECUTE: LEVEL_ALWAYS,
    AccessMode.MIXED: LEVEL_ALWAYS,
}

_ACCESS_TIERS: Final = {
    AccessMode.READONLY: TIER_READ,
    AccessMode.WRITE: TIER_EDIT,
    AccessMode.NETWORK: TIER_COMMAND,
    AccessMode.EXECUTE: TIER_COMMAND,
    AccessMode.MIXED: TIER_COMMAND,
}

_TIER_LEVELS: Final = (LEVEL_AUTO, LEVEL_FIRST_USE, LEVEL_ALWAYS, LEVEL_ALWAYS, LEVEL_ALWAYS)

_DANGER_WEIGHTS: Final = {danger: weight for weight, danger in enumerate(DangerLevel)}

_DANGER_LEVELS: Final = {
    DangerLevel.SAFE: LEVEL_AUTO,
    DangerLevel.LOW: LEVEL_AUTO,
    DangerLevel.MEDIUM: LEVEL_FIRST_USE,
    DangerLevel.HIGH: LEVEL_FIRST_USE,
    DangerLevel.CRITICAL: LEVEL_ALWAYS,
}
