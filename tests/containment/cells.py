"""Cells of the matrix: a level, a kind of handler, and which layers are off.

A cell runs every probe in one jail, on a proving ground of its own, then makes one more call:
the supervisor lives, the next call works, and nothing of the first one is left.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import unittest.mock
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import trio
from tests.jail.conftest import Ledger

from toolcell import Executor
from toolcell.approval import unsafe_approve_all
from toolcell_sandbox import (
    CommandHandler,
    JailSpec,
    Limits,
    Mount,
    PythonHandler,
    _zygotes,
    offers,
    run_in_jail,
)
from toolcell_sandbox._cgroup_names import myself
from toolcell_sandbox.host import EXECUTABLE, base_environment
from toolcell_sandbox.spec import Isolation, Network, NetworkKind, WorkspaceMode

from .grounds import Ground, with_effects
from .probes import PROBES

IS_ROOT = os.geteuid() == 0
IS_FULL = os.environ.get("TOOLCELL_CONTAINMENT") == "full"
"""The whole matrix, for `make containment`; else each row once and what is cheap besides."""

KINDS = ("python", "command", "builtin") if IS_FULL else ("python",)
LEVELS: tuple[Isolation, ...] = (
    ("standard", "hardened", "container") if IS_ROOT else ("standard", "container")
)
"""`hardened` needs control groups and ids to give away, which nobody else has here."""

LANDLOCK = ("landlock", "landlock_scopes")
SECCOMP = ("syscalls_filtered", "net_blocked")
IPC = ("ipc_private",)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way of building a jail: `without` layers of the host, `waive` guarantees by name."""

    level: Isolation = "standard"
    kind: str = "python"
    without: tuple[str, ...] = ()
    waive: tuple[str, ...] = ()
    network: NetworkKind = "none"
    mode: WorkspaceMode | None = None
    """Of the workspace; None for what a tool that writes gets by default."""
    label: str = ""

    @property
    def title(self) -> str:
        """Short, for a test's id."""
        return self.label or "-".join(filter(None, (self.level, self.kind, self.mode)))

    @property
    def workspace_mode(self) -> WorkspaceMode:
        """The mode, with the default."""
        return self.mode or ("direct" if self.level == "container" else "transaction")


CELLS = tuple(
    Cell(level=level, kind=kind)
    for level in LEVELS
    for kind in KINDS
    if IS_FULL or level != "hardened"
) + tuple(
    Cell(kind=kind, mode=mode)
    for mode in ("read_only", "direct")
    for kind in KINDS
    if kind != "builtin" or mode == "direct"
)
"""Read-only, what is tried in the workspace cannot be: what leads out of it has to be shut too.
A built-in `shell` is a writer, and is asked about by that name in its default mode."""

ABLATIONS = (
    Cell(label="all layers"),
    Cell(label="Landlock", without=LANDLOCK),
    Cell(label="seccomp", waive=SECCOMP),
    Cell(label="network namespace", network="host"),
    Cell(label="network namespace, Landlock", without=LANDLOCK, waive=IPC, network="host"),
    Cell(label="overlay", mode="direct"),
    Cell(label="overlay, seccomp", mode="direct", waive=SECCOMP),
    Cell(label="IPC namespace", without=("ipc_namespace",), waive=IPC),
    Cell(
        label="all of these",
        without=(*LANDLOCK, "ipc_namespace", "network_namespace"),
        waive=(*SECCOMP, *IPC),
        network="host",
        mode="direct",
    ),
)
"""Layers that can be off; the overlay is, by mode `direct`. Without its mount and pid namespaces
there is no jail; at `container` none without Landlock, and none without the filter that keeps its
tree together."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a cell's probes got, and how host and supervisor were after it."""

    probes: dict[str, Any]
    isolation: str
    problems: tuple[str, ...]
    """Empty, or what was not as before: a leak, or a next call that failed."""


def spec_of(ground: Ground, cell: Cell, **limits: Any) -> JailSpec:
    """A writable workspace, and the probes to read beside it."""
    return JailSpec(
        workspace=str(ground.workspace),
        workspace_mode=cell.workspace_mode,
        mounts=(Mount(path=str(ground.granted), owned=True),),
        env=base_environment(),
        limits=Limits(**({"wall_s": 100, "head_bytes": 1 << 20} | limits)),
        isolation=cell.level,
        waive=cell.waive,
        network=Network(cell.network),
    )


def run_cell(cell: Cell, names: list[str] | None = None) -> Seen:
    """Every probe in one jail of this cell."""
    with Ground() as ground, ExitStack() as held:
        hostile = ground.hostile_environment()
        held.enter_context(unittest.mock.patch.dict(os.environ, hostile))
        held.enter_context(unittest.mock.patch.object(tempfile, "tempdir", str(ground.temporary)))
        if cell.without:
            held.enter_context(offers.assume(offers.look(thorough=True).without(*cell.without)))
        before = Left.now(ground.temporary)
        found, isolation, problems = trio.run(_run, ground, cell, names or list(PROBES))
        return Seen(
            probes=with_effects(found, ground.taken()),
            isolation=isolation,
            problems=problems + before.problems(ground.temporary),
        )


