"""One simple command, judged: its words and wrappers, and where it leaves the shell."""

from __future__ import annotations

import re
from collections.abc import Sequence as Words
from typing import Final

from ._shell_base import Base
from ._shell_commands import read_command
from ._shell_convert import NESTING_MAX, TOO_DEEP, read_syntax
from ._shell_draft import Draft
from ._shell_model import CommandKind, Word
from ._shell_places import Folders, united
from ._shell_special import Situation, moved
from ._shell_state import danger
from ._shell_syntax import RawWord, Sequence, Simple
from ._shell_table import Reading
from ._shell_tree import TEXT_BYTES_MAX, NotUnderstood, expect
from ._shell_wrappers import unwrap
from ._text import shown

# Commands read in one text, those of a loop that was read again included.
_WORK_MAX: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECLARING: Final = frozenset({"declare", "export", "local", "readonly", "typeset"})
_NAMING: Final = frozenset({"getopts", "let", "mapfile", "printf", "read", "readarray", "unset"})
_REDEFINING: Final = frozenset({".", "alias", "enable", "eval", "hash", "source", "trap"})
# Wrappers that leave a builtin where it is.
_INSIDE: Final = frozenset({"builtin", "command", "time"})

# Where a command leaves the shell: if it succeeds, and if it fails.
Outcome = tuple[Folders, Folders]


