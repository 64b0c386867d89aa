"""A segment in the making: what each part of a command says, from where that part looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ._shell_model import KIND_LEVELS, CommandKind, Operand, Segment, Word
from ._shell_places import Folders, operands_of
from ._shell_syntax import decoded
from ._shell_table import Reading
from ._text import shown
from .decision import Reason


@dataclass(slots=True, kw_only=True)
class Draft:
    """One segment before it is done."""

    source: str
    # Where the shell is.
    at: Folders
    wrappers: tuple[str, ...]
    argv: tuple[Word, ...] = ()
    executable: str | None = None
    env: dict[str, str | None] = field(default_factory=dict)
    heredoc: bool = False
    redirected: bool = False
    # Kinds, reasons, and what is read and written from `at`.
    own: Reading = field(default_factory=Reading)
    # What is read and written from elsewhere.
    reads: tuple[Operand, ...] = ()
    writes: tuple[Operand, ...] = ()

    def add(self, reading: Reading, at: Folders) -> None:
        """Add what a part says that looks from these folders."""
        self.reads += operands_of(reading.reads, at)
        self.writes += operands_of(reading.writes, at)
        self.own.kinds |= reading.kinds
        for reason in reading.reasons:
            if reason not in self.own.reasons:
                self.own.reasons.append(reason)

    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        own = self.own
        known = own.kinds or own.reads or own.writes or self.reads or self.writes
        return not (known or self.heredoc)

    def done(
        self,
        taints: Iterable[tuple[str, str]],
        exported: Mapping[str, str | None],
        within: Folders,
    ) -> Segment:
        """Return the segment; `within` is where its command runs."""
        own = self.own
        for code, text in taints:
            own.doubt(CommandKind.UNKNOWN, code, text)
        reads = operands_of(own.reads, self.at) + self.reads
        writes = operands_of(own.writes, self.at) + self.writes
        if any(one.path is None for one in reads + writes) and not own.reasons:
            own.doubt(
                CommandKind.UNKNOWN, "command_dynamic", "Which folder it runs in is not known here."
            )
        kinds = frozenset(own.kinds or {CommandKind.READ})
        reasons = [Reason(code=code, text=text) for code, text in own.reasons]
        if CommandKind.WRITE in kinds:
            text = _writing(self.executable, writes)
            reasons.insert(0, Reason(code="command_write", text=text))
        return Segment(
            text=decoded(self.source),
            argv=self.argv,
            executable=self.executable,
            wrappers=self.wrappers,
            env=tuple({**exported, **self.env}.items()),
            cwd=within[0] if len(within) == 1 else None,
            reads=reads,
            writes=writes,
            kinds=kinds,
            level=max(KIND_LEVELS[kind] for kind in kinds),
            reasons=tuple(reasons),
            heredoc=self.heredoc,
            redirected=self.redirected,
        )


def _writing(executable: str | None, writes: Sequence[Operand]) -> str:
    paths = [one.path for one in writes if one.path is not None]
    who = shown(executable) if executable is not None else "A redirect"
    if not paths:
        return f"{who} writes."
    more = "." if len(paths) <= 3 else f" and {len(paths) - 3} more."
    return f"{who} writes {', '.join(shown(path) for path in paths[:3])}{more}"
