"""Reading a rule file: whole or not at all, and an error points at its place."""

import hashlib
from typing import Any

import pytest

from toolcell_policies._rules_parse import CHARACTERS_MAX
from toolcell_policies.decision import Outcome
from toolcell_policies.rules import (
    Ceilings,
    Executable,
    PolicyError,
    PolicyFile,
    Scope,
    When,
    parse_policy,
    run_examples,
)
from toolcell_policies.vocabulary import CostTier, Mode


def parse(text: str, scope: Scope = Scope.USER, *, run: bool = True) -> PolicyFile:
    return parse_policy(text, file="p.toml", scope=scope, run=run)


def deny(**keys: str) -> str:
    """One rule that denies, with these keys as they are written; an empty one is left out."""
    rows = {"id": '"r"', "outcome": '"deny"', "tool": '"shell"', "reason": '"no"', **keys}
    written = (f"{key} = {value}" for key, value in rows.items() if value)
    return "\n".join(["[[rule]]", *written]).replace("_when.", "when.") + "\n"


FULL = """\
extends = "coding"
[ceilings]
max_cost = "low"
mode = "plan"
tier = 2

[[rule]]
id = "a.b-c_1"
outcome = "ask"
level = 2
tool = ["shell", "git_*"]
action = "edit"
reason = "why"
remedy = "how"
[rule.when]
path = "src/**"
role = "write"
command = ["git", ["push", "fetch"]]
flags = ["-f", "--force"]
not_flags = "--dry-run"
executable = { path = "/usr/bin/git", sha256 = "%s" }
host = ["*.Example.org.", "::1"]
arguments = { depth = [1, 2.5], force = true, name = "x" }
access = ["execute", "mixed"]

[[rule]]
id = "second"
outcome = "allow"
tool = "*"
when = { path = ["docs/**"] }
match = ["docs/a"]
not_match = ["src/a"]
""" % ("ab" * 32)


def test_every_key_is_read_as_it_is_written() -> None:
    """A key that is read as something else is a rule that nobody wrote."""
    found = parse(FULL)
    assert (found.file, found.scope, found.extends) == ("p.toml", Scope.USER, "coding")
    assert found.ceilings == Ceilings(max_cost=CostTier.LOW, mode=Mode.PLAN, tier=2)
    assert found.digest == hashlib.sha256(FULL.encode()).hexdigest()
    first, second = found.rules
    assert (first.id, first.outcome, first.level) == ("a.b-c_1", Outcome.ASK, 2)
    assert (first.tools, first.actions) == (("shell", "git_*"), ("edit",))
    assert (first.reason, first.remedy) == ("why", "how")
    assert (first.source, first.lines) == ("p.toml:7", (7, 24))
    assert first.when == When(
        path=("src/**",),
        role="write",
        command=(("git",), ("push", "fetch")),
        flags=("-f", "--force"),
        not_flags=("--dry-run",),
        executable=Executable(path="/usr/bin/git", sha256="ab" * 32),
        host=("*.example.org", "::1"),
        arguments=(("depth", (1, 2.5)), ("force", (True,)), ("name", ("x",))),
        access=("execute", "mixed"),
    )
    assert (second.id, second.outcome, second.reason, second.remedy) == (
        "second",
        Outcome.ALLOW,
        "",
        None,
    )
    assert (second.source, second.lines, second.level) == ("p.toml:26", (26, 32), 3)
    assert [(one.text, one.line, one.column) for one in second.match] == [("docs/a", 31, 10)]


def test_a_file_with_nothing_in_it_says_nothing() -> None:
    """An empty file must not be an error in every workspace that has one."""
    found = parse("# later\n")
    assert (found.rules, found.extends, found.ceilings) == ((), None, Ceilings())


def test_conditions_are_the_same_in_every_spelling() -> None:
    """TOML has three ways to write a table; a rule has one meaning."""
    texts = [
        deny(tool='"a"\nwhen.path = ["x"]\nwhen.role = "read"'),
        deny(tool='"a"\nwhen = { path = ["x"], role = "read" }'),
        deny().replace('"shell"', '"a"') + '[rule.when]\npath = ["x"]\nrole = "read"\n',
    ]
    assert {parse(text).rules[0].when for text in texts} == {When(path=("x",), role="read")}


