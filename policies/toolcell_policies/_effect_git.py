"""What git runs or takes orders from, in a repository folder: which changes need a person.

All else in there is git's daily work. The layout is gitrepository-layout(5).
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

from ._effect import Effect
from ._git_config import is_harmless

Part = Literal["config", "hook", "attributes", "pointer", "history"]

_KEYS_SHOWN_MAX: Final = 5
_CONFIGS: Final = frozenset({"config", "config.worktree"})
_POINTERS: Final = frozenset({"commondir", "gitdir"})
_HISTORY: Final = frozenset({("objects",), ("refs",), ("head",), ("logs", "head")})
_LOOSE: Final = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38,62}")
_TODO: Final = "git-rebase-todo"
REBASES: Final = frozenset({"rebase-merge", "rebase-apply", "sequencer"})
"""Folders that hold what git is to go on with."""
STRATEGIES: Final = frozenset({"strategy", "strategy_opts", "opts"})
"""Files in them that name a program, `git-merge-` and what they say (git-merge(1))."""


def git_question(
    effect: Effect,
    *,
    is_git_name: bool,
    is_row: bool,
    is_gone: Callable[[str], bool],
    is_packed: Callable[[str], bool],
) -> str | None:
    """Return why a person has to agree to what happened here, as the end of a sentence.

    None where nobody has to. `is_git_name` is whether the list takes the name for `.git`, `is_row`
    whether it takes it for something that git obeys; `is_gone` whether a path was deleted by the
    same call, `is_packed` whether a repository got a new pack by it. A name the list knows and
    this does not asks.
    """
    if effect.makes_repository:
        return "it makes a repository of a folder that held settings or hooks before"
    if is_git_name:
        return _git_itself(effect, is_gone)
    root, inner = _within(effect)
    part = _part(inner)
    if part is None:
        return "git takes orders from it" if is_row else None
    if part == "config":
        return _config(effect, is_gone)
    if part == "pointer":
        return _pointer(effect, is_gone)
    if part == "history":
        return _history(effect, root, inner, is_gone, is_packed)
    if effect.is_same or (effect.kind is None and root is not None and is_gone(root)):
        return None
    if part == "hook" and _is_no_hook(effect, inner):
        return None
    return "git runs it" if part == "hook" else "git runs filters by it"


def _git_itself(effect: Effect, is_gone: Callable[[str], bool]) -> str | None:
    if effect.sort == "created":
        if effect.kind == "folder" and effect.in_new_repository:
            return None
        if effect.kind == "file" and _points_well(effect):
            return None
        return "it decides which repository git works in"
    if effect.sort == "modified":
        is_kept = effect.kind == effect.before_kind and effect.kind in ("file", "folder")
        if is_kept and (effect.kind == "folder" or not effect.content_changed):
            return None
        return "a repository, or the way to it, is replaced"
    pointer = effect.git_pointer
    if effect.before_kind == "file" and pointer is not None and is_gone(pointer):
        return None  # git worktree remove: what it pointed to went with it
    return "a repository, or the way to it, is removed"


def _within(effect: Effect) -> tuple[str | None, Sequence[str]]:
    """The repository folder that a path lies in, by content or else by name, and the rest."""
    names = effect.path.split("/")
    lowered = [name.lower() for name in names]
    if effect.repository is not None:
        depth = len(effect.repository.split("/")) if effect.repository else 0
        return effect.repository, lowered[depth:]
    for at in range(len(names) - 2, -1, -1):
        if lowered[at].endswith(".git"):
            return "/".join(names[: at + 1]), lowered[at + 1 :]
    return None, lowered


def _part(inner: Sequence[str]) -> Part | None:
    if not inner:
        return None
    first, last = inner[0], inner[-1]
    if tuple(inner) in _HISTORY or _is_object(inner):
        return "history"
    if last == _TODO or (first in REBASES and last in STRATEGIES):
        return "config"
    if first == "hooks":
        return "hook"
    if first == "modules":
        if "hooks" in inner[1:]:
            return "hook"
        return "config" if last in _CONFIGS else None
    if first == "worktrees" and len(inner) == 3:
        if last in _POINTERS:
            return "pointer"
        return "config" if last == "config.worktree" else None
    if len(inner) == 1:
        if first in _POINTERS:
            return "pointer"
        return "config" if first in _CONFIGS else None
    if tuple(inner) == ("info", "attributes"):
        return "attributes"
    if tuple(inner) == ("objects", "info", "alternates"):
        return "pointer"
    return None


def _config(effect: Effect, is_gone: Callable[[str], bool]) -> str | None:
    if effect.kind is None and is_gone(_parent(effect.path)):
        return None
    if effect.kind not in ("file", None) or effect.before_kind not in ("file", None):
        return "it stands for settings of git and is no file"
    if effect.git_keys is None:
        return "its settings cannot be told"
    odd = [key for key in effect.git_keys if not is_harmless(key)]
    if not odd:
        return None
    names = ", ".join(odd[:_KEYS_SHOWN_MAX])
    more = f" and {len(odd) - _KEYS_SHOWN_MAX} more" if len(odd) > _KEYS_SHOWN_MAX else ""
    return f"git may act on what it sets: {names}{more}"


def _history(
    effect: Effect,
    root: str | None,
    inner: Sequence[str],
    is_gone: Callable[[str], bool],
    is_packed: Callable[[str], bool],
) -> str | None:
    """Git deletes objects once a new pack holds them (git-gc(1)), and the rest of this never.

    `rm -rf .git; git init` leaves a repository where there was one.
    """
    if effect.kind is not None or root is None or is_gone(root):
        return None
    return None if _is_object(inner) and is_packed(root) else "commits may be lost with it"


def _is_object(inner: Sequence[str]) -> bool:
    if inner[0] != "objects" or len(inner) != 3:
        return False
    return inner[-1].endswith(".pack") or _LOOSE.fullmatch("/".join(inner[1:])) is not None


def _pointer(effect: Effect, is_gone: Callable[[str], bool]) -> str | None:
    if effect.is_same or (effect.kind is None and is_gone(_parent(effect.path))):
        return None
    if effect.kind == "file" and _points_well(effect):
        return None
    return "it leads git to what is no repository of this workspace"


def _points_well(effect: Effect) -> bool:
    pointer = effect.git_pointer
    return pointer is not None and not pointer.startswith("/") and effect.pointer_holds


def _is_no_hook(effect: Effect, inner: Sequence[str]) -> bool:
    kinds = {effect.kind, effect.before_kind}
    return kinds <= {"folder", None} or (kinds <= {"file", None} and inner[-1].endswith(".sample"))


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
