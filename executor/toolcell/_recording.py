"""The two records of one call, wherever on the road it ends."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from toolcell.audit import Audit, Intent, Terminal, decision_facts, redact, terminal_of
from toolcell.settlement import defect

if TYPE_CHECKING:
    from toolcell._agreements import Agreement
    from toolcell.calls import CallContext, ToolCall
    from toolcell.results import ExecutorError, ToolResult

NAME_CHARS_MAX = 200
"""Of a tool's name as it was asked for: a record is a line, not a place to store things."""


class Recording:
    """The intent and the terminal of one call; `known` is what is known before it is decided.

    A call that ends before it comes near a jail has both written at once, at its end.
    """

    def __init__(self, audit: Audit, known: Intent) -> None:
        self._audit = audit
        self._known = known
        self._opened: int | None = None
        self._problem: ExecutorError | None = None

    @classmethod
    def of(cls, audit: Audit, call: ToolCall, context: CallContext, **where: object) -> Recording:
        """The records of this call; `where` is what else of an intent is known."""
        known = Intent(
            call_id=call.call_id,
            tool_name=str(call.name)[:NAME_CHARS_MAX],
            session_id=context.session_id,
            agent_id=context.agent_id,
            arguments=redact(call.arguments),
            **where,  # type: ignore[arg-type]  # the executor's own words, by the names of Intent
        )
        return cls(audit, known)

    async def begin(self, agreement: Agreement, *, resumed: bool) -> ExecutorError | None:
        """Make it durable that the call is about to run, and by whose leave.

        Nothing runs without it: what comes back is why it could not be. Once for all attempts.
        """
        if self._opened is not None:
            return None
        self.know(agreement, resumed=resumed)
        try:
            self._opened = await self._audit.intent(self._known)
        except OSError as error:
            self._problem = defect(error, "the audit log takes no record, so nothing runs")
        return self._problem

    def know(self, agreement: Agreement, *, resumed: bool) -> None:
        """Have the intent say what was decided, and by whose leave; written by `begin` or `end`."""
        plan, approval = agreement.plan, agreement.to_json()
        self._known = dataclasses.replace(
            self._known,
            tool_name=plan.tool.name,
            network=plan.facts.network,
            workspace_mode=plan.mode,
            decision=decision_facts(plan.decision),
            approval=approval | ({"how": "resumed"} if resumed else {}),
        )

    async def end(self, result: ToolResult | None) -> ExecutorError | None:
        """Make it durable how the call ended; None is a cancel."""
        known = self._known
        ending = Terminal(call_id=known.call_id, tool_name=known.tool_name, kind="cancelled")
        if result is not None:
            ending = terminal_of(result)
        intent = known if self._opened is None else self._opened
        try:
            await self._audit.terminal(ending, intent=intent)
        except OSError as error:
            # Of two failures of the log the first says what became of the call.
            return self._problem or defect(
                error, "the call ended, and its end could not be recorded"
            )
        return None
