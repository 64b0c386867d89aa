"""The change set of real upper layers: what a call did, found without ever being led astray."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolcell_sandbox._child.remove import remove_tree
from toolcell_sandbox._upper_entry import Attributes, differing
from toolcell_sandbox.changeset import Change, ChangeSet
from toolcell_sandbox.upper import (
    Layer,
    Marker,
    TooMany,
    changes_of,
    content_hashes,
    open_file,
)

INSIDE = """
import array, ctypes, json, os, shutil, socket, stat, subprocess, sys, traceback
libc = ctypes.CDLL(None, use_errno=True)
def call(result, what):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
def mount(source, target, kind, flags, data):
    made = libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data)
    call(made, target)
link = socket.socket(fileno=int(sys.argv[1]))
ws, base, masks = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
uid, gid = os.getuid(), os.getgid()
call(libc.unshare(0x10000000 | 0x20000), "unshare")
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"1000 {uid} 1")
open("/proc/self/gid_map", "w").write(f"1000 {gid} 1")
mount("layers", base, "tmpfs", 0, b"mode=0755")
lower, mask, upper, work, top = (f"{base}/{name}" for name in ("l", "m", "u", "k", "o"))
for name in (lower, mask, upper, work, top):
    os.mkdir(name)
mount(ws, lower, None, 0x1000, None)
shutil.copystat(lower, mask)
for path in masks:
    path = os.fsencode(path)
    at = os.fsencode(mask)
    for name in path.split(b"/")[:-1]:
        at += b"/" + name
        if not os.path.isdir(at):
            os.mkdir(at)
    os.mknod(os.path.join(os.fsencode(mask), path), stat.S_IFCHR, 0)
for folder, _, _ in os.walk(os.fsencode(mask), topdown=False):
    shutil.copystat(os.fsencode(lower) + folder[len(os.fsencode(mask)):], folder)
options = f"lowerdir={mask}:{lower},upperdir={upper},workdir={work},userxattr"
mount("ws", top, "overlay", 0, options.encode())
held = os.open(upper, os.O_RDONLY | os.O_DIRECTORY)
os.chdir(top)
link.send(b"mounted")
while True:
    source = link.recv(100_000).decode()
    if not source:
        break
    try:
        exec(source, {"os": os, "subprocess": subprocess, "libc": libc, "ctypes": ctypes})
        link.send(b"done")
    except BaseException:
        link.send(traceback.format_exc().encode()[-60_000:])
socket.send_fds(link, [b"layer"], [held])
"""


class Call:
    """A jail's overlay over a workspace, in which one thing is done after the other."""

    def __init__(self, workspace: Path, base: Path, masks: tuple[str, ...]) -> None:
        self.workspace = workspace
        self.masks = masks
        self.workspace_fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY)
        self.layer_fd: int | None = None
        base.mkdir()
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The coarse clock must have passed the stamp of what the test prepared.
        since = time.time_ns()
        while (marker := Marker.now()).realtime_ns <= since:
            pass
        self.marker = marker
        with theirs:
            self.inside = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", INSIDE),
                    *(str(theirs.fileno()), str(workspace), str(base)),
                    "[" + ",".join(f'"{mask}"' for mask in masks) + "]",
                ],
                pass_fds=[theirs.fileno()],
            )
        assert self.link.recv(100) == b"mounted"

    def python(self, source: str) -> None:
        """Run this in the workspace, as the call sees it."""
        self.link.send(dedent(source).encode())
        answer = self.link.recv(100_000)
        assert answer == b"done", answer.decode()

    def shell(self, script: str) -> None:
        """The same, for sh."""
        self.python(f"subprocess.run(['/bin/sh', '-ec', {dedent(script)!r}], check=True)")

    def end(self) -> Layer:
        """The layer that stays when all of it is dead."""
        if self.layer_fd is None:
            self.link.shutdown(socket.SHUT_WR)
            _, fds, _, _ = socket.recv_fds(self.link, 10, 1)
            assert self.inside.wait() == 0
            (self.layer_fd,) = fds
        own = {os.getuid(): os.getuid()}, {os.getgid(): os.getgid()}
        return Layer(
            fd=self.layer_fd,
            uids=own[0],
            gids=own[1],
            owner=(os.getuid(), os.getgid()),
            marker=self.marker,
            masks=frozenset(self.masks),
        )

    def changes(self, **options: Any) -> ChangeSet:
        """What it did."""
        return changes_of(self.end(), self.workspace_fd, str(self.workspace), **options)

    def close(self) -> None:
        self.link.close()
        self.inside.kill()
        self.inside.wait()
        os.close(self.workspace_fd)
        if self.layer_fd is not None:
            os.close(self.layer_fd)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder.resolve()


@pytest.fixture
def mounted(workspace: Path, tmp_path: Path, ledger: None) -> Iterator[Callable[..., Call]]:
    """Mounts the workspace as it is now; the ledger sees that no descriptor is left."""
    calls: list[Call] = []

    def mount(*masks: str) -> Call:
        calls.append(Call(workspace, tmp_path / f"layers{len(calls)}", masks))
        return calls[-1]

    yield mount
    for call in calls:
        call.close()


def fill(top: Path, **files: str) -> None:
    """Files by name, `__` for a slash."""
    for name, text in files.items():
        path = top / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def told(found: ChangeSet) -> list[str]:
    """The set in short: `+` created, `-` deleted, `~` modified, `#` masked."""
    signs = {"created": "+", "deleted": "-", "modified": "~"}
    return [f"{signs[c.sort]}{'#' if c.masked else ''}{c.path}" for c in found.changes]


def the(found: ChangeSet, path: str) -> Change:
    (change,) = (c for c in found.changes if c.path == path)
    return change


def assert_plain(found: ChangeSet) -> None:
    assert found.conflicts == ()
    assert found.problems == ()


# ---------------------------------------------------------------- what is in a set


