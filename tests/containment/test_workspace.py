"""Rows 8 to 48 where they concern the workspace itself, as a jail sees it through an overlay.

What a call leaves is judged, and then kept whole or not at all; what lies in the folder on the
host (sockets, FIFOs, locks, names that come later) is not what the jail has. The control is mode
`direct`, where it is, or the near miss that is kept.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from toolcell import Executor
from toolcell.approval import Answer, ApprovalRequest, from_callback
from toolcell.results import CommitConflict, ConfinementFailed, DiskExceeded, EffectsRefused
from toolcell_sandbox import offers
from toolcell_sandbox.spec import WorkspaceMode

from .cells import IS_FULL
from .conftest import Cage

OVERLAID: tuple[WorkspaceMode, ...] = ("transaction", "read_only")
NOBODY = from_callback(lambda request: request.stage == "before" or Answer.unavailable())
"""Lets each call run; nobody is there to be asked about what it did."""
BUDGET_S = 60


def tree(top: Path) -> dict[str, tuple[object, ...]]:
    """Every name below a folder, with what it is; nothing is followed, no FIFO is opened."""
    found: dict[str, tuple[object, ...]] = {}
    for here, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = Path(here, name)
            what = path.lstat()
            held: object = None
            if stat.S_ISREG(what.st_mode):
                held = path.read_bytes()
            elif stat.S_ISLNK(what.st_mode):
                held = os.readlink(path)
            found[str(path.relative_to(top))] = what.st_mode, what.st_ino, held
    return found


def made(file: Path, text: str) -> None:
    """A file, with the folder that it lies in."""
    file.parent.mkdir()
    file.write_text(text)


# ---------------------------------------------------------------- what is told, and what is not

LAYERS = r"""
import os, re, sys
def reached():
    found = []
    with open("/proc/self/mountinfo") as file:
        lines = file.read().splitlines()
    named = set()
    for line in lines:
        if " - overlay " in line:
            for paths in re.findall(r"(?:lowerdir|upperdir|workdir)\+?=([^, ]+)", line):
                named |= set(paths.split(":"))
    assert named, "no overlay: " + "; ".join(lines)
    roots = ("", "/proc/self/root", "/proc/1/root", "/proc/self/cwd/" + "../" * 30)
    for path in named | {os.path.dirname(p) for p in named} | {"/mnt/l0", "/mnt/u0"}:
        for root in roots:
            try:
                found += [f"{root}{path}/{name}" for name in os.listdir(root + path)]
            except OSError:
                pass
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += [f"{fd}: {x}" for x in os.listdir(f"/proc/self/fd/{fd}/") if x == "SECRET"]
        except OSError:
            pass
    return sorted(named), found
named, found = reached()
print(len(named), [x for x in found if not x.startswith("/proc/self/cwd")])
"""


@pytest.mark.parametrize("mode", OVERLAID)
async def test_row_008_the_layers_under_a_workspace_cannot_be_reached(cage, mode):
    """In the lower one lies what is masked; who writes the upper one writes past every check."""
    if cage.level == "container":
        return  # No overlay there.
    (cage.workspace / "SECRET").write_text("x")
    script = cage.folder / "layers.py"
    script.write_text(LAYERS)
    spec = cage.spec(mode=mode)
    got = await cage.command(sys.executable, "-I", "-S", "-c", LAYERS, spec=spec)
    assert got.kind is None, got.stderr
    count, _, found = got.stdout.decode().partition(" ")
    assert int(count) >= 2
    assert found.strip() == "[]"
    # The control: where such mounts are not detached, the same names lead to them.
    place = cage.folder / "control"
    for name in ("m", "w", "u", "k", "o"):
        (place / name).mkdir(parents=True)
    (place / "w" / "SECRET").write_text("x")
    layers = f"lowerdir={place}/m:{place}/w,upperdir={place}/u,workdir={place}/k,userxattr"
    mounts = (
        f"mount -t tmpfs t {place}/k && mkdir {place}/k/u {place}/k/k && mount -t overlay o "
        f"-o {layers.replace('/u,', '/k/u,').replace('/k,userxattr', '/k/k,userxattr')} {place}/o"
        f" && exec {sys.executable} -I -S {script}"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounts],
        capture_output=True,
        check=False,
        timeout=BUDGET_S,
    )
    assert b"SECRET" in done.stdout, done


async def test_row_014_no_attribute_is_a_whiteout(cage):
    """With `user.overlay.opaque` a folder would stand for the deletion of all that lies in it."""
    if cage.level == "container":
        return
    (cage.workspace / "src").mkdir()
    (cage.workspace / "src" / "kept").write_text("kept")
    before = tree(cage.workspace)
    code = """
