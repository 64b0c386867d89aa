"""What runs inside a jail imports the standard library and itself: every file, every import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHILD = Path(__file__).resolve().parents[2] / "sandbox" / "toolcell_sandbox" / "_child"
OWN_NAME = "toolcell_sandbox._child"


def strangers(source: str) -> Iterator[str]:
    """Each imported name that is neither standard library nor the child's own.

    Looks inside functions and `if` blocks too. `from .. import x` leaves the child.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
            if node.module == "toolcell_sandbox":
                names = [f"toolcell_sandbox.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            names = ["." * node.level + (node.module or "")]
        else:
            continue
        for name in names:
            own = name == OWN_NAME or name.startswith(OWN_NAME + ".")
            if not own and name.split(".")[0] not in sys.stdlib_module_names:
                yield name


def test_the_child_imports_only_the_standard_library_and_itself() -> None:
    """Site-packages are not there yet when a jail starts, and an import there is a way in."""
    files = sorted(CHILD.rglob("*.py"))
    assert files
    found = {
        str(file.relative_to(CHILD)): names
        for file in files
        if (names := list(strangers(file.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os, ctypes.util", []),
        ("from . import frames\nfrom .syscalls import clone", []),
        ("from toolcell_sandbox._child import frames", []),
        ("import toolcell_sandbox._child.frames", []),
        ("import toolcell_sandbox._childish", ["toolcell_sandbox._childish"]),
        ("from toolcell_sandbox import spec", ["toolcell_sandbox.spec"]),
        ("from ..spec import Limits", ["..spec"]),
        ("def late():\n    import psutil", ["psutil"]),
        ("try:\n    from orjson import loads\nexcept ImportError:\n    pass", ["orjson"]),
    ],
)
def test_a_stranger_is_seen(source: str, expected: list[str]) -> None:
    """The check above must itself be able to fail."""
    assert list(strangers(source)) == expected
