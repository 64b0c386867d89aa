"""A call that waits for its answer outside of this process: `prepare`, and later `resume`.

A plan is plain data, sealed by a key that only the state folder holds: what comes back is what
went out, or it is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import os
import time
from collections.abc import Mapping
from typing import Any, Final

from toolcell.calls import CallContext, ToolCall
from toolcell.planning import Planned
from toolcell_policies import Outcome, Reason
from toolcell_sandbox.spec import WorkspaceMode

PLAN_LIFE_S: Final = 86_400.0
"""How long an answer to a plan is taken."""

_DOMAIN: Final = b"toolcell.prepared\x00"
_VERSION: Final = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A call as it was decided on, to be shown to a person and run once when they answered.

    `text` is the whole call, ready to be shown. `to_json` and `from_json` carry it through any
    store; nobody can change it on the way without its being refused.
    """

    name: str
    arguments: Mapping[str, Any]
    call_id: str
    context: Mapping[str, Any]
    workspace_mode: WorkspaceMode | None
    outcome: str
    level: int
    reasons: tuple[Mapping[str, str | None], ...]
    remember_options: tuple[str, ...]
    plan_hash: str
    text: str
    made_s: float
    expires_s: float
    nonce: str
    seal: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {"version": _VERSION, **_plain(dataclasses.asdict(self))}

    @classmethod
    def from_json(cls, data: object) -> Plan:
        """Return the plan of this data; whether it is genuine is for `resume` to find out.

        Raises:
            ValueError: it is no plan, or one of another version.
        """
        names = {one.name for one in dataclasses.fields(cls)}
        if not isinstance(data, dict) or {*data} != {*names, "version"}:
            raise ValueError("this is no plan of toolcell")
        if data["version"] != _VERSION:
            raise ValueError(f"this is a plan of version {data['version']!r:.50}, not {_VERSION}")
        said = {name: data[name] for name in names}
        for name in ("reasons", "remember_options"):
            if not isinstance(said[name], list):
                raise ValueError(f"the plan's {name} is no list")
            said[name] = tuple(said[name])
        return cls(**said)

    @property
    def call(self) -> ToolCall:
        """The call."""
        return ToolCall(self.name, self.arguments, self.call_id)

    @property
    def caller(self) -> CallContext:
        """Whom it is made for."""
        return CallContext(**self.context)

    def is_for(self, planned: Planned) -> bool:
        """Whether an answer to it is one to this: the same call, and nothing more against it.

        That calls go in circles is no more: a person's answer is none of the circle's.
        """
        decision = planned.decision
        told = [dict(reason) for reason in self.reasons]
        return decision.plan_hash == self.plan_hash and (
            decision.outcome is not Outcome.ASK
            or all(one.code == "loop" or _told(one) in told for one in decision.reasons)
        )

    def sealed(self, key: bytes) -> Plan:
        """The plan with the seal that belongs to it."""
        return dataclasses.replace(self, seal=self._seal(key))

    def is_genuine(self, key: bytes) -> bool:
        """Whether the seal is the one that was made for exactly this plan."""
        try:
            expected = self._seal(key)
        except (TypeError, ValueError):
            return False
        return hmac.compare_digest(str(self.seal).encode("utf-8", "replace"), expected.encode())

    def _seal(self, key: bytes) -> str:
        said = _plain(dataclasses.asdict(dataclasses.replace(self, seal="")))
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hmac.new(key, _DOMAIN + text.encode(), hashlib.sha256).hexdigest()


def _plain(said: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in said.items()
    }


def prepared(call: ToolCall, planned: Planned, key: bytes) -> Plan:
    """The sealed plan of a call that was decided on."""
    now_s = time.time()
    decision = planned.decision
    return Plan(
        name=call.name,
        arguments=dict(call.arguments),
        call_id=call.call_id,
        context=dataclasses.asdict(planned.ask.context),
        workspace_mode=planned.ask.mode,
        outcome=decision.outcome.value,
        level=decision.level,
        reasons=tuple(_told(reason) for reason in decision.reasons),
        remember_options=decision.remember_options,
        plan_hash=decision.plan_hash,
        text=planned.text,
        made_s=now_s,
        expires_s=now_s + PLAN_LIFE_S,
        nonce=os.urandom(16).hex(),
    ).sealed(key)


def _told(reason: Reason) -> Mapping[str, str | None]:
    return {
        "code": reason.code,
        "text": reason.text,
        "rule": reason.rule,
        "source": reason.source,
    }