def test_every_kind_of_change_is_told(mounted, workspace):
    """Otherwise something would be kept, or lost, that nobody has judged."""
    fill(workspace, kept="k", edited="old", gone="g", mode="m", folder__gone="f", folder__kept="k")
    fill(workspace, removed__a="a", removed__b__c="c")
    (workspace / "link").symlink_to("kept")
    os.mkfifo(workspace / "pipe")
    call = mounted()
    call.shell(
        """
        echo new > edited; rm gone; chmod 750 mode; rm folder/gone; rm -r removed
        ln -sfn elsewhere link; rm pipe
        mkdir made; echo x > made/file; ln -s file made/link; mkfifo made/pipe; mkdir made/empty
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("~edited", "-folder/gone", "-gone", "~link"),
        *("+made", "+made/empty", "+made/file", "+made/link", "+made/pipe"),
        *("~mode", "-pipe", "-removed", "-removed/a", "-removed/b", "-removed/b/c"),
    ]
    assert next(c.path for c in found.of_sort("deleted")) == "folder/gone"
    edited = the(found, "edited")
    assert edited.before is not None
    assert edited.after is not None
    assert (edited.before.size_bytes, edited.after.size_bytes) == (3, 4)
    real = os.lstat(workspace / "edited")
    assert edited.before.inode == (real.st_dev, real.st_ino)
    assert edited.before.ctime_ns == real.st_ctime_ns
    assert edited.content_changed
    mode = the(found, "mode")
    assert mode.after is not None
    assert mode.after.mode == 0o750
    assert not mode.content_changed
    link = the(found, "link")
    assert link.before is not None
    assert link.after is not None
    assert (link.before.target, link.after.target) == ("kept", "elsewhere")
    kinds = {c.path: c.after.kind for c in found.of_sort("created") if c.after is not None}
    assert kinds["made/pipe"] == "fifo"
    assert kinds["made/empty"] == "folder"
    # A policy's cut reaches what a created folder would have held.
    assert told(found.without(frozenset({"made", "removed"})))[-2:] == ["~mode", "-pipe"]


def test_a_copy_up_without_a_change_is_none(mounted, workspace):
    """Otherwise each file that a program opened for writing would be asked about."""
    fill(workspace, a="a", folder__b="b", empty="")
    os.setxattr(workspace / "a", "user.kept", b"1")
    (workspace / "link").symlink_to("a")
    call = mounted()
    call.python(
        """
        for name in ("a", "folder/b", "empty"):
            os.close(os.open(name, os.O_RDWR))
        os.chmod("folder", os.stat("folder").st_mode & 0o7777)
        open("folder/temporary", "w").close(); os.unlink("folder/temporary")
        times = os.lstat("link")
        os.utime("link", ns=(times.st_atime_ns, times.st_mtime_ns), follow_symlinks=False)
        """
    )
    found = call.changes()
    assert found == ChangeSet(workspace=str(workspace))
    layer = sorted(os.listdir(call.end().fd))
    assert layer == ["a", "empty", "folder", "link"], "the control: all of it was copied up"


def test_a_folder_counts_by_mode_owner_and_attributes_never_by_time(mounted, workspace):
    """Otherwise each file that is made in a folder would be a change of the folder too."""
    fill(workspace, a__x="x", b__x="x", c__x="x")
    call = mounted()
    call.python(
        """
        open("a/new", "w").close()
        os.utime("a")
        os.chmod("b", 0o700 if os.stat("b").st_mode & 0o77 else 0o755)
        os.setxattr("c", "user.tag", b"1")
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["+a/new", "~b", "~c"]
    assert not the(found, "b").content_changed
    assert the(found, "c").attributes == ("user.tag",)


def test_times_modes_and_attributes_alone_are_changes_of_a_file(mounted, workspace):
    """Otherwise an executable bit, or a tag that a program goes by, would pass unseen."""
    fill(workspace, touched="t", mode="m", tagged="x", untagged="x", retagged="x")
    os.setxattr(workspace / "untagged", "user.tag", b"1")
    os.setxattr(workspace / "retagged", "user.tag", b"1")
    call = mounted()
    call.python(
        """
        os.utime("touched", ns=(5, 5))
        os.chmod("mode", 0o711)
        os.setxattr("tagged", "user.tag", b"1")
        os.removexattr("untagged", "user.tag")
        os.setxattr("retagged", "user.tag", b"2")
        open("new", "w").close()
        os.setxattr("new", "user.tag", b"2")
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["~mode", "+new", "~retagged", "~tagged", "~touched", "~untagged"]
    assert {c.path: c.attributes for c in found.changes} == {
        **dict.fromkeys(("mode", "touched"), ()),
        **dict.fromkeys(("new", "retagged", "tagged", "untagged"), ("user.tag",)),
    }
    assert [c.path for c in found.changes if c.content_changed] == ["new"]


def test_content_of_the_same_size_is_found_whatever_the_times_say(mounted, workspace):
    """Otherwise a call could set the time back and have its bytes kept unseen."""
    size = (1 << 20) + 10
    (workspace / "big").write_bytes(bytes(size))
    (workspace / "same").write_bytes(bytes(size))
    call = mounted()
    call.python(
        f"""
        for name, byte in (("big", b"x"), ("same", bytes(1))):
            times = os.stat(name)
            with open(name, "r+b") as file:
                file.seek({size} - 1)
                file.write(byte)
            os.utime(name, ns=(times.st_atime_ns, times.st_mtime_ns))
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["~big"]
    change = the(found, "big")
    assert change.content_changed
    assert change.before is not None
    assert change.after is not None
    assert change.before.mtime_ns == change.after.mtime_ns, "the control: it was set back"


def test_a_type_change_takes_what_the_folder_held(mounted, workspace):
    """Otherwise a file put in a folder's place would delete a tree that nobody has listed."""
    fill(workspace, was_folder__a__b="b", was_file="f", to_link__x="x")
    (workspace / "was_link").symlink_to("was_file")
    call = mounted()
    call.shell(
        """
        rm -r was_folder; echo f > was_folder
        rm was_file; mkdir was_file; echo n > was_file/new
        rm was_link; mkdir was_link; echo n > was_link/new
        rm -r to_link; ln -s / to_link
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("~to_link", "-to_link/x", "~was_file", "+was_file/new"),
        *("~was_folder", "-was_folder/a", "-was_folder/a/b", "~was_link", "+was_link/new"),
    ]
    sides = {
        c.path: (c.before.kind, c.after.kind)
        for c in found.changes
        if c.before is not None and c.after is not None
    }
    assert sides == {
        "to_link": ("folder", "symlink"),
        "was_file": ("file", "folder"),
        "was_folder": ("folder", "file"),
        "was_link": ("symlink", "folder"),
    }


def test_a_folder_that_was_made_anew_loses_what_it_held_before(mounted, workspace):
    """Otherwise `rm -r build; mkdir build` would keep what it removed, or hide that it did."""
    fill(workspace, build__old="o", build__both="b", build__sub__old="o", build__sub__deep__x="x")
    call = mounted()
    call.python(
        """
        import shutil
        times = os.stat("build/both")
        shutil.rmtree("build")
        os.makedirs("build/sub/deep")
        open("build/sub/deep/new", "w").close()
        open("build/both", "w").write("b")
        os.utime("build/both", ns=(times.st_atime_ns, times.st_mtime_ns))
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("-build/old", "+build/sub/deep/new", "-build/sub/deep/x", "-build/sub/old"),
    ]


def test_an_overlay_of_renames_and_hard_links_is_read_as_it_was_meant(mounted, workspace):
    """Otherwise a rename would look like somebody else's removal, and the call be thrown away."""
    fill(workspace, a="content of a", b="b", g="g", folder__x="x")
    (workspace / "link").symlink_to("a")
    call = mounted()
    call.shell("mv a moved; mv b folder/x; ln g second; mv link link2")
    fill(workspace, unrelated="somebody saves a file beside them")
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("-a", "-b", "~folder/x", "-link", "+link2", "+moved", "+second"),
    ]
    assert the(found, "second").linked_to == "g"


def test_a_file_that_was_moved_and_edited_is_no_conflict(mounted, workspace):
    """Otherwise a call could not rename a file and write to it."""
    fill(workspace, a="a")
    call = mounted()
    call.shell("mv a moved; echo more >> moved")
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["-a", "+moved"]


def test_an_editor_that_keeps_a_backup_is_no_conflict(mounted, workspace):
    """Otherwise a name that was moved away and written anew would look like a removal."""
    fill(workspace, a="content")
    call = mounted()
    call.shell("mv a a~; echo new > a")
    fill(workspace, unrelated="u")
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["~a", "+a~"]


# ---------------------------------------------------------------- hard links


def test_names_of_one_file_are_one_file(mounted, workspace):
    """Otherwise a repository's object store would be copied as many times as it has links."""
    fill(workspace, lower="l", other="o", twin1="t")
    os.link(workspace / "twin1", workspace / "twin2")
    call = mounted()
    call.shell(
        """
        echo x > b; ln b c; mkdir a; ln b a/first; ln -s b s; ln -P s s2
        ln lower z; ln -f lower other
        ln twin1 twin3
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["+a", "+a/first", "+b", "+c", "~other", "+s", "+s2", "+twin3", "+z"]
    assert {c.path: c.linked_to for c in found.changes if c.linked_to is not None} == {
        "b": "a/first",
        "c": "a/first",
        "other": "lower",
        "twin3": "twin1",
        "z": "lower",
    }
    hashes = content_hashes(call.end(), found)
    assert hashes["a/first"] == hashes["b"] == hashlib.sha256(b"x\n").hexdigest()


def test_a_name_that_became_a_link_of_an_equal_file_is_a_change(mounted, workspace):
    """Otherwise two files would become one, or one two, without a word."""
    fill(workspace, a="same", b="same")
    os.utime(workspace / "a", ns=(7, 7))
    os.utime(workspace / "b", ns=(7, 7))
    call = mounted()
    call.shell("ln -f a b")
    found = call.changes()
    assert told(found) == ["~b"]
    assert the(found, "b").linked_to == "a"
    assert not the(found, "b").content_changed


def test_a_name_that_is_masked_is_nobodys_first_name(mounted, workspace):
    """Otherwise, when the masked name is dropped, its second name would be made a link to the
    secret that the call never saw."""
    fill(workspace, a__env="secret", z="z")
    call = mounted("a/env")
    call.shell("echo mine > a/env; ln a/env a/zz; ln a/env b")
    found = call.changes()
    assert told(found) == ["~#a/env", "+a/zz", "+b"]
    assert the(found, "a/env").linked_to is None
    assert the(found, "a/zz").linked_to is None
    assert the(found, "b").linked_to == "a/zz"


# ---------------------------------------------------------------- masks


def test_a_folder_that_goes_names_the_secret_that_goes_with_it(mounted, workspace):
    """Otherwise `rm -rf a` would delete an `.env` that the jail never saw."""
    fill(workspace, a__b__plain="p", a__b__env="secret", a__keys__k="k", kept__env="secret")
    call = mounted("a/b/env", "a/keys", "kept/env")
    call.shell('test "$(ls a)" = b; rm -rf a; echo x > kept/new')
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("-a", "-a/b", "-#a/b/env", "-a/b/plain", "-#a/keys", "-#a/keys/k", "+kept/new"),
    ]
    assert (workspace / "a/b/env").read_text() == "secret"


def test_a_folder_that_is_made_anew_names_the_secret_it_would_take(mounted, workspace):
    """Otherwise `git checkout` of a folder would quietly empty it of what was masked."""
    fill(workspace, a__plain="p", a__env="secret", a__keys__k="k")
    call = mounted("a/env", "a/keys")
    call.shell("rm -rf a; mkdir a; echo p > a/plain")
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["-#a/env", "-#a/keys", "-#a/keys/k", "~a/plain"]


def test_what_is_made_in_place_of_a_masked_name_is_masked(mounted, workspace):
    """Otherwise a placeholder of the call's would overwrite the real secret, or merge with it."""
    fill(workspace, env="secret", keys__k="k", keys__l="l", absent__x="x", gone="g")
    call = mounted("env", "keys", "absent/later", "gone")
    call.shell("echo mine > env; mkdir keys; echo mine > keys/k; echo n > keys/n; : > absent/later")
    call.shell("mkdir gone; echo x > gone/x")
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("+#absent/later", "~#env", "~#gone", "+#gone/x"),
        *("~#keys", "~#keys/k", "-#keys/l", "+#keys/n"),
    ]
    before = the(found, "env").before
    assert before is not None
    assert before.size_bytes == len("secret")


def test_the_answer_does_not_tell_whether_a_guess_at_a_secret_was_right(mounted, workspace):
    """Otherwise a call could find out a masked file by guessing at it."""
    fill(workspace, env="secret")
    times = os.stat(workspace / "env")
    call = mounted("env")
    call.python(
        f"""
        open("env", "w").write("secret")
        os.chmod("env", {stat.S_IMODE(times.st_mode)})
        os.utime("env", ns=(0, {times.st_mtime_ns}))
        """
    )
    found = call.changes()
    assert told(found) == ["~#env"]
    assert the(found, "env").content_changed


def test_a_mask_does_not_reach_its_near_miss(mounted, workspace):
    """Otherwise `.env` would mask `.env.example`, and everyday work be refused."""
    fill(workspace, a__env="secret", a__env2="x", ab__env="y")
    call = mounted("a/env")
    call.shell("rm -r a ab")
    assert told(call.changes()) == ["-a", "-#a/env", "-a/env2", "-ab", "-ab/env"]


def test_what_came_and_went_in_place_of_a_masked_name_is_no_change(mounted, workspace):
    """Otherwise a placeholder that a call has cleaned up would take the secret with it."""
    fill(workspace, env="secret", keys__k="k")
    call = mounted("env", "keys")
    call.shell("echo mine > env; rm env; mkdir keys; : > keys/x; rm -r keys")
    assert call.changes() == ChangeSet(workspace=str(workspace))


# ---------------------------------------------------------------- odd names, depths and modes


def test_odd_names_come_through_whole(mounted, workspace):
    """Otherwise a name could hide itself, or pose as two."""
    odd = ["new\nline", "\udcff\udcfe", "ü", "-rf", "a\\b", " ", "x" * 255, "\udce2\udc80" * 127]
    fill(workspace, folder__x="x")
    (workspace / "gone\n\udcff").mkdir()
    (workspace / "gone\n\udcff" / "\udcfe").write_text("x")
    call = mounted()
    call.python(
        f"""
        for name in {odd!r}:
            open(name, "w").close()
            os.mkdir("folder/" + name)
        subprocess.run(["rm", "-r", "--", {"gone" + chr(10) + chr(0xDCFF)!r}], check=True)
        """
    )
    found = call.changes()
    assert_plain(found)
    made = {c.path for c in found.of_sort("created")}
    assert made == {*odd, *(f"folder/{name}" for name in odd)}
    assert [c.path for c in found.of_sort("deleted")] == ["gone\n\udcff", "gone\n\udcff/\udcfe"]
    assert ChangeSet.from_json(found.to_json()) == found
    keys = [c.path.split("/") for c in found.changes]
    assert keys == sorted(keys)
    # Each name is found again in the layer by the path that was told.
    assert set(content_hashes(call.end(), found)) == set(odd)


def test_a_folder_comes_before_what_it_holds_and_its_neighbours_after(mounted, workspace):
    """Otherwise `a.b` between `a` and `a/x` would break whoever reads the set in order."""
    call = mounted()
    call.shell("mkdir a a.b; : > a/x; : > a.b/x; : > 'a b'; : > a0")
    assert told(call.changes()) == ["+a", "+a/x", "+a b", "+a.b", "+a.b/x", "+a0"]


def test_a_chain_of_3000_folders_is_a_problem_and_no_crash(mounted, workspace):
    """Otherwise a call could end the supervisor by a recursion limit, or hold up the walk."""
    call = mounted()
    call.python(
        """
        for _ in range(3_000):
            os.mkdir("d")
            os.chdir("d")
        """
    )
    found = call.changes()
    (problem,) = found.problems
    assert problem.code == "path_too_long"
    assert len(f"{workspace}/{problem.path}") in (4096, 4097)
    assert len(found.changes) == problem.path.count("/")


def test_a_chain_below_that_is_too_deep_cannot_be_removed(mounted, workspace):
    """Otherwise the part that has no path would be deleted unlisted."""
    here = os.open(workspace, os.O_RDONLY)
    fds = [here]
    for _ in range(3_000):
        os.mkdir("d", dir_fd=fds[-1])
        fds.append(os.open("d", os.O_RDONLY, dir_fd=fds[-1]))
        os.close(fds.pop(-2))
    os.close(fds.pop())
    call = mounted()
    call.shell("rm -r d")
    found = call.changes()
    # pytest's own removal recurses.
    assert remove_tree(str(workspace / "d"))
    assert [problem.code for problem in found.problems] == ["path_too_long"]


def test_what_the_worker_made_unreadable_is_read_and_its_mode_kept(mounted, workspace):
    """Otherwise `chmod 000` would hide a change, or the mode that the call set be lost."""
    fill(workspace, old="old", folder__old="old", same="same", same2="same")
    call = mounted()
    call.python(
        """
        import shutil
        os.makedirs("a/b/c")
        open("a/b/c/file", "w").write("hidden")
        open("two", "w").close()
        os.link("two", "names")
        for name in ("old", "folder/old"):
            open(name, "w").write("new")
        for name in ("a/b/c/file", "a/b/c", "a/b", "a", "two", "old", "folder/old", "folder", "."):
            os.chmod(name, 0)
        """
    )
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("+a", "+a/b", "+a/b/c", "+a/b/c/file", "~folder", "~folder/old", "+names", "~old"),
        "+two",
    ]
    assert {c.after.mode for c in found.changes if c.after is not None} == {0}
    hashes = content_hashes(call.end(), found)
    assert hashes["a/b/c/file"] == hashlib.sha256(b"hidden").hexdigest()
    assert stat.S_IMODE(os.stat(workspace / "old").st_mode) != 0
    assert stat.S_IMODE(os.stat(workspace).st_mode) != 0


