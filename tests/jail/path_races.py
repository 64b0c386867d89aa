"""A path that is swapped while it is judged and then used: nothing outside may come of it.

A thread swaps links against links, files and folders; the other judges a path as the planner
does, and hands what was allowed to a built-in tool as the worker does. Whole in one light file,
since its text is also run as a program inside a jail.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from toolcell import ToolError
from toolcell._worker import decode
from toolcell.builtin.files import read_file, write_file
from toolcell.markers import SETTLED
from toolcell_policies import Role, check_path, default_sensitive_list
from toolcell_policies.paths import StillFilesystem

HOMES: Final = ("/home/somebody",)
# As a path is usually written, and in ways that a `Path` does not keep.
PLAIN: Final = ("{}", "{ws}/{}", "rooms/../{}")
ODD: Final = ("./{}", ".//{}", "{}/", "{ws}//{}", "{ws}/./{}")
SWAP_EVERY_S: Final = 0.0004


class Ground:
    """A workspace, a folder beside it, and five ways of swapping what a path leads to.

    Raises:
        FileExistsError: `ws` has something of that name, or `beside` is there.
    """

    def __init__(self, ws: str, beside: str, seed: int = 0) -> None:
        self.ws, self.beside = ws, beside
        os.mkdir(beside)
        for folder in ("rooms", "room"):
            os.mkdir(f"{ws}/{folder}")
        for file in ("real", "rooms/f", "room/f", "file", "plain"):
            _put(f"{ws}/{file}", "INSIDE")
        for name in ("real", "f"):
            _put(f"{beside}/{name}", "BESIDE")
        _put(f"{ws}/.env", "SECRET")
        os.symlink("real", f"{ws}/link")
        os.symlink("rooms", f"{ws}/way")
        # The way that is swapped now.
        self.hot = "link"
        self._turn = 0
        self._rng = random.Random(seed)
        # What a path may lead to besides a place inside, by the path.
        self.ways: Final[dict[str, Callable[[], None]]] = {
            "link": lambda: self._point("link", "real", f"{beside}/real"),
            "way/f": lambda: self._point("way", "rooms", beside),
            "room/f": lambda: self._exchange("room", beside),
            "file": lambda: self._exchange("file", f"{beside}/real"),
            "plain": lambda: self._exchange("plain", ".env"),
        }

    def _point(self, name: str, *targets: str) -> None:
        """The link leads to the next of its targets: rename(2) over it."""
        spare = f"{self.ws}/{name}.spare"
        os.symlink(targets[self._turn % len(targets)], spare)
        os.replace(spare, f"{self.ws}/{name}")

    def _exchange(self, name: str, target: str) -> None:
        """What is there and a link change places: renameat2(2), RENAME_EXCHANGE."""
        here, spare = f"{self.ws}/{name}", f"{self.ws}/{name}.spare"
        if not os.path.islink(here) and not os.path.islink(spare):
            # At first, and after a tool has put its file where the link was.
            if os.path.lexists(spare):
                os.unlink(spare)
            os.symlink(target, spare)
        exchange(here, spare)

    @contextmanager
    def swapping(self) -> Iterator[None]:
        """One of them is swapped, over and over, by a thread."""
        done = threading.Event()
        failed: list[BaseException] = []

        def swap() -> None:
            try:
                # About as often as a check takes: what is never still is never let through.
                while not done.wait(self._rng.random() * SWAP_EVERY_S):
                    self._turn += 1
                    self.ways[self.hot]()
            except BaseException as error:  # noqa: BLE001 # told below: a race that stops is none
                failed.append(error)

        thread = threading.Thread(target=swap)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            sys.setswitchinterval(interval)
        if failed:
            raise failed[0]

    def harmed(self) -> list[str]:
        """What of that which no write may reach is other than it was; then it is as before."""
        expected = {f"{self.beside}/{name}": "BESIDE" for name in ("real", "f")}
        expected[f"{self.ws}/.env"] = "SECRET"
        found = [path for path, text in expected.items() if _get(path) != text]
        found += [name for name in os.listdir(self.beside) if name not in ("real", "f")]
        for path, text in expected.items():
            _put(path, text)
        return found


def exchange(first: str, second: str) -> None:
    """renameat2(2) with RENAME_EXCHANGE; AT_FDCWD is -100."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(first), -100, os.fsencode(second), 2):
        raise OSError(ctypes.get_errno(), f"exchange {first}")


