"""`FunctionTool`: a tool that is still the function it was made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, ParamSpec, TypeVar

from toolcell._answered import SupervisorRef
from toolcell._locate import CommandRef, HandlerRef, locate
from toolcell._signature import Signature, signature
from toolcell._tool_record import NAME, Tool

__all__ = ["FunctionTool"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FunctionTool(Tool, Generic[P, R]):
    """A `Tool` made from a function: calling it is calling the function, here and unconfined."""

    function: Callable[P, R]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise ValueError(f"{self.name!r} cannot name a tool: write {NAME.pattern}")
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            self.__dict__[name] = getattr(self.function, name)
        self.__dict__["__wrapped__"] = self.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @cached_property
    def signature(self) -> Signature:
        """The function's parameters and injected names."""
        return signature(self.function)

    @property
    def handler(self) -> HandlerRef | CommandRef | SupervisorRef:
        """Where the jail finds the code.

        Raises:
            ValueError: the function cannot be found again by its module, file and name.
        """
        return self._located if self.ref is None else super().handler

    @cached_property
    def _located(self) -> HandlerRef:
        return locate(self.function)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the arguments, from annotations and docstring."""
        from toolcell.schema import input_schema

        return self.schema if self.schema is not None else input_schema(self.function)
