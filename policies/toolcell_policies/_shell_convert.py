"""The parser's tree, made into the syntax of `_shell_syntax`, and doubted on the way.

tree-sitter-bash is a grammar for editors: it drops a lone `-`, reads `\\ ` as a
blank, joins a redirect to a whole list, and takes the words after a redirect's
target for targets. What is known is put right; every stretch of text between two
nodes must be blank; a node that nobody knows is not understood.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ._shell_lex import DEPTH_MAX, NAME, SIMPLE, Lexer, expansions
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
    Redirect,
    Sequence,
    Simple,
    Statement,
    decoded,
    encoded,
)
from ._shell_tree import NotUnderstood, parse_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node

# A text inside a text inside a text, by backticks or `sh -c`.
NESTING_MAX: Final = 5

_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)*")
_SPACE: Final = re.compile(r"(?:[ \t\n]|\\\n)*")
_JOINED: Final = re.compile(r"(?:\\\n)*")
_WORDS: Final = frozenset(
    {
        "$", "ansi_c_string", "arithmetic_expansion", "brace_expression", "command_substitution",
        "concatenation", "expansion", "extglob_pattern", "number", "process_substitution",
        "raw_string", "regex", "simple_expansion", "string", "translated_string",
        "variable_assignment", "variable_name", "word",
    }
)  # fmt: skip
# Where bash reads one of these as the first word, a statement begins that the grammar missed.
_RESERVED: Final = frozenset(
    {
        "!", "{", "}", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for",
        "function", "if", "in", "select", "then", "until", "while",
    }
)  # fmt: skip
_BOUNDED: Final = (_RESERVED - {"!"}) | {"[", "]"}
# What ends a word that is not quoted.
_ENDS: Final = frozenset(" \t\n;&|()<>")
_DESCRIPTOR: Final = re.compile(r"[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\}")


def read_syntax(text: str, *, nesting: int = 0) -> Sequence:
    """Return the commands of a text.

    Raises:
        NotUnderstood: it is no bash, too much of it, or its tree cannot be trusted.
    """
    if nesting > NESTING_MAX:
        raise NotUnderstood("It is nested too deep.")
    if "\0" in text:
        raise NotUnderstood("It holds a NUL character.")
    source = encoded(text)
    tree = parse_tree(source.encode("latin-1"))
    return _Converter(source, nesting).whole(tree.root_node)


class _Token(NamedTuple):
    """A word, a redirect's operator or a heredoc of a simple command."""

    kind: str
    start: int
    end: int
    nodes: tuple[Node, ...] = ()


