"""Row 7: a hard link that was there before the call is the file itself, under a name that no rule
knows. Where names are masked, each name of the file is."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from toolcell import Executor
from toolcell.approval import unsafe_approve_all
from toolcell.results import EffectsRefused
from toolcell_sandbox.mask_index import MaskIndex

KEY = b"-----BEGIN PRIVATE KEY-----"
SEEN = "for f in $(find . -type f); do cat $f; done; ls -A . sub"


@pytest.fixture
def ssh() -> Iterator[Path]:
    """A folder of this test's own among the keys of this user, on the file system of the home."""
    folder = Path.home().resolve() / ".ssh"
    was_there = folder.exists()
    folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / f"toolcell-{secrets.token_hex(6)}"
    place.mkdir(mode=0o700)
    yield place
    shutil.rmtree(place)
    if not was_there:
        with contextlib.suppress(OSError):  # Somebody has put something there meanwhile.
            folder.rmdir()


@pytest.fixture
def workspace(ssh: Path) -> Iterator[Path]:
    """One that a file of the home can be linked into: on the same file system."""
    folder = ssh.parent.parent / f"toolcell-test-{secrets.token_hex(6)}"
    (folder / "workspace" / "sub").mkdir(parents=True)
    yield folder / "workspace"
    shutil.rmtree(folder)


def executor(workspace: Path, **choices: object) -> Executor:
    """One whose approver says yes."""
    return Executor(
        workspace=workspace,
        state_dir=workspace.parent / "state",
        approver=unsafe_approve_all,
        **choices,  # type: ignore[arg-type]  # keywords of each test
    )


@pytest.mark.parametrize("mode", ["transaction", "read_only"])
async def test_row_007_a_hard_link_to_a_key_outside_is_absent(ssh, workspace, mode):
    """Whoever may link a file into a folder gives it to every tool that works there."""
    (ssh / "id_test").write_bytes(KEY + b"there")
    os.link(ssh / "id_test", workspace / "sub" / "notes.txt")
    (ssh / "later").write_bytes(KEY + b"later")
    async with executor(workspace) as box:
        got = await box.call("shell", {"command": SEEN}, workspace_mode=mode)
        read = await box.call("read_file", {"path": "sub/notes.txt"}, workspace_mode=mode)
        # One that had no other name when the executor began.
        os.link(ssh / "later", workspace / "later.txt")
        after = await box.call("shell", {"command": SEEN}, workspace_mode=mode)
        open_to_all = await box.call("shell", {"command": SEEN}, workspace_mode="direct")
    for each in (got, read, after):
        assert "PRIVATE KEY" not in each.content
    assert (got.ok, read.success, after.ok) == (True, False, True)
    assert "notes.txt" not in got.content
    assert "later.txt" not in after.content
    assert "there" in open_to_all.content, "the control: in place nothing is masked"
    assert "later" in open_to_all.content


@pytest.mark.parametrize("mode", ["transaction", "read_only"])
async def test_row_007_another_name_of_a_masked_file_is_absent_too(workspace, mode):
    """`ln .env notes.txt` would be all that it takes to read what nobody may."""
    (workspace / ".env").write_text("SECRET=1")
    (workspace / "key.pem").write_bytes(KEY)
    (workspace / "plain").write_text("fine")
    os.link(workspace / "plain", workspace / "sub" / "plain-too")
    os.link(workspace / ".env", workspace / "sub" / "notes.txt")
    os.link(workspace / "key.pem", workspace / "a.txt")
    async with executor(workspace) as box:
        got = await box.call("shell", {"command": SEEN}, workspace_mode=mode)
        os.link(workspace / ".env", workspace / "later.txt")
        after = await box.call("shell", {"command": SEEN}, workspace_mode=mode)
        (workspace / ".env").unlink()
        # Nothing says any more what they are; in place they were to be read before.
        freed = await box.call("shell", {"command": SEEN}, workspace_mode=mode)
    for each in (got, after):
        assert each.ok
        assert "SECRET" not in each.content
        assert "PRIVATE KEY" not in each.content
        for name in ("notes.txt", "a.txt", "later.txt"):
            assert name not in each.content
        assert each.content.count("fine") == 2, "the control: a file with two names is shown"
    assert freed.content.count("SECRET") == 2, "the control: they are masked for that name alone"


