"""The first paragraph and the parameters' descriptions of a docstring, in its three styles."""

from __future__ import annotations

import re

_GOOGLE = re.compile(r"(args|arguments|parameters|params):", re.IGNORECASE)
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*,\s*(\w+))?\s*(?::.*)?")
_REST = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def summary(doc: str | None) -> str:
    """The first paragraph, as one line."""
    words: list[str] = []
    for line in _lines(doc):
        if not line.strip() or _GOOGLE.fullmatch(line.strip()) or line.strip().startswith(":"):
            if words:
                break
            continue
        words.append(line.strip())
    return " ".join(words)


def parameters(doc: str | None) -> dict[str, str]:
    """What the docstring says of each parameter: Google, NumPy or reST style."""
    lines = _lines(doc)
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        text = line.strip()
        if match := _REST.match(text):
            found[match[1]] = _joined(match[2], _below(lines, number + 1, _indent(line)))
        elif _GOOGLE.fullmatch(text):
            found |= _google(_below(lines, number + 1, _indent(line), blanks=True))
        elif text.lower() in ("parameters", "other parameters") and _underlined(lines, number):
            found |= _numpy(lines[number + 2 :], _indent(line))
    return {name: text for name, text in found.items() if text}


def _google(lines: list[str]) -> dict[str, str]:
    found = {}
    first = min((_indent(line) for line in lines if line.strip()), default=0)
    for number, line in enumerate(lines):
        match = _ENTRY.match(line.strip())
        if match and _indent(line) == first:
            found[match[1]] = _joined(match[2], _below(lines, number + 1, first))
    return found


def _numpy(lines: list[str], margin: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        if _underlined(lines, number):
            break
        match = _NUMPY_ENTRY.fullmatch(line.strip())
        if match and _indent(line) == margin:
            text = _joined("", _below(lines, number + 1, margin))
            found |= {name: text for name in match.groups() if name}
    return found


def _below(lines: list[str], start: int, margin: int, *, blanks: bool = False) -> list[str]:
    """The lines from `start` that are indented deeper than `margin`."""
    found = []
    for line in lines[start:]:
        if line.strip() and _indent(line) <= margin:
            break
        if not line.strip() and not blanks:
            break
        found.append(line)
    return found


def _underlined(lines: list[str], number: int) -> bool:
    rule = lines[number + 1].strip() if number + 1 < len(lines) else ""
    return len(rule) >= 3 and set(rule) == {"-"}


def _joined(first: str, rest: list[str]) -> str:
    return " ".join(part for part in (first.strip(), *(line.strip() for line in rest)) if part)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _lines(doc: str | None) -> list[str]:
    """The docstring's lines without their common margin (PEP 257)."""
    lines = (doc or "").expandtabs().splitlines()
    margin = min((_indent(line) for line in lines[1:] if line.strip()), default=0)
    return [line.lstrip() if number == 0 else line[margin:] for number, line in enumerate(lines)]
