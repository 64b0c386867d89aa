"""Where the jail finds a function: by module, file and name, since no object crosses to it."""

from __future__ import annotations

import hashlib
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolcell._signature import unwrapped

_WAY_OUT = (
    "tools run in another process, so write a module-level function, open services inside it, "
    "and pass plain data through its arguments"
)
_OWN_PACKAGES = ("toolcell", "toolcell_sandbox", "toolcell_policies")


@dataclass(frozen=True, slots=True)
class HandlerRef:
    """Where the jail finds a handler: never the object itself.

    With `file` (absolute, real) that file is loaded as `module`, and only while its sha256 is
    `digest`; without, `module` is imported by name. `sys_path` holds the folder above the
    top-level package when the module lies in one, else nothing.
    """

    module: str
    qualname: str
    file: str | None = None
    digest: str | None = None
    sys_path: tuple[str, ...] = ()


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
    module = sys.modules.get(function.__module__)
    name = function.__qualname__
    file = getattr(module, "__file__", None)
    if module is None or file is None or not os.path.isfile(file):
        raise ValueError(
            f"{name} has no file (a REPL or notebook?): write it to a file and import it"
        )
    found = getattr(module, name, None)
    if found is not function and getattr(found, "function", None) is not function:
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
