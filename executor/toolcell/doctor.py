"""`doctor`: each guarantee proven on this host, by a confined child that tries to break it.

A version number proves nothing. Each probe of `_probes.py` runs in a real jail, and where it is
cheap the same attempt is made outside first: a probe that could never have worked proves nothing
either.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from toolcell import _probes
from toolcell._render import painted, print_json, write_out
from toolcell._visible import visible
from toolcell.confinement import library_mounts, library_path
from toolcell_sandbox import JailOutcome, host, run_in_jail
from toolcell_sandbox.spec import JailSpec, Limits, PythonHandler

_LIMITS: Final = Limits(wall_s=30, memory_bytes=512 << 20, processes=32)
_REPORT: Final = (
    "this host builds jails and yet the probe broke out: please report it, with the output of "
    "`toolcell doctor --json` (see SECURITY.md)"
)
_IPC_CREAT: Final = 0o1000
_IPC_RMID: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one guarantee. `control` is what the same attempt came to outside."""

    guarantee: str
    held: bool
    mechanism: str | None
    tried: tuple[str, ...]
    happened: str
    control: str | None = None
    fix: str | None = None

    def to_json(self) -> dict[str, Any]:
        """One entry of `guarantees` in `doctor --json`."""
        return {
            "guarantee": self.guarantee,
            "held": self.held,
            "mechanism": self.mechanism,
            "tried": list(self.tried),
            "happened": self.happened,
            "control": self.control,
            "fix": self.fix,
        }


@dataclass(slots=True)
class _Probe:
    """One probe under way: what to clean up, and what it came to outside."""

    guarantee: str
    held: ExitStack = field(default_factory=ExitStack)
    control: str | None = None

    async def jailed(
        self, target: Callable[..., Any], limits: Limits = _LIMITS, **arguments: Any
    ) -> JailOutcome:
        """Run a function of `_probes` in a jail without a workspace."""
        handler = PythonHandler(
            module=_probes.__name__,
            qualname=target.__name__,
            arguments=arguments,
            sys_path=library_path(),
        )
        spec = JailSpec(mounts=library_mounts(), env=host.base_environment(), limits=limits)
        return await run_in_jail(handler, spec)

    def by_attempts(self, outcome: JailOutcome) -> Finding:
        """Held when the probe came back whole, and none of its attempts worked."""
        if outcome.failure is not None or not isinstance(outcome.value, list):
            return self._unproven(outcome)
        attempts = [each for each in outcome.value if isinstance(each, dict)]
        broke = [each for each in attempts if each.get("broke") is not False]
        shown = broke or attempts
        return self._finding(
            outcome,
            held=bool(attempts) and not broke,
            tried=tuple(str(each.get("tried")) for each in attempts),
            happened="; ".join(dict.fromkeys(str(each.get("got")) for each in shown)),
        )

    def by_ending(self, tried: str, expected: str, *outcomes: JailOutcome) -> Finding:
        """Held when each jail was ended by us, for the reason that was expected."""
        kinds = [outcome.failure.kind if outcome.failure else "it went on" for outcome in outcomes]
        for outcome in outcomes:
            if not outcome.receipt.held:
                return self._unproven(outcome)
        return self._finding(
            outcomes[0],
            held=kinds == expected.split(", "),
            tried=(tried,),
            happened=", ".join(kinds),
        )

    def _finding(
        self, outcome: JailOutcome, *, held: bool, tried: tuple[str, ...], happened: str
    ) -> Finding:
        mechanism = outcome.receipt.held.get(self.guarantee)
        held = held and mechanism is not None
        return Finding(
            guarantee=self.guarantee,
            held=held,
            mechanism=mechanism,
            tried=tried,
            happened=happened,
            control=self.control,
            fix=None if held else _REPORT,
        )

    def _unproven(self, outcome: JailOutcome) -> Finding:
        """Nothing was tried: the jail could not be built, or the probe itself ended early."""
        failure = outcome.failure
        happened = "the probe answered nonsense" if failure is None else failure.message
        fix = getattr(failure, "fix", None) or _REPORT
        return Finding(
            guarantee=self.guarantee,
            held=False,
            mechanism=None,
            tried=(),
            happened=happened,
            control=self.control,
            fix=fix,
        )


