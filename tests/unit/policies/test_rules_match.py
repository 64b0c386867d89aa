"""One rule against one part of a call: a doubt is a match for what denies, none for what allows."""

from itertools import product

import pytest

from toolcell_policies._rules_globs import GlobTable, PathTree, compile_glob, compile_path
from toolcell_policies._rules_match import CompiledRule, fits_arguments, host_forms, path_starts
from toolcell_policies._rules_model import Match, Scalar
from toolcell_policies._rules_words import covers, speaks_about
from toolcell_policies.decision import Outcome
from toolcell_policies.rules import Executable, Rule, RulePath, RuleSegment, Scope, When
from toolcell_policies.sensitive import Role

NO, MAYBE, YES = Match.NO, Match.MAYBE, Match.YES
PATTERNS = [
    "s",
    "s/**",
    "s/*",
    "**/t",
    "**/s/t",
    "s/**/t",
    "s/**/u/*",
    "*s/t*/*",
    "**/*.c",
    "{s,t}/v",
]
NAMES = ["s", "t", "u", "x.c"]
PUSH = When(command=(("git",), ("push", "fetch")))


def segment(
    *argv: str | None,
    path: str | None = None,
    sha256: str | None = None,
    understood: bool = True,
    env: tuple[str, ...] = (),
) -> RuleSegment:
    return RuleSegment(
        argv=argv,
        executable=argv[0] if argv else None,
        executable_path=path,
        executable_sha256=sha256,
        understood=understood,
        env=env,
    )


def rule(outcome: str, **when: object) -> CompiledRule:
    return CompiledRule(
        Rule(
            id="r",
            outcome=Outcome(outcome),
            when=When(**when),  # type: ignore[arg-type]  # each test gives what it is about
            scope=Scope.USER,
            source="f:1",
            lines=(1, 1),
        )
    )


@pytest.mark.parametrize(
    ("argv", "denies", "allows"),
    [
        (("git", "push"), YES, True),
        (("git", "fetch", "--all"), YES, True),
        (("git",), NO, False),
        ((), NO, False),
        (("git", "log", "push"), NO, False),
        (("git", "pushy"), NO, False),
        (("gitt", "push"), NO, False),
        (("echo", "git", "push"), NO, False),
        (("/usr/bin/git", "push"), YES, False),
        (("./git", "push"), YES, False),
        (("git", "--no-pager", "push"), YES, False),
        (("git", "-C", "x", "push"), YES, False),
        (("git", "-C", "x", "-c", "a=b", "push"), YES, False),
        (("git", "-C", "x", "y", "push"), NO, False),
        (("git", "-C", None, "push"), YES, False),
        (("git", "-C", None, "log"), MAYBE, False),
        (("git", None), MAYBE, False),
        (("git", None, "push"), MAYBE, False),
        (("git", "log", None), NO, False),
        (("git", "push", None), YES, False),
        ((None, "push"), MAYBE, False),
        ((None,), MAYBE, False),
    ],
)
def test_a_command_is_known_by_the_words_it_begins_with(
    argv: tuple[str | None, ...], denies: Match, allows: bool
) -> None:
    """`git -C . push` is a push, and what may be one is not let by as if it were none."""
    assert speaks_about(PUSH, segment(*argv)) is denies
    assert covers(PUSH, segment(*argv)) is allows


def test_a_program_is_known_by_where_it_really_lies() -> None:
    """A link of another name must not carry a denied program past its rule."""
    link = segment("tidy", "push", path="/usr/bin/git")
    assert speaks_about(PUSH, link) is YES
    assert not covers(PUSH, link)
    dynamic = RuleSegment(argv=(None, "push"), executable_path="/usr/bin/git")
    assert speaks_about(PUSH, dynamic) is YES
    assert speaks_about(PUSH, segment("tidy", "push", path="/usr/bin/tidy")) is NO


