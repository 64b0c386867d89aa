"""Rule sets against a naive scan, and what no rule may ever do: over generated rules and calls."""

import fnmatch
import random
import re
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_policies.decision import Outcome
from toolcell_policies.rules import (
    HITS_IN_DOUBT_MAX,
    Ceilings,
    Executable,
    PolicyFile,
    Rule,
    RuleCall,
    RulePath,
    RuleSegment,
    RuleSet,
    Scope,
    When,
)
from toolcell_policies.sensitive import Role

# Small alphabets, so that rules and calls meet.
TOOLS = ["shell", "write", "*", "s*", "?rite"]
WORDS = ["a", "b", "-x", "--yes", "--y", "./a", None]
PATHS = ["s/**", "s", "s/*.c", "**/t", "./**", "/etc/**", "~/**/k", "s/**/u/*", "{s,t}/v"]
REALS = ["s", "s/a.c", "s/t", "t", "S/a.c", "s/w/u/a", "t/v", "s/v", "u"]
OUTSIDE = ["/etc/x", "/home/k", "/home/d/k", "/ws-evil/s"]
HOSTS = ["x.org", "*.org", "*", "*.x.org"]
ROLES: list[Role] = ["read", "write"]

# A pool of each: drawing from one is what costs least, and shrinks to few.
RNG = random.Random(5)
T = TypeVar("T")


def some(items: Sequence[T], most: int = 2, least: int = 0) -> tuple[T, ...]:
    return tuple(RNG.sample(items, RNG.randint(least, most)))


def now_and_then(value: T, otherwise: T) -> T:
    return value if RNG.random() < 0.3 else otherwise


def a_command(words: list[str], least: int = 0) -> tuple[tuple[str, ...], ...]:
    return tuple(some(words, least=1) for _ in range(RNG.randint(least, 2)))


def a_when() -> When:
    kind = RNG.randrange(6)
    if kind == 0:
        return When(path=some(PATHS), role=now_and_then(RNG.choice(ROLES), None))
    if kind == 1:
        return When(command=a_command(["a", "b"]))
    if kind == 2:
        return When(host=some(HOSTS))
    if kind == 3:
        only = now_and_then((), None)
        return When(executable=Executable(path="/bin/a", sha256="1"), only_flags=only)
    return When(
        path=now_and_then(some(PATHS), ()),
        role=now_and_then(RNG.choice(ROLES), None),
        command=a_command(["a", "b", "c"]),
        flags=now_and_then(some(["-x", "--yes"]), ()),
        not_flags=now_and_then(some(["-x", "--yes"]), ()),
        only_flags=now_and_then(some(["-x", "--yes"]), None),
        executable=now_and_then(Executable(path="/bin/a", sha256="1"), None),
        host=now_and_then(some(HOSTS), ()),
        arguments=now_and_then((("n", (1, "1")),), ()),
        access=now_and_then(("write",), ()),
    )


def a_rule(number: int, scope: Scope) -> Rule:
    return Rule(
        id=f"r{number}",
        outcome=RNG.choice(list(Outcome)),
        tools=some(TOOLS, least=1),
        actions=now_and_then(RNG.choice([("edit",), ("e*",)]), ()),
        when=a_when(),
        scope=scope,
        source=f"f:{number}",
        lines=(1, 1),
    )


def a_segment() -> RuleSegment:
    return RuleSegment(
        argv=tuple(
            RNG.choice(WORDS[:4] if RNG.random() < 0.6 else WORDS) for _ in range(RNG.randint(0, 4))
        ),
        executable_path=RNG.choice([None, "/bin/a", "/bin/a", "/bin/b"]),
        executable_sha256=RNG.choice(["1", "1", "2", None]),
        understood=RNG.random() < 0.8,
        opaque=RNG.random() < 0.1,
        env=now_and_then(("V",), ()),
    )


def a_path() -> RulePath:
    reals = [*(f"/ws/{one}" for one in REALS), *OUTSIDE]
    return RulePath(real=RNG.choice(reals), role=RNG.choice(ROLES))


