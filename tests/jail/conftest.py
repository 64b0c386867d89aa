"""Real jails on the real kernel, and a ledger of what a call must not leave behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolcell_sandbox import (
    CommandHandler,
    JailOutcome,
    JailSpec,
    Limits,
    PythonHandler,
    _zygotes,
    run_in_jail,
)
from toolcell_sandbox.host import base_environment
from toolcell_sandbox.spec import Isolation

from .both_ways import jails, pytest_generate_tests  # noqa: F401  # what pytest looks for here


def pids_below(root: int) -> set[int]:
    """Every process that descends from `root`, zombies too.

    But for this process's own zygotes, which stay for the calls to come, and for an init that has
    ended and that its zygote has not yet taken out of the table.
    """
    parents, zombies = {}, set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            state, parent = text.rpartition(")")[2].split()[:2]
            parents[int(name)] = int(parent)
            if state == "Z":
                zombies.add(int(name))
    below = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            break
        below |= more
    stay = _zygotes.pids()
    return below - {root} - stay - {pid for pid in zombies if parents[pid] in stay}


def left_below(root: int, before: set[int] | frozenset[int] = frozenset()) -> set[int]:
    """What descends from `root` and was not there before, and does not go either.

    An init that has said that its tree is empty is let go of while its caller goes on.
    """
    last = time.monotonic() + 5
    while (left := pids_below(root) - before) and time.monotonic() < last:
        os.sched_yield()
    return left


def what_is(pid: int) -> tuple[str, ...]:
    """Of a process that should not be there: its line in the table, and where it waits."""
    found = []
    for name in ("stat", "wchan", "cmdline"):
        try:
            found.append(Path(f"/proc/{pid}/{name}").read_text()[:200])
        except OSError as error:
            found.append(str(error))
    return tuple(found)


@dataclass(frozen=True)
class Ledger:
    """What this process holds: nothing of it may grow by a call."""

    descriptors: frozenset[str]
    processes: frozenset[int]
    threads: frozenset[str]
    mounts: frozenset[str]

    @classmethod
    def now(cls) -> Ledger:
        names = set()
        stay = {str(fd) for fd in _zygotes.descriptors()}
        for fd in set(os.listdir("/proc/self/fd")) - stay:
            try:
                names.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
            except OSError:
                continue
        # trio keeps idle worker threads for ten seconds, for whoever comes next.
        kept = ("Trio thread", "toolcell zygotes")
        own = {t.name for t in threading.enumerate() if not t.name.startswith(kept)}
        mounts = frozenset(
            " ".join(line.split()[:5])
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
        )
        processes = frozenset(pids_below(os.getpid()))
        return cls(frozenset(names), processes, frozenset(own), mounts)

    @classmethod
    def after(cls, before: Ledger) -> Ledger:
        """What is there now and does not go.

        An init that has said that its tree is empty is let go of while its caller goes on.
        """
        last = time.monotonic() + 5
        while not (now := cls.now()).is_within(before) and time.monotonic() < last:
            os.sched_yield()
        return now

    def is_within(self, before: Ledger) -> bool:
        """Whether nothing has grown."""
        return (
            self.mounts <= before.mounts
            and self.processes <= before.processes
            and self.threads <= before.threads
            and len(self.descriptors) <= len(before.descriptors)
        )


@pytest.fixture
def ledger() -> Iterator[None]:
    """Fails a test that leaves a descriptor, a process, a thread or a mount."""
    for way in ("namespaces", "process_group"):
        _zygotes.zygote(way, on_host=way == "process_group")
    before = Ledger.now()
    yield
    after = Ledger.after(before)
    more = after.processes - before.processes
    assert not more, {pid: what_is(pid) for pid in more}
    assert after.threads <= before.threads
    assert len(after.descriptors) <= len(before.descriptors), after.descriptors - before.descriptors
    # Somebody else's may have gone meanwhile.
    assert after.mounts <= before.mounts, after.mounts - before.mounts


class Jail:
    """Runs handlers, given as source or as a command, in a workspace of the test's own."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.count = 0

    def spec(
        self, *, writable: bool = True, isolation: Isolation = "standard", **limits: Any
    ) -> JailSpec:
        return JailSpec(
            workspace=str(self.workspace),
            workspace_mode="direct" if writable else "read_only",
            isolation=isolation,
            env=base_environment(),
            limits=Limits(**({"wall_s": 30} | limits)),
        )

    async def command(self, *argv: str, stdin: Any = None, **limits: Any) -> JailOutcome:
        return await run_in_jail(CommandHandler(argv=argv), self.spec(**limits), stdin=stdin)

    async def shell(self, script: str, **limits: Any) -> JailOutcome:
        return await self.command("/bin/sh", "-c", script, **limits)

    async def python(self, source: str, arguments: Any = None, **limits: Any) -> JailOutcome:
        return await run_in_jail(self.handler(source, arguments), self.spec(**limits))

    def handler(self, source: str, arguments: Any = None) -> PythonHandler:
        """`source` defines `handler`; without a def it is its body."""
        source = dedent(source).strip("\n")
        if "def handler" not in source:
            body = "\n".join(f"    {line}" for line in source.splitlines())
            source = f"def handler():\n{body}\n"
        self.count += 1
        file = self.workspace / f"handler_{self.count}.py"
        file.write_text(source + "\n")
        return PythonHandler(
            module=f"handler_{self.count}",
            qualname="handler",
            file=str(file),
            arguments=arguments or {},
        )


@pytest.fixture
def jail(tmp_path: Path, ledger: None) -> Jail:
    """A jail runner in an empty workspace; the ledger watches."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Jail(workspace.resolve())
