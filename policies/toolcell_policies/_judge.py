"""What the forms of one path argument come to: every objection, and the verdict.

`paths.py` says in which order the forms are shown to a judge, and documents the codes.
"""

import errno
import stat
from dataclasses import dataclass, field
from typing import Final

from ._text import (
    PATH_CHARACTERS_MAX,
    PATH_COMPONENTS_MAX,
    absolute,
    character_refusals,
    collapse,
    components,
    lies_within,
    shown,
)
from ._walk import FileFacts, Filesystem, Hop, Walk, walk
from .decision import Reason
from .folders import HostFolders
from .sensitive import Protection, Role, SensitiveList, SensitiveRule
from .vocabulary import LEVEL_ALWAYS, LEVEL_AUTO

REFUSAL_TEXTS: Final = {
    "path_empty": "the path is empty",
    "path_too_long": f"the path has more than {PATH_CHARACTERS_MAX:,} characters",
    "path_too_deep": f"the path has more than {PATH_COMPONENTS_MAX} components",
    "path_control_character": "{path} contains a control character",
    "path_hidden_character": "{path} contains a character that cannot be seen",
    "path_disguised_separator": "{path} contains a character that stands for a separator or '..'",
    "path_not_text": "{path} contains half a character: no file can have that name",
    "path_expansion": "{path} begins with '~' or '$', which is not expanded here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathVerdict:
    """What is to be said about one path argument in one role.

    Raises:
        ValueError: it denies or asks without a reason, or is not inside and
            does not deny.
    """

    path_as_given: str
    # Absolute, without links and `..`; None unless it was followed to its end.
    resolved: str | None
    role: Role
    # True only when every form was proven to lie in the workspace or a granted folder.
    inside: bool
    # True when no approval can let it pass. Always true where `inside` is not.
    denied: bool
    # Why it is denied, and why it asks; each code and rule once.
    reasons: tuple[Reason, ...]
    # The level that this path alone asks for: 0, or 3.
    level_floor: int
    # The links that were followed, in order.
    links: tuple[str, ...]
    # The folder granted besides the workspace that it ends in, the innermost; else None.
    folder: str | None = None

    def __post_init__(self) -> None:
        if (self.denied or self.level_floor) and not self.reasons:
            raise ValueError("a path that is denied or asks needs a reason")
        if not self.inside and not self.denied:
            raise ValueError("a path outside the workspace is denied")


@dataclass(slots=True, kw_only=True)
class Judge:
    """Collects what each form of one path argument gives reason for."""

    text: str
    role: Role
    homes: tuple[str, ...]
    sensitive: SensitiveList
    folders: HostFolders
    # Every way the workspace is named while its own path is followed.
    roots: tuple[tuple[str, ...], ...] = ()
    # The workspace without links. Where the path ends is measured by this one
    # alone: a name with `link/..` in it can collapse to some other folder.
    real_root: tuple[str, ...] | None = None
    # The links on the way to the workspace: they may point anywhere.
    above: frozenset[str] = frozenset()
    seen: set[tuple[str, ...]] = field(default_factory=set)
    reasons: dict[tuple[str, str | None], Reason] = field(default_factory=dict)
    denied: bool = False
    # Denied by a form that is not to be followed, whatever else it is.
    denied_outright: bool = False
    level_floor: int = LEVEL_AUTO
    admitted_end: bool = False
    folder: str | None = None

    def find_workspace(self, workspace: str, fs: Filesystem) -> bool:
        """Learn the names of the workspace; False when it has none."""
        if not workspace.startswith("/"):
            return False
        found = walk(workspace, fs)
        if found.resolved is None:
            return False
        self.real_root = components(found.resolved)
        named = (workspace, *(hop.whole for hop in found.hops), found.resolved)
        self.roots = tuple(dict.fromkeys(collapse(components(name)) for name in named))
        self.above = frozenset(hop.link for hop in found.hops)
        return True

    def admit(self, form: str, *, through_link: bool = False) -> bool:
        """Judge one form of the path; False when it must not be followed."""
        plain = components(form)
        normal = collapse(plain)
        for names in dict.fromkeys((plain, normal)):
            self._match(names, through_link)
        self._must_be_inside(normal, through_link)
        return not self.denied_outright

    def _must_be_inside(self, normal: tuple[str, ...], through_link: bool) -> None:
        if not self.roots or self._folder_of(normal) is not None:
            return
        if not any(lies_within(normal, root) for root in self.roots):
            self._deny_outside(normal, through_link)

    def _folder_of(self, names: tuple[str, ...]) -> str | None:
        """Return the innermost granted folder that a path lies in and this role may use."""
        found = [
            folder
            for folder in self.folders.open_to(self.role)
            if lies_within(names, components(folder))
        ]
        return max(found, key=len, default=None)

    def _match(self, names: tuple[str, ...], through_link: bool) -> None:
        if names in self.seen:
            return
        self.seen.add(names)
        for rule in self.sensitive.match(absolute(names), role=self.role, homes=self.homes):
            if not (rule.yields and self._holds_the_workspace(rule)):
                self._apply(rule, through_link)

    def _holds_the_workspace(self, rule: SensitiveRule) -> bool:
        return any(
            rule in self.sensitive.match(absolute(root), role=self.role, homes=self.homes)
            for root in self.roots
        )

    def _deny_outside(self, names: tuple[str, ...], through_link: bool) -> None:
        where = "leads outside the workspace by a link"
        if not through_link:
            where = "is outside the workspace"
        if any(lies_within(names, components(folder)) for folder in self.folders.read):
            where = "is in a folder that is granted for reading only"
        self.deny("path_outside_workspace", f"{shown(self.text)} {where}")

    def admit_link(self, hop: Hop) -> bool:
        """Judge what a path becomes at a link; False when it must not be followed.

        Where the link points has to be inside as well, not only where the rest
        of the path leads from there: `link/../back` is no way in.
        """
        for code in character_refusals(hop.target):
            text = REFUSAL_TEXTS[code].format(path=shown(hop.target))
            self.deny(code, f"on the way, a link: {text}")
        if hop.link not in self.above:
            self._must_be_inside(collapse(components(hop.head)), through_link=True)
        return self.admit(hop.whole, through_link=True)

    def admit_end(self, resolved: str, facts: FileFacts | None, *, followed: bool) -> None:
        """Judge where the path ends, and what is there."""
        end = components(resolved)
        self._match(end, followed)  # what the last form collapsed to, unless the walk is wrong
        self.folder = self._folder_of(end)
        in_workspace = self.real_root is not None and lies_within(end, self.real_root)
        self.admitted_end = in_workspace or self.folder is not None
        if not self.admitted_end:
            self._deny_outside(end, followed)
        if (
            self.role == "write"
            and facts is not None
            and facts.st_nlink > 1
            and not stat.S_ISDIR(facts.st_mode)
        ):
            text = f"{shown(self.text)} is a file with {facts.st_nlink} names: all would change"
            self._ask(Reason(code="path_many_links", text=text))

    def deny(self, code: str, text: str) -> None:
        """Deny for a reason that ends the look-ups."""
        self.denied = self.denied_outright = True
        self._note(Reason(code=code, text=text))

    def deny_failure(self, number: int) -> None:
        """Deny because the path could not be followed to its end."""
        if number == errno.ELOOP:
            self.deny("path_link_loop", f"{shown(self.text)} leads through a loop of links")
        else:
            name = errno.errorcode.get(number, str(number))
            self.deny("path_unresolvable", f"{shown(self.text)} cannot be resolved ({name})")

    def _apply(self, rule: SensitiveRule, through_link: bool) -> None:
        path = shown(self.text) + (" (by a link)" if through_link else "")
        if rule.magic:
            self.denied_outright = True
            code, text = "path_magic_link", f"{path} is a link that only the kernel can follow"
        elif Protection.RW in rule.kinds:
            code = "path_protected"
            text = f"{path} is protected ({rule.category}): it is neither read nor written"
        elif rule.forbids(self.role):
            code, text = "path_sealed", f"{path} is protected ({rule.category}): it is not written"
        elif self.role == "write":
            code, text = "path_write_asks", f"a write to {path} asks a person ({rule.category})"
        else:
            code, text = "path_read_asks", f"a read of {path} asks a person ({rule.category})"
        reason = Reason(code=code, text=text, rule=rule.id, source=rule.source)
        if rule.forbids(self.role):
            self.denied = True
            self._note(reason)
        else:
            self._ask(reason)

    def _ask(self, reason: Reason) -> None:
        self.level_floor = LEVEL_ALWAYS
        self._note(reason)

    def _note(self, reason: Reason) -> None:
        self.reasons.setdefault((reason.code, reason.rule), reason)

    def verdict(self, found: Walk | None = None) -> PathVerdict:
        """Return what was found; inside only when the very end was admitted."""
        return PathVerdict(
            path_as_given=self.text,
            resolved=found.resolved if found else None,
            role=self.role,
            inside=self.admitted_end and not self.denied_outright,
            denied=self.denied or not self.admitted_end,
            reasons=tuple(self.reasons.values()),
            level_floor=self.level_floor,
            links=tuple(hop.link for hop in found.hops) if found else (),
            folder=self.folder,
        )
