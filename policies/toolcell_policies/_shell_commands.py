"""One command, its wrappers taken off: what its words say that it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ._shell_git import GIT
from ._shell_model import CommandKind, Word
from ._shell_programs import read_awk, read_sed
from ._shell_special import SPECIALS, Situation, Special
from ._shell_table import Profile, Reading, read_operands, read_options
from ._shell_wrappers import program_name
from ._text import shown

_ASKED: Final = {
    CommandKind.NETWORK: ("command_network", "{} speaks to another host."),
    CommandKind.INTERPRETER: (
        "command_interpreter",
        "{} runs a program in a language that is not read here.",
    ),
    CommandKind.RUNNER: ("command_runner", "{} runs code of the project or another program."),
    CommandKind.UNKNOWN: ("command_unknown", "What {} does is not known here."),
    CommandKind.REMOVAL_CRITICAL: (
        "removal_critical",
        "{} makes a disk empty. Nothing overrides this.",
    ),
}


def read_command(argv: tuple[Word, ...], situation: Situation) -> Reading:
    """Return what a command does, as far as its words tell."""
    reading = Reading()
    first = argv[0]
    if first.text is None or first.glob:
        reading.doubt(
            CommandKind.UNKNOWN,
            "command_dynamic",
            "Which command this is can only be told when it runs: write its name.",
        )
        return reading
    name = program_name(first, situation.table)
    if name is None:
        reading.doubt(
            CommandKind.RUNNER,
            "command_runner",
            f"{shown(first.text)} is a program by its path: what it holds is not known.",
        )
        return reading
    profile = situation.table.commands.get(name)
    if profile is None:
        _ask(CommandKind.UNKNOWN, name, reading)
        return reading
    if len(argv) == 2 and argv[1].text in profile.harmless:
        reading.kinds.add(CommandKind.READ)
        return reading
    words = argv[1:]
    if profile.subcommands:
        return _read_subcommand(profile, words, situation, reading)
    _read_words(profile, words, situation, reading)
    return reading


def _read_subcommand(
    profile: Profile, words: tuple[Word, ...], situation: Situation, reading: Reading
) -> Reading:
    before = Reading()
    operands = read_options(profile, words, before)
    verb = operands[0] if operands else None
    row = None
    if verb is not None and verb.text is not None and not verb.glob:
        row = situation.table.commands.get(f"{profile.name} {verb.text}")
    if row is None:
        _ask(profile.kind, profile.name, reading)
    else:
        if before.chdir is not None:
            situation = situation.moved(before.chdir)
            reading.chdir = before.chdir
        _read_words(row, tuple(operands[1:]), situation, reading)
    reading.kinds |= before.kinds
    reading.reasons += before.reasons
    return reading


def _read_words(
    profile: Profile, words: tuple[Word, ...], situation: Situation, reading: Reading
) -> None:
    reading.kinds.add(profile.kind)
    if profile.kind in _ASKED:
        _ask(profile.kind, profile.name, reading)
    special = _SPECIALS.get(profile.special or "")
    if special is not None:
        special(profile, words, situation, reading)
    else:
        read_operands(profile, read_options(profile, words, reading), reading)


def _ask(kind: CommandKind, name: str, reading: Reading) -> None:
    code, text = _ASKED[kind]
    reading.doubt(kind, code, text.format(name))


_SPECIALS: Final[Mapping[str, Special]] = {**SPECIALS, **GIT, "awk": read_awk, "sed": read_sed}
