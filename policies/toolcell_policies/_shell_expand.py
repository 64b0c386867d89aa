"""Words as bash passes them on: braces, `~`, variables and patterns (bash(1), EXPANSION).

What only a run can tell is told to be unknown.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Final

from ._shell_model import Word
from ._shell_syntax import Piece, RawWord, decoded
from ._shell_tree import NotUnderstood

Lookup = Callable[[str], Word | None]

# Braces that make more words than this are unknown.
_BRACE_WORDS_MAX: Final = 64
_BRACES_MAX: Final = 12
# A value that is one word even where it is not quoted.
_UNSPLIT: Final = re.compile(r"[A-Za-z0-9_./:@%+,=~^-]+")
_GLOB: Final = re.compile(r"[*?\[]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SEQUENCE: Final = re.compile(r"(-?[0-9]+)\.\.(-?[0-9]+)|([a-z])\.\.([a-z])|([A-Z])\.\.([A-Z])")

# A character and whether it is quoted; or an unknown part.
_Mark = tuple[str, bool] | None


def expand(raw: RawWord, lookup: Lookup, home: str | None) -> tuple[Word, ...]:
    """Return what a word becomes: one word, several where it has braces."""
    pieces = raw.pieces
    if len(pieces) == 1 and (text := pieces[0].text) is not None and _is_plain(pieces[0]):
        return (Word(text=decoded(text)),)
    if any(not piece.quoted and piece.text and "{" in piece.text for piece in pieces):
        words = _braces(pieces)
        if words is None:
            return (Word(text=None),)
        # What bash then makes of `name=~` is not what it makes of it elsewhere.
        if len(words) > 1 and any(_has_tilde(word) for word in words):
            return (Word(text=None),)
        return tuple(_one(word, lookup, home) for word in words)
    return (_one(pieces, lookup, home),)


def expand_value(pieces: tuple[Piece, ...], lookup: Lookup, home: str | None) -> Word:
    """Return what the value of an assignment becomes: no braces, no patterns."""
    made = _one(pieces, lookup, home, is_value=True)
    return Word(text=made.text, prefix=made.prefix) if made.glob else made


def _has_tilde(pieces: tuple[Piece, ...]) -> bool:
    return any(
        not piece.quoted and piece.text is not None and "~" in piece.text for piece in pieces
    )


def _is_plain(piece: Piece) -> bool:
    text = piece.text
    return piece.quoted or (text is not None and not _MAGIC.search(text))


_MAGIC: Final = re.compile(r"[*?\[{]|^~|[=:]~")


def _one(
    pieces: tuple[Piece, ...], lookup: Lookup, home: str | None, *, is_value: bool = False
) -> Word:
    text = ""
    glob = False
    head = pieces[0] if pieces else Piece("")
    looks_so = not head.quoted and head.text is not None and _ASSIGNMENT.match(head.text)
    assigns = is_value or bool(looks_so)
    for place, piece in enumerate(pieces):
        part = piece.text
        if part is not None:
            if not piece.quoted:
                if "~" in part:
                    tilde = _tilde(
                        part, place, len(pieces), text, home, assigns=assigns, is_value=is_value
                    )
                    if tilde is None:
                        return Word(text=None)
                    part = tilde
                glob = glob or _GLOB.search(part) is not None
            text += part
            continue
        found = _variable(piece, lookup, is_value=is_value) if piece.variable is not None else None
        if found is None or found.text is None:
            prefix = decoded(text) + (found.prefix if found else "")
            return Word(text=None, glob=glob, prefix=prefix, pipe=piece.pipe and len(pieces) == 1)
        text += found.text if found.text.isascii() else _undecoded(found.text)
        glob = glob or found.glob
    return Word(text=decoded(text), glob=glob)


def _undecoded(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _variable(piece: Piece, lookup: Lookup, *, is_value: bool) -> Word | None:
    value = lookup(piece.variable or "")
    if value is None or value.text is None or piece.quoted or is_value:
        return value
    return value if _UNSPLIT.fullmatch(value.text) and not value.glob else None


def _tilde(
    part: str,
    place: int,
    count: int,
    before: str,
    home: str | None,
    *,
    assigns: bool,
    is_value: bool,
) -> str | None:
    """Return an unquoted part with its `~` replaced; None: only a run can tell."""
    if place:
        # Behind a quoted part of an assignment: seldom, and not worth the rules.
        carried = assigns and (":~" in part or (part[0] == "~" and before.endswith(":")))
        return None if carried else part
    found = None if is_value else _ASSIGNMENT.match(part)
    starts = [0]
    if assigns:
        # As bash does in a word that looks like an assignment, too.
        starts += [at + 1 for at, char in enumerate(part) if char == ":"]
        starts += [found.end()] if found is not None else []
    made = part
    for at in sorted(set(starts), reverse=True):
        if part[at : at + 1] != "~":
            continue
        end = re.compile(r"[/:]" if assigns else "/").search(part, at)
        name = part[at + 1 : end.start() if end else len(part)]
        if name or home is None or (end is None and place + 1 < count):
            return None
        made = made[:at] + home + made[at + 1 :]
    return made


def _braces(pieces: tuple[Piece, ...]) -> list[tuple[Piece, ...]] | None:
    """Return the words that braces make, in bash's order; None: too many, or unclear."""
    if any(not piece.quoted and piece.text and "$" in piece.text for piece in pieces):
        raise NotUnderstood("A '$' beside braces may become an expansion.")
    marks: list[_Mark] = []
    unknown: list[Piece] = []
    for piece in pieces:
        if piece.text is None:
            marks.append(None)
            unknown.append(piece)
        else:
            marks.extend((char, piece.quoted) for char in piece.text or "")
            if not piece.text:
                marks.append(("", True))
    words = _branches(marks) if marks.count(("{", False)) <= _BRACES_MAX else None
    if words is None:
        return None
    if unknown and len(words) > 1:
        return None  # which part belongs to which word is not worth the telling
    # A word of nothing is no word, unless it is quoted.
    return [_pieces(word, list(unknown)) for word in words if word]


