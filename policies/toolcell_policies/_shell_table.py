"""The table of commands, `shell_commands.toml`, and how a command's words are read by it.

Options are read as GNU's getopt_long reads them: anywhere before `--`, short ones
in one word, long ones cut short as long as they stay clear. An option cut short is
the most dangerous one that it could be. An option that a row does not name is not
understood, unless the row says `lax`: then the command has none that writes, runs
or connects but those that the row names. A word that only a run can tell is taken
for an option wherever it could be one, unless the row is lax.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ._shell_model import CommandKind, Word
from ._text import shown

DATA_FILE: Final = "shell_commands.toml"

# What an option does, by the key it stands under, the most dangerous first.
ROLES: Final = ("run", "network", "write", "edit", "chdir", "script", "read", "text", "plain")
_KEYS: Final = frozenset(
    {*ROLES, "kind", "operands", "lax", "default", "touches", "subcommands", "harmless", "special",
     "rest"}
)  # fmt: skip
_OPERAND_ROLES: Final = frozenset({"read", "write", "text", "source", "program"})


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its role, and whether a value follows (`:`) or may be attached (`?`)."""

    role: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One row of the table."""

    name: str
    kind: CommandKind
    options: Mapping[str, Option]
    # The role of each operand, the last one for all that follow; `source` is read,
    # and what is named last is written.
    operands: tuple[str, ...]
    lax: bool
    # What it reads where no operand is named.
    default: str | None
    # What it writes besides its operands.
    touches: tuple[str, ...]
    # Its first operand is a command with a row of its own: "git log".
    subcommands: bool
    # With these words alone, it only reads.
    harmless: frozenset[str]
    # The name of the code that reads its words.
    special: str | None
    # Options end at the first operand.
    rest: bool


@dataclass(slots=True)
class Reading:
    """What the words of one command say, as they are read."""

    kinds: set[CommandKind] = field(default_factory=set)
    # Code and sentence.
    reasons: list[tuple[str, str]] = field(default_factory=list)
    reads: list[Word] = field(default_factory=list)
    writes: list[Word] = field(default_factory=list)
    operands: list[Word] = field(default_factory=list)
    # Options as they were resolved, with their values.
    options: list[tuple[str, Word | None]] = field(default_factory=list)
    # The folder that it changes to first.
    chdir: Word | None = None
    # Commands that it runs: their words and how they are run.
    commands: list[tuple[Word, ...]] = field(default_factory=list)
    # Shell text that it runs.
    texts: list[Word] = field(default_factory=list)

    def doubt(self, kind: CommandKind, code: str, text: str) -> None:
        """Note a kind and why."""
        self.kinds.add(kind)
        if (code, text) not in self.reasons:
            self.reasons.append((code, text))

    def unclear(self, text: str) -> None:
        """Note that the command is not understood."""
        self.doubt(CommandKind.UNKNOWN, "command_not_understood", text)

    def dynamic(self, name: str) -> None:
        """Note a word that only a run can tell, where it matters."""
        self.doubt(
            CommandKind.UNKNOWN,
            "command_dynamic",
            f"What {name} is given is only known when it runs: write it out, or begin it "
            "with a folder such as './'.",
        )

    def reads_path(self, word: Word, name: str) -> None:
        """Note a path that is read; `-` is the input."""
        if word.text != "-" and not word.pipe:
            self.reads.append(word)
            if word.text is None:
                self.dynamic(name)

    def writes_path(self, word: Word, name: str) -> None:
        """Note a path that is written."""
        if not word.pipe:
            self.kinds.add(CommandKind.WRITE)
            self.writes.append(word)
            if word.text is None:
                self.dynamic(name)

    def has(self, *names: str) -> bool:
        """Whether one of these options was given."""
        return any(option in names for option, _ in self.options)


def could_be_option(word: Word) -> bool:
    """Whether a word that only a run can tell may begin with a dash."""
    if word.text is None:
        return not word.pipe and (not word.prefix or word.prefix[0] == "-")
    return word.glob and word.text[0] in "*?[-"


def read_options(profile: Profile, words: Sequence[Word], reading: Reading) -> list[Word]:
    """Read a command's options into `reading`; return the operands.

    With `rest`, everything from the first operand on is an operand.
    """
    operands: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text if word.text is not None else word.prefix
        if text == "--" and word.text is not None:
            operands += words[at:]
            break
        if len(text) < 2 or text[0] != "-" or (word.glob and could_be_option(word)):
            if could_be_option(word) and not profile.lax:
                reading.dynamic(profile.name)
            operands.append(word)
            if profile.rest:
                operands += words[at:]
                break
            continue
        is_known = word.text is not None
        if text.startswith("--") or (text in profile.options and is_known):
            at = _long(profile, word, text, words, at, reading)
        else:
            at = _cluster(profile, word, text, words, at, reading)
    return operands


def _long(
    profile: Profile, word: Word, text: str, words: Sequence[Word], at: int, reading: Reading
) -> int:
    name, equals, attached = text.partition("=")
    if word.text is None and not equals:
        reading.dynamic(profile.name)
        return at
    option = profile.options.get(name)
    if option is None and name.startswith("--"):
        options = profile.options
        longer = [options[one] for one in options if one.startswith(name)]
        if longer:
            option = min(longer, key=lambda one: ROLES.index(one.role))
            name = next(one for one in options if options[one] is option and one.startswith(name))
    if option is None:
        if not profile.lax:
            reading.unclear(f"What {shown(name)} does to {profile.name} is not known here.")
        return at
    value: Word | None = None
    if equals:
        value = Word(text=None) if word.text is None else Word(text=attached, glob=word.glob)
    elif option.value == ":":
        value = words[at] if at < len(words) else Word(text=None)
        at += 1
    _apply(profile, name, option, value, reading)
    return at


def _cluster(
    profile: Profile, word: Word, text: str, words: Sequence[Word], at: int, reading: Reading
) -> int:
    place = 1
    while place < len(text):
        name = "-" + text[place]
        place += 1
        option = profile.options.get(name)
        if option is None and name[1].isdigit() and "-0" in profile.options:
            option, name = profile.options.get("-0"), "-0"
        if option is None:
            if not profile.lax:
                reading.unclear(f"What {shown(name)} does to {profile.name} is not known here.")
            continue
        value: Word | None = None
        if option.value and place < len(text):
            value = Word(text=text[place:], glob=word.glob)
            if word.text is None:
                value = Word(text=None, prefix=text[place:])
            place = len(text)
        elif option.value and word.text is None:
            value, place = Word(text=None), len(text)
        elif option.value == ":":
            value = words[at] if at < len(words) else Word(text=None)
            at += 1
        _apply(profile, name, option, value, reading)
        if option.value and place >= len(text):
            return at
    if word.text is None:
        reading.dynamic(profile.name)
    return at


def _apply(
    profile: Profile, name: str, option: Option, value: Word | None, reading: Reading
) -> None:
    reading.options.append((name, value))
    role = option.role
    if role == "run":
        reading.doubt(
            CommandKind.RUNNER, "command_runner", f"{profile.name} {name} runs another program."
        )
    elif role == "network":
        reading.doubt(
            CommandKind.NETWORK,
            "command_network",
            f"{profile.name} {name} speaks to another host.",
        )
    elif role in ("read", "script") and value is not None:
        reading.reads_path(value, profile.name)
    elif role == "write" and value is not None:
        if value.text not in ("-", "/dev/stdout"):
            reading.writes_path(value, profile.name)
    elif role == "write":
        reading.kinds.add(CommandKind.WRITE)
    elif role == "chdir" and value is not None:
        reading.chdir = value


def read_operands(profile: Profile, operands: Sequence[Word], reading: Reading) -> None:
    """Give each operand the role that the row has for it."""
    reading.operands += operands
    roles = profile.operands
    texts = any(profile.options[name].role in ("text", "script") for name, _ in reading.options)
    if texts and roles[0] in ("text", "program"):
        roles = roles[1:] or ("read",)
    edits = any(profile.options[name].role == "edit" for name, _ in reading.options)
    last = len(operands) - 1
    for at, word in enumerate(operands):
        role = roles[min(at, len(roles) - 1)]
        if role == "source":
            role = "write" if at == last and last else "read"
        if role == "write":
            reading.writes_path(word, profile.name)
        elif role == "read":
            reading.reads_path(word, profile.name)
            if edits:
                reading.writes_path(word, profile.name)
    if profile.default is not None and not any(
        roles[min(at, len(roles) - 1)] == "read" for at in range(len(operands))
    ):
        reading.reads.append(Word(text=profile.default))
        if edits:
            reading.writes_path(Word(text=profile.default), profile.name)
    for path in profile.touches:
        reading.writes_path(Word(text=path), profile.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All rows, by the name of the command."""

    commands: Mapping[str, Profile]
    # Commands that run the command that follows them.
    wrappers: Mapping[str, Profile]
    # How many operands of its own a wrapper has before the command.
    wrapper_operands: Mapping[str, int]
    # Wrappers that change who runs the command, or where: never less than level 3.
    raising: frozenset[str]
    # Variables that nothing can be run or found by.
    harmless_variables: frozenset[str]
    harmless_prefixes: tuple[str, ...]
    # Variables that say what is run: setting one, however it is done, raises.
    dangerous_variables: frozenset[str]
    dangerous_prefixes: tuple[str, ...]
    # Where a command lies whose name is looked up here.
    program_folders: frozenset[str]
    system_folders: frozenset[str]
    disks: tuple[str, ...]


