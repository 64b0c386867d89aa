"""Ways to make a decision say less than what would happen, each with a near miss."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from toolcell_policies import POLICIES, AccessMode, DangerLevel, Facts, Outcome, decide
from toolcell_policies.rules import (
    PolicyError,
    RuleCall,
    RuleSet,
    Scope,
    parse_policy,
    rule_segments,
)
from toolcell_policies.shell import ShellCommand, parse_command


def reads(command: ShellCommand) -> list[str | None]:
    return [one.path for segment in command.segments for one in segment.reads]


# -- words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        r"""sh -c "echo \$'\\' ; rm a # '" """,
        "sh -c 'cat &>f rm a'",
        "sh -c '[[ x && rm a ]]'",
        "sh -c '((rm a))'",
        "dash -c 'x=.env; x+=.example; cat $x'",
        "sh -c 'x=.env; declare x=README; cat $x'",
        "find . -name a -exec sh -c 'cat {a,b}' ;",
        "zsh -c 'ls *(e:id:)'",
    ],
)
def test_a_text_for_another_shell_is_not_read_as_bash_reads_it(text: str) -> None:
    """`sh` is dash on many machines: a quote that ends elsewhere hides a command."""
    assert parse_command(text).level == 3


@pytest.mark.parametrize(
    "text",
    [
        "bash -c '[[ -f a && -f b ]]'",
        "sh -c 'ls; cat a'",
        "sh -c 'if [ -f a ]; then cat a; fi'",
        "sh -c 'echo $((1+1)) \"$x\"'",
    ],
)
def test_what_every_shell_reads_alike_is_read(text: str) -> None:
    """Otherwise each `sh -c` would ask."""
    assert parse_command(text).level == 0


@pytest.mark.parametrize(
    "text",
    [
        "[ -v 'a[$(id)]' ]",
        "[ '-v' 'a[$(id)]' ]",
        '[ -"v" a[$x] ]',
        "[ ! -R 'a[$(id)]' ]",
        "[ x = x -a -v 'a[$(id)]' ]",
        "y='a[$(id)]'; [ -v \"$y\" ]",
        "op=-v; [ $op 'a[$(id)]' ]",
        "op=-v; y='a[$(id)]'; [ $op $y ]",
        "if [ -v 'a[$(id)]' ]; then :; fi",
        "wait -n -p 'a[$(id)]'",
        "jobs -x id",
        "jobs -lx id",
        "ldd ./a",
        "declare -l x; x=README; cat $x",
    ],
)
def test_what_runs_a_command_by_its_words_is_no_reader(text: str) -> None:
    """bash evaluates a subscript, and `jobs -x` is a wrapper: both run what they are given."""
    assert parse_command(text).level == 3


@pytest.mark.parametrize(
    "text",
    [
        "[ -v name ]",
        '[ "$x" = "a[1]" ]',
        '[ -f "$x" -a -n "$y" ]',
        '[ "$(ls -A a)" ]',
        '[ "$(ls | wc -l)" -gt 0 ]',
        "wait",
        "wait -n",
        "jobs -l",
        "nm -D ./a",
    ],
)
def test_a_test_and_a_listing_stay_readers(text: str) -> None:
    """Otherwise everyday scripts would ask."""
    assert parse_command(text).level == 0


@pytest.mark.parametrize(
    "text",
    [
        "_=README; : .env; cat $_",
        "PWD=a; cd sub; cat $PWD/x",
        "SECONDS=README; cat $SECONDS",
        "REPLY=README; read <<< .env; cat $REPLY",
        "readonly x=.env; declare x=README; cat $x",
        "x=.env; readonly x; declare x=README; cat $x",
        "declare -r x=.env; export x=README; cat $x",
        "x=.env; local x=README; cat $x",
        "x=README; declare 'x=.env'; cat $x",
        'x=README; declare "x"=.env; cat $x',
        "n=x; x=README; declare $n=.env; cat $x",
        "n=x=.env; x=README; declare $n; cat $x",
        "x=README; declare $n; cat $x",
        "x=README; time read x <<< .env; cat $x",
    ],
)
def test_a_variable_is_known_only_where_bash_has_that_value(text: str) -> None:
    """A file that nobody may read would be told as one that everybody may."""
    command = parse_command(text)
    assert command.level == 3
    assert command.segments[-1].reads[-1].path is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x=README; cat $x", "README"),
        ("export x=README; cat $x", "README"),
        ("declare x=README; cat $x", "README"),
        ("x=a; declare x; cat $x", "a"),
    ],
)
def test_a_variable_that_was_set_plainly_is_known(text: str, path: str) -> None:
    """Otherwise no variable could be used without a question."""
    command = parse_command(text)
    assert [one.path for one in command.segments[-1].reads] == [path]


@pytest.mark.parametrize("flag", ["--no-index", "--no-ind", "--no-i"])
def test_git_that_compares_files_reads_them(flag: str) -> None:
    """`git diff` shows any file, of a repository or not."""
    assert ".env" in reads(parse_command(f"git diff {flag} /dev/null .env"))
    assert ".env" not in reads(parse_command("git diff main..topic"))


# -- rules --------------------------------------------------------------------------------

ALLOWS = """
[[rule]]
id = "git-log"
tool = "shell"
outcome = "allow"
when.command = ["git", "log"]
when.only_flags = ["--oneline"]
match = ["git log --oneline"]
not_match = ["git push", "git log > x", "git log *"]
[[rule]]
id = "no-push"
tool = "shell"
outcome = "deny"
reason = "no"
when.command = ["git", "push"]
"""


def judged(text: str) -> Any:
    rules = RuleSet([parse_policy(ALLOWS, file="p", scope=Scope.USER)])
    return rules.judge(
        RuleCall(
            tool_name="shell",
            action="shell",
            access="execute",
            arguments={},
            paths=(),
            segments=rule_segments(parse_command(text)),
            workspace="/ws",
            homes=(),
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        "git log > Makefile",
        "git log >> Makefile",
        "git log &> Makefile",
        "git log > /dev/tcp/host/1",
        "{ git log; } > Makefile",
        "git log *",
        "git log; x='a",
    ],
)
def test_what_a_redirect_or_a_glob_adds_is_in_no_allowed_word(text: str) -> None:
    """A rule that allows a reader would let it write over any file, or take a name for a flag."""
    assert not judged(text).allowed


@pytest.mark.parametrize(
    "text", ["git log", "git log 2>/dev/null", "git log 2>&1", "git log < a", "git log '*'"]
)
def test_what_writes_nowhere_is_still_allowed(text: str) -> None:
    """Otherwise the rule would be of no use."""
    assert judged(text).allowed


def test_a_text_that_is_not_understood_may_be_what_is_denied() -> None:
    """Broken syntax would be the way around each deny rule."""
    assert judged("git push").denies
    assert [hit.rule.id for hit in judged("while git push").asks] == ["no-push"]
    assert not judged("git log").asks


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 20_000) + " = 1",
        f"[{'.'.join('a' * 20_000)}]",
        ".".join(['"="'] * 20_000) + " = 1",
        "x = {" + ".".join(["'#'"] * 20_000) + " = 1}",
        'x = """\n.\n"""\n' + ".".join("a" * 20_000) + " = 1",
        "[ceilings]\ntier = " + "9" * 5_000,
    ],
)
def test_a_file_that_would_take_minutes_to_read_is_refused(text: str) -> None:
    """A repository could keep every start waiting with 40 KB; and the refusal says where."""
    with pytest.raises(PolicyError) as raised:
        parse_policy(text, file="p", scope=Scope.PROJECT)
    assert str(raised.value).startswith("p:")


def test_dots_that_are_in_no_key_are_read() -> None:
    """Hosts and paths are full of them."""
    hosts = ", ".join(f'"h{number}.a.b.example.org"' for number in range(40))
    said = f'[[rule]]\nid="a"\ntool="*"\noutcome="deny"\nreason="x"\nwhen.host=[{hosts}] # ...\n'
    assert len(parse_policy(said, file="p", scope=Scope.USER).rules) == 1


# -- facts --------------------------------------------------------------------------------

RANK = {Outcome.ALLOW: 0, Outcome.ASK: 1, Outcome.DENY: 2}
# Each from the milder to the stricter.
LADDERS: dict[str, tuple[Any, ...]] = {
    "danger": (DangerLevel.LOW, DangerLevel.MEDIUM, DangerLevel.CRITICAL),
    "permission_level": (0, 3),
    "permission_tier": (0, 1, 3),
    "network": ("none", "loopback", "host"),
    "waived": ((), ("paths_masked",)),
    "workspace_mode": ("transaction", "direct"),
    "write_folders": ((), ("/data",)),
    "granted_first_use": (True, False),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_that_is_added_makes_a_decision_milder(policy: str) -> None:
    """One more danger, network or waiver must not be the way to a yes."""
    made: dict[tuple[Any, ...], tuple[int, int]] = {}
    for access in (AccessMode.READONLY, AccessMode.WRITE, AccessMode.EXECUTE):
        for values in itertools.product(*LADDERS.values()):
            facts = Facts(
                tool_name="t",
                access_mode=access,
                policy=POLICIES[policy],
                plan_hash="0",
                display_bytes=1,
                judged_after=True,
                **dict(zip(LADDERS, values, strict=True)),
            )
            decision = decide(facts)
            made[access, *values] = (RANK[decision.outcome], decision.level)
    for key, (rank, level) in made.items():
        for at, steps in enumerate(LADDERS.values(), 1):
            place = steps.index(key[at]) + 1
            if place < len(steps):
                other = made[(*key[:at], steps[place], *key[at + 1 :])]
                assert other[0] >= rank
                assert other[1] >= level
    assert {rank for rank, _ in made.values()} > {0}, "the ladders lead somewhere"
