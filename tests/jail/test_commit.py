"""A change set made true on a real file system: all of it or nothing, and a person wins."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytest

from toolcell_sandbox._commit_copy import copy_content
from toolcell_sandbox._commit_place import locked, open_state
from toolcell_sandbox._commit_plan import plan
from toolcell_sandbox.changeset import Change, ChangeSet, Entry, Problem
from toolcell_sandbox.commit import Conflict, Failed, Overtaken, Refused, commit, generation

from .committers import (
    FIRST_NS,
    Bench,
    Meddler,
    all_kinds,
    entry,
    names,
    put,
    remove,
    tree,
    tree_hash,
)

SCRIPT = Path(__file__).with_name("committers.py")
NOBODY = 0xFFFFFFFF


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Two files, and a folder with one."""

    def make(ws: Path) -> None:
        put(ws / "file", "before\n")
        put(ws / "other", "other\n")
        put(ws / "folder/inner", "inner\n")

    return Bench(tmp_path / "bench").made(make)


def script(*arguments: object) -> Any:
    """What `committers.py` says in that mode."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def unchanged(bench: Bench, before: str) -> bool:
    """Whether the workspace is as it was, and nothing of ours is left."""
    return tree_hash(bench.workspace) == before and bench.leftovers() == []


# ------------------------------------------------------------ what is kept


def test_every_kind_of_change_is_made(tmp_path: Path):
    """Otherwise a call that succeeded has not done what it says."""
    bench = all_kinds(tmp_path / "bench")
    untouched = entry(bench.workspace / "folder/kept")
    assert len(bench.changes().changes) > 25
    assert bench.commit() is None
    assert tree(bench.workspace) == tree(bench.layer)
    assert bench.changes().changes == ()
    assert bench.leftovers() == []
    assert entry(bench.workspace / "folder/kept") == untouched
    ws = bench.workspace
    assert (ws / "new/linked").samefile(ws / "new/tree/one")
    assert (ws / "same-linked").samefile(ws / "same")
    assert stat.S_IMODE((ws / "closed").stat().st_mode) == 0o555


@pytest.mark.parametrize("name", [b"new\nline", b"\xff\xfe", b"x" * 255, b"\xc3\xa4 b", b"-rf"])
def test_odd_names_are_created_changed_and_deleted(tmp_path: Path, name: bytes):
    """Otherwise a call could make a name that no later call can be rid of."""
    bench = Bench(tmp_path / "bench").made()
    odd = os.fsdecode(name)
    put(bench.layer / odd / odd, "1")
    assert bench.commit() is None
    assert (bench.workspace / odd / odd).read_text() == "1"
    put(bench.layer / odd / odd, "2", age=1)
    assert bench.commit() is None
    assert (bench.workspace / odd / odd).read_text() == "2"
    remove(bench.layer / odd)
    assert bench.commit() is None
    assert names(bench.workspace) == []


def test_times_are_kept_to_the_nanosecond(bench: Bench):
    """Otherwise make rebuilds everything, or nothing."""
    put(bench.layer / "new/file", "x", age=123_456_789)
    os.utime(bench.layer / "new", ns=(FIRST_NS, FIRST_NS + 42))
    (bench.layer / "new-link").symlink_to("file")
    os.utime(bench.layer / "new-link", ns=(FIRST_NS, FIRST_NS + 43), follow_symlinks=False)
    assert bench.commit() is None
    assert (bench.workspace / "new/file").stat().st_mtime_ns == FIRST_NS + 123_456_789
    assert (bench.workspace / "new").stat().st_mtime_ns == FIRST_NS + 42
    assert (bench.workspace / "new-link").lstat().st_mtime_ns == FIRST_NS + 43


def test_metadata_are_the_change_sets_not_the_layers(bench: Bench):
    """Otherwise what was judged is not what is kept."""
    put(bench.layer / "file", "after\n", 0o600, age=5)
    changes = bench.changes()
    (bench.layer / "file").chmod(0o666)
    os.utime(bench.layer / "file", ns=(1, 1))
    assert bench.commit(changes) is None
    found = (bench.workspace / "file").stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_mtime_ns == FIRST_NS + 5


def test_no_file_becomes_setuid_or_setgid(bench: Bench):
    """Otherwise a call leaves a program that gives its owner's rights to whoever runs it."""
    put(bench.layer / "file", "after\n", 0o6755, age=5)
    put(bench.layer / "new", "new\n", 0o6711)
    assert bench.commit() is None
    assert stat.S_IMODE((bench.workspace / "file").stat().st_mode) == 0o755
    assert stat.S_IMODE((bench.workspace / "new").stat().st_mode) == 0o711


