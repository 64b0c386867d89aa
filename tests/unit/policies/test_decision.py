"""A decision that cannot be explained cannot be built."""

from typing import Any

import pytest

from toolcell_policies import Decision, Outcome, Reason

REASON = Reason(code="path_protected", text="no", rule="env.files", source="list.toml:3")


def test_a_decision_is_printed_in_the_documented_shape() -> None:
    """Programs outside read these four keys; the remedy travels elsewhere."""
    decision = Decision(
        outcome=Outcome.DENY, level=2, reasons=(REASON,), plan_hash="ab", remedy="do this"
    )
    assert decision.to_json() == {
        "outcome": "deny",
        "level": 2,
        "reasons": [
            {"code": "path_protected", "text": "no", "rule": "env.files", "source": "list.toml:3"}
        ],
        "plan_hash": "ab",
    }
    assert type(decision.to_json()["outcome"]) is str


@pytest.mark.parametrize(
    "broken",
    [
        {"outcome": Outcome.DENY, "level": 0, "reasons": ()},
        {"outcome": Outcome.ASK, "level": 3, "reasons": ()},
        {"outcome": Outcome.ALLOW, "level": -1, "reasons": ()},
        {"outcome": Outcome.ALLOW, "level": 4, "reasons": ()},
        {
            "outcome": Outcome.ASK,
            "level": 3,
            "reasons": (REASON,),
            "remember_options": ("session",),
        },
        {
            "outcome": Outcome.ALLOW,
            "level": 2,
            "reasons": (REASON,),
            "remember_options": ("session",),
        },
    ],
)
def test_a_decision_in_an_invalid_state_cannot_be_built(broken: dict[str, Any]) -> None:
    """A deny that nobody can explain, or a level 3 that is remembered, must not exist."""
    with pytest.raises(ValueError, match=r"level|reason|remembered"):
        Decision(plan_hash="", **broken)


def test_an_allow_needs_no_reason() -> None:
    """The invariant is about refusals; it must not forbid the plain case."""
    decision = Decision(outcome=Outcome.ALLOW, level=0, reasons=(), plan_hash="")
    assert decision.to_json()["reasons"] == []