class _Converter:
    __slots__ = ("_depth", "_lexer", "_nesting", "_source")

    def __init__(self, source: str, nesting: int) -> None:
        self._source = source
        self._nesting = nesting
        self._depth = 0
        self._lexer = Lexer(source, self._substitution, self._nested)

    def whole(self, root: Node) -> Sequence:
        """Return the commands of the whole text."""
        if root.type != "program":
            raise NotUnderstood("It is no shell command.")
        return self._sequence(root.children, 0, len(self._source))

    # ------------------------------------------------------------ substitutions

    def _substitution(self, node: Node) -> Piece:
        children = node.children
        if len(children) < 2:
            raise NotUnderstood("A substitution is not understood.")
        if children[0].type == "`":
            inner = self._source[node.start_byte + 1 : node.end_byte - 1]
            return self._nested(inner.replace("\\`", "`"))
        inside = children[1:-1]
        body = self._sequence(inside, children[0].end_byte, children[-1].start_byte)
        return Piece(quoted=True, body=body, pipe=node.type == "process_substitution")

    def _nested(self, inner: str) -> Piece:
        return Piece(quoted=True, body=read_syntax(decoded(inner), nesting=self._nesting + 1))

    # ------------------------------------------------------------ statements

    def _sequence(self, nodes: Iterable[Node], start: int, end: int) -> Sequence:
        items: list[tuple[Statement, bool]] = []
        at, separated = start, True
        for node in nodes:
            gap = self._source[at : node.start_byte]
            if not _SPACE.fullmatch(gap):
                raise NotUnderstood("A part of it is not read the same way twice.")
            separated = separated or "\n" in gap.replace("\\\n", "")
            kind = node.type
            if kind == "comment":
                self._comment(node)
            elif kind in (";", "&", "\n"):
                if kind == "&":
                    if not items:
                        raise NotUnderstood("An '&' stands alone.")
                    items[-1] = (items[-1][0], True)
                separated = True
            else:
                if not separated:
                    raise NotUnderstood("Two commands stand side by side.")
                items.append((self._statement(node), False))
                separated = False
            at = node.end_byte
        if not _SPACE.fullmatch(self._source[at:end]):
            raise NotUnderstood("A part of it is not read the same way twice.")
        return Sequence(tuple(items))

    def _comment(self, node: Node) -> None:
        start = node.start_byte
        while self._source.endswith("\\\n", 0, start):
            start -= 2
        before = self._source[start - 1 : start] if start else "\n"
        after = self._source[node.end_byte : node.end_byte + 1]
        text = self._source[node.start_byte : node.end_byte]
        if before not in " \t\n;&|()" or after not in ("", "\n") or "\n" in text:
            raise NotUnderstood("A comment is not read the same way twice.")

    def _statement(self, node: Node) -> Statement:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise NotUnderstood("It is nested too deep.")
        try:
            self._boundaries(node)
            make = _STATEMENTS.get(node.type)
            if make is None:
                raise NotUnderstood(f"A {node.type.replace('_', ' ')} stands where none may.")
            return make(self, node)
        finally:
            self._depth -= 1

    def _boundaries(self, node: Node) -> None:
        """Find each reserved word to be a word of its own, and each sign to be as it is written."""
        for child in node.children:
            if not child.is_named and self._text(child) != child.type:
                raise NotUnderstood("A sign is not read the same way twice.")
            if child.type in _BOUNDED:
                before = self._source[child.start_byte - 1 : child.start_byte]
                after = self._source[child.end_byte : child.end_byte + 1]
                if (child.start_byte and before not in _ENDS) or (after and after not in _ENDS):
                    raise NotUnderstood("A reserved word is not read the same way twice.")

    def _tight(self, nodes: list[Node]) -> list[Node]:
        """Return the nodes without comments, with nothing but space between them."""
        kept: list[Node] = []
        at = nodes[0].start_byte
        for node in nodes:
            if not _SPACE.fullmatch(self._source[at : node.start_byte]):
                raise NotUnderstood("A part of it is not read the same way twice.")
            at = node.end_byte
            if node.type == "comment":
                self._comment(node)
            else:
                kept.append(node)
        return kept

    def _list(self, node: Node) -> Statement:
        left, operator, right = self._of(node, 3)
        if operator.type not in ("&&", "||"):
            raise NotUnderstood("A list is not understood.")
        return AndOr(self._statement(left), operator.type, self._statement(right))

    def _of(self, node: Node, count: int) -> list[Node]:
        children = self._tight(node.children)
        if len(children) != count:
            raise NotUnderstood(f"A {node.type.replace('_', ' ')} is not understood.")
        return children

    def _pipeline(self, node: Node) -> Statement:
        children = self._tight(node.children)
        if any(child.type not in ("|", "|&") for child in children[1::2]) or not len(children) % 2:
            raise NotUnderstood("A pipeline is not understood.")
        return Pipeline(tuple(self._statement(child) for child in children[::2]))

    def _negated(self, node: Node) -> Statement:
        mark, body = self._of(node, 2)
        if self._source[mark.end_byte : body.start_byte] == "":
            raise NotUnderstood("A '!' stands too close to a word.")
        return Not(self._statement(body))

    def _block(self, node: Node) -> Statement:
        children = node.children
        if children[0].type == "((":
            return self._arithmetic(node)
        body = self._sequence(children[1:-1], children[0].end_byte, children[-1].start_byte)
        return Block(body, (), is_subshell=node.type == "subshell")

    def _arithmetic(self, node: Node) -> Statement:
        pieces = tuple(self._lexer.arithmetic(node))
        return Expression("((", RawWord(self._text(node), pieces))

    def _test(self, node: Node) -> Statement:
        start, end = node.start_byte, node.end_byte
        name = node.children[0].type
        # In `[ a > b ]` bash sees a redirect.
        stops = "<>|&;()\n" if name == "[" else ";\n"
        pieces = self._lexer.covered(start, end, expansions(node, {}), stops)
        if name == "[[" and (risk := _test_risk(node, self._source)):
            pieces.append(Piece(quoted=True, risk=risk))
        return Expression(name, RawWord(self._text(node), tuple(pieces)))

    def _if(self, node: Node) -> Statement:
        branches: list[tuple[Sequence, Sequence]] = []
        otherwise = None
        children = self._tight_ends(node, "if", "fi")
        tail = [child for child in children if child.type in ("elif_clause", "else_clause")]
        first = [child for child in children if child.type not in ("elif_clause", "else_clause")]
        branches.append(self._branch(first, first[-1].end_byte))
        for clause in tail:
            self._boundaries(clause)
            inside = clause.children
            if clause.type == "elif_clause":
                branches.append(self._branch(inside, clause.end_byte))
            else:
                otherwise = self._sequence(inside[1:], inside[0].end_byte, clause.end_byte)
        return If(tuple(branches), otherwise)

    def _tight_ends(self, node: Node, first: str, last: str) -> list[Node]:
        children = node.children
        if children[0].type != first or children[-1].type != last:
            raise NotUnderstood(f"A {node.type.replace('_', ' ')} is not understood.")
        for before, after in itertools.pairwise(children):
            if not _SPACE.fullmatch(self._source[before.end_byte : after.start_byte]):
                raise NotUnderstood("A part of it is not read the same way twice.")
        return children[:-1]

    def _branch(self, nodes: list[Node], end: int) -> tuple[Sequence, Sequence]:
        at = next((place for place, node in enumerate(nodes) if node.type == "then"), 0)
        if not at:
            raise NotUnderstood("An if statement is not understood.")
        condition = self._sequence(nodes[1:at], nodes[0].end_byte, nodes[at].start_byte)
        return condition, self._sequence(nodes[at + 1 :], nodes[at].end_byte, end)

    def _while(self, node: Node) -> Statement:
        children = node.children
        *condition, do = children[1:]
        if do.type != "do_group":
            raise NotUnderstood("A loop is not understood.")
        tested = self._sequence(condition, children[0].end_byte, do.start_byte)
        return Loop(tested, None, (), self._do(do))

    def _do(self, node: Node) -> Sequence:
        children = node.children
        self._boundaries(node)
        if children[0].type != "do" or children[-1].type != "done":
            raise NotUnderstood("A loop is not understood.")
        return self._sequence(children[1:-1], children[0].end_byte, children[-1].start_byte)

    def _for(self, node: Node) -> Statement:
        children = self._tight(node.children)
        do = children[-1]
        if do.type != "do_group":
            raise NotUnderstood("A loop is not understood.")
        name = self._text(children[1])
        middle = [child for child in children[2:-1] if child.type not in ("in", ";")]
        if not NAME.fullmatch(name):
            raise NotUnderstood("A loop is not understood.")
        words = self._merged(middle)
        if not any(child.type == "in" for child in children):
            # Over the arguments of the text, of which nothing is known.
            words = (RawWord('"$@"', (Piece(),)),)
        return Loop(None, name, words, self._do(do))

    def _c_for(self, node: Node) -> Statement:
        do = node.children[-1]
        if do.type not in ("do_group", "compound_statement"):
            raise NotUnderstood("A loop is not understood.")
        pieces = (
            Piece(quoted=True, risk="Arithmetic runs what a variable in it holds."),
            *(
                piece
                for child in node.children[:-1]
                for piece in self._lexer.arithmetic(child)
                if piece.body or piece.assigns
            ),
        )
        head = Expression("((", RawWord("for ((", pieces))
        body = self._do(do) if do.type == "do_group" else Sequence(((self._block(do), False),))
        return Loop(Sequence(((head, False),)), None, (), body)

    def _case(self, node: Node) -> Statement:
        children = self._tight_ends(node, "case", "esac")
        words: list[RawWord] = []
        bodies: list[Sequence] = []
        subject: list[Node] = []
        for child in children[1:]:
            if child.type == "case_item":
                patterns, body = self._case_item(child)
                words.extend(patterns)
                bodies.append(body)
            elif child.type == "comment":
                self._comment(child)
            elif child.type not in ("in", ";", "\n"):
                subject.append(child)
        return Case((*self._merged(subject), *words), tuple(bodies))

    def _case_item(self, node: Node) -> tuple[list[RawWord], Sequence]:
        children = node.children
        close = next((at for at, child in enumerate(children) if child.type == ")"), -1)
        last = children[-1]
        if close < 0:
            raise NotUnderstood("A case is not understood.")
        if not _SPACE.fullmatch(self._source[node.start_byte : children[0].start_byte]):
            raise NotUnderstood("A case is not understood.")
        patterns = [child for child in children[:close] if child.type not in ("(", "|")]
        ended = last.type in (";;", ";&", ";;&")
        inside = children[close + 1 : -1] if ended else children[close + 1 :]
        end = last.start_byte if ended else node.end_byte
        body = self._sequence(inside, children[close].end_byte, end)
        return [self._pattern(child) for child in patterns], body

    def _pattern(self, node: Node) -> RawWord:
        found = self._lexer.covered(node.start_byte, node.end_byte, expansions(node, {}))
        return RawWord(self._text(node), tuple(found))

    def _function(self, node: Node) -> Statement:
        children = [child for child in self._tight(node.children) if child.type != "function"]
        name = self._text(children[0])
        inside = [child for child in children[1:] if child.type not in ("(", ")")]
        redirects = [child for child in inside[1:] if child.type.endswith("_redirect")]
        if not SIMPLE.fullmatch(name) or not inside or len(redirects) != len(inside) - 1:
            raise NotUnderstood("A function is not understood.")
        body = self._statement(inside[0])
        if redirects:
            tokens = [token for child in redirects for token in self._tokens(child)[0]]
            words, found = self._assembled(tokens)
            if words:
                raise NotUnderstood("A function is not understood.")
            body = Block(Sequence(((body, False),)), found, is_subshell=False)
        return Function(name, self._text(node), body)

    # ------------------------------------------------------------ simple commands

    def _simple(self, node: Node) -> Statement:
        return self._command([node], node)

    def _lone_redirect(self, node: Node) -> Statement:
        return self._command([node], node)

    def _assignments(self, node: Node) -> Statement:
        children = node.children if node.type == "variable_assignments" else [node]
        tokens = [_Token("word", one.start_byte, one.end_byte, (one,)) for one in children]
        words, _ = self._assembled(tokens)
        return Simple(self._text(node), words, ())

    def _redirected(self, node: Node) -> Statement:
        """Return a statement with its redirects, given to the command they belong to."""
        children = node.children
        body = children[0] if not children[0].type.endswith("_redirect") else None
        rest = children[1:] if body is not None else children
        return self._with_redirects(body, rest, node)

    def _with_redirects(self, body: Node | None, rest: list[Node], whole: Node) -> Statement:
        if body is not None and body.type in ("list", "pipeline", "negated_command"):
            # `a && b > f` comes as `(a && b) > f`.
            children = self._tight(body.children)
            last = self._with_redirects(children[-1], rest, whole)
            if body.type == "negated_command":
                return _onto(last, Not)
            if body.type == "pipeline":
                before = tuple(self._statement(one) for one in children[:-2:2])
                return _onto(last, lambda one: Pipeline((*before, one)))
            operator = children[1].type
            if operator not in ("&&", "||") or len(children) != 3:
                raise NotUnderstood("A list is not understood.")
            left = self._statement(children[0])
            return _onto(last, lambda one: AndOr(left, operator, one))
        if body is None or body.type in _COMMANDS:
            return self._command(([body] if body is not None else []) + rest, whole)
        made = self._statement(body)
        tokens: list[_Token] = []
        tails: list[Node] = []
        for child in rest:
            more, tail = self._tokens(child)
            tokens += more
            tails += tail
        self._blank_between(body.end_byte, tokens)
        words, redirects = self._assembled(tokens)
        if words:
            raise NotUnderstood("A word follows the end of a statement.")
        inside = Sequence(((made, False),))
        return self._tailed(Block(inside, redirects, is_subshell=False), tails)

    def _blank_between(self, at: int, tokens: list[_Token]) -> None:
        if tokens and not _BLANK.fullmatch(self._source[at : tokens[0].start]):
            raise NotUnderstood("A part of it is not read the same way twice.")

    def _command(self, nodes: list[Node], whole: Node) -> Statement:
        tokens: list[_Token] = []
        tails: list[Node] = []
        for node in nodes:
            more, tail = self._tokens(node)
            tokens += more
            tails += tail
        words, redirects = self._assembled(tokens)
        if words and words[0].source.replace("\\\n", "") in _RESERVED:
            raise NotUnderstood("A reserved word stands where the grammar sees a command.")
        source = self._source[tokens[0].start : tokens[-1].end]
        return self._tailed(Simple(source, words, redirects), tails)

    def _tailed(self, made: Statement, tails: list[Node]) -> Statement:
        """Return a statement with what follows a heredoc's operator on its line."""
        operator = None
        for tail in tails:
            if tail.type == "pipeline":
                children = self._tight(tail.children)
                if children[0].type not in ("|", "|&"):
                    raise NotUnderstood("A heredoc is not understood.")
                first, *after = (self._statement(one) for one in children[1::2])
                made = _onto(first, functools.partial(_piped, made))
                made = Pipeline((made, *after)) if after else made
            elif tail.type in ("&&", "||"):
                operator = tail.type
            elif operator is not None:
                made, operator = AndOr(made, operator, self._statement(tail)), None
            else:
                raise NotUnderstood("A heredoc is not understood.")
        if operator is not None:
            raise NotUnderstood("A heredoc is not understood.")
        return made

    def _tokens(self, node: Node) -> tuple[list[_Token], list[Node]]:
        """Return the words and operators of a command or a redirect, and a heredoc's tail."""
        tokens: list[_Token] = []
        tails: list[Node] = []
        kind = node.type
        if kind in _WORDS:
            return [_Token("word", node.start_byte, node.end_byte, (node,))], []
        self._boundaries(node)
        if kind in ("file_redirect", "herestring_redirect"):
            start = node.start_byte
            for child in node.children:
                if child.type == "file_descriptor":
                    continue
                if child.type in _WORDS and child.type != "$":
                    tokens.append(_Token("word", child.start_byte, child.end_byte, (child,)))
                elif child.type in _OPERATORS:
                    tokens.append(_Token(child.type, start, child.end_byte))
                else:
                    raise NotUnderstood("A redirect is not understood.")
            return tokens, []
        if kind == "heredoc_redirect":
            return self._heredoc(node)
        if kind not in _COMMANDS:
            raise NotUnderstood(f"A {kind.replace('_', ' ')} stands where a word is expected.")
        for child in node.children:
            if child.type == "command_name":
                tokens.append(_Token("word", child.start_byte, child.end_byte, (child,)))
            elif child.type in _KEYWORDS:
                tokens.append(_Token("word", child.start_byte, child.end_byte))
            else:
                more, tail = self._tokens(child)
                tokens += more
                tails += tail
        return tokens, tails

    def _heredoc(self, node: Node) -> tuple[list[_Token], list[Node]]:
        """Return a heredoc's tokens, once its body is found to be bash's."""
        source = self._source
        parts = {child.type: child for child in node.children}
        try:
            begun, body, ended = (
                parts[name] for name in ("heredoc_start", "heredoc_body", "heredoc_end")
            )
        except KeyError:
            raise NotUnderstood("A heredoc is not understood.") from None
        strips = node.children[0].type == "<<-" or node.children[1].type == "<<-"
        written = source[begun.start_byte : begun.end_byte]
        delimiter = re.sub(r"[\\'\"]", "", written)
        lines = source[body.start_byte : ended.end_byte].split("\n")
        lines = [line.lstrip("\t") for line in lines] if strips else lines
        first = body.start_byte
        if (
            not re.fullmatch(r"[A-Za-z0-9_.!@%+,: -]+", delimiter)
            or source[begun.end_byte] not in _ENDS
            or written.strip("'\"\\") != delimiter
            or source[first - 1] != "\n"
            or delimiter in lines[:-1]
            or lines[-1] != delimiter
            or source[ended.end_byte : ended.end_byte + 1] not in ("", "\n")
            or "\n" in source[begun.end_byte : first - 1].replace("\\\n", "")
        ):
            raise NotUnderstood("A heredoc is not understood.")
        tokens: list[_Token] = [_Token("<<", node.start_byte, begun.end_byte)]
        tails: list[Node] = []
        for child in node.children:
            if child.type in ("file_descriptor", "<<", "<<-", "comment"):
                continue
            if child.type in ("heredoc_start", "heredoc_body", "heredoc_end"):
                continue
            if child.type in _WORDS or child.type.endswith("_redirect"):
                if tails:
                    raise NotUnderstood("A heredoc is not understood.")
                more, tail = self._tokens(child)
                tokens += more
                tails += tail
            else:
                tails.append(child)
        quoted = written != delimiter
        tokens.append(_Token("quoted data" if quoted else "data", first, ended.start_byte, (body,)))
        return tokens, tails

    def _assembled(self, tokens: list[_Token]) -> tuple[tuple[RawWord, ...], tuple[Redirect, ...]]:
        """Return the words and redirects; what touches is one word."""
        data = [token for token in tokens if token.kind.endswith("data")]
        if len(data) > 1:
            raise NotUnderstood("Two heredocs in one command are not understood.")
        words: list[RawWord] = []
        redirects: list[Redirect] = []
        waiting: str | None = None
        for token in self._runs([token for token in tokens if not token.kind.endswith("data")]):
            if token.kind == "word":
                word = self._word(token)
                if waiting is None:
                    words.append(word)
                else:
                    redirects.append(Redirect(waiting, word))
                    waiting = None
            elif waiting is not None:
                raise NotUnderstood("A redirect has no target.")
            elif token.kind == "<<":
                redirects.append(Redirect("<<", self._data(data[0])))
            elif token.kind.endswith("-"):
                redirects.append(Redirect(token.kind, None))
            else:
                waiting = token.kind
        if waiting is not None:
            raise NotUnderstood("A redirect has no target.")
        return tuple(words), tuple(redirects)

    def _data(self, token: _Token) -> RawWord:
        if token.kind == "quoted data":
            return self._lexer.data(token.start, token.end)
        return self._lexer.heredoc(token.start, token.end, self._expansions(token))

    def _runs(self, tokens: list[_Token]) -> list[_Token]:
        """Return the tokens with touching words joined, and a `-` that was dropped."""
        made: list[_Token] = []
        for token in tokens:
            if not made:
                made.append(token)
                continue
            before = made[-1]
            gap = self._source[before.end : token.start]
            if not _BLANK.fullmatch(gap):
                if gap.strip(" \t") != "-" or gap[0] not in " \t" or gap[-1] not in " \t":
                    raise NotUnderstood("A part of it is not read the same way twice.")
                at = before.end + gap.index("-")
                made += [_Token("word", at, at + 1), token]
            elif before.kind != "word" or not _JOINED.fullmatch(gap):
                made.append(token)
            elif token.kind == "word":
                made[-1] = _Token("word", before.start, token.end, before.nodes + token.nodes)
            elif _DESCRIPTOR.fullmatch(self._source[before.start : before.end]):
                raise NotUnderstood("A descriptor of a redirect is not understood.")
            else:
                made.append(token)
        return made

    def _word(self, token: _Token) -> RawWord:
        text = self._source[token.start : token.end]
        if SIMPLE.fullmatch(text):
            return RawWord(text, (Piece(text),))
        if token.nodes and token.nodes[0].type == "variable_assignment":
            value = token.nodes[0].children[-1]
            if value.type == "array":
                return self._array(token, value)
        return self._lexer.word(token.start, token.end, self._expansions(token))

    def _array(self, token: _Token, value: Node) -> RawWord:
        if len(token.nodes) > 1:
            raise NotUnderstood("An array is not understood.")
        children = self._tight(value.children)
        words = [word for child in children[1:-1] for word in self._merged([child])]
        if any(word.source.startswith("[") for word in words):
            raise NotUnderstood("An array with subscripts is not understood.")
        name = self._source[token.start : value.start_byte]
        pieces = [piece for word in words for piece in word.pieces if piece.text is None]
        text = self._source[token.start : token.end]
        return RawWord(text, (Piece(name), Piece(), *pieces))

    def _expansions(self, token: _Token) -> dict[int, Node]:
        found: dict[int, Node] = {}
        for node in token.nodes:
            expansions(node, found)
        return found

    def _merged(self, nodes: list[Node]) -> tuple[RawWord, ...]:
        tokens = [token for node in nodes for token in self._tokens(node)[0]]
        return self._assembled(tokens)[0]

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte]


