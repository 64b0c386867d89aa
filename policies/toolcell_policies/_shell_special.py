"""Commands whose words have a shape of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ._shell_model import CommandKind, Word
from ._shell_places import Folders, is_critical, is_disk, joined, normal, united
from ._shell_table import (
    Profile,
    Reading,
    Table,
    could_be_option,
    read_operands,
    read_options,
)
from ._text import shown

CRITICAL: Final = "removal_critical"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Where a command runs, and what is known of commands."""

    table: Table
    home: str
    folders: Folders
    # It is run by `find`, which has been judged for what it removes.
    found: bool = False

    def moved(self, target: Word) -> Situation:
        """Return it after a change of folder."""
        return replace(self, folders=moved(self.folders, target))


# Reads the words of a command into a reading.
Special = Callable[[Profile, tuple[Word, ...], Situation, Reading], None]


def moved(folders: Folders, target: Word) -> Folders:
    """Return where a change of folder leads to, if it succeeds."""
    if target.text is None or target.glob:
        return (None,)
    found: Folders = ()
    for folder in folders:
        path = joined(folder, target.text)
        found = united(found, (None if path is None else normal(path),))
    return found


def critical(reading: Reading, text: str) -> None:
    """Note a removal that nobody may agree to."""
    reading.doubt(CommandKind.REMOVAL_CRITICAL, CRITICAL, text + " Nothing overrides this.")


