"""Attacks on a transaction by who writes a tool, who writes a repository, and who is careless.

Each has a control that shows that the attack would work, or that the same work passes when it is
honest. What is waited for is waited for by a descriptor: nothing here sleeps.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Answer, Executor
from toolcell.approval import from_callback

SECRET = "the secret of this test\n"


class Box:
    """A workspace of the test's own, and what was asked about what calls did in it."""

    def __init__(self, top: Path) -> None:
        self.top, self.ws = top, top / "ws"
        self.ws.mkdir()
        self.asked: list[str] = []

    def executor(self, workspace: Path | None = None, **options: Any) -> Executor:
        return Executor(
            workspace=workspace or self.ws,
            state_dir=self.top / "state",
            approver=from_callback(self._answer),
            **options,
        )

    def _answer(self, request: Any) -> Answer:
        if request.stage == "before":
            return Answer.once()
        self.asked += [reason.text for reason in request.reasons]
        return Answer.reject("not this")

    async def shell(self, command: str, **options: Any) -> Any:
        async with self.executor(**options) as executor:
            return await executor.call("shell", {"command": command})

    async def python(self, code: str, **options: Any) -> Any:
        async with self.executor(**options) as executor:
            return await executor.call("python", {"code": code})

    def snapshot(self) -> dict[str, tuple[int, bytes]]:
        """Every name with its mode and bytes; nothing is followed."""
        found = {}
        for path in sorted(self.ws.rglob("*")):
            mode = path.lstat().st_mode
            data = b""
            if stat.S_ISREG(mode):
                data = path.read_bytes()
            elif stat.S_ISLNK(mode):
                data = os.fsencode(os.readlink(path))
            found[str(path.relative_to(self.ws))] = (mode, data)
        return found


@pytest.fixture
def box(tmp_path: Path, ledger: None) -> Box:
    found = Box(tmp_path.resolve())
    (found.ws / "a.txt").write_text("before\n")
    return found


def kind(result: Any) -> str | None:
    return None if result.error is None else result.error.kind


def repository(folder: Path) -> None:
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "one")):
        given = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *given, *words], cwd=folder, check=True, timeout=60)


async def after(step: Callable[[], Any]) -> AsyncIterator[bytes]:
    """A line for a call that waits on its stdin, once something was done outside of it."""
    await trio.to_thread.run_sync(step)
    yield b"go\n"


# -- what is hidden ------------------------------------------------------------------------

PRYING = r"""
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, act):
    try:
        found = act()
    except OSError as error:
        found = errno.errorcode[error.errno]
    print(name, found)
def call(act):
    return errno.errorcode[ctypes.get_errno()] if act() < 0 else 'done'
handle = ctypes.create_string_buffer(136)
handle[0:4] = (128).to_bytes(4, 'little')
number = ctypes.c_int()
attempt('read', lambda: open('b/.env').read())
attempt('link', lambda: os.link('b/.env', 'c'))
attempt('list', lambda: sorted(os.listdir('b')))
attempt('move', lambda: os.rename('b', 'elsewhere'))
attempt('whiteout', lambda: os.mknod('b/whiteout', 0o020600, 0))
attempt('rename whiteout', lambda: call(lambda: libc.renameat2(-100, b'b/seen', -100, b'b/x', 4)))
attempt('handle', lambda: call(
    lambda: libc.name_to_handle_at(-100, b'b/.env', handle, ctypes.byref(number), 0)))
attempt('uncover', lambda: call(lambda: libc.umount2(os.fsencode(os.getcwd()), 2)))
attempt('layers', lambda: [p for p in ('/mnt', '/tmp/mnt', '/run/mnt') if
                           os.path.isdir(p) and os.listdir(p)])
attempt('again', lambda: (open('b/.env', 'w').close(), os.unlink('b/.env'), os.listdir('b'))[2])
attempt('back', lambda: open('b/.env').read())
attempt('init', lambda: os.listdir('/proc/1/root/'))
"""


