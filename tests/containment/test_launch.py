"""Rows 85 and 128 to 139: how a jail is started, and who may have one started."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell.executor import Executor
from toolcell_sandbox import JailSpec, Pool, PythonHandler, run_in_jail

from . import probes
from .test_files import waived

SANDBOX = str(Path(probes.__file__).resolve().parents[2])
CALL = """
import json, os, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, PythonHandler, run_in_jail
workspace, level = sys.argv[1:3]
def handlers():
    yield CommandHandler(argv=("touch", "ran"))
    yield PythonHandler(module="own", qualname="handler", file=workspace + "/own.py")
async def main():
    spec = JailSpec(workspace=workspace, workspace_mode="direct", isolation=level)
    found = []
    for handler in handlers():
        outcome = await run_in_jail(handler, spec)
        failure = outcome.failure
        found.append([getattr(failure, n, None) for n in ("kind", "guarantee", "stage", "errno")])
    print(json.dumps(found))
"""
REFUSING = """
import importlib.util, sys
sys.path.append(sys.argv[4])
from tests.containment import probes
number = int(sys.argv[3])
if number >= 0:
    probes._filter([(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), probes.ALLOW])
"""
LAYERS = {
    "seccomp": ("seccomp", {"standard", "hardened", "container"}),
    "landlock": ("landlock_restrict_self", {"standard", "hardened", "container"}),
    "mount": ("mount", {"standard", "hardened"}),
    "root": ("pivot_root", {"standard", "hardened"}),
    "move_mount": ("move_mount", {"standard", "hardened"}),
}


def called(workspace: Path, level: str, refused: int) -> Any:
    """How two calls end under a supervisor that is refused a system call, and what it left."""
    (workspace / "own.py").write_text("def handler():\n    open('ran-too', 'w').close()\n")
    done = subprocess.run(
        [sys.executable, "-c", REFUSING + CALL + "trio.run(main)\n", str(workspace), level,
         str(refused), SANDBOX],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran = sorted(p.name for p in workspace.iterdir() if p.name.startswith("ran"))
    return json.loads(done.stdout), ran


@pytest.mark.parametrize("layer", LAYERS)
def test_row_085_a_layer_that_cannot_be_had_means_that_nothing_runs(tmp_path, any_level, layer):
    """A jail with a fence less is what a hostile host would be glad to be asked for."""
    call, levels = LAYERS[layer]
    if any_level not in levels:
        return  # That level has no such layer.
    number = probes._SHARED.get(call) or probes._NUMBERS[call][probes.COLUMN]
    ended, ran = called(tmp_path, any_level, number)
    assert ran == []
    assert [kind for kind, *_ in ended] == ["confinement_failed"] * 2, ended
    assert [errno for *_, errno in ended] == ["EPERM"] * 2


def test_row_085_control_with_nothing_refused_both_run(tmp_path, any_level):
    """Without this, the test above would show nothing but a supervisor that cannot start."""
    ended, ran = called(tmp_path, any_level, -1)
    assert ([kind for kind, *_ in ended], ran) == ([None, None], ["ran", "ran-too"])


# ---------------------------------------------------------------- what is planted

PLANTED = """
import os, sys
with open({place!r} + "/" + str(os.getpid()), "w") as file:
    file.write(repr(sys.orig_argv))
