"""What in a rule file is read well and probably not meant.

| code | what |
|---|---|
| `never_fires` | conditions that exclude each other, or something stricter always comes first |
| `shadowed` | a catch-all that makes other rules idle, wherever they stand |
| `unknown_tool` | no tool has such a name |
| `no_examples` | nothing shows that the rule does what its author thinks |
| `allow_too_wide` | allows whatever the tool is given, or a command with whatever flags |
| `no_effect` | allows a command, and lowers nothing of what always confirms |
"""

import difflib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ._patterns import Anchor
from ._rules_examples import HOME, ROLES, WORKSPACE
from ._rules_globs import PathPattern, compile_path
from ._rules_match import Names
from ._rules_model import PolicyFile, Rule, Scope, When
from ._rules_toml import one_of, quoted
from .decision import Outcome
from .sensitive import Role, SensitiveRule, default_sensitive_list
from .vocabulary import AccessMode

_WEIGHTS: Final = {Outcome.ALLOW: 0, Outcome.ASK: 1, Outcome.DENY: 2}
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One thing that is probably not meant."""

    code: str
    rule: str
    # `file:line`
    source: str
    text: str
    remedy: str


def lint(
    files: Sequence[PolicyFile], trusted: Container[str], tools: Sequence[str]
) -> tuple[LintFinding, ...]:
    """Return what is found in these files together, rule by rule."""
    rules = [rule for file in files for rule in file.rules]
    catch_alls = [
        rule for rule in rules if _is_catch_all(rule) and rule.outcome is not Outcome.ALLOW
    ]
    denies = [rule for rule in rules if rule.outcome is Outcome.DENY]
    untrusted = {
        id(rule)
        for file in files
        if file.scope is Scope.PROJECT and file.digest not in trusted
        for rule in file.rules
        if rule.outcome is Outcome.ALLOW
    }
    found: list[LintFinding] = []
    for rule in rules:
        found += _unknown_tools(rule, tools)
        found += _contradictions(rule)
        found += _below_the_floor(rule)
        found += _always_denied(rule, denies)
        if rule in catch_alls:
            found += _shadowing(rule, rules)
        found += _without_examples(rule)
        found += _too_wide(rule)
        found += _untrusted(rule) if id(rule) in untrusted else _without_effect(rule)
    return tuple(found)


def _finding(rule: Rule, code: str, text: str, remedy: str) -> LintFinding:
    return LintFinding(code=code, rule=rule.id, source=rule.source, text=text, remedy=remedy)


def _is_catch_all(rule: Rule) -> bool:
    """Whether it is about many tools, whatever they are given."""
    return rule.when == When() and any("*" in one for one in (*rule.tools, *rule.actions))


def _unknown_tools(rule: Rule, tools: Sequence[str]) -> Iterator[LintFinding]:
    for name in rule.tools:
        if any(map(Names((name,)).match, tools)) or set(name) == {"*"}:
            continue
        near = difflib.get_close_matches(name, tools, n=3)
        remedy = f"did you mean {one_of(near)}?" if near else "see the names: toolcell tools"
        text = f"no tool has the name {quoted(name)}"
        yield _finding(rule, "unknown_tool", text, remedy)


def _contradictions(rule: Rule) -> Iterator[LintFinding]:
    when = rule.when
    texts = []
    if when.flags and set(when.flags) <= set(when.not_flags):
        texts.append("each of `flags` is in `not_flags`")
    reads = {AccessMode.READONLY.value}
    if when.role == "write" and when.access and set(when.access) <= reads:
        texts.append("a call that only reads has no path in role `write`")
    if when.about_commands and when.access and not set(when.access) & _RUNNING:
        texts.append(f"only a call of access {one_of(sorted(_RUNNING))} runs commands")
    for text in texts:
        yield _finding(rule, "never_fires", text, "drop one of the two conditions")


_RUNNING: Final = frozenset({AccessMode.EXECUTE.value, AccessMode.MIXED.value})


def _below_the_floor(rule: Rule) -> Iterator[LintFinding]:
    if rule.outcome is Outcome.DENY:
        return
    roles = ROLES if rule.when.role is None else (rule.when.role,)
    for text in rule.when.path:
        patterns = compile_path(text, strict=rule.outcome is not Outcome.ALLOW)
        rows = [_row(pattern, role) for pattern in patterns for role in roles]
        if rows and None not in rows:
            names = sorted({row.id for row in rows if row is not None})
            said = f"{quoted(text)} lies below the floor ({', '.join(names)})"
            text = f"{said}: it is denied, whatever a rule says"
            yield _finding(rule, "never_fires", text, "leave that path out")


def _row(pattern: PathPattern, role: Role) -> SensitiveRule | None:
    """Return a row of the sensitive list that denies all that a pattern can match."""
    names = list(pattern.names)
    if pattern.anchor is Anchor.ANYWHERE and names[:1] == ["**"]:
        del names[0]
    if not names or any("*" in name for name in names):
        return None
    tops = {Anchor.ROOT: "", Anchor.HOME: HOME, Anchor.ANYWHERE: WORKSPACE}
    path = "/".join((tops[pattern.anchor], *names))
    for row in default_sensitive_list().match(path, role=role, homes=(HOME,)):
        excused = row.exceptions or row.readable
        if row.forbids(role) and not row.yields and not (pattern.below and excused):
            return row
    return None


def _always_denied(rule: Rule, denies: Sequence[Rule]) -> Iterator[LintFinding]:
    if rule.outcome is Outcome.DENY:
        return
    for deny in denies:
        if _contains(deny, rule):
            text = f"the rule {deny.id} ({deny.source}) denies all that this one is about"
            remedy = "narrow that rule; no other can undo it, wherever it stands"
            yield _finding(rule, "never_fires", text, remedy)
            return


def _contains(wide: Rule, narrow: Rule) -> bool:
    """Whether one rule is surely about all that another is about."""
    mine, other = wide.when, narrow.when
    return (
        _names_within(wide.tools, narrow.tools)
        and (not wide.actions or _names_within(wide.actions, narrow.actions))
        and (not mine.path or (bool(other.path) and set(other.path) <= set(mine.path)))
        and mine.role in (None, other.role)
        and _begins(mine.command, other.command)
        and mine.flags in ((), other.flags)
        and mine.not_flags in ((), other.not_flags)
        and mine.executable in (None, other.executable)
        and (not mine.host or (bool(other.host) and set(other.host) <= set(mine.host)))
        and set(mine.arguments) <= set(other.arguments)
        and (not mine.access or (bool(other.access) and set(other.access) <= set(mine.access)))
    )


def _names_within(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Whether each of these is one of those; a pattern, where its own text fits."""
    return bool(narrow) and all(
        any(one == name or ("?" not in one and Names((one,)).match(name)) for one in wide)
        for name in narrow
    )


