"""What a call did to its workspace: held back, judged, reviewed where asked, then kept or dropped.

A transaction begins before the jail starts: what is masked is looked up, and the time is noted
after which a change below is somebody else's. It ends after the run: nothing is kept that was not
judged, and nothing of a call that failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from toolcell._effect_facts import gather, top_entries
from toolcell._ledger import Baseline, Ledger
from toolcell._masked_names import MaskedNames
from toolcell._parked import Parked, Parking
from toolcell._protected import Protected
from toolcell._review import Shown, shown
from toolcell.approval import ApprovalRequest, Approver, approve
from toolcell.planning import Judgement, effect_ground
from toolcell.results import (
    ApprovalUnavailable,
    CommitConflict,
    ConfinementFailed,
    Effects,
    EffectsRefused,
    EffectsRejected,
    ExecutorError,
    Failure,
    ToolResult,
)
from toolcell_policies import Decision, Outcome, judge_effects
from toolcell_sandbox._child.syscalls import open_exactly
from toolcell_sandbox.changeset import ChangeSet
from toolcell_sandbox.commit import (
    Conflict,
    Failed,
    Leftover,
    Place,
    Recovered,
    Refused,
    commit,
    settle_marker,
)
from toolcell_sandbox.fixes import fix_for
from toolcell_sandbox.mask_index import Doubt, MaskIndex, Masks, NotIndexed
from toolcell_sandbox.outcome import Upper
from toolcell_sandbox.recovery import recover
from toolcell_sandbox.spec import JailSpec
from toolcell_sandbox.upper import Layer, Marker, TooMany, changes_of, content_hashes

if TYPE_CHECKING:
    from toolcell._choices import Choices
    from toolcell.confinement import Workspace
    from toolcell.planning import Plan, Planner

_log = logging.getLogger("toolcell")

NAMED_MAX: Final = 10
"""How many paths a message names; the result's own fields have them all."""


