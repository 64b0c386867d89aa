"""Arguments as somebody typed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcell._exits import Refused
from toolcell._given import STDIN, given
from toolcell.builtin import builtin_tools

TOOLS = {tool.name: tool for tool in builtin_tools()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (['{"path": "a b", "limit": 3}'], {"path": "a b", "limit": 3}),
        (["path=a", "limit=3"], {"path": "a", "limit": 3}),
        (["path=a=b"], {"path": "a=b"}),
        (["path="], {"path": ""}),
        (["on=true", "off=null", "many=[1,2]"], {"on": True, "off": None, "many": [1, 2]}),
        (['text="quoted"'], {"text": "quoted"}),
        (["text={not json"], {"text": "{not json"}),
        (["text=NaN"], {"text": "NaN"}),
        (["text=-x"], {"text": "-x"}),
    ],
)
def test_each_form_is_read(words: list[str], expected: dict[str, Any]) -> None:
    """JSON where it parses as JSON, else text: what is documented."""
    assert given(words).arguments(None) == expected


def test_what_a_tool_takes_as_text_stays_as_typed() -> None:
    """`content=42` must write 42, not fail for being a number."""
    words = given(["path=12", "content=true"])
    assert words.arguments(TOOLS["write_file"]) == {"path": "12", "content": "true"}
    assert given(["path=a", "limit=12"]).arguments(TOOLS["read_file"])["limit"] == 12


@pytest.mark.parametrize(
    "words",
    [
        [""],
        ["README.md"],
        ["=x"],
        ["a=1", "a=2"],
        ["{bad"],
        ["[1]"],
        ['"text"'],
        ['{"a": 1, "a": 2}'],
        ['{"a": NaN}'],
        ['{"a": 1e400}'],
        ['{"a": 99999999999999999999}'],
        ['{"a":' * 50_000],
        ["{}", "{}"],
        ["a=1", "{}"],
        ["a=1", STDIN],
        ["@"],
        ["@/"],
        ["@/nonexistent/file"],
        ["@a\0b"],
    ],
)
def test_what_is_none_of_the_forms_is_refused_in_one_line(words: list[str]) -> None:
    """A traceback tells a person nothing, and a guess runs what nobody meant."""
    with pytest.raises(Refused) as refused:
        given(words)
    assert refused.value.code == 2
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_file_is_read_as_json(tmp_path: Path) -> None:
    """What is too long for a command line has to come in some way."""
    file = tmp_path / "arguments.json"
    file.write_text('\ufeff{"path": "ä"}', encoding="utf-8")
    assert given([f"@{file}"]).arguments(None) == {"path": "ä"}


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00\x01", b""])
def test_a_file_that_holds_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    """A binary is a mistake, and never half an argument."""
    file = tmp_path / "binary"
    file.write_bytes(content)
    with pytest.raises(Refused):
        given([f"@{file}"])


def test_an_endless_file_is_refused() -> None:
    """Otherwise a wrong name fills the memory of the supervisor."""
    with pytest.raises(Refused, match="larger than"):
        given(["@/dev/zero"])
