"""What a judge has to know of a change set beyond itself: gathered from the layer and the host.

Nothing is decided here. Whatever cannot be told is told so that it asks: a configuration of git
that is no small readable file has no settings to show, a pointer that cannot be followed holds
nothing, and a file is ignored only where that is certain.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from toolcell._effect_ignored import Ignored
from toolcell._effect_view import READ_BYTES_MAX, View, digest_beneath, innermost
from toolcell_policies import (
    Effect,
    changed_git_keys,
    follow_link,
    names_a_program,
    runs_a_command,
)
from toolcell_policies.effects import DELETED_MAX, LOST_BYTES_MAX, REBASES, STRATEGIES
from toolcell_sandbox.changeset import Change, ChangeSet

_KEY_MARK: Final = b"PRIVATE KEY-----"
_CONFIGS: Final = frozenset({"config", "config.worktree"})
_POINTERS: Final = frozenset({".git", "commondir", "gitdir", "alternates"})
_TODO: Final = "git-rebase-todo"
_ENVIRONMENT: Final = "pyvenv.cfg"
# What git obeys in a folder as soon as it takes it for a repository.
_ORDERS: Final = ("config", "config.worktree", "hooks", "info", "modules", "worktrees")
_MARKS: Final = frozenset({"HEAD", "objects", "refs", "commondir"})
_TOP_ENTRIES_MAX: Final = 10_000
_MOVABLE: Final = ("file", "symlink")


def gather(
    changes: ChangeSet,
    *,
    layer_fd: int,
    workspace: str,
    workspace_fd: int,
    masks: frozenset[str] = frozenset(),
    is_listed: Callable[[str], bool] | None = None,
) -> tuple[Effect, ...]:
    """The facts of each change, in the order of the change set.

    `layer_fd` is the folder that holds what the call wrote, `workspace_fd` the real workspace,
    whose path without links is `workspace`; `masks` are the paths that are hidden in it;
    `is_listed` says of a path whether it is worth a look if it is a copy, else none is. Nothing
    in either is followed, and only regular files are read, at most 64 KiB of each; where more
    files are gone than may go unasked, these and the new ones of their sizes are read whole.
    Never raises, whatever lies there.
    """
    view = View(changes, layer_fd=layer_fd, workspace_fd=workspace_fd)
    gatherer = _Gatherer(view, workspace.rstrip("/"), masks, is_listed)
    effects = tuple(gatherer.effect(change) for change in changes.changes)
    moved = gatherer.moved(effects)
    return tuple(
        replace(one, moved_to=moved[one.path]) if one.path in moved else one for one in effects
    )


def top_entries(workspace_fd: int) -> tuple[str, ...]:
    """The names right in the real workspace, as `EffectGround` wants them.

    Cut after 10,000: where as many names are left, not everything can have gone unnoticed.

    Raises:
        OSError: the folder cannot be listed.
    """
    found: list[str] = []
    with os.scandir(workspace_fd) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) == _TOP_ENTRIES_MAX:
                break
    return tuple(sorted(found))


@dataclass(slots=True)
class _Gatherer:
    view: View
    workspace: str
    masks: frozenset[str]
    is_listed: Callable[[str], bool] | None
    _repositories: dict[str, str | None] = field(default_factory=dict)
    _repositories_before: dict[str, str | None] = field(default_factory=dict)
    _trees: dict[str, tuple[str | None, bool]] = field(default_factory=dict)
    _work_trees: dict[str, str | None] = field(default_factory=dict)
    _projects: dict[str, str | None] = field(default_factory=dict)
    _ignored: Ignored = field(init=False)

    def __post_init__(self) -> None:
        self._ignored = Ignored(self.view)
        # The workspace itself is no environment that a call could have made.
        self._trees[""] = (None, False)

    def effect(self, change: Change) -> Effect:
        path = change.path
        before, after = change.before, change.after
        folder, _, name = path.rpartition("/")
        is_folder = after is not None and after.kind == "folder"
        repository = self._repository(path if is_folder else folder)
        if repository is None and after is None:
            repository = innermost(folder, self._repositories_before, self._was_repository)
        dependencies, in_environment = self._tree(folder)
        # What git keeps of its own is never ignored, whatever its name.
        is_in_doubt = before is None or before.kind == "folder" or repository is not None
        pointer, holds = self._pointer(change, name) if name.lower() in _POINTERS else (None, False)
        through: tuple[tuple[str, str], ...] = ()
        if after is not None and after.kind == "symlink" and after.target is not None:
            through = self._through(path, after.target)
        return Effect(
            path=path,
            kind=None if after is None else after.kind,
            before_kind=None if before is None else before.kind,
            mode=0 if after is None else after.mode,
            before_mode=0 if before is None else before.mode,
            size_bytes=0 if after is None else after.size_bytes,
            before_size_bytes=0 if before is None else before.size_bytes,
            target=None if after is None else after.target,
            through=through,
            links=0 if before is None else before.links,
            masked=change.masked,
            content_changed=change.content_changed,
            linked_to=change.linked_to,
            dependencies=dependencies,
            in_environment=in_environment,
            repository=repository,
            in_new_repository=repository is not None and self._is_new(repository),
            makes_repository=name in _MARKS and repository == folder and self._completes(folder),
            is_ignored=not (is_in_doubt or dependencies)
            and self._ignored.is_ignored(path, is_folder=False),
            git_keys=self._keys(change, name, repository),
            git_pointer=pointer,
            pointer_holds=holds,
            unmasks=before is None and name == _ENVIRONMENT and self._hides_below(folder),
            holds_key=name.lower().endswith(".pem") and self._holds_key(change),
            is_copy=self._is_copy(change),
        )

    def _is_copy(self, change: Change) -> bool:
        """Whether it came, or went, with a whole work tree, and is what the project around has.

        `git worktree add` and `git clone` bring every file that is tracked once more.
        """
        if self.is_listed is None or (change.before is None) == (change.after is None):
            return False
        side, path = change.after or change.before, change.path
        folder = _parent(path)
        tree = innermost(folder, self._work_trees, self._comes_or_goes)
        if not tree or side is None or not self.is_listed(path):
            return False
        project = innermost(
            _parent(tree),
            self._projects,
            lambda folder: self.view.before(_joined(folder, ".git")) is not None,
        )
        if project is None:
            return False
        other = _joined(project, path[len(tree) + 1 :])
        if side.kind != "file" or self.view.before(other) != "file":
            return side.kind == "folder" == self.view.before(other)
        read = self.view.read_before if change.after is None else self.view.read_after
        data = read(path)
        is_whole = data is not None and len(data) <= READ_BYTES_MAX
        return is_whole and data == self.view.read_before(other)

    def _comes_or_goes(self, folder: str) -> bool:
        """Whether a folder is a work tree now or was one before, and not both."""
        mark = _joined(folder, ".git")
        return (self.view.before(mark) is None) != (self.view.after(mark) is None)

    def _hides_below(self, folder: str) -> bool:
        """Whether something is hidden in a folder: an environment is not looked into whole."""
        return any(not folder or path.startswith(f"{folder}/") for path in self.masks)

    def moved(self, effects: tuple[Effect, ...]) -> dict[str, str]:
        """For each file and link that is gone, a new one that holds the same, each only once.

        A folder from below is moved by copying it and deleting it: nothing of it is lost. Where
        so few are gone that nobody would be asked, none is looked for.
        """
        gone = [one for one in effects if one.kind is None and one.before_kind in _MOVABLE]
        lost_bytes = sum(one.before_size_bytes for one in gone)
        if len(gone) <= DELETED_MAX and lost_bytes <= LOST_BYTES_MAX:
            return {}
        sizes = {one.before_size_bytes for one in gone}
        came: dict[object, list[str]] = {}
        for one in effects:
            is_new = one.sort == "created" and one.kind in _MOVABLE and one.size_bytes in sizes
            if not is_new or one.masked or self._ignored.is_ignored(one.path, is_folder=False):
                continue
            came.setdefault(self._content(one.path, is_after=True), []).append(one.path)
        came.pop(None, None)
        found: dict[str, str] = {}
        for one in gone if came else ():
            if not one.masked and (new := came.get(self._content(one.path, is_after=False))):
                found[one.path] = new.pop()
        return found

    def _content(self, path: str, *, is_after: bool) -> object:
        """What tells one file or link from any other; None where that cannot be had."""
        change = self.view.changes[path]
        side = change.after if is_after else change.before
        if side is not None and side.target is not None:
            return side.target
        return digest_beneath(self.view.layer_fd if is_after else self.view.workspace_fd, path)

    def _repository(self, folder: str) -> str | None:
        return innermost(folder, self._repositories, self._is_repository)

    def _is_repository(self, folder: str, *, before: bool = False) -> bool:
        """Whether git takes it for one, or for what a work tree shares: setup.c, and linked ones.

        Objects and refs may be anything: git asks only whether it may enter them. A HEAD is not
        asked for where there are objects and refs: another folder may have it, and
        name this one in its commondir (gitrepository-layout(5)).
        """
        kind = self.view.before if before else self.view.after
        if kind(_joined(folder, "objects")) is not None:
            return kind(_joined(folder, "refs")) is not None
        return (
            kind(_joined(folder, "commondir")) is not None
            and kind(_joined(folder, "HEAD")) is not None
        )

    def _was_repository(self, folder: str) -> bool:
        return self._is_repository(folder, before=True)

    def _is_new(self, repository: str) -> bool:
        return (
            bool(repository)
            and self.view.before(repository) is None
            and self.view.after(_joined(repository, "HEAD")) is not None
            and self.view.after(_joined(repository, "objects")) == "folder"
        )

    def _completes(self, folder: str) -> bool:
        """Whether a folder of the host becomes a repository with orders that were there before."""
        if self._is_repository(folder, before=True):
            return False
        return any(self.view.before(_joined(folder, name)) is not None for name in _ORDERS)

    def _tree(self, folder: str) -> tuple[str | None, bool]:
        """The outermost tree that tools make which a folder is or lies in; and whether what is in
        the folder is in an environment."""
        waiting: list[str] = []
        while folder not in self._trees:
            waiting.append(folder)
            folder = _parent(folder)
        found = self._trees[folder]
        for each in reversed(waiting):
            found = self._trees[each] = self._tree_at(each, *found)
        return found

    def _tree_at(self, folder: str, tree: str | None, is_in: bool) -> tuple[str | None, bool]:
        name = folder.rpartition("/")[2]
        mark = _joined(folder, _ENVIRONMENT)
        is_in = is_in or self.view.before(mark) == "file"
        is_new = not is_in and self.view.before(folder) is None and self.view.after(mark) == "file"
        if tree is None and (
            is_new
            or name == "node_modules"
            or (name == "site-packages" and (is_in or self._is_top_environment()))
        ):
            tree = folder
        return tree, is_in or is_new

    def _is_top_environment(self) -> bool:
        return self.view.before(_ENVIRONMENT) == "file"

    def _through(self, path: str, target: str) -> tuple[tuple[str, str], ...]:
        met: dict[str, str] = {}

        def link_at(other: str) -> str | None:
            found = self.view.link_after(other)
            if found is not None and other not in self.view.changes:
                met[other] = found
            return found

        follow_link(path, target, workspace=self.workspace, link_at=link_at)
        return tuple(met.items())

    def _keys(self, change: Change, name: str, repository: str | None) -> tuple[str, ...] | None:
        lowered = name.lower()
        is_strategy = lowered in STRATEGIES and _last(_parent(change.path)).lower() in REBASES
        if lowered != _TODO and lowered not in _CONFIGS and not is_strategy:
            return None
        if repository is None and ".git/" not in f"{self.workspace}/{change.path}".lower():
            return None
        sides = self._sides(change)
        if sides is None:
            return None
        before, after = sides
        if lowered == _TODO:
            return ("rebase.exec",) if after is not None and runs_a_command(after) else ()
        if is_strategy:
            named = after is not None and names_a_program(lowered, after)
            return ("rebase.strategy",) if named else ()
        base = _parent(change.path)
        return changed_git_keys(
            before,
            after,
            is_inside=lambda text: self._is_submodules(self._resolved(base, text), repository),
        )

    def _is_submodules(self, work_tree: str, repository: str | None) -> bool:
        """Whether a work tree is one that git itself names in a setting: a submodule's.

        Elsewhere a setting makes what is tracked appear where no call may write: with a
        repository's own folder for a work tree, the next checkout puts a hook into it.
        """
        if not repository:
            return False
        outer = self._repository(_parent(repository))
        if outer is None or not repository[len(outer) :].lstrip("/").startswith("modules/"):
            return False
        is_safe = not work_tree.startswith("/") and not self._has_link(work_tree)
        return is_safe and self._repository(work_tree) is None

    def _sides(self, change: Change) -> tuple[bytes | None, bytes | None] | None:
        """What a small file held and holds, None where there was or is none.

        None for both where one of them is no regular file, is too large, or cannot be read.
        """
        before = after = None
        if change.before is not None:
            before = self.view.read_before(change.path)
            if before is None or len(before) > READ_BYTES_MAX:
                return None
        if change.after is not None:
            after = self.view.read_after(change.path) if change.after.kind == "file" else None
            if after is None or len(after) > READ_BYTES_MAX:
                return None
        return before, after

    def _pointer(self, change: Change, name: str) -> tuple[str | None, bool]:
        """What a pointer of git leads to, the worst of several, and whether that is there."""
        side = change.after or change.before
        if side is None or side.kind != "file":
            return None, False
        read = self.view.read_before if change.after is None else self.view.read_after
        data = read(change.path)
        if data is None or len(data) > READ_BYTES_MAX or b"\0" in data:
            return None, False
        lines = [line for line in os.fsdecode(data).split("\n") if line]
        lowered = name.lower()
        base = _parent(change.path)
        if lowered == "alternates":
            base = _parent(base)  # from the objects folder on
            lines = [line for line in lines if not line.startswith("#")]
        elif len(lines) != 1:
            return None, False
        elif lowered == ".git":
            if not lines[0].startswith("gitdir: "):
                return None, False
            lines = [lines[0].removeprefix("gitdir: ")]
        found = [self._resolved(base, line) for line in lines]
        for each in found:
            if not self._leads_to_its_kind(lowered, each):
                return each, False
        return (found[0], True) if found else (None, False)

    def _leads_to_its_kind(self, name: str, pointer: str) -> bool:
        if pointer.startswith("/") or self._has_link(pointer):
            return False
        if name == "gitdir":  # of a linked work tree: where its .git lies, if it still does
            kind = self.view.after(pointer)
            return pointer.rpartition("/")[2] == ".git" and kind in ("file", None)
        folder = pointer
        if name == "alternates":
            folder, _, last = pointer.rpartition("/")
            if last != "objects":
                return False
        is_linked = self.view.after(_joined(folder, "commondir")) is not None
        if name == ".git" and not is_linked and ".git" not in folder.lower().split("/"):
            return False  # A folder with orders that lies about, such as a test's, would be obeyed.
        return self.view.after(folder) in ("folder", None) and self._is_repository(folder)

    def _has_link(self, path: str) -> bool:
        names = path.split("/")
        ways = ("/".join(names[: at + 1]) for at in range(len(names)))
        return any(self.view.link_after(way) is not None for way in ways)

    def _resolved(self, folder: str, text: str) -> str:
        """A path in the workspace where it leads into it, by its letters; else absolute."""
        whole = posixpath.normpath(posixpath.join(self.workspace or "/", folder, text))
        if whole == self.workspace:
            return ""
        return whole.removeprefix(f"{self.workspace}/")

    def _holds_key(self, change: Change) -> bool:
        after, before = change.after, change.before
        return (
            after is not None
            and after.kind == "file"
            and _KEY_MARK in (self.view.read_after(change.path) or b"")
        ) or (
            before is not None
            and before.kind == "file"
            and _KEY_MARK in (self.view.read_before(change.path) or b"")
        )


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
