"""Git, command by command: what reads, what writes, what runs a program or asks a host.

Hooks are taken for what the repository's owner left there: see `shell`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ._shell_model import CommandKind, Word
from ._shell_places import normal
from ._shell_special import Situation, Special
from ._shell_table import Profile, Reading, read_options


def _git_reader(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read git's commands that show: some also read files outside of a repository."""
    operands = read_options(profile, words, reading)
    # Any beginning of it will do that is not another's (gitcli(7)).
    by_file = any(re.fullmatch(r"--no-i(n(d(ex?)?)?)?", word.text or "") for word in words)
    for word in operands:
        text = word.text
        outside = text is not None and (text.startswith("/") or normal(text).startswith(".."))
        if text is not None and (outside or by_file):
            reading.reads_path(word, profile.name)


def _git_refs(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `git branch` and `git tag`: with a name, they write."""
    operands = read_options(profile, words, reading)
    lists = reading.has(
        "-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at",
        "-a", "-r", "--all", "--remotes", "--show-current",
    )  # fmt: skip
    renames = reading.has("-m", "--message", "-u", "--set-upstream-to")
    if (operands and not lists) or renames or CommandKind.WRITE in reading.kinds:
        _writes_here(reading)


def _git_remote(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    operands = read_options(profile, words, reading)
    verb = operands[0].text if operands else "list"
    if verb == "get-url" or not operands:
        return
    if verb in ("rename", "remove", "rm"):
        _writes_here(reading)
    else:
        reading.doubt(
            CommandKind.NETWORK, "command_network", "git remote names another host or asks it."
        )


def _git_verb(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read git's commands with verbs of their own."""
    operands = read_options(profile, words, reading)
    verb = operands[0].text if operands else ""
    command = profile.name.partition(" ")[2]
    if verb in _GIT_READ_VERBS.get(command, ()):
        reading.kinds.discard(CommandKind.WRITE)
        return
    if verb is None or verb not in _GIT_WRITE_VERBS.get(command, ()):
        reading.unclear(f"What git {command} does with this is not known here.")
    _writes_here(reading)
    if command == "worktree" and verb == "add":
        for word in operands[1:2]:
            reading.writes_path(word, profile.name)


_GIT_READ_VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "stash": ("list", "show"),
    "worktree": ("list",),
    "notes": ("list", "show"),
    "reflog": ("", "show"),
    "submodule": ("", "status", "summary"),
    "sparse-checkout": ("list",),
    "bisect": ("log", "view"),
}
_GIT_WRITE_VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "stash": ("", "push", "pop", "apply", "drop", "clear", "save", "branch", "create", "store"),
    "worktree": ("add", "remove", "move", "prune", "lock", "unlock", "repair"),
    "notes": ("add", "append", "copy", "remove"),
    "reflog": ("expire", "delete"),
    "sparse-checkout": ("set", "add", "init", "disable", "reapply"),
    "bisect": ("start", "good", "bad", "skip", "reset", "new", "old"),
}


def _git_config(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `git config`: what it sets may be a command that git runs."""
    reading.kinds.discard(CommandKind.UNKNOWN)
    reading.reasons.clear()
    operands = read_options(profile, words, reading)
    shows = any(
        option in profile.options and profile.options[option].role == "text"
        for option, _ in reading.options
    )
    if shows or (len(operands) == 1 and not reading.kinds):
        reading.kinds.add(CommandKind.READ)
        return
    key = operands[0].text if operands else None
    if key is None or key.lower() not in _GIT_HARMLESS_KEYS or len(operands) != 2:
        reading.unclear("git config can set a command that git runs.")
    is_global = reading.has("--global", "--system")
    path = f"{at.home}/.gitconfig" if is_global else ".git/config"
    reading.writes_path(Word(text=path), "git config")


_GIT_HARMLESS_KEYS: Final = frozenset(
    {"user.name", "user.email", "init.defaultbranch", "core.autocrlf", "core.filemode",
     "core.quotepath", "pull.rebase", "push.default", "merge.conflictstyle", "color.ui",
     "advice.detachedhead", "commit.gpgsign"}
)  # fmt: skip


def _git_writer(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read git's commands that write: hooks run, as the repository's owner left them."""
    operands = read_options(profile, words, reading)
    command = profile.name.partition(" ")[2]
    if reading.has("-i", "--interactive", "-x") and command == "rebase":
        reading.doubt(
            CommandKind.RUNNER, "command_runner", "git rebase runs an editor or a command."
        )
    if reading.has("-S") and command in _GIT_SIGNS:
        reading.doubt(CommandKind.RUNNER, "command_runner", "git signs by another program.")
    _writes_here(reading)
    if command in _GIT_PATHS:
        for word in operands:
            if word.text is not None and word.text != "--" and _is_outside(word.text):
                reading.writes_path(word, profile.name)


_GIT_SIGNS: Final = frozenset({"commit", "merge", "rebase", "cherry-pick", "revert", "commit-tree"})
_GIT_PATHS: Final = frozenset({"rm", "mv", "init", "restore", "clean"})


def _is_outside(text: str) -> bool:
    return text.startswith("/") or normal(text).startswith("..") or "/" in text or "." in text


def _git_remote_verb(
    profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading
) -> None:
    """Read git's commands that ask another repository, which may be a folder."""
    operands = read_options(profile, words, reading)
    command = profile.name.partition(" ")[2]
    source = operands[0].text if operands else None
    if command in ("archive", "bundle", "request-pull") and not reading.has("--remote"):
        reading.unclear(f"What git {command} does is not known here.")
    if command != "clone" or source is None or not re.match(r"(?:file://)?\.{0,2}/", source):
        return
    reading.kinds.discard(CommandKind.NETWORK)
    reading.reasons[:] = [one for one in reading.reasons if one[0] != "command_network"]
    reading.reads_path(Word(text=source.removeprefix("file://")), "git clone")
    target = operands[1] if len(operands) > 1 else Word(text=".")
    reading.writes_path(target, "git clone")


def _writes_here(reading: Reading) -> None:
    reading.writes_path(Word(text="."), "git")


GIT: Final[Mapping[str, Special]] = {
    "git-config": _git_config,
    "git-reader": _git_reader,
    "git-refs": _git_refs,
    "git-remote": _git_remote,
    "git-remote-verb": _git_remote_verb,
    "git-verb": _git_verb,
    "git-writer": _git_writer,
}
