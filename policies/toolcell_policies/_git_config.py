"""Git's configuration files: which settings differ, and which of those git never acts on.

A list of what is harmless, not of what is harmful: git-config(1) has hundreds of settings that
name a program, a folder of hooks or another file, and each release adds some. The grammar is that
of git-config(1), "Syntax"; what is not understood is not judged, so that it asks.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

Setting = tuple[str, str | None, str]
"""Section in lower case, subsection as written or None, key in lower case."""

_HARMLESS: Final = frozenset(
    {
        "core.bare",
        "core.filemode",
        "core.repositoryformatversion",
        "core.logallrefupdates",
        "core.ignorecase",
        "core.precomposeunicode",
        "core.symlinks",
        "core.worktree",
        "core.autocrlf",
        "core.eol",
        "core.safecrlf",
        "core.quotepath",
        "core.abbrev",
        "core.sparsecheckout",
        "core.sparsecheckoutcone",
        "branch.*.remote",
        "branch.*.merge",
        "branch.*.rebase",
        "branch.*.description",
        "remote.*.url",
        "remote.*.fetch",
        "remote.*.tagopt",
        "remote.*.prune",
        "remote.*.mirror",
        "submodule.active",
        "submodule.recurse",
        "submodule.*.url",
        "submodule.*.active",
        "submodule.*.branch",
        "extensions.objectformat",
        "extensions.worktreeconfig",
        "extensions.refstorage",
        "init.defaultbranch",
        "pull.rebase",
        "pull.ff",
        "push.default",
        "push.autosetupremote",
        "fetch.prune",
        "merge.conflictstyle",
        "merge.ff",
        "diff.algorithm",
        "rebase.autosquash",
        "rebase.autostash",
        "rerere.enabled",
        "color.ui",
        "gc.auto",
        "index.sparse",
    }
)
_HARMLESS_SECTIONS: Final = ("user.", "advice.")

# What git itself speaks; any other scheme, and `name::`, runs a program of that name
# (gitremote-helpers(7)).
_PLAIN_SCHEMES: Final = frozenset({"https", "http", "ssh", "git", "file"})
_SCHEME: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9+.-]*)(::|://)")
_TODO_COMMANDS: Final = frozenset(
    {
        "pick",
        "p",
        "reword",
        "r",
        "edit",
        "e",
        "squash",
        "s",
        "fixup",
        "f",
        "drop",
        "d",
        "label",
        "l",
        "reset",
        "t",
        "merge",
        "m",
        "break",
        "b",
        "noop",
        "update-ref",
        "u",
        "revert",
    }
)
_KEY_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
)
_SPACE: Final = frozenset(" \t\r")
_ESCAPES: Final = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}


def is_harmless(key: str) -> bool:
    """Whether git runs, reads and sends nothing by a setting of this name.

    A name with a remark of `changed_git_keys` behind it never is.
    """
    if key in _HARMLESS:
        return True
    return key.count(".") == 1 and ":" not in key and key.startswith(_HARMLESS_SECTIONS)


def changed_git_keys(
    before: bytes | None, after: bytes | None, *, is_inside: Callable[[str], bool]
) -> tuple[str, ...] | None:
    """Name every setting that two versions of a configuration file have differently.

    As `section.key`, or `section.*.key` where there is a subsection, each once and sorted. A
    value that makes a harmless setting a harmful one is remarked on behind its name:
    `:program` (an address that runs a helper), `:replaced` (an address that leads elsewhere than
    it did, or a remote that is overwritten whole by each push from now on), `:address` (a branch
    that follows no remote's name), `:outside` (a work tree for which `is_inside` is false). A file
    that is absent has no settings. None where a version is not understood. Never raises, whatever
    the bytes.
    """
    old, new = _parsed(before), _parsed(after)
    if old is None or new is None:
        return None
    found = {
        _named(setting) + _remark(setting, old, new, is_inside)
        for setting in old.keys() | new.keys()
        if old.get(setting) != new.get(setting)
    }
    return tuple(sorted(found))


def runs_a_command(todo: bytes) -> bool:
    """Whether a git-rebase-todo has a line that is more than work on commits (git-rebase(1))."""
    for line in todo.decode("latin-1").split("\n"):
        words = line.split(maxsplit=1)
        if words and not words[0].startswith("#") and words[0] not in _TODO_COMMANDS:
            return True
    return False


def names_a_program(name: str, text: bytes) -> bool:
    """Whether a strategy in a rebase or a sequence under way is none of git's own (git-merge(1)).

    `name` is that of the file: strategy, strategy_opts or opts. Git runs `git-merge-` and what the
    strategy says, wherever that leads.
    """
    said = text.decode("latin-1").strip()
    if name == "strategy_opts":
        return False  # options of a strategy, which is judged itself
    if name == "strategy":
        return said not in _OWN_STRATEGIES
    lines = (line.partition("=") for line in said.lower().split("\n"))
    named = [value.strip() for key, _, value in lines if key.strip() == "strategy"]
    return any(value not in _OWN_STRATEGIES for value in named)


_OWN_STRATEGIES: Final = frozenset({"ort", "recursive", "resolve", "octopus", "ours", "subtree"})


def _named(setting: Setting) -> str:
    section, subsection, key = setting
    return f"{section}.{key}" if subsection is None else f"{section}.*.{key}"


def _remark(
    setting: Setting,
    before: Mapping[Setting, tuple[str, ...]],
    after: Mapping[Setting, tuple[str, ...]],
    is_inside: Callable[[str], bool],
) -> str:
    name, old, new = _named(setting), before.get(setting), after.get(setting)
    if new is None:
        return ""
    if name == "remote.*.mirror" and (*setting[:2], "url") in before:
        return ":replaced"
    if name in ("remote.*.url", "submodule.*.url"):
        if not all(map(_is_plain_address, new)):
            return ":program"
        return "" if old is None else ":replaced"
    if name == "branch.*.remote" and not all(map(_is_remote_name, new)):
        return ":address"
    if name == "core.worktree" and not all(map(is_inside, new)):
        return ":outside"
    return ""


def _is_plain_address(text: str) -> bool:
    found = _SCHEME.match(text)
    if found is None:
        return bool(text) and not text.startswith("-")
    return found[2] == "://" and found[1].lower() in _PLAIN_SCHEMES


def _is_remote_name(text: str) -> bool:
    return bool(text) and ":" not in text and not text.startswith(("-", "/", "~", ".."))


class _Unclear(Exception):
    """Not the grammar of git-config(1)."""


def _parsed(data: bytes | None) -> Mapping[Setting, tuple[str, ...]] | None:
    if data is None:
        return {}
    if b"\0" in data:
        return None
    text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").replace("\r\n", "\n")
    found: dict[Setting, list[str]] = {}
    try:
        for setting, value in _settings(_Reader(text)):
            found.setdefault(setting, []).append(value)
    except _Unclear:
        return None
    return {setting: tuple(values) for setting, values in found.items()}


class _Reader:
    """One character after the other; past the end are line ends, as git has it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._text)

    def peek(self) -> str:
        return "\n" if self.is_done else self._text[self._at]

    def take(self) -> str:
        char = self.peek()
        self._at += 1
        return char

    def skip(self, characters: frozenset[str]) -> None:
        while not self.is_done and self.peek() in characters:
            self._at += 1

    def skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def word(self, characters: frozenset[str]) -> str:
        start = self._at
        self.skip(characters)
        return self._text[start : self._at]


