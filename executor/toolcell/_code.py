"""A handler at hand, and how it is called. Light: runs in jails, and loads nothing."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

__all__ = ["CALL", "Code", "Shape"]

Shape = Literal["function", "model", "value", "base"]
"""How a handler is called: with named arguments; with a model's instance and the run's
dependencies; with one value and, if it takes it, the context; as an object that is built first."""

CALL: Final = "handler_call"
"""The word of the context by which the jail learns the shape; no handler is shown it."""


class Code(NamedTuple):
    """A function or a class that is at hand here, how it is called, its input model.

    `live` is the object itself where it is called in the process that made it: in a pack's jail.
    """

    target: Any
    shape: Shape
    model: Any = None
    live: Any = None
