"""The parser's tree, made into the syntax of `_shell_syntax`, and doubted on the way.

The grammar joins a redirect to a whole list, and hangs what follows a heredoc's
operator on its line below the heredoc. That is put right here; a node that nobody
knows is not understood.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ._shell_lex import ARITHMETIC_RISK, DEPTH_MAX, NAME, SIMPLE, Lexer, expansions
from ._shell_syntax import (
    AndOr,
    Block,
    Case,
    Expression,
    Function,
    If,
    Loop,
    Not,
    Piece,
    Pipeline,
    RawWord,
    Sequence,
    Simple,
    Statement,
    decoded,
    encoded,
)
from ._shell_tokens import BLANK, COMMANDS, RESERVED, SPACE, Tokens
from ._shell_tree import MISREAD, NotUnderstood, expect, parse_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node

# A text inside a text inside a text, by backticks or `sh -c`.
NESTING_MAX: Final = 5
TOO_DEEP: Final = "It is nested too deep."


def read_syntax(text: str, *, nesting: int = 0) -> Sequence:
    """Return the commands of a text.

    Raises:
        NotUnderstood: it is no bash, too much of it, or its tree cannot be trusted.
        UnicodeEncodeError: it is no text.
    """
    expect(nesting <= NESTING_MAX, TOO_DEEP)
    expect("\0" not in text, "It holds a NUL character.")
    source = encoded(text)
    tree = parse_tree(source.encode("latin-1"))
    try:
        return _Converter(source, nesting).sequence(tree.root_node.children, 0, len(source))
    except (IndexError, KeyError, ValueError):  # a tree of a shape that nobody knows
        raise NotUnderstood(MISREAD) from None


class _Converter:
    __slots__ = ("_depth", "_lexer", "_nesting", "_source", "_tokens")

    def __init__(self, source: str, nesting: int) -> None:
        self._source = source
        self._nesting = nesting
        self._depth = 0
        self._lexer = Lexer(source, self._substitution, self._nested)
        self._tokens = Tokens(source, self._lexer)

    def _substitution(self, node: Node) -> Piece:
        children = self._tokens.boundaries(node)
        is_pipe = node.type == "process_substitution"
        return Piece(quoted=True, body=self._between(children), pipe=is_pipe)

    def _nested(self, inner: str) -> Piece:
        return Piece(quoted=True, body=read_syntax(decoded(inner), nesting=self._nesting + 1))

    # ------------------------------------------------------------ statements

    def sequence(self, nodes: Iterable[Node], start: int, end: int) -> Sequence:
        """Return the commands between two offsets, each apart from the next."""
        items: list[tuple[Statement, bool]] = []
        at, separated = start, True
        for node in nodes:
            expect(SPACE.fullmatch(self._source, at, node.start_byte))
            gap = self._source[at : node.start_byte]
            separated = separated or "\n" in gap.replace("\\\n", "")
            kind = node.type
            if kind == "comment":
                self._tokens.comment(node)
            elif kind in (";", "&"):
                expect(items and self._text(node) == kind)
                items[-1] = (items[-1][0], kind == "&")
                separated = True
            else:
                expect(separated, "Two commands stand side by side.")
                items.append((self._statement(node), False))
                separated = False
            at = node.end_byte
        expect(SPACE.fullmatch(self._source, at, end))
        return Sequence(tuple(items))

    def _between(self, children: list[Node]) -> Sequence:
        """Return the commands between the first and the last child."""
        first, *inside, last = children
        return self.sequence(inside, first.end_byte, last.start_byte)

    def _statement(self, node: Node) -> Statement:
        make = _STATEMENTS[node.type]
        self._depth += 1
        expect(self._depth <= DEPTH_MAX, TOO_DEEP)
        made = make(self, node)
        self._depth -= 1
        return made

    def _text(self, node: Node) -> str:
        return self._tokens.text(node)

    def _list(self, node: Node) -> Statement:
        left, operator, right = self._tokens.tight(node)
        return AndOr(self._statement(left), operator.type, self._statement(right))

    def _pipeline(self, node: Node) -> Statement:
        return Pipeline(tuple(self._statement(one) for one in self._tokens.tight(node)[::2]))

    def _negated(self, node: Node) -> Statement:
        _, body = self._tokens.tight(node)
        return Not(self._statement(body))

    def _block(self, node: Node) -> Statement:
        children = self._tokens.boundaries(node)
        if children[0].type == "((":
            pieces = tuple(self._lexer.arithmetic(node))
            return Expression("((", RawWord(self._text(node), pieces))
        return Block(self._between(children), (), is_subshell=node.type == "subshell")

    def _test(self, node: Node) -> Statement:
        name = self._tokens.boundaries(node)[0].type
        # In `[ a > b ]` bash sees a redirect.
        stops = "<>|&;()\n" if name == "[" else ";\n"
        found = expansions(node, {})
        pieces = self._lexer.covered(node.start_byte, node.end_byte, found, stops)
        risk = (_test_risk if name == "[[" else _name_risk)(node, self._source)
        if risk is not None:
            pieces.append(Piece(quoted=True, risk=risk))
        return Expression(name, RawWord(self._text(node), tuple(pieces)))

    def _if(self, node: Node) -> Statement:
        *children, _ = self._tokens.boundaries(node)
        clauses = [child for child in children if child.type in ("elif_clause", "else_clause")]
        first = [child for child in children if child not in clauses]
        branches = [self._branch(first)]
        otherwise = None
        at = first[-1].end_byte
        for clause in clauses:
            expect(SPACE.fullmatch(self._source, at, clause.start_byte))
            inside = self._tokens.boundaries(clause)
            if clause.type == "elif_clause":
                branches.append(self._branch(inside))
            else:
                start, end = inside[0].end_byte, clause.end_byte
                otherwise = self.sequence(inside[1:], start, end)
            at = clause.end_byte
        expect(SPACE.fullmatch(self._source, at, node.end_byte - len("fi")))
        return If(tuple(branches), otherwise)

    def _branch(self, nodes: list[Node]) -> tuple[Sequence, Sequence]:
        at = [node.type for node in nodes].index("then")
        condition = self._between(nodes[: at + 1])
        body = self.sequence(nodes[at + 1 :], nodes[at].end_byte, nodes[-1].end_byte)
        return condition, body

    def _while(self, node: Node) -> Statement:
        children = self._tokens.boundaries(node)
        return Loop(self._between(children), None, (), self._do(children[-1]))

    def _do(self, node: Node) -> Sequence:
        return self._between(self._tokens.boundaries(node))

    def _for(self, node: Node) -> Statement:
        _, name, *rest, do = self._tokens.tight(node)
        words = self._tokens.words([child for child in rest if child.type not in ("in", ";")])
        if not any(child.type == "in" for child in rest):
            # Over the arguments of the text, of which nothing is known.
            words = (RawWord('"$@"', (Piece(),)),)
        expect(NAME.fullmatch(self._text(name)))
        return Loop(None, self._text(name), words, self._do(do))

    def _c_for(self, node: Node) -> Statement:
        do = node.children[-1]
        found = [piece for child in node.children[:-1] for piece in self._lexer.arithmetic(child)]
        pieces = [Piece(quoted=True, risk=ARITHMETIC_RISK), *found]
        head = Expression("((", RawWord("for ((", tuple(pieces)))
        return Loop(Sequence(((head, False),)), None, (), self._do(do))

    def _case(self, node: Node) -> Statement:
        _, *children, _ = self._tokens.tight(node)
        words: list[RawWord] = []
        bodies: list[Sequence] = []
        subject: list[Node] = []
        for child in children:
            if child.type == "case_item":
                patterns, body = self._case_item(child)
                words += patterns
                bodies.append(body)
            elif child.type not in ("in", ";"):
                subject.append(child)
        return Case((*self._tokens.words(subject), *words), tuple(bodies))

    def _case_item(self, node: Node) -> tuple[list[RawWord], Sequence]:
        children = self._tokens.boundaries(node)
        close = [child.type for child in children].index(")")
        at = node.start_byte
        for child in children[: close + 1]:
            expect(SPACE.fullmatch(self._source, at, child.start_byte))
            at = child.end_byte
        patterns = [child for child in children[:close] if child.type not in ("(", "|")]
        if children[-1].type[0] == ";":
            body = self._between(children[close:])
        else:
            body = self.sequence(children[close + 1 :], at, node.end_byte)
        return [self._pattern(child) for child in patterns], body

    def _pattern(self, node: Node) -> RawWord:
        found = self._lexer.covered(node.start_byte, node.end_byte, expansions(node, {}))
        return RawWord(self._text(node), tuple(found))

    def _function(self, node: Node) -> Statement:
        name, *rest = (
            child for child in self._tokens.tight(node) if child.type not in ("function", "(", ")")
        )
        expect(SIMPLE.fullmatch(self._text(name)), "A function's name is not understood.")
        body = self._statement(rest[0])
        if len(rest) > 1:
            body = self._block_of(body, rest[1:])
        return Function(self._text(name), self._text(node), body)

    def _block_of(self, body: Statement, nodes: list[Node]) -> Statement:
        """Return a statement with the redirects that follow it."""
        tokens, tails = self._tokens.of_all(nodes)
        words, redirects = self._tokens.assembled(tokens)
        expect(not words, "A word follows the end of a statement.")
        inside = Sequence(((body, False),))
        return self._tailed(Block(inside, redirects, is_subshell=False), tails)

    # ------------------------------------------------------------ commands, redirects

    def _simple(self, node: Node) -> Statement:
        return self._command([node])

    def _assignments(self, node: Node) -> Statement:
        several = node.type == "variable_assignments"
        words = self._tokens.words(self._tokens.boundaries(node) if several else [node])
        return Simple(self._text(node), words, ())

    def _redirected(self, node: Node) -> Statement:
        """Return a statement with its redirects, given to the command they belong to."""
        children = self._tokens.boundaries(node)
        if children[0].type.endswith("_redirect"):
            return self._command(children)
        return self._with_redirects(children[0], children[1:])

    def _with_redirects(self, body: Node, rest: list[Node]) -> Statement:
        if body.type in COMMANDS:
            return self._command([body, *rest])
        if body.type == "negated_command":
            _, last = self._tokens.tight(body)
            return _onto(self._with_redirects(last, rest), Not)
        if body.type == "pipeline":
            *before, _, last = self._tokens.tight(body)
            stages = tuple(self._statement(one) for one in before[::2])
            made = self._with_redirects(last, rest)
            return _onto(made, lambda one: Pipeline((*stages, one)))
        if body.type == "list":
            # `a && b > f` comes as `(a && b) > f`.
            first, operator, last = self._tokens.tight(body)
            left = self._statement(first)
            made = self._with_redirects(last, rest)
            return _onto(made, lambda one: AndOr(left, operator.type, one))
        expect(BLANK.fullmatch(self._source, body.end_byte, rest[0].start_byte))
        return self._block_of(self._statement(body), rest)

    def _command(self, nodes: list[Node]) -> Statement:
        tokens, tails = self._tokens.of_all(nodes)
        words, redirects = self._tokens.assembled(tokens)
        name = words[0].source.replace("\\\n", "") if words else ""
        expect(name not in RESERVED, "A reserved word stands where the grammar sees a command.")
        source = self._source[tokens[0].start : tokens[-1].end]
        return self._tailed(Simple(source, words, redirects), tails)

    def _tailed(self, made: Statement, tails: list[Node]) -> Statement:
        """Return a statement with what follows a heredoc's operator on its line."""
        operator = None
        for tail in tails:
            if tail.type == "pipeline":
                first, *after = (self._statement(one) for one in self._tokens.tight(tail)[1::2])
                made = _onto(first, functools.partial(_piped, made))
                made = Pipeline((made, *after)) if after else made
            elif tail.type in ("&&", "||"):
                operator = tail.type
            else:
                expect(operator is not None)
                made = AndOr(made, operator or "", self._statement(tail))
        return made