async def _files(probe: _Probe) -> Finding:
    folder = probe.held.enter_context(tempfile.TemporaryDirectory(prefix="toolcell-doctor-"))
    secret = os.path.join(folder, "secret")
    _probes.write(secret)
    probe.control = f"outside, the planted file reads {_probes.read(secret)!r}"
    return probe.by_attempts(await probe.jailed(_probes.files, secret=secret, prefix=sys.prefix))


async def _network(probe: _Probe) -> Finding:
    listener = probe.held.enter_context(socket.create_server(("127.0.0.1", 0)))
    port = listener.getsockname()[1]
    abstract = f"toolcell-doctor-{secrets.token_hex(8)}"
    local = probe.held.enter_context(socket.socket(socket.AF_UNIX))
    local.bind("\0" + abstract)
    local.listen()
    with socket.create_connection(("127.0.0.1", port), timeout=3):
        probe.control = "outside, the listener takes a connection"
    return probe.by_attempts(await probe.jailed(_probes.network, port=port, abstract=abstract))


async def _tree(probe: _Probe) -> Finding:
    outcome = await probe.jailed(_probes.outlive)
    found = probe.by_attempts(outcome)
    if not found.held:
        return found
    gone = outcome.stdout.closed and outcome.stderr.closed
    happened = "it was gone with the call" if gone else "something still holds the call's stdout"
    return probe._finding(outcome, held=gone, tried=found.tried, happened=happened)


async def _ipc(probe: _Probe) -> Finding:
    key = secrets.randbelow(1 << 30) + 1
    queue = _probes.open_queue(key, _IPC_CREAT | 0o600)
    probe.held.callback(ctypes.CDLL(None).msgctl, queue, _IPC_RMID, None)
    shared = _probes.write(f"/dev/shm/toolcell-doctor-{secrets.token_hex(8)}")
    probe.held.callback(os.unlink, shared)
    probe.control = f"outside, the queue opens as {_probes.open_queue(key)}"
    namespace = os.readlink("/proc/self/ns/ipc")
    return probe.by_attempts(
        await probe.jailed(_probes.ipc, key=key, shared=shared, namespace=namespace)
    )


async def _environment(probe: _Probe) -> Finding:
    name, value = "TOOLCELL_DOCTOR_SECRET", secrets.token_hex(16)
    os.environ[name] = value
    probe.held.callback(os.environ.pop, name)
    code = f"import os; print(os.environ[{name!r}])"
    if (await _plain_child(code)).strip() == value:
        probe.control = "outside, a child inherits the variable"
    return probe.by_attempts(await probe.jailed(_probes.environment, name=name, value=value))


async def _descriptors(probe: _Probe) -> Finding:
    secret = secrets.token_hex(16)
    fd = os.memfd_create("doctor", 0)
    probe.held.callback(os.close, fd)
    os.write(fd, secret.encode())
    high = fcntl.fcntl(fd, fcntl.F_DUPFD, 200)
    probe.held.callback(os.close, high)
    code = f"import os; print(os.pread({high}, 64, 0).decode())"
    if (await _plain_child(code)).strip() == secret:
        probe.control = "outside, a child reads the inherited descriptor"
    return probe.by_attempts(await probe.jailed(_probes.descriptors, secret=secret))


async def _plain_child(code: str) -> str:
    """The output of a child, outside any jail, that inherits all that can be inherited."""
    argv = [sys.executable, "-I", "-S", "-c", code]
    done = await trio.run_process(argv, capture_stdout=True, close_fds=False, check=False)
    return done.stdout.decode(errors="replace")


async def _privileges(probe: _Probe) -> Finding:
    return probe.by_attempts(await probe.jailed(_probes.privileges))