class Transaction:
    """One call's hold on its workspace, from before its jail starts until it is concluded."""

    def __init__(
        self, spec: JailSpec, marker: Marker, watched: tuple[tuple[MaskIndex, Masks], ...]
    ) -> None:
        self.spec = spec
        self.marker = marker
        self._watched = watched
        self.upper: Upper | None = None

    def keep(self, upper: Upper) -> None:
        """Take the layer that the jail wrote into."""
        self.upper = upper

    @property
    def alarm(self) -> Callable[[], Awaitable[Mapping[str, Any]]] | None:
        """Returns when a name appears that the jail should not see, and can."""
        return self._alarm if self._watched else None

    async def _alarm(self) -> Mapping[str, Any]:
        seen: list[str] = []
        async with trio.open_nursery() as nursery:

            async def watch(index: MaskIndex, masks: Masks) -> None:
                seen.append(await index.changed(masks))
                nursery.cancel_scope.cancel()

            for index, masks in self._watched:
                nursery.start_soon(watch, index, masks)
        cause = f"{_quoted(seen[0])} appeared in the folder while the call ran"
        if isinstance(seen[0], Doubt):
            cause = f"while the call ran, it was not known any more what it could see: {seen[0]}"
        return {"guarantee": "paths_masked", "cause": cause}

    @property
    def masks(self) -> frozenset[str]:
        """What of the workspace the jail could not see."""
        return frozenset(self.spec.masks.get(self.spec.workspace or "", ()))

    def close(self) -> None:
        """Drop what was not kept."""
        if self.upper is not None:
            self.upper.close()


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
        self._indexes: dict[str, MaskIndex] = {}
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
        where = _quoted(self._workspace.path)
        _log.warning("a commit in %s that was cut off is %s now", where, found.outcome)
        for path in found.kept:
            _log.warning("%s was changed by somebody since, and stays so", _quoted(path))

    def stop(self) -> None:
        """Let go of what watches."""
        for index in self._indexes.values():
            index.close()
        self._indexes.clear()

    # -- before the run -------------------------------------------------------------------

    async def begin(self, spec: JailSpec) -> Transaction | ConfinementFailed:
        """The spec with what it masks, or why that cannot be told."""
        masks: dict[str, tuple[str, ...]] = {}
        watched: list[tuple[MaskIndex, Masks]] = []
        tops = [] if "paths_masked" in spec.waive else list(_layered(spec))
        if spec.isolation == "container":
            tops = []
        for top, identity in tops:
            try:
                index = await self._index(top, identity)
                found = await index.current()
            except NotIndexed as error:
                return _unmasked(error, top, identity)
            masks[top] = found.paths
            watched.append((index, found))
        if spec.workspace_mode in ("transaction", "read_only"):
            await self.start()
        if spec.workspace_mode == "transaction":
            await trio.to_thread.run_sync(settle_marker, self._place)
        ready = dataclasses.replace(spec, masks=masks)
        return Transaction(ready, Marker.now(), tuple(watched))

    async def _index(self, top: str, identity: tuple[int, int]) -> MaskIndex:
        if top not in self._indexes:
            judge = await trio.to_thread.run_sync(MaskedNames, top, self._protected)
            own = None if os.geteuid() == 0 else (os.geteuid(), os.getegid())
            if top not in self._indexes:
                self._indexes[top] = MaskIndex(top, identity, judge, foreign_ids=own)
        return self._indexes[top]

    # -- after the run --------------------------------------------------------------------

    async def conclude(
        self,
        transaction: Transaction,
        plan: Plan,
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
        upper, spec = transaction.upper, transaction.spec
        if upper is None:
            in_place = spec.workspace is not None and spec.workspace_mode == "direct"
            if in_place:
                self.ledger.unobserved()
                return result
            return _with(result, Effects())
        if result.error is not None:
            return _with(result, Effects())
        layer = Layer(
            fd=upper.fd,
            uids=upper.uids,
            gids=upper.gids,
            owner=upper.owner or (os.geteuid(), os.getegid()),
            marker=transaction.marker,
            masks=transaction.masks,
        )
        with self._opened() as workspace_fd:
            if workspace_fd is None:
                return _failed(result, CommitConflict(message=_MOVED, paths=(".",)))
            try:
                changes = await trio.to_thread.run_sync(
                    lambda: changes_of(
                        layer, workspace_fd, self._workspace.path, check=_check_cancelled
                    )
                )
            except TooMany as error:
                return _failed(result, EffectsRefused(message=f"nothing was kept: {error}"))
            if not changes and not changes.conflicts:
                return _with(result, Effects())
            return await self._decided(
                layer, workspace_fd, changes, plan, result, approver, review=review, park=park
            )

    async def _decided(
        self,
        layer: Layer,
        workspace_fd: int,
        changes: ChangeSet,
        plan: Plan,
        result: ToolResult,
        approver: Approver,
        *,
        review: bool,
        park: bool,
    ) -> ToolResult:
        verdict = await trio.to_thread.run_sync(
            self._judged, layer, workspace_fd, changes, plan, review
        )
        if verdict.decision.outcome is Outcome.DENY:
            return await self._refused(layer, changes, verdict.refused, result, park=park)
        kept = _whole(changes, frozenset(one["path"] or "" for one in verdict.dropped))
        if kept.conflicts:
            return _failed(result, _conflict(kept.conflicts))
        if verdict.decision.outcome is Outcome.ASK:
            problem, terminate = await self._reviewed(
                layer, workspace_fd, kept, plan, result.call_id, verdict.decision, approver
            )
            if isinstance(problem, ApprovalUnavailable):
                if review:
                    problem = EffectsRejected(message=f"{_UNSEEN}: {problem.cause}", why=_UNSEEN)
                else:
                    return await self._refused(layer, changes, verdict.asked, result, park=park)
            if problem is not None:
                return _failed(result, problem, terminate=terminate)
        conflict = await trio.to_thread.run_sync(
            lambda: commit(
                kept,
                layer.fd,
                self._place,
                check=_check_cancelled,
                displaced=self.ledger.noting,
                on_recovered=self._tell,
            )
        )
        match conflict:
            case None:
                return _with(result, _effects(kept, verdict.dropped))
            case Leftover(text=text):
                _log.warning("%s", text)
                return _with(result, _effects(kept, verdict.dropped))
            case Conflict(paths=paths):
                return _failed(result, _conflict(paths))
            case Refused(paths=paths, text=text):
                named = tuple(_named(path, "cannot_be_kept", text) for path in paths)
                return _failed(
                    result, EffectsRefused(message=f"nothing was kept: {text}", paths=named)
                )
            case Failed(text=text, unfinished=unfinished):
                message = "the changes could not be written, so nothing was kept"
                if unfinished:
                    message = "the changes could not be written, nor what was written be undone"
                return _failed(
                    result,
                    ExecutorError(
                        message=message,
                        operator_detail=text,
                        remedy="toolcell doctor --recover" if unfinished else None,
                    ),
                )

    def _judged(
        self, layer: Layer, workspace_fd: int, changes: ChangeSet, plan: Plan, review: bool
    ) -> Judgement:
        """The facts of a change set, and what is decided about them. Blocks."""
        if changes.problems:
            return Judgement(
                decision=dataclasses.replace(plan.decision, outcome=Outcome.DENY),
                refused=tuple(_named(one.path, one.code, one.text) for one in changes.problems),
            )
        effects = gather(
            changes,
            layer_fd=layer.fd,
            workspace_fd=workspace_fd,
            workspace=self._workspace.path,
            protected=self._protected,
        )
        return self._planner.judge(plan, effects, top_entries(workspace_fd), review=review)

    async def _reviewed(
        self,
        layer: Layer,
        workspace_fd: int,
        changes: ChangeSet,
        plan: Plan,
        call_id: str,
        decision: Decision,
        approver: Approver,
    ) -> tuple[Failure | None, bool]:
        """Ask about exactly these changes; why not, and whether the agent should stop."""
        hashes = await trio.to_thread.run_sync(
            lambda: content_hashes(layer, changes, check=_check_cancelled)
        )
        seen = await shown(
            changes,
            layer_fd=layer.fd,
            workspace_fd=workspace_fd,
            isolation=self._choices.isolation,
            waive=self._choices.waive,
        )
        request = ApprovalRequest(
            call_id=call_id,
            tool_name=plan.tool.name,
            arguments=plan.arguments,
            level=decision.level,
            reasons=decision.reasons,
            plan_hash=changes.digest(hashes),
            text=seen.summary,
            stage="after",
            diff=seen.diff,
        )
        answer = await approve(approver, request, decision)
        if answer.failure is None or isinstance(answer.failure, ApprovalUnavailable):
            return answer.failure, False
        message = f"{answer.failure.message}; nothing was kept"
        why = getattr(answer.failure, "why", None)
        return EffectsRejected(message=message, why=why), answer.terminate

    async def _refused(
        self,
        layer: Layer,
        changes: ChangeSet,
        paths: tuple[dict[str, str | None], ...],
        result: ToolResult,
        *,
        park: bool,
    ) -> ToolResult:
        handle = None
        if park:
            handle = await trio.to_thread.run_sync(
                lambda: self._parking.park(changes, layer, self._place, check=_check_cancelled)
            )
        named = "; ".join(str(one["text"]) for one in paths[:NAMED_MAX])
        more = f"; and {len(paths) - NAMED_MAX} more" if len(paths) > NAMED_MAX else ""
        kept = f"parked as {handle}, for a person to decide" if handle else "nothing was kept"
        failure = EffectsRefused(
            message=f"{kept}: {named}{more}",
            paths=paths,
            handle=handle,
            remedy=f"toolcell effects show {handle}" if handle else None,
        )
        return _failed(result, failure)

    async def changes_since(self, baseline: Baseline) -> Effects | None:
        """What calls have changed since, net; None where something was changed in place."""
        with self._opened() as workspace_fd:
            if workspace_fd is None:
                raise FileNotFoundError(_MOVED)
            return await trio.to_thread.run_sync(
                self.ledger.changes_since, baseline, workspace_fd, _check_cancelled
            )

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


_MOVED: Final = "the workspace is another folder by now, so nothing was kept"
_UNSEEN: Final = "nobody could be shown the changes, so nothing was kept"


def _layered(spec: JailSpec) -> Iterator[tuple[str, tuple[int, int]]]:
    """The folders that a jail sees through an overlay, each with its identity."""
    if spec.workspace is not None and spec.workspace_mode in ("transaction", "read_only"):
        assert spec.workspace_identity is not None
        yield spec.workspace, spec.workspace_identity
    for mount in spec.mounts:
        if mount.layered and mount.identity is not None:
            yield mount.path, mount.identity


def _unmasked(error: NotIndexed, top: str, identity: tuple[int, int]) -> ConfinementFailed:
    """Why a folder could not be looked through; or that it is another one by now."""
    guarantee, stage, cause = "paths_masked", "mask index", error.cause
    try:
        found = os.stat(top, follow_symlinks=False)
        is_same = (found.st_dev, found.st_ino) == identity
    except OSError:
        is_same = False
    if is_same:
        fix = f"{error.fix}; or accept it by name: --waive paths_masked"
    else:
        guarantee, stage = "fs_confined", "workspace"
        cause = f"{_quoted(top)} is not the folder that it was when the executor started"
        fix = fix_for({"guarantee": guarantee, "stage": stage})
    return ConfinementFailed(
        message=f"{fix}. The call did not run, since what it may not see could not be told: "
        f"{guarantee}, stage {stage}: {cause}",
        guarantee=guarantee,
        stage=stage,
        cause=cause,
        fix=fix,
        remedy=fix,
    )


def _check_cancelled() -> None:
    trio.from_thread.check_cancelled()


def _conflict(paths: tuple[str, ...]) -> CommitConflict:
    named = ", ".join(map(_quoted, paths[:NAMED_MAX]))
    more = f" and {len(paths) - NAMED_MAX} more" if len(paths) > NAMED_MAX else ""
    return CommitConflict(
        message=f"somebody else changed {named}{more} while the call ran, so nothing was kept",
        paths=paths,
        remedy="look at the files again, then repeat the call",
    )


def _effects(changes: ChangeSet, dropped: tuple[dict[str, str | None], ...]) -> Effects:
    return Effects(
        created=tuple(change.path for change in changes.of_sort("created")),
        modified=tuple(change.path for change in changes.of_sort("modified")),
        deleted=tuple(change.path for change in changes.of_sort("deleted")),
        refused=dropped,
    )


def _named(path: str, code: str, text: str) -> dict[str, str | None]:
    return {"path": path, "code": code, "rule": None, "text": text}


def _quoted(path: str) -> str:
    return repr(os.fsencode(path).decode("utf-8", "replace"))


def _with(result: ToolResult, effects: Effects) -> ToolResult:
    return dataclasses.replace(result, effects=effects, files_changed=effects.paths)


def _failed(result: ToolResult, failure: Failure, *, terminate: bool = False) -> ToolResult:
    """The same run with this ending: nothing was kept, and what it said is still told."""
    refused = failure.paths if isinstance(failure, EffectsRefused) else ()
    text = f"error: {failure.kind}: {failure.message}"
    return dataclasses.replace(
        result,
        success=False,
        error=failure,
        output=None,
        content=f"{result.content}\n{text}".strip(),
        effects=Effects(refused=refused),
        files_changed=(),
        terminate=terminate or result.terminate,
    )


def _whole(changes: ChangeSet, left_out: frozenset[str]) -> ChangeSet:
    """The rest of a change set: what stays keeps the folders that it lies in."""
    rest = changes.without(left_out)
    holding = {path[:at] for path in left_out for at, char in enumerate(path) if char == "/"}
    kept = (
        one
        for one in rest.changes
        if one.path not in holding or (one.after is not None and one.after.kind == "folder")
    )
    return dataclasses.replace(rest, changes=tuple(kept))


async def show_parked(parking: Parking, parked: Parked) -> Shown:
    """What a parked change set is, for a person.

    Raises:
        NotParked: its contents are not what was judged.
    """
    with parking.opened(parked) as layer_fd, contextlib.ExitStack() as held:
        place = open_exactly(parked.place.workspace)
        held.callback(os.close, place)
        return await shown(parked.changes, layer_fd=layer_fd, workspace_fd=place)


async def commit_parked(parking: Parking, handle: str) -> Effects | Failure:
    """Keep what is parked, but for what nobody may write: a person has asked for the rest.

    Raises:
        NotParked: there is no such handle, or its contents are not what was judged.
    """
    parked = parking.get(handle)
    with parking.opened(parked) as layer_fd:
        done = await trio.to_thread.run_sync(_commit_parked, parking, parked, layer_fd)
    if isinstance(done, Effects):
        await trio.to_thread.run_sync(parking.drop, handle)
    return done


def _commit_parked(parking: Parking, parked: Parked, layer_fd: int) -> Effects | Failure:
    place, changes = parked.place, parked.changes
    protected = Protected.here(place.state_dir, place.workspace)
    try:
        top = open_exactly(place.workspace)
    except OSError:
        return CommitConflict(message=_MOVED, paths=(".",))
    with contextlib.ExitStack() as held:
        held.callback(os.close, top)
        workspace_fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
        held.callback(os.close, workspace_fd)
        ground = effect_ground(protected, place.workspace, top_entries(workspace_fd))
        effects = gather(
            changes,
            layer_fd=layer_fd,
            workspace_fd=workspace_fd,
            workspace=place.workspace,
            protected=protected,
        )
        verdict = judge_effects(effects, ground)
    left_out = (
        *(_named(one.path, one.code, one.text) for one in changes.problems),
        *(_named(o.path, o.reason.code, o.reason.text) for o in verdict.refused if o.path),
        *(_named(path, code, "it is hidden from every call") for path, code in verdict.dropped),
    )
    paths = frozenset(one["path"] or "" for one in left_out)
    kept = dataclasses.replace(_whole(changes, paths), problems=(), conflicts=())
    match commit(kept, layer_fd, place):
        case None | Leftover():
            return _effects(kept, left_out)
        case Conflict(paths=clashing):
            return _conflict(clashing)
        case Refused(paths=named, text=text):
            told = tuple(_named(path, "cannot_be_kept", text) for path in named)
            return EffectsRefused(message=f"nothing was kept: {text}", paths=told)
        case Failed(text=text):
            message = "the changes could not be written, so nothing was kept"
            return ExecutorError(message=message, operator_detail=text)
