"""(a) and (b): one call at a time, ours and the peers' in turn, so that noise strikes all alike."""

from __future__ import annotations

import os
from typing import Any

import trio

from .figures import Series, say
from .job import Job
from .ours import commands, jobs
from .peers import Installed, Peers, bubblewrap, firejail, nsjail, unshare
from .quiet import Quiet
from .subjects import Command, Refused, Subject

REST_S = 0.02
"""Before each call: what the one before left to the kernel, such as namespaces, ends meanwhile."""
FAST_EACH_ROUND = 4
"""Of those that are held against each other at p99: so many samples of them in each round."""


async def round_robin(subjects: list[Subject], rounds: int, quiet: Quiet) -> dict[str, Series]:
    """Each in its turn; nothing of one goes on while the next is measured."""
    series = {subject.name: Series() for subject in subjects}
    number = 0

    async def ask(subject: Subject, times: int) -> None:
        nonlocal number
        try:
            for _ in range(times):
                await subject.settle()
                await trio.sleep(REST_S)
                number += 1
                series[subject.name].samples.append(await subject.call(number))
            await subject.settle()
        except (Refused, OSError) as error:
            say(f"gave up: {subject.name}: {error}")
            subjects.remove(subject)

    for subject in list(subjects):
        await ask(subject, 1)  # not counted: what is made at first is not a call's
        series[subject.name].samples.clear()
    for turn in range(rounds):
        if turn % max(1, rounds // 5) == 0:
            say(f"  round {turn + 1} of {rounds}")
            await quiet.look()
        for subject in list(subjects):
            if turn % subject.every == 0:
                await ask(subject, subject.each_round)
    return series


async def job_calls(job: Job, peers: Peers, pool: Any, rounds: int, quiet: Quiet) -> dict[str, Any]:
    """(a): the no-op Python handler."""
    say("(a) a no-op Python handler")
    ours = jobs(job, pool)
    subjects: list[Subject] = [*ours, *peers.present]
    for subject in subjects:
        fast = "warm" in subject.name or subject.name.startswith("fork")
        subject.each_round = FAST_EACH_ROUND if fast else 1
    series = await round_robin(subjects, rounds, quiet)
    return {name: found.to_json() for name, found in series.items()}


async def true_calls(
    job: Job, installed: Installed, pool: Any, rounds: int, quiet: Quiet
) -> dict[str, Any]:
    """(b): `/bin/true`."""
    say("(b) /bin/true")
    subjects: list[Subject] = [*commands(job, pool)]
    plain = Command("subprocess, /bin/true", [], ["/bin/true"], answers=False)
    subjects.append(plain)
    for wrapper in (bubblewrap, firejail, nsjail, unshare):
        name = f"{wrapper.__name__}, /bin/true"
        try:
            before = wrapper(installed, job.readable)
            peer = Command(name, before, ["/bin/true"], answers=False)
            await peer.call(0)
        except (Refused, OSError) as error:
            say(f"missing: {name}: {os.path.basename(str(error))}")
        else:
            subjects.append(peer)
    series = await round_robin(subjects, rounds, quiet)
    return {name: found.to_json() for name, found in series.items()}
