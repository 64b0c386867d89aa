"""What lies at some paths is noticed to be another, though most are not looked at again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from toolcell_sandbox._child import places


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that was last changed long ago, as far as its stamp tells."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("one")
    return tmp_path


def settle(folder: Path) -> None:
    """Wait until the folder's stamp is one that no later change can have."""
    while not places.is_old(places.stamp(str(folder)), time.time_ns()):
        os.sched_yield()


def in_folder(folder: Path) -> places.Places:
    names = ("one", "two", "link", "none", "nowhere/one")
    return places.Places(str(folder / name) for name in names)


@pytest.mark.parametrize("settled", [False, True], ids=["just changed", "long unchanged"])
@pytest.mark.parametrize("change", ["rename", "remove", "link", "make", "swap"])
def test_every_change_of_a_name_is_seen(folder: Path, change: str, *, settled: bool) -> None:
    """Else a jail that waits is handed out with a system folder that is another by now."""
    seen = in_folder(folder)
    if settled:
        settle(folder)
    before = seen.look()
    assert seen.look() == before
    assert None not in before[:3]
    assert before[3:] == (None, None)
    if change == "rename":
        (folder / "one").rename(folder / "away")
        (folder / "one").mkdir()
    elif change == "remove":
        (folder / "two").rmdir()
    elif change == "link":
        # A removed link's number is given to the next one, and no mount holds it.
        (folder / "link").unlink()
        (folder / "link").symlink_to("two")
    elif change == "make":
        (folder / "none").write_text("")
    else:
        (folder / "one").rename(folder / "aside")
        (folder / "two").rename(folder / "one")
        (folder / "aside").rename(folder / "two")
    assert seen.look() != before


def test_what_has_not_changed_is_not_looked_at_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some forty folders are looked at for each call that a jail waits for."""
    seen = in_folder(folder)
    settle(folder)
    before = seen.look()
    monkeypatch.setattr(os, "lstat", None)
    assert seen.look() == before
    (folder / "three").mkdir()
    with pytest.raises(TypeError):
        seen.look()


def test_a_parent_that_comes_later_is_noticed(tmp_path: Path) -> None:
    """A folder that is not there has no stamp that could change."""
    seen = places.Places([str(tmp_path / "new" / "one")])
    assert seen.look() == (None,)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "one").mkdir()
    assert seen.look() != (None,)