import os
for path in ("src", "src/kept", "."):
    for name in ("opaque", "whiteout", "redirect", "metacopy", "origin", "xattr"):
        for value in (b"y", b"x", b"/src", b""):
            try: os.setxattr(path, f"user.overlay.{name}", value)
            except OSError: pass
"""
    async with cage.executor() as box:
        got = await box.call("python", {"code": code})
        if got.error is None:
            assert got.effects is not None
            assert got.effects.deleted == ()
        assert tree(cage.workspace) == before or got.success
        assert (cage.workspace / "src" / "kept").read_text() == "kept"
        control = await box.call("shell", {"command": "rm -r src && mkdir src"})
    assert control.success
    assert list((cage.workspace / "src").iterdir()) == [], "the control: a real deletion is one"


async def test_row_012_a_read_only_workspace_takes_no_change(cage):
    """A tool that only reads must not be one that writes a little."""
    if cage.level == "container":
        return  # There it is Landlock's, and row 12's own probes are made.
    (cage.workspace / "file").write_text("text")
    (cage.workspace / "sub").mkdir()
    before = tree(cage.workspace)
    changes = (
        "echo x > new; echo x > file; : > file; truncate -s 0 file; rm file; mv file other;"
        "mkdir d; rmdir sub; chmod 777 file; ln file l; ln -s file s; mkfifo f; touch -d @0 file;"
        "cp file sub/; echo end"
    )
    modes: dict[WorkspaceMode, bool] = {"read_only": True, "transaction": False}
    for mode, expected in modes.items():
        async with cage.executor(approver=NOBODY) as box:
            got = await box.call("shell", {"command": changes}, workspace_mode=mode)
        assert "end" in got.content
        assert (tree(cage.workspace) == before) is expected, mode


# ---------------------------------------------------------------- names that run later

W_NAMES = [
    ".git/hooks/pre-commit",
    ".git/config",
    ".mcp.json",
    ".claude/settings.json",
    ".vscode/tasks.json",
    ".husky/pre-push",
    ".github/workflows/ci.yml",
    ".envrc",
    "sub/sitecustomize.py",
    "sub/evil.pth",
    "AGENTS.md",
    "sub/.GIT/hooks/post-checkout",
    ".Mcp.json",
]
RW_NAMES = [".env", "sub/.env.local", "id_rsa", "deep/er/tls.key", "credentials.json", ".ENV"]
WRITE = "mkdir -p \"$(dirname '{0}')\" && printf evil > '{0}'"
MOVE = "mkdir t && echo x > t/x && mkdir -p \"$(dirname '{0}')\" && mv t/x '{0}' && rmdir t"


@pytest.mark.parametrize("name", [*W_NAMES, *RW_NAMES])
async def test_row_016_a_protected_name_that_is_absent_is_refused_and_leaves_no_stub(cage, name):
    """A hook or a start-up file that a tool may create is run by whoever comes next."""
    if cage.level == "container":
        return  # Nothing is staged there: what is written in place is asked about before.
    (cage.workspace / "plain").write_text("x")
    before = tree(cage.workspace)
    near = name.replace(".", "_").replace("id_", "no_") + "-near"
    async with cage.executor(approver=NOBODY) as box:
        got = await box.call("shell", {"command": WRITE.format(name)})
        # Also when it is made by another name, and moved there.
        moved = await box.call("shell", {"command": MOVE.format(name)})
        assert tree(cage.workspace) == before
        control = await box.call("shell", {"command": WRITE.format(near)})
    for each in (got, moved):
        assert isinstance(each.error, EffectsRefused)
        assert name in [one["path"] for one in each.error.paths]
        assert all(one["rule"] for one in each.error.paths)
    assert control.ok, "the control: a name that nothing obeys"
    assert (cage.workspace / near).read_text() == "evil"


@pytest.mark.parametrize("name", [W_NAMES[0], W_NAMES[2], RW_NAMES[0]])
async def test_row_016_one_that_is_there_keeps_what_it_was(cage, name):
    """Overwritten, made to run, removed, renamed away or linked: each is a way to own it."""
    if cage.level == "container":
        return
    path = cage.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("kept")
    path.chmod(0o640)
    (cage.workspace / "plain").write_text("x")
    before = tree(cage.workspace)
    ways = ["echo evil > {}", "chmod 755 {}", "rm -f {}", "mv {} away", "ln -f plain {}"]
    async with cage.executor(approver=NOBODY) as box:
        for way in ways:
            got = await box.call("shell", {"command": way.format(name)})
            assert tree(cage.workspace) == before, (way, got)
        # Whatever is asked for, what nobody may write nobody can say yes to.
    async with cage.executor() as box:
        got = await box.call("shell", {"command": f"echo agreed > {name}"})
    is_floor = name in RW_NAMES
    assert (path.read_text() == "kept") is is_floor
    assert got.effects is not None
    assert ([one["code"] for one in got.effects.refused] == ["masked_kept"]) is is_floor


async def test_row_016_the_start_up_files_of_a_home_are_refused(cage, monkeypatch, tmp_path):
    """In a folder of a home, what a shell or a session reads at its start has plain names."""
    if cage.level == "container":
        return
    home = tmp_path / "home"
    cage.workspace = home / ".config"
    cage.workspace.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    names = ["fish/config.fish", "environment.d/x.conf", "autostart/x.desktop", "nvim/init.lua"]
    async with cage.executor(approver=NOBODY) as box:
        for name in names:
            got = await box.call("shell", {"command": WRITE.format(name)})
            assert isinstance(got.error, EffectsRefused), name
        assert tree(cage.workspace) == {}
        control = await box.call("shell", {"command": WRITE.format("fish-like/config.fish")})
    assert control.ok


async def test_row_016_control_in_place_and_with_a_yes_it_is_written(cage):
    """Without this, the rows above might show nothing but a jail that writes nothing."""
    async with cage.executor() as box:
        for number, mode in enumerate(("direct", cage.mode)):
            name = f"r{number}/.mcp.json"
            got = await box.call("shell", {"command": WRITE.format(name)}, workspace_mode=mode)
            assert got.ok, got
            assert (cage.workspace / name).read_text() == "evil"


async def test_row_016_a_repository_under_another_name_is_still_one(cage):
    """CASES.md 21: `mv .git g`, a hook written there, and back again."""
    if cage.level == "container":
        return
    subprocess.run(["git", "init", "-q", str(cage.workspace / "r")], check=True)
    (cage.workspace / "r" / ".git" / "hooks" / "pre-commit").write_text("kept")
    before = tree(cage.workspace)
    there = "cp -r r/.git r/g && rm -rf r/.git"
    ways = [
        f"{there}; echo evil > r/g/hooks/pre-commit; cp -r r/g r/.git; rm -rf r/g",
        f"{there}; echo evil > r/g/hooks/pre-commit",
        "mv r q; echo evil > q/.git/hooks/pre-commit; mv q r",
        "cp -r r q; rm -rf r; echo evil > q/.git/hooks/pre-commit; mv q r",
        "mkdir r/x; echo evil > r/x/pre-commit; rm -rf r/.git/hooks; mv r/x r/.git/hooks",
    ]
    async with cage.executor(approver=NOBODY) as box:
        for way in ways:
            got = await box.call("shell", {"command": way})
            assert isinstance(got.error, EffectsRefused), (way, got)
            assert tree(cage.workspace) == before, way
        control = await box.call("shell", {"command": "mkdir r/x; mv r/x r/y; echo x > r/y/z"})
    assert control.ok
    assert (cage.workspace / "r" / "y" / "z").exists()


# ---------------------------------------------------------------- swaps, siblings, dangling links


async def test_row_018_a_folder_swapped_for_a_link_before_the_commit_is_not_followed(
    cage, tmp_path
):
    """Between the run and the commit a person may think for minutes, and others may act."""
    if cage.level == "container":
        return
    outside = tmp_path / "outside"
    outside.mkdir()
    inside = cage.workspace / "sub"
    inside.mkdir()

    def swap(request: ApprovalRequest) -> bool:
        if request.stage == "after" and "swap" in request.text:
            inside.rename(tmp_path / "moved")
            inside.symlink_to(outside)
        return True

    async with cage.executor(approver=from_callback(swap)) as box:
        control = await box.call("shell", {"command": "echo x > sub/plain"}, review=True)
        got = await box.call("shell", {"command": "echo evil > sub/swap"}, review=True)
    assert control.ok
    assert isinstance(got.error, CommitConflict), got
    assert list(outside.iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == ["plain"]


async def test_row_011_a_sibling_with_the_same_beginning_is_another_folder(any_cage, tmp_path):
    """CASES.md 24: `/srv/share-secret` beside `/srv/share`."""
    cage = any_cage
    sibling = Path(f"{cage.workspace}-secret")
    made(sibling / "file", "SECRET")
    (cage.workspace / "to-sibling").symlink_to(sibling)
    script = (
        f"cat {sibling}/file ../{sibling.name}/file to-sibling/file; ls {sibling};"
        f"echo x > {sibling}/new; echo x > ../{sibling.name}/new; echo x > to-sibling/new; echo end"
    )
    async with cage.executor(approver=NOBODY) as box:
        got = await box.call("shell", {"command": script})
        read = await box.call("read_file", {"path": f"../{sibling.name}/file"})
        write = await box.call("write_file", {"path": f"{sibling}/new", "content": "x"})
    assert "end" in got.content
    assert "SECRET" not in got.content + read.content + write.content
    assert not read.success
    assert not write.success
    assert os.listdir(sibling) == ["file"]
    done = subprocess.run(script, shell=True, cwd=cage.workspace, capture_output=True, check=False)
    assert b"SECRET" in done.stdout, "the control: outside a jail"
    assert (sibling / "new").exists()


async def test_row_004_a_dangling_link_is_no_way_to_write_outside(any_cage, tmp_path):
    """CASES.md 24: what is checked is a name that does not exist, and it is made by the write."""
    cage = any_cage
    target = tmp_path / "outside" / "new"
    target.parent.mkdir()
    (cage.workspace / "out").symlink_to(target)
    (cage.workspace / "in").symlink_to("made")
    async with cage.executor() as box:
        shell = await box.call("shell", {"command": "echo x > out; echo x > in; echo end"})
        write = await box.call("write_file", {"path": "out", "content": "x"})
    assert "end" in shell.content
    assert not write.success
    assert list(target.parent.iterdir()) == []
    assert (cage.workspace / "out").is_symlink()
    assert (cage.workspace / "made").read_text() == "x\n", "the control: one that stays inside"
    (cage.workspace / "out").write_text("outside a jail")
    assert target.exists()


async def test_row_003_a_link_that_a_call_makes_is_not_kept_when_it_leads_out(cage, tmp_path):
    """The next program that follows it is not in a jail."""
    if cage.level == "container":
        return
    before = tree(cage.workspace)
    targets = ["/etc/passwd", "../../x", str(tmp_path), "sub/../../x", "/proc/self/environ"]
    async with cage.executor(approver=NOBODY) as box:
        for target in targets:
            got = await box.call("shell", {"command": f"ln -s {target} l"})
            assert isinstance(got.error, EffectsRefused), target
            assert tree(cage.workspace) == before
        chain = await box.call("shell", {"command": "mkdir a; ln -s .. a/b; ln -s a/b/../x c"})
        assert isinstance(chain.error, EffectsRefused)
        control = await box.call("shell", {"command": "echo x > f; ln -s f l; ln -s nowhere m"})
    assert control.ok, control
    assert (cage.workspace / "l").read_text() == "x\n"


# ---------------------------------------------------------------- trees, FIFOs, names

DEPTH = 10_000 if IS_FULL else 1_200
BOTTOMLESS = """
import os
for n in range(DEPTH):
    os.mkdir("d")
    os.chdir("d")
