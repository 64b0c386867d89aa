"""The phase dialect's program, run whole: what its users would see, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from .programs import transcript


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("phases")
    return transcript("phases", folder / "checkout", folder / "state")


def table(calls: list[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(call[field] for field in fields) for call in calls]


def test_each_phase_offers_what_it_admits_and_an_edit_begins_the_editing(ran):
    """Otherwise a model sees tools that it may not call, or may call what it is not shown."""
    assert ran["edit"]["offered"] == {
        "investigating": ["read", "replace"],
        "editing": ["read", "replace", "publish"],
        "verifying": ["read", "check"],
    }
    # What asks to leave an investigation is of use in one only.
    assert ran["investigate"]["offered"]["investigating"] == ["read", "replace", "ask_for_edits"]
    assert ran["by_phase"] == {
        "investigating": ["read"],
        "editing": ["read", "replace", "publish", "erase"],
        "verifying": ["read", "check"],
        "resting": [],
    }


def test_an_edit_task_goes_through_its_phases_under_the_gate(ran):
    """Otherwise a tier, a path or a phase is a word that holds nobody back."""
    assert table(ran["edit"]["calls"], "tool", "phase", "kind") == [
        ("read", "investigating", None),
        ("check", "investigating", "not_admitted"),
        ("replace", "editing", "tool_error"),
        ("replace", "editing", None),
        ("read", "editing", "denied"),
        ("replace", "editing", "denied"),
        ("replace", "editing", "invalid_arguments"),
        ("erase", "editing", "not_admitted"),
        ("publish", "editing", "approval_rejected"),
        ("replace", "verifying", "not_admitted"),
        ("check", "verifying", None),
    ]
    assert ran["left"]["app.py"] == "def half(n):\n    return n // 2\n"
    assert ran["nobody"] == "approval_unavailable"


def test_a_person_is_asked_by_tier_with_the_arguments(ran):
    """Otherwise an approver is asked about everything, or about nothing."""
    assert ran["edit"]["asked"] == [
        ["replace", 2, {"path": "app.py", "old": "n / 3", "new": "n // 2"}],
        ["publish", 3, {"why": "it is done"}],
        ["check", 3, {"path": "checks.py"}],
    ], "an edit once a session, a command and what is tier 3 each time, tier 4 never"


def test_a_result_says_what_its_handler_said_and_what_was_observed(ran):
    """Otherwise the runner's report is lost, or believed about files it does not know of."""
    calls = ran["edit"]["calls"]
    read, failed, edited, checked = calls[0], calls[2], calls[3], calls[10]
    assert read["content"] == "def half(n):\n    return n / 2\n"
    assert (read["success"], read["summary"]) == (True, "read app.py")
    assert (failed["success"], failed["summary"]) == (False, "nothing replaced")
    assert "'n / 3' is not there exactly once" in failed["content"]
    assert (edited["content"], edited["summary"]) == (
        "replaced in app.py",
        "edited app.py as ada, editing",
    )
    assert edited["files_changed"] == ["app.py"], "and not what the handler says besides"
    assert (checked["content"], checked["summary"]) == ("checks passed", "done")
    assert (read["files_changed"], checked["files_changed"]) == ([], [])


def test_to_terminate_is_a_proposal_of_a_handler_or_of_a_person(ran):
    """Otherwise a run goes on after its end, or a tool ends it by itself."""
    edit, investigate = ran["edit"]["calls"], ran["investigate"]["calls"]
    proposed = [call["tool"] for call in (*edit, *investigate) if call["terminate"]]
    assert proposed == ["publish", "check", "ask_for_edits"]
    assert investigate[-1]["summary"] == "wants to edit: half rounds (approver here: None)"


def test_an_investigations_edits_are_kept_until_they_are_taken_back(ran):
    """Otherwise a look around cannot try anything, or leaves what it tried."""
    assert table(ran["investigate"]["calls"], "tool", "phase", "kind", "files_changed") == [
        ("replace", "investigating", None, ["app.py"]),
        ("read", "investigating", "tool_error", []),
        ("replace", "investigating", None, ["app.py"]),
        ("ask_for_edits", "investigating", None, []),
    ]
    assert "there is no nowhere.py" in ran["investigate"]["calls"][1]["content"]
    (left, text), (clean, _) = ran["investigate"]["verified"]
    assert (left, "app.py" in text, clean) == (False, True, True)
