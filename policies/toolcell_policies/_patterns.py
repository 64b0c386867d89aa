"""Path patterns: braces, `*`, `**` and `~`, compiled once, found by their first name.

Ours to own, since classifying paths is what this package is for; nothing here
reads a file. Patterns and paths meet in casefolded form. An index by the first
literal name makes the cost of a lookup depend on the path, not on the list.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Anchor(Enum):
    """Where a pattern has to begin."""

    ROOT = "/"
    HOME = "~"
    ANYWHERE = "**"


# One name: literal, by expression, or any number of names.
Part = str | re.Pattern[str] | None
ANY_NAMES: Final = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One pattern without braces, ready to match."""

    anchor: Anchor
    # Never empty, and the first is never ANY_NAMES: the index rests on it.
    parts: tuple[Part, ...]
    # Whether all that lies below a match is a match too.
    below: bool

    def matches_at(self, names: Sequence[str], start: int) -> bool:
        """Whether the pattern begins at this name of a casefolded path and matches."""
        return _matches(self.parts, names, 0, start, self.below)

    def leads_below(self, names: Sequence[str], start: int) -> tuple[str, ...] | None:
        """Return the plain names that lead on from a folder to a match below it.

        None where nothing below can match, or the folder itself does; they end
        before the first name that is an expression or any number of names.
        """
        above = names[start:]
        for part, name in zip(self.parts, above, strict=False):
            if part is ANY_NAMES:
                return ()
            if not _fits(part, name):
                return None
        ahead = self.parts[len(above) :]
        plain = itertools.takewhile(lambda part: isinstance(part, str), ahead)
        return tuple(map(str, plain)) if ahead else None


def _matches(
    parts: Sequence[Part], names: Sequence[str], part_at: int, name_at: int, below: bool
) -> bool:
    while part_at < len(parts):
        part = parts[part_at]
        part_at += 1
        if part is ANY_NAMES:
            return any(
                _matches(parts, names, part_at, at, below) for at in range(name_at, len(names) + 1)
            )
        if name_at >= len(names) or not _fits(part, names[name_at]):
            return False
        name_at += 1
    return below or name_at == len(names)


def _fits(part: str | re.Pattern[str], name: str) -> bool:
    return part == name if isinstance(part, str) else part.fullmatch(name) is not None


def compile_patterns(text: str, *, below: bool = True) -> tuple[Pattern, ...]:
    """Compile one pattern as it is written, braces and all.

    Raises:
        ValueError: a brace is not closed, or the pattern names nothing
            (`~`, `/`, `**`): it would match everything there is.
    """
    return tuple(_compile(one, below) for one in expand_braces(text))


def _compile(text: str, below: bool) -> Pattern:
    anchor = Anchor.ANYWHERE
    if text.startswith("~/"):
        anchor, text = Anchor.HOME, text[2:]
    elif text.startswith("/"):
        anchor, text = Anchor.ROOT, text[1:]
    names = [name for name in text.split("/") if name]
    if anchor is Anchor.ANYWHERE and names[:1] == ["**"]:
        del names[0]
    if names[-1:] == ["**"]:
        below = True
        del names[-1]
    if not names or names[0] in ("**", "~"):
        raise ValueError(f"pattern names nothing: {text!r}")
    return Pattern(anchor=anchor, parts=tuple(map(_part, names)), below=below)


def _part(name: str) -> Part:
    if name == "**":
        return ANY_NAMES
    name = name.casefold()
    if "*" not in name:
        return name
    return re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)


def literal_pattern(names: Sequence[str]) -> Pattern:
    """Return a pattern for one absolute, already casefolded path and all below it."""
    if not names:
        raise ValueError("the root cannot be protected: nothing would be left")
    return Pattern(anchor=Anchor.ROOT, parts=tuple(names), below=True)


def expand_braces(text: str) -> tuple[str, ...]:
    """Return a pattern once for each alternative: `a{b,c{d,e}}` is ab, acd, ace."""
    start = text.find("{")
    if start < 0:
        return (text,)
    depth, cuts = 0, [start]
    for at in range(start, len(text)):
        char = text[at]
        depth += (char == "{") - (char == "}")
        if (char == "," and depth == 1) or depth == 0:
            cuts.append(at)
        if depth == 0:
            break
    else:
        raise ValueError(f"brace is not closed: {text!r}")
    choices = (text[one + 1 : two] for one, two in itertools.pairwise(cuts))
    rest = expand_braces(text[cuts[-1] + 1 :])
    return tuple(
        text[:start] + choice + tail
        for written in choices
        for choice in expand_braces(written)
        for tail in rest
    )


class PatternIndex:
    """Patterns of one anchor, each with a number of the caller's, by first name."""

    __slots__ = ("_any_wild", "_literal", "_wild")

    def __init__(self, patterns: Sequence[tuple[Pattern, int]]) -> None:
        self._literal: dict[Part, list[tuple[Pattern, int]]] = {}
        self._wild: list[tuple[re.Pattern[str], Pattern, int]] = []
        for pattern, number in patterns:
            first = pattern.parts[0]
            if isinstance(first, re.Pattern):
                self._wild.append((first, pattern, number))
            else:
                self._literal.setdefault(first, []).append((pattern, number))
        # One search says that none of the wild ones fits: the usual case.
        self._any_wild = re.compile(
            "|".join(f"(?:{first.pattern})" for first, _, _ in self._wild) or "(?!)", re.DOTALL
        )

    def matches_at(self, names: Sequence[str], start: int) -> Iterator[int]:
        """Yield the number of each pattern that begins at this name and matches."""
        if start >= len(names):
            return
        name = names[start]
        for pattern, number in self._literal.get(name, ()):
            if pattern.matches_at(names, start):
                yield number
        if self._any_wild.fullmatch(name):
            for first, pattern, number in self._wild:
                if first.fullmatch(name) and pattern.matches_at(names, start):
                    yield number
