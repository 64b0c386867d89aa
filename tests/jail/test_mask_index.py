"""The mask index on real folders and real inotify: what appears, goes, moves, and is refused."""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from trio.testing import wait_all_tasks_blocked

from toolcell_sandbox.mask_index import Doubt, MaskIndex, Masks, NotIndexed

PRIVATE = b"-----BEGIN PRIVATE KEY-----"


class Judge:
    """`.env`, `.env.*`, `*.key`, `shut/in.txt`, and each `*.pem` that holds a key."""

    def __init__(self, inodes: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.inodes = inodes
        self.asked: list[tuple[str, str]] = []
        self.read: list[int] = []
        self.on_name: Callable[[str, str], object] = lambda inner, name: None

    def forbids(self, inner: str, name: str) -> bool:
        self.asked.append((inner, name))
        self.on_name(inner, name)
        return (
            name == ".env"
            or name.startswith(".env.")
            or name.endswith(".key")
            or (inner, name) == ("by/path", "in.txt")
        )

    def asks_content(self, inner: str, name: str) -> bool:
        return name.endswith(".pem")

    def forbids_content(self, fd: int) -> bool:
        self.read.append(fd)
        return PRIVATE in os.pread(fd, 65_536, 0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def queued_max() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def exchange(first: Path, second: Path) -> None:
    """renameat2(2) with RENAME_EXCHANGE; AT_FDCWD is -100."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(-100, os.fsencode(first), -100, os.fsencode(second), 2) == 0


def make(top: Path, *names: str, content: bytes = b"x") -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)


class Place:
    """A folder, whom to ask about it, and an index that is closed in the end."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.judge = Judge()
        self.made: list[MaskIndex] = []

    def index(self, **more: object) -> MaskIndex:
        found = self.top.stat()
        made = MaskIndex(str(self.top), (found.st_dev, found.st_ino), self.judge, **more)  # type: ignore[arg-type] # keywords of each test
        self.made.append(made)
        return made


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    before = descriptors()
    top = tmp_path.resolve() / "ws"
    top.mkdir()
    made = Place(top)
    yield made
    for each in made.made:
        each.close()
    # trio keeps what it wakes its own threads with.
    assert descriptors() <= before + 1


async def paths(index: MaskIndex) -> list[str]:
    return list((await index.current()).paths)


# ---------------------------------------------------------------- what is there, and what comes


async def test_what_is_there_is_found_at_any_depth_and_its_near_miss_is_not(place: Place) -> None:
    """Otherwise a jail is shown the one secret that lies deeper than the rest."""
    make(place.top, ".env", "a/b/c/d/tls.key", ".env.local/x", "by/path/in.txt")
    make(place.top, ".envrc", "env", "a/key", "tls.key.txt", "by/in.txt", "x/by/path/in.txt")
    expected = [".env", ".env.local", "a/b/c/d/tls.key", "by/path/in.txt"]
    assert await paths(place.index()) == expected
    assert not any(inner.startswith(".env.local") for inner, _ in place.judge.asked)


async def test_what_comes_and_goes_later_is_known(place: Place) -> None:
    """Otherwise the second call of a session sees what the first was kept from."""
    index = place.index()
    assert await paths(index) == []
    make(place.top, "a/.env", "b/c/d/x.key", "plain")
    assert await paths(index) == ["a/.env", "b/c/d/x.key"]
    make(place.top, "b/c/y.key")
    (place.top / "a/.env").unlink()
    (place.top / "b/c/d/x.key").rename(place.top / "b/c/d/x.txt")
    (place.top / "plain").rename(place.top / "plain.key")
    assert await paths(index) == ["b/c/y.key", "plain.key"]


async def test_a_folder_that_is_renamed_takes_its_names_with_it(place: Place) -> None:
    """Otherwise a mask is put where nothing is, and the secret beside it is bare."""
    make(place.top, "a/b/.env", "a/b/c/x.key", "other/y")
    index = place.index()
    await index.current()
    (place.top / "a").rename(place.top / "other/z")
    assert await paths(index) == ["other/z/b/.env", "other/z/b/c/x.key"]
    # The watches are good in the new place too.
    make(place.top, "other/z/b/c/new.key")
    assert "other/z/b/c/new.key" in await paths(index)
    (place.top / "other/z/b").rename(place.top / "b")
    (place.top / "other/z").rmdir()
    (place.top / "b").rename(place.top / "other/z")
    assert await paths(index) == ["other/z/.env", "other/z/c/new.key", "other/z/c/x.key"]


async def test_two_folders_that_change_places_are_not_confused(place: Place) -> None:
    """Otherwise each has the other's masks."""
    make(place.top, "a/.env", "b/x.key", "b/sub/y.key")
    index = place.index()
    await index.current()
    (place.top / "a").rename(place.top / "t")
    (place.top / "b").rename(place.top / "a")
    (place.top / "t").rename(place.top / "b")
    assert await paths(index) == ["a/sub/y.key", "a/x.key", "b/.env"]
    make(place.top, "a/new.key", "b/new.key")
    assert await paths(index) == ["a/new.key", "a/sub/y.key", "a/x.key", "b/.env", "b/new.key"]


async def test_two_folders_that_are_exchanged_in_one_step_are_not_confused(place: Place) -> None:
    """Otherwise the one that is met in two places loses the watch of both."""
    make(place.top, "p/a/.env", "p/a/sub/plain", "q/b/x.key", "q/b/deep/er/plain")
    index = place.index()
    for first, second in (("p/a", "q/b"), ("q/b", "p/a"), ("q/b/", "p/a/")):
        await index.current()
        exchange(place.top / first, place.top / second)
        assert await paths(index) == walked(place.top, Judge())
    make(place.top, "p/a/deep/er/y.key", "q/b/sub/z.key")
    assert await paths(index) == ["p/a/deep/er/y.key", "p/a/x.key", "q/b/.env", "q/b/sub/z.key"]


async def test_a_tree_that_moves_in_is_walked_and_one_that_moves_out_is_forgotten(
    place: Place,
) -> None:
    """Otherwise whole checkouts come in unseen: their files make no event of their own."""
    outside = place.top.parent / "outside"
    make(outside, "deep/er/.env")
    index = place.index()
    await index.current()
    outside.rename(place.top / "in")
    assert await paths(index) == ["in/deep/er/.env"]
    (place.top / "in/deep").rename(place.top.parent / "out")
    make(place.top.parent / "out", "er/x.key")
    assert await paths(index) == []


async def test_a_masked_folder_is_one_mask_and_is_walked_once_it_is_renamed(place: Place) -> None:
    """Otherwise what is hidden by its folder's name shows when that is another."""
    make(place.top, "a.key/deep/.env", "b/deep/.env")
    index = place.index()
    assert await paths(index) == ["a.key", "b/deep/.env"]
    (place.top / "a.key").rename(place.top / "a")
    (place.top / "b").rename(place.top / "b.key")
    assert await paths(index) == ["a/deep/.env", "b.key"]


async def test_names_of_any_bytes_are_told(place: Place) -> None:
    """Otherwise a name that is no text ends the look, or slips through it."""
    odd = [b"\xff\xfe.key", b"new\nline.key", b"x" * 251 + b".key", b"\xe2\x80\xae.key"]
    (place.top / "d").mkdir()
    folder = os.fsencode(place.top / "d")
    for name in odd[:2]:
        os.close(os.open(folder + b"/" + name, os.O_CREAT | os.O_WRONLY, 0o600))
    index = place.index()
    assert len(await paths(index)) == 2
    for name in odd[2:]:
        os.close(os.open(folder + b"/" + name, os.O_CREAT | os.O_WRONLY, 0o600))
    os.mkdir(folder + b"/\xfe\nfolder")
    os.close(os.open(folder + b"/\xfe\nfolder/.env", os.O_CREAT | os.O_WRONLY, 0o600))
    expected = sorted(os.fsdecode(b"d/" + name) for name in [*odd, b"\xfe\nfolder/.env"])
    assert await paths(index) == expected


async def test_a_change_costs_what_it_concerns_and_not_the_tree(place: Place) -> None:
    """Otherwise each call waits for a walk of a million files."""
    make(place.top, *(f"d{number}/f" for number in range(50)))
    index = place.index()
    before = await index.current()
    place.judge.asked.clear()
    assert await index.current() is before
    assert place.judge.asked == []
    make(place.top, "d7/.env", "d7/plain")
    assert await paths(index) == ["d7/.env"]
    assert set(place.judge.asked) == {("d7", ".env"), ("d7", "plain")}


# ---------------------------------------------------------------- links, and what is no file


async def test_no_link_is_followed_and_a_link_of_a_forbidden_name_is_masked(place: Place) -> None:
    """Otherwise the walk leaves the folder, or never ends."""
    make(place.top.parent, "out/.env")
    make(place.top, "in/x.key")
    (place.top / "link").symlink_to(place.top.parent / "out")
    (place.top / "round").symlink_to(place.top)
    (place.top / ".env").symlink_to("nowhere")
    index = place.index()
    assert await paths(index) == [".env", "in/x.key"]
    (place.top / "later").symlink_to("in")
    (place.top / "a.pem").symlink_to("/dev/zero")
    assert await paths(index) == [".env", "in/x.key"]


async def test_a_folder_swapped_for_a_link_during_the_walk_is_not_followed(place: Place) -> None:
    """Otherwise whoever wins that race has the supervisor walk his folder, or the host's."""
    make(place.top, "victim/plain", "z/x.key")
    make(place.top.parent, "out/.env", "out/deep/y.key")
    swapped: list[str] = []

    def swap(inner: str, name: str) -> None:
        if name == "victim" and not swapped:
            (place.top / "victim").rename(place.top / "moved")
            (place.top / "victim").symlink_to(place.top.parent / "out")
            swapped.append(name)

    place.judge.on_name = swap
    index = place.index()
    assert await paths(index) == ["z/x.key"]
    assert swapped
    assert not [each for each in place.judge.asked if "deep" in each]
    # The control: it was moved, not lost, and is walked and watched where it is.
    make(place.top, "moved/.env")
    assert await paths(index) == ["moved/.env", "z/x.key"]


async def test_a_hard_link_to_a_forbidden_file_outside_is_masked(place: Place) -> None:
    """Otherwise a key has a second name that no rule knows."""
    make(place.top.parent, "id", "other")
    found = (place.top.parent / "id").stat()
    place.judge = Judge(frozenset({(found.st_dev, found.st_ino)}))
    os.link(place.top.parent / "id", place.top / "innocent")
    os.link(place.top.parent / "other", place.top / "really")
    index = place.index()
    assert await paths(index) == ["innocent"]
    (place.top / "innocent").rename(place.top / "renamed")
    os.link(place.top.parent / "id", place.top / "second")
    assert await paths(index) == ["renamed", "second"]


async def test_what_a_pem_holds_decides_and_is_heard_of(place: Place) -> None:
    """Otherwise a certificate's file is given to a jail that the next minute is a key."""
    make(place.top, "cert.pem", "sub/key.pem", content=b"CERT")
    make(place.top, "sub/key.pem", content=PRIVATE)
    index = place.index()
    assert await paths(index) == ["sub/key.pem"]
    (place.top / "cert.pem").write_bytes(PRIVATE)
    (place.top / "sub/key.pem").write_bytes(b"CERT")
    assert await paths(index) == ["cert.pem"]
    # Not closed, and under another name of the same file.
    os.link(place.top / "sub/key.pem", place.top.parent / "elsewhere")
    file = os.open(place.top.parent / "elsewhere", os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(file, PRIVATE)
        assert await paths(index) == ["cert.pem", "sub/key.pem"]
    finally:
        os.close(file)
    (place.top / "sub").rename(place.top / "moved")
    (place.top / "cert.pem").unlink()
    assert await paths(index) == ["moved/key.pem"]
    (place.top / "moved/key.pem").write_bytes(b"CERT")
    (place.top / "moved/key.pem").rename(place.top / "moved/key.txt")
    (place.top / "moved/key.txt").write_bytes(PRIVATE)
    assert await paths(index) == []
    (place.top / "moved/key.txt").rename(place.top / "back.pem")
    assert await paths(index) == ["back.pem"]


async def test_only_a_regular_file_is_opened_for_reading(place: Place) -> None:
    """Otherwise a FIFO named like a certificate holds every call for ever."""
    os.mkfifo(place.top / "fifo.pem")
    (place.top / "folder.pem").mkdir()
    (place.top / "link.pem").symlink_to("real.pem")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(place.top, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/socket.pem")
        os.close(here)
        with trio.fail_after(20):
            index = place.index()
            assert await paths(index) == []
            assert place.judge.read == []
            make(place.top, "real.pem", content=PRIVATE)
            os.mkfifo(place.top / "later.pem")
            assert await paths(index) == ["real.pem"]
            assert len(place.judge.read) >= 1


# ---------------------------------------------------------------- what is left out


async def test_what_tools_made_is_left_out_and_listed(place: Place) -> None:
    """Otherwise nobody knows where the promise ends."""
    make(
        place.top,
        "node_modules/a/.env",
        "app/node_modules/b/x.key",
        ".git/objects/aa/x.key",
        "venv/pyvenv.cfg",
        "venv/lib/site-packages/p/x.key",
    )
    make(place.top, "site-packages/.env", "objects/.env", "venv/lib/.env", ".git/hooks/.env")
    index = place.index()
    masks = await index.current()
    skipped = [
        ".git/objects",
        "app/node_modules",
        "node_modules",
        "venv/lib/site-packages",
    ]
    assert list(masks.paths) == [
        ".git/hooks/.env",
        "objects/.env",
        "site-packages/.env",
        "venv/lib/.env",
    ]
    assert list(masks.skipped) == skipped
    assert masks.skipped_count == 4
    make(place.top, "new/node_modules/.env", "app/node_modules/later/.env")
    (place.top / "node_modules").rename(place.top / "modules")
    masks = await index.current()
    assert "modules/a/.env" in masks.paths
    assert not any("node_modules" in path for path in masks.paths)
    assert list(masks.skipped) == sorted({*skipped, "new/node_modules"} - {"node_modules"})


async def test_what_was_left_out_is_bounded_in_the_list_and_counted_whole(place: Place) -> None:
    """Otherwise a receipt is as long as somebody wants it to be."""
    for number in range(130):
        (place.top / f"d{number:03}/node_modules").mkdir(parents=True)
    masks = await place.index().current()
    assert (len(masks.skipped), masks.skipped_count) == (100, 130)
    assert masks.skipped[0] == "d000/node_modules"


async def test_packages_are_walked_when_they_are_no_environment_any_more(place: Place) -> None:
    """Otherwise a pyvenv.cfg that was there for a moment is a hiding place for ever."""
    make(place.top, "venv/lib/site-packages/p/.env", "venv/other/site-packages/x.key")
    make(place.top, "venv/pyvenv.cfg", "venv/inner/pyvenv.cfg", "venv/inner/site-packages/y.key")
    index = place.index()
    assert await paths(index) == []
    (place.top / "venv/pyvenv.cfg").unlink()
    walked = ["venv/lib/site-packages/p/.env", "venv/other/site-packages/x.key"]
    assert await paths(index) == walked
    make(place.top, "venv/pyvenv.cfg")
    make(place.top, "venv/third/site-packages/z.key", "venv/lib/site-packages/p/y.key")
    await index.current()
    (place.top / "venv/inner/pyvenv.cfg").unlink()
    masks = await index.current()
    # When one comes nothing is dropped, and only what is new is left out.
    assert set(walked) < set(masks.paths)
    assert masks.skipped == ("venv/inner/site-packages", "venv/third/site-packages")


# ---------------------------------------------------------------- refusals


async def test_over_its_bounds_it_refuses_and_holds_nothing(place: Place) -> None:
    """Otherwise a part of the secrets is hidden, and that looks like all of them."""
    make(place.top, "a.key", "b/c.key", "d/plain")
    before = descriptors()
    with pytest.raises(NotIndexed, match="more than 1 forbidden name"):
        await place.index(masks_max=1).current()
    with pytest.raises(NotIndexed, match="more than 4 entries"):
        await place.index(entries_max=4).current()
    with pytest.raises(NotIndexed, match="max_user_watches") as refused:
        await place.index(watches_max=2).current()
    assert "fs.inotify.max_user_watches" in refused.value.fix
    assert refused.value.errno == 28
    assert descriptors() <= before + 1
    fits = place.index(masks_max=2, entries_max=5, watches_max=3)
    assert await paths(fits) == ["a.key", "b/c.key"]
    before = descriptors()
    make(place.top, "e.key")
    with pytest.raises(NotIndexed, match="more than 2 forbidden names"):
        await fits.current()
    assert descriptors() < before
    (place.top / "e.key").unlink()
    assert await paths(fits) == ["a.key", "b/c.key"]
    (place.top / "e").mkdir()
    with pytest.raises(NotIndexed, match="max_user_watches"):
        await fits.current()


@pytest.mark.parametrize(
    ("name", "limit", "sysctl"),
    [
        ("max_inotify_watches", 2, "fs.inotify.max_user_watches"),
        ("max_inotify_instances", 0, "fs.inotify.max_user_instances"),
        ("max_inotify_watches", 4, "no refusal"),
    ],
)
def test_where_the_kernel_has_no_more_to_give_it_refuses(
    place: Place, name: str, limit: int, sysctl: str
) -> None:
    """Otherwise folders go unwatched on a machine where an editor uses up the watches."""
    make(place.top, "a/x.key", "b/y")
    script = f"""
        import os, trio
        from toolcell_sandbox.mask_index import MaskIndex, NotIndexed
        open("/proc/sys/user/{name}", "w").write("{limit}")
        class Judge:
            inodes = frozenset()
            def forbids(self, inner, name): return name.endswith(".key")
            def asks_content(self, inner, name): return False
        async def main():
            found = os.stat("ws")
            index = MaskIndex(os.path.realpath("ws"), (found.st_dev, found.st_ino), Judge(),
                              watches_max=1000)
            try:
                print("no refusal", (await index.current()).paths)
            except NotIndexed as error:
                print(error.fix, error.errno)
        trio.run(main)
    """
    ended = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", textwrap.dedent(script)],
        cwd=place.top.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sysctl in ended.stdout, ended.stderr


async def test_a_top_that_is_another_folder_now_is_refused(place: Place) -> None:
    """Otherwise the masks of one folder are put over another."""
    make(place.top, ".env")
    index = place.index()
    masks = await index.current()
    place.top.rename(place.top.with_name("old"))
    with pytest.raises(NotIndexed):
        await index.current()
    assert isinstance(await index.changed(masks), Doubt)
    make(place.top, "x.key")
    with pytest.raises(NotIndexed, match="another folder"):
        await index.current()
    (place.top / "x.key").unlink()
    place.top.rmdir()
    place.top.symlink_to("old")
    with pytest.raises(NotIndexed):
        await index.current()
    place.top.unlink()
    place.top.with_name("old").rename(place.top)
    assert await paths(index) == [".env"]


def is_root() -> bool:
    return os.geteuid() == 0


async def test_an_own_folder_that_is_shut_is_refused_with_what_helps(place: Place) -> None:
    """Otherwise a jail opens it with one chmod in its upper layer, and reads what is in it."""
    make(place.top, "shut/.env", "listed/sub/.env")
    ways = {"shut": 0o000, "listed": 0o400}
    for name, mode in ways.items():
        index = place.index()
        (place.top / name).chmod(mode)
        try:
            if is_root():
                assert await paths(index) == ["listed/sub/.env", "shut/.env"]
                continue
            with pytest.raises(NotIndexed, match=f"'{name}' cannot be listed") as refused:
                await index.current()
            assert refused.value.fix == f"chmod u+rx '{name}'"
        finally:
            (place.top / name).chmod(0o755)
        assert await paths(index) == ["listed/sub/.env", "shut/.env"]
        (place.top / name).chmod(mode)
        try:
            (place.top / name).rename(place.top / "moved")
            if is_root():
                assert any(path.startswith("moved/") for path in await paths(index))
            else:
                with pytest.raises(NotIndexed):
                    await index.current()
        finally:
            (place.top / "moved").rename(place.top / name)
            (place.top / name).chmod(0o755)
        assert await paths(index) == ["listed/sub/.env", "shut/.env"]


def test_a_folder_that_is_shut_to_a_jail_too_is_left_out_until_it_opens(place: Place) -> None:
    """Otherwise one root's folder in a workspace ends all work there, or hides what it held."""
    make(place.top, "theirs/.env", "plain")
    folder = place.top / "theirs"
    script = """
        import os, trio
        from toolcell_sandbox._child import syscalls
        from toolcell_sandbox.mask_index import MaskIndex, NotIndexed
        syscalls.drop_capabilities()
        class Judge:
            inodes = frozenset()
            def forbids(self, inner, name): return name == ".env"
            def asks_content(self, inner, name): return False
        async def main():
            found = os.stat("ws")
            index = MaskIndex(os.path.realpath("ws"), (found.st_dev, found.st_ino), Judge())
            while True:
                try:
                    masks = await index.current()
                    print(masks.paths, masks.skipped, flush=True)
                except NotIndexed as error:
                    print(error.cause, error.fix, flush=True)
                if not input():
                    return
        trio.run(main)
    """
    if is_root():
        os.chown(folder, 1, 1)
    folder.chmod(0o700 if is_root() else 0o000)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=place.top.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def told() -> str:
            return str(process.stdout.readline()) if process.stdout is not None else ""

        def again() -> str:
            assert process.stdin is not None
            process.stdin.write("again\n")
            process.stdin.flush()
            return told()

        if is_root():
            assert told() == "() ('theirs',)\n"
            folder.chmod(0o711)
            assert "a jail could enter it chmod o+r 'theirs'" in again()
        else:
            assert "a jail could make it readable chmod u+rx 'theirs'" in told()
        folder.chmod(0o755)
        assert again() == "('theirs/.env',) ()\n"
        folder.chmod(0o700 if is_root() else 0o000)
        # What is watched already goes on being told.
        assert again() == "('theirs/.env',) ()\n"
        folder.chmod(0o755)
        process.stdin.write("\n")
        process.stdin.flush()
    assert process.returncode == 0


async def test_a_pem_that_cannot_be_read_is_masked(place: Place) -> None:
    """Otherwise a key is shown because it is well kept."""
    make(place.top, "a.pem", content=b"CERT")
    (place.top / "a.pem").chmod(0)
    index = place.index()
    assert await paths(index) == ([] if is_root() else ["a.pem"])
    (place.top / "a.pem").chmod(0o600)
    assert await paths(index) == []


async def test_the_first_path_of_another_owner_is_told_and_untold(place: Place) -> None:
    """Otherwise a call fails on a file that it can neither change nor name."""
    make(place.top, "a/plain", "a/link")
    ids = (os.getuid(), os.getgid())
    index = place.index(foreign_ids=ids)
    assert (await index.current()).foreign is None
    strange = place.index(foreign_ids=(ids[0], ids[1] + 1))
    assert (await strange.current()).foreign == "."
    assert (await place.index().current()).foreign is None
    if is_root():
        make(place.top, "b/theirs", "b/more", "b/.env")
        os.chown(place.top / "b/theirs", 1, ids[1])
        os.chown(place.top / "b/.env", 1, 1)
        assert (await index.current()).foreign == "b/theirs"
        os.chown(place.top / "b/theirs", *ids)
        assert (await index.current()).foreign is None


# ---------------------------------------------------------------- events that are lost


async def test_after_more_events_than_the_queue_holds_a_walk_finds_the_truth(place: Place) -> None:
    """Otherwise what fell out of the queue is shown to every later call."""
    limit = queued_max()
    make(place.top, "a/old.key", "b/x")
    index = place.index()
    masks = await index.current()
    for number in range(limit // 2 + 10):
        name = place.top / f"a/f{number % 7}"
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        name.unlink()
    make(place.top, "b/late.key", "c/d/.env")
    (place.top / "a/old.key").unlink()
    doubt = await index.changed(masks)
    assert isinstance(doubt, Doubt)
    assert "max_queued_events" in doubt
    assert await paths(index) == ["b/late.key", "c/d/.env"]
    make(place.top, "c/d/x.key")
    assert "c/d/x.key" in await paths(index)


async def test_a_large_tree_that_moves_away_does_not_overflow_the_queue(place: Place) -> None:
    """Otherwise one `mv` of a checkout kills every call that runs."""
    (place.top / "big").mkdir()
    for number in range(queued_max() + 100):
        (place.top / f"big/{number}").mkdir()
    make(place.top, "big/7/old.key")
    index = place.index()
    masks = await index.current()
    (place.top / "big").rename(place.top.parent / "big")
    assert await paths(index) == []
    make(place.top, "x.key")
    assert await index.changed(masks) == "x.key"


async def test_where_another_machine_may_write_each_call_walks(place: Place) -> None:
    """Otherwise a share that is written from elsewhere is taken for quiet."""
    (place.top / "a").mkdir()
    index = place.index(tells_all=lambda fd: False)
    await index.current()
    first = len(place.judge.asked)
    await index.current()
    assert len(place.judge.asked) == 2 * first
    trusted = place.index()
    await trusted.current()
    await trusted.current()
    assert len(place.judge.asked) == 3 * first


# ---------------------------------------------------------------- many at once, and cancel


async def test_calls_at_the_same_time_share_one_walk(place: Place) -> None:
    """Otherwise a burst of calls walks a million files each."""
    make(place.top, "a/.env", "a/sentinel", "b/c/x")
    index = place.index()
    found: list[Masks] = []

    async def ask() -> None:
        found.append(await index.current())

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert [masks.paths for masks in found] == [("a/.env",)] * 20
    assert place.judge.asked.count(("a", "sentinel")) == 1


async def test_a_cancel_in_the_midst_of_a_walk_leaves_nothing_and_the_next_works(
    place: Place,
) -> None:
    """Otherwise a caller that gives up leaves watches behind, or half an index as a whole one."""
    make(place.top, *(f"d{number}/f" for number in range(20)), "z/.env")
    await trio.to_thread.run_sync(lambda: None)
    index = place.index()
    before = descriptors()
    cancelled: list[str] = []
    with trio.CancelScope() as scope:

        def cancel(inner: str, name: str) -> None:
            if inner and not cancelled:
                cancelled.append(inner)
                trio.from_thread.run_sync(scope.cancel)

        place.judge.on_name = cancel
        await index.current()
    assert scope.cancelled_caught
    assert descriptors() == before
    assert len({inner for inner, _ in place.judge.asked}) < 20
    assert await paths(index) == ["z/.env"]


async def test_a_cancel_in_the_midst_of_catching_up_disturbs_no_other_call(place: Place) -> None:
    """Otherwise one caller's cancel kills a call that runs beside it."""
    index = place.index()
    masks = await index.current()
    make(place.top, *(f"new/d{number}/f" for number in range(20)))
    cancelled: list[str] = []
    with trio.CancelScope() as scope:

        def cancel(inner: str, name: str) -> None:
            if inner and not cancelled:
                cancelled.append(inner)
                trio.from_thread.run_sync(scope.cancel)

        place.judge.on_name = cancel
        await index.current()
    assert scope.cancelled_caught
    make(place.top, "new/d3/.env")
    assert await index.changed(masks) == "new/d3/.env"
    assert await paths(index) == ["new/d3/.env"]


class Waiter:
    """A task in `changed`."""

    def __init__(self, index: MaskIndex, masks: Masks) -> None:
        self.index, self.masks = index, masks
        self.scope = trio.CancelScope()
        self.news: str | None = None
        self.ended = trio.Event()

    async def run(self) -> None:
        with self.scope:
            self.news = await self.index.changed(self.masks)
        self.ended.set()


async def test_who_waits_is_woken_by_a_new_name_and_by_no_other(place: Place) -> None:
    """Otherwise a call goes on beside a secret, or dies for a file that it may see."""
    make(place.top, ".env", "a/x")
    index = place.index()
    masks = await index.current()
    async with trio.open_nursery() as nursery:
        waiters = [Waiter(index, masks) for _ in range(3)]
        for waiter in waiters:
            nursery.start_soon(waiter.run)
        await wait_all_tasks_blocked()
        # Each is looked at before the next: a plain file, a known name anew, one below it.
        for step in (
            lambda: make(place.top, "a/plain", "b/c/plain"),
            lambda: make(place.top, "t"),
            lambda: (place.top / "t").rename(place.top / ".env"),
            lambda: (place.top / ".env").unlink(),
            lambda: make(place.top, ".env/within.key"),
        ):
            step()
            await index.current()
            await wait_all_tasks_blocked()
            assert not any(waiter.ended.is_set() for waiter in waiters)
        # Who had the descriptor gives up, and another takes it.
        waiters[0].scope.cancel()
        await waiters[0].ended.wait()
        make(place.top, "b/c/tls.key")
        with trio.fail_after(20):
            await waiters[1].ended.wait()
            await waiters[2].ended.wait()
    assert [waiter.news for waiter in waiters] == [None, "b/c/tls.key", "b/c/tls.key"]
    later = Waiter(index, await index.current())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(later.run)
        await wait_all_tasks_blocked()
        assert not later.ended.is_set()
        make(place.top.parent, "tree/deep/y.key")
        (place.top.parent / "tree").rename(place.top / "tree")
        with trio.fail_after(20):
            await later.ended.wait()
    assert later.news == "tree/deep/y.key"


async def test_a_name_that_came_and_went_is_told(place: Place) -> None:
    """Otherwise a secret that was there for a moment, and was read, was never there."""
    (place.top / "a").mkdir()
    index = place.index()
    masks = await index.current()
    make(place.top, "a/.env", "a/x.pem")
    (place.top / "a/.env").unlink()
    assert await index.changed(masks) == "a/.env"
    again = await index.current()
    assert again.paths == ()
    assert again.generation > masks.generation
    later = Waiter(index, again)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(later.run)
        await wait_all_tasks_blocked()
        assert not later.ended.is_set()
        nursery.cancel_scope.cancel()


async def test_who_asks_while_another_waits_takes_nothing_from_him(place: Place) -> None:
    """Otherwise the events that one call reads are lost for the next."""
    index = place.index()
    masks = await index.current()
    waiter = Waiter(index, masks)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter.run)
        await wait_all_tasks_blocked()
        make(place.top, "x.key")
        assert await paths(index) == ["x.key"]
        with trio.fail_after(20):
            await waiter.ended.wait()
    assert waiter.news == "x.key"


async def test_who_waits_goes_on_waiting_after_a_new_walk(place: Place) -> None:
    """Otherwise he waits for a descriptor that is closed, and hears of nothing any more."""
    index = place.index(tells_all=lambda fd: False)
    masks = await index.current()
    waiters = [Waiter(index, masks), Waiter(index, masks)]
    async with trio.open_nursery() as nursery:
        for waiter in waiters:
            nursery.start_soon(waiter.run)
        await wait_all_tasks_blocked()
        assert await paths(index) == []
        await wait_all_tasks_blocked()
        assert not any(waiter.ended.is_set() for waiter in waiters)
        make(place.top, "late.key")
        with trio.fail_after(20):
            for waiter in waiters:
                await waiter.ended.wait()
    assert [waiter.news for waiter in waiters] == ["late.key"] * 2


async def test_close_gives_back_all_and_wakes_who_waits(place: Place) -> None:
    """Otherwise a closed session holds its watches until the process ends."""
    make(place.top, "a/b/x")
    await trio.to_thread.run_sync(lambda: None)
    before = descriptors()
    index = place.index()
    masks = await index.current()
    assert descriptors() > before
    waiters = [Waiter(index, masks), Waiter(index, masks)]
    async with trio.open_nursery() as nursery:
        for waiter in waiters:
            nursery.start_soon(waiter.run)
        await wait_all_tasks_blocked()
        index.close()
    assert all(isinstance(waiter.news, Doubt) for waiter in waiters)
    assert descriptors() == before
    with pytest.raises(trio.ClosedResourceError):
        await index.current()
    index.close()


async def test_a_close_during_a_walk_waits_for_its_thread(place: Place) -> None:
    """Otherwise a thread goes on with a number that is another file's by then."""
    make(place.top, "a/b", "c/d")
    await trio.to_thread.run_sync(lambda: None)
    before = descriptors()
    index = place.index()
    place.judge.on_name = lambda inner, name: trio.from_thread.run_sync(index.close)
    assert (await index.current()).paths == ()
    assert descriptors() == before


# ---------------------------------------------------------------- against a plain walk


def walked(top: Path, judge: Judge) -> list[str]:
    """The forbidden names, the plain way."""
    found = []
    pending = [("", False)]
    while pending:
        inner, in_environment = pending.pop()
        names = os.listdir(top / inner)
        in_environment = in_environment or "pyvenv.cfg" in names
        for name in names:
            path = top / inner / name
            here = f"{inner}/{name}" if inner else name
            if judge.forbids(inner, name):
                found.append(here)
            elif path.is_symlink():
                continue
            elif path.is_dir():
                if name == "node_modules" or (name == "site-packages" and in_environment):
                    continue
                pending.append((here, in_environment))
            elif path.suffix == ".pem" and PRIVATE in path.read_bytes():
                found.append(here)
    return sorted(found)


_NAMES = ["a", "b", ".env", "x.key", "c.pem", "site-packages", "pyvenv.cfg", "node_modules"]
_PATHS = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4).map("/".join)


class AgainstAWalk(RuleBasedStateMachine):
    """Any order of changes, looked at after any number of them."""

    top: Path
    outside: Path
    judge: Judge

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

    @rule(path=_PATHS, content=st.sampled_from([b"CERT", PRIVATE]))
    def write(self, path: str, content: bytes) -> None:
        self.do(lambda: (self.top / path).write_bytes(content))

    @rule(path=_PATHS)
    def remove(self, path: str) -> None:
        self.do(lambda: (self.top / path).unlink())

    @rule(path=_PATHS)
    def remove_folder(self, path: str) -> None:
        self.do(lambda: remove_tree(self.top / path))

    @rule(path=_PATHS, to=_PATHS)
    def move(self, path: str, to: str) -> None:
        self.do(lambda: (self.top / path).rename(self.top / to))

    @rule(path=_PATHS)
    def move_out(self, path: str) -> None:
        self.do(lambda: (self.top / path).rename(self.outside / "kept"))

    @rule(path=_PATHS)
    def move_in(self, path: str) -> None:
        self.do(lambda: (self.outside / "kept").rename(self.top / path))

    @rule(path=_PATHS, to=_PATHS)
    def link(self, path: str, to: str) -> None:
        self.do(lambda: os.link(self.top / path, self.top / to))

    @rule(path=_PATHS, to=_PATHS)
    def symlink(self, path: str, to: str) -> None:
        self.do(lambda: (self.top / path).symlink_to(self.top / to))

    @rule(pairs=st.lists(st.tuples(_PATHS, _PATHS), min_size=2, max_size=6))
    def move_much(self, pairs: list[tuple[str, str]]) -> None:
        for path, to in pairs:
            self.move(path, to)

    @invariant()
    def is_as_a_walk_finds_it(self) -> None:
        expected, found = walked(self.top, self.judge), self.ask()
        assert set(expected) <= set(found)
        # What was walked before a pyvenv.cfg came stays hidden.
        for path in set(found) - set(expected):
            assert "site-packages/" in path
            assert os.path.lexists(self.top / path)


async def test_what_is_moved_during_every_look_is_found_in_the_end(place: Place) -> None:
    """Otherwise a race that a build runs into every day leaves the index wrong for good."""
    source = random.Random(4)
    names = ["a", "b", "c", ".env", "x.key", "d", "e.pem"]

    def some() -> Path:
        return place.top / "/".join(source.choices(names, k=source.randint(1, 4)))

    def change() -> None:
        for _ in range(4_000):
            path = some()
            try:
                match source.randrange(5):
                    case 0:
                        path.mkdir(parents=True)
                    case 1:
                        path.write_bytes(source.choice([PRIVATE, b"CERT"]))
                    case 2:
                        remove_tree(path)
                    case _:
                        path.rename(some())
            except OSError:
                continue

    index = place.index()
    masks = await index.current()
    looks = 0
    is_over = trio.Event()

    async def look() -> None:
        nonlocal looks
        while not is_over.is_set():
            with suppress(NotIndexed):
                await index.current()
                looks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.to_thread.run_sync(change)
        is_over.set()
    assert looks > 10
    assert await paths(index) == walked(place.top, Judge())
    assert await index.changed(masks)


def remove_tree(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        raise NotADirectoryError
    for each in path.iterdir():
        if each.is_dir() and not each.is_symlink():
            remove_tree(each)
        else:
            each.unlink()
    path.rmdir()


def test_any_order_of_changes_is_told_as_a_walk_finds_it(tmp_path: Path) -> None:
    """Otherwise there is an order of renames after which a secret is bare."""
    numbers = itertools.count()

    class Here(AgainstAWalk):
        def __init__(self) -> None:
            super().__init__()
            self.outside = tmp_path.resolve() / str(next(numbers))
            self.top = self.outside / "ws"
            self.top.mkdir(parents=True)
            self.judge = Judge()
            found = self.top.stat()
            self.index = MaskIndex(str(self.top), (found.st_dev, found.st_ino), Judge())

        def ask(self) -> list[str]:
            return list(trio.run(self.index.current).paths)

        def teardown(self) -> None:
            self.index.close()

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
