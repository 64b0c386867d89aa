"""The audit log across processes: the command line, killed executors, a disk really full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from toolcell.audit import Audit, Intent, Terminal, read, verify

PATIENCE_S = 60
CLI = """
import json, sys
from toolcell.cli import main
codes = [main(words) for words in json.loads(sys.argv[1])]
sys.exit(codes[0] if len(set(codes)) == 1 else 99)
"""
Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "state"


@pytest.fixture
def toolcell(state: Path) -> Run:
    """Runs `toolcell WORDS` with this state folder, or several such lines in one process."""

    def run(*words: str, lines: Sequence[Sequence[str]] = ()) -> Done:
        return subprocess.run(
            [sys.executable, "-c", CLI, json.dumps(lines or [words])],
            env={**os.environ, "TOOLCELL_STATE_DIR": str(state), "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return run


def decided(outcome: str, level: int) -> dict[str, Any]:
    return {"outcome": outcome, "level": level, "reasons": [], "plan_hash": "0" * 64}


async def recorded(state: Path) -> None:
    """One of each: a success, a failure that somebody allowed, a refusal, one that is open."""
    audit = Audit(str(state))
    audit.start()
    plain = Intent(call_id="one", tool_name="read_file", decision=decided("allow", 0))
    opened = await audit.intent(plain)
    ended = Terminal(call_id="one", tool_name="read_file", kind=None, usage={"wall_s": 0.0123})
    await audit.terminal(ended, intent=opened)
    asked = Intent(
        call_id="two",
        tool_name="shell",
        arguments={"command": "true"},
        decision=decided("ask", 3),
        approval={"how": "once", "grant": None, "waited_s": 2.5},
    )
    opened = await audit.intent(asked)
    await audit.terminal(Terminal(call_id="two", tool_name="shell", kind="crashed"), intent=opened)
    await audit.terminal(
        Terminal(
            call_id="three\x1b[2J\u202e",
            tool_name="shell",
            kind="denied",
            decision=decided("deny", 3),
        ),
        intent=Intent(call_id="three\x1b[2J\u202e", tool_name="shell"),
    )
    await audit.intent(Intent(call_id="four", tool_name="shell"))
    audit.stop()


# -- the command line -----------------------------------------------------------------------


async def test_show_says_who_ran_what_by_whose_leave(toolcell: Run, state: Path) -> None:
    """A log that only a program can read is read by nobody when it matters."""
    nothing = toolcell("audit", "show")
    assert (nothing.returncode, nothing.stdout) == (0, "nothing is recorded\n")
    await recorded(state)
    done = toolcell("audit", "show")
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["time", "call", "tool", "level", "decided", "ended", "ms"]
    assert [line.split()[2:] for line in lines] == [
        ["one", "read_file", "0", "allow", "success", "12"],
        ["two", "shell", "3", "once", "crashed"],
        ["three\\x1b[2J\\u202e", "shell", "3", "deny", "denied"],
        ["four", "shell", "open"],
    ]
    assert toolcell("audit", "show", "--limit", "-1").returncode == 2
    (state / "audit.sqlite").write_bytes(b"no log" * 1_000)
    broken = toolcell("audit", "show")
    assert broken.returncode == 2
    assert "cannot be read" in broken.stderr


async def test_show_finds_what_was_asked_for(toolcell: Run, state: Path) -> None:
    """Among a million calls the one that matters has to be found."""
    await recorded(state)

    three = "three\x1b[2J\u202e"
    every = ["one", "two", three, "four"]
    asked: list[tuple[str, list[str]]] = [
        ("--call two", ["two"]),
        ("", every),
        ("--limit 2", [three, "four"]),
        ("--limit 0", every),
        ("--tool shell --limit 1", ["four"]),
        ("--kind success", ["one"]),
        ("--kind denied", [three]),
        ("--kind open", ["four"]),
        ("--since 1h", every),
        ("--since 2199-01-01", []),
        ("--since 2000-01-01T10:00 --call none", []),
    ]
    lines = [["audit", "show", "--json", *words.split()] for words, _ in asked]
    done = toolcell(lines=lines)
    assert (done.returncode, done.stderr) == (0, "")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(one["schema"] == 1 for one in told)
    found = [[one["intent"]["call_id"] for one in each["calls"]] for each in told]
    assert found == [ids for _, ids in asked]
    wrong = toolcell("audit", "show", "--since", "yesterday")
    assert wrong.returncode == 2
    assert "1h" in wrong.stderr
    (only,) = told[0]["calls"]
    assert only["intent"]["arguments"] == {"command": "true"}
    assert only["terminal"]["kind"] == "crashed"


async def test_verify_says_whether_the_log_is_whole(toolcell: Run, state: Path) -> None:
    """A check that nobody can run, or whose answer no script can read, is none."""
    gone = toolcell("audit", "verify")
    assert gone.returncode == 1
    assert "there is no audit log" in gone.stdout
    await recorded(state)
    done = toolcell("audit", "verify")
    head = verify(state).head
    assert done.returncode == 0
    assert done.stdout == (f"whole; 7 records fit\nhead {head}\nwithout an end yet (1): four\n")
    assert toolcell("audit", "verify", "--head", head).returncode == 0
    lost = toolcell("audit", "verify", "--head", "0" * 63 + "1", "--json")
    assert lost.returncode == 1
    assert json.loads(lost.stdout)["first_bad"] is None
    with changed(state) as execute:
        execute("UPDATE records SET body = replace(body, 'true', 'fals') WHERE seq = 3")
    told = json.loads(toolcell("audit", "verify", "--json").stdout)
    assert told.keys() == {
        *("schema", "ok", "records", "first_bad", "problem", "dangling", "waiting", "head"),
    }
    assert (told["schema"], told["ok"], told["records"], told["first_bad"]) == (1, False, 2, 3)
    said = toolcell("audit", "verify")
    assert said.returncode == 1
    assert said.stdout.startswith("broken at record 3: its content is not what its hash says")


@contextmanager
def changed(state: Path) -> Iterator[Callable[[str], Any]]:
    import sqlite3

    connection = sqlite3.connect(state / "audit.sqlite", isolation_level=None)
    try:
        yield connection.execute
    finally:
        connection.close()


# -- other executors ------------------------------------------------------------------------

WRITER = """
import sys, trio
from toolcell.audit import Audit, Intent, Terminal

