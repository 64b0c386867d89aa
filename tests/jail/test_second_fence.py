"""Landlock behind the mounts: it refuses what they let by, and nothing that they grant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolcell_sandbox import CommandHandler, JailSpec, Mount, Pool, run_in_jail
from toolcell_sandbox.spec import WorkspaceMode

from .conftest import Jail


@pytest.mark.parametrize("mode", ["read_only", "transaction"])
async def test_a_writable_folder_in_a_layered_workspace_can_be_written(
    jail: Jail, mode: WorkspaceMode
) -> None:
    """A folder that was granted, and where every write is refused, is a tool that fails."""
    shared, beside = jail.workspace / "shared", jail.workspace / "beside"
    shared.mkdir()
    beside.mkdir()
    (shared / "file").write_text("before")
    spec = JailSpec(
        workspace=str(jail.workspace),
        workspace_mode=mode,
        mounts=(Mount(path=str(shared), writable=True, owned=True),),
    )
    script = "echo x > beside/new; set -e; echo after > shared/file; mkdir shared/new"
    handler = CommandHandler(argv=("/bin/sh", "-c", script))
    async with Pool(waiting=1) as pool:
        assert await pool.fill(spec) == 1
        for waits in (True, False):
            outcome = await run_in_jail(handler, spec, pool=pool if waits else None)
            assert outcome.timing.was_waiting is waits
            assert (outcome.failure, outcome.exit_code) == (None, 0), outcome.stderr.text()
            assert (shared / "file").read_text() == "after\n"
            # The near miss: a layer took it, or it was refused.
            assert not list(beside.iterdir())
            assert ("Read-only" in outcome.stderr.text()) is (mode == "read_only")
            (shared / "new").rmdir()
            (shared / "file").write_text("before")
