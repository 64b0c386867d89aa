"""How a commit or a recovery ended, as values; and the exceptions that carry them there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Somebody else changed these names since the call saw them: nothing of the call is kept.

    Run the call again: it will see what is there now. `paths` has "." where the workspace itself
    is another folder than it was.
    """

    paths: tuple[str, ...]
    kept: tuple[str, ...] = ()
    """Names that were ours for an instant, in which a person changed them: they stay so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """These names cannot be made as the call left them, whoever agrees: nothing is kept.

    Retrying will not help. `text` ends with the fix.
    """

    paths: tuple[str, ...]
    text: str
    kept: tuple[str, ...] = ()
    """As in `Conflict`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The system refused a step: `errno` says why. Nothing is kept, unless `unfinished`."""

    text: str
    errno: int
    kept: tuple[str, ...] = ()
    """As in `Conflict`."""
    unfinished: bool = False
    """The undoing failed too. The journal stays, and `recover` is what to call when the cause,
    such as a disk that cannot be read, is gone; until then the workspace may be half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """All of the call is on disk, but something displaced could not be removed.

    It lies under names that begin with `.toolcell-` beside what replaced it. The journal stays,
    and `recover` removes them when the cause is gone.
    """

    text: str
    errno: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """Another call's changes were kept since these were judged: nothing of them is. Judge again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A commit that was cut off is undone, or finished: whole either way."""

    outcome: Literal["undone", "finished"]
    paths: tuple[str, ...]
    """What the commit was about: created and deleted trees by their topmost name."""
    kept: tuple[str, ...]
    """Names that a person has changed since, which stay as that person left them."""


class Clash(Exception):
    """Somebody else was there: becomes a `Conflict`."""

    def __init__(self, *paths: str) -> None:
        super().__init__(*paths)
        self.paths = paths


class Refusal(Exception):
    """It can never be: becomes a `Refused`."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text)
        self.path, self.text = path, text