open("file", "w").close()
"""


async def test_row_020_a_bottomless_tree_in_the_workspace_is_refused_whole(cage):
    """Who recurses over it ends; who keeps half of it leaves what nobody can remove."""
    if cage.level == "container":
        return
    before = tree(cage.workspace)
    async with cage.executor(disk_files=DEPTH + 100, wall_s=100) as box:
        got = await box.call("python", {"code": BOTTOMLESS.replace("DEPTH", str(DEPTH))})
        assert isinstance(got.error, EffectsRefused), got.error
        assert {one["code"] for one in got.error.paths} <= {"path_too_deep", "path_too_long"}
        assert len(got.error.message) < 10_000
        assert tree(cage.workspace) == before
        control = await box.call("python", {"code": BOTTOMLESS.replace("DEPTH", "100")})
    assert control.success
    assert (cage.workspace / "/".join("d" * 100) / "file").exists()


async def test_row_020_a_closed_tree_in_the_workspace_harms_no_later_call(cage):
    """A folder that its owner cannot list would be one that no index can be made of."""
    if cage.level == "container":
        return
    (cage.workspace / "plain").write_text("x")
    closed = "mkdir -p c/sub; echo x > c/sub/f; chmod 000 c/sub c"
    async with cage.executor() as box:
        got = await box.call("shell", {"command": closed})
        after = await box.call("shell", {"command": "cat plain"})
    async with cage.executor() as box:
        later = await box.call("read_file", {"path": "plain"})
    for folder in (cage.workspace / "c", cage.workspace / "c" / "sub"):
        if folder.exists():
            folder.chmod(0o700)
    assert after.ok, (got.error, after.error)
    assert later.success, later.error


async def test_row_021_what_is_no_file_blocks_no_commit(cage):
    """Opening a FIFO waits, opening a device does something: a commit opens neither."""
    if cage.level == "container":
        return
    os.mkfifo(cage.workspace / "there")
    (cage.workspace / "file").write_text("x")
    a_socket = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    with trio.fail_after(BUDGET_S):
        async with cage.executor() as box:
            kept = await box.call("shell", {"command": "mkfifo made; mkfifo -m 600 m2"})
            swapped = await box.call(
                "shell", {"command": "rm there file; echo x > there; mkfifo file"}, review=True
            )
            sock = await box.call("python", {"code": a_socket})
            device = await box.call("shell", {"command": "mknod n c 1 3"})
            control = await box.call("shell", {"command": "cat there"})
    assert kept.ok
    assert stat.S_ISFIFO((cage.workspace / "made").lstat().st_mode)
    assert swapped.ok
    assert stat.S_ISFIFO((cage.workspace / "file").lstat().st_mode)
    assert control.content.startswith("x\n")
    assert isinstance(sock.error, EffectsRefused)
    assert not device.ok
    assert not (cage.workspace / "s").exists()
    assert not (cage.workspace / "n").exists()


ODD = [b"new\nline", b"not-utf8-\xff\xfe", b"x" * 255, b" ", b"-rf", "‮txt.exe".encode()]


@pytest.mark.parametrize("review", [False, True])
async def test_row_022_odd_names_are_kept_and_told_losslessly(cage, review):
    """A name that is changed on its way names another file."""
    if cage.level == "container":
        return
    os.mkdir(cage.workspace / "odd")
    code = f"import os\nfor name in {ODD!r}:\n    open(os.path.join(b'odd', name), 'w').close()"
    async with cage.executor() as box:
        got = await box.call("python", {"code": code}, review=review)
        plain = await box.call("python", {"code": "open('plain', 'w').close()"})
        gone = await box.call("shell", {"command": "rm -r odd"})
    assert got.success, got.error
    for result, sort in ((got, "created"), (gone, "deleted")):
        told = json.loads(json.dumps(result.to_json()))["effects"][sort]
        names = {
            base64.b64decode(one["path_base64"]) if "path_base64" in one else one["path"].encode()
            for one in told
        }
        assert names - {b"odd"} == {b"odd/" + name for name in ODD}
        assert sum("path_base64" in one for one in told) == 1
    assert plain.to_json()["effects"]["created"] == [{"path": "plain"}], "the control"


# ---------------------------------------------------------------- sockets, FIFOs, locks of the host

REACH = r"""
import errno, fcntl, os, socket, sys
said = {}
def attempt(name, act):
    try:
        said[name] = act() or "reached"
    except OSError as error:
        said[name] = errno.errorcode.get(error.errno, "timeout")
