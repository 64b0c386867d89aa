"""The end of settling: what a model is shown of a result, and where the rest of it is."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from toolcell import _finishing
from toolcell._finishing import bounds_of
from toolcell._returned import OURS
from toolcell.bounding import Bounds, is_within
from toolcell.calls import ToolCall
from toolcell.content_parts import PART_BYTES_MAX, PARTS_MAX, image_type, parts_of
from toolcell.errors import ToolError
from toolcell.markers import RETURNED, Returned
from toolcell.results import ToolResult
from toolcell.retained import RetainedStore, Retainer
from toolcell.settlement import PYTHON_TOOL, answered, finished, may_spool, settle
from toolcell.tools import CommandRef, HandlerRef, Tool
from toolcell_policies import AccessMode, DangerLevel, Decision, Outcome
from toolcell_sandbox.capture import Capture, Captured
from toolcell_sandbox.outcome import JailOutcome, Receipt, Usage

CALL = ToolCall("t", {}, "c1")
DECISION = Decision(outcome=Outcome.ALLOW, level=0, reasons=(), plan_hash="h")
USAGE = Usage(wall_s=1.0, cpu_s=0.5, peak_memory_bytes=5, memory_from="watch")
PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
JPEG, GIF, WEBP = b"\xff\xd8\xff\xe0", b"GIF89a..", b"RIFF\x04\0\0\0WEBP"
ROWS = [{"id": number, "name": "n" * 50} for number in range(2_000)]


@pytest.fixture
def store(tmp_path: Path) -> RetainedStore:
    return RetainedStore(str(tmp_path / "state"))


@pytest.fixture
def retain(store: RetainedStore) -> Retainer:
    return Retainer(store, "s")


def stream(data: bytes = b"") -> Captured:
    capture = Capture(100_000, 100_000)
    capture.feed(data)
    capture.closed = True
    return capture.captured()


def tool(**known: Any) -> Tool:
    facts: dict[str, Any] = {
        "name": "t",
        "description": "d",
        "access_mode": AccessMode.READONLY,
        "danger_level": DangerLevel.SAFE,
        "schema": {"type": "object"},
        "ref": HandlerRef("m", "f"),
    }
    return Tool(**(facts | known))


PYTHON = tool(ref=HandlerRef(PYTHON_TOOL, "f"), trusted=True)
SHELL = tool(ref=CommandRef("m:f"), trusted=True)


def settled(tool: Tool, value: Any = None, **known: Any) -> ToolResult:
    outcome = JailOutcome(
        failure=None,
        value=value,
        stdout=known.pop("stdout", stream()),
        stderr=stream(),
        usage=USAGE,
        receipt=Receipt(),
        **known,
    )
    found = settle(CALL, tool, outcome, decision=DECISION, repairs=())
    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    return found


def read(store: RetainedStore, result: ToolResult, at: int = 0) -> str:
    return store.read(result.retained[at].handle, 0, 1 << 20, session="s").text


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- text ----------------------------------------------------------------------------------------


async def test_what_fits_is_not_touched(retain: Retainer, store: RetainedStore) -> None:
    """Most results: no file, no note, the same content."""
    before = settled(tool(), "x" * 51_200)
    after = await finished(before, tool(), retain=retain)
    assert after.to_json() == before.to_json()
    assert store.entries() == []


async def test_long_text_keeps_head_and_tail_and_its_whole_is_read_back(
    retain: Retainer, store: RetainedStore
) -> None:
    """A model that is not told what it did not see acts as if it had seen all."""
    text = "".join(f"line {number}\n" for number in range(9_000))
    after = await finished(settled(tool(), text), tool(), retain=retain)
    assert is_within(after.content, Bounds())
    assert after.content.startswith("line 0\n")
    assert after.content.endswith("line 8999\n")
    (kept,) = after.retained
    assert f'read_retained(handle="{kept.handle}")' in after.content
    assert (kept.what, read(store, after)) == ("content", text)
    # The program gets what it asked for.
    assert after.output == text
    assert after.truncation is not None
    assert after.truncation.total_bytes == len(text)


async def test_a_tools_own_bounds_count(retain: Retainer) -> None:
    """A tool whose author knows better, in either direction."""

    less, more = tool(content_lines=10), tool(content_bytes=100_000)
    assert bounds_of(less) == Bounds(lines=10)
    assert bounds_of(None) == Bounds()
    short = await finished(settled(less, "a\n" * 50), less, retain=retain)
    assert short.content.count("\n") <= 10
    long = await finished(settled(more, "a" * 90_000), more, retain=retain)
    assert long.retained == ()


async def test_a_failures_streams_are_bounded_too(retain: Retainer, store: RetainedStore) -> None:
    """A build that failed says most, and its error stands at the end."""
    from toolcell.results import Timeout

    failure = Timeout(message="stopped after 1 s", limit_s=1.0, elapsed_s=1.0)
    outcome = JailOutcome(
        failure=failure,
        stdout=stream(b"o\n" * 9_000),
        stderr=stream(b"e\n" * 100),
        usage=USAGE,
        receipt=Receipt(),
    )
    before = settle(CALL, SHELL, outcome, decision=DECISION, repairs=())
    after = await finished(before, SHELL, retain=retain)
    assert is_within(after.content, Bounds())
    assert "error: timeout: stopped after 1 s" in after.content
    assert after.error is failure
    assert read(store, after) == before.content


# -- structured values ---------------------------------------------------------------------------


async def test_a_structured_output_is_never_cut_in_the_middle(
    retain: Retainer, store: RetainedStore
) -> None:
    """Half of a JSON array parses as nothing, or reads as the whole of it (opencode 35661)."""
    after = await finished(settled(tool(), ROWS), tool(), retain=retain)
    (kept,) = after.retained
    assert (kept.what, kept.media_type) == ("output", "application/json")
    assert json.loads(read(store, after)) == ROWS == after.output
    lines = after.content.splitlines()
    assert "an array of 2,000 items" in lines[0]
    assert kept.handle in lines[0]
    assert [json.loads(line) for line in lines[2:]] == ROWS[:10]
    assert after.truncation is not None
    assert after.truncation.omitted_bytes == kept.size_bytes


async def test_what_was_added_to_a_structured_output_stays(retain: Retainer) -> None:
    """A hint, a nudge, or what was not kept, is for the model to read."""
    before = settled(tool(), {"rows": ROWS})
    before = dataclasses.replace(before, content=f"{before.content}\n[toolcell: a nudge]")
    after = await finished(before, tool(), retain=retain)
    assert after.content.splitlines()[-1] == "[toolcell: a nudge]"
    assert len(after.retained) == 1


async def test_the_value_of_python_is_a_structured_value_too(
    retain: Retainer, store: RetainedStore
) -> None:
    """It stands in the middle of what the code printed."""
    before = settled(PYTHON, {"value": ROWS}, stdout=stream(b"printed\n"))
    after = await finished(before, PYTHON, retain=retain)
    assert after.content.startswith("printed\n[toolcell: the output is an array of 2,000 items")
    assert json.loads(read(store, after)) == ROWS
    assert after.output["value"] == ROWS


async def test_a_structured_value_beside_long_text_is_summarised_and_the_text_cut(
    retain: Retainer, store: RetainedStore
) -> None:
    """Both are too long: neither is lost, neither is cut through."""
    before = settled(PYTHON, {"value": ROWS}, stdout=stream(b"p\n" * 5_000))
    after = await finished(before, PYTHON, retain=retain)
    assert [kept.what for kept in after.retained] == ["output", "content"]
    assert is_within(after.content, Bounds())
    assert json.loads(read(store, after)) == ROWS
    assert read(store, after, 1).startswith("p\np\n")


async def test_a_small_value_beside_long_text_is_text(retain: Retainer) -> None:
    """A summary of two numbers would be longer than they are."""
    before = settled(PYTHON, {"value": [1, 2]}, stdout=stream(b"p\n" * 5_000))
    after = await finished(before, PYTHON, retain=retain)
    assert after.content.endswith("\n[1,2]")
    assert [kept.what for kept in after.retained] == ["content"]


async def test_content_of_the_handlers_own_is_text(retain: Retainer) -> None:
    """Its words are not its output, and a summary of the output would not be its words."""
    value = {RETURNED: Returned(ROWS, content="w\n" * 5_000).as_json()[RETURNED]}
    after = await finished(settled(tool(), value), tool(), retain=retain)
    assert [kept.what for kept in after.retained] == ["content"]
    assert after.content.startswith("w\nw\n")


async def test_what_cannot_be_retained_is_said_and_the_result_stands(tmp_path: Path) -> None:
    """A full disk must not lose the result, nor be silent about what it does lose."""
    retain = Retainer(RetainedStore(str(tmp_path / "state"), cap_bytes=10), "s")
    after = await finished(settled(tool(), "x\n" * 9_000), tool(), retain=retain)
    assert after.success
    assert after.retained == ()
    assert "it could not be retained and is gone: File too large" in after.content
    assert after.metadata["unretained"] == "File too large"
    assert is_within(after.content, Bounds())
    assert after.output == "x\n" * 9_000


# -- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (b"GIF87a..", "image/gif"),
        (WEBP, "image/webp"),
        (b"RIFF\x04\0\0\0WAVE", None),
        (b"\x89PNG\r\n", None),
        (b"GIF88a", None),
        (b"<svg/>", None),
        (b"", None),
    ],
)
def test_an_image_is_known_by_its_first_bytes(data: bytes, mime_type: str | None) -> None:
    """A provider refuses the whole request for an image that is none."""
    assert image_type(data) == mime_type
    part = settled(tool(), {"base64": b64(data)}).parts[0]
    found = ("image", mime_type) if mime_type else ("binary", "application/octet-stream")
    assert (part["type"], part["mime_type"], base64.b64decode(part["data"])) == (*found, data)


def test_bytes_are_a_part_and_words_not_base64(retain: Retainer) -> None:
    """Base64 in `content` is tokens that no model reads."""
    found = settled(tool(), {"base64": b64(PNG)})
    assert found.content == "[image/png, 14 bytes]"
    assert found.output == {"base64": b64(PNG)}


@pytest.mark.parametrize("key", ["mime_type", "mimeType"])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_marked_parts_are_parts_in_order(key: str, as_bytes: bool) -> None:
    """Text and pictures as their author wrote them, in either spelling."""
    data = {"base64": b64(PNG)} if as_bytes else b64(PNG)
    value = [
        {"type": "text", "text": "before"},
        {"type": "image", key: "image/png", "data": data},
        {"type": "text", "text": "after"},
    ]
    found = settled(tool(), value)
    assert found.content == "before\n[image/png, 14 bytes]\nafter"
    assert [part["type"] for part in found.parts] == ["image"]


@pytest.mark.parametrize(
    "value",
    [
        {"type": "image", "mime_type": "image/jpeg", "data": b64(PNG)},
        {"type": "image", "mime_type": "image/svg+xml", "data": b64(b"<svg/>")},
        {"type": "image", "mime_type": "image/png", "data": "no base64"},
        {"type": "image", "mime_type": "image/png", "data": 5},
        {"type": "image", "mime_type": "image/png"},
        {"type": "image", "mime_type": "image/png", "data": b64(PNG), "more": 1},
        {"type": "image", "mime_type": "image/png", "data": {"base64": b64(PNG), "x": 1}},
        {"type": "text", "text": "alone"},
        {"type": "text", "text": 5},
        {"base64": 5},
        {"base64": "not base64!"},
        [{"type": "image", "mime_type": "image/png", "data": b64(PNG)}, 1],
        [],
        "text",
    ],
)
def test_what_only_looks_like_parts_is_an_ordinary_value(value: Any) -> None:
    """A tool's domain value must not vanish because a key of it is called type."""
    found = settled(tool(), value)
    assert found.parts == ()
    assert found.content == (
        value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    )


