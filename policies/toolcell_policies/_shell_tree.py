"""A text to a syntax tree, in bounded time.

The grammar is tree-sitter-bash. Its parser holds the interpreter's lock and its
time grows with the square of some texts: at 16 KiB, one of a few words over and
over took four seconds. So the text is bounded, and so is the work, by two counts
that are the same on every machine: of the parser's own steps, which it reports by
the hundred, and of the chunks it asks for, which tells how far ahead it reads.
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


def parse_tree(source: bytes) -> Tree:
    """Return the tree of a text that bash would read without an error.

    Raises:
        NotUnderstood: it is too long, too much work, or no bash.
    """
    from tree_sitter import Parser  # late: a jail that runs a tool has no use for it

    if len(source) > TEXT_BYTES_MAX:
        raise NotUnderstood(f"It is longer than {TEXT_BYTES_MAX} bytes.")
    chunks = steps = 0

    def read(offset: int, point: Point | tuple[int, int]) -> bytes:
        nonlocal chunks
        chunks += 1
        return source[offset : offset + _CHUNK_BYTES]

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
    while not (node.is_error or node.is_missing):
        broken = [child for child in node.children if child.has_error or child.is_missing]
        if not broken:
            break
        node = broken[0]
    line = source.count(b"\n", 0, node.start_byte) + 1
    return f"Its grammar is not understood in line {line}."
