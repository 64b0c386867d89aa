"""Commits to be looked at, and to be killed: `python committers.py MODE FOLDER ...`.

    sweep FOLDER           one commit of all kinds, killed before each of its steps, and its
                           recovery killed too, then run again; one line of JSON a round
    random FOLDER N SEED   the same, killed N times from outside, at a random moment
    once FOLDER MARK       waits for a line on stdin, commits MARK's change, prints its ending
    stop FOLDER            the same commit, its check raising at every moment that it is called
    crash FOLDER NAME      one commit of all kinds, killed just after NAME was renamed
    full, mount, group FOLDER, flag FOLDER NUMBER
                           a full disk, a mount inside, a group that is not ours to give, a file
                           system without one flag of renameat2: prints what came of it

A layer here is the whole tree as it shall be; the change set is what differs.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from toolcell_sandbox._beneath import kind_of
from toolcell_sandbox._child import syscalls
from toolcell_sandbox.changeset import Change, ChangeSet, Entry
from toolcell_sandbox.commit import Place, commit
from toolcell_sandbox.recovery import Recovered, recover

FIRST_NS = 1_700_000_000_000_000_000
"""A time that no test runs at."""

MUTATING = frozenset(
    {"mkdir", "symlink", "mkfifo", "link", "unlink", "rmdir", "rename", "write", "pwrite"}
    | {"chmod", "fchmod", "chown", "utime", "ftruncate", "setxattr", "removexattr"}
    | {"fsync", "syncfs", "copy_file_range", "sendfile"}
)


class Bench:
    """A workspace, what it shall become, and our state, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace, self.layer = folder / "ws", folder / "layer"
        self.state = folder / "state"

    def made(self, make: Callable[[Path], object] = lambda ws: None) -> Bench:
        """With `make` done in the workspace; the layer is a copy of that, to be changed."""
        self.workspace.mkdir(parents=True)
        make(self.workspace)
        self.copy()
        return self

    def copy(self) -> None:
        """The layer anew."""
        if self.layer.exists():
            remove(self.layer)
        subprocess.run(["cp", "-a", self.workspace, self.layer], check=True)

    @property
    def place(self) -> Place:
        found = self.workspace.stat()
        return Place(
            workspace=str(self.workspace),
            identity=(found.st_dev, found.st_ino),
            state_dir=str(self.state),
        )

    def changes(self) -> ChangeSet:
        return difference(self.workspace, self.layer)

    def commit(self, changes: ChangeSet | None = None, **more: Any) -> Any:
        fd = os.open(self.layer, os.O_PATH | os.O_DIRECTORY)
        try:
            return commit(self.changes() if changes is None else changes, fd, self.place, **more)
        finally:
            os.close(fd)

    def leftovers(self) -> list[str]:
        """Whatever of ours lies in the workspace, and a journal."""
        found = [name for name in names(self.workspace) if ".toolcell-" in name]
        journals = self.state.rglob("journal*") if self.state.exists() else ()
        return found + [str(path) for path in journals]

    def remove(self) -> None:
        if self.folder.exists():
            remove(self.folder)


def remove(folder: Path) -> None:
    """rm -rf, also of what its owner may not write in."""
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)
    shutil.rmtree(folder)


def names(root: Path) -> list[str]:
    """Every path below, relative; folders first."""
    found = []
    for path, folders, files in os.walk(root):
        folders.sort()
        found += [os.path.relpath(os.path.join(path, name), root) for name in folders + files]
    return sorted(found, key=lambda name: name.split("/"))


