"""docs/containment.md: the rows, and which of them open when a layer is off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .cells import Seen
from .probes import PROBES
from .rows import CANNOT, LATER, ROWS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "containment.md"
BEGIN, END = "<!-- made by make containment: begin -->", "<!-- made by make containment: end -->"
HEAD = f"""# Containment matrix

What a hostile handler tries, and which fence holds it. Each row is at least one test under
`tests/containment/`, with a positive control: the same attempt succeeds where its fence is off
or outside any jail. `make test` tries each row once; `make containment` tries them for every
kind of handler and every level, as root and as a user without privileges, and writes the tables
below.

{BEGIN}
{END}
"""


def opened(seen: Seen) -> dict[int, list[str]]:
    """The rows that were open in a cell, and by which attempts.

    Raises:
        AssertionError: the cell did not run as it should.
    """
    assert seen.problems == ()
    found: dict[int, list[str]] = {}
    for name, got in seen.probes.items():
        assert got.get("broke") is None, (name, got)
        if got["through"]:
            found.setdefault(PROBES[name].row, []).append(PROBES[name].name)
    return found


def write(tables: Mapping[str, Mapping[int, list[str]]]) -> None:
    """Replace what is between the page's markers; make the page where there is none."""
    text = PAGE.read_text() if PAGE.exists() else HEAD
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{_ablation(tables)}\n{_rows()}\n{END}{after}")


def _ablation(tables: Mapping[str, Mapping[int, list[str]]]) -> str:
    """Only rows that open somewhere: all others have a second fence for each that can be off."""
    titles = [title for title in tables if "all layers" not in title]
    lines = [
        "## What opens when a layer is off",
        "",
        "Really off, in jails of this machine, as root. A row that is not listed stayed shut in",
        "each of these: another layer holds it too. Without a mount and a pid namespace there is",
        "no jail, so those cannot be off; at level `container` neither can Landlock and seccomp.",
        "The overlay is off in mode `direct`, by name; where a host has none, a transaction and a",
        "read-only workspace are refused (row 85).",
        "",
        "| row | " + " | ".join(titles) + " |",
        "|---|" + "---|" * len(titles),
    ]
    for number in sorted({row for title in titles for row in tables[title]}):
        cells = [", ".join(tables[title].get(number, [])).replace("_", " ") for title in titles]
        lines.append(f"| {number} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _rows() -> str:
    attempts: dict[int, int] = {}
    for one in PROBES.values():
        attempts[one.row] = attempts.get(one.row, 0) + 1
    lines = ["## The rows", "", "| row | | layers |", "|---|---|---|"]
    for number, (text, layers) in ROWS.items():
        later = f" (later: {LATER[number]})" if number in LATER else ""
        lines.append(f"| {number} | {text}{later} | {layers} |")
    lines += [
        "",
        "Layers: L Landlock, S seccomp, M mount namespace, U user namespace and capabilities,",
        "P pid namespace, N network namespace, I IPC namespace, C control group, R rlimit,",
        "F descriptor hygiene, E launch hygiene, X the supervisor's own code.",
        "",
        "Cells that cannot be:",
        "",
    ]
    lines += [f"- {what}, {where}: {why}." for (what, where), why in CANNOT.items()]
    return "\n".join(lines)
