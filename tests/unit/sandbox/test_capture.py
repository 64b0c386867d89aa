"""Both ends of a stream, every byte counted, no character split: without a process."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_sandbox.capture import Capture, Captured

MARKER = re.compile(r"(?:^|\n)\[\.\.\. (at least )?(\d+) bytes, (\d+) lines left out \.\.\.\]\n")

CAPS = st.integers(0, 12)
CUTS = st.lists(st.integers(0, 80), max_size=8)
# Of one to four bytes each, and nothing that looks like the marker.
PROSE = st.text(st.sampled_from("ab\néß€語😀🏳\u200d"), max_size=40)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def captured(
    data: bytes, head: int, tail: int, cuts: list[int] | None = None, *, closed: bool = True
) -> Captured:
    capture = Capture(head, tail)
    for number, chunk in enumerate(chunks(data, cuts or [])):
        capture.feed(memoryview(chunk) if number % 2 else chunk)
    capture.closed = closed
    return capture.captured()


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=80) | PROSE.map(str.encode), head=CAPS, tail=CAPS, cuts=CUTS)
def test_head_and_tail_are_the_true_ends_however_the_stream_was_cut(
    data: bytes, head: int, tail: int, cuts: list[int]
) -> None:
    """A byte counted twice, or lost without a count, makes a cut log read as a whole one."""
    found = captured(data, head, tail, cuts)
    assert found.head == data[:head]
    rest = data[head:]
    assert found.tail == rest[max(0, len(rest) - tail) :]
    assert found.kept == found.head + found.tail
    assert found.kept_bytes == found.head_bytes + found.tail_bytes == len(found.kept)
    assert found.seen_bytes == len(data) == found.kept_bytes + found.lost_bytes
    assert found.lost_bytes == max(0, len(data) - head - tail)
    lost = data[found.head_bytes : len(data) - found.tail_bytes]
    assert found.lost_lines == lost.count(b"\n")
    assert found == captured(data, head, tail)
    assert found.text() == captured(data, head, tail).text()


@settings(max_examples=250, deadline=None)
@given(source=PROSE, head=CAPS, tail=CAPS, cuts=CUTS, closed=st.booleans())
def test_case_09_text_never_holds_half_a_character_and_names_what_is_left_out(
    source: str, head: int, tail: int, cuts: list[int], closed: bool
) -> None:
    """A replacement character that nobody wrote sends its reader after a fault in the data."""
    data = source.encode()
    found = captured(data, head, tail, cuts, closed=closed)
    text = found.text()
    assert "\ufffd" not in text
    assert found.is_utf8
    markers = list(MARKER.finditer(text))
    if not found.lost_bytes:
        assert not markers
        assert text.startswith(source)
        assert closed == (text == source)
        return
    assert len(markers) == 1
    least, missing, lines = markers[0].groups()
    before, after = text[: markers[0].start()], text[markers[0].end() :]
    if source.startswith(before + "\n") and len((before + "\n").encode()) <= head:
        before += "\n"  # The line that ends before the marker is the stream's own.
    assert source.startswith(before)
    assert source.endswith(after)
    assert len(before.encode()) + int(missing) + len(after.encode()) == len(data)
    assert int(lines) == found.lost_lines
    assert (least is None) is closed


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), max_size=40),
    head=st.integers(0, 50),
    tail=st.integers(0, 50),
)
def test_memory_is_bounded_whatever_is_written(sizes: list[int], head: int, tail: int) -> None:
    """A tool that prints without end must not fill the supervisor."""
    capture = Capture(head, tail)
    for size in sizes:
        capture.feed(b"x" * size)
        assert len(capture._head) <= head
        assert len(capture._tail) <= 2 * tail


@pytest.mark.parametrize(("head", "tail"), [(0, 0), (0, 4), (4, 0), (4, 4)])
@pytest.mark.parametrize("more", [-1, 0, 1, 2, 1_000])
def test_case_07_at_the_cap_and_one_beside_it(head: int, tail: int, more: int) -> None:
    """Off by one here is a byte that is neither shown nor counted."""
    size = max(0, head + tail + more)
    data = (b"abcdefghij" * 101)[:size]
    for step in (1, 3, 4, 5, 2_000):
        found = captured(data, head, tail, list(range(0, size, step)))
        assert found.kept_bytes == min(size, head + tail)
        assert found.lost_bytes == max(0, more)
        assert data.startswith(found.head)
        assert data.endswith(found.tail)


def test_case_06_the_tail_survives_a_flood_of_small_writes() -> None:
    """A failed build says why in its last line."""
    capture = Capture(10, 10)
    for number in range(10_000):
        capture.feed(b"line %d\n" % number)
    found = capture.captured()
    assert found.head == b"line 0\nlin"
    assert found.tail == b"\nline 9999\n"[-10:]
    assert found.lost_lines == 10_000 - found.kept.count(b"\n")


def test_the_marker_stands_on_a_line_of_its_own() -> None:
    """Glued to a line of the tool's it would be read as the tool's words."""
    assert captured(b"ab\ncdefgh\nij", 3, 2).text() == (
        "ab\n[... 7 bytes, 1 lines left out ...]\nij"
    )
    assert captured(b"abcdefghij", 3, 2).text() == "abc\n[... 5 bytes, 0 lines left out ...]\nij"
    assert captured(b"abcdefghij", 0, 2).text() == "[... 8 bytes, 0 lines left out ...]\nij"
    assert captured(b"a\nb\n", 0, 0).text() == "[... 4 bytes, 2 lines left out ...]\n"


def test_a_stream_that_is_still_open_says_that_its_count_is_a_floor() -> None:
    """A count that may be too small must not read like an exact one."""
    assert captured(b"", 4, 4, closed=False).text() == (
        "\n[... the stream was still open; more may have been written ...]\n"
    )
    assert "at least 2 bytes" in captured(b"0123456789", 4, 4, closed=False).text()
    assert not captured(b"", 4, 4, closed=False).closed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xf0", "\ufffd"),
        (b"a\xff", "a\ufffd"),
        (b"\x80\x80", "\ufffd\ufffd"),
        ("é".encode(), "é"),
    ],
)
def test_case_09_bytes_that_are_no_text_are_replaced_and_known(data: bytes, text: str) -> None:
    """Left out in silence they would be missing from a file that is copied by its text."""
    found = captured(data, 10, 10)
    assert found.text() == text
    assert found.is_utf8 is ("\ufffd" not in text)
    assert found.kept == data


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        (b"\xc3", ""),
        (b"\xe2\x82", ""),
        (b"\xf0\x9f\x98", ""),
        (b"\xf0", ""),
        # Complete, or never the start of a character: the cut has no part in them.
        ("😀".encode(), "😀"),
        (b"\xff", "\ufffd"),
        (b"\xc0", "\ufffd"),
        (b"\xf8\x80", "\ufffd\ufffd"),
        (b"\xe0\x80", "\ufffd\ufffd"),
        (b"\xc3x", "\ufffdx"),
        (b"\x80\x80\x80\x80", "\ufffd" * 4),
    ],
)
def test_only_what_the_cut_itself_split_is_left_out_before_it(end: bytes, shown: str) -> None:
    """Bytes that are no text, dropped as if they were half a character, were dropped in silence."""
    found = captured(b"a" + end + b"x" * 50, 1 + len(end), 5)
    assert found.text().startswith(f"a{shown}\n[... ")
    assert found.is_utf8 is ("\ufffd" not in shown)


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        (b"\x98\x80z", "z"),
        (b"\x9f\x98\x80z", "z"),
        (b"\x80", ""),
        (b"\x98\x80", ""),
        (b"\x9f\x98\x80", ""),
        (b"", ""),
        # Four in a row are no character's.
        (b"\x80\x80\x80\x80", "\ufffd" * 4),
        (b"\x80\x80\x80\x80z", "\ufffd" * 4 + "z"),
        (b"\xffz", "\ufffdz"),
    ],
)
def test_only_what_the_cut_itself_split_is_left_out_after_it(start: bytes, shown: str) -> None:
    """Also where the whole tail is less than one character."""
    found = captured(b"a" * 50 + start, 5, len(start))
    assert found.text().endswith(f"left out ...]\n{shown}")
    assert found.is_utf8 is ("\ufffd" not in shown)
