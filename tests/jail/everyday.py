"""A desk to do everyday work at: one workspace, whose every call is held against the disk.

After each call three accounts of the workspace have to agree: what the jail said it had when its
command was done, what is on disk now, and what the result says has changed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from toolcell import Answer, Executor, Limits, ToolResult
from toolcell.results import Effects

LISTER = '''
import hashlib, os, stat

def walk(top):
    """Each name below a folder: kind, mode, content, target, time, and other names of the file.

    Of folders no time: what comes and goes in them is told by itself.
    """
    found, folders, names = {}, [b""], {}
    while folders:
        folder = folders.pop()
        for name in os.listdir(os.path.join(top, folder) if folder else top):
            path = os.path.join(folder, name) if folder else name
            real = os.path.join(top, path)
            facts = os.lstat(real)
            kind, content, target = stat.S_IFMT(facts.st_mode), "", ""
            if kind == stat.S_IFDIR:
                folders.append(path)
            elif kind == stat.S_IFREG:
                with open(real, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            elif kind == stat.S_IFLNK:
                target = os.fsdecode(os.readlink(real))
            mode = 0 if kind == stat.S_IFLNK else stat.S_IMODE(facts.st_mode)
            when = 0 if kind == stat.S_IFDIR else facts.st_mtime_ns
            found[os.fsdecode(path)] = [stat.filemode(kind), mode, content, target, when]
            if kind != stat.S_IFDIR:
                names.setdefault((facts.st_dev, facts.st_ino), []).append(os.fsdecode(path))
    for path, told in found.items():
        told.append([])
    for same in names.values():
        for path in same:
            found[path][-1] = sorted(other for other in same if other != path)
    return found
'''
"""Both sides look by the same few lines, the jail's with its own interpreter."""

_MARK = "=== what the jail has ==="
_TELL = f"{LISTER}\nimport json\nprint()\nprint({_MARK!r})\nprint(json.dumps(walk(b'.')))\n"

Listing = dict[str, list[Any]]


def walk(top: Path) -> Listing:
    """What is below a folder on disk, as the jail's own account has it."""
    names: dict[str, Any] = {}
    exec(LISTER, names)
    found: Listing = names["walk"](os.fsencode(top))
    return found


def _is_changed(before: list[Any], after: list[Any]) -> bool:
    """Whether a name is other than it was; that it has lost another name changes only that."""
    return before[:-1] != after[:-1] or not set(after[-1]) <= set(before[-1])


@dataclass(frozen=True, kw_only=True)
class Done:
    """One call that ended well, and was held against the disk."""

    result: ToolResult
    said: str
    effects: Effects

    @property
    def hints(self) -> list[str]:
        """What the result adds for the model."""
        lines = self.result.content.splitlines()
        return [line for line in lines if line.startswith("hint: ")]

    @property
    def changed(self) -> tuple[str, ...]:
        """Each path that is other than it was."""
        return self.effects.paths


