"""The two languages that a reader's words are written in: sed's and awk's.

Read only as far as to prove that a program reads, or which file it writes. What is
not proven is not understood.
"""

from __future__ import annotations

import re
from typing import Final

from ._shell_model import CommandKind, Word
from ._shell_special import Situation
from ._shell_table import Profile, Reading, read_operands, read_options


class _Unclear(Exception):
    """A program that is not understood: `args[0]` says why."""


def read_sed(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `sed`: its script is in `-e` or in the first operand."""
    operands = read_options(profile, words, reading)
    given = [value for name, value in reading.options if name in ("-e", "--expression")]
    scripts = [value for value in given if value is not None]
    if scripts:
        placed = operands
    elif reading.has("-f", "--file"):
        placed = [Word(text=""), *operands]
    else:
        scripts, placed = operands[:1], operands
    if any(script.text is None for script in scripts):
        reading.dynamic("sed")
    else:
        _sed_script("".join(f"{script.text}\n" for script in scripts), reading)
    read_operands(profile, placed, reading)


def _sed_script(text: str, reading: Reading) -> None:
    try:
        _Sed(text, reading).whole()
    except _Unclear as error:
        reading.unclear(error.args[0])


_SED_ADDRESS: Final = re.compile(r"[0-9]+(?:~[0-9]+)?|\$|\+[0-9]+|~[0-9]+")
_SED_PLAIN: Final = frozenset("pdDhHgGxnN=PFz")
_SED_NUMBER: Final = frozenset("qQlL")


class _Sed:
    """A script of sed, command by command (GNU sed manual, section 3)."""

    __slots__ = ("_at", "_reading", "_text")

    def __init__(self, text: str, reading: Reading) -> None:
        self._text = text
        self._at = 0
        self._reading = reading

    def whole(self) -> None:
        text = self._text
        while True:
            self._skip(" \t\n;")
            if self._at >= len(text):
                return
            self._address()
            char = text[self._at : self._at + 1]
            self._at += 1
            if char in _SED_PLAIN:
                self._end()
            elif char in ("{", "}"):
                continue
            elif char == "#":
                self._line()
            elif char in _SED_NUMBER:
                self._skip(" \t0123456789")
                self._end()
            elif char in ("b", "t", "T", ":"):
                self._label()
            elif char in ("a", "i", "c"):
                self._added()
            elif char == "s":
                self._substitute()
            elif char == "y":
                self._part(mark := self._mark())
                self._part(mark)
                self._end()
            elif char in ("r", "R"):
                self._file(writes=False)
            elif char in ("w", "W"):
                self._file(writes=True)
            elif char == "e":
                self._runs()
            else:
                raise _Unclear("A command of sed is not understood.")

    def _skip(self, chars: str) -> None:
        while self._at < len(self._text) and self._text[self._at] in chars:
            self._at += 1

    def _address(self) -> None:
        for _ in range(2):
            self._skip(" \t")
            text = self._text
            if found := _SED_ADDRESS.match(text, self._at):
                self._at = found.end()
            elif text[self._at : self._at + 1] == "/":
                self._at += 1
                self._part("/")
                self._skip("IM")
            elif text[self._at : self._at + 1] == "\\":
                self._at += 1
                self._part(self._mark())
                self._skip("IM")
            self._skip(" \t")
            if text[self._at : self._at + 1] != ",":
                break
            self._at += 1
        self._skip(" \t!")

    def _mark(self) -> str:
        mark = self._text[self._at : self._at + 1]
        if not mark or mark in "\\\n":
            raise _Unclear("A pattern of sed is not understood.")
        self._at += 1
        return mark

    def _part(self, mark: str) -> None:
        """Go behind the next mark; a backslash keeps one from counting."""
        text = self._text
        while self._at < len(text) and text[self._at] != mark:
            self._at += 2 if text[self._at] == "\\" else 1
        if self._at >= len(text):
            raise _Unclear("A pattern of sed has no end.")
        self._at += 1

    def _end(self) -> None:
        self._skip(" \t")
        char = self._text[self._at : self._at + 1]
        if char not in ("", "\n", ";", "}", "#"):
            raise _Unclear("A command of sed is not understood.")

    def _line(self) -> str:
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        line, self._at = self._text[self._at : end], end
        return line

    def _label(self) -> None:
        self._skip(" \t")
        found = re.compile(r"[A-Za-z0-9_.]*").match(self._text, self._at)
        self._at = found.end() if found else self._at
        self._end()

    def _added(self) -> None:
        """Go behind the text of `a`, `i` or `c`: a backslash carries it on."""
        while self._line().endswith("\\"):
            self._at += 1
            if self._at >= len(self._text):
                return

    def _substitute(self) -> None:
        mark = self._mark()
        self._part(mark)
        self._part(mark)
        while True:
            char = self._text[self._at : self._at + 1]
            if char and char in "gpiImM0123456789":
                self._at += 1
            elif char == "e":
                self._runs()
                self._at += 1
            elif char == "w":
                self._at += 1
                self._file(writes=True)
                return
            else:
                self._end()
                return

    def _runs(self) -> None:
        self._reading.doubt(CommandKind.RUNNER, "command_runner", "sed runs a command by 'e'.")
        self._line()

    def _file(self, *, writes: bool) -> None:
        path = Word(text=self._line().strip(" \t"))
        if writes:
            self._reading.writes_path(path, "sed")
        else:
            self._reading.reads_path(path, "sed")


def read_awk(profile: Profile, words: tuple[Word, ...], at: Situation, reading: Reading) -> None:
    """Read `awk`: its program is the first operand."""
    operands = read_options(profile, words, reading)
    if not operands:
        return
    program, *files = operands
    if program.text is None or program.glob:
        reading.dynamic(profile.name)
    else:
        try:
            _awk_program(program.text, reading)
        except _Unclear as error:
            reading.doubt(CommandKind.INTERPRETER, "command_interpreter", error.args[0])
    # `name=value` between the files sets a variable.
    paths = [
        word for word in files if word.text is None or not re.match(r"[A-Za-z_]\w*=", word.text)
    ]
    read_operands(profile, [program, *paths], reading)


_AWK: Final = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n|\#[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*")
    |(?P<number>[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<end>[;\n{}])
    |(?P<append>>>)
    |(?P<op>\|\||&&|[-+*/%^=!<>]=|\*\*|\+\+|--|[-+*/%^=!<>|&~?:,$()\[\]@])""",
    re.VERBOSE,
)
# No `/` or backslash in brackets: one awk ends the pattern there, another does not.
_AWK_PATTERN: Final = re.compile(r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?[^\]\n/\\]*\])*/")
_AWK_HARMLESS: Final = re.compile(r"[^|>@]*")
_AWK_CALLS: Final = re.compile(r"system|getline")
# After these, a `/` divides. After anything else it opens a pattern.
_AWK_WORDS: Final = frozenset(
    {"print", "printf", "return", "in", "else", "do", "if", "while", "for", "case", "getline"}
)


