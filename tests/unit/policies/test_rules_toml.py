"""Where things stand in a TOML text: each place holds what `tomllib` read there."""

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_policies._rules_toml import Document, Place, PolicyError, printable

TRICKY = [
    "",
    "# nothing\n",
    "a = 1 # one\nb = 'x # y'  \n",
    '[[rule]]\nid = "[[rule]]"\n[[rule]]\n"id" = \'[[rule]]\\\'\n',
    'a = """\n[[rule]]\nb = 1\n"""\nc = 2\n',
    'a = """x""\\"""y"""""\nb = \'\'\'\'x\'\'\'\'\'\n',
    'a = """"""\nb = \'\'\nc = ""\n',
    'a."b.c".d = [1, [2, "]"], {x = "}", y.z = [3]}] # ]\ne = { f = { } }\n',
    "a = [\n  1, # one ]\n  # two ,\n  'three',\n]\nb = 1979-05-27 07:32:00\nc = [1979-05-27 ]\n",
    "[a]\nb.c = 1\n[a.b.d]\ne = 2\n[[a.f]]\ng = 3\n[[a.f.h]]\ni = 4\n[[a.f]]\ng = 5\n[a.f.j]\n",
    '[ a . "b" ]\nc = true\r\n[[ d ]]\r\ne = -0.5e+3\r\n',
    "x = 1\n[y]\nz = 2",
    "'' = 1\n'a\\b' = 2\n\"a\\u0062\" = 3\n",
]


def at(data: Any, place: Place) -> Any:
    for step in place:
        data = data[step]
    return data


def firsts(value: Any) -> Iterator[Any]:
    yield value
    while isinstance(value, dict) and value:
        value = next(iter(value.values()))
        yield value


def check_places(text: str) -> int:
    """Each value that was found where it stands; returns how many."""
    document = Document(text, "f.toml")
    for place, span in document._spans.items():
        value = at(document.data, place)
        written = document.written(place)
        if span.key == span.value and written.startswith("[") and isinstance(value, dict):
            assert tomllib.loads(written)
        elif not isinstance(value, dict) or written.startswith("{"):
            # A table that a dotted key implies stands where its first leaf does.
            assert tomllib.loads(f"x = {written}")["x"] in list(firsts(value))
    return len(document._spans)


def count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(1 + count(one) for one in value.values())
    if isinstance(value, list):
        return sum(1 + count(one) for one in value)
    return 0


@pytest.mark.parametrize("text", TRICKY)
def test_each_value_is_found_where_it_stands(text: str) -> None:
    """Otherwise an error points at a line that is right, and the wrong one gets mended."""
    assert check_places(text) >= 0
    # An array of tables has no place of its own, its tables have.
    data = tomllib.loads(text.replace("\r\n", "\n"))
    arrays = sum(
        1
        for one in (data, data.get("a", {}))
        if isinstance(one, dict)
        for two in one.values()
        if isinstance(two, list) and two and isinstance(two[0], dict)
    )
    assert count(data) - check_places(text) in range(arrays + 2)


scalars = (
    st.integers()
    | st.booleans().map(lambda one: str(one).lower())
    | st.sampled_from(
        ['"a\\"]#"', "'}\\'", '"""x\n"" # ] }"""', "'''\n['''", "1979-05-27 07:32:00", "inf"]
    )
).map(str)
blanks = st.sampled_from(["", " ", "\t"])
gaps = st.sampled_from(["", " ", "\n", " # ] }\n  "])


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda items, gap: "[" + gap + ("," + gap).join(items) + gap + "]",
        st.lists(inner, max_size=3),
        gaps,
    )


def tables(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda items, blank: (
            "{"
            + ", ".join(f'{blank}"k {n}" . k{blank}={blank}{one}' for n, one in enumerate(items))
            + blank
            + "}"
        ),
        st.lists(inner, max_size=3),
        blanks,
    )


values = st.recursive(scalars, lambda inner: arrays(inner) | tables(inner), max_leaves=8)


@settings(max_examples=150, deadline=None, database=None)
@given(written=st.lists(values, min_size=1, max_size=4), blank=blanks)
def test_any_value_is_found_where_it_stands(written: list[str], blank: str) -> None:
    """A scanner that a bracket in a string leads astray points anywhere from there on."""
    rows = [f"[[t]]\nv{blank}={blank}{one}{blank}# end" for one in written]
    assert check_places("\n".join(rows)) >= 2 * len(written)


@pytest.mark.parametrize(
    ("text", "line", "column", "caret"),
    [
        ("a = 1\nb = [1,\n", 3, 1, "^"),
        ("a = 1\r\nb = @\r\n", 2, 5, "^"),
        ("a = 1\na = 2\n", 2, 6, "^"),
        ('a = "x', 1, 7, "^"),
        ("\n\n\ufeff", 3, 1, "^"),
    ],
)
def test_a_syntax_error_has_its_place(text: str, line: int, column: int, caret: str) -> None:
    """Otherwise a person reads the whole file for one missing bracket."""
    with pytest.raises(PolicyError) as caught:
        Document(text, "p.toml")
    error = caught.value
    assert (error.file, error.line, error.column) == ("p.toml", line, column)
    assert str(error).startswith(f"p.toml:{line}:{column}: not TOML: ")
    assert error.caret_text.splitlines()[1].index(caret) == 4 + column - 1


def test_what_is_nested_without_end_is_an_error_like_any_other() -> None:
    """Otherwise a repository ends the program with a traceback that blames nobody."""
    with pytest.raises(PolicyError, match="nested too deep"):
        Document("a = " + "[" * 100_000, "p.toml")


def test_a_long_line_is_shown_around_its_place() -> None:
    """A caret far off the right edge of a terminal points at nothing."""
    text = f"a = ['{'x' * 500}', 'here', '{'y' * 500}']"
    document = Document(text, "p.toml")
    shown, caret = document.error(("a", 1), "m").caret_text.splitlines()
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "'here'"
    assert len(shown) < 140
    shown, caret = document.error(("a", 0), "m").caret_text.splitlines()
    assert len(caret) <= len(shown) < 140


def test_what_an_error_shows_moves_no_cursor() -> None:
    """A repository's file, printed in an error, must not rewrite the terminal."""
    document = Document("a = 'x\u202ey\tz' # \u009b", "p\n\x1b.toml")
    shown = str(document.error(("a",), f"bad {printable(chr(27))}"))
    assert set(shown) - {"\n"} == {char for char in shown if char.isprintable()}
    assert shown.startswith("p\\n\\x1b.toml:1:5: bad \\x1b\n    a = 'x y z'")
