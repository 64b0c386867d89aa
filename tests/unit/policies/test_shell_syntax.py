"""Bash's grammar, form by form: what runs is found, what is not read says so."""

import pytest

from toolcell_policies._shell_convert import read_syntax
from toolcell_policies._shell_tree import NotUnderstood, parse_tree
from toolcell_policies.shell import parse_command


def executables(text: str) -> list[str | None]:
    command = parse_command(text)
    assert command.problem is None, command.problem
    return [segment.executable for segment in command.segments]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a && b || c", ["a", "b", "c"]),
        ("a && b > f", ["a", "b"]),
        ("a | b 2>&1", ["a", "b"]),
        ("! a > f", ["a"]),
        ("! a && b > f", ["a", "b"]),
        ("a\n\n# c\nb # d\n# e", ["a", "b"]),
        ("a & b & c; d", ["a", "b", "c", "d"]),
        ("a && \\\n b", ["a", "b"]),
        ("a &&\n\n# c\n b", ["a", "b"]),
        ("a |\n b", ["a", "b"]),
        ("a \\\n# c", ["a"]),
        ("if a\nthen b # c\nelif c; then d\nelse e\nfi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done", ["a", "b"]),
        ("until a; do b; done | c", ["a", "b", "c"]),
        ("for x in a $(b); do c; done", ["b", "c"]),
        ("select x in a; do b; done", ["b"]),
        ("case $(a) in (b) c;; d | $(e)) f; g;; *) h; esac", ["a", "e", "c", "f", "g", "h"]),
        ("case x in 'a b') c ;; \"$(d)\") e ;; \\)) f ;; esac", ["d", "c", "e", "f"]),
        ("case x in `a`) b;; esac", ["a", "b"]),
        ("case x in\n # c\n a) b\n ;;\nesac", ["b"]),
        ("(a; (b))", ["a", "b"]),
        ("{ a; { b; }; }", ["a", "b"]),
        ("{ a; } > f", [None, "a"]),
        ("(a) > f && b", [None, "a", "b"]),
        ("if a; then b; fi > f 2>&1", [None, "a", "b"]),
        ("f() { a; }", ["a", None]),
        ("function f { a; }", ["a", None]),
        ("f() (a)", ["a", None]),
        ("f() { a; } > f", [None, "a", None]),
        ("a <(b) >(c)", ["b", "c", "a"]),
        ("a \"$(b \"$(c)\")\"", ["c", "b", "a"]),
        ("a `b \\`c\\``", ["c", "b", "a"]),
        ("a \"`b \\\"c d\\\"`\"", ["b", "a"]),
        ("a $(< f)", [None, "a"]),
        ("a $(b # )\n)", ["b", "a"]),
        ("> f", [None]),
        ("x=1 y=2", [None]),
        ("x=(a $(b) `c`)", ["b", "c", None]),
        ("x=(\na\nb\n) a", ["a"]),
        ("export x=1 y", ["export"]),
        ("[ -f a ] && b", ["[", "b"]),
        ("[[ 'a b' == \"$(c)\" && \\d =~ `e` && <(f) ]]", ["c", "e", "f", "[["]),
        ("(( 1 + 2 ))", [None]),
        ("(( $(a) ))", ["a", None]),
        ("for ((i = 0; i < $(a); i++)); do b; done", ["a", None, "b"]),
        ("for ((i = 0; i < 3; i++)) { b; }", [None, "b"]),
        ("a ${x:-$(b)} ${x/$(c)/d} ${x:-${y:-$(d)}}", ["b", "c", "d", "a"]),
        ("case x in a) b;& c) d;; esac", ["b", "d"]),
        ("case x in a) b\nesac", ["b"]),
        ("!a\"\" b > c", ["!a"]),
        ("a $(( $(b) + x[$(c)] ))", ["b", "c", "a"]),
        ("a $[ 1 ]", ["a"]),
        ("time a", ["a"]),
        ("a <<< \"$(b)\"", ["b", "a"]),
        ("a > f b > g", ["a"]),
        ("2>&1 a", ["a"]),
    ],
)  # fmt: skip
def test_every_command_of_a_form_is_found_in_its_order(text: str, found: list[str | None]) -> None:
    """A form that is overlooked is the one that the next attack is written in."""
    assert executables(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a <<E\nx\nE", ["a"]),
        ("a <<E\nE\nb", ["a", "b"]),
        ("a <<-E\n\tx\n\tE\nb", ["a", "b"]),
        ("a <<'E F'\n$(b)\nE F\n", ["a"]),
        ("a <<\\E\n$(b)\nE\n", ["a"]),
        ("a <<\"E\"\n$(b)\nE\n", ["a"]),
        ("a <<E\n$(b) `c` \\$(d) \\`e\\` ${f} $g \"'\nE", ["b", "c", "a"]),
        ("a <<E b c\nx\nE", ["a"]),
        ("a <<E > f\nx\nE", ["a"]),
        ("a <<E \\\n b\nx\nE", ["a"]),
        ("a - <<E\nx\nE", ["a"]),
        ("a <<E # c\nx\nE", ["a"]),
        ("a <<E | b | c\nx\nE\nd", ["a", "b", "c", "d"]),
        ("a <<E && b\nx\nE", ["a", "b"]),
        ("a <<E || { b; }\nx\nE", ["a", "b"]),
        ("a <<E | b && c\nx\nE", ["a", "b", "c"]),
        ("a <<E && b || c\nx\nE", ["a", "b", "c"]),
        ("a && b <<E | c\nx\nE", ["a", "b", "c"]),
        ("a | b <<E\nx\nE", ["a", "b"]),
        ("while a; do b; done <<E\n$(c)\nE", ["c", None, "a", "b"]),
        ("x=$(a <<E\ny\nE\n)", ["a", None]),
    ],
)  # fmt: skip
def test_a_heredoc_is_data_and_what_follows_it_runs(text: str, found: list[str | None]) -> None:
    """Data read for commands asks in vain; commands read for data are not asked about."""
    command = parse_command(text)
    assert command.problem is None, command.problem
    assert [segment.executable for segment in command.segments] == found
    assert any(segment.heredoc for segment in command.segments)


