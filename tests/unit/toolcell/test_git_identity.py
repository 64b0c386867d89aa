"""The person's name for git: three values, of their own file, and nothing else of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from toolcell._git_identity import git_environment
from toolcell._hints import hints

CONFIG = """
[user]
    name = Ada Lovelace
    email = "ada@example.org"
    signingkey = SECRET
[init]
    defaultBranch = trunk
[core]
    hooksPath = /evil
    sshCommand = evil
[include]
    path = other
[credential]
    helper = store
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


def test_three_values_and_no_more_reach_a_jail(home: Path) -> None:
    """A helper or a hook of the person's would be run by whatever a tool starts."""
    (home / ".gitconfig").write_text(CONFIG)
    (home / "other").write_text("[user]\nname = Eve\n")
    found = git_environment()
    told = {found[f"GIT_CONFIG_KEY_{n}"]: found[f"GIT_CONFIG_VALUE_{n}"] for n in range(3)}
    assert told == {
        "user.name": "Ada Lovelace",
        "user.email": "ada@example.org",
        "init.defaultbranch": "trunk",
    }
    assert found["GIT_CONFIG_COUNT"] == "3"
    assert len(found) == 7
    said = subprocess.run(
        ["git", "config", "user.name"],
        env={"PATH": "/usr/bin:/bin", **found},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "Ada Lovelace\n"


def test_a_file_that_is_none_gives_nothing(home: Path) -> None:
    """The supervisor reads it before any jail: it must not wait for a FIFO, nor fail for it."""
    assert git_environment() == {}
    (home / ".gitconfig").mkdir()
    assert git_environment() == {}
    (home / ".gitconfig").rmdir()
    (home / ".gitconfig").write_bytes(b"[user]\nname = \xff\x00\x1b[31m\nemail=" + b"x" * 999)
    assert git_environment() == {}


def test_xdg_comes_before_the_file_in_the_home(home: Path) -> None:
    """As git has it: what stands in ~/.gitconfig wins."""
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[user]\nname = Old\nemail = o@x\n")
    (home / ".gitconfig").write_text("[USER]\nName = New\n")
    found = git_environment()
    assert {found["GIT_CONFIG_VALUE_0"], found["GIT_CONFIG_VALUE_1"]} == {"o@x", "New"}


def test_a_programs_error_gets_the_way_out() -> None:
    """A model that meets EXDEV for the first time tries the same again."""
    said = "fatal: renaming 'a' failed: Invalid cross-device link"
    assert "use `mv`" in hints(said)[0]
    assert "--no-hardlinks" in hints("fatal: hardlink different from source at 'x'")[0]
    assert "chgrp" in hints("tee: f: Value too large for defined data type")[0]
    assert hints("all is well") == []
