"""Text from a tool or a model, made safe to show to a person: nothing hidden, nothing that acts."""

from __future__ import annotations

import json
import unicodedata

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Letters, marks and symbols by their category that show nothing all the same: variation
# selectors, the combining grapheme joiner, the Hangul fillers, the blank Braille pattern.
_BLANK = frozenset(
    map(
        chr,
        (
            0x034F,
            0x115F,
            0x1160,
            0x2800,
            0x3164,
            0xFFA0,
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def visible(text: str, *, keep: str = "") -> str:
    """The same text with control, format, bidi and unassigned characters written as escapes.

    `keep` names characters that stay, such as a newline where lines are shown as lines.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in keep or not _is_hidden(char) else _escaped(char) for char in text
    )


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN or char in _BLANK


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def source_of(rule: str | None, source: str | None) -> str:
    """The rule of a reason and where it is written, as the end of its line; "" where none spoke."""
    found = [part for part in (rule, source) if part]
    return f" [{', '.join(found)}]" if found else ""


def shown_value(value: object) -> str:
    """An argument as a person reads it: text quoted, several lines as lines, all else JSON."""
    if isinstance(value, str) and "\n" in value:
        return "\n".join(f"    | {_shown_line(line)}" for line in value.split("\n"))
    return visible(json.dumps(value, ensure_ascii=False))


def _shown_line(line: str) -> str:
    """The line itself, or, where it holds something hidden, quoted as JSON: never ambiguous."""
    return line if visible(line) == line else visible(json.dumps(line, ensure_ascii=False))


def shown_call(tool_name: str, arguments: dict[str, object]) -> str:
    """A whole call, one argument after the other, nothing left out."""
    lines = [visible(tool_name)]
    for name, value in arguments.items():
        text = shown_value(value)
        lines.append(f"  {visible(name)}:{'' if text.startswith('    |') else ' '}")
        lines[-1] += f"\n{text}" if text.startswith("    |") else text
    return "\n".join(lines)