async def test_a_hidden_name_stays_hidden_from_every_trick_of_overlays(box):
    """Otherwise a whiteout is a curtain that the call itself can lift."""
    (box.ws / "b").mkdir()
    (box.ws / "b" / ".env").write_text(SECRET)
    (box.ws / "b" / "seen").write_text("seen\n")
    before = box.snapshot()
    result = await box.python(PRYING)
    assert kind(result) is None, result.error
    told = dict(line.split(" ", 1) for line in result.content.splitlines() if " " in line)
    assert SECRET.strip() not in result.content
    assert told["list"] == "['seen']"
    assert {told["read"], told["link"], told["back"]} == {"ENOENT"}
    assert told["move"] == "EXDEV"
    assert {told["whiteout"], told["uncover"]} <= {"EPERM", "EACCES"}
    assert told["layers"] == "[]"
    assert box.snapshot() == before
    control = await box.shell("cat b/seen")
    assert "seen" in control.content


async def test_a_hidden_name_does_not_go_with_the_folder_that_is_taken_away(box):
    """Otherwise `rm -rf` of what looks empty destroys what nobody was shown."""
    for name in ("b", "c"):
        (box.ws / name).mkdir()
        (box.ws / name / "seen").write_text("seen\n")
    (box.ws / "b" / ".env").write_text(SECRET)
    before = box.snapshot()
    for command in ("rm -rf b", "rm -rf b; ln -s c b", "rm -rf b; echo > b", "rm -rf b; mkdir b"):
        result = await box.shell(command)
        assert kind(result) == "effects_refused", command
        assert [one["path"] for one in result.error.paths] == ["b/.env"]
        assert box.snapshot() == before
    assert kind(await box.shell("rm -rf c")) is None
    assert not (box.ws / "c").exists()


async def test_a_secret_that_arrives_on_top_of_a_large_tree_is_never_kept_in_a_copy(box):
    """Otherwise a call that ends before the tree is walked through has read what it may not."""
    for name in ("secret", "plain"):
        for at in range(2_000):
            (box.top / name / f"d{at // 50}" / f"e{at}").mkdir(parents=True)
        (box.top / name / ".env").write_text(SECRET)
    os.rename(box.top / "plain" / ".env", box.top / "plain" / "note")
    code = """
import sys
sys.stdin.readline()
for name in ('.env', 'note'):
    try:
        open('copy', 'w').write(open('big/' + name).read())
    except FileNotFoundError:
        pass
"""
    for name, expected in (("secret", "confinement_failed"), ("plain", None)):

        def arrive(name: str = name) -> None:
            os.rename(box.top / name, box.ws / "big")

        async with box.executor() as executor:
            result = await executor.call("python", {"code": code}, stdin=after(arrive))
        assert kind(result) == expected
        assert (box.ws / "copy").exists() is (expected is None)
        shutil.rmtree(box.ws / "big")


# -- the alarm -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            "mkdir -p node_modules/p; echo x > node_modules/p/.env; echo x > node_modules/p/a.key",
            None,
        ),
        (None, "confinement_failed"),
    ],
    ids=["another call's commit", "a name of the host"],
)
async def test_what_another_call_keeps_does_not_end_this_one(box, step, expected):
    """`npm ci` brings names like keys: under a temporary name they must not stop whoever works
    beside it. The control is a name that somebody puts there."""
    seen: dict[str, Any] = {}
    async with box.executor() as executor:
        waits, done = trio.Event(), trio.Event()

        async def lines() -> AsyncIterator[bytes]:
            await done.wait()
            yield b"go\n"

        async def started(*_: object) -> None:
            waits.set()

        async def first() -> None:
            command = {"command": "echo here; read line; echo kept > mine"}
            seen["result"] = await executor.call("shell", command, stdin=lines(), sink=started)
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await waits.wait()
            if step is None:
                (box.ws / ".env").write_text(SECRET)
            else:
                other = await executor.call("shell", {"command": step})
                assert kind(other) is None, other.error
                # A third call looks at what has come, so the first one is told of it by now.
                assert kind(await executor.call("shell", {"command": "true"})) is None
            done.set()
    assert kind(seen["result"]) == expected, seen["result"].error
    assert (box.ws / "mine").exists() is (expected is None)


