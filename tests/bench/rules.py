"""`make bench`: judge() with 100, 1,000 and 10,000 rules, side by side.

Rule files of one shape and three sizes, asked in turn about the same calls, of which rules of
each file deny, ask about and allow some. The same in a file many times as long may take BOUND
times as long and no more: rules are found by an index. Reading the file, which does cost what is
in it, is measured apart. `--json` prints JSON; exit code 1 where the bound is broken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from toolcell_policies.rules import (
    PolicyFile,
    RuleCall,
    RulePath,
    RuleSegment,
    RuleSet,
    RuleVerdict,
    Scope,
    parse_policy,
)

BOUND = 3.0
SIZES = (100, 1_000, 10_000)
WORKSPACE = "/home/me/project"


def written(number: int) -> Iterator[str]:
    """One rule of the file, of ten kinds in turn."""
    yield f'[[rule]]\nid = "r{number}"'
    outcome = ("deny", "ask", "allow")[number // 10 % 3]
    yield f'outcome = "{outcome}"\nreason = "rule {number}"'
    kind = number % 10
    if kind < 3:
        tool, when = "*", f'path = ["src/part{number}/**", "src/{{a,b}}{number}/*.py"]'
        match, miss = f"src/part{number}/x", "src/part"
    elif kind == 3:
        tool, when = "write_file", f'path = ["**/*.kind{number}"]\nwhen.role = "write"'
        match, miss = f"a/b.kind{number}", "a/b"
    elif kind < 7:
        tool, when = "shell", f'command = ["git", "alias{number}"]'
        match, miss = "", ""
    elif kind == 7:
        tool, when = "fetch", f'host = ["*.h{number}.example.org"]'
        match, miss = f"a.h{number}.example.org", "example.org"
    elif kind == 8:
        tool, when = f"mcp_{number}_*", "arguments = { n = 1 }"
        match, miss = "", ""
    else:
        tool, when = f"tool_{number}", 'access = ["write"]'
        match, miss = f"tool_{number}", "tool"
    yield f'tool = "{tool}"\nwhen.{when}'
    if match:
        yield f'match = ["{match}"]\nnot_match = ["{miss}"]'


def rule_file(count: int) -> str:
    """A file of as many rules."""
    return "\n".join(line for number in range(count) for line in written(number))


def shell(*commands: str) -> RuleCall:
    """A call of the shell; the words are split at blanks."""
    segments = tuple(
        RuleSegment(argv=tuple(one.split()), executable_path=f"/usr/bin/{one.split()[0]}")
        for one in commands
    )
    return RuleCall(
        tool_name="shell", access="execute", segments=segments, workspace=WORKSPACE, homes=HOMES
    )


HOMES = ("/home/me",)


def files(tool: str, *paths: str) -> RuleCall:
    """A call that writes these paths of the workspace."""
    return RuleCall(
        tool_name=tool,
        access="write",
        arguments={"path": paths[0], "n": 1},
        paths=tuple(RulePath(real=f"{WORKSPACE}/{path}", role="write") for path in paths),
        workspace=WORKSPACE,
        homes=HOMES,
    )


CALLS = {
    "a path that no rule is about": files("write_file", "src/main/app.py"),
    "a path that a rule denies": files("write_file", "src/part0/deep/down/x.py"),
    "a path that a rule asks about": files("edit_file", "src/part11/x.py"),
    "a path that a rule allows": files("write_file", "src/part20/x.py"),
    "a command that no rule is about": shell("git log --oneline -5", "head -n 1"),
    "a command that a rule denies": shell("cd src", "git -C x alias4 --all"),
    "a tool that rules name": files("mcp_8_push", "a"),
}


def per_call_us(rules: RuleSet, call: RuleCall, times: int) -> float:
    """Microseconds of one judge(), over a run of them."""
    started = time.perf_counter()
    for _ in range(times):
        rules.judge(call)
    return 1e6 * (time.perf_counter() - started) / times


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """What it makes, and milliseconds."""
    started = time.perf_counter()
    made = make()
    return made, 1e3 * (time.perf_counter() - started)


def read(text: str) -> PolicyFile:
    """Read it; the examples that it has are not run: they cost what they are, not what it is."""
    return parse_policy(text, file="p.toml", scope=Scope.USER, run=False)


def outcome(verdict: RuleVerdict) -> str:
    """One word for a verdict."""
    if verdict.denies:
        return "deny"
    return "ask" if verdict.asks else "allow" if verdict.allowed else "nothing"


def measure(sizes: tuple[int, ...], rounds: int, times: int) -> dict[str, Any]:
    """All sizes, their rounds interleaved."""
    sets: dict[int, RuleSet] = {}
    read_ms: dict[str, float] = {}
    build_ms: dict[str, float] = {}
    for size in sizes:
        text = rule_file(size)
        policy, took = timed(partial(read, text))
        read_ms[str(size)] = round(took, 1)
        sets[size], took = timed(partial(RuleSet, [policy]))
        build_ms[str(size)] = round(took, 1)
    took_us: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for name, call in CALLS.items():
            for size, rules in sets.items():
                took_us.setdefault((name, size), []).append(per_call_us(rules, call, times))
    medians = {
        name: {size: statistics.median(took_us[name, size]) for size in sizes} for name in CALLS
    }
    ratios = {name: round(found[sizes[-1]] / found[sizes[0]], 2) for name, found in medians.items()}
    mean = {size: statistics.fmean(medians[name][size] for name in CALLS) for size in sizes}
    return {
        "rules": list(sizes),
        "median_us": {
            name: {str(size): round(us, 1) for size, us in found.items()}
            for name, found in medians.items()
        },
        "decisions_per_s": {str(size): round(1e6 / us) for size, us in mean.items()},
        "ratio": ratios,
        "outcome": {name: outcome(sets[sizes[-1]].judge(call)) for name, call in CALLS.items()},
        "read_ms": read_ms,
        "build_ms": build_ms,
        "holds": max(ratios.values()) <= BOUND,
    }


def main() -> int:
    """Measure, print, and say whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(tuple(args.rules), args.rounds, args.times)
    if args.json:
        print(json.dumps(found, indent=2))
        return 0 if found["holds"] else 1
    print(
        f"{'us a call, rules:':36}" + "".join(f"{size:>9,}" for size in found["rules"]) + "  ratio"
    )
    for name, us in found["median_us"].items():
        row = "".join(f"{one:9.1f}" for one in us.values())
        print(f"{name:36}{row}{found['ratio'][name]:7.2f}  {found['outcome'][name]}")
    per_s = "".join(f"{one:9,}" for one in found["decisions_per_s"].values())
    print(f"{'decisions a second':36}{per_s}")
    print(
        f"{'ms to read the file':36}" + "".join(f"{one:9.1f}" for one in found["read_ms"].values())
    )
    print(
        f"{'ms to build the index':36}"
        + "".join(f"{one:9.1f}" for one in found["build_ms"].values())
    )
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
