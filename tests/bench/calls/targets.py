"""What issue and reader were promised, each as a ratio of two figures of the same run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

MODES = ("read_only", "transaction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One ratio, and what it must be. `ratio` is None where it could not be measured: `why`."""

    what: str
    kind: Literal["at most", "at least"]
    must: float
    aim: float | None = None
    ratio: float | None
    why: str | None = None

    def _reaches(self, bound: float | None) -> bool | None:
        if self.ratio is None or bound is None:
            return None
        return self.ratio <= bound if self.kind == "at most" else self.ratio >= bound

    def to_json(self) -> dict[str, Any]:
        """With what was reached; None where that cannot be said."""
        return {
            "what": self.what,
            "kind": self.kind,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "must": self.must,
            "aim": self.aim,
            "reached": self._reaches(self.must),
            "aim_reached": self._reaches(self.aim),
            "why": self.why,
        }


class Figures:
    """The report's figures by name; None for what is not in it."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def ms(self, part: str, subject: str, what: str = "ended", which: str = "p50_ms") -> Any:
        """Milliseconds of one subject."""
        series = self._found.get(part, {}).get(subject)
        spread = None if series is None else series.get(what)
        return None if spread is None else spread[which]

    def rate(self, subject: str, at_once: int) -> Any:
        """Calls per second."""
        row = self._found.get("throughput", {}).get(subject)
        return None if row is None else row[str(at_once)]["calls_per_s"]

    def gb_per_s(self, reader: str) -> Any:
        """Of the capture."""
        row = self._found.get("capture", {}).get("readers", {}).get(reader)
        return None if row is None else row["gb_per_s"]


def ratio(a: float | None, b: float | None) -> float | None:
    """Of two figures that are both there."""
    return a / b if a is not None and b else None


def judged(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target, as it came out; without a verdict where the machine was not ours alone."""
    targets = (*_single(Figures(found)), *_many(Figures(found)))
    rows = []
    for target in targets:
        row = target.to_json()
        if found["others"]["is_disturbed"]:
            # Other work makes ratios better as well as worse: neither is a verdict.
            row |= {"reached": None, "aim_reached": None, "why": "others worked here meanwhile"}
        if row["ratio"] is None:
            row["why"] = row["why"] or "not measured in this run"
        rows.append(row)
    return rows


def _single(figures: Figures) -> Iterator[Target]:
    fork = figures.ms("job", "fork + wait")
    for mode in MODES:
        warm, cold = f"toolcell warm, {mode}", f"toolcell cold, {mode}"
        p50 = figures.ms("job", warm)
        by_fork = "/ fork + wait"
        yield Target(
            what=f"warm, {mode}: call to empty tree, p50 {by_fork}",
            kind="at most",
            must=4,
            aim=2,
            ratio=ratio(p50, fork),
        )
        yield Target(
            what=f"warm, {mode}: call to empty tree, p99 {by_fork}, p50",
            kind="at most",
            must=10,
            ratio=ratio(figures.ms("job", warm, which="p99_ms"), fork),
        )
        yield Target(
            what=f"warm, {mode}: request to result, p50 {by_fork}",
            kind="at most",
            must=1.5,
            aim=1,
            ratio=ratio(figures.ms("job", warm, "result"), fork),
        )
        yield Target(
            what=f"cold, {mode}: call to empty tree, p50 {by_fork}",
            kind="at most",
            must=12,
            ratio=ratio(figures.ms("job", cold), fork),
        )
        for peer in ("bubblewrap", "sandlock run"):
            yield Target(
                what=f"{peer} + python / warm, {mode}, p50",
                kind="at least",
                must=10,
                aim=20,
                ratio=ratio(figures.ms("job", peer), p50),
            )
    yield Target(
        what="warm /bin/true / bubblewrap + /bin/true, p50",
        kind="at most",
        must=0.5,
        ratio=ratio(
            figures.ms("true", "toolcell warm, /bin/true"),
            figures.ms("true", "bubblewrap, /bin/true"),
        ),
    )


def _many(figures: Figures) -> Iterator[Target]:
    for mode in MODES:
        warm = f"toolcell warm, {mode}"
        ratios = [
            ratio(figures.rate(warm, at_once), figures.rate("bubblewrap", at_once))
            for at_once in (1, 4, 16, 64)
        ]
        known = [one for one in ratios if one is not None]
        yield Target(
            what=f"calls per second, {mode}, / bubblewrap + python, worst of 1 to 64 at once",
            kind="at least",
            must=4,
            aim=8,
            ratio=min(known) if known else None,
        )
        yield Target(
            what=f"calls per second, {mode}: 64 at once / 16 at once",
            kind="at least",
            must=0.9,
            ratio=ratio(figures.rate(warm, 64), figures.rate(warm, 16)),
        )
    yield Target(
        what="capture / cat >/dev/null",
        kind="at least",
        must=0.6,
        ratio=ratio(figures.gb_per_s("toolcell"), figures.gb_per_s("cat >/dev/null")),
    )