def stream():
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5); s.connect("sock")
def datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", "datagram")
def fifo():
    fd = os.open("fifo", os.O_WRONLY | os.O_NONBLOCK); os.write(fd, b"x"); os.close(fd)
def lock():
    fd = os.open("file", os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
def record():
    fd = os.open("file", os.O_RDWR); fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
def lease():
    fd = os.open("mine", os.O_RDONLY); fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return "held"
os.chdir(sys.argv[1])
for act in (stream, datagram, fifo, lock, record, lease):
    attempt(act.__name__, act)
print(said, flush=True)
"""


class Host:
    """A socket of each kind, a FIFO with a reader, and a locked file, in a folder of the host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "file").write_text("x")
        (folder / "mine").write_text("x")
        os.mkfifo(folder / "fifo")
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        # A name of any length: unix(7) takes 108 bytes.
        at = f"/proc/self/fd/{here}"
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.bind(f"{at}/sock")
        self.stream.listen(8)
        self.datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagram.bind(f"{at}/datagram")
        os.close(here)
        self.fifo = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        for name in ("sock", "datagram", "fifo", "file", "mine"):
            os.chmod(folder / name, 0o666)
        for each in (self.stream, self.datagram):
            each.setblocking(False)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fifo)
        self.stream.close()
        self.datagram.close()

    def taken(self) -> set[str]:
        """What came in."""
        found = set()
        for name, take in (
            ("stream", lambda: self.stream.accept()[0].close()),
            ("datagram", lambda: self.datagram.recv(8)),
        ):
            try:
                take()
                found.add(name)
            except BlockingIOError:
                pass
        try:
            if os.read(self.fifo, 8):
                found.add("fifo")
        except BlockingIOError:
            pass
        return found


