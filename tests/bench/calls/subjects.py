"""Whoever is measured: asked for one call, or for as many as fit in a time."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .figures import Sample
from .job import EXECUTABLE, Job

HELPER = str(Path(__file__).with_name("helper.py"))


class Refused(Exception):
    """A peer that is not here, or does not run here: the reason why it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """So many calls in so long."""

    calls: int
    took_s: float


class Subject:
    """One of those that are measured.

    `every`: it takes part in every so many rounds, for the slow ones; `each_round`: so often in
    one, for those of which many samples are needed.
    """

    name = ""
    note = ""
    every = 1
    each_round = 1

    async def call(self, n: int) -> Sample:
        """One call, its answer checked."""
        raise NotImplementedError

    async def burst(self, seconds: float, at_once: int) -> Burst:
        """As many calls as fit, so many of them at once; the last ones end after the time."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Until nothing of it works in the background any more."""

    def close(self) -> None:
        """Let go of what it holds."""


class Asked(Subject):
    """A peer in a helper process of its own, asked line by line; it times itself."""

    def __init__(
        self, name: str, mode: str, job: Job, *, python: str = EXECUTABLE, site: bool = False
    ) -> None:
        self.name = name
        flags = ["-I"] if site else ["-I", "-S"]
        self._process = subprocess.Popen(
            [python, *flags, HELPER, mode, job.workspace, EXECUTABLE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Refused("its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    async def call(self, n: int) -> Sample:
        """One, by the helper's own clock."""
        answer = self._ask(n=n)
        assert answer["value"] == {"n": n}, answer
        return Sample(ended_s=answer["ended_s"], result_s=answer.get("result_s"))

    async def burst(self, seconds: float, at_once: int) -> Burst:
        """As many as the helper gets done."""
        answer = self._ask(seconds=seconds, at_once=at_once)
        return Burst(calls=answer["calls"], took_s=answer["took_s"])

    def close(self) -> None:
        """End the helper."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Command(Subject):
    """A peer that is a program in front of the job's, or of any other program."""

    def __init__(
        self,
        name: str,
        before: Sequence[str],
        argv: Sequence[str],
        *,
        env: dict[str, str] | None = None,
        answers: bool = True,
    ) -> None:
        self.name = name
        self._argv, self._env, self._answers = [*before, *argv], env, answers

    def _run(self, n: int) -> float:
        begun = time.perf_counter()
        done = subprocess.run(
            self._argv,
            input=json.dumps({"n": n}).encode() if self._answers else b"",
            capture_output=True,
            env=self._env,
            check=False,
        )
        ended_s = time.perf_counter() - begun
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise Refused(f"exit code {done.returncode}: {' '.join(last)[:200]}")
        if self._answers and json.loads(done.stdout) != {"n": n}:
            raise Refused(f"its answer was {done.stdout[:80]!r}")
        return ended_s

    async def call(self, n: int) -> Sample:
        """One process of it, from start to wait."""
        return Sample(ended_s=self._run(n))

    async def burst(self, seconds: float, at_once: int) -> Burst:
        """As many as fit, by a thread for each of those at once."""
        begun = time.perf_counter()
        until = begun + seconds

        def work() -> int:
            count = 0
            while time.perf_counter() < until:
                self._run(count)
                count += 1
            return count

        with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
            running = [threads.submit(work) for _ in range(at_once)]
            calls = sum(one.result() for one in running)
        return Burst(calls=calls, took_s=time.perf_counter() - begun)
