"""What a model is shown of a long text: head and tail, exact counts, whole characters."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell._output_summary import shape, summary
from toolcell.bounding import Bounded, Bounds, bounded, count_lines, is_within, summarised
from toolcell.results import Truncation

MARKER = re.compile(
    r"\[toolcell: left out here, from byte (\d+): ([\d,]+) of ([\d,]+) bytes, "
    r"([\d,]+) lines?(?:; (.+))?\]"
)
LINES = "".join(f"line {number}\n" for number in range(10_000))

texts = st.one_of(
    st.text(st.sampled_from("a\né€𝄞\r "), max_size=3_000),
    st.lists(st.text(st.sampled_from("xé\n"), max_size=900), max_size=6).map("\n".join),
    st.tuples(st.integers(0, 2_000), st.integers(0, 40)).map(
        lambda t: ("𝄞" * t[1] + "\n") * (t[0] // 10) + "é" * t[0]
    ),
)
bounds = st.builds(Bounds, lines=st.integers(1, 40), bytes=st.integers(512, 2_000))


def taken_apart(found: Bounded) -> tuple[str, re.Match[str], str]:
    """The head, the marker and the tail; fails where there is not exactly one marker line."""
    lines = found.text.split("\n")
    places = [number for number, line in enumerate(lines) if MARKER.fullmatch(line)]
    assert len(places) == 1
    match = MARKER.fullmatch(lines[places[0]])
    assert match is not None
    return "\n".join(lines[: places[0]]), match, "\n".join(lines[places[0] + 1 :])


def checked(text: str, limit: Bounds, rest: str = "") -> Bounded:
    """Everything that is promised of any text."""
    found = bounded(text, limit, rest=rest)
    data = text.encode()
    if len(data) <= limit.bytes and count_lines(data) <= limit.lines:
        assert found == Bounded(text=text)
        return found
    assert is_within(found.text, limit)
    told = found.truncation
    assert told is not None
    assert told.total_bytes == len(data) == told.kept_bytes + told.omitted_bytes
    assert told.total_lines == count_lines(data) == told.kept_lines + told.omitted_lines
    assert told.omitted_bytes > 0
    assert told.omitted_lines > 0
    _, match, tail = taken_apart(found)
    at = int(match[1])
    assert match[2] == f"{told.omitted_bytes:,}"
    assert match[3] == f"{told.total_bytes:,}"
    assert match[4] == f"{told.omitted_lines:,}"
    assert (match[5] or "") == rest
    # The head and the tail are the text's own, and what lies between is what was counted.
    assert found.text.encode().startswith(data[:at])
    assert data[at + told.omitted_bytes :] == tail.encode()
    data[:at].decode()
    return found


@settings(max_examples=150, deadline=None)
@given(text=texts, limit=bounds)
def test_every_text_is_within_its_bounds_with_exact_counts(text: str, limit: Bounds) -> None:
    """Otherwise a model reads half a character, or believes that it has seen all."""
    checked(text, limit, "read_retained reads it")


@pytest.mark.parametrize(("over", "is_cut"), [(-1, False), (0, False), (1, True)])
def test_the_bounds_themselves_are_shown_whole(over: int, is_cut: bool) -> None:
    """Sizes one below, at and one above: an off-by-one loses a line that had room."""
    by_bytes = checked("x" * (50 * 1024 + over), Bounds())
    by_lines = checked("x\n" * (2_000 + over), Bounds())
    unended = checked("x\n" * (1_999 + over) + "x", Bounds())
    assert [one.truncation is not None for one in (by_bytes, by_lines, unended)] == [is_cut] * 3


def test_whichever_bound_is_reached_first_counts() -> None:
    """A thousand long lines are as much as ten thousand short ones."""
    by_lines = checked(LINES, Bounds())
    assert by_lines.truncation is not None
    assert by_lines.truncation.kept_lines == 1_999
    assert len(by_lines.text.encode()) < 50 * 1024
    by_bytes = checked(("y" * 200 + "\n") * 1_500, Bounds())
    assert by_bytes.truncation is not None
    assert 49_000 < by_bytes.truncation.kept_bytes <= 50 * 1024
    # Whole lines only.
    assert by_bytes.truncation.kept_bytes == by_bytes.truncation.kept_lines * 201


def test_head_and_tail_are_both_kept() -> None:
    """A failed build says at its end why it failed."""
    head, _, tail = taken_apart(checked(LINES, Bounds(lines=11)))
    assert head.split("\n") == [f"line {number}" for number in range(5)]
    assert tail.split("\n") == [*(f"line {number}" for number in range(9_995, 10_000)), ""]


def test_one_giant_line_is_cut_between_characters() -> None:
    """Minified code is one line: whole lines alone would show nothing of it."""
    found = checked("é" * 100_000, Bounds())
    assert found.truncation == Truncation(
        total_bytes=200_000,
        kept_bytes=51_040,
        omitted_bytes=148_960,
        total_lines=1,
        kept_lines=0,
        omitted_lines=1,
    )


@pytest.mark.parametrize("character", ["x", "é", "€", "𝄞"])
@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_a_cut_never_falls_inside_a_character(character: str, before: str) -> None:
    """Wherever the cut would fall: half a character is a replacement mark, or no text at all."""
    found = checked(before + character * 3_000, Bounds(bytes=1_000))
    assert "\ufffd" not in found.text


def test_a_giant_line_among_short_ones_takes_what_room_they_leave() -> None:
    """The one long line is what somebody looks for, as often as not."""
    text = "first\n" + "m" * 200_000 + "\nlast\n"
    head, _, tail = taken_apart(checked(text, Bounds()))
    assert head.startswith("first\nmmm")
    assert tail.endswith("mmm\nlast\n")
    assert len(head) > 20_000
    assert len(tail) > 20_000


def test_no_line_is_room_for_the_marker_alone() -> None:
    """The smallest bounds still say that there was something."""
    found = checked("a\nb\nc\n", Bounds(lines=1))
    assert found.text == "[toolcell: left out here, from byte 0: 6 of 6 bytes, 3 lines]"
    second = checked("a\nb\nc\n", Bounds(lines=2))
    assert second.text.startswith(
        "a\n[toolcell: left out here, from byte 2: 4 of 6 bytes, 2 lines]"
    )


def test_a_lone_surrogate_is_written_out() -> None:
    """It has no UTF-8; a result that cannot be encoded is no result."""
    assert bounded("a\udcffb").text == "a\\udcffb"


@pytest.mark.parametrize(
    "wrong", [{"lines": 0}, {"lines": True}, {"bytes": 511}, {"bytes": 1e6}, {"lines": "9"}]
)
def test_bounds_that_show_nothing_are_refused(wrong: dict[str, Any]) -> None:
    """A typo in a tool's bounds would hide its every result."""
    with pytest.raises(ValueError, match="whole number of at least"):
        Bounds(**wrong)


