"""Whatever lies where the store should, it is empty and asks; it is never in the way."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import socket
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcell._grants_store import foreign
from toolcell.grants import Grants

KEY = "a" * 64
NOW = 1_800_000_000.0
NOBODY = 65_534

Warned = Callable[[], list[str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder whose store holds one grant, one used plan, one trusted file."""
    folder = tmp_path / "state"
    with Grants.open(folder) as grants:
        remember(grants)
        grants.consume("used", NOW)
        grants.trust(KEY, "/ws/policy.toml", NOW)
    return folder


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Warned:
    caplog.set_level(logging.WARNING, logger="toolcell")
    return lambda: [record.getMessage() for record in caplog.records]


def remember(grants: Grants, key: str = KEY) -> None:
    grants.add(
        key,
        scope="project",
        session="s",
        mode="build",
        tool_name="t",
        shape="x",
        workspace="/ws",
        agent_id=None,
        now=NOW,
    )


def found(grants: Grants) -> bool:
    return grants.lookup(KEY, mode="build", session="s", now=NOW) is not None


def aside(state: Path) -> list[Path]:
    names = [path for path in state.iterdir() if path.name.startswith("grants.sqlite.damaged-")]
    return sorted(path for path in names if not path.name.endswith("-journal"))


def store(state: Path) -> Path:
    return state / "grants.sqlite"


# -- damage -------------------------------------------------------------------------------


def garbage(state: Path) -> None:
    store(state).write_bytes(b"no database at all" * 100)


def cut_short(state: Path) -> None:
    os.truncate(store(state), 5000)


def torn(state: Path) -> None:
    with store(state).open("r+b") as file:
        for page in range(1, 12):
            file.seek(page * 4096)
            file.write(b"\xff" * 512)


def other_version(state: Path) -> None:
    run(state, "PRAGMA user_version = 2")


def other_application(state: Path) -> None:
    run(state, "PRAGMA application_id = 1")


def with_a_trigger(state: Path) -> None:
    run(state, "CREATE TRIGGER undo AFTER DELETE ON grants BEGIN SELECT 1; END")


def without_a_table(state: Path) -> None:
    run(state, "DROP TABLE consumed")


def of_other_types(state: Path) -> None:
    run(state, "PRAGMA ignore_check_constraints = ON", "UPDATE grants SET shape = 7")


def somebody_else_s_database(state: Path) -> None:
    store(state).unlink()
    run(state, "CREATE TABLE grants (key TEXT)", f"INSERT INTO grants VALUES ('{KEY}')")
    store(state).chmod(0o600)


def a_link(state: Path) -> None:
    shutil.move(store(state), state.parent / "elsewhere.sqlite")
    store(state).symlink_to(state.parent / "elsewhere.sqlite")


def a_dangling_link(state: Path) -> None:
    store(state).unlink()
    store(state).symlink_to(state.parent / "made-for-somebody")


def a_hard_link(state: Path) -> None:
    os.link(store(state), state.parent / "elsewhere.sqlite")


def a_folder(state: Path) -> None:
    store(state).unlink()
    store(state).mkdir()
    (store(state) / "full").touch()


def a_fifo(state: Path) -> None:
    store(state).unlink()
    os.mkfifo(store(state), 0o600)


def a_socket(state: Path) -> None:
    store(state).unlink()
    here = os.getcwd()
    os.chdir(state)  # A path of a socket is short (unix(7)).
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("grants.sqlite")
    os.chdir(here)


def open_to_all(state: Path) -> None:
    store(state).chmod(0o666)


def huge(state: Path) -> None:
    os.truncate(store(state), 1 << 30)


def with_a_fifo_as_journal(state: Path) -> None:
    journal(state).unlink(missing_ok=True)
    os.mkfifo(journal(state), 0o600)


def with_a_link_as_journal(state: Path) -> None:
    journal(state).unlink(missing_ok=True)
    journal(state).symlink_to("/etc/passwd")


def journal(state: Path) -> Path:
    return state / "grants.sqlite-journal"


def run(state: Path, *statements: str) -> None:
    connection = sqlite3.connect(store(state))
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