async def test_a_name_like_a_temporary_hides_nothing_that_a_call_makes(box):
    """The index does not look into a commit's temporaries: no call may make such a name."""
    folder = ".toolcell-0123456789abcdef-0"
    refused = await box.shell(f"mkdir {folder}; echo x > {folder}/note")
    assert kind(refused) == "effects_refused"
    assert refused.error.paths[0]["code"] == "reserved_name"
    assert not (box.ws / folder).exists()
    assert kind(await box.shell("mkdir .toolcell-notes; echo x > .toolcell-notes/n")) is None


# -- what git obeys ------------------------------------------------------------------------

ORDERS = {
    "a link on the way": "ln -s .git d; echo x > d/hooks/post-commit",
    "a setting by a link": "ln -s .git d; git config -f d/config core.fsmonitor x",
    "a link for a file": "cp .git/config c; rm .git/config; ln -s ../c .git/config",
    "another name for it": (
        "cp .git/config c; printf '[core]\\n fsmonitor=x\\n' >> c; ln -f c .git/config"
    ),
    "a link for a folder": "rm -rf .git/hooks; mkdir h; echo x > h/pre-push; ln -s ../h .git/hooks",
    "a whole other .git": (
        "cp -r .git n; printf '[core]\\n fsmonitor=x\\n' >> n/config; mv .git o; mv n .git"
    ),
    "of a submodule": "mkdir -p .git/modules/s/hooks; echo x > .git/modules/s/hooks/post-checkout",
    "of a work tree": (
        "mkdir -p .git/worktrees/w; cd .git/worktrees/w; "
        "printf '[core]\\n pager=x\\n' > config.worktree"
    ),
    "a common folder": "echo ../evil > .git/commondir",
    "alternates": "echo /tmp > .git/objects/info/alternates",
    "attributes": "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    "a new one's hook": "git init -q n; echo x > n/.git/hooks/post-commit",
    "a new one's sample": (
        "git init -q n; cd n/.git/hooks; echo x > a.sample; ln -s a.sample pre-push"
    ),
    "a new one's setting": "git init -q n; git -C n config core.hooksPath ../h",
    "a bare one": "git init -q --bare n; git -C n config alias.x '!x'",
    "one with a link for HEAD": (
        "mkdir -p z/objects z/refs; cd z; ln -s refs/heads/m HEAD; "
        "printf '[core]\\n pager=x\\n' > config"
    ),
    "in an environment": (
        "mkdir -p v/.git/hooks; touch v/pyvenv.cfg; echo x > v/.git/hooks/post-commit"
    ),
    "in dependencies": (
        "git init -q node_modules/p; echo x > node_modules/p/.git/hooks/post-commit"
    ),
}


@pytest.mark.parametrize("command", ORDERS.values(), ids=ORDERS)
async def test_what_git_would_obey_is_asked_about_by_whatever_way_it_came(box, command):
    """Otherwise the next `git status` of a person runs what a tool has left there."""
    repository(box.ws)
    before = box.snapshot()
    result = await box.shell(command)
    assert result.exit_code == 0, result.content
    assert kind(result) == "effects_rejected"
    assert box.asked
    assert box.snapshot() == before


async def test_daily_work_with_git_is_not_asked_about(box):
    """The control of the above: a question at each commit is one that nobody reads."""
    repository(box.ws)
    result = await box.shell(
        "git config user.name a; git config user.email a@b; git switch -q -c other; echo x > x; "
        "git add x; git commit -q -m x; git switch -q main; git merge -q other; git init -q n; "
        "git init -q --bare m; git worktree add -q w other"
    )
    assert result.exit_code == 0, result.content
    assert (kind(result), box.asked) == (None, [])
    assert (box.ws / "w" / "x").exists()