async def _memory(probe: _Probe) -> Finding:
    limits = Limits(wall_s=30, memory_bytes=96 << 20)
    outcome = await probe.jailed(_probes.memory, limits)
    return probe.by_ending("fill memory in a child", "memory_exceeded", outcome)


async def _processor(probe: _Probe) -> Finding:
    burned = await probe.jailed(_probes.processor, Limits(wall_s=30, cpu_s=0.5))
    slept = await probe.jailed(_probes.sleep, Limits(wall_s=0.5))
    tried = "run without end, and sleep without end"
    return probe.by_ending(tried, "cpu_time_exceeded, timeout", burned, slept)


async def _file_limits(probe: _Probe) -> Finding:
    limits = Limits(wall_s=30, file_size_bytes=1 << 20, open_files=64)
    return probe.by_attempts(
        await probe.jailed(
            _probes.file_limits,
            limits,
            size_bytes=limits.file_size_bytes,
            open_files=limits.open_files,
        )
    )


PROBES: Final[dict[str, Callable[[_Probe], Awaitable[Finding]]]] = {
    "fs_confined": _files,
    "net_blocked": _network,
    "tree_killed": _tree,
    "ipc_private": _ipc,
    "env_scrubbed": _environment,
    "fds_closed": _descriptors,
    "no_new_privileges": _privileges,
    "memory_limited": _memory,
    "cpu_limited": _processor,
    "files_limited": _file_limits,
}
"""One probe for each guarantee that a receipt of this version can list."""


async def findings() -> list[Finding]:
    """Every probe, at once; each cleans up after itself, on a cancel too."""
    found: dict[str, Finding] = {}

    async def one(name: str, look: Callable[[_Probe], Awaitable[Finding]]) -> None:
        probe = _Probe(name)
        with probe.held:
            try:
                found[name] = await look(probe)
            except OSError as error:
                found[name] = Finding(
                    guarantee=name,
                    held=False,
                    mechanism=None,
                    tried=(),
                    happened=f"the probe could not be set up: {error}",
                    fix="give the user who runs this a writable temporary folder and /dev/shm",
                )

    async with trio.open_nursery() as nursery:
        for name, look in PROBES.items():
            nursery.start_soon(one, name, look)
    return [found[name] for name in PROBES]


def report(found: list[Finding], *, as_json: bool) -> int:
    """Print what was found, and return the exit code: 0 when every guarantee holds, else 1."""
    holds = all(finding.held for finding in found)
    if as_json:
        system = os.uname()
        print_json(
            {
                "schema": 1,
                "isolation": "partial",
                "holds": holds,
                "host": {"system": system.sysname, "kernel": system.release, "uid": os.getuid()},
                "guarantees": [finding.to_json() for finding in found],
            }
        )
        return 0 if holds else 1
    # Where one thing is missing, everything else fails with it: the fix comes first, once.
    for fix in dict.fromkeys(finding.fix for finding in found if finding.fix):
        write_out(f"fix: {visible(fix)}\n")
    for finding in found:
        write_out(_shown(finding))
    write_out(_summary(found))
    return 0 if holds else 1


def _shown(finding: Finding) -> str:
    """One guarantee for a person: whether it holds, by what, and what was done to it."""
    word = painted("holds" if finding.held else "DOES NOT HOLD", good=finding.held)
    lines = [f"{word}  {finding.guarantee}" + f" ({finding.mechanism})" * bool(finding.mechanism)]
    facts = {
        "tried": ", ".join(finding.tried),
        "what happened": finding.happened,
        "control": finding.control,
    }
    lines += [f"    {name}: {visible(fact)}" for name, fact in facts.items() if fact]
    return "".join(f"{line}\n" for line in lines)


def _summary(found: list[Finding]) -> str:
    held = sum(finding.held for finding in found)
    if held == len(found):
        return f"isolation: partial; all {held} guarantees of this version hold here\n"
    if held:
        return f"isolation: partial; {held} of {len(found)} guarantees hold here\n"
    return "isolation: none; a call on this host ends in confinement_failed and runs nothing\n"
