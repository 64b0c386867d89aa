"""`Tool`, the one record of a tool, and `@tool`, which makes it from a function.

Importable inside a jail without pydantic and trio: what costs time is computed on first use.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from toolcell._locate import HandlerRef, locate, refuse_unreachable
from toolcell._signature import Role, Signature, signature
from toolcell_policies.vocabulary import (
    TIER_NEVER,
    AccessMode,
    CostTier,
    DangerLevel,
    ExecutionCategory,
    Phase,
    Priority,
)

if TYPE_CHECKING:
    from toolcell.schema import Compiled
    from toolcell_sandbox.spec import Limits, Network

__all__ = ["CommandRef", "FunctionTool", "HandlerRef", "Tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
"""What a tool and an alias may be called; use `fullmatch`."""

_DANGER = {
    AccessMode.READONLY: DangerLevel.SAFE,
    AccessMode.WRITE: DangerLevel.LOW,
    AccessMode.NETWORK: DangerLevel.LOW,
    AccessMode.EXECUTE: DangerLevel.MEDIUM,
    AccessMode.MIXED: DangerLevel.MEDIUM,
}
"""The danger that is assumed: none of them raises the level of its access mode."""


_CATEGORIES = {
    AccessMode.READONLY: ExecutionCategory.READ_ONLY,
    AccessMode.WRITE: ExecutionCategory.WRITE,
    AccessMode.NETWORK: ExecutionCategory.NETWORK,
    AccessMode.EXECUTE: ExecutionCategory.EXECUTE,
    AccessMode.MIXED: ExecutionCategory.MIXED,
}
_WORDS = (
    "keywords",
    "use_cases",
    "examples",
    "priority_hints",
    "stages",
    "task_types",
    "mandatory_keywords",
    "progress_params",
)
"""The fields that are tuples of text."""


def _priority(given: Priority | int | str) -> Priority:
    """A priority by itself, its number, or its name in either case."""
    return Priority[given.upper()] if isinstance(given, str) else Priority(given)


def _words(tool: str, field_name: str, given: Iterable[str]) -> tuple[str, ...]:
    words = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"tool {tool}: {field_name} are words")
    return words


@dataclass(frozen=True, slots=True)
class CommandRef:
    """A built-in tool that is a command. `build` is "module:function", trusted code.

    The function takes the validated arguments by name, in the supervisor, and returns the
    program's words, the folder to start in, and the text of a script, which becomes a file of
    the jail's own, or None. It touches no file of the workspace.
    """

    build: str

    def command(self, arguments: Mapping[str, Any]) -> tuple[tuple[str, ...], str, str | None]:
        """The words to execute, the folder to do it in (relative: to the workspace), a script."""
        from toolcell._worker import converted

        module, _, name = self.build.partition(":")
        function = getattr(importlib.import_module(module), name)
        argv, cwd, script = function(**converted(function, arguments))
        return tuple(argv), os.fspath(cwd), script


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tool:
    """All that is known about one tool. Made by `@tool`, by a pack, or built in; never changed.

    `path_params` names the arguments that are paths, or lists of paths, and what for.
    `trusted` marks code of toolcell itself. `level_floor` is the approval level below which no
    word of the tool brings it. `timeout_param` names the argument that lowers `wall_s`.
    `permission_tier` (0 to 4), `phases` and `escalation` are the words of the phase dialect;
    `permission_action` is what rules may name instead of the tool, such as `edit` for several.
    `input_schema` must not be changed by whoever reads it.

    Raises:
        ValueError: a name, alias, level or time is not one that a tool can have.
    """

    name: str
    description: str
    access_mode: AccessMode
    danger_level: DangerLevel
    aliases: tuple[str, ...] = ()
    limits: Limits | None = None
    timeout_s: float | None = None
    path_params: Mapping[str, Role] = field(default_factory=dict)
    trusted: bool = False
    level_floor: int = 0
    timeout_param: str | None = None
    cost_tier: CostTier = CostTier.FREE
    permission_tier: int = 0
    phases: tuple[str, ...] = ()
    escalation: bool = False
    permission_action: str | None = None
    category: str = "general"
    keywords: tuple[str, ...] = ()
    use_cases: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    priority_hints: tuple[str, ...] = ()
    priority: Priority = Priority.MEDIUM
    stages: tuple[str, ...] = ()
    task_types: tuple[str, ...] = ()
    mandatory_keywords: tuple[str, ...] = ()
    progress_params: tuple[str, ...] = ()
    """The arguments that a progress line shows."""
    execution_category: ExecutionCategory | None = None
    """None is by the access mode: see `runs_as`."""
    is_idempotent: bool = False
    network: Network | None = None
    """A network that its jails have instead of the executor's; None is the executor's."""
    availability_check: Callable[[], object] | None = None
    """A program's own check, run in its process; falsy or raising is unavailable."""
    paths: Callable[[Any], Iterable[str]] | None = None
    """Which *values* of the validated arguments are paths to write (or to read, for a readonly
    tool), besides `path_params`; run in the program's process."""
    to_model_output: Callable[[Any], object] | None = None
    """What the model is shown of a value: text, or content parts; run in the program's process."""
    has_metadata: bool = False
    """Whether somebody said any of what selection goes by; else it is generated."""
    output_schema: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None
    """The input schema as given; None for a function, whose schema is computed."""
    ref: HandlerRef | CommandRef | None = None
    """The handler as given; None for a function, which is located on first use."""

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r:.100} cannot name a tool: write {NAME.pattern}")
        if len({self.name, *self.aliases}) != 1 + len(self.aliases):
            raise ValueError(f"tool {self.name} has the same alias twice, or its own name as alias")
        if not 0 <= self.level_floor <= 3:
            raise ValueError(f"tool {self.name}: level_floor is 0 to 3, not {self.level_floor!r}")
        if self.timeout_s is not None and not 0 < self.timeout_s < 1e9:
            raise ValueError(f"tool {self.name}: timeout_s is seconds above 0")
        if self.permission_tier not in range(TIER_NEVER + 1):
            raise ValueError(f"tool {self.name}: permission_tier is 0 to {TIER_NEVER}")
        object.__setattr__(self, "access_mode", AccessMode(self.access_mode))
        object.__setattr__(self, "cost_tier", CostTier(self.cost_tier))
        object.__setattr__(self, "phases", tuple(Phase(phase) for phase in self.phases))
        object.__setattr__(self, "danger_level", DangerLevel(self.danger_level))
        object.__setattr__(self, "priority", _priority(self.priority))
        if self.execution_category is not None:
            category = ExecutionCategory(self.execution_category)
            object.__setattr__(self, "execution_category", category)
        for name in _WORDS:
            object.__setattr__(self, name, _words(self.name, name, getattr(self, name)))
        object.__setattr__(self, "path_params", types.MappingProxyType(dict(self.path_params)))

    def __repr__(self) -> str:
        return f"<Tool {self.name} ({self.access_mode.value})>"

    def renamed(self, name: str) -> Tool:
        """The same tool under another name; it loses an alias that is that name."""
        aliases = tuple(alias for alias in self.aliases if alias != name)
        return dataclasses.replace(self, name=name, aliases=aliases)

    @property
    def runs_as(self) -> ExecutionCategory:
        """What a call occupies: its own word, else what its access mode says."""
        return self.execution_category or _CATEGORIES[self.access_mode]

    @property
    def action(self) -> str:
        """What rules may call it: its permission action, else its name."""
        return self.permission_action or self.name

    @property
    def handler(self) -> HandlerRef | CommandRef:
        """Where the jail finds the code."""
        if self.ref is None:
            raise ValueError(f"tool {self.name} has no handler")
        return self.ref

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the arguments: an object, closed, the same byte for byte."""
        if self.schema is None:
            raise ValueError(f"tool {self.name} has no input schema")
        return self.schema

    @cached_property
    def compiled(self) -> Compiled:
        """The input schema, ready to validate with."""
        from toolcell.schema import Compiled

        return Compiled(self.input_schema)

    @cached_property
    def compiled_output(self) -> Compiled | None:
        """The output schema, ready to validate with; None where the tool has none."""
        from toolcell.schema import Compiled

        return None if self.output_schema is None else Compiled(self.output_schema)

    @cached_property
    def spec_hash(self) -> str:
        """sha256 over what the tool says and is: any change makes it another tool."""
        said = {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "access_mode": self.access_mode,
            "danger_level": self.danger_level,
            "cost_tier": self.cost_tier,
            "permission": [self.permission_tier, self.phases, self.escalation, self.action],
            "handler": [type(self.handler).__name__, dataclasses.asdict(self.handler)],
        }
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FunctionTool(Tool, Generic[P, R]):
    """A `Tool` made from a function: calling it is calling the function, here and unconfined."""

    function: Callable[P, R]

    def __post_init__(self) -> None:
        super().__post_init__()
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
    def handler(self) -> HandlerRef | CommandRef:
        """Where the jail finds the code.

        Raises:
            ValueError: the function cannot be found again by its module, file and name.
        """
        return self.ref if self.ref is not None else self._located

    @cached_property
    def _located(self) -> HandlerRef:
        return locate(self.function)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the arguments, from annotations and docstring."""
        from toolcell.schema import input_schema

        return self.schema if self.schema is not None else input_schema(self.function)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    access_mode: AccessMode | str | None = None,
    danger_level: DangerLevel | str | None = None,
    aliases: tuple[str, ...] | list[str] = (),
    limits: Limits | None = None,
    timeout_s: float | None = None,
    cost_tier: CostTier | str = CostTier.FREE,
    permission_tier: int = 0,
    phases: tuple[str, ...] | list[str] = (),
    escalation: bool = False,
    permission_action: str | None = None,
    output_schema: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a module-level function, plain or async; usable bare or called.

    Name and description come from the function and the first paragraph of its docstring.
    Without `access_mode` it is readonly, or write when a parameter is a `WritePath`: the jail
    enforces it. Parameters annotated `CallContext`, or named `_exec_ctx` or `context`, are
    injected and never in the schema. The function runs in a process of its own.

    Raises:
        TypeError, ValueError: the function cannot be a tool; the message says why, and what can.
    """
    if function is not None:
        return made(function)
    return lambda target: made(target, **options)


def made(
    function: Callable[P, R],
    *,
    name: str | None = None,
    description: str | None = None,
    access_mode: AccessMode | str | None = None,
    danger_level: DangerLevel | str | None = None,
    aliases: tuple[str, ...] | list[str] = (),
    **rest: Any,
) -> FunctionTool[P, R]:
    """What `@tool` does; `rest` are further fields of `Tool`, for toolcell's own."""
    if isinstance(function, Tool):
        raise TypeError(f"{function.name} is a tool already")
    refuse_unreachable(function)
    roles = {p.name: p.role for p in signature(function).parameters if p.role is not None}
    if access_mode is None:
        access_mode = AccessMode.WRITE if "write" in roles.values() else AccessMode.READONLY
    access_mode = AccessMode(access_mode)
    name = function.__name__ if name is None else name
    if description is None:
        from toolcell._docstring import summary

        description = summary(function.__doc__) or f"{name.replace('_', ' ').capitalize()}."
    return FunctionTool(
        name=name,
        description=description,
        access_mode=access_mode,
        danger_level=_DANGER[access_mode] if danger_level is None else DangerLevel(danger_level),
        aliases=tuple(aliases),
        path_params=roles,
        function=function,
        **rest,
    )