# -- names and links -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        ".ENV",
        "ID_RSA",
        "a.KEY",
        "a.\u212aey",
        "\uff0eenv",
        ".\uff45nv",
        ".env\u200b",
        ".env ",
        ".env.",
    ],
    ids=ascii,
)
async def test_a_forbidden_name_is_refused_however_it_is_spelled(box, name):
    """Some file systems and programs take these for one name."""
    result = await box.python(f"open({name!r}, 'w').write('x')")
    assert kind(result) == "effects_refused"
    assert set(os.listdir(box.ws)) == {"a.txt"}
    assert kind(await box.python("open('environment', 'w').write('x')")) is None


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../state",
        ".env",
        "/proc/self/cwd",
        "~/.ssh",
        "l",
        "d/../../x",
        "//etc/passwd",
    ],
)
async def test_a_link_out_of_the_workspace_is_not_kept(box, target):
    """Otherwise the next tool, or a person's editor, writes through it."""
    before = box.snapshot()
    code = f"import os\nos.mkdir('d')\nos.symlink(os.path.expanduser({target!r}), 'l')"
    assert kind(await box.python(code)) == "effects_refused"
    assert box.snapshot() == before
    inside = "import os\nos.mkdir('d')\nos.symlink('../a.txt', 'd/l')"
    assert kind(await box.python(inside)) is None
    assert (box.ws / "d" / "l").read_text() == "before\n"


async def test_odd_names_and_closed_files_come_to_disk_as_they_are(box):
    """What cannot be named or read is where a walk goes wrong, and where it hides something."""
    names = [b"new\nline", b"\xff\xfe", b"x" * 255, b" ", b"-rf", b"\x1b[31m", b"a\\b", b"..."]
    code = f"""
import os
for name in {names!r}:
    open(name, 'wb').write(name)
os.mkfifo('fifo')
open('closed', 'w').write('x')
os.chmod('closed', 0)
os.mkdir('narrow')
open('narrow/in', 'w').write('x')
os.chmod('narrow', 0o500)
"""
    result = await box.python(code)
    assert kind(result) is None, result.error
    assert [(box.ws / os.fsdecode(name)).read_bytes() for name in names] == names
    assert stat.S_ISFIFO((box.ws / "fifo").lstat().st_mode)
    modes = [stat.S_IMODE((box.ws / name).stat().st_mode) for name in ("closed", "narrow")]
    assert modes == [0, 0o500]
    assert (box.ws / "narrow" / "in").read_text() == "x"
    shut = await box.python("import os\nos.mkdir('shut')\nos.chmod('shut', 0)")
    assert shut.error.paths[0]["code"] == "folder_shut"
    os.chmod(box.ws / "narrow", 0o700)


# -- what is large, deep, or extreme -------------------------------------------------------


async def test_a_tree_of_three_thousand_levels_is_refused_and_one_of_a_hundred_kept(box):
    """Otherwise the supervisor recurses, or runs out of descriptors, on what a loop has made."""
    code = "import os\nfor _ in range({}):\n    os.mkdir('d')\n    os.chdir('d')"
    deep = await box.python(code.format(3_000))
    assert kind(deep) == "effects_refused"
    assert {one["code"] for one in deep.error.paths} == {"path_too_long"}
    assert set(os.listdir(box.ws)) == {"a.txt"}
    assert kind(await box.python(code.format(100))) is None
    assert len(list(box.ws.rglob("d"))) == 100


