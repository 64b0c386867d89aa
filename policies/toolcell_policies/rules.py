"""Rule files: what a person, a repository or a team says about calls, on top of the policy.

`parse_policy` reads one file, `RuleSet` puts several together, `judge` says which of their rules
speak about a call. What follows from that is for `decide()`. docs/policy-file.md has the format.

Rules never depend on their order: one that denies denies, wherever it stands.
"""

import hashlib
from collections.abc import Container, Sequence
from itertools import product
from typing import Final

from ._rules_examples import ExampleResult, check_examples, run_examples
from ._rules_index import RuleIndex
from ._rules_lint import LintFinding
from ._rules_lint import lint as _lint
from ._rules_match import CallFacts, CompiledRule, Cover, cover, cover_hits, hits
from ._rules_model import (
    Ceilings,
    Example,
    Executable,
    Extends,
    Hit,
    PolicyFile,
    Rule,
    RuleCall,
    RulePath,
    RuleSegment,
    RuleVerdict,
    Scope,
    When,
)
from ._rules_parse import read_policy
from ._rules_segments import rule_segments
from ._rules_toml import PolicyError
from ._text import shown
from .decision import Outcome, Reason

__all__ = [
    "HITS_IN_DOUBT_MAX",
    "Ceilings",
    "Example",
    "ExampleResult",
    "Executable",
    "Hit",
    "LintFinding",
    "PolicyError",
    "PolicyFile",
    "Rule",
    "RuleCall",
    "RulePath",
    "RuleSegment",
    "RuleSet",
    "RuleVerdict",
    "Scope",
    "When",
    "lint",
    "parse_policy",
    "rule_segments",
    "run_examples",
]

# One is enough to ask; an unknown word may be about every rule there is.
HITS_IN_DOUBT_MAX: Final = 16

_ORDER: Final = (Scope.USER, Scope.PROJECT, Scope.BUILTIN)
# From the strictest on.
_EXTENDS: Final[tuple[Extends, ...]] = ("strict", "standard", "ci", "coding")


def parse_policy(text: str, *, file: str, scope: Scope, run: bool = True) -> PolicyFile:
    """Read a rule file, and run its examples unless told not to.

    Pass the text with its line ends as they are: trust is given to its digest.

    Raises:
        PolicyError: it is no TOML, something in it is not understood, or an example does not
            hold. Nothing of such a file may be used, and nothing may run without it: it may be
            the one that denies.
    """
    policy, document = read_policy(text, file=file, scope=scope)
    if run:
        check_examples(policy, document)
    return policy


