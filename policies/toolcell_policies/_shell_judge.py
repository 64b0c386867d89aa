"""One simple command, judged: its words, redirects and wrappers, and where it leaves the shell."""

from __future__ import annotations

import re
from collections.abc import Sequence as Words
from dataclasses import dataclass, field, replace
from typing import Final

from ._shell_commands import read_command
from ._shell_convert import NESTING_MAX, read_syntax
from ._shell_expand import expand, expand_value
from ._shell_model import KIND_LEVELS, SEGMENTS_MAX, CommandKind, Operand, Segment, Word
from ._shell_places import (
    START,
    Folders,
    is_disk,
    is_nothing,
    is_socket,
    operands_of,
    united,
)
from ._shell_special import Situation, critical, moved
from ._shell_syntax import (
    AndOr,
    Block,
    Case,
    Expression,
    Function,
    If,
    Loop,
    Not,
    Piece,
    Pipeline,
    RawWord,
    Redirect,
    Sequence,
    Simple,
    Statement,
    decoded,
)
from ._shell_table import Reading, Table, default_table
from ._shell_tree import TEXT_BYTES_MAX, NotUnderstood
from ._shell_wrappers import Unwrapped, unwrap
from ._text import shown
from .decision import Reason

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=")
# Commands read in one text, those of a loop that was read again included.
_WORK_MAX: Final = 1000
_DECLARING: Final = frozenset({"declare", "export", "local", "readonly", "typeset"})

# Where a command leaves the shell: if it succeeds, and if it fails.
Outcome = tuple[Folders, Folders]


class OverCap(Exception):
    """There are more segments than are read."""


