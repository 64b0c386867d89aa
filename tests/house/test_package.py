"""What an installer and a type checker are told about this project."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_has_one_source() -> None:
    """`--version`, the wheel and the package must never disagree."""
    from toolcell._version import __version__

    assert distribution("toolcell").version == __version__


def test_the_metadata_is_what_we_mean() -> None:
    """A wrong lower bound installs us where we cannot run; a lost script leaves no command."""
    found = distribution("toolcell")
    assert found.metadata["Requires-Python"] == ">=3.11"
    assert found.metadata["License-Expression"] == "Apache-2.0"
    (script,) = found.entry_points.select(group="console_scripts")
    assert (script.name, script.value) == ("toolcell", "toolcell.cli:main")


@pytest.mark.parametrize(
    "package",
    ["executor/toolcell", "policies/toolcell_policies", "sandbox/toolcell_sandbox"],
)
def test_a_package_is_typed(package: str) -> None:
    """Without the marker a user's type checker takes every name of ours for Any."""
    assert (ROOT / package / "py.typed").is_file()