def _rm(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    operands = read_options(profile, words, reading)
    read_operands(profile, operands, reading)
    if reading.has("--no-preserve-root"):
        critical(reading, "rm is told not to spare the root.")
    if not reading.has("-r", "-R", "--recursive"):
        return
    for word in operands:
        if at.found and word.glob and (word.text or "").endswith("/**"):
            continue
        if is_critical(word, at.folders, at.home, at.table):
            critical(reading, f"rm removes {shown(word.text or '')} with all below it.")


def _target(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `cp` and its kind: with `-t`, all operands are sources."""
    operands = read_options(profile, words, reading)
    if reading.has("-t", "--target-directory"):
        for word in operands:
            reading.reads_path(word, profile.name)
    elif profile.name == "install" and reading.has("-d", "--directory"):
        for word in operands:
            reading.writes_path(word, profile.name)
    elif profile.name == "ln" and len(operands) == 1:
        reading.reads_path(operands[0], profile.name)
        reading.writes_path(Word(text="."), profile.name)
    else:
        read_operands(profile, operands, reading)


def _mode(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `chmod` and its kind: a mode may begin with a dash."""
    taken = [
        Word(text="0") if word.text is not None and re.fullmatch(r"-[rwxXst]+", word.text) else word
        for word in words
    ]
    operands = read_options(profile, taken, reading)
    read_operands(profile, operands, reading)


def _dd(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    for word in words:
        text = word.text if word.text is not None else word.prefix
        key, equals, value = text.partition("=")
        if not equals:
            if text not in ("--help", "--version"):
                reading.unclear("dd is given a word that is not known here.")
            continue
        path = Word(text=value if word.text is not None else None)
        if key == "if":
            reading.reads_path(path, "dd")
        elif key == "of":
            reading.writes_path(path, "dd")
            if is_disk(path, at.table):
                critical(reading, f"dd writes over {shown(value)}.")


def _printf(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    if profile.name == "printf" and words and could_be_option(words[0]):
        reading.dynamic("printf")
    if profile.name == "printf" and words and words[0].text not in (None, "--"):
        text = words[0].text or ""
        if text.startswith("-"):
            reading.unclear("printf with an option can run what a name holds.")


def _set(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    known = _SHOPT if profile.name == "shopt" else _SET
    for word in words:
        if word.text == "--":
            return
        if word.text is None or not known.fullmatch(word.text):
            reading.unclear(f"{profile.name} changes how the rest of it is read.")


_SET: Final = re.compile(r"[-+][euxvfC]*o?|pipefail|errexit|nounset|xtrace|noclobber")
_SHOPT: Final = re.compile(r"-[squp]+|globstar|nullglob|dotglob|failglob|nocaseglob")


def _test(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    for place, word in enumerate(words):
        if word.text in ("-v", "-R"):
            name = words[place + 1].text if place + 1 < len(words) else ""
            if name is None or not _NAME.fullmatch(name or "x"):
                reading.unclear("A test of a variable by its name can run what the name holds.")
        elif word.text is None and not word.prefix and len(words) > 1 and not place:
            reading.dynamic("test")


def _names(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read builtins that take names of variables: a subscript would be evaluated."""
    name = profile.name
    if name in ("mapfile", "readarray", "let"):
        reading.unclear(f"{name} can run what its words hold.")
    flags = _FLAGS.get(name)
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        text = word.text
        if text is None and _ASSIGNED.fullmatch(word.prefix):
            continue
        if text is None or word.glob:
            reading.dynamic(name)
        elif text.startswith("-"):
            if flags is None or not flags.fullmatch(text):
                reading.unclear(f"What {shown(text)} does to {name} is not known here.")
            elif name == "read" and text[-1] in "dinNptu":
                place += 1
        elif name == "getopts" and place == 1:
            continue
        elif not _ASSIGNED.match(text) and not _NAME.fullmatch(text):
            reading.unclear(f"{name} can run what a subscript in its words holds.")


_ASSIGNED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_FLAGS: Final = {
    "declare": re.compile(r"-[xgrapA]+"),
    "export": re.compile(r"-[p]+"),
    "local": re.compile(r"-[xraA]+"),
    "read": re.compile(r"-[rs]*[adinNptu]?|-[rs]*[nNtu][0-9.]+"),
    "readonly": re.compile(r"-[aAp]+"),
    "typeset": re.compile(r"-[xgrapA]+"),
    "unset": re.compile(r"-[v]"),
}


def _jq(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `jq`: some of its options have two values."""
    taken: list[Word] = []
    place = 0
    while place < len(words):
        text = words[place].text
        if text in ("--arg", "--argjson"):
            place += 3
        elif text in ("--slurpfile", "--rawfile") and place + 2 < len(words):
            reading.reads_path(words[place + 2], "jq")
            place += 3
        elif text in ("--args", "--jsonargs"):
            break
        else:
            taken.append(words[place])
            place += 1
    read_operands(profile, read_options(profile, taken, reading), reading)


def _find(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    place = 0
    while place < len(words) and words[place].text in ("-H", "-L", "-P"):
        place += 1
    starts: list[Word] = []
    while place < len(words):
        word = words[place]
        begins = word.text if word.text is not None else word.prefix
        if begins.startswith(("-", "(", "!", ")", ",")):
            break
        if could_be_option(word):
            reading.dynamic("find")
        starts.append(word)
        place += 1
    starts = starts or [Word(text=".")]
    for word in starts:
        reading.reads_path(word, "find")
    narrows = removes = False
    while place < len(words):
        word = words[place]
        text = word.text
        place += 1
        if text is None or word.glob:
            reading.dynamic("find")
        elif text in _FIND_COMMANDS:
            inner: list[Word] = []
            while place < len(words) and words[place].text not in (";", "+"):
                inner.append(words[place])
                place += 1
            place += 1
            removes = removes or _removes(inner)
            reading.commands.append(tuple(_found(one, text, starts) for one in inner))
        elif text in _FIND_WRITES:
            if place < len(words):
                reading.writes_path(words[place], "find")
            place += _FIND_WRITES[text]
        elif text == "-delete":
            removes = True
            for one in starts:
                reading.writes_path(one, "find")
        elif text in _FIND_READS:
            if place < len(words):
                reading.reads_path(words[place], "find")
            place += 1
        elif text in _FIND_VALUES:
            value = words[place].text if place < len(words) else None
            narrows = narrows or (text in _FIND_NARROWS and value not in (None, "*", ".*", "*.*"))
            if place < len(words) and text not in _FIND_NARROWS and words[place].text is None:
                reading.dynamic("find")
            place += 1
        elif text not in _FIND_PLAIN:
            reading.unclear(f"What {shown(text)} does to find is not known here.")
    if removes and not narrows:
        for word in starts:
            if is_critical(word, at.folders, at.home, at.table):
                critical(reading, f"find removes all below {shown(word.text or '')}.")


def _removes(words: list[Word]) -> bool:
    return any(
        word.text is not None and word.text.rpartition("/")[2] in ("rm", "shred", "unlink")
        for word in words
    )


def _found(word: Word, action: str, starts: list[Word]) -> Word:
    """Return a word of `-exec` with `{}` as what find puts there: a path below a start."""
    if word.text is None or "{}" not in word.text:
        return word
    if word.text != "{}" or action.endswith("dir") or len(starts) != 1 or starts[0].text is None:
        return Word(text=None, prefix=word.text.partition("{}")[0])
    if starts[0].text.startswith("-") or starts[0].glob:
        return Word(text=None)
    return Word(text=starts[0].text.rstrip("/") + "/**", glob=True)


_FIND_COMMANDS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES: Final = {"-fprint": 1, "-fprint0": 1, "-fls": 1, "-fprintf": 2}
_FIND_READS: Final = frozenset({"-newer", "-anewer", "-cnewer", "-samefile", "-files0-from"})
_FIND_NARROWS: Final = frozenset(
    {"-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex",
     "-lname", "-ilname"}
)  # fmt: skip
_FIND_VALUES: Final = _FIND_NARROWS | frozenset(
    {"-maxdepth", "-mindepth", "-type", "-xtype", "-size", "-mtime", "-atime", "-ctime", "-mmin",
     "-amin", "-cmin", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum", "-regextype",
     "-printf", "-newermt", "-newerct", "-newerat", "-used", "-fstype", "-context"}
)  # fmt: skip
_FIND_PLAIN: Final = frozenset(
    {"-print", "-print0", "-ls", "-prune", "-quit", "-depth", "-d", "-daystart", "-empty",
     "-executable", "-readable", "-writable", "-follow", "-mount", "-xdev", "-noleaf", "-nouser",
     "-nogroup", "-true", "-false", "-o", "-or", "-a", "-and", "-not", "!", "(", ")", ",",
     "-warn", "-nowarn", "-ignore_readdir_race", "-help", "--help", "-version", "--version"}
)  # fmt: skip


def _tar(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `tar`: the first word may be its options without a dash."""
    taken = list(words)
    if taken and taken[0].text and re.fullmatch(r"[A-Za-z]+", taken[0].text):
        # In the old form the values follow in the order of the letters (tar(1)).
        options: list[Word] = []
        rest = taken[1:]
        for letter in taken[0].text:
            option = profile.options.get(f"-{letter}")
            options.append(Word(text=f"-{letter}"))
            if option is not None and option.value == ":":
                options.append(rest.pop(0) if rest else Word(text=None))
        taken = options + rest
    operands = read_options(profile, taken, reading)
    name = profile.name
    archives = [value for option, value in reading.options if option in ("-f", "--file") and value]
    folders = [
        value for option, value in reading.options if option in ("-C", "--directory") and value
    ]
    makes = reading.has("-c", "-r", "-u", "-A", "--create", "--append", "--update",
                        "--catenate", "--concatenate")  # fmt: skip
    takes = reading.has("-x", "--extract", "--get")
    if not (makes or takes or reading.has("-t", "-d", "--list", "--diff", "--compare")):
        reading.unclear("What tar is to do is not understood.")
    if reading.has("--delete", "--remove-files"):
        reading.unclear("tar is told to remove.")
    if takes and reading.has("-P", "--absolute-names"):
        reading.unclear("tar extracts to wherever the archive says.")
    for archive in archives:
        if archive.text is not None and ":" in archive.text.partition("/")[0]:
            reading.doubt(
                CommandKind.NETWORK, "command_network", "tar speaks to the host of its archive."
            )
        if makes and archive.text != "-":
            reading.writes_path(archive, name)
        else:
            reading.reads_path(archive, name)
    if takes and not reading.has("-O", "--to-stdout"):
        for folder in folders or [Word(text=".")]:
            reading.writes_path(folder, name)
    elif makes:
        base = situated(at, folders)
        for word in operands:
            reading.reads_path(_within(word, base), name)


def situated(at: Situation, folders: list[Word]) -> str | None:
    """Return the folder that operands are relative to, "" for where it runs."""
    if not folders:
        return ""
    last = folders[-1]
    return last.text if len(folders) == 1 and not last.glob else None


def _within(word: Word, base: str | None) -> Word:
    if word.text is None or word.text.startswith("/") or base == "":
        return word
    if base is None:
        return Word(text=None)
    return Word(text=f"{base}/{word.text}", glob=word.glob)


# ---------------------------------------------------------------- bash itself


def _builtin(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    reading.reasons.clear()
    reading.doubt(
        CommandKind.UNKNOWN,
        "command_redefines",
        f"{profile.name} changes what a later name means, or runs a text.",
    )


def _shell(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    for word in words:
        if word.text is None or not word.text.startswith("-"):
            if word.text is not None:
                reading.reads.append(word)
            return


SPECIALS: Final[Mapping[str, Special]] = {
    "builtin": _builtin,
    "dd": _dd,
    "find": _find,
    "jq": _jq,
    "mode": _mode,
    "names": _names,
    "printf": _printf,
    "rm": _rm,
    "set": _set,
    "shell": _shell,
    "tar": _tar,
    "target": _target,
    "test": _test,
}
