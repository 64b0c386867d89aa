"""A commit that was killed, at any point: wholly before or wholly after, and a person wins."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox.commit import Failed
from toolcell_sandbox.recovery import Recovered, recover

from .committers import Bench, put, remove, tree, tree_hash

SCRIPT = Path(__file__).with_name("committers.py")
ROUNDS = 30


def script(*arguments: object) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_commit_killed_at_every_step_is_whole_after_recovery(tmp_path: Path):
    """Otherwise a crash leaves a workspace that no call and no person has ever made."""
    rounds = script("sweep", tmp_path)
    assert [one for one in rounds if one["is"] == "half" or one["left"] or one["kept"]] == []
    assert {one["again"] for one in rounds} == {"None"}
    # The controls: kills on both sides of the point of no return, and of recoveries too.
    assert len(rounds) > 90
    assert {one["is"] for one in rounds} == {"before", "after"}
    assert sum(one["twice"] for one in rounds) > 20
    assert {one["recovered"] for one in rounds} >= {"undone", "finished"}


def test_case_21_a_commit_killed_at_a_random_moment_is_whole_after_recovery(tmp_path: Path):
    """Otherwise only the moments that we have thought of are safe."""
    rounds = script("random", tmp_path, ROUNDS, 20261130)
    assert len(rounds) == ROUNDS
    assert [one for one in rounds if one["is"] == "half" or one["left"] or one["kept"]] == []


@pytest.fixture
def crashed(tmp_path: Path) -> Callable[[str], Bench]:
    """A workspace whose commit of all kinds was killed just after one name was renamed."""

    def crash(name: str) -> Bench:
        folder = tmp_path / "crashed"
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "crash", str(folder), name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("True\n", "")
        bench = Bench(folder)
        assert bench.leftovers() != []
        return bench

    return crash


def test_without_an_edit_all_is_undone(crashed: Callable[[str], Bench]):
    """The control of the edits below: what was published goes back."""
    bench = crashed("same-linked")
    assert (bench.workspace / "edited").read_text() == "edited after\n"
    recovered = recover(bench.place)
    assert isinstance(recovered, Recovered)
    assert recovered.outcome == "undone"
    assert recovered.kept == ()
    assert {"edited", "goes", "new", "closed/new"} <= set(recovered.paths)
    assert (bench.workspace / "edited").read_text() == "edited before\n"
    assert bench.leftovers() == []
    assert recover(bench.place) is None


def saved(path: Path) -> None:
    path.with_name("swap-file").write_text("a person's\n")
    path.with_name("swap-file").rename(path)


EDITS: dict[str, Callable[[Path], object]] = {
    "edited": lambda ws: (ws / "edited").write_text("a person's\n"),
    "chmodded": lambda ws: saved(ws / "chmodded"),
    "big": lambda ws: saved(ws / "big"),
    "new": lambda ws: put(ws / "new/more", "a person's\n"),
    "becomes-folder": lambda ws: put(ws / "becomes-folder/now/file", "a person's\n"),
    "becomes-file": lambda ws: put(ws / "becomes-file", "a person's\n", age=3),
    "deleted": lambda ws: put(ws / "deleted", "a person's\n"),
    "goes": lambda ws: put(ws / "goes/new", "a person's\n"),
    "link": lambda ws: saved(ws / "link"),
}


@pytest.mark.parametrize("path", EDITS)
def test_what_a_person_changes_after_the_crash_stays(crashed: Callable[[str], Bench], path: str):
    """Otherwise recovery destroys the first thing that a person did after a crash."""
    bench = crashed("same-linked")
    EDITS[path](bench.workspace)
    theirs = {
        name: value
        for name, value in tree(bench.workspace).items()
        if name == path or name.startswith(path + "/")
    }
    recovered = recover(bench.place)
    assert isinstance(recovered, Recovered)
    assert recovered.kept == (path,)
    found = tree(bench.workspace)
    assert {name: found.get(name) for name in theirs} == theirs
    assert bench.leftovers() == []
    # Everything else went back.
    others = {
        name for name in ("edited", "deleted", "goes/x", "same") if name.split("/")[0] != path
    }
    assert {(bench.workspace / name).read_text() for name in others} == {
        f"{name} before\n" for name in others
    }


def test_a_name_that_a_person_removed_after_the_crash_stays_removed(
    crashed: Callable[[str], Bench],
):
    """Otherwise what a person has deleted comes back."""
    bench = crashed("same-linked")
    (bench.workspace / "edited").unlink()
    remove(bench.workspace / "new")
    recovered = recover(bench.place)
    assert isinstance(recovered, Recovered)
    assert recovered.kept == ("edited",)
    assert not (bench.workspace / "edited").exists()
    assert not (bench.workspace / "new").exists()
    assert bench.leftovers() == []


def test_after_the_point_of_no_return_all_is_finished(crashed: Callable[[str], Bench]):
    """Otherwise a commit that was reported is taken back, or a person's next edit with it."""
    bench = crashed("applied")
    (bench.workspace / "edited").write_text("a person's\n")
    expected = tree(bench.layer)
    recovered = recover(bench.place)
    assert isinstance(recovered, Recovered)
    assert (recovered.outcome, recovered.kept) == ("finished", ())
    found = tree(bench.workspace)
    assert (bench.workspace / "edited").read_text() == "a person's\n"
    assert {**found, "edited": None} == {**expected, "edited": None}
    assert bench.leftovers() == []


