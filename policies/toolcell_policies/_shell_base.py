"""What every command of a text shares: the shell's state, its words, redirects and segments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ._shell_draft import Draft
from ._shell_expand import expand, expand_value
from ._shell_model import SEGMENTS_MAX, CommandKind, Segment, Word
from ._shell_places import Folders, is_disk, is_nothing, is_socket
from ._shell_special import critical
from ._shell_state import State, danger
from ._shell_syntax import Piece, RawWord, Redirect, Sequence
from ._shell_table import Reading, Table, default_table

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=")
_NUMBER: Final = re.compile(r"-?[0-9]+")


class OverCap(Exception):
    """There are more segments than are read."""


class Base:
    """Holds what is known of the shell, and collects the segments."""

    def __init__(self, *, env: dict[str, str], home: str) -> None:
        self.segments: list[Segment] = []
        self._table: Table = default_table()
        self._home = home
        variables: dict[str, Word | None] = {name: Word(text=text) for name, text in env.items()}
        variables["HOME"] = Word(text=home)
        self._state = State(variables)
        # Every variable that was set and how often the folder was changed, in order.
        self._assigned: list[str] = []
        self._moves = 0
        self._wrappers: tuple[str, ...] = ()

    def _apart(self, commands: Sequence, at: Folders) -> None:
        """Walk commands in a subshell: nothing of it stays. `Walk` does it."""

    def _draft(self, source: str, at: Folders) -> Draft:
        return Draft(source=source, at=at, wrappers=self._wrappers)

    def _emit(self, draft: Draft, within: Folders | None = None) -> None:
        """Add a segment; `within` is where its command runs, if not where the shell is."""
        if len(self.segments) >= SEGMENTS_MAX:
            raise OverCap
        state = self._state
        within = draft.at if within is None else within
        self.segments.append(draft.done(state.taints, state.exported, within))

    def _emit_found(self, draft: Draft) -> None:
        """Add a segment for what belongs to no command, if there is anything to tell."""
        if not draft.is_empty():
            self._emit(draft)

    # ------------------------------------------------------------ words

    def _expanded(self, word: RawWord) -> tuple[Word, ...]:
        return expand(word, self._state.lookup, self._state.home())

    def _pieces(self, pieces: Iterable[Piece], reading: Reading, at: Folders) -> None:
        """Walk what runs to make a word, and note what it sets or risks."""
        for piece in pieces:
            if piece.body is not None:
                self._apart(piece.body, at)
            if piece.risk is not None and not self._is_number(piece):
                reading.unclear(piece.risk)
            for name in piece.assigns:
                self._assign(name, None, reading)

    def _is_number(self, piece: Piece) -> bool:
        """Whether arithmetic has only variables that hold numbers."""
        values = [self._state.lookup(name) for name in piece.assigns]
        return bool(values) and all(
            value is not None and value.text is not None and _NUMBER.fullmatch(value.text)
            for value in values
        )

    def _assign(
        self, name: str, value: Word | None, reading: Reading, *, exports: bool = False
    ) -> None:
        """Set a variable in this shell, and note what it does to all that follows."""
        exported = self._state.assign(name, value, exports=exports)
        self._assigned.append(name)
        if taint := danger(name, self._table, exported=exported):
            self._state.taints += (taint,)
            reading.doubt(CommandKind.UNKNOWN, *taint)

    def _assignment(self, raw: RawWord, reading: Reading) -> tuple[str, Word] | None:
        """Return the variable that a word sets and its value; None: it sets none."""
        first, *rest = raw.pieces
        found = None if first.quoted else _ASSIGNMENT.match(first.text or "")
        if found is None:
            return None
        pieces = (Piece((first.text or "")[found.end() :]), *rest)
        value = expand_value(
            tuple(piece for piece in pieces if piece.text != "" or piece.quoted),
            self._state.lookup,
            self._state.home(),
        )
        if found[2] is not None and not re.fullmatch(r"\[[0-9]*\]", found[2]):
            reading.unclear("A subscript can run what it holds.")
        return found[1], value if not found[3] and found[2] is None else Word(text=None)

    # ------------------------------------------------------------ redirects

    def _redirects(self, redirects: Iterable[Redirect], draft: Draft) -> None:
        """Note what redirects read and write, from where the shell is."""
        reading = draft.own
        for redirect in redirects:
            if redirect.target is None:
                continue
            self._pieces(redirect.target.pieces, reading, draft.at)
            operator = redirect.operator
            if operator in ("<<", "<<<"):
                draft.heredoc = True
                continue
            words = self._expanded(redirect.target)
            target = words[0] if len(words) == 1 else Word(text=None)
            text = target.text
            if operator[-1] == "&" and text is not None and re.fullmatch(r"[0-9]*-?", text):
                continue
            if text is not None and is_nothing(text):
                continue
            if text is not None and is_socket(text):
                draft.redirected = True
                reading.doubt(
                    CommandKind.NETWORK, "command_network", "A redirect speaks to another host."
                )
            elif operator == "<":
                reading.reads_path(_named_file(target), "a redirect")
            else:
                draft.redirected = True
                reading.writes_path(_named_file(target), "a redirect")
                if is_disk(target, self._table):
                    critical(reading, f"A redirect writes over '{text}'.")


def _named_file(word: Word) -> Word:
    """Return a redirect's target, which is a file even if it is called `-`."""
    return Word(text="./-") if word.text == "-" else word