def _begins(wide: Sequence[Sequence[str]], narrow: Sequence[Sequence[str]]) -> bool:
    return len(wide) <= len(narrow) and all(
        set(two) <= set(one) for one, two in zip(wide, narrow, strict=False)
    )


def _shadowing(rule: Rule, rules: Sequence[Rule]) -> Iterator[LintFinding]:
    idle = [
        one.id
        for one in rules
        if _WEIGHTS[one.outcome] < _WEIGHTS[rule.outcome] and _contains(rule, one)
    ]
    if idle:
        more = f" and {len(idle) - _NAMED_MAX} more" if len(idle) > _NAMED_MAX else ""
        text = f"it undoes {', '.join(idle[:_NAMED_MAX])}{more}: order makes no difference"
        yield _finding(rule, "shadowed", text, "give it conditions, or take those rules out")


def _without_examples(rule: Rule) -> Iterator[LintFinding]:
    if not (rule.match or rule.not_match):
        text = "no example shows that it does what is meant"
        yield _finding(rule, "no_examples", text, "add `match` and `not_match`")


def _too_wide(rule: Rule) -> Iterator[LintFinding]:
    if rule.outcome is not Outcome.ALLOW:
        return
    if _is_catch_all(rule):
        text = "it allows many tools, whatever they are given"
        yield _finding(rule, "allow_too_wide", text, "name the tools, or add a condition in `when`")
    elif rule.when.about_commands and rule.when.only_flags is None:
        text = "it allows its command with whatever flags there are, or will be"
        yield _finding(
            rule, "allow_too_wide", text, "list the flags that are meant in `only_flags`"
        )


def _without_effect(rule: Rule) -> Iterator[LintFinding]:
    executable = rule.when.executable
    exact = executable is not None and executable.exact
    if rule.outcome is Outcome.ALLOW and rule.when.about_commands and not exact:
        text = (
            "it lowers level 2 only: what runs a command is of level 3 "
            "under the policies standard and strict"
        )
        remedy = "name the program by `executable = { path = ..., sha256 = ... }`"
        yield _finding(rule, "no_effect", text, remedy)


def _untrusted(rule: Rule) -> Iterator[LintFinding]:
    text = "it allows, and this project's file is not trusted: it does not count"
    yield _finding(rule, "no_effect", text, "read the file, and then: toolcell trust FILE")