ALL = {"stream", "datagram", "fifo"}


@pytest.mark.parametrize("way", ["transaction", "read_only", "granted"])
async def test_row_040_no_socket_or_fifo_of_the_host_is_reached_through_a_workspace(
    cage, way, tmp_path
):
    """CASES.md 26: read-only is about files; a socket answers whoever finds it."""
    if cage.level == "container":
        return  # No overlay there; no socket() either.
    granted = tmp_path / "granted"
    granted.mkdir()
    folder = granted if way == "granted" else cage.workspace
    mode: WorkspaceMode = "read_only" if way == "read_only" else "transaction"
    argv = f"{sys.executable} -I -S - {folder}"
    with Host(folder) as host:
        async with Executor(
            workspace=cage.workspace,
            state_dir=cage.folder / "state",
            approver=NOBODY,
            isolation=cage.level,
            read=[granted] if way == "granted" else [],
        ) as box:
            got = await box.call(
                "shell", {"command": argv}, workspace_mode=mode, stdin=REACH.encode()
            )
        assert got.stdout is not None
        said = got.stdout.text()
        assert "'stream': 'E" in said, got
        assert host.taken() == set()
        # The control: in place, or outside a jail, each is reached.
        if way != "granted":
            async with cage.executor() as box:
                control = await box.call(
                    "shell", {"command": argv}, workspace_mode="direct", stdin=REACH.encode()
                )
            assert control.stdout is not None
        else:
            subprocess.run(argv.split(), input=REACH.encode(), check=True, capture_output=True)
        assert host.taken() == ALL


