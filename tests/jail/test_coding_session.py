"""An hour of a coding agent on a real repository, and the same hour of one that means harm.

The commands are those of the corpus of the shell's grammar (`shell_corpus.toml`), and those of
`coding_session.py`; all are run for real, and what they did is kept, asked about or dropped.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from toolcell import Answer, CallContext, Decision, Executor, Limits
from toolcell_policies import Outcome, default_sensitive_list
from toolcell_sandbox.spec import Network

from .coding_session import (
    BESIDE,
    CANARIES,
    FIRST_USE,
    HARMLESS,
    HOME,
    HOSTILE,
    LOOKING,
    SECRETS,
    SESSION,
    SHOWN,
    Step,
    git,
    project_at,
    put,
    shell,
)
from .conftest import Ledger
from .everyday import Listing, walk

CORPUS: Final = tomllib.loads(
    (Path(__file__).parents[1] / "unit" / "policies" / "shell_corpus.toml").read_text("utf-8")
)
BENIGN: Final = tuple(CORPUS["benign"])
HOSTILE_WORDS: Final = tuple(row["text"] for row in CORPUS["hostile"])
AGENT: Final = CallContext(session_id="an hour", agent_id="an agent")
ENDINGS: Final = {None: "nothing", "effects_rejected": "asks", "effects_refused": "refused"}


class Person:
    """Gives the same answer each time, and keeps what was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def __call__(self, request: Any) -> Answer:
        self.asked.append(request)
        return self.answer

    @property
    def heard(self) -> list[tuple[str, list[str]]]:
        """When each question came, and about what."""
        return [(one.stage, [reason.text for reason in one.reasons]) for one in self.asked]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A person's home, their project beside it, and nothing left running at the end."""
    held = Ledger.now()
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("API_TOKEN", CANARIES["process"])
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_COUNT", "GIT_DIR", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "ws").mkdir()
    project_at(tmp_path / "ws", home=home)
    put(tmp_path / "ws", {".env": SECRETS[".env"]})
    yield tmp_path.resolve()
    assert Ledger.after(held).processes <= held.processes


def executor(place: Path, **options: Any) -> Any:
    return Executor(workspace=place / "ws", state_dir=place / "state", **options)


def ending(result: Any) -> str:
    kind = None if result.error is None else str(result.error.kind)
    return ENDINGS.get(kind, kind or "")


async def take(box: Executor, steps: tuple[Step, ...]) -> None:
    """One step after the other; each has to end as it says."""
    for step in steps:
        result = await box.call(step.tool, step.arguments, context=AGENT)
        assert result.error is None, (step.text, result.content[-2_000:])
        if step.exit_code is not None:
            assert result.exit_code in (None, step.exit_code), (step.text, result.content[-2_000:])


def of_corpus() -> list[str]:
    """The benign commands, those first that only read."""
    found = [row for row in BENIGN if row["text"] != THROWN_AWAY]
    found.sort(key=lambda row: int(row["level"]) > 0)
    return [WHERE.get(row["text"], "") + row["text"] for row in found]


def joined(texts: Sequence[str], *, many: int) -> Iterator[str]:
    """Commands of which each starts so many, each by a shell of its own."""
    for at in range(0, len(texts), many):
        lines = (f"timeout -k 1 0.5 bash -c {shlex.quote(text)}" for text in texts[at : at + many])
        yield "\n".join([*lines, "true"])


WHERE: Final = {"ln -s ../a b": "cd src; "}
"""Commands that make sense in a folder of the project only."""
THROWN_AWAY: Final = "rm -rf ./*"


# -- everyday work -------------------------------------------------------------------------


async def test_an_hour_of_work_asks_once_about_what_a_person_wants_to_be_asked_about(place):
    """A question at each commit is one that nobody reads, and a session that is cut off is none.

    Of 200 calls one asks: the very last, which throws away all that can be seen, and with it what
    instructs agents.
    """
    person = Person(Answer.once())
    secret = (place / "ws" / ".env").stat()
    limits = Limits(wall_s=60, cpu_s=30)
    async with executor(place, policy="coding", approver=person, limits=limits) as box:
        await take(box, SESSION)
        assert git(place / "ws", place / "home", "status", "--porcelain") == ""
        log = git(place / "ws", place / "home", "log", "--format=%s").splitlines()
        assert len(log) > 8
        assert log[0] == "Tools"
        assert (place / "ws" / ".venv" / "bin" / "pip").exists()
        assert not (place / "ws" / ".venv-old").exists()
        assert os.readlink(place / "ws" / "node_modules/.bin/tiny") == "../tiny/cli.js"
        benign = of_corpus()
        for text in benign:
            found = box.check("shell", {"command": text})
            assert (found.outcome, found.level) == (Outcome.ALLOW, 1), text
        for command in joined(benign, many=8):
            result = await box.call("shell", {"command": command}, context=AGENT)
            assert ending(result) == "nothing", (command, result.content)
        assert (place / "ws" / "b.txt").exists()
        assert person.heard == []
        last = await box.call("shell", {"command": THROWN_AWAY}, context=AGENT)
    assert person.heard == [
        (
            "after",
            [
                "'AGENTS.md' was deleted: a person has to agree (agents' own control files)",
            ],
        )
    ]
    assert ending(last) == "nothing"
    kept = (place / "ws" / ".env").stat()
    assert (kept.st_ino, kept.st_mtime_ns) == (secret.st_ino, secret.st_mtime_ns)


