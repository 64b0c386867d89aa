"""What a call did to its workspace: held back, judged, reviewed where asked, then kept or dropped.

A transaction begins before the jail starts, with what is masked. It ends after the run: nothing
is kept that was not judged, and nothing of a call that failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from toolcell._concluded import (
    Told,
    conflict,
    effects_of,
    full,
    kept,
    named_by_git,
    not_committed,
    noted,
    nothing_kept,
    quoted,
    refused,
    seen_too_much,
    told,
    without,
)
from toolcell._effect_facts import gather, top_entries
from toolcell._effect_ignored import tracked
from toolcell._ledger import Baseline, Ledger
from toolcell._masking import Hidden, Masking
from toolcell._parked import Parking
from toolcell._review import shown
from toolcell.approval import ApprovalRequest, Approver, approve
from toolcell.planning import Judgement
from toolcell.results import (
    ApprovalUnavailable,
    ConfinementFailed,
    Effects,
    EffectsRefused,
    EffectsRejected,
    Failure,
    ToolResult,
)
from toolcell_policies import Decision, Outcome, Reason
from toolcell_sandbox._child.syscalls import open_exactly
from toolcell_sandbox.changeset import ChangeSet
from toolcell_sandbox.commit import (
    Ending,
    Failed,
    Leftover,
    Overtaken,
    Place,
    Recovered,
    commit,
    generation,
)
from toolcell_sandbox.mask_index import NotIndexed
from toolcell_sandbox.outcome import Upper
from toolcell_sandbox.recovery import recover
from toolcell_sandbox.spec import JailSpec
from toolcell_sandbox.upper import Layer, Marker, TooMany, changes_of, content_hashes

if TYPE_CHECKING:
    from toolcell._choices import Choices
    from toolcell._protected import Protected
    from toolcell.confinement import Workspace
    from toolcell.planning import Planned, Planner

_log = logging.getLogger("toolcell")

JUDGED_MAX: Final = 50
"""How often a change set is judged again because others were kept meanwhile."""
_UNOBSERVED: Final = "unknown: this call could change the workspace in place"
_UNSEEN: Final = "nobody could be shown the changes, so nothing was kept"


class Transaction:
    """One call's hold on its workspace, from before its jail starts until it is concluded."""

    def __init__(self, spec: JailSpec, hidden: Hidden) -> None:
        self.spec = spec
        self.hidden = hidden
        self._upper: Upper | None = None

    @property
    def alarm(self) -> Callable[[], Awaitable[Mapping[str, Any]]] | None:
        """Returns when a name appears that the jail should not see, and can."""
        return self.hidden.alarm if self.hidden.watched else None

    def keep(self, upper: Upper) -> None:
        """Take the layer that the jail wrote into."""
        self._upper = upper

    @property
    def layer(self) -> Layer | None:
        """That layer, to be looked at; None where the workspace was none that is kept."""
        upper = self._upper
        if upper is None:
            return None
        return Layer(
            fd=upper.fd,
            uids=upper.uids,
            gids=upper.gids,
            owner=upper.owner or (os.geteuid(), os.getegid()),
            groups=frozenset((os.getegid(), *os.getgroups())) if upper.owner is None else None,
            marker=Marker(realtime_ns=upper.mounted_ns[0], boottime_ns=upper.mounted_ns[1]),
            masks=frozenset(self.spec.masks.get(self.spec.workspace or "", ())),
        )

    def close(self) -> None:
        """Drop what was not kept."""
        if self._upper is not None:
            self._upper.close()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One change set on its way to be kept, with whom to ask about it."""

    layer: Layer
    workspace_fd: int
    plan: Planned
    result: ToolResult
    approver: Approver
    review: bool
    park: bool


class Transactions:
    """All transactions of one executor."""

    def __init__(
        self,
        *,
        workspace: Workspace,
        protected: Protected,
        choices: Choices,
        planner: Planner,
        state_dir: str,
    ) -> None:
        self._workspace = workspace
        self._protected = protected
        self._choices = choices
        self._planner = planner
        self._place = Place(
            workspace=workspace.path, identity=workspace.identity, state_dir=state_dir
        )
        self._parking = Parking(state_dir)
        self._masking = Masking(protected)
        self.ledger = Ledger()

    async def start(self) -> None:
        """Finish or undo what a killed process has left half committed in this workspace.

        Raises:
            OSError: that cannot be done.
        """
        found = await trio.to_thread.run_sync(recover, self._place)
        if isinstance(found, Failed):
            raise OSError(found.errno, found.text)
        if found is not None:
            self._tell(found)

    def _tell(self, found: Recovered) -> None:
        where = quoted(self._workspace.path)
        _log.warning("a commit in %s that was cut off is %s now", where, found.outcome)
        for path in found.kept:
            _log.warning("%s was changed by somebody since, and stays so", quoted(path))

    def stop(self) -> None:
        """Let go of what watches."""
        self._masking.close()

    async def begin(self, spec: JailSpec) -> Transaction | ConfinementFailed:
        """The spec with what it masks, or why that cannot be told."""
        hidden = await self._masking.hidden(spec)
        if isinstance(hidden, ConfinementFailed):
            return hidden
        if spec.workspace_mode in ("transaction", "read_only"):
            await self.start()
        return Transaction(dataclasses.replace(spec, masks=hidden.masks), hidden)

    async def conclude(
        self,
        transaction: Transaction,
        plan: Planned,
        result: ToolResult,
        *,
        approver: Approver,
        review: bool,
        park: bool = False,
    ) -> ToolResult:
        """The result with what was kept, or why nothing was.

        Until the commit's point of no return a cancel keeps nothing; past it the result says
        what was kept, without another checkpoint.
        """
        result = noted(result, transaction.hidden.notes())
        broken = result.error
        if not isinstance(broken, ConfinementFailed):
            broken = await transaction.hidden.broken()
        if isinstance(broken, ConfinementFailed) and broken.stage == "run":
            return seen_too_much(result, broken)
        layer = transaction.layer
        if transaction.spec.workspace_mode == "direct":
            self.ledger.unobserved()
            metadata = {**result.metadata, "files_changed": _UNOBSERVED}
            return dataclasses.replace(result, metadata=metadata)
        if layer is None or result.error is not None:
            return kept(result, Effects())
        exceeded = full(layer.fd, transaction.spec.limits)
        if exceeded is not None:
            return nothing_kept(result, exceeded)
        with self._opened() as workspace_fd:
            if workspace_fd is None:
                return nothing_kept(result, conflict((".",)))
            said = {path for path in layer.masks if path in result.content}
            if said:
                tracked_here = await trio.to_thread.run_sync(tracked, workspace_fd)
                result = named_by_git(result, tracked_here & said)
            case = _Case(
                layer=layer,
                workspace_fd=workspace_fd,
                plan=plan,
                result=result,
                approver=approver,
                review=review,
                park=park,
            )
            return await self._settled(case)

    async def _settled(self, case: _Case) -> ToolResult:
        """Found, judged, reviewed where asked, committed: straight down."""
        try:
            changes = await trio.to_thread.run_sync(self._changes, case)
        except TooMany as error:
            failure = EffectsRefused(message=f"nothing was kept: {error}")
            return nothing_kept(case.result, failure)
        if not changes and not changes.conflicts:
            return kept(case.result, Effects())
        agreed: tuple[Reason, ...] | None = None
        for _ in range(JUDGED_MAX):
            # Of two calls at once, each may be harmless, and both together orders for git: so
            # what was judged before another was kept is judged again.
            judged_at = await trio.to_thread.run_sync(generation, self._place)
            verdict = await trio.to_thread.run_sync(self._judged, case, changes)
            if verdict.decision.outcome is Outcome.DENY:
                return await self._refused(case, changes, verdict.refused)
            rest = without(changes, verdict.dropped)
            if rest.conflicts:
                return nothing_kept(case.result, conflict(rest.conflicts))
            if verdict.decision.outcome is Outcome.ASK and verdict.decision.reasons != agreed:
                problem, terminate = await self._reviewed(case, rest, verdict.decision)
                if isinstance(problem, ApprovalUnavailable) and not case.review:
                    return await self._refused(case, changes, verdict.asked)
                if isinstance(problem, ApprovalUnavailable):
                    problem = EffectsRejected(message=f"{_UNSEEN}: {problem.cause}", why=_UNSEEN)
                if problem is not None:
                    return nothing_kept(case.result, problem, terminate=terminate)
                agreed = verdict.decision.reasons
            ending = await trio.to_thread.run_sync(self._committed, case, rest, judged_at)
            if isinstance(ending, Overtaken):
                continue
            if isinstance(ending, Leftover):
                _log.warning("%s", ending.text)
            elif ending is not None:
                return nothing_kept(case.result, not_committed(ending))
            return kept(case.result, effects_of(rest, verdict.dropped))
        return nothing_kept(case.result, conflict((".",)))

    # -- the steps; the first three block -------------------------------------------------

    def _changes(self, case: _Case) -> ChangeSet:
        return changes_of(
            case.layer, case.workspace_fd, self._workspace.path, check=_check_cancelled
        )

    def _judged(self, case: _Case, changes: ChangeSet) -> Judgement:
        """The facts of a change set, and what is decided about them."""
        if changes.problems:
            return Judgement(
                decision=dataclasses.replace(case.plan.decision, outcome=Outcome.DENY),
                refused=tuple(told(one.path, one.code, one.text) for one in changes.problems),
            )
        effects = gather(
            changes,
            layer_fd=case.layer.fd,
            workspace_fd=case.workspace_fd,
            workspace=self._workspace.path,
            masks=case.layer.masks,
            is_listed=self._is_listed,
        )
        seen = top_entries(case.workspace_fd)
        entries = tuple(name for name in seen if name not in case.layer.masks)
        return self._planner.judge(case.plan, effects, entries, review=case.review)

    def _is_listed(self, path: str) -> bool:
        """Whether a path in the workspace is on the sensitive list, as one that is written."""
        known, whole = self._protected, f"{self._workspace.path.rstrip('/')}/{path}"
        return bool(known.rules.match(whole, role="write", homes=known.homes))

    def _committed(self, case: _Case, changes: ChangeSet, judged_at: int) -> Ending | None:
        return commit(
            changes,
            case.layer.fd,
            self._place,
            check=_check_cancelled,
            displaced=self.ledger.noting,
            on_recovered=self._tell,
            judged_at=judged_at,
        )

    async def _reviewed(
        self, case: _Case, changes: ChangeSet, decision: Decision
    ) -> tuple[Failure | None, bool]:
        """Ask about exactly these changes; why not, and whether the agent should stop."""
        hashes = await trio.to_thread.run_sync(
            lambda: content_hashes(case.layer, changes, check=_check_cancelled)
        )
        seen = await shown(
            changes,
            layer_fd=case.layer.fd,
            workspace_fd=case.workspace_fd,
            isolation=self._choices.isolation,
            waive=self._choices.waive,
        )
        request = ApprovalRequest(
            call_id=case.result.call_id,
            tool_name=case.plan.tool.name,
            arguments=case.plan.arguments,
            level=decision.level,
            reasons=decision.reasons,
            plan_hash=changes.digest(hashes),
            text=seen.summary,
            stage="after",
            diff=seen.diff,
        )
        answer = await approve(case.approver, request, decision)
        if answer.failure is None or isinstance(answer.failure, ApprovalUnavailable):
            return answer.failure, False
        message = f"{answer.failure.message}; nothing was kept"
        why = getattr(answer.failure, "why", None)
        return EffectsRejected(message=message, why=why), answer.terminate

    async def _refused(
        self, case: _Case, changes: ChangeSet, paths: tuple[Told, ...]
    ) -> ToolResult:
        handle = None
        if case.park:
            handle = await trio.to_thread.run_sync(
                lambda: self._parking.park(changes, case.layer, self._place, check=_check_cancelled)
            )
        return nothing_kept(case.result, refused(paths, handle))

    # -- looked at from outside -----------------------------------------------------------

    async def changes_since(self, baseline: Baseline) -> Effects | None:
        """What calls have changed since, net; None where something was changed in place."""
        with self._opened() as workspace_fd:
            if workspace_fd is None:
                raise FileNotFoundError("the workspace is another folder by now")
            return await trio.to_thread.run_sync(
                self.ledger.changes_since, baseline, workspace_fd, _check_cancelled
            )

    async def hidden(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """What of the workspace calls cannot see, and which of it git tracks; nothing where that
        cannot be told, or nothing is hidden at this level."""
        if self._choices.isolation == "container" or "paths_masked" in self._choices.waive:
            return (), frozenset()
        try:
            names = await self._masking.names(self._workspace.path, self._workspace.identity)
        except NotIndexed:
            return (), frozenset()
        with self._opened() as workspace_fd:
            if workspace_fd is None or not names:
                return names, frozenset()
            found = await trio.to_thread.run_sync(tracked, workspace_fd)
        return names, found & set(names)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int | None]:
        """A descriptor of the workspace; None where it is another folder by now."""
        try:
            place = open_exactly(self._workspace.path)
        except OSError:
            yield None
            return
        try:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        finally:
            os.close(place)
        try:
            found = os.fstat(fd)
            is_same = (found.st_dev, found.st_ino) == self._workspace.identity
            yield fd if is_same else None
        finally:
            os.close(fd)


def _check_cancelled() -> None:
    trio.from_thread.check_cancelled()
