"""When a template is made again: what it shows has to be what lies there now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox._child import syscalls, template


class Made(template.Templates):
    """Notes what it makes, in place of mounting it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def _build(self, plan: Any, asked: Any) -> template.Template:
        self.count += 1
        return template.Template(f"place {self.count}", {}, {})


@pytest.fixture
def unmounted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places of those that are gone."""
    gone: list[str] = []
    monkeypatch.setattr(syscalls, "umount_detach", gone.append)
    return gone


def plan(system: Path, interpreter: Path, *, shared: bool = True) -> dict[str, Any]:
    entry = {"path": str(interpreter), "shared": shared, "owned": True}
    return {"system": [str(system)], "private": [], "files": {}, "mounts": [entry]}


@pytest.mark.parametrize("which", ["system", "interpreter"])
def test_a_folder_that_was_replaced_is_shown_as_it_is_now(
    tmp_path: Path, unmounted: list[str], which: str
) -> None:
    """Who has made its venv again would run the old one until the zygote is."""
    for name in ("system", "interpreter", "other"):
        (tmp_path / name).mkdir()
    made = Made()
    told = plan(tmp_path / "system", tmp_path / "interpreter")
    other = plan(tmp_path / "system", tmp_path / "other")

    def place(told: dict[str, Any] = told, name: str = "plan") -> str:
        return made.of(told, name, ranged=False).place

    assert [place(), place()] == ["place 1", "place 1"]
    assert place(other, "other") == "place 2"
    (tmp_path / which).rename(tmp_path / "away")
    (tmp_path / which).mkdir()
    assert [place(), place()] == ["place 3", "place 3"]
    # Each for itself: one that shows nothing of it is kept.
    kept = place(other, "other")
    assert kept == ("place 4" if which == "system" else "place 2")
    assert unmounted == (["place 1", "place 2"] if which == "system" else ["place 1"])


def test_what_each_jail_opens_for_itself_is_no_affair_of_the_template(
    tmp_path: Path, unmounted: list[str]
) -> None:
    """It would be made again for nothing, which costs a call some milliseconds."""
    for name in ("system", "workspace"):
        (tmp_path / name).mkdir()
    made = Made()
    told = plan(tmp_path / "system", tmp_path / "workspace", shared=False)
    assert made.of(told, "plan", ranged=False).place == "place 1"
    (tmp_path / "workspace").rename(tmp_path / "away")
    assert made.of(told, "plan", ranged=False).place == "place 1"
    assert not unmounted