HOLD = """
import fcntl, os, sys
def handler():
    held = [os.open(n, os.O_RDONLY) for n in (".", "shared")]
    for fd in held:
        fcntl.flock(fd, fcntl.LOCK_EX)
    written = os.open("shared", os.O_RDWR)
    fcntl.lockf(written, fcntl.LOCK_EX)
    own = os.open("leased", os.O_RDONLY)
    try:
        fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        print("and leased", flush=True)
    except OSError as error:
        print("locked", error, flush=True)
    sys.stdin.read()
"""
TRY = """
import fcntl, os, sys
os.chdir(sys.argv[1])
for act in (fcntl.flock, fcntl.lockf):
    for name in ("shared", "."):
        flags = os.O_RDONLY if name == "." else os.O_RDWR
        if act is fcntl.lockf and name == ".": continue
        try: act(os.open(name, flags), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError: print("stalled by", act.__name__, name)
try: os.open("leased", os.O_WRONLY | os.O_NONBLOCK)
except OSError: print("stalled by a lease")
"""


@pytest.mark.parametrize("mode", ["transaction", "direct"])
async def test_row_048_no_lock_or_lease_in_a_workspace_is_the_hosts(cage, mode):
    """One flock on a shared file would otherwise stop an editor, git, or the next call."""
    from .test_lifecycle import Beside, while_beside

    if cage.level == "container":
        return  # In place, with no overlay: the row's other test is made there.
    for name in ("shared", "leased"):
        (cage.workspace / name).write_text("x")
        (cage.workspace / name).chmod(0o666)
    beside = Beside(cage, HOLD, workspace_mode=mode)

    async def look() -> tuple[str, str | None]:
        argv = [sys.executable, "-I", "-S", "-c", TRY, str(cage.workspace)]
        done = await trio.to_thread.run_sync(
            lambda: subprocess.run(argv, capture_output=True, text=True, check=True)
        )
        with trio.fail_after(BUDGET_S):
            async with cage.executor() as box:
                other = await box.call("shell", {"command": "echo y >> shared; echo z > leased"})
        return done.stdout, None if other.error is None else other.error.kind

    said, other = await while_beside(beside, look)
    if mode == "transaction":
        assert said == ""
        assert other is None, "a call beside it changed and committed the same files"
    else:
        assert other in (None, "commit_conflict"), "somebody has it open: not waited for"
        assert "stalled by flock shared" in said, "the control: in place it is the host's lock"
        assert "stalled by lockf shared" in said
        assert ("stalled by a lease" in said) is (b"and leased" in beside.said)


