"""What a jail is made of before its call is known."""

from __future__ import annotations

import pytest

from toolcell_sandbox import JailSpec, Mount, host
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
    plan = plan_of(JailSpec(workspace="/ws", workspace_mode=mode), Offer(landlock_abi=7))
    assert isinstance(plan, Plan)
    shared = {entry["path"]: entry["shared"] for entry in plan.told["mounts"]}
    assert {path for path in folders if shared[path]} == {"/opt/py", "/ws-evil/py"}
