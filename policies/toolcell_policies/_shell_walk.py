"""The commands of a text in the order in which bash comes to them, each judged.

What is carried from one to the next: the folders it may run in, variables whose
value is known, what is exported, names that were redefined. Where a text may go two
ways, both are carried; what is set in a branch or a loop is unknown after it.
"""

from __future__ import annotations

from ._shell_judge import Judge, Outcome
from ._shell_model import CommandKind, Word
from ._shell_places import START, Folders, united
from ._shell_syntax import (
    AndOr,
    Block,
    Case,
    Function,
    If,
    Loop,
    Not,
    Pipeline,
    Sequence,
    Simple,
    Statement,
    decoded,
)
from ._shell_table import Reading
from ._text import shown


class Walk(Judge):
    """Walks the commands of one text."""

    def whole(self, commands: Sequence) -> None:
        """Walk a whole text.

        Raises:
            OverCap: it has too many segments; the first ones are there.
            NotUnderstood: a text inside it is not read, or it is too much work.
        """
        self._sequence(commands, START)

    def _sequence(self, commands: Sequence, at: Folders) -> Outcome:
        outcome: Outcome = (at, at)
        for statement, in_background in commands.items:
            now = united(*outcome)
            if in_background:
                self._apart(Sequence(((statement, False),)), now)
                outcome = (now, now)
            else:
                outcome = self._statement(statement, now)
        return outcome

    def _apart(self, commands: Sequence, at: Folders) -> None:
        """Walk commands in a subshell: nothing of it stays."""
        kept, self._state = self._state, self._state.copy()
        assigned, moves = len(self._assigned), self._moves
        try:
            self._sequence(commands, at)
        finally:
            self._state = kept
            del self._assigned[assigned:]
            self._moves = moves

    def _maybe(self, statement: Statement | Sequence, at: Folders) -> Outcome:
        """Walk what may or may not run: what it sets is unknown afterwards."""
        before = len(self._assigned)
        if isinstance(statement, Sequence):
            outcome = self._sequence(statement, at)
        else:
            outcome = self._statement(statement, at)
        self._state.forget(self._assigned[before:])
        return outcome

    def _statement(self, statement: Statement, at: Folders) -> Outcome:
        match statement:
            case Simple():
                return self._simple(statement, at)
            case AndOr(left, operator, right):
                good, bad = self._statement(left, at)
                if operator == "&&":
                    yes, no = self._maybe(right, good)
                    return yes, united(bad, no)
                yes, no = self._maybe(right, bad)
                return united(good, yes), no
            case Not(body):
                good, bad = self._statement(body, at)
                return bad, good
            case Pipeline(stages):
                for stage in stages:
                    self._apart(Sequence(((stage, False),)), at)
                return at, at
            case Block(body, redirects, is_subshell):
                draft = self._draft("redirects", at)
                self._redirects(redirects, draft)
                self._emit_found(draft)
                if is_subshell:
                    self._apart(body, at)
                    return at, at
                return self._sequence(body, at)
            case If(branches, otherwise):
                return self._if(branches, otherwise, at)
            case Loop():
                return self._loop(statement, at)
            case Case(words, bodies):
                draft = self._draft("case", at)
                for word in words:
                    self._pieces(word.pieces, draft.own, at)
                self._emit_found(draft)
                after = at
                for body in bodies:
                    after = united(after, united(*self._maybe(body, at)))
                return after, after
            case Function(name, source, body):
                return self._function(name, source, body, at)
        draft = self._draft(statement.word.source, at)
        self._pieces(statement.word.pieces, draft.own, at)
        if statement.name != "((":
            draft.argv, draft.executable = (Word(text=statement.name),), statement.name
        self._emit(draft)
        return at, at

    def _if(
        self,
        branches: tuple[tuple[Sequence, Sequence], ...],
        otherwise: Sequence | None,
        at: Folders,
    ) -> Outcome:
        after: Folders = ()
        now = at
        for place, (condition, body) in enumerate(branches):
            walk = self._maybe if place else self._sequence
            good, now = walk(condition, now)
            after = united(after, united(*self._maybe(body, good)))
        last = united(*self._maybe(otherwise, now)) if otherwise is not None else now
        after = united(after, last)
        return after, after

    def _loop(self, loop: Loop, at: Folders) -> Outcome:
        draft = self._draft(loop.variable or "", at)
        values: list[Word] = []
        for word in loop.words:
            self._pieces(word.pieces, draft.own, at)
            values += self._expanded(word)
        self._emit_found(draft)
        value = values[0] if len(values) == 1 else None
        counted, assigned, moved_before = len(self.segments), len(self._assigned), self._moves
        state = self._state.copy()
        after = self._round(loop, value, at)
        changed = self._assigned[assigned:]
        moves = self._moves != moved_before
        known = any(state.variables.get(name) is not None for name in changed)
        if known or (moves and at != (None,)) or self._state.taints != state.taints:
            # The second round begins where the first one ended, or it broke off.
            del self.segments[counted:]
            taints = self._state.taints
            self._state = state
            self._state.taints = taints
            self._state.forget(changed)
            after = self._round(loop, value, (None,) if moves else at)
        after = (None,) if moves else after
        self._state.forget(self._assigned[assigned:])
        return united(at, after), united(at, after)

    def _round(self, loop: Loop, value: Word | None, at: Folders) -> Folders:
        if loop.condition is not None:
            at, _ = self._sequence(loop.condition, at)
        if loop.variable is not None:
            self._assign(loop.variable, value, Reading())
        return united(*self._sequence(loop.body, at))

    def _function(self, name: str, source: str, body: Statement, at: Folders) -> Outcome:
        kept, self._state = self._state, self._state.copy()
        self._state.forget(list(self._state.variables))
        self._state.functions.add(name)
        self._statement(body, (None,))
        kept.taints = self._state.taints
        self._state = kept
        self._state.forget(self._assigned)
        self._state.functions.add(name)
        draft = self._draft(source, at)
        draft.own.doubt(
            CommandKind.UNKNOWN,
            "command_redefines",
            f"A function {shown(decoded(name))} is defined: what it is given is not known here.",
        )
        self._emit(draft)
        return at, at