ERRORS: list[tuple[str, int, int, str]] = [
    ("x = ", 1, 5, "not TOML"),
    ("extnds = 'ci'", 1, 1, 'unknown key "extnds" in a rule file; did you mean "extends"?'),
    ("zzz = 1", 1, 1, "choose extends, ceilings or rule"),
    ("extends = 'fast'", 1, 11, 'unknown extends "fast"; choose standard, coding, ci or strict'),
    ("extends = 1", 1, 11, "`extends` is a string"),
    ("ceilings = 1", 1, 12, "`ceilings` is a table"),
    ("[ceilings]\ntier = 5", 2, 8, "`tier` is a number from 0 to 4"),
    ("[ceilings]\ntier = true", 2, 8, "`tier` is a number from 0 to 4"),
    ("[ceilings]\nmode = 'run'", 2, 8, 'unknown mode "run"; choose explore, plan or build'),
    ("[ceilings]\nmax_cost = 3", 2, 12, "`max_cost` is a string"),
    ("[ceilings]\nmodes = 'run'", 2, 1, 'unknown key "modes" in `ceilings`'),
    ("rule = 1", 1, 8, "each rule starts with [[rule]]"),
    ("rule = [1]", 1, 9, "a rule is a table"),
    ("[rule]\nid = 'x'", 1, 1, "each rule starts with [[rule]]"),
    (deny(id=""), 1, 1, 'no "id" in a rule'),
    (deny(outcome=""), 1, 1, 'no "outcome" in a rule'),
    (deny(reason=""), 1, 1, 'no "reason" in a rule'),
    (deny(tool=""), 1, 1, "a rule names a tool or an action"),
    (deny(tool="[]"), 4, 8, "`tool` is empty"),
    (deny(tool="1"), 4, 8, "`tool` is a list"),
    (deny(tool="['a', 1]"), 4, 14, "a string is wanted here"),
    (deny(tool="'a b'"), 4, 8, "a name is letters"),
    (deny(action="['', 'x']"), 6, 11, "a name is letters"),
    (deny(id="'A'"), 2, 6, "an id is lower-case"),
    (deny(id="3"), 2, 6, "`id` is a string"),
    (deny(outcome="'alow'"), 3, 11, 'unknown outcome "alow"; choose allow, ask or deny'),
    (deny(level="2"), 6, 1, "only a rule that asks has a level"),
    (deny(outcome="'ask'", level="1"), 6, 9, "`level` is a number from 2 to 3"),
    (deny(reason="''"), 5, 10, "`reason` is one line"),
    (deny(reason='"a\\nb"'), 5, 10, "`reason` is one line"),
    (deny(reason='"a\\u202eb"'), 5, 10, "`reason` is one line"),
    (deny(reason=f"'{'x' * 301}'"), 5, 10, "`reason` is one line"),
    (deny(remedy="[]"), 6, 10, "`remedy` is a string"),
    (deny(whn="1"), 6, 1, 'unknown key "whn" in a rule; did you mean "when"?'),
    (deny(path="['x']"), 6, 1, 'unknown key "path" in a rule'),
    (deny(when="1"), 6, 8, "`when` is a table"),
    (deny(when="{ comand = ['x'] }"), 6, 10, 'unknown key "comand" in `when`; did you mean'),
    (deny(**{"_when.path": "['a', '**']"}), 6, 19, "names nothing"),
    (deny(**{"_when.path": "[]"}), 6, 13, "`path` is empty"),
    (deny(**{"_when.role": "'run'"}), 6, 13, 'unknown role "run"; choose read or write'),
    (deny(**{"_when.command": "'git push'"}), 6, 16, "`command` is a list"),
    (deny(**{"_when.command": "[]"}), 6, 16, "`command` is empty"),
    (deny(**{"_when.command": "['git', 1]"}), 6, 24, "a word is a string"),
    (deny(**{"_when.command": "['git', []]"}), 6, 24, "a word is a string"),
    (deny(**{"_when.command": "['git', ['a', '']]"}), 6, 24, "a word is a string"),
    (deny(**{"_when.command": f"[{['a', 'b'] * 9}, {['a'] * 15}]"}), 6, 16, "different commands"),
    (deny(**{"_when.flags": "['force']"}), 6, 15, "a flag is its name alone"),
    (deny(**{"_when.flags": "['--']"}), 6, 15, "a flag is its name alone"),
    (deny(**{"_when.flags": "['--a=b']"}), 6, 15, "a flag is its name alone"),
    (deny(**{"_when.not_flags": "[]"}), 6, 18, "`not_flags` is empty"),
    (deny(**{"_when.only_flags": "['-a']"}), 6, 6, "`only_flags` is for a rule that allows"),
    (deny(**{"_when.host": "['https://x.org']"}), 6, 14, "a host is a name"),
    (deny(**{"_when.host": "['a.*.org']"}), 6, 14, "a host is a name"),
    (deny(**{"_when.access": "['wrote']"}), 6, 16, 'unknown access "wrote"; choose readonly,'),
    (deny(**{"_when.executable": "{ }"}), 6, 19, "give a `path`, a `sha256`, or both"),
    (deny(**{"_when.executable": "'git'"}), 6, 19, "`executable` is a table"),
    (deny(**{"_when.executable": "{ path = 'git' }"}), 6, 28, "starts at the root"),
    (deny(**{"_when.executable": "{ sha256 = 'AB' }"}), 6, 30, "64 hexadecimal digits"),
    (deny(**{"_when.arguments": "{ }"}), 6, 18, "name an argument"),
    (deny(**{"_when.arguments": "{ x = [] }"}), 6, 24, "an argument is compared"),
    (deny(**{"_when.arguments": "{ x = nan }"}), 6, 24, "an argument is compared"),
    (deny(**{"_when.arguments": "{ x = { y = 1 } }"}), 6, 24, "an argument is compared"),
    (deny(match="'x'"), 6, 9, "`match` is a list"),
    (deny(match="['shell', 1]"), 6, 19, "an example is a string, or a table"),
    (deny(match="['shell', { a = 1 }]"), 6, 19, "an example of this rule is the name of a tool"),
    (deny(match="['shell', 'shel']"), 6, 19, "this example should match, and does not"),
    (deny(not_match="['shell']"), 6, 14, "this example should not match, and does"),
    (
        deny(outcome="'allow'", reason="\nwhen.flags = ['-a']\nwhen.only_flags = ['-b']"),
        5,
        6,
        "`only_flags` leaves out what `flags` demands",
    ),
    (deny() + deny(), 7, 6, 'another rule, on line 1, has the id "r"'),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS)
