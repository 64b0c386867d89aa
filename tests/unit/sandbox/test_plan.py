"""What a jail is made of before its call is known."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolcell_sandbox import JailSpec, Limits, Mount, host, plan
from toolcell_sandbox.guarantees import Offer
from toolcell_sandbox.plan import Plan, plan_of
from toolcell_sandbox.spec import WorkspaceMode


@pytest.mark.parametrize("mode", ["direct", "transaction", "read_only"])
def test_an_interpreter_in_the_workspace_is_laid_after_it(
    monkeypatch: pytest.MonkeyPatch, mode: WorkspaceMode
) -> None:
    """As a piece of every root it would be covered by the workspace, and a jail write to it."""
    folders = ("/ws/.venv", "/tmp/py", "/opt/py", "/ws-evil/py")
    mounts = tuple(Mount(path=path, owned=True) for path in folders)
    monkeypatch.setattr(host, "interpreter_mounts", lambda: mounts)
    found = plan_of(JailSpec(workspace="/ws", workspace_mode=mode), Offer(landlock_abi=7))
    assert isinstance(found, Plan)
    shared = {entry["path"]: entry["shared"] for entry in found.told["mounts"]}
    assert {path for path in folders if shared[path]} == {"/opt/py", "/ws-evil/py"}


OFFER = Offer(landlock_abi=7)


@pytest.mark.parametrize("private", host.PRIVATE_FOLDERS)
def test_no_overlay_is_laid_over_what_a_jail_has_of_its_own(private: str) -> None:
    """It would show, and keep changes of, what the host has there: all that its users left."""
    above = os.path.dirname(private)
    modes: tuple[WorkspaceMode, ...] = ("transaction", "read_only")
    for mode in modes:
        for workspace in (private, above):
            if workspace != "/":
                with pytest.raises(ValueError, match=f"'{workspace}' (is|holds) {private}, which"):
                    plan_of(JailSpec(workspace=workspace, workspace_mode=mode), OFFER)
        for fine in (f"{private}/ws", f"{private}-evil"):
            assert isinstance(plan_of(JailSpec(workspace=fine, workspace_mode=mode), OFFER), Plan)
    layered = Mount(path=above, layered=True)
    with pytest.raises(ValueError, match="of its own"):
        plan_of(JailSpec(mounts=(layered, Mount(path=private))), OFFER)


@pytest.mark.parametrize("private", host.PRIVATE_FOLDERS)
def test_what_would_be_covered_is_refused(private: str) -> None:
    """A folder that was asked for, and in whose place there is an empty one, loses what is written.

    One that holds it is laid first, and an empty workspace is the jail's own as well.
    """
    with pytest.raises(ValueError, match=f"'{private}' is {private}, which"):
        plan_of(JailSpec(workspace=private, workspace_mode="direct"), OFFER)
    with pytest.raises(ValueError, match=f"'{private}' is {private}, which"):
        plan_of(JailSpec(mounts=(Mount(path=private, writable=True),)), OFFER)
    assert isinstance(plan_of(JailSpec(workspace=private, workspace_mode="scratch"), OFFER), Plan)
    if private.count("/") > 1:
        above = os.path.dirname(private)
        assert isinstance(plan_of(JailSpec(mounts=(Mount(path=above),)), OFFER), Plan)


def test_the_root_is_no_workspace_and_no_mount() -> None:
    """A jail has a root of its own: what is laid over it would be in place of all else."""
    modes: tuple[WorkspaceMode, ...] = ("direct", "transaction", "read_only", "scratch")
    for spec in (
        *(JailSpec(workspace="/", workspace_mode=mode) for mode in modes),
        JailSpec(mounts=(Mount(path="/"),)),
    ):
        with pytest.raises(ValueError, match="'/' is the root"):
            plan_of(spec, OFFER)


def test_threads_share_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event loop of a program is a thread, and what one drops another is looking at."""
    monkeypatch.setattr(plan, "_KNOWN_MAX", 4)
    offer = Offer(landlock_abi=7)
    specs = [JailSpec(limits=Limits(processes=10 + number)) for number in range(16)]

    def look(start: int) -> None:
        for turn in range(200):
            spec = specs[(start + turn * 7) % len(specs)]
            found = plan_of(spec, offer)
            assert isinstance(found, Plan)
            assert found.told["limits"]["processes"] == spec.limits.processes

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(look, range(4))) == [None] * 4
    finally:
        sys.setswitchinterval(interval_s)
    assert len(plan._known) == 4