def test_a_folder_below_that_we_may_not_list_cannot_be_removed(mounted, workspace):
    """Otherwise what it holds would be deleted unlisted. (Root may list all: the control.)"""
    (workspace / "closed").mkdir()
    fill(workspace, closed__file="x", open__file="x")
    call = mounted()
    call.shell("rm -r closed open")
    os.chmod(workspace / "closed", 0)
    found = call.changes()
    os.chmod(workspace / "closed", 0o700)
    assert "-open/file" in told(found)
    if os.geteuid() == 0:
        assert "-closed/file" in told(found)
    else:
        assert [(p.path, p.code) for p in found.problems] == [("closed", "unreadable")]


def test_a_file_below_that_we_may_not_read_counts_as_changed(mounted, workspace):
    """Otherwise what cannot be compared would be taken for the same. (Root may read all.)"""
    fill(workspace, closed="same")
    os.chmod(workspace / "closed", 0)
    call = mounted()
    call.python("os.utime('closed', ns=(5, 5))")
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["~closed"]
    assert the(found, "closed").content_changed == (os.geteuid() != 0)
    assert stat.S_IMODE(os.stat(workspace / "closed").st_mode) == 0


# ---------------------------------------------------------------- what cannot be kept


def test_sockets_and_attributes_that_cannot_be_kept_are_problems(mounted, workspace):
    """Otherwise the set would be kept without them, and nobody told."""
    fill(workspace, plain="p", folder__x="x", tagged="x")
    call = mounted()
    call.python(
        """
        import socket
        socket.socket(socket.AF_UNIX).bind("sock")
        subprocess.run(["rm", "-r", "folder"], check=True)
        socket.socket(socket.AF_UNIX).bind("folder")
        os.mkdir("own"); os.setxattr("own", "user.overlay.opaque", b"y")
        os.setxattr("plain", "user.overlay.whiteout", b"y")
        """
    )
    found = call.changes()
    assert [(p.path, p.code) for p in found.problems] == [
        ("folder", "socket"),
        ("own", "attribute"),
        ("plain", "attribute"),
        ("sock", "socket"),
    ]
    # A socket is nothing that could be kept in the folder's place: so nothing goes for it.
    assert told(found) == ["+own"]
    assert found