async def test_row_007_a_second_name_keeps_what_it_was_through_a_call(workspace):
    """A mask that a call could write through would be one that destroys what it hides."""
    (workspace / ".env").write_text("SECRET=1")
    (workspace / "held").mkdir()
    (workspace / "sub" / "plain").write_text("x")
    for name in ("notes.txt", "held/notes.txt"):
        os.link(workspace / ".env", workspace / name)
    async with executor(workspace) as box:
        written = await box.call("shell", {"command": "echo mine > notes.txt; echo y > sub/new"})
        removed = await box.call("shell", {"command": "rm -rf held"})
        allowed = await box.call("shell", {"command": "rm -r sub"})
    for name in ("notes.txt", "held/notes.txt"):
        assert (workspace / name).samefile(workspace / ".env")
    assert (workspace / ".env").read_text() == "SECRET=1"
    assert written.effects is not None
    assert [one["code"] for one in written.effects.refused] == ["masked_kept"]
    assert "sub/new" in written.effects.created
    assert isinstance(removed.error, EffectsRefused)
    assert [one["path"] for one in removed.error.paths] == ["held/notes.txt"]
    assert allowed.ok
    assert not (workspace / "sub").exists(), "the control: what hides nothing goes"


async def test_row_007_no_hard_link_leads_out_of_a_denied_path(workspace):
    """CASES.md 21: a name made inside for what may not be read."""
    (workspace / ".env").write_text("SECRET=1")
    (workspace / "plain").write_text("fine")
    links = "ln .env got; ln sub/../.env got; cat got; ln plain too && cat too"
    async with executor(workspace) as box:
        got = await box.call("shell", {"command": links})
        direct = await box.call("shell", {"command": links}, workspace_mode="direct")
    assert "SECRET" not in got.content
    assert "fine" in got.content, "the control: a link to what it may read"
    assert "SECRET" in direct.content, "the control: in place it is just a file"


# ---------------------------------------------------------------- any order of links and renames


class Judge:
    """`.env`, `*.key`, each `*.pem` that holds a key, and whatever names they have besides."""

    inodes: frozenset[tuple[int, int]] = frozenset()
    later_inodes: frozenset[tuple[int, int]] = frozenset()

    def forbids(self, inner: str, name: str) -> bool:
        return name == ".env" or name.endswith(".key")

    def asks_content(self, inner: str, name: str) -> bool:
        return name.endswith(".pem")

    def forbids_content(self, fd: int) -> bool:
        return KEY in os.pread(fd, 65_536, 0)


def walked(top: Path) -> list[str]:
    """What is to be masked, found the plain way: all names first, then what each is."""
    judge, names = Judge(), {}
    told, found = set(), []
    for here, folders, files in os.walk(top):
        inner = os.path.relpath(here, top)
        inner = "" if inner == "." else inner
        for name in (*folders, *files):
            path = os.path.join(inner, name)
            names[path] = stat = (top / path).lstat()
            is_file = os.path.isfile(top / path) and not os.path.islink(top / path)
            is_told = judge.forbids(inner, name) or (
                is_file and name.endswith(".pem") and KEY in (top / path).read_bytes()
            )
            if is_told:
                found.append(path)
                if is_file:
                    told.add((stat.st_dev, stat.st_ino))
        folders[:] = [name for name in folders if not judge.forbids(inner, name)]
    found += [path for path, stat in names.items() if (stat.st_dev, stat.st_ino) in told]
    return sorted(set(found))