@functools.cache
def default_table() -> Table:
    """Return the table that ships with this package, loaded on first use."""
    from importlib.resources import files  # late: slow to import, and rarely needed

    return parse_table((files(__package__) / DATA_FILE).read_text(encoding="utf-8"))


def parse_table(text: str) -> Table:
    """Return the table written in this TOML text.

    Raises:
        ValueError: it is not TOML, or a row has a word that nobody knows: a table
            that cannot be read whole is not read at all.
    """
    import tomllib  # late: only the first shell command of a process needs it

    data = tomllib.loads(text)
    commands: dict[str, Profile] = {}
    for names, row in data["command"].items():
        for name in _names(names):
            commands[name] = _profile(name, row)
    wrappers: dict[str, Profile] = {}
    counts: dict[str, int] = {}
    raising: set[str] = set()
    for names, row in data["wrapper"].items():
        own = dict(row)
        count, raises = own.pop("before", 0), own.pop("raises", False)
        for name in _names(names):
            wrappers[name] = _profile(name, {"kind": "read", "rest": True, **own})
            counts[name] = count
            if raises:
                raising.add(name)
    variables, places = data["variables"], data["places"]
    return Table(
        commands=commands,
        wrappers=wrappers,
        wrapper_operands=counts,
        raising=frozenset(raising),
        harmless_variables=frozenset(variables["harmless"].split()),
        harmless_prefixes=tuple(variables["harmless_prefixes"].split()),
        dangerous_variables=frozenset(variables["dangerous"].split()),
        dangerous_prefixes=tuple(variables["dangerous_prefixes"].split()),
        program_folders=frozenset(places["programs"].split()),
        system_folders=frozenset(places["system"].split()),
        disks=tuple(places["disks"].split()),
    )


