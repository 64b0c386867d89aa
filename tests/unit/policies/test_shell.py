"""A shell command as it is read: what is remembered, where it runs, how far it is read."""

import string
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolcell_policies.shell import (
    SEGMENTS_MAX,
    TEXT_BYTES_MAX,
    CommandKind,
    Segment,
    parse_command,
)


def only(text: str) -> Segment:
    (segment,) = parse_command(text).segments
    return segment


def texts(segment: Segment) -> list[str | None]:
    return [word.text for word in segment.argv]


# ---------------------------------------------------------------- remembering


@pytest.mark.parametrize(
    "text",
    ["mkdir build", "touch a.txt", "rm -f a", "cp a b", "sed -i s/a/b/ x", "echo x > out.txt"],
)
def test_a_plain_writer_can_be_remembered(text: str) -> None:
    """Otherwise the same question comes back all day, and is answered unread."""
    assert parse_command(text).rememberable


@pytest.mark.parametrize(
    "text",
    [
        "ls",
        "git commit -m x",
        "git status && rm -rf ./tmp",
        "mkdir a; mkdir b",
        "mkdir a &",
        "(mkdir a)",
        "{ mkdir a; }",
        "if true; then mkdir a; fi",
        "for x in a; do mkdir $x; done",
        "mkdir $(echo a)",
        "mkdir $x",
        "rm ./*.txt",
        "cat > f <<E\nx\nE",
        "tee f <<< x",
        "env mkdir a",
        "command mkdir a",
        "timeout 5 mkdir a",
        "sh -c 'mkdir a'",
        "sudo mkdir a",
        "python3 x.py",
        "make",
        "curl -o a http://example.org",
        "rm -rf /",
        "mkdir <(ls)",
        "kill 1",
        "> out",
    ],
)
def test_what_could_mean_more_than_was_shown_is_never_remembered(text: str) -> None:
    """A yes to one command would be a yes to whatever it runs the next time."""
    assert not parse_command(text).rememberable


# ---------------------------------------------------------------- segments


def test_the_cap_of_segments_is_exact() -> None:
    """Padding of `true;` must not carry the last command past whoever reads the first ones."""
    full = "true;" * SEGMENTS_MAX
    assert not parse_command(full).over_cap
    assert parse_command(full).level == 0
    over = parse_command("true;" * SEGMENTS_MAX + "rm -rf /")
    assert over.over_cap
    assert over.level == 3
    assert len(over.segments) == SEGMENTS_MAX
    assert not over.rememberable


def test_a_segment_is_told_as_it_is_written_without_its_wrappers() -> None:
    """A person who is shown `env` and not `rm` agrees to another command."""
    segment = only("env -u X LANG=C timeout -k 1 5 nice rm 'a b'\"c\"\\ d")
    assert segment.executable == "rm"
    assert texts(segment) == ["rm", "a bc d"]
    assert segment.wrappers == ("env", "timeout", "nice")
    assert dict(segment.env) == {"X": None, "LANG": "C"}


def test_what_runs_in_a_shell_in_a_shell_is_told_with_its_way_there() -> None:
    """Each quoting is one more place to hide in."""
    segment = only("""timeout 5 bash -ec 'sh -c "rm a"'""")
    assert segment.wrappers == ("timeout", "bash -c", "sh -c")
    assert texts(segment) == ["rm", "a"]


