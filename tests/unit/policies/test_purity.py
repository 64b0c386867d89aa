"""The package stays pure: what it imports, and what its public face holds."""

import ast
from importlib.resources import files

import toolcell_policies

ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "difflib",
    "enum",
    "errno",
    "functools",
    "hashlib",
    "importlib",
    "itertools",
    "json",
    "math",
    "os",
    "re",
    "stat",
    "tomllib",
    "tree_sitter",
    "tree_sitter_bash",
    "types",
    "typing",
    "unicodedata",
}


def imported() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in files("toolcell_policies").iterdir():
        if not file.name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                found.setdefault(name.split(".")[0], set()).add(file.name)
    return found


def test_only_a_short_list_of_the_standard_library_is_imported() -> None:
    """A policy that can start a process or open a socket is no longer only a policy."""
    assert set(imported()) <= ALLOWED


def test_only_the_walk_knows_the_operating_system() -> None:
    """A decision that looks at the disk by itself cannot be replayed or tested."""
    assert imported()["os"] == {"_walk.py"}


def test_every_public_name_exists_and_is_listed_once() -> None:
    """`from toolcell_policies import *` in a program must not fail on a stale name."""
    names = toolcell_policies.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(toolcell_policies, name) for name in names)
