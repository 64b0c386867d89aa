"""What a shell command is once it is read: its segments, their words, paths and kinds."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .decision import Reason
from .vocabulary import LEVEL_ALWAYS, LEVEL_AUTO, LEVEL_FIRST_USE

# More simple commands than this in one text are refused, not read.
SEGMENTS_MAX: Final = 50


class CommandKind(StrEnum):
    """What a command does, as far as its words tell."""

    READ = "read"
    WRITE = "write"
    # It speaks to another host, whatever else it does.
    NETWORK = "network"
    # It runs a program in a language that is not read here.
    INTERPRETER = "interpreter"
    # It runs code of the project or another program of its choice.
    RUNNER = "runner"
    # Nothing is known about it, or not enough.
    UNKNOWN = "unknown"
    # It removes what no work needs removed: the root, a home, a disk.
    REMOVAL_CRITICAL = "removal_critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command, as bash would pass it on."""

    # None where only a run can tell. For a glob, its pattern.
    text: str | None
    # A pattern that bash replaces with the names it finds.
    glob: bool = False
    # What it surely begins with, where `text` is None.
    prefix: str = ""
    # A process substitution: a descriptor, no file.
    pipe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A path that a command reads or writes."""

    # Joined with the folder the command runs in, `..` left as written; relative
    # to the start folder, or absolute. None where only a run can tell.
    path: str | None
    glob: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One command of a text, its wrappers taken off."""

    # As it is written. For a command inside `sh -c` or backticks: inside that text.
    text: str
    argv: tuple[Word, ...]
    # None for assignments and redirects alone, and where only a run can tell.
    executable: str | None
    # `env`, `timeout`, `sh -c`: outermost first.
    wrappers: tuple[str, ...]
    # What differs from the environment that the text was given; None: unknown.
    env: tuple[tuple[str, str | None], ...]
    # None where it is unknown, or one of several: after `cd x;` it is `x` or, had
    # that failed, the folder before. The operands cover each of them.
    cwd: str | None
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    # Never empty.
    kinds: frozenset[CommandKind]
    # 0: a reader; 2: a writer; 3: everything else.
    level: int
    # Empty for a reader that was understood.
    reasons: tuple[Reason, ...]
    # It is given data in the text itself, by `<<` or `<<<`.
    heredoc: bool = False
    # It writes, or speaks to a host, by a redirect: its words do not say so.
    redirected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A text for bash, read.

    An empty text, or one of comments only, has no segments and level 3: there is
    nothing that could be allowed.
    """

    text: str
    # In the order in which bash comes to them. At most `SEGMENTS_MAX`.
    segments: tuple[Segment, ...]
    # One sentence why the whole is not understood; None where it is.
    problem: str | None
    # There are more segments than are read: to be denied.
    over_cap: bool
    # More than one simple command, or one inside a loop, a group, a substitution.
    is_compound: bool

    @property
    def level(self) -> int:
        """The highest level of a segment; 3 where the whole is not understood."""
        if self.problem is not None or self.over_cap or not self.segments:
            return LEVEL_ALWAYS
        return max(segment.level for segment in self.segments)

    @property
    def rememberable(self) -> bool:
        """Whether a person's yes may be kept: one plain writer, all its words known.

        Never a compound, a heredoc, an interpreter, git, anything that came in a
        wrapper, or anything at another level than 2.
        """
        if self.is_compound or len(self.segments) != 1 or self.level != LEVEL_FIRST_USE:
            return False
        (only,) = self.segments
        return (
            only.executable is not None
            and bool(only.writes)
            and only.kinds <= _PLAIN
            and not only.wrappers
            and not only.heredoc
            and only.executable.rpartition("/")[2] not in _NEVER_REMEMBERED
            and all(word.text is not None and not word.glob for word in only.argv)
            and all(one.path is not None and not one.glob for one in only.reads + only.writes)
        )


_PLAIN: Final = frozenset({CommandKind.READ, CommandKind.WRITE})
_NEVER_REMEMBERED: Final = frozenset({"git"})

# The level that each kind asks for.
KIND_LEVELS: Final = {
    CommandKind.READ: LEVEL_AUTO,
    CommandKind.WRITE: LEVEL_FIRST_USE,
    CommandKind.NETWORK: LEVEL_ALWAYS,
    CommandKind.INTERPRETER: LEVEL_ALWAYS,
    CommandKind.RUNNER: LEVEL_ALWAYS,
    CommandKind.UNKNOWN: LEVEL_ALWAYS,
    CommandKind.REMOVAL_CRITICAL: LEVEL_ALWAYS,
}
