"""Several rule files together: who may loosen, what wins, and what is said about a call."""

import hashlib
from collections.abc import Sequence

import pytest

from toolcell_policies.decision import Outcome
from toolcell_policies.rules import (
    HITS_IN_DOUBT_MAX,
    Ceilings,
    Executable,
    Hit,
    PolicyFile,
    Rule,
    RuleCall,
    RulePath,
    RuleSegment,
    RuleSet,
    RuleVerdict,
    Scope,
    When,
    parse_policy,
)
from toolcell_policies.sensitive import Role
from toolcell_policies.vocabulary import CostTier, Mode

WS = "/ws"
GIT = Executable(path="/usr/bin/git", sha256="a" * 64)


def rule(
    id: str,
    outcome: str,
    tool: str = "*",
    *,
    scope: Scope = Scope.USER,
    level: int = 3,
    reason: str = "",
    action: str = "",
    **when: object,
) -> Rule:
    return Rule(
        id=id,
        outcome=Outcome(outcome),
        tools=(tool,),
        actions=(action,) if action else (),
        when=When(**when),  # type: ignore[arg-type]  # each test gives what it is about
        level=level,
        reason=reason,
        scope=scope,
        source=f"p.toml:{len(id)}",
        lines=(1, 1),
    )


def file(
    *rules: Rule, scope: Scope = Scope.USER, extends: str | None = None, text: str = "",
    ceilings: Ceilings = Ceilings(),  # noqa: B008 - a frozen value
) -> PolicyFile:  # fmt: skip
    return PolicyFile(
        file=f"{scope}.toml",
        scope=scope,
        extends=extends,  # type: ignore[arg-type]  # one of the four words
        rules=rules,
        ceilings=ceilings,
        digest=hashlib.sha256(f"{text}{rules}".encode()).hexdigest(),
    )


def call(
    tool: str = "write_file",
    paths: Sequence[str] = (),
    *,
    role: Role = "write",
    segments: Sequence[RuleSegment] | None = None,
    hosts: tuple[str, ...] = (),
    arguments: dict[str, object] | None = None,
    access: str = "write",
    action: str = "",
) -> RuleCall:
    return RuleCall(
        tool_name=tool,
        action=action,
        access=access,
        arguments=arguments or {},
        paths=tuple(RulePath(real=f"{WS}/{path}", role=role) for path in paths),
        segments=None if segments is None else tuple(segments),
        hosts=hosts,
        workspace=WS,
    )


def git(*words: str | None) -> RuleSegment:
    return RuleSegment(argv=("git", *words), executable_path=GIT.path, executable_sha256=GIT.sha256)


def judge(rules: Sequence[Rule], one: RuleCall) -> RuleVerdict:
    return RuleSet([file(*rules)]).judge(one)


def told(hits: Sequence[Hit]) -> list[tuple[str, str]]:
    return [(hit.rule.id, hit.what) for hit in hits]


def test_any_part_of_a_call_is_enough_to_deny_or_to_ask() -> None:
    """One secret among ten files, or one push after a `&&`, is what the rule is for."""
    rules = [
        rule("no-a", "deny", path=("a/**",)),
        rule("ask-push", "ask", command=(("git",), ("push",))),
        rule("ask-host", "ask", host=("*.org",)),
        rule("no-flag", "deny", "shell", flags=("--force",)),
    ]
    found = judge(rules, call(paths=["b", "a/x", "a/y"], hosts=("x.com", "x.org")))
    assert told(found.denies) == [("no-a", "'/ws/a/x'"), ("no-a", "'/ws/a/y'")]
    assert told(found.asks) == [("ask-host", "'x.org'")]
    found = judge(rules, call("shell", segments=[git("log"), git("push", "--force")]))
    assert told(found.denies) == [("no-flag", "'git push --force'")]
    assert told(found.asks) == [("ask-push", "'git push --force'")]
    found = judge(rules, call(paths=["b"], hosts=("x.com",), segments=[git("log")]))
    assert found == RuleVerdict(denies=(), asks=(), allows=(), allowed=False, allowed_exactly=False)


