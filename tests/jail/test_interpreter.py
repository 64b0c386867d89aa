"""The interpreter that runs toolcell, where a jail sees it: never written, and shown as it is."""

from __future__ import annotations

import pytest

from .elsewhere import PLACE, supervised, venv

ATTACKS = """
import hashlib, json, os, sys, trio
from toolcell import Executor
from toolcell.approval import unsafe_approve_all

def state(top):
    found = {}
    for folder, folders, files in os.walk(top):
        for name in (".", *folders, *files):
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            inside = os.readlink(path) if os.path.islink(path) else ""
            if name in files and not inside:
                inside = hashlib.sha256(open(path, "rb").read()).hexdigest()
            found[path] = seen.st_ino, seen.st_mode, seen.st_nlink, seen.st_mtime_ns, inside
    return found

async def main():
    workspace, mode, *rest = sys.argv[1:]
    options = {"workspace": workspace, "state_dir": workspace + "-state"}
    beside, left = workspace + "/beside", []
    async with Executor(**options, approver=unsafe_approve_all) as executor:
        for number, (top, command) in enumerate(zip(rest[::2], rest[1::2], strict=True)):
            before = state(top)
            assert before
            command += f"; echo {number} > beside"
            result = await executor.call("shell", {"command": command}, workspace_mode=mode)
            kept = os.path.exists(beside) and open(beside).read() == f"{number}\\n"
            left.append([state(top) == before, kept, result.error and result.error.kind])
    print(json.dumps(left))

trio.run(main)
"""
COMMANDS = (
    "echo evil > {venv}/pyvenv.cfg",
    "echo evil >> {venv}/bin/activate",
    "echo 'import evil' > {venv}/lib/evil.pth",
    "chmod 777 {venv} {venv}/bin; touch {venv} {venv}/bin/activate",
    "rm -rf {venv}",
    "mv {venv} away",
    "mv {venv}/bin {venv}/away",
    "cp /bin/sh copy; mv -f copy {venv}/bin/python; ln -sf /bin/sh {venv}/bin/python",
    "ln {venv}/bin/activate linked && echo evil >> linked",
    "mkdir -p made/bin; mv {venv} away; mv -T made {venv} || ln -sfnT made {venv}",
    "mv sub away; mkdir -p {venv}/bin; echo evil > {venv}/bin/activate",
    "rm -rf sub; mkdir -p {venv}/bin; cp /bin/sh {venv}/bin/python",
    "mv sub away; ln -s away sub; mkdir -p {venv}; touch {venv}/evil",
    "umount {venv}; mount -o remount,rw {venv}; touch {venv}/evil",
)


@pytest.mark.parametrize("folder", [".venv", "sub/.venv"])
@pytest.mark.parametrize("mode", ["direct", "transaction", "scratch"])
def test_no_jail_writes_to_the_interpreter_in_its_workspace(mode: str, folder: str) -> None:
    """What it leaves there runs next as its supervisor, outside of any jail."""
    place = f"{PLACE}/ws/{folder}"
    prepare = f"mkdir {PLACE}/ws {PLACE}/ws/sub; {venv(place)}"
    commands = ["true", *(command.format(venv=folder) for command in COMMANDS)]
    words = [word for command in commands for word in (place, command)]
    python = f"{place}/bin/python"
    found = supervised(ATTACKS, f"{PLACE}/ws", mode, *words, prepare=prepare, python=python)
    changed = [
        command for command, (is_same, *_) in zip(commands, found, strict=True) if not is_same
    ]
    assert changed == []
    # The control: a call that lets it be does change its workspace, where anything is kept.
    assert found[0] == [True, mode != "scratch", None]


def test_the_same_would_change_any_other_folder() -> None:
    """Else what is refused above is nothing that could have been done."""
    place = f"{PLACE}/ws/.venv"
    prepare = f"mkdir {PLACE}/ws; {venv(place)}"
    words = []
    for number, command in enumerate(COMMANDS):
        if "umount" not in command and "sub" not in command:
            prepare += f"; cp -r {place} {place}-{number}"
            words += [f"{place}-{number}", command.format(venv=f".venv-{number}")]
    python = f"{place}/bin/python"
    found = supervised(ATTACKS, f"{PLACE}/ws", "direct", *words, prepare=prepare, python=python)
    assert found == [[False, True, None]] * 10


REPLACED = """
import json, os, shutil, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Pool, run_in_jail

async def main():
    which = os.path.join(sys.prefix, "which")
    handler = CommandHandler(argv=("cat", which))
    found = []
    async with Pool(waiting=1) as pool:
        for name in ("first", "second"):
            if os.path.exists(which):
                os.rename(sys.prefix, sys.prefix + "-away")
                shutil.copytree(sys.prefix + "-away", sys.prefix, symlinks=True)
            open(which, "w").write(name)
            for given in (None, pool):
                outcome = await run_in_jail(handler, JailSpec(), pool=given)
                found.append([outcome.timing.was_waiting, outcome.stdout.text()])
            await pool.fill(JailSpec())
    print(json.dumps(found))

trio.run(main)
"""


def test_an_interpreter_that_was_made_again_is_the_new_one() -> None:
    """Who has upgraded a package in its venv would run the old one for ten thousand calls."""
    place = f"{PLACE}/env"
    found = supervised(REPLACED, prepare=venv(place), python=f"{place}/bin/python")
    assert found == [[False, name] for name in ("first", "first", "second", "second")]