async def test_a_part_that_is_too_large_is_retained(
    retain: Retainer, store: RetainedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider refuses it, and with it everything else of the request."""
    assert PART_BYTES_MAX == 5 << 20
    monkeypatch.setattr(_finishing, "PART_BYTES_MAX", 1_001)
    fits = PNG.ljust(1_001, b"\0")
    over = fits + b"\0"
    before = settled(tool(), [{"base64": b64(fits)}, {"base64": b64(over)}])
    after = await finished(before, tool(), retain=retain)
    assert [len(part["data"]) for part in after.parts] == [len(b64(fits))]
    (kept,) = after.retained
    assert (kept.what, kept.media_type, kept.size_bytes) == ("part", "image/png", len(over))
    assert after.content.splitlines()[-1] == (
        f'[toolcell: a part is not shown: read_retained(handle="{kept.handle}") reads it]'
    )
    page = store.read(kept.handle, 0, 8, session="s")
    assert base64.b64decode(page.text) == over[:8]


async def test_parts_have_a_largest_number(retain: Retainer) -> None:
    """A thousand small images are as much as a large one."""
    before = settled(tool(), [{"base64": b64(PNG)}] * (PARTS_MAX + 2))
    after = await finished(before, tool(), retain=retain)
    assert (len(after.parts), len(after.retained)) == (PARTS_MAX, 2)


async def test_parts_without_number_are_retained_as_one(
    retain: Retainer, store: RetainedStore
) -> None:
    """Otherwise 250,000 empty parts are as many files, each made durable, that no cancel ends."""
    more = PARTS_MAX + _finishing.PARTS_RETAINED_MAX
    before = settled(tool(), [{"base64": ""}] * (more + 5_000))
    after = await finished(before, tool(), retain=retain)
    parts = [one for one in after.retained if one.what == "part"]
    assert len(parts) == _finishing.PARTS_RETAINED_MAX + 1
    kept = parts[-1]
    assert kept.media_type == "application/json"
    page = store.read(kept.handle, 0, 1 << 20, session="s")
    assert len(json.loads(page.text)) == 5_000
    assert f'5,000 parts are not shown: read_retained(handle="{kept.handle}")' in after.content


def test_a_handler_says_nothing_under_our_own_names() -> None:
    """Otherwise a tool says of itself that a person was asked, or that all of it was kept."""
    forged = dict.fromkeys(OURS, "forged")
    told = Returned(1, {**forged, "mine": 2}).as_json()
    assert settled(tool(), told).metadata == {"mine": 2, "handler": forged}
    assert settled(tool(), Returned(1, {"mine": 2}).as_json()).metadata == {"mine": 2}


# -- the program's own words ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "content", "kinds"),
    [
        ("three rows", "three rows", []),
        ("", "", []),
        ([{"type": "text", "text": "a"}, "b"], "a\nb", []),
        (["look:", PNG], "look:\n[image/png, 14 bytes]", ["image"]),
        (PNG, "[image/png, 14 bytes]", ["image"]),
        (bytearray(b"?"), "[application/octet-stream, 1 bytes]", ["binary"]),
    ],
)
def test_the_program_says_what_the_model_sees(shown: Any, content: str, kinds: list[str]) -> None:
    """The value is the program's; how it reads is up to the program too."""
    seen = []

    def to_model_output(value: Any) -> object:
        seen.append(value)
        return shown

    found = settled(tool(to_model_output=to_model_output), {"rows": 3})
    assert seen == [{"rows": 3}]
    assert (found.content, [part["type"] for part in found.parts]) == (content, kinds)
    assert found.output == {"rows": 3}
    assert "model_output_error" not in found.metadata


def raising(value: Any) -> object:
    raise KeyError("rows" + "x" * 1_000)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (raising, "KeyError: 'rowsx"),
        (lambda value: 5, "TypeError: it returned int, neither text nor content parts"),
        (lambda value: [], "TypeError: it returned list"),
        (lambda value: [{"rows": 1}], "TypeError: it returned list"),
    ],
)
def test_a_program_that_fails_at_it_loses_no_result(function: Any, problem: str) -> None:
    """The call was made and its effects are kept: that has to be told."""
    found = settled(tool(to_model_output=function), {"rows": 3})
    assert found.success
    assert found.content == '{"rows":3}'
    assert found.metadata["model_output_error"].startswith(problem)
    assert len(found.metadata["model_output_error"]) <= 500


