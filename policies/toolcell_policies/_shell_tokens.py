"""A simple command of the tree, made into words and redirects, and doubted on the way.

tree-sitter-bash is a grammar for editors: it drops a lone `-`, reads an escaped
blank as a blank, and takes the words after a redirect's target for targets. What is
known is put right; every stretch of text between two nodes must be blank.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ._shell_lex import SIMPLE, Lexer, expansions
from ._shell_syntax import Piece, RawWord, Redirect
from ._shell_tree import NotUnderstood, expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node

BLANK: Final = re.compile(r"(?:[ \t]|\\\n)*")
SPACE: Final = re.compile(r"(?:[ \t\n]|\\\n)*")
_JOINED: Final = re.compile(r"(?:\\\n)*")
_ESCAPED: Final = re.compile(r"([ \t]*)((?:\\[ \t])+)")
_DROPPED: Final = re.compile(r"[ \t]+-[ \t]+")
_WORDS: Final = frozenset(
    {
        "$", "ansi_c_string", "arithmetic_expansion", "brace_expression", "command_substitution",
        "concatenation", "expansion", "extglob_pattern", "number", "process_substitution",
        "raw_string", "regex", "simple_expansion", "string", "translated_string",
        "variable_assignment", "variable_name", "word",
    }
)  # fmt: skip
COMMANDS: Final = frozenset({"command", "declaration_command", "unset_command"})
_KEYWORDS: Final = frozenset(
    {"declare", "export", "local", "readonly", "typeset", "unset", "unsetenv"}
)
_OPERATORS: Final = frozenset({"<", ">", ">>", ">|", "&>", "&>>", "<&", ">&", "<&-", ">&-", "<<<"})
# Where bash reads one of these as the first word, a statement begins that the grammar missed.
RESERVED: Final = frozenset(
    {
        "!", "{", "}", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for",
        "function", "if", "in", "select", "then", "until", "while",
    }
)  # fmt: skip
_BOUNDED: Final = RESERVED | {"[", "]"}
# What ends a word that is not quoted.
_ENDS: Final = frozenset(" \t\n;&|()<>")
_DESCRIPTOR: Final = re.compile(r"[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\}")
_DELIMITER: Final = re.compile(r"[A-Za-z0-9_.!@%+,: -]+")

_HEREDOC: Final = "A heredoc of this form is not understood."
_REDIRECT: Final = "A redirect of this form is not understood."


class Token(NamedTuple):
    """A word, a redirect's operator or the data of a heredoc."""

    kind: str
    start: int
    end: int
    nodes: tuple[Node, ...] = ()


