"""A word as bash reads it: quotes, escapes and expansions, from the text itself.

The tree says where a word lies and where a substitution in it ends. All else is
read here a second time, by bash's own rules (bash(1), QUOTING and EXPANSION), and
where the two disagree the text is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ._shell_syntax import Piece, RawWord
from ._shell_tree import MISREAD, NotUnderstood, expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node

SIMPLE: Final = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE: Final = re.compile(r"[^\\'\"$`<>|&;() \t\n]+")
_IN_QUOTES: Final = re.compile(r"[^\\\"$`]+")
_IN_HEREDOC: Final = re.compile(r"[^\\$`]+")
ARITHMETIC_RISK: Final = "Arithmetic runs what a variable in it holds."
_CARRIED: Final = "A line is carried on in the middle of a name."
_SPECIAL: Final = frozenset("0123456789@*#?-$!_")

# `${...}` that only reads or edits the value of a variable. `${!x}`, `${x@P}` and
# subscripts other than these can run what the value holds.
_EXPANSION: Final = re.compile(
    r"\$\{(?P<plain>[A-Za-z_][A-Za-z0-9_]*)\}"
    r"|\$\{#?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?])(?:\[[@*0-9]+\])?"
    r"(?:(?::?[-+?]|##?|%%?|//?[#%]?|\^\^?|,,?)[^$`\"'\\{}\[]*|:[ 0-9-][0-9: -]*)?\}"
)
_ASSIGNING: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?=[^$`\"'\\{}\[]*\}")
_ARITHMETIC: Final = re.compile(r"(?:[\s0-9A-Za-z_+\-*/%<>=!&|^~?:(),]|\$(?=[A-Za-z0-9_]))*")


class Lexer:
    """Reads the words of one text.

    `commands` gives the commands of a substitution's node, `nested` those of a text
    in backticks.
    """

    __slots__ = ("_commands", "_nested", "source")

    def __init__(
        self,
        source: str,
        commands: Callable[[Node], Piece],
        nested: Callable[[str], Piece],
    ) -> None:
        self.source = source
        self._commands = commands
        self._nested = nested

    def word(self, start: int, end: int, nodes: Mapping[int, Node]) -> RawWord:
        """Return the word between two offsets; `nodes` are its expansions by start.

        Raises:
            NotUnderstood: it is no one word of bash.
        """
        source = self.source
        text = source[start:end]
        pieces: list[Piece] = []
        at = start
        while at < end:
            if found := _BARE.match(source, at, end):
                before = pieces[-1] if pieces else None
                if before is not None and before.text is not None and not before.quoted:
                    pieces[-1] = Piece(before.text + found[0])  # a line was carried on
                else:
                    pieces.append(Piece(found[0]))
                at = found.end()
                continue
            char = source[at]
            if char == "\\":
                at = self._escape(at, end, pieces)
            elif char == "'":
                close = source.find("'", at + 1, end)
                expect(close >= 0)
                pieces.append(Piece(source[at + 1 : close], quoted=True))
                at = close + 1
            elif char == '"':
                at = self._double(at + 1, end, nodes, pieces)
            elif char == "$":
                at = self._dollar(at, end, nodes, pieces, quoted=False)
            elif char == "`":
                at = self._backtick(at, end, nodes, pieces, in_quotes=False)
            elif char in "<>" and source[at + 1 : at + 2] == "(":
                node = self._node(at, nodes, "process_substitution")
                pieces.append(self._commands(node))
                at = node.end_byte
            else:
                raise NotUnderstood(MISREAD)
        expect(at == end)
        return RawWord(text, tuple(pieces))

    def heredoc(self, start: int, end: int, nodes: Mapping[int, Node]) -> RawWord:
        """Return the data of a heredoc whose delimiter is not quoted, as one word."""
        pieces: list[Piece] = []
        source = self.source
        at = start
        while at < end:
            if found := _IN_HEREDOC.match(source, at, end):
                pieces.append(Piece(found[0], quoted=True))
                at = found.end()
            elif source[at] == "\\":
                pieces.append(Piece(source[at : at + 2], quoted=True))
                at += 2
            elif source[at] == "$":
                at = self._dollar(at, end, nodes, pieces, quoted=True)
            else:
                at = self._backtick(at, end, nodes, pieces, in_quotes=False)
        return RawWord(source[start:end], tuple(pieces))

    def data(self, start: int, end: int) -> RawWord:
        """Return the data of a heredoc whose delimiter is quoted."""
        text = self.source[start:end]
        return RawWord(text, (Piece(text, quoted=True),))

    def covered(
        self, start: int, end: int, nodes: Mapping[int, Node], stops: str = ""
    ) -> list[Piece]:
        """Return the expansions between two offsets, whatever stands between them.

        For `[[ ]]`: quotes count, blanks and operators do not; one of `stops`,
        unquoted, is not understood.
        """
        pieces: list[Piece] = []
        source = self.source
        at = start
        while at < end:
            char = source[at]
            if char == "\\":
                at += 2
            elif char == "'":
                at = source.find("'", at + 1, end) + 1
                expect(at)
            elif char == '"':
                at = self._double(at + 1, end, nodes, pieces)
            elif char == "$":
                at = self._dollar(at, end, nodes, pieces, quoted=False)
            elif char == "`":
                at = self._backtick(at, end, nodes, pieces, in_quotes=False)
            elif char in "<>" and source[at + 1 : at + 2] == "(":
                node = self._node(at, nodes, "process_substitution")
                pieces.append(self._commands(node))
                at = node.end_byte
            elif char in stops:
                raise NotUnderstood(MISREAD)
            else:
                at += 1
        return [piece for piece in pieces if piece.text is None]

    def _escape(self, at: int, end: int, pieces: list[Piece]) -> int:
        expect(at + 1 < end)
        char = self.source[at + 1]
        if char != "\n":
            pieces.append(Piece(char, quoted=True))
        return at + 2

    def _double(self, at: int, end: int, nodes: Mapping[int, Node], pieces: list[Piece]) -> int:
        source = self.source
        pieces.append(Piece("", quoted=True))
        while True:
            expect(at < end)
            if found := _IN_QUOTES.match(source, at, end):
                pieces.append(Piece(found[0], quoted=True))
                at = found.end()
                continue
            char = source[at]
            if char == '"':
                return at + 1
            if char == "\\":
                escaped = source[at + 1 : at + 2]
                if escaped != "\n":
                    kept = escaped if escaped in ("$", "`", '"', "\\") else "\\" + escaped
                    pieces.append(Piece(kept, quoted=True))
                at += 2
            elif char == "$":
                at = self._dollar(at, end, nodes, pieces, quoted=True)
            else:
                at = self._backtick(at, end, nodes, pieces, in_quotes=True)

    def _dollar(
        self, at: int, end: int, nodes: Mapping[int, Node], pieces: list[Piece], *, quoted: bool
    ) -> int:
        source = self.source
        following = source[at + 1] if at + 1 < end else ""
        if source.startswith("\\\n", at + 1):
            raise NotUnderstood(_CARRIED)
        if following == "'" and not quoted:
            return self._ansi(at + 2, end, pieces)
        if following == '"' and not quoted:
            return self._double(at + 2, end, nodes, pieces)
        if following == "(" and source[at + 2 : at + 3] != "(":
            node = self._node(at, nodes, "command_substitution")
            pieces.append(self._commands(node))
        elif following in ("(", "["):
            node = self._node(at, nodes, "arithmetic_expansion")
            pieces.extend(self.arithmetic(node))
        elif following == "{":
            node = self._node(at, nodes, "expansion")
            pieces.extend(self._expansion(node, quoted=quoted))
        elif found := NAME.match(source, at + 1, end):
            if source.startswith("\\\n", found.end()):
                raise NotUnderstood(_CARRIED)
            pieces.append(Piece(variable=found[0], quoted=quoted))
            return found.end()
        elif following and following in _SPECIAL:
            pieces.append(Piece(quoted=quoted))
            return at + 2
        else:
            pieces.append(Piece("$", quoted=quoted))
            return at + 1
        return node.end_byte

    def _expansion(self, node: Node, *, quoted: bool) -> list[Piece]:
        text = self.source[node.start_byte : node.end_byte]
        if found := _EXPANSION.fullmatch(text):
            return [Piece(variable=found["plain"], quoted=quoted)]
        if found := _ASSIGNING.fullmatch(text):
            return [Piece(quoted=quoted, assigns=(found[1],))]
        risk = "An expansion ${...} of this form can run what a variable holds."
        return [Piece(quoted=quoted, risk=risk), *self._bodies(node)]

    def arithmetic(self, node: Node) -> list[Piece]:
        """Return the pieces of `$(( ))` or `(( ))`: numbers, or a risk."""
        text = self.source[node.start_byte : node.end_byte]
        text = text.removeprefix("$").removeprefix("[").removesuffix("]")
        if _ARITHMETIC.fullmatch(text):
            names = tuple(dict.fromkeys(NAME.findall(text)))
            risk = ARITHMETIC_RISK if names else None
            return [Piece(quoted=True, assigns=names, risk=risk)]
        risk = "Arithmetic with a subscript or a substitution can run what it holds."
        return [Piece(quoted=True, risk=risk), *self._bodies(node)]

    def _bodies(self, node: Node, depth: int = 0) -> list[Piece]:
        # Level 3 already: what is in it is still told, and still denied where it must be.
        expect(depth <= DEPTH_MAX, "It is nested too deep.")
        found: dict[int, Node] = {}
        for child in node.children:
            expansions(child, found)
        # The grammar does not read backticks everywhere.
        expect(
            "`" not in self.source[node.start_byte : node.end_byte],
            "Backticks in an expansion are not understood.",
        )
        pieces: list[Piece] = []
        for one in found.values():
            if one.type in ("command_substitution", "process_substitution"):
                pieces.append(self._commands(one))
            elif one.type != "simple_expansion":
                pieces.extend(self._bodies(one, depth + 1))
        return pieces

    def _backtick(
        self,
        at: int,
        end: int,
        nodes: Mapping[int, Node],
        pieces: list[Piece],
        *,
        in_quotes: bool,
    ) -> int:
        source = self.source
        escapable = '\\$`"' if in_quotes else "\\$`"
        inner: list[str] = []
        now = at + 1
        while now < end and source[now] != "`":
            if source[now] == "\\" and source[now + 1 : now + 2] in tuple(escapable):
                now += 1
            inner.append(source[now])
            now += 1
        expect(now < end and (at not in nodes or nodes[at].end_byte == now + 1))
        pieces.append(self._nested("".join(inner)))
        return now + 1

    def _ansi(self, at: int, end: int, pieces: list[Piece]) -> int:
        source = self.source
        kept: list[str] = []
        while at < end and source[at] != "'":
            if source[at] != "\\":
                kept.append(source[at])
                at += 1
                continue
            found = _ANSI.match(source, at, end)
            if found is None:
                kept.append(source[at : at + 2])
                at += 2
                continue
            kept.append(_ansi_character(found))
            at = found.end()
        if at >= end or "\0" in kept:
            raise NotUnderstood("A quote of the form $'...' is not understood.")
        pieces.append(Piece("".join(kept), quoted=True))
        return at + 1

    def _node(self, at: int, nodes: Mapping[int, Node], kind: str) -> Node:
        node = nodes[at]
        expect(node.type == kind)
        return node


_ANSI: Final = re.compile(
    r"\\(?:(?P<one>[abeEfnrtv\\'\"?])|(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})"
    r"|u(?P<u>[0-9A-Fa-f]{1,4})|U(?P<U>[0-9A-Fa-f]{1,8})|c(?P<control>[@-_a-z?]))"
)
_ONE: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def _ansi_character(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind == "one":
        return _ONE[found["one"]]
    if kind == "control":
        return chr(0x7F if found["control"] == "?" else ord(found["control"].upper()) ^ 0x40)
    if kind == "octal":
        return chr(int(found["octal"], 8) & 0xFF)
    if kind == "hex":
        return chr(int(found["hex"], 16))
    code = int(found[kind or "u"], 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise NotUnderstood("A quote of the form $'...' is not understood.")
    return chr(code).encode("utf-8").decode("latin-1")


_EXPANSIONS: Final = frozenset(
    {
        "arithmetic_expansion",
        "command_substitution",
        "expansion",
        "process_substitution",
        "simple_expansion",
    }
)


def expansions(node: Node, found: dict[int, Node], depth: int = 0) -> dict[int, Node]:
    """Add the outermost expansions in a node to `found`, by where they start."""
    if node.type in _EXPANSIONS:
        found[node.start_byte] = node
    elif node.child_count:
        expect(depth <= DEPTH_MAX, "It is nested too deep.")
        for child in node.children:
            expansions(child, found, depth + 1)
    return found


# How deep anything may lie in anything else.
DEPTH_MAX: Final = 40
