"""A JSON Schema from a function's annotations and docstring, by way of pydantic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

from toolcell._docstring import parameters as described
from toolcell._signature import MISSING, Parameter, signature, unwrapped
from toolcell.markers import PathRole

_UNUSABLE = (PydanticUserError, SchemaError)


class _Generator(GenerateJsonSchema):
    # A default without a JSON form is left out of the schema; the handler still applies it.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own spelling


def built(function: Callable[..., Any]) -> dict[str, Any]:
    """The schema of a function's parameters, the same byte for byte each time.

    Raises:
        TypeError: a parameter's type has no JSON form.
    """
    function = unwrapped(function)
    found = signature(function).parameters
    said = described(function.__doc__)
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(found):
        default = parameter.default
        if default is MISSING:
            default = None if parameter.optional else ...
        # Fields are numbered: a parameter may have a name that pydantic keeps for itself.
        fields[f"p{number}"] = (
            parameter.annotation,
            Field(default=default, alias=parameter.name, description=said.get(parameter.name)),
        )
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    except _UNUSABLE:
        raise TypeError(f"{function.__name__}: {_blamed(found)}") from None
    root = {"$defs": schema.get("$defs", {})}
    clean = _cleaned(schema, root, ())
    for parameter in found:
        _note_path(clean["properties"][parameter.name], parameter, said.get(parameter.name))
    ordered = {"type": "object", "properties": clean.get("properties", {})}
    if clean.get("required"):
        ordered["required"] = clean["required"]
    ordered["additionalProperties"] = False
    kept = {
        name: _cleaned(root["$defs"][name], root, (name,)) for name in _recursive(ordered, root)
    }
    return ordered | ({"$defs": kept} if kept else {})


def _blamed(parameters: tuple[Parameter, ...]) -> str:
    for parameter in parameters:
        try:
            TypeAdapter(parameter.annotation).json_schema(schema_generator=_Generator)
        except _UNUSABLE as error:
            why = " ".join(str(error).split())[:300]
            return f"the type of parameter {parameter.name} has no usable JSON form: {why}"
    return "its parameters have no usable JSON form"


def _note_path(schema: dict[str, Any], parameter: Parameter, said: str | None) -> None:
    if parameter.role is not None and "items" not in schema:
        note = PathRole(parameter.role).note
        schema["description"] = f"{said.rstrip('.')} ({note})" if said else note
        schema.pop("format", None)


def _cleaned(node: Any, root: dict[str, Any], open_refs: tuple[str, ...]) -> Any:
    """Without titles, with references inlined, closed, and optional values as their plain type."""
    if isinstance(node, list):
        return [_cleaned(item, root, open_refs) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        beside = {key: value for key, value in node.items() if key != "$ref"}
        if name in open_refs or _reaches(root["$defs"][name], name, root, set()):
            return {"$ref": node["$ref"], **_cleaned(beside, root, open_refs)}
        return _cleaned({**root["$defs"][name], **beside}, root, (*open_refs, name))
    found: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("title", "$defs", "discriminator"):
            continue
        if key == "properties":
            required = node.get("required", ())
            found[key] = {
                name: _plain_optional(_cleaned(below, root, open_refs), name in required)
                for name, below in value.items()
            }
        elif key in ("default", "enum", "const", "examples", "required"):
            found[key] = value
        else:
            found[key] = _cleaned(value, root, open_refs)
    if "properties" in found and "additionalProperties" not in found:
        found["additionalProperties"] = False
    return found


def _plain_optional(schema: dict[str, Any], required: bool) -> dict[str, Any]:
    """`X | None` that may be left out, and is None then, as plain X."""
    if required or "default" not in schema or schema["default"] is not None:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("default", "anyOf")}
    branches = [b for b in schema.get("anyOf", ()) if b != {"type": "null"}]
    if not branches:
        return rest
    if len(branches) == 1:
        return {**branches[0], **rest}
    return {"anyOf": branches, **rest}


def _reaches(node: Any, wanted: str, root: dict[str, Any], seen: set[str]) -> bool:
    """Whether following references from `node` comes back to `wanted`."""
    for name in _refs(node):
        if name == wanted:
            return True
        if name not in seen:
            seen.add(name)
            if _reaches(root["$defs"][name], wanted, root, seen):
                return True
    return False


def _refs(node: Any) -> list[str]:
    if isinstance(node, list):
        return [name for item in node for name in _refs(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"].removeprefix("#/$defs/")] if isinstance(node.get("$ref"), str) else []
    return own + [name for item in node.values() for name in _refs(item)]


def _recursive(node: Any, root: dict[str, Any]) -> list[str]:
    found: list[str] = []
    waiting = _refs(node)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            waiting += _refs(root["$defs"][name])
    return sorted(found)
