"""Random calls in real transactions, against the same operations on a plain folder."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import trio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from toolcell_sandbox import JailSpec, Limits, PythonHandler, run_in_jail
from toolcell_sandbox.changeset import ChangeSet
from toolcell_sandbox.commit import Place, commit
from toolcell_sandbox.host import base_environment
from toolcell_sandbox.outcome import Upper
from toolcell_sandbox.spec import Mount
from toolcell_sandbox.upper import Layer, Marker, changes_of

from . import operations_of_model as model
from .killed_transactions import remove

HANDLER = Path(model.__file__)

NAMES = [b"a", b"b", b"c", b"d"]
ODD = [
    *(b"-rf", b" ", b"new\nline", b"\xff\xfe", "\u00e4\u202e".encode(), b"#q", b".wh.a", b"~"),
    *(b"x" * 255, b"\\", b".wh..wh..opq", b"index", b"work", b"..."),
]
"""Of these one has a mark of another union file system's, and ours must not be led by it."""

names_ = st.sampled_from(NAMES * 6 + ODD)
number_ = st.integers(0, 63)
new_ = st.tuples(st.just("new"), number_, names_.map(bytes.hex)).map(list)
file_, folder_, leaf_, any_ = (
    st.tuples(st.just(sort), number_).map(list) for sort in ("file", "folder", "leaf", "any")
)
seconds_ = st.integers(0, 3).map(lambda chosen: chosen * 7)
sizes_ = st.sampled_from([0, 1, 3, 3, 5000])
letters_ = st.sampled_from(b"xy")
file_modes_ = st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o640])
folder_modes_ = st.sampled_from([0o755, 0o755, 0o755, 0o700, 0o555, 0o1777])
targets_ = st.sampled_from([b"a", b"../b", b"/etc/nothing", b"gone", b"\xff", b"."])


def _tuple(name: str, *words: Any) -> Any:
    def plain(drawn: tuple[Any, ...]) -> list[Any]:
        return [name, *(one.hex() if isinstance(one, bytes) else one for one in drawn)]

    return st.tuples(*words).map(plain)


fresh_ = st.one_of(new_, new_, any_)
operation_ = st.one_of(
    _tuple("write", new_, sizes_, letters_, seconds_),
    _tuple("write", st.one_of(new_, leaf_), sizes_, letters_, seconds_),
    _tuple("append", file_, sizes_, letters_, seconds_),
    _tuple("truncate", file_, sizes_, seconds_),
    _tuple("overwrite", file_, st.integers(0, 4), letters_, seconds_),
    _tuple("unlink", leaf_),
    _tuple("rename", leaf_, fresh_),
    _tuple("mkdir", new_, folder_modes_),
    _tuple("mkdir", new_, folder_modes_),
    _tuple("rmdir", folder_),
    _tuple("rmtree", folder_),
    _tuple("anew", folder_, folder_modes_),
    _tuple("symlink", new_, targets_),
    _tuple("link", file_, new_),
    _tuple("chmod", any_, st.one_of(file_modes_, folder_modes_)),
    _tuple("utime", any_, seconds_),
    _tuple("mkfifo", new_),
)
operations_ = st.lists(operation_, min_size=6, max_size=30)

Facts = dict[str, tuple[Any, ...]]


def walk(top: Path) -> Facts:
    """Each name: kind, mode, content or target; and of files their time, and who shares them."""
    found: Facts = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content: Any = None
            if stat.S_ISREG(status.st_mode):
                content = Path(path).read_bytes()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            found[os.path.relpath(path, top)] = (
                stat.S_IFMT(status.st_mode),
                0 if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode),
                content,
                status.st_mtime_ns,
                (status.st_dev, status.st_ino),
            )
    return found


def groups(facts: Facts, only: set[str]) -> set[frozenset[str]]:
    """Of these names, those of one file together."""
    by_inode: dict[Any, set[str]] = {}
    for path, (kind, *_, inode) in facts.items():
        if path in only and kind == stat.S_IFREG:
            by_inode.setdefault(inode, set()).add(path)
    return {frozenset(one) for one in by_inode.values() if len(one) > 1}


def merged(parts: set[frozenset[str]]) -> set[frozenset[str]]:
    """Groups that have a name in common are one."""
    whole: list[set[str]] = []
    for part in parts:
        joined = set(part).union(*(one for one in whole if one & part))
        whole = [one for one in whole if not one & part] + [joined]
    return {frozenset(one) for one in whole}


def copied(source: Path, target: Path) -> None:
    """A plain copy, each name a file of its own: as a call sees them, whose overlay parts links."""
    target.mkdir(mode=0o700)
    for entry in sorted(os.scandir(source), key=lambda one: one.name):
        to = target / entry.name
        found = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            copied(Path(entry.path), to)
            os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns))
        elif entry.is_symlink():
            to.symlink_to(os.readlink(entry.path))
            os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)
        elif stat.S_ISFIFO(found.st_mode):
            os.mkfifo(to)
            os.chmod(to, stat.S_IMODE(found.st_mode))
            os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns))
        else:
            shutil.copyfile(entry.path, to)
            os.chmod(to, stat.S_IMODE(found.st_mode))
            os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns))
    os.chmod(target, stat.S_IMODE(source.stat().st_mode))