@pytest.mark.parametrize(
    ("text", "cwds"),
    [
        ("cd a && ls", [".", "a"]),
        ("cd a; ls", [".", None]),
        ("cd a || ls", [".", "."]),
        ("cd a && cd ../b && ls", [".", "a", "b"]),
        ("cd a && cd .. && cd .. && ls", [".", "a", ".", ".."]),
        ("cd /a/../b && ls", [".", "/b"]),
        ("cd / && cd .. && ls", [".", "/", "/"]),
        ("cd && ls", [".", "/home/user"]),
        ("cd - && ls", [".", None]),
        ("cd +1 && ls", [".", None]),
        ("cd a b && ls", [".", None]),
        ("cd '' && ls", [".", None]),
        ("cd $x && ls", [".", None]),
        ("cd a* && ls", [".", None]),
        ("pushd a && ls", [".", "a"]),
        ("pushd && ls", [".", None]),
        ("popd && ls", [".", None]),
        ("(cd a) && ls", [".", "."]),
        ("cd a | ls; ls", [".", ".", "."]),
        ("cd a & ls", [".", "."]),
        ("{ cd a && ls; } && ls", [".", "a", "a"]),
        ("! cd a && ls", [".", "."]),
        ("! cd a || ls", [".", "a"]),
        ("true && cd a || cd b; ls", [".", ".", ".", None]),
        ("if cd a; then ls; else pwd; fi; ls", [".", "a", ".", None]),
        ("if cd a; then ls; elif cd b; then ls; fi", [".", "a", ".", "b"]),
        ("while cd a; do ls; done", [None, None]),
        ("for x in a b; do cd c; ls; done; pwd", [None, None, None]),
        ("for x in a b; do ls; done; pwd", [".", "."]),
        ("case x in a) cd a;; b) ls;; esac; ls", [".", ".", None]),
        ("eval ls; ls", [".", ".", None]),
        ("echo $(cd a && ls) && ls", [".", "a", ".", "."]),
        ("env cd a; ls", [".", "."]),
        ("command cd a && ls", [".", "a"]),
        ("env -C a ls", ["a"]),
        ("sh -c 'cd a'; ls", [".", "."]),
        ("cd a && sh -c 'ls'", [".", "a"]),
    ],
)
def test_the_folder_is_followed(text: str, cwds: list[str | None]) -> None:
    """A path that is judged from the wrong folder is another file's path."""
    command = parse_command(text)
    assert command.problem is None
    assert [segment.cwd for segment in command.segments] == cwds


