"""Diffs for a reviewer: right, readable, and bounded whatever the text is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolcell._differ import LINES_MAX, diffs


def diff(before: str | None, after: str | None) -> str:
    (found,) = diffs([{"name": "f", "before": before, "after": after}])
    return found


def test_a_change_is_shown_with_its_place_and_what_is_around_it() -> None:
    """A reviewer who cannot find the place says yes to something else."""
    lines = [f"line {number}" for number in range(1, 101)]
    changed = [*lines[:49], "fifty", *lines[50:]]
    found = diff("\n".join(lines) + "\n", "\n".join(changed) + "\n").split("\n")
    assert found[:3] == ["--- a/f", "+++ b/f", "@@ -47,7 +47,7 @@"]
    assert found[3:6] == [" line 47", " line 48", " line 49"]
    assert found[6:8] == ["-line 50", "+fifty"]


@pytest.mark.parametrize(
    ("before", "after", "sign"), [(None, "a\nb\n", "+"), ("a\nb\n", None, "-")]
)
def test_a_new_and_a_deleted_file_are_whole(
    before: str | None, after: str | None, sign: str
) -> None:
    """What is new is what matters most."""
    assert diff(before, after).split("\n")[3:] == [f"{sign}a", f"{sign}b"]


def test_what_is_too_much_is_counted_and_cut() -> None:
    """difflib took 5 s for 58 KB; and nobody reads a thousand lines at a prompt."""
    many = "\n".join(str(number) for number in range(3_000))
    others = "\n".join(str(-number) for number in range(3_000))
    assert "2999 lines become 2999, too many to show" in diff(many, others)
    long = diff(None, "\n".join("x" for _ in range(5_000)))
    assert len(long.split("\n")) == LINES_MAX + 2
    assert long.endswith("... the diff goes on")
    assert "(1000 characters)" in diff(None, "y" * 999 + "\n")


LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30).map(
    lambda lines: "\n".join(lines)
)


@settings(max_examples=60, deadline=None)
@given(before=LINES, after=LINES)
# The context of a hunk must not end where only what was compared ends.
@example(before="a\na\na\nc\nc\nc\na\nb\nb\na\na", after="a\na\na\nb\nc\nc\nc\nc\na\nb\nb\na\na")
def test_a_diff_is_what_patch_makes_of_it(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    """A hunk with a wrong number shows a change where there is none."""
    if before == after:
        return
    folder: Path = tmp_path_factory.mktemp("patch")
    (folder / "f").write_text(before)
    subprocess.run(
        ["patch", "-s", "f"], cwd=folder, input=diff(before, after) + "\n", text=True, check=True
    )
    left = (folder / "f").read_text() if (folder / "f").exists() else ""
    assert left == after