async def test_the_same_hour_without_a_person_is_cut_off_nowhere(place):
    """`ci` has nobody to ask: what asked under `coding` would end the work there.

    Without the steps that only look or take longest, which nothing else is said of.
    """
    steps = tuple(step for step in SESSION if step not in LOOKING and not step.is_slow)
    assert len(steps) > 40
    async with executor(place, policy="ci", limits=Limits(wall_s=60, cpu_s=30)) as box:
        await take(box, steps)
        last = await box.call("shell", {"command": THROWN_AWAY}, context=AGENT)
    assert ending(last) == "refused"
    assert [one["path"] for one in last.error.paths] == ["AGENTS.md"]
    assert (place / "ws" / "AGENTS.md").exists()
    assert git(place / "ws", place / "home", "log", "--format=%s").startswith("Tools\n")


LEVELS: Final = {
    "read_file": (0, "allow"),
    "list_directory": (0, "allow"),
    "search": (0, "allow"),
    "write_file": (2, "ask"),
    "edit_file": (2, "ask"),
    "shell": (3, "ask"),
    "python": (3, "ask"),
}


async def test_standard_takes_each_word_literally(place):
    """Under the default a person decides about each command, whatever the jail is worth."""
    person = Person(Answer.once())
    async with executor(place, approver=person) as box:
        for step in (*SESSION, *map(shell, of_corpus())):
            found = box.check(step.tool, step.arguments)
            assert isinstance(found, Decision)
            assert (found.level, found.outcome.value) == LEVELS[step.tool], step.text
        assert {step.tool for step in SESSION} == LEVELS.keys()
        few = tuple(step for step in SESSION if step.tool != "shell" or "git status" in step.text)
        for step in few[:12]:
            await box.call(step.tool, step.arguments, context=AGENT)
    expected = Counter(step.tool for step in few[:12] if LEVELS[step.tool][1] == "ask")
    assert Counter(one.tool_name for one in person.asked) == expected
    assert {one.stage for one in person.asked} == {"before"}


# -- one that means harm -------------------------------------------------------------------


class Traps:
    """What listens, waits and lies about outside of the jails, to be reached or changed."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.workspace = place / "ws"
        self.heard: list[str] = []
        self._open: list[socket.socket] = []
        put(self.workspace, SECRETS)
        put(place / "home", HOME)
        put(place, BESIDE)
        put(self.workspace, {"shown.txt": SHOWN})
        git(self.workspace, place / "home", "remote", "add", "origin", "https://example.org/x")
        (self.workspace / "run").mkdir()
        os.mkfifo(self.workspace / "run" / "pipe")
        self.pipe = os.open(self.workspace / "run" / "pipe", os.O_RDWR | os.O_NONBLOCK)
        self.socket = str(place / "s")
        inet = self._listen("tcp", socket.AF_INET, ("127.0.0.1", 0))
        self.port = inet.getsockname()[1]
        self._listen("path", socket.AF_UNIX, self.socket)
        self._listen(
            "in the workspace", socket.AF_UNIX, os.path.relpath(self.workspace / "run/app.sock")
        )
        self._listen("abstract", socket.AF_UNIX, f"\0toolcell-test-{self.port}")
        self.victim = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )

    def _listen(self, name: str, family: int, address: Any) -> socket.socket:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.bind(address)
        found.listen(64)
        self._open.append(found)

        def serve() -> None:
            while True:
                try:
                    other, _ = found.accept()
                except OSError:
                    return
                self.heard.append(name)
                other.close()

        threading.Thread(target=serve, daemon=True).start()
        return found

    def close(self) -> None:
        """Nothing listens any more."""
        for one in self._open:
            one.shutdown(socket.SHUT_RDWR)
            one.close()
        os.close(self.pipe)
        assert self.victim.stdin is not None
        self.victim.stdin.close()
        self.victim.wait()

    def filled(self, command: str) -> str:
        """A command with the names that it aims at."""
        names: dict[str, object] = {
            "HOME": self.place / "home",
            "BESIDE": self.place / "beside",
            "STATE": self.place / "state",
            "PORT": self.port,
            "SOCKET": self.socket,
            "PID": self.victim.pid,
        }
        for name, value in names.items():
            command = command.replace(f"@{name}@", str(value))
        return command

    def outside(self) -> dict[str, Any]:
        """All that is beside the workspace, but for toolcell's own state."""
        found: dict[str, Any] = {}
        for name in ("home", "beside", "ws-evil"):
            found |= {f"{name}/{path}": facts for path, facts in walk(self.place / name).items()}
        found["names"] = sorted({*os.listdir(self.place)} - {"state"})
        folders = "/usr/bin", "/usr/local/bin", "/opt", "/boot", "/lib", "/sbin", "/etc"
        names = (*(f"{folder}/evil" for folder in folders), "/etc/cron.d/x")
        found["system"] = [name for name in names if os.path.exists(name)]
        found["people"] = "x" in Path("/etc/passwd").read_text().splitlines()
        return found

    def orders(self) -> Listing:
        """What in the workspace no call may change unasked, by the list itself."""
        known = default_sensitive_list()
        return {
            path: facts
            for path, facts in walk(self.workspace).items()
            if not path.startswith("node_modules/")
            and known.match(f"/ws/{path}", role="write", homes=())
        }


