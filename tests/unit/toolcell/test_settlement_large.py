"""What the jail finds out about a large result: every rule holds, and only facts come back."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest

from toolcell._large_check import METADATA_BYTES_MAX, checked
from toolcell.markers import RETURNED, Returned
from toolcell_sandbox import decode

REST = 'read_retained(handle="ret_x") reads it'
ROWS = {"type": "array", "items": {"type": "integer"}}


def looked_at(
    message: object, *, schema: dict[str, Any] | None = None, size: int = 51_200
) -> tuple[dict[str, Any], bytes]:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    target = io.BytesIO()
    found = checked(io.BytesIO(body), target, schema=schema, lines=2_000, size=size, rest=REST)
    return json.loads(json.dumps(found)), target.getvalue()


def value(given: object, **known: Any) -> tuple[dict[str, Any], bytes]:
    return looked_at({"ok": True, "value": given}, **known)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b'{"ok":true,"value":1', "not JSON"),
        (b'{"ok":true,"value":1e400}', "infinity"),
        (b'{"ok":true,"value":9223372036854775808}', "an integer beyond 64 bits"),
        (b'{"ok":true,"value":{"a":1,"a":2}}', "the same key twice"),
        (b'{"ok":true,"value":"\\ud800"}', "not JSON"),
        (b'{"ok":true,"value":' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper than 128"),
        (b"[1]", "must be a JSON object"),
        (b'{"ok":true}', "a large frame that is no value"),
        (b'{"ok":false,"what":"tool_error","message":"x"}', "a large frame that is no value"),
        (b'{"ok":1,"value":1}', "a large frame that is no value"),
    ],
)
def test_every_rule_of_the_channel_holds_for_a_large_result(body: bytes, rule: str) -> None:
    """A rule that size switches off is a rule that is got round by size."""
    found, written = looked_at(body)
    assert found.keys() == {"rule"}
    assert rule in found["rule"]
    assert written == b""


def test_the_number_of_values_is_no_rule_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller allowed the bytes, and this process has a memory limit of its own."""
    monkeypatch.setattr(decode, "ITEMS_MAX", 10)
    rows = list(range(600))
    found, written = value(rows)
    assert json.loads(written) == rows
    assert found["size_bytes"] == len(written)


def test_a_structured_output_is_written_whole_and_summarised() -> None:
    """What is retained is the output, without the frame around it."""
    found, written = value({"rows": list(range(20_000)), "é": 1})
    assert json.loads(written) == {"rows": list(range(20_000)), "é": 1}
    assert found["media_type"] == "application/json"
    assert found["content"].splitlines()[:2] == [
        f"[toolcell: the output is an object of 2 keys, {len(written):,} bytes of JSON, too large "
        f"to show whole; {REST}]",
        '- "rows": an array of 20,000 items',
    ]
    assert (
        found["truncation"]["omitted_bytes"] == found["truncation"]["total_bytes"] == len(written)
    )


def test_text_is_written_as_it_is_and_shown_by_head_and_tail() -> None:
    """Pages of text are read as text, not as a JSON string of it."""
    text = "é\n" * 40_000
    found, written = value(text)
    assert written == text.encode()
    assert found["media_type"] == "text/plain"
    assert REST in found["content"]
    assert found["truncation"]["total_bytes"] == len(written)
    small, _ = value("short")
    assert (small["content"], small["truncation"]) == ("short", None)


def test_bytes_are_written_as_bytes() -> None:
    """An image is an image, whatever its size."""
    data = b"\x89PNG\r\n\x1a\n" + bytes(90_000)
    found, written = value({"base64": base64.b64encode(data).decode()})
    assert written == data
    assert found["media_type"] == "image/png"
    assert found["content"] == f"[image/png, 90,008 bytes]\n[toolcell: {REST}]"
    two, written = value([{"base64": "AAAA"}, {"base64": "AAAA"}])
    assert two["media_type"] == "application/json"
    assert json.loads(written) == [{"base64": "AAAA"}, {"base64": "AAAA"}]


def test_a_handlers_own_words_are_shown_and_say_where_the_rest_is() -> None:
    """They are what it wants the model to see; the output behind them is not silently dropped."""
    said = Returned([1] * 30_000, {"m": 1}, "thirty thousand", ["a"]).as_json()
    said[RETURNED]["summary"], said[RETURNED]["terminate"] = "ones", True
    found, written = value(said)
    assert len(json.loads(written)) == 30_000
    assert found["content"] == (
        f"thirty thousand\n[toolcell: the whole output, {len(written):,} bytes, is kept; {REST}]"
    )
    assert (found["metadata"], found["files_read"]) == ({"m": 1}, ["a"])
    assert (found["summary"], found["terminate"]) == ("ones", True)


def test_content_that_is_the_output_is_shown_once() -> None:
    """A result of the text dialect has its text in both."""
    text = "w" * 90_000
    found, written = value(Returned(text, content=text).as_json())
    assert written == text.encode()
    assert len(found["content"]) <= 51_200
    assert found["truncation"]["total_bytes"] == 90_000


def test_large_metadata_is_dropped_with_a_word() -> None:
    """It would be large in the supervisor's memory, and nobody bounds metadata."""
    found, _ = value(Returned(1, {"m": "x" * METADATA_BYTES_MAX}).as_json())
    assert found["metadata"] == {
        "metadata_dropped": f"{METADATA_BYTES_MAX + 8} bytes; at most {METADATA_BYTES_MAX} beside "
        "a large output"
    }


def test_the_output_schema_holds_for_a_large_output_too() -> None:
    """A program that was promised integers reads them back without looking."""
    good, _ = value([1] * 30_000, schema=ROWS)
    assert good["media_type"] == "application/json"
    found, written = value([1] * 30_000 + ["x" * 3_000], schema=ROWS)
    assert found.keys() == {"problems"}
    assert found["problems"][0]["path"] == "[30000]"
    assert all(len(text) <= 500 for text in found["problems"][0].values())
    assert written == b""