def test_all_conditions_of_a_rule_must_hold() -> None:
    """A rule about `rm` in one folder that denied every `rm` would be switched off."""
    one = rule("r", "deny", "shell", command=(("rm",),), path=("a/**",), host=("x.org",))
    rm, ls = RuleSegment(argv=("rm", "-r")), RuleSegment(argv=("ls",))
    shown = [("r", "'rm -r'")]
    for paths, hosts, segments, expected in (
        (["a/x"], ("x.org",), [rm, ls], shown),
        (["b", "a/x"], ("y", "x.org"), [rm], shown),
        (["b"], ("x.org",), [rm], []),
        (["a/x"], (), [rm], []),
        (["a/x"], ("x.org",), [ls], []),
        (["a/x"], ("x.org",), None, []),
    ):
        found = judge([one], call("shell", paths, hosts=hosts, segments=segments))
        assert told(found.denies) == expected
    assert not judge([one], call("python", ["a/x"], hosts=("x.org",), segments=[rm])).denies


def test_a_rule_without_conditions_is_about_its_tools() -> None:
    """A team that takes a tool away takes it away whatever it is given."""
    rules = [
        rule("t", "deny", "git_*"),
        rule("a", "ask", action="edit"),
        rule("g", "ask", action="ed*"),
        rule("w", "ask", access=("write",)),
        rule("n", "ask", "x", arguments=(("n", (1,)),)),
    ]
    found = judge(rules, call("git_push", action="edit"))
    assert (told(found.denies), told(found.asks)) == (
        [("t", "'git_push'")],
        [("a", "'git_push'"), ("g", "'git_push'"), ("w", "'git_push'")],
    )
    found = judge(rules, call("x", access="readonly", arguments={"n": 1}))
    assert told(found.asks) == [("n", "'x'")]
    assert not judge(rules, call("x", access="readonly", arguments={"n": 2})).asks


def test_an_unknown_word_asks_and_says_so() -> None:
    """`git $X` may be the push that is denied: neither run unasked, nor denied for a guess."""
    rules = [
        rule("d", "deny", command=(("git",), ("push",)), reason="not yours"),
        rule("a", "ask", level=2, command=(("git",), ("tag",))),
        rule("f", "deny", command=(("git",), ("commit",)), flags=("--amend",)),
    ]
    found = judge(rules, call("shell", segments=[git(None)]))
    assert not found.denies
    assert {(hit.rule.id, hit.certain, hit.level) for hit in found.asks} == {
        ("d", False, 3),
        ("a", False, 3),
        ("f", False, 3),
    }
    (hit,) = (hit for hit in found.asks if hit.rule.id == "d")
    assert hit.reason().code == "rule_maybe"
    assert hit.reason().text == (
        "a rule denies what 'git \u2026' may be, which only a run of it can tell: not yours"
    )
    found = judge(rules, call("shell", segments=[git("commit", "-m", None)]))
    assert [(hit.rule.id, hit.certain) for hit in found.asks] == [("f", False)]
    # Near misses: a word that cannot matter, and one that is certain.
    assert not judge(rules, call("shell", segments=[git("log", None)])).asks
    found = judge(rules, call("shell", segments=[git("push", None), git("tag", "v1")]))
    assert told(found.denies) == [("d", "'git push \u2026'")]
    assert [(hit.rule.id, hit.certain, hit.level) for hit in found.asks] == [("a", True, 2)]


def test_no_more_doubts_are_told_than_anybody_reads() -> None:
    """An unknown program may be about ten thousand rules; one is enough to ask."""
    rules = [rule(f"r{n}", "deny", command=((f"c{n}",),)) for n in range(100)]
    unknown = RuleSegment(argv=(None, "x"))
    found = judge(rules, call("shell", segments=[unknown, RuleSegment(argv=("c7",)), unknown]))
    assert told(found.denies) == [("r7", "'c7'")]
    assert 0 < len(found.asks) <= HITS_IN_DOUBT_MAX
    assert not judge(rules, call("python", segments=[RuleSegment(argv=("x",))])).asks
    # Those that the unknown word is about may still be about another tool.
    other = [rule(f"r{n}", "deny", "python", command=((f"c{n}",),)) for n in range(100)]
    assert not judge(other, call("shell", segments=[unknown])).asks


