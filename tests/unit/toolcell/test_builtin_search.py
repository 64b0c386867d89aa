"""search, as a function, on a real folder."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from toolcell.builtin import search as module
from toolcell.builtin.search import _glob, search
from toolcell.errors import ToolError


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is the working directory."""
    folder = tmp_path / "ws"
    (folder / "a").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "x").write_text("needle\n")
    (folder / "a" / "z.py").write_text("needle one\nother\r\nneedle two\r\n")
    (folder / "a-b.txt").write_text("needle\n")
    (folder / "binary").write_bytes(b"needle\0\n")
    (folder / "out").symlink_to("/etc")
    (folder / "hosts").symlink_to("/etc/hosts")
    monkeypatch.chdir(folder)
    return folder


def found(*args: Any, **kwargs: Any) -> list[tuple[str, int, str]]:
    output: Any = search(*args, **kwargs).output
    assert output.keys() == {"matches", "truncated"}
    return [(m["path"], m["line"], m["text"]) for m in output["matches"]]


def test_matches_are_sorted_by_path_and_line(ws: Path) -> None:
    """Otherwise the limit keeps other matches each time."""
    assert found("needle") == [
        ("a-b.txt", 1, "needle"),
        ("a/z.py", 1, "needle one"),
        ("a/z.py", 3, "needle two"),
    ]
    assert found("two$", Path("a")) == [("a/z.py", 3, "needle two")]
    assert found("needle", Path("a/z.py"))[0][0] == "a/z.py"


def test_links_git_and_binary_files_are_skipped(ws: Path) -> None:
    """A link out of the workspace would read what nobody granted."""
    facts = search("localhost|root|needle").metadata
    assert facts == {"files_searched": 2, "files_skipped": 1}


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("^needle", 3),
        ("^$", 0),
        (r"\Aneedle", 3),
        (r"needle\z", 1),
        ("(?i)NEEDLE", 3),
        ("one|two", 2),
        ("(?:one)$", 1),
        ("r$", 1),
        (r"needle\nother", 0),
        ("(?s)needle.*two", 1),
    ],
)
def test_a_pattern_sees_one_line_at_a_time(ws: Path, pattern: str, count: int) -> None:
    """A quick look at the whole file must not change what matches."""
    assert len(found(pattern)) == count


def test_literal_text_is_not_a_pattern(ws: Path) -> None:
    """Code is full of dots and brackets."""
    (ws / "f").write_text("a.b(\naxb(\n")
    assert found("a.b(", literal=True) == [("f", 1, "a.b(")]
    with pytest.raises(ToolError, match="spans lines"):
        search("a\nb", literal=True)


def test_more_matches_than_asked_for_are_told(ws: Path) -> None:
    """The model would take a part for the whole."""
    output: Any = search("needle", limit=2).output
    assert (len(output["matches"]), output["truncated"]) == (2, True)
    output = search("needle", limit=3).output
    assert (len(output["matches"]), output["truncated"]) == (3, False)


def test_the_whole_of_a_result_is_bounded(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of a billion must not make a result that no channel carries."""
    monkeypatch.setattr(module, "OUTPUT_CHARS_MAX", 200)
    (ws / "f").write_text("needle " * 1_000 + "\n")
    output: Any = search("needle", limit=10**9).output
    assert output["truncated"] is True


def test_a_long_line_is_cut(ws: Path) -> None:
    """A line of minified code would bury all other matches."""
    (ws / "f").write_text("é" * 5_000 + "end")
    assert found("end") == [("f", 1, "é" * 500 + "…")]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(.*a){12}$", "(a*)*b"])
def test_no_pattern_takes_more_than_linear_time(ws: Path, pattern: str) -> None:
    """A backtracking engine takes hours for the first of these."""
    (ws / "f").write_text("a" * 100_000 + "!\n")
    start = time.perf_counter()
    search(pattern)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "a{1000}{1000}", "[z-a]", "*"])
def test_a_pattern_that_cannot_be_used_says_why(
    ws: Path, pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """RE2 would otherwise write to the call's stderr and match nothing."""
    with pytest.raises(ToolError, match="not a usable regular expression"):
        search(pattern)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", True),
        ("*.py", "a.pyc", False),
        ("d/*.py", "d/a.py", True),
        ("d/*.py", "d/e/a.py", False),
        ("d/**/*.py", "d/a.py", True),
        ("d/**/*.py", "d/e/f/a.py", True),
        ("d/**", "d/e/f", True),
        ("**/a.py", "a.py", True),
        ("./d/*", "d/a", True),
        ("a.py", "axpy", False),
        ("a?c", "abc", True),
        ("a[bc]d", "acd", True),
        ("a[!bc]d", "acd", False),
        ("a[!b]d/*", "axd/x", True),
        ("*.{ts,tsx}", "a.tsx", True),
        ("*.{ts,tsx}", "a.js", False),
        ("a{b", "a{b", True),
        ("a}b,c", "a}b,c", True),
        ("a]", "a]", True),
        ("[", "[", True),
        ("é+(x)", "é+(x)", True),
        ("a\\b", "a\\b", True),
    ],
)
def test_a_glob_means_what_it_looks_like(glob: str, path: str, matches: bool) -> None:
    """A file that is wrongly left out looks as if it held no match."""
    assert _glob(glob)(path.encode()) is matches


def test_a_glob_takes_linear_time() -> None:
    """`fnmatch` turns stars into backtracking."""
    start = time.perf_counter()
    assert not _glob("*a" * 50 + "b")(b"a" * 10_000)
    assert time.perf_counter() - start < 2


def test_a_glob_chooses_among_files(ws: Path) -> None:
    """Otherwise a search for code drowns in data."""
    assert found("needle", glob="*.txt") == [("a-b.txt", 1, "needle")]
    assert found("needle", glob="a/**") == [
        ("a/z.py", 1, "needle one"),
        ("a/z.py", 3, "needle two"),
    ]


def test_what_cannot_be_searched_says_why(ws: Path) -> None:
    """No matches and no such folder must not look alike."""
    os.mkfifo(ws / "fifo")
    with pytest.raises(ToolError, match="does not exist"):
        search("x", Path("nowhere"))
    with pytest.raises(ToolError, match="not a regular file"):
        search("x", Path("fifo"))
    assert found("nothing at all") == []