def entry(path: Path) -> Entry | None:
    """What lies there, or None."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Entry(
        kind=kind_of(found),
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        links=found.st_nlink,
        inode=(found.st_dev, found.st_ino),
        target=os.readlink(path) if stat.S_ISLNK(found.st_mode) else None,
    )


def difference(workspace: Path, layer: Path) -> ChangeSet:
    """The change set that makes `workspace` what `layer` is."""
    changes, first = [], dict[tuple[int, int], str]()
    for name in sorted({*names(workspace), *names(layer)}, key=lambda name: name.split("/")):
        before, after = entry(workspace / name), entry(layer / name)
        link = first.setdefault(after.inode, name) if after and after.kind == "file" else name
        attributes = _attributes(workspace / name, layer / name, before, after)
        if attributes or _facts(before) != _facts(after) or (before is None and link != name):
            changes.append(
                Change(
                    path=name,
                    before=before,
                    after=after,
                    linked_to=None if link == name else link,
                    attributes=attributes,
                )
            )
    return ChangeSet(workspace=str(workspace), changes=tuple(changes))


def _facts(of: Entry | None) -> Any:
    if of is None:
        return None
    facts = (of.kind, of.mode, of.uid, of.gid, of.target)
    return facts if of.kind == "folder" else (*facts, of.size_bytes, of.mtime_ns)


def _attributes(old: Path, new: Path, before: Entry | None, after: Entry | None) -> tuple[str, ...]:
    if before is None or after is None or before.kind != after.kind:
        return ()
    if before.kind not in ("file", "folder"):
        return ()
    sides = [
        {
            (name, os.getxattr(path, name))
            for name in os.listxattr(path)
            if name.startswith("user.") and not name.startswith("user.overlay.")
        }
        for path in (old, new)
    ]
    return tuple(sorted({name for name, _ in sides[0] ^ sides[1]}))


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """Every path with its kind, mode, content or target, and for a file its mtime."""
    found: dict[str, tuple[Any, ...]] = {}
    for name in names(root):
        path = root / name
        status = path.lstat()
        kind = kind_of(status)
        content: Any = None
        if kind == "file":
            content = (hashlib.sha256(path.read_bytes()).hexdigest(), status.st_mtime_ns)
        elif kind == "symlink":
            content = os.readlink(path)
        mode = None if kind == "symlink" else stat.S_IMODE(status.st_mode)
        found[name] = (kind, mode, content)
    return found


def tree_hash(root: Path) -> str:
    return hashlib.sha256(repr(sorted(tree(root).items())).encode()).hexdigest()


def put(path: Path, text: str, mode: int = 0o644, age: int = 0) -> Path:
    """A file at an exact time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.utime(path, ns=(FIRST_NS, FIRST_NS + age))
    return path


def all_kinds(folder: Path) -> Bench:
    """A workspace and a layer that differ in every way that a commit knows."""
    bench = Bench(folder).made(_before)
    _after(bench.layer)
    for path in (bench.workspace, bench.layer):
        (path / "closed").chmod(0o555)
    return bench


def _before(ws: Path) -> None:
    for name in ("same", "edited", "chmodded", "deleted", "becomes-folder", "a/deep/old"):
        put(ws / name, f"{name} before\n")
    for name in ("goes/x", "goes/y/z", "becomes-file/inner/x", "folder/kept", "closed/old"):
        put(ws / name, f"{name} before\n")
    (ws / "link").symlink_to("same")
    (ws / "goes/link").symlink_to("nowhere")
    os.mkfifo(ws / "old-fifo")


def _after(ws: Path) -> None:
    put(ws / "edited", "edited after\n", age=7)
    put(ws / "big", "x" * 200_000, age=8)
    put(ws / "chmodded", "chmodded before\n", 0o755)
    (ws / "deleted").unlink()
    (ws / "old-fifo").unlink()
    remove(ws / "goes")
    (ws / "becomes-folder").unlink()
    put(ws / "becomes-folder/now/file", "new\n", 0o600, 9)
    remove(ws / "becomes-file")
    put(ws / "becomes-file", "a file now\n")
    (ws / "link").unlink()
    (ws / "link").symlink_to("edited")
    put(ws / "new/tree/one", "1\n")
    put(ws / "new/tree/two", "2\n", 0o400)
    os.link(ws / "new/tree/one", ws / "new/linked")
    os.link(ws / "same", ws / "same-linked")
    (ws / "new/dangling").symlink_to("/etc/nothing")
    os.mkfifo(ws / "new/fifo")
    (ws / "new/tree").chmod(0o555)
    put(ws / "a/deep/new", "deep\n")
    (ws / "folder").chmod(0o750)
    put(ws / "closed/new", "in a folder without write permission\n")
    (ws / "closed/old").unlink()


Hit = Callable[[FrameType, str, Any], bool]


def killed_when(hit: Hit, act: Callable[[], object]) -> bool:
    """Do it in a child that SIGKILLs itself when `hit` says so, which sees every call and return.

    True when it was killed, False when it came to its end.
    """
    pid = os.fork()
    if pid == 0:

        def watch(frame: FrameType, event: str, argument: Any) -> None:
            if hit(frame, event, argument):
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(watch)
            act()
        except BaseException:  # noqa: BLE001 - nothing leaves a forked child
            sys.setprofile(None)
            sys.excepthook(*sys.exc_info())
            os._exit(3)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError("the child failed")
    return os.WIFSIGNALED(status)


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """The same, before its `step`th change of any file."""
    count = 0

    def hit(frame: FrameType, event: str, argument: Any) -> bool:
        nonlocal count
        if event == "c_call":
            ours = getattr(argument, "__module__", None) == "posix"
            name = argument.__name__
        else:
            ours = event == "call" and frame.f_code.co_filename.endswith("_commit_kernel.py")
            name = frame.f_code.co_name
        count += ours and name in MUTATING
        return ours and name in MUTATING and count == step

    return killed_when(hit, act)


