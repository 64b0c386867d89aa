"""search: a linear-time regular expression over the lines of files, by RE2.

`re` backtracks: a pattern of ten characters can take hours, and the pattern is the model's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from toolcell.builtin._paths import failed, missing, require_regular, shown
from toolcell.builtin._settled import Changed, open_folder, parent_of
from toolcell.errors import ToolError
from toolcell.markers import AtLeast, ReadPath, Returned

FILE_BYTES_MAX: Final = 16 << 20
LINE_CHARS_MAX: Final = 500
FILES_READ_MAX: Final = 10_000
"""Files that are named in the result; `files_searched` counts them all."""
OUTPUT_CHARS_MAX: Final = 1 << 20
_BINARY_PROBE: Final = 8_192

Matcher = Callable[[bytes], bool]


def search(
    pattern: str,
    path: ReadPath = Path("."),
    glob: str | None = None,
    literal: bool = False,
    limit: Annotated[int, AtLeast(1)] = 200,
) -> Returned:
    """Search the lines of files for a regular expression (RE2 syntax), files in order.

    Binary files, files above 16 MiB, links and .git are skipped.

    Args:
        pattern: the regular expression, matched against one line at a time
        path: the file or folder to search
        glob: only files that match, such as *.py or src/**/*.ts
        literal: take the pattern as plain text
        limit: how many matches to return at most
    """
    whole, line_matches = _matchers(pattern, literal)
    wanted = None if glob is None else _glob(glob)
    matches: list[dict[str, Any]] = []
    read: list[str] = []
    facts, size = {"files_searched": 0, "files_skipped": 0}, 0
    for file, folder, name in _files(path, wanted):
        content = _content(folder, name)
        if content is None:
            facts["files_skipped"] += 1
            continue
        facts["files_searched"] += 1
        if len(read) < FILES_READ_MAX:
            read.append(shown(file))
        if not whole(content):
            continue
        for number, line in enumerate(content.split(b"\n"), 1):
            if line_matches(line):
                size += LINE_CHARS_MAX // 4 + min(len(line), LINE_CHARS_MAX)
                if len(matches) == limit or size > OUTPUT_CHARS_MAX:
                    return Returned({"matches": matches, "truncated": True}, facts, None, read)
                matches.append({"path": shown(file), "line": number, "text": _text(line)})
    return Returned({"matches": matches, "truncated": False}, facts, None, read)


def _matchers(pattern: str, literal: bool) -> tuple[Matcher, Matcher]:
    """Whether a file can hold a match at all, and whether a line does."""
    if literal:
        needle = pattern.encode()
        if b"\n" in needle:
            raise ToolError("the text to search for spans lines; search looks at single lines")
        return lambda content: needle in content, lambda line: needle in line
    of_line = _compiled(pattern)
    # \A, \z and flags but i mean something else in a whole file than in a line of it.
    rest = pattern.replace("(?i)", "").replace("(?:", "").replace("(?P<", "")
    if any(sign in rest for sign in (r"\A", r"\z", "(?")):
        return lambda content: True, lambda line: of_line.search(line) is not None
    of_file = _compiled(f"(?m){pattern}")
    return (
        lambda content: of_file.search(content) is not None,
        lambda line: of_line.search(line) is not None,
    )


def _compiled(pattern: str) -> Any:
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        told = error.args[0] if error.args else error
        reason = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        raise ToolError(
            f"the pattern is not a usable regular expression: {reason[:300]}",
            hint="RE2 syntax: no look-around, no back-references. Set literal for plain text.",
            retryable="maybe",
        ) from None


Found = tuple[str, int, str]
"""A file's path as it is shown, the folder that it lies in by descriptor, and its name there."""


