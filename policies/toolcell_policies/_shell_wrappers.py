"""Commands that run the command that follows them: taken off, one after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ._shell_model import CommandKind, Word
from ._shell_table import Reading, Table, read_options

_WRAPPERS_MAX: Final = 10
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHELLS: Final = frozenset(
    {"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "zsh"}
)
# Shells whose language is bash's, or near enough to say what runs.
_READABLE_SHELLS: Final = frozenset({"ash", "bash", "dash", "ksh", "mksh", "sh"})
# What these read otherwise: `$'\\''` ends elsewhere, `&>f x` runs `x`, `[[ a && b ]]` runs `b`.
_ONLY_BASH: Final = re.compile(
    r"""\$['"\[]|&>|\|&|<<<|[<>]\(|\[\[|(?<!\$)\(\(|\+=|\{[^\s{}]*(?:,|\.\.)|\b(?:declare|typeset|function)\b"""
)
# `sh -euo pipefail -c`: what changes nothing of what the text says.
_SHELL_FLAGS: Final = re.compile(
    r"-[euxlvfo]*c[euxl]*|-[euxlv]+|-[eux]*o|--(?:login|norc|noprofile)"
)


@dataclass(slots=True)
class Unwrapped:
    """A command without its wrappers."""

    # Empty where a wrapper stood alone, or runs a text.
    argv: tuple[Word, ...]
    wrappers: list[str] = field(default_factory=list)
    # What the wrappers themselves do.
    reading: Reading = field(default_factory=Reading)
    env: list[tuple[str, Word]] = field(default_factory=list)
    chdirs: list[Word] = field(default_factory=list)
    # Shell text to run instead of `argv`; its text is None where it is unknown.
    text: Word | None = None


def program_name(word: Word, table: Table) -> str | None:
    """Return the name that a command is looked up by; None: a program of its own."""
    if word.text is None or word.glob:
        return None
    folder, slash, name = word.text.rpartition("/")
    return name if not slash or folder in table.program_folders else None


def unwrap(argv: tuple[Word, ...], table: Table) -> Unwrapped:
    """Return the command that is run in the end."""
    made = Unwrapped(argv)
    while made.argv and made.text is None:
        name = program_name(made.argv[0], table)
        if name in _SHELLS:
            _shell(made, name)
            return made
        if name is None or name not in table.wrappers:
            return made
        if len(made.wrappers) >= _WRAPPERS_MAX:
            made.reading.unclear("It is wrapped more often than is read.")
            return made
        _take_off(made, name, table)
    return made


def _take_off(made: Unwrapped, name: str, table: Table) -> None:
    profile = table.wrappers[name]
    own = Reading()
    words = made.argv[1:]
    if name == "coproc" and words and words[0].text in ("{", "("):
        own.unclear("A coprocess of this form is not understood.")
    inner = read_options(profile, words, own)
    made.wrappers.append(name)
    made.reading.kinds |= own.kinds
    made.reading.reasons += own.reasons
    made.reading.reads += own.reads
    made.reading.writes += own.writes
    if own.chdir is not None:
        made.chdirs.append(own.chdir)
    if name in table.raising:
        made.reading.doubt(
            CommandKind.RUNNER,
            "command_wrapper",
            f"{name} runs its command in another way than this shell: as another user, under "
            "another root, many times over.",
        )
    count = table.wrapper_operands[name]
    if name == "flock":
        made.reading.writes += inner[:1]
        made.reading.kinds.add(CommandKind.WRITE)
    inner = inner[count:]
    text = next((value for option, value in own.options if option in _TEXTS.get(name, ())), None)
    if name == "env":
        inner = _env(made, own, inner)
    elif name == "xargs":
        inner = _xargs(own, inner)
    elif name in ("command", "exec") and own.has("-v", "-V"):
        inner = []
    elif name in ("sudo", "doas"):
        inner = _assigned(made, inner)
    elif name == "watch" and inner and not own.has("-x", "--exec"):
        text = _line(inner)
    elif name in ("su", "runuser", "flock") and inner and text is None:
        text = inner[1] if inner[0].text == "-c" and len(inner) > 1 else None
    if text is not None:
        made.text, inner = text, []
    made.argv = tuple(inner)


_TEXTS: Final = {
    "flock": ("-c", "--command"),
    "su": ("-c", "--command"),
    "runuser": ("-c", "--command"),
}


def _line(words: Sequence[Word]) -> Word:
    if any(word.text is None or word.glob for word in words):
        return Word(text=None)
    return Word(text=" ".join(word.text or "" for word in words))


def _assigned(made: Unwrapped, words: list[Word]) -> list[Word]:
    """Take the assignments from the front of the words; return the rest."""
    at = 0
    for word in words:
        text = word.text if word.text is not None else word.prefix
        found = _ASSIGNMENT.fullmatch(text)
        if found is None:
            break
        value = Word(text=found[2]) if word.text is not None else Word(text=None)
        made.env.append((found[1], value))
        at += 1
    return words[at:]


def _env(made: Unwrapped, own: Reading, words: list[Word]) -> list[Word]:
    for option, value in own.options:
        if option in ("-u", "--unset") and value is not None:
            made.env.append((value.text or "PATH", Word(text=None)))
        elif option in ("-S", "--split-string"):
            text = value.text if value is not None else None
            if text is None or not re.fullmatch(r"[A-Za-z0-9_./:@%+,= -]*", text):
                made.reading.unclear("What env -S makes of its text is not understood.")
            else:
                words = [Word(text=part) for part in text.split()] + words
    rest = _assigned(made, words)
    if rest and rest[0].text is None and not rest[0].prefix:
        made.reading.dynamic("env")
    return rest


def _xargs(own: Reading, words: list[Word]) -> list[Word]:
    if not words:
        return [Word(text="echo"), Word(text=None)]
    marks = [value for option, value in own.options if option in ("-I", "-i", "--replace")]
    if not marks:
        return [*words, Word(text=None)]
    mark = (marks[-1].text if marks[-1] is not None else None) or "{}"
    return [_filled(word, mark) for word in words]


def _filled(word: Word, mark: str) -> Word:
    """Return a word in which a mark is replaced by what nobody knows."""
    if word.text is None or mark not in word.text:
        return word
    return Word(text=None, prefix=word.text.partition(mark)[0])


def _shell(made: Unwrapped, name: str) -> None:
    """Take off a shell that is given its text in its words."""
    words = made.argv[1:]
    takes_text = False
    at = 0
    while at < len(words):
        text = words[at].text
        if text is None or words[at].glob or not text.startswith(("-", "+")) or len(text) < 2:
            break
        if not _SHELL_FLAGS.fullmatch(text):
            return
        at += 1
        if not text.startswith("--"):
            takes_text = takes_text or "c" in text
            if "o" in text:
                if at >= len(words) or words[at].text not in _SHELL_SETTINGS:
                    return
                at += 1
    if not takes_text or at >= len(words):
        return
    if name not in _READABLE_SHELLS:
        made.reading.unclear(f"The language of {name} is not read here.")
    made.wrappers.append(f"{name} -c")
    made.text = words[at] if not words[at].glob else Word(text=None)
    if name != "bash" and _ONLY_BASH.search(made.text.text or ""):
        made.reading.unclear(f"{name} reads a part of its text in another way than bash.")
    made.argv = ()


_SHELL_SETTINGS: Final = frozenset(
    {"pipefail", "errexit", "nounset", "xtrace", "noclobber", "noglob", "verbose"}
)
