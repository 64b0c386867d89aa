"""Small projects that are made for the benchmark: one for `npm ci`, one for pytest."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

PACKAGES = 12
FILES_A_PACKAGE = 20
TEST_FILES = 8
TESTS_A_FILE = 25
NPM_CI = ["npm", "ci", "--offline", "--no-audit", "--no-fund", "--no-update-notifier"]


def npm_project(folder: Path) -> None:
    """A project whose dependencies are archives that lie beside it, with its lock file.

    Raises:
        OSError, subprocess.CalledProcessError: there is no npm, or it fails.
    """
    archives = folder / "archives"
    archives.mkdir(parents=True)
    needs = {}
    for number in range(PACKAGES):
        name = f"part-{number}"
        _pack(archives / f"{name}.tgz", name)
        needs[name] = f"file:archives/{name}.tgz"
    about = {"name": "bench", "version": "1.0.0", "private": True, "dependencies": needs}
    (folder / "package.json").write_text(json.dumps(about))
    lock = ["npm", "install", "--package-lock-only", *NPM_CI[2:]]
    subprocess.run(lock, cwd=folder, check=True, capture_output=True)


def _pack(archive: Path, name: str) -> None:
    about = {"name": name, "version": "1.0.0", "main": "file0.js"}
    with tarfile.open(archive, "w:gz") as packed:
        _add(packed, "package/package.json", json.dumps(about))
        for number in range(FILES_A_PACKAGE):
            _add(packed, f"package/file{number}.js", f"exports.n = {number};\n" * 50)


def _add(packed: tarfile.TarFile, path: str, text: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(text)
    packed.addfile(entry, io.BytesIO(text.encode()))


def pytest_project(folder: Path) -> None:
    """A package of one module, and some tests of it."""
    (folder / "tests").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (folder / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    for number in range(TEST_FILES):
        tests = [
            f"def test_{one}(tmp_path):\n    (tmp_path / 'x').write_text('{one}')\n"
            f"    assert add({one}, {number}) == {one + number}\n"
            for one in range(TESTS_A_FILE)
        ]
        text = "\n\n".join(["from sums import add\n", *tests])
        (folder / "tests" / f"test_{number}.py").write_text(text)


def outside_environment(home: Path) -> dict[str, str]:
    """What the same program is given outside: an empty home, as in a jail."""
    home.mkdir(exist_ok=True)
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8"}
