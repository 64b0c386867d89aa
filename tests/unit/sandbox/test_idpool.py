"""Host ids for jails: no two that run at once have the same, in this process or another."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from toolcell_sandbox import host, idpool
from toolcell_sandbox._child import ids

BASE = 0x7A00_0000


@pytest.fixture
def lock_file(tmp_path: Path, monkeypatch) -> str:
    """A pool of the test's own, as the host's root has one."""
    monkeypatch.setattr(host, "id_base", lambda: BASE)
    monkeypatch.setattr(idpool, "_mine", set())
    return str(tmp_path / "run" / "ids.lock")


def test_two_leases_of_one_process_are_apart(lock_file):
    """Two jails with one uid can signal each other wherever a namespace leaks."""
    with ExitStack() as held:
        first = idpool.lease(held, lock_file=lock_file)
        second = idpool.lease(held, lock_file=lock_file)
        assert (first, second) == (BASE, BASE + ids.RANGE)


def test_a_lease_that_ended_is_given_again(lock_file):
    """A pool that only shrinks is empty after four thousand calls."""
    for _ in range(3):
        with ExitStack() as held:
            assert idpool.lease(held, lock_file=lock_file) == BASE


def test_another_process_gets_other_ids(lock_file):
    """Two supervisors on one machine know nothing of each other but this file."""
    script = (
        "import sys\nfrom contextlib import ExitStack\n"
        "from toolcell_sandbox import host, idpool\n"
        f"host.id_base = lambda: {BASE}\n"
        "print(idpool.lease(ExitStack(), lock_file=sys.argv[1]))\n"
    )

    def elsewhere() -> int:
        argv = [sys.executable, "-c", script, lock_file]
        return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    with ExitStack() as held:
        assert idpool.lease(held, lock_file=lock_file) == BASE
        assert elsewhere() == BASE + ids.RANGE
    assert elsewhere() == BASE, "the control: what is not held is given"


def test_a_pool_that_is_used_up_says_so(lock_file, monkeypatch):
    """Handing out a range twice would be the silent way."""
    monkeypatch.setattr(host, "id_slots", lambda _: 2)
    with ExitStack() as held:
        idpool.lease(held, lock_file=lock_file)
        idpool.lease(held, lock_file=lock_file)
        with pytest.raises(LookupError, match="in use"):
            idpool.lease(held, lock_file=lock_file)


def test_a_link_in_place_of_the_lock_file_is_not_followed(lock_file, tmp_path):
    """Root would make or open whatever it leads to."""
    Path(lock_file).parent.mkdir()
    Path(lock_file).symlink_to(tmp_path / "elsewhere")
    with ExitStack() as held, pytest.raises(LookupError, match="cannot be used"):
        idpool.lease(held, lock_file=lock_file)
    assert not (tmp_path / "elsewhere").exists()


def test_who_is_not_root_has_none_to_give(monkeypatch, tmp_path):
    """One id is all that an unprivileged user can map."""
    monkeypatch.setattr(host, "id_base", lambda: None)
    with ExitStack() as held:
        assert idpool.lease(held, lock_file=str(tmp_path / "none" / "lock")) is None
    assert not (tmp_path / "none").exists()
