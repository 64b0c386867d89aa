"""The words a tool says about itself, and the level each word asks for.

A level is what has to happen before a call may run:

| level | what happens |
|---|---|
| 0 | nothing: it runs |
| 1 | it runs, and is logged |
| 2 | a person confirms the first use; the session may remember it |
| 3 | a person confirms every time; nothing is remembered |
"""

from enum import StrEnum
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


_NEEDS_APPROVAL: Final = frozenset({AccessMode.WRITE, AccessMode.EXECUTE, AccessMode.MIXED})

_ACCESS_LEVELS: Final = {
    AccessMode.READONLY: LEVEL_AUTO,
    AccessMode.NETWORK: LEVEL_LOG,
    AccessMode.WRITE: LEVEL_FIRST_USE,
    AccessMode.EXECUTE: LEVEL_ALWAYS,
    AccessMode.MIXED: LEVEL_ALWAYS,
}

_DANGER_WEIGHTS: Final = {danger: weight for weight, danger in enumerate(DangerLevel)}

_DANGER_LEVELS: Final = {
    DangerLevel.SAFE: LEVEL_AUTO,
    DangerLevel.LOW: LEVEL_AUTO,
    DangerLevel.MEDIUM: LEVEL_FIRST_USE,
    DangerLevel.HIGH: LEVEL_FIRST_USE,
    DangerLevel.CRITICAL: LEVEL_ALWAYS,
}