def test_a_command_not_understood_may_begin_at_any_word() -> None:
    """An option of sudo that nobody knows must not hide the command after it."""
    hidden = segment("sudo", "--new", "/usr/bin/git", "push", understood=False)
    assert speaks_about(PUSH, hidden) is MAYBE
    assert speaks_about(PUSH, segment("sudo", "--new", "ls", understood=False)) is NO
    excused = When(command=(("git",), ("push",)), not_flags=("--dry-run",))
    words = ("sudo", "x", "--dry-run", "git", "push")
    assert speaks_about(excused, segment(*words, understood=False)) is MAYBE
    assert speaks_about(excused, segment("git", "push", "x", "--dry-run")) is NO
    plain = segment("git", "push", understood=False)
    assert speaks_about(PUSH, plain) is YES
    assert not covers(PUSH, plain)


def test_what_runs_code_that_nobody_saw_is_not_allowed_by_its_words() -> None:
    """`make` is what the project's Makefile says today, and something else tomorrow."""
    make = RuleSegment(argv=("make", "test"), opaque=True)
    assert not covers(When(command=(("make",),)), make)
    assert covers(When(command=(("make",),)), RuleSegment(argv=("make", "test")))
    assert speaks_about(When(command=(("make",),)), make) is YES
    assert speaks_about(When(command=(("test",),)), make) is NO


def test_many_flags_take_no_longer_than_they_are() -> None:
    """A command of flags alone must not be read once for each pair: this would not end."""
    words = ("-x", "a") * 8_000
    assert speaks_about(When(command=(("a",),) * 4), segment("a", *words)) is YES
    assert speaks_about(When(command=(("a",), ("a",), ("b",))), segment("a", *words)) is NO


def test_a_variable_set_for_a_command_is_no_part_of_what_was_allowed() -> None:
    """`PAGER=./x git log` is not the `git log` that somebody allowed."""
    assert covers(PUSH, segment("git", "push"))
    assert not covers(PUSH, segment("git", "push", env=("GIT_SSH_COMMAND",)))
    assert speaks_about(PUSH, segment("git", "push", env=("GIT_SSH_COMMAND",))) is YES


@pytest.mark.parametrize(
    ("flag", "word", "found"),
    [
        ("--force", "--force", YES),
        ("--force", "--force=1", YES),
        ("--force", "--for", YES),
        ("--force", "-force", YES),
        ("--force", "--force-with-lease", NO),
        ("--force", "--", NO),
        ("--force", "-f", NO),
        ("--force", "force", NO),
        ("-f", "-f", YES),
        ("-f", "-xf", YES),
        ("-f", "-fx=1", YES),
        ("-f", "--f", YES),
        ("-f", "--ff", NO),
        ("-f", "-", NO),
        ("-f", "-x=f", NO),
        ("-rf", "-fr", YES),
        ("-rf", "-r", NO),
        ("-exec", "-exec", YES),
        ("-exec", "--exec", YES),
        ("-f", None, MAYBE),
    ],
)
def test_a_flag_that_is_denied_is_found_in_every_spelling(
    flag: str, word: str | None, found: Match
) -> None:
    """`--forc` and `-uf` force as well as what the rule spells out."""
    assert speaks_about(When(flags=(flag,)), segment("git", "push", word)) is found
    assert speaks_about(When(flags=(flag,)), segment("git", "--", word)) is found
    # And is as surely no flag of what is allowed without it.
    assert covers(When(not_flags=(flag,)), segment("git", "push", word)) is (found is NO)