def test_what_is_not_understood_is_an_error_that_points_at_it(
    text: str, line: int, column: int, message: str
) -> None:
    """A key that is passed over in silence may be the condition, or the whole deny (CASES 36)."""
    with pytest.raises(PolicyError) as caught:
        parse(text.replace("reason = \n", ""))
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_an_error_reads_as_a_compiler_writes_it() -> None:
    """A person finds the place by looking, not by counting."""
    with pytest.raises(PolicyError) as caught:
        parse(deny(outcome='"alow"'))
    assert str(caught.value) == (
        'p.toml:3:11: unknown outcome "alow"; choose allow, ask or deny\n'
        '    outcome = "alow"\n'
        "              ^^^^^^"
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "an example in `match` that shows the name of a tool that it is for"),
        ({"match": "['shell']"}, "an example in `not_match` that shows the name of a tool"),
        ({"not_match": "['python']"}, "an example in `match`"),
        ({"action": "'edit'", "match": "['edit']"}, "in `not_match` that shows the name of an act"),
        ({"tool": "'*'", "action": "'*'", "match": "['edit']"}, None),
        ({"match": "['shell']", "not_match": "['python']"}, None),
        ({"tool": "'*'", "match": "['shell']"}, None),
        ({"tool": "'*'", "match": "[]"}, "an example in `match`"),
        (
            {"tool": "'*'", "_when.path": "['a/**']", "match": "['a/b']"},
            "in `not_match` that shows a path",
        ),
    ],
)
def test_a_rule_that_allows_shows_where_it_ends(keys: dict[str, str], message: str | None) -> None:
    """Without a near miss nobody sees that it allows all there is."""
    text = deny(outcome="'allow'", reason="", **keys)
    if message is None:
        assert parse(text).rules[0].outcome is Outcome.ALLOW
        return
    with pytest.raises(PolicyError) as caught:
        parse(text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (1, 1)


@pytest.mark.parametrize(
    ("when", "match", "not_match"),
    [
        ("path = ['src/**', '~/x', '/abs']", ["src/a", "~/x", "/abs/b"], ["a/src", "x", "abs"]),
        ("role = 'write'", ["x"], []),
        ("host = ['*.org']", ["a.org"], ["org"]),
        ("arguments = { n = [1, 2] }", [{"n": 1}, {"n": 2, "m": 0}], [{"n": 3}, {"n": "1"}, {}]),
        ("access = ['write']", ["shell"], ["python"]),
    ],
)
def test_an_example_is_about_the_first_condition(
    when: str, match: list[Any], not_match: list[Any]
) -> None:
    """An example that tests something else than its author thinks is worse than none."""
    text = deny(_when="").replace("_when", "") + f"when.{when}\n"
    rows = [(one, True) for one in match] + [(one, False) for one in not_match]
    for key, examples in (("match", match), ("not_match", not_match)):
        shown = ", ".join(map(written, examples))
        text += f"{key} = [{shown}]\n"
    found = run_examples(parse(text))
    assert [(one.expected, one.got, one.holds) for one in found] == [
        (expected, expected, True) for _, expected in rows
    ]
    # And each is able to fail.
    flipped = text.replace("not_match", "x").replace("match", "not_match").replace("x =", "match =")
    failed = run_examples(parse(flipped, run=False))
    assert len(failed) == len(rows)
    assert not any(one.holds for one in failed)
    with pytest.raises(PolicyError):
        parse(flipped)


def written(example: Any) -> str:
    if isinstance(example, str):
        return f"'{example}'"
    pairs = (f"{key} = {value!r}" for key, value in example.items())
    return "{ " + ", ".join(pairs) + " }"


COMMANDS: list[tuple[str, str, list[str], list[str]]] = [
    (
        "deny",
        "command = ['git', 'push']",
        ["git push", "ls && git -C x push", "echo $(git push)", "sudo git push", "$X", "git $X"],
        ["git pull", "echo git push", "ls"],
    ),
    ("deny", "flags = ['--force', '-f']", ["rm -rf x", "git push --forc"], ["rm -r x"]),
    ("deny", "command = ['rm']\nwhen.not_flags = ['-i']", ["rm x"], ["rm -i x", "ls"]),
    (
        "allow",
        "command = ['git', ['log', 'diff']]\nwhen.only_flags = ['--stat']",
        ["git log", "git log && git diff --stat x"],
        ["git log --output=x", "git log; ls", "git log $X", "git log *.c", "A=b git log", "git l("],
    ),
    (
        "allow",
        f"executable = {{ path = '/usr/bin/git', sha256 = '{'0' * 64}' }}",
        ["git log"],
        ["gti log", "ls", ""],
    ),
    ("ask", "executable.path = '/usr/bin/git'", ["git log", "/bin/git"], ["ls"]),
]


@pytest.mark.parametrize(("outcome", "when", "match", "not_match"), COMMANDS)
def test_an_example_of_a_command_is_read_by_the_shells_grammar(
    outcome: str, when: str, match: list[str], not_match: list[str]
) -> None:
    """An example that is split at blanks would hold for commands that no shell runs."""
    reason = "" if outcome == "allow" else "'no'"
    text = deny(outcome=f"'{outcome}'", reason=reason) + f"when.{when}\n"
    text += f"match = {match!r}\nnot_match = {not_match!r}\n"
    found = run_examples(parse(text, run=False))
    assert [(one.example, one.got) for one in found] == [
        *((one, True) for one in match),
        *((one, False) for one in not_match),
    ]
    assert len(parse(text).rules) == 1


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("waive", "waivers"),
        ("waivers", "waivers"),
        ("servers", "servers"),
        ("mcp_servers", "servers"),
        ("policy_paths", "policy paths"),
        ("include", "policy paths"),
    ],
)
def test_a_projects_file_holds_nothing_that_is_the_persons_to_say(key: str, said: str) -> None:
    """A repository that brings its own server, or waives a guarantee, has to be told from one."""
    with pytest.raises(PolicyError) as caught:
        parse(f"extends = 'ci'\n[{key}]\nx = 1\n", Scope.PROJECT)
    assert caught.value.message == f"a project's file may not hold {said}"
    assert (caught.value.line, caught.value.column) == (2, 1)
    with pytest.raises(PolicyError, match="unknown key"):
        parse(f"{key} = 1\n")


def test_a_projects_file_is_quick_to_refuse() -> None:
    """Whoever opens a repository must not wait for a file that it brings."""
    long = "#" * (CHARACTERS_MAX[Scope.PROJECT] + 1)
    with pytest.raises(PolicyError, match="more than 131,072 characters"):
        parse(long, Scope.PROJECT)
    assert parse(long[1:], Scope.PROJECT).rules == parse(long).rules == ()


def test_the_digest_is_of_the_text_as_it_is() -> None:
    """Trust that survives a change of the text is trust in something else."""
    assert parse("# a\n").digest == hashlib.sha256(b"# a\n").hexdigest()
    assert len({parse(text).digest for text in ("# a\n", "# a\r\n", "# a", "#a\n")}) == 4