"""


def planted(place: Path) -> list[str]:
    """The command lines of whoever ran what was planted."""
    return [file.read_text() for file in place.iterdir()]


def test_row_130_nothing_customises_a_jails_interpreter_before_it_is_confined(tmp_path, any_level):
    """Our zygote has every right of its user: a .pth of the venv would have them too."""
    place, workspace, home = (tmp_path / n for n in ("place", "ws", "home"))
    for folder in (place, workspace, home):
        folder.mkdir()
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = [venv / "lib" / version / "site-packages", home / ".local/lib" / version]
    packages[1] = packages[1] / "site-packages"
    packages[1].mkdir(parents=True)
    text = PLANTED.format(place=str(place))
    for folder in (*packages, workspace):
        for name in ("sitecustomize.py", "usercustomize.py", "json.py.off"):
            (folder / name).write_text(text)
        (folder / "planted.pth").write_text(f"import sys; exec({text!r})\n")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    for part in ("executor", "policies", "sandbox"):
        ours.append(f"{SANDBOX}/{part}")
    script = f"import sys; sys.path += {ours!r}\n{CALL}\ntrio.run(main)\n"
    (workspace / "own.py").write_text("def handler():\n    open('ran-too', 'w').close()\n")
    done = subprocess.run(
        [str(venv / "bin" / "python"), "-c", script, str(workspace), any_level],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(workspace), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [kind for kind, *_ in json.loads(done.stdout)] == [None, None]
    ran = planted(place)
    assert len(ran) == 1, "the control: the supervisor itself ran it, as any Python would"
    assert "bootstrap.py" not in ran[0]


async def test_row_131_a_module_in_the_working_folder_shadows_nothing(
    any_cage, monkeypatch, tmp_path
):
    """`json.py` in a hostile checkout is the first thing that an import would find."""
    place = tmp_path / "place"
    place.mkdir()
    text = PLANTED.format(place=str(place))
    for name in ("json", "struct", "ctypes", "toolcell_sandbox", "encodings"):
        (any_cage.workspace / f"{name}.py").write_text(text + "raise SystemExit('shadowed')\n")
    monkeypatch.chdir(any_cage.workspace)
    monkeypatch.setenv("PYTHONPATH", str(any_cage.workspace))
    got = await any_cage.run("import ctypes, json, struct\nreturn json.dumps([1])")
    assert got.value == "[1]"
    command = await any_cage.run("import json\nreturn json.dumps([1])", kind="command")
    assert command.kind is None
    assert planted(place) == []
    (any_cage.workspace / "encodings.py").unlink()
    control = subprocess.run(
        [sys.executable, "-S", "-c", "import json"], check=False, capture_output=True
    )
    assert b"shadowed" in control.stderr
    assert planted(place)


async def test_row_132_a_planted_program_is_not_found_first(any_cage, monkeypatch, tmp_path):
    """A `sh` in the workspace is one that everybody's PATH may lead to."""
    place = tmp_path / "place"
    place.mkdir()
    for name in ("sh", "python3", "python", "true", "mount", "newuidmap"):
        program = any_cage.workspace / name
        program.write_text(f"#!/bin/bash\necho $0 > {place}/$$\nexit 42\n")
        program.chmod(0o755)
    monkeypatch.chdir(any_cage.workspace)
    monkeypatch.setenv("PATH", f"{any_cage.workspace}:.:{os.environ['PATH']}")
    for argv in (("sh", "-c", "exit 7"), ("true",), ("python3", "-c", "raise SystemExit(7)")):
        got = await any_cage.command(*argv)
        assert (got.kind, got.exit_code) == (None, 0 if argv == ("true",) else 7)
    assert planted(place) == []
    assert subprocess.run(["true"], check=False).returncode == 42, "the control"
    assert planted(place)


async def test_row_133_a_planted_bytecode_file_is_not_what_runs(any_cage):
    """What was approved is the source; the interpreter prefers what lies beside it."""
    workspace = any_cage.workspace
    source = workspace / "own.py"
    source.write_text("def handler():\n    return 'planted'\n")
    py_compile.compile(
        str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True
    )
    source.write_text("def handler():\n    return 'source'\n")
    from toolcell_sandbox import PythonHandler, run_in_jail

    handler = PythonHandler(module="own", qualname="handler", file=str(source))
    assert (await run_in_jail(handler, any_cage.spec())).value == "source"
    control = subprocess.run(
        [sys.executable, "-c", "import own; print(own.handler())"],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=True,
    )
    assert control.stdout == "planted\n"


async def test_row_135_arguments_are_in_no_command_line(any_cage):
    """Every user of a machine reads every command line."""
    secret = "s3cret-in-an-argument"
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(path.read_bytes())
                except OSError:
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        from toolcell_sandbox import PythonHandler, run_in_jail

        handler = PythonHandler(
            module="own",
            qualname="handler",
            file=any_cage.script("def handler(token): return len(token)"),
            arguments={"token": secret},
        )
        outcome = await run_in_jail(handler, any_cage.spec())
        got = await any_cage.command("sh", "-c", "sleep 0.1; : visible-on-purpose")
    finally:
        stop.set()
        thread.join()
    assert (outcome.value, got.kind) == (len(secret), None)
    assert not any(secret.encode() in line for line in seen)
    assert any(b"visible-on-purpose" in line for line in seen), "the control: the watcher sees"


# ---------------------------------------------------------------- who may


async def _raises(request: Any) -> Any:
    raise RuntimeError("the approver is broken")


async def _nonsense(request: Any) -> Any:
    return "yes"


async def _sleeps(request: Any) -> Any:
    await trio.sleep_forever()