class Judge(Base):
    """Judges simple commands."""

    def __init__(self, *, env: dict[str, str], home: str) -> None:
        super().__init__(env=env, home=home)
        self._work = 0
        self._nesting = 0
        self._inner_bytes = 0

    def _simple(self, simple: Simple, at: Folders) -> Outcome:
        self._work += 1
        expect(self._work <= _WORK_MAX, "It is too tangled to read.")
        draft = self._draft(simple.source, at)
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        for raw in simple.words:
            self._pieces(raw.pieces, draft.own, at)
            assignment = None if words else self._assignment(raw, draft.own)
            if assignment is not None:
                assignments.append(assignment)
            else:
                words += self._expanded(raw)
        self._redirects(simple.redirects, draft)
        if not words:
            for name, value in assignments:
                self._assign(name, value, draft.own)
            self._emit(draft)
            return at, at
        for name, value in assignments:
            if not (name == "IFS" and words[0].text == "read"):
                self._exports(name, value, draft)
        return self._argv(tuple(words), simple.words, draft)

    def _exports(self, name: str, value: Word, draft: Draft) -> None:
        """Note a variable in the environment of one command."""
        draft.env[name] = value.text
        if taint := danger(name, self._table, exported=True):
            draft.own.doubt(CommandKind.UNKNOWN, *taint)

    def _argv(
        self, words: tuple[Word, ...], raws: Words[RawWord], draft: Draft, *, found: bool = False
    ) -> Outcome:
        """Judge one command: its wrappers, then what is left."""
        at = draft.at
        made = unwrap(words, self._table)
        within = at
        for target in made.chdirs:
            there = Reading()
            there.reads_path(target, "env")
            draft.add(there, within)
            within = moved(within, target)
        # Which wrapper looks from before a change of folder, and which from behind, is not told.
        draft.add(made.reading, united(at, within))
        draft.wrappers += tuple(made.wrappers)
        for name, value in made.env:
            self._exports(name, value, draft)
        if made.text is not None:
            self._text(made.text, draft, within)
            return at, at
        draft.argv = made.argv or words
        first = draft.argv[0]
        draft.executable = first.text if not first.glob else None
        if not made.argv:
            draft.wrappers = draft.wrappers[:-1]
            self._emit(draft, within)
            return at, at
        if draft.executable in self._state.functions:
            text = f"{shown(draft.executable or '')} is a function of this text."
            draft.own.doubt(CommandKind.UNKNOWN, "command_redefines", text)
        situation = Situation(table=self._table, home=self._home, folders=within, found=found)
        told = read_command(made.argv, situation)
        inside = within
        if told.chdir is not None:
            there = Reading()
            inside = moved(within, told.chdir)
            there.reads_path(told.chdir, first.text or "")
            draft.add(there, within)
        draft.add(told, inside)
        in_shell = set(made.wrappers) <= _INSIDE
        if in_shell and draft.executable in _DECLARING:
            self._declare(made.argv, raws, draft.own)
        self._emit(draft, within)
        self._found(told, draft, within)
        return self._after(draft, told) if in_shell else (at, at)

    def _found(self, told: Reading, draft: Draft, within: Folders) -> None:
        """Judge the commands that a command runs: `find -exec`."""
        kept = self._wrappers
        self._wrappers = (*draft.wrappers, draft.executable or "")
        self._nesting += 1
        for command in told.commands:
            inner = self._draft(draft.source, within)
            inner.env = dict(draft.env)
            inner.argv = command
            if self._nesting > NESTING_MAX:
                inner.own.unclear(TOO_DEEP)
                self._emit(inner)
            elif command:
                self._argv(command, (), inner, found=True)
        self._nesting -= 1
        self._wrappers = kept

    # ------------------------------------------------------------ texts

    def _text(self, text: Word, draft: Draft, within: Folders) -> None:
        """Judge a text for another shell, command by command."""
        shell = draft.wrappers[-1]
        if text.text is None:
            draft.own.dynamic(shell)
        else:
            try:
                commands = self._read(text.text)
            except NotUnderstood as error:
                draft.own.unclear(f"The text of {shell} is not understood: {error.args[0]}")
            else:
                if not commands.items:
                    draft.own.unclear(f"The text of {shell} is empty.")
                self._inner(commands, draft, within)
        if not draft.is_empty():
            self._emit(draft, within)

    def _read(self, text: str) -> Sequence:
        self._inner_bytes += len(text)
        expect(self._nesting < NESTING_MAX and self._inner_bytes <= TEXT_BYTES_MAX, TOO_DEEP)
        return read_syntax(text, nesting=self._nesting)

    def _inner(self, commands: Sequence, draft: Draft, within: Folders) -> None:
        kept, outer = self._state, self._wrappers
        self._state, self._wrappers = kept.copy(), draft.wrappers
        # What is not exported is not there; what its caller set it to is not known.
        known = kept.exported | draft.env
        self._state.variables = {
            name: Word(text=value) if value is not None else None for name, value in known.items()
        }
        self._state.variables.setdefault("HOME", kept.lookup("HOME"))
        self._state.exported = known
        self._state.taints += tuple(draft.own.reasons)
        self._nesting += 1
        self._apart(commands, within)
        self._nesting -= 1
        self._state, self._wrappers = kept, outer

    # ------------------------------------------------------------ builtins

    def _after(self, draft: Draft, told: Reading) -> Outcome:
        """Return where a builtin leaves the shell, and note what it sets."""
        state, at, name, words = self._state, draft.at, draft.executable, draft.argv[1:]
        if name is None or name in state.functions:
            state.forget(list(state.variables))
            return (None,), (None,)
        if name in ("cd", "pushd", "popd"):
            return self._cd(name, words, at)
        if name in _NAMING:
            for word in words:
                if word.text is not None and _NAME.fullmatch(word.text):
                    self._assign(word.text, None, told)
        if name not in _REDEFINING:
            return at, at
        if name in ("eval", "trap"):
            self._evaluated(name, words if name == "eval" else words[:1], at)
        state.forget(list(state.variables))
        state.taints += (("command_redefines", f"{name} came before, and changes what runs."),)
        self._moves += 1
        return (None,), (None,)

    def _evaluated(self, name: str, words: Words[Word], at: Folders) -> None:
        """Judge what `eval` runs, too, where it is written out: it may be critical."""
        try:
            commands = self._read(" ".join(word.text or "" for word in words))
        except NotUnderstood:
            return
        kept, self._wrappers = self._wrappers, (*self._wrappers, name)
        self._nesting += 1
        self._apart(commands, at)
        self._nesting -= 1
        self._wrappers = kept

    def _cd(self, name: str, words: Words[Word], at: Folders) -> Outcome:
        self._moves += 1
        operands = [word for word in words if word.text not in ("-L", "--")]
        if name == "popd" or (name == "pushd" and not operands) or len(operands) > 1:
            return (None,), at
        target = operands[0] if operands else Word(text=self._state.home())
        if not target.text or target.text[0] in "-+":
            return (None,), at
        return moved(at, target), at

    def _declare(self, argv: tuple[Word, ...], raws: Words[RawWord], reading: Reading) -> None:
        name = argv[0].text
        exports = name == "export" or any(
            word.text is not None and re.match(r"-\w*x", word.text) for word in argv[1:]
        )
        keeps = name == "readonly" or any(
            word.text is None or re.match(r"-\w*r", word.text) for word in argv[1:]
        )
        for raw in raws:
            if raw.source in (*_INSIDE, name):
                continue
            assignment = self._assignment(raw, reading)
            if assignment is not None:
                target, value = assignment
                # Where there is no function, `local` sets nothing, and the text goes on.
                self._declared(target, None if name == "local" else value, reading, exports, keeps)
                continue
            for word in self._expanded(raw):
                text = word.text if word.text is not None else word.prefix
                named = re.match(r"([A-Za-z_]\w*)(\+?=|\Z)", text, re.ASCII)
                if named is not None and not named[2] and word.text is not None:
                    self._declared(text, self._state.lookup(text), reading, exports, keeps)
                elif named is not None and named[2]:
                    self._declared(named[1], None, reading, exports, keeps)
                elif word.text is None:
                    self._state.forget(list(self._state.variables))

    def _declared(
        self, name: str, value: Word | None, reading: Reading, exports: bool, keeps: bool
    ) -> None:
        self._assign(name, value or Word(text=None), reading, exports=exports)
        if keeps:
            self._state.readonly.add(name)