@pytest.mark.parametrize(
    "text",
    [
        "a <<A <<B\nx\nA\ny\nB",
        "a <<E; b\nx\nE",
        "a <<E\nx",
        "a <<E'F'\nx\nEF",
        "a <<$x\nx\n$x",
        "while a; do b <<E; done\nx\nE\n",
        "a b\x0bc",
        "a \x0c b",
        "a\r\nb",
        "a $\\\nb",
        "a $b\\\nc",
        'a "$\\\n(b)"',
        "a\\\n# b; c",
        "[= a ]",
        "[ a ]b",
        "[ a > b ]",
        "[[ a; b ]]",
        "! ! a",
        "{ a; }b",
        'if"" a; then b; fi',
        "time { a; }",
        "a {x}> b",
        "a 2\\\n> b",
        "a 5>&1- {fd}> b",
        "a >& -b",
        "a >",
        "a \\ > b",
        "a \\",
        "a 'b",
        'a "b',
        "a `b",
        "a $(b",
        "a ${b",
        "a $'b",
        "a $'\\0'",
        "a $'\\ud800'",
        "a $'\\U00110000'",
        "a b) c",
        "(a",
        "; a",
        "a; ; b",
        "a && ",
        "| a",
        "fi",
        "a (b)",
        "f$x() { a; }",
        "x=([$(a)]=b) c",
        "x=(a)b c",
        "f() { a; } b",
        "{ a; } b",
        "a &\\\n& b",
        "for x in a; do b done",
        "a {b,$}c",
        "$(a",
        "[[ 'a ]]",
    ],
)
def test_what_the_grammar_reads_in_another_way_than_bash_is_not_read(text: str) -> None:
    """Where two readers differ, one of them is the attacker's."""
    assert parse_command(text).problem is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a \\ b", ["a", " b"]),
        ("a 'b'\\ c\\\td", ["a", "b c\td"]),
        ("a b\\ c", ["a", "b c"]),
        ("a\\\n b", ["a", "b"]),
        ("a b\\\nc 'd'\\\n\"e\"", ["a", "bc", "de"]),
        ("a x\u00a0y \u3000", ["a", "x\u00a0y", "\u3000"]),
        ("a b#c '#d'", ["a", "b#c", "#d"]),
        ("a ]b }c {d", ["a", "]b", "}c", "{d"]),
    ],
)
def test_what_the_grammar_is_known_to_misread_is_put_right(text: str, words: list[str]) -> None:
    """A blank that is part of a name makes two names of it, neither of which is the file's."""
    (segment,) = parse_command(text).segments
    assert [word.text for word in segment.argv] == words


def test_only_ascii_reaches_the_grammar() -> None:
    """This text ended the process one time in four: its scanner reads outside of a table."""
    for code in range(0x80, 0x110000, 0x2F1):
        if not 0xD800 <= code < 0xE000:
            parse_command("{" + chr(code))
    tree = parse_tree("é {".encode())
    assert tree.root_node.end_byte == 4
    assert parse_command("cat é").segments[0].reads[0].path == "é"


def test_a_tree_of_an_unknown_shape_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later grammar may build its trees otherwise: then nothing is read, and all is asked."""
    from toolcell_policies import _shell_convert

    monkeypatch.setattr(_shell_convert, "parse_tree", lambda source: _Shapeless())
    with pytest.raises(NotUnderstood):
        read_syntax("a && b")
    assert parse_command("a && b").problem is not None


class _Shapeless:
    """A tree with a list that has no parts."""

    class root_node:
        class _Child:
            type = "list"
            start_byte, end_byte = 0, 6
            children = ()
            is_named = True

        children = (_Child,)
