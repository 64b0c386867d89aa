"""shell: one command line for bash, or sh where there is no bash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from toolcell.markers import Above, ReadPath

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


def shell(
    command: str,
    cwd: ReadPath = Path("."),
    timeout_s: Annotated[float, Above(0)] | None = None,
) -> tuple[tuple[str, ...], str, str]:
    """Run a shell command and return its exit code, stdout and stderr.

    Args:
        command: the command line, for bash
        cwd: the folder to run it in
        timeout_s: seconds after which it is ended
    """
    # Runs in the supervisor: the words only. The executor applies timeout_s.
    program = next((path for path in _SHELLS if os.access(path, os.X_OK)), _SHELLS[-1])
    return (program,), os.fspath(cwd), command