def test_a_coroutine_is_said_to_be_one() -> None:
    """Its words would be `<coroutine object ...>`."""

    async def later(value: Any) -> str:
        return "late"

    found = settled(tool(to_model_output=lambda value: later(value)), "plain")
    assert found.content == "plain"
    assert "plain function" in found.metadata["model_output_error"]


# -- a handler's own words -----------------------------------------------------------------------


def test_summary_and_terminate_are_a_tools_words_checked_and_capped() -> None:
    """They are an untrusted tool's: text of a megabyte, or a truth that is none."""
    value = {RETURNED: {"output": 1, "summary": "s" * 5_000, "terminate": True}}
    found = settled(tool(), value)
    assert (len(found.summary), found.terminate, found.output) == (2_000, True, 1)
    for other in ({"summary": 5, "terminate": 1}, {"summary": None, "terminate": "yes"}, {}):
        found = settled(tool(), {RETURNED: {"output": 1, "files_read": 5, **other}})
        assert (found.summary, found.terminate) == ("", False)


@pytest.mark.parametrize("value", [{RETURNED: 5}, {RETURNED: {}, "more": 1}, [RETURNED], RETURNED])
def test_what_is_no_returned_is_the_output(value: Any) -> None:
    """Only the exact shape is taken apart."""
    assert settled(tool(), value).output == value


