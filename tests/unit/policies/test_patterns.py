"""The pattern matcher: braces, stars, and where a pattern may begin."""

import time

import pytest

from toolcell_policies._patterns import Anchor, compile_patterns, expand_braces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["a"]),
        ("{a,b}", ["a", "b"]),
        ("x{a,b}y{c,d}", ["xayc", "xayd", "xbyc", "xbyd"]),
        ("{a,b{c,d}}e", ["ae", "bce", "bde"]),
        ("/x/{a/**,b}", ["/x/a/**", "/x/b"]),
        ("{a}", ["a"]),
        ("a{,b}", ["a", "ab"]),
    ],
)
def test_braces_expand_to_each_alternative(text: str, expected: list[str]) -> None:
    """An alternative that is lost is a secret that is not protected."""
    assert list(expand_braces(text)) == expected


@pytest.mark.parametrize("text", ["{a,b", "a{b{c}", "~/", "/", "**", "~/**", "/**", "", "**/**"])
def test_a_pattern_that_is_broken_or_names_everything_is_refused(text: str) -> None:
    """Everything protected is nothing usable; half a pattern protects by accident."""
    with pytest.raises(ValueError, match=r"brace|names nothing"):
        compile_patterns(text)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/x/y/b/below", True),
        ("a/**/b", "a/x/c", False),
        ("a/*/b", "a/b", False),
        ("a/*/b", "a/x/y/b", False),
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("a*c", "abcd", False),
        ("a*c", "a\nc", True),
        ("a.c", "abc", False),
        ("a+", "aa", False),
        ("A", "a", True),
    ],
)
def test_stars_match_within_a_name_and_double_stars_across(
    pattern: str, path: str, expected: bool
) -> None:
    """A star that crosses a slash, or a dot read as "any", would move the fence."""
    (compiled,) = compile_patterns(pattern)
    assert compiled.matches_at(path.split("/"), 0) is expected


def test_a_pattern_covers_what_is_below_unless_it_says_otherwise() -> None:
    """A protected folder whose content is free is not protected."""
    (covering,) = compile_patterns("a/b")
    (exact,) = compile_patterns("a/b", below=False)
    assert covering.matches_at(["a", "b", "c"], 0)
    assert not exact.matches_at(["a", "b", "c"], 0)
    assert exact.matches_at(["a", "b"], 0)


@pytest.mark.parametrize(
    ("text", "anchor"),
    [("~/a", Anchor.HOME), ("/a", Anchor.ROOT), ("a", Anchor.ANYWHERE), ("**/a", Anchor.ANYWHERE)],
)
def test_a_pattern_begins_where_it_says(text: str, anchor: Anchor) -> None:
    """`~/bin` is a start-up folder; `bin` in a project is not."""
    assert compile_patterns(text)[0].anchor is anchor


def test_a_hostile_name_does_not_make_a_pattern_slow() -> None:
    """Names come from a model: one that takes a minute to refuse stops every call."""
    (compiled,) = compile_patterns("a*a*b/**/c/**/d")
    names = ["a" * 1000 + "b", *["c", "x"] * 30]
    start = time.perf_counter()
    assert not compiled.matches_at(names, 0)
    assert time.perf_counter() - start < 1
