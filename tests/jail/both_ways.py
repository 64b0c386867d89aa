"""Jails made for their call and jails that waited for it: what is true of one is true of the other.

A module of tests that is named in `MODULES` runs twice. The second time each of its calls is given
a jail that was made ahead, by an init that has had another call already where one may have several
(as root); where none can wait (a level without namespaces, a spec that cannot be had) the call is
made as the first time.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

import pytest

from toolcell_sandbox import CommandHandler, JailOutcome, JailSpec, Pool
from toolcell_sandbox._call import run_in_jail

MODULES = (
    "test_attacks",
    "test_capture",
    "test_cases",
    "test_channel",
    "test_endings",
    "test_in_the_jail",
    "test_levels",
    "test_midcall_permission",
    "test_programs",
)


async def in_waiting_jail(handler: Any, spec: JailSpec, **options: Any) -> JailOutcome:
    """`run_in_jail`, in a jail that waits already where one can."""
    async with Pool(waiting=1) as pool:
        waits = await pool.fill(spec)
        if waits and os.geteuid() == 0:
            before = dataclasses.replace(spec, masks={})
            await run_in_jail(CommandHandler(argv=("/bin/true",)), before, pool=pool)
            waits = await pool.fill(spec)
        outcome = await run_in_jail(handler, spec, pool=pool, **options)
        assert outcome.timing.was_waiting == bool(waits)
        return outcome


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask for both, where the module is one of those."""
    if metafunc.module.__name__.rpartition(".")[2] in MODULES:
        metafunc.fixturenames.append("jails")
        metafunc.parametrize("jails", ["made", "waiting"], indirect=True)


@pytest.fixture
def jails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the calls of this test made in jails that were made for them, or that waited."""
    way: str = request.param
    if way == "waiting":
        for module in list(sys.modules.values()):
            # Where tests make calls, not where executors do: these have pools of their own.
            is_ours = module.__name__.startswith("toolcell")
            if not is_ours and vars(module).get("run_in_jail") is run_in_jail:
                monkeypatch.setattr(module, "run_in_jail", in_waiting_jail)
    return way