def killed_after_rename(name: str, act: Callable[[], object]) -> bool:
    """The same, just after the rename to or from this name; or the record "applied"."""

    def hit(frame: FrameType, event: str, argument: Any) -> bool:
        if name == "applied":
            return event == "return" and frame.f_code.co_name == "write_applied"
        return (
            event == "return"
            and frame.f_code.co_name == "rename"
            and frame.f_code.co_filename.endswith("_commit_kernel.py")
            and name in (frame.f_locals["old"], frame.f_locals["new"])
        )

    return killed_when(hit, act)


def judged(bench: Bench, before: str, after: str) -> dict[str, Any]:
    """Recover, and say how the workspace is."""
    recovered = recover(bench.place)
    again = recover(bench.place)
    found = tree_hash(bench.workspace)
    told = recovered.outcome if isinstance(recovered, Recovered) else recovered
    return {
        "is": {before: "before", after: "after"}.get(found, "half"),
        "recovered": told if told is None or isinstance(told, str) else repr(told),
        "kept": list(recovered.kept) if isinstance(recovered, Recovered) else [],
        "left": bench.leftovers(),
        "again": repr(again),
    }


def both(folder: Path) -> tuple[str, str]:
    """The hash of the workspace before and after a commit that nobody kills."""
    bench = all_kinds(folder)
    before = tree_hash(bench.workspace)
    ending = bench.commit()
    if ending is not None:
        raise AssertionError(ending)
    after = tree_hash(bench.workspace)
    bench.remove()
    return before, after


def sweep(folder: Path) -> None:
    in_memory(folder)
    chance = random.Random(4)
    before, after = both(folder / "plain")
    step = 0
    while True:
        step += 1
        bench = all_kinds(folder / f"{step}")
        commits = partial(bench.commit, bench.changes())
        recovers = partial(recover, bench.place)
        if not killed_at(step, commits):
            bench.remove()
            return
        again = chance.randrange(1, 30)
        twice = killed_at(again, recovers)
        told = judged(bench, before, after)
        print(json.dumps({"step": step, "twice": twice, **told}), flush=True)
        bench.remove()


def at_random(folder: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    before, after = both(folder / "plain")
    longest_s = 0.0
    for number in range(rounds):
        bench = all_kinds(folder / f"{number}")
        changes = bench.changes()
        if not longest_s:
            began = time.monotonic()
            killed_at(0, partial(bench.commit, changes))
            longest_s = time.monotonic() - began
            bench.remove()
            bench = all_kinds(folder / f"{number}")
            changes = bench.changes()
        pid = os.fork()
        if pid == 0:
            try:
                bench.commit(changes)
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0, 1.1 * longest_s))  # The random moment itself.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        print(json.dumps({"step": number, **judged(bench, before, after)}), flush=True)
        bench.remove()


def once(folder: Path, mark: str) -> None:
    """One of several committers, which all saw the same workspace before any began."""
    bench = Bench(folder)
    bench.layer = folder / f"layer-{mark}"
    bench.copy()
    put(bench.layer / "file", f"{mark}\n", age=11)
    changes = bench.changes()
    print("ready", flush=True)
    sys.stdin.readline()
    print(repr(bench.commit(changes)), flush=True)


def crash(folder: Path, name: str) -> None:
    """A commit of all kinds that is killed just after this name was renamed."""
    bench = all_kinds(folder)
    print(killed_after_rename(name, bench.commit))


def own_namespace() -> None:
    """A user namespace in which only our own ids have a meaning, and its mounts."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def in_memory(folder: Path) -> None:
    """What is killed and not cut off from power needs no disk, and many fsyncs cost a minute."""
    own_namespace()
    syscalls.mount("tmpfs", str(folder), "tmpfs", 0, "mode=700")


class Stop(Exception):
    """What a caller's check raises."""