def test_marks_that_no_overlay_makes_and_devices_are_problems(tmp_path, workspace, ledger):
    """Otherwise a layer that something else has written would be read by half."""
    layer = tmp_path / "layer"
    fill(layer, metacopy="m", opaque__x="x", redirect__x="x")
    os.setxattr(layer / "metacopy", "user.overlay.metacopy", b"")
    os.setxattr(layer / "opaque", "user.overlay.opaque", b"x")
    os.setxattr(layer / "redirect", "user.overlay.redirect", b"/x")
    found = plain_layer(layer, workspace)
    assert [(p.path, p.code) for p in found.problems] == [
        (name, "attribute") for name in ("metacopy", "opaque", "redirect")
    ]
    assert found.changes == ()


def test_more_attributes_than_can_be_listed_are_a_problem(mounted, workspace):
    """Otherwise a mark could stand behind the 64 KiB that a list may have."""
    call = mounted()
    call.python(
        """
        open("many", "w").close()
        for n in range(270):
            os.setxattr("many", f"user.{n:03}{'x' * 240}", b"")
        """
    )
    found = call.changes()
    assert [(p.path, p.code) for p in found.problems] == [("many", "attribute")]


SUBMOUNT = """
import ctypes, os, sys
from toolcell_sandbox.upper import Layer, Marker, changes_of
layer, workspace, mounts = sys.argv[1], sys.argv[2], sys.argv[3:]
libc = ctypes.CDLL(None, use_errno=True)
fds = os.open(layer, os.O_RDONLY), os.open(workspace, os.O_PATH)
assert libc.unshare(0x10000000 | 0x20000) == 0, os.strerror(ctypes.get_errno())
for name in mounts:
    at = os.path.join(workspace, name).encode()
    assert libc.mount(b"tmpfs", at, b"tmpfs", 0, b"") == 0, os.strerror(ctypes.get_errno())
fds = fds[0], os.open(workspace, os.O_PATH)
taken = Layer(fd=fds[0], uids={}, gids={}, owner=(0, 0), marker=Marker.now(), masks=frozenset())
found = changes_of(taken, fds[1], workspace)
print(*(change.path for change in found.changes if change.after is None))
print(*(f"{problem.code}={problem.path}" for problem in found.problems))
"""


