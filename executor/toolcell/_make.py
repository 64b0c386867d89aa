"""What the front doors share: the words of a tool as the fields of its one record."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from toolcell._code import Code
from toolcell._signature import Taken, handed, taken
from toolcell._tool_record import DANGER, SELECTION, Tool
from toolcell_policies.vocabulary import AccessMode, CostTier, DangerLevel

if TYPE_CHECKING:
    from toolcell.base_tool import BaseTool

__all__ = ["code_of_base", "fields_of", "make", "of_base", "of_model"]

_FIELDS: Final = frozenset(one.name for one in dataclasses.fields(Tool))
_OF_DOORS: Final = frozenset({"name", "description", "ref", "schema", "input_model"})
"""Fields that a front door fills in itself."""
WORDS: Final = (
    (_FIELDS | {"metadata", "timeout"})
    - _OF_DOORS
    - {"trusted", "in_jail", "takes_context", "fills_defaults", "has_metadata", "level_floor"}
)
"""What the author of a tool may say about it."""


def fields_of(title: str, words: Mapping[str, Any], *, least: AccessMode) -> dict[str, Any]:
    """The fields of a `Tool` from what was said about it, once or in two places.

    `least` is the access mode where none is declared. Of two declared ones the wider counts, and
    of two dangers or costs the greater: metadata never makes a tool safer than its own words.

    Raises:
        TypeError: a word that a tool does not have.
        ValueError: two words that contradict each other.
    """
    found = dict(words)
    metadata = found.pop("metadata", None)
    if metadata is not None and not hasattr(metadata, "words"):
        raise TypeError(f"tool {title}: metadata is a ToolMetadata or None, not {metadata!r:.50}")
    said = {} if metadata is None else dict(metadata.words())
    if unknown := found.keys() - (_FIELDS | {"timeout"}):
        raise TypeError(f"tool {title} takes no {min(unknown)!r}")
    timeout = found.pop("timeout", None)
    if timeout is not None and found.setdefault("timeout_s", timeout) not in (None, timeout):
        raise ValueError(f"tool {title}: timeout and timeout_s are the same, and differ")
    if timeout is not None:
        found["timeout_s"] = timeout
    if isinstance(found.get("network"), str):
        from toolcell_sandbox.spec import Network

        found["network"] = Network(found["network"])
    selected = metadata is not None or any(name in found for name in SELECTION)
    access = _wider(found.pop("access_mode", None), said.pop("access_mode", None)) or least
    dangers = [
        one for one in (found.pop("danger_level", None), said.pop("danger_level", None)) if one
    ]
    costs = [one for one in (found.pop("cost_tier", None), said.pop("cost_tier", None)) if one]
    danger = max(map(DangerLevel, dangers), key=lambda d: d.weight, default=DANGER[access])
    cost = max(map(CostTier, costs), key=lambda c: c.weight, default=CostTier.FREE)
    return {
        **said,
        **found,
        "access_mode": access,
        "danger_level": danger,
        "cost_tier": cost,
        "has_metadata": found.get("has_metadata", False) or selected,
    }


def _wider(one: AccessMode | str | None, other: AccessMode | str | None) -> AccessMode | None:
    """What covers both: another than the other is mixed, unless one only reads."""
    modes = {AccessMode(mode) for mode in (one, other) if mode is not None}
    if len(modes) > 1:
        modes.discard(AccessMode.READONLY)
    return AccessMode.MIXED if len(modes) > 1 else next(iter(modes), None)


class _OnInput:
    """A function of a handler's input, called with validated arguments instead."""

    def __init__(self, function: Callable[[Any], Any], model: Any) -> None:
        self.__wrapped__ = function
        self._model = model

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        from toolcell._convert import as_model

        return self.__wrapped__(as_model(self._model, arguments))


def of_model(
    name: str, description: str, code: Code, words: Mapping[str, Any], least: AccessMode
) -> Tool:
    """A tool whose handler gets its arguments as an instance of a model.

    Raises:
        TypeError, ValueError: the model has no schema, or a word cannot be used.
    """
    from toolcell._build import roles_of

    title = name or "(no name yet)"
    fields = dict(words)
    roles = roles_of(code.model)
    fields.setdefault("path_params", roles)
    if "write" in roles.values() and least is AccessMode.READONLY:
        least = AccessMode.WRITE
    paths = fields.get("paths")
    if paths is not None:
        _refuse_no_function(title, "paths", paths)
        fields["paths"] = _OnInput(paths, code.model)
    found = fields_of(title, fields, least=least)
    return Tool(name=name, description=description, ref=code, input_model=code.model, **found)


def _refuse_no_function(title: str, what: str, given: Any) -> None:
    if not callable(given):
        raise ValueError(f"tool {title}: {what} is a function, not {given!r:.50}")


