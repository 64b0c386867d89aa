"""Transactions to be killed: `python killed_transactions.py FOLDER KILLS SEED`.

Each round makes a workspace and has a process of its own run one call there that changes it in
every way, through a real `Executor`. That process, or one of its jail's, is killed with SIGKILL at
a random moment: of the whole call, of its commit, or of what follows the point of no return. Then
the workspace is recovered, by a new executor or by `toolcell doctor --recover`, and looked at.
Prints one line of JSON a round.

        call begins      journal: plan     "committing"       "applied"      journal gone
    ────────┼──────────────────┼─────────────────┼────────────────┼───────────────┼──────►
            └─ run ────────────┼─────────────────┼────────────────┼───────────────┼──►
                               └─ planned ───────┼────────────────┼───────────────┼──►
                                                 └─ committing ───┼───────────────┼──►
                                                                  └─ applied ─────┼──►
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import trio

from toolcell import Executor
from toolcell.approval import unsafe_approve_all
from toolcell_sandbox.commit import Place
from toolcell_sandbox.host import id_base

FIRST_NS: Final = 1_700_000_000_000_000_000
"""A time that no test runs at."""
SURVIVAL_S: Final = 5.0
ENDING_S: Final = 60.0
AIMS: Final = ("run", "planned", "committing", "applied", "handler", "committing")
RECORDS: Final = ("planned", "committing", "applied")
_CLI: Final = "import sys; from toolcell.cli import main; sys.exit(main())"
_AUDIT: Final = (
    "audit.sqlite",
    "audit.sqlite-wal",
    "audit.sqlite-shm",
    "audit-runs",
    "grants.sqlite",
)
KEPT: Final = frozenset({*_AUDIT, "workspaces", "retained"})
"""What of the state folder stays, and in the workspace's own corner of it: what orders commits."""
KEPT_CORNER: Final = frozenset({"lock", "generation"})

SCRIPT: Final = r"""
set -e
mkdir -p made/deep/er made/empty
for i in 1 2 3 4 5 6 7 8; do echo "file $i" > made/deep/er/f$i; done
head -c 300000 /dev/zero | tr '\0' x > made/big
ln made/deep/er/f1 made/linked
ln -s ../edited made/link
mkfifo made/pipe
chmod 400 made/deep/er/f2
chmod 555 made/deep/er
echo after > edited
echo more >> folder/grown
chmod 755 chmodded
ln same same-linked
rm deleted old-fifo
rm -r goes
rm becomes-folder; mkdir becomes-folder; echo new > becomes-folder/now
rm -r becomes-file; echo "a file now" > becomes-file
ln -sfn edited link
chmod 750 folder
chmod 755 closed; echo new > closed/new; rm closed/old; chmod 555 closed
mv moves moved
touch -d @1700000100 edited folder/grown becomes-folder/now becomes-file closed/new
find made -type f -exec touch -d @1700000200 {} +
echo done
"""


def prepared(folder: Path) -> Path:
    """The workspace that the call finds."""
    ws = folder / "ws"
    plain = ("same", "edited", "chmodded", "deleted", "becomes-folder", "moves", "folder/grown")
    deep = ("goes/x", "goes/y/z", "becomes-file/inner/x", "closed/old", "folder/kept")
    for name in plain + deep:
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text(f"{name} before\n")
        (ws / name).chmod(0o644)
    (ws / "link").symlink_to("same")
    (ws / "goes/link").symlink_to("nowhere")
    os.mkfifo(ws / "old-fifo")
    (ws / "closed").chmod(0o555)
    for top, folders, files in os.walk(ws, topdown=False):
        for name in folders + files:
            os.utime(os.path.join(top, name), ns=(FIRST_NS, FIRST_NS), follow_symlinks=False)
    return ws


def names(root: Path) -> list[str]:
    """Every path below, relative, sorted."""
    return sorted(
        os.path.relpath(os.path.join(top, name), root)
        for top, folders, files in os.walk(root)
        for name in folders + files
    )


def snapshot(root: Path, *, folder_times: bool = False) -> dict[str, tuple[Any, ...]]:
    """Every path: kind, mode, owner, content or target, time, and the names that share its file.

    A commit that is undone has made and removed names in folders, so their times say it; of
    links only the target counts. With `folder_times` everything does, and the inodes too.
    """
    found: dict[str, tuple[Any, ...]] = {}
    first: dict[tuple[int, int], str] = {}
    for name in [".", *names(root)]:
        path = root / name
        status = path.lstat()
        content: Any = None
        times = folder_times
        if stat.S_ISREG(status.st_mode):
            content, times = hashlib.sha256(path.read_bytes()).hexdigest(), True
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        same = None
        if not stat.S_ISDIR(status.st_mode):
            same = first.setdefault((status.st_dev, status.st_ino), name)
        found[name] = (
            *(oct(status.st_mode), status.st_uid, status.st_gid, content, same),
            status.st_mtime_ns if times else None,
            status.st_ino if folder_times else None,
        )
    return found


