#!/usr/bin/env python3
"""Writes the tables of docs/system-calls.md from the filter's own data, between two markers.

scripts/syscall_docs.py           rewrite the page
scripts/syscall_docs.py --check   exit with 1 where the page is out of date
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sandbox"))

from toolcell_sandbox._child import syscall_table as table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "system-calls.md"
BEGIN = "<!-- written by scripts/syscall_docs.py: begin -->"
END = "<!-- written by scripts/syscall_docs.py: end -->"

FAMILIES = {
    "AF_UNIX": table.AF_UNIX,
    "AF_INET": table.AF_INET,
    "AF_INET6": table.AF_INET6,
    "AF_NETLINK": table.AF_NETLINK,
    "any other": 40,
}
TYPES = {"stream": 1, "datagram": 2, "raw": 3, "seqpacket": 5, "packet": 10}
PROTOCOLS = {0: "0", 1: "1 (that of AF_UNIX)", 6: "TCP", 17: "UDP"}


def answer(verdict: int) -> str:
    """What the caller sees."""
    if verdict == table.ALLOW:
        return "runs"
    if verdict == table.ASK:
        return "asks the init"
    number = verdict & 0xFFFF
    return errno.errorcode[number] if number else "0, and does not run"


def leaves(verdict: table.Verdict) -> Iterator[str]:
    """Every answer that a verdict can come to."""
    if isinstance(verdict, int):
        yield answer(verdict)
    else:
        yield from leaves(verdict[3])
        yield from leaves(verdict[4])


def summary(verdict: table.Verdict) -> str:
    """One answer, or those that the arguments decide between."""
    found = sorted(set(leaves(verdict)), key=lambda text: (text == "runs", text))
    return found[0] if len(found) == 1 else f"by argument: {', '.join(found)}"


def judge(verdict: table.Verdict, *arguments: int) -> str:
    """What the data says to these arguments."""
    while not isinstance(verdict, int):
        place, mask, values, then, otherwise = verdict
        value = arguments[place] & mask
        verdict = then if (value in values if values else value) else otherwise
    return answer(verdict)


def sockets(verdict: table.Verdict, family: int) -> str:
    """Which types and protocols of a family can be made."""
    first = [name for name, kind in TYPES.items() if judge(verdict, family, kind, 0) == "runs"]
    if not first:
        return judge(verdict, family, TYPES["stream"], 0)
    kind = TYPES[first[0]]
    told = [PROTOCOLS[p] for p in range(512) if judge(verdict, family, kind, p) == "runs"]
    return f"{', '.join(first)}; protocol {', '.join(told)}"


def lines() -> Iterator[str]:
    """The tables, line by line."""
    yield "### Judged one by one\n"
    yield "| call | x86-64 | aarch64 | answer | why |"
    yield "|---|---|---|---|---|"
    for name, x86_64, aarch64, verdict, reason in table.JUDGED:
        numbers = " | ".join("" if n is None else str(n) for n in (x86_64, aarch64))
        yield f"| `{name}` | {numbers} | {summary(verdict)} | {reason} |"
    yield "\n### Otherwise without namespaces (level `container`)\n"
    yield "| call | answer | why |"
    yield "|---|---|---|"
    for name, (verdict, reason) in table.PROCESS_GROUP.items():
        yield f"| `{name}` | {summary(verdict)} | {reason} |"
    for name, (verdict, reason) in table.NO_NETWORK.items():
        yield f"| `{name}`, without a network | {summary(verdict)} | {reason} |"
    yield "\n### What `socket` makes\n"
    yield f"| held by, network | {' | '.join(FAMILIES)} |"
    yield f"|---|{'---|' * len(FAMILIES)}"
    for (way, network), verdict in table.SOCKETS.items():
        cells = [sockets(verdict, family) for family in FAMILIES.values()]
        yield f"| {way}, {network} | {' | '.join(cells)} |"
    yield "\n### Allowed, by group\n"
    yield "| why | calls |"
    yield "|---|---|"
    for reason, group in table.ALLOWED:
        yield f"| {reason} | {' '.join(f'`{name}`' for name, _, _ in group)} |"


def renew(page: str) -> str:
    """The page with its tables as the data has them now."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"no markers in {PAGE.name}")
    return f"{before}{BEGIN}\n\n" + "\n".join(lines()) + f"\n\n{END}{after}"


def main() -> None:
    """Rewrite the page, or only check it."""
    page = PAGE.read_text(encoding="utf-8")
    renewed = renew(page)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if page == renewed else f"{PAGE.name} is out of date: run {sys.argv[0]}")
    PAGE.write_text(renewed, encoding="utf-8")


if __name__ == "__main__":
    main()
