"""What a handler asks for while it runs: decided like a call, answered as advice.

A request comes over the private channel and is untrusted. It becomes the facts of a call of the
same tool by the same caller, with the action for its access mode and the resources for its paths,
and goes through the same `decide()`, grants and approver. The answer changes nothing of the jail.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from toolcell._events import Answered, Asked
from toolcell._visible import shown_call
from toolcell.approval import (
    DEADLINE_S,
    ApprovalRequest,
    Approver,
    deny_all,
    unsafe_approve_all,
)
from toolcell.planning import Ask, Planned
from toolcell.results import ApprovalTimeout
from toolcell.schema import Validated
from toolcell.tools import Tool
from toolcell_policies import AccessMode, Outcome
from toolcell_sandbox._channel import ChannelUse, Holding

if TYPE_CHECKING:
    from toolcell._agreements import Agreements
    from toolcell.planning import Planner

_log = logging.getLogger("toolcell")

REQUESTS_MAX: Final = 8
RESOURCES_MAX: Final = 16
RESOURCE_BYTES_MAX: Final = 4_096
PERMISSION_WAIT_S: Final = DEADLINE_S
"""How long one answer may take; after that it is a no."""
REASON_MAX: Final = 500
UNHEARD: Final = "nobody answered what this call asked before, so it is not asked again"
MARKS: Final = frozenset({"permissions", "channel_closed"})
"""The names in a result's metadata that are ours to give."""

_R, _W, _X, _N, _M = (
    AccessMode.READONLY,
    AccessMode.WRITE,
    AccessMode.EXECUTE,
    AccessMode.NETWORK,
    AccessMode.MIXED,
)
COVERS: Final[Mapping[AccessMode, frozenset[AccessMode]]] = {
    _R: frozenset({_R}),
    _W: frozenset({_R, _W}),
    _X: frozenset({_R, _W, _X}),
    _N: frozenset({_R, _N}),
    _M: frozenset({_R, _W, _X, _N, _M}),
}
"""What a tool may ask for at all: what its own access mode has in it."""
SPOKEN: Final[Mapping[str, AccessMode]] = {"read": _R, "read_only": _R, "edit": _W}
"""What handlers call an action as well, where it is no tool's own."""
ROLES: Final[Mapping[AccessMode, Literal["read", "write"]]] = {_R: "read", _W: "write"}
"""For which actions a resource is a path, and what is done with it. Others are shown as text."""

_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "action": {"type": "string"},
        "resources": {"type": "array", "items": {"type": "string"}},
    },
}

Said = Literal["allowed", "denied", "refused", "unanswered"]


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """One request that has the right form."""

    action: str
    access: AccessMode
    resources: tuple[str, ...]
    saves: bool