def test_user_attributes_are_kept_but_never_the_overlays_own(bench: Bench):
    """Otherwise a call could plant an opaque folder that a later overlay believes in."""
    put(bench.layer / "file", "after\n", age=5)
    put(bench.layer / "new/file", "x")
    for name in ("file", "new", "new/file"):
        os.setxattr(bench.layer / name, "user.note", b"kept")
        os.setxattr(bench.layer / name, "user.overlay.opaque", b"y")
    os.setxattr(bench.layer / "folder", "user.note", b"on a folder")
    assert bench.commit() is None
    for name in ("file", "new", "new/file"):
        assert os.listxattr(bench.workspace / name) == ["user.note"]
    assert os.getxattr(bench.workspace / "folder", "user.note") == b"on a folder"
    os.removexattr(bench.layer / "folder", "user.note")
    assert bench.commit() is None
    assert os.listxattr(bench.workspace / "folder") == []


def test_an_access_list_of_a_changed_file_stays(bench: Bench):
    """Otherwise an edit takes a colleague's access away, or gives them what they had not."""
    # ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER: linux/posix_acl_xattr.h.
    named = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *one)
        for one in [(1, 6, NOBODY), (2, 6, 4242), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY)]
    )
    os.setxattr(bench.workspace / "file", "system.posix_acl_access", named)
    os.setxattr(bench.workspace, "system.posix_acl_default", named)
    put(bench.layer / "file", "after\n", 0o664, age=5)
    put(bench.layer / "other", "after\n", age=5)
    put(bench.layer / "new", "new\n", 0o664)
    assert bench.commit() is None
    assert os.getxattr(bench.workspace / "file", "system.posix_acl_access") == named
    # The control: the folder gives its list to what is new; `other` had none, and has none.
    assert "system.posix_acl_access" in os.listxattr(bench.workspace / "new")
    assert os.listxattr(bench.workspace / "other") == []


def test_owners_are_given_where_they_may_be_and_else_are_ours(bench: Bench):
    """Otherwise a supervisor as root leaves files that their person cannot write."""
    put(bench.layer / "file", "after\n", age=5)
    put(bench.layer / "new/file", "x")
    (bench.layer / "new-link").symlink_to("x")
    changes = bench.changes()
    root = os.geteuid() == 0
    owned = tuple(
        replace(change, after=replace(change.after, uid=4242, gid=4243))
        if change.after is not None and (root or change.before is None)
        else change
        for change in changes.changes
    )
    assert bench.commit(replace(changes, changes=owned)) is None
    expected = (4242, 4243) if root else (os.geteuid(), os.getegid())
    for name in ("file", "new", "new/file", "new-link"):
        found = (bench.workspace / name).lstat()
        assert (found.st_uid, found.st_gid) == expected


def test_a_new_name_in_a_setgid_folder_keeps_the_folders_group(bench: Bench):
    """Otherwise a team's shared folder fills with files that the team cannot write."""
    groups = sorted({os.getegid(), *os.getgroups()})
    group = 4243 if os.geteuid() == 0 else groups[-1]
    os.chown(bench.workspace / "folder", -1, group)
    for side in (bench.workspace, bench.layer):
        (side / "folder").chmod(0o2775)
    put(bench.layer / "folder/new/file", "x")
    changes = bench.changes()
    changes = replace(changes, changes=tuple(one for one in changes.changes if one.before is None))
    assert bench.commit(changes) is None
    for name in ("folder/new", "folder/new/file"):
        assert (bench.workspace / name).stat().st_gid == group
    assert (bench.workspace / "folder/new").stat().st_mode & stat.S_ISGID


