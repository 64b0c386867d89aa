"""read_file, list_directory, write_file, edit_file: as functions, on a real folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell.builtin import _paths, files
from toolcell.builtin._diff import Change, unified
from toolcell.builtin.edit import edit_file
from toolcell.builtin.files import list_directory, read_file, write_file
from toolcell.builtin.search import search
from toolcell.errors import ToolError
from toolcell.markers import SETTLED


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is the working directory."""
    folder = tmp_path / "ws"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


# ---------------------------------------------------------------- read_file


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\nb", "a\r\nb\r\n", "\n\n", "é\u2028x\x0c\n"])
def test_a_file_is_read_exactly(ws: Path, text: str) -> None:
    """An edit must match what was read, to the character."""
    (ws / "f").write_bytes(text.encode())
    found = read_file(Path("f"))
    assert found.output == text
    assert found.metadata["truncated"] is False
    assert found.metadata["encoding"] == "utf-8"


def test_a_range_of_lines_is_read_and_the_rest_is_told(ws: Path) -> None:
    """A model that does not know of the rest takes a part for the whole."""
    (ws / "f").write_text("1\n2\n3\n4")
    found = read_file(Path("f"), offset=2, limit=2)
    assert found.output == "2\n3\n"
    assert found.metadata == {
        "lines": 4, "first_line": 2, "last_line": 3, "encoding": "utf-8", "truncated": True,
    }  # fmt: skip
    assert read_file(Path("f"), offset=4).output == "4"
    with pytest.raises(ToolError, match="has 4 lines; there is no line 5"):
        read_file(Path("f"), offset=5)


