"""The one job that everybody here does: read a JSON request, call the function, print JSON."""

from __future__ import annotations

import os
import sys
from pathlib import Path

EXECUTABLE = os.path.realpath(sys.executable)
"""One interpreter for all: ours, and what each peer starts, with `-I -S`."""
PREFIX = os.path.dirname(os.path.dirname(EXECUTABLE))

HANDLER = '''\
"""What is called, by everybody."""


def handler(n):
    return {"n": n}
'''
JOB = """\
import json
import sys

sys.path.insert(0, {folder!r})
request = json.load(sys.stdin)
from handler import handler

print(json.dumps(handler(**request)))
"""


class Job:
    """A workspace that holds the handler, and the program that calls it outside of a jail."""

    def __init__(self, folder: Path) -> None:
        self.workspace = str(folder)
        self.handler = str(folder / "handler.py")
        self.program = str(folder / "job.py")
        Path(self.handler).write_text(HANDLER)
        Path(self.program).write_text(JOB.format(folder=self.workspace))

    @property
    def argv(self) -> list[str]:
        """The job as a command of its own."""
        return [EXECUTABLE, "-I", "-S", self.program]

    @property
    def readable(self) -> list[str]:
        """What of the host the job needs to see."""
        system = ["/usr", "/bin", "/lib", "/lib64"]
        shown = [path for path in system if os.path.exists(path)]
        prefix = [] if PREFIX.startswith("/usr") else [PREFIX]
        return [*shown, *prefix, self.workspace]
