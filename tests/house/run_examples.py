"""Runs examples, each in a fork of this process, so that what all of them import is paid once.

Arguments: a folder for their state. Standard input: {name: folder} as JSON; standard output:
{name: what `main.py` there printed, errors too}.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

LIMIT_S = 60


def main() -> str | None:
    """The answer; None in a fork, which has run its example and ends."""
    import pydantic  # noqa: F401  # for the forks
    import trio

    import toolcell

    _ = toolcell.Executor, toolcell.ToolRuntime, toolcell.BlockingExecutor, trio
    printed = {}
    for number, (name, folder) in enumerate(json.load(sys.stdin).items()):
        out = Path(folder).with_suffix(".out")
        child = os.fork()
        if child == 0:
            _become(folder, out, Path(sys.argv[1]) / str(number))
            return None
        os.waitpid(child, 0)
        printed[name] = out.read_text(encoding="utf-8")
    return json.dumps(printed)


def _become(folder: str, out: Path, state: Path) -> None:
    import signal

    signal.alarm(LIMIT_S)
    fd = os.open(out, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.environ["TOOLCELL_STATE_DIR"] = str(state)
    os.chdir(folder)
    sys.argv = ["main.py"]
    sys.path[0] = folder
    try:
        runpy.run_path("main.py", run_name="__main__")
    except Exception:  # noqa: BLE001  # what it says is what the page is compared with
        traceback.print_exc()


if __name__ == "__main__":
    answer = main()
    if answer is not None:
        sys.stdout.write(answer)
