"""What a shell command would do, told before it runs: `parse_command`.

The text is read as bash reads it, by a grammar (tree-sitter-bash) whose tree is
doubted, with quoting, wrappers and `cd` resolved here, and each command looked up
in `shell_commands.toml`. Everything that is not understood says so, at level 3.

What this is not: a boundary. A command that is read right may still do what its
words do not say, because of a file it reads, a hook it runs or a link on its way.
Git's own hooks and configuration are taken for what the repository's owner left
there: a jail may not write them unasked, so `git commit` is a writer, level 2. The
boundary is the jail; this says what to ask a person where the jail is not enough.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ._shell_base import OverCap
from ._shell_convert import read_syntax
from ._shell_model import (
    SEGMENTS_MAX,
    CommandKind,
    Operand,
    Segment,
    ShellCommand,
    Word,
)
from ._shell_syntax import Sequence, Simple
from ._shell_tree import TEXT_BYTES_MAX, NotUnderstood
from ._shell_walk import Walk

__all__ = [
    "SEGMENTS_MAX",
    "TEXT_BYTES_MAX",
    "CommandKind",
    "Operand",
    "Segment",
    "ShellCommand",
    "Word",
    "parse_command",
]

_NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})


def parse_command(
    text: str, *, env: Mapping[str, str] = _NO_VARIABLES, home: str = "/home/user"
) -> ShellCommand:
    """Return what a text for bash would do, segment by segment.

    Pure, total for any `str`, and the same on every machine. `home` is what HOME is
    for the command: `~` and `$HOME` resolve to it, `~name` is unknown. `env` names
    variables that are known to be set, with their values. The time is bounded: see
    `_shell_tree`.
    """
    problem = None
    over_cap = is_compound = False
    walk = Walk(env=dict(env), home=home)
    try:
        if len(text) > TEXT_BYTES_MAX:
            raise NotUnderstood(f"It is longer than {TEXT_BYTES_MAX} bytes.")
        commands = read_syntax(text)
        is_compound = not _is_one(commands)
        walk.whole(commands)
    except OverCap:
        over_cap = is_compound = True
    except NotUnderstood as error:
        problem, is_compound = error.args[0], True
    except UnicodeEncodeError:
        problem, is_compound = "It holds characters that are no text.", True
    return ShellCommand(
        text=text,
        segments=tuple(walk.segments),
        problem=problem,
        over_cap=over_cap,
        is_compound=is_compound,
    )


def _is_one(commands: Sequence) -> bool:
    """Whether it is one simple command, with nothing that runs inside its words."""
    if len(commands.items) != 1:
        return False
    statement, in_background = commands.items[0]
    if in_background or not isinstance(statement, Simple):
        return False
    targets = [redirect.target for redirect in statement.redirects if redirect.target is not None]
    return not any(
        piece.body is not None or piece.risk is not None
        for word in (*statement.words, *targets)
        for piece in word.pieces
    )