class Judge:
    """Judges simple commands and collects the segments."""

    def __init__(self, *, env: dict[str, str], home: str) -> None:
        self.segments: list[Segment] = []
        self._table: Table = default_table()
        self._home = home
        variables: dict[str, Word | None] = {name: Word(text=text) for name, text in env.items()}
        variables["HOME"] = Word(text=home)
        self._state = State(variables)
        self._assigned: list[str] = []
        self._moves = 0
        self._work = 0
        self._nesting = 0
        self._inner_bytes = 0
        self._wrappers: tuple[str, ...] = ()

    def _apart(self, commands: Sequence, at: Folders) -> None:
        """Walk commands in a subshell: nothing of it stays."""
        raise NotImplementedError

    def _expanded(self, word: RawWord) -> tuple[Word, ...]:
        return expand(word, self._state.lookup, self._state.home())

    def _pieces(self, pieces: tuple[Piece, ...], reading: Reading, at: Folders) -> None:
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
            value is not None and value.text is not None and re.fullmatch(r"-?[0-9]+", value.text)
            for value in values
        )

    def _assign(
        self, name: str, value: Word | None, reading: Reading, *, exports: bool = False
    ) -> None:
        """Set a variable in this shell, and note what it does to all that follows."""
        self._state.variables[name] = (
            value if value is not None and value.text is not None else None
        )
        self._assigned.append(name)
        exports = exports or name in self._state.exported
        if exports:
            self._state.exported[name] = value.text if value is not None else None
        if taint := danger(name, self._table, exported=exports):
            self._state.taints += (taint,)
            reading.doubt(CommandKind.UNKNOWN, *taint)

    def _simple(self, simple: Simple, at: Folders) -> Outcome:
        self._work += 1
        if self._work > _WORK_MAX:
            raise NotUnderstood("It is too tangled to read.")
        reading = Reading()
        words: list[Word] = []
        assignments: list[tuple[str, Word, bool]] = []
        raws: list[RawWord] = []
        for raw in simple.words:
            self._pieces(raw.pieces, reading, at)
            found = None if words else _assignment(raw)
            if found is not None:
                assignments.append(self._assignment(raw, found, reading))
            else:
                words += self._expanded(raw)
                raws.append(raw)
        heredoc = self._redirects(simple.redirects, reading, at)
        if not words:
            for name, value, _ in assignments:
                self._assign(name, value, reading)
            self._emit(simple.source, (), None, reading, at, heredoc=heredoc)
            return at, at
        env: list[tuple[str, str | None]] = []
        for name, value, _ in assignments:
            env.append((name, value.text))
            taint = danger(name, self._table, exported=True)
            if taint and not (name == "IFS" and words[0].text == "read"):
                reading.doubt(CommandKind.UNKNOWN, *taint)
        return self._argv(tuple(words), raws, simple.source, env, reading, at, heredoc=heredoc)

    def _assignment(
        self, raw: RawWord, found: re.Match[str], reading: Reading
    ) -> tuple[str, Word, bool]:
        first, *rest = raw.pieces
        text = (first.text or "")[found.end() :]
        pieces = (Piece(text, quoted=first.quoted), *rest) if text else tuple(rest)
        value = expand_value(pieces, self._state.lookup, self._state.home())
        if found[2] is not None:
            if not re.fullmatch(r"\[[0-9]*\]", found[2]):
                reading.unclear("A subscript can run what it holds.")
            value = Word(text=None)
        return found[1], value if not found[3] else Word(text=None), False

    def _argv(
        self,
        words: tuple[Word, ...],
        raws: list[RawWord],
        source: str,
        env: list[tuple[str, str | None]],
        reading: Reading,
        at: Folders,
        *,
        heredoc: bool = False,
        found: bool = False,
    ) -> Outcome:
        """Judge one command: its wrappers, then what is left."""
        made = unwrap(words, self._table)
        self._merge(reading, made.reading)
        within = at
        for target in made.chdirs:
            within = moved(within, target)
            reading.reads_path(target, "env")
        for name, value in made.env:
            env.append((name, value.text))
            if taint := danger(name, self._table, exported=True):
                reading.doubt(CommandKind.UNKNOWN, *taint)
        name = self._named(words, made)
        if name in self._state.functions:
            reading.doubt(
                CommandKind.UNKNOWN,
                "command_redefines",
                f"{shown(name or '')} is a function of this text.",
            )
        wrappers = self._wrappers + tuple(made.wrappers)
        if made.text is not None:
            self._text(made, source, env, reading, within, wrappers, heredoc=heredoc)
            return at, at
        if not made.argv:
            executable = words[0].text
            self._emit(
                source, words, executable, reading, within, env=env, wrappers=wrappers,
                heredoc=heredoc,
            )  # fmt: skip
            return at, at
        argv = made.argv
        situation = Situation(table=self._table, home=self._home, folders=within, found=found)
        told = read_command(argv, situation)
        in_shell = set(made.wrappers) <= {"builtin", "command", "time"}
        if in_shell and name in _DECLARING:
            self._declare(name, argv, raws, reading)
        self._merge(reading, told)
        inside = within
        if told.chdir is not None:
            inside = moved(within, told.chdir)
            reading.reads_path(told.chdir, "git")
        executable = argv[0].text if not argv[0].glob else None
        self._emit(
            source, argv, executable, reading, within, env=env, wrappers=wrappers,
            heredoc=heredoc, told=told, inside=inside,
        )  # fmt: skip
        self._found(told, source, env, within, executable or "find")
        return self._after(name, argv, told, at) if in_shell else (at, at)

    def _named(self, words: tuple[Word, ...], made: Unwrapped) -> str | None:
        first = made.argv[0] if made.argv else words[0]
        return first.text if first.text is not None and not first.glob else None

    def _found(
        self,
        told: Reading,
        source: str,
        env: list[tuple[str, str | None]],
        at: Folders,
        name: str,
    ) -> None:
        """Judge the commands that a command runs: `find -exec`."""
        kept, self._wrappers = self._wrappers, (*self._wrappers, name)
        self._nesting += 1
        for command in told.commands:
            reading = Reading()
            if self._nesting > NESTING_MAX:
                reading.unclear("It is nested too deep.")
                self._emit(source, command, None, reading, at)
            elif command:
                self._argv(command, [], source, list(env), reading, at, found=True)
        self._nesting -= 1
        self._wrappers = kept

    def _text(
        self,
        made: Unwrapped,
        source: str,
        env: list[tuple[str, str | None]],
        reading: Reading,
        at: Folders,
        wrappers: tuple[str, ...],
        *,
        heredoc: bool,
    ) -> None:
        """Judge a text for another shell, command by command."""
        text = made.text.text if made.text is not None else None
        if text is None:
            reading.dynamic(wrappers[-1])
        else:
            try:
                commands = self._read(text)
            except NotUnderstood as error:
                reading.unclear(f"The text of {wrappers[-1]} is not understood: {error.args[0]}")
            else:
                if not commands.items:
                    reading.unclear(f"The text of {wrappers[-1]} is empty.")
                self._inner(commands, at, env, wrappers, reading)
        if reading.kinds or reading.reads or reading.writes or heredoc:
            self._emit(source, (), None, reading, at, env=env, wrappers=wrappers, heredoc=heredoc)

    def _read(self, text: str) -> Sequence:
        self._inner_bytes += len(text)
        if self._nesting >= NESTING_MAX or self._inner_bytes > TEXT_BYTES_MAX:
            raise NotUnderstood("It is nested too deep.")
        return read_syntax(text, nesting=self._nesting)

    def _inner(
        self,
        commands: Sequence,
        at: Folders,
        env: list[tuple[str, str | None]],
        wrappers: tuple[str, ...],
        reading: Reading,
    ) -> None:
        kept, self._state = self._state, self._state.copy()
        outer, self._wrappers = self._wrappers, wrappers
        # What is not exported is not there; what its caller set it to is not known.
        known = self._state.exported | dict(env)
        self._state.variables = {
            name: Word(text=value) if value is not None else None for name, value in known.items()
        }
        self._state.variables.setdefault("HOME", kept.variables.get("HOME"))
        self._state.exported = known
        self._state.taints += tuple(reading.reasons)
        self._nesting += 1
        try:
            self._apart(commands, at)
        finally:
            self._state, self._wrappers = kept, outer
            self._nesting -= 1

    def _after(
        self,
        name: str | None,
        argv: tuple[Word, ...],
        told: Reading,
        at: Folders,
    ) -> Outcome:
        """Return where a builtin leaves the shell, and note what it sets."""
        state = self._state
        if name in state.functions or name is None:
            self._state.forget(list(state.variables))
            return (None,), (None,)
        if name in ("cd", "pushd", "popd"):
            return self._cd(name, argv[1:], at)
        if name in ("read", "getopts", "mapfile", "readarray", "unset", "printf", "let"):
            for word in argv[1:]:
                if word.text is not None and re.fullmatch(r"[A-Za-z_]\w*", word.text, re.ASCII):
                    self._assign(word.text, None, told)
        elif name in ("eval", "source", ".", "alias", "enable", "hash", "trap"):
            if name in ("eval", "trap"):
                self._evaluated(name, argv[1:], at)
            self._state.forget(list(state.variables))
            state.taints += (("command_redefines", f"{name} came before, and changes what runs."),)
            self._moves += 1
            return (None,), (None,)
        return at, at

    def _evaluated(self, name: str, words: Words[Word], at: Folders) -> None:
        """Judge what `eval` runs, too, where it is written out: it may be critical."""
        texts = [word.text for word in (words if name == "eval" else words[:1])]
        text = " ".join(one or "" for one in texts)
        try:
            commands = self._read(text)
        except NotUnderstood:
            return
        outer, self._wrappers = self._wrappers, (*self._wrappers, name)
        self._nesting += 1
        try:
            self._apart(commands, at)
        finally:
            self._wrappers = outer
            self._nesting -= 1

    def _cd(self, name: str, words: Words[Word], at: Folders) -> Outcome:
        self._moves += 1
        operands = [word for word in words if word.text not in ("-L", "--")]
        if name == "popd" or (name == "pushd" and not operands) or len(operands) > 1:
            return (None,), at
        target = operands[0] if operands else Word(text=self._home)
        if not target.text or target.text[0] in "-+":
            return (None,), at
        return moved(at, target), at

    def _declare(
        self, name: str, argv: tuple[Word, ...], raws: list[RawWord], reading: Reading
    ) -> None:
        exports = name == "export" or any(
            word.text is not None and re.match(r"-\w*x", word.text) for word in argv[1:]
        )
        keeps = name == "readonly" or any(
            word.text is None or re.match(r"-\w*r", word.text) for word in argv[1:]
        )
        for raw in raws:
            if raw.source in ("builtin", "command", name):
                continue
            found = _assignment(raw)
            if found is not None:
                target, value, _ = self._assignment(raw, found, reading)
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

    def _redirects(self, redirects: Words[Redirect], reading: Reading, at: Folders) -> bool:
        """Note what redirects read and write; return whether one holds data."""
        heredoc = False
        for redirect in redirects:
            if redirect.target is None:
                continue
            self._pieces(redirect.target.pieces, reading, at)
            operator = redirect.operator
            if operator in ("<<", "<<<"):
                heredoc = True
                continue
            words = self._expanded(redirect.target)
            target = words[0] if len(words) == 1 else Word(text=None)
            text = target.text
            if operator in ("<&", ">&") and text is not None and re.fullmatch(r"[0-9]*-?", text):
                continue
            if text is not None and is_socket(text):
                reading.redirected = True
                reading.doubt(
                    CommandKind.NETWORK, "command_network", "A redirect speaks to another host."
                )
            elif text is not None and is_nothing(text):
                continue
            elif operator == "<":
                reading.reads_path(_named_file(target), "a redirect")
            elif operator == "<&":
                reading.unclear("A redirect of a descriptor is not understood.")
            else:
                reading.redirected = True
                reading.writes_path(_named_file(target), "a redirect")
                if is_disk(target, self._table):
                    critical(reading, f"A redirect writes over {shown(text or '')}.")
        return heredoc

    def _redirects_alone(self, redirects: Words[Redirect], at: Folders) -> None:
        """Judge the redirects of a group or a loop, as a segment of their own."""
        reading = Reading()
        heredoc = self._redirects(redirects, reading, at)
        self._note(reading, at, "redirects", heredoc=heredoc)

    def _note(self, reading: Reading, at: Folders, text: str, *, heredoc: bool = False) -> None:
        """Make a segment of what belongs to no command, if there is anything to tell."""
        if reading.kinds or reading.reads or reading.writes or heredoc:
            self._emit(text, (), None, reading, at, heredoc=heredoc)

    def _merge(self, reading: Reading, other: Reading) -> None:
        reading.kinds |= other.kinds
        for reason in other.reasons:
            if reason not in reading.reasons:
                reading.reasons.append(reason)
        if other.chdir is None:
            reading.reads += other.reads
            reading.writes += other.writes

    def _emit(
        self,
        source: str,
        argv: tuple[Word, ...],
        executable: str | None,
        reading: Reading,
        at: Folders,
        *,
        env: Words[tuple[str, str | None]] = (),
        wrappers: tuple[str, ...] | None = None,
        heredoc: bool = False,
        told: Reading | None = None,
        inside: Folders | None = None,
    ) -> None:
        if len(self.segments) >= SEGMENTS_MAX:
            raise OverCap
        for code, text in self._state.taints:
            reading.doubt(CommandKind.UNKNOWN, code, text)
        reads = operands_of(reading.reads, at)
        writes = operands_of(reading.writes, at)
        if told is not None and told.chdir is not None and inside is not None:
            reads += operands_of(told.reads, inside)
            writes += operands_of(told.writes, inside)
        if any(one.path is None for one in reads + writes) and not reading.reasons:
            reading.doubt(
                CommandKind.UNKNOWN, "command_dynamic", "Which folder it runs in is not known here."
            )
        kinds = frozenset(reading.kinds or {CommandKind.READ})
        level = max(KIND_LEVELS[kind] for kind in kinds)
        reasons = [Reason(code=code, text=text) for code, text in reading.reasons]
        if CommandKind.WRITE in kinds:
            reasons.insert(0, Reason(code="command_write", text=_writing(executable, writes)))
        self.segments.append(
            Segment(
                text=decoded(source),
                argv=argv,
                executable=executable,
                wrappers=self._wrappers if wrappers is None else wrappers,
                env=tuple({**self._state.exported, **dict(env)}.items()),
                cwd=at[0] if len(at) == 1 else None,
                reads=reads,
                writes=writes,
                kinds=kinds,
                level=level,
                reasons=tuple(reasons),
                heredoc=heredoc,
                redirected=reading.redirected,
            )
        )


def _named_file(word: Word) -> Word:
    """Return a redirect's target, which is a file even if it is called `-`."""
    return Word(text="./-") if word.text == "-" else word


def _assignment(raw: RawWord) -> re.Match[str] | None:
    first = raw.pieces[0]
    if first.quoted or first.text is None:
        return None
    return _ASSIGNMENT.match(first.text)


def _writing(executable: str | None, writes: Words[Operand]) -> str:
    paths = [one.path for one in writes if one.path is not None]
    who = shown(executable) if executable is not None else "A redirect"
    if not paths:
        return f"{who} writes."
    return f"{who} writes {', '.join(shown(path) for path in paths[:3])}" + (
        "." if len(paths) <= 3 else f" and {len(paths) - 3} more."
    )