def tree_hash(root: Path) -> str:
    """One name for all of it."""
    return hashlib.sha256(repr(sorted(snapshot(root).items())).encode()).hexdigest()


def remove(folder: Path) -> None:
    """rm -rf, also of what its owner may not write in."""
    for top, _, _ in os.walk(folder):
        os.chmod(top, 0o700)
    shutil.rmtree(folder)


# -- processes ------------------------------------------------------------------------------

Process = tuple[int, int]
"""A pid and when it began: no other process's, even when the pid comes again."""


def processes() -> dict[int, tuple[int, int, str]]:
    """Parent, start and state of every process of this machine."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                found[int(name)] = (int(fields[1]), int(fields[19]), fields[0])
    return found


def descendants(pid: int) -> list[set[Process]]:
    """All below a process, by depth: its zygotes, their inits, those workers, and the rest."""
    everything = processes()
    levels: list[set[Process]] = []
    pids = {pid}
    while True:
        level = {(one, start) for one, (parent, start, _) in everything.items() if parent in pids}
        if not level:
            return levels
        levels.append(level)
        pids = {one for one, _ in level}


def alive(known: set[Process], mark: str) -> set[Process]:
    """Which of these run still, and whatever carries the mark, wherever it hangs by now."""
    everything = processes()
    left = {
        (pid, start)
        for pid, start in known
        if pid in everything and everything[pid][1:] != (start, "Z") and everything[pid][1] == start
    }
    for pid, (_, start, _) in everything.items():
        with contextlib.suppress(OSError):
            if f"MARK={mark}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                left.add((pid, start))
    return left


# -- one round ------------------------------------------------------------------------------


class Round:
    """One workspace, and the process that runs a call in it."""

    def __init__(self, folder: Path, *, review: bool) -> None:
        self.folder, self.review = folder, review
        folder.mkdir(parents=True)
        (folder / "tmp").mkdir()
        self.ws, self.state = prepared(folder), folder / "state"
        found = self.ws.stat()
        self.corner = Path(
            Place(
                workspace=str(self.ws),
                identity=(found.st_dev, found.st_ino),
                state_dir=str(self.state),
            ).folder
        )
        self.journal = str(self.corner / "journal")
        self.mark = f"{os.getpid()}-{folder.name}"
        self.pid, self.survivors = 0, 0
        self._told, self._buffer = -1, b""

    def __enter__(self) -> Round:
        return self

    def __exit__(self, *_: object) -> None:
        """A round that broke off leaves no process, which would hold our streams open."""
        if self.pid:
            self.kill(set())

    def start(self) -> float:
        """Fork the process: when it had begun the call, by our clock."""
        self._told, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            os.close(self._told)
            os.environ["TMPDIR"] = str(self.folder / "tmp")
            try:
                trio.run(self._supervise, theirs)
                while True:
                    signal.pause()
            except BaseException:  # noqa: BLE001  # nothing leaves a forked child
                sys.excepthook(*sys.exc_info())
            os._exit(3)
        os.close(theirs)
        os.set_blocking(self._told, False)
        self.until(lambda: b"begun\n" in self.told())
        return time.monotonic()

    async def _supervise(self, told: int) -> None:
        async with Executor(
            workspace=self.ws,
            state_dir=self.state,
            approver=unsafe_approve_all,
            review=self.review,
            env={"MARK": self.mark},
            warm_jails=0,
        ) as box:
            os.write(told, b"begun\n")
            result = await box.call("shell", {"command": SCRIPT})
            kind = None if result.error is None else result.error.kind
            os.write(told, json.dumps({"kind": kind, "said": result.content}).encode() + b"\n")
        os.write(told, b"closed\n")

    def told(self) -> bytes:
        """All that the process has said by now."""
        with contextlib.suppress(BlockingIOError):
            while self._told >= 0 and (chunk := os.read(self._told, 1 << 16)):
                self._buffer += chunk
        return self._buffer

    def result(self) -> dict[str, Any] | None:
        """How its caller was told that the call ended; None where that was not said."""
        lines = self.told().split(b"\n")
        return json.loads(lines[1]) if len(lines) > 2 else None

    def is_kept(self) -> bool:
        """Whether its caller was told so."""
        result = self.result()
        return result is not None and result["kind"] is None

    def until(self, happened: Callable[[], object], *, poll_s: float = 0.0005) -> None:
        """Wait until this is so."""
        last = time.monotonic() + ENDING_S
        while not happened():
            if time.monotonic() > last:
                raise AssertionError("it never came")
            if poll_s:
                time.sleep(poll_s)

    def ended(self) -> bool:
        """Whether the call has, and all that follows it."""
        return b"closed\n" in self.told()

    def reached(self, record: str) -> bool:
        """Whether the journal has this record; or the call has ended without our seeing it."""
        wanted = RECORDS.index(record)
        stage = self.stage()
        return (stage != "none" and RECORDS.index(stage) >= wanted) or self.result() is not None

    def stage(self) -> str:
        """How far the journal says that the commit has come."""
        try:
            text = Path(self.journal).read_bytes()
        except FileNotFoundError:
            return "none"
        for record in ("applied", "committing"):
            if b'\n{"%b"' % record.encode() in text:
                return record
        return "planned"

    def kill(self, known: set[Process]) -> str:
        """SIGKILL, and wait until nothing of it is left: how far it was."""
        os.kill(self.pid, signal.SIGSTOP)
        known |= set().union(*descendants(self.pid))
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0
        stage = self.stage()
        self.told()
        os.close(self._told)
        self._told = -1
        last = time.monotonic() + SURVIVAL_S
        while (left := alive(known, self.mark)) and time.monotonic() < last:
            time.sleep(0.005)
        self.survivors = len(left)
        return stage

    def recover(self, way: str) -> tuple[str, bool]:
        """What whoever comes next says of it; and whether another one finds nothing to do."""
        told = self._doctor() if way == "doctor" else _in_child(self._entered)
        return told, _in_child(self._entered) == "nothing"

    def _doctor(self) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _CLI, "doctor", "--recover", "--json"],
            env={**os.environ, "TOOLCELL_STATE_DIR": str(self.state)},
            capture_output=True,
            text=True,
            check=False,
            timeout=ENDING_S,
        )
        if done.returncode or done.stderr:
            return f"failed: {done.stdout}{done.stderr}"
        recovered = json.loads(done.stdout)["recovered"]
        return str(recovered[0]["outcome"]) if recovered else "nothing"

    def _entered(self) -> str:
        import logging

        said: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]  # a sink
        logging.getLogger("toolcell").addHandler(handler)

        async def enter() -> None:
            async with Executor(workspace=self.ws, state_dir=self.state):
                pass

        trio.run(enter)
        outcomes = [
            word for text in said for word in ("undone", "finished") if f"is {word} now" in text
        ]
        if len(said) != len(outcomes):
            return f"failed: {said}"
        return outcomes[0] if outcomes else "nothing"

    def beside(self) -> list[str]:
        """Whatever is there that nobody's call has made."""
        left = [name for name in names(self.ws) if ".toolcell-" in name]
        left += [f"tmp/{name}" for name in names(self.folder / "tmp")]
        left += sorted(set(os.listdir(self.state)) - KEPT)
        left += [f"retained/{name}" for name in names(self.state / "retained")]
        corners = self.state / "workspaces"
        if corners.exists():
            left += sorted(set(os.listdir(corners)) - {self.corner.name})
        if self.corner.exists():
            left += sorted(set(os.listdir(self.corner)) - KEPT_CORNER)
        return left


