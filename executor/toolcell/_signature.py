"""A handler's parameters, read from the function object. Light: runs in jails, no `inspect`."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from toolcell.markers import PathRole

Role = Literal["read", "write"]

MISSING: Final[Any] = object()
"""Stands for "no default"."""

CONTEXT_NAMES: Final = ("_exec_ctx", "context")
_CONTEXTS: Final = {"toolcell.calls": "CallContext", "toolcell.context": "HandlerContext"}
_VARARGS, _VARKEYWORDS, _GENERATOR, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x200
_HOLDERS = (list, set, frozenset, Iterable, Collection, Sequence, Union, types.UnionType)


class Parameter(NamedTuple):
    """One argument that a model may set."""

    name: str
    annotation: Any
    default: Any
    role: Role | None

    @property
    def optional(self) -> bool:
        """Whether None is one of its values."""
        return admits_none(self.annotation)


class Signature(NamedTuple):
    """The arguments of a handler, and the names under which it wants its `CallContext`."""

    parameters: tuple[Parameter, ...]
    context_names: Mapping[str, Any]


def signature(function: Callable[..., Any]) -> Signature:
    """Read the parameters of a module-level function, resolving its annotations.

    Raises:
        TypeError: it takes what JSON arguments cannot fill, or an annotation is missing or
            cannot be resolved; the message names the parameter and the way out.
    """
    inner = unwrapped(function)
    code, title = inner.__code__, inner.__name__
    if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise TypeError(f"{title} is a generator; a tool returns one value, so return a list")
    if code.co_flags & _VARARGS:
        raise TypeError(f"{title} takes *args; name each argument, or take one typed list")
    if code.co_flags & _VARKEYWORDS:
        raise TypeError(f"{title} takes **kwargs; name each argument, so that they can be checked")
    if code.co_posonlyargcount:
        raise TypeError(f"{title} has positional-only parameters; arguments come by name")
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = dict(inner.__kwdefaults__ or {})
    positional = names[: code.co_argcount]
    values = inner.__defaults__ or ()
    defaults.update(zip(positional[len(positional) - len(values) :], values, strict=True))
    hints = _hints(inner, names)
    found, contexts = [], {}
    for name in names:
        hint = hints.get(name, MISSING)
        if name in CONTEXT_NAMES or _is_context(hint):
            contexts[name] = hint
            continue
        if hint is MISSING:
            raise TypeError(f"parameter {name} of {title} needs a type annotation")
        try:
            role = role_of(hint)
        except TypeError as error:
            raise TypeError(f"parameter {name} of {title}: {error}") from None
        found.append(Parameter(name, hint, defaults.get(name, MISSING), role))
    return Signature(tuple(found), contexts)


class Taken(NamedTuple):
    """What a method takes beside `self`: arguments by name, and its context."""

    names: tuple[str, ...]
    required: tuple[str, ...]
    contexts: Mapping[str, Any]
    takes_any: bool


def taken(method: Callable[..., Any]) -> Taken:
    """The parameters of a method, whose arguments a schema describes.

    Raises:
        TypeError: it takes what JSON arguments by name cannot fill.
    """
    inner = unwrapped(method)
    code, title = inner.__code__, inner.__qualname__
    if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise TypeError(f"{title} is a generator; a tool returns one value, so return a list")
    if code.co_flags & _VARARGS:
        raise TypeError(f"{title} takes *args; arguments come by name, so take **kwargs")
    if code.co_posonlyargcount > 1 or not code.co_argcount:
        raise TypeError(f"{title} takes self first, and its arguments by name")
    positional = code.co_varnames[1 : code.co_argcount]
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    given = set(inner.__kwdefaults__ or ())
    count = len(inner.__defaults__ or ())
    given.update(positional[len(positional) - count :] if count else ())
    hints = {name: _hint(inner, name) for name in names}
    contexts = {n: hint for n, hint in hints.items() if n in CONTEXT_NAMES or _is_context(hint)}
    own = tuple(name for name in names if name not in contexts)
    required = tuple(name for name in own if name not in given)
    return Taken(own, required, contexts, bool(code.co_flags & _VARKEYWORDS))


class Handed(NamedTuple):
    """The one or two positional parameters of a handler, the second by name and annotation."""

    second: str | None
    hint: Any
    is_context: bool


def handed(function: Any, title: str, first: str, second: str) -> Handed:
    """Whether a handler takes its one value alone, or something beside it.

    Raises:
        TypeError: it takes neither.
    """
    inner = unwrapped(function)
    code = inner.__code__
    if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise TypeError(f"{title} is a generator; a tool returns one value, so return a list")
    needed = code.co_kwonlyargcount - len(inner.__kwdefaults__ or ())
    if code.co_argcount not in (1, 2) or needed:
        name = inner.__name__
        raise TypeError(f"{title} is called as {name}({first}) or {name}({first}, {second})")
    if code.co_argcount == 1:
        return Handed(None, MISSING, False)
    name = code.co_varnames[1]
    hint = _hint(inner, name)
    return Handed(name, hint, name in CONTEXT_NAMES or _is_context(hint))


def _hint(function: types.FunctionType, name: str) -> Any:
    """One annotation, or its text where it names what only a type checker imports."""
    try:
        return _hints(function, (name,)).get(name, MISSING)
    except TypeError:
        text = str(function.__annotations__[name])
        return dict if text.lower().startswith("dict") else text


def unwrapped(function: Callable[..., Any]) -> types.FunctionType:
    """The function below all `functools.wraps` layers.

    Raises:
        TypeError: there is no plain function there.
    """
    inner: Any = function
    for _ in range(64):
        if not hasattr(inner, "__wrapped__"):
            break
        inner = inner.__wrapped__
    if not isinstance(inner, types.FunctionType):
        raise TypeError(f"{type(inner).__name__} is not a function: write a module-level function")
    return inner


def role_of(annotation: Any) -> Role | None:
    """Whether the values of `annotation` are paths, and for what. A bare `Path` is read.

    Raises:
        TypeError: paths where the gate could not find them, or of two roles.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for mark in args[1:]:
            if isinstance(mark, PathRole):
                return mark.value
        return role_of(args[0])
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return "read"
    roles = {role for role in map(role_of, args) if role is not None} if origin else set()
    if not roles:
        return None
    if origin not in _HOLDERS or len(roles) > 1:
        raise TypeError("a path must be an argument of its own, or a list of paths of one role")
    return roles.pop()


def admits_none(annotation: Any) -> bool:
    """Whether None is one of the annotation's values."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return admits_none(args[0])
    if origin in (Union, types.UnionType):
        return any(map(admits_none, args))
    return annotation is None or annotation is type(None)


def _hints(function: types.FunctionType, names: Sequence[str]) -> dict[str, Any]:
    # The return annotation is left out: it may name what only a type checker imports.
    holder = types.SimpleNamespace(
        __annotations__={
            n: function.__annotations__[n] for n in names if n in function.__annotations__
        }
    )
    try:
        return typing.get_type_hints(holder, globalns=function.__globals__, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"an annotation of {function.__name__} cannot be resolved ({error}): import it at "
            "run time, not under TYPE_CHECKING, and define it above the function"
        ) from None


def _is_context(hint: Any) -> bool:
    if get_origin(hint) in (Annotated, Union, types.UnionType):
        return any(_is_context(arg) for arg in get_args(hint))
    if isinstance(hint, str):
        return hint.rpartition(".")[2] in _CONTEXTS.values()
    module, name = getattr(hint, "__module__", None), getattr(hint, "__qualname__", None)
    return isinstance(module, str) and _CONTEXTS.get(module, ...) == name