def test_a_group_that_is_not_ours_to_give_is_refused_for_a_changed_file(tmp_path: Path):
    """Otherwise an edit silently takes a file from the group that shares it."""
    refused, created, content, found = script("group", tmp_path / "bench")
    assert refused.startswith("Refused(paths=('old',)")
    assert f"chgrp -R {os.getegid()} " in refused
    assert created == "None"
    assert content == "x"
    assert found == ["created", "old"]


def test_a_hole_stays_a_hole(bench: Bench):
    """Otherwise an empty disk image of a terabyte fills the disk."""
    with open(bench.layer / "sparse", "wb") as file:
        file.seek(300 << 20)
        file.write(b"middle")
        file.truncate(600 << 20)
    assert bench.commit() is None
    found = (bench.workspace / "sparse").stat()
    assert found.st_size == 600 << 20
    assert found.st_blocks * 512 < 1 << 20
    with open(bench.workspace / "sparse", "rb") as file:
        file.seek(300 << 20)
        assert file.read(7) == b"middle\0"


def test_content_of_any_length_is_copied_whole(tmp_path: Path):
    """Otherwise a file loses its end, or the way of copying shows."""
    for size in (0, 1, 65_535, 65_536, 65_537, (8 << 20) + 1):
        content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        (tmp_path / "source").write_bytes(content)
        with open(tmp_path / "source", "rb") as source, open(tmp_path / "copy", "w+b") as target:
            copy_content(source.fileno(), target.fileno(), size, lambda: None)
        assert (tmp_path / "copy").read_bytes() == content


def test_a_new_folder_is_one_operation_whatever_it_holds(bench: Bench):
    """Otherwise an install of 100,000 files costs as many renames, each of which can clash."""
    for number in range(300):
        put(bench.layer / f"new/{number % 7}/{number}", "x")
    remove(bench.layer / "folder")
    changes = bench.changes()
    assert len(changes.changes) == 1 + 7 + 300 + 2
    assert [root.how for root in plan(changes).roots] == ["delete", "create"]
    assert bench.commit(changes) is None
    assert tree(bench.workspace) == tree(bench.layer)


def test_a_deep_tree_is_created_and_deleted(tmp_path: Path):
    """Otherwise depth alone makes a change that cannot be kept, or descriptors run out."""
    bench = Bench(tmp_path / "bench").made()
    deep = "/".join(["d"] * 300)
    put(bench.layer / deep / "file", "deep")
    assert bench.commit() is None
    assert (bench.workspace / deep / "file").read_text() == "deep"
    remove(bench.layer / "d")
    assert bench.commit() is None
    assert names(bench.workspace) == []


def test_names_of_one_file_are_changed_one_by_one(tmp_path: Path):
    """Otherwise our own rename of one name looks like a person's edit of the other."""

    def make(ws: Path) -> None:
        for name in ("a/x", "b/x", "c/x"):
            put(ws / name, "before\n")
            for more in ("y", "z"):
                os.link(ws / name, (ws / name).with_name(more))

    bench = Bench(tmp_path / "bench").made(make)
    for name in ("a/x", "a/y", "b/x"):
        (bench.layer / name).unlink()
    put(bench.layer / "b/x", "after\n", age=5)
    (bench.layer / "b/y").unlink()
    (bench.layer / "c/x").unlink()
    os.link(bench.layer / "c/y", bench.layer / "c/zz")
    assert bench.commit() is None
    assert tree(bench.workspace) == tree(bench.layer)
    assert (bench.workspace / "c/zz").samefile(bench.workspace / "c/z")


def test_what_was_there_is_told_before_it_goes(tmp_path: Path):
    """Otherwise nobody can say later whether several calls came to nothing."""
    bench = all_kinds(tmp_path / "bench")
    changes, told = bench.changes(), dict[str, bytes | None]()
    expected = {
        change.path: (bench.workspace / change.path).read_bytes()
        if change.before is not None and change.before.kind == "file"
        else None
        for change in changes.changes
    }

    def displaced(path: str, before: Entry | None, fd: int | None) -> None:
        assert before == next(one.before for one in changes.changes if one.path == path)
        told[path] = None if fd is None else os.read(fd, 1 << 20)

    assert bench.commit(changes, displaced=displaced) is None
    assert told == expected


