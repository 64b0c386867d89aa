"""A host as in an unprivileged container: no namespaces, no mounts, a /proc that is covered.

Everything runs inside `docker_like.py`, whose end is the end of all that is in it; what attacks,
and what would be reached, is in `container_attacks.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TOOLCELL = ("-c", "import sys; from toolcell.cli import main; sys.exit(main())")
NOTHING_REFUSED = ("--no-filter", "--no-masks", "--no-caps")

LEVEL = {
    *("fs_confined", "net_blocked", "syscalls_filtered", "tree_killed", "memory_limited"),
    *("cpu_limited", "files_limited", "env_scrubbed", "fds_closed", "no_new_privileges"),
    *("signals_scoped", "ipc_private", "devices_minimal"),
}
EXTRA = set() if os.geteuid() == 0 else {"processes_limited"}
"""What this level holds for a worker whose uid is not 0."""


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Gone afterwards, even if a test failed: pytest's own removal trips over what is left here."""
    yield tmp_path
    script = 'chmod -R u+rwX "$1" && rm -rf "$1"'
    subprocess.run(["/bin/sh", "-c", script, "sh", str(tmp_path)], check=True)


def contained(place: Path, *argv: str, off: tuple[str, ...] = ()) -> Any:
    """Run a program in the container, with a temporary folder of its own."""
    for name in ("workspace", "tmp", "state"):
        (place / name).mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, str(HERE / "docker_like.py"), *off, sys.executable, *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={
            **os.environ,
            "TMPDIR": str(place / "tmp"),
            "TOOLCELL_STATE_DIR": str(place / "state"),
        },
    )


def scenario(name: str, place: Path, *, off: tuple[str, ...] = (), says: str = "") -> Any:
    """What a scenario found; nothing but `says` was said on stderr."""
    script = str(HERE / "container_attacks.py")
    done = contained(place, script, name, str(place / "workspace"), off=off)
    assert (done.returncode, done.stderr) == (0, says)
    return json.loads(done.stdout)


def assert_confined(found: Any) -> None:
    assert found["error"] is None
    assert found["isolation"] == "container"
    assert set(found["held"]) == LEVEL | EXTRA


# -- what a user meets ---------------------------------------------------------------------


def test_the_same_host_with_nothing_refused_runs_the_standard_level(tmp_path):
    """The control: what is refused below is refused by the container, and by nothing else."""
    found = scenario("standard", tmp_path, off=NOTHING_REFUSED)
    assert (found["error"], found["exit_code"], found["ran"]) == (None, 0, True)
    assert found["isolation"] == "standard"


@pytest.mark.parametrize("off", [(), ("--no-caps",), ("--no-filter",)])
def test_standard_in_a_container_runs_nothing_and_first_names_the_flag_that_helps(tmp_path, off):
    """Whoever reads one line only, in a build's log, has to find the flag there."""
    found = scenario("standard", tmp_path, off=off)
    error = found["error"]
    assert error["kind"] == "confinement_failed"
    assert error["message"].startswith("use --isolation container")
    assert error["fix"].startswith("use --isolation container")
    assert (found["held"], found["exit_code"], found["ran"]) == ([], None, False)


def test_the_container_level_really_runs_in_each_mode(tmp_path):
    """A level that only refuses would be a level that nobody can use."""
    found = scenario("modes", tmp_path)
    for mode, (python, command, _) in found.items():
        assert_confined(python)
        assert_confined(command)
        seen = python["value"]
        assert (seen["temporary"], seen["home"], seen["secrets"]) == ("done", "done", []), mode
    read_only, scratch, direct = (found[mode] for mode in ("read_only", "scratch", "direct"))
    assert (read_only[0]["value"]["entries"], read_only[0]["value"]["write"]) == (
        ["there"],
        "EACCES",
    )
    assert (read_only[1]["stdout"], read_only[1]["exit_code"]) == ("there\n", 2)
    assert read_only[2] == ["there"]
    assert (scratch[0]["value"]["entries"], scratch[0]["value"]["write"]) == ([], "done")
    assert (scratch[1]["stdout"], scratch[1]["exit_code"]) == ("x\n", 0)
    assert scratch[2] == ["there"]
    assert (direct[0]["value"]["entries"], direct[0]["value"]["write"]) == (["there"], "done")
    assert (direct[1]["stdout"], direct[1]["exit_code"]) == ("made\nthere\nx\n", 0)
    assert direct[2] == ["by-sh", "made", "there"]


def test_a_built_in_runs_in_a_container_from_the_command_line(tmp_path):
    """What somebody types first, in a container, with the flag that the error told them."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "there").touch()
    options = ("--workspace", str(tmp_path / "workspace"), "--json")
    level = ("--isolation", "container")
    refused = contained(tmp_path, *TOOLCELL, "run", "list_directory", *options)
    assert json.loads(refused.stdout)["error"]["kind"] == "confinement_failed"
    done = contained(tmp_path, *TOOLCELL, "run", "list_directory", *level, *options)
    result = json.loads(done.stdout)
    assert (done.returncode, result["error"]) == (0, None), done.stderr
    assert [entry["path"] for entry in result["output"]["entries"]] == ["there"]
    assert result["receipt"]["isolation"] == "container"


def test_the_doctor_says_that_this_level_holds_here(tmp_path):
    """Whoever sets up a container asks the doctor before they trust a level."""
    done = contained(tmp_path, *TOOLCELL, "doctor", "--isolation", "container")
    assert done.returncode == 0, done.stdout + done.stderr
    standard = contained(tmp_path, *TOOLCELL, "doctor", "--isolation", "standard")
    assert standard.returncode != 0
    assert "--isolation container" in standard.stdout


# -- under attack --------------------------------------------------------------------------


def test_nothing_outside_the_workspace_can_be_read(tmp_path):
    """Keys lie beside the workspace, and other processes' secrets in their environment."""
    found = scenario("read", tmp_path)
    assert set(found["control"].values()) == {"done"}
    assert_confined(found)
    assert set(found["value"].values()) == {"EACCES"}
    assert "/proc/1/environ" in found["value"]


