"""`policy lint`: what is read well and probably not meant, each with a near miss."""

import pytest

from toolcell_policies.rules import LintFinding, RuleSet, Scope, lint, parse_policy

TOOLS = ("read_file", "write_file", "shell", "python", "git_push")
DIGEST = "0" * 64


def rule(id: str, outcome: str = "deny", tool: str = "'shell'", more: str = "") -> str:
    reason = "" if outcome == "allow" else "reason = 'no'\n"
    return f"[[rule]]\nid = '{id}'\noutcome = '{outcome}'\ntool = {tool}\n{reason}{more}\n"


def found(
    *texts: str, code: str | None = None, scope: Scope = Scope.USER, trust: bool = False
) -> list[tuple[str, str]]:
    return [(one.code, one.rule) for one in findings(*texts, scope=scope, trust=trust)
            if code in (None, one.code)]  # fmt: skip


def findings(
    *texts: str, scope: Scope = Scope.USER, trust: bool = False
) -> tuple[LintFinding, ...]:
    files = [
        parse_policy(text, file=f"{number}.toml", scope=scope, run=False)
        for number, text in enumerate(texts)
    ]
    trusted = {one.digest for one in files} if trust else set()
    return lint(RuleSet(files, trusted), TOOLS)


def test_a_file_that_is_as_it_is_meant_has_nothing_to_mend() -> None:
    """A linter that always has something to say is not read."""
    text = rule("a", more="when.command = ['rm']\nmatch = ['rm x']") + rule(
        "b", "allow", "'write_file'", "when.path = ['docs/**']\nmatch = ['docs/a']"
    )
    assert findings(text) == ()


def test_a_tool_that_nobody_has_is_named_with_the_nearest() -> None:
    """A deny for `git_psuh` denies nothing, and nobody hears of it."""
    text = rule("a", tool="['git_psuh', 'shell', 'mcp_*', 'zz', '*', 'git_*']", more="match = []")
    unknown = [one for one in findings(text) if one.code == "unknown_tool"]
    assert [(one.text, one.remedy) for one in unknown] == [
        ('no tool has the name "git_psuh"', "did you mean git_push?"),
        ('no tool has the name "mcp_*"', "see the names: toolcell tools"),
        ('no tool has the name "zz"', "see the names: toolcell tools"),
    ]
    assert unknown[0].source == "0.toml:1"
    assert found(rule("b", tool="['read_fil', '*']"), code="unknown_tool")
    both = findings(rule("c", tool="'write_fil'"))[0].remedy
    assert both.startswith("did you mean write_file")


@pytest.mark.parametrize(
    ("outcome", "when", "fires"),
    [
        ("deny", "flags = ['-f']\nwhen.not_flags = ['-f', '-g']", False),
        ("deny", "flags = ['-f', '-h']\nwhen.not_flags = ['-f', '-g']", True),
        ("deny", "role = 'write'\nwhen.access = ['readonly']", False),
        ("deny", "role = 'write'\nwhen.access = ['readonly', 'write']", True),
        ("deny", "role = 'read'\nwhen.access = ['readonly']", True),
        ("deny", "command = ['rm']\nwhen.access = ['write']", False),
        ("deny", "command = ['rm']\nwhen.access = ['execute']", True),
        ("ask", "path = ['~/.ssh/id_rsa']", False),
        ("allow", "path = ['~/.ssh/**']\nwhen.role = 'write'", True),
        ("allow", "path = ['~/.gnupg/**']", False),
        ("allow", "path = ['**/.env']", False),
        ("allow", "path = ['docs/.env']", False),
        ("allow", "path = ['**/.env.*']", True),
        ("allow", "path = ['.env.example']", True),
        ("allow", "path = ['{.env,docs}']", True),
        ("allow", "path = ['./**']", True),
        ("allow", "path = ['~/x']\nwhen.role = 'read'", True),
        ("deny", "path = ['**/.env']", True),
        ("allow", "path = ['/dev/shm/x']", True),
        ("allow", "path = ['/dev/kmem']", False),
        ("allow", "path = ['.envrc']\nwhen.role = 'write'", True),
    ],
)
def test_a_rule_that_can_never_fire_is_told(outcome: str, when: str, fires: bool) -> None:
    """Its author thinks that something is allowed, or asked about, and it is not."""
    text = rule("r", outcome, "'*'", f"when.{when}")
    assert (found(text, code="never_fires") == []) is fires


