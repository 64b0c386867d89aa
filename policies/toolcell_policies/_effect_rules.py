"""Which rows of the sensitive list speak about a name that was written, fast for many names."""

from typing import Final

from ._effect import EffectGround
from ._patterns import Anchor, Pattern, PatternIndex
from ._text import comparison_forms, components, lies_within
from .sensitive import Protection, SensitiveRule

_CACHED_MAX: Final = 50_000
_NEVER_EXEMPT: Final = frozenset({"git.dir", "git.inside", "toolcell.own"})


class RuleFinder:
    """Answers for one change set; the same as the list itself, row by row.

    A row that yields is silent where the workspace itself lies under it, as for path arguments.
    """

    def __init__(self, ground: EffectGround) -> None:
        self._ground = ground
        self._top = ground.workspace.rstrip("/")
        at_top = ground.rules.match(ground.workspace, role="write", homes=ground.homes)
        self._silent = frozenset(rule.id for rule in at_top if rule.yields)
        self._starts = PatternIndex(
            [
                (Pattern(anchor=one.anchor, parts=one.parts[:1], below=True), 0)
                for rule in ground.rules.rules
                if any(kind.speaks_about("write") for kind in rule.kinds)
                for one in rule.patterns
                if one.anchor is Anchor.ANYWHERE
            ]
        )
        self._homes = [form for home in ground.homes for form in comparison_forms(components(home))]
        self._begins: dict[str, bool] = {}
        self._heads: dict[str, bool] = {"": False}
        self._found: dict[str, tuple[SensitiveRule, ...]] = {}
        self._by_name = self._names_alone_decide({rule.id for rule in at_top})

    def _names_alone_decide(self, at_top: set[str]) -> bool:
        """Whether only a name below the workspace that begins a pattern can match one."""
        ground = self._ground
        if at_top - self._silent or any(map(self._is_start, components(ground.workspace))):
            return False
        below = ground.rules.leads_below(ground.workspace, role="write", homes=ground.homes)
        if any(rule.id not in self._silent for rule, _ in below):
            return False
        tops = comparison_forms(components(ground.workspace))
        return not any(lies_within(home, top) for home in self._homes for top in tops)

    def rules_for(self, path: str) -> tuple[SensitiveRule, ...]:
        """Return every row that has something to say about a write to a path in the workspace."""
        key = path
        if self._by_name:
            head, _, name = path.rpartition("/")
            if not self._begins_in(head):
                if not self._is_start(name):
                    return ()
                key = name
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _CACHED_MAX:
                self._found.clear()
            found = self._found[key] = self.rules_at(f"{self._top}/{key}")
        return found

    def rules_at(self, path: str) -> tuple[SensitiveRule, ...]:
        """Return the same of an absolute path."""
        ground = self._ground
        found = ground.rules.match(path, role="write", homes=ground.homes)
        return tuple(rule for rule in found if rule.id not in self._silent)

    def beyond_tree(
        self, path: str, tree: str, rules: tuple[SensitiveRule, ...]
    ) -> tuple[SensitiveRule, ...]:
        """Return those of a path's rows that hold in a tree that tools made as well.

        Those are git's and our own, what this process runs from, and each that matches by a place
        of its own or by a name that is not of the tree: `.github/workflows` stays what it is where
        `.github` is said to be an environment.
        """
        inner = path.removeprefix(f"{tree}/").count("/") + 1
        forms = comparison_forms(components(f"{self._top}/{path}"))
        return tuple(
            rule
            for rule in rules
            if rule.id in _NEVER_EXEMPT
            or Protection.SEALED in rule.kinds
            or any(self._begins_before(rule, form, len(form) - inner) for form in forms)
        )

    def _begins_before(self, rule: SensitiveRule, names: tuple[str, ...], end: int) -> bool:
        starts = {
            Anchor.ROOT: (0,),
            Anchor.HOME: tuple(len(one) for one in self._homes if lies_within(names, one)),
            Anchor.ANYWHERE: range(end),
        }
        return any(
            pattern.matches_at(names, start)
            for pattern in rule.patterns
            for start in starts[pattern.anchor]
        )

    def _begins_in(self, head: str) -> bool:
        found = self._heads.get(head)
        if found is None:
            if len(self._heads) >= _CACHED_MAX:
                self._heads = {"": False}
            found = self._heads[head] = any(map(self._is_start, head.split("/")))
        return found

    def _is_start(self, name: str) -> bool:
        """Whether a pattern that holds at any depth can begin at this name."""
        found = self._begins.get(name)
        if found is None:
            if len(self._begins) >= _CACHED_MAX:
                self._begins.clear()
            found = self._begins[name] = any(
                True
                for form in comparison_forms((name,))
                for start in range(len(form))
                for _ in self._starts.matches_at(form, start)
            )
        return found
