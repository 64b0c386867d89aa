"""All that an executor is made of: checked when it is made, opened and closed as one."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import trio

from toolcell._agreements import Agreements
from toolcell._arguments import NotPlain, read
from toolcell._cache import ResultCache
from toolcell._choices import (
    check_types,
    choices_of,
    chosen_ceiling,
    default_state_dir,
    refuse_unknown_choices,
)
from toolcell._ledger import Baseline
from toolcell._loops.anywhere import anywhere, entering, leaving
from toolcell._loops.callbacks import approver_at_home
from toolcell._loops.home import Home
from toolcell._policies import policy_of
from toolcell._protected import Protected
from toolcell._sensitive_files import Lookout
from toolcell.approval import Approver, ask_terminal, deny_all
from toolcell.audit import Audit
from toolcell.calls import CallContext
from toolcell.confinement import AHEAD, Workspace, ahead_path
from toolcell.effects import Transactions
from toolcell.folders import Folders
from toolcell.planning import Planner
from toolcell.registry import ToolRegistry
from toolcell.results import Effects, Verification
from toolcell.retained import Page, RetainedStore
from toolcell.tools import Tool
from toolcell_policies import Mode, Policy
from toolcell_sandbox.pool import Pool
from toolcell_sandbox.spec import Limits, Network, WorkspaceMode

CONCURRENT_CALLS = 64
"""Calls at once unless `max_concurrency` says otherwise: each holds some ten descriptors."""

READ_BYTES = 16_384
"""One page of what is retained, unless a limit says otherwise."""


class Assembly:
    """The parts of an executor, and what can be asked of them between calls.

    The built-in tools are registered unless `builtin` is false or a registry has tools of those
    names. Without an `approver` nothing that needs a person runs. One executor takes many calls
    at once, `max_concurrency` of them in jails.

    `policy` is "standard", "coding", "ci" or "strict", a file, or a `Policy`; by default
    TOOLCELL_POLICY, else "standard". `mode` is a ceiling: "explore", "plan" or "build".
    `isolation` names the guarantees that every jail must hold, or the call fails closed; by
    default TOOLCELL_ISOLATION, else "standard". `waive` names guarantees that calls may do
    without: each one is then asked about, and a warning names them. `workspace_mode` is what
    tools get of the workspace: "transaction" (what they change is judged before it is kept),
    "read_only", "scratch" (an empty one of the jail's own) or "direct" (changed in place); None
    gives it to a tool that only reads for reading, and to any other as a transaction, or
    directly at level "container", which has none. With `review` the approver is shown what each
    call changed before it is kept. `on_refused` "park" keeps refused changes under a handle, for
    `toolcell effects`. `read` and `write` are host folders that tools see besides it, at their real
    paths; only tools that write or execute may write in the latter, and nothing there is undone.
    `env` is added to the jail's own environment; nothing of this process's is inherited.

    `deps` is plain data that every handler finds in its context. `cache_s` is for how many seconds
    the result of an idempotent tool that only reads may be given again to the same call of the same
    session, as long as no call has changed the workspace meanwhile; 0 is never. `retries` is how
    often an idempotent call is tried again after what may pass by itself.

    `warm_jails` jails are made ahead for each of the kinds of call that were made last, while no
    call runs, some 6 MiB each; 0 makes each one for its call. What holds is the same. `preload`
    names modules that every handler finds imported already, such as "numpy": trusted code from the
    installed packages, outside of the workspace, whose import starts no threads.

    Raises:
        ValueError: the workspace or a folder is one that no tool may have, or a choice is not
            offered.
        TypeError: an option is of another type than it says, or `deps` are no plain data.
    """

    def __init__(
        self,
        registry: ToolRegistry | None = None,
        *,
        tools: Iterable[Any] = (),
        workspace: str | os.PathLike[str],
        policy: str | os.PathLike[str] | Policy | None = None,
        approver: Approver = deny_all,
        mode: Mode | str = Mode.BUILD,
        isolation: str | None = None,
        limits: Limits | None = None,
        network: Network | None = None,
        workspace_mode: WorkspaceMode | None = None,
        review: bool = False,
        on_refused: Literal["all", "park"] = "all",
        read: Iterable[str | os.PathLike[str]] = (),
        write: Iterable[str | os.PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        waive: Iterable[str] = (),
        deps: Mapping[str, Any] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        max_concurrency: int | None = None,
        cache_s: float = 0.0,
        retries: int = 2,
        builtin: bool = True,
        warm_jails: int = 2,
        preload: Iterable[str] = (),
    ) -> None:
        refuse_unknown_choices(isolation=isolation)
        check_types(limits, network, approver, max_concurrency)
        self.registry = ToolRegistry() if registry is None else registry
        if builtin:
            from toolcell.builtin import builtin_tools

            for tool in builtin_tools():
                if tool.name not in self.registry:
                    self.registry.register(tool)
        for tool in tools:
            # None of these takes another's place unseen: not a pack's the built-in's of its name.
            self.registry.register(tool, shadow=False)
        self.state_dir = os.fspath(state_dir) if state_dir is not None else default_state_dir()
        self.workspace = Workspace.open(os.fspath(workspace), state_dir=self.state_dir)
        self.limits = limits or Limits()
        self.deps = _plain(deps)
        protected = self._protected = Protected.here(self.state_dir, self.workspace.path)
        self.choices = choices_of(
            isolation=isolation,
            network=network,
            workspace_mode=workspace_mode,
            folders=Folders.open(read, write, workspace=self.workspace, protected=protected),
            env=env,
            waive=waive,
        )
        if on_refused not in ("all", "park"):
            raise ValueError(f"on_refused {on_refused!r} is not offered; choose one of: all, park")
        if retries < 0 or cache_s < 0:
            raise ValueError("retries and cache_s are 0 or more")
        self._given_approver = self._approver = approver
        self._review, self._parks = review, on_refused == "park"
        self._home: Home | None = None
        if approver is ask_terminal or review:
            # Now, before a tool can put a module of that name where this process would find it.
            import toolcell._terminal  # noqa: F401  # for its effect on sys.modules
        self._retained = RetainedStore(self.state_dir)
        self._own_session = os.urandom(16).hex()
        self._agreements = Agreements(state_dir=self.state_dir, workspace=self.workspace.path)
        self.policy = policy_of(
            policy,
            workspace=self.workspace.path,
            is_trusted=self._agreements.is_trusted,
        )
        self._planner = Planner(
            workspace=self.workspace,
            protected=protected,
            choices=self.choices,
            policy=self.policy,
            mode=chosen_ceiling(mode),
            granted=self._agreements.granted,
        )
        self._transactions = Transactions(
            workspace=self.workspace,
            protected=protected,
            choices=self.choices,
            planner=self._planner,
            state_dir=self.state_dir,
        )
        self._lookout = Lookout(workspace=self.workspace, protected=protected)
        self._audit = Audit(self.state_dir)
        self._slots = trio.CapacityLimiter(max_concurrency or CONCURRENT_CALLS)
        self._cache = ResultCache(life_s=cache_s)
        self._retries = retries
        own = tuple(preload)
        self._pool = Pool(
            warm_jails,
            preload=(*AHEAD, *own),
            preload_path=ahead_path(),
            check_preload=bool(own),
        )

    @entering
    async def __aenter__(self) -> Self:
        # Written for the loop that enters, and so asked there.
        self._approver = approver_at_home(self._given_approver)
        self._audit.start()
        try:
            self._agreements.start()
            await self._transactions.start()
            await self._pool.__aenter__()
        except BaseException:
            self._audit.stop()
            raise
        return self

    @leaving
    async def __aexit__(self, *_: object) -> None:
        await self._pool.__aexit__()
        self._transactions.stop()
        self._agreements.stop()
        self._audit.stop()

    # -- what calls came to ---------------------------------------------------------------

    @anywhere
    async def hidden(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """What of the workspace no call can see now, and which of it git tracks.

        Git calls the latter deleted, and what was committed of it can be read from its objects.
        """
        return await self._transactions.hidden()

    def baseline(self) -> Baseline:
        """This moment of the workspace, for `changes_since`."""
        return self._transactions.ledger.baseline()

    @anywhere
    async def changes_since(self, baseline: Baseline) -> Effects | None:
        """What of all that calls have changed since is other than it was: nothing, if it nets out.

        Compares kinds, modes, contents and where links point, of what was committed by this
        executor since the baseline, with the workspace as it is now. None where a call changed
        something in place, which nobody observed.

        Raises:
            ValueError: the baseline is another executor's.
            OSError: the workspace cannot be read any more.
        """
        return await self._transactions.changes_since(baseline)

    @anywhere
    async def verify_net_zero(self, baseline: Baseline) -> Verification:
        """Whether an investigation has taken its edits back: the contract of transient edits.

        Raises:
            ValueError, OSError: as `changes_since`.
        """
        return Verification(effects=await self.changes_since(baseline))

    @anywhere
    async def read_retained(
        self,
        handle: str,
        offset: int = 0,
        limit: int = READ_BYTES,
        *,
        context: CallContext | None = None,
    ) -> Page:
        """A page of what was too large to be shown, for the session of `context`, as its tool does.

        `offset` and `limit` are bytes, at most 1 MiB; a page of text begins and ends between two
        characters. Without a session it is what calls without one left.

        Raises:
            NotRetained: (a LookupError) there is no such handle for this session.
            ValueError: the offset is negative or past the end, or the limit is not above 0.
            OSError: the state folder cannot be read.
        """
        session = (context or CallContext()).session_id or self._own_session
        read = functools.partial(self._retained.read, handle, offset, limit, session=session)
        return await trio.to_thread.run_sync(read)

    # -- what calls would get -------------------------------------------------------------

    def jail_of(self, tool: Tool) -> dict[str, Any]:
        """The jail that a call of this tool would get, as `toolcell check` shows it."""
        return self.choices.jail_of(tool, self._planner.workspace_mode(tool))

    def admitted(self, context: CallContext | None = None) -> tuple[Tool, ...]:
        """The tools to show a model: switched on, available, not deferred, left out by no ceiling.

        Of the tools that are on, what a ceiling leaves out would be `not_admitted` when it is
        called, and nothing else would.
        """
        context = context or CallContext()
        now = self.registry.snapshot()
        return tuple(
            tool
            for tool in now.list_tools(only_available=True)
            if tool.name not in now.deferred and self._planner.admits(tool, context)
        )


def _plain(deps: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A copy of what handlers are given: JSON values, since it crosses to another process.

    Raises:
        TypeError: it is not; the message says where.
    """
    try:
        found = read(deps or {})
    except NotPlain as error:
        at = f" at {error.path}" if error.path else ""
        raise TypeError(
            f"deps are plain data, which travels into the jail{at}: {error}; open services in "
            "the handler"
        ) from None
    if not isinstance(found, dict):
        raise TypeError("deps are a mapping of names to plain data")
    return found
