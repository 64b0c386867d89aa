"""Inside the jail: a handler's arguments as its annotations want them, its context, its call.

Imported only when a tool runs, and light: pydantic only for annotations that need it.
The sandbox calls `decode` at stage "decode" and what it returns at stage "run".
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from toolcell._signature import MISSING, Signature, signature
from toolcell.errors import ToolError
from toolcell.markers import SETTLED, AtLeast, PathRole, Returned

__all__ = ["converted", "decode", "describe", "describe_pack", "invoke"]

Converter = Callable[[Any], Any]


def decode(
    target: object, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> Callable[[], object]:
    """The call of `target`, a function or a `Tool`, ready to be made without arguments.

    The thunk returns the handler's raw value; a `Returned` as its object (see markers.py).
    An async handler runs under trio when its module holds trio or something from it at module
    level, else under asyncio.

    Raises:
        ToolError: an argument breaks what only its Python type can tell.
    """
    for path, place in context.get("settled_paths", {}).items():
        # By the name that the handler will have: a `Path` drops `./`, `//` and a slash at the end.
        SETTLED[str(Path(path))] = place
    function = _function(target)
    found = signature(function)
    ready = _converted(found, arguments) | _injected(found, context)

    def thunk() -> object:
        value = function(**ready)
        if isinstance(value, types.CoroutineType):
            value = _awaited(value, function)
        return _settled(value)

    return thunk


def _settled(value: object) -> object:
    """A handler's `Returned` or `ToolResult` as what crosses the channel; else the value."""
    results = sys.modules.get("toolcell.results")
    if results is not None and isinstance(value, results.ToolResult):
        if not value.success:
            raise ToolError(value.error_text, retryable=value.error.retryable)
        output = value.content if value.output is None else value.output
        value = Returned(output, value.metadata, value.content or None)
    return value.as_json() if isinstance(value, Returned) else value