def _piped(before: Statement, after: Statement) -> Statement:
    return Pipeline((before, after))


def _onto(made: Statement, wrap: Callable[[Statement], Statement]) -> Statement:
    """Return a list of commands with its first one wrapped; anything else wrapped whole."""
    if isinstance(made, AndOr):
        return AndOr(_onto(made.left, wrap), made.operator, made.right)
    return wrap(made)


_ARITHMETIC_TESTS: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_INTEGER: Final = re.compile(r"-?[0-9]+")


def _test_risk(node: Node, source: str) -> str | None:
    """Return why `[[ ]]` can run what a word holds: it evaluates numbers and subscripts."""
    for child in node.children:
        if risk := _test_risk(child, source):
            return risk
        text = source[child.start_byte : child.end_byte]
        if child.type == "test_operator" and text in ("-v", "-R"):
            return "A test of a variable by its name can run what the name holds."
        if child.type == "test_operator" and text in _ARITHMETIC_TESTS:
            sides = [one for one in node.children if one.type != "test_operator"]
            texts = (source[one.start_byte : one.end_byte] for one in sides)
            if not all(map(_INTEGER.fullmatch, texts)):
                return "Arithmetic runs what a variable in it holds."
    return None


_COMMANDS: Final = frozenset({"command", "declaration_command", "unset_command"})
_KEYWORDS: Final = frozenset(
    {"declare", "export", "local", "readonly", "typeset", "unset", "unsetenv"}
)
_OPERATORS: Final = frozenset({"<", ">", ">>", ">|", "&>", "&>>", "<&", ">&", "<&-", ">&-", "<<<"})
_STATEMENTS: Final[dict[str, Callable[[_Converter, Node], Statement]]] = {
    "c_style_for_statement": _Converter._c_for,
    "case_statement": _Converter._case,
    "command": _Converter._simple,
    "compound_statement": _Converter._block,
    "declaration_command": _Converter._simple,
    "file_redirect": _Converter._lone_redirect,
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