def test_a_mount_in_the_workspace_is_a_problem_and_stays_unlisted(workspace, tmp_path):
    """Otherwise another file system's files, or those that it covers, would be deleted."""
    layer = tmp_path / "layer"
    fill(workspace, gone__sub__covered="c", gone__x="x", merged__covered="c", whole__covered="c")
    fill(layer, merged__made="m")
    os.setxattr(layer / "merged", "user.overlay.origin", b"")
    for name in ("gone", "whole"):
        os.mknod(layer / name, stat.S_IFCHR, 0)

    def look(*mounts: str) -> list[str]:
        argv = [sys.executable, "-c", SUBMOUNT, str(layer), str(workspace), *mounts]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()

    assert look("gone/sub", "merged", "whole") == [
        "gone gone/x",
        "submount=gone/sub submount=merged submount=whole",
    ]
    assert look() == [
        "gone gone/sub gone/sub/covered gone/x whole whole/covered",
        "",
    ], "the control"


def test_attributes_that_only_the_kernel_gives_are_told_from_those_that_are_lost():
    """Otherwise every file would be a problem under SELinux, or a capability pass to new bytes."""
    acl, label, cap = "system.posix_acl_access", "security.selinux", "security.capability"

    def told(here: dict[str, bytes | None], there: dict[str, bytes | None], *, up: bool) -> Any:
        return differing(Attributes({}, here, copied_up=up), Attributes({}, there))[1]

    assert told({label: b"a"}, {label: b"b"}, up=True) == ()
    assert told({label: b"a"}, {}, up=False) == ()
    assert told({acl: b"a"}, {acl: b"a"}, up=True) == ()
    assert told({acl: b"a"}, {acl: b"b"}, up=True) == (acl,)
    assert told({}, {acl: b"b"}, up=True) == (acl,)
    assert told({acl: b"a"}, {}, up=False) == ()
    assert told({}, {cap: b"c"}, up=True) == (cap,)
    assert told({}, {cap: b"c"}, up=False) == (cap,)
    assert told({cap: b"c"}, {}, up=False) == (cap,)
    assert told({"security.other": None}, {"security.other": None}, up=True) == ("security.other",)


