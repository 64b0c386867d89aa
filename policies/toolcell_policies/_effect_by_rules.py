"""Effects by all that speaks about them: the sensitive list, and the rules of the policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ._effect import EffectReason, EffectVerdicts
from .effects import judge_effects
from .facts import Facts

if TYPE_CHECKING:
    from .rules import Hit


def judged_effects(facts: Facts) -> EffectVerdicts:
    """Return what is refused, asks, or is dropped of what a call did; nothing where it did none.

    A rule about a path that is written is about whatever wrote it: a file that a tool may not
    write is not written by a command either. Never raises.
    """
    effects, ground = facts.effects, facts.effect_ground
    if effects is None or ground is None:
        return EffectVerdicts()
    found = judge_effects(effects, ground, review_wanted=facts.review_wanted)
    rules = facts.policy.rules
    if rules is None:
        return found
    from .rules import RuleCall, RulePath  # late: most policies have none

    dropped = {path for path, _ in found.dropped}
    refused, asks = list(found.refused), list(found.asks)
    for effect in effects:
        if effect.path in dropped:
            continue
        call = RuleCall(
            tool_name=facts.tool_name,
            action=facts.tool_name if facts.rule_call is None else facts.rule_call.action,
            access=facts.access_mode.value,
            paths=(RulePath(real=f"{ground.workspace.rstrip('/')}/{effect.path}", role="write"),),
            workspace=ground.workspace,
            homes=ground.homes,
        )
        verdict = rules.judge(call)
        refused += [_reason(effect.path, hit, "effect_denied") for hit in verdict.denies]
        asks += [_reason(effect.path, hit, "effect_asks") for hit in verdict.asks]
    return replace(found, refused=tuple(refused), asks=tuple(asks))


def _reason(path: str, hit: Hit, code: str) -> EffectReason:
    return EffectReason(path=path, reason=replace(hit.reason(), code=code))
