"""`doctor`: each guarantee of a level proven on this host, by a jail that tries to break it.

A version number proves nothing. What a host cannot hold is known from what it offers
(`guarantees.promise`); whatever it claims to hold is attacked (`_probe_table.ATTACKS`), in jails
of that very level.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import trio

from toolcell._probe_run import JAILS_AT_ONCE, Finding, Probe, not_held
from toolcell._probe_table import ALONE, ATTACKS
from toolcell._render import painted, print_json, write_out
from toolcell._visible import visible
from toolcell_sandbox import offers
from toolcell_sandbox.fixes import fix_for, in_container
from toolcell_sandbox.guarantees import LEVELS, Broken, Offer, Promise, promise
from toolcell_sandbox.spec import GUARANTEES, NEVER_WAIVED, Isolation, JailSpec, Network

DEFAULT: Final[Isolation] = "standard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a host can hold of a level, before anything was tried.

    `wanted` is all that is to be proven, in order: the level's guarantees, and what its jails
    hold besides. `lacking` is what this host has no mechanism for; `never` is the first of them
    without which no jail can be built at all, so that nothing else can be tried either.
    """

    wanted: tuple[str, ...]
    lacking: Mapping[str, Broken]
    never: Broken | None


def outlook(isolation: Isolation, offer: Offer) -> Outlook:
    """Pure: a level and what a host offers, to what can be tried there."""
    lacking: dict[str, Broken] = {}
    while True:
        spec = JailSpec(isolation=isolation, env={}, waive=_waivable(lacking))
        if isolation != "container" and "writes_transactional" not in lacking:
            spec = replace(spec, workspace="/workspace", workspace_mode="transaction")
        agreed = promise(spec, offer)
        if isinstance(agreed, Promise):
            held = set(agreed.held)
            break
        lacking[agreed.guarantee] = agreed
        if agreed.guarantee in NEVER_WAIVED:
            held = set()
            break
    wanted = LEVELS[isolation] | held
    if "net_blocked" in wanted and isolation != "container":
        wanted |= {"net_loopback"}
        asked = JailSpec(
            isolation=isolation, env={}, waive=_waivable(lacking), network=Network.loopback()
        )
        agreed = promise(asked, offer)
        if isinstance(agreed, Broken):
            lacking[agreed.guarantee] = lacking.get(agreed.guarantee, agreed)
    broken = lacking.values()
    return Outlook(
        wanted=tuple(name for name in GUARANTEES if name in wanted),
        lacking=lacking,
        never=next((each for each in broken if each.guarantee in NEVER_WAIVED), None),
    )


def _waivable(lacking: Mapping[str, Broken]) -> tuple[str, ...]:
    return tuple(name for name in lacking if name not in NEVER_WAIVED)


async def findings(
    isolation: Isolation = DEFAULT, *, only: Collection[str] | None = None
) -> list[Finding]:
    """Attack every guarantee of a level, a handful at once; or `only` these of them.

    Each attack cleans up after itself, on a cancel too. What this host lacks is not tried, and
    what then remains is tried in jails that waive it.
    """
    seen = outlook(isolation, await offers.current(thorough=True))
    wanted = [name for name in seen.wanted if only is None or name in only]
    found: dict[str, Finding] = {}
    for name in wanted:
        if name in seen.lacking:
            found[name] = _lacks(seen.lacking[name])
        elif seen.never is not None:
            why = f"not tried: without {seen.never.guarantee} no jail is built"
            found[name] = not_held(name, why, fix_for(seen.never.facts()))
    to_try = [name for name in wanted if name not in found]
    alone = [name for name in to_try if name in ALONE and isolation == "container"]
    slots, waive = trio.CapacityLimiter(JAILS_AT_ONCE), _waivable(seen.lacking)

    async def one(name: str) -> None:
        probe = Probe(guarantee=name, isolation=isolation, waive=waive, slots=slots)
        found[name] = await _attacked(probe, ATTACKS[name])

    async with trio.open_nursery() as nursery:
        for name in to_try:
            if name not in alone:
                nursery.start_soon(one, name)
    for name in alone:
        await one(name)
    return [found[name] for name in wanted]


async def _attacked(probe: Probe, attack: Callable[[Probe], Awaitable[None]]) -> Finding:
    with probe.held:
        try:
            await attack(probe)
        except OSError as error:
            fix = "give the user who runs this a writable temporary folder and /dev/shm"
            return not_held(probe.guarantee, f"the probe could not be set up: {error}", fix)
    return probe.finding()


def _lacks(broken: Broken) -> Finding:
    lack = broken.lack
    why = f"this host cannot hold it: {lack.cause}" + f" ({lack.errno})" * bool(lack.errno)
    return not_held(broken.guarantee, why, fix_for(broken.facts()))


