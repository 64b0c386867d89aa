"""Policies: what the jail is worth, who may be asked, and under which ceilings and rules."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .vocabulary import LEVEL_AUTO, LEVEL_LOG, TIER_NEVER, CostTier, Mode

if TYPE_CHECKING:
    from .rules import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What decides besides the words of a tool and the jail that it gets."""

    name: str
    # Whether a call whose effects are judged before they are kept, under every guarantee and
    # without network, needs nobody's word.
    trust_the_jail: bool = False
    # False where nobody can be asked: what would ask is denied.
    has_people: bool = True
    # The highest level that is not asked about.
    quiet_level: int = LEVEL_LOG
    # Ceilings: nothing above them is admitted, whoever agrees.
    mode: Mode = Mode.BUILD
    max_cost: CostTier = CostTier.HIGH
    max_tier: int = TIER_NEVER
    # The file that was chosen in place of a name; None where it was a name.
    file: str | None = field(default=None, compare=False)
    rules: RuleSet | None = field(default=None, compare=False)

    @property
    def epoch(self) -> str:
        """One name for all that it says: what was agreed to under another is not agreed to."""
        said = [
            *(self.name, self.trust_the_jail, self.has_people, self.quiet_level),
            *(self.mode, self.max_cost, self.max_tier),
            None if self.rules is None else self.rules.epoch,
        ]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


POLICIES: Final = {
    "standard": Policy(name="standard"),
    "coding": Policy(name="coding", trust_the_jail=True),
    "ci": Policy(name="ci", trust_the_jail=True, has_people=False),
    "strict": Policy(name="strict", quiet_level=LEVEL_AUTO),
}
"""The policies that have names. `standard` is what there is when nobody chose."""
