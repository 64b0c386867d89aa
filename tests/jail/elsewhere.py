"""Supervisors in a mount namespace of their own, with a folder that no jail has another of.

Tests' own folders lie below /tmp, which is private in a jail: there everything may be written, and
nothing is a piece of every root. What these mount is gone with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from toolcell_sandbox import host

PLACE = next(
    place
    for place in ("/srv", "/media", "/opt")
    if os.path.isdir(place)
    and not any(folder.startswith(f"{place}/") for folder in host.interpreter_folders())
)
"""Empty at first, and on a file system of its own."""


def supervised(
    source: str, *words: str, prepare: str = "true", python: str = sys.executable
) -> Any:
    """What a program prints as JSON there, after a few lines of shell.

    Another interpreter than that of the tests finds the same modules.
    """
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    lines = f'mount -t tmpfs -o mode=0755 tmpfs {PLACE}; {prepare}; exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", *own),
            *("sh", "-ec", lines, "sh", python, "-c", source, *words),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def venv(place: str) -> str:
    """The shell that makes a virtual environment there; its links lead to the tests' own."""
    return f"{sys.executable} -m venv --without-pip --symlinks {place}"