_NAMES = ["a", "b", "c", ".env", "x.key", "d.pem"]
_PATHS = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3).map("/".join)


class AgainstAWalk(RuleBasedStateMachine):
    """Any order of changes to files with several names, looked at after any number of them."""

    top: Path

    def ask(self) -> list[str]:
        raise NotImplementedError

    def do(self, change: Callable[[], object]) -> None:
        try:
            change()
        except OSError:
            return

    @rule(path=_PATHS)
    def make_folder(self, path: str) -> None:
        self.do(lambda: (self.top / path).mkdir(parents=True))

    @rule(path=_PATHS, content=st.sampled_from([b"CERT", KEY]))
    def write(self, path: str, content: bytes) -> None:
        self.do(lambda: (self.top / path).write_bytes(content))

    @rule(path=_PATHS)
    def remove(self, path: str) -> None:
        self.do(lambda: (self.top / path).unlink())

    @rule(path=_PATHS)
    def remove_folder(self, path: str) -> None:
        self.do(lambda: shutil.rmtree(self.top / path))

    @rule(path=_PATHS, to=_PATHS)
    def move(self, path: str, to: str) -> None:
        self.do(lambda: (self.top / path).rename(self.top / to))

    @rule(path=_PATHS)
    def move_out(self, path: str) -> None:
        self.do(lambda: (self.top / path).rename(self.top.parent / "kept"))

    @rule(path=_PATHS)
    def move_in(self, path: str) -> None:
        self.do(lambda: (self.top.parent / "kept").rename(self.top / path))

    @rule(path=_PATHS, to=_PATHS)
    def link(self, path: str, to: str) -> None:
        self.do(lambda: os.link(self.top / path, self.top / to))

    @rule(path=_PATHS, to=_PATHS)
    def link_again(self, path: str, to: str) -> None:
        self.link(path, to)

    @rule(path=_PATHS)
    def link_out(self, path: str) -> None:
        self.do(lambda: os.link(self.top / path, self.top.parent / "kept"))

    @rule(pairs=st.lists(st.tuples(_PATHS, _PATHS), min_size=2, max_size=6))
    def move_and_link_much(self, pairs: list[tuple[str, str]]) -> None:
        for number, (path, to) in enumerate(pairs):
            (self.link if number % 2 else self.move)(path, to)

    @invariant()
    def is_as_a_walk_finds_it(self) -> None:
        assert self.ask() == walked(self.top)


def test_row_007_any_order_of_links_and_renames_is_told_as_a_walk_finds_it(tmp_path):
    """Otherwise there is an order of them after which a secret has a name that is shown."""
    numbers = itertools.count()

    class Here(AgainstAWalk):
        def __init__(self) -> None:
            super().__init__()
            self.top = tmp_path.resolve() / str(next(numbers)) / "ws"
            self.top.mkdir(parents=True)
            found = self.top.stat()
            self.index = MaskIndex(str(self.top), (found.st_dev, found.st_ino), Judge())

        def ask(self) -> list[str]:
            return list(trio.run(self.index.current).paths)

        def teardown(self) -> None:
            self.index.close()

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def test_row_007_the_first_walk_finds_a_name_that_it_met_before_it_knew(tmp_path):
    """Otherwise all depends on which of two folders is listed first."""
    top = tmp_path.resolve() / "ws"
    for name in ("a", "m", "z"):
        (top / name).mkdir(parents=True)
    (top / "m" / ".env").write_text("SECRET=1")
    for name in ("a/one", "z/two", "three"):
        os.link(top / "m" / ".env", top / name)
    (top / "a" / "plain").write_text("x")
    found = top.stat()
    index = MaskIndex(str(top), (found.st_dev, found.st_ino), Judge())
    try:
        assert list(trio.run(index.current).paths) == ["a/one", "m/.env", "three", "z/two"]
    finally:
        index.close()