async def main(state, name, count):
    audit = Audit(state, wait_s=30)
    audit.start()
    for number in range(int(count)):
        call = f"{name}-{number}"
        opened = await audit.intent(Intent(call_id=call, tool_name="t"))
        if count != "1":
            await audit.terminal(Terminal(call_id=call, tool_name="t", kind=None), intent=opened)
    print("ready", flush=True)
    sys.stdin.readline()
    audit.stop()

trio.run(main, *sys.argv[1:])
"""


@contextmanager
def writers(state: Path, *told: tuple[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that have each recorded some calls, and wait; with one, it stays open."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(state), name, count],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, count in told
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=PATIENCE_S)


def ready(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"


def ends(state: Path) -> Counter[tuple[str, str | None]]:
    return Counter((r["call_id"], r["kind"]) for r in read(state) if r["record"] == "terminal")


async def test_case_43_a_killed_executors_calls_are_closed_once_and_a_living_ones_never(
    state: Path,
) -> None:
    """An interrupted call without an end is a hole; a running call with one is a lie."""
    # Made before, so that these start on one log.
    audit = Audit(str(state))
    audit.start()
    audit.stop()
    with writers(state, ("killed", "1"), ("stopped", "1"), ("living", "1")) as processes:
        ready(processes)
        killed, stopped, living = processes
        killed.kill()
        killed.wait(PATIENCE_S)
        stopped.send_signal(signal.SIGSTOP)
        assert ends(state) == Counter()
        # Two that start at once: each closes what the other has not.
        with writers(state, ("first", "2"), ("second", "2")) as more:
            ready(more)
        assert ends(state)["killed-0", "abandoned"] == 1
        living.communicate("go\n", timeout=PATIENCE_S)
        assert set(verify(state).dangling) == {"stopped-0", "living-0"}
    audit.start()
    audit.stop()
    found = ends(state)
    for name in ("killed-0", "stopped-0", "living-0"):
        assert found[name, "abandoned"] == 1
    assert set(found.values()) == {1}
    verdict = verify(state)
    assert (verdict.ok, verdict.dangling) == (True, ())


async def test_processes_that_share_a_folder_write_one_chain(state: Path) -> None:
    """Two that read the same last hash would each write a record after it."""
    with writers(state, *((str(number), "25") for number in range(4))) as processes:
        ready(processes)
        verdict = verify(state)
        for process in processes:
            process.communicate("go\n", timeout=PATIENCE_S)
    assert (verdict.ok, verdict.records, verdict.dangling) == (True, 200, ())
    assert all(process.returncode == 0 for process in processes)
    assert os.listdir(state / "audit-runs") == []


# -- a disk of its own ----------------------------------------------------------------------

DISK = """
import errno, json, os, subprocess, sys, trio
from toolcell.audit import Audit, Intent, Terminal, read, verify