def _is_given(mtime_ns: int) -> bool:
    """Whether an operation gave it this time, and no clock."""
    return mtime_ns < (model.FIRST_S + 1000) * 10**9


def expected(before: Facts, after: Facts) -> tuple[set[str], set[str]]:
    """The names that must be told, and those that may be: all else must not."""
    must, may = set(), set()
    for path in {*before, *after}:
        old, new = before.get(path), after.get(path)
        if old is None or new is None or old[:3] != new[:3]:
            must.add(path)
        elif stat.S_ISDIR(old[0]):
            continue
        elif old[3] != new[3] and _is_given(new[3]):
            must.add(path)
        else:
            # The very file, or one like it that was made anew or is another's twin by now; or a
            # truncate(2) to the same size, where the time is the file system's to decide.
            may.add(path)
    return must, may


def unequal(left: Facts, right: Facts) -> dict[str, Any]:
    """Names that differ by kind, mode, content or target."""
    sides = ((path, left.get(path, ())[:3], right.get(path, ())[:3]) for path in {*left, *right})
    return {path: (_short(a), _short(b)) for path, a, b in sides if a != b}


def _short(facts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(len(one) if isinstance(one, bytes) and len(one) > 9 else one for one in facts)


class Box:
    """A workspace, the model of it, and our state."""

    def __init__(self) -> None:
        # Short, and readable for a worker of other ids.
        self.folder = Path(tempfile.mkdtemp(prefix="model-")).resolve()
        self.folder.chmod(0o755)
        self.workspace, self.plain = self.folder / "ws", self.folder / "plain"
        self.workspace.mkdir()
        self.code = self.folder / "code"
        self.code.mkdir()
        shutil.copy(HANDLER, self.code / "operations_of_model.py")
        self.calls = self.kept = self.changed = 0
        found = self.workspace.stat()
        self.place = Place(
            workspace=str(self.workspace),
            identity=(found.st_dev, found.st_ino),
            state_dir=str(self.folder / "state"),
        )

    def call(self, operations: list[list[Any]], *, fails: bool) -> None:
        """One call that does all of them, which is kept unless it fails; and the same beside it."""
        before = walk(self.workspace)
        try:
            self._call(operations, before, fails=fails)
        except BaseException as error:
            error.add_note(f"there was: { {path: _short(one) for path, one in before.items()} }")
            error.add_note(f"the call: {operations!r}")
            raise

    def _call(self, operations: list[list[Any]], before: Facts, *, fails: bool) -> None:
        copied(self.workspace, self.plain)
        # What the host did within one tick of its clock cannot be told from what it does later.
        # Its stamps may be finer than that clock, which may be late (multigrain, Linux 6.13).
        since = time.time_ns()
        while (marker := Marker.now()).realtime_ns <= since:
            pass
        upper: list[Upper] = []
        handler = PythonHandler(
            module="operations_of_model",
            qualname="run",
            file=str(self.code / "operations_of_model.py"),
            arguments={"operations": operations},
        )
        spec = JailSpec(
            workspace=str(self.workspace),
            workspace_mode="transaction",
            mounts=(Mount(path=str(self.code), owned=True),),
            env=base_environment(),
            limits=Limits(wall_s=60),
        )
        outcome = trio.run(partial(run_in_jail, handler, spec, keep=upper.append))
        assert outcome.failure is None, outcome.failure
        mask = os.umask(0)
        stale = tuple(n for n, end in enumerate(outcome.value) if end == "ESTALE")
        ends = model.run(operations, str(self.plain), stale)
        os.umask(mask)
        assert outcome.value == ends, list(zip(operations, outcome.value, ends, strict=True))
        self.calls += 1
        try:
            assert walk(self.workspace) == before, "a call wrote through its overlay"
            if not fails:
                self._keep(upper[0], marker, before)
        finally:
            upper[0].close()
            remove(self.plain)

    def _keep(self, upper: Upper, marker: Marker, before: Facts) -> None:
        layer = Layer(
            fd=upper.fd,
            uids=upper.uids,
            gids=upper.gids,
            owner=upper.owner or (os.geteuid(), os.getegid()),
            marker=marker,
            masks=frozenset(),
        )
        workspace_fd = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY)
        try:
            changes = changes_of(layer, workspace_fd, str(self.workspace))
        finally:
            os.close(workspace_fd)
        assert (changes.conflicts, changes.problems) == ((), ()), self._seen(changes, marker)
        wanted = walk(self.plain)
        self._compare_set(changes, before, wanted)
        ending = commit(changes, layer.fd, self.place)
        assert ending is None, ending
        self._compare_trees({one.path for one in changes.changes}, before, wanted)
        self.kept += 1
        self.changed += len(changes.changes)

    def _seen(self, changes: ChangeSet, marker: Marker) -> list[Any]:
        """What a conflict rests on."""
        named = (*changes.conflicts, *(one.path for one in changes.problems))
        at = {one.path: (one.before, one.after) for one in changes.changes}
        return [marker, changes.problems, *((path, at.get(path)) for path in named)]

    def _compare_set(self, changes: ChangeSet, before: Facts, wanted: Facts) -> None:
        told = {one.path for one in changes.changes}
        must, may = expected(before, wanted)
        untold, unasked = must - told, told - must - may
        sides = {path: (before.get(path), wanted.get(path)) for path in untold | unasked}
        assert (untold, unasked) == (set(), set()), sides
        for one in changes.changes:
            assert (one.before is not None) == (one.path in before), one
            assert (one.after is not None) == (one.path in wanted), one

    def _compare_trees(self, told: set[str], before: Facts, wanted: Facts) -> None:
        found = walk(self.workspace)
        assert (differs := unequal(found, wanted)) == {}, differs
        # Times that an operation gave are kept to the nanosecond; others are a clock's.
        for path, (kind, _, _, mtime_ns, _) in wanted.items():
            if kind == stat.S_IFREG and _is_given(mtime_ns):
                assert found[path][3] == mtime_ns, path
        # Names that the call left alone keep the inode they had; those it joined are joined.
        alone = set(before) - told
        for path in alone:
            if path in found:
                assert found[path][4] == before[path][4], path
        should = merged(groups(wanted, set(wanted)) | groups(before, alone & set(found)))
        assert groups(found, set(found)) == should
        assert [path for path in found if ".toolcell-" in path] == []
        assert not os.path.lexists(os.path.join(self.place.folder, "journal"))

    def remove(self) -> None:
        remove(self.folder)