def invoke(target: object, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> object:
    """`decode` and the call in one."""
    return decode(target, arguments, context)()


def converted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Validated JSON arguments as the Python values that `function` is annotated with.

    What was not given stays away, so that the function's own default holds; an optional
    argument without a default becomes None.
    """
    return _converted(signature(function), arguments)


def describe(module: types.ModuleType) -> list[dict[str, Any]]:
    """Every `Tool` at a module's top level, as plain data. Runs in a jail; trusted by nobody.

    Raises:
        TypeError, ValueError: a tool has no usable schema; the message names it.
    """
    from toolcell.tools import FunctionTool

    found: dict[int, dict[str, Any]] = {}
    for name, value in vars(module).items():
        if isinstance(value, FunctionTool) and id(value) not in found:
            found[id(value)] = {
                "name": value.name,
                "description": value.description,
                "input_schema": value.input_schema,
                "access_mode": value.access_mode.value,
                "danger_level": value.danger_level.value,
                "aliases": list(value.aliases),
                "path_params": dict(value.path_params),
                "qualname": name,
                "limits": _limits(value.limits),
                "timeout_s": value.timeout_s,
            }
    return list(found.values())


def describe_pack(
    target: object, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> Callable[[], object]:
    """An adapter like `decode`, whose target is the pack's module: describes it."""
    if not isinstance(target, types.ModuleType):
        raise TypeError("a pack is a module")
    return lambda: describe(target)


def _limits(limits: Any) -> dict[str, Any] | None:
    if limits is None:
        return None
    import dataclasses

    return dataclasses.asdict(limits)


def _function(target: object) -> Callable[..., Any]:
    tools = sys.modules.get("toolcell.tools")
    if tools is not None and isinstance(target, tools.FunctionTool):
        target = target.function
    if not callable(target):
        raise TypeError(f"the handler is {type(target).__name__}, which cannot be called")
    return target


def _injected(found: Signature, context: Mapping[str, Any]) -> dict[str, Any]:
    if not found.context_names:
        return {}
    import dataclasses

    from toolcell.calls import CallContext

    known = {field.name for field in dataclasses.fields(CallContext)}
    value = CallContext(**{name: item for name, item in context.items() if name in known})
    return {
        name: dict(context) if hint is dict else value for name, hint in found.context_names.items()
    }


def _converted(found: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    ready: dict[str, Any] = {}
    for parameter in found.parameters:
        if parameter.name in arguments:
            converter = _converter(parameter.annotation) or _by_pydantic(parameter.annotation)
            try:
                ready[parameter.name] = converter(arguments[parameter.name])
            except ToolError as error:
                raise ToolError(f"argument {parameter.name}: {error}", retryable="yes") from None
        elif parameter.default is MISSING and parameter.optional:
            ready[parameter.name] = None
    unknown = arguments.keys() - ready.keys()
    if unknown:
        raise ToolError(f"there is no argument {min(unknown)}", retryable="yes")
    return ready


def _same(value: Any) -> Any:
    return value


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _converter(annotation: Any) -> Converter | None:
    """How JSON becomes `annotation` without pydantic; None when that takes pydantic."""
    if annotation in (Any, str, bool, None, types.NoneType, list, dict, object):
        return _same
    if annotation is int:
        return _integer
    if annotation is float:
        return _number
    if annotation is Path:
        return Path
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        light = all(isinstance(mark, PathRole | AtLeast | str) for mark in args[1:])
        return _converter(args[0]) if light else None
    if origin is Literal:
        plain = all(type(option) in (str, int, bool, types.NoneType) for option in args)
        return _same if plain else None
    if origin is list:
        return _each(_converter(args[0]))
    if origin is dict and args[0] is str:
        return _each_value(_converter(args[1]))
    if origin in (Union, types.UnionType):
        return _of_union(args)
    return None


def _each(item: Converter | None) -> Converter | None:
    return None if item is None else lambda values: [item(value) for value in values]


def _each_value(item: Converter | None) -> Converter | None:
    return (
        None if item is None else lambda found: {key: item(value) for key, value in found.items()}
    )


def _of_union(args: tuple[Any, ...]) -> Converter | None:
    some = [arg for arg in args if arg not in (None, types.NoneType)]
    if len(some) > 1:
        return _same if all(arg in (str, int, float, bool) for arg in some) else None
    inner = _converter(some[0])
    return None if inner is None else lambda value: None if value is None else inner(value)


def _by_pydantic(annotation: Any) -> Converter:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(annotation)

    def convert(value: Any) -> Any:
        # JSON mode: text is what dates, enums and sets are made of.
        try:
            return adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ToolError(f"{place}: {first['msg']}" if place else first["msg"]) from None

    return convert


def _awaited(coroutine: types.CoroutineType[Any, Any, Any], function: Callable[..., Any]) -> object:
    if _uses_trio(function):
        import trio

        async def main() -> object:
            return await coroutine

        return trio.run(main)
    import asyncio

    return asyncio.run(coroutine)


def _uses_trio(function: Callable[..., Any]) -> bool:
    """By what the handler itself names; where that tells nothing, by what its module has."""
    if "trio" not in sys.modules:
        return False
    everything = getattr(function, "__globals__", {})
    code = getattr(function, "__code__", None)
    named = [everything[name] for name in _names(code) if name in everything]
    for values in (named, list(everything.values())):
        loops = {_package(value) for value in values} & {"trio", "asyncio"}
        if loops:
            return loops == {"trio"}
    return False


def _names(code: types.CodeType | None) -> set[str]:
    """The global names that a function uses, and those of the functions inside it."""
    if code is None:
        return set()
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*(_names(const) for const in inner))


def _package(value: object) -> str:
    attribute = "__name__" if isinstance(value, types.ModuleType) else "__module__"
    name = getattr(value, attribute, "")
    return name.partition(".")[0] if isinstance(name, str) else ""
