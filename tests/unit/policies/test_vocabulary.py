"""The words a tool says about itself mean the levels that were promised."""

import pytest

from toolcell_policies import AccessMode, DangerLevel


@pytest.mark.parametrize(
    ("mode", "level", "asks", "safe"),
    [
        ("readonly", 0, False, True),
        ("network", 1, False, False),
        ("write", 2, True, False),
        ("execute", 3, True, False),
        ("mixed", 3, True, False),
    ],
)
def test_an_access_mode_asks_for_its_level(mode: str, level: int, asks: bool, safe: bool) -> None:
    """Otherwise a tool that runs code could be waved through like one that reads."""
    found = AccessMode(mode)
    assert (found.approval_level(), found.requires_approval, found.is_safe) == (level, asks, safe)


@pytest.mark.parametrize(
    ("danger", "weight", "level"),
    [("safe", 0, 0), ("low", 1, 0), ("medium", 2, 2), ("high", 3, 2), ("critical", 4, 3)],
)
def test_a_danger_level_asks_for_its_level(danger: str, weight: int, level: int) -> None:
    """Otherwise a tool marked critical could run on a remembered yes."""
    assert (DangerLevel(danger).weight, DangerLevel(danger).approval_level()) == (weight, level)


def test_every_word_has_a_level_and_is_a_string() -> None:
    """A word added later without a level would fail in the middle of a call."""
    assert {mode.approval_level() for mode in AccessMode} == {0, 1, 2, 3}
    assert [danger.weight for danger in DangerLevel] == [0, 1, 2, 3, 4]
    assert AccessMode("write") == "write"
    assert str(DangerLevel.HIGH) == "high"
