"""Names with wildcards, and paths of such names: compiled once, found without a scan.

A glob matches in time linear in its text times the name. The tree of paths and the table of
names cost what the path is long, not what they hold, except for globs that begin and end with
a wildcard.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from unicodedata import normalize

from ._patterns import Anchor, expand_braces
from ._text import character_refusals, comparison_forms

T = TypeVar("T")

PATTERN_CHARACTERS_MAX: Final = 1024
ALTERNATIVES_MAX: Final = 256


def compile_glob(text: str, *, question: bool = False) -> re.Pattern[str]:
    """Compile a name in which `*` is any run of characters, and `?` one if asked for.

    Each run ends at the first place where what follows it fits, for good: no choice is
    tried twice, so no name takes long.
    """
    pieces = [_literal(piece, question) for piece in re.split(r"\*+", text)]
    if len(pieces) == 1:
        return re.compile(pieces[0], re.DOTALL)
    first, *middle, last = pieces
    between = "".join(f"(?>.*?{piece})" for piece in middle)
    return re.compile(f"{first}{between}.*{last}", re.DOTALL)


def _literal(text: str, question: bool) -> str:
    if not question:
        return re.escape(text)
    return ".".join(map(re.escape, text.split("?")))


class GlobTable(Generic[T]):
    """Values by glob, each found by the fixed text that its glob begins or ends with."""

    __slots__ = ("_by_end", "_by_start", "_question", "_rest")

    def __init__(self, *, question: bool = False) -> None:
        self._question = question
        self._by_start: dict[int, dict[str, list[tuple[re.Pattern[str], T]]]] = {}
        self._by_end: dict[int, dict[str, list[tuple[re.Pattern[str], T]]]] = {}
        self._rest: list[tuple[re.Pattern[str], T]] = []

    def add(self, text: str, value: T) -> None:
        """Add a glob."""
        entry = (compile_glob(text, question=self._question), value)
        wild = "[*?]" if self._question else r"\*"
        start, end = re.split(wild, text)[0], re.split(wild, text)[-1]
        if len(start) >= len(end) and start:
            self._by_start.setdefault(len(start), {}).setdefault(start, []).append(entry)
        elif end:
            self._by_end.setdefault(len(end), {}).setdefault(end, []).append(entry)
        else:
            self._rest.append(entry)

    def find(self, name: str) -> Iterator[T]:
        """Yield the value of each glob that the name fits."""
        for length, by_start in self._by_start.items():
            yield from _fitting(by_start.get(name[:length], ()), name)
        for length, by_end in self._by_end.items():
            yield from _fitting(by_end.get(name[-length:], ()), name)
        yield from _fitting(self._rest, name)


def _fitting(entries: Sequence[tuple[re.Pattern[str], T]], name: str) -> Iterator[T]:
    for pattern, value in entries:
        if pattern.fullmatch(name):
            yield value


# One name: fixed, a glob, or any number of names.
Part = str | re.Pattern[str] | None
ANY_NAMES: Final = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPattern:
    """One pattern of paths, without braces."""

    # ANYWHERE is the workspace's own real path: what a relative pattern begins at.
    anchor: Anchor
    # As written, folded where it is strict; what the tree is built from.
    names: tuple[str, ...]
    parts: tuple[Part, ...]
    # Whether all that lies below a match is a match too.
    below: bool

    def matches(self, names: Sequence[str], start: int) -> bool:
        """Whether it begins at this name of a path and matches the rest."""
        places = {start}
        for part in self.parts:
            if part is ANY_NAMES:
                places = set(range(min(places), len(names) + 1))
            else:
                places = {at + 1 for at in places if at < len(names) and _fits(part, names[at])}
            if not places:
                return False
        return self.below or len(names) in places


def _fits(part: str | re.Pattern[str], name: str) -> bool:
    return part == name if isinstance(part, str) else part.fullmatch(name) is not None


def compile_path(text: str, *, strict: bool) -> tuple[PathPattern, ...]:
    """Compile one pattern as it is written, braces and all.

    Strict is for what denies or asks: case and normal form make no difference, and a folder
    stands for all that is in it. Else the pattern holds exactly as it is written, and for
    what is below a folder only with `/**`.

    Raises:
        ValueError: it names nothing (`**`, `~`, `/`), holds `..`, a character that cannot be
            seen, or more alternatives than can be meant.
    """
    if not text or len(text) > PATTERN_CHARACTERS_MAX:
        raise ValueError(f"a pattern has 1 to {PATTERN_CHARACTERS_MAX} characters")
    if character_refusals(text):
        raise ValueError("a pattern is written in plain visible characters")
    braces = text.count("{")
    if braces and (text.count(",") / braces + 1) ** braces > ALTERNATIVES_MAX:
        raise ValueError(f"more than {ALTERNATIVES_MAX} alternatives in one pattern")
    return tuple(_compile(one, strict) for one in expand_braces(text))


def _compile(text: str, strict: bool) -> PathPattern:
    anchor, rest = Anchor.ANYWHERE, text
    if text.startswith("/"):
        anchor, rest = Anchor.ROOT, text[1:]
    elif text == "~" or text.startswith("~/"):
        anchor, rest = Anchor.HOME, text[2:]
    names = [name for name in rest.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError("a real path holds no `..`")
    names = [name for at, name in enumerate(names) if name != "**" or names[at - 1 : at] != ["**"]]
    below = names[-1:] == ["**"]
    if below:
        del names[-1]
    if not names and text not in ("./**", "."):
        raise ValueError("it names nothing; ./** is the workspace")
    if strict:
        below = True
        names = [_folded(name) for name in names]
    parts = tuple(_part(name) for name in names)
    return PathPattern(anchor=anchor, names=tuple(names), parts=parts, below=below)


def _folded(name: str) -> str:
    """One form is enough: that of NFKC is always among those of a path."""
    if name.isascii():
        return name.lower()
    return normalize("NFKC", normalize("NFKC", name).casefold())


def _part(name: str) -> Part:
    if name == "**":
        return ANY_NAMES
    return compile_glob(name) if "*" in name else name


class _Node:
    """The patterns that go on from here."""

    __slots__ = ("any_names", "below", "ends", "globs", "globs_by_text", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.globs: GlobTable[_Node] = GlobTable()
        self.globs_by_text: dict[str, _Node] = {}
        # Where any number of names may come first. It is its own successor.
        self.any_names: _Node | None = None
        self.ends: list[int] = []
        self.below: list[int] = []

    def child(self, name: str, part: Part) -> "_Node":
        if part is ANY_NAMES:
            if self.any_names is None:
                self.any_names = _Node()
            return self.any_names
        if isinstance(part, str):
            return self.names.setdefault(part, _Node())
        if name not in self.globs_by_text:
            self.globs_by_text[name] = _Node()
            self.globs.add(name, self.globs_by_text[name])
        return self.globs_by_text[name]


class PathTree:
    """Patterns of one anchor, each with a number of the caller's."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: PathPattern, number: int) -> None:
        """Add a pattern."""
        node = self._root
        for name, part in zip(pattern.names, pattern.parts, strict=True):
            node = node.child(name, part)
        (node.below if pattern.below else node.ends).append(number)

    def find(self, names: Sequence[str], start: int) -> set[int]:
        """Return the number of each pattern that begins at this name and matches the rest."""
        found: set[int] = set()
        # Which nodes are reached, and whether each stays reached whatever name comes.
        reached = _with_any({self._root: False})
        for name in names[start:]:
            ahead: dict[_Node, bool] = {}
            for node, stays in reached.items():
                found.update(node.below)
                if stays:
                    ahead[node] = True
                if (child := node.names.get(name)) is not None:
                    ahead.setdefault(child, False)
                for child in node.globs.find(name):
                    ahead.setdefault(child, False)
            reached = _with_any(ahead)
            if not reached:
                return found
        for node in reached:
            found.update(node.below)
            found.update(node.ends)
        return found


def _with_any(reached: dict[_Node, bool]) -> dict[_Node, bool]:
    for node in list(reached):
        if node.any_names is not None:
            reached[node.any_names] = True
    return reached


def path_forms(names: Sequence[str], *, strict: bool) -> tuple[tuple[str, ...], ...]:
    """Return the forms in which a path is compared: all of them, or only as it is."""
    return comparison_forms(names) if strict else (tuple(names),)