@pytest.mark.parametrize(
    ("deny", "other", "idle"),
    [
        (rule("d", tool="'*'"), rule("a", "allow", "'shell'"), True),
        (rule("d", tool="'*'"), rule("a", "ask", "'shell'"), True),
        (rule("d", tool="'git_*'"), rule("a", "allow", "'git_push*'"), True),
        (rule("d", tool="'git_?ush'"), rule("a", "allow", "'git_push'"), False),
        (rule("d", tool="'git_?'"), rule("a", "allow", "'git_*'"), False),
        (rule("d", tool="'git_*'"), rule("a", "allow", "['git_push', 'shell']"), False),
        (rule("d", tool="'shell'"), rule("a", "allow", "'*'"), False),
        (rule("d", more="action = 'e*'"), rule("a", "allow", more="action = 'edit'"), True),
        (rule("d", more="action = 'edit'"), rule("a", "allow"), False),
        (
            rule("d", more="when.command = ['git']"),
            rule("a", "allow", more="when.command = ['git', 'log']"),
            True,
        ),
        (
            rule("d", more="when.command = ['git', 'push']"),
            rule("a", "allow", more="when.command = ['git', 'log']"),
            False,
        ),
        (
            rule("d", more="when.command = ['git', ['log', 'diff']]"),
            rule("a", "allow", more="when.command = ['git', 'log']\nwhen.only_flags = []"),
            True,
        ),
        (
            rule("d", more="when.command = ['git']\nwhen.flags = ['-f']"),
            rule("a", "allow", more="when.command = ['git']"),
            False,
        ),
        (
            rule("d", tool="'*'", more="when.path = ['a/**', 'b']\nwhen.role = 'write'"),
            rule("a", "ask", "'*'", more="when.path = ['b']\nwhen.role = 'write'"),
            True,
        ),
        (
            rule("d", tool="'*'", more="when.path = ['b']\nwhen.role = 'write'"),
            rule("a", "ask", "'*'", more="when.path = ['b']"),
            False,
        ),
        (
            rule("d", tool="'*'", more="when.path = ['b']"),
            rule("a", "ask", "'*'"),
            False,
        ),
        (
            rule("d", tool="'*'", more="when.host = ['*']"),
            rule("a", "ask", "'*'", more="when.host = ['*']"),
            True,
        ),
        (
            rule("d", tool="'*'", more="when.arguments = { n = 1 }\nwhen.access = ['write']"),
            rule("a", "ask", "'*'", more="when.arguments = { n = 1 }\nwhen.access = ['write']"),
            True,
        ),
        (
            rule("d", tool="'*'", more="when.access = ['write']"),
            rule("a", "ask", "'*'", more="when.access = ['write', 'mixed']"),
            False,
        ),
        (
            rule("d", more=f"when.executable = {{ sha256 = '{DIGEST}' }}"),
            rule("a", "ask", more="when.executable.path = '/bin/sh'"),
            False,
        ),
        (rule("d"), rule("a", "deny"), False),
    ],
)
def test_a_rule_that_another_always_denies_is_told(deny: str, other: str, idle: bool) -> None:
    """No order of the rules brings it back: its author has to know."""
    for texts in ((deny, other), (other, deny)):
        hits = [one for one in findings(*texts) if one.code == "never_fires"]
        assert [one.rule for one in hits] == ["a"] * idle
        assert all("the rule d (" in one.text for one in hits)


def test_a_catch_all_names_what_it_undoes() -> None:
    """A trailing catch-all must not silently undo the rules before it (CASES 38)."""
    allows = "".join(rule(f"a{n}", "allow", "'shell'") for n in range(7))
    ask, deny = rule("k", "ask", "'*'"), rule("d", "deny", "'s*'")
    shadowing = [one for one in findings(allows, ask, deny) if one.code == "shadowed"]
    assert [(one.rule, one.text) for one in shadowing] == [
        ("k", "it undoes a0, a1, a2, a3, a4 and 2 more: order makes no difference"),
        ("d", "it undoes a0, a1, a2, a3, a4 and 2 more: order makes no difference"),
    ]
    few = findings(rule("a", "allow"), rule("b", "ask", "'python'"), rule("d", tool="'*'"))
    assert [one.text for one in few if one.code == "shadowed"] == [
        "it undoes a, b: order makes no difference"
    ]
    # Near misses: conditions, a tool by its name, and nothing there to undo.
    for near in (
        rule("d", tool="'*'", more="when.access = ['execute']"),
        rule("d", tool="'shell'"),
        rule("d", tool="'py*'"),
        rule("d", "allow", "'*'"),
    ):
        assert found(allows, near, code="shadowed") == []


def test_a_rule_that_shows_nothing_is_told() -> None:
    """Whoever reads it later cannot see what it was for."""
    assert found(rule("a", more="when.path = ['x']"), code="no_examples") == [("no_examples", "a")]
    for more in ("match = ['x']", "not_match = ['y']"):
        assert found(rule("a", more=f"when.path = ['x']\n{more}"), code="no_examples") == []


@pytest.mark.parametrize(
    ("tool", "more", "wide"),
    [
        ("'*'", "", True),
        ("'git_*'", "", True),
        ("'shell'", "", False),
        ("'*'", "when.path = ['docs/**']", False),
        ("'*'", "action = 'edit'", True),
        ("'shell'", "when.command = ['git', 'log']", True),
        ("'shell'", "when.command = ['git', 'log']\nwhen.only_flags = []", False),
    ],
)
def test_an_allow_that_is_wider_than_it_looks_is_told(tool: str, more: str, wide: bool) -> None:
    """`git log` with any flag writes files, and `*` is also the tool of next year."""
    assert bool(found(rule("a", "allow", tool, more), code="allow_too_wide")) is wide
    assert (
        found(rule("a", "deny", tool, more.partition("\nwhen.only")[0]), code="allow_too_wide")
        == []
    )


@pytest.mark.parametrize(
    ("more", "idle"),
    [
        ("when.command = ['git']", True),
        ("when.executable.path = '/usr/bin/git'", True),
        (f"when.executable = {{ path = '/usr/bin/git', sha256 = '{DIGEST}' }}", False),
        ("when.path = ['docs/**']", False),
    ],
)
def test_an_allow_that_lowers_nothing_of_level_3_is_told(more: str, idle: bool) -> None:
    """Under `standard` a command confirms always, and the rule looks as if it would not."""
    assert bool(found(rule("a", "allow", more=more), code="no_effect")) is idle
    assert found(rule("a", "deny", more=more), code="no_effect") == []


def test_an_allow_of_an_untrusted_project_is_told() -> None:
    """It is there to be read, and does not count."""
    text = rule("a", "allow", "'write_file'", "when.path = ['x']")
    assert found(text, code="no_effect", scope=Scope.PROJECT) == [("no_effect", "a")]
    assert found(text, code="no_effect", scope=Scope.PROJECT, trust=True) == []
