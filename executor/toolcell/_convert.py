"""JSON arguments as the Python values that annotations and models ask for.

Runs in jails, and light: pydantic only for annotations that need it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from toolcell._signature import MISSING, Signature, signature
from toolcell.errors import ToolError
from toolcell.markers import AtLeast, PathRole

__all__ = ["as_annotated", "as_model", "converted"]

Converter = Callable[[Any], Any]


def converted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Validated JSON arguments as the Python values that `function` is annotated with.

    What was not given stays away, so that the function's own default holds; an optional
    argument without a default becomes None.

    Raises:
        ToolError: an argument breaks what only its Python type can tell.
    """
    return as_annotated(signature(function), arguments)


def as_model(model: Any, arguments: Mapping[str, Any]) -> Any:
    """Validated JSON arguments as an instance of a pydantic model, a dataclass, a TypedDict.

    Raises:
        ToolError: an argument breaks what only the model can tell.
    """
    return _by_pydantic(model)(dict(arguments))


def as_annotated(found: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What `converted` does, of a signature that was read already."""
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
