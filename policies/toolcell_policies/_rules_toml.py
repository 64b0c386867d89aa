"""Where each key and value of a TOML text stands, so that an error can point at it.

`tomllib` reads the text and gives positions for syntax errors only. What it has accepted is
scanned once more here, for places alone; so the scanner may take validity for granted. A test
holds each place against what `tomllib` read there.
"""

import bisect
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

# One key of a table or one place in an array, from the top of the document down.
Place = tuple[str | int, ...]

_SHOWN_CHARACTERS_MAX: Final = 120
# Parts of a dotted key: `tomllib` takes time by the square of them.
_DOTS_MAX: Final = 64
_QUOTED: Final = re.compile(
    r"""#[^\n]*|\"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)"""
    r"""|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?""",
    re.DOTALL,
)
_NOTHING: Final = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE: Final = re.compile(r"[^,\]}#\n]*[^,\]}#\s]")
# Up to two quotes may stand right before the three that close.
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}'
    r"|'''.*?''''{0,2}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SYNTAX_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class PolicyError(Exception):
    """A rule file that is not in force, because of what stands at one place of it.

    Nothing of such a file is used: mend the place, or take the file away. `str()` is the
    message with its place, and the line with a caret below.
    """

    def __init__(self, file: str, line: int, column: int, message: str, caret_text: str) -> None:
        super().__init__(file, line, column, message, caret_text)
        self.file = file
        # Both count from 1; a column is a character.
        self.line = line
        self.column = column
        self.message = message
        self.caret_text = caret_text

    def __str__(self) -> str:
        return (
            f"{printable(self.file)}:{self.line}:{self.column}: {self.message}\n{self.caret_text}"
        )


@dataclass(frozen=True, slots=True)
class Span:
    """Where a key and its value stand, as offsets into the text."""

    key: tuple[int, int]
    # The same as the key's for a table with a header of its own.
    value: tuple[int, int]


