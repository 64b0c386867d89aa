"""(f): what a jail adds to work: a handler of 100 ms, `npm ci`, pytest. Inside and outside in turn.

Of a handler two times are compared: its own, by its own clock, and the whole call against a plain
process of the same interpreter. A program's changes are dropped inside; outside its project is
laid out anew each time, before the clock starts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from toolcell import Executor
from toolcell.approval import unsafe_approve_all
from toolcell_sandbox import CommandHandler, JailSpec, PythonHandler, run_in_jail

from .figures import median, say
from .fixtures import NPM_CI, PACKAGES, npm_project, outside_environment, pytest_project
from .job import EXECUTABLE
from .ours import checked

WORK_S = 0.1
FILES = 200
WORK = '''\
"""Work of about 100 ms, timed by itself."""
import os
import subprocess
import time


def loop(count):
    begun = time.perf_counter()
    total = 0
    for number in range(count):
        total += number * number % 7
    return time.perf_counter() - begun


def reads(count):
    begun = time.perf_counter()
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files")
    for number in range(count):
        with open(os.path.join(folder, str(number % FILES)), "rb") as file:
            file.read()
    return time.perf_counter() - begun


def child(count):
    begun = time.perf_counter()
    code = "t = 0\\nfor n in range(int(__import__('sys').argv[1])): t += n * n % 7"
    subprocess.run([EXECUTABLE, "-I", "-S", "-c", code, str(count)], check=True)
    return time.perf_counter() - begun
'''
OUTSIDE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import work
request = json.load(sys.stdin)
print(json.dumps(getattr(work, request["name"])(request["count"])))
"""
KINDS = {"loop": "a loop", "reads": "file reads", "child": "a subprocess"}


class Handlers:
    """The three kinds, each tuned to take 100 ms outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "files").mkdir(parents=True)
        for number in range(FILES):
            (folder / "files" / str(number)).write_bytes(b"x" * 4096)
        (folder / "work.py").write_text(
            WORK.replace("FILES", str(FILES)).replace("EXECUTABLE", repr(EXECUTABLE))
        )
        self.counts = {name: self._tuned(name) for name in KINDS}

    def _tuned(self, name: str) -> int:
        count = 1_000
        for _ in range(6):
            took_s, _ = self.outside(name, count)
            count = max(1, min(50_000_000, int(count * WORK_S / max(took_s, 1e-4))))
        return count

    def outside(self, name: str, count: int) -> tuple[float, float]:
        """The work's own time, and the whole process's."""
        request = json.dumps({"name": name, "count": count})
        argv = [EXECUTABLE, "-I", "-S", "-c", OUTSIDE, str(self.folder)]
        begun = time.perf_counter()
        done = subprocess.run(argv, input=request.encode(), capture_output=True, check=True)
        whole_s = time.perf_counter() - begun
        return float(json.loads(done.stdout)), whole_s

    async def inside(self, name: str, count: int, spec: JailSpec, pool: Any) -> tuple[float, float]:
        """The same of a call."""
        handler = PythonHandler(
            module="work",
            qualname=name,
            file=str(self.folder / "work.py"),
            arguments={"count": count},
        )
        begun = time.perf_counter()
        outcome = checked(await run_in_jail(handler, spec, pool=pool))
        whole_s = time.perf_counter() - begun
        assert isinstance(outcome.value, float)
        return outcome.value, whole_s


async def handlers(folder: Path, pool: Any, rounds: int) -> dict[str, Any]:
    """The three kinds, in a workspace that can be changed: the dearest to read from."""
    say("(f) handlers that work 100 ms")
    made = Handlers(folder)
    spec = JailSpec(workspace=str(folder), workspace_mode="transaction")
    took: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, count in made.counts.items():
            await pool.fill(spec)
            work_s, whole_s = await made.inside(name, count, spec, pool)
            took.setdefault((name, "work_inside"), []).append(1e3 * work_s)
            took.setdefault((name, "call_inside"), []).append(1e3 * whole_s)
            await pool.fill(spec)
            work_s, whole_s = made.outside(name, count)
            took.setdefault((name, "work_outside"), []).append(1e3 * work_s)
            took.setdefault((name, "call_outside"), []).append(1e3 * whole_s)
    return {
        KINDS[name]: {
            f"{what}_{where}_ms": median(took[name, f"{what}_{where}"], 1)
            for what in ("work", "call")
            for where in ("inside", "outside")
        }
        for name in KINDS
    }


async def programs(folder: Path, pool: Any, rounds: int) -> dict[str, Any]:
    """`npm ci` and pytest of a small project."""
    found: dict[str, Any] = {}
    for name, make, argv in (
        ("npm ci", npm_project, NPM_CI),
        ("pytest", pytest_project, [sys.executable, "-m", "pytest", "-q"]),
    ):
        say(f"(f) {name}")
        if name == "pytest" and importlib.util.find_spec("pytest") is None:
            found[name] = {"missing": "pytest is not installed"}
            continue
        project = folder / name.split()[0]
        try:
            make(project)
        except (OSError, subprocess.CalledProcessError) as error:
            found[name] = {"missing": f"{type(error).__name__}: the project could not be made"}
            continue
        found[name] = await _program(project, argv, pool, rounds)
        if name == "npm ci":
            found[f"{name}, by the executor, kept"] = await _kept(project, argv, rounds)
    return found


async def _program(project: Path, argv: list[str], pool: Any, rounds: int) -> dict[str, Any]:
    took: dict[str, list[float]] = {"inside": [], "outside": []}
    spec = JailSpec(workspace=str(project), workspace_mode="transaction")
    env = outside_environment(project.with_name("home"))
    for _ in range(rounds):
        await pool.fill(spec)
        begun = time.perf_counter()
        checked(await run_in_jail(CommandHandler(argv=tuple(argv)), spec, pool=pool))
        took["inside"].append(1e3 * (time.perf_counter() - begun))
        await pool.fill(spec)
        copy = project.with_name("copy")
        shutil.copytree(project, copy)
        begun = time.perf_counter()
        subprocess.run(argv, cwd=copy, env=env, check=True, capture_output=True)
        took["outside"].append(1e3 * (time.perf_counter() - begun))
        shutil.rmtree(copy)
        shutil.rmtree(env["HOME"])
        os.mkdir(env["HOME"])
    return {f"call_{where}_ms": median(ms, 1) for where, ms in took.items()}


async def _kept(project: Path, argv: list[str], rounds: int) -> dict[str, Any]:
    """The same by the shell tool of an executor: decided, recorded, judged, and committed."""
    took_ms: list[float] = []
    for _ in range(rounds):
        copy = project.with_name("copy")
        shutil.copytree(project, copy)
        async with Executor(
            workspace=str(copy),
            state_dir=str(project.with_name("state")),
            policy="coding",
            approver=unsafe_approve_all,
        ) as executor:
            begun = time.perf_counter()
            result = await executor.call("shell", {"command": " ".join(argv)})
            took_ms.append(1e3 * (time.perf_counter() - begun))
        if not result.ok or result.receipt is None or result.receipt.isolation != "standard":
            why = result.output if result.error is None else result.error
            return {"missing": f"the call failed: {str(why)[:200]}"}
        assert len(list((copy / "node_modules").iterdir())) >= PACKAGES
        shutil.rmtree(copy)
    return {"call_inside_ms": median(took_ms, 1)}
