"""How the tests run a program of one dialect: as its users do, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def transcript(program: str, workspace: Path, state_dir: Path) -> dict[str, Any]:
    """The JSON object that `python -m …dialects.PROGRAM WORKSPACE STATE_DIR` prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.conformance.dialects.{program}", workspace, state_dir],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