def test_nothing_outside_the_workspace_can_be_changed(tmp_path):
    """The worker's uid owns it: neither content nor name, mode, owner, time or attribute is safe
    unless each call that changes it is held."""
    found = scenario("change", tmp_path)
    assert set(found["control"].values()) <= {"done", "ENOTSUP"}
    assert list(found["control"].values()).count("ENOTSUP") <= 1  # no user xattrs on this disk
    assert_confined(found)
    assert "done" not in found["value"].values()
    assert found["same"] is True
    assert found["kept"] == ["secret", ["file", "folder", "other"]]


def test_what_is_refused_outside_works_inside_the_workspace(tmp_path):
    """The other half: a fence around everything would break every tool."""
    own = scenario("change", tmp_path)["own"]
    refused = {name: said for name, said in own["value"].items() if said != "done"}
    assert refused == {"setxattr": "ENOTSUP"}  # named in docs/system-calls.md: nothing needs it


def test_no_socket_of_any_family_can_be_made(tmp_path):
    """One family is enough: AF_VSOCK reaches the hypervisor, AF_UNIX the container's daemons."""
    found = scenario("sockets", tmp_path)
    assert set(found["control"]["done"]) >= {"1", "2"}
    assert_confined(found)
    value = found["value"]
    assert value.pop("socketpair") == ["done"]  # reaches nobody: asyncio and node wake by it
    assert set(value) == {"EPERM"}
    assert len(value["EPERM"]) == 64


def test_no_process_outside_can_be_seen_slowed_or_ended(tmp_path):
    """The supervisor has the worker's uid: the kernel's own checks let everything through."""
    found = scenario("others", tmp_path)
    assert set(found["control"].values()) == {"done"}
    assert found["killed"] == 9  # by the control
    assert_confined(found)
    assert found["lives"] is True
    for seen in (found["value"], found["of the supervisor"]):
        assert set(seen.values()) <= {"EPERM", "EACCES", "ESRCH"}


def test_no_system_v_object_can_be_left_to_the_container(tmp_path):
    """They outlive every process, and their number is one budget for all."""
    found = scenario("ipc", tmp_path)
    assert set(found["control"].values()) == {"done"}
    assert_confined(found)
    assert set(found["value"].values()) == {"EPERM"}


# -- the tree ------------------------------------------------------------------------------


def test_a_daemon_is_gone_before_the_result_returns(tmp_path):
    """A double fork and a session of its own were always enough to stay."""
    found = scenario("daemon", tmp_path)
    assert found["control"] is True
    assert_confined(found)
    assert found["value"] > 1
    assert found["left"] == []


def test_a_fork_bomb_is_ended_at_the_deadline_with_nothing_left(tmp_path):
    """Whoever kills one by one is outrun; a group is killed at once."""
    found = scenario("bomb", tmp_path)
    assert found["error"]["kind"] == "timeout"
    assert found["left"] == []
    # Over the whole uid, and uid 0 is not bound at all: then it is the bomb that stops.
    least, most = (100, 150) if os.geteuid() == 0 else (20, 60)
    assert least <= found["forked"] <= most


def test_a_tree_dies_with_its_supervisor_and_its_folder_is_removed(tmp_path):
    """A crash of ours would leave hostile code in the container, and its files, for ever."""
    found = scenario("supervisor", tmp_path)
    assert found["up"] is True
    # Supervisor, zygote, init, leader, daemon.
    assert (found["alive"], found["folders"]) == (5, 1)
    assert found["gone"] is True
    assert found["folders_gone"] is True


def test_a_killed_init_is_a_typed_ending_and_takes_the_group_along(tmp_path):
    """Without a pid namespace nobody but the supervisor is left to end what it held."""
    found = scenario("init", tmp_path)
    assert found["alive"] == 3
    assert found["error"]["kind"] == "crashed"
    assert found["gone"] is True
    assert found["folders_gone"] is True


def test_other_calls_go_on_while_a_flooded_folder_is_removed(tmp_path):
    """No limit bounds what a jail leaves there: removed on the event loop, one call's folders
    would hold every other call, and the deadlines of all of them, for minutes."""
    found = scenario("flood", tmp_path)
    assert_confined(found)
    assert found["value"] == "flooded"
    # Of all the time that it took, no more than a part at once; how long it took is the disk's.
    assert found["longest_s"] < max(0.25, found["whole_s"] / 4), found
    assert found["gone"] is True


def test_the_private_folders_go_whatever_a_jail_left_in_them(tmp_path):
    """A temporary folder that fills up ends the host; a link that is followed ends its files."""
    found = scenario("litter", tmp_path)
    for mode in ("scratch", "direct"):
        assert_confined(found[mode])
        assert found[mode]["value"] == "littered"
        assert found[mode]["kept"] == [True, "secret", ["file", "folder", "other"]]
    # The control: in mode `direct` the jail's own workspace is what it has left there.
    assert {"closed", "fifo", "link", "folder"} <= set(os.listdir(tmp_path / "workspace"))
