"""How `doctor` runs its probes: jails of one level, and what became of one guarantee in them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import trio

from toolcell import _probes
from toolcell._probes import Attempt
from toolcell.confinement import library_mounts, library_path
from toolcell_sandbox import JailOutcome, host, run_in_jail
from toolcell_sandbox.spec import Isolation, JailSpec, Limits, Network, PythonHandler, WorkspaceMode

JAILS_AT_ONCE: Final = 4
LIMITS: Final = Limits(wall_s=30, memory_bytes=512 << 20, processes=64)
REPORT_IT: Final = (
    "this host builds jails and yet the probe broke out: please report it, with the output of "
    "`toolcell doctor --json` (see SECURITY.md)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one guarantee. `control` is what the same attempt came to outside.

    `scope` says where alone the guarantee is held, when it is not held everywhere.
    """

    guarantee: str
    held: bool
    mechanism: str | None
    tried: tuple[str, ...]
    happened: str
    control: str | None = None
    fix: str | None = None
    scope: str | None = None

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
            "scope": self.scope,
        }


@dataclass(slots=True)
class Jailed:
    """A jail that runs beside another one; `outcome` is there once it was let go."""

    outcome: JailOutcome | None = None


@dataclass(slots=True, kw_only=True)
class Probe:
    """The attack on one guarantee at one level: its jails, and what they came to.

    `waive` is what this host cannot hold at all: without it there would be no jail to try the
    rest in. `held` is cleaned up at the end, on a cancel too.
    """

    guarantee: str
    isolation: Isolation
    waive: tuple[str, ...] = ()
    slots: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(JAILS_AT_ONCE))
    held: ExitStack = field(default_factory=ExitStack)
    control: str | None = None
    scope: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    _mechanisms: list[str | None] = field(default_factory=list)
    _unproven: JailOutcome | None = None

    @property
    def has_namespaces(self) -> bool:
        """Whether the jails of this level have any."""
        return self.isolation != "container"

    async def jail(
        self,
        target: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        limits: Limits = LIMITS,
        network: Literal["none", "loopback"] = "none",
        workspace: str | None = None,
        mode: WorkspaceMode = "read_only",
        masks: Mapping[str, tuple[str, ...]] | None = None,
        **how: Any,
    ) -> JailOutcome:
        """Run a function of a `_probe_*` module in a jail of the level; `how` as run_in_jail."""
        handler = PythonHandler(
            module=target.__module__,
            qualname=target.__name__,
            arguments=arguments or {},
            sys_path=library_path(),
        )
        spec = JailSpec(
            mounts=library_mounts(),
            env=host.base_environment(),
            limits=limits,
            network=Network.loopback() if network == "loopback" else Network.none(),
            workspace=workspace,
            workspace_mode=mode,
            masks=masks or {},
            isolation=self.isolation,
            waive=self.waive,
        )
        return await run_in_jail(handler, spec, **how)

    async def tries(
        self,
        target: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> JailOutcome:
        """Run a probe; each of its attempts counts."""
        async with self.slots:
            outcome = await self.jail(target, arguments, **how)
        self._note(outcome)
        if outcome.failure is None and isinstance(outcome.value, list):
            self.attempts += [each for each in outcome.value if isinstance(each, dict)]
        else:
            self._unproven = self._unproven or outcome
        return outcome

    async def ends(
        self,
        tried: str,
        expected: str,
        target: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        or_tries: bool = False,
        **how: Any,
    ) -> None:
        """Run a probe that has to be ended by us, for the reason that is expected.

        With `or_tries` it may also come back and say that it was refused.
        """
        async with self.slots:
            outcome = await self.jail(target, arguments, **how)
        if not outcome.receipt.held:
            self._unproven = self._unproven or outcome
            return
        self._note(outcome)
        if or_tries and outcome.failure is None and isinstance(outcome.value, list):
            self.attempts += [each for each in outcome.value if isinstance(each, dict)]
            return
        got = "it went on" if outcome.failure is None else outcome.failure.kind
        self.attempts.append(_probes.seen(tried, got, broke=got != expected))

    @contextlib.asynccontextmanager
    async def beside(
        self,
        target: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> AsyncIterator[Jailed]:
        """A jail that is there, and says so, while others are tried; let go at the end.

        It takes no slot: who waits for one holds one already.
        """
        jailed, ready = Jailed(), trio.Event()
        let_go, waits = trio.open_memory_channel[bytes](0)

        async def heard(name: str, chunk: bytes) -> None:
            if b"ready" in chunk:
                ready.set()

        async def run() -> None:
            async with waits:
                jailed.outcome = await self.jail(target, arguments, stdin=waits, sink=heard, **how)
            self._note(jailed.outcome)
            if jailed.outcome.failure is not None:
                self._unproven = self._unproven or jailed.outcome
            ready.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await ready.wait()
            with let_go:
                yield jailed

    def saw(self, tried: str, what: object, *, broke: bool) -> None:
        """Something that is judged from outside."""
        self.attempts.append(_probes.seen(tried, what, broke=broke))

    def _note(self, outcome: JailOutcome) -> None:
        self._mechanisms.append(outcome.receipt.held.get(self.guarantee))

    def finding(self) -> Finding:
        """Held when every jail was built for it, and no attempt worked."""
        if self._unproven is not None:
            return self._could_not(self._unproven)
        broke = [each for each in self.attempts if each.get("broke") is not False]
        claimed = all(self._mechanisms) and bool(self._mechanisms)
        held = claimed and bool(self.attempts) and not broke
        if broke:
            happened = "; ".join(f"{each.get('tried')}: {each.get('got')}" for each in broke)
        elif not claimed:
            happened = "the receipt does not list it"
        else:
            happened = "; ".join(dict.fromkeys(str(each.get("got")) for each in self.attempts))
        return Finding(
            guarantee=self.guarantee,
            held=held,
            mechanism=", ".join(dict.fromkeys(filter(None, self._mechanisms))) or None,
            tried=tuple(dict.fromkeys(str(each.get("tried")) for each in self.attempts)),
            happened=happened,
            control=self.control,
            fix=None if held else REPORT_IT,
            scope=self.scope,
        )

    def _could_not(self, outcome: JailOutcome) -> Finding:
        """The jail could not be built, or the probe itself ended early."""
        failure = outcome.failure
        happened = "the probe answered nonsense" if failure is None else failure.message
        fix = getattr(failure, "fix", None) or REPORT_IT
        return not_held(self.guarantee, happened, fix)


def not_held(guarantee: str, happened: str, fix: str) -> Finding:
    """Nothing was tried: why, and what helps."""
    return Finding(
        guarantee=guarantee, held=False, mechanism=None, tried=(), happened=happened, fix=fix
    )


async def plain_child(code: str) -> str:
    """The output of a child, outside any jail, that inherits all that can be inherited."""
    argv = [sys.executable, "-I", "-S", "-c", code]
    done = await trio.run_process(argv, capture_stdout=True, close_fds=False, check=False)
    return done.stdout.decode(errors="replace")
