"""How jails without namespaces end, and those in a scope: whoever ended them, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from toolcell_sandbox import _supervise, cgroup, launch, run_in_jail, watch

from .conftest import Jail, left_below

MEMBERS = 100


class Scope(cgroup.Group):
    """As a service manager's: the init stays in it until what it saw was read."""

    needs_adoption = True
    needs_lingering = True
    samples = 0

    def sample(self) -> None:
        self.samples += 1


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jails without namespaces have theirs."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def is_cleared(folder: Path) -> None:
    """Until nothing is in it: what a jail leaves is removed by a process that outlives the call."""
    with trio.fail_after(10):
        while os.listdir(folder):
            await trio.sleep(0.001)


def group_of_one() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, process_group=0)


async def test_a_killed_group_is_waited_for_until_only_the_dead_are_in_it():
    """In some containers nobody reaps them, so to kill(2) the group is there for ever."""
    with group_of_one() as member, trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(launch._group_is_gone, member.pid)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            member.send_signal(signal.SIGKILL)
        # It is there: this process has not reaped it.
        os.killpg(member.pid, 0)
    assert member.returncode == -signal.SIGKILL
    # Another's number, or nobody's.
    with trio.fail_after(10):
        await launch._group_is_gone(member.pid)


async def test_a_call_whose_init_was_killed_returns_when_its_group_is_gone(
    jail: Jail, folders: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else what it started still writes to the workspace, while its caller reads it."""
    handler = jail.handler(f"""
        import os, signal
        from pathlib import Path

        def handler():
            Path("group").write_text(str(os.getpgid(0)))
            held = bytearray(os.urandom(1 << 20))
            for number in range({MEMBERS}):
                if os.fork() == 0:
                    held[:: 4096] = bytes(len(held) // 4096)
                    Path(f"up {{number}}").touch()
                    signal.pause()
            signal.pause()
        """)

    async def kill_the_init() -> None:
        up = [jail.workspace / f"up {number}" for number in range(MEMBERS)]
        while not all(path.exists() for path in up):
            await trio.sleep(0.01)
        (init,) = {parent_of(int((jail.workspace / "group").read_text()))}
        os.kill(init, signal.SIGKILL)

    async def waited_for(group: int) -> None:
        waits.append(group)
        await is_gone(group)

    waits: list[int] = []
    is_gone = launch._group_is_gone
    monkeypatch.setattr(launch, "_group_is_gone", waited_for)
    spec = jail.spec(isolation="container", processes=MEMBERS + 20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill_the_init)
        outcome = await run_in_jail(handler, spec)
        group = int((jail.workspace / "group").read_text())
        assert not watch.lives_in_group(group)
    # Most are dead by then anyhow.
    assert waits == [group]
    assert outcome.failure is not None
    assert outcome.failure.kind == "crashed"
    await is_cleared(folders)
    # The control: this process has a group, and lives.
    assert watch.lives_in_group(os.getpgid(0))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_its_folders_go_though_its_init_was_killed_after_the_tree(
    jail: Jail, folders: Path, monkeypatch: pytest.MonkeyPatch
):
    """A temporary folder that fills up ends the host."""

    class Ends(Scope):
        def sample(self) -> None:
            if inits:
                os.kill(inits.pop(), signal.SIGKILL)

        async def adopt(self, init_pid: int) -> None:
            inits.append(init_pid)
            await super().adopt(init_pid)

    inits: list[int] = []
    monkeypatch.setattr(launch, "limited", lambda *_: Ends(()))
    script = 'echo left > "$HOME/left"; echo here'
    outcome = await run_in_jail(("/bin/sh", "-c", script), jail.spec(isolation="container"))
    assert outcome.failure is None
    assert outcome.stdout.text() == "here\n"
    await is_cleared(folders)


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_a_tree_that_is_ended_in_a_scope_is_not_waited_for(
    jail: Jail, folders: Path, monkeypatch: pytest.MonkeyPatch, isolation: Any
):
    """Its init stays until the scope was read, and would stay until it is killed."""
    monkeypatch.setattr(_supervise, "GRACE_S", 60)
    monkeypatch.setattr(_supervise, "REAP_S", 60)
    scope = Scope(())
    monkeypatch.setattr(launch, "limited", lambda *_: scope)
    spec = jail.spec(isolation=isolation, wall_s=0.3)
    with trio.fail_after(10):
        outcome = await run_in_jail(("/bin/sh", "-c", 'touch "$HOME/left"; sleep 1000'), spec)
    assert outcome.failure is not None
    assert outcome.failure.kind == "timeout"
    assert scope.samples >= 1
    # By the init itself, which was not killed over it.
    assert os.listdir(folders) == []
    assert not left_below(os.getpid())
