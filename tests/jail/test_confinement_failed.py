"""Hosts that cannot confine: the handler does not run, and the message says what would help."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = """
import json, os, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, run_in_jail
from toolcell_sandbox.host import base_environment

async def main():
    spec = JailSpec(workspace=sys.argv[1], workspace_mode="direct", env=base_environment())
    outcome = await run_in_jail(CommandHandler(argv=("touch", sys.argv[1] + "/ran")), spec)
    error = None if outcome.failure is None else outcome.failure.to_json()
    ran = os.path.exists(sys.argv[1] + "/ran")
    print(json.dumps([error, outcome.exit_code, dict(outcome.receipt.held), ran]))

trio.run(main)
"""


# A host of the test's own: a user namespace whose root is this user, so that it can be refused
# things. For root it has ids to give away as well, and a file system that it may id-map.
HOST = """
import os, subprocess, sys
from toolcell_sandbox._child import ids, syscalls
ready, go = os.pipe()
pid = syscalls.clone(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
if pid == 0:
    os.read(ready, 1)
    host, workspace, script = sys.argv[1:]
    mount = f"mount -t tmpfs none {workspace}"
    os.execvp("sh", ["sh", "-c", f'{mount} && {host} && exec "$@"', "sh",
                     sys.executable, "-c", script, workspace])
own = os.geteuid()
more = "1 1500000000 65536\\n" if own == 0 else ""
ids.write_maps(pid, f"0 {own} 1\\n{more}", f"0 {os.getegid()} 1\\n{more}", ranged=own == 0)
os.write(go, b"1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def run_under(host: str, workspace) -> Any:
    """Run the script on that host, after a shell line that refuses something."""
    done = subprocess.run(
        [sys.executable, "-c", HOST, host, str(workspace), SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_the_same_host_with_nothing_refused_runs_the_command(tmp_path):
    """The control: nested in a user namespace, a jail can be built."""
    error, exit_code, held, ran = run_under("true", tmp_path)
    assert (error, exit_code) == (None, 0)
    assert held["fs_confined"]
    assert ran


@pytest.mark.parametrize(
    ("host", "stage", "errno", "fix"),
    [
        (
            "echo 0 > /proc/sys/user/max_user_namespaces",
            "namespaces",
            "ENOSPC",
            "user.max_user_namespaces",
        ),
        ("echo 0 > /proc/sys/user/max_net_namespaces", "namespaces", "ENOSPC", "namespaces"),
        ("mount -t tmpfs none /proc/sys", "proc", "EPERM", "procMount"),
    ],
)
def test_what_the_host_refuses_is_named_with_the_fix_and_nothing_runs(
    tmp_path, host, stage, errno, fix
):
    """Running it unconfined, or saying only EPERM, are the two ways to lose a user."""
    error, exit_code, held, ran = run_under(host, tmp_path)
    assert error["kind"] == "confinement_failed"
    assert (error["stage"], error["errno"]) == (stage, errno)
    assert fix in error["fix"]
    assert (exit_code, held) == (None, {})
    assert not ran
