"""Arguments as a record may hold them: plain, bounded, and without what looks like a secret.

A help, not a fence: a secret without a telling name or form stays what it is, text. Everything
here is linear in what it looks at, which is bounded; see `_audit_secrets` for the tables.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolcell import _audit_secrets as table

__all__ = ["is_secret_name", "redact", "redact_text"]

REDACTED: Final = "[redacted]"
TEXT_CHARS_MAX: Final = 2_048
WINDOW_CHARS: Final = 4_096
"""How much of a text is looked at; what is shown ends well before."""
DEPTH_MAX: Final = 8
ITEMS_MAX: Final = 100
NAME_CHARS_MAX: Final = 200
BUDGET_CHARS: Final = 12_288
"""Of all texts and names of one call's arguments together."""
LOOKED_AT_CHARS_MAX: Final = 32_768
"""The same of what is looked at: what was taken out costs time too."""
INTEGER_BITS_MAX: Final = 64
FLAG_CHARS_MAX: Final = 64

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME: Final = rb"[A-Za-z][A-Za-z0-9_.-]{0,63}"
_TYPE: Final = rb":[ \t]{0,4}(?:str|bytes|string|SecretStr|str \| None)[ \t]{0,4}="
_ASSIGNMENT: Final = (
    rb"(" + _NAME + rb""")[\\"'\]]{0,4}[ \t]{0,4}(?:""" + _TYPE + rb"|=>|:=|={1,3}|:)[ \t]{0,8}"
)
_FLAG: Final = rb"(?:^|[\s\"'])--?([A-Za-z][A-Za-z0-9_-]{1,63})[ \t]{1,8}"
_WORD: Final = rb"""(?s)(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\;|&()])+|[;|&()\n]+|['"\\]"""
_BARE: Final = re.compile(rb"""(?:\\\n|[^\s"'`;|&)<>])+""")
_OPENER: Final = re.compile(rb"""\\{0,3}["']|\$["']""")
_GOES_ON: Final = re.compile(rb"""[A-Za-z0-9_$"']""")
_LINE_REST: Final = re.compile(rb"""[^\r\n"']*""")
_LINE_START: Final = re.compile(rb"""[ \t]*(?:-[ \t]+)?["']?\Z""")


def redact(arguments: object) -> dict[str, Any]:
    """The arguments of a call as a record holds them. Total: any object gives an answer.

    Secrets by name or form become "[redacted]", the rest of a text stays; a text is cut at 2 KiB,
    with its length and, where nothing in it was redacted, the first 16 digits of its SHA-256.
    Depth, items and the whole are bounded, and what was left out says so.
    """
    if not isinstance(arguments, Mapping):
        return {"[arguments]": f"[{type(arguments).__name__}, not recorded]"}
    try:
        return _Walk().mapping(arguments, 0)
    except Exception as error:  # noqa: BLE001  # an object of the caller's own that does not behave
        return {"[arguments]": f"[{type(error).__name__} while they were read, not recorded]"}


@functools.lru_cache(maxsize=2_048)
def is_secret_name(name: str, *, whole: bool = False) -> bool:
    """Whether a name says that its value is a secret; `whole` where it names a field of its own."""
    parts = [part.casefold() for part in _PART.findall(name[-64:])]
    while len(parts) > 1 and parts[-1] in table.IGNORED_LAST:
        parts.pop()
    if not parts:
        return False
    last = parts[-1]
    return (
        last in table.LAST_PARTS
        or tuple(parts[-2:]) in table.LAST_PAIRS
        or last.endswith(table.SUFFIXES)
        or (len(parts) > 1 and last in table.LAST_OF_MANY)
        or (whole and len(parts) == 1 and last in table.WHOLE)
    )


