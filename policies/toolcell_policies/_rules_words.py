"""The words of one command against the words of a rule: its beginning, and its flags.

Nobody here knows which flags of a program take a value. So what denies or asks takes each
doubt as a match, and what allows takes it as none:

| | deny, ask | allow |
|---|---|---|
| `git -C x push` for `git push` | yes: flags may stand between | no |
| `/usr/bin/git`, `./git` for `git` | yes | no |
| a word that only a run can tell | maybe | no |
| `--forc` for `--force`, `-xf` for `-f` | yes | no, and refused by `not_flags` |
| `-o --force` for `--force` | yes | no: it may be the value of `-o` |
"""

import itertools
from collections.abc import Iterable, Sequence

from ._rules_model import Executable, Match, RuleSegment, When

Words = Sequence[str | None]


def speaks_about(when: When, segment: RuleSegment) -> Match:
    """Whether a rule that denies or asks is about a command."""
    found = Match.YES
    if when.command:
        found = min(found, _begins_like(when.command, segment))
    if when.flags:
        found = min(found, _may_have(when.flags, segment.argv[1:]))
    if when.executable is not None:
        found = min(found, _may_run(when.executable, segment))
    excuses = when.not_flags if segment.understood else ()
    if excuses and _surely_has(excuses, segment.argv):
        return Match.NO
    return found


def covers(when: When, segment: RuleSegment) -> bool:
    """Whether a rule that allows is about a command, and nothing about it is in doubt."""
    argv = [word for word in segment.argv if word is not None]
    if not argv or len(argv) < len(segment.argv) or not segment.understood:
        return False
    if segment.env or segment.opaque or len(argv) < len(when.command):
        return False
    if not all(word in known for word, known in zip(argv, when.command, strict=False)):
        return False
    if when.flags and not _surely_has(when.flags, argv):
        return False
    if when.not_flags and _may_have(when.not_flags, argv[1:]) is not Match.NO:
        return False
    if when.only_flags is not None:
        rest = argv[max(1, len(when.command)) :]
        if not all(_flag_name(word) in when.only_flags for word in rest if _is_flag(word)):
            return False
    return when.executable is None or _surely_runs(when.executable, segment)


def after_flags(argv: Words, places: Iterable[int]) -> set[int]:
    """Return where the next word that is no flag may be: each flag may take one value."""
    found = set(places)
    ahead = list(found)
    while ahead:
        here = ahead.pop()
        word = argv[here] if here < len(argv) else None
        if word is not None and word.startswith("-"):
            fresh = {here + 1, here + 2} - found
            found |= fresh
            ahead.extend(fresh)
    return found


def _begins_like(command: Sequence[Sequence[str]], segment: RuleSegment) -> Match:
    found = _begins_at(command, segment, {0})
    if found is Match.NO and not segment.understood:
        # Then it may begin anywhere.
        elsewhere = set(range(1, len(segment.argv)))
        found = min(_begins_at(command, segment, elsewhere), Match.MAYBE)
    return found


def _begins_at(command: Sequence[Sequence[str]], segment: RuleSegment, places: set[int]) -> Match:
    unknown = False
    for number, known in enumerate(command):
        ahead = set()
        for at in after_flags(segment.argv, places) if number else places:
            names = words_at(segment, at, is_program=not number)
            if names is None:
                unknown = True
            elif any(name in known for name in names):
                ahead.add(at + 1)
        places = ahead
    if places:
        return Match.YES
    return Match.MAYBE if unknown else Match.NO


def words_at(
    segment: RuleSegment, at: int, *, is_program: bool
) -> frozenset[str] | tuple[str, ...] | None:
    """Return what stands at one place of a command; None is unknown, () is past its end.

    A program has several names: as written, as resolved, and the last part of each.
    """
    if at >= len(segment.argv):
        return ()
    if at == 0:
        return _program_names(segment) or None
    word = segment.argv[at]
    if word is None:
        return None
    return (word, _last_part(word)) if is_program else (word,)


def _program_names(segment: RuleSegment) -> frozenset[str]:
    written = (segment.argv[0], segment.executable, segment.executable_path)
    names = {name for name in written if name}
    return frozenset(names | set(map(_last_part, names)))


def _last_part(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word not in ("-", "--")


def _flag_name(word: str) -> str:
    return word.split("=", 1)[0]


def _may_have(flags: Sequence[str], words: Words) -> Match:
    known = [_flag_name(word) for word in words if word is not None and _is_flag(word)]
    if any(_may_be(name, flag) for name in known for flag in flags):
        return Match.YES
    return Match.MAYBE if None in words else Match.NO


def _may_be(name: str, flag: str) -> bool:
    """Whether a program may read this word as that flag."""
    if name.startswith("--"):
        # GNU's getopt_long takes any beginning that is not ambiguous.
        return flag.startswith(name) if flag.startswith("--") else name[1:] == flag
    if flag.startswith("--"):
        # Go's flag package knows no difference.
        return name[1:] == flag[2:]
    return set(flag[1:]) <= set(name[1:])


def _surely_has(flags: Sequence[str], argv: Words) -> bool:
    """Whether one of the flags is there, and cannot be the value of another."""
    for before, word in itertools.pairwise(argv):
        if word == "--":
            return False
        if word is None or before is None or _flag_name(word) not in flags:
            continue
        if not before.startswith("-") or "=" in before:
            return True
    return False


def _may_run(executable: Executable, segment: RuleSegment) -> Match:
    wanted = (executable.path, executable.sha256)
    known = (segment.executable_path, segment.executable_sha256)
    found = Match.YES
    for want, have in zip(wanted, known, strict=True):
        if want is not None and want != have:
            found = min(found, Match.MAYBE if have is None else Match.NO)
    return found


def _surely_runs(executable: Executable, segment: RuleSegment) -> bool:
    return _may_run(executable, segment) is Match.YES
