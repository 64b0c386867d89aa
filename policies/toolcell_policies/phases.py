"""Which tools a phase of a task admits: one predicate family, for showing and for calling.

A tool says in which phases it belongs; one that says nothing belongs where its tier does. Two
rules widen that (an edit that the task is about, and an edit that is taken back), and one
narrows it: the escalation tool asks to leave an investigation, so it is of use in one only.
"""

from typing import Final, Protocol

from .vocabulary import TIER_COMMAND, TIER_EDIT, AccessMode, Phase, TaskKind, tier_of


class Admissible(Protocol):
    """What a tool says of itself that a phase looks at."""

    @property
    def access_mode(self) -> AccessMode:
        """What the tool does to the world."""

    @property
    def permission_tier(self) -> int:
        """The phase dialect's tier, 0 to 4."""

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases it belongs to; none named is by its tier."""

    @property
    def escalation(self) -> bool:
        """Whether it asks for a wider task."""


_PHASES: Final = frozenset(Phase)
_TASK_KINDS: Final = frozenset(TaskKind)
_PHASES_BY_TIER: Final = (
    _PHASES,
    frozenset({Phase.EDITING}),
    frozenset({Phase.EDITING, Phase.VERIFYING}),
)
_EDIT_TASKS: Final = frozenset({TaskKind.EDIT, TaskKind.TEST_ONLY})


def phase_admits_tool(phase: str | None, task_kind: str | None, tool: Admissible) -> bool:
    """Whether a tool may be shown and called in this phase of this kind of task.

    None is no phase, or no kind, and admits all but what needs one. A word that is no phase, or
    no kind of task, admits nothing.
    """
    if (phase is not None and phase not in _PHASES) or (
        task_kind is not None and task_kind not in _TASK_KINDS
    ):
        return False
    if tool.escalation:
        return task_kind == TaskKind.INVESTIGATE
    if phase is None:
        return True
    if phase in _own_phases(tool):
        return True
    if phase != Phase.INVESTIGATING:
        return False
    return is_edit_intent(task_kind, tool) or admits_transient_edit(task_kind, tool)


def is_edit_intent(task_kind: str | None, tool: Admissible) -> bool:
    """Whether calling the tool says that the task's edits begin: an edit, where they are wanted."""
    return _tier(tool) == TIER_EDIT and task_kind in _EDIT_TASKS


def admits_transient_edit(task_kind: str | None, tool: Admissible) -> bool:
    """Whether an edit is admitted that is taken back: an investigation has to net out to nothing.

    `Executor.changes_since` is what says at verification whether it did.
    """
    return _tier(tool) == TIER_EDIT and task_kind == TaskKind.INVESTIGATE


def _tier(tool: Admissible) -> int:
    return tier_of(tool.access_mode, tool.permission_tier)


def _own_phases(tool: Admissible) -> frozenset[str]:
    return frozenset(tool.phases) or _PHASES_BY_TIER[min(_tier(tool), TIER_COMMAND)]
