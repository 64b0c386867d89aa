"""What a failure says about itself as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from toolcell_sandbox import failures


@dataclass(frozen=True)
class Speaks:
    """Stands for a reason of the policies, which the sandbox does not know."""

    word: str

    def to_json(self) -> dict[str, str]:
        return {"word": self.word}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(failures.FailureBase):
    """A failure with evidence of every shape."""

    kind: ClassVar[str] = "made"
    evidence: Any = None


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        (None, None),
        (1.5, 1.5),
        ((1, ("a",)), [1, ["a"]]),
        ([Speaks("x")], [{"word": "x"}]),
        ({1: (Speaks("y"),)}, {"1": [{"word": "y"}]}),
        (Speaks("z"), {"word": "z"}),
    ],
)
def test_evidence_is_plain_json_all_the_way_down(evidence: object, shown: object) -> None:
    """A tuple or an object deep inside would break `--json` only for that one failure."""
    assert Made(message="m", evidence=evidence).to_json() == {
        "kind": "made",
        "message": "m",
        "blame": "tool",
        "retryable": "no",
        "remedy": None,
        "evidence": shown,
    }


def test_a_failure_is_a_value_that_cannot_be_changed() -> None:
    """It is shared by the result, the record and the log."""
    failure = failures.Exited(message="m", exit_code=1, stage="run")
    with pytest.raises(AttributeError):
        failure.exit_code = 0  # type: ignore[misc]  # that it is refused is the point
    assert failure == failures.Exited(message="m", exit_code=1, stage="run")
