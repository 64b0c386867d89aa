"""The sensitive paths: `sensitive_paths.toml`, loaded once and asked about one path.

The list is data and this module interprets it. Nothing here looks at the file
system: whether a name is a link is for `paths.py` to find out first.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from ._patterns import Anchor, Pattern, PatternIndex, compile_patterns, literal_pattern
from ._text import comparison_forms, components, lies_within

Role = Literal["read", "write"]
DATA_FILE: Final = "sensitive_paths.toml"


class Protection(StrEnum):
    """What a row forbids, or asks about."""

    # Neither read nor written, whoever agrees.
    RW = "RW"
    # Read freely, never written, whoever agrees: what the supervisor runs from.
    SEALED = "sealed"
    # A write asks a person.
    W = "W"
    # A read asks a person.
    A = "A"

    def speaks_about(self, role: Role) -> bool:
        """Whether it has anything to say about a path in this role."""
        return self is Protection.RW or (self is Protection.A) == (role == "read")


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitiveRule:
    """One row of the list, as it is written."""

    id: str
    category: str
    kinds: frozenset[Protection]
    patterns: tuple[Pattern, ...]
    # A match is excused by an exception that begins at the same name of the
    # path: `.env/.env.example` stays protected, because of its first name.
    exceptions: tuple[Pattern, ...] = ()
    readable: tuple[Pattern, ...] = ()
    # Never to be looked up on disk: the kernel would follow it anywhere.
    magic: bool = False
    # Silent inside a workspace that itself lies under one of the patterns.
    yields: bool = False
    # `file:line`, for a person to look it up.
    source: str | None = None

    def forbids(self, role: Role) -> bool:
        """Whether the rule denies a path in this role, rather than asks."""
        return Protection.RW in self.kinds or (Protection.SEALED in self.kinds and role == "write")

    def _excused(self, names: tuple[str, ...], start: int, anchor: Anchor, role: Role) -> bool:
        excuses = self.exceptions + self.readable if role == "read" else self.exceptions
        return any(one.anchor is anchor and one.matches_at(names, start) for one in excuses)


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitiveList:
    """All rows, ready to be asked about a path.

    A value: `with_paths` returns a new list, so that an executor adds what only
    it knows (its state folder, its own interpreter, `$SSH_AUTH_SOCK`).
    """

    # Each id once.
    rules: tuple[SensitiveRule, ...]
    _indexes: Mapping[Anchor, PatternIndex] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len({rule.id for rule in self.rules}) != len(self.rules):
            raise ValueError("two sensitive rows have the same id")
        found = [(one, at) for at, rule in enumerate(self.rules) for one in rule.patterns]
        indexes = {
            anchor: PatternIndex([entry for entry in found if entry[0].anchor is anchor])
            for anchor in Anchor
        }
        object.__setattr__(self, "_indexes", indexes)

    def match(self, path: str, *, role: Role, homes: tuple[str, ...]) -> tuple[SensitiveRule, ...]:
        """Return every rule that has something to say about an absolute path.

        In the order of the list; `..` is taken as a name like any other, so
        pass the normal form too. A home counts as it is written: pass one that
        is a link both as given and as resolved. Case, NFC and NFKC make no
        difference, nor do characters of no width and dots at a name's end.
        """
        found: set[int] = set()
        for names in comparison_forms(components(path)):
            for anchor, start in _starts(names, homes):
                for number in self._indexes[anchor].matches_at(names, start):
                    rule = self.rules[number]
                    if number not in found and not rule._excused(names, start, anchor, role):
                        found.add(number)
        rules = (self.rules[number] for number in sorted(found))
        return tuple(rule for rule in rules if any(kind.speaks_about(role) for kind in rule.kinds))

    def leads_below(
        self, path: str, *, role: Role, homes: tuple[str, ...]
    ) -> Iterator[tuple[SensitiveRule, tuple[str, ...]]]:
        """Yield each rule with a place of its own below an absolute path, and the way there.

        The way is the casefolded names from the path on, as far as the pattern
        spells them out. Whether anything is there is for who looks at the disk.
        Rows that hold at any depth have no place: they are left out.
        """
        for names in comparison_forms(components(path)):
            for anchor, start in _starts(names, homes):
                if anchor is Anchor.ANYWHERE:
                    continue
                for rule in self.rules:
                    if not any(kind.speaks_about(role) for kind in rule.kinds):
                        continue
                    for pattern in rule.patterns:
                        if pattern.anchor is anchor:
                            way = pattern.leads_below(names, start)
                            if way is not None:
                                yield rule, way

    def names_decide_below(self, path: str, *, role: Role, homes: tuple[str, ...]) -> bool:
        """Whether what is forbidden below an absolute path is told by each single name.

        So it is where no row that forbids needs more than one name at any depth, none has a
        place of its own below the path, and no home lies there: a name is then forbidden
        anywhere below exactly when it is right below, folders on the way aside.
        """
        of_any_depth = (
            pattern
            for rule in self.rules
            if rule.forbids(role)
            for pattern in (*rule.patterns, *rule.exceptions, *rule.readable)
            if pattern.anchor is Anchor.ANYWHERE
        )
        if any(len(pattern.parts) > 1 for pattern in of_any_depth):
            return False
        if any(rule.forbids(role) for rule, _ in self.leads_below(path, role=role, homes=homes)):
            return False
        forms = comparison_forms(components(path))
        return not any(lies_within(home, form) for home in _home_forms(homes) for form in forms)

    def with_paths(
        self, paths: Iterable[str], *, id: str, category: str, kind: Protection = Protection.RW
    ) -> "SensitiveList":
        """Return the list with these absolute paths, and all below them, added.

        They are literal: a `*` or a `{` is itself.

        Raises:
            ValueError: a path is relative, is the root, or the id is taken.
        """
        patterns: list[Pattern] = []
        for path in paths:
            if not path.startswith("/"):
                raise ValueError(f"not an absolute path: {path!r}")
            forms = comparison_forms(components(path))
            patterns.extend(literal_pattern(names) for names in forms)
        rule = SensitiveRule(
            id=id, category=category, kinds=frozenset({kind}), patterns=tuple(patterns)
        )
        return SensitiveList(rules=(*self.rules, rule))


def _starts(names: tuple[str, ...], homes: tuple[str, ...]) -> Iterator[tuple[Anchor, int]]:
    yield Anchor.ROOT, 0
    for home in _home_forms(homes):
        if lies_within(names, home):
            yield Anchor.HOME, len(home)
    for start in range(len(names)):
        yield Anchor.ANYWHERE, start


@functools.lru_cache(maxsize=64)
def _home_forms(homes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    found = (comparison_forms(components(home)) for home in homes if home.startswith("/"))
    return tuple({names for forms in found for names in forms})


@functools.cache
def default_sensitive_list() -> SensitiveList:
    """Return the list that ships with this package, loaded on first use."""
    from importlib.resources import files  # late: slow to import, and rarely needed

    return parse_sensitive_list((files(__package__) / DATA_FILE).read_text(encoding="utf-8"))


def parse_sensitive_list(text: str, *, file: str = DATA_FILE) -> SensitiveList:
    """Return the list written in this TOML text.

    Raises:
        ValueError: it is not TOML, or a row is incomplete, has a word that
            nobody knows, or a pattern that names nothing: a list that cannot
            be read whole is not read at all.
    """
    import tomllib  # late: only the first decision of a process needs it

    lines = {
        found[1]: number
        for number, line in enumerate(text.splitlines(), 1)
        if (found := re.match(r'id = "([^"]+)"', line))
    }
    rows = tomllib.loads(text).get("rule", [])
    return SensitiveList(rules=tuple(_rule(row, file, lines) for row in rows))


_REQUIRED: Final = frozenset({"id", "category", "kinds", "patterns"})
_OPTIONAL: Final = frozenset(
    {"except", "readable", "below", "magic", "yields", "match", "not_match"}
)


def _rule(row: dict[str, Any], file: str, lines: Mapping[str, int]) -> SensitiveRule:
    name = row.get("id", "a row without an id")
    if missing := _REQUIRED - row.keys():
        raise ValueError(f"{file}: {name}: missing {', '.join(sorted(missing))}")
    if unknown := row.keys() - _REQUIRED - _OPTIONAL:
        raise ValueError(f"{file}: {name}: unknown {', '.join(sorted(unknown))}")
    if not row["kinds"] or not row["patterns"]:
        raise ValueError(f"{file}: {name}: kinds and patterns must not be empty")

    def compiled(key: str, *, below: bool = True) -> tuple[Pattern, ...]:
        return tuple(
            pattern for text in row.get(key, ()) for pattern in compile_patterns(text, below=below)
        )

    return SensitiveRule(
        id=row["id"],
        category=row["category"],
        kinds=frozenset(map(Protection, row["kinds"])),
        patterns=compiled("patterns", below=row.get("below", True)),
        exceptions=compiled("except"),
        readable=compiled("readable"),
        magic=row.get("magic", False),
        yields=row.get("yields", False),
        source=f"{file}:{lines[name]}" if name in lines else file,
    )