DAMAGES = [
    garbage,
    cut_short,
    torn,
    other_version,
    other_application,
    with_a_trigger,
    without_a_table,
    of_other_types,
    somebody_else_s_database,
    a_link,
    a_dangling_link,
    a_hard_link,
    a_folder,
    a_fifo,
    a_socket,
    open_to_all,
    huge,
    with_a_fifo_as_journal,
    with_a_link_as_journal,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_store_that_is_not_ours_or_not_whole_is_empty_and_set_aside(
    state: Path, warned: Warned, damage: Callable[[Path], None]
) -> None:
    """Otherwise whoever can put a file there answers for the person; or nobody can work at all."""
    with Grants.open(state) as grants:
        assert found(grants)
        key = grants.seal_key()
    damage(state)
    with Grants.open(state) as grants:
        assert not found(grants)
        assert grants.list(NOW) == ()
        assert not grants.trusted_digests()
        assert grants.seal_key() != key
        remember(grants)
        assert found(grants)
    assert len(aside(state)) == 1
    (said,) = warned()
    assert "asked again" in said
    assert str(aside(state)[0]) in said
    assert not (state.parent / "made-for-somebody").exists()
    assert stat.S_IMODE(store(state).lstat().st_mode) == 0o600
    with Grants.open(state) as grants:
        assert found(grants)


@pytest.mark.parametrize("damage", [garbage, torn, a_fifo, a_link], ids=lambda d: d.__name__)
def test_a_store_that_is_damaged_while_it_is_open_asks_from_then_on(
    state: Path, warned: Warned, damage: Callable[[Path], None]
) -> None:
    """Otherwise a running executor would crash, or go on by what it had read."""
    with Grants.open(state) as grants:
        assert found(grants)
        damage(state)
        # What a connection still has in its cache is read anew once the file has changed.
        os.utime(store(state), follow_symlinks=False)
        run_elsewhere(state)
        assert not found(grants)
        remember(grants)
        assert found(grants)
    assert len(aside(state)) == 1


def run_elsewhere(state: Path) -> None:
    """Nothing, where it is damaged; a SQLite that has it open looks at its change counter."""
    if store(state).is_file() and not store(state).is_symlink():
        with store(state).open("r+b") as file:
            file.seek(24)
            file.write(b"\x7f\xff\xff\x00")


@pytest.mark.parametrize("change", ["nothing", "emptied", "removed"])
def test_an_empty_store_is_a_new_one(state: Path, warned: Warned, change: str) -> None:
    """Whoever removes the file, or is killed while it is made, has forgotten; nothing is broken."""
    with Grants.open(state) as grants:
        if change == "emptied":
            os.truncate(store(state), 0)
        elif change == "removed":
            store(state).unlink()
        assert found(grants) == (change == "nothing")
        remember(grants)
        assert found(grants)
    assert aside(state) == []
    assert warned() == []


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o400, 0o000, 0o700])
def test_a_store_that_others_could_only_read_is_kept_and_closed_to_them(
    state: Path, warned: Warned, mode: int
) -> None:
    """A copy made with a wide umask has not been changed by anybody; what it shows is hidden."""
    store(state).chmod(mode)
    with Grants.open(state) as grants:
        assert found(grants)
        remember(grants)
    assert stat.S_IMODE(store(state).stat().st_mode) == 0o600
    assert aside(state) == []


def test_what_is_made_is_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    """Otherwise other users would read what this one works on."""
    before = os.umask(0)
    try:
        with Grants.open(tmp_path / "a" / "state") as grants:
            remember(grants)
            modes = {path.name: path.stat().st_mode for path in (tmp_path / "a/state").iterdir()}
    finally:
        os.umask(before)
    assert {stat.S_IMODE(mode) for mode in modes.values()} == {0o600}
    assert stat.S_IMODE((tmp_path / "a/state").stat().st_mode) == 0o700


