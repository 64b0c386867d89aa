"""Inside the jail: a handler's arguments in its own shape, its context, its call.

Imported only when a tool runs, and light: pydantic only for annotations that need it.
The sandbox calls `decode` at stage "decode" and what it returns at stage "run".
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolcell._code import CALL, Code
from toolcell._convert import as_annotated, as_model, converted
from toolcell._signature import Signature, handed, signature, taken
from toolcell.errors import ToolError
from toolcell.markers import SETTLED, Returned

__all__ = ["ask_pack", "converted", "decode", "describe", "describe_pack", "invoke"]


def decode(
    target: object, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> Callable[[], object]:
    """The call of `target`, ready to be made without arguments, whatever it was written as.

    A function, or a class where the context says how it is called; or the record of a tool, as a
    pack has it at its top level. The thunk returns the handler's raw value; a `Returned` as its
    object (see markers.py). An async handler runs under trio when it, or its module, holds trio or
    something from it at module level, else under asyncio.

    Raises:
        ToolError: an argument breaks what only its Python type can tell.
    """
    for path, place in context.get("settled_paths", {}).items():
        # By the name that the handler will have: a `Path` drops `./`, `//` and a slash at the end.
        SETTLED[str(Path(path))] = place
    code = _code(target, context.get(CALL))
    told = {name: value for name, value in context.items() if name != CALL}
    function, call = _SHAPES[code.shape](code, arguments, told)

    def thunk() -> object:
        value = call()
        if isinstance(value, types.CoroutineType):
            value = _awaited(value, function)
        return _settled(value)

    return thunk


def _code(target: Any, words: Mapping[str, Any] | None) -> Code:
    """What is called, and how: by what it is, else by the words of whoever registered it."""
    for module, name in (
        ("_tool_record", "Tool"),
        ("definition", "ToolDefinition"),
        ("base_tool", "BaseTool"),
    ):
        # What was not imported here, nothing here is an instance of.
        kind = getattr(sys.modules.get(f"toolcell.{module}"), name, None)
        if kind is None:
            continue
        if isinstance(target, kind):
            return _of_record(target)
        if isinstance(target, type) and issubclass(target, kind):
            return Code(target, "base")
    if not callable(target):
        raise TypeError(f"the handler is {type(target).__name__}, which cannot be called")
    if words is None:
        return Code(target, "function")
    return Code(target, words["shape"], _model(target, words.get("model")))


def _of_record(target: Any) -> Code:
    from toolcell._function_tool import FunctionTool
    from toolcell._tool_record import Tool

    if isinstance(target, FunctionTool):
        return Code(target.function, "function")
    found: object = target.ref if isinstance(target, Tool) else target.code
    if not isinstance(found, Code):
        raise TypeError(f"{target!r:.100} cannot be called in a jail")
    return found


def _model(target: Any, words: str | None) -> Any:
    if words is None:
        return None
    module, _, name = words.partition(":")
    found: Any = importlib.import_module(module) if module else sys.modules[target.__module__]
    for part in name.split("."):
        found = getattr(found, part)
    return found


Call = Callable[[], object]
Shaped = tuple[Callable[..., Any], Call]


def _by_name(code: Code, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Shaped:
    found = signature(code.target)
    ready = as_annotated(found, arguments) | _injected(found, context)
    return code.target, lambda: code.target(**ready)


def _by_model(code: Code, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Shaped:
    """`handler(args)`, or `handler(args, deps)` with what the run gives."""
    args = as_model(code.model, arguments)
    beside = handed(code.target, code.target.__name__, "args", "deps")
    if beside.second is None:
        return code.target, lambda: code.target(args)
    second = _context(beside.second, beside.hint, context) if beside.is_context else _deps(context)
    return code.target, lambda: code.target(args, second)


def _by_value(code: Code, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Shaped:
    """`execute(input)`, or `execute(input, context)`."""
    value = dict(arguments) if code.model is None else as_model(code.model, arguments)
    beside = handed(code.target, code.target.__name__, "input", "context")
    if beside.second is None:
        return code.target, lambda: code.target(value)
    second = _context(beside.second, beside.hint, context)
    return code.target, lambda: code.target(value, second)


def _by_object(code: Code, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Shaped:
    """`execute(_exec_ctx, **arguments)` of an object that is built here, unless it is there."""
    instance = code.target() if code.live is None else code.live
    execute = type(instance).execute
    found = taken(execute)
    given = _injected(Signature((), found.contexts), context)
    if clash := given.keys() & arguments.keys():
        raise ToolError(f"there is no argument {min(clash)}", retryable="yes")
    return execute, lambda: execute(instance, **given, **arguments)


_SHAPES: Mapping[str, Callable[[Code, Mapping[str, Any], Mapping[str, Any]], Shaped]] = {
    "function": _by_name,
    "model": _by_model,
    "value": _by_value,
    "base": _by_object,
}


def _context(name: str, hint: Any, context: Mapping[str, Any]) -> Any:
    return _injected(Signature((), {name: hint}), context)[name]


def _deps(context: Mapping[str, Any]) -> Any:
    from toolcell.calls import RunDeps

    return RunDeps(
        workspace=context.get("workspace") or os.getcwd(),
        phase=context.get("phase"),
        task_kind=context.get("task_kind"),
        extra=dict(context.get("deps") or {}),
    )


def _settled(value: object) -> object:
    """A handler's `Returned` or `ToolResult` as what crosses the channel; else the value."""
    results = sys.modules.get("toolcell.results")
    if results is not None and isinstance(value, results.ToolResult):
        output = value.content if value.output is None else value.output
        failure = value.error
        read = None if value.files_read is None else list(map(os.fspath, value.files_read))
        value = Returned(
            output,
            value.metadata,
            value.content or None,
            read,
            summary=value.summary or None,
            terminate=value.terminate is True,
        )
        if failure is not None:
            hint = getattr(failure, "hint", None)
            raised = ToolError(failure.message, hint=hint, retryable=failure.retryable)
            raised.beside = value.as_json()
            raise raised
    return value.as_json() if isinstance(value, Returned) else value