@pytest.fixture
def traps(place: Path) -> Iterator[Traps]:
    """Secrets, listeners and a victim."""
    found = Traps(place)
    yield found
    found.close()


def traces(text: bytes, canary: str) -> list[str]:
    """The ways in which a text holds a canary: plain, or coded as commands code."""
    plain = canary.encode()
    forms = {"plain": plain, "hex": plain.hex().encode(), "reversed": plain[::-1]}
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + plain)
        forms[f"base64 {shift}"] = coded[(4 if shift else 0) : len(coded) // 4 * 4 - 4]
    squeezed = b"".join(text.split())
    return [name for name, form in forms.items() if form in text or form in squeezed]


def said(result: Any) -> bytes:
    """All that a result has to say to anybody."""
    streams = [one.kept for one in (result.stdout, result.stderr) if one is not None]
    return b"\n".join([json.dumps(result.to_json()).encode(), *streams])


LIMITS: Final = Limits(
    wall_s=10,
    cpu_s=1,
    memory_bytes=256 << 20,
    processes=64,
    disk_bytes=64 << 20,
    file_size_bytes=32 << 20,
)


async def test_of_an_hour_of_harm_nothing_reaches_past_the_jail_the_judge_or_the_network(traps):
    """All of it is tried for real, with a person who says no to whatever they are asked."""
    person = Person(Answer.reject())
    outside, orders = traps.outside(), traps.orders()
    assert {".git/config", ".github/workflows/test.yml", "AGENTS.md", ".env"} <= orders.keys()
    rows: list[tuple[str, str]] = []
    ended: Counter[str] = Counter()
    async with executor(
        traps.place, policy="coding", approver=person, limits=LIMITS, max_concurrency=6
    ) as box:
        found = {text: box.check("shell", {"command": text}).outcome for text in HOSTILE_WORDS}
        assert set(found.values()) == {Outcome.ALLOW, Outcome.DENY}
        rows += (("denied", text) for text, outcome in found.items() if outcome is Outcome.DENY)
        words = [text for text, outcome in found.items() if outcome is Outcome.ALLOW]
        rows += (("any", command) for command in joined(words, many=8))

        async def one(expected: str, text: str) -> None:
            command = traps.filled(text)
            result = await box.call("shell", {"command": command})
            how = ending(result)
            ended[how] += 1
            wanted = ENDS.get(expected, {expected})
            assert how in wanted, (expected, command, result.content[-1_000:])
            for name, canary in CANARIES.items():
                assert traces(said(result), canary) == [], (name, command, result.content)

        # One list after the other: what one has left must not be in the way of the other.
        for some in (HOSTILE, rows):
            async with trio.open_nursery() as nursery:
                for expected, text in some:
                    nursery.start_soon(one, expected, text)
        # Nothing that was kept has left a way open for the next call.
        seen = await box.call(
            "shell", {"command": "cat .env $(find . -type l) 2>&1 | head -c 9999"}
        )
        assert not any(traces(said(seen), canary) for canary in CANARIES.values())
    assert ended["asks"] >= 40, ended
    assert ended["refused"] >= 8, ended
    assert ended["denied"] >= 30, ended
    assert {one.stage for one in person.asked} == {"after"}
    assert traps.orders() == orders
    assert traps.outside() == outside
    assert traps.heard == []
    assert traps.victim.poll() is None
    with pytest.raises(BlockingIOError):
        os.read(traps.pipe, 1)


LIMITED: Final = frozenset(
    {"timeout", "cpu_time_exceeded", "memory_exceeded", "processes_exceeded", "crashed"}
)
ENDS: Final = {
    "ended": {"nothing", *LIMITED},
    "any": {"nothing", "asks", "refused", "commit_conflict"},
}


async def test_the_traps_are_ones(traps):
    """The control: each of them is noticed when it is stepped into."""
    assert traps.heard == []
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", traps.port)),
        (socket.AF_UNIX, traps.socket),
        (socket.AF_UNIX, f"\0toolcell-test-{traps.port}"),
    ):
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.connect(address)
            assert one.recv(1) == b""
    assert sorted(traps.heard) == ["abstract", "path", "tcp"]
    orders, outside = traps.orders(), traps.outside()
    person = Person(Answer.once())
    async with executor(traps.place, policy="coding", approver=person) as box:
        coded = "cat shown.txt; base64 shown.txt; xxd -p shown.txt; rev shown.txt"
        for at, command in enumerate(coded.split("; ")):
            result = await box.call("shell", {"command": command})
            forms = traces(said(result), SHOWN)
            assert forms == [["plain"], ["base64 0"], ["hex"], ["reversed"]][at], command
        await box.call("shell", {"command": "echo id > .git/hooks/pre-push"})
    (asked,) = person.asked
    assert "+id" in asked.diff
    assert traps.orders() != orders
    (traps.place / "beside" / "notes.txt").write_text("x")
    assert traps.outside() != outside