async def _run(
    ground: Ground, cell: Cell, names: list[str]
) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """What the probes said, the receipt's level, and what went wrong around them."""
    job = {"names": names, "given": ground.given, "space": False}
    if cell.kind == "builtin":
        return await _by_builtin(ground, cell, job)
    spec = spec_of(ground, cell)
    if cell.kind == "python":
        arguments = {"names": names, "given": ground.given}
        outcome = await run_in_jail(
            PythonHandler(
                module="probes", qualname="handler", file=ground.script, arguments=arguments
            ),
            spec,
        )
    else:
        command = CommandHandler(argv=(EXECUTABLE, "-I", "-S", ground.script))
        outcome = await run_in_jail(command, spec, stdin=json.dumps(job).encode())
    problems: list[str] = []
    found: dict[str, Any] = {}
    if outcome.failure is not None:
        problems.append(f"the probes ended with {outcome.failure}")
    else:
        found = outcome.value if cell.kind == "python" else json.loads(outcome.stdout.kept)
    after = await run_in_jail(CommandHandler(argv=("true",)), spec)
    if after.failure is not None or after.exit_code != 0:
        problems.append(f"the next call ended with {after.failure}")
    return found, outcome.receipt.isolation, tuple(problems)


async def _by_builtin(
    ground: Ground, cell: Cell, job: dict[str, Any]
) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """The same through the executor and its `shell`; the probes lie in the workspace then."""
    script = ground.copy_into_workspace()
    job["given"] = {**job["given"], "granted": str(ground.workspace / "granted")}
    problems: list[str] = []
    async with Executor(
        workspace=ground.workspace,
        state_dir=ground.folder / "state",
        approver=unsafe_approve_all,
        isolation=cell.level,
        workspace_mode=cell.mode,
        limits=Limits(wall_s=100, head_bytes=1 << 20),
    ) as box:
        command = f"exec {EXECUTABLE} -I -S {script}"
        result = await box.call("shell", {"command": command}, stdin=json.dumps(job).encode())
        after = await box.call("list_directory")
    found: dict[str, Any] = {}
    if result.error is not None or result.exit_code != 0:
        problems.append(f"the probes ended with {result.error}: {result.content[-300:]}")
    else:
        assert isinstance(result.output, dict)
        found = json.loads(result.output["stdout"])
    if not after.success:
        problems.append(f"the next call ended with {after.error}")
    isolation = result.receipt.isolation if result.receipt is not None else "none"
    return found, isolation, tuple(problems)


class Controls:
    """The same attempts outside any jail, each where it has to succeed."""

    @cached_property
    def plain(self) -> dict[str, Any]:
        """By a plain process of this user."""
        names = [n for n, one in PROBES.items() if one.control in ("outside", "root")]
        with Ground() as ground:
            return ground.outside_jail(names)

    @cached_property
    def space(self) -> dict[str, Any]:
        """With all capabilities, in namespaces of its own."""
        names = [name for name, one in PROBES.items() if one.control == "space"]
        with Ground() as ground:
            return ground.outside_jail(names, space=True)

    def problem(self, name: str) -> str | None:
        """Why the control of a probe proves nothing; None where it does its work."""
        one = PROBES[name]
        if one.control == "itself" or (one.control == "root" and not IS_ROOT):
            return None
        said = (self.space if one.control == "space" else self.plain)[name]
        absent = ("EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENODEV", "ENOSYS")
        if said["through"] or (
            one.kernel_may_lack and said["said"] in (*absent, "ENOENT", "False", "SIGSEGV")
        ):
            return None
        return f"the control did not get through: {said}"


@dataclass(frozen=True)
class Left:
    """What this process and this host hold: nothing of it may grow by a call."""

    ledger: Ledger
    cgroups: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def now(cls, temporary: Path) -> Left:
        """As it is; the zygotes, which stay, are there already."""
        for way in ("namespaces", "process_group"):
            _zygotes.zygote(way, on_host=way == "process_group")
        return cls(Ledger.now(), own_cgroups(), frozenset(os.listdir(temporary)))

    def problems(self, temporary: Path) -> tuple[str, ...]:
        """What has come on top since, and does not go either.

        An init that has said that its tree is empty is let go of while its caller goes on.
        """
        last = time.monotonic() + 5
        while (found := self._more(Left.now(temporary))) and time.monotonic() < last:
            os.sched_yield()
        return found

    def _more(self, after: Left) -> tuple[str, ...]:
        found = []
        if more := after.ledger.processes - self.ledger.processes:
            found.append(f"processes {sorted(more)} are left")
        if more_threads := after.ledger.threads - self.ledger.threads:
            found.append(f"threads {sorted(more_threads)} are left")
        if len(after.ledger.descriptors) > len(self.ledger.descriptors):
            more_fds = after.ledger.descriptors - self.ledger.descriptors
            found.append(f"descriptors {sorted(more_fds)} are left")
        if not after.ledger.mounts <= self.ledger.mounts:
            found.append("mounts are left")
        if more_groups := after.cgroups - self.cgroups:
            found.append(f"control groups {sorted(more_groups)} are left")
        if more_folders := after.folders - self.folders:
            found.append(f"folders {sorted(more_folders)} are left")
        return tuple(found)


def own_cgroups() -> frozenset[str]:
    """Control groups of this process's calls."""
    own = myself()
    start = f"toolcell-{own.namespace}-{own.pid}-"
    found: set[str] = set()
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        found |= {f"{top}/{name}" for name in folders if name.startswith(start)}
    return frozenset(found)
