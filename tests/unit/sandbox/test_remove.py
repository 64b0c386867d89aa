"""Removing what a jail has left: nothing stays, nothing outside is touched, whatever it is."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcell_sandbox._child.remove import insist, remove_tree


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    """A jail's folder, of which nothing may stay: pytest's own removal would trip over it."""
    folder = tmp_path / "top"
    folder.mkdir()
    yield folder
    script = 'chmod -R u+rwX "$1"; rm -rf "$1"'
    subprocess.run(["/bin/sh", "-c", script, "sh", str(folder)], check=True, capture_output=True)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file and folders outside, which must stay as they are."""
    outside = tmp_path / "top-outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("kept")
    (outside / "folder").chmod(0o750)
    (outside / "file").chmod(0o640)
    before = _seen(outside)
    yield outside
    assert _seen(outside) == before
    assert (outside / "file").read_text() == "kept"


def _seen(folder: Path) -> list[tuple[str, int, int, int]]:
    paths = [folder, *sorted(folder.rglob("*"))]
    states = [(str(path), path.lstat()) for path in paths]
    return [(name, s.st_mode, s.st_mtime_ns, s.st_ctime_ns) for name, s in states]


def deepen(start: Path, depth: int, name: str) -> None:
    """Folders in folders, by a way that no length of a path bounds."""
    folder = os.open(start, os.O_PATH)
    for _ in range(depth):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_PATH, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.symlink("/", "link", dir_fd=folder)
    os.close(folder)


def test_an_empty_folder_and_a_plain_tree_are_removed(top):
    """The control: what any other removal can do as well."""
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "f").write_text("x")
    remove_tree(str(top))
    assert not top.exists()
    top.mkdir()
    remove_tree(str(top))
    assert not top.exists()


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400, 0o500])
def test_folders_that_forbid_it_are_removed(top, mode):
    """rmtree stops at the first folder that it may not list or change."""
    for path in (top / "a", top / "a" / "b", top / "a" / "b" / "c"):
        path.mkdir()
        (path / "f").write_text("x")
        (path / "f").chmod(0)
    for path in (top / "a" / "b" / "c", top / "a" / "b", top / "a", top):
        path.chmod(mode)
    remove_tree(str(top))
    assert not top.exists()


@pytest.mark.parametrize(("depth", "name"), [(10_000, "1"), (600, "d" * 250)])
def test_a_tree_of_any_depth_is_removed_with_few_descriptors(top, depth, name):
    """Recursion ends at a thousand levels, and a path at 4096 bytes: what is deeper would stay."""
    deepen(top, depth, name)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 4, hard))
    try:
        remove_tree(str(top))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not top.exists()


def test_no_link_is_followed(top, canary):
    """One that is followed ends a user's files."""
    (top / "a").mkdir()
    for folder in (top, top / "a"):
        (folder / "to-a-file").symlink_to(canary / "file")
        (folder / "to-a-folder").symlink_to(canary / "folder")
        (folder / "to-the-top").symlink_to("..")
        (folder / "to-itself").symlink_to("to-itself")
        (folder / "to-nowhere").symlink_to("/nowhere/at/all")
    remove_tree(str(top))
    assert not top.exists()


def test_a_link_in_the_place_of_the_folder_itself_is_refused(top, canary):
    """Whoever can put one there would choose what is removed, or whose mode is changed."""
    top.rmdir()
    top.symlink_to(canary / "folder")
    with pytest.raises(OSError, match="top"):
        remove_tree(str(top))
    assert top.is_symlink()
    top.unlink()


def test_what_else_has_a_name_goes_and_is_never_opened(top):
    """A FIFO that is opened blocks for ever."""
    os.mkfifo(top / "fifo")
    (top / "a").mkdir()
    os.mkfifo(top / "a" / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(top, os.O_PATH)
        listener.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
    (top / "file").write_text("x")
    os.link(top / "file", top / "a" / "linked")
    remove_tree(str(top))
    assert not top.exists()


def test_odd_names_and_names_that_the_removal_itself_gives_are_removed(top):
    """Folders are moved up under numbers: names that were there before must not stop it."""
    names = [b"1", b"2", b"3", b"-rf", b" ", b"a\nb", b"\xff\xfe", b"n" * 255]
    for outer in names:
        for inner in names:
            os.makedirs(os.path.join(os.fsencode(top), outer, inner, b"1"))
            Path(os.fsdecode(os.path.join(os.fsencode(top), outer, inner, b"2"))).touch()
    os.symlink("4", top / "4")
    (top / "5").touch()
    remove_tree(str(top))
    assert not top.exists()


def test_many_entries_are_removed(top):
    """A jail may make 200,000; none of them is looked at twice."""
    for folder in range(20):
        (top / str(folder)).mkdir()
        for entry in range(100):
            (top / str(folder) / str(entry)).mkdir()
    remove_tree(str(top))
    assert not top.exists()


def test_what_is_not_there_is_an_error(top):
    """Silence would hide that something else removed a folder which is ours."""
    top.rmdir()
    with pytest.raises(FileNotFoundError):
        remove_tree(str(top))


def test_two_who_remove_the_same_leave_nothing(top: Path):
    """An init that is killed may have left the rest to somebody already, as its supervisor does."""
    for number in range(60):
        (top / f"{number % 7}" / f"{number}").mkdir(parents=True)
        for name in range(20):
            (top / f"{number % 7}" / f"{number}" / f"{name}").touch()
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                insist(str(top))
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    assert not top.exists()
