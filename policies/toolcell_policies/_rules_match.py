"""One rule against one call: the same for a decision, for an example, and for a test's scan."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import normalize

from ._patterns import Anchor
from ._rules_globs import PathPattern, compile_glob, compile_path, path_forms
from ._rules_model import Hit, Match, Rule, RuleCall, RulePath, RuleSegment, Scalar
from ._rules_words import covers, speaks_about
from ._text import collapse, components, lies_within, shown
from .decision import Outcome

WILD: Final = frozenset("*?")

# A path in one form, and where in it a pattern of an anchor may begin.
Start = tuple[Anchor, tuple[str, ...], int]


class Names:
    """Names and patterns of names."""

    __slots__ = ("_globs", "_known", "matches_all")

    def __init__(self, written: Sequence[str]) -> None:
        self._known = frozenset(name for name in written if not WILD & set(name))
        globs = [name for name in written if WILD & set(name)]
        self._globs = tuple(compile_glob(name, question=True) for name in globs)
        self.matches_all = any(set(name) == {"*"} for name in globs)

    def match(self, name: str) -> bool:
        """Whether one of them is, or fits, this name."""
        return (
            self.matches_all
            or name in self._known
            or any(glob.fullmatch(name) for glob in self._globs)
        )


class CompiledRule:
    """A rule, ready to be matched."""

    __slots__ = ("actions", "patterns", "rule", "strict", "tools")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        # What denies or asks takes a doubt as a match; what allows, as none.
        self.strict = rule.outcome is not Outcome.ALLOW
        self.tools = Names(rule.tools)
        self.actions = Names(rule.actions)
        self.patterns: tuple[PathPattern, ...] = tuple(
            pattern for text in rule.when.path for pattern in compile_path(text, strict=self.strict)
        )

    def fits_call(self, call: RuleCall) -> bool:
        """Whether all holds that is about the call as a whole."""
        when = self.rule.when
        return (
            self.tools.match(call.tool_name)
            and (not self.rule.actions or self.actions.match(call.action))
            and (not when.access or call.access in when.access)
            and fits_arguments(when.arguments, call.arguments)
        )

    def fits_segment(self, segment: RuleSegment) -> Match:
        """Whether it is about a command; MAYBE only if it denies or asks."""
        when = self.rule.when
        if self.strict:
            return speaks_about(when, segment)
        return Match.YES if covers(when, segment) else Match.NO

    def fits_path(self, path: RulePath, starts: Sequence[Start]) -> bool:
        """Whether it is about a path; the starts are those of `path_starts`.

        Who is allowed to write a file is allowed to read it.
        """
        role = self.rule.when.role
        if role not in (None, path.role) and (self.strict or role == "read"):
            return False
        if not self.patterns:
            return self.strict or bool(starts)
        return any(
            pattern.anchor is anchor and pattern.matches(names, start)
            for anchor, names, start in starts
            for pattern in self.patterns
        )

    def fits_host(self, host: str) -> bool:
        """Whether it is about a host."""
        forms = host_forms(host, strict=self.strict)
        return any(host_fits(one, form) for form in forms for one in self.rule.when.host)


def fits_arguments(
    wanted: Sequence[tuple[str, Sequence[Scalar]]], arguments: Mapping[str, object]
) -> bool:
    """Whether each argument that is named is there and is one of its alternatives.

    By type: a number is never a bool nor a text, and 1 is 1.0.
    """
    return all(
        name in arguments and any(_same(one, arguments[name]) for one in alternatives)
        for name, alternatives in wanted
    )


def _same(wanted: Scalar, given: object) -> bool:
    if isinstance(wanted, bool) or isinstance(given, bool):
        return wanted is given
    return wanted == given


def path_starts(real: str, workspace: str, homes: Sequence[str], *, strict: bool) -> list[Start]:
    """Return where in a real path the patterns of each anchor may begin.

    None for what is no real path, where something is to be allowed by it.
    """
    names = components(real)
    if not strict and (not real.startswith("/") or ".." in names):
        return []
    found: dict[Start, None] = {}
    for form in path_forms(collapse(names), strict=strict):
        found[Anchor.ROOT, form, 0] = None
        for anchor, top in ((Anchor.ANYWHERE, workspace), *((Anchor.HOME, one) for one in homes)):
            for above in _top_forms(top, strict):
                if lies_within(form, above):
                    found[anchor, form, len(above)] = None
    return list(found)


@functools.lru_cache(maxsize=256)
def _top_forms(top: str, strict: bool) -> tuple[tuple[str, ...], ...]:
    return path_forms(components(top), strict=strict) if top.startswith("/") else ()


def host_forms(host: str, *, strict: bool) -> tuple[str, ...]:
    """Return the forms in which a host is compared.

    A name that is not ASCII is in none that could allow it: the one it stands for is not
    told here.
    """
    plain = host.rstrip(".").lower()
    if plain.isascii():
        return (plain,)
    if not strict:
        return ()
    folded = normalize("NFKC", plain).casefold()
    try:
        return (folded, folded.encode("idna").decode("ascii"))
    except UnicodeError:
        return (folded,)


def host_fits(pattern: str, host: str) -> bool:
    """Whether a host is the one named, or below it for `*.name`, or any for `*`."""
    if pattern.startswith("*"):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern) - 1 + (pattern != "*")
    return host == pattern


class CallFacts:
    """A call, with what the rules of one kind need to know of its paths worked out once."""

    __slots__ = ("call", "starts")

    def __init__(self, call: RuleCall, *, strict: bool) -> None:
        self.call = call
        self.starts = [
            path_starts(path.real, call.workspace, call.homes, strict=strict) for path in call.paths
        ]


def hits(compiled: CompiledRule, facts: CallFacts) -> list[Hit]:
    """Return what of a call a rule that denies or asks is about; empty is nothing.

    Of each kind that it has a condition on there must be one part that fits. They are told
    by the first of: commands, paths, hosts, the tool.
    """
    rule, when, call = compiled.rule, compiled.rule.when, facts.call
    if not compiled.fits_call(call):
        return []
    told: list[tuple[str, Match]] | None = None
    worst = Match.YES
    if when.about_commands:
        found = [(one.shown, compiled.fits_segment(one)) for one in call.segments or ()]
        told = found
    if when.about_paths:
        pairs = zip(call.paths, facts.starts, strict=True)
        found = [(shown(one.real), _match(compiled.fits_path(one, at))) for one, at in pairs]
        worst = min(worst, _best(found))
        told = told if told is not None else found
    if when.about_hosts:
        found = [(shown(one), _match(compiled.fits_host(one))) for one in call.hosts]
        worst = min(worst, _best(found))
        told = told if told is not None else found
    if told is None:
        told = [(shown(call.tool_name), Match.YES)]
    return [
        Hit(rule=rule, what=what, certain=min(match, worst) is Match.YES)
        for what, match in told
        if min(match, worst) is not Match.NO
    ]


def _match(fits: bool) -> Match:
    return Match.YES if fits else Match.NO


def _best(found: Sequence[tuple[str, Match]]) -> Match:
    return max((match for _, match in found), default=Match.NO)


@dataclass(frozen=True, slots=True)
class Cover:
    """Which parts of a call a rule that allows covers, by their places; -1 stands for none."""

    segments: frozenset[int]
    paths: frozenset[int]
    hosts: frozenset[int]


NONE_THERE: Final = frozenset({-1})


def cover(compiled: CompiledRule, facts: CallFacts) -> Cover | None:
    """Return what of a call a rule that allows covers; None is nothing.

    A rule with no condition on a kind covers all of that kind, but for commands with a word
    that is unknown. One with a condition never covers a call with nothing of that kind.
    """
    when, call = compiled.rule.when, facts.call
    if not compiled.fits_call(call):
        return None
    segments = paths = hosts = NONE_THERE
    if call.segments is not None:
        segments = frozenset(
            at for at, one in enumerate(call.segments) if compiled.fits_segment(one)
        )
    elif when.about_commands:
        return None
    if call.paths:
        paths = frozenset(
            at for at, one in enumerate(call.paths) if compiled.fits_path(one, facts.starts[at])
        )
    elif when.about_paths:
        return None
    if call.hosts:
        hosts = frozenset(
            at
            for at, one in enumerate(call.hosts)
            if not when.about_hosts or compiled.fits_host(one)
        )
    elif when.about_hosts:
        return None
    if not (segments and paths and hosts):
        return None
    return Cover(segments=segments, paths=paths, hosts=hosts)


def cover_hits(compiled: CompiledRule, facts: CallFacts, found: Cover) -> list[Hit]:
    """Return what a rule covers, told by the same kinds as `hits`."""
    rule, when, call = compiled.rule, compiled.rule.when, facts.call
    if when.about_commands and call.segments is not None:
        told = [call.segments[at].shown for at in sorted(found.segments)]
    elif when.about_paths:
        told = [shown(call.paths[at].real) for at in sorted(found.paths)]
    elif when.about_hosts:
        told = [shown(call.hosts[at]) for at in sorted(found.hosts)]
    else:
        told = [shown(call.tool_name)]
    return [Hit(rule=rule, what=what) for what in told]