def test_what_was_judged_before_another_commit_is_judged_again(bench: Bench):
    """Two calls may each be harmless, and both together what nobody would have agreed to."""
    judged_at = generation(bench.place)
    put(bench.layer / "first", "1")
    assert bench.commit(judged_at=judged_at) is None
    assert generation(bench.place) == judged_at + 1
    put(bench.layer / "second", "2")
    assert bench.commit(judged_at=judged_at) == Overtaken()
    assert not (bench.workspace / "second").exists()
    assert bench.commit(judged_at=judged_at + 1) is None
    assert (bench.workspace / "second").exists()


# ------------------------------------------------------------ who wins


def replaced_in_place_of(path: Path, text: str) -> None:
    """As editors save: another file under the same name."""
    path.with_name("swap-file").write_text(text)
    path.with_name("swap-file").rename(path)


def rewritten_with_its_time_set_back(path: Path) -> None:
    found = path.stat()
    path.write_text(path.read_text().upper())
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def becomes(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def becomes_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


EDITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "modified": (lambda ws: (ws / "file").write_text("a person's\n"), "file"),
    "saved by an editor": (lambda ws: replaced_in_place_of(ws / "file", "before\n"), "file"),
    "same size, time set back": (
        lambda ws: rewritten_with_its_time_set_back(ws / "file"),
        "file",
    ),
    "deleted": (lambda ws: (ws / "file").unlink(), "file"),
    "chmodded": (lambda ws: (ws / "file").chmod(0o600), "file"),
    "became a folder": (
        lambda ws: becomes(ws / "file", Path.mkdir),
        "file",
    ),
    "became a FIFO": (lambda ws: becomes(ws / "file", os.mkfifo), "file"),
    "appeared": (lambda ws: put(ws / "created", "a person's\n"), "created"),
    "appeared as a dangling link": (
        lambda ws: (ws / "created").symlink_to("nowhere"),
        "created",
    ),
    "folder got a file": (lambda ws: put(ws / "folder/more", "x"), "folder/more"),
    "folder lost a file": (lambda ws: (ws / "folder/inner").unlink(), "folder/inner"),
    "file in the folder changed": (
        lambda ws: (ws / "folder/inner").write_text("a person's\n"),
        "folder/inner",
    ),
    "folder became a link": (lambda ws: becomes_a_link(ws / "folder"), "folder"),
    "parent became a link": (lambda ws: becomes_a_link(ws / "parent"), "parent/changed"),
    "ancestor became a link": (lambda ws: becomes_a_link(ws / "above"), "above/parent/changed"),
    "parent is gone": (lambda ws: remove(ws / "parent"), "parent/changed"),
    "mode of a folder changed": (lambda ws: (ws / "modes").chmod(0o711), "modes"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_whoever_edits_during_the_call_wins(tmp_path: Path, edit: str):
    """Otherwise a call destroys work that it has never seen."""

    def make(ws: Path) -> None:
        put(ws / "file", "before\n")
        put(ws / "folder/inner", "inner\n")
        put(ws / "parent/changed", "x")
        put(ws / "above/parent/changed", "x")
        (ws / "modes").mkdir(0o755)

    bench = Bench(tmp_path / "bench").made(make)
    put(bench.layer / "file", "after\n", age=5)
    put(bench.layer / "created", "created\n")
    put(bench.layer / "parent/changed", "after\n", age=5)
    put(bench.layer / "above/parent/changed", "after\n", age=5)
    (bench.layer / "modes").chmod(0o700)
    remove(bench.layer / "folder")
    changes = bench.changes()
    act, path = EDITS[edit]
    act(bench.workspace)
    before = tree_hash(bench.workspace)
    ending = bench.commit(changes)
    assert isinstance(ending, Conflict)
    assert path in ending.paths
    assert unchanged(bench, before)


def test_the_same_changes_are_kept_where_nobody_edits(bench: Bench):
    """The control: the conflicts come from the edits."""
    put(bench.layer / "file", "after\n", age=5)
    put(bench.layer / "created", "created\n")
    remove(bench.layer / "folder")
    # What is not part of the change may change, and a folder that stays may be given names.
    (bench.workspace / "other").write_text("a person's\n")
    put(bench.workspace / "more", "a person's\n")
    changes = ChangeSet(
        workspace=str(bench.workspace),
        changes=tuple(one for one in bench.changes().changes if one.path not in ("other", "more")),
    )
    assert bench.commit(changes) is None
    assert (bench.workspace / "other").read_text() == "a person's\n"
    assert (bench.workspace / "file").read_text() == "after\n"


def test_another_folder_in_the_workspaces_place_is_a_conflict(bench: Bench):
    """Otherwise a commit lands in a folder that the call never saw."""
    put(bench.layer / "created", "created\n")
    changes, place = bench.changes(), bench.place
    bench.workspace.rename(bench.folder / "moved")
    fd = os.open(bench.layer, os.O_PATH)
    try:
        assert commit(changes, fd, place) == Conflict(paths=(".",))
        bench.workspace.mkdir()
        assert commit(changes, fd, place) == Conflict(paths=(".",))
        bench.workspace.rmdir()
        bench.workspace.symlink_to("moved")
        assert commit(changes, fd, place) == Conflict(paths=(".",))
        assert not (bench.folder / "moved/created").exists()
        bench.workspace.unlink()
        (bench.folder / "moved").rename(bench.workspace)
        assert commit(changes, fd, place) is None
    finally:
        os.close(fd)


@pytest.mark.parametrize("name", ["file", "folder/inner"])
def test_a_file_that_is_open_for_writing_is_a_conflict(bench: Bench, name: str):
    """Otherwise what its writer writes next goes to a file that has no name any more."""
    put(bench.layer / "file", "after\n", age=5)
    remove(bench.layer / "folder")
    before = tree_hash(bench.workspace)
    with open(bench.workspace / name, "a"):
        assert bench.commit() == Conflict(paths=(name,))
    assert unchanged(bench, before)
    # The control: who only reads it is in nobody's way.
    with open(bench.workspace / name):
        assert bench.commit() is None


def moments(make: Callable[[int], Bench]) -> int:
    """How often `check` is called in this commit."""
    counter = Meddler(0, lambda: None)
    assert make(0).commit(check=counter) is None
    return counter.count


@pytest.mark.parametrize("how", ["saved", "appended"])
def test_a_save_at_any_moment_of_the_commit_is_not_lost(tmp_path: Path, how: str):
    """Otherwise the instant of the swap eats what a person has just written."""

    def make(number: int) -> Bench:
        bench = Bench(tmp_path / f"{number}").made(
            lambda ws: [put(ws / name, "before\n") for name in ("a", "file", "folder/x", "z")]
        )
        for name in ("a", "file", "z"):
            put(bench.layer / name, "after\n", age=5)
        remove(bench.layer / "folder")
        return bench

    outcomes = set()
    for at in range(1, moments(make) + 1):
        bench = make(at)
        path = bench.workspace / "file"

        def edit(path: Path = path) -> None:
            if how == "saved":
                replaced_in_place_of(path, "a person's\n")
            else:
                with open(path, "a") as file:
                    file.write("a person's\n")

        ending = bench.commit(check=Meddler(at, edit))
        assert "a person's\n" in path.read_text()
        assert bench.leftovers() == []
        others = {(bench.workspace / name).read_text() for name in ("a", "z")}
        assert others == ({"after\n"} if ending is None else {"before\n"})
        assert (bench.workspace / "folder").exists() == (ending is not None)
        outcomes.add(type(ending))
    assert outcomes == {Conflict, type(None)}


def before_the_rename(name: str, act: Callable[[], object]) -> Callable[..., None]:
    """A profile function that acts once, between the last look at a name and its rename."""
    done: list[str] = []

    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "rename" and not done:
            told = (frame.f_locals.get("old"), frame.f_locals.get("new"))
            if frame.f_code.co_filename.endswith("_commit_kernel.py") and name in told:
                done.append(name)
                act()

    return watch


INSTANTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "saved": ("file", lambda ws: replaced_in_place_of(ws / "file", "a person's\n")),
    "written": ("file", lambda ws: (ws / "file").write_text("a person's\n")),
    "became a folder": ("file", lambda ws: becomes(ws / "file", Path.mkdir)),
    "became a link": ("file", lambda ws: becomes_a_link(ws / "file")),
    "removed": ("file", lambda ws: (ws / "file").unlink()),
    "saved, then deleted by us": ("old", lambda ws: replaced_in_place_of(ws / "old", "theirs\n")),
    "removed, then deleted by us": ("old", lambda ws: (ws / "old").unlink()),
    "a file more in a folder that goes": ("folder", lambda ws: put(ws / "folder/more", "x")),
    "a file less in a folder that goes": ("folder", lambda ws: (ws / "folder/inner").unlink()),
    "saved in a folder that goes": (
        "folder",
        lambda ws: replaced_in_place_of(ws / "folder/inner", "inner\n"),
    ),
    "appeared": ("created", lambda ws: put(ws / "created", "a person's\n")),
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_an_edit_between_the_last_look_and_the_rename_is_put_back(bench: Bench, instant: str):
    """Otherwise the one instant that no look can cover eats a person's work."""
    for side in (bench.workspace, bench.layer):
        put(side / "old", "before\n")
    put(bench.layer / "file", "after\n", age=5)
    put(bench.layer / "created", "created\n")
    (bench.layer / "old").unlink()
    remove(bench.layer / "folder")
    name, edit = INSTANTS[instant]
    edited: list[dict[str, Any]] = []

    def act() -> None:
        edit(bench.workspace)
        # What the others have come to by then is not the matter here.
        edited.append({k: v for k, v in tree(bench.workspace).items() if k.split("/")[0] == name})

    changes = bench.changes()
    sys.setprofile(before_the_rename(name, act))
    try:
        ending = bench.commit(changes)
    finally:
        sys.setprofile(None)
    assert isinstance(ending, Conflict)
    found = tree(bench.workspace)
    assert [{k: v for k, v in found.items() if k.split("/")[0] == name}] == edited
    others = {"file": "before\n", "old": "before\n", "folder/inner": "inner\n"}
    for path, text in others.items():
        if path.split("/")[0] != name:
            assert (bench.workspace / path).read_text() == text
    assert (bench.workspace / "created").exists() == (name == "created")
    assert bench.leftovers() == []


def test_a_file_opened_for_writing_between_the_last_look_and_the_rename_stays(bench: Bench):
    """Otherwise its writer writes into a file that has no name any more."""
    put(bench.layer / "file", "after\n", age=5)
    changes, opened = bench.changes(), list[TextIO]()
    path = bench.workspace / "file"
    sys.setprofile(before_the_rename("file", lambda: opened.append(path.open("a"))))
    try:
        ending = bench.commit(changes)
    finally:
        sys.setprofile(None)
    assert ending == Conflict(paths=("file",))
    with opened[0] as file:
        file.write("a person's\n")
    assert path.read_text() == "before\na person's\n"
    assert bench.leftovers() == []


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path):
    """Otherwise whoever may write in the workspace has us write where only we may."""

    def make(number: int) -> Bench:
        bench = Bench(tmp_path / f"{number}").made(
            lambda ws: [put(ws / "folder/file", "before\n"), put(ws / "folder/old", "x")]
        )
        put(bench.folder / "outside/file", "before\n")
        put(bench.layer / "folder/file", "after\n", age=5)
        put(bench.layer / "folder/new", "new\n")
        (bench.layer / "folder/old").unlink()
        return bench

    for at in range(1, moments(make) + 1):
        bench = make(at)
        outside = tree(bench.folder / "outside")

        def swap(bench: Bench = bench) -> None:
            (bench.workspace / "folder").rename(bench.folder / "moved")
            (bench.workspace / "folder").symlink_to(bench.folder / "outside")

        bench.commit(check=Meddler(at, swap))
        assert tree(bench.folder / "outside") == outside


def test_a_check_that_raises_at_any_moment_leaves_all_as_it_was(tmp_path: Path):
    """Otherwise a cancelled call is half kept."""
    told = script("stop", tmp_path)
    assert told["wrong"] == 0
    assert told["moments"] > 50


def test_a_ledger_that_fails_leaves_all_as_it_was(tmp_path: Path):
    """Otherwise what was there is gone, and nobody has kept it."""
    bench = all_kinds(tmp_path / "bench")
    before = tree_hash(bench.workspace)

    def displaced(path: str, old: Entry | None, fd: int | None) -> None:
        if path == "link":
            raise RuntimeError(path)

    with pytest.raises(RuntimeError):
        bench.commit(displaced=displaced)
    assert unchanged(bench, before)


def test_of_two_processes_on_one_file_exactly_one_wins(tmp_path: Path):
    """Otherwise the later call overwrites what the earlier one did and never saw."""
    bench = Bench(tmp_path / "bench").made(lambda ws: put(ws / "file", "before\n"))
    committers = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), "once", str(bench.folder), mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for mark in ("one", "two")
    ]
    for process in committers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in committers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    endings = [process.communicate()[0].strip() for process in committers]
    assert sorted(endings) == ["Conflict(paths=('file',), kept=())", "None"]
    assert (bench.workspace / "file").read_text() == ("one\n", "two\n")[endings.index("None")]
    assert bench.leftovers() == []