class Meddler:
    """A `check` that does something at its nth call."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.count, self.at, self.act = 0, at, act

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.act()


def stop() -> None:
    raise Stop


def stopped(folder: Path) -> None:
    """A commit of all kinds whose check raises, at every moment that it is asked."""
    in_memory(folder)
    at, wrong = 0, 0
    while True:
        at += 1
        bench = all_kinds(folder / f"{at}")
        before = tree_hash(bench.workspace)
        try:
            bench.commit(check=Meddler(at, stop))
        except Stop:
            wrong += tree_hash(bench.workspace) != before or bench.leftovers() != []
        else:
            break
        bench.remove()
    print(json.dumps({"moments": at - 1, "wrong": wrong}))


def on_a_full_disk(folder: Path) -> None:
    own_namespace()
    (folder / "ws").mkdir(parents=True)
    syscalls.mount("tmpfs", str(folder / "ws"), "tmpfs", 0, "size=1m,mode=700")
    bench = Bench(folder)
    put(bench.workspace / "file", "before")
    bench.copy()
    before = tree(bench.workspace)
    put(bench.layer / "file", "after", age=1)
    put(bench.layer / "new/small", "x")
    put(bench.layer / "new/too-large", "x" * 2_000_000)
    ending = bench.commit()
    same = tree(bench.workspace) == before
    (bench.layer / "new/too-large").unlink()
    control = bench.commit()
    told = [type(ending).__name__, getattr(ending, "errno", None), same, bench.leftovers()]
    print(json.dumps([*told, control, tree(bench.workspace) == tree(bench.layer)]))


def with_a_mount(folder: Path) -> None:
    own_namespace()
    bench = Bench(folder).made(lambda ws: [put(ws / "sub/file", "x"), put(ws / "file", "x")])
    put(bench.layer / "sub/new", "new")
    put(bench.layer / "file", "after", age=1)
    changes = bench.changes()
    syscalls.mount("tmpfs", str(bench.workspace / "sub"), "tmpfs", 0, "size=1m")
    ending = bench.commit(changes)
    inside = os.listdir(bench.workspace / "sub")
    syscalls.umount_detach(str(bench.workspace / "sub"))
    control = bench.commit(changes)
    print(json.dumps([repr(ending), inside, control, bench.leftovers()]))


def foreign_group(folder: Path) -> None:
    own_namespace()
    bench = Bench(folder).made(lambda ws: put(ws / "old", "x"))
    put(bench.layer / "old", "y", age=1)
    put(bench.layer / "created", "z")
    told = []
    for name in ("old", "created"):
        (one,) = [change for change in bench.changes().changes if change.path == name]
        if one.after is None:
            raise AssertionError(one)
        foreign = replace(one, after=replace(one.after, gid=54321))
        changes = ChangeSet(workspace=str(bench.workspace), changes=(foreign,))
        told.append(repr(bench.commit(changes)))
    content = (bench.workspace / "old").read_text()
    print(json.dumps([*told, content, sorted(names(bench.workspace))]))


def without_flag(folder: Path, flag: int) -> None:
    """On a kernel whose renameat2 answers EINVAL to one flag, as some file systems do."""
    bench = all_kinds(folder)
    before = tree_hash(bench.workspace)
    _refuse_rename_flag(flag)
    ending = bench.commit()
    told = [type(ending).__name__, getattr(ending, "text", "")]
    print(json.dumps([*told, tree_hash(bench.workspace) == before, bench.leftovers()]))


def _refuse_rename_flag(flag: int) -> None:
    load, equal, end = 0x20, 0x15, 0x06
    number = {"x86_64": 316, "aarch64": 276}[os.uname().machine]
    program = [
        (load, 0, 0, 0),  # seccomp_data.nr
        (equal, 0, 3, number),
        (load, 0, 0, 16 + 4 * 8),  # the low half of the fifth argument
        (equal, 0, 1, flag),
        (end, 0, 0, 0x00050000 | errno.EINVAL),
        (end, 0, 0, 0x7FFF0000),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    )
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.prctl(syscalls.PR_SET_SECCOMP, syscalls.SECCOMP_MODE_FILTER, ctypes.addressof(header))


MODES: dict[str, Callable[..., None]] = {
    "sweep": sweep,
    "random": lambda folder, rounds, seed: at_random(folder, int(rounds), int(seed)),
    "once": once,
    "crash": crash,
    "stop": stopped,
    "full": on_a_full_disk,
    "mount": with_a_mount,
    "group": foreign_group,
    "flag": lambda folder, flag: without_flag(folder, int(flag)),
}

if __name__ == "__main__":
    MODES[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