def redact_text(text: str) -> str:
    """One text, without its secrets, cut where it is long."""
    is_whole = len(text) <= WINDOW_CHARS
    window = text if is_whole else text[:WINDOW_CHARS]
    data = window.encode("utf-8", "backslashreplace")
    spans = _merged(_spans(data))
    shown, at = [], 0
    for start, end in spans:
        shown += [data[at:start], REDACTED.encode()]
        at = end
    kept = (b"".join(shown) + data[at:]).decode("utf-8", "replace")
    limit = TEXT_CHARS_MAX
    if not is_whole and spans:
        # What stands near the window's end may be the first half of a secret: it is not shown,
        # however much was taken out before it.
        tail = len(data[at:].decode("utf-8", "replace"))
        limit = min(limit, len(kept) - min(tail, WINDOW_CHARS - TEXT_CHARS_MAX))
    if is_whole and len(kept) <= limit:
        return kept
    digest = "" if spans else f", sha256 {_digest(text)}"
    return f"{kept[:limit]}[cut: {len(text)} characters{digest}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Walk:
    """One call's arguments, on the way down; what all of it may take shrinks as it goes."""

    def __init__(self) -> None:
        self._left = BUDGET_CHARS
        self._to_look_at = LOOKED_AT_CHARS_MAX

    def mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        named = self._named_value(value)
        for count, (key, inner) in enumerate(value.items()):
            if count == ITEMS_MAX or self._left <= 0:
                found["[cut]"] = f"{len(value) - count} more"
                break
            name = str(key) if isinstance(key, str | int | float | bool) else type(key).__name__
            name = redact_text(name[:NAME_CHARS_MAX])
            self._left -= len(name)
            is_secret = is_secret_name(name, whole=True) or (
                named and name.casefold() in table.VALUE_KEYS
            )
            found[name] = self.value(inner, depth + 1, is_secret=is_secret)
        return found

    def _named_value(self, value: Mapping[Any, Any]) -> bool:
        names = (value.get(key) for key in table.NAME_KEYS) if len(value) <= ITEMS_MAX else ()
        return any(isinstance(name, str) and is_secret_name(name, whole=True) for name in names)

    def sequence(self, value: Sequence[Any], depth: int) -> list[Any]:
        found: list[Any] = []
        is_secret = False
        flags: tuple[table.Flag, ...] = ()
        for count, inner in enumerate(value):
            if count == ITEMS_MAX or self._left <= 0:
                found.append(f"[{len(value) - count} more]")
                break
            joined = None if is_secret else _joined_flag(inner, flags)
            if joined is not None:
                self._left -= len(joined)
                found.append(f"{joined}{REDACTED}")
                continue
            found.append(self.value(inner, depth + 1, is_secret=is_secret))
            if isinstance(inner, str):
                flags = table.COMMAND_FLAGS.get(inner[-FLAG_CHARS_MAX:].rpartition("/")[2], flags)
                if any(inner == flag.word and flag.is_apart for flag in flags):
                    is_secret = True
                    continue
            # `["--password", "x"]` and `["Authorization", "x"]`; a flag's value is in the next.
            is_secret = (
                isinstance(inner, str)
                and len(inner) <= FLAG_CHARS_MAX
                and (inner.startswith("-") or (len(value) == 2 and count == 0))
                and is_secret_name(inner, whole=True)
            )
        return found

    def value(self, value: object, depth: int, *, is_secret: bool) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if is_secret:
            return REDACTED
        if isinstance(value, str):
            self._to_look_at -= min(len(value), WINDOW_CHARS)
            if self._to_look_at < 0:
                self._left -= 8
                return f"[{len(value)} characters, not recorded: too much in one call]"
            text = redact_text(value)
            if len(text) > self._left:
                text = f"{text[: max(self._left, 0)]}[cut: too much in one call]"
            self._left -= len(text)
            return text
        self._left -= 8
        if isinstance(value, int):
            bits = value.bit_length()
            return value if bits <= INTEGER_BITS_MAX else f"[an integer of {bits} bits]"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth >= DEPTH_MAX and isinstance(value, Mapping | list | tuple):
            return "[deeper, not recorded]"
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        if isinstance(value, list | tuple):
            return self.sequence(value, depth)
        return f"[{type(value).__name__}, not recorded]"


def _joined_flag(word: object, flags: tuple[table.Flag, ...]) -> str | None:
    """The flag that a word of an argv begins with, where its value, a secret, follows in it."""
    for flag in flags if isinstance(word, str) else ():
        if flag.is_joined and str(word).startswith(flag.word) and word != flag.word:
            return flag.word
    return None


# -- secrets in a text ----------------------------------------------------------------------


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    low = data.lower()
    for shape, expression in _shapes():
        if any(hint in low for hint in shape.hints):
            for match in expression.finditer(data):
                start, end = match.span(shape.group)
                if not shape.needs_digit or any(48 <= code <= 57 for code in data[start:end]):
                    yield start, end
    if b"=" in data or b":" in data:
        yield from _assigned(data)
    if b"-" in data:
        done = 0
        for match in _compiled(_FLAG).finditer(data):
            at = match.end()
            if at > done and is_secret_name(match.group(1).decode()) and data[at : at + 1] != b"-":
                start, done = _value_at(data, at)
                yield start, done
    if any(word in low for word in _command_words()):
        yield from _of_commands(data)


