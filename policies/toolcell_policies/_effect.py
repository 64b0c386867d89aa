"""What a call did to one name, and the words of a verdict about it."""

from dataclasses import dataclass
from typing import Final, Literal

from ._text import shown
from .decision import Reason
from .sensitive import SensitiveList

Kind = Literal["file", "folder", "symlink", "fifo", "socket", "device"]
Sort = Literal["created", "modified", "deleted"]

_UNINDEXED: Final = frozenset({"node_modules", "site-packages"})
SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The facts of one name that is other than it was.

    What was gathered is told to the safe side: a fact that could not be had is the one that asks.

    Raises:
        ValueError: nothing was there and nothing is, the path leads out of the workspace, or
            lies elsewhere than in its dependencies.
    """

    # Relative to the workspace, by `/`; bytes that are no text as surrogates (PEP 383).
    path: str
    # None where the call left nothing of that name.
    kind: Kind | None
    # None where there was nothing of that name.
    before_kind: Kind | None
    # The permission bits, setuid, setgid and sticky with them; 0 where there is nothing.
    mode: int = 0
    before_mode: int = 0
    size_bytes: int = 0
    before_size_bytes: int = 0
    # Where a symlink points now, as written.
    target: str | None = None
    # Other links of the workspace that this one leads over, each with where it points.
    through: tuple[tuple[str, str], ...] = ()
    # How many names the file had before.
    links: int = 0
    # Whether the call could not see what is there.
    masked: bool = False
    # False where a file kept every byte.
    content_changed: bool = True
    # Another name of the same file, by hard link.
    linked_to: str | None = None
    # The folder around it whose content tools make: node_modules, site-packages of an
    # environment, or a virtual environment that this call created.
    dependencies: str | None = None
    # Below a folder that holds a pyvenv.cfg and is not the workspace.
    in_environment: bool = False
    # The innermost folder around it that git takes for a repository, by what lies in it, or took
    # for one before where it is gone; "" is the workspace itself.
    repository: str | None = None
    # Whether that folder, with all in it, was created by this call.
    in_new_repository: bool = False
    # Whether it turns a folder that held orders for git already into a repository.
    makes_repository: bool = False
    is_ignored: bool = False
    # The settings that differ in a configuration of git; None: none, or not to be told.
    git_keys: tuple[str, ...] | None = None
    # What a .git file, commondir, gitdir or alternates points to: a path in the workspace, or an
    # absolute one outside.
    git_pointer: str | None = None
    # Whether there is what has to be there: a repository, or a work tree's .git.
    pointer_holds: bool = False
    # Whether a *.pem holds a private key, or held one.
    holds_key: bool = False
    # Whether names that are hidden now would not be looked for any more because of it.
    unmasks: bool = False
    # Whether it came or went with a whole work tree of git, and is just what the project around
    # that one had at the same place.
    is_copy: bool = False
    # Of a file or link that is gone: a name that this call created, which holds the very same.
    moved_to: str | None = None

    def __post_init__(self) -> None:
        if self.kind is None and self.before_kind is None:
            raise ValueError(f"{self.path!r}: nothing was there, and nothing is")
        names = self.path.split("/")
        if "" in names or "." in names or ".." in names:
            raise ValueError(f"{self.path!r} is no path inside a workspace")
        if self.dependencies is not None and not self.path.startswith(f"{self.dependencies}/"):
            raise ValueError(f"{self.path!r} does not lie in {self.dependencies!r}")

    @property
    def is_unindexed(self) -> bool:
        """Whether it lies where hidden names are not looked for: in what package managers fill."""
        if self.dependencies is None:
            return False
        return not _UNINDEXED.isdisjoint(self.path.split("/")[:-1])

    @property
    def sort(self) -> Sort:
        """Created, modified or deleted."""
        if self.before_kind is None:
            return "created"
        return "deleted" if self.kind is None else "modified"

    @property
    def in_dependencies(self) -> bool:
        """Whether it lies in a tree that tools make."""
        return self.dependencies is not None

    @property
    def is_same(self) -> bool:
        """Whether it is what it was but for owner and times: a folder by its mode alone."""
        if self.kind != self.before_kind or self.mode != self.before_mode:
            return False
        return self.kind == "folder" or (not self.content_changed and self.linked_to is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectGround:
    """What effects are judged against.

    Raises:
        ValueError: the workspace is not an absolute path.
    """

    rules: SensitiveList
    # Every home on this machine, as given and as resolved.
    homes: tuple[str, ...]
    # Absolute, and without links: `..` in a link is taken from here.
    workspace: str
    # The names right in the workspace before the call.
    top_entries: tuple[str, ...] = ()
    # Where an environment's links may lead: to the programs that it is made of.
    program_folders: tuple[str, ...] = SYSTEM_FOLDERS

    def __post_init__(self) -> None:
        if not self.workspace.startswith("/"):
            raise ValueError(f"not an absolute path: {self.workspace!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectReason:
    """Why one name is refused, asks a person, or is only worth a remark."""

    # None where it is about all of them together.
    path: str | None
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectVerdicts:
    """What is to be said about all that one call did; nothing is left out."""

    # Never kept, whoever agrees.
    refused: tuple[EffectReason, ...] = ()
    # Kept once a person has agreed.
    asks: tuple[EffectReason, ...] = ()
    # Names whose change, with all below them, is not kept, while the rest may be; and the code.
    dropped: tuple[tuple[str, str], ...] = ()
    # Worth knowing, and nothing else.
    notes: tuple[EffectReason, ...] = ()


_DONE: Final = {"created": "created", "modified": "changed", "deleted": "deleted"}


def told(effect: Effect) -> str:
    """Return what was done to which name, as the beginning of a sentence."""
    return f"{shown(effect.path)} was {_DONE[effect.sort]}"