def test_a_commit_waits_for_the_one_before_it(bench: Bench):
    """Otherwise two threads of one supervisor mix their renames."""
    put(bench.layer / "file", "after\n", age=5)
    endings: list[object] = []
    state = open_state(bench.place)
    waits = threading.Thread(target=lambda: endings.append(bench.commit()))
    with locked(state):
        waits.start()
        # It comes as far as the lock, which the kernel shows as waited for.
        while not _waits_for_a_lock(state):
            pass
        assert (bench.workspace / "file").read_text() == "before\n"
        assert endings == []
    waits.join()
    os.close(state)
    assert endings == [None]


def _waits_for_a_lock(state: int) -> bool:
    """Whether somebody waits: /proc/locks, "->" before the class (proc(5))."""
    inode = os.stat("lock", dir_fd=state).st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{inode} " in line for line in lines)


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize("name", ["link", "fifo", "folder", "absent", "longer", "link/below"])
def test_a_layer_that_is_not_what_was_judged_changes_nothing(bench: Bench, name: str):
    """Otherwise a link in the layer puts a secret of the host into the workspace."""
    put(bench.folder / "secret", "x" * 6)
    put(bench.layer / "created", "after\n")
    (bench.layer / "below").mkdir()
    put(bench.layer / "below/created", "after\n")
    changes = bench.changes()
    before = tree_hash(bench.workspace)
    target = bench.layer / "created"
    if name != "link/below":
        target.unlink()
    if name == "link":
        target.symlink_to(bench.folder / "secret")
    elif name == "fifo":
        os.mkfifo(target)
    elif name == "folder":
        target.mkdir()
    elif name == "longer":
        target.write_text("after\nand more\n")
    elif name == "link/below":
        (bench.layer / "below").rename(bench.layer / "real")
        (bench.layer / "below").symlink_to("real")
    ending = bench.commit(changes)
    assert isinstance(ending, Failed)
    assert not ending.unfinished
    assert unchanged(bench, before)