def a_call() -> RuleCall:
    return RuleCall(
        tool_name=RNG.choice(["shell", "write", "other"]),
        action=RNG.choice(["edit", "", "read"]),
        access=RNG.choice(["write", "execute"]),
        arguments=RNG.choice([{}, {"n": 1}, {"n": "1"}, {"n": True}]),
        paths=tuple(a_path() for _ in range(RNG.randint(0, 2))),
        segments=RNG.choice([None, tuple(a_segment() for _ in range(RNG.randint(0, 2)))]),
        hosts=some(["x.org", "a.x.org", "X.org", "com"], 1),
        workspace="/ws",
        homes=("/home",),
    )


def rules_of(scope: Scope) -> st.SearchStrategy[list[Rule]]:
    pool = [a_rule(number, scope) for number in range(500)]
    return st.lists(st.sampled_from(pool), max_size=8)


def file(scope: Scope, rules: list[Rule]) -> PolicyFile:
    return PolicyFile(
        file=scope.value,
        scope=scope,
        extends=None,
        rules=tuple(rules),
        ceilings=Ceilings(),
        digest=" ".join(rule.id for rule in rules),
    )


def files_of(scope: Scope) -> st.SearchStrategy[PolicyFile]:
    return rules_of(scope).map(lambda rules: file(scope, rules))


calls = st.sampled_from([a_call() for _ in range(1000)])
sets = st.tuples(files_of(Scope.USER), files_of(Scope.PROJECT)).map(list)


# -- the naive scan: every rule, every part, no index -------------------------------------


def name_fits(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, one) for one in patterns)


def path_fits(pattern: str, path: RulePath, role: Role | None, strict: bool) -> bool:
    if role is not None and role != path.role and (strict or role == "read"):
        return False
    top, rest = "/ws", pattern.removeprefix("./")
    if pattern.startswith("/"):
        top, rest = "", pattern[1:]
    elif pattern.startswith("~/"):
        top, rest = "/home", pattern[2:]
    choices = re.fullmatch(r"\{(.*),(.*)\}(.*)", rest)
    rests = [choices[1] + choices[3], choices[2] + choices[3]] if choices else [rest]
    for one in rests:
        below = strict or one == "**" or one.endswith("/**")
        names = [name for name in one.split("/") if name]
        if names[-1:] == ["**"]:
            del names[-1]
        written = re.escape(top)
        for name in names:
            if name == "**":
                written += "(?:/[^/]+)*"
            else:
                written += "/" + re.escape(name).replace(r"\*", "[^/]*")
        written += "(?:/.*)?" if below else ""
        if re.fullmatch(written, path.real, re.IGNORECASE if strict else 0):
            return True
    return False


def command_may_fit(command: tuple[tuple[str, ...], ...], one: RuleSegment) -> int:
    """0, 1 (maybe) or 2, by trying every way to read the words."""

    def ways(number: int, at: int) -> int:
        if number == len(command):
            return 2
        if at >= len(one.argv):
            return 0
        word = one.argv[at]
        found = 0
        names = {word}
        if number == 0:
            if at == 0:
                names |= {one.executable_path}
            names |= {name.rsplit("/", 1)[-1] for name in names if name}
        if names == {None}:
            return 1
        if names & set(command[number]):
            found = ways(number + 1, at + 1)
        if number and word is None:
            found = max(found, 1)
        if number and word is not None and word.startswith("-"):
            found = max(found, ways(number, at + 1), ways(number, at + 2))
        return found

    best = ways(0, 0)
    if not one.understood:
        best = max(best, *(min(1, ways(0, at)) for at in range(1, len(one.argv))), 0)
    return best


def has(flag: str, one: RuleSegment) -> int:
    spellings = {"-x": {"-x"}, "--yes": {"--yes", "--y"}}[flag]
    if spellings & set(one.argv[1:]):
        return 2
    return 1 if None in one.argv[1:] else 0


def surely(flag: str, one: RuleSegment) -> bool:
    return any(
        word == flag and before is not None and not before.startswith("-")
        for before, word in zip(one.argv, one.argv[1:], strict=False)
    )


