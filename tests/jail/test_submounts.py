"""Another file system inside the workspace: refused by name, and never what lies beneath it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .elsewhere import supervised

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
import json, os, subprocess, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Pool, run_in_jail

async def main():
    workspace, mode, place = sys.argv[1:]
    spec = JailSpec(workspace=workspace, workspace_mode=mode)
    handler = CommandHandler(argv=("/bin/sh", "-c", 'cd "$1" && cat *', "sh", place))
    found = []

    async def look(pool):
        for given in (pool, None):
            outcome = await run_in_jail(handler, spec, pool=given)
            kind = outcome.failure and outcome.failure.kind
            found.append([outcome.timing.was_waiting, kind, outcome.stdout.text()])

    async with Pool(waiting=1) as pool:
        mount = 'mount -t tmpfs tmpfs "$0" && echo above > "$0/seen"'
        for change in ("true", mount, 'umount "$0"'):
            await pool.fill(spec)
            subprocess.run([*("sh", "-ec", change), place], check=True)
            await look(pool)
    print(json.dumps(found))

trio.run(main)
"""
PROPAGATION = {
    "private": "true",
    "shared": "mount --make-rshared /",
    # As a container's volume is on a host where all else is shared.
    "private in shared": (
        'mount --make-rshared /; mount --bind "$ws" "$ws"; mount --make-private "$ws"'
    ),
}


def later(prepare: str, workspace: Path, mode: str, place: Path) -> list[list[Any]]:
    """Calls before, under and after a mount, by one that waited and by one made for it."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", *own),
            *("sh", "-ec", f'ws="$4"; place="$6"; {prepare}; exec "$@"', "sh"),
            *(sys.executable, "-c", LATER, str(workspace), mode, str(place)),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[Any]] = json.loads(done.stdout)
    # The control: without a mount it was one that waited; after one it is not. After the unmount it
    # may be one that was made since.
    assert [one[0] for one in found[:4]] == [True, False, False, False]
    return [one[1:] for one in found]


@pytest.mark.parametrize("propagation", PROPAGATION)
@pytest.mark.parametrize("mode", ["read_only", "direct"])
def test_what_is_mounted_later_is_seen_or_refused_as_if_it_had_been_there(
    tmp_path: Path, mode: str, propagation: str
) -> None:
    """A jail that waits, and the zygote of all of them, were there before it: they would show what
    it covers."""
    # With a space, which the table of mounts writes in another way.
    workspace = tmp_path.resolve() / "a ws"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "sub" / "covered").write_text("beneath\n")
    found = later(PROPAGATION[propagation], workspace, mode, workspace / "sub")
    before, under = [None, "beneath\n"], [None, "above\n"]
    if mode == "read_only":
        under = ["confinement_failed", ""]
    assert found == [before, before, under, under, before, before]


@pytest.mark.parametrize("propagation", ["private", "shared"])
def test_what_is_mounted_later_in_a_system_folder_is_seen(tmp_path: Path, propagation: str) -> None:
    """A zygote's own copy of the system was made before it, and shows what it covers."""
    place = next(path for path in sorted(Path("/usr/share").iterdir()) if path.is_dir())
    cover = f'mount -t tmpfs tmpfs {place}; mkdir "$place"; echo beneath > "$place/covered"'
    prepare = f"{cover}; {PROPAGATION[propagation]}"
    (tmp_path / "ws").mkdir()
    found = later(prepare, tmp_path.resolve() / "ws", "read_only", place / "sub")
    before, under = [None, "beneath\n"], [None, "above\n"]
    assert found == [before, before, under, under, before, before]


MOVED = """
import json, subprocess
from toolcell_sandbox._child import mountinfo, syscalls

watch, found = mountinfo.Watch(), []
for act in ("nothing", "move", "nothing", "mount", "nothing"):
    if act == "move":
        syscalls.unshare(syscalls.CLONE_NEWNS)
    elif act == "mount":
        syscalls.mount("covers", "/mnt", "tmpfs", 0)
    has_changed = watch.has_changed()
    found.append([act, has_changed, any(b"covers" in each.line for each in watch.read())])
print(json.dumps(found))
"""


def test_who_has_moved_to_another_namespace_hears_of_its_mounts() -> None:
    """An open table is that of the namespace which was left, and says nothing of this one."""
    nothing = ["nothing", False, False]
    assert supervised(MOVED) == [
        *(nothing, ["move", True, False], nothing),
        *(["mount", True, True], ["nothing", False, True]),
    ]