def test_after_a_folder_that_may_not_exist_both_places_are_told() -> None:
    """`cd nowhere; echo k > .ssh/x` writes to the folder that it began in."""
    (_, segment) = parse_command("cd a; touch b").segments
    assert [one.path for one in segment.writes] == ["a/b", "b"]
    (_, unknown) = parse_command("cd $x; touch b").segments
    assert [one.path for one in unknown.writes] == [None]
    assert unknown.level == 3
    many = "; ".join(f"cd d{number}" for number in range(9)) + "; touch b"
    assert [one.path for one in parse_command(many).segments[-1].writes] == [None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x=a; ls $x", ["ls", "a"]),
        ("x='a b'; ls $x", ["ls", None]),
        ("x='a b'; ls \"$x\"", ["ls", "a b"]),
        ("x='*'; ls $x", ["ls", None]),
        ("x=~/a; ls $x", ["ls", "/home/user/a"]),
        ("x=a:~/b; ls $x", ["ls", "a:/home/user/b"]),
        ("x='a':~/b; ls $x", ["ls", None]),
        ("x=; ls $x", ["ls", None]),
        ("x=é; ls a\"$x\"", ["ls", "aé"]),
        ("ls {a,b}{1..1000}", ["ls", None]),
        ("readonly x=a; ls $x", ["ls", None]),
        ("x=a; declare \"x=$y\"; ls $x", ["ls", None]),
        ("x=a; declare $y; ls $x", ["ls", None]),
        ("true && export LC_X=a; sh -c 'ls $LC_X'", ["ls", None]),
        ("x=a; x+=b; ls $x", ["ls", None]),
        ("x[0]=a; ls $x", ["ls", None]),
        ("x=(a b); ls $x", ["ls", None]),
        ("x=a; if true; then x=b; fi; ls $x", ["ls", None]),
        ("x=a; true && x=b; ls $x", ["ls", None]),
        ("x=a; (x=b); ls $x", ["ls", "a"]),
        ("x=a; x=b | true; ls $x", ["ls", "a"]),
        ("x=a; for y in 1 2; do ls $x; x=b; done", ["ls", None]),
        ("for x in a; do ls $x; done", ["ls", "a"]),
        ("for x in a b; do ls $x; done", ["ls", None]),
        ("for x; do ls $x; done", ["ls", None]),
        ("x=a; read x; ls $x", ["ls", None]),
        ("x=a; unset x; ls $x", ["ls", None]),
        ("x=a; eval y; ls $x", ["ls", None]),
        ("x=a; f() { x=b; }; f; ls $x", ["ls", None]),
        ("x=a; : ${x:=b}; ls $x", ["ls", None]),
        ("x=a; sh -c 'ls $x'", ["ls", None]),
        ("declare x=a; ls $x", ["ls", "a"]),
        ("LC_X=a sh -c 'ls $LC_X'", ["ls", "a"]),
        ("export LC_X=a; sh -c 'ls $LC_X'", ["ls", "a"]),
        ("ls $known ${known} $unknown", ["ls", "v", "v", None]),
        ("ls a$known b$unknown", ["ls", "av", None]),
        ("ls ~ ~/x ~other ~+ a~ '~' \\~", ["ls", *HOMES] if (HOMES := [
            "/home/user", "/home/user/x", None, None, "a~", "~", "~"]) else []),
        ("HOME=/x; ls ~", ["ls", "/x"]),
        ("HOME=$unknown; ls ~", ["ls", None]),
        ("ls {a,b}{1..3} {a} {} x{,y} {2..1} {b..c}", [
            "ls", "a1", "a2", "a3", "b1", "b2", "b3", "{a}", "{}", "x", "xy", "2", "1", "b", "c"]),
        ("ls {a,b}$unknown", ["ls", None]),
        ("ls {a}$unknown", ["ls", None]),
        ("ls {1..1000}", ["ls", None]),
        ("ls {01..10}", ["ls", None]),
        ("ls {a..C}", ["ls", None]),
        ("ls {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", ["ls", None]),
        ("ls " + "{a}" * 13 + "{a,b}", ["ls", None]),
        ("ls {a,{b..1000}}", ["ls", None]),
        ("ls {a}{b,c}", ["ls", None]),
        ("ls {a,b", ["ls", None]),
        ("ls {a", ["ls", "{a"]),
        ("ls {~,a}", ["ls", None]),
        ("ls {'a,b',c} {\"{\",d}", ["ls", "a,b", "c", "{", "d"]),
        ("ls é {é,è}", ["ls", "é", "é", "è"]),
        ("ls $'\\x41\\102\\u00e9\\U1F600\\n\\cA\\c?\\q'", ["ls", "ABé\U0001f600\n\x01\x7f\\q"]),
        ("ls $\"a\" $ a$ \"$\"", ["ls", "a", "$", "a$", "$"]),
        ("ls \"a\\\nb\\$\\q\" \"$(pwd)\" $((1+2)) $1 $@", ["ls", "ab$\\q", None, None, None, None]),
        ("ls ${x:-a} ${#x} ${x%.*} ${x:1:2} ${x[@]} $[1+1]", ["ls", *[None] * 6]),
    ],
)  # fmt: skip
def test_words_are_what_bash_passes_on_or_unknown(text: str, words: list[str | None]) -> None:
    """A word that is taken for another is a path that nobody judged."""
    command = parse_command(text, env={"known": "v"})
    found = [segment for segment in command.segments if segment.executable == "ls"]
    assert texts(found[-1]) == words


def test_a_glob_keeps_its_pattern_and_says_so() -> None:
    """A pattern that passes for a name is judged as a file that does not exist."""
    segment = only("""cat a* 'b*' "c?" [d] \\* $'e*'""")
    assert texts(segment)[1:] == ["a*", "b*", "c?", "[d]", "*", "e*"]
    assert [word.glob for word in segment.argv] == [False, True, False, False, True, False, False]
    assert [one.glob for one in segment.reads] == [True, False, False, True, False, False]
    loop = parse_command('for f in *.py; do cat "$f"; done').segments[-1]
    assert loop.argv[1].glob