def test_a_long_command_is_found_in_time_that_it_is_long() -> None:
    """A call of a thousand flags must not hold up the decision: this would not end."""
    rules = [rule(f"r{n}", "deny", command=(("a",), ("a",), ("a",), (f"c{n}",))) for n in range(9)]
    words = ("-x", "a") * 8_000
    for understood in (True, False):
        long = RuleSegment(argv=("a", *words, "c3"), understood=understood)
        assert [hit.rule.id for hit in judge(rules, call("shell", segments=[long])).denies] == [
            "r3"
        ]


def test_what_is_told_of_a_call_moves_no_cursor() -> None:
    """A path's name is anybody's; it is printed for the person who decides."""
    found = judge([rule("r", "deny", path=("*",))], call(paths=["a\x1b[2J\u202e"]))
    assert told(found.denies) == [("r", "'/ws/a\\x1b[2J\\u202e'")]
    assert found.denies[0].reason().text.isprintable()
    assert found.denies[0].reason().code == "rule_deny"
    assert (found.denies[0].reason().rule, found.denies[0].reason().source) == ("r", "p.toml:1")


def test_every_part_of_a_call_must_be_covered_to_be_allowed() -> None:
    """`git status && rm -rf x` is not what somebody allowed with `git status` (CASES 33)."""
    rules = [
        rule("s", "allow", command=(("git",), ("status",))),
        rule("l", "allow", command=(("ls",),)),
        rule("e", "allow", "write_file", path=("src/**",)),
        rule("d", "allow", "write_file", path=("docs/**",)),
    ]
    ls, rm = RuleSegment(argv=("ls",)), RuleSegment(argv=("rm", "x"))
    for segments, allowed in (
        ([git("status")], True),
        ([git("status"), ls], True),
        ([git("status"), rm], False),
        ([git("status"), git("status", None)], False),
        ([RuleSegment(argv=())], False),
        ([], False),
    ):
        assert judge(rules, call("shell", segments=segments)).allowed is allowed
    for paths, allowed in (
        (["src/a"], True),
        (["src/a", "docs/b"], True),
        (["src/a", "other"], False),
        ([], False),
    ):
        assert judge(rules, call(paths=paths)).allowed is allowed
    assert not judge(rules, call("edit_file", ["src/a"])).allowed
    found = judge(rules, call(paths=["src/a", "other"]))
    assert told(found.allows) == [("e", "'/ws/src/a'")]
    assert found.allows[0].level == 0
    assert found.allows[0].reason().code == "rule_allow"
    assert found.allows[0].reason().text == "a rule allows '/ws/src/a'"


def test_two_rules_together_allow_nothing_that_neither_does() -> None:
    """`git add` anywhere, and anything in docs, is not anything anywhere."""
    rules = [
        rule("add", "allow", "shell", command=(("git",), ("add",))),
        rule("docs", "allow", "shell", path=("docs/**",)),
        rule("host", "allow", "shell", command=(("curl",),), host=("x.org",), path=("docs/**",)),
    ]
    rm, curl = RuleSegment(argv=("rm",)), RuleSegment(argv=("curl",))
    for segments, paths, hosts, allowed in (
        ([git("add")], ["src/a"], (), True),
        ([rm], ["docs/a"], (), True),
        ([rm], ["src/a"], (), False),
        ([git("add"), rm], ["docs/a"], (), True),
        ([git("add"), rm], ["docs/a", "src/a"], (), False),
        ([curl], ["docs/a"], ("x.org",), True),
        ([curl], ["docs/a"], ("y.org",), True),
        ([curl], ["src/a"], ("x.org",), False),
    ):
        one = call("shell", paths, segments=segments, hosts=hosts)
        assert judge(rules, one).allowed is allowed
    assert not judge(rules[1:2], call("shell", ["docs/a"], segments=[git(None)])).allows
    assert not judge(rules[1:2], call("shell", ["src/a"], segments=[rm])).allows
    only_host = [rules[2], rule("h", "allow", "fetch", host=("x.org",))]
    assert not judge(only_host, call("shell", ["docs/a"], segments=[curl])).allowed
    assert not judge(only_host, call("shell", ["docs/a"], segments=[curl], hosts=("y",))).allowed
    found = judge(only_host, call("fetch", hosts=("x.org",)))
    assert (found.allowed, told(found.allows)) == (True, [("h", "'x.org'")])
    assert not judge(only_host, call("fetch")).allowed


