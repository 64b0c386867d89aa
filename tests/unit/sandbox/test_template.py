"""When a template is made again: what it shows has to be what lies there now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox._child import syscalls, template
from toolcell_sandbox._child.report import StageFailed


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


def test_a_link_that_leads_elsewhere_is_another_one(tmp_path: Path) -> None:
    """A removed link's number is given to the next one, and no mount holds it."""
    link = tmp_path / "link"
    link.symlink_to("one")
    before = template.looks([str(link), str(tmp_path / "none")])
    assert before == template.looks([str(link), str(tmp_path / "none")])
    link.unlink()
    link.symlink_to("two")
    found = template.looks([str(link)])
    assert found[0] is not None
    assert found[0] != before[0]
    assert before[1] is None


def test_a_plan_that_asks_for_the_place_itself_gets_another_one(
    tmp_path: Path, unmounted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the zygote's namespace a template covers what lies there, for every plan."""
    for name in ("system", "one", "two", "three"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("two")
    names = ("none", "one", "link", "two")
    monkeypatch.setattr(template, "_PLACES", [str(tmp_path / name) for name in names])
    monkeypatch.setattr(syscalls, "mount", lambda *_: None)
    monkeypatch.setattr(
        template.Templates, "_fill", lambda _, place, *__: template.Template(place, {}, {})
    )
    made = template.Templates()

    def place(*asked: str) -> str:
        told = plan(tmp_path / "system", tmp_path / "three")
        told["mounts"] += [{"path": str(tmp_path / name), "shared": False} for name in asked]
        return made.of(told, str(asked), ranged=False).place.removeprefix(f"{tmp_path}/")

    assert [place(), place("one-evil")] == ["one/0", "one/0"]
    assert place("one/sub") == "two/1"
    assert unmounted == [str(tmp_path / "one")]
    # It stays where it hides nothing from either.
    assert [place(), place("one/sub"), place("one")] == ["two/1"] * 3
    assert place("two") == "one/2"
    with pytest.raises(StageFailed) as caught:
        place("one", "two/sub")
    assert "one of them has to be free" in str(caught.value.facts["cause"])