def test_the_known_beginning_of_an_unknown_word_is_kept() -> None:
    """`./$x` cannot be an option; `$x` can."""
    assert only("cat ./$x").argv[1].prefix == "./"
    assert only("sort ./a$x").level == 3  # which file it is, only a run can tell
    assert not any(one.code == "command_not_understood" for one in only("sort ./a$x").reasons)
    assert only("echo -$x").level == 0


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("ls 2>/dev/null", ["."], []),
        ("ls >/dev/null 2>&1", ["."], []),
        ("ls 3>&1 1>&2 2>&3 3>&-", ["."], []),
        ("cat <&3 4>&-", [], []),
        ("ls > /dev/stderr", ["."], []),
        ("cat < /dev/stdin", [], []),
        ("ls > /dev/fd/2", ["."], []),
        ("cat -", [], []),
        ("ls > -", ["."], ["./-"]),
        ("cat < a > b 2> c", ["a"], ["b", "c"]),
        ("ls > a* ", ["."], ["a*"]),
        ("ls > {a,b}", ["."], [None]),
        ("ls >&$x", ["."], [None]),
    ],
)
def test_a_redirect_is_a_read_or_a_write_of_its_file(
    text: str, reads: list[str], writes: list[str | None]
) -> None:
    """Otherwise `2>/dev/null` asks all day, or `>` writes without being asked about."""
    segment = only(text)
    assert [one.path for one in segment.reads] == reads
    assert [one.path for one in segment.writes] == writes


# ---------------------------------------------------------------- how far it is read