def _awk_program(text: str, reading: Reading) -> None:
    """Prove that a program runs nothing and writes to no file but a named one.

    `>` outside of `print` compares; in a `print`, even in parentheses, it is taken
    for a redirect, which can only be too strict.
    """
    if _AWK_CALLS.search(text):
        raise _Unclear("awk runs or reads something else by 'system' or 'getline'.")
    if _AWK_HARMLESS.fullmatch(text):
        return
    at = 0
    before = ""
    is_value = prints = False
    while at < len(text):
        if text[at] == "/" and before in (")", "++", "--"):
            raise _Unclear("A program of awk is not understood.")
        if text[at] == "/" and not is_value:
            found = _AWK_PATTERN.match(text, at)
            if found is None:
                raise _Unclear("A pattern of awk has no end.")
            at, is_value, before = found.end(), True, ""
            continue
        found = _AWK.match(text, at)
        if found is None:
            raise _Unclear("A program of awk is not understood.")
        kind, part = found.lastgroup, found[0]
        at = found.end()
        if kind == "space":
            continue
        before = part
        if kind == "name":
            prints = prints or part in ("print", "printf")
            is_value = part not in _AWK_WORDS
            continue
        if kind == "end":
            prints = is_value = False
            continue
        if part in ("|", "@"):
            raise _Unclear("awk runs another program.")
        if prints and part in (">", ">>"):
            at = _awk_target(text, at, reading)
        is_value = kind in ("string", "number") or part in ("]", "$")


_AWK_TARGET: Final = re.compile(r'[ \t]*"([A-Za-z0-9_./+-]+)"[ \t]*(?=[;\n}]|\Z)')


def _awk_target(text: str, at: int, reading: Reading) -> int:
    found = _AWK_TARGET.match(text, at)
    if found is None or found[1].startswith("/inet"):
        raise _Unclear("awk writes to a file that only a run can tell.")
    if found[1] not in ("/dev/stdout", "/dev/stderr", "-"):
        reading.writes_path(Word(text=found[1]), "awk")
    return found.end()