def test_the_same_layer_is_kept_when_it_is_what_was_judged(bench: Bench):
    """The control; and a layer that its owner may not read is read all the same."""
    put(bench.layer / "created", "after\n")
    put(bench.layer / "below/created", "after\n")
    changes = bench.changes()
    (bench.layer / "created").chmod(0)
    (bench.layer / "below/created").chmod(0)
    (bench.layer / "below").chmod(0)
    assert bench.commit(changes) is None
    assert (bench.workspace / "below/created").read_text() == "after\n"


def test_devices_sockets_and_problems_are_refused(bench: Bench):
    """Otherwise a call leaves a way to a device, or a name that lacks what it had."""
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(bench.layer, os.O_PATH)
        listener.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
    changes, before = bench.changes(), tree_hash(bench.workspace)
    assert [change.path for change in changes.changes] == ["socket"]
    assert isinstance(ending := bench.commit(changes), Refused)
    assert ending.paths == ("socket",)
    problem = Problem(path="x", code="device", text="x is a device")
    assert isinstance(bench.commit(replace(changes, changes=(), problems=(problem,))), Refused)
    assert bench.commit(replace(changes, conflicts=("file",))) == Conflict(paths=("file",))
    assert unchanged(bench, before)


def test_a_change_set_that_contradicts_itself_is_our_own_defect(bench: Bench):
    """Otherwise a defect of ours is carried out, on somebody's files."""
    file, folder = entry(bench.workspace / "file"), entry(bench.workspace / "folder")
    wrong: list[tuple[Change, ...]] = [
        (Change(path="x", before=None, after=file),) * 2,
        (
            Change(path="folder", before=folder, after=None),
            Change(path="folder/new", before=None, after=file),
        ),
        (
            Change(path="new", before=None, after=folder),
            Change(path="new/old", before=file, after=None),
        ),
        (Change(path="x", before=None, after=file, linked_to="x"),),
        (Change(path="x", before=None, after=folder, linked_to="file"),),
        (
            Change(path="file", before=file, after=None),
            Change(path="x", before=None, after=file, linked_to="file"),
        ),
    ]
    for changes in wrong:
        with pytest.raises(ValueError, match=r"."):
            bench.commit(ChangeSet(workspace=str(bench.workspace), changes=changes))
    with pytest.raises(ValueError, match="is not"):
        bench.commit(ChangeSet(workspace="/elsewhere"))


