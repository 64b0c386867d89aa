"""What a person is shown before they answer: nothing hidden, nothing that acts."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell._visible import shown_call, shown_value, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain text, as it is\\n", "plain text, as it is\\n"),
        ("é 語 😀", "é 語 😀"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x00\x07\x7f\x9b", "\\x00\\x07\\x7f\\x9b"),
        ("a\u00adb", "a\\xadb"),
        # Text that is read backwards, and text that is not seen at all.
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\u200bb\ufeffc", "a\\u200bb\\ufeffc"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\U000e0041", "\\U000e0041"),
        ("\ue000\U000f0000", "\\ue000\\U000f0000"),
        ("\ud800", "\\ud800"),
        ("\u0378", "\\u0378"),
    ],
)
def test_what_is_hidden_or_acts_is_shown_as_an_escape(text: str, shown: str) -> None:
    """A person who approves `rm -rf` behind a carriage return has approved something else."""
    assert visible(text) == shown


def test_only_what_is_named_stays() -> None:
    """A newline may stay where lines are shown as lines, and nothing with it."""
    assert visible("a\nb\r\x1b", keep="\n") == "a\nb\\r\\x1b"


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(), max_size=20))
def test_no_character_that_acts_is_left(text: str) -> None:
    """One that is missed is the one that somebody uses."""
    shown = visible(text)
    assert all(unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)
    assert visible(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x", '"x"'),
        ("", '""'),
        (" x ", '" x "'),
        ('a"b\\n', '"a\\"b\\\\n"'),
        ("tab\t", '"tab\\t"'),
        ("\x1b[0m", '"\\u001b[0m"'),
        ("a\u202eb", '"a\\u202eb"'),
        ("é", '"é"'),
        (1, "1"),
        (None, "null"),
        (True, "true"),
        (["a", {"b": "c\nd"}], '["a", {"b": "c\\nd"}]'),
        ("one\ntwo\r\n", '    | one\n    | "two\\r"\n    | '),
        ("\n", "    | \n    | "),
    ],
)
def test_a_value_is_shown_as_it_is(value: object, shown: str) -> None:
    """Quotes tell where text ends: `" x "` and `"x"` are two arguments."""
    assert shown_value(value) == shown


def test_a_call_is_shown_whole() -> None:
    """What is left out of the question is not what was agreed to."""
    assert shown_call("shell\x1b", {"command": "a\nb", "cwd": ".", "x\u202e": [1]}) == (
        'shell\\x1b\n  command:\n    | a\n    | b\n  cwd: "."\n  x\\u202e: [1]'
    )
    assert shown_call("noop", {}) == "noop"


@settings(max_examples=80, deadline=None)
@given(
    arguments=st.dictionaries(
        st.text(max_size=5),
        st.text(max_size=12) | st.integers() | st.lists(st.text(max_size=4), max_size=3),
        max_size=4,
    )
)
def test_no_argument_can_pass_for_another_line(arguments: dict[str, object]) -> None:
    """A value that could write `  cwd: "/"` on a line of its own would answer for another."""
    lines = shown_call("tool", arguments).split("\n")
    expected = 1
    for value in arguments.values():
        expected += 1
        if isinstance(value, str) and "\n" in value:
            expected += value.count("\n") + 1
    assert len(lines) == expected
    heads = [line for line in lines[1:] if not line.startswith("    | ")]
    assert len(heads) == len(arguments)
    for head, (name, value) in zip(heads, arguments.items(), strict=True):
        assert head.startswith(f"  {visible(name)}:")
        if not (isinstance(value, str) and "\n" in value):
            assert head.endswith(visible(json.dumps(value, ensure_ascii=False)))