@pytest.mark.parametrize("approver", [_raises, _nonsense, _sleeps])
async def test_row_137_an_approver_that_fails_has_not_approved(
    any_cage, approver, monkeypatch, autojump_clock
):
    """Anything but a clear yes is a no."""
    call = ("shell", {"command": "touch ran"})
    options: dict[str, Any] = {
        "workspace": any_cage.workspace,
        "state_dir": any_cage.folder / "state",
        "isolation": any_cage.level,
    }
    async with Executor(approver=approver, **options) as box:
        got = await box.call(*call)
    assert got.error is not None
    assert got.error.kind in ("approval_unavailable", "approval_timeout", "approval_rejected")
    assert not (any_cage.workspace / "ran").exists()


async def test_row_137_control_a_clear_yes_runs_it(any_cage):
    """Without this, the test above would show nothing but a tool that never runs."""
    async with any_cage.executor() as box:
        got = await box.call("shell", {"command": "touch ran"})
    assert got.success
    assert (any_cage.workspace / "ran").exists()


@pytest.mark.parametrize(
    "path", [".env", "link", "./sub/../.env", "sub//../.env", "folder-link/.env", "link-to-link"]
)
async def test_row_138_a_denied_file_is_denied_by_whatever_name(cage, path):
    """A list of names holds until somebody writes the name another way."""
    workspace = cage.workspace
    (workspace / "sub").mkdir()
    (workspace / ".env").write_text("SECRET=1")
    (workspace / ".environment").write_text("fine")
    (workspace / "link").symlink_to(".env")
    (workspace / "link-to-link").symlink_to("link")
    (workspace / "folder-link").symlink_to(".")
    async with cage.executor(waive=waived(cage)) as box:
        got = await box.call("read_file", {"path": path})
        near = await box.call("read_file", {"path": ".environment"})
    assert got.error is not None
    assert got.error.kind == "denied"
    assert "SECRET" not in str(got.to_json() if hasattr(got, "to_json") else got)
    assert near.content.strip() == "fine", "the control: the near miss is read"


CALLS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "file"},
    "list_directory": {},
    "write_file": {"path": "new", "content": "x"},
    "shell": {"command": "true"},
    "python": {"code": "1"},
}


async def test_row_139_no_built_in_tool_runs_without_a_jail(any_cage):
    """ "It only reads" is how a tool gets to run in the supervisor."""
    (any_cage.workspace / "file").write_text("text")
    async with any_cage.executor() as box:
        for name, arguments in CALLS.items():
            got = await box.call(name, arguments)
            assert got.success, got
            assert got.receipt is not None
            missing = {"fs_confined", "tree_killed", "env_scrubbed", "fds_closed"} - set(
                got.receipt.held
            )
            assert missing == set(), name
        control = await box.call("read_file", {"path": "missing-argument", "nonsense": 1})
    assert control.receipt is None or not control.receipt.held


USED = """
import ctypes, os
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/home/user")
libc = ctypes.CDLL(None)
def found():
    left = [folder for folder in FOLDERS if os.path.exists(folder + "/left")]
    left += [name for name in ("LEFT",) if name in os.environ]
    left += ["module"] if hasattr(os, "left") else []
    left += ["segment"] if libc.shmget(4711, 0, 0) != -1 else []
    left += ["cwd"] if os.getcwd() != WORKSPACE else []
    return left + [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) > 2]
def handler(leaves):
    before = found()
    if leaves:
        for folder in FOLDERS:
            open(folder + "/left", "w").close()
        os.environ["LEFT"] = os.left = "left"
        libc.shmget(4711, 4096, 0o1666)
        os.chdir("/tmp")
        if os.fork() == 0:
            os.setsid()
            os.read(os.pipe()[0], 1)
    return [before, found()]
"""


@pytest.mark.parametrize("level", ["standard", "hardened"])
async def test_row_134_a_used_jail_is_never_used_again(tmp_path, level):
    """What one call left would be the next one's; at `container` no jail waits for a call."""
    (tmp_path / "used.py").write_text(USED.replace("WORKSPACE", repr(str(tmp_path))))
    spec = JailSpec(workspace=str(tmp_path), workspace_mode="read_only", isolation=level)

    def handler(*, leaves: bool) -> PythonHandler:
        return PythonHandler(
            module="used",
            qualname="handler",
            file=str(tmp_path / "used.py"),
            arguments={"leaves": leaves},
        )

    async with Pool(waiting=1) as pool:
        for leaves in (False, True, False, False):
            waits = await pool.fill(spec)
            got = await run_in_jail(handler(leaves=leaves), spec, pool=pool)
            if level == "hardened" and got.failure is not None and os.geteuid() != 0:
                assert got.failure.kind == "confinement_failed"
                return
            assert got.failure is None, got.failure
            assert waits
            assert got.timing.was_waiting
            before, after = got.value
            assert before == []
            # The control: to the same jail all of it is there.
            assert len(after) == (9 if leaves else 0)
