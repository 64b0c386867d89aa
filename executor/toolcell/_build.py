"""JSON Schemas from a function's annotations and docstring, and from models, through pydantic."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

from toolcell._docstring import parameters as described
from toolcell._signature import MISSING, Parameter, Role, role_of, signature, unwrapped
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
        below, text = clean["properties"][parameter.name], said.get(parameter.name)
        _note_path(below, parameter.role, text)
    return _ordered(clean, root)


def of_model(model: Any) -> dict[str, Any]:
    """The schema of a pydantic model, a dataclass or a TypedDict: a closed object.

    Raises:
        TypeError: a field has no JSON form, or it is no such class.
    """
    title = getattr(model, "__qualname__", repr(model)[:100])
    schema = _schema_of(model, title, by_alias=True)
    root = {"$defs": schema.get("$defs", {})}
    clean = _top(schema, root, closed=True)
    if clean.get("type") != "object":
        raise TypeError(f"{title} is no model: its values are no objects with named fields")
    for name, role in roles_of(model).items():
        _note_path(clean["properties"][name], role, _own_words(clean["properties"][name], role))
    return _ordered(clean, root)


def roles_of(model: Any) -> dict[str, Role]:
    """Which fields of a model are paths, or lists of paths, and for what.

    Raises:
        TypeError: paths where the gate could not find them.
    """
    found = {}
    title = getattr(model, "__qualname__", repr(model)[:100])
    for name, annotation in _annotations(model).items():
        try:
            role = role_of(annotation)
        except TypeError as error:
            raise TypeError(f"field {name} of {title}: {error}") from None
        if role is not None:
            found[name] = role
    return found


def output_schema(annotation: Any) -> dict[str, Any]:
    """The schema of what a handler returns, as it comes out of the jail; objects stay open.

    Raises:
        TypeError: it has no JSON form.
    """
    title = getattr(annotation, "__qualname__", repr(annotation)[:100])
    schema = _schema_of(annotation, title, by_alias=False)
    root = {"$defs": schema.get("$defs", {})}
    clean = _top(schema, root, closed=False)
    kept = {
        name: _cleaned(root["$defs"][name], root, (name,), closed=False)
        for name in _recursive(clean, root)
    }
    return clean | ({"$defs": kept} if kept else {})


def _top(schema: dict[str, Any], root: dict[str, Any], *, closed: bool) -> dict[str, Any]:
    """The schema itself, also of a model that holds itself: no reference to a part of it."""
    clean: dict[str, Any] = _cleaned(schema, root, (), closed=closed)
    if "$ref" in clean:
        name = clean["$ref"].removeprefix("#/$defs/")
        clean = _cleaned(root["$defs"][name], root, (), closed=closed)
    return clean


_UNASSERTED: Final = ("date-time", "time", "duration")
"""A datetime without a zone is none by RFC 3339, and fine as an answer."""


def _schema_of(annotation: Any, title: str, *, by_alias: bool) -> dict[str, Any]:
    try:
        return TypeAdapter(annotation).json_schema(by_alias=by_alias, schema_generator=_Generator)
    except _UNUSABLE as error:
        why = " ".join(str(error).split())[:300]
        raise TypeError(f"{title} has no usable JSON form: {why}") from None


def _annotations(model: Any) -> dict[str, Any]:
    if isinstance(model, type) and issubclass(model, BaseModel):
        # What is not resolved yet would hide a path.
        _rebuilt(model)
        return {
            _alias(name, field): Annotated[field.annotation, *field.metadata]
            if field.metadata
            else field.annotation
            for name, field in model.model_fields.items()
        }
    try:
        return typing.get_type_hints(model, include_extras=True)
    except NameError as error:
        raise _unresolved(model, error) from None
    except (TypeError, AttributeError):
        return {}


def _rebuilt(model: type[BaseModel]) -> None:
    try:
        model.model_rebuild()
    except (PydanticUserError, NameError) as error:
        raise _unresolved(model, error) from None


def _unresolved(model: Any, error: BaseException) -> TypeError:
    why = " ".join(str(error).split())[:300]
    return TypeError(
        f"an annotation of {model.__qualname__} cannot be resolved ({why}): "
        "define it above the tool"
    )


def _alias(name: str, field: Any) -> str:
    alias = field.validation_alias
    return alias if isinstance(alias, str) else field.alias or name


def _ordered(clean: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    ordered = {"type": "object", "properties": clean.get("properties", {})}
    if clean.get("required"):
        ordered["required"] = clean["required"]
    ordered["additionalProperties"] = False
    kept = {
        name: _cleaned(root["$defs"][name], root, (name,)) for name in _recursive(ordered, root)
    }
    return ordered | ({"$defs": kept} if kept else {})


def _own_words(schema: dict[str, Any], role: str) -> str | None:
    said = schema.get("description")
    return None if said == PathRole(role).note else said


def _blamed(parameters: tuple[Parameter, ...]) -> str:
    for parameter in parameters:
        try:
            TypeAdapter(parameter.annotation).json_schema(schema_generator=_Generator)
        except _UNUSABLE as error:
            why = " ".join(str(error).split())[:300]
            return f"the type of parameter {parameter.name} has no usable JSON form: {why}"
    return "its parameters have no usable JSON form"


def _note_path(schema: dict[str, Any], role: Role | None, said: str | None) -> None:
    if role is not None and "items" not in schema:
        note = PathRole(role).note
        schema["description"] = f"{said.rstrip('.')} ({note})" if said else note
        schema.pop("format", None)


def _cleaned(
    node: Any, root: dict[str, Any], open_refs: tuple[str, ...], *, closed: bool = True
) -> Any:
    """Without titles, with references inlined; `closed`, and optional values as their plain type.

    Not closed is for what comes out: what is optional there may be null.
    """
    if isinstance(node, list):
        return [_cleaned(item, root, open_refs, closed=closed) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        beside = {key: value for key, value in node.items() if key != "$ref"}
        if name in open_refs or _reaches(root["$defs"][name], name, root, set()):
            return {"$ref": node["$ref"], **_cleaned(beside, root, open_refs, closed=closed)}
        return _cleaned({**root["$defs"][name], **beside}, root, (*open_refs, name), closed=closed)
    found: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("title", "$defs", "discriminator"):
            continue
        if key == "properties":
            required = node.get("required", ())
            found[key] = {
                name: _plain_optional(_cleaned(below, root, open_refs), name in required)
                if closed
                else _cleaned(below, root, open_refs, closed=False)
                for name, below in value.items()
            }
        elif key == "format" and not closed and value in _UNASSERTED:
            continue
        elif key in ("default", "enum", "const", "examples", "required"):
            found[key] = value
        else:
            found[key] = _cleaned(value, root, open_refs, closed=closed)
    if closed and "properties" in found and "additionalProperties" not in found:
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