class Desk:
    """Shell calls through a real executor, whose person says yes before a call, and never after."""

    def __init__(self, place: Path, masked: frozenset[str]) -> None:
        self.place = place
        self.workspace = place / "ws"
        self.masked = masked
        self.asked_after: list[str] = []
        self.box: Any = None

    def answer(self, request: Any) -> Answer:
        """Yes to the call; nobody may be needed for what it did."""
        if request.stage == "before":
            return Answer.once()
        self.asked_after += [reason.text for reason in request.reasons]
        return Answer.reject("everyday work must not ask")

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Files that were there before the call."""
        for name, content in files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = dedent(content).lstrip("\n").encode() if isinstance(content, str) else content
            path.write_bytes(data)

    def host(self, *argv: str) -> str:
        """What a program outside of any jail says about the workspace."""
        found = subprocess.run(
            argv, cwd=self.workspace, capture_output=True, text=True, timeout=60, check=False
        )
        assert found.returncode == 0, (argv, found.stdout, found.stderr)
        return found.stdout

    async def shell(
        self,
        script: str,
        *,
        exit_code: int = 0,
        dropped: tuple[str, ...] = (),
        timeout_s: float | None = None,
    ) -> Done:
        """Run a script that stops at its first error; all of it is kept, or the test fails.

        `dropped` are masked names of which the host's own stay.
        """
        command = (
            f"( set -eu\n{dedent(script).strip()}\n)\n"
            f"code=$?; python3 -IB -c {shlex.quote(_TELL)}; exit $code"
        )
        arguments: dict[str, Any] = {"command": command}
        before = walk(self.workspace)
        result: ToolResult = await self.box.call(
            "shell", arguments if timeout_s is None else {**arguments, "timeout_s": timeout_s}
        )
        after = walk(self.workspace)
        assert result.stdout is not None
        assert result.stderr is not None
        said, _, listing = result.stdout.text().partition(f"\n{_MARK}\n")
        told = (said[-4_000:], result.stderr.text()[-4_000:])
        assert self.asked_after == [], (self.asked_after, told)
        assert result.error is None, (result.error, told)
        assert result.exit_code == exit_code, (result.exit_code, told)
        assert result.receipt is not None
        assert result.receipt.isolation == "standard"
        assert {"writes_transactional", "paths_masked"} <= result.receipt.held.keys()
        assert result.effects is not None
        refused = [(one["path"], one["code"]) for one in result.effects.refused]
        assert refused == [(path, "masked_kept") for path in dropped]
        inside: Listing = json.loads(listing)
        self.compare(inside, after)
        self.account(result, before, after)
        return Done(result=result, said=said.strip("\n"), effects=result.effects)

    def compare(self, inside: Listing, after: Listing) -> None:
        """What the jail had is what is on disk, but for what it could not see.

        Names of one file do not count: of a file from below overlayfs shows them as several.
        """
        seen = {path: facts[:-1] for path, facts in after.items() if path not in self.masked}
        had = {path: facts[:-1] for path, facts in inside.items() if path not in self.masked}
        differs = {path: (had.get(path), seen.get(path)) for path in had.keys() | seen.keys()}
        apart = {path: pair for path, pair in differs.items() if pair[0] != pair[1]}
        assert not apart, sorted(apart.items())[:10]

    def account(self, result: ToolResult, before: Listing, after: Listing) -> None:
        """What the result says has changed is what differs, each name once."""
        effects = result.effects
        assert effects is not None
        both = before.keys() & after.keys()
        assert sorted(effects.created) == sorted(after.keys() - before.keys())
        assert sorted(effects.deleted) == sorted(before.keys() - after.keys())
        assert sorted(effects.modified) == sorted(
            path for path in both if _is_changed(before[path], after[path])
        )
        assert result.files_changed == (*effects.created, *effects.modified, *effects.deleted)


@asynccontextmanager
async def desk_at(
    place: Path, *, masked: tuple[str, ...] = (), **options: Any
) -> AsyncIterator[Desk]:
    """A desk in the folder `ws` of a place, which may have files already."""
    desk = Desk(place, frozenset(masked))
    desk.workspace.mkdir(exist_ok=True)
    room = 32 << 20
    given: dict[str, Any] = {
        "workspace": desk.workspace,
        "state_dir": place / "state",
        "approver": desk.answer,
        "limits": Limits(head_bytes=room, tail_bytes=room),
    }
    async with Executor(**(given | options)) as box:
        desk.box = box
        yield desk


def wheel(version: str, files: Mapping[str, str]) -> tuple[str, bytes]:
    """A wheel of a package `tiny`, by hand, and its name."""
    info = f"tiny-{version}.dist-info"
    inside = dict(files) | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
    }
    lines = [f"{name},," for name in (*inside, f"{info}/RECORD")]
    inside[f"{info}/RECORD"] = "\n".join(lines) + "\n"
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in inside.items():
            archive.writestr(name, text)
    return f"tiny-{version}-py3-none-any.whl", held.getvalue()


def npm_package(files: Mapping[str, str]) -> bytes:
    """What `npm pack` would make of these files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, text in files.items():
            one = tarfile.TarInfo(f"package/{name}")
            one.size, one.mode = len(text.encode()), 0o755 if name.endswith("cli.js") else 0o644
            archive.addfile(one, io.BytesIO(text.encode()))
    return held.getvalue()


def sha256(path: Path) -> str:
    """What a file holds, by its hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
