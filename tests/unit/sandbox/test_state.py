"""The page that a worker shares with its init."""

from __future__ import annotations

import pytest

from toolcell_sandbox._child.state import FENCED, PROCESSES, STAGES, State


def test_a_stage_is_read_as_it_was_entered() -> None:
    """It words where a crash happened: import and run are different files."""
    state = State()
    assert state.stage == "start"
    for stage in STAGES:
        state.enter(stage)
        assert state.stage == stage


def test_a_stage_that_does_not_exist_is_refused() -> None:
    """A typing slip of ours must not be read as a stage later."""
    with pytest.raises(ValueError, match="not in tuple"):
        State().enter("dance")


def test_a_handler_that_writes_nonsense_into_the_page_breaks_nothing() -> None:
    """The worker can write all of it: the init only reads words from it."""
    state = State()
    for value in range(len(STAGES), 256):
        state._page[0] = value
        assert state.stage == "unknown"


def test_notes_add_up_and_do_not_touch_the_stage() -> None:
    """One byte that both share would turn "fenced" into a stage."""
    state = State()
    state.enter("encode")
    assert not state.has(FENCED)
    assert not state.has(PROCESSES)
    state.note(PROCESSES)
    assert not state.has(FENCED)
    state.note(FENCED)
    state.note(FENCED)
    assert state.has(FENCED)
    assert state.has(PROCESSES)
    assert state.stage == "encode"