def test_a_text_that_is_too_long_or_no_text_is_not_read() -> None:
    """A program that reads a megabyte of brackets holds up every other call."""
    near = "#" * (TEXT_BYTES_MAX - 3) + "\nls"
    assert parse_command(near).level == 0
    for text in (near + " ", "é" * (TEXT_BYTES_MAX // 2 + 1), "ls \0", "ls \ud800", "ls \udc80x"):
        command = parse_command(text)
        assert command.level == 3
        assert command.is_compound


@pytest.mark.parametrize(
    "unit",
    ["x|", "x@(", "a=(", "$[", "$a)", "f()", "<<<", "<<A\n", "(( a", "[[ ! ", "[ ! -a ", '"${',
     "$(", "`", "(", "{ ", "if ", "eval ", "find -exec ", "sh -c '", "{a,b}", "for x in a; do "],
)  # fmt: skip
def test_a_text_made_to_take_long_is_given_up_on(unit: str) -> None:
    """Some of these took the parser seconds: the lock of the interpreter is held meanwhile."""
    command = parse_command((unit * TEXT_BYTES_MAX)[:TEXT_BYTES_MAX])
    assert command.level == 3


@pytest.mark.parametrize("deep", [8, 30, 200])
@pytest.mark.parametrize(
    ("opens", "closes"),
    [("(", ")"), ("$(", ")"), ("{ ", "; }"), ('"$(', ')"'), ("if true; then ", "; fi"),
     ("! ", ""), ("${x:-", "}"), ("ls <(", ")"), ("f() { ", "; }"), ("eval ", ""),
     ("for x in a; do cd b; ", "; done"), ("find -exec ", " \\;"), ("true && ", "")],
)  # fmt: skip
def test_what_is_nested_deep_is_read_or_given_up_on(opens: str, closes: str, deep: int) -> None:
    """A recursion without a floor ends the process, not the parse."""
    command = parse_command(opens * deep + "rm -rf /" + closes * deep)
    assert command.level == 3


def test_wrappers_in_wrappers_come_to_an_end() -> None:
    """Otherwise the last one is unwrapped by nobody."""
    assert only("nice " * 10 + "ls").level == 0
    assert only("nice " * 11 + "ls").level == 3
    quoted = "ls"
    for _ in range(7):
        quoted = "sh -c '" + quoted.replace("'", "'\\''") + "'"
    assert parse_command(quoted).level == 3


def test_a_loop_that_sets_what_it_reads_is_read_twice_and_counted_once() -> None:
    """A second reading that counts would deny half of what it reads."""
    body = "ls $x; x=b; " * 24
    command = parse_command(f"x=a; for y in 1 2; do {body}done")
    assert not command.over_cap
    assert len(command.segments) == 49
    nested = "for y in 1 2; do x=$x; " * 12 + "ls" + "; done" * 12
    assert parse_command(nested).problem is None


def test_the_parser_is_not_loaded_before_a_command_is_read() -> None:
    """A jail that runs a user's tool has no use for a grammar of bash."""
    code = (
        "import sys, toolcell_policies, toolcell_policies.shell as shell;"
        "assert 'tree_sitter' not in sys.modules;"
        "shell.parse_command('ls');"
        "assert 'tree_sitter' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- properties

TOKENS = st.sampled_from(
    ["ls", "rm", "cd", "cat", "echo", "x=1", "$x", '"$x"', "a", "-r", "/", "..", "*", " ", "\n",
     ";",
     "&&", "||", "|", "&", "(", ")", "{ ", "; }", "$(", "`", '"', "'", "\\", "<", ">", "2>&1",
     "<<E\n", "\nE\n", "if ", "then ", "fi", "for x in ", "do ", "done", "while ", "case ", "esac",
     "[ ", " ]", "[[ ", " ]]", "((", "))", "${", "}", "!", "#", "~", "é", "sh -c ", "env ", "eval ",
     "export ", "find . -exec ", "sed ", "awk ", "{a,b}", "\\\n", "\t", "-", "f() "]
)  # fmt: skip
SOUP = st.lists(TOKENS, max_size=14).map("".join)
PLAIN = st.lists(
    st.sampled_from(
        ["ls", "rm a", "cd b", "cat f > g", "x=1", "git log", "unheard", "env ls", "rm -rf /",
         "PATH=.", "if true; then ls; fi", "cat <<E\nx\nE", "f() { ls; }", "sh -c 'rm a'", "ls #"]
    ),
    min_size=1,
    max_size=4,
).map("\n".join)  # fmt: skip


@settings(max_examples=300, deadline=None, database=None)
@given(st.one_of(SOUP, st.text(max_size=60)))
@example("\ud800")
@example("{a")
@example("`\\`")
def test_any_text_has_an_answer(text: str) -> None:
    """A text that ends in an exception is a decision that nobody took."""
    command = parse_command(text)
    assert command.level in range(4)
    assert len(command.segments) <= SEGMENTS_MAX
    assert command.rememberable in (True, False)
    for segment in command.segments:
        assert segment.kinds


@settings(max_examples=150, deadline=None, database=None)
@given(before=PLAIN, after=st.one_of(PLAIN, SOUP))
def test_a_command_more_never_makes_it_less(before: str, after: str) -> None:
    """Otherwise a suffix would buy what the command alone is asked about."""
    alone, longer = parse_command(before), parse_command(f"{before}\n{after}")
    assert longer.level >= alone.level
    if longer.problem is None and not longer.over_cap:
        assert [one.text for one in longer.segments[: len(alone.segments)]] == [
            one.text for one in alone.segments
        ]
        critical = CommandKind.REMOVAL_CRITICAL
        for segment, same in zip(alone.segments, longer.segments, strict=False):
            assert (critical in segment.kinds) <= (critical in same.kinds)


def as_ansi(text: str) -> str:
    return "$'" + "".join(f"\\x{byte:02x}" for byte in text.encode()) + "'"


@settings(max_examples=150, deadline=None, database=None)
@given(
    st.text(
        st.one_of(
            st.sampled_from(string.printable.replace("\r", "")),
            st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_a_word_is_the_same_however_it_is_quoted(text: str) -> None:
    """Three ways to write a name must not be three names, one of them allowed."""
    inner = "".join(f"\\{char}" if char in '\\"$`' else char for char in text)
    forms = ["'" + text.replace("'", "'\\''") + "'", f'"{inner}"', as_ansi(text)]
    for form in forms:
        command = parse_command(f"echo {form} end")
        assert command.problem is None
        assert texts(command.segments[0]) == ["echo", text, "end"]
    if "\n" not in text:
        command = parse_command("echo " + "".join(f"\\{char}" for char in text))
        assert command.problem is not None or texts(command.segments[0]) == ["echo", text]