@pytest.mark.parametrize(
    "when_ns",
    [-1, -(2**40) * 10**9, 2**63 - 1, (2**55) * 10**9 + 999_999_999],
    ids=["1969", "before everything", "2262", "after everything"],
)
async def test_a_time_that_no_disk_can_keep_stops_neither_this_call_nor_the_next(box, when_ns):
    """Otherwise one `touch` makes every later commit in that folder a conflict."""
    code = f"""
import ctypes, os
os.mkdir('d')
open('d/f', 'w').write('x')
os.symlink('f', 'd/l')
os.mkfifo('d/p')
pair = (ctypes.c_long * 4)(*divmod({when_ns}, 10**9) * 2)
for name in (b'd/f', b'd/l', b'd/p', b'd', b'a.txt'):
    assert ctypes.CDLL(None).utimensat(-100, name, pair, 0x100) == 0
"""
    result = await box.python(code)
    assert kind(result) is None, result.error
    assert {path.name for path in (box.ws / "d").iterdir()} == {"f", "l", "p"}
    again = await box.shell("echo more >> a.txt; echo more >> d/f; rm d/p")
    assert kind(again) is None, again.error
    assert (box.ws / "a.txt").read_text() == "before\nmore\n"


async def test_a_sparse_file_stays_one(box):
    """Otherwise a file that took nothing of the call's share fills the disk of the host."""
    assert kind(await box.shell("truncate -s 400M sparse; printf end >> sparse")) is None
    found = (box.ws / "sparse").stat()
    assert found.st_size == (400 << 20) + 3
    assert found.st_blocks * 512 < 1 << 20
    fd = os.open(box.ws / "sparse", os.O_RDONLY)
    try:
        assert os.pread(fd, 10, 400 << 20) == b"end"
    finally:
        os.close(fd)


@pytest.mark.parametrize("name", ["new", "here"])
async def test_attributes_that_no_disk_can_keep_are_refused_by_name(box, name):
    """Otherwise a flood of them reads as a defect of ours, and nobody knows what to remove."""
    (box.ws / "here").mkdir()
    code = """
import os
name = {0!r}
if name == 'new':
    open(name, 'w').write('x')
os.setxattr(name, 'user.small', b'1')
for at in range({1}):
    os.setxattr(name, f'user.large{{at}}', b'x' * 60_000)
"""
    result = await box.python(code.format(name, 40))
    if kind(result) is None:
        # A file system that has room for them: then it has them all.
        assert len(os.listxattr(box.ws / name)) == 41
    else:  # such as ext4
        assert kind(result) == "effects_refused", result.error
        told = {(one["path"], one["code"]) for one in result.error.paths}
        assert told == {(name, "cannot_be_kept")}
        assert not (box.ws / "new").exists()
        assert os.listxattr(box.ws / "here") == []
    small = await box.python(code.format(name, 0))
    assert kind(small) is None, small.error
    assert os.getxattr(box.ws / name, "user.small") == b"1"


@pytest.mark.parametrize("name", ["opaque", "whiteout", "redirect", "metacopy", "origin"])
async def test_a_mark_of_overlays_that_a_call_sets_is_never_obeyed_and_never_kept(box, name):
    """Otherwise it hides, or brings up, what is below: here, or in an overlay of somebody else."""
    (box.ws / "d").mkdir()
    (box.ws / "d" / "kept").write_text("kept\n")
    before = box.snapshot()
    for value in (b"y", b"", b"/a.txt"):
        code = f"""
import os
try:
    os.setxattr('d', 'user.overlay.{name}', {value!r})
except OSError:
    pass
open('d/new', 'w').write('x')
"""
        result = await box.python(code)
        if kind(result) is None:  # the kernel did not let it
            os.unlink(box.ws / "d" / "new")
        else:
            assert kind(result) == "effects_refused"
        assert box.snapshot() == before
        assert not [one for one in os.listxattr(box.ws / "d") if "overlay" in one]


# -- the host's side -----------------------------------------------------------------------


