"""The commands of a text as rules see them: the same for a call and for an example."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ._rules_model import RuleSegment

if TYPE_CHECKING:
    from .shell import ShellCommand

_NOT_UNDERSTOOD: Final = frozenset({"command_not_understood"})
# What its words do not show, no rule allows by its words.
_NOT_IN_ITS_WORDS: Final = frozenset({"interpreter", "runner", "unknown"})
# Any program, with any words.
_UNKNOWN: Final = RuleSegment(argv=(None, None), understood=False)


def rule_segments(
    command: "ShellCommand", programs: Sequence[tuple[str | None, str | None]] = ()
) -> tuple[RuleSegment, ...]:
    """Return the segments of a command, each with the path and the digest of its program.

    A glob is a word that only a run can tell. A text that is not understood as a whole has,
    besides what was read of it, a command of which nothing is known: any rule may be about it.

    Raises:
        ValueError: there are programs, and not one for each segment.
    """
    is_whole = command.problem is None and not command.over_cap
    known = programs or [(None, None)] * len(command.segments)
    found = tuple(
        RuleSegment(
            argv=tuple(None if word.glob else word.text for word in segment.argv),
            executable=segment.executable,
            executable_path=path,
            executable_sha256=sha256,
            understood=is_whole and not any(one.code in _NOT_UNDERSTOOD for one in segment.reasons),
            opaque=bool(segment.kinds & _NOT_IN_ITS_WORDS) or segment.redirected,
            env=tuple(name for name, _ in segment.env),
        )
        for segment, (path, sha256) in zip(command.segments, known, strict=True)
    )
    return found if is_whole else (*found, _UNKNOWN)