@dataclasses.dataclass(slots=True, kw_only=True)
class Permission:
    """One request and what was said to it: "refused" was not decided at all."""

    action: str
    resources: tuple[str, ...]
    answer: Said = "unanswered"
    how: str | None = None
    """As in `Agreement`: "not_asked", "grant", "once", "session" or "project"."""
    reason: str = ""
    waited_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As a result's `metadata["permissions"]` and the audit log have it."""
        return {
            "action": self.action,
            "resources": list(self.resources),
            "answer": self.answer,
            "how": self.how,
            "reason": self.reason,
            "waited_s": round(self.waited_s, 3),
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Midway(Planned):
    """The plan of one request: shown with its source, and remembered only where it asked to be."""

    source: Mapping[str, str | None]
    wait_s: float

    @property
    def text(self) -> str:
        """What is asked for, by whom, and where it leads."""
        leads_to = {given: real for given, real in self.settled.items() if given != real}
        said = {
            **self.arguments,
            **({"leads to": leads_to} if leads_to else {}),
            **{f"source {name}": value for name, value in self.source.items() if value},
        }
        return f"while it runs, this tool asks for more:\n{shown_call(self.tool.name, said)}"

    def request(self, call_id: str) -> ApprovalRequest:
        """What an approver is asked about it."""
        # Not super(): a class with slots is made anew, and the cell names the first one.
        asked = Planned.request(self, call_id)
        arguments = {**self.arguments, "source": dict(self.source)}
        return dataclasses.replace(asked, arguments=arguments, deadline_s=self.wait_s)


class MidCall:
    """Answers what one running call asks for: pass `answer` to `run_in_jail` as its channel.

    `approver` is the executor's own: an answer that came with a prepared plan is for that plan.
    Nothing that a handler sends raises here; what cannot be decided is a no.
    """

    def __init__(
        self,
        plan: Planned,
        *,
        call_id: str,
        planner: Planner,
        agreements: Agreements,
        approver: Approver,
        tell: Callable[[Asked | Answered], None] | None = None,
        wait_s: float = PERMISSION_WAIT_S,
    ) -> None:
        self._plan = plan
        self._call_id = call_id
        self._planner = planner
        self._agreements = agreements
        self._approver = approver
        self._tell = tell
        self._wait_s = wait_s
        self._count = 0
        self._is_unheard = False
        self.permissions: list[Permission] = []
        """Each request so far; one that a cancel or the call's end cut off stays unanswered."""

    def marked(self, metadata: Mapping[str, Any], use: ChannelUse | None = None) -> dict[str, Any]:
        """A result's metadata with what was asked and answered, and why a line was closed.

        Whatever the handler itself says under these names is dropped. `use` is the jail's own
        account of the channel.
        """
        found = {name: value for name, value in metadata.items() if name not in MARKS}
        if self.permissions:
            found["permissions"] = [each.to_json() for each in self.permissions]
        if use is not None and use.broken is not None:
            found["channel_closed"] = use.broken
        return found

    async def answer(self, ask: Mapping[str, Any], hold: Holding) -> dict[str, Any]:
        """`{"allowed", "reason"}`; the tree is held while a person thinks. A cancel goes on up."""
        self._count += 1
        if self._count > REQUESTS_MAX:
            return {"allowed": False, "reason": f"more than {REQUESTS_MAX} requests in one call"}
        wanted = read_request(ask, self._plan.tool)
        if isinstance(wanted, str):
            self.permissions.append(
                Permission(action="", resources=(), answer="refused", reason=wanted)
            )
            return {"allowed": False, "reason": wanted}
        made = Permission(action=wanted.action, resources=wanted.resources)
        self.permissions.append(made)
        self._say(Asked(wanted.action, wanted.resources))
        try:
            await self._decide(wanted, made, hold)
        except Exception as error:  # noqa: BLE001  # our own defects are a no; Cancelled goes up
            _log.exception("a request of call %s could not be decided", self._call_id)
            made.answer, made.reason = "denied", f"it could not be decided: {type(error).__name__}"
        made.reason = made.reason[:REASON_MAX]
        allowed = made.answer == "allowed"
        self._say(Answered(wanted.action, wanted.resources, allowed, made.reason))
        return {"allowed": allowed, "reason": made.reason}

    async def _decide(self, wanted: Wanted, made: Permission, hold: Holding) -> None:
        made.answer = "unanswered"
        if wanted.access is AccessMode.NETWORK and self._plan.facts.network == "none":
            made.answer, made.reason = "denied", "this call has no network"
            return
        plan = self._planned(wanted)
        is_asked = plan.decision.outcome is Outcome.ASK
        if is_asked and self._is_unheard:
            made.answer, made.reason = "denied", UNHEARD
            return
        async with AsyncExitStack() as held:
            if is_asked and self._approver not in (deny_all, unsafe_approve_all):
                await held.enter_async_context(hold())
            began_s = trio.current_time()
            agreement = await self._agreements.agreed(self._approver, plan, self._call_id)
            made.waited_s = trio.current_time() - began_s
        if agreement.failure is not None:
            made.answer, made.reason = "denied", agreement.failure.message
            # A call holds its place among the running ones while it asks.
            self._is_unheard = isinstance(agreement.failure, ApprovalTimeout)
            return
        # A person may have thought for minutes, and a path may lead elsewhere by now.
        decision = self._planner.recheck(agreement.plan).decision
        made.reason = "; ".join(reason.text for reason in decision.reasons)
        if decision.outcome is Outcome.DENY:
            made.answer = "denied"
        else:
            made.answer, made.how = "allowed", agreement.how

    def _planned(self, wanted: Wanted) -> Midway:
        plan, tool = self._plan, asking(self._plan.tool, wanted)
        context = plan.ask.context
        arguments = {"action": wanted.action, "resources": list(wanted.resources)}
        made = self._planner.plan(
            Ask(
                tool=tool,
                valid=Validated(arguments),
                context=context,
                limits=plan.limits,
                mode=plan.mode,
            )
        )
        text = made.grant.text.replace(
            f"every call of {tool.name}",
            f"every {wanted.action} that {tool.name} asks for while it runs",
            1,
        )
        options = made.decision.remember_options if wanted.saves else ()
        known = {name: getattr(made, name) for name in _PLANNED}
        return Midway(
            **known
            | {
                "grant": dataclasses.replace(made.grant, text=text),
                "decision": dataclasses.replace(made.decision, remember_options=options),
            },
            source={
                "type": "tool",
                "tool": tool.name,
                "call_id": self._call_id,
                "message_id": context.message_id,
                "session_id": context.session_id,
                "agent_id": context.agent_id,
            },
            wait_s=self._wait_s,
        )

    def _say(self, event: Asked | Answered) -> None:
        if self._tell is not None:
            self._tell(event)


_PLANNED: Final = tuple(f.name for f in dataclasses.fields(Planned))


def read_request(ask: Mapping[str, Any], tool: Tool) -> Wanted | str:
    """A request in its right form, or why it is none. Pure."""
    action, resources, save = (ask.get(name) for name in ("action", "resources", "save"))
    if len(ask) != 3 or not isinstance(action, str) or not isinstance(resources, list):
        return "a request has an action, resources, and what to save"
    if len(resources) > RESOURCES_MAX:
        return f"{len(resources)} resources; at most {RESOURCES_MAX} are looked at"
    if not all(isinstance(x, str) and len(x.encode()) <= RESOURCE_BYTES_MAX for x in resources):
        return f"a resource is text of at most {RESOURCE_BYTES_MAX:,} bytes"
    if not (save is None or (isinstance(save, list) and all(isinstance(x, str) for x in save))):
        return "what to save is a list of texts, or nothing"
    meant = action if action == tool.action else SPOKEN.get(action, action)
    access = next((each for each in COVERS[tool.access_mode] if each == meant), None)
    if access is None and action == tool.action:
        access = tool.access_mode
    if access is None:
        can = ", ".join(sorted({*COVERS[tool.access_mode], tool.action}))
        return f"{action!r:.100} is not for this tool to ask for: {can}"
    if access in ROLES and not resources:
        return f"{access} needs the paths that it is about"
    return Wanted(action, access, tuple(resources), save is not None)


def asking(tool: Tool, wanted: Wanted) -> Tool:
    """The tool as a request makes it: one that takes the resources, and does the action."""
    role = ROLES.get(wanted.access)
    return Tool(
        name=tool.name,
        description=tool.description,
        access_mode=wanted.access,
        danger_level=tool.danger_level,
        trusted=tool.trusted,
        level_floor=tool.level_floor,
        cost_tier=tool.cost_tier,
        permission_tier=tool.permission_tier,
        phases=tool.phases,
        escalation=tool.escalation,
        permission_action=tool.permission_action,
        network=tool.network,
        path_params={} if role is None else {"resources": role},
        schema=_SCHEMA,
        ref=tool.handler,
    )