def _put(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _get(path: str) -> str:
    with open(path) as file:
        return file.read()


def judged(text: str, role: Role, ws: str) -> str | None:
    """Where a path leads, if it may be used without a question; judged as the planner does."""
    roles: tuple[Role, ...] = ("write", "read") if role == "write" else ("read",)
    rules, fs = default_sensitive_list(), StillFilesystem()
    found = [check_path(text, each, ws, HOMES, rules, fs) for each in roles]
    if any(one.denied or one.level_floor for one in found):
        return None
    (place,) = {one.resolved for one in found}
    return place


def used(text: str, role: Role, place: str) -> str:
    """What a built-in tool comes to with a path that was judged."""
    SETTLED.clear()
    context = {"settled_paths": {text: place}}
    if role == "read":
        return str(decode(read_file, {"path": text}, context)())
    return str(decode(write_file, {"path": text, "content": "WRITTEN"}, context)())


def used_naively(text: str, role: Role, _: str) -> str:
    """The control: the name is opened again."""
    if role == "read":
        return _get(text)
    _put(text, "WRITTEN")
    return ""


def raced(
    ws: str,
    beside: str,
    checks: int,
    seed: int,
    spellings: tuple[str, ...] = PLAIN,
    *,
    naive: bool = False,
) -> dict[str, Any]:
    """So many checks, each followed by the use of what was allowed, and what came of them.

    `wrong` are the reads that returned, and the writes that changed, what lies outside or is
    protected. A naive race ends with its first wrong read and write. Changes into `ws`.
    """
    rng = random.Random(seed)
    ground = Ground(ws, beside, seed)
    told: dict[str, Any] = {"checks": 0, "denied": 0, "done": 0, "refused": 0, "wrong": []}
    wrong: dict[str, str] = {}
    os.chdir(ws)
    use = used_naively if naive else used
    with ground.swapping():
        while told["checks"] < checks and not (naive and len(wrong) == 2):
            told["checks"] += 1
            role: Role = rng.choice(("read", "write"))
            ground.hot = rng.choice(list(ground.ways))
            text = rng.choice(spellings).format(ground.hot, ws=ws)
            place = judged(text, role, ws)
            if place is None:
                told["denied"] += 1
                continue
            try:
                found = use(text, role, place)
                told["done"] += 1
            except (ToolError, OSError):
                found = ""
                told["refused"] += 1
            harm = ground.harmed() if role == "write" else []
            if harm or "BESIDE" in found or "SECRET" in found:
                wrong[role] = text
                told["wrong"].append(f"{role} {text!r}: {harm or found[:80]}")
    return told


def program(ws: str, checks: int, seed: int) -> str:
    """For a jail: a race in each spelling, and the naive one; its value is what came of them.

    Half of the checks in each; nothing is left in `ws`.
    """
    with open(__file__) as file:
        source = file.read()
    races = ((PLAIN, checks // 2, False), (ODD, checks // 2, False), (PLAIN, 20_000, True))
    return f"""{source}
found = []
for number, (spellings, count, naive) in enumerate({races!r}):
    beside = "/tmp/beside" + str(number)
    found.append(raced({ws!r}, beside, count, {seed} + number, spellings, naive=naive))
    emptied({ws!r})
found
"""


def emptied(folder: str) -> None:
    """Remove what a race left in a folder that stays."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
