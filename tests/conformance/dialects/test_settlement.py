"""The settlement dialect's program, run whole: what its users would see, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from .programs import transcript


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("settlement")
    return transcript("settlement", folder / "workspace", folder / "state")


def test_registrations_stack_and_closing_one_reveals_the_next(ran):
    """Otherwise a session's own tools outlive it, or take the application's away with them."""
    scopes = ran["scopes"]
    assert {name: scopes[name] for name in list(scopes)[:7]} == {
        "before": "unknown_tool",
        "application": "application, from the application",
        "location": "location, from here",
        "latest": "latest, just for now",
        "within": "within, just for now",
        "revealed": "revealed, from the application",
        "after": "unknown_tool",
    }
    assert scopes["closed"] == [True, True, True, True]


def test_a_request_settles_with_what_it_was_shown(ran):
    """Otherwise a tool that was swapped after the model saw it runs under its name."""
    scopes = ran["scopes"]
    assert scopes["captured"] == "captured, just for now"
    assert scopes["stale"] == "tool_stale"
    assert scopes["definition"] == {
        "name": "hello",
        "description": "Greet: A session's.",
        "input_schema": {
            "type": "object",
            "properties": {"whom": {"type": "string"}},
            "required": ["whom"],
            "additionalProperties": False,
        },
    }


def test_groups_name_their_tools_and_deferred_ones_are_found_by_words(ran):
    """Otherwise two packs' tools collide, or a model is shown hundreds."""
    groups = ran["groups"]
    assert groups["registered"] == [
        "report_table",
        "report_summary",
        "report_log",
        "report_picture",
    ]
    assert groups["shown"] == [], "one group is deferred, the other off"
    assert groups["searched"] == ["report_table", "report_summary"]
    assert groups["called"] == [[{"id": 0, "twice": 0}, {"id": 1, "twice": 2}], True]
    assert groups["disabled"] == "tool_disabled"
    assert (groups["in_order"], groups["too_long"]) == (True, True)


def test_a_large_value_is_summarised_and_read_back_whole(ran):
    """Otherwise a model drowns in a table, or half of one is taken for all of it."""
    found = ran["settlement"]
    rows = [{"id": 0, "twice": 0}, {"id": 1, "twice": 2}]
    assert found["small"] == [rows, '[{"id":0,"twice":0},{"id":1,"twice":2}]', []]
    large = found["large"]
    size = sum(len(f'{{"id":{n},"twice":{2 * n}}},') for n in range(4_000)) + 1
    assert large["retained"] == [["output", size, "application/json"]]
    assert large["content"] == (
        f"[toolcell: the output is an array of 4,000 items, {size:,} bytes of JSON, too large to "
        'show whole; read_retained(handle="HANDLE") reads it]'
    )
    assert large["bytes"] < 50 * 1024
    assert (large["is_whole"], large["read_back"]) == (4_000, True)
    # The handle is no path, and means nothing to another session.
    assert (large["opaque"], large["stranger"]) == (False, "tool_error")
    assert found["left_out"]["json"] == {
        "total_bytes": size,
        "kept_bytes": 0,
        "omitted_bytes": size,
        "total_lines": 1,
        "kept_lines": 0,
        "omitted_lines": 1,
    }


def test_a_long_text_keeps_its_ends_within_the_tools_own_bound(ran):
    """Otherwise the error at the end of a log is what is cut off."""
    found = ran["settlement"]
    text, counts = found["text"], found["left_out"]["text"]
    assert (text["first"], text["last"]) == ("line 0 \N{SNOWMAN}", "line 99 \N{SNOWMAN}")
    assert (text["lines"], text["read_back"]) == (20, True)
    # 19 lines and one that says what is missing: of ten short numbers ten are first.
    kept = 10 * len("line 0 \N{SNOWMAN}\n".encode()) + 9 * len("line 99 \N{SNOWMAN}\n".encode())
    assert counts == {
        "total_bytes": 1190,
        "kept_bytes": kept,
        "omitted_bytes": 1190 - kept,
        "total_lines": 100,
        "kept_lines": 19,
        "omitted_lines": 81,
    }


def test_a_picture_and_words_of_its_own_are_what_a_model_is_shown(ran):
    """Otherwise a model reads base64, or never sees what the tool would tell it."""
    found = ran["settlement"]
    picture = found["picture"]
    assert picture["content"].startswith("8 by 8\n[image/png, ")
    assert picture["parts"] == [["text", None], ["image", "image/png"]]
    assert picture["is_png"] is True
    assert found["worded"] == [
        "3 rows, the last is {'id': 2, 'twice': 4}",
        {"id": 2, "twice": 4},
    ]


def test_an_output_schema_is_enforced_before_anything_is_kept(ran):
    """Otherwise a promised output is a comment, and its change is kept all the same."""
    found = ran["settlement"]
    assert found["wrote"] == [{"written": 3}, ["new.txt"]]
    assert found["lied"] == ["invalid_output", []]
    assert found["error"] is True


def test_a_handler_asks_mid_call_and_what_was_answered_is_on_record(ran):
    """Otherwise a person agrees to a suffix, and not to the files that it stands for."""
    found = ran["midcall"]
    assert found["output"] == {"removed": ["a.tmp"], "kept": ["b.tmp"], "for": ["s-1", "blue"]}
    assert found["changed"] == ["a.tmp"]
    assert found["permissions"] == [
        ["edit", ["a.tmp"], "allowed"],
        ["edit", ["b.tmp"], "denied"],
    ]
    assert found["source"] == {
        "type": "tool",
        "tool": "clean",
        "call_id": "call-1",
        "message_id": "m-7",
        "session_id": "s-1",
        "agent_id": "main",
    }
    assert found["asked"] == ["clean"] * 4, "each call, and what the first asked for meanwhile"
    assert found["nothing"][0] == "tool_error"
    assert "List the files first." in found["nothing"][1]


def test_a_call_is_watched_while_it_runs(ran):
    """Otherwise a long call is silent until its end."""
    found = ran["midcall"]
    assert found["order"] == ["Started", 2, "ToolResult"]
    assert found["text"] == "looking at a.tmp\nlooking at b.tmp\n"
    assert found["last_step"] == [2, 2, "b.tmp"]
    assert found["steps"] == 2, "those that were left out are counted"
    assert (found["answers"], found["ended"]) == ([True, False], True)


def test_a_rule_about_an_action_hides_and_denies_every_tool_that_shares_it(ran):
    """Otherwise whoever may not edit writes, or patches."""
    found = ran["rules"]
    assert found["shared"] == ["edit", "write", "patch", "clean"]
    assert found["shown"] == ["hello"]
    assert found["denied"] == ["denied"] * 3
    assert "this week nothing is changed" in found["text"][0]
    assert found["left"] == "3"


def test_plain_code_has_the_same_registry_and_results(ran):
    """Otherwise whoever has no loop has to write one."""
    assert ran["plain"] == {
        "now": "now, just for now",
        "stale": "tool_stale",
        "events": ["Started", "ToolResult"],
        "many": ["one, from the application", "unknown_tool"],
    }