def test_words_about_the_rest_leave_room_for_text() -> None:
    """They are ours, and short; else nothing of the text would be left."""
    with pytest.raises(ValueError, match="do not hold the words"):
        bounded("x" * 1_000, Bounds(bytes=512), rest="r" * 400)


def test_no_text_has_no_lines() -> None:
    """`total == kept + omitted` starts with counting right."""
    assert [count_lines(text) for text in (b"", b"\n", b"a", b"a\n", b"a\nb")] == [0, 1, 1, 1, 2]


# -- structured values -----------------------------------------------------------------------


def test_a_summary_names_type_size_keys_and_first_entries_whole() -> None:
    """A value that was cut in the middle reads as if that were all of it."""
    value = {"rows": list(range(1_000)), "name": "é", "more": {"a": None}, "n": 1, "on": True}
    found = summary(value, size_bytes=12_345, room_bytes=400, rest="read it")
    assert found.split("\n") == [
        "[toolcell: the output is an object of 5 keys, 12,345 bytes of JSON, too large to show "
        "whole; read it]",
        '- "rows": an array of 1,000 items',
        '- "name": text of 1 character',
        '- "more": an object of 1 key',
        "- and 2 more keys",
    ]
    small = summary({"a": [1], "b": "c" * 500}, size_bytes=1, room_bytes=400)
    assert small.split("\n")[-2:] == ["its first entry, whole:", '"a": [1]']


def test_a_summary_of_an_array_shows_its_first_items() -> None:
    """The first rows of a table tell what the others are."""
    rows = [{"id": number, "x": "é"} for number in range(5_000)]
    found = summary(rows, size_bytes=9, room_bytes=10_000).split("\n")
    assert found[1:3] == ["its first 10 entries, whole:", '{"id":0,"x":"é"}']
    assert len(found) == 12


@settings(max_examples=60, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=300),
        lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=200), inner),
        max_leaves=60,
    ).filter(lambda value: isinstance(value, dict | list)),
    room=st.integers(16, 4_000),
)
def test_a_summary_is_bounded_whatever_it_is_of(value: Any, room: int) -> None:
    """It stands where there was no room for the value."""
    found = summary(value, size_bytes=1, room_bytes=room)
    assert len(found.encode()) <= 2 * (room // 4) + 300


def test_a_key_that_is_a_page_long_is_only_counted() -> None:
    """A hostile key would be the whole summary."""
    found = summary({"k" * 1_000: 1}, size_bytes=1, room_bytes=800)
    assert "- (a key of 1,000 characters): a number" in found
    assert "kkk" not in found


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "null"), (True, "a boolean"), (1.5, "a number"), ("", "text of 0 characters")],
)
def test_every_json_value_has_a_shape(value: object, words: str) -> None:
    """A summary that fails on a null is no summary."""
    assert shape(value) == words
    assert words in summary(value, size_bytes=4, room_bytes=100)


def test_what_a_summary_stands_for_counts_as_left_out() -> None:
    """A program that asks whether all was shown looks at `truncation`."""
    found = summarised(1_000)
    assert (found.total_bytes, found.kept_bytes, found.omitted_bytes) == (1_000, 0, 1_000)
    assert (found.total_lines, found.kept_lines, found.omitted_lines) == (1, 0, 1)