def _piped(before: Statement, after: Statement) -> Statement:
    return Pipeline((before, after))


def _onto(made: Statement, wrap: Callable[[Statement], Statement]) -> Statement:
    """Return a list of commands with its first one wrapped; anything else wrapped whole."""
    if isinstance(made, AndOr):
        return AndOr(_onto(made.left, wrap), made.operator, made.right)
    return wrap(made)


_ARITHMETIC_TESTS: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_INTEGER: Final = re.compile(r"-?[0-9]+")
_BINARY: Final = _ARITHMETIC_TESTS | {
    "=",
    "==",
    "!=",
    "<",
    ">",
    "-nt",
    "-ot",
    "-ef",
    "-a",
    "-o",
    ")",
}
_BY_NAME: Final = "A test of a variable by its name can run what the name holds."
_EXPANDED: Final = frozenset(
    {"arithmetic_expansion", "command_substitution", "expansion", "process_substitution",
     "simple_expansion"}
)  # fmt: skip


def _test_risk(node: Node, source: str, depth: int = 0) -> str | None:
    """Return why `[[ ]]` can run what a word holds: it evaluates numbers and subscripts."""
    expect(depth <= DEPTH_MAX, TOO_DEEP)
    for child in node.children:
        if risk := _test_risk(child, source, depth + 1):
            return risk
        text = source[child.start_byte : child.end_byte]
        if child.type == "test_operator" and text in ("-v", "-R"):
            return _BY_NAME
        if child.type == "test_operator" and text in _ARITHMETIC_TESTS:
            sides = [one for one in node.children if one.type != "test_operator"]
            texts = (source[one.start_byte : one.end_byte] for one in sides)
            if not all(map(_INTEGER.fullmatch, texts)):
                return ARITHMETIC_RISK
    return None