def test_a_rule_without_conditions_allows_its_tool_whole() -> None:
    """But for a command that nobody can read, and for no command at all."""
    rules = [rule("t", "allow", "shell")]
    assert judge(rules, call("shell", ["x"], segments=[git("log")], hosts=("y",))).allowed
    assert told(judge(rules, call("shell")).allows) == [("t", "'shell'")]
    assert judge(rules, call("shell")).allowed
    for bad in (
        [],
        [RuleSegment(argv=(None,))],
        [RuleSegment(argv=("x",), understood=False)],
        [RuleSegment(argv=("x",), env=("PAGER",))],
    ):
        assert not judge(rules, call("shell", segments=bad)).allowed
    relative = RuleCall(
        tool_name="shell", access="write", workspace=WS, paths=(RulePath(real="x", role="read"),)
    )
    assert not judge(rules, relative).allowed


def test_only_the_exact_program_is_allowed_exactly() -> None:
    """Level 3 is lowered for a program of known content, and for all of a command or not at all."""
    exact = rule("x", "allow", "shell", command=(("git",),), executable=GIT)
    by_path = rule("p", "allow", "shell", executable=Executable(path=GIT.path))
    wide = rule("w", "allow", "shell")
    other = RuleSegment(argv=("git", "log"), executable_path=GIT.path, executable_sha256="b" * 64)
    for rules, segments, allowed, exactly in (
        ([exact], [git("log")], True, True),
        ([exact, wide], [git("log"), git("diff")], True, True),
        ([exact, wide], [git("log"), RuleSegment(argv=("ls",))], True, False),
        ([exact, wide], [other], True, False),
        ([exact], [other], False, False),
        ([by_path], [git("log")], True, False),
        ([wide], None, True, False),
        ([exact], None, False, False),
        ([exact], [], False, False),
    ):
        found = judge(rules, call("shell", segments=segments))
        assert (found.allowed, found.allowed_exactly) == (allowed, exactly)


def test_a_deny_holds_whatever_allows() -> None:
    """Deny wins across files and scopes, whatever the order."""
    allow = rule("a", "allow", "write_file", path=("./**",))
    deny = rule("d", "deny", "*", path=("secret/**",), scope=Scope.PROJECT)
    for files in (
        [file(allow), file(deny, scope=Scope.PROJECT)],
        [file(deny, scope=Scope.PROJECT), file(allow)],
        [file(deny, allow)],
        [file(allow, deny), file(allow, scope=Scope.BUILTIN)],
    ):
        found = RuleSet(files).judge(call(paths=["secret/x"]))
        assert told(found.denies) == [("d", "'/ws/secret/x'")]
        assert found.allowed


def project(text: str = "") -> PolicyFile:
    return file(
        rule("d", "deny", "shell", scope=Scope.PROJECT),
        rule("k", "ask", "python", scope=Scope.PROJECT, level=2),
        rule("a", "allow", "write_file", scope=Scope.PROJECT),
        scope=Scope.PROJECT,
        extends="coding",
        ceilings=Ceilings(mode=Mode.PLAN),
        text=text,
    )


def test_an_untrusted_project_only_tightens() -> None:
    """A repository that is only looked at must not give itself what nobody gave it."""
    rules = RuleSet([project()])
    assert [one.id for one in rules.rules] == ["d", "k"]
    assert rules.judge(call("shell")).denies
    assert rules.judge(call("python")).asks
    assert not rules.judge(call("write_file", ["x"])).allowed
    assert rules.ceilings == Ceilings(mode=Mode.PLAN)
    assert rules.extends is None
    assert [(one.code, one.rule, one.source) for one in rules.ignored] == [
        ("rule_untrusted", None, "project.toml"),
        ("rule_untrusted", "a", "p.toml:1"),
    ]
    for reason in rules.ignored:
        assert reason.text.endswith("toolcell trust 'project.toml'")


