"""The audit log of one process: what is durable, what is refused, what waits in the reserve."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell._audit_records import ABANDONED, body_of
from toolcell._audit_runs import SLOT_BYTES, SLOTS_AT_ONCE, Run, Waiting
from toolcell._audit_store import FILE, RUNS, VERSION, os_error
from toolcell._audit_writer import Job, Writer
from toolcell.audit import Audit, Intent, Terminal, read, verify

SHORT_S = 0.05


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "deep" / "state"


@contextmanager
def started(state: Path, wait_s: float = SHORT_S) -> Iterator[Audit]:
    audit = Audit(str(state), wait_s=wait_s)
    audit.start()
    try:
        yield audit
    finally:
        audit.stop()


def intent(call_id: str = "c") -> Intent:
    return Intent(call_id=call_id, tool_name="t")


def terminal(call_id: str = "c", kind: str | None = None) -> Terminal:
    return Terminal(call_id=call_id, tool_name="t", kind=kind)


def told(state: Path) -> list[tuple[str, str, str | None]]:
    return [(one["record"], one["call_id"], one.get("kind")) for one in read(state)]


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Somebody else holds the chain's lock."""
    other = sqlite3.connect(state / FILE, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()


@contextmanager
def full(most_bytes: int) -> Iterator[None]:
    """No file of this process grows past so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# -- durable and private --------------------------------------------------------------------


async def test_what_was_recorded_can_be_read_by_anybody_at_once(state: Path) -> None:
    """An intent that is only in our memory is none."""
    with started(state) as audit:
        assert audit.is_open
        audit.start()  # Harmless twice.
        opened = await audit.intent(intent())
        assert told(state) == [("intent", "c", None)]
        assert verify(state).dangling == ("c",)
        await audit.terminal(terminal(), intent=opened)
        assert told(state) == [("intent", "c", None), ("terminal", "c", None)]
    audit.stop()  # Likewise.
    assert verify(state).ok
    assert os.listdir(state / RUNS) == []


async def test_everything_is_this_users_alone(state: Path) -> None:
    """Arguments of calls are read by nobody else, whatever the umask."""
    before = os.umask(0)
    try:
        with started(state) as audit:
            await audit.intent(intent())
            for top, folders, files in os.walk(state):
                assert stat.S_IMODE(os.stat(top).st_mode) == 0o700
                for name in files:
                    assert stat.S_IMODE(os.stat(os.path.join(top, name)).st_mode) == 0o600
                assert len(folders) + len(files) > 0
    finally:
        os.umask(before)


async def test_a_cancel_does_not_interrupt_a_record(state: Path) -> None:
    """A terminal that a cancel takes with it leaves a call without an end."""
    with started(state) as audit, trio.CancelScope() as scope:
        scope.cancel()
        opened = await audit.intent(intent())
        await audit.terminal(terminal(kind="cancelled"), intent=opened)
    assert told(state) == [("intent", "c", None), ("terminal", "c", "cancelled")]


async def test_many_at_once_are_one_chain(state: Path) -> None:
    """Batches of many tasks, and of two executors of one process."""
    with started(state, 5.0) as one, started(state, 5.0) as two:

        async def calls(audit: Audit, name: str) -> None:
            for number in range(5):
                opened = await audit.intent(intent(f"{name}-{number}"))
                await audit.terminal(terminal(f"{name}-{number}"), intent=opened)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(calls, (one, two)[number % 2], str(number))
    verdict = verify(state)
    assert (verdict.ok, verdict.records, verdict.dangling) == (True, 200, ())
    assert len({one["call_id"] for one in read(state)}) == 100


# -- one terminal each ----------------------------------------------------------------------


async def test_a_call_has_one_terminal(state: Path) -> None:
    """A second end would be another story of the same call."""
    with started(state) as audit:
        opened = await audit.intent(intent())
        await audit.terminal(terminal(), intent=opened)
        for number in (opened, opened + 1, 99, 0):
            with pytest.raises(OSError, match="no open call"):
                await audit.terminal(terminal(kind="crashed"), intent=number)
        again = await audit.intent(intent())
        for whose in (again, intent()):
            with pytest.raises(OSError, match="another's intent"):
                await audit.terminal(terminal("other"), intent=whose)
        await audit.terminal(terminal(kind="timeout"), intent=again)
    assert [kind for record, _, kind in told(state) if record == "terminal"] == [None, "timeout"]
    assert verify(state).ok


async def test_a_call_that_never_came_near_a_jail_is_both_records_or_none(state: Path) -> None:
    """A refusal is one thing that happened, and is recorded as one."""
    with started(state) as audit:
        await audit.terminal(terminal(kind="denied"), intent=intent())
        with locked(state), pytest.raises(OSError, match="locked"):
            await audit.terminal(terminal("lost", kind="denied"), intent=intent("lost"))
    assert told(state) == [("intent", "c", None), ("terminal", "c", "denied")]


async def test_a_call_that_somebody_closed_stays_closed(state: Path) -> None:
    """The log itself knows, not only the executor that writes."""
    with started(state) as audit:
        opened = await audit.intent(intent())
        other = sqlite3.connect(state / FILE, isolation_level=None)
        other.execute("DELETE FROM open_calls")
        other.close()
        with pytest.raises(OSError, match="closed before"):
            await audit.terminal(terminal(), intent=opened)
        await audit.intent(intent("next"))
    assert [record for record, _, _ in told(state)] == ["intent", "intent"]


async def test_a_log_that_is_not_open_takes_nothing(state: Path) -> None:
    """Otherwise a call waits for a writer that is not there."""
    audit = Audit(str(state))
    for _ in range(2):
        assert not audit.is_open
        with pytest.raises(OSError, match="not open"):
            await audit.intent(intent())
        with started(state) as audit:
            pass


# -- what a log cannot take -----------------------------------------------------------------


async def test_a_lock_that_lasts_denies_calls_and_keeps_terminals(state: Path) -> None:
    """One stopped process must neither hang all others nor cost them their records."""
    with started(state) as audit:
        opened = [await audit.intent(intent(str(number))) for number in range(2)]
        with locked(state):
            with pytest.raises(OSError, match="locked"):
                await audit.intent(intent("denied"))
            await audit.terminal(terminal("0", kind="timeout"), intent=opened[0])
            verdict = verify(state)
            assert (verdict.waiting, verdict.dangling) == (1, ("0", "1"))
            with pytest.raises(OSError, match="no open call"):
                await audit.terminal(terminal("0"), intent=opened[0])
        later = await audit.intent(intent("later"))
        assert verify(state).waiting == 0
        await audit.terminal(terminal("1"), intent=opened[1])
        await audit.terminal(terminal("later"), intent=later)
    assert told(state)[2:] == [
        ("terminal", "0", "timeout"),
        ("intent", "later", None),
        ("terminal", "1", None),
        ("terminal", "later", None),
    ]
    verdict = verify(state)
    assert (verdict.ok, verdict.waiting, verdict.dangling) == (True, 0, ())


async def test_what_waits_is_written_at_the_stop_or_at_the_next_start(state: Path) -> None:
    """An end that was told to be durable is never told to be unknown."""
    for is_locked_at_stop in (False, True):
        audit = Audit(str(state), wait_s=SHORT_S)
        audit.start()
        opened = await audit.intent(intent())
        with locked(state):
            await audit.terminal(terminal(kind="crashed"), intent=opened)
            if is_locked_at_stop:
                audit.stop()
        audit.stop()
        assert verify(state).waiting == int(is_locked_at_stop)
        assert len(os.listdir(state / RUNS)) == int(is_locked_at_stop)
    with started(state):
        assert verify(state).waiting == 0
    assert [kind for record, _, kind in told(state) if record == "terminal"] == ["crashed"] * 2
    assert (verify(state).ok, os.listdir(state / RUNS)) == (True, [])


async def test_a_file_that_may_not_grow_denies_calls_and_keeps_terminals(state: Path) -> None:
    """A quota, a limit, a full disk: the reserve was allocated before."""
    with started(state) as audit:
        opened = await audit.intent(intent())
        with full(SLOT_BYTES * SLOTS_AT_ONCE // 64):
            for _ in range(3):
                with pytest.raises(OSError, match="audit log takes no record"):
                    await audit.intent(intent("denied"))
            await audit.terminal(terminal(kind="timeout"), intent=opened)
            assert verify(state).waiting == 1
        await audit.terminal(terminal("r", kind="denied"), intent=intent("r"))
    assert told(state)[1:] == [
        ("terminal", "c", "timeout"),
        ("intent", "r", None),
        ("terminal", "r", "denied"),
    ]
    assert verify(state).ok


async def test_every_open_call_has_a_slot_or_is_denied(state: Path) -> None:
    """One more call than the reserve has slots could lose its end."""
    with started(state) as audit:
        opened: list[int] = []

        async def one() -> None:
            opened.append(await audit.intent(intent("any")))

        # Together, so that the log itself stays small enough.
        async with trio.open_nursery() as nursery:
            for _ in range(SLOTS_AT_ONCE):
                nursery.start_soon(one)
        with full(SLOT_BYTES * SLOTS_AT_ONCE):
            with pytest.raises(OSError, match="reserve"):
                await audit.intent(intent("denied"))
            await audit.terminal(terminal("any"), intent=opened[0])
            # Its slot is free again.
            opened[0] = await audit.intent(intent("any"))
        opened.append(await audit.intent(intent("any")))
        with locked(state):
            for number in (opened[0], opened[1], opened[-1]):
                await audit.terminal(terminal("any"), intent=number)
        assert verify(state).waiting == 3
    assert (verify(state).ok, verify(state).waiting) == (True, 0)


def _removed(state: Path) -> None:
    shutil.rmtree(state)


def _replaced(state: Path) -> None:
    shutil.copy(state / FILE, state / "copy")
    os.replace(state / "copy", state / FILE)


def _write_ahead_removed(state: Path) -> None:
    (state / f"{FILE}-wal").unlink()


def _write_ahead_replaced(state: Path) -> None:
    shutil.copy(state / f"{FILE}-wal", state / "copy")
    os.replace(state / "copy", state / f"{FILE}-wal")


def _reserve_removed(state: Path) -> None:
    shutil.rmtree(state / RUNS)


def _reserve_replaced(state: Path) -> None:
    (name,) = os.listdir(state / RUNS)
    shutil.copy(state / RUNS / name, state / RUNS / "copy")
    os.replace(state / RUNS / "copy", state / RUNS / name)


@pytest.mark.parametrize(
    "change",
    [
        *(_removed, _replaced, _write_ahead_removed, _write_ahead_replaced),
        *(_reserve_removed, _reserve_replaced),
    ],
)
async def test_a_log_that_is_not_where_it_was_takes_nothing(
    state: Path, change: Callable[[Path], None]
) -> None:
    """What is written to a file that no name leads to is written nowhere."""
    audit = Audit(str(state), wait_s=SHORT_S)
    audit.start()
    opened = await audit.intent(intent())
    control = await audit.intent(intent("control"))
    await audit.terminal(terminal("control"), intent=control)
    change(state)
    for _ in range(2):
        with pytest.raises(OSError, match=r"moved|replaced|No such file"):
            await audit.intent(intent("denied"))
    if "reserve" in change.__name__ or change is _removed:
        with pytest.raises(OSError, match=r"replaced|No such file"):
            await audit.terminal(terminal(), intent=opened)
    else:
        await audit.terminal(terminal(), intent=opened)
    audit.stop()
    assert "denied" not in {call_id for _, call_id, _ in told(state)}
    if change is _removed:
        assert told(state) == []


# -- what it starts on ----------------------------------------------------------------------


def _no_folder(state: Path) -> None:
    state.parent.mkdir()
    state.write_text("")


def _open_to_others(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o770)


def _readable(state: Path) -> None:
    (state / FILE).chmod(0o640)


def _a_link(state: Path) -> None:
    os.rename(state / FILE, state / "elsewhere")
    (state / FILE).symlink_to("elsewhere")


def _runs_a_link(state: Path) -> None:
    os.rename(state / RUNS, state / "elsewhere")
    (state / RUNS).symlink_to("elsewhere")


def _a_folder(state: Path) -> None:
    (state / FILE).unlink()
    (state / FILE).mkdir()


def _no_log(state: Path) -> None:
    (state / FILE).write_bytes(b"what is this? " * 1_000)


def _an_empty_file(state: Path) -> None:
    (state / FILE).write_bytes(b"")


def _of_another_version(state: Path) -> None:
    other = sqlite3.connect(state / FILE)
    other.execute(f"PRAGMA user_version = {VERSION + 1}")
    other.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_no_folder, "no folder"),
        (_open_to_others, "chmod 700"),
        (_readable, "chmod 600"),
        (_a_link, "no plain file"),
        (_runs_a_link, "no folder"),
        (_a_folder, "no plain file"),
        (_no_log, "no audit log"),
        (_an_empty_file, "another version"),
        (_of_another_version, "another version"),
    ],
)
async def test_a_log_that_cannot_be_trusted_starts_nothing(
    state: Path, change: Callable[[Path], None], words: str
) -> None:
    """Records for others to read, or in somebody else's hand, are worse than none."""
    if change not in (_no_folder, _open_to_others):
        with started(state) as audit:
            await audit.terminal(terminal(), intent=intent())
    change(state)
    audit = Audit(str(state), wait_s=SHORT_S)
    with pytest.raises(OSError, match=words) as refused:
        audit.start()
    assert refused.value.strerror
    assert not audit.is_open


async def test_a_log_of_another_user_starts_nothing(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns the file writes in it what they like."""
    with started(state):
        pass
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        Audit(str(state)).start()


async def test_a_folder_that_is_locked_starts_nothing_and_leaves_nothing(state: Path) -> None:
    """A bounded wait, and no reserve of an executor that never was."""
    with started(state):
        pass
    with locked(state), pytest.raises(OSError, match="locked"):
        Audit(str(state), wait_s=SHORT_S).start()
    with full(4 * SLOT_BYTES), pytest.raises(OSError, match="File too large"):
        Audit(str(state), wait_s=SHORT_S).start()
    assert os.listdir(state / RUNS) == []
    with started(state) as audit:
        assert await audit.intent(intent()) == 1


async def test_a_log_that_cannot_be_made_leaves_no_draft(state: Path) -> None:
    """A half-made log under the real name would stop every later start."""
    with full(1), pytest.raises(OSError, match="audit log takes no record"):
        Audit(str(state)).start()
    assert (os.listdir(state), os.listdir(state / RUNS)) == ([RUNS], [])
    with started(state) as audit:
        assert await audit.intent(intent()) == 1


# -- the runs of others ---------------------------------------------------------------------


def left_behind(state: Path) -> Run:
    """The file of a run, as an executor leaves it that is killed."""
    return Run.register(str(state / RUNS))


async def test_a_run_that_is_gone_is_closed_with_what_it_left(state: Path) -> None:
    """What waits whole is its call's end; what is torn, foreign or stale is nobody's."""
    body = body_of(terminal("waits", kind="timeout"))
    with started(state) as audit:
        numbers = [await audit.intent(intent(name)) for name in ("waits", "torn", "open")]
        ended = await audit.intent(intent("ended"))
        await audit.terminal(terminal("ended"), intent=ended)
        run = left_behind(state)
        run.write(run.take(), Waiting(numbers[0], body))
        run.write(run.take(), Waiting(numbers[0], body | {"kind": "again"}))
        run.write(run.take(), Waiting(ended, body | {"call_id": "ended"}))
        torn = run.take()
        run.write(torn, Waiting(numbers[1], body | {"call_id": "torn"}))
        path = state / RUNS / run.name
        with path.open("r+b") as file:
            file.seek(torn * SLOT_BYTES + 60)
            file.write(b"torn")
        with pytest.raises(OSError, match="larger than its reserve"):
            run.write(torn, Waiting(1, body | {"answer": "x" * SLOT_BYTES}))
        # As if the calls were that run's, and its process gone.
        other = sqlite3.connect(state / FILE, isolation_level=None)
        other.execute("UPDATE open_calls SET run = ?", (run.name,))
        other.close()
        with started(state):
            assert len(told(state)) == 5, "it still runs"
        run.close(remove=False)
        (state / RUNS / "new-0123456789abcdef-wal").write_text("a draft")
        os.utime(state / RUNS / "new-0123456789abcdef-wal", (1, 1))
        (state / RUNS / "new-0123456789abcdee").write_text("a draft that is being made")
        (state / RUNS / ("0" * 16)).mkdir()
        (state / RUNS / ("1" * 16)).symlink_to("/dev/zero")
        (state / RUNS / "a note").write_text("somebody's")
        os.mkfifo(state / RUNS / ("2" * 16))
        with started(state):
            pass
        assert not path.exists()
    assert told(state)[5:] == [
        ("terminal", "waits", "timeout"),
        ("terminal", "torn", ABANDONED),
        ("terminal", "open", ABANDONED),
    ]
    left = ["0" * 16, "1" * 16, "2" * 16, "a note", "new-0123456789abcdee"]
    assert sorted(os.listdir(state / RUNS)) == left
    assert verify(state).ok


async def test_a_call_whose_intent_was_changed_is_closed_all_the_same(state: Path) -> None:
    """A start that stumbles over one bad record would stop every call for good."""
    with started(state) as audit:
        await audit.intent(intent("changed"))
    other = sqlite3.connect(state / FILE, isolation_level=None)
    other.execute("UPDATE records SET body = '{'")
    other.close()
    with started(state) as audit:
        assert await audit.intent(intent("next")) == 3
    assert verify(state).first_bad == 1


# -- our own defects ------------------------------------------------------------------------


async def test_a_defect_of_the_writer_is_an_error_and_not_a_wait(state: Path) -> None:
    """Otherwise every call of the process hangs for ever, shielded."""
    writer = Writer.start(str(state), wait_s=SHORT_S)
    token = trio.lowlevel.current_trio_token()
    bad = Job(token=token, intent={"record": "intent"})
    writer.put(bad)
    await bad.done.wait()
    assert "KeyError" in str(bad.error)
    good = Job(token=token, intent=body_of(intent()))
    writer.put(good)
    await good.done.wait()
    assert (good.error, good.opened) == (None, 1)
    writer.stop()


def test_a_loop_that_is_gone_is_told_nothing(state: Path) -> None:
    """Its record is written all the same, and the writer goes on."""

    async def token() -> Any:
        return trio.lowlevel.current_trio_token()

    writer = Writer.start(str(state), wait_s=SHORT_S)
    writer.put(Job(token=trio.run(token), intent=body_of(intent())))
    writer.stop()
    assert told(state) == [("intent", "c", None)]


def test_what_sqlite_says_has_a_number_and_a_way_out() -> None:
    """`OperationalError` tells nobody what to do."""
    error = sqlite3.OperationalError("any")
    assert "any" in str(os_error(error))
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    assert "damaged; move it away" in str(os_error(error))
