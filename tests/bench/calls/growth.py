"""(g): a whole call by the public Executor, with few and many tools, rules and files.

Executors of all sizes are open at once and called in turn. What is paid once (the first call, which
walks the workspace) is told apart from what each call pays.
"""

from __future__ import annotations

import inspect
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from tests.bench.decisions import policy_with, rule_set
from tests.bench.registry import made
from tests.bench.transactions import FILES_A_FOLDER, plant

from toolcell import Executor, ToolRegistry
from toolcell.approval import unsafe_approve_all
from toolcell_policies import POLICIES, Policy

from .figures import Sample, Series, say

IDLE_S = 0.05
WARM_UP_CALLS = 3
READ: tuple[str, dict[str, Any]] = ("read_file", {"path": "one.txt"})
WRITE: tuple[str, dict[str, Any]] = ("write_file", {"path": "two.txt", "content": "x"})


def takes_warm_jails() -> bool:
    """Whether this version's executor keeps jails waiting."""
    return "warm_jails" in inspect.signature(Executor.__init__).parameters


@asynccontextmanager
async def executor_of(
    folder: Path, *, tools: int = 0, rules: int = 0, files: int = 0, waiting: int = 4
) -> AsyncIterator[Executor]:
    """One of so many of each, with a small workspace unless it says otherwise."""
    workspace = folder / "ws"
    workspace.mkdir(parents=True)
    (workspace / "one.txt").write_text("1\n")
    for number in range(files if files < FILES_A_FOLDER else 0):
        (workspace / f"f{number}.py").touch()
    plant(workspace, files)
    registry = ToolRegistry()
    for number in range(tools):
        registry.register(made(number))
    policy: Policy = policy_with("coding", rule_set(rules)) if rules else POLICIES["coding"]
    more: dict[str, Any] = {"warm_jails": waiting} if takes_warm_jails() else {}
    try:
        async with Executor(
            registry,
            workspace=str(workspace),
            state_dir=str(folder / "state"),
            policy=policy,
            approver=unsafe_approve_all,
            **more,
        ) as executor:
            yield executor
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


async def timed(executor: Executor, name: str, arguments: dict[str, Any]) -> float:
    """Seconds of one call, which succeeds with all that is promised by default."""
    begun = time.perf_counter()
    result = await executor.call(name, arguments)
    took_s = time.perf_counter() - begun
    assert result.ok, result.error
    assert result.receipt is not None
    assert (result.receipt.isolation, tuple(result.receipt.waived)) == ("standard", ()), result
    return took_s


async def by_size(folder: Path, what: str, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Calls that read and calls that write, in turn over the sizes of one thing."""
    say(f"(g) {what}: {', '.join(f'{size:,}' for size in sizes)}")
    series: dict[tuple[str, int], Series] = {}
    first: dict[int, float] = {}
    async with AsyncExitStack() as stack:
        executors = {}
        for size in sizes:
            say(f"  making {size:,} {what}")
            made_of: dict[str, int] = {what: size}
            make = partial(executor_of, folder / f"{what}{size}", **made_of)
            executors[size] = await stack.enter_async_context(make())
        for size, executor in executors.items():
            first[size] = await timed(executor, *WRITE)
            for _ in range(WARM_UP_CALLS):
                await timed(executor, *READ)
                await timed(executor, *WRITE)
        for _ in range(rounds):
            for size, executor in executors.items():
                for kind, call in (("read_file", READ), ("write_file", WRITE)):
                    # Until jails wait again; an executor fills its pool when it is idle.
                    await trio.sleep(IDLE_S)
                    took_s = await timed(executor, *call)
                    found = series.setdefault((kind, size), Series())
                    found.samples.append(Sample(ended_s=took_s))
    return _report(sizes, first, series)


def _report(
    sizes: tuple[int, ...], first: dict[int, float], series: dict[tuple[str, int], Series]
) -> dict[str, Any]:
    rows = {}
    for kind in ("read_file", "write_file"):
        ms = {str(size): series[kind, size].to_json()["ended"] for size in sizes}
        ratio = ms[str(sizes[-1])]["p50_ms"] / ms[str(sizes[0])]["p50_ms"]
        rows[kind] = {"ms": ms, "ratio": round(ratio, 2)}
    first_ms = {str(size): round(1e3 * took_s, 1) for size, took_s in first.items()}
    return {"sizes": list(sizes), "first_call_ms": first_ms, "calls": rows}


async def measure(folder: Path, rounds: int, files_max: int) -> dict[str, Any]:
    """Tools, rules and files."""
    found: dict[str, Any] = {"warm_jails": takes_warm_jails()}
    middle = (10_000,) if files_max > 10_000 else ()
    for what, sizes in (
        ("tools", (10, 1_000, 10_000)),
        ("rules", (10, 1_000, 10_000)),
        ("files", (10, *middle, files_max)),
    ):
        found[what] = await by_size(folder, what, sizes, rounds)
    return found
