"""Which files git does not keep, by what a workspace held before the call: in doubt, none.

A file is ignored where a repository's own index says that it is not tracked, and a .gitignore of
the real workspace names it or a folder that it lies in (gitignore(5)). A pattern that takes an
exception back holds for all below what it names: stricter than git, and never laxer.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from toolcell._effect_view import View, innermost, read_beneath

_INDEX_BYTES_MAX: Final = 64 << 20
_PATTERNS_MAX: Final = 1_000
_CACHED_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class _Patterns:
    """What one .gitignore says of paths from its folder on; a folder ends in a slash."""

    ignored: Any = None
    kept: Any = None


@dataclass(slots=True)
class Ignored:
    """Says of one path after the other whether git ignores it; reads each file once."""

    view: View
    _files: dict[str, _Patterns] = field(default_factory=dict)
    _folders: dict[str, bool] = field(default_factory=dict)
    _repositories: dict[str, str | None] = field(default_factory=dict)
    _tracked: dict[str, frozenset[bytes] | None] = field(default_factory=dict)

    def is_ignored(self, path: str, *, is_folder: bool) -> bool:
        """Whether it is ignored, and not tracked all the same."""
        root = self._repository(_parent(path))
        if root is None or not self._is_named(path, root, is_folder):
            return False
        tracked = self._tracked.get(root)
        if root not in self._tracked:
            tracked = self._tracked[root] = self._index(root)
        inner = path[len(root) + 1 :] if root else path
        return tracked is not None and os.fsencode(inner) not in tracked

    def _repository(self, folder: str) -> str | None:
        """The innermost folder around it that had a .git of its own."""

        def has_git(folder: str) -> bool:
            return self.view.before(f"{folder}/.git" if folder else ".git") is not None

        return innermost(folder, self._repositories, has_git)

    def _is_named(self, path: str, root: str, is_folder: bool) -> bool:
        if not is_folder:
            return self._is_in_ignored(_parent(path), root) or self._says(path, root)
        return self._is_in_ignored(path, root)

    def _is_in_ignored(self, folder: str, root: str) -> bool:
        if folder == root:
            return False
        found = self._folders.get(folder)
        if found is None:
            if len(self._folders) >= _CACHED_MAX:
                self._folders.clear()
            names = folder[len(root) :].strip("/").split("/")
            base = f"{root}/" if root else ""
            ways = [base + "/".join(names[: at + 1]) for at in range(len(names))]
            found = self._folders[folder] = any(self._says(f"{way}/", root) for way in ways)
        return found

    def _says(self, path: str, root: str) -> bool:
        """Whether some .gitignore on the way names it, and none takes that back."""
        is_ignored = False
        for folder in _ways(_parent(path.rstrip("/")), root):
            patterns = self._files.get(folder)
            if patterns is None:
                patterns = self._files[folder] = self._read(folder)
            inner = path[len(folder) + 1 :] if folder else path
            text = os.fsencode(inner).decode("latin-1")
            if patterns.kept is not None and patterns.kept.fullmatch(text):
                return False
            if patterns.ignored is not None and patterns.ignored.fullmatch(text):
                is_ignored = True
        return is_ignored

    def _read(self, folder: str) -> _Patterns:
        data = self.view.read_before(f"{folder}/.gitignore" if folder else ".gitignore")
        if data is None or len(data) > 64 << 10:
            return _Patterns()
        lines = data.decode("latin-1").splitlines()
        if len(lines) > _PATTERNS_MAX:
            return _Patterns()
        ignored: list[str] = []
        kept: list[str] = []
        for line in lines:
            taken_back = line.startswith("!")
            expression = _expression(line[taken_back:])
            if expression is None:
                if taken_back:
                    return _Patterns()
            else:
                (kept if taken_back else ignored).append(expression)
        return _Patterns(_compiled(ignored), _compiled(kept))

    def _index(self, root: str) -> frozenset[bytes] | None:
        path = f"{root}/.git/index" if root else ".git/index"
        data = read_beneath(self.view.workspace_fd, path, bytes_max=_INDEX_BYTES_MAX)
        if data is None or len(data) > _INDEX_BYTES_MAX:
            return None
        try:
            return frozenset(_tracked(data))
        except (ValueError, struct.error):
            return None


def tracked(workspace_fd: int) -> frozenset[str]:
    """The paths that the repository at the top of a workspace tracks; none where nobody can say."""
    data = read_beneath(workspace_fd, ".git/index", bytes_max=_INDEX_BYTES_MAX)
    if data is None or len(data) > _INDEX_BYTES_MAX:
        return frozenset()
    try:
        return frozenset(map(os.fsdecode, _tracked(data)))
    except (ValueError, struct.error):
        return frozenset()


def _tracked(index: bytes) -> Iterator[bytes]:
    """The paths in an index of version 2 or 3 (gitformat-index(5)).

    Raises:
        ValueError, struct.error: it is something else.
    """
    mark, version, count = struct.unpack_from(">4sII", index)
    if mark != b"DIRC" or version not in (2, 3):
        raise ValueError("an index that is read otherwise")
    at = 12
    for _ in range(count):
        (flags,) = struct.unpack_from(">H", index, at + 60)
        start = at + (64 if flags & 0x4000 else 62)
        end = index.index(b"\0", start)
        yield index[start:end]
        at += (end - at + 8) & ~7


def _compiled(expressions: list[str]) -> Any:
    """One expression for all; it takes no more time than a path is long, whoever wrote it."""
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types

    return re2.compile("|".join(f"(?:{one})" for one in expressions)) if expressions else None


def _expression(line: str) -> str | None:
    """One pattern as an expression; None where it says nothing, or more than this reads."""
    text = line.rstrip(" \t\r")
    if not text.strip("/*") or text.startswith("#") or any(char in text for char in "\\[]"):
        return None  # also `*` and `/*`: who ignores everything has not said what may go
    is_folder = text.endswith("/")
    text = text.rstrip("/")
    is_anchored = "/" in text
    parts = text.lstrip("/").split("/")
    found = "" if is_anchored else "(?:.*/)?"
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if part == "**":
            found += ".*" if is_last else "(?:.*/)?"
            continue
        for char in part:
            found += {"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char)
        found += "" if is_last else "/"
    return found + ("/" if is_folder else "/?")


def _ways(folder: str, root: str) -> Iterator[str]:
    """The folder and all that it lies in, up to the root of its repository."""
    while True:
        yield folder
        if folder == root or not folder:
            return
        folder = _parent(folder)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
