"""Rows 17 to 22: what a jail leaves in folders that the supervisor then has to handle."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcell import Executor
from toolcell.results import ToolResult
from toolcell_sandbox import JailOutcome, run_in_jail
from toolcell_sandbox._child.remove import remove_tree

from .cells import IS_FULL
from .conftest import Cage, watched


@pytest.fixture
def contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cage]:
    """A cage whose jails have folders that are removed after them: at level `container`."""
    yield from watched(tmp_path, "container", monkeypatch)


async def test_row_017_a_protected_name_that_is_a_link_is_a_typed_refusal(cage):
    """A link with a harmless name is how a hook gets written without its name being said."""
    hooks = cage.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("kept")
    (cage.workspace / "notes").symlink_to(".git/hooks/pre-commit")
    (cage.workspace / "plain").symlink_to("other")
    (cage.workspace / "other").write_text("x")
    async with Executor(
        workspace=cage.workspace, state_dir=cage.folder / "state", isolation=cage.level
    ) as box:
        got = await box.call("write_file", {"path": "notes", "content": "#!/bin/sh"})
        plain = await box.call("write_file", {"path": "plain", "content": "x"})
    assert got.error is not None
    assert got.error.kind in ("denied", "approval_unavailable")
    assert got.decision is not None
    assert plain.decision is not None
    rules = [[r.rule for r in one.reasons] for one in (got.decision, plain.decision)]
    assert any(rule and rule.startswith("git.") for rule in rules[0])
    assert (hooks / "pre-commit").read_text() == "kept"
    # The controls: no such rule is named for a link to nothing protected, and that one is written.
    assert not any(rule and rule.startswith("git.") for rule in rules[1])
    async with cage.executor() as box:
        control = await box.call("write_file", {"path": "plain", "content": "fine"})
    assert control.success
    assert (cage.workspace / "other").read_text() == "fine"


async def test_row_018_a_file_swapped_with_a_link_after_the_last_look_is_not_read(
    cage, monkeypatch
):
    """Between the check of a name and its use there is always a moment, and others to use it."""
    got = await swapped(cage, monkeypatch, ".env")
    assert "SECRET" not in got.content


async def test_row_018_control_the_swap_is_made_in_time(cage, monkeypatch):
    """Without this, the test above would show nothing but a swap that came too late."""
    assert "a link stands there" in (await swapped(cage, monkeypatch, "harmless")).content


async def swapped(cage: Cage, monkeypatch: pytest.MonkeyPatch, target: str) -> ToolResult:
    """read_file of a plain file that becomes a link just as its jail is about to be started."""
    workspace, name = cage.workspace, cage.workspace / "notes"
    (workspace / ".env").write_text("SECRET=1")
    (workspace / "harmless").write_text("harmless")
    name.write_text("plain")

    async def after_a_swap(*arguments: Any, **options: Any) -> JailOutcome:
        name.unlink()
        name.symlink_to(target)
        return await run_in_jail(*arguments, **options)

    monkeypatch.setattr("toolcell.executor.run_in_jail", after_a_swap)
    async with cage.executor(waive=waived(cage)) as box:
        return await box.call("read_file", {"path": "notes"})


def waived(cage: Cage) -> tuple[str, ...]:
    """At `container` a workspace that holds secrets needs a word for it."""
    return ("paths_masked",) if cage.level == "container" else ()


async def test_row_019_links_planted_in_a_temporary_folder_are_not_followed(contained, tmp_path):
    """The supervisor removes it with all of its rights."""
    victim = tmp_path / "victim"
    (victim / "sub").mkdir(parents=True)
    (victim / "sub" / "kept").write_text("kept")
    got = await contained.shell(
        f"ln -s {victim} $HOME/link; ln -s {victim}/sub $TMPDIR/link; ln -s / $TMPDIR/root;"
        f"mkdir -p $TMPDIR/a/b; ln -s {victim} $TMPDIR/a/b/c; ls -A $TMPDIR | wc -l"
    )
    assert got.stdout.strip() == b"3", "the control: they were planted"
    assert (victim / "sub" / "kept").read_text() == "kept"
    # The control: a removal that follows links would have taken it.
    (tmp_path / "copy").symlink_to(victim)
    subprocess.run(["find", "-L", str(tmp_path / "copy"), "-type", "f", "-delete"], check=True)
    assert not (victim / "sub" / "kept").exists()


DEPTH = 10_000 if IS_FULL else 1_200
"""Past what recursion takes; each step costs Landlock a walk up to the root."""
DEEP = """
import os
def handler():
    os.chdir(os.environ["TMPDIR"])
    os.mkdir("closed")
    open("closed/file", "w").close()
    os.mkdir("closed/sub")
    os.chmod("closed/sub", 0)
    os.chmod("closed", 0)
    for n in range(DEPTH):
        os.mkdir("d")
        os.chdir("d")
    return "made"
"""


async def test_row_020_a_closed_and_a_bottomless_tree_are_still_removed(contained, tmp_path):
    """What cannot be removed fills the disk, one call after the other."""
    got = await contained.run(DEEP.replace("DEPTH", str(DEPTH)), wall_s=100)
    assert got.value == "made"
    # That nothing is left in the temporary folder is what the cage checks.
    # The control: the standard library gives up on such a tree.
    top = tmp_path / "deep"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        with pytest.raises((RecursionError, OSError)):
            shutil.rmtree(top)
    finally:
        remove_tree(str(top))
    assert not top.exists()


async def test_row_021_a_fifo_where_a_file_should_be_blocks_nobody(any_cage):
    """Opening one waits for a writer who will never come."""
    os.mkfifo(any_cage.workspace / "output")
    started = time.monotonic()
    async with any_cage.executor(wall_s=5) as box:
        got = await box.call("read_file", {"path": "output"})
        write = await box.call("write_file", {"path": "output", "content": "x"})
        listed = await box.call("list_directory")
    assert got.error is not None
    assert got.error.kind in ("tool_error", "denied")
    assert write.success or (write.error is not None)
    assert listed.success
    assert time.monotonic() - started < 20
    fifo = any_cage.workspace / "other"
    os.mkfifo(fifo)
    # The control: who just opens one waits.
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["cat", str(fifo)], timeout=0.3, check=False)


NAMES = [b"new\nline", b"not-utf8-\xff\xfe", b"x" * 255, b" ", b"-rf", "‮txt.exe".encode()]


async def test_row_022_odd_names_come_back_as_they_are(any_cage):
    """A name that is changed on its way names another file."""
    got = await any_cage.run(
        f"""
        import os
        def handler():
            os.mkdir("odd")
            for name in {NAMES!r}:
                open(os.path.join(b"odd", name), "w").close()
            return sorted(os.listdir(b"odd"))
        """,
        spec=any_cage.spec(mode="direct"),
    )
    back = [base64.b64decode(item["base64"]) for item in got.value]
    assert back == sorted(NAMES) == sorted(os.listdir(os.fsencode(any_cage.workspace / "odd")))
    as_text = await any_cage.run("import os\nreturn os.listdir('odd')")
    assert as_text.kind == "invalid_output", "the control: as text it cannot be said"
    async with any_cage.executor() as box:
        listed = await box.call("list_directory", {"path": "odd"})
    assert listed.success
    assert len(listed.output["entries"]) == len(NAMES)