@pytest.mark.parametrize(
    ("words", "surely"),
    [
        (("push", "--dry-run"), True),
        (("push", "--dry-run=yes"), True),
        (("push", "--remote=x", "--dry-run"), True),
        (("push", "-o", "--dry-run"), False),
        (("push", "--", "--dry-run"), False),
        (("push", None, "--dry-run"), False),
        (("push", "--dry"), False),
        (("push",), False),
    ],
)
def test_a_flag_excuses_only_where_it_is_surely_one(
    words: tuple[str | None, ...], surely: bool
) -> None:
    """`git push -o --dry-run` pushes: the flag is the value of another."""
    excused = When(command=(("git",),), not_flags=("--dry-run",))
    assert (speaks_about(excused, segment("git", *words)) is NO) is surely
    if None not in words:
        demanded = When(command=(("git",),), flags=("--dry-run",))
        assert covers(demanded, segment("git", *words)) is surely


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ((), True),
        (("x", "-", "--", "y"), True),
        (("--stat",), True),
        (("--stat=80",), True),
        (("--sta",), False),
        (("--output=x",), False),
        (("-n",), True),
        (("-n5",), False),
        (("-nl",), False),
        (("--", "--output"), False),
    ],
)
def test_no_flag_is_allowed_that_is_not_listed(words: tuple[str, ...], allowed: bool) -> None:
    """Whoever allows `git diff --stat` has not allowed `git diff --output=FILE`."""
    when = When(command=(("git",), ("diff",)), only_flags=("--stat", "-n"))
    assert covers(when, segment("git", "diff", *words)) is allowed
    none = When(command=(("git",), ("diff",)), only_flags=())
    flags = [word for word in words if word.startswith("-") and word not in ("-", "--")]
    assert covers(none, segment("git", "diff", *words)) is (not flags)


def test_a_flag_that_belongs_to_the_command_is_not_counted_twice() -> None:
    """`python -m pip` is what was allowed, its `-m` included."""
    when = When(command=(("python",), ("-m",), ("pip",)), only_flags=())
    assert covers(when, segment("python", "-m", "pip", "list"))
    assert not covers(when, segment("python", "-m", "pip", "--version"))
    bare = When(only_flags=("-l",))
    assert covers(bare, segment("-l", "-l"))
    assert not covers(bare, segment("ls", "-a"))


@pytest.mark.parametrize(
    ("path", "sha256", "wanted", "denies"),
    [
        ("/usr/bin/git", "aa", Executable(path="/usr/bin/git", sha256="aa"), YES),
        ("/usr/bin/git", "bb", Executable(path="/usr/bin/git", sha256="aa"), NO),
        ("/opt/git", "aa", Executable(path="/usr/bin/git", sha256="aa"), NO),
        ("/opt/git", "aa", Executable(sha256="aa"), YES),
        ("/usr/bin/git", None, Executable(path="/usr/bin/git"), YES),
        ("/usr/bin/git", None, Executable(path="/usr/bin/git", sha256="aa"), MAYBE),
        (None, None, Executable(path="/usr/bin/git"), MAYBE),
        ("/opt/git", None, Executable(path="/usr/bin/git", sha256="aa"), NO),
    ],
)
def test_a_program_is_the_one_named_by_place_and_content(
    path: str | None, sha256: str | None, wanted: Executable, denies: Match
) -> None:
    """A program that was replaced is not the one that somebody allowed."""
    one = segment("git", "log", path=path, sha256=sha256)
    assert speaks_about(When(executable=wanted), one) is denies
    assert covers(When(executable=wanted), one) is (denies is YES)


WS, HOME = "/srv/Ws", "/home/me"


def fits(outcome: str, pattern: str, real: str, role: Role = "write") -> bool:
    compiled = rule(outcome, path=(pattern,))
    starts = path_starts(real, WS, (HOME,), strict=compiled.strict)
    return compiled.fits_path(RulePath(real=real, role=role), starts)