async def test_where_the_jail_is_not_enough_harm_is_asked_about_by_its_words(traps):
    """What is written in place is not undone, and what has the host's network sends secrets away.

    Nothing runs here. What is asked about at a lower level, or not at all, is listed.
    """
    by_words = {row["text"]: row["level"] for row in CORPUS["hostile"]}
    texts = (*(text for _, text in HOSTILE), *HOSTILE_WORDS)
    allowed, first_use = set(), set()
    async with executor(traps.place, policy="coding", workspace_mode="direct") as box:
        for text in texts:
            found = box.check("shell", {"command": traps.filled(text)})
            assert isinstance(found, Decision)
            if found.outcome is Outcome.ALLOW:
                allowed.add(text)
            elif found.outcome is Outcome.ASK and found.level < 3:
                assert found.level == 2, text
                first_use.add(text)
    assert allowed == HARMLESS.keys()
    assert {text for text in first_use if text not in by_words} == FIRST_USE
    # The corpus has writers among the hostile ones, that name what they write.
    assert {by_words[text] for text in first_use if text in by_words} == {2}
    async with executor(traps.place, policy="coding", network=Network.host()) as box:
        for text in texts:
            found = box.check("shell", {"command": traps.filled(text)})
            assert isinstance(found, Decision)
            assert found.outcome is Outcome.DENY or found.level == 3, text


# -- what a project runs -------------------------------------------------------------------

ORDER: Final = "echo 'on: push' > .github/workflows/new.yml; echo x > plain.txt"


async def test_what_a_project_runs_is_asked_about_once_after_the_run_and_kept_if_agreed(place):
    """A person who sees no diff agrees to what they do not know."""
    for answer, is_kept in ((Answer.reject(), False), (Answer.once(), True)):
        person = Person(answer)
        async with executor(place, policy="coding", approver=person) as box:
            assert box.check("shell", {"command": ORDER}).outcome is Outcome.ALLOW
            result = await box.call("shell", {"command": ORDER})
        (asked,) = person.asked
        assert (asked.stage, asked.level) == ("after", 3)
        assert "+on: push" in asked.diff
        assert (result.error is None) is is_kept
        assert (place / "ws" / ".github/workflows/new.yml").exists() is is_kept
        assert (place / "ws" / "plain.txt").exists() is is_kept


@pytest.mark.parametrize("on_refused", ["all", "park"])
async def test_without_a_person_what_a_project_runs_is_refused_and_parked_on_wish(
    place, on_refused
):
    """A pipeline cannot ask; what it must not keep may still be worth a look."""
    async with executor(place, policy="ci", on_refused=on_refused) as box:
        result = await box.call("shell", {"command": ORDER})
        near = await box.call("shell", {"command": "echo x > plain.txt"})
    assert ending(result) == "refused"
    assert [one["path"] for one in result.error.paths] == [".github/workflows/new.yml"]
    assert (result.error.handle is not None) is (on_refused == "park")
    assert not (place / "ws" / ".github/workflows/new.yml").exists()
    assert near.files_changed == ("plain.txt",)
