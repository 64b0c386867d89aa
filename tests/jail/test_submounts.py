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


LATER = """
import json, subprocess, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Pool, run_in_jail

async def main():
    workspace, mode = sys.argv[1:]
    spec = JailSpec(workspace=workspace, workspace_mode=mode)
    handler = CommandHandler(argv=("sh", "-c", "cat sub/*"))
    found = []
    async with Pool(waiting=1) as pool:
        for mounts in (False, True):
            await pool.fill(spec)
            if mounts:
                mount = "mount -t tmpfs tmpfs sub && echo above > sub/seen"
                subprocess.run(mount, shell=True, check=True, cwd=workspace)
            for given in (pool, None):
                outcome = await run_in_jail(handler, spec, pool=given)
                kind = outcome.failure and outcome.failure.kind
                found.append([outcome.timing.was_waiting, kind, outcome.stdout.text()])
    print(json.dumps(found))

trio.run(main)
"""


@pytest.mark.parametrize("mode", ["read_only", "direct"])
def test_what_is_mounted_later_is_seen_or_refused_as_if_it_had_been_there(
    tmp_path: Path, mode: str
) -> None:
    """A jail that waits, and the zygote of all of them, were there before it: they would show what
    it covers."""
    workspace = tmp_path.resolve() / "ws"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "sub" / "covered").write_text("beneath\n")
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", *own),
            *(sys.executable, "-c", LATER, str(workspace), mode),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    before, after = [None, "beneath\n"], [None, "above\n"]
    if mode == "read_only":
        after = ["confinement_failed", ""]
    found = json.loads(done.stdout)
    assert [one[1:] for one in found] == [before, before, after, after]
    # The control: without the mount it was one that waited.
    assert [one[0] for one in found] == [True, False, False, False]