def _names(names: str) -> list[str]:
    """Return the names of a row: `cat tac`, or `git log` with `git: log show`."""
    base, colon, rest = names.partition(": ")
    if colon and " " not in base:
        return [f"{base} {one}" for one in rest.split()]
    return names.split()


def _profile(name: str, row: Mapping[str, Any]) -> Profile:
    if unknown := row.keys() - _KEYS:
        raise ValueError(f"{name}: unknown {', '.join(sorted(unknown))}")
    options: dict[str, Option] = {}
    for role in ROLES:
        for word in row.get(role, "").split():
            flag = word.rstrip(":?")
            if not flag.startswith("-"):
                raise ValueError(f"{name}: an option begins with a dash, not {word}")
            options.setdefault(flag, Option(role, word[len(flag) :]))
    operands = tuple(row.get("operands", "text").split())
    if unknown := set(operands) - _OPERAND_ROLES:
        raise ValueError(f"{name}: unknown {', '.join(sorted(unknown))}")
    return Profile(
        name=name,
        kind=CommandKind(row["kind"]),
        options=options,
        operands=operands,
        lax=row.get("lax", False),
        default=row.get("default"),
        touches=tuple(row.get("touches", "").split()),
        subcommands=row.get("subcommands", False),
        harmless=frozenset(row.get("harmless", "").split()),
        special=row.get("special"),
        rest=row.get("rest", False) or row.get("subcommands", False),
    )