def _settings(reader: _Reader) -> Iterator[tuple[Setting, str]]:
    section: tuple[str, str | None] | None = None
    while not reader.is_done:
        char = reader.peek()
        if char in _SPACE or char == "\n":
            reader.take()
        elif char in "#;":
            reader.skip_line()
        elif char == "[":
            section = _section(reader)
        else:
            key = reader.word(_KEY_CHARACTERS)
            if section is None or not key or not key[0].isalpha():
                raise _Unclear
            yield (*section, key.lower()), _value(reader)


def _section(reader: _Reader) -> tuple[str, str | None]:
    reader.take()
    name = reader.word(_KEY_CHARACTERS | {"."}).lower()
    section, dot, subsection = name.partition(".")
    char = reader.take()
    if not section:
        raise _Unclear
    if char == "]":
        return section, subsection if dot else None
    if char not in _SPACE or dot:
        raise _Unclear
    reader.skip(_SPACE)
    if reader.take() != '"':
        raise _Unclear
    inner: list[str] = []
    while (char := reader.take()) != '"':
        if char == "\\":
            char = reader.take()
        if char == "\n":
            raise _Unclear
        inner.append(char)
    if reader.take() != "]":
        raise _Unclear
    return section, "".join(inner)


def _value(reader: _Reader) -> str:
    """What follows a key; a key alone means true."""
    reader.skip(frozenset(" \t"))
    if reader.peek() == "\n":
        return "true"
    if reader.take() != "=":
        raise _Unclear
    kept: list[str] = []
    end = 0  # trailing white space outside of quotes does not count
    is_quoted = False
    while (char := reader.take()) != "\n":
        if char in "#;" and not is_quoted:
            reader.skip_line()
        elif char in _SPACE and not is_quoted:
            if kept:
                kept.append(char)
        elif char == '"':
            is_quoted = not is_quoted
        else:
            if char == "\\":
                char = reader.take()
                if char == "\n":
                    continue
                if char not in _ESCAPES:
                    raise _Unclear
                char = _ESCAPES[char]
            kept.append(char)
            end = len(kept)
    if is_quoted:
        raise _Unclear
    return "".join(kept[:end])