# -- what is shown ------------------------------------------------------------------------


def report(found: list[Finding], *, isolation: Isolation = DEFAULT, as_json: bool) -> int:
    """Print what was found, and return the exit code: 0 when the whole level holds, else 1."""
    holds = all(finding.held for finding in found)
    if as_json:
        print_json(
            {
                "schema": 1,
                "isolation": isolation,
                "holds": holds,
                "host": host_facts(),
                "guarantees": [finding.to_json() for finding in found],
            }
        )
        return 0 if holds else 1
    first, *rest = _verdict(found, isolation)
    write_out(f"{painted(first, good=holds)}\n")
    for line in rest:
        write_out(f"{line}\n")
    for finding in found:
        write_out(_shown(finding))
    write_out(_also(isolation, {finding.guarantee for finding in found}))
    return 0 if holds else 1


@functools.cache
def host_facts() -> dict[str, Any]:
    """What this host is, as far as a level depends on it."""
    system, offer = os.uname(), offers.look()
    kinds = ("memory", "pids", "cpu")
    return {
        "system": system.sysname,
        "kernel": system.release,
        "uid": os.getuid(),
        "landlock_abi": offer.landlock_abi,
        "cgroup": {kind: offer.names.get(f"cgroup_{kind}") for kind in kinds},
        "container": in_container(),
    }


def _verdict(found: list[Finding], isolation: str) -> list[str]:
    """The level and whether it holds, with the one fix; then what else helps, each once."""
    bad = [finding for finding in found if not finding.held]
    if not bad:
        return [f"{isolation}: holds here, {len(found)} guarantees proven by trying to break them"]
    # What broke out is worse than what was never there, and no fix of the host's.
    broke = [finding for finding in bad if finding.mechanism is not None]
    fixes = list(dict.fromkeys(visible(f.fix) for f in (*broke, *bad) if f.fix))
    word = "DOES NOT HOLD here" if broke else "cannot be had here"
    first = f"{isolation}: {word}; fix: {fixes[0]}" if fixes else f"{isolation}: {word}"
    return [first, *(f"fix: {fix}" for fix in fixes[1:])]


def _shown(finding: Finding) -> str:
    """One guarantee for a person: whether it holds, by what, and what was done to it."""
    word = "DOES NOT HOLD" if not finding.held else "holds in part" if finding.scope else "holds"
    by = f" ({finding.mechanism})" * bool(finding.mechanism)
    lines = [f"{painted(word, good=finding.held)}  {finding.guarantee}{by}"]
    facts = {
        "only": finding.scope,
        "tried": ", ".join(finding.tried),
        "what happened": finding.happened,
        "control": finding.control,
    }
    lines += [f"    {name}: {visible(fact)}" for name, fact in facts.items() if fact]
    return "".join(f"{line}\n" for line in lines)


def _also(isolation: str, shown: set[str]) -> str:
    """What the level does not promise, said plainly."""
    missing = [name for name in GUARANTEES if name not in LEVELS[isolation] | shown]
    lines = []
    if missing:
        lines.append(f"not promised at this level: {', '.join(missing)}")
    return "".join(f"{line}\n" for line in lines)


# -- what was cut off ---------------------------------------------------------------------


async def recovered(*, as_json: bool) -> int:
    """End every commit that a killed process has cut off; the exit code: 0 when all are whole."""
    from toolcell._choices import default_state_dir
    from toolcell_sandbox.recovery import Failed, pending, recover

    state_dir, good = default_state_dir(), True
    told: list[dict[str, Any]] = []
    for place in await trio.to_thread.run_sync(pending, state_dir):
        where = None if isinstance(place, Failed) else place.workspace
        found = (
            place if isinstance(place, Failed) else await trio.to_thread.run_sync(recover, place)
        )
        if found is None:
            continue
        if isinstance(found, Failed):
            good = False
            told.append({"workspace": where, "outcome": "failed", "text": found.text})
        else:
            told.append(
                {
                    "workspace": where,
                    "outcome": found.outcome,
                    "paths": list(found.paths),
                    "kept": list(found.kept),
                }
            )
    if as_json:
        print_json({"schema": 1, "whole": good, "recovered": told})
        return 0 if good else 1
    for one in told:
        write_out(f"{one['outcome']}  {visible(one['workspace'] or 'a workspace')}\n")
        write_out(f"    {visible(one['text'])}\n" if "text" in one else "")
        for path in one.get("kept", ()):
            write_out(f"    changed by somebody since, and stays so: {visible(path)}\n")
    if not told:
        write_out("no workspace was left half committed\n")
    return 0 if good else 1
