"""`Tool`, the one record of a tool, and what it is made of.

Importable inside a jail without pydantic and trio: what costs time is computed on first use.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, overload

from toolcell._answered import SupervisorRef
from toolcell._code import Code
from toolcell._locate import CommandRef, HandlerRef, located
from toolcell._signature import Role
from toolcell._tool_identity import CALLABLES, spec_hash_of
from toolcell_policies.vocabulary import (
    TIER_NEVER,
    AccessMode,
    CostTier,
    DangerLevel,
    ExecutionCategory,
    Phase,
    Priority,
    SchemaLevel,
)

if TYPE_CHECKING:
    from toolcell.dialects import Dialect
    from toolcell.schema import Compiled
    from toolcell.validation import ToolValidationResult
    from toolcell_sandbox.spec import Limits, Network

__all__ = ["DANGER", "NAME", "SELECTION", "WORDS", "CommandRef", "Tool", "checked_paths"]

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
"""What a tool and an alias may be called; use `fullmatch`."""

DANGER: Final = {
    AccessMode.READONLY: DangerLevel.SAFE,
    AccessMode.WRITE: DangerLevel.LOW,
    AccessMode.NETWORK: DangerLevel.LOW,
    AccessMode.EXECUTE: DangerLevel.MEDIUM,
    AccessMode.MIXED: DangerLevel.MEDIUM,
}
"""The danger that is assumed: none of them raises the level of its access mode."""


_CATEGORIES: Final = {
    AccessMode.READONLY: ExecutionCategory.READ_ONLY,
    AccessMode.WRITE: ExecutionCategory.WRITE,
    AccessMode.NETWORK: ExecutionCategory.NETWORK,
    AccessMode.EXECUTE: ExecutionCategory.EXECUTE,
    AccessMode.MIXED: ExecutionCategory.MIXED,
}
WORDS: Final = (
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

SELECTION: Final = (
    "category",
    "keywords",
    "use_cases",
    "examples",
    "priority_hints",
    "priority",
    "stages",
    "task_types",
    "mandatory_keywords",
)
"""What selection goes by: who says any of it has metadata, who says none has it generated."""

_NAMELESS: Final = ("input_schema", "compiled", "compiled_output", "_located")
_COROUTINE, _ASYNC_GENERATOR = 0x80, 0x200
PATHS_MAX: Final = 1_000
"""As many paths may `paths` name of one call."""


def _priority(given: Priority | int | str) -> Priority:
    """A priority by itself, its number, or its name in either case."""
    if not isinstance(given, str):
        return Priority(given)
    found = Priority.__members__.get(given.upper())
    if found is None:
        there_are = ", ".join(name.lower() for name in Priority.__members__)
        raise ValueError(f"there is no priority {given!r:.50}; there are: {there_are}")
    return found


def _words(tool: str, field_name: str, given: Iterable[str]) -> tuple[str, ...]:
    words = (given,) if isinstance(given, str) else tuple(given)
    if isinstance(given, set | frozenset):
        words = tuple(sorted(words))  # the same in every run
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"tool {tool}: {field_name} are words")
    return words


def _is_async(function: object) -> bool:
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & (_COROUTINE | _ASYNC_GENERATOR))


class _OutputSchema:
    """The field `output_schema`: as given, else the output model's, computed when first read."""

    @overload
    def __get__(self, tool: None, owner: type) -> None: ...
    @overload
    def __get__(self, tool: Tool, owner: type) -> dict[str, Any] | None: ...
    def __get__(self, tool: Tool | None, owner: type) -> dict[str, Any] | None:
        if tool is None:
            return None  # what the dataclass takes for the default
        if tool.__dict__["output_schema"] is None and tool.output_model is not None:
            from toolcell._build import output_schema

            tool.__dict__["output_schema"] = output_schema(tool.output_model)
        found: dict[str, Any] | None = tool.__dict__["output_schema"]
        return found

    def __set__(self, tool: Tool, value: dict[str, Any] | None) -> None:
        tool.__dict__["output_schema"] = value


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tool:
    """All that is known about one tool; never changed once made.

    Made by `@tool`, `Tool.make`, `ToolDefinition`, `BaseTool`, a pack, or built in. Without a name
    (from `Tool.make` alone) it takes the key under which it is registered.

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
    content_lines: int | None = None
    content_bytes: int | None = None
    """How much of what it returns the model is shown; None is the executor's bound."""
    has_metadata: bool = False
    """Whether somebody said any of what selection goes by; else it is generated."""
    in_jail: frozenset[str] = frozenset()
    """Which of `availability_check`, `paths` and `to_model_output` an untrusted pack has for its
    tool: they never run here; `packs.ask_pack` asks them in a jail."""
    output_model: Any = None
    """A pydantic model, a dataclass or any annotation; its schema becomes `output_schema`."""
    output_schema: _OutputSchema = _OutputSchema()
    input_model: Any = None
    """What the handler gets its arguments as: a pydantic model, whose schema is the input's."""
    schema: dict[str, Any] | None = None
    """The input schema as given; None where it is computed, from a function or a model."""
    fills_defaults: bool = False
    """Whether what was left out is filled in from the schema's defaults, before the decision:
    where the schema is all that says them."""
    takes_context: bool = False
    """Whether the handler is given its call's context, and so a line to whoever runs it."""
    ref: HandlerRef | CommandRef | SupervisorRef | Code | None = None
    """The handler as given; None for a function, which is located on first use."""

    def __post_init__(self) -> None:
        given: Any = self.aliases
        aliases = (given,) if isinstance(given, str) else tuple(given)
        object.__setattr__(self, "aliases", aliases)
        for name in (*([self.name] if self.name else []), *self.aliases):
            if NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r:.100} cannot name a tool: write {NAME.pattern}")
        if len({self.name, *self.aliases}) != 1 + len(self.aliases):
            raise ValueError(f"tool {self.name} has the same alias twice, or its own name as alias")
        if not 0 <= self.level_floor <= 3:
            raise ValueError(f"tool {self.name}: level_floor is 0 to 3, not {self.level_floor!r}")
        if self.timeout_s is not None and not 0 < self.timeout_s < 1e9:
            raise ValueError(f"tool {self.name}: timeout_s is seconds above 0")
        # The line that says what was left out needs room: see bounding.BYTES_MIN.
        for name, least in (("content_lines", 1), ("content_bytes", 512)):
            size = getattr(self, name)
            if size is not None and (type(size) is not int or size < least):
                raise ValueError(f"tool {self.name}: {name} is a whole number of {least} or more")
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
        for name in WORDS:
            object.__setattr__(self, name, _words(self.name, name, getattr(self, name)))
        for name in CALLABLES:
            self._check_callable(name)
        said = any(getattr(self, name) != _DEFAULTS[name] for name in SELECTION)
        object.__setattr__(self, "has_metadata", bool(self.has_metadata or said))
        object.__setattr__(self, "in_jail", frozenset(self.in_jail))
        object.__setattr__(self, "path_params", types.MappingProxyType(dict(self.path_params)))

    def _check_callable(self, name: str) -> None:
        given = getattr(self, name)
        if given is None:
            return
        if not callable(given):
            raise ValueError(f"tool {self.name}: {name} is a function, not {given!r:.50}")
        if _is_async(given):
            raise ValueError(f"tool {self.name}: {name} is async; write a plain, quick function")

    def __repr__(self) -> str:
        return f"<Tool {self.name or '(no name yet)'} ({self.access_mode.value})>"

    @staticmethod
    def make(
        *,
        description: str,
        input: Any,
        execute: Callable[..., Any],
        output: Any = None,
        to_model_output: Callable[[Any], object] | None = None,
        **words: Any,
    ) -> Tool:
        """A tool of its parts, nameless until it is registered: the key is its name.

        `input` is a pydantic model (a dataclass or TypedDict too) or a JSON Schema; `execute` is
        a module-level function, plain or async, `execute(input)` or `execute(input, context)`,
        which gets a model's instance or, for a JSON Schema, the object with its defaults filled
        in. `output` is the same kinds or None, and enforced. `words` are further fields of
        `Tool`; `paths(input)` gets what `execute` gets.

        Raises:
            TypeError, ValueError: it cannot be a tool; the message says why, and what can.
        """
        from toolcell._make import make

        return make(
            description=description,
            input=input,
            execute=execute,
            output=output,
            to_model_output=to_model_output,
            **words,
        )

    def renamed(self, name: str) -> Tool:
        """The same tool under another name; it loses an alias that is that name."""
        aliases = tuple(alias for alias in self.aliases if alias != name)
        found = dataclasses.replace(self, name=name, aliases=aliases)
        # What was computed, and has nothing to do with the name.
        for key in _NAMELESS:
            if key in self.__dict__:
                found.__dict__[key] = self.__dict__[key]
        return found

    @property
    def runs_as(self) -> ExecutionCategory:
        """What a call occupies: its own word, else what its access mode says."""
        return self.execution_category or _CATEGORIES[self.access_mode]

    @property
    def action(self) -> str:
        """What rules may call it: its permission action, else its name."""
        return self.permission_action or self.name

    @property
    def handler(self) -> HandlerRef | CommandRef | SupervisorRef:
        """Where the jail finds the code.

        Raises:
            ValueError: there is none, or another process cannot find it again by module, file and
                name.
        """
        if self.ref is None:
            raise ValueError(f"tool {self.name} has no handler")
        return self._located if isinstance(self.ref, Code) else self.ref

    @cached_property
    def _located(self) -> HandlerRef:
        assert isinstance(self.ref, Code)
        return located(self.ref)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments: an object, the same byte for byte.

        Closed, unless a schema that was given says otherwise itself. 2020-12, or Draft 7 where
        `$schema` says so.
        """
        if self.schema is not None:
            return self.schema
        if self.input_model is None:
            raise ValueError(f"tool {self.name} has no input schema")
        from toolcell.schema import model_schema

        return model_schema(self.input_model)

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

    def paths_of(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The path values that `paths` finds in validated arguments; none without `paths`.

        Raises:
            ValueError: it failed, named what is no path, or too many; or it is a pack's and only
                a jail may ask it. The call is to be denied.
        """
        if "paths" in self.in_jail:
            raise ValueError(f"tool {self.name}: its paths are known only inside a jail")
        if self.paths is None:
            return ()
        try:
            found = self.paths(dict(arguments))
            one = isinstance(found, str | os.PathLike)
            given = [found] if one else list(itertools.islice(found or (), PATHS_MAX + 1))
        except Exception as error:  # noqa: BLE001  # the program's own function
            why = f"{type(error).__name__}: {error}"[:300]
            raise ValueError(f"tool {self.name}: paths raised {why}") from None
        return checked_paths(self.name, given)

    def validate_parameters(self, /, **parameters: Any) -> bool:
        """Whether these arguments are valid as they stand, without any repair."""
        return self.compiled.accepts_plain(parameters)

    def validate_parameters_detailed(self, /, **parameters: Any) -> ToolValidationResult:
        """What is wrong with these arguments as they stand, by parameter."""
        from toolcell.validation import detailed

        return detailed(self.compiled, parameters)

    def to_schema(
        self, level: SchemaLevel | str = SchemaLevel.FULL, dialect: Dialect = "json-schema"
    ) -> dict[str, Any]:
        """What a model is told of it, at one level of detail, in one provider's shape."""
        from toolcell.dialects import schema_of

        return schema_of(self, SchemaLevel(level), dialect)

    @cached_property
    def spec_hash(self) -> str:
        """sha256 over what the tool says and is: any change makes it another tool.

        Left out is only what selection goes by, which changes nothing about a call.
        """
        return spec_hash_of(self)


_DEFAULTS: Final = {one.name: one.default for one in dataclasses.fields(Tool)}


def checked_paths(tool: str, given: Any) -> tuple[str, ...]:
    """Path values as text.

    Raises:
        ValueError: they are too many, or one is no path.
    """
    if not isinstance(given, list) or len(given) > PATHS_MAX:
        raise ValueError(f"tool {tool}: paths names more than {PATHS_MAX:,}")
    found = []
    for path in given:
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if not isinstance(text, str) or not text or "\0" in text:
            raise ValueError(f"tool {tool}: paths named {path!r:.50}, which is no path")
        found.append(text)
    return tuple(found)