def test_of_what_was_set_aside_only_the_latest_is_kept(state: Path) -> None:
    """Otherwise a disk that breaks each file would be filled with copies."""
    for number in range(6):
        store(state).write_bytes(b"broken %d" % number)
        journal(state).write_bytes(b"")
        Grants.open(state).close()
    assert sorted(path.read_bytes() for path in aside(state)) == [
        b"broken 3",
        b"broken 4",
        b"broken 5",
    ]
    assert len(list(state.glob("*.damaged-*-journal"))) == 3


@pytest.mark.parametrize(
    "kind", ["regular", "somebody_else_s", "folder", "writable", "linked", "huge"]
)
def test_only_a_file_that_nobody_else_can_have_written_is_ours(tmp_path: Path, kind: str) -> None:
    """Otherwise another user's file in its place would be our memory."""
    file = tmp_path / "file"
    if kind == "folder":
        file.mkdir()
    else:
        file.touch(0o600)
    if kind == "writable":
        file.chmod(0o620)
    if kind == "linked":
        os.link(file, tmp_path / "other")
    if kind == "huge":
        os.truncate(file, (64 << 20) + 1)
    uid = os.geteuid() + (kind == "somebody_else_s")
    assert (foreign(file.lstat(), uid) is None) == (kind == "regular")


# -- the folder ---------------------------------------------------------------------------


def test_a_folder_that_others_may_write_in_is_refused_and_says_what_helps(state: Path) -> None:
    """Whoever can change names there can put any store in the place of ours."""
    for mode in (0o770, 0o777, 0o1777):
        state.chmod(mode)
        with pytest.raises(PermissionError, match="chmod 700"):
            Grants.open(state)
    state.chmod(0o755)
    with Grants.open(state) as grants:
        assert found(grants)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Its owner could replace what we wrote."""
    folder = Path("/usr")
    if os.geteuid() == 0:
        folder = tmp_path / "theirs"
        folder.mkdir(0o755)
        os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="somebody else's"):
        Grants.open(folder)
    assert not (folder / "grants.sqlite").exists()


def test_a_file_in_the_folder_s_place_is_an_error_of_the_folder(tmp_path: Path) -> None:
    """The one thing that cannot be gone around: there is no place to keep anything."""
    (tmp_path / "state").touch()
    with pytest.raises(OSError, match="state"):
        Grants.open(tmp_path / "state")
    with pytest.raises(OSError, match="state"):
        Grants.open(tmp_path / "state" / "below")


def test_a_folder_that_is_removed_while_it_is_open_remembers_nothing(
    state: Path, warned: Warned
) -> None:
    """Otherwise an executor would say yes by a file that nobody can revoke from."""
    with Grants.open(state) as grants:
        shutil.rmtree(state)
        assert not found(grants)
        assert not found(grants)
        assert not grants.is_trusted(KEY)
        with pytest.raises(OSError, match="cannot be used"):
            remember(grants)
        with pytest.raises(OSError, match="cannot be used"):
            grants.consume("n", NOW)
    assert len(warned()) == 1


def test_a_store_that_somebody_holds_for_long_asks_and_takes_nothing(
    state: Path, warned: Warned
) -> None:
    """Otherwise a stopped process would stop every executor, or let a used plan run again."""
    other = sqlite3.connect(store(state), isolation_level=None)
    with Grants.open(state) as grants:
        other.execute("BEGIN EXCLUSIVE")
        assert not found(grants)
        for change in (lambda: remember(grants), lambda: grants.consume("n", NOW)):
            with pytest.raises(OSError, match="locked") as raised:
                change()
            assert raised.value.errno == errno.EBUSY
        assert grants.end_session("s") == 0
        other.execute("ROLLBACK")
        assert found(grants)
        assert grants.consume("n", NOW)
    other.close()
    assert aside(state) == []
    assert len(warned()) == 1


def test_a_store_that_is_held_while_it_is_opened_is_not_taken_for_damaged(
    state: Path, warned: Warned
) -> None:
    """Otherwise two executors that start together would throw away each other's memory."""
    other = sqlite3.connect(store(state), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with Grants.open(state) as grants:
        other.execute("ROLLBACK")
        other.close()
        assert found(grants)
    assert aside(state) == []
    assert warned() == []
