"""The syntax of a shell text, as far as it matters what runs: plain data, no judgement.

Text here is UTF-8, one character a byte, so that the parser's offsets hold; `decoded`
gives it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


def encoded(text: str) -> str:
    """Return a text with one character for each byte of its UTF-8.

    Raises:
        UnicodeEncodeError: it holds surrogates, and is no text.
    """
    return text if text.isascii() else text.encode("utf-8").decode("latin-1")


def decoded(text: str) -> str:
    """Return the text that `encoded` was given; bytes that are no text as surrogates."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word. Exactly one of `text` and `variable` is set, or none: unknown."""

    text: str | None = None
    # Neither a pattern nor a brace nor a tilde, and not split at blanks.
    quoted: bool = False
    variable: str | None = None
    # Commands that run to make it.
    body: Sequence | None = None
    # A process substitution.
    pipe: bool = False
    # Variables that it sets.
    assigns: tuple[str, ...] = ()
    # Why it may run what nobody can see here, as one sentence.
    risk: str | None = None


@dataclass(frozen=True, slots=True)
class RawWord:
    """A word as it is written, its quotes understood and nothing expanded."""

    source: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect; for `<<` and `<<<`, `target` is the data."""

    operator: str
    # None for `>&-` and the like.
    target: RawWord | None


@dataclass(frozen=True, slots=True)
class Simple:
    """A simple command: assignments first, if any, then the words of the command."""

    source: str
    words: tuple[RawWord, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Commands one after the other; each with whether it runs in the background."""

    items: tuple[tuple[Statement, bool], ...]


@dataclass(frozen=True, slots=True)
class AndOr:
    """`left && right` or `left || right`."""

    left: Statement
    operator: str
    right: Statement


@dataclass(frozen=True, slots=True)
class Not:
    """`! body`."""

    body: Statement


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`a | b | c`, each in a process of its own."""

    stages: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A subshell or a group with its redirects; or anything else with redirects."""

    body: Sequence
    redirects: tuple[Redirect, ...]
    is_subshell: bool


@dataclass(frozen=True, slots=True)
class If:
    """`if` with its `elif`s: each branch has a condition and a body."""

    branches: tuple[tuple[Sequence, Sequence], ...]
    otherwise: Sequence | None


@dataclass(frozen=True, slots=True)
class Loop:
    """`while`, `until`, `for`, `select`."""

    condition: Sequence | None
    # The variable of a `for`, and its words.
    variable: str | None
    words: tuple[RawWord, ...]
    body: Sequence


@dataclass(frozen=True, slots=True)
class Case:
    """`case`: its subject and patterns, for what they run; and each body."""

    words: tuple[RawWord, ...]
    bodies: tuple[Sequence, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A definition: from here on, the name is a command of the text's own."""

    name: str
    source: str
    body: Statement


@dataclass(frozen=True, slots=True)
class Expression:
    """`[[ ]]`, `[ ]` or `(( ))`: evaluated, its expansions as one word."""

    name: str
    word: RawWord


Statement: TypeAlias = (
    Simple | AndOr | Not | Pipeline | Block | If | Loop | Case | Function | Expression
)