def test_the_next_commit_ends_one_that_was_cut_off(crashed: Callable[[str], Bench]):
    """Otherwise a journal is overwritten, and its temporaries stay for ever."""
    bench = crashed("edited")
    changed = [change for change in bench.changes().changes if change.path == "same-linked"]
    told: list[Recovered] = []
    changes = bench.changes()
    ending = bench.commit(
        type(changes)(workspace=changes.workspace, changes=tuple(changed)), on_recovered=told.append
    )
    assert ending is None
    assert [one.outcome for one in told] == ["undone"]
    assert (bench.workspace / "same-linked").samefile(bench.workspace / "same")
    assert (bench.workspace / "edited").read_text() == "edited before\n"
    assert bench.leftovers() == []


def test_a_record_that_was_cut_off_does_not_count(crashed: Callable[[str], Bench]):
    """Otherwise half a line "applied" makes half a commit the truth."""
    bench = crashed("edited")
    (journal,) = bench.state.rglob("journal")
    with open(journal, "a") as file:
        file.write('{"applied": true}')
    recovered = recover(bench.place)
    assert isinstance(recovered, Recovered)
    assert recovered.outcome == "undone"
    assert (bench.workspace / "edited").read_text() == "edited before\n"


def test_a_journal_that_cannot_be_read_is_not_acted_upon(crashed: Callable[[str], Bench]):
    """Otherwise a broken plan is carried out on somebody's files."""
    bench = crashed("edited")
    (journal,) = bench.state.rglob("journal")
    whole = journal.read_bytes()
    before = tree_hash(bench.workspace)
    for broken in (b"", b"\n", b"{}\n", b"[1]\n", whole[:50] + b"\n", whole.replace(b"1", b"9", 1)):
        journal.write_bytes(broken)
        assert isinstance(failed := recover(bench.place), Failed)
        assert failed.unfinished
        assert tree_hash(bench.workspace) == before
        assert isinstance(bench.commit(bench.changes()), Failed)
    journal.write_bytes(whole)
    assert isinstance(recover(bench.place), Recovered)


def test_another_folder_at_the_place_is_left_alone(crashed: Callable[[str], Bench]):
    """Otherwise recovery renames in a folder that was never part of the commit."""
    bench = crashed("edited")
    place = bench.place
    bench.workspace.rename(bench.folder / "moved")
    assert isinstance(failed := recover(place), Failed)
    assert failed.errno == errno.ENOENT
    put(bench.workspace / "edited", "another\n")
    assert isinstance(failed := recover(place), Failed)
    assert failed.unfinished
    assert (bench.workspace / "edited").read_text() == "another\n"
    remove(bench.workspace)
    (bench.folder / "moved").rename(bench.workspace)
    assert isinstance(recover(place), Recovered)
    assert bench.leftovers() == []


def test_a_folder_that_became_a_link_after_the_crash_is_not_followed(
    crashed: Callable[[str], Bench],
):
    """Otherwise whoever may write in the workspace has recovery remove names elsewhere."""
    bench = crashed("same-linked")
    outside = bench.folder / "outside"
    (bench.workspace / "a/deep").rename(outside)
    (bench.workspace / "a/deep").symlink_to(outside)
    before = tree(outside)
    recovered = recover(bench.place)
    assert isinstance(recovered, Recovered)
    assert recovered.kept == ("a/deep/new",)
    assert tree(outside) == before


def test_where_nothing_was_left_over_nothing_is_made(tmp_path: Path):
    """Otherwise every look leaves a folder in our state."""
    bench = Bench(tmp_path / "bench").made()
    assert recover(bench.place) is None
    assert not bench.state.exists()
    assert os.listdir(bench.workspace) == []