@pytest.mark.parametrize("what", ["folder", "link"])
async def test_a_workspace_that_is_another_by_the_end_is_not_written_to(box, what):
    """Otherwise whoever can rename a parent has the supervisor write where the link leads."""
    victim = box.top / "victim"
    victim.mkdir()
    (victim / "a.txt").write_text("a person's\n")

    def swap() -> None:
        os.rename(box.ws, box.top / "old")
        if what == "folder":
            shutil.copytree(victim, box.ws)
        else:
            os.symlink(victim, box.ws)

    async with box.executor() as executor:
        call = {"command": "read line; echo evil > a.txt; echo evil > new"}
        result = await executor.call("shell", call, stdin=after(swap))
        later = await executor.call("shell", {"command": "echo evil > a.txt"})
    assert kind(result) in ("confinement_failed", "commit_conflict")
    assert kind(later) == "confinement_failed"
    assert (box.top / "old" / "a.txt").read_text() == "before\n"
    assert (victim / "a.txt").read_text() == (box.ws / "a.txt").read_text() == "a person's\n"
    assert os.listdir(victim) == ["a.txt"]


async def test_a_folder_that_another_executor_wrote_in_is_not_taken_away(box):
    """Two workspaces, one in the other: each has its own lock, and neither may lose an update."""
    inner = box.ws / "inner"
    inner.mkdir()
    (inner / "b.txt").write_text("before\n")

    async with box.executor() as outer, box.executor(workspace=inner) as other:

        async def work() -> AsyncIterator[bytes]:
            done = await other.call("shell", {"command": "echo kept > n; echo more >> b.txt"})
            assert kind(done) is None, done.error
            yield b"go\n"

        result = await outer.call("shell", {"command": "read line; rm -rf inner"}, stdin=work())
    assert kind(result) == "commit_conflict"
    assert {path.name for path in inner.iterdir()} == {"b.txt", "n"}
    assert (inner / "b.txt").read_text() == "before\nmore\n"
    assert kind(await box.shell("rm -rf inner")) is None
    assert not inner.exists()


@pytest.mark.parametrize("mode", [0o555, 0o700, 0o1777, 0o2775], ids=oct)
async def test_the_folder_itself_keeps_its_mode_whatever_was_written_in_it(box, mode):
    """A commit opens what it must write in; what is left open, or loses a bit, is a change that
    nobody made."""
    (box.ws / "d").mkdir()
    os.chmod(box.ws, mode)
    result = await box.shell("chmod u+w .; echo n > d/n; echo n > n; mkdir e; echo m >> a.txt")
    assert kind(result) is None, result.error
    assert stat.S_IMODE(box.ws.stat().st_mode) == mode
    assert {path.name for path in box.ws.iterdir()} == {"a.txt", "d", "e", "n"}
    assert bool((box.ws / "e").stat().st_mode & stat.S_ISGID) is bool(mode & stat.S_ISGID)
    os.chmod(box.ws, 0o755)


async def test_a_waived_mask_lets_read_and_not_write_or_delete(box):
    """`--waive paths_masked` is about what is seen; what is kept has its own rules."""
    (box.ws / ".env").write_text(SECRET)
    waive = ("paths_masked",)
    seen = await box.shell("cat .env", waive=waive)
    assert SECRET.strip() in seen.content
    assert "paths_masked" in seen.receipt.waived
    for command in ("rm .env", "echo x > .env", "mv .env other", "chmod 777 .env"):
        assert kind(await box.shell(command, waive=waive)) == "effects_refused", command
        assert (box.ws / ".env").read_text() == SECRET
    assert kind(await box.shell("echo x > b.txt", waive=waive)) is None


async def test_no_setuid_bit_reaches_the_workspace(box):
    """A file with that bit, owned by who runs toolcell, is theirs for anybody to be."""
    code = """
import os
for mode in (0o4755, 0o2755):
    for act in (
        lambda: os.chmod('a.txt', mode),
        lambda: os.close(os.open('b%o' % mode, os.O_CREAT | os.O_WRONLY, mode)),
        lambda: os.mknod('c%o' % mode, 0o100000 | mode),
    ):
        try:
            act()
        except OSError as error:
            print(error.errno)
os.chmod('a.txt', 0o755)
"""
    result = await box.python(code)
    assert kind(result) in (None, "effects_refused")
    assert not [p for p in box.ws.iterdir() if p.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    assert result.content.split() == [str(errno.EPERM)] * 6
    assert stat.S_IMODE((box.ws / "a.txt").stat().st_mode) == 0o755
