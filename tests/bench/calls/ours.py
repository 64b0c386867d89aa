"""Our own calls, each checked: its value, its level of isolation, that nothing was waived."""

from __future__ import annotations

import time
from typing import Any

import trio

from toolcell_sandbox import CommandHandler, JailSpec, Pool, PythonHandler, run_in_jail
from toolcell_sandbox.outcome import JailOutcome

from .figures import Sample
from .job import Job
from .subjects import Burst, Subject


def checked(outcome: JailOutcome, value: object = None) -> JailOutcome:
    """A success with all default guarantees, or this is no figure of ours."""
    assert outcome.failure is None, outcome.failure
    assert outcome.receipt.isolation == "standard", outcome.receipt
    assert outcome.receipt.waived == (), outcome.receipt
    assert outcome.exit_code in (None, 0), (outcome.exit_code, outcome.stderr)
    if value is not None:
        assert outcome.value == value, outcome.value
    return outcome


def sample_of(outcome: JailOutcome, returned_s: float) -> Sample:
    """The times that the call says of itself, held against a clock outside of it."""
    timing = outcome.timing
    assert timing.ended_s is not None
    assert timing.ended_s <= returned_s, (timing, returned_s)
    return Sample(ended_s=timing.ended_s, result_s=timing.result_s, returned_s=returned_s)


class Ours(Subject):
    """A call of ours, by a pool of waiting jails ("warm") or by none ("cold")."""

    def __init__(self, name: str, spec: JailSpec, pool: Pool | None) -> None:
        self.name, self._spec, self._pool = name, spec, pool
        self.waiting = 0

    def handler(self, n: int) -> Any:
        """What is run."""
        raise NotImplementedError

    def value(self, n: int) -> object:
        """What it has to come to."""
        raise NotImplementedError

    async def _run(self, n: int) -> JailOutcome:
        outcome = await run_in_jail(self.handler(n), self._spec, pool=self._pool)
        return checked(outcome, self.value(n))

    async def call(self, n: int) -> Sample:
        """One; a warm one is proven to have had its jail waiting."""
        begun = time.perf_counter()
        outcome = await self._run(n)
        sample = sample_of(outcome, time.perf_counter() - begun)
        assert outcome.timing.was_waiting == (self._pool is not None), outcome.timing
        return sample

    async def settle(self) -> None:
        """Until jails wait again for the calls after this one."""
        if self._pool is not None:
            self.waiting = await self._pool.fill(self._spec)
            assert self.waiting, "no jail could be made ahead"

    async def burst(self, seconds: float, at_once: int) -> Burst:
        """As many as fit; jails that wait are made meanwhile, and their making is counted."""
        begun = time.perf_counter()
        until, calls = begun + seconds, 0

        async def work() -> None:
            nonlocal calls
            while time.perf_counter() < until:
                await self._run(calls)
                calls += 1

        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(work)
        return Burst(calls=calls, took_s=time.perf_counter() - begun)


class OurJob(Ours):
    """The job: the handler from its file, a request, an answer."""

    def __init__(self, name: str, job: Job, spec: JailSpec, pool: Pool | None) -> None:
        super().__init__(name, spec, pool)
        self._job = job

    def handler(self, n: int) -> PythonHandler:
        """The function, with its request."""
        return PythonHandler(
            module="handler", qualname="handler", file=self._job.handler, arguments={"n": n}
        )

    def value(self, n: int) -> object:
        """The answer."""
        return {"n": n}


class OurCommand(Ours):
    """A program."""

    def __init__(self, name: str, argv: tuple[str, ...], spec: JailSpec, pool: Pool | None) -> None:
        super().__init__(name, spec, pool)
        self._argv = argv

    def handler(self, n: int) -> CommandHandler:
        """The program."""
        return CommandHandler(argv=self._argv)

    def value(self, n: int) -> object:
        """A command has no value; that it exits 0 is checked."""
        return None


def jobs(job: Job, pool: Pool) -> list[Ours]:
    """Warm and cold, for a workspace that is read and for one that is changed."""
    found: list[Ours] = []
    for how, by in (("warm", pool), ("cold", None)):
        for mode in ("read_only", "transaction"):
            spec = JailSpec(workspace=job.workspace, workspace_mode=mode)
            found.append(OurJob(f"toolcell {how}, {mode}", job, spec, by))
    return found


def commands(job: Job, pool: Pool) -> list[Ours]:
    """`/bin/true`, warm and cold."""
    spec = JailSpec(workspace=job.workspace)
    return [
        OurCommand(f"toolcell {how}, /bin/true", ("/bin/true",), spec, by)
        for how, by in (("warm", pool), ("cold", None))
    ]
