"""Judging what a call did: each name that is other than it was, and all of them together.

No file is looked at: whoever gathered the facts did, to the safe side. `decide()` calls this once
a call has run in a transaction, before anything of it is kept.

Codes (D refuses, A asks, N is only a remark, K keeps what was there and drops the change):

| code | | when |
|---|---|---|
| `path_protected` | D | an RW row, or a masked name that would be deleted |
| `path_sealed` | D | what the supervisor runs from |
| `path_too_deep` | D | over 128 components |
| `link_outside` | D | a symlink that leads out of the workspace, or in a circle |
| `link_protected` | D | a symlink to, or through, an RW row |
| `mode_setuid` | D | a setuid or setgid bit on what is no folder |
| `folder_shut` | D | a folder that its owner could not list or enter |
| `special_file` | D | a device or a socket |
| `reserved_name` | D | a name that our own commits use while they are under way |
| `masked_kept` | K | the call made anew what it could not see |
| `effect_asks` | A | a W row, or what git runs or obeys |
| `blast_radius` | A | more deleted, changed or lost than usual work does |
| `review_asked` | A | somebody wanted to see whatever it is |
| `links_broken` | N | a file with several names was changed: the others keep what was |
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ._effect import (
    SYSTEM_FOLDERS,
    Effect,
    EffectGround,
    EffectReason,
    EffectVerdicts,
    told,
)
from ._effect_blast import DELETED_MAX, LOST_BYTES_MAX, blast_radius
from ._effect_git import REBASES, STRATEGIES, git_question
from ._effect_links import Trail, follow_link
from ._effect_rules import RuleFinder
from ._git_config import changed_git_keys, names_a_program, runs_a_command
from ._text import components, lies_within, shown
from .decision import Reason
from .sensitive import Protection, SensitiveRule

__all__ = [
    "COMPONENTS_MAX",
    "DELETED_MAX",
    "LOST_BYTES_MAX",
    "REBASES",
    "STRATEGIES",
    "SYSTEM_FOLDERS",
    "Effect",
    "EffectGround",
    "EffectReason",
    "EffectVerdicts",
    "Trail",
    "changed_git_keys",
    "follow_link",
    "judge_effects",
    "names_a_program",
    "runs_a_command",
]

COMPONENTS_MAX: Final = 128
_SET_ID: Final = 0o6000
_OWN_RX: Final = 0o500
_RESERVED: Final = re.compile(r"\.toolcell-[0-9a-f]{16}-")
_GIT_DIR: Final = "git.dir"
_GIT_INSIDE: Final = "git.inside"
_PEM: Final = "keys.pem"


def judge_effects(
    effects: Sequence[Effect], ground: EffectGround, *, review_wanted: bool = False
) -> EffectVerdicts:
    """Say of each name what is refused, asks, or is dropped, and of all together what asks.

    Every name is judged, whatever is said of another: one more effect never takes a refusal or a
    question away. The order is that of the effects. A name below one that is dropped is dropped
    with it, and not said again. Never raises.
    """
    judge = _Judge(effects, ground)
    for effect in effects:
        if not judge.drops(effect):
            judge.look(effect)
    asks = judge.asks
    radius = blast_radius(
        [one for one in effects if not judge.is_below_dropped(one.path)], ground.top_entries
    )
    if radius is not None:
        asks.append(EffectReason(path=None, reason=radius))
    if review_wanted:
        reason = Reason(code="review_asked", text="a person wants to see what was done first")
        asks.append(EffectReason(path=None, reason=reason))
    return EffectVerdicts(
        refused=tuple(judge.refused),
        asks=tuple(asks),
        dropped=tuple((path, "masked_kept") for path in judge.dropped),
        notes=tuple(judge.notes),
    )


class _Judge:
    def __init__(self, effects: Sequence[Effect], ground: EffectGround) -> None:
        self._ground = ground
        self._finder = RuleFinder(ground)
        self._gone = frozenset(one.path for one in effects if one.kind is None)
        self._created = frozenset(one.path for one in effects if one.before_kind is None)
        self._packed = frozenset(
            one.repository
            for one in effects
            if one.sort == "created" and one.repository is not None and one.path.endswith(".pack")
        )
        self._links = {one.path: one.target for one in effects if one.target is not None}
        masked = (one.path for one in effects if one.masked and one.sort == "modified")
        self.dropped = dict.fromkeys(masked)
        self.refused: list[EffectReason] = []
        self.asks: list[EffectReason] = []
        self.notes: list[EffectReason] = []

    def is_below_dropped(self, path: str) -> bool:
        """Whether a name, or a folder that it lies in, is dropped."""
        if not self.dropped:
            return False
        return path in self.dropped or any(
            char == "/" and path[:at] in self.dropped for at, char in enumerate(path)
        )

    def drops(self, effect: Effect) -> bool:
        """Whether the host's own stays in place of this one."""
        if not self.is_below_dropped(effect.path):
            return False
        if effect.path in self.dropped and self.is_below_dropped(effect.path.rpartition("/")[0]):
            del self.dropped[effect.path]  # it goes with the folder that it lies in
        return True

    def look(self, effect: Effect) -> None:
        """Judge one name."""
        if effect.path.count("/") >= COMPONENTS_MAX:
            text = f"{told(effect)}, more than {COMPONENTS_MAX} names deep"
            self._refuse(effect, "path_too_deep", text)
            return  # a pattern's cost grows with the depth
        self._look_at_kind(effect)
        if effect.sort == "created" and _RESERVED.match(effect.path.rpartition("/")[2]):
            self._refuse(effect, "reserved_name", f"{told(effect)}: the name is ours alone")
        if effect.unmasks:
            text = f"{told(effect)}: what is hidden below it would be shown to later calls"
            self._ask(effect, text, None)
        rules = self._finder.rules_for(effect.path)
        is_exempt = effect.is_unindexed and not effect.masked
        if effect.dependencies is not None and not effect.masked:
            rules = self._in_dependencies(effect, effect.dependencies, rules)
        self._look_at_rules(effect, rules, is_exempt)
        self._look_at_git(effect, rules)
        if effect.kind == "symlink" and not effect.is_same:
            self._look_at_link(effect)
        if effect.linked_to is not None:
            self._look_at_name_of(effect, effect.linked_to)
        if effect.links > 1 and effect.sort == "modified" and effect.before_kind == "file":
            text = f"{told(effect)}: its other {effect.links - 1:,} names keep what was"
            self.notes.append(
                EffectReason(path=effect.path, reason=Reason(code="links_broken", text=text))
            )

    def _look_at_kind(self, effect: Effect) -> None:
        if effect.kind in ("device", "socket"):
            self._refuse(effect, "special_file", f"{told(effect)} as a {effect.kind}")
        if effect.mode & _SET_ID and effect.kind != "folder" and not effect.is_same:
            text = f"{told(effect)} with a setuid or setgid bit"
            self._refuse(effect, "mode_setuid", text)
        is_shut = effect.kind == "folder" and effect.mode & _OWN_RX != _OWN_RX
        if is_shut and (effect.before_kind != "folder" or effect.mode != effect.before_mode):
            text = f"{told(effect)}, shut to its own owner: what it holds could not be told"
            self._refuse(effect, "folder_shut", text)

    def _in_dependencies(
        self, effect: Effect, tree: str, rules: tuple[SensitiveRule, ...]
    ) -> tuple[SensitiveRule, ...]:
        """The rows that hold where tools make the names; there, what is changed only asks."""
        strict = self._strict(effect, tree, rules)
        if effect.sort == "modified" and not effect.is_same:
            pem = (self._pem_rule(),) if effect.holds_key else ()
            for rule in (*rules, *pem):
                if rule not in strict:
                    text = f"{told(effect)}, in a folder of dependencies"
                    self._ask(effect, text, rule)
        return strict

    def _strict(
        self, effect: Effect, tree: str, rules: tuple[SensitiveRule, ...]
    ) -> tuple[SensitiveRule, ...]:
        """Those that hold in a tree that tools made: of what is hidden by name, all that would be.

        Only where no call's list of hidden names is looked for either may a secret's name be new.
        """
        found = self._finder.beyond_tree(effect.path, tree, rules)
        if effect.is_unindexed:
            return found
        return tuple(one for one in rules if one in found or Protection.RW in one.kinds)

    def _look_at_rules(
        self, effect: Effect, rules: tuple[SensitiveRule, ...], is_exempt: bool
    ) -> None:
        found = [rule for rule in rules if Protection.RW in rule.kinds]
        for rule in found:
            self._protect(effect, rule, rule.category)
        if not found and effect.masked:
            self._protect(effect, self._pem_rule(), "it is hidden from every call")
        elif not found and effect.holds_key and not is_exempt:
            self._protect(effect, self._pem_rule(), "it holds a private key")
        for rule in rules:
            if rule in found or rule.id in (_GIT_DIR, _GIT_INSIDE):
                continue
            if rule.forbids("write"):
                text = f"{told(effect)}: it is protected ({rule.category})"
                self._refuse(effect, "path_sealed", text, rule)
            elif not (effect.is_same or effect.is_copy):
                text = f"{told(effect)}: a person has to agree ({rule.category})"
                self._ask(effect, text, rule)

    def _protect(self, effect: Effect, rule: SensitiveRule | None, why: str) -> None:
        if effect.masked:
            text = f"{shown(effect.path)} would be deleted unseen: it is protected ({why})"
        else:
            text = f"{told(effect)}: it is protected ({why})"
        self._refuse(effect, "path_protected", text, rule)

    def _pem_rule(self) -> SensitiveRule | None:
        return next((one for one in self._ground.rules.rules if one.id == _PEM), None)

    def _look_at_git(self, effect: Effect, rules: tuple[SensitiveRule, ...]) -> None:
        own = {rule.id: rule for rule in rules if rule.id in (_GIT_DIR, _GIT_INSIDE)}
        if not own and effect.repository is None:
            return
        why = git_question(
            effect,
            is_git_name=_GIT_DIR in own,
            is_row=_GIT_INSIDE in own,
            is_gone=self._gone.__contains__,
            is_packed=self._packed.__contains__,
        )
        if why is not None:
            rule = own.get(_GIT_DIR) or own.get(_GIT_INSIDE)
            self._ask(effect, f"{told(effect)}: a person has to agree, {why}", rule)

    def _look_at_link(self, effect: Effect) -> None:
        if effect.target is None:
            self._refuse(effect, "link_outside", f"{told(effect)}: nobody knows where it leads")
            return
        links = {**dict(effect.through), **self._links} if effect.through else self._links
        trail = follow_link(
            effect.path, effect.target, workspace=self._ground.workspace, link_at=links.get
        )
        for rule in dict.fromkeys(self._protected_on(trail)):
            text = f"{told(effect)}, a link to what is protected ({rule.category})"
            self._refuse(effect, "link_protected", text, rule)
        if not trail.is_inside and not self._leads_to_programs(effect, trail):
            text = f"{told(effect)}, a link that leads outside the workspace"
            self._refuse(effect, "link_outside", text)

    def _protected_on(self, trail: Trail) -> Iterator[SensitiveRule]:
        for path in trail.paths:
            for rule in self._finder.rules_at(path):
                if Protection.RW in rule.kinds:
                    yield rule

    def _leads_to_programs(self, effect: Effect, trail: Trail) -> bool:
        if not (effect.in_dependencies or effect.in_environment):
            return False
        if trail.outside is None:
            return False
        end = components(trail.outside)
        return any(lies_within(end, components(folder)) for folder in self._ground.program_folders)

    def _look_at_name_of(self, effect: Effect, other: str) -> None:
        if other in self._created:
            return  # judged by itself
        for rule in self._finder.rules_for(other):
            text = f"{told(effect)} as another name of {shown(other)} ({rule.category})"
            if rule.forbids("write"):
                self._refuse(effect, "path_protected", text, rule)
            else:
                self._ask(effect, text, rule)

    def _refuse(
        self, effect: Effect, code: str, text: str, rule: SensitiveRule | None = None
    ) -> None:
        self.refused.append(EffectReason(path=effect.path, reason=_reason(code, text, rule)))

    def _ask(self, effect: Effect, text: str, rule: SensitiveRule | None) -> None:
        reason = _reason("effect_asks", text, rule)
        self.asks.append(EffectReason(path=effect.path, reason=reason))


def _reason(code: str, text: str, rule: SensitiveRule | None) -> Reason:
    return Reason(
        code=code,
        text=text,
        rule=rule.id if rule else None,
        source=rule.source if rule else None,
    )
