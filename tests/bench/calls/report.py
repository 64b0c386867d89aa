"""The figures as a page: Markdown tables, the same that `--docs` writes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .peers import NOTES

HEAD = """\
# Benchmarks

Written by a run of the benchmark (`make bench`, files in `tests/bench/calls/`), not by hand. Every
figure stands beside its peers' of the same run; those of (a) and (b) were taken in turn, so that
noise strikes all alike. Compare ratios: milliseconds are this machine's. All do the same job: they
read a JSON request, call the function, print JSON; each answer is checked. Each of our own calls
has all default guarantees: its receipt is checked, and that it waived nothing.
"""
INSTALLED = """\
Those that are no programs of the system are installed apart, by
`python -m tests.bench.calls.install FOLDER`, and found by `--peers FOLDER`.
"""
MANNER = """\
How it is measured. *Warm*: the jail waited, made ahead of the call, and each call is proven to have
had one; until jails wait again nothing else is measured. *Cold*: the jail is made for the call; the
zygote runs already. *Ended*: the whole process tree is proven gone. *Result*: the whole answer was
read. *Returned*: the caller goes on. The forking peers are measured by their own clock, in a small
process of their own. What is compared with fork + wait is compared with its median, p99 as well.
"""


def machine() -> dict[str, Any]:
    """What figures depend on, and nothing that names the machine."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processors": os.cpu_count(),
        "memory_gib": round(memory_bytes / (1 << 30)),
        "architecture": platform.machine(),
        "virtual": "hypervisor" in Path("/proc/cpuinfo").read_text(),
        "linux": ".".join(platform.release().split("-")[0].split(".")[:2]),
        "python": platform.python_version(),
        "user": "root" if os.geteuid() == 0 else "unprivileged",
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, figures: bool = True) -> str:
    """One Markdown table; the first column is text, the others figures unless it says otherwise."""
    rule = "---:|" if figures else "---|"
    lines = [f"| {' | '.join(head)} |", f"|---|{rule * (len(head) - 1)}"]
    lines += [f"| {' | '.join(map(shown, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def shown(value: object) -> str:
    """A cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def page(found: dict[str, Any]) -> str:
    """The whole of it."""
    here = found["machine"]
    kind = "a virtual machine" if here["virtual"] else "a machine"
    who = "root" if here["user"] == "root" else "an unprivileged user"
    about = (
        f"Measured on {kind} with {here['processors']} processors ({here['architecture']}) and "
        f"{here['memory_gib']} GiB, Linux {here['linux']}, Python {here['python']}, as {who}"
        f"{', in a quick run' if found['quick'] else ''}.\n"
    )
    others = found["others"]
    if others["is_disturbed"]:
        about += (
            f"\n**Disturbed**: while nothing was measured others had {others['median']:.0%} of the "
            f"processors, at most {others['most']:.0%}. So there is no verdict.\n"
        )
    parts = [HEAD, about, MANNER, *_targets(found), "![Medians of each way](benchmarks.svg)\n"]
    parts += [*_calls(found), *_throughput(found), *_capture(found), *_memory(found)]
    parts += [*_work(found), *_growth(found), *_peers(found)]
    return "\n".join(parts)


def _targets(found: dict[str, Any]) -> list[str]:
    rows = [
        (
            row["what"],
            row["why"] if row["ratio"] is None else row["ratio"],
            f"{row['kind']} {row['must']:g}",
            row["reached"],
            row["aim"],
            row["aim_reached"],
        )
        for row in found["targets"]
    ]
    return ["## Targets\n", table(("ratio", "is", "must be", "reached", "aim", "reached"), rows)]


def _calls(found: dict[str, Any]) -> list[str]:
    parts = []
    for part, title in (("job", "A no-op Python handler"), ("true", "`/bin/true`")):
        if part not in found:
            continue
        rows = []
        for name, series in found[part].items():
            cells: list[object] = [name]
            for what in ("ended", "result", "returned"):
                spread = series[what] or {"p50_ms": None, "p99_ms": None}
                cells += [spread["p50_ms"], spread["p99_ms"]]
            rows.append((*cells, series["calls"]))
        head = ("ms", "ended p50", "p99", "result p50", "p99", "returned p50", "p99", "calls")
        parts += [f"## {title}\n", table(head, rows)]
    return parts


def _throughput(found: dict[str, Any]) -> list[str]:
    if "throughput" not in found:
        return []
    rows = [
        (
            name,
            *(one["calls_per_s"] for one in row.values()),
            *(one["cpu_ms_per_call"] for one in row.values()),
        )
        for name, row in found["throughput"].items()
    ]
    at_once = list(next(iter(found["throughput"].values())))
    head = ("at once", *(f"{n}: calls/s" for n in at_once), *(f"{n}: cpu ms" for n in at_once))
    text = (
        "Processor time is the whole machine's for each call (`/proc/stat`), so the making of the "
        "next waiting jails is in it.\n"
    )
    return ["## Many at once\n", text, table(head, rows)]


def _capture(found: dict[str, Any]) -> list[str]:
    if "capture" not in found:
        return []
    capture = found["capture"]
    text = f"`head -c` of {capture['size_bytes'] >> 20} MiB of zeros, from the call to its end.\n"
    rows = [(name, row["gb_per_s"]) for name, row in capture["readers"].items()]
    return ["## Capture\n", text, table(("read by", "GB/s"), rows)]


def _memory(found: dict[str, Any]) -> list[str]:
    if "waiting" not in found:
        return []
    rows = [
        (name, row.get("missing") or row["pss_mib"], row.get("processes"))
        for name, row in found["waiting"].items()
    ]
    grown = found["growth_of_supervisor"]
    text = (
        f"Over {grown['calls']:,} calls the supervisor grew by {grown['grown_mib']:g} MiB from "
        f"{grown['rss_before_mib']:g} MiB, {grown['grown_mib_per_10000_calls']:g} MiB per 10,000 "
        f"calls, by {grown['grown_open_files']} open files and {grown['grown_threads']} threads.\n"
    )
    return ["## Memory\n", table(("what waits", "PSS, MiB", "processes"), rows), text]


def _work(found: dict[str, Any]) -> list[str]:
    if "handlers" not in found:
        return []
    rows: list[Sequence[object]] = []
    for name, row in (*found["handlers"].items(), *found["programs"].items()):
        if "missing" in row:
            rows.append((name, row["missing"], None, None, None, None, None))
            continue
        cells: list[object] = [name]
        for what in ("work", "call"):
            inside, outside = (row.get(f"{what}_{where}_ms") for where in ("inside", "outside"))
            cells += [inside, outside, inside / outside if inside and outside else None]
        rows.append(tuple(cells))
    head = ("ms", "work inside", "outside", "ratio", "call inside", "outside", "ratio")
    text = (
        "A handler's work by its own clock; the call against a plain process. What programs change "
        "is dropped, unless it says that it is kept.\n"
    )
    return ["## Real work\n", text, table(head, rows)]


def _growth(found: dict[str, Any]) -> list[str]:
    if "growth" not in found:
        return []
    parts = ["## Growth\n", "Whole calls by the public executor, p50 in ms; the audit log is on.\n"]
    for what in ("tools", "rules", "files"):
        one = found["growth"][what]
        head = (what, *(f"{size:,}" for size in one["sizes"]), "ratio")
        rows: list[Sequence[object]] = [
            (name, *(ms["p50_ms"] for ms in row["ms"].values()), row["ratio"])
            for name, row in one["calls"].items()
        ]
        rows.append(("the first call", *one["first_call_ms"].values(), None))
        parts.append(table(head, rows))
    return parts


def _peers(found: dict[str, Any]) -> list[str]:
    present = [(name, NOTES[name]) for name in found["peers"]]
    missing = [(name, f"missing: {why}") for name, why in found["missing"].items()]
    rows = [*present, *missing]
    return ["## Peers\n", INSTALLED, table(("peer", "what it is here"), rows, figures=False)]