def test_which_tools_may_send_a_result_unseen() -> None:
    """What a built-in tool lists is looked at for names that are kept back, in the supervisor."""
    assert [may_spool(one) for one in (tool(), PYTHON, SHELL, tool(trusted=True))] == [
        True, True, True, False,
    ]  # fmt: skip


# -- answered here -------------------------------------------------------------------------------


def test_an_answer_of_the_supervisors_claims_no_jail() -> None:
    """A receipt that lists what was never built is worth nothing anywhere else."""
    found = answered(CALL, tool(), Returned({"a": 1}, {"m": 2}, "shown"), decision=DECISION)
    assert (found.content, found.output, found.decision) == ("shown", {"a": 1}, DECISION)
    assert found.metadata == {"m": 2, "answered_by": "supervisor"}
    assert found.receipt == Receipt()
    assert (found.usage, found.stdout, found.effects) == (None, None, None)
    plain = answered(CALL, tool(), [1, 2], decision=DECISION)
    assert (plain.content, plain.output) == ("[1,2]", [1, 2])


def test_an_answer_can_be_a_failure() -> None:
    """A handle of another session's, say."""
    error = ToolError("no such handle", hint="look again", retryable="yes")
    found = answered(CALL, tool(), error, decision=DECISION)
    assert found.error is not None
    assert (found.error.kind, found.error.retryable, found.success) == ("tool_error", "yes", False)
    assert found.content == "error: tool_error: no such handle\nhint: look again"
    assert found.metadata == {"answered_by": "supervisor"}


def test_a_list_of_text_parts_is_parts_only_where_it_was_meant_so() -> None:
    """A search's rows may well be texts of a type."""
    rows = [{"type": "text", "text": "a"}]
    assert parts_of(rows) is None
    assert parts_of(rows, text_alone=True) is not None