def test_a_link_to_an_unchanged_file_that_was_changed_since_is_a_conflict(bench: Bench):
    """Otherwise the new name shows what the call never saw."""
    os.link(bench.layer / "file", bench.layer / "linked")
    changes = bench.changes()
    assert [(one.path, one.linked_to) for one in changes.changes] == [("linked", "file")]
    (bench.workspace / "file").write_text("a person's\n")
    assert bench.commit(changes) == Conflict(paths=("file",))
    put(bench.workspace / "file", "before\n")
    assert bench.commit(changes) is None
    assert (bench.workspace / "linked").samefile(bench.workspace / "file")


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path):
    """Otherwise the disk that fills in the middle takes half of the person's work."""
    kind, number, same, left, control, equal = script("full", tmp_path / "bench")
    assert (kind, number) == ("Failed", 28)
    assert same
    assert left == []
    assert control is None
    assert equal


def test_what_is_mounted_over_a_folder_is_not_written_to(tmp_path: Path):
    """Otherwise a commit lands on another file system than the call saw."""
    ending, inside, control, left = script("mount", tmp_path / "bench")
    assert ending.startswith("Conflict(paths=('sub/new',)")
    assert inside == []
    assert control is None
    assert left == []


@pytest.mark.parametrize("flag", [1, 2])
def test_a_file_system_without_the_renames_is_refused_by_name(tmp_path: Path, flag: int):
    """Otherwise a commit goes on without the check that no one else was there."""
    kind, text, same, left = script("flag", tmp_path / "bench", flag)
    assert kind == "Refused"
    assert "--workspace-mode direct" in text
    assert same
    assert left == []


def test_state_that_others_may_write_is_refused(bench: Bench):
    """Otherwise somebody else's journal has us rename what they choose."""
    put(bench.layer / "file", "after\n", age=5)
    before = tree_hash(bench.workspace)
    bench.state.mkdir()
    (bench.state / "workspaces").mkdir()
    (bench.state / "workspaces").chmod(0o777)
    assert isinstance(bench.commit(), Failed)
    assert unchanged(bench, before)
    (bench.state / "workspaces").chmod(0o700)
    assert bench.commit() is None
