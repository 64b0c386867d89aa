"""python: runs code, and returns the value of its last expression."""

from __future__ import annotations

import ast
import math
import sys
import types
from typing import Annotated, Any, Final

from toolcell.markers import Above

FILE: Final = "<code>"
REPR_CHARS_MAX: Final = 64 << 10
DEPTH_MAX: Final = 32
NODES_MAX: Final = 200_000
_INT_MAX: Final = 1 << 63


def run(code: str, timeout_s: Annotated[float, Above(0)] | None = None) -> dict[str, Any]:
    """Run Python code; returns what it printed, and the value of its last expression.

    Args:
        code: the program
        timeout_s: seconds after which it is ended
    """
    # The executor applies timeout_s; stdout and stderr are what was captured.
    _show_source(code)
    tree = ast.parse(code, FILE)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    module = types.ModuleType("__main__")
    # The old one is kept alive: functions of the worker still live in it.
    module.__dict__["__builtins__"] = __builtins__
    _replaced.append(sys.modules.get("__main__"))
    sys.modules["__main__"] = module
    exec(compile(tree, FILE, "exec", dont_inherit=True), module.__dict__)
    if not isinstance(last, ast.Expr):
        return {"value": None}
    expression = ast.Expression(last.value)
    value = eval(compile(expression, FILE, "eval", dont_inherit=True), module.__dict__)
    return {"value": _plain_or_repr(value)}


_replaced: list[types.ModuleType | None] = []


def _show_source(code: str) -> None:
    """Let tracebacks show the code's lines: an entry without a time is never checked again."""
    import linecache

    linecache.cache[FILE] = (len(code), None, code.splitlines(keepends=True), FILE)


class _NotPlain(Exception):
    pass


def _plain_or_repr(value: object) -> Any:
    """The value as JSON where JSON can say exactly that, with tuples as arrays; else its repr."""
    try:
        return _plain(value, 0, [0])
    except _NotPlain:
        text = repr(value)
    cut = text if len(text) <= REPR_CHARS_MAX else f"{text[:REPR_CHARS_MAX]}…"
    return cut.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any, depth: int, seen: list[int]) -> Any:
    seen[0] += 1
    if depth > DEPTH_MAX or seen[0] > NODES_MAX:
        raise _NotPlain
    if value is None or type(value) is bool:
        return value
    if type(value) is str:
        if not value.isascii():
            _require_utf8(value)
        return value
    if type(value) is int and -_INT_MAX <= value < _INT_MAX:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) in (list, tuple):
        return [_plain(item, depth + 1, seen) for item in value]
    if isinstance(value, dict) and all(type(key) is str for key in value):
        for key in value:
            _require_utf8(key)
        return {key: _plain(item, depth + 1, seen) for key, item in value.items()}
    raise _NotPlain


def _require_utf8(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _NotPlain from None