@pytest.mark.parametrize(
    ("pattern", "real", "denies", "allows"),
    [
        ("src/**", f"{WS}/src/a/b.py", True, True),
        ("src/**", f"{WS}/src", True, True),
        ("src/", f"{WS}/src", True, True),
        ("./src//./**", f"{WS}/src/a", True, True),
        ("src", f"{WS}/src/a", True, False),
        ("src/**", f"{WS}/src-evil/a", False, False),
        ("src/**", f"{WS}/a/src/b", False, False),
        ("src/**", "/src/a", False, False),
        ("src/**", f"{WS}-evil/src/a", False, False),
        ("src/**", f"{WS}/SRC/a", True, False),
        ("SRC/**", f"{WS}/src/a", True, False),
        ("src/**", "/SRV/ws/src/a", True, False),
        ("src/*.py", f"{WS}/src/a.py", True, True),
        ("src/*.py", f"{WS}/src/a.pyc", False, False),
        ("src/*.py", f"{WS}/src/b/a.py", False, False),
        ("src/**/*.py", f"{WS}/src/a.py", True, True),
        ("src/**/*.py", f"{WS}/src/b/c/a.py", True, True),
        ("src/**/**/x", f"{WS}/src/x", True, True),
        ("**/x/**/y", f"{WS}/a/x/b/x/c/y", True, True),
        ("**/x/**/y", f"{WS}/a/x/b/x/c/z", False, False),
        ("**/*.pem", f"{WS}/a/b.pem", True, True),
        ("**/*.pem", "/etc/b.pem", False, False),
        ("/**/*.pem", "/etc/b.pem", True, True),
        ("/etc/**", "/etc/hosts", True, True),
        ("/etc/**", f"{WS}/etc/hosts", False, False),
        ("~/x/*", f"{HOME}/x/y", True, True),
        ("~/x/*", f"{HOME}x/x/y", False, False),
        ("~/**/*.key", f"{HOME}/a/b.key", True, True),
        ("./**", f"{WS}/a", True, True),
        ("./**", WS, True, True),
        ("./**", "/srv/other", False, False),
        (".", WS, True, True),
        (".", f"{WS}/a", True, False),
        ("{a,b/c}/d", f"{WS}/b/c/d", True, True),
        ("[id].tsx", f"{WS}/[id].tsx", True, True),
        ("[id].tsx", f"{WS}/i.tsx", False, False),
        ("caf\u00e9", f"{WS}/cafe\u0301", True, False),
        ("cafe\u0301", f"{WS}/caf\u00e9", True, False),
        ("\ufb01le", f"{WS}/file", True, False),
        ("env", f"{WS}/e\u200bnv", True, False),
        ("env", f"{WS}/env.", True, False),
        ("src/**", f"{WS}/x/../src/a", True, False),
        ("src/**", f"{WS}/src/../a", False, False),
        ("src/**", "src/a", False, False),
    ],
)
def test_a_path_is_compared_by_where_it_lies(
    pattern: str, real: str, denies: bool, allows: bool
) -> None:
    """`/ws-evil` is not `/ws`; and a name that a file system may fold is denied, never allowed."""
    assert fits("deny", pattern, real) is denies
    assert fits("ask", pattern, real) is denies
    assert fits("allow", pattern, real) is allows


@pytest.mark.parametrize("strict", [True, False])
def test_a_tree_of_patterns_finds_what_each_of_them_matches(strict: bool) -> None:
    """A deny that an index looks for in the wrong place is a deny that nobody enforces."""
    tree = PathTree()
    patterns = [compile_path(text, strict=strict) for text in PATTERNS]
    for number, choices in enumerate(patterns):
        for one in choices:
            tree.add(one, number)
    found = 0
    for depth in range(6):
        for names in product(NAMES, repeat=depth):
            path = ("ws", *names)
            matching = {
                number
                for number, choices in enumerate(patterns)
                if any(one.matches(path, 1) for one in choices)
            }
            assert tree.find(path, 1) == matching
            found += len(matching)
    assert found > 1000


@pytest.mark.parametrize(
    ("outcome", "wanted", "role", "is_about"),
    [
        ("deny", "write", "write", True),
        ("deny", "write", "read", False),
        ("deny", "read", "write", False),
        ("allow", "write", "read", True),
        ("allow", "write", "write", True),
        ("allow", "read", "write", False),
    ],
)
def test_a_role_is_what_is_done_with_a_path(
    outcome: str, wanted: Role, role: Role, is_about: bool
) -> None:
    """Whoever allows reading has not allowed writing; whoever allows writing allows both."""
    compiled = rule(outcome, role=wanted)
    starts = path_starts("/x", WS, (), strict=compiled.strict)
    assert compiled.fits_path(RulePath(real="/x", role=role), starts) is is_about


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "1 to 1024"),
        ("x" * 1025, "1 to 1024"),
        ("**", "names nothing"),
        ("**/", "names nothing"),
        ("/", "names nothing"),
        ("/**", "names nothing"),
        ("~", "names nothing"),
        ("~/**", "names nothing"),
        ("~/./", "names nothing"),
        ("{a,./}/", "names nothing"),
        ("a/../b", "`..`"),
        ("a{b", "not closed"),
        ("a\nb", "visible"),
        ("a\u202eb", "visible"),
        ("{a,b}" * 9, "256 alternatives"),
        ("{" + "a," * 256 + "}", "256 alternatives"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str, message: str) -> None:
    """A pattern that matches all there is, or nothing ever, is a slip of the pen."""
    with pytest.raises(ValueError, match=message):
        compile_path(pattern, strict=True)


