"""Whether somebody agreed: asked now, before, or not at all; and how often a run may ask."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import orjson
import trio

from toolcell.approval import (
    Answer,
    ApprovalRequest,
    Approver,
    approve,
    ask_terminal,
    asked,
    deny_all,
    unsafe_approve_all,
)
from toolcell.grants import Grants, SessionDenials
from toolcell.results import ApprovalRejected
from toolcell_policies import Outcome, Reason, RunState
from toolcell_policies.loops import Loops, PromptRate

if TYPE_CHECKING:
    from toolcell.calls import CallContext
    from toolcell.planning import GrantShape, Planned
    from toolcell.prepared import Plan
    from toolcell.results import ApprovalTimeout, ApprovalUnavailable

_log = logging.getLogger("toolcell")

FORGED = "plan_forged"

How = Literal["not_asked", "grant", "once", "session", "project"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a call came to be allowed; `failure` is why it was not, where a person was asked."""

    plan: Planned
    how: How = "not_asked"
    grant: str | None = None
    waited_s: float = 0.0
    failure: ApprovalRejected | ApprovalTimeout | ApprovalUnavailable | None = None
    terminate: bool = False

    def to_json(self) -> dict[str, str | float | None]:
        """As the audit log has it."""
        return {"how": self.how, "grant": self.grant, "waited_s": round(self.waited_s, 3)}


def answering(answer: Answer, otherwise: Approver) -> Approver:
    """An approver that gives this answer before the run, and asks another one after it."""

    async def approver(request: ApprovalRequest) -> Answer:
        if request.stage == "before":
            return answer
        return await asked(otherwise, request)  # type: ignore[no-any-return]  # approve() looks

    return approver


def _has_agent(context: CallContext) -> bool:
    return context.session_id is not None or context.agent_id is not None