def _in_child(act: Callable[[], str]) -> str:
    """What it returns, in a process of its own: threads that it starts are not ours to fork."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, act().encode())
        except BaseException as error:  # noqa: BLE001  # nothing leaves a forked child
            os.write(write, f"failed: {error!r}".encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        told = file.read().decode()
    os.waitpid(pid, 0)
    return told


class Learned:
    """Of calls that nobody kills: the two trees, and how long each phase takes at least.

    A machine is slower at one moment than at another: whoever comes too late aims earlier next.
    """

    def __init__(self, folder: Path) -> None:
        self.call_s = self.jail_s = ENDING_S
        self.left_s = dict.fromkeys(RECORDS, ENDING_S)
        for number, review in enumerate((False, True, False)):
            with Round(folder / f"plain{number}", review=review) as one:
                self._learn(one)
            remove(one.folder)

    def _learn(self, one: Round) -> None:
        self.before = tree_hash(one.ws)
        began = one.start()
        one.until(lambda: len(descendants(one.pid)) > 1)
        tree = time.monotonic()
        one.until(lambda: len(descendants(one.pid)) < 2)
        self.jail_s = min(self.jail_s, time.monotonic() - tree)
        times = {}
        for record in RECORDS:
            one.until(functools.partial(one.reached, record), poll_s=0)
            times[record] = time.monotonic()
        one.until(lambda: one.result() is not None, poll_s=0)
        ended = time.monotonic()
        one.until(one.ended)
        result = one.result()
        if result is None or result["kind"] is not None:
            raise AssertionError(result)
        self.after = tree_hash(one.ws)
        one.kill(set())
        if one.beside():
            raise AssertionError(one.beside())
        self.call_s = min(self.call_s, ended - began)
        for record in RECORDS:
            self.left_s[record] = min(self.left_s[record], ended - times[record])


def killed(folder: Path, number: int, chance: random.Random, learned: Learned) -> dict[str, Any]:
    """One round."""
    aim = AIMS[number % len(AIMS)]
    way = chance.choice(("doctor", "executor"))
    known: set[Process] = set()
    victim = "supervisor"
    with Round(folder / f"{number}", review=chance.random() < 0.3) as one:
        one.start()
        if aim in RECORDS:
            one.until(lambda: one.reached(aim), poll_s=0)
            _spin(chance.uniform(0, 1.1 * learned.left_s[aim]))
            stage = one.kill(known)
            learned.left_s[aim] *= 0.9 if stage == "none" else 1.05
        elif aim == "handler":
            victim = _kill_inside(one, chance, learned, known)
            one.until(one.ended)
            stage = one.kill(known)
            learned.jail_s *= 0.9 if one.is_kept() else 1.05
        else:
            time.sleep(chance.uniform(0, 1.15 * learned.call_s))  # The random moment itself.
            stage = one.kill(known)
            learned.call_s *= 0.9 if one.is_kept() else 1.05
    result = one.result()
    recovered, is_done = one.recover(way)
    found = tree_hash(one.ws)
    is_now = {learned.before: "before", learned.after: "after"}.get(found, "half")
    told = {
        "round": number,
        "aim": aim,
        "victim": victim,
        "stage": stage,
        "result": "none" if result is None else result["kind"] or "success",
        "way": way,
        "recovered": recovered,
        "again": is_done,
        "is": is_now,
        "beside": one.beside(),
        "survivors": one.survivors,
    }
    told["fell"] = _fell(told)
    told["wrong"] = _wrong(told)
    if not told["wrong"]:
        remove(one.folder)
    return told


def _kill_inside(one: Round, chance: random.Random, learned: Learned, known: set[Process]) -> str:
    """SIGKILL to the zygote, the init or the worker of its jail, at a random moment of the run.

    None of what the worker starts: a command that dies there is for the script to answer.
    """
    one.until(lambda: len(descendants(one.pid)) > 1 or one.result() is not None)
    time.sleep(chance.uniform(0, learned.jail_s))
    levels = descendants(one.pid)[:3]
    known |= set().union(*levels)
    if not levels:
        return "nobody"
    depth = chance.choice((*range(len(levels)), len(levels) - 1))
    pid, _ = chance.choice(sorted(levels[depth]))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return ("zygote", "init", "worker")[depth]


def _fell(told: dict[str, Any]) -> str:
    """On which side of the point of no return, and whether something was left to be done."""
    if told["recovered"] in ("undone", "finished"):
        return str(told["recovered"])
    return str(told["is"])


def _wrong(told: dict[str, Any]) -> list[str]:
    """Each promise that was broken."""
    expected = {"none": "nothing", "planned": "undone", "committing": "undone"}
    wrong = []
    if told["is"] == "half":
        wrong.append("neither before nor after")
    if told["beside"]:
        wrong.append("something is left beside it")
    if told["survivors"]:
        wrong.append("a process of the call has survived")
    if told["recovered"] != expected.get(told["stage"], "finished"):
        wrong.append("recovery did not do what the journal says")
    if not told["again"]:
        wrong.append("recovery was not done with it")
    if told["recovered"] in ("undone", "finished"):
        should = {"undone": "before", "finished": "after"}[told["recovered"]]
        if told["is"] != should:
            wrong.append("recovery did not do what it says")
    if told["result"] != "none" and (told["result"] == "success") != (told["is"] == "after"):
        wrong.append("the caller was told something else")
    return wrong


def _spin(seconds: float) -> None:
    """The random moment itself, finer than a sleep can be."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        pass


def rounds(folder: Path, kills: int, seed: int) -> Iterator[dict[str, Any]]:
    """So many of them."""
    id_base()
    chance = random.Random(seed)
    learned = Learned(folder)
    yield {"call_s": learned.call_s, "jail_s": learned.jail_s, "left_s": learned.left_s}
    for number in range(kills):
        yield killed(folder, number, chance, learned)


if __name__ == "__main__":
    for told in rounds(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps(told), flush=True)