class Tokens:
    """Makes words and redirects of the nodes of one text.

    Everything here raises NotUnderstood where the tree cannot be trusted.
    """

    __slots__ = ("lexer", "source")

    def __init__(self, source: str, lexer: Lexer) -> None:
        self.source = source
        self.lexer = lexer

    def text(self, node: Node) -> str:
        """Return what a node covers."""
        return self.source[node.start_byte : node.end_byte]

    def boundaries(self, node: Node) -> list[Node]:
        """Return a node's children, once its signs and reserved words are what bash sees.

        A reserved word is a word of its own, a sign is as it is written, and
        nothing lies in the node before the first child or after the last one.
        """
        source = self.source
        children = node.children
        for child in children:
            kind = child.type
            if not child.is_named:
                expect(self.text(child) == kind)
                if kind in _BOUNDED:
                    start, end = child.start_byte, child.end_byte
                    expect(not start or source[start - 1] in _ENDS)
                    expect(end == len(source) or source[end] in _ENDS)
        expect(not children or children[0].start_byte == node.start_byte)
        if children:  # a clause may take the end of its line along
            expect(SPACE.fullmatch(source, children[-1].end_byte, node.end_byte))
        return children

    def comment(self, node: Node) -> None:
        """Find a comment to begin where a word would and to end with its line."""
        start = node.start_byte
        while self.source.endswith("\\\n", 0, start):
            start -= 2
        before = self.source[start - 1 : start]
        after = self.source[node.end_byte : node.end_byte + 1]
        expect(before in ("", *" \t\n;&|()") and after in ("", "\n"))
        expect("\n" not in self.text(node))

    def tight(self, node: Node) -> list[Node]:
        """Return a node's children without comments, with nothing but space between them."""
        kept: list[Node] = []
        at = node.start_byte
        for child in self.boundaries(node):
            expect(SPACE.fullmatch(self.source, at, child.start_byte))
            at = child.end_byte
            if child.type == "comment":
                self.comment(child)
            else:
                kept.append(child)
        return kept

    def of(self, node: Node) -> tuple[list[Token], list[Node]]:
        """Return the tokens of a command or a redirect, and what follows a heredoc's line."""
        kind = node.type
        if kind in _WORDS:
            return [Token("word", node.start_byte, node.end_byte, (node,))], []
        if kind == "heredoc_redirect":
            return self._heredoc(node)
        if kind in ("file_redirect", "herestring_redirect"):
            return self._redirect(node), []
        expect(kind in COMMANDS, f"A {kind.replace('_', ' ')} stands where a word is expected.")
        tokens: list[Token] = []
        tails: list[Node] = []
        for child in self.boundaries(node):
            if child.type == "command_name" or child.type in _KEYWORDS:
                tokens.append(Token("word", child.start_byte, child.end_byte, (child,)))
            else:
                more, tail = self.of(child)
                tokens += more
                tails += tail
        return tokens, tails

    def of_all(self, nodes: list[Node]) -> tuple[list[Token], list[Node]]:
        """Return the tokens of several nodes."""
        tokens: list[Token] = []
        tails: list[Node] = []
        for node in nodes:
            more, tail = self.of(node)
            tokens += more
            tails += tail
        return tokens, tails

    def _redirect(self, node: Node) -> list[Token]:
        tokens: list[Token] = []
        for child in self.boundaries(node):
            kind = child.type
            if kind == "file_descriptor":
                continue
            expect(kind in _OPERATORS or kind in _WORDS, _REDIRECT)
            if kind in _OPERATORS:
                tokens.append(Token(kind, node.start_byte, child.end_byte))
            else:
                tokens.append(Token("word", child.start_byte, child.end_byte, (child,)))
        return tokens

    def _heredoc(self, node: Node) -> tuple[list[Token], list[Node]]:
        """Return a heredoc's tokens, once its body is found to be bash's."""
        source = self.source
        parts = {child.type: child for child in self.boundaries(node)}
        begun, body, ended = (
            parts[name] for name in ("heredoc_start", "heredoc_body", "heredoc_end")
        )
        written = self.text(begun)
        delimiter = re.sub(r"[\\'\"]", "", written)
        expect(_DELIMITER.fullmatch(delimiter) and written.strip("'\"\\") == delimiter, _HEREDOC)
        first = source.rfind("\n", 0, body.start_byte) + 1
        lines = source[first : ended.end_byte].split("\n")
        lines = [line.lstrip("\t") for line in lines] if "<<-" in parts else lines
        expect(lines[-1] == delimiter and delimiter not in lines[:-1], _HEREDOC)
        expect(not source[first : body.start_byte].strip("\t") and first > begun.end_byte, _HEREDOC)
        expect(source[ended.end_byte : ended.end_byte + 1] in ("", "\n"), _HEREDOC)
        expect(source[begun.end_byte] in _ENDS, _HEREDOC)
        tokens = [Token("<<", node.start_byte, begun.end_byte)]
        tails: list[Node] = []
        at = begun.end_byte
        for child in node.children:
            if child.type in ("file_descriptor", "<<", "<<-") or child.type.startswith("heredoc"):
                continue
            if child.type == "comment":
                self.comment(child)
            elif child.type in _WORDS or child.type.endswith("_redirect"):
                expect(not tails, _HEREDOC)
                tokens += self.of(child)[0]
            else:
                expect(BLANK.fullmatch(source, at, child.start_byte))
                tails.append(child)
            at = child.end_byte
        expect(BLANK.fullmatch(source, at, first - 1), _HEREDOC)
        kind = "data" if written == delimiter else "quoted data"
        return [*tokens, Token(kind, body.start_byte, ended.start_byte, (body,))], tails

    def assembled(self, tokens: list[Token]) -> tuple[tuple[RawWord, ...], tuple[Redirect, ...]]:
        """Return the words and redirects; what touches is one word."""
        data = [token for token in tokens if token.kind.endswith("data")]
        expect(len(data) < 2, "Two heredocs in one command are not understood.")
        words: list[RawWord] = []
        redirects: list[Redirect] = []
        waiting: str | None = None
        for token in self._runs([token for token in tokens if not token.kind.endswith("data")]):
            if token.kind == "word":
                word = self._word(token)
                if waiting is None:
                    words.append(word)
                    continue
                # In `>& --x`, bash ends the redirect after the first dash.
                expect(waiting[-1] != "&" or word.source[0] != "-" or word.source == "-", _REDIRECT)
                redirects.append(Redirect(waiting, word))
                waiting = None
                continue
            expect(waiting is None, _REDIRECT)
            if token.kind == "<<":
                redirects.append(Redirect("<<", self._data(data[0])))
            elif token.kind[-1] == "-":
                redirects.append(Redirect(token.kind, None))
            else:
                waiting = token.kind
        expect(waiting is None, _REDIRECT)
        return tuple(words), tuple(redirects)

    def _data(self, token: Token) -> RawWord:
        if token.kind == "quoted data":
            return self.lexer.data(token.start, token.end)
        return self.lexer.heredoc(token.start, token.end, self._expansions(token))

    def _runs(self, tokens: list[Token]) -> list[Token]:
        """Return the tokens with touching words joined, and a `-` that was dropped."""
        made = tokens[:1]
        for token in tokens[1:]:
            before = made[-1]
            gap = self.source[before.end : token.start]
            if found := _ESCAPED.fullmatch(gap):
                # Escaped blanks, which the grammar takes for blanks, begin the word.
                expect(before.kind == token.kind == "word")
                token, gap = token._replace(start=token.start - len(found[2])), found[1]
            if _DROPPED.fullmatch(gap):
                at = before.end + gap.index("-")
                made += [Token("word", at, at + 1), token]
                continue
            expect(BLANK.fullmatch(gap))
            if before.kind != "word" or not _JOINED.fullmatch(gap):
                made.append(token)
            elif token.kind == "word":
                made[-1] = Token("word", before.start, token.end, before.nodes + token.nodes)
            else:
                number = self.source[before.start : before.end]
                expect(not _DESCRIPTOR.fullmatch(number), _REDIRECT)
                made.append(token)
        return made

    def _word(self, token: Token) -> RawWord:
        text = self.source[token.start : token.end]
        if SIMPLE.fullmatch(text):
            return RawWord(text, (Piece(text),))
        if token.nodes and token.nodes[0].type == "variable_assignment":
            value = token.nodes[0].children[-1]
            if value.type == "array":
                return self._array(token, value)
        return self.lexer.word(token.start, token.end, self._expansions(token))

    def _array(self, token: Token, value: Node) -> RawWord:
        expect(len(token.nodes) == 1 and value.end_byte == token.end)
        words = [word for child in self.tight(value)[1:-1] for word in self.words([child])]
        if any(word.source.startswith("[") for word in words):
            raise NotUnderstood("An array with subscripts is not understood.")
        name = self.source[token.start : value.start_byte]
        pieces = [piece for word in words for piece in word.pieces if piece.text is None]
        text = self.source[token.start : token.end]
        return RawWord(text, (Piece(name), Piece(), *pieces))

    def _expansions(self, token: Token) -> dict[int, Node]:
        found: dict[int, Node] = {}
        for node in token.nodes:
            expansions(node, found)
        return found

    def words(self, nodes: list[Node]) -> tuple[RawWord, ...]:
        """Return the words of nodes that are nothing else."""
        words, redirects = self.assembled(self.of_all(nodes)[0])
        expect(not redirects)
        return words