# ---------------------------------------------------------------- full layers, missing layers

FULL = {
    "bytes": ("with open('big', 'wb') as file: file.write(bytes(SIZE << 20))", 64, 4),
    "inodes": ("for n in range(SIZE * 10): open(f'n{n}', 'w').close()", 100, 4),
    "folders": ("import os\nfor n in range(SIZE * 10): os.mkdir(f'd{n}')", 100, 4),
    "copied up": ("import os\nfor n in range(SIZE): os.chmod(f'old/{n}', 0o600)", 200, 20),
}


@pytest.mark.parametrize("what", FULL)
async def test_row_094_a_full_layer_is_typed_and_nothing_is_kept(cage, what):
    """Half of what a call wrote is what nobody asked for; row 95 is the one about inodes."""
    if cage.level == "container":
        return  # disk_limited is not among what that level holds.
    await full(cage, what)


@pytest.mark.parametrize("what", ["inodes", "folders"])
async def test_row_095_so_is_one_that_is_full_of_names(cage, what):
    """Empty files have no bytes that could be bounded."""
    if cage.level == "container":
        return
    await full(cage, what)


async def full(cage: Cage, what: str) -> None:
    """Too much, and then little enough."""
    source, much, little = FULL[what]
    (cage.workspace / "old").mkdir()
    for number in range(200):
        (cage.workspace / "old" / str(number)).write_text("x" * 4096)
    before = tree(cage.workspace)
    async with cage.executor(disk_bytes="8M", disk_files=120) as box:
        got = await box.call("python", {"code": source.replace("SIZE", str(much))})
        assert isinstance(got.error, DiskExceeded), got
        assert got.effects is not None
        assert got.effects.paths == ()
        assert tree(cage.workspace) == before
        control = await box.call("python", {"code": source.replace("SIZE", str(little))})
    assert control.success, control.error
    assert tree(cage.workspace) != before


@pytest.mark.parametrize("waive", [(), ("paths_masked",), ("disk_limited",)])
@pytest.mark.parametrize("mode", OVERLAID)
async def test_row_085_without_an_overlay_no_call_slides_into_the_workspace_itself(
    cage, mode, waive
):
    """A host that cannot stage writes must not be one that makes them at once."""
    if cage.level == "container":
        return  # It promises none.
    (cage.workspace / "file").write_text("x")
    before = tree(cage.workspace)
    command = {"command": "cat file; echo x > new; echo went-on"}
    with Host(cage.workspace) as host:
        before = tree(cage.workspace)
        with offers.assume(offers.look(thorough=True).without("overlay")):
            async with cage.executor(waive=waive) as box:
                got = await box.call("shell", command, workspace_mode=mode)
                control = await box.call(
                    "shell", {"command": "echo went-on"}, workspace_mode="direct"
                )
        if mode == "transaction" or "paths_masked" not in waive:
            assert isinstance(got.error, ConfinementFailed), got
            assert got.error.guarantee in ("writes_transactional", "paths_masked")
            assert "went-on" not in got.content
        else:
            assert got.receipt is not None
            assert "paths_masked" not in got.receipt.held, "waived by name, and said so"
        assert tree(cage.workspace) == before
        assert host.taken() == set()
    assert control.ok, "the control: what needs no overlay runs"
