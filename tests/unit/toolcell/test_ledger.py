"""Net-zero: what calls changed since a baseline, whatever they did in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcell._ledger import Baseline, Ledger
from toolcell.results import Effects
from toolcell_sandbox.changeset import Entry


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield tmp_path, fd
    os.close(fd)


def entry(path: Path) -> Entry:
    found = path.lstat()
    return Entry(
        kind="file",
        mode=found.st_mode & 0o7777,
        uid=found.st_uid,
        gid=found.st_gid,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        links=found.st_nlink,
        inode=(found.st_dev, found.st_ino),
    )


def displace(ledger: Ledger, path: Path) -> None:
    note = ledger.noting
    assert note is not None
    if path.exists():
        fd = os.open(path, os.O_RDONLY)
        note(path.name, entry(path), fd)
        os.close(fd)
    else:
        note(path.name, None, None)


def test_nobody_pays_who_asked_for_no_baseline() -> None:
    """A hash of every file that is replaced costs as much as the file is large."""
    assert Ledger().noting is None


def test_an_edit_that_was_taken_back_nets_out(workspace: tuple[Path, int]) -> None:
    """A probe that was removed again is no change; one that was forgotten is."""
    top, fd = workspace
    kept, gone, new = (top / name for name in ("kept", "gone", "new"))
    kept.write_text("a")
    gone.write_text("b")
    ledger = Ledger()
    start = ledger.baseline()
    for path in (kept, gone, new):
        displace(ledger, path)
    kept.write_text("debug")
    gone.unlink()
    new.write_text("n")
    expected = Effects(created=("new",), modified=("kept",), deleted=("gone",))
    assert ledger.changes_since(start, fd, lambda: None) == expected
    later = ledger.baseline()
    displace(ledger, kept)
    kept.write_text("a")
    assert ledger.changes_since(later, fd, lambda: None) == Effects(modified=("kept",))
    gone.write_text("b")
    new.unlink()
    assert ledger.changes_since(start, fd, lambda: None) == Effects()
    kept.chmod(0o600)
    assert ledger.changes_since(start, fd, lambda: None) == Effects(modified=("kept",))


def test_what_nobody_saw_is_not_called_nothing(workspace: tuple[Path, int]) -> None:
    """A call that wrote in place may have changed anything."""
    _, fd = workspace
    ledger = Ledger()
    start = ledger.baseline()
    ledger.unobserved()
    assert ledger.changes_since(start, fd, lambda: None) is None


def test_a_baseline_of_somebody_else_is_refused(workspace: tuple[Path, int]) -> None:
    """Measured from the wrong moment, anything nets out."""
    with pytest.raises(ValueError, match="none of this executor's"):
        Ledger().changes_since(Baseline(0), workspace[1], lambda: None)
