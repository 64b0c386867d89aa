"""The result channel against a writer that means harm: a JSON object, or the rule it breaks."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_sandbox import decode
from toolcell_sandbox.decode import DEPTH_MAX, HEADER_BYTES, BrokenRule, FrameReader, parse

CAP = 64


def header(length: int) -> bytes:
    return length.to_bytes(HEADER_BYTES, "big")


def framed(body: bytes) -> bytes:
    return header(len(body)) + body


def rule(body: bytes) -> str:
    found = parse(body)
    assert isinstance(found, BrokenRule), found
    return found.rule


def read(data: bytes, cap: int = CAP) -> Any:
    reader = FrameReader(cap)
    reader.feed(data)
    return reader.message()


def nested(depth: int, inner: bytes = b"1") -> bytes:
    """An object in which containers lie `depth` deep, the outermost counted."""
    return b'{"a":' + b"[" * (depth - 1) + inner + b"]" * (depth - 1) + b"}"


# -- what is within the rules -------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['"', "\\", '\\"', '":', '\\":', '{"a":1,"a":2}', "1e999", "9" * 30, "\x00", "\u2028", "é😀"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=5)


@settings(max_examples=120, deadline=None)
@given(
    value=OBJECTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]), spaced=st.booleans()
)
def test_what_keeps_the_rules_arrives_as_it_was_sent(
    value: dict[str, Any], ascii_only: bool, indent: int | None, spaced: bool
) -> None:
    """A refusal here is a lost result; a change is a wrong one."""
    separators = (" , ", " : ") if spaced else (",", ":")
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    found = parse(text.encode())
    assert repr(found) == repr(json.loads(text))


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


SCRAPS = st.sampled_from(
    [
        b"{", b"}", b"[", b"]", b'"', b"\\", b":", b",", b"a", b" ", b"1", b"-", b".", b"e", b"E+9",
        b"\xff", b"\xf0\x9f", b"\\u", b"\\ud800", b"null", b"NaN", b"\x00", b"9" * 20,
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    body=st.one_of(
        st.binary(max_size=60),
        st.lists(SCRAPS, max_size=25).map(b"".join),
        st.lists(SCRAPS, max_size=12).map(lambda parts: b'{"a":' + b"".join(parts) + b"}"),
    )
)
def test_any_bytes_are_an_object_or_a_broken_rule(body: bytes) -> None:
    """A decoder that raises on hostile bytes ends the supervisor, not the tool."""
    found = parse(body)
    assert isinstance(found, dict | BrokenRule)
    if isinstance(found, dict):
        assert repr(json.loads(body, object_pairs_hook=once_each)) == repr(found)


# -- what breaks them ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1E+400", "[1e400]", "9" * 400, "-1e99999"],
)
def test_a_number_that_is_not_finite_is_refused(number: str) -> None:
    """It cannot be written again as JSON: whoever stores the result fails in our place."""
    assert rule(f'{{"a":{number}}}'.encode())


def test_the_scan_itself_knows_what_is_not_finite() -> None:
    """orjson refuses these today; a decoder that lets them by must not be our only guard."""
    for text in (b"1e400", b"-1E+400", b"1" + b"0" * 330 + b".5"):
        assert decode._broken_number(text) == "a number that is not finite"
    for text in (b"1e308", b"-1e-400", b"1.5e3"):
        assert decode._broken_number(text) is None


@pytest.mark.parametrize(
    ("number", "fine"),
    [
        ("9223372036854775807", True),
        ("9223372036854775808", False),
        ("-9223372036854775808", True),
        ("-9223372036854775809", False),
        ("18446744073709551615", False),
        ("18446744073709551616", False),
        ("999999999999999999", True),
        ("-999999999999999999", True),
        ("1000000000000000000", True),
        ("-1000000000000000000", True),
        ("9999999999999999999", False),
        ("-9999999999999999999", False),
        ("10000000000000000000", False),
        ("-10000000000000000000", False),
        ("9" * 100, False),
        ("-" + "9" * 100, False),
    ],
)
def test_integers_are_of_64_bits(number: str, fine: bool) -> None:
    """Beyond, one reader gets a float, the next an error, and a third the true number."""
    for text in (f'{{"a":{number}}}', f'{{"a":[0, {number} ,1]}}', f"[[{number}]]"):
        found = parse(text.encode())
        if fine and text[0] == "{":
            assert found == json.loads(text)
        else:
            assert isinstance(found, BrokenRule)
    if not fine:
        assert rule(f'{{"a":{number}}}'.encode()) == "an integer beyond 64 bits"


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("1e-400", 0.0),
        ("-1e-400", -0.0),
        ("1e308", 1e308),
        ("5e-324", 5e-324),
        ("1E5", 1e5),
        ("-0", 0),
        ("-0.0", -0.0),
        # Fractions are no integers, however many digits they have.
        ("0.9999999999999999999", 1.0),
        ("-0.12345678901234567890123", -0.12345678901234568),
        ("111111111111111111.99999999999999999999", 111111111111111112.0),
        ("1.99999999999999999999e2", 200.0),
        ("12345678901234567890.5", 12345678901234567890.5),
        ("1e0000000000000000000000001", 10.0),
    ],
)
def test_a_finite_number_is_taken_however_it_is_written(number: str, value: float) -> None:
    """A float whose fraction is called an integer beyond 64 bits is a lost result."""
    for text in (f'{{"a":{number}}}', f'{{"a" : [ {number} , {number} ]}}'):
        found = parse(text.encode())
        assert repr(found) == repr(json.loads(text))
    assert repr(found["a"][0] if isinstance(found, dict) else found) == repr(value)


def test_numbers_in_strings_and_keys_are_text() -> None:
    """A log line that holds 1e999 is no broken frame."""
    body = rb'{"1e999": "99999999999999999999", "a\"b": "\"9999999999999999999999e9\""}'
    assert parse(body) == json.loads(body)


def test_a_number_of_absurd_length_is_refused() -> None:
    """Turning digits into a float is paid by the supervisor."""
    assert rule(b'{"a":1.' + b"0" * 400 + b"e1}") == "a number of more than 400 characters"
    assert parse(b'{"a":1.' + b"0" * 390 + b"e1}") == {"a": 10.0}


@pytest.mark.parametrize(
    "body",
    [
        rb'{"a":1,"a":1}',
        rb'{"a":1,"a" :2}',
        b'{"a":1,"a"\t\r\n :2}',
        rb'{"a":1,"\u0061":2}',
        rb'{"\u0061":1,"\u0061":2}',
        rb'{"":1,"":2}',
        rb'{"a\"b":1,"a\"b":2}',
        rb'{"a\\":1,"a\\":2}',
        rb'{"a\\\"":1,"a\\\"":2}',
        rb'{"/":1,"\/":2}',
        rb'{"x":"\\","a":1,"a":2}',
        rb'{"x":"\\\"","a":1,"a":2}',
        rb'{"x":"\"","a":1,"a":2}',
        rb'{"x":[[{"y":{"a":1,"b":2,"a":3}}]]}',
        rb'{"x":[{"a":1},{"a":1,"a":{}}]}',
        rb'{"x":{"a":{"q":1},"a":{"q":1,"r":2}}}',
        '{"é":1,"\\u00e9":2}'.encode(),
        '{"😀":1,"\\ud83d\\ude00":2}'.encode(),
    ],
)
def test_a_key_written_twice_is_refused(body: bytes) -> None:
    """Two readers that keep different ones see two results of one call."""
    json.loads(body)
    assert rule(body) == "an object names the same key twice"


@pytest.mark.parametrize(
    "body",
    [
        rb'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}',
        rb'{"a":"a","b":"a:","c":"\"a\":"}',
        rb'{"a":"\\","b":"\\\\","c":"\\\""}',
        rb'{"a\\":1,"a\"":2,"a\\\"":3,"a":4}',
        rb'{"a\n":1,"an":2}',
        '{"e\u0301":1,"\u00e9":2}'.encode(),
        b"{}",
        b' {"a" : { } } ',
    ],
)
def test_keys_that_only_look_alike_are_two(body: bytes) -> None:
    """The scan must see where a string ends, whatever is escaped in it."""
    assert parse(body) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"a":"\ud800"}',
        rb'{"a":"\udc00\ud800"}',
        rb'{"\ud800":1}',
        b'{"a":"\xff"}',
        b'{"a":"\xc0\xaf"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xf0\x9f\x98"}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":"\x00"}',
        b'{"a":"\n"}',
    ],
)
def test_bad_text_is_refused(body: bytes) -> None:
    """A lone surrogate cannot be written again: not to a log, not to a model."""
    assert rule(body).startswith("not JSON")


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"}", b"{}{}", b"{} x", b"{'a':1}", b'{"a":1,}', b'{"a"}', b"{a:1}",
        b'{"a":01}', b'{"a":.5}', b'{"a":1.}', b'{"a":+1}', b'{"a":0x10}', b"{}//", b"{}\x00",
        b'{"a":tru}', b'{"a":1 2}', b'{"a":"', b'{"a":"\\"}', b"\x00" * 10,
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(body: bytes) -> None:
    """Leniency of one decoder is a difference to the next."""
    assert rule(body).startswith("not JSON")


@pytest.mark.parametrize("body", [b"[]", b"1", b'"a"', b"null", b"true", b"[{}]", b"-0.5"])
def test_a_result_is_an_object(body: bytes) -> None:
    """A frame without names can say nothing."""
    assert rule(body) == "a result must be a JSON object"


def test_depth_is_bounded_exactly() -> None:
    """What is let by here must be safe for every recursive reader behind us."""
    assert isinstance(parse(nested(DEPTH_MAX)), dict)
    assert rule(nested(DEPTH_MAX + 1)) == "nested deeper than 128"
    objects = b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX
    assert isinstance(parse(objects), dict)
    assert rule(b'{"a":' + objects + b"}") == "nested deeper than 128"
    # Depth is what encloses, not how many lie beside each other.
    assert isinstance(parse(b'{"a":[' + b"[]," * 300 + b"{}]}"), dict)


@pytest.mark.parametrize("depth", [1_000, 1_025, 100_000])
def test_nesting_without_end_is_refused_and_not_descended(depth: int) -> None:
    """Recursion into it would overflow the supervisor's own stack."""
    assert rule(nested(depth))
    assert rule(b"[" * depth)
    assert rule(b'{"a":' * depth)


