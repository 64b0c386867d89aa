"""The matrix itself: every row is tested or says why not, and the page tells of this run."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import trio

from toolcell_sandbox import offers

from . import pages
from .cells import ABLATIONS, IS_FULL, IS_ROOT, run_cell
from .conftest import Cage
from .probes import PROBES
from .rows import LATER, ROWS
from .test_resources import UNMAPPED

HERE = Path(__file__).parent


def rows_with_tests() -> set[int]:
    """Every row with a test: its number is in the test's name, or the probe's, or a parameter."""
    found = {one.row for one in PROBES.values()}
    for file in HERE.glob("test_*.py"):
        source = file.read_text()
        found |= {int(number) for number in re.findall(r"def test_row_(\d{3})_", source)}
        found |= {int(number) for number in re.findall(r"^        \((\d{3}), ", source, re.M)}
    return found


def test_every_row_is_tested_or_says_why_not():
    """A row that was forgotten looks just like one that holds."""
    assert set(ROWS) == set(range(1, 140))
    assert rows_with_tests() | set(LATER) == set(ROWS)
    assert rows_with_tests() & set(LATER) == set()


def test_every_row_has_layers_and_words():
    """A table with holes is read as one without."""
    for number, (text, layers) in ROWS.items():
        assert text, number
        assert set(layers.split()) <= set("LSMUPNICRFEX"), number
    assert all(LATER.values())


if IS_FULL and IS_ROOT:

    def test_the_page_is_written_from_what_each_missing_layer_opens(tmp_path):
        """A layer that opens nothing when it is gone was never a layer."""
        opened = {cell.title: pages.opened(run_cell(cell)) for cell in ABLATIONS}
        assert opened["all layers"] == {}
        for title, rows in opened.items():
            assert rows or "all layers" in title, title
        # Not by probes: with nothing that bounds it, memory that nobody has mapped is nobody's.
        group = ("cgroup_memory", "cgroup_pids", "cgroup_cpu")
        with offers.assume(offers.look(thorough=True).without(*group)):
            opened["control group"] = {90: trio.run(hoards_kept, tmp_path)}
        assert trio.run(hoards_kept, tmp_path) == []
        assert opened["control group"][90]
        pages.write(opened)


async def hoards_kept(folder: Path) -> list[str]:
    """What a jail may keep four times its memory in, where nothing ends it for that."""
    cage = Cage(folder / secrets.token_hex(4), "standard")
    kept = []
    for what, source in UNMAPPED.items():
        source = source.replace("PRIVATE", "True").replace("SIZE", "300")
        got = await cage.run(source, memory_bytes="64M", wall_s=3, disk_bytes="512M")
        # Pipes are bounded by their user's budget, segments by kernel.shmall.
        if got.kind == "timeout" and what not in ("pipes", "sysv"):
            kept.append(what)
    return kept