def _assigned(data: bytes) -> Iterator[tuple[int, int]]:
    """The values in `NAME=value`, `"name": "value"`, `Name: value`."""
    done = 0
    for match in _compiled(_ASSIGNMENT).finditer(data):
        name = match.group(1).decode()
        if match.end() <= done or not is_secret_name(name):
            continue
        at = match.end()
        start, end = _value_at(data, at)
        if data[start:end].lower().rstrip(b",.:]}") in table.HARMLESS_WORDS:
            continue
        if data[at - 1 : at] != b"=" and not _OPENER.match(data, at):
            line_start = data.rfind(b"\n", 0, match.start()) + 1
            parts = name.casefold().replace("_", "-").split("-")
            begins = _LINE_START.match(data, line_start, match.start())
            if parts[-1] in table.HEADERS or (begins and match.group(0).rstrip().endswith(b":")):
                rest = _LINE_REST.match(data, at)
                end = max(end, rest.end() if rest else end)
        if data[at - 1 : at] == b"=":
            end = _word_end(data, at, end)
        done = end
        yield start, end


def _word_end(data: bytes, at: int, end: int) -> int:
    """Where the word of a shell ends of which `at` to `end` is a first part: `a'b c'"d"`."""
    opener = _OPENER.match(data, at)
    if opener is not None and data[end : end + 1] == opener.group(0)[-1:]:
        if len(opener.group(0)) > 1 and opener.group(0)[:1] != b"$":
            return end
        after = end + 1
    else:
        line = data[data.rfind(b"\n", 0, at) + 1 : at]
        if opener is not None or line.count(data[end : end + 1] or b"\n") % 2:
            return end  # what stands there ends a quote that began before
        after = end
    while _GOES_ON.match(data, after):
        _, inner = _value_at(data, after)
        is_quoted = _OPENER.match(data, after) is not None
        end = after = min(inner + is_quoted, len(data))
    return end


def _value_at(data: bytes, at: int) -> tuple[int, int]:
    """Where the value that begins at `at` stands, without its quotes."""
    opener = _OPENER.match(data, at)
    if opener is None:
        bare = _BARE.match(data, at)
        return at, bare.end() if bare else at
    quote, start = opener.group(0).removeprefix(b"$"), opener.end()
    end = data.find(quote, start)
    # Within plain quotes, an escaped one is part of the value.
    while len(quote) == 1 and end > start and _is_escaped(data, end, start):
        end = data.find(quote, end + 1)
    return start, len(data) if end < 0 else end


def _is_escaped(data: bytes, at: int, start: int) -> bool:
    run = data[max(start, at - 64) : at]
    return (len(run) - len(run.rstrip(b"\\"))) % 2 == 1


def _of_commands(data: bytes) -> Iterator[tuple[int, int]]:
    """The values of flags that are secrets by the command they belong to."""
    flags: tuple[table.Flag, ...] = ()
    logs_in = is_value = sets = False
    for match in _compiled(_WORD).finditer(data):
        start, end = match.span()
        word = data[start:end].strip(b"'\"").decode("utf-8", "replace")
        if is_value:
            yield start, end
            is_value = False
            continue
        if data[start] in b";|&()\n":
            flags, logs_in, sets = (), False, False
            continue
        name = word.rpartition("/")[2]
        if name in table.COMMAND_FLAGS:
            flags = table.COMMAND_FLAGS[name]
        elif name in table.LOGIN_COMMANDS:
            flags, logs_in = (), True
        elif logs_in and word == "login":
            flags = table.LOGIN_FLAGS
        elif sets and is_secret_name(word):
            is_value = True
        sets = sets or name in table.SETTING_COMMANDS
        for flag in flags:
            if word == flag.word:
                is_value = flag.is_apart
            elif flag.is_joined and word.startswith(flag.word):
                yield start + data[start:end].find(flag.word.encode()) + len(flag.word), end


def _merged(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


@functools.cache
def _command_words() -> tuple[bytes, ...]:
    words = (*table.COMMAND_FLAGS, *table.LOGIN_COMMANDS, *table.SETTING_COMMANDS)
    return tuple(name.encode() for name in words)


@functools.cache
def _compiled(expression: bytes) -> Any:
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types

    return re2.compile(expression)


@functools.cache
def _shapes() -> tuple[tuple[table.Shape, Any], ...]:
    return tuple((shape, _compiled(shape.expression)) for shape in table.SHAPES)