def test_one_endless_line_is_cut_and_says_so(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of minified code can be larger than any result may be."""
    monkeypatch.setattr(files, "OUTPUT_CHARS_MAX", 10)
    (ws / "f").write_text("x" * 11)
    found = read_file(Path("f"))
    assert found.output == "x" * 10
    assert found.metadata["truncated"] is True


@pytest.mark.parametrize(
    ("content", "encoding"),
    [(b"\xef\xbb\xbfa", "utf-8-sig"), ("a".encode("utf-16"), "utf-16")],
)
def test_a_marked_encoding_is_read_and_named(ws: Path, content: bytes, encoding: str) -> None:
    """Text that an editor shows must not be called binary."""
    (ws / "f").write_bytes(content)
    found = read_file(Path("f"))
    assert (found.output, found.metadata["encoding"]) == ("a", encoding)


def test_each_file_that_is_no_text_has_a_reason_of_its_own(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that reads why can do something else; a traceback helps nobody."""
    (ws / "binary").write_bytes(b"\x7fELF\0\0")
    (ws / "latin").write_bytes(b"ok\ncaf\xe9\n")
    (ws / "folder").mkdir()
    os.mkfifo(ws / "fifo")
    (ws / "dangling").symlink_to("nowhere")
    (ws / "loop").symlink_to("loop")
    (ws / "large").write_bytes(b"x" * 2_000)
    monkeypatch.setattr(_paths, "FILE_BYTES_MAX", 1_999)
    for name, words in {
        "binary": "binary file of 6 bytes",
        "latin": "not UTF-8 text: byte 0xe9 in line 2",
        "folder": "is a folder",
        "fifo": "not a regular file",
        "dangling": "link to something that does not exist",
        "loop": "circle",
        "large": "too large: 2000 bytes",
        "latin/x": "not a folder",
        "x" * 300: "too long",
        "no/such/file": "nor does its folder",
    }.items():
        with pytest.raises(ToolError, match=words):
            read_file(Path(name))


def test_a_missing_file_comes_with_names_that_are_near(ws: Path) -> None:
    """Otherwise the model lists folders to find its typing error."""
    (ws / "README.md").touch()
    with pytest.raises(ToolError, match=r"REDAME.md does not exist") as caught:
        read_file(Path("REDAME.md"))
    assert caught.value.hint == "Did you mean README.md?"


# ---------------------------------------------------------------- list_directory


def entries(path: str = ".", depth: int = 1) -> list[dict[str, Any]]:
    return list_directory(Path(path), depth).output["entries"]  # type: ignore[index,no-any-return]  # a dict


def test_a_listing_is_sorted_and_typed(ws: Path) -> None:
    """The same folder must give the same answer."""
    (ws / "b").write_text("xy")
    (ws / "a").mkdir()
    (ws / "a" / "in").touch()
    (ws / "link").symlink_to("/")
    os.mkfifo(ws / "pipe")
    assert entries() == [
        {"path": "a", "type": "directory", "size": None},
        {"path": "b", "type": "file", "size": 2},
        {"path": "link", "type": "link", "size": None},
        {"path": "pipe", "type": "other", "size": None},
    ]
    assert [e["path"] for e in entries(depth=2)][:2] == ["a", "a/in"]
    assert [e["path"] for e in entries("a")] == ["a/in"]


def test_a_listing_is_bounded_and_says_so(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a million files would be a result that no channel carries."""
    monkeypatch.setattr(files, "ENTRIES_MAX", 2)
    for name in "abc":
        (ws / name).touch()
    found = list_directory(Path("."))
    assert len(found.output["entries"]) == 2  # type: ignore[index]  # a dict
    assert found.metadata["truncated"] is True


def test_git_is_listed_and_not_entered_links_are_not_followed(ws: Path) -> None:
    """Thousands of objects would bury the files; a link may lead anywhere."""
    (ws / ".git").mkdir()
    (ws / ".git" / "config").touch()
    (ws / "out").symlink_to("/usr")
    assert [e["path"] for e in entries(depth=9)] == [".git", "out"]


def test_a_name_that_is_not_utf8_does_not_break_the_listing(ws: Path) -> None:
    """One odd name would make the whole folder invisible."""
    os.close(os.open(os.fsencode(ws) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    assert entries()[0]["path"].encode()


def test_listing_a_file_says_what_to_do(ws: Path) -> None:
    """The model should take the other tool, not another path."""
    (ws / "f").touch()
    with pytest.raises(ToolError, match="is a file, not a folder"):
        list_directory(Path("f"))
    with pytest.raises(ToolError, match="does not exist"):
        list_directory(Path("g"))


# ---------------------------------------------------------------- write_file


def test_writing_creates_with_its_folders_and_replaces(ws: Path) -> None:
    """A temporary file left behind would be part of the change."""
    assert write_file(Path("a/b/f"), "é\r\n").output == {"bytes_written": 4, "created": True}
    assert write_file(Path("a/b/f"), "").output == {"bytes_written": 0, "created": False}
    assert (ws / "a/b/f").read_bytes() == b""
    assert os.listdir(ws / "a/b") == ["f"]


def test_the_mode_of_a_file_is_kept_without_special_bits(ws: Path) -> None:
    """A script must stay executable."""
    (ws / "f").touch()
    (ws / "f").chmod(0o4751)
    write_file(Path("f"), "x")
    assert stat.S_IMODE((ws / "f").stat().st_mode) == 0o751


def test_a_new_file_has_the_mode_that_the_umask_leaves(ws: Path) -> None:
    """A temporary file's 0600 would keep everybody else out."""
    mask = os.umask(0o027)
    try:
        write_file(Path("f"), "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((ws / "f").stat().st_mode) == 0o640


def test_a_link_is_written_through_and_stays_a_link(ws: Path) -> None:
    """A rename over the link would leave two different files."""
    (ws / "real").write_text("old")
    (ws / "link").symlink_to("real")
    write_file(Path("link"), "new")
    assert (ws / "link").is_symlink()
    assert (ws / "real").read_text() == "new"


def test_what_cannot_be_written_is_refused_before_anything_is_touched(ws: Path) -> None:
    """A link to nothing could create a file outside the workspace."""
    (ws / "folder").mkdir()
    (ws / "dangling").symlink_to("/nowhere/at/all")
    (ws / "file").write_text("x")
    os.mkfifo(ws / "fifo")
    for name in ("folder", "dangling", "file/below", "fifo", "x" * 300):
        with pytest.raises(ToolError):
            write_file(Path(name), "y")
    assert sorted(os.listdir(ws)) == ["dangling", "fifo", "file", "folder"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk must not cost the file; and its error is a limit, not the tool's words."""
    (ws / "f").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="full"):
        write_file(Path("f"), "new")
    assert (ws / "f").read_text() == "old"
    assert os.listdir(ws) == ["f"]


# ---------------------------------------------------------------- edit_file


def test_an_edit_is_exact_and_shows_what_it_did(ws: Path) -> None:
    """A person approves by the diff."""
    (ws / "f").write_text("1\n2\n3\n4\n5\n6\n")
    assert edit_file(Path("f"), "4\n", "four\n4.5\n").output == {
        "replacements": 1,
        "diff": "--- a/f\n+++ b/f\n@@ -1,6 +1,7 @@\n 1\n 2\n 3\n-4\n+four\n+4.5\n 5\n 6\n",
    }
    assert (ws / "f").read_text() == "1\n2\n3\nfour\n4.5\n5\n6\n"


def test_an_edit_that_could_mean_two_places_is_refused_with_both(ws: Path) -> None:
    """Otherwise the wrong one may be changed, and nobody sees it."""
    (ws / "f").write_text("a\nb\na\n")
    with pytest.raises(ToolError, match="occurs 2 times in f, at lines 1, 3"):
        edit_file(Path("f"), "a", "x")
    (ws / "g").write_text("aaa")
    with pytest.raises(ToolError, match="2 times"):
        edit_file(Path("g"), "aa", "x")
    assert edited(Path("f"), "a", "x", replace_all=True)["replacements"] == 2
    assert (ws / "f").read_text() == "x\nb\nx\n"


def edited(path: Path, old: str, new: str, **how: Any) -> Any:
    """What an edit says of itself."""
    return edit_file(path, old, new, **how).output


def test_an_edit_that_changes_nothing_is_refused_with_a_hint(ws: Path) -> None:
    """A silent success would let the model go on from a wrong belief."""
    (ws / "f").write_text("def f():\n    return 1\n")
    for old, new, hint in (
        ("", "x", "write_file"),
        ("  return 1 ", "x", "line 2"),
        ("def f():\n  return 2", "x", "first line is in line 1"),
        ("nothing like it", "x", "Read the file again"),
    ):
        with pytest.raises(ToolError) as caught:
            edit_file(Path("f"), old, new)
        assert caught.value.hint is not None
        assert hint in caught.value.hint
    with pytest.raises(ToolError, match="same"):
        edit_file(Path("f"), "def", "def")


def test_line_endings_mode_and_mark_are_kept(ws: Path) -> None:
    """Models send LF; a file of CRLF must not become a mixture."""
    (ws / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\r\nc\r\n")
    (ws / "f").chmod(0o755)
    edit_file(Path("f"), "a\nb", "x\ny\nz")
    assert (ws / "f").read_bytes() == b"\xef\xbb\xbfx\r\ny\r\nz\r\nc\r\n"
    assert stat.S_IMODE((ws / "f").stat().st_mode) == 0o755


def test_a_file_of_mixed_endings_is_edited_exactly(ws: Path) -> None:
    """Lines that nobody touched would show up as changed."""
    (ws / "f").write_bytes(b"a\r\nb\nc\r\n")
    edit_file(Path("f"), "b\n", "x\n")
    assert (ws / "f").read_bytes() == b"a\r\nx\nc\r\n"


def test_a_diff_of_anything_ends_soon_and_is_bounded(ws: Path) -> None:
    """difflib took 5 s for 58 KB."""
    (ws / "f").write_text("a" * 3_000_000 + "b" * 1_000 + "\n" + "c\n" * 100_000)
    found = edited(Path("f"), "b" * 1_000, "x" * 3_000_000)
    assert len(found["diff"]) < 40_000
    assert edited(Path("f"), "c", "d", replace_all=True)["replacements"] == 100_000


def applied(text: str, diff: str) -> str:
    """A small patch(1): what a unified diff makes of a text."""
    old = text.split("\n")
    old = [f"{line}\n" for line in old[:-1]] + ([old[-1]] if old[-1] else [])
    out: list[str] = []
    at = 0
    lines = diff.split("\n")[2:-1]
    for number, line in enumerate(lines):
        whole = f"{line[1:]}\n"
        if number + 1 < len(lines) and lines[number + 1].startswith("\\"):
            whole = line[1:]
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            begin = int(start) - (count != "0")
            out += old[at:begin]
            at = begin
            new_start, _, new_count = line.split()[2][1:].partition(",")
            assert int(new_start) - (new_count != "0") == len(out)
        elif line.startswith(" "):
            assert old[at] == whole
            out.append(old[at])
            at += 1
        elif line.startswith("-"):
            assert old[at] == whole
            at += 1
        elif line.startswith("+"):
            out.append(whole)
    return "".join(out + old[at:])


@given(
    st.text("ab\n", max_size=60),
    st.text("ab\n", min_size=1, max_size=3),
    st.text("xb\n", max_size=6),
)
@settings(max_examples=400, deadline=None)
def test_a_diff_applied_to_the_old_text_gives_the_new_one(text: str, old: str, new: str) -> None:
    """A diff that lies is worse than none: a person approves by it."""
    changes, at = [], text.find(old)
    while at >= 0:
        changes.append(Change(at, at + len(old), new))
        at = text.find(old, at + len(old))
    assert applied(text, unified("f", text, changes)) == text.replace(old, new)


# ---------------------------------------------------------------- what was decided on


@pytest.fixture
def settled(ws: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file, a folder and a file in it, each decided on as they are now."""
    (ws / "notes").write_text("plain")
    (ws / "sub").mkdir()
    (ws / "sub" / "in").write_text("inner")
    (ws / "secret").mkdir()
    (ws / "secret" / "in").write_text("SECRET")
    names = ("notes", "sub", "sub/in", "new/deep")
    for name in names:
        monkeypatch.setitem(SETTLED, name, str(ws / name))
    return ws


def swap(path: Path, target: str) -> None:
    """Another process puts a link in the place of what was decided on."""
    if path.is_dir():
        path.rename(path.with_name("moved"))
    else:
        path.unlink()
    path.symlink_to(target)


def test_a_file_that_became_a_link_since_it_was_decided_on_is_not_opened(settled: Path) -> None:
    """It can lead to the one file that was to stay unread, or unwritten."""
    assert read_file(Path("notes")).output == "plain"
    swap(settled / "notes", "secret/in")
    acts: tuple[Callable[[], object], ...] = (
        lambda: read_file(Path("notes")),
        lambda: write_file(Path("notes"), "x"),
        lambda: search("SECRET", Path("notes")),
    )
    for act in acts:
        with pytest.raises(ToolError, match="a link stands there"):
            act()
    assert (settled / "secret" / "in").read_text() == "SECRET"


def test_a_folder_on_the_way_that_became_a_link_is_not_followed(settled: Path) -> None:
    """Swapping a parent does as much as swapping the file."""
    assert read_file(Path("sub/in")).output == "inner"
    assert list_directory(Path("sub")).output == {
        "entries": [{"path": "sub/in", "type": "file", "size": 5}]
    }
    swap(settled / "sub", "secret")
    acts: tuple[Callable[[], object], ...] = (
        lambda: read_file(Path("sub/in")),
        lambda: write_file(Path("sub/in"), "x"),
        lambda: list_directory(Path("sub")),
        lambda: search("SECRET", Path("sub")),
    )
    for act in acts:
        with pytest.raises(ToolError, match="a link stands there"):
            act()
    assert (settled / "secret" / "in").read_text() == "SECRET"


def test_folders_that_are_made_on_the_way_follow_no_link(settled: Path) -> None:
    """Making them by name would make them wherever a link leads."""
    write_file(Path("new/deep"), "fine")
    assert (settled / "new" / "deep").read_text() == "fine"
    swap(settled / "new", "secret")
    with pytest.raises(ToolError, match="a link stands there"):
        write_file(Path("new/deep"), "x")
    assert sorted(os.listdir(settled / "secret")) == ["in"]
