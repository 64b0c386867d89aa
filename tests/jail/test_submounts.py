"""Another file system inside the workspace: refused by name, and never what lies beneath it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import json, sys, trio
from toolcell import Executor
from toolcell.approval import unsafe_approve_all

async def main():
    workspace, state, mode = sys.argv[1:]
    options = {"workspace": workspace, "state_dir": state, "approver": unsafe_approve_all}
    async with Executor(**options) as executor:
        call = {"command": "cat sub/*; echo x > new"}
        result = await executor.call("shell", call, workspace_mode=mode)
    print(json.dumps(result.to_json()))

trio.run(main)
"""


def called(place: Path, mode: str, *, mounted: bool) -> dict[str, Any]:
    """One call, in a mount namespace in which a tmpfs may cover a folder of the workspace."""
    for name in ("ws/sub", "state"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "ws" / "sub" / "covered").write_text("beneath\n")
    mount = "mount -t tmpfs tmpfs ws/sub; echo above > ws/sub/seen; " if mounted else ""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", *own),
            *("sh", "-ec", f'{mount}exec "$@"', "sh", sys.executable, "-c", SCRIPT),
            *(str(place / "ws"), str(place / "state"), mode),
        ],
        cwd=place,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("mode", ["transaction", "read_only"])
def test_a_mount_inside_is_refused_by_name(tmp_path: Path, mode: str) -> None:
    """An overlay shows what the mount covers, which whoever mounted it has put out of sight."""
    place = tmp_path.resolve()
    control = called(place, mode, mounted=False)
    assert control["error"] is None
    assert control["output"]["stdout"] == "beneath\n"
    found = called(place, mode, mounted=True)
    assert found["error"]["kind"] == "confinement_failed"
    assert f"{place}/ws/sub" in found["error"]["cause"]
    assert "unmount it" in found["error"]["fix"]
    assert "beneath" not in json.dumps(found)


def test_in_place_the_mount_is_what_it_is_for_everybody(tmp_path: Path) -> None:
    """The way out that the refusal names has to be one, and shows nothing covered either."""
    found = called(tmp_path.resolve(), "direct", mounted=True)
    assert found["error"] is None
    assert found["output"]["stdout"] == "above\n"


def test_a_workspace_of_the_jails_own_minds_no_mount(tmp_path: Path) -> None:
    """Nothing of the host's is in it."""
    found = called(tmp_path.resolve(), "scratch", mounted=True)
    assert found["error"] is None
    assert found["output"]["stdout"] == ""