def segment_fits(when: When, one: RuleSegment) -> int:
    found = command_may_fit(when.command, one) if when.command else 2
    if when.flags:
        found = min(found, max(has(flag, one) for flag in when.flags))
    if when.executable:
        same = (one.executable_path, one.executable_sha256) == ("/bin/a", "1")
        unsure = one.executable_path in (None, "/bin/a") and one.executable_sha256 in (None, "1")
        found = min(found, 2 if same else 1 if unsure else 0)
    return 0 if one.understood and any(surely(flag, one) for flag in when.not_flags) else found


def segment_covered(when: When, one: RuleSegment) -> bool:
    words = one.argv
    if not words or None in words or not one.understood or one.opaque or one.env:
        return False
    rest = words[max(1, len(when.command)) :]
    flags = [word for word in rest if word and word.startswith("-")]
    return (
        len(words) >= len(when.command)
        and all(word in known for word, known in zip(words, when.command, strict=False))
        and (not when.flags or any(surely(flag, one) for flag in when.flags))
        and not any(has(flag, one) for flag in when.not_flags)
        and (when.only_flags is None or set(flags) <= set(when.only_flags))
        and (when.executable is None or segment_fits(When(executable=when.executable), one) == 2)
    )


def host_fits(patterns: tuple[str, ...], host: str) -> bool:
    return name_fits(patterns, host.lower())


def call_fits(rule: Rule, call: RuleCall) -> bool:
    given = call.arguments.get("n")
    return (
        name_fits(rule.tools, call.tool_name)
        and (not rule.actions or name_fits(rule.actions, call.action))
        and (not rule.when.access or call.access in rule.when.access)
        and (not rule.when.arguments or (given is not True and given in (1, "1")))
    )


def paths_fit(rule: Rule, path: RulePath, strict: bool) -> bool:
    when = rule.when
    return any(path_fits(one, path, when.role, strict) for one in when.path or ("/**",))


def naive_hits(rule: Rule, call: RuleCall) -> set[bool]:
    """Whether it is about the call: {} is not, {True} surely, {False} maybe."""
    if rule.outcome is Outcome.ALLOW or not call_fits(rule, call):
        return set()
    kinds: list[list[int]] = []
    if rule.when.about_commands:
        kinds.append([segment_fits(rule.when, one) for one in call.segments or ()])
    if rule.when.about_paths:
        kinds.append([2 * paths_fit(rule, one, True) for one in call.paths])
    if rule.when.about_hosts:
        kinds.append([2 * host_fits(rule.when.host, one) for one in call.hosts])
    best = min((max(kind, default=0) for kind in kinds), default=2)
    found = {min(best, one) for one in kinds[0]} if kinds else {2}
    return {one == 2 for one in found if one}


def naive_allowed(rules: list[Rule], call: RuleCall, exactly: bool) -> bool:
    if call.segments == () or (exactly and call.segments is None):
        return False
    for one, path, host in product(call.segments or (None,), call.paths or (None,),
                                   call.hosts or (None,)):  # fmt: skip
        for rule in rules:
            when = rule.when
            if (
                rule.outcome is Outcome.ALLOW
                and call_fits(rule, call)
                and (not exactly or when.executable is not None)
                and (not when.about_commands if one is None else segment_covered(when, one))
                and (not when.about_paths if path is None else paths_fit(rule, path, False))
                and (
                    not when.about_hosts
                    if host is None
                    else not when.about_hosts or host_fits(when.host, host)
                )
            ):
                break
        else:
            return False
    return True


def key(rule: Rule) -> str:
    return f"{rule.scope} {rule.id}"


@settings(max_examples=400, deadline=None, database=None)
@given(files=sets, call=calls)
def test_the_index_finds_what_a_scan_finds(files: list[PolicyFile], call: RuleCall) -> None:
    """A deny that an index looks for in the wrong place is a deny that nobody enforces."""
    rules = [rule for one in files for rule in one.rules]
    found = RuleSet(files, {one.digest for one in files}).judge(call)
    scanned = [(rule, naive_hits(rule, call)) for rule in rules]
    denies = {key(rule) for rule, hits in scanned if True in hits and rule.outcome == "deny"}
    asks = {key(rule) for rule, hits in scanned if True in hits and rule.outcome == "ask"}
    doubts = {key(rule) for rule, hits in scanned if False in hits}
    assert {key(hit.rule) for hit in found.denies} == denies
    assert {key(hit.rule) for hit in found.asks if hit.certain} == asks
    in_doubt = [hit for hit in found.asks if not hit.certain]
    assert {key(hit.rule) for hit in in_doubt} <= doubts
    assert bool(in_doubt) == bool(doubts)
    assert len(in_doubt) <= HITS_IN_DOUBT_MAX
    assert found.allowed is naive_allowed(rules, call, exactly=False)
    assert found.allowed_exactly is naive_allowed(rules, call, exactly=True)


