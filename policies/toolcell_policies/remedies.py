"""The smallest change that would let a call go on, found by deciding again with one thing changed.

Nothing is guessed: a change is named only where `decide` says that it helps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ._text import shown
from .decision import Decision, Outcome
from .facts import Facts, RunState
from .vocabulary import TIER_NEVER, CostTier, Mode, Phase

APPROVER: Final = "an approver (`approver=` / `--yes`)"
_OR: Final = ", or "

Decider = Callable[[Facts], Decision]


# What is written is shown to a person after the run, whatever was decided before it.
_JUDGED_AFTER: Final = "path_write_judged"


@dataclass(frozen=True, slots=True)
class _Variant:
    text: str | Callable[[Facts], str]
    facts: Callable[[Facts], Facts]

    def told(self, facts: Facts) -> str:
        """The change in words, where these are the facts."""
        return self.text if isinstance(self.text, str) else self.text(facts)


def _coding(facts: Facts) -> Facts:
    if facts.policy.name != "standard":
        return facts
    return replace(facts, policy=replace(facts.policy, name="coding", trust_the_jail=True))


def _coding_text(facts: Facts) -> str:
    """To name another policy in place of a file would do without the file's own rules."""
    if facts.policy.file is not None:
        return f'policy "coding" (`extends = "coding"` in {shown(facts.policy.file)})'
    return 'policy "coding" (policy= / `--policy coding`)'


def _no_folders(facts: Facts) -> Facts:
    if any(one.folder is not None and one.role == "write" for one in facts.paths):
        # Without its folder that path would be outside.
        return facts
    return replace(facts, write_folders=())


def _transaction(facts: Facts) -> Facts:
    if facts.workspace_mode != "direct":
        return facts
    return replace(facts, workspace_mode="transaction", judged_after=True)


def _phase(facts: Facts) -> Facts:
    return replace(facts, phase=Phase.EDITING) if facts.phase is not None else facts


def _calm(facts: Facts) -> Facts:
    if facts.run.loop == "none":
        return facts
    return replace(facts, run=RunState(problem=facts.run.problem))


_VARIANTS: Final = (
    _Variant("another call than the same again", _calm),
    _Variant(_coding_text, _coding),
    _Variant("a transaction (workspace_mode= / `--workspace-mode transaction`)", _transaction),
    _Variant(
        "no network (leave out network= / `--network`)",
        lambda facts: replace(facts, network="none"),
    ),
    _Variant(
        "all guarantees (leave out waive= / `--waive`)", lambda facts: replace(facts, waived=())
    ),
    _Variant(
        "no folder to write in besides the workspace (leave out write= / `--write`)",
        _no_folders,
    ),
    _Variant(
        'mode "build" (mode= / `--mode build`)', lambda facts: replace(facts, mode=Mode.BUILD)
    ),
    _Variant('phase "editing"', _phase),
    _Variant("a higher tier (CallContext(tier=))", lambda facts: replace(facts, max_tier=None)),
    _Variant(
        "higher ceilings in the policy",
        lambda facts: replace(
            facts,
            policy=replace(
                facts.policy, mode=Mode.BUILD, max_tier=TIER_NEVER, max_cost=CostTier.HIGH
            ),
        ),
    ),
    _Variant(
        "a policy with people to ask",
        lambda facts: replace(facts, policy=replace(facts.policy, has_people=True)),
    ),
)


def smallest_change(facts: Facts, decision: Decision, decider: Decider) -> str | None:
    """What would let the call go on: one change, else two, each tried; None where none would.

    `decider` is `decide` without a remedy of its own. For what is asked, an approver comes first.
    """
    asked = [APPROVER] if decision.outcome is Outcome.ASK else []
    changed = [(one.told(facts), one.facts) for one in _VARIANTS if one.facts(facts) != facts]
    best = _RANK[decision.outcome]
    for count in (1, 2):
        helping = list(_helping(facts, changed, count, decider, best))
        allowing = [text for text, outcome in helping if outcome is Outcome.ALLOW]
        if allowing:
            return _OR.join((*asked, *allowing))
        asking = [text for text, outcome in helping if outcome is Outcome.ASK]
        if asking and not asked:
            return f"{_OR.join(asking)}; and then {APPROVER}"
    return _OR.join(asked) or None


def _to_the_end(decision: Decision) -> Outcome:
    """What a call would come to: allowed is not what a person has to agree to after it ran."""
    asks_later = any(reason.code == _JUDGED_AFTER for reason in decision.reasons)
    return Outcome.ASK if asks_later and decision.outcome is Outcome.ALLOW else decision.outcome


_RANK: Final = {Outcome.ALLOW: 0, Outcome.ASK: 1, Outcome.DENY: 2}


def _helping(
    facts: Facts,
    changed: list[tuple[str, Callable[[Facts], Facts]]],
    count: int,
    decider: Decider,
    best: int,
) -> Iterator[tuple[str, Outcome]]:
    for chosen in itertools.combinations(changed, count):
        other = facts
        for _, change in chosen:
            other = change(other)
        outcome = _to_the_end(decider(other))
        if _RANK[outcome] < best:
            yield " and ".join(text for text, _ in chosen), outcome