class Agreements:
    """The agreements of one executor: grants, what was said no to, and what goes in circles."""

    def __init__(self, *, state_dir: str, workspace: str) -> None:
        self._state_dir = state_dir
        self._workspace = workspace
        self._grants: Grants | None = None
        self._loops = Loops()
        self._rate = PromptRate()
        self._denials = SessionDenials()
        # Who names no session has this executor's: it ends with it.
        self._own_session = f"executor-{os.urandom(12).hex()}"

    @contextlib.contextmanager
    def _store(self) -> Iterator[Grants]:
        """The store; of an executor that is not open it is opened for as long as it is needed.

        Raises:
            OSError: the state folder cannot be used.
        """
        if self._grants is not None:
            yield self._grants
            return
        with Grants.open(self._state_dir) as store:
            yield store

    def start(self) -> None:
        """Open the store, and drop what has expired.

        Raises:
            OSError: the state folder cannot be used.
        """
        self._grants = Grants.open(self._state_dir)
        self._grants.sweep(time.time())

    def seal_key(self) -> bytes:
        """The key that plans are sealed with.

        Raises:
            OSError: it cannot be read, nor made.
        """
        with self._store() as store:
            return store.seal_key()

    def is_trusted(self, digest: str) -> bool:
        """Whether a policy file of this content was trusted; what cannot be told is not."""
        try:
            with self._store() as store:
                return store.is_trusted(digest)
        except OSError:
            return False

    def stop(self) -> None:
        """Forget what was agreed to for this executor alone."""
        if self._grants is not None:
            self._grants.end_session(self._own_session)
            self._grants.close()
            self._grants = None

    def run_state(self, name: str, arguments: object, context: CallContext) -> RunState:
        """Note a call, and say whether calls go in circles.

        A program that names neither a session nor an agent may mean it: that is only remarked.
        """
        said = orjson.dumps([name, arguments], option=orjson.OPT_SORT_KEYS, default=repr)
        found = self._loops.note(
            (context.session_id, context.agent_id), hashlib.sha256(said).hexdigest()
        )
        kind = found.kind if _has_agent(context) else "none"
        return RunState(loop=kind, loop_text=found.text)

    def granted(self, shape: GrantShape, context: CallContext) -> str | None:
        """The grant that covers this shape, if there is one."""
        session = self._session(context)
        with self._store() as store:
            found = store.lookup(shape.key, mode=shape.mode.value, session=session, now=time.time())
        return None if found is None else found.id

    def objection(self, plan: Plan) -> Reason | None:
        """What speaks against a plan that comes back.

        Nothing speaks against one that is genuine and fresh, the first time: from then on it is
        spent, whatever the answer was.
        """
        code, text = "", ""
        try:
            if not plan.is_genuine(self.seal_key()):
                code, text = FORGED, "it was not prepared here, or it was changed since"
            elif time.time() >= plan.expires_s:
                code, text = "plan_expired", "it is too old to be answered"
            elif not self._consumes(plan):
                code, text = "plan_spent", "it was answered before"
        except OSError:
            code, text = FORGED, "whether it was answered before cannot be told now"
        return Reason(code=code, text=text) if code else None

    def _consumes(self, plan: Plan) -> bool:
        with self._store() as store:
            return store.consume(plan.nonce, plan.expires_s)

    def _floods(self, approver: Approver, context: CallContext) -> bool:
        """Whether this is one question too many: of an agent, or of anybody to the terminal."""
        is_limited = approver is ask_terminal or (
            _has_agent(context) and approver not in (deny_all, unsafe_approve_all)
        )
        session = (context.session_id, context.agent_id)
        return is_limited and not self._rate.note(session, trio.current_time())

    async def agreed(self, approver: Approver, plan: Planned, call_id: str) -> Agreement:
        """Whether the call may go on: for what asks, a person's clear yes, once per plan.

        What was said no to in this session is not asked again. A cancel while waiting goes on up.
        """
        if plan.decision.outcome is not Outcome.ASK:
            how: How = "not_asked" if plan.facts.granted_by is None else "grant"
            return Agreement(plan=plan, how=how, grant=plan.facts.granted_by)
        context = plan.ask.context
        session = self._session(context)
        refusal = f"{session}\0{context.agent_id}\0{plan.decision.plan_hash}"
        why = self._denials.denied(refusal)
        if why is not None:
            message = f"a person said no to this very call before{f': {why}' if why else ''}"
            return Agreement(plan=plan, failure=ApprovalRejected(message=message, why=why or None))
        if self._floods(approver, context):
            run = dataclasses.replace(plan.facts.run, prompts_exhausted=True)
            return Agreement(plan=plan.decided(run=run))
        request = plan.request(call_id)
        started_s = trio.current_time()
        answer = await approve(approver, request, plan.decision)
        waited_s = trio.current_time() - started_s
        if isinstance(answer.failure, ApprovalRejected):
            self._denials.add(refusal, answer.failure.why or "")
        if answer.failure is not None:
            return Agreement(
                plan=plan,
                waited_s=waited_s,
                failure=answer.failure,
                terminate=answer.terminate,
            )
        if answer.remembered is None:
            return Agreement(plan=plan, how="once", waited_s=waited_s)
        try:
            grant = self._remember(plan, request, answer.remembered, session)
        except (OSError, ValueError) as error:
            _log.warning("a yes could not be remembered, so it counts once: %s", error)
            return Agreement(plan=plan, how="once", waited_s=waited_s)
        return Agreement(plan=plan, how=answer.remembered, grant=grant, waited_s=waited_s)

    def _remember(
        self,
        plan: Planned,
        request: ApprovalRequest,
        scope: Literal["session", "project"],
        session: str,
    ) -> str:
        with self._store() as store:
            return store.add(
                plan.grant.key,
                scope=scope,
                session=session,
                mode=plan.grant.mode.value,
                tool_name=plan.tool.name,
                # A command as it stands is what is remembered; of other calls the content is not.
                shape=plan.grant.text
                if plan.facts.command is None
                else f"{plan.grant.text}\n{request.text}",
                workspace=self._workspace,
                agent_id=plan.ask.context.agent_id,
                now=time.time(),
            ).id

    def _session(self, context: CallContext) -> str:
        if context.session_id is None:
            return self._own_session
        return f"session {context.session_id}"