def make(
    *,
    description: str,
    input: Any,
    execute: Callable[..., Any],
    output: Any,
    **words: Any,
) -> Tool:
    """What `Tool.make` does."""
    if unknown := words.keys() - WORDS:
        raise TypeError(f"Tool.make takes no {min(unknown)!r}")
    beside = handed(execute, "execute", "input", "context")
    words["takes_context"] = beside.second is not None
    if isinstance(output, Mapping):
        words["output_schema"] = copy.deepcopy(dict(output))
    elif output is not None:
        words["output_model"] = output
    if isinstance(input, Mapping):
        from toolcell._given_schema import given_schema

        fields = fields_of("(no name yet)", words, least=AccessMode.READONLY)
        return Tool(
            name="",
            description=description,
            ref=Code(execute, "value"),
            schema=given_schema(input),
            fills_defaults=True,
            **fields,
        )
    return of_model("", description, Code(execute, "value", input), words, AccessMode.READONLY)


def of_base(item: BaseTool | type[BaseTool], *, rebuilt: bool = True) -> Tool:
    """A `BaseTool` as the one record. Without `rebuilt` it is of use in this process only.

    Raises:
        TypeError: it says no name, description or parameters, or its `execute` cannot be called
            with them.
        ValueError: a word cannot be used, or the jail could not build the same object again.
    """
    from toolcell._given_schema import given_schema

    code, instance = code_of_base(item, rebuilt=rebuilt)
    title = type(instance).__qualname__
    said: dict[str, Any] = {}
    for name in ("name", "description", "parameters"):
        value = getattr(instance, name, None)
        if value is None:
            raise TypeError(f"the tool {title} says no {name}: give its class the attribute {name}")
        said[name] = value
    schema = given_schema(said["parameters"])
    found = _check_execute(title, instance, schema)
    words: dict[str, Any] = {
        name: getattr(instance, name) for name in sorted(WORDS) if hasattr(instance, name)
    }
    words["takes_context"] = bool(found.contexts)
    fields = fields_of(str(said["name"]), words, least=AccessMode.READONLY)
    return Tool(
        name=said["name"],
        description=said["description"],
        ref=code,
        schema=schema,
        fills_defaults=True,
        **fields,
    )


def code_of_base(item: BaseTool | type[BaseTool], *, rebuilt: bool = True) -> tuple[Code, BaseTool]:
    """How the jail builds such an object, and one of it.

    Raises:
        TypeError, ValueError: it could not build the same.
    """
    kind = item if isinstance(item, type) else type(item)
    factory = _factory(kind)
    if isinstance(item, type):
        return Code(factory or kind, "base"), _built(kind, factory)
    if factory is None and rebuilt:
        _refuse_other_state(item, _built(kind, None))
    return Code(factory or kind, "base", live=item), item


def _factory(kind: type[BaseTool]) -> Callable[[], BaseTool] | None:
    words = getattr(kind, "factory", None)
    if words is None:
        return None
    module, _, name = words.partition(":") if isinstance(words, str) else ("", "", "")
    if not module or not name.isidentifier():
        raise ValueError(f'{kind.__qualname__}: factory is "module:function", not {words!r:.100}')
    import importlib

    try:
        found: Callable[[], BaseTool] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{kind.__qualname__}: its factory {words} is not there: {error}"
        ) from None
    return found


def _built(kind: type[BaseTool], factory: Callable[[], BaseTool] | None) -> BaseTool:
    try:
        return kind() if factory is None else factory()
    except TypeError as error:
        raise TypeError(
            f"the jail builds {kind.__qualname__} as {kind.__qualname__}(), which fails ({error}): "
            'give its parameters defaults, or the class a factory = "module:function"'
        ) from None


_PLAIN: Final = (str, int, float, bool, bytes, type(None), list, tuple, dict, set, frozenset)


def _refuse_other_state(item: BaseTool, fresh: BaseTool) -> None:
    """What an object was told when it was made does not reach the jail, so it must be none."""
    mine, new = getattr(item, "__dict__", {}), getattr(fresh, "__dict__", {})
    for name in sorted(mine.keys() | new.keys()):
        one, other = mine.get(name), new.get(name)
        plain = isinstance(one, _PLAIN) and isinstance(other, _PLAIN)
        if type(one) is not type(other) or (plain and one != other):
            title = type(item).__qualname__
            raise ValueError(
                f"the jail builds the tool as {title}(), where {name} is another than in this "
                f'object: pass it through deps, or give the class a factory = "module:function"'
            )


def _check_execute(title: str, instance: BaseTool, schema: Mapping[str, Any]) -> Taken:
    from toolcell.base_tool import BaseTool

    execute = type(instance).execute
    if execute is BaseTool.execute:
        raise TypeError(
            f"{title} has no execute: write async def execute(self, _exec_ctx, **kwargs)"
        )
    found = taken(execute)
    properties = schema.get("properties", {})
    if found.contexts.keys() & properties.keys():
        name = min(found.contexts.keys() & properties.keys())
        raise ValueError(f"{title}: {name} is given by the executor, never by a model")
    for name in found.required:
        if name not in properties:
            raise TypeError(
                f"{title}.execute takes {name}, which is none of its parameters; the context is "
                "called _exec_ctx"
            )
    missing = [name for name in properties if name not in found.names]
    if missing and not found.takes_any:
        raise TypeError(
            f"{title}.execute does not take {missing[0]}, which is one of its parameters"
        )
    return found
