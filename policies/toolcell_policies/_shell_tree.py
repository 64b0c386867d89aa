"""A text to a syntax tree, in bounded time.

The grammar is tree-sitter-bash. Its parser holds the interpreter's lock and its
time grows with the square of some texts: at 16 KiB, one of a few words over and
over took four seconds. So the text is bounded, and so is the work, by two counts
that are the same on every machine: of the parser's own steps, which it reports by
the hundred, and of the chunks it asks for, which tells how far ahead it reads.

It is given ASCII only. With other characters this grammar's scanner reads outside of
a table of the C library now and then, and ends the process: a letter stands for each
byte of them. To bash they are parts of words, and what a word says is read from the
text itself.
"""

from __future__ import annotations

import functools
from typing import Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Language, Node, Point, Tree

TEXT_BYTES_MAX: Final = 16 * 1024
_STEPS_MAX: Final = 75
_CHUNK_BYTES: Final = 512
_CHUNKS_MAX: Final = 200


class NotUnderstood(Exception):
    """The text is not read: `args[0]` is one sentence why."""


_LETTERS: Final = bytes(byte if byte < 0x80 else ord("x") for byte in range(0x100))

# What is said where the tree and bash's own rules disagree.
MISREAD: Final = "A part of it is not read the same way twice."


def expect(holds: object, text: str = MISREAD) -> None:
    """Go on only where something holds.

    Raises:
        NotUnderstood: it does not; `text` says what.
    """
    if not holds:
        raise NotUnderstood(text)


def parse_tree(source: bytes) -> Tree:
    """Return the tree of a text that bash would read without an error.

    Each byte beyond ASCII counts as a letter.

    Raises:
        NotUnderstood: it is too long, too much work, or no bash.
    """
    from tree_sitter import Parser  # late: a jail that runs a tool has no use for it

    if len(source) > TEXT_BYTES_MAX:
        raise NotUnderstood(f"It is longer than {TEXT_BYTES_MAX} bytes.")
    readable = source.translate(_LETTERS)
    chunks = steps = 0

    def read(offset: int, point: Point | tuple[int, int]) -> bytes:
        nonlocal chunks
        chunks += 1
        return readable[offset : offset + _CHUNK_BYTES]

    def is_too_much(offset: int, failing: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > _STEPS_MAX or chunks > _CHUNKS_MAX

    try:
        tree = Parser(_language()).parse(read, progress_callback=is_too_much)
    except ValueError:  # the binding's word for a parse that was stopped
        raise NotUnderstood("It is too tangled to read.") from None
    if tree.root_node.has_error:
        raise NotUnderstood(_where(tree.root_node, source))
    return tree


@functools.cache
def _language() -> Language:
    import tree_sitter_bash  # late: see above
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _where(root: Node, source: bytes) -> str:
    node = root
    while broken := [child for child in node.children if child.has_error or child.is_missing]:
        node = broken[0]
    line = source.count(b"\n", 0, node.start_byte) + 1
    return f"Its grammar is not understood in line {line}."