def _files(path: Path, wanted: Matcher | None) -> Iterator[Found]:
    """The file itself, or all regular files below a folder, in the order of their paths."""
    try:
        with parent_of(path) as (folder, name):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                if stat.S_ISLNK(found.st_mode):
                    raise Changed
                require_regular(path, found)
                yield os.fspath(path), folder, name
                return
        top = open_folder(path)
        try:
            yield from _below(top, os.fspath(path), "", wanted)
        finally:
            os.close(top)
    except FileNotFoundError:
        missing(path)
    except OSError as error:
        failed(path, error)


def _below(folder: int, path: str, prefix: str, wanted: Matcher | None) -> Iterator[Found]:
    with os.scandir(folder) as found:
        entries = [
            (f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name, entry)
            for entry in found
            if entry.name != ".git" and not entry.is_symlink()
        ]
    # A folder sorts as its files' paths do: "a-b" comes before "a/b".
    for name, entry in sorted(entries, key=lambda pair: pair[0]):
        inner = prefix + name
        if name.endswith("/"):
            if prefix.count("/") >= 100:
                continue
            try:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                below = os.open(entry.name, flags, dir_fd=folder)
            except OSError:
                continue  # Not ours to see, or gone.
            try:
                yield from _below(below, os.path.join(path, entry.name), inner, wanted)
            finally:
                os.close(below)
        elif entry.is_file(follow_symlinks=False) and (
            wanted is None or wanted(os.fsencode(inner))
        ):
            yield os.path.join(path, entry.name), folder, entry.name


def _content(folder: int, name: str) -> bytes | None:
    """A text file's bytes with LF line ends; None when it is binary, huge or not readable."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        fd = os.open(name, flags, dir_fd=folder)
        with os.fdopen(fd, "rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError:
        return None
    if len(content) > FILE_BYTES_MAX or b"\0" in content[:_BINARY_PROBE]:
        return None
    content = content.removeprefix(b"\xef\xbb\xbf")  # a mark is no part of the first line
    return content.replace(b"\r\n", b"\n").removesuffix(b"\n")


def _text(line: bytes) -> str:
    text = line[: 4 * LINE_CHARS_MAX].decode("utf-8", "replace")
    return f"{text[:LINE_CHARS_MAX]}…" if len(text) > LINE_CHARS_MAX else text


def _glob(glob: str) -> Matcher:
    """A glob as a linear matcher of paths below the searched folder.

    `*` and `?` stop at a slash, `**/` is any number of folders, `[...]` a set, `{a,b}` either.
    Without a slash it is matched against the name alone.
    """
    text = glob.removeprefix("./")
    pieces, at, depth = [], 0, 0
    while at < len(text):
        char, rest = text[at], text[at:]
        close = text.find("]", at + 2) if char == "[" else -1
        if rest.startswith("**/") and text[at - 1 : at] in ("", "/"):
            pieces.append("(?:[^/]+/)*")
            at += 3
        elif rest.startswith("**"):
            pieces.append(".*")
            at += 2
        elif close > 0:
            pieces.append(_set(text[at + 1 : close]))
            at = close + 1
        else:
            # A brace that is never closed stands for itself.
            opens = char == "{" and "}" in rest
            closes = char == "}" and depth > 0
            depth += opens - closes
            pieces.append(_translated(char, opens or closes or (char == "," and depth > 0)))
            at += 1
    compiled = _compiled(rf"(?s)\A(?:{''.join(pieces)})\z")
    if "/" in text:
        return lambda name: compiled.search(name) is not None
    return lambda name: compiled.search(name.rpartition(b"/")[2]) is not None


_WILD: Final = {"*": "[^/]*", "?": "[^/]"}
_GROUPED: Final = {"{": "(?:", "}": ")", ",": "|"}


def _translated(char: str, grouping: bool) -> str:
    if grouping:
        return _GROUPED[char]
    plain = char.isalnum() or not char.isascii() or char in "/_ "
    return _WILD.get(char) or (char if plain else f"\\{char}")


def _set(inner: str) -> str:
    negated = inner[:1] in ("!", "^")
    body = "".join(f"\\{c}" if c in "\\[]^&" else c for c in inner[negated:])
    return f"[^/{body}]" if negated else f"[{body}]"
