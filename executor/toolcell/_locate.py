"""Where the jail finds a function: by module, file and name, since no object crosses to it."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolcell._code import CALL, Code, Shape
from toolcell._signature import unwrapped

_WAY_OUT = (
    "tools run in another process, so write a module-level function, open services inside it, "
    "and pass plain data through `deps`"
)
_OWN_PACKAGES = ("toolcell", "toolcell_sandbox", "toolcell_policies")


@dataclass(frozen=True, slots=True)
class HandlerRef:
    """Where the jail finds a handler: never the object itself.

    With `file` (absolute, real) that file is loaded as `module`, and only while its sha256 is
    `digest`; without, `module` is imported by name. `sys_path` holds the folder above the
    top-level package when the module lies in one, else nothing. `model` is where the input model
    is, "module:qualname", without a module in the handler's own.
    """

    module: str
    qualname: str
    file: str | None = None
    digest: str | None = None
    sys_path: tuple[str, ...] = ()
    shape: Shape = "function"
    model: str | None = None

    def words(self) -> dict[str, Any]:
        """What the context says to the jail about the call; nothing for a plain function."""
        if self.shape == "function":
            return {}
        return {CALL: {"shape": self.shape, "model": self.model}}


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
        from toolcell._convert import converted

        module, _, name = self.build.partition(":")
        function = getattr(importlib.import_module(module), name)
        argv, cwd, script = function(**converted(function, arguments))
        return tuple(argv), os.fspath(cwd), script


def located(code: Code) -> HandlerRef:
    """Where the jail finds a handler of any shape.

    Raises:
        TypeError, ValueError: another process cannot find it, or its model.
    """
    if code.shape == "base" and isinstance(code.target, type):
        refuse_local(code.target.__qualname__, "BaseTool")
    else:
        refuse_unreachable(code.target)
    found = replace(locate(code.target), shape=code.shape)
    return found if code.model is None else replace(found, model=_model_of(code, found))


def _model_of(code: Code, handler: HandlerRef) -> str:
    """Where the jail finds the input model, seen from the handler."""
    model = code.model
    refuse_local(model.__qualname__, "input model")
    ref = locate(model)
    if model.__module__ == code.target.__module__:
        return f":{ref.qualname}"
    same_package = ref.module.partition(".")[0] == handler.module.partition(".")[0]
    if ref.file is not None and not (ref.sys_path and same_package):
        raise ValueError(
            f"the jail of {handler.qualname} does not see the file of its input model "
            f"{ref.qualname}: define both in one file, or in one package"
        )
    return f"{ref.module}:{ref.qualname}"


def refuse_local(name: str, what: str) -> None:
    """Refuse a class that is defined inside a function."""
    if "<locals>" in name:
        raise ValueError(f"the {what} {name} is defined inside a function: {_WAY_OUT}")


def refuse_unreachable(function: Any) -> None:
    """Refuse what another process cannot find by module and name."""
    if isinstance(function, types.MethodType):
        raise TypeError(f"{function.__qualname__} is a method, bound to a live object: {_WAY_OUT}")
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"{function!r:.100} is not a plain function: {_WAY_OUT}")
    if unwrapped(function).__name__ == "<lambda>":
        raise ValueError(f"a lambda has no name to be found by: {_WAY_OUT}")
    name = function.__qualname__
    if "<locals>" in name:
        raise ValueError(
            f"{name} is defined inside a function, so it may close over it: {_WAY_OUT}"
        )
    if "." in name:
        raise ValueError(f"{name} is defined inside a class: {_WAY_OUT}")


def locate(function: Callable[..., Any]) -> HandlerRef:
    """Where another process finds a module-level function or class.

    Raises:
        ValueError: it has no source file, or its name means something else by now.
    """
    module = sys.modules.get(function.__module__)
    name = function.__qualname__
    file = getattr(module, "__file__", None)
    if module is None or file is None or not os.path.isfile(file):
        raise ValueError(
            f"{name} has no file (a REPL or notebook?): write it to a file and import it"
        )
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    # A tool may have taken the name of the function that it was made from.
    made_from = (
        getattr(found, "function", None),
        getattr(getattr(found, "ref", None), "target", None),
    )
    if found is not function and not any(one is function for one in made_from):
        raise ValueError(
            f"in {module.__name__} the name {name} is something else by now; "
            "put @tool above all other decorators, and use a name once"
        )
    file = os.path.realpath(file)
    if not file.endswith(".py"):
        with_source = "a tool needs its source file, to be checked again when it runs"
        raise ValueError(f"{name}: {os.path.basename(file)} is not a .py file; {with_source}")
    spec = getattr(module, "__spec__", None)
    full_name = spec.name if module.__name__ == "__main__" and spec else module.__name__
    if full_name.partition(".")[0] in _OWN_PACKAGES or _is_installed(file):
        return HandlerRef(full_name, name)
    with open(file, "rb") as source:
        digest = hashlib.sha256(source.read()).hexdigest()
    root = _package_root(full_name, file)
    if root is not None:
        return HandlerRef(full_name, name, file, digest, (root,))
    alone = full_name.rpartition(".")[2]
    if alone in sys.stdlib_module_names or not alone.isidentifier() or alone.startswith("__"):
        alone = "toolcell_main"  # so that it neither shadows a module nor runs its main part
    return HandlerRef(alone, name, file, digest)


def _is_installed(file: str) -> bool:
    folders = file.split(os.sep)
    library = os.path.realpath(os.path.dirname(os.__file__)) + os.sep
    return "site-packages" in folders or "dist-packages" in folders or file.startswith(library)


def _package_root(name: str, file: str) -> str | None:
    """The folder above the top-level package that `file` lies in, when it is a regular one."""
    parts = name.split(".")
    folder, base = os.path.split(file)
    if base == "__init__.py":
        folder, base = os.path.dirname(folder), os.path.basename(folder) + ".py"
    for part in reversed(parts[:-1]):
        if os.path.basename(folder) != part or not os.path.isfile(f"{folder}/__init__.py"):
            return None
        folder = os.path.dirname(folder)
    is_package = len(parts) > 1 or os.path.basename(file) == "__init__.py"
    return folder if is_package and base == parts[-1] + ".py" else None
