"""SIGKILL to the supervisor at thirty random moments: nothing of its calls may live on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROUNDS = 30


def test_case_13_nothing_survives_a_supervisor_that_is_killed():
    """Otherwise one crash of ours leaves hostile code running on the host for ever."""
    script = Path(__file__).with_name("killed_supervisor.py")
    mark = "7231"
    done = subprocess.run(
        [sys.executable, str(script), str(ROUNDS), "20261130", mark],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == ROUNDS
    assert [line for line in lines if not line.startswith("gone ")] == []
    # The control: at most moments there was something to be killed.
    alive = [int(line.split()[1]) for line in lines]
    assert sum(count > 4 for count in alive) > ROUNDS // 2