@settings(max_examples=150, deadline=None, database=None)
@given(files=sets, call=calls, more=rules_of(Scope.USER))
def test_an_allow_rule_never_removes_a_deny_or_an_ask(
    files: list[PolicyFile], call: RuleCall, more: list[Rule]
) -> None:
    """Whoever adds an exception for one thing must not open another."""
    allows = [rule for rule in more if rule.outcome is Outcome.ALLOW]
    before = RuleSet(files).judge(call)
    after = RuleSet([file(Scope.USER, allows), *files]).judge(call)
    assert (after.denies, after.asks) == (before.denies, before.asks)
    assert after.allowed or not before.allowed
    # And a rule that denies or asks never makes a call allowed, nor takes a deny away.
    strict = [rule for rule in more if rule.outcome is not Outcome.ALLOW]
    after = RuleSet([*files, file(Scope.USER, strict)]).judge(call)
    assert after.allowed is before.allowed
    assert {key(hit.rule) for hit in before.denies} <= {key(hit.rule) for hit in after.denies}


@settings(max_examples=150, deadline=None, database=None)
@given(files=sets, call=calls, data=st.data())
def test_order_changes_nothing(
    files: list[PolicyFile], call: RuleCall, data: st.DataObject
) -> None:
    """A rule that has to stand last to hold is undone by the next one (CASES 38)."""
    moved = [file(one.scope, data.draw(st.permutations(one.rules))) for one in files]
    trusted = {one.digest for one in (*files, *moved)}
    one = RuleSet(files, trusted).judge(call)
    two = RuleSet(moved[::-1], trusted).judge(call)
    assert {repr(hit) for hit in one.denies} == {repr(hit) for hit in two.denies}
    for name in ("asks", "allows"):
        told = [
            {repr(hit) for hit in getattr(verdict, name) if hit.certain} for verdict in (one, two)
        ]
        assert told[0] == told[1]
    assert (one.allowed, one.allowed_exactly) == (two.allowed, two.allowed_exactly)


@settings(max_examples=150, deadline=None, database=None)
@given(files=st.lists(files_of(Scope.PROJECT), max_size=3), user=files_of(Scope.USER), call=calls)
def test_an_untrusted_project_never_makes_a_call_allowed(
    files: list[PolicyFile], user: PolicyFile, call: RuleCall
) -> None:
    """Else a repository lets its own commands run for whoever clones it."""
    alone = RuleSet(files).judge(call)
    assert (alone.allowed, alone.allowed_exactly, alone.allows) == (False, False, ())
    before, after = RuleSet([user]).judge(call), RuleSet([user, *files]).judge(call)
    assert (after.allowed, after.allowed_exactly) == (before.allowed, before.allowed_exactly)
    assert set(map(repr, before.denies)) <= set(map(repr, after.denies))


def test_the_generated_rules_and_calls_meet() -> None:
    """A property over calls that no rule is about would hold for an index that finds none."""
    found = {"denies": 0, "asks": 0, "doubts": 0, "allowed": 0, "exactly": 0}
    for _ in range(300):
        rules = [a_rule(one, Scope.USER) for one in range(30)]
        verdict = RuleSet([file(Scope.USER, rules)]).judge(a_call())
        found["denies"] += bool(verdict.denies)
        found["asks"] += any(hit.certain for hit in verdict.asks)
        found["doubts"] += any(not hit.certain for hit in verdict.asks)
        found["allowed"] += verdict.allowed
        found["exactly"] += verdict.allowed_exactly
    assert all(times >= 3 for times in found.values()), found
