"""A cage for one hostile handler at one level, watched: victims beside it, a next call, a ledger.

`TOOLCELL_CONTAINMENT=full` runs the whole matrix (`make containment`); without it each row runs
once, and in a second cell where that is cheap.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import trio

from toolcell import Executor
from toolcell.approval import Approver, unsafe_approve_all
from toolcell_sandbox import (
    CommandHandler,
    JailOutcome,
    JailSpec,
    Limits,
    PythonHandler,
    run_in_jail,
)
from toolcell_sandbox.host import EXECUTABLE, base_environment
from toolcell_sandbox.spec import Isolation, WorkspaceMode

from .cells import IS_FULL, KINDS, LEVELS, Controls, Left


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a call ended, whoever made it: `kind` is that of the failure, None for a success."""

    kind: str | None
    failure: Any
    value: Any
    stdout: bytes
    stderr: bytes
    wall_s: float
    outcome: JailOutcome | None = None
    exit_code: int | None = None


class Cage:
    """Runs hostile source at one level; each attack with a victim beside it.

    Source defines `handler`, or is its body. As a command it is a script whose last line of
    output is the value; as a built-in it goes through the executor's `python`.
    """

    def __init__(self, folder: Path, level: Isolation) -> None:
        self.folder = folder
        self.level = level
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        self.victims = 0
        self._count = 0

    @property
    def mode(self) -> WorkspaceMode:
        """What a tool that writes gets of the workspace, by default."""
        return "direct" if self.level == "container" else "transaction"

    def spec(
        self, *, mode: WorkspaceMode | None = None, waive: tuple[str, ...] = (), **limits: Any
    ) -> JailSpec:
        """A jail of this level on the workspace, in the mode that is the default for writers."""
        return JailSpec(
            workspace=str(self.workspace),
            workspace_mode=mode or self.mode,
            env=base_environment(),
            limits=Limits(**({"wall_s": 60} | limits)),
            isolation=self.level,
            waive=waive,
        )

    def script(self, source: str) -> str:
        """A file with this handler; outside any jail, `python FILE` runs it too."""
        source = dedent(source).strip("\n")
        if "def handler" not in source:
            source = "def handler():\n" + indent(source, "    ")
        self._count += 1
        file = self.workspace / f"handler_{self._count}.py"
        tail = (
            'if __name__ == "__main__":\n    import json\n    print("\\n" + json.dumps(handler()))'
        )
        file.write_text(f"{source}\n\n{tail}\n")
        return str(file)

    async def run(
        self, source: str, *, kind: str = "python", spec: JailSpec | None = None, **limits: Any
    ) -> Ended:
        """One call."""
        file = self.script(source)
        started = time.monotonic()
        if kind == "builtin":
            return await self._by_builtin(file, limits, started)
        spec = spec or self.spec(**limits)
        if kind == "command":
            return await self._told([EXECUTABLE, "-I", "-S", file], spec, started)
        handler = PythonHandler(module=Path(file).stem, qualname="handler", file=file)
        outcome = await run_in_jail(handler, spec)
        return ended(outcome, outcome.value, started)

    async def command(self, *argv: str, spec: JailSpec | None = None, **limits: Any) -> Ended:
        """One command."""
        started = time.monotonic()
        outcome = await run_in_jail(CommandHandler(argv=argv), spec or self.spec(**limits))
        return ended(outcome, None, started)

    async def shell(self, script: str, **limits: Any) -> Ended:
        """One line of shell."""
        return await self.command("/bin/sh", "-c", script, **limits)

    async def _told(self, argv: list[str], spec: JailSpec, started: float) -> Ended:
        outcome = await run_in_jail(CommandHandler(argv=tuple(argv)), spec)
        last = outcome.stdout.kept.rstrip(b"\n").rpartition(b"\n")[2]
        value = None
        if outcome.failure is None and outcome.exit_code == 0 and last:
            value = json.loads(last)
        return ended(outcome, value, started)

    async def _by_builtin(self, file: str, limits: dict[str, Any], started: float) -> Ended:
        async with AsyncExitStack() as held:
            box = await held.enter_async_context(self.executor(**limits))
            code = source_of(file).partition("\nif __name__")[0] + "\nhandler()\n"
            result = await box.call("python", {"code": code})
        output = result.output if isinstance(result.output, dict) else {}
        return Ended(
            kind=None if result.error is None else result.error.kind,
            failure=result.error,
            value=output.get("value"),
            stdout=b"" if result.stdout is None else result.stdout.kept,
            stderr=b"" if result.stderr is None else result.stderr.kept,
            wall_s=time.monotonic() - started,
        )

    def executor(
        self, waive: tuple[str, ...] = (), approver: Approver = unsafe_approve_all, **limits: Any
    ) -> Executor:
        """An executor of this level whose approver says yes."""
        return Executor(
            workspace=self.workspace,
            state_dir=self.folder / "state",
            approver=approver,
            isolation=self.level,
            waive=waive,
            limits=Limits(**({"wall_s": 60} | limits)),
        )

    async def attack(self, source: str, **options: Any) -> Ended:
        """`run`, while victims of the same supervisor's run beside it and all have to succeed."""
        found: list[Ended] = []
        done = trio.Event()

        async def attacker() -> None:
            found.append(await self.run(source, **options))
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(attacker)
            while not done.is_set():
                victim = await self.command("echo", "alive")
                assert (victim.kind, victim.stdout) == (None, b"alive\n"), victim
                self.victims += 1
                with trio.move_on_after(0.25):
                    await done.wait()
        return found[0]


def source_of(file: str) -> str:
    """A handler's file as text."""
    return Path(file).read_text()


def ended(outcome: JailOutcome, value: Any, started: float) -> Ended:
    """A jail's outcome, as the tests look at it."""
    return Ended(
        kind=None if outcome.failure is None else outcome.failure.kind,
        failure=outcome.failure,
        value=value,
        stdout=outcome.stdout.kept,
        stderr=outcome.stderr.kept,
        wall_s=time.monotonic() - started,
        outcome=outcome,
        exit_code=outcome.exit_code,
    )


@pytest.fixture(scope="session")
def controls() -> Controls:
    """Every probe outside any jail, where it has to succeed."""
    return Controls()


@pytest.fixture(params=LEVELS if IS_FULL else ["standard"])
def level(request: pytest.FixtureRequest) -> Isolation:
    """Each level of this user in the whole matrix; else the default one."""
    found: Isolation = request.param
    return found


@pytest.fixture(params=LEVELS if IS_FULL else ["standard", "container"])
def any_level(request: pytest.FixtureRequest) -> Isolation:
    """As `level`, with the one that has no namespaces always: where that is cheap."""
    found: Isolation = request.param
    return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of handler in the whole matrix; else a Python one."""
    return str(request.param)


def watched(folder: Path, level: Isolation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cage]:
    """A cage; afterwards the next call has to work, and nothing may be left."""
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = Left.now(temporary)
    cage = Cage(folder.resolve(), level)
    yield cage
    after = trio.run(cage.command, "echo", "next")
    assert (after.kind, after.stdout) == (None, b"next\n")
    assert before.problems(temporary) == ()


@pytest.fixture
def cage(tmp_path: Path, level: Isolation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cage]:
    """A cage; afterwards the next call has to work, and nothing may be left."""
    yield from watched(tmp_path, level, monkeypatch)


@pytest.fixture
def any_cage(
    tmp_path: Path, any_level: Isolation, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cage]:
    """The same, at level `container` in every run."""
    yield from watched(tmp_path, any_level, monkeypatch)