class Transactions(RuleBasedStateMachine):
    """Calls, and what a person does in the workspace between them."""

    counts = dict.fromkeys(("calls", "kept", "changed"), 0)

    def __init__(self) -> None:
        super().__init__()
        self.box = Box()

    @initialize(operations=st.lists(operation_, min_size=5, max_size=30))
    def begin(self, operations: list[list[Any]]) -> None:
        """What lies there before the first call."""
        folders = [["mkdir", path.hex(), 0o755] for path in (b"a", b"b", b"a/a")]
        self._by_host(folders + operations)

    @rule(operations=operations_)
    def kept(self, operations: list[list[Any]]) -> None:
        """A call that ends well."""
        self.box.call(operations, fails=False)

    @rule(operations=operations_)
    @precondition(lambda self: self.box.calls > 0)
    def dropped(self, operations: list[list[Any]]) -> None:
        """One that is not kept."""
        self.box.call(operations, fails=True)

    @rule(operations=st.lists(operation_, min_size=1, max_size=6))
    def host(self, operations: list[list[Any]]) -> None:
        """A person, between two calls."""
        self._by_host(operations)

    def _by_host(self, operations: list[list[Any]]) -> None:
        mask = os.umask(0)
        model.run(operations, str(self.box.workspace))
        os.umask(mask)

    def teardown(self) -> None:
        """What all came to, for the control."""
        for name in self.counts:
            self.counts[name] += getattr(self.box, name)
        self.box.remove()


def test_what_calls_do_in_transactions_is_what_they_do_in_a_plain_folder(ledger: None):
    """Otherwise some order of everyday operations loses a file, or keeps what was removed."""
    Transactions.counts.update(dict.fromkeys(Transactions.counts, 0))
    run = settings(
        max_examples=int(os.environ.get("TOOLCELL_MODEL_EXAMPLES", "20")),
        stateful_step_count=8,
        deadline=None,
        database=None,
        derandomize="TOOLCELL_MODEL_EXAMPLES" not in os.environ,
        print_blob=False,
        # Each try costs a jail: a failure is told as it was found.
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Transactions, settings=run)
    # The control: calls were kept, and changed something.
    counts = Transactions.counts
    print(f"model: {counts}")
    assert counts["kept"] > 20
    assert counts["changed"] > 5 * counts["kept"] / 2


def test_the_model_refuses_as_the_kernel_does_without_rights(tmp_path: Path):
    """The control of its own looks: otherwise both sides might just refuse everything."""
    a, closed, inner = (one.hex() for one in (b"a", b"closed", b"closed/inner"))
    ends = model.run(
        [
            ["write", a, 3, 120, 0],
            ["chmod", a, 0o444],
            ["write", a, 4, 120, 0],
            ["mkdir", closed, 0o555],
            ["write", inner, 1, 120, 0],
            ["chmod", closed, 0o755],
            ["write", inner, 1, 120, 7],
            ["rmdir", closed],
            ["rmtree", closed],
            ["mkdir", closed, 0o755],
        ],
        str(tmp_path),
    )
    assert ends == [
        *("ok", "ok", "EACCES", "ok", "EACCES", "ok", "ok"),
        *(errno.errorcode[errno.ENOTEMPTY], "ok", "ok"),
    ]
    assert (tmp_path / "a").read_bytes() == b"xxx"