def _name_risk(node: Node, source: str) -> str | None:
    """Return why `[ ]` can run what a word holds: `-v` takes a subscript, which is evaluated."""
    text, at = "", node.children[0].end_byte
    for found in _expanded(node, 0):
        text += source[at : found.start_byte] + "$"
        at = found.end_byte
    text += source[at : node.children[-1].start_byte]
    words = re.sub(r"[\"'\\\\]", "", text).split()
    for word, after in itertools.pairwise(words):
        could_be = word in ("-v", "-R") or (word.startswith("$") and after not in _BINARY)
        if could_be and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", after):
            return _BY_NAME
    return None


def _expanded(node: Node, depth: int) -> Iterator[Node]:
    expect(depth <= DEPTH_MAX, TOO_DEEP)
    for child in node.children:
        if child.type in _EXPANDED:
            yield child
        else:
            yield from _expanded(child, depth + 1)


_STATEMENTS: Final[dict[str, Callable[[_Converter, Node], Statement]]] = {
    "c_style_for_statement": _Converter._c_for,
    "case_statement": _Converter._case,
    "command": _Converter._simple,
    "compound_statement": _Converter._block,
    "declaration_command": _Converter._simple,
    "file_redirect": _Converter._simple,
    "for_statement": _Converter._for,
    "function_definition": _Converter._function,
    "if_statement": _Converter._if,
    "list": _Converter._list,
    "negated_command": _Converter._negated,
    "pipeline": _Converter._pipeline,
    "redirected_statement": _Converter._redirected,
    "subshell": _Converter._block,
    "test_command": _Converter._test,
    "unset_command": _Converter._simple,
    "variable_assignment": _Converter._assignments,
    "variable_assignments": _Converter._assignments,
    "while_statement": _Converter._while,
}