# ---------------------------------------------------------------- what others did meanwhile


def test_what_others_changed_meanwhile_is_a_conflict(mounted, workspace):
    """Otherwise a call would overwrite, or delete, what a person saved while it ran."""
    fill(workspace, edited="e", removed="r", gone_below="g", folder__x="x", swapped="s", mode="m")
    fill(workspace, merged__x="x", vanished__x="x", reset="r", anew__x="x", d__e__x="x")
    (workspace / "link").symlink_to("x")
    call = mounted()
    call.shell(
        """
        echo mine > edited; rm removed; echo mine > gone_below; rm -r folder; echo mine > swapped
        echo mine > appeared; mkdir appeared_folder; chmod 711 merged; echo m > vanished/y
        echo mine > reset; chmod 600 mode; rm -r anew; mkdir anew; rm -r d; ln -sfn y link
        """
    )
    fill(workspace, edited="theirs", removed="theirs", folder__theirs="t", appeared="theirs")
    fill(workspace, appeared_folder__x="x", anew__theirs="t", d__e__x="theirs", mode="theirs")
    (workspace / "gone_below").unlink()
    fill(workspace, swapped2="theirs")
    (workspace / "swapped2").rename(workspace / "swapped")
    (workspace / "merged").chmod(0o701)
    (workspace / "vanished" / "x").unlink()
    (workspace / "vanished").rmdir()
    times = os.stat(workspace / "reset")
    (workspace / "reset").write_text("R")
    os.utime(workspace / "reset", ns=(times.st_atime_ns, times.st_mtime_ns))
    (workspace / "link").unlink()
    (workspace / "link").symlink_to("theirs")
    found = call.changes()
    assert found.problems == ()
    assert found.conflicts == (
        *("anew/theirs", "appeared", "appeared_folder", "appeared_folder/x"),
        *("d/e/x", "edited", "folder", "folder/theirs", "gone_below", "link", "merged", "mode"),
        *("removed", "reset", "swapped", "vanished"),
    )


def test_a_file_that_others_removed_did_not_come_from_its_twin(mounted, workspace):
    """Otherwise one of two equal files would be taken for the other, and come back."""
    for name in ("a", "b"):
        fill(workspace, **{name: "same"})
        os.utime(workspace / name, ns=(7, 7))
    call = mounted()
    call.shell("chmod 600 a b; chmod 700 a b")
    (workspace / "a").unlink()
    found = call.changes()
    assert told(found) == ["+a", "~b"]
    assert found.conflicts == ("a",)


def test_a_link_that_others_removed_is_told_from_one_that_the_call_moved(mounted, workspace):
    """Otherwise a link, which can bear no mark, would come back after a person removed it."""
    for name in ("removed", "moved"):
        (workspace / name).symlink_to("x")
        os.utime(workspace / name, ns=(7, len(name)), follow_symlinks=False)
    call = mounted()
    call.python(
        """
        times = os.lstat("removed")
        os.utime("removed", ns=(9, times.st_mtime_ns), follow_symlinks=False)
        os.rename("moved", "there")
        os.symlink("x", "made")
        """
    )
    (workspace / "removed").unlink()
    found = call.changes()
    assert told(found) == ["+made", "-moved", "+removed", "+there"]
    assert found.conflicts == ("removed",)


def test_what_others_changed_elsewhere_is_none(mounted, workspace):
    """Otherwise nobody could work in a folder while a call runs in it."""
    fill(workspace, edited="e", other="o", folder__x="x", folder__other="o", gone="g", theirs="t")
    call = mounted()
    call.shell("echo mine > edited; echo mine > folder/new; rm gone; rm folder/x; mkdir made")
    fill(workspace, other="theirs", folder__theirs="t", more__x="x")
    (workspace / "theirs").unlink()
    (workspace / "folder" / "other").unlink()
    os.chmod(workspace / "folder", stat.S_IMODE(os.stat(workspace / "folder").st_mode))
    found = call.changes()
    assert_plain(found)
    assert told(found) == ["~edited", "+folder/new", "-folder/x", "-gone", "+made"]


def test_of_two_that_take_one_thing_away_only_one_has_it(mounted, workspace):
    """Otherwise two workers take the same job from a queue, and each is told that it is theirs."""
    fill(workspace, a="a", b="b", folder__x="x", renamed="r")
    call = mounted()
    call.shell("rm a b; rm -r folder; mv renamed mine; touch made; rm made; mkdir m; rmdir m")
    (workspace / "a").unlink()
    (workspace / "folder" / "x").unlink()
    (workspace / "folder").rmdir()
    (workspace / "renamed").rename(workspace / "theirs")
    found = call.changes()
    assert told(found) == ["-b", "+mine"]
    assert found.conflicts == ("a", "folder", "mine", "renamed")