place = sys.argv[1]
state, ballast = f"{place}/state", f"{place}/ballast"
found = {}

def mount(*options):
    subprocess.run(["mount", *options, place], check=True)

def fill():
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 16, 1):
        try:
            while True:
                os.write(fd, b"x" * size)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    os.close(fd)

async def denied(audit, call):
    try:
        await audit.intent(Intent(call_id=call, tool_name="t"))
    except OSError as error:
        return errno.errorcode[error.errno]
    return None

async def main():
    mount("-t", "tmpfs", "-o", "size=4m", "tmpfs")
    audit = Audit(state)
    audit.start()
    opened = [await audit.intent(Intent(call_id=f"c{n}", tool_name="t")) for n in range(12)]
    fill()
    # What of the log's own files is still allocated takes a few more.
    found["denied"] = [await denied(audit, f"denied-{n}") for n in range(12)][-1]
    for n, number in enumerate(opened[:8]):
        end = Terminal(call_id=f"c{n}", tool_name="t", kind="timeout", answer={"x": "y" * 9_000})
        await audit.terminal(end, intent=number)
    found["waiting"] = verify(state).waiting
    other = Audit(state)
    try:
        other.start()
    except OSError as error:
        found["start"] = error.errno in (errno.ENOSPC, errno.EIO)
    os.unlink(ballast)
    found["later"] = await denied(audit, "later")
    found["after"] = verify(state).waiting
    for n in range(8, 12):
        await audit.terminal(Terminal(call_id=f"c{n}", tool_name="t", kind=None), intent=opened[n])
    audit.stop()
    told = read(state)
    found["ends"] = [(r["call_id"], r["kind"]) for r in told if r["record"] == "terminal"]
    found["denied_recorded"] = any(r["call_id"].startswith("denied-11") for r in told)
    found["ok"] = verify(state).ok
    mount("-o", "remount,bind,ro")
    try:
        Audit(state).start()
    except OSError as error:
        found["read_only"] = error.errno == errno.EROFS
    found["ok_read_only"] = verify(state).ok
    print(json.dumps(found))

trio.run(main)
"""


def test_a_full_disk_denies_calls_and_loses_no_end(tmp_path: Path) -> None:
    """What ran unrecorded nobody can be asked about; what ended unrecorded, neither."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", *own),
            *(sys.executable, "-c", DISK, str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["denied"] in ("ENOSPC", "EIO")
    assert not found["denied_recorded"]
    assert found["start"], "a new executor needs a reserve of its own"
    assert 1 <= found["waiting"] <= 8
    assert (found["later"], found["after"]) == (None, 0)
    expected = [[f"c{n}", "timeout"] for n in range(8)] + [[f"c{n}", None] for n in range(8, 12)]
    assert found["ends"] == expected
    assert found["ok"]
    assert found["read_only"]
    assert found["ok_read_only"]
