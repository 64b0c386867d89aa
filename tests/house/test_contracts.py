"""Each import contract of pyproject.toml bites: violations planted in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("executor", "policies", "sandbox")

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS: dict[str, dict[str, Any]] = {
    contract["id"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]
}

# (contract, {module: the line planted in it}, what the report must say beside the contract's name)
PLANTED: dict[str, tuple[str, dict[str, str], str]] = {
    "a_step_that_reaches_back": (
        "road",
        {
            "executor/toolcell/executor.py": "",
            "executor/toolcell/settlement.py": "import toolcell.executor",
        },
        "toolcell.settlement is not allowed to import toolcell.executor",
    ),
    "a_module_without_a_place_on_the_road": (
        "road",
        {"executor/toolcell/planted.py": ""},
        "not listed as layers",
    ),
    "a_step_that_imports_the_public_face": (
        "face",
        {"executor/toolcell/settlement.py": "from toolcell import Executor"},
        "toolcell.settlement is not allowed to import toolcell",
    ),
    "a_sandbox_that_knows_a_policy": (
        "ground",
        {"sandbox/toolcell_sandbox/planted.py": "import toolcell_policies"},
        "toolcell_sandbox is not allowed to import toolcell_policies",
    ),
    "a_policy_that_knows_toolcell": (
        "ground",
        {"policies/toolcell_policies/planted.py": "import toolcell"},
        "toolcell_policies is not allowed to import toolcell",
    ),
    "a_child_that_needs_trio": (
        "child",
        {"sandbox/toolcell_sandbox/_child/planted.py": "import trio"},
        "toolcell_sandbox._child is not allowed to import trio",
    ),
    "a_child_that_knows_its_supervisor": (
        "child",
        {
            "sandbox/toolcell_sandbox/planted.py": "",
            "sandbox/toolcell_sandbox/_child/planted.py": "import toolcell_sandbox.planted",
        },
        "toolcell_sandbox._child is not allowed to import toolcell_sandbox.planted",
    ),
    "a_policy_that_starts_a_process_through_a_helper": (
        "pure",
        {
            "policies/toolcell_policies/planted_helper.py": "import subprocess",
            "policies/toolcell_policies/planted.py": "import toolcell_policies.planted_helper",
        },
        "toolcell_policies is not allowed to import subprocess",
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with pyproject.toml and copies of the three source roots."""
    for root in SOURCE_ROOTS:
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(tree: Path, module: str, line: str) -> None:
    """Add `line` to a module, which is made if it does not exist."""
    with (tree / module).open("a", encoding="utf-8") as stream:
        stream.write(f"\n{line}\n")


def lint_imports(tree: Path, *contracts: str) -> tuple[int, str]:
    """Exit code and report for the packages in `tree`; PYTHONPATH wins over what is installed."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            "--no-logo",
            "--no-cache",
            *(f"--contract={contract}" for contract in contracts),
        ],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(tree / root) for root in SOURCE_ROOTS),
            "NO_COLOR": "1",
            "COLUMNS": "200",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_tree_keeps_every_contract(tree: Path) -> None:
    """Otherwise the violations below would prove nothing: their contracts were broken before."""
    code, report = lint_imports(tree)
    assert code == 0, report
    for contract in CONTRACTS.values():
        assert f"{contract['name']} KEPT" in report


@pytest.mark.parametrize("planted", PLANTED)
def test_a_contract_bites(tree: Path, planted: str) -> None:
    """A contract that cannot fail (a wrong name, a package not looked into) protects nothing."""
    contract, modules, complaint = PLANTED[planted]
    for module, line in modules.items():
        plant(tree, module, line)
    code, report = lint_imports(tree, contract)
    assert code == 1, report
    assert f"{CONTRACTS[contract]['name']} BROKEN" in report
    assert complaint in report


def test_every_contract_is_shown_to_bite() -> None:
    """A contract added without a violation here is one that nobody has seen fail."""
    assert {contract for contract, _, _ in PLANTED.values()} == set(CONTRACTS)


def test_the_child_contract_names_every_dependency() -> None:
    """A dependency added to the project must not slip into the jail unnoticed."""
    forbidden = set(CONTRACTS["child"]["forbidden_modules"])
    for requirement in PROJECT["project"]["dependencies"]:
        name = requirement.split(">")[0].split("=")[0].split("[")[0].strip()
        assert name.replace("-", "_") in forbidden