def test_the_same_written_by_two_in_one_tick_of_the_clock_is_a_conflict(mounted, workspace):
    """Otherwise two calls count one: equal bytes and equal times hide that both have written."""
    fill(workspace, counter="0", log="l", old="o")
    (workspace / "link").symlink_to("0")
    call = mounted()
    call.python(
        """
        for name, text in (("counter", "1"), ("made", "m"), ("old", "o")):
            open(name, "w").write(text); os.utime(name, ns=(7, 7))
        os.chmod("log", 0o600); os.utime("log", ns=(7, 7))
        os.unlink("link"); os.symlink("1", "link")
        os.utime("link", ns=(7, 7), follow_symlinks=False)
        """
    )
    fill(workspace, counter="1", made="m")
    os.chmod(workspace / "log", 0o600)
    (workspace / "link").unlink()
    (workspace / "link").symlink_to("1")
    for name in ("counter", "made", "log", "link"):
        os.utime(workspace / name, ns=(7, 7), follow_symlinks=False)
    found = call.changes()
    assert told(found) == ["~old"], "the control: each of the others seems to be unchanged"
    assert found.conflicts == ("counter", "link", "log", "made")


def test_what_only_was_there_before_the_mount_is_no_conflict(mounted, workspace):
    """Otherwise a call right after a save would always fail: the control for what is young."""
    fill(workspace, a="a", folder__b="b")
    call = mounted()
    fill(workspace, young="y")
    call.shell("echo mine > a; rm -r folder")
    found = call.changes()
    assert told(found) == ["~a", "-folder", "-folder/b"]
    assert found.conflicts == ()


def test_a_wall_clock_that_was_set_back_hides_nothing(mounted, workspace):
    """Otherwise what a person saves after the clock was set back would seem old."""
    fill(workspace, a="a")
    call = mounted()
    call.shell("echo mine > a")
    fill(workspace, a="theirs")
    hour_ns = 3_600_000_000_000
    before = Marker.now()
    # As if the mount had been an hour later by the wall clock, which was set back since.
    call.marker = Marker(realtime_ns=before.realtime_ns + hour_ns, boottime_ns=before.boottime_ns)
    assert call.changes().conflicts == ("a",)
    # The control: mounted an hour later by both clocks, it is old.
    call.marker = Marker(
        realtime_ns=before.realtime_ns + hour_ns, boottime_ns=before.boottime_ns + hour_ns
    )
    assert call.changes().conflicts == ()


def test_a_marker_is_not_older_than_what_is_stamped_after_it(tmp_path):
    """Otherwise a change in the first milliseconds of a call would be overwritten."""
    for n in range(50):
        marker = Marker.now()
        (tmp_path / str(n)).touch()
        assert os.stat(tmp_path / str(n)).st_ctime_ns >= marker.threshold_ns()
        assert marker.realtime_ns - marker.threshold_ns() < 1_000_000


# ---------------------------------------------------------------- being led astray


def test_links_below_and_in_the_layer_are_never_followed(mounted, workspace, tmp_path):
    """Otherwise a link to / would list the host, and a loop never end."""
    victim = tmp_path / "victim"
    fill(victim, secret="s", sub__secret="s")
    (workspace / "root").symlink_to("/")
    (workspace / "loop").symlink_to("loop")
    (workspace / "up").symlink_to("..")
    fill(workspace, d__x="x")
    (workspace / "d" / "out").symlink_to(victim)
    call = mounted()
    call.shell(f"rm -r d root up loop; mkdir d; ln -s {victim} d/out2; ln -s . d/here; ln -s / up")
    found = call.changes()
    assert_plain(found)
    assert told(found) == [
        *("+d/here", "-d/out", "+d/out2", "-d/x", "-loop", "-root", "~up"),
    ]
    assert (victim / "secret").exists()


@pytest.mark.parametrize("trap", ["link out", "link inside", "another folder"])
@pytest.mark.parametrize("way", ["removed", "made anew", "written to"])
def test_a_folder_that_is_swapped_while_we_look_shows_nothing(
    mounted, workspace, tmp_path, way, trap
):
    """Otherwise the files of a victim would be listed as deleted, and then be."""
    victim = tmp_path / "victim" if trap == "link out" else workspace / "victim"
    fill(victim, secret="s", sub__secret="s", sub__deep__secret="s")
    fill(workspace, a__sub__file="f", a__sub__deep__file="f", b="b")
    call = mounted()
    call.shell(
        {
            "removed": "rm -r a",
            "made anew": "rm -r a; mkdir -p a/sub/deep; : > a/sub/new",
            "written to": "rm a/sub/deep/file; : > a/sub/secret; : > a/sub/deep/secret",
        }[way]
    )
    layer = call.end()

    def swap() -> None:
        (workspace / "a").rename(workspace / "aside")
        if trap == "another folder":
            victim.rename(workspace / "a")
        else:
            (workspace / "a").symlink_to(victim if trap == "link out" else "victim")

    def swap_back() -> None:
        if trap == "another folder":
            (workspace / "a").rename(victim)
        else:
            (workspace / "a").unlink()
        (workspace / "aside").rename(workspace / "a")

    def look(swap_at: int) -> tuple[ChangeSet, bool]:
        turns = iter(range(1_000_000))
        swapped = False

        def check() -> None:
            nonlocal swapped
            if next(turns) == swap_at:
                swap()
                swapped = True

        found = changes_of(layer, call.workspace_fd, str(workspace), check=check)
        if swapped:
            swap_back()
        return found, swapped

    # What is `a` itself by the time that the walk comes to it is told, and it alone.
    victims = {os.lstat(path).st_ino for path in victim.rglob("*")}
    rounds = 0
    while True:
        found, swapped = look(rounds)
        befores = {c.before.inode[1] for c in found.changes if c.before is not None}
        if trap != "another folder" or rounds > 0:
            assert not befores & victims
        if not swapped:
            break
        rounds += 1
    assert rounds >= 3, "the control: it was swapped at several moments"
    # The control of the trap itself: whoever goes by path comes to the victim's files.
    swap()
    assert os.lstat(workspace / "a/sub/secret").st_ino in victims
    swap_back()


