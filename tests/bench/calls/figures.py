"""What was measured, as plain numbers: samples, their medians, what is said of them."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call, in seconds since it was asked for.

    `ended_s`: its whole tree is gone. `result_s`: its whole answer was read; None where only the
    end can be seen. `returned_s`: the caller goes on.
    """

    ended_s: float
    result_s: float | None = None
    returned_s: float | None = None


@dataclass(slots=True)
class Series:
    """The samples of one subject."""

    samples: list[Sample] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """`{"calls", "ended", "result", "returned"}`, each with p50_ms and p99_ms, or None."""
        found: dict[str, Any] = {"calls": len(self.samples)}
        for name in ("ended", "result", "returned"):
            seconds = [getattr(sample, f"{name}_s") for sample in self.samples]
            known = [one for one in seconds if one is not None]
            found[name] = spread_ms(known) if known else None
        return found


def spread_ms(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile, in milliseconds."""
    return {
        "p50_ms": round(1e3 * statistics.median(seconds), 3),
        "p99_ms": round(1e3 * percentile(seconds, 99), 3),
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that this part of them do not exceed; the largest, of few."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float], digits: int = 3) -> float:
    """Rounded, for a report."""
    return round(statistics.median(values), digits)


def say(text: str) -> None:
    """Tell whoever waits what is being measured."""
    print(text, file=sys.stderr, flush=True)