def _pieces(marks: list[_Mark], unknown: list[Piece]) -> tuple[Piece, ...]:
    made: list[Piece] = []
    for mark in marks:
        if mark is None:
            made.append(unknown.pop(0))
        elif made and made[-1].text is not None and made[-1].quoted is mark[1]:
            made[-1] = Piece(made[-1].text + mark[0], quoted=mark[1])
        else:
            made.append(Piece(mark[0], quoted=mark[1]))
    return tuple(made)


def _branches(marks: list[_Mark]) -> list[list[_Mark]] | None:
    opened = next((at for at, mark in enumerate(marks) if mark == ("{", False)), None)
    if opened is None:
        return [marks]
    depth = 0
    commas: list[int] = []
    close = None
    for at in range(opened, len(marks)):
        if marks[at] == ("{", False):
            depth += 1
        elif marks[at] == ("}", False):
            depth -= 1
            if not depth:
                close = at
                break
        elif marks[at] == (",", False) and depth == 1:
            commas.append(at)
    inside = marks[opened + 1 : close]
    if close is None:
        return None if (",", False) in inside or _dotted(inside) else [marks]
    head = marks[:opened]
    if commas:
        cuts = [opened, *commas, close]
        options = [marks[a + 1 : b] for a, b in itertools.pairwise(cuts)]
        middles = [_branches(option) for option in options]
    elif _dotted(inside):
        middles = [_counted(inside)]
    else:
        if (",", False) in marks or _dotted(marks):
            return None  # bash looks for the comma in ways of its own
        middles = [[marks[opened : close + 1]]]
    tails = _branches(marks[close + 1 :])
    if tails is None:
        return None
    made: list[list[_Mark]] = []
    for middle in middles:
        if middle is None or len(middle) * len(tails) + len(made) > _BRACE_WORDS_MAX:
            return None
        made += [head + one + tail for one in middle for tail in tails]
    return made


def _dotted(marks: list[_Mark]) -> bool:
    return any(a == b == (".", False) for a, b in itertools.pairwise(marks))


def _counted(marks: list[_Mark]) -> list[list[_Mark]] | None:
    text = "".join(mark[0] if mark and not mark[1] else "\0" for mark in marks)
    found = _SEQUENCE.fullmatch(text)
    if found is None:
        return None
    first, last = (one for one in found.groups() if one is not None)
    if found[1] is None:
        ends, name = (ord(first), ord(last)), chr
    elif any(re.match(r"-?0[0-9]", end) or len(end) > 6 for end in (first, last)):
        return None
    else:
        ends, name = (int(first), int(last)), str
    step = 1 if ends[0] <= ends[1] else -1
    if abs(ends[1] - ends[0]) >= _BRACE_WORDS_MAX:
        return None
    return [[(char, True) for char in name(one)] for one in range(ends[0], ends[1] + step, step)]