def test_trust_is_for_one_content() -> None:
    """A file that is changed after it was trusted is another file."""
    trusted = {project().digest}
    rules = RuleSet([project()], trusted)
    assert rules.judge(call("write_file", ["x"])).allowed
    assert (rules.extends, rules.ignored) == ("coding", ())
    assert rules.judge(call("shell")).denies
    changed = RuleSet([project("changed")], trusted)
    assert not changed.judge(call("write_file", ["x"])).allowed
    assert changed.ignored
    user = RuleSet([file(rule("a", "allow", "write_file"))], ())
    assert user.judge(call("write_file", ["x"])).allowed


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], None),
        ([(Scope.USER, "coding")], "coding"),
        ([(Scope.USER, "coding"), (Scope.PROJECT, "standard")], "coding"),
        ([(Scope.USER, "coding"), (Scope.PROJECT, "strict")], "strict"),
        ([(Scope.PROJECT, "strict")], "strict"),
        ([(Scope.PROJECT, "ci")], None),
        ([(Scope.BUILTIN, "ci"), (Scope.USER, "standard")], "standard"),
        ([(Scope.BUILTIN, "ci")], "ci"),
        ([(Scope.USER, "coding"), (Scope.USER, "ci")], "ci"),
    ],
)
def test_a_project_chooses_no_milder_policy(
    said: list[tuple[Scope, str]], expected: str | None
) -> None:
    """`extends = "coding"` in a repository would trust the jail in the user's name."""
    files = [file(scope=scope, extends=extends, text=extends) for scope, extends in said]
    assert RuleSet(files).extends == expected
    assert RuleSet(files[::-1]).extends == expected


def test_the_lowest_ceiling_holds() -> None:
    """A ceiling that another file could lift is none."""
    one = Ceilings(max_cost=CostTier.LOW, tier=3)
    two = Ceilings(max_cost=CostTier.HIGH, mode=Mode.PLAN, tier=1)
    files = [file(ceilings=one), file(ceilings=two, scope=Scope.PROJECT), file(text="x")]
    for order in (files, files[::-1]):
        assert RuleSet(order).ceilings == Ceilings(max_cost=CostTier.LOW, mode=Mode.PLAN, tier=1)
    three = Ceilings(mode=Mode.EXPLORE)
    assert two.stricter(three).mode is three.stricter(two).mode is Mode.EXPLORE


def test_the_epoch_is_all_that_is_in_force() -> None:
    """What was agreed to under other rules was not agreed to under these."""
    user, other = file(rule("a", "deny")), file(rule("b", "deny"))
    epochs = [
        RuleSet([]).epoch,
        RuleSet([user]).epoch,
        RuleSet([user, other]).epoch,
        RuleSet([user, project()]).epoch,
        RuleSet([user, project()], {project().digest}).epoch,
        RuleSet([user, project("changed")]).epoch,
    ]
    assert len(set(epochs)) == len(epochs)
    assert RuleSet([other, user]).epoch == RuleSet([user, other]).epoch
    assert RuleSet([user], {"something else"}).epoch == RuleSet([user]).epoch


def test_a_user_says_first() -> None:
    """A person reads their own reason before a repository's."""
    mine = rule("mine", "deny", "shell")
    theirs = rule("theirs", "deny", "shell", scope=Scope.PROJECT)
    built = rule("built", "deny", "shell", scope=Scope.BUILTIN)
    files = [
        file(built, scope=Scope.BUILTIN), file(theirs, scope=Scope.PROJECT), file(mine)
    ]  # fmt: skip
    rules = RuleSet(files)
    assert [one.id for one in rules.rules] == ["mine", "theirs", "built"]
    assert [hit.rule.id for hit in rules.judge(call("shell")).denies] == ["mine", "theirs", "built"]


def test_a_file_that_was_read_is_in_force() -> None:
    """The whole way, from a text to a verdict."""
    text = (
        '[[rule]]\nid = "m"\ntool = "*"\noutcome = "deny"\nreason = "applied"\n'
        'when = { path = ["db/*.sql"], role = "write" }\n'
    )
    rules = RuleSet([parse_policy(text, file="p.toml", scope=Scope.PROJECT)])
    (hit,) = rules.judge(call(paths=["DB/1.sql"])).denies
    assert (hit.rule.source, hit.reason().text) == (
        "p.toml:1",
        "a rule denies '/ws/DB/1.sql': applied",
    )
    assert not rules.judge(call(paths=["db/1.sql"], role="read")).denies
