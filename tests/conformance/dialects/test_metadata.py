"""The metadata dialect's program, run whole: what its users would see, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from .programs import transcript

FREE = ["surroundings", "alone", "throw", "append", "wait_for_ever", "publish", "grep", "take_note"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("metadata")
    return transcript("metadata", folder / "texts", folder / "state")


def test_tools_are_filtered_by_what_they_cost(ran):
    """Otherwise an agent on a budget is shown what it cannot afford, or the bill is incomplete."""
    costs = ran["costs"]
    on = [name for name in FREE if name != "append"]
    assert costs["weights"] == [0.0, 1.0, 2.0, 3.0]
    assert costs["upto"]["free"] == on
    assert costs["upto"]["low"] == costs["upto"]["medium"] == ["count_words", *on]
    assert set(costs["upto"]["high"]) - set(costs["upto"]["low"]) == {"embed"}
    rest = {"low": ["count_words"], "medium": [], "high": ["embed"]}
    assert costs["summary"] == {"free": on, **rest}
    assert costs["summary_of_all"] == {"free": FREE, **rest}
    assert costs["low_of_all"] == 9


def test_tools_are_switched_on_and_off_by_name_and_alias(ran):
    """Otherwise what was switched off is called all the same, or nobody learns that it was."""
    states = ran["states"]
    assert states["alias"] == "count_words"
    assert states["changed"] == [True, False, False], "the second time changes nothing"
    assert states["enabled"] == [False, True, False]
    assert ("count_words" in states["listed"], len(states["listed"]), states["all"]) == (
        False,
        9,
        10,
    )
    assert states["states"] == {"count_words": False}
    assert states["unknown"] == ["later"]
    assert states["after"] == {"grep": False, "count_words": True}
    assert states["back"] == [True, False]


def test_schemas_come_in_each_providers_shape_and_at_each_level(ran):
    """Otherwise each user writes an exporter, and a stub's calls are refused."""
    schemas = ran["schemas"]
    plain = schemas["json-schema"]
    assert plain["description"] == "Count the words of a file. Fast and free of surprises."
    assert plain["input_schema"]["required"] == ["path"]
    assert plain["input_schema"]["additionalProperties"] is False
    # An optional argument is a plain one that is not required.
    top = {"type": "integer", "description": "only the first so many words"}
    assert plain["input_schema"]["properties"]["top"] == top
    assert plain["output_schema"]["required"] == ["words", "longest"]
    assert schemas["mcp"]["inputSchema"] == plain["input_schema"]
    assert schemas["mcp"]["annotations"]["readOnlyHint"] is True
    assert schemas["mcp"]["annotations"]["idempotentHint"] is True
    function = schemas["openai"]["function"]
    assert (schemas["openai"]["type"], function["parameters"]) == (
        "function",
        plain["input_schema"],
    )
    assert sorted(schemas["anthropic"]) == ["description", "input_schema", "name"]
    for dialect, (full, compact, stub) in schemas["sizes"].items():
        assert full > compact > stub, dialect
    assert schemas["json-schema stub"] == {
        "name": "count_words",
        "description": "Count the words of a file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    }
    assert schemas["stub_is_enough"] is True
    compact = schemas["grep"]
    assert compact["description"] == "Find lines that hold a text."
    assert compact["input_schema"]["properties"]["paths"]["items"] == {"type": "string"}


def test_what_is_wrong_with_arguments_is_said_in_the_known_words(ran):
    """Otherwise code that reads `invalid_params` reads nothing."""
    found = ran["validation"]
    assert found["plain"] == [True, False, False]
    assert (found["valid"], found["good"]) == (False, True)
    assert found["invalid_params"] == {
        "limit": "type: expected integer",
        "paths[1]": "type: expected string",
        "case": 'enum: expected one of "exact", "any"',
        "colour": "unknown",
        "text": "missing",
    }
    assert found["errors"][0] == "parameter limit: expected integer, given string"
    assert len(found["errors"]) == 5


def test_a_request_chooses_its_tools(ran):
    """Otherwise a model gets all of them, or lacks the one it was told to use."""
    chosen = ran["selection"]
    assert chosen["by_words"][0] == "grep"
    assert (chosen["by_stage"], chosen["by_task"]) == (["append"], ["count_words"])
    assert chosen["forced"] == ["publish"], "by its mandatory keyword, beyond the limit"
    assert chosen["contextual"] == [False, True]
    assert (chosen["affordable"], chosen["mandatory"]) == (False, ["count_words"])


def test_the_index_says_what_tools_say_and_generates_the_rest(ran):
    """Otherwise a tool without metadata is never found, or one claims to be safer than it is."""
    found = ran["metadata"]
    assert found["reindexed"] == [True, True, False, False]
    assert found["same"] is True
    assert found["words"] == {
        "name": "count_words",
        "category": "text",
        "priority": 2,
        "stages": ["survey", "report"],
        "progress_params": ["path"],
        "use_cases": ["How long is a text?"],
        "examples": ['count_words(path="a.txt")'],
        "priority_hints": ["cheaper than reading the whole"],
    }
    assert found["embed"] == ["numbers", "high", True]
    note = found["note"]
    assert (note["is_explicit"], note["access"]) == (False, ["readonly", "safe"])
    assert {"note", "reminder"} <= set(note["keywords"])
    assert found["by_category"] == ["count_words"]
    assert found["by_keyword"] == ["grep"]
    assert found["matching"] == ["count_words", "grep", "embed"]
    statistics = found["statistics"]
    assert statistics.pop("total_keywords") > 8
    assert statistics == {
        "total_tools": 10,
        "tools_with_explicit_metadata": 9,
        "tools_with_auto_metadata": 1,
        "total_categories": 5,
        "categories": ["chance", "general", "numbers", "read", "text"],
    }
    assert found["nobody"] is None
    assert found["defaults"] == ["free", False, None]
    assert ran["words"] == [1, 5, "WRITE"]


def test_calls_end_in_the_words_of_the_dialect(ran):
    """Otherwise each handler, and each reader of a result, has to be rewritten."""
    calls = ran["calls"]
    lines = ["a.txt: the quick brown fox", "b.txt: a fox and a fox"]
    assert calls["grep"] == [True, lines, None, {"session": "s1", "found": 2}]
    assert calls["nothing"] == [False, None, "no line has 'cat'", "cat"]
    # By an alias; an optional argument that is null is one that is not given.
    assert calls["counted"] == ["count_words", True, {"words": 7, "longest": "quick"}, None]
    assert calls["lied"] == ["invalid_output", None]
    assert calls["wrong"] == ["invalid_arguments", ["honest", "path", "top"]]
    assert calls["noted"] == [True, "s1 remembers the milk", None]
    assert calls["empty"] == [False, None, "nothing to remember"]
    assert calls["around"] == [True, {"open_files": 64, "loopback": True}, None]
    assert calls["late"] == "timeout"


def test_paths_are_judged_before_a_handler_runs(ran):
    """Otherwise a tool that counts words counts those of a secret."""
    assert ran["calls"]["outside"] == ["denied", "denied"]


def test_hooks_stand_before_and_after_each_call(ran):
    """Otherwise a guard guards nothing, or what it changed is not what runs."""
    hooks = ran["hooks"]
    assert hooks["seen"] == [
        ["count_words", {"path": "/elsewhere/b.txt"}],
        ["count_words", True],
        ["count_words", {"path": "a.txt", "top": 7}],
        ["count_words", True],
    ]
    assert hooks["replaced"] == [True, {"words": 5, "longest": "fox"}, None]
    assert hooks["failed"] == ["hook_failed", "short", False]
    assert hooks["hook"] == ["here", True, "stays in the workspace", "short"]
    assert hooks["removed"] is True


def test_a_mode_is_a_ceiling(ran):
    """Otherwise an agent that was to look and plan changes things."""
    assert ran["modes"] == {
        "explore": {"hidden": [], "append": None, "kept": False},
        "plan": {"hidden": ["append", "publish"], "append": "not_admitted", "kept": False},
        "build": {"hidden": [], "append": None, "kept": True},
    }


def test_what_the_machine_cannot_do_is_neither_shown_nor_called(ran):
    """Otherwise a model spends its turns on what cannot work."""
    found = ran["availability"]
    assert found["before"] == [False, None, "tool_unavailable"]
    assert found["now"] == [True, [3, 2], None]
    assert found["explored"] == "not_admitted", "too dear to explore with"


def test_calls_of_a_turn_run_together_unless_they_conflict(ran):
    """Otherwise readers wait for each other, or two writers of one file lose a line."""
    found = ran["together"]
    assert found["ok"] == [True] * 4
    assert found["met"] == 2, "each waited for the other, which ran meanwhile"
    assert (found["in_turn"], found["log"]) == (True, "1\n2\n")
    assert found["conflicts"] == [True, False, False]


def test_an_idempotent_call_is_answered_again_until_something_changed(ran):
    """Otherwise it is paid for twice; or answered from before a change."""
    assert ran["cached"] == {"again": True, "from": True, "other": False, "later": False}


def test_a_decision_says_why_and_a_person_decides(ran):
    """Otherwise danger is a word, and a budget a wish."""
    found = ran["decisions"]
    assert found["outcome"] == ["ask", 3]
    assert found["reasons"] == ["access_execute", "danger_critical"]
    assert found["asked"] == [["publish", 3, "before"]]
    assert found["rejected"] == ["approval_rejected", "a person said no: not today"]
    assert found["dear"] == "not_admitted"
    assert found["alone"] == "PermissionError", "its own network, not the executor's"