def invoke(target: object, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> object:
    """`decode` and the call in one."""
    return decode(target, arguments, context)()


def describe(module: types.ModuleType) -> list[dict[str, Any]]:
    """Every tool at a module's top level, as plain data. Runs in a jail; trusted by nobody.

    Raises:
        TypeError, ValueError: a tool has no usable schema; the message names it.
    """
    from toolcell._described import described

    return described(module)


def describe_pack(
    target: object, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> Callable[[], object]:
    """An adapter like `decode`, whose target is the pack's module: describes it."""
    if not isinstance(target, types.ModuleType):
        raise TypeError("a pack is a module")
    return lambda: describe(target)


def ask_pack(
    target: object, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> Callable[[], object]:
    """An adapter like `decode`, that calls one of a tool's own callables on a value instead."""
    from toolcell._described import record_of

    what = context["what"]
    function = getattr(record_of(target), what)
    given = () if what == "availability_check" else (arguments["value"],)

    def thunk() -> object:
        found = function(*given)
        if what == "availability_check":
            return bool(found)
        if what == "paths":
            one = isinstance(found, str | os.PathLike)
            return [os.fspath(path) for path in ([found] if one else found or ())]
        return found

    return thunk


def _injected(found: Signature, context: Mapping[str, Any]) -> dict[str, Any]:
    if not found.context_names:
        return {}
    from toolcell.context import injected

    return injected(found, context)


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
    names = _names(getattr(function, "__code__", None))
    everything = getattr(function, "__globals__", {})
    named = {_package(everything[name]) for name in names if name in everything}
    # A name that the module has not is imported inside, as `trio` or `trio.lowlevel`.
    within = {name.partition(".")[0] for name in names - everything.keys()}
    for found in (named | within, set(map(_package, everything.values()))):
        loops = found & {"trio", "asyncio"}
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