@pytest.mark.parametrize(
    ("pattern", "host", "denies", "allows"),
    [
        ("example.org", "example.org", True, True),
        ("example.org", "EXAMPLE.org.", True, True),
        ("example.org", "a.example.org", False, False),
        ("example.org", "badexample.org", False, False),
        ("*.example.org", "a.b.example.org", True, True),
        ("*.example.org", "example.org", False, False),
        ("*.example.org", ".example.org", False, False),
        ("*.example.org", "a.example.org.evil", False, False),
        ("*", "anything", True, True),
        ("example.org", "\uff45xample.org", True, False),
        ("xn--mnchen-3ya.de", "m\u00fcnchen.de", True, False),
        ("*", "\u00fc" * 70, True, False),
    ],
)
def test_a_host_is_compared_by_whole_names(
    pattern: str, host: str, denies: bool, allows: bool
) -> None:
    """`example.org.evil` is not below `example.org`."""
    assert rule("deny", host=(pattern,)).fits_host(host) is denies
    assert rule("allow", host=(pattern,)).fits_host(host) is allows


def test_a_host_in_another_script_has_a_name_in_ascii() -> None:
    """A rule names what is looked up in the end."""
    assert host_forms("\u00dc.de", strict=True) == ("\u00fc.de", "xn--tda.de")


@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (False, True, False),
        (1, "1", False),
        ("a", "a", True),
        ("a", "A", False),
        ("a", ["a"], False),
        (1.5, None, False),
    ],
)
def test_an_argument_is_compared_by_its_type(wanted: Scalar, given: object, same: bool) -> None:
    """A text that looks like a number is not the number that somebody allowed."""
    assert fits_arguments([("x", (wanted,))], {"x": given, "y": 1}) is same
    assert fits_arguments([("x", ("no", wanted))], {"x": given}) is same
    assert not fits_arguments([("x", (wanted,)), ("z", (1,))], {"x": given})


@pytest.mark.parametrize(
    ("glob", "name", "fits_it"),
    [
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("a*c", "abcd", False),
        ("a*b*c", "axbxbxc", True),
        ("a*b*c", "axc", False),
        ("*", "", True),
        ("**x**", "axb", True),
        ("a?c", "a?c", True),
        ("a?c", "abc", False),
        ("a.c", "abc", False),
        ("a*b*b", "ab", False),
        ("a*b*b", "abb", True),
    ],
)
def test_a_glob_is_only_its_asterisks(glob: str, name: str, fits_it: bool) -> None:
    """A dot in a pattern that matched anything would make it another pattern."""
    assert (compile_glob(glob).fullmatch(name) is not None) is fits_it
    table: GlobTable[int] = GlobTable()
    table.add(glob, 1)
    assert list(table.find(name)) == [1] * fits_it


def test_a_question_mark_is_one_character_of_a_tools_name() -> None:
    """Tools are numbered; folders are not."""
    table: GlobTable[int] = GlobTable(question=True)
    for number, glob in enumerate(("step?", "?tep1", "s?e*", "*e?*", "t*")):
        table.add(glob, number)
    assert sorted(table.find("step1")) == [0, 1, 2, 3]
    assert sorted(table.find("stepp1")) == [2, 3]


def test_no_glob_tries_a_choice_twice() -> None:
    """A project's pattern must not hang whoever opens the project: this would not end."""
    pattern = compile_glob("*".join(["a"] * 30) + "*b")
    (deep,) = compile_path("/".join(["**", "a*a"] * 15) + "/b", strict=True)
    assert pattern.fullmatch("a" * 1024) is None
    assert not deep.matches(("aaa",) * 64, 0)