def printable(text: str) -> str:
    """Return the text on one line, with nothing in it that a terminal would act on."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def quoted(text: str) -> str:
    """Return what somebody wrote, in quotes, safe to print and bounded."""
    cut = text[:_SHOWN_CHARACTERS_MAX]
    return f'"{printable(cut)}"' + ("" if len(cut) == len(text) else " (cut)")


def one_of(words: Iterable[str]) -> str:
    """Return `a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


class Document:
    """A TOML text that was read, and where everything in it stands.

    Raises:
        PolicyError: it is not TOML, or is nested deeper than can be read.
    """

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        # As `tomllib` has it: its lines and columns count in this.
        self.text = text.replace("\r\n", "\n")
        self._line_starts = [0, *(one.end() for one in re.finditer("\n", self.text))]
        bare = _QUOTED.sub(lambda one: "s" + "\n" * one[0].count("\n"), self.text)
        for number, line in enumerate(bare.split("\n")):
            if line.count(".") > _DOTS_MAX:
                start = self._line_starts[number]
                raise self.error_at(start, start + 1, f"more than {_DOTS_MAX} names in one key")
        try:
            self.data: dict[str, Any] = tomllib.loads(self.text)
            self._spans = _Scanner(self.text).spans()
        except tomllib.TOMLDecodeError as error:
            raise self._syntax_error(str(error)) from None
        except ValueError:
            raise self.error_at(0, 1, "a number in it is too long to be read") from None
        except RecursionError:
            raise self.error_at(0, 1, "nested too deep to be read") from None

    def _syntax_error(self, message: str) -> PolicyError:
        found = _SYNTAX_PLACE.search(message)
        at = len(self.text)
        if found is not None and found[1] is not None:
            at = self._line_starts[int(found[1]) - 1] + int(found[2]) - 1
        said = message[: found.start()] if found is not None else message
        return self.error_at(at, at + 1, f"not TOML: {printable(said)}")

    def error_at(self, start: int, end: int, message: str) -> PolicyError:
        """Return an error that points from one offset of the text to another."""
        line_start = self._line_starts[self._line(start) - 1]
        line_end = self.text.find("\n", start)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        column = start - line_start
        width = max(1, min(end - start, len(line) - column))
        # A long line is shown from a little before the place on.
        left = 0 if column < _SHOWN_CHARACTERS_MAX else column - 20
        part = line[left : left + _SHOWN_CHARACTERS_MAX]
        shown = "".join(char if char.isprintable() else " " for char in part)
        carets = "^" * max(1, min(width, len(shown) - (column - left)))
        caret_text = f"    {shown}".rstrip() + f"\n    {' ' * (column - left)}{carets}"
        return PolicyError(self.file, self._line(start), column + 1, message, caret_text)

    def _line(self, at: int) -> int:
        return bisect.bisect_right(self._line_starts, at)

    def error(self, place: Place, message: str, *, at_key: bool = False) -> PolicyError:
        """Return an error that points at a value, or at its key."""
        span = self._spans[place]
        return self.error_at(*(span.key if at_key else span.value), message)

    def written(self, place: Place) -> str:
        """Return a value as it is written."""
        start, end = self._spans[place].value
        return self.text[start:end]

    def start_of(self, place: Place) -> tuple[int, int]:
        """Return the line and the column on which a value starts, both from 1."""
        at = self._spans[place].value[0]
        line = self._line(at)
        return line, at - self._line_starts[line - 1] + 1

    def line_of(self, place: Place) -> int:
        """Return the line on which a key or a header stands, from 1."""
        return self._line(self._spans[place].key[0])

    def last_lines(self, depth: int) -> dict[Place, int]:
        """Return the last line of all that stands below each place of this depth."""
        ends: dict[Place, int] = {}
        for place, span in self._spans.items():
            if len(place) >= depth:
                head = place[:depth]
                ends[head] = max(ends.get(head, 0), span.value[1])
        return {head: self._line(max(0, end - 1)) for head, end in ends.items()}


class _Scanner:
    """One pass over a text that `tomllib` has accepted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._spans: dict[Place, Span] = {}
        # How many tables each array of tables has so far.
        self._tables: dict[Place, int] = {}

    def spans(self) -> dict[Place, Span]:
        base: Place = ()
        self._skip(_NOTHING)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                base = self._header()
            else:
                self._pair(base)
            self._skip(_NOTHING)
        return self._spans

    def _skip(self, what: re.Pattern[str]) -> str:
        found = what.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return found[0]

    def _header(self) -> Place:
        start = self._at
        double = self._text.startswith("[[", start)
        self._at += 2 if double else 1
        place: Place = ()
        keys = self._keys()
        self._at += 2 if double else 1
        for number, (name, _) in enumerate(keys, 1):
            place = (*place, name)
            if double and number == len(keys):
                self._tables[place] = self._tables.get(place, 0) + 1
            if place in self._tables:
                place = (*place, self._tables[place] - 1)
            self._note(place, Span((start, self._at), (start, self._at)))
        return place

    def _note(self, place: Place, span: Span) -> None:
        self._spans.setdefault(place, span)

    def _keys(self) -> list[tuple[str, tuple[int, int]]]:
        """Read `a . "b" . c` and the blanks around it."""
        keys: list[tuple[str, tuple[int, int]]] = []
        while True:
            self._skip(_BLANK)
            start = self._at
            is_string = self._text[start] in "\"'"
            written = self._skip(_STRING if is_string else _BARE_KEY)
            name = tomllib.loads(f"x = {written}")["x"] if is_string else written
            keys.append((name, (start, self._at)))
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _pair(self, base: Place) -> None:
        keys = self._keys()
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        start = self._at
        place = base + tuple(name for name, _ in keys)
        self._value(place)
        value = (start, self._at)
        for number, (_, key) in enumerate(keys, len(base) + 1):
            self._note(place[:number], Span(key, value))

    def _value(self, place: Place) -> None:
        opened = self._text[self._at]
        if opened == "[":
            self._array(place)
        elif opened == "{":
            self._table(place)
        else:
            self._skip(_STRING if opened in "\"'" else _BARE_VALUE)

    def _array(self, place: Place) -> None:
        self._at += 1
        number = 0
        while not self._closed("]"):
            start = self._at
            self._value((*place, number))
            span = (start, self._at)
            self._note((*place, number), Span(span, span))
            number += 1

    def _table(self, place: Place) -> None:
        self._at += 1
        while not self._closed("}"):
            self._pair(place)

    def _closed(self, bracket: str) -> bool:
        self._skip(_NOTHING)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_NOTHING)
        if self._text[self._at] != bracket:
            return False
        self._at += 1
        return True