class RuleSet:
    """All rule files in force, ready to be asked about a call.

    A project's file tightens only, unless its digest is trusted: what it would loosen is not in
    force and is listed in `ignored`.
    """

    __slots__ = (
        *("_allow", "_compiled", "_strict"),
        *("ceilings", "epoch", "extends", "files", "ignored", "rules", "trusted"),
    )

    def __init__(self, files: Sequence[PolicyFile], trusted: Container[str] = ()) -> None:
        self.files = tuple(sorted(files, key=lambda one: _ORDER.index(one.scope)))
        self.trusted = frozenset(
            one.digest
            for one in self.files
            if one.scope is not Scope.PROJECT or one.digest in trusted
        )
        ignored: list[Reason] = []
        rules: list[Rule] = []
        said: list[tuple[Scope, Extends]] = []
        self.ceilings = Ceilings()
        for one in self.files:
            loosens = one.scope is not Scope.PROJECT or one.digest in trusted
            self.ceilings = self.ceilings.stricter(one.ceilings)
            if one.extends is not None and (loosens or one.extends == "strict"):
                said.append((one.scope, one.extends))
            elif one.extends is not None:
                ignored.append(_ignored(one, f"its policy {one.extends}", None, one.file))
            for rule in one.rules:
                if loosens or rule.outcome is not Outcome.ALLOW:
                    rules.append(rule)
                else:
                    ignored.append(_ignored(one, "a rule that allows", rule.id, rule.source))
        # The rules in force: the user's first, each file's in its order.
        self.rules = tuple(rules)
        self.ignored = tuple(ignored)
        self.extends = _extends(said)
        self.epoch = _epoch(self.files, trusted)
        self._compiled = tuple(CompiledRule(rule) for rule in rules)
        numbered = list(enumerate(self._compiled))
        self._strict = RuleIndex([one for one in numbered if one[1].strict], strict=True)
        self._allow = RuleIndex([one for one in numbered if not one[1].strict], strict=False)

    def judge(self, call: RuleCall) -> RuleVerdict:
        """Return every rule that speaks about a call, and whether it is allowed by rules.

        A rule that denies or asks does so for any part of the call that it fits. Allowed is a
        call only where each combination of its commands, paths and hosts is covered by one rule.
        """
        strict = CallFacts(call, strict=True)
        found: list[Hit] = []
        for number in sorted(self._strict.candidates(strict)):
            found += hits(self._compiled[number], strict)
        certain = [hit for hit in found if hit.certain]
        in_doubt = [hit for hit in found if not hit.certain] + self._in_doubt(strict)
        kept = [*certain, *dict.fromkeys(in_doubt)][: len(certain) + HITS_IN_DOUBT_MAX]
        exact = CallFacts(call, strict=False)
        covers: list[tuple[CompiledRule, Cover]] = []
        for number in sorted(self._allow.candidates(exact)):
            compiled = self._compiled[number]
            part = cover(compiled, exact)
            if part is not None:
                covers.append((compiled, part))
        exactly = [part for compiled, part in covers if _names_a_program(compiled.rule)]
        return RuleVerdict(
            denies=tuple(hit for hit in kept if hit.certain and _denies(hit)),
            asks=tuple(hit for hit in kept if not (hit.certain and _denies(hit))),
            allows=tuple(
                hit for compiled, part in covers for hit in cover_hits(compiled, exact, part)
            ),
            allowed=_all_covered(call, [part for _, part in covers]),
            allowed_exactly=call.segments is not None and _all_covered(call, exactly),
        )

    def _in_doubt(self, facts: CallFacts) -> list[Hit]:
        """Those of rules that an unknown word may be about; no more than anybody reads."""
        found: list[Hit] = []
        for segment in facts.call.segments or ():
            for number in self._strict.in_doubt(segment):
                found += [hit for hit in hits(self._compiled[number], facts) if not hit.certain]
                if len(found) >= HITS_IN_DOUBT_MAX:
                    return found
        return found


def lint(rules: RuleSet, tools: Sequence[str]) -> tuple[LintFinding, ...]:
    """Return what is probably not meant in the rule files, for the tools that there are."""
    return _lint(rules.files, rules.trusted, tools)


def _ignored(file: PolicyFile, what: str, rule: str | None, source: str) -> Reason:
    text = (
        f"{what} does not count while this project's file is not trusted; "
        f"read it, and then: toolcell trust {shown(file.file)}"
    )
    return Reason(code="rule_untrusted", text=text, rule=rule, source=source)


def _extends(said: Sequence[tuple[Scope, Extends]]) -> Extends | None:
    """The user's word before a project's, and `strict` before all."""
    if any(extends == "strict" for _, extends in said):
        return "strict"
    for scope in _ORDER:
        words = [extends for one, extends in said if one is scope]
        if words:
            return min(words, key=_EXTENDS.index)
    return None


def _epoch(files: Sequence[PolicyFile], trusted: Container[str]) -> str:
    said = sorted(f"{one.scope} {one.digest} {one.digest in trusted}" for one in files)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _denies(hit: Hit) -> bool:
    return hit.rule.outcome is Outcome.DENY


def _names_a_program(rule: Rule) -> bool:
    return rule.when.executable is not None and rule.when.executable.exact


def _all_covered(call: RuleCall, covers: Sequence[Cover]) -> bool:
    """Whether one rule or another covers each combination of a command, a path and a host."""
    if not covers or call.segments == ():
        return False
    places = (call.segments, call.paths, call.hosts)
    kinds = [_by_place(covers, number, parts) for number, parts in enumerate(places)]
    return all(one & two & three for one, two, three in product(*kinds))


def _by_place(
    covers: Sequence[Cover], kind: int, parts: Sequence[object] | None
) -> set[frozenset[int]]:
    """For each part of a kind, which rules cover it: those with the same are one."""
    found = set()
    for at in range(len(parts)) if parts else (-1,):
        found.add(
            frozenset(
                number
                for number, one in enumerate(covers)
                if at in (one.segments, one.paths, one.hosts)[kind]
            )
        )
    return found