def test_the_number_of_values_is_bounded_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight megabytes of `0,` become a gigabyte of objects in the supervisor."""
    monkeypatch.setattr(decode, "ITEMS_MAX", 10)
    # One brace, one bracket, eight commas.
    assert isinstance(parse(b'{"a":[1,2,3,4,5,6,7,8,9]}'), dict)
    assert rule(b'{"a":[1,2,3,4,5,6,7,8,9,10]}') == "more than 10 values"
    assert rule(b'{"a":[[],[],[],[],[],[]]}') == "more than 10 values"
    assert rule(b'{"a":[{},{},{},{},{},{}]}') == "more than 10 values"


def test_commas_in_text_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of prose is one value."""
    monkeypatch.setattr(decode, "ITEMS_MAX", 10)
    for body in (
        b'{"a":"' + b",[{" * 50 + b'"}',
        b'{"' + b"," * 50 + b'":1}',
        b'{"a":"\\"' + b"," * 50 + b'","b":"\\\\","c":"\\\\\\",,,,,,"}',
    ):
        assert parse(body) == json.loads(body)


def test_more_strings_than_values_can_be_is_refused_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Millions of empty strings took two seconds to count, with every other call waiting."""
    monkeypatch.setattr(decode, "ITEMS_MAX", 10)
    assert rule(b'{"a":[' + b'"",' * 30 + b"1]}") == "more than 10 values"
    # At the bound: ten values, each with its key, all of them text.
    body = b"{" + b",".join(b'"k%d":"v"' % n for n in range(10)) + b"}"
    assert parse(body) == json.loads(body)


MEGABYTES = 8 << 20
HOSTILE = {
    "a fraction without end after 18 digits": (
        b'{"a":' + b"1" * 18 + b"." + b"2" * (MEGABYTES - 40) + b"}"
    ),
    "numbers of 18 digits": b'{"a":[' + (b"1" * 18 + b" ") * (MEGABYTES // 19) + b"," * 600_000,
    "fractions side by side": b'{"a":[' + b"1." * (MEGABYTES // 2),
    "escaped quotes": b'{"a":"' + b'\\"' * (MEGABYTES // 2) + b'"}',
    "backslashes": b'{"a":"' + b"\\\\" * (MEGABYTES // 2) + b'"}',
    "empty strings": b'{"a":[' + b'"",' * (MEGABYTES // 3) + b"1]}",
    "commas": b'{"a":[' + b"1," * (MEGABYTES // 2) + b"1]}",
    "one quote": b'{"a":' + b" " * MEGABYTES + b'"',
    "a key far from its colon": b'{"a"' + b" " * MEGABYTES + b":1}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_judged_in_linear_time(name: str) -> None:
    """The scan holds the interpreter: while it backtracks, no deadline of any call is kept."""
    started = time.process_time()
    parse(HOSTILE[name])
    # Some tenths of a second here; what is not linear took six.
    assert time.process_time() - started < 3


# -- frames -------------------------------------------------------------------------------


def test_nothing_sent_is_no_message() -> None:
    """A process that exits without a result broke no rule of the channel."""
    assert FrameReader(CAP).message() is None
    assert read(b"") is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00", "the frame ended inside its length"),
        (b"\x00" * 7, "the frame ended inside its length"),
        (b"\xff" * 7, "the frame ended inside its length"),
        (header(0), "not JSON"),
        (header(0) + b"x", "1 bytes after the frame"),
        (header(2) + b"{", "the frame ended after 1 of 2 bytes"),
        (header(2), "the frame ended after 0 of 2 bytes"),
        (framed(b"{}") + b"\n", "1 bytes after the frame"),
        (framed(b"{}") * 2, "10 bytes after the frame"),
        (framed(b"{}") + b"x" * 10_000, "10000 bytes after the frame"),
        (header(CAP + 1), f"a frame of {CAP + 1} bytes; at most {CAP}"),
        (header(1 << 63) + b"{}", f"a frame of {1 << 63} bytes; at most {CAP}"),
        (b"\xff" * 8 + b"{}", f"a frame of {(1 << 64) - 1} bytes; at most {CAP}"),
        (b"{}" + b" " * 20, "a frame of "),
    ],
)
def test_a_frame_that_is_not_one_whole_frame_is_refused(data: bytes, words: str) -> None:
    """Half a result, or two, must not pass for one."""
    found = read(data)
    assert isinstance(found, BrokenRule)
    assert found.rule.startswith(words)


@pytest.mark.parametrize(("size", "fine"), [(CAP - 1, True), (CAP, True), (CAP + 1, False)])
def test_case_07_a_frame_may_be_as_large_as_the_cap(size: int, fine: bool) -> None:
    """One byte off is a result lost at exactly the size that somebody set."""
    body = b'{"a":"' + b"x" * (size - 8) + b'"}'
    assert len(body) == size
    assert isinstance(read(framed(body)), dict) is fine


@settings(max_examples=200, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=CAP + 40),
        OBJECTS.map(lambda value: framed(json.dumps(value).encode())),
        st.builds(lambda n, body: header(n) + body, st.integers(0, 80), st.binary(max_size=90)),
    ),
    cuts=st.lists(st.integers(0, CAP + 40), max_size=8),
)
def test_how_the_bytes_were_cut_changes_nothing_and_memory_is_bounded(
    data: bytes, cuts: list[int]
) -> None:
    """A pipe cuts where it likes; a writer without end must not fill the supervisor."""
    whole, cut = FrameReader(CAP), FrameReader(CAP)
    whole.feed(data)
    edges = [0, *sorted(min(place, len(data)) for place in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        cut.feed(data[start:end])
        assert len(cut._data) <= CAP
    assert cut.seen_bytes == len(data)
    assert repr(cut.message()) == repr(whole.message())


def test_a_flood_is_counted_and_not_kept() -> None:
    """The count is what the refusal says; the bytes are nobody's."""
    reader = FrameReader(CAP)
    for _ in range(1_000):
        reader.feed(b"x" * 65_536)
    assert len(reader._data) == CAP
    assert reader.seen_bytes == 65_536_000
