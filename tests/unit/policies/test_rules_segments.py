"""A command as rules see it: the same for a call and for an example."""

import pytest

from toolcell_policies.rules import (
    RuleCall,
    RuleSet,
    RuleVerdict,
    Scope,
    parse_policy,
    rule_segments,
)
from toolcell_policies.shell import SEGMENTS_MAX, parse_command

NO_PUSH = """
[[rule]]
id = "no-push"
tool = "shell"
outcome = "deny"
reason = "a person pushes"
when.command = ["git", "push"]

[[rule]]
id = "any"
tool = "shell"
outcome = "allow"
when.only_flags = []
match = ["git log", "ls src"]
not_match = ["ls -l", "make", "python x.py", "./x", "A=b ls", "ls *.c", "ls $X", "ls; make", ""]
"""
RULES = RuleSet([parse_policy(NO_PUSH, file="p.toml", scope=Scope.USER)])


def judge(text: str) -> RuleVerdict:
    segments = rule_segments(parse_command(text))
    return RULES.judge(
        RuleCall(tool_name="shell", access="execute", segments=segments, workspace="/ws")
    )


@pytest.mark.parametrize(
    "text",
    [
        "git push",
        "cd x && git push",
        "echo $(git push) | cat",
        "echo `git push`",
        "sudo env A=b timeout 5 git push",
        "sh -c 'git push'",
        "find . -exec git push ';'",
        "'git' \"pu\"sh",
        "g\\it push",
        "/usr/bin/git push",
        "git -C x --no-pager push --force",
        "for x in 1; do git push; done",
        "diff <(git push) x",
        "GIT_SSH_COMMAND=x git push",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(text: str) -> None:
    """An agent that is refused one spelling tries the next."""
    assert [hit.rule.id for hit in judge(text).denies] == ["no-push"]


@pytest.mark.parametrize(
    "text",
    [
        "$X",
        "git $X",
        "$(echo git) push",
        "git p*",
        "git push && (",
        "echo '",
        "true; " * (SEGMENTS_MAX + 1),
        "x" * 1_000_000,
    ],
)
def test_what_may_be_a_denied_command_is_asked_about(text: str) -> None:
    """A text too long or too strange to read may hold the push that nobody allowed."""
    found = judge(text)
    assert [hit.rule.id for hit in found.asks if not hit.certain] + [
        hit.rule.id for hit in found.denies
    ]
    assert not found.allowed


@pytest.mark.parametrize(
    "text", ["git pull", "echo git push", "git log push", "ls 'git push'", "cat <<E\ngit push\nE"]
)
def test_what_only_looks_like_it_is_let_by(text: str) -> None:
    """A rule that a message about pushing trips over is taken out."""
    found = judge(text)
    assert (found.denies, found.asks) == ((), ())


def test_each_command_has_its_own_program() -> None:
    """A digest that is compared with another command's allows that one."""
    command = parse_command("git log; ls")
    first, second = rule_segments(command, [("/usr/bin/git", "aa"), (None, None)])
    assert (first.executable, first.executable_path, first.executable_sha256) == (
        "git",
        "/usr/bin/git",
        "aa",
    )
    assert (second.executable, second.executable_path, second.executable_sha256) == (
        "ls",
        None,
        None,
    )
    with pytest.raises(ValueError, match="shorter"):
        rule_segments(command, [("/usr/bin/git", "aa")])


def test_an_empty_command_is_no_command() -> None:
    """Nothing to run is nothing that could be allowed."""
    assert rule_segments(parse_command("  # later")) == ()
    assert not judge("").allowed