def test_a_file_that_goes_while_we_look_is_a_conflict(mounted, workspace):
    """Otherwise a folder would be deleted on the word of a list that was wrong."""
    fill(workspace, **{f"big__f{n}": "" for n in range(300)})
    call = mounted()
    call.shell("rm -r big")
    turns = iter(range(1_000_000))

    def check() -> None:
        # The third time is while the folder is being listed, after its 255th name.
        if next(turns) == 2:
            for n in range(300):
                (workspace / "big" / f"f{n}").unlink()

    found = call.changes(check=check)
    assert told(found) == ["-big"]
    assert len(found.conflicts) > 200


def test_a_file_that_is_another_tree_by_now_is_a_conflict(mounted, workspace):
    """Otherwise what came in its place would be deleted as if the call had meant it."""
    fill(workspace, a__x="x", other__precious="p")
    call = mounted()
    call.shell("rm -r a; : > made")
    (workspace / "a").rename(workspace / "aside")
    (workspace / "other").rename(workspace / "a")
    found = call.changes()
    assert "a" in found.conflicts


def test_a_pipe_is_never_opened(mounted, workspace):
    """Otherwise the supervisor would wait for a writer that never comes."""
    fill(workspace, was_file="f", file_below="f")
    os.mkfifo(workspace / "was_pipe")
    call = mounted()
    call.shell("rm was_file was_pipe; mkfifo was_file; echo x > was_pipe; mkfifo new")
    (workspace / "file_below").unlink()
    found = call.changes()
    assert told(found) == ["+new", "~was_file", "~was_pipe"]
    layer = call.end()
    with pytest.raises(OSError, match="no regular file"):
        open_file(layer.fd, "new")
    fd = open_file(layer.fd, "was_pipe")
    assert os.read(fd, 10) == b"x\n"
    os.close(fd)


@pytest.mark.parametrize(
    "path", ["out/file", "out", "here/file", "here", "../layer/file", "/etc/passwd", "folder"]
)
def test_a_file_of_the_layer_is_opened_beneath_it_only(tmp_path, path, ledger):
    """Otherwise a link in the layer would have the supervisor read a file of the host."""
    layer = tmp_path / "layer"
    fill(layer, file="f", folder__x="x")
    (layer / "out").symlink_to(layer)
    (layer / "here").symlink_to(".")
    fd = os.open(layer, os.O_RDONLY)
    with pytest.raises(OSError, match=r".+"):
        open_file(fd, path)
    file = open_file(fd, "file")
    assert os.read(file, 10) == b"f"
    os.close(file)
    os.close(fd)


# ---------------------------------------------------------------- bounds


def memory_kib(field: str) -> int:
    """A figure of this process (proc(5))."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise LookupError(field)


def test_100000_files_are_found_in_bounded_memory_and_descriptors(mounted, workspace):
    """Otherwise a call that unpacks an archive could exhaust the supervisor."""
    call = mounted()
    call.python(
        """
        for n in range(100_000):
            if n % 1_000 == 0:
                os.makedirs(f"made/{n // 1_000}")
            os.close(os.open(f"made/{n // 1_000}/{n}", os.O_CREAT | os.O_WRONLY))
        """
    )
    call.end()
    most = 0

    def check() -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))

    held = len(os.listdir("/proc/self/fd"))
    # proc(5), clear_refs: 5 has the peak start anew.
    Path("/proc/self/clear_refs").write_text("5")
    before_kib = memory_kib("VmRSS")
    found = call.changes(check=check)
    assert len(found.changes) == 100_101
    assert memory_kib("VmHWM") - before_kib < 200_000
    assert most - held < 10


def test_more_names_than_allowed_are_refused_in_the_layer_and_below(mounted, workspace):
    """Otherwise one whiteout over a huge tree would have the supervisor list it all."""
    fill(workspace, **{f"big__f{n}": "" for n in range(50)})
    call = mounted()
    call.shell("rm -r big")
    with pytest.raises(TooMany, match="more than 50 names"):
        call.changes(entries_max=50)
    assert len(call.changes(entries_max=51).changes) == 51


def test_a_check_that_raises_ends_the_walk(mounted, workspace):
    """Otherwise a caller that is cancelled would wait for all of it."""
    fill(workspace, big="")
    with open(workspace / "big", "r+b") as file:
        file.truncate(5 << 20)
    call = mounted()
    call.python("os.close(os.open('big', os.O_RDWR))")
    turns = iter(range(4))

    class Cancelled(Exception):
        pass

    def check() -> None:
        if next(turns, None) is None:
            raise Cancelled

    with pytest.raises(Cancelled):
        call.changes(check=check)


def test_ids_are_those_that_go_to_disk(mounted, workspace):
    """Otherwise files of a root supervisor's worker would be kept as nobody's."""
    call = mounted()
    call.shell("echo x > new")
    layer = call.end()
    me = os.getuid(), os.getgid()
    mapped = Layer(
        fd=layer.fd,
        uids={me[0]: 7},
        gids={},
        owner=(8, 9),
        marker=layer.marker,
        masks=layer.masks,
    )
    found = changes_of(mapped, call.workspace_fd, str(workspace))
    after = the(found, "new").after
    assert after is not None
    assert (after.uid, after.gid) == (7, 9)


def plain_layer(layer: Path, workspace: Path) -> ChangeSet:
    """The set of a folder that a test has written itself."""
    fd, below = os.open(layer, os.O_RDONLY), os.open(workspace, os.O_PATH)
    me = os.getuid(), os.getgid()
    try:
        return changes_of(
            Layer(
                fd=fd,
                uids={me[0]: me[0]},
                gids={me[1]: me[1]},
                owner=me,
                marker=Marker.now(),
                masks=frozenset(),
            ),
            below,
            str(workspace),
        )
    finally:
        os.close(fd)
        os.close(below)
