"""Every public name: importable from where it is said to be, typed, documented, and tested."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import itertools
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import toolcell
from toolcell import Executor, results
from toolcell_sandbox.failures import FailureBase

from . import tools_of_imports
from .identifiers import FAILURES, PARAMETERS, TESTED

ROOT = Path(__file__).resolve().parents[3]
NAMES = [(module, name) for module, names in TESTED.items() for name in names]
PROGRAMS = {
    "test_phases.py": ("phases.py", "tools_of_phases.py"),
    "test_metadata.py": ("metadata.py", "tools_of_metadata.py"),
    "test_settlement.py": ("settlement.py", "tools_of_settlement.py", "tools_of_scopes.py"),
    "test_identifiers.py": ("tools_of_imports.py", "typed_user.py"),
}
"""What each test file here runs."""


def found(module: str, dotted: str) -> tuple[Any, Any]:
    """What a dotted name is, and the class that it is in."""
    owner: Any = import_module(module)
    value = owner
    for part in dotted.split("."):
        owner, value = value, inspect.getattr_static(value, part) if value is not owner else None
        if value is None:
            value = getattr(owner, part)
    return value, owner


def test_the_list_is_what_toolcell_offers() -> None:
    """Otherwise a name is added that nobody tests, or a promised one is gone."""
    listed = {name for name in TESTED["toolcell"] if "." not in name}
    assert listed == set(toolcell.__all__) - {"__version__"}
    assert listed <= set(dir(toolcell))
    for package in ("toolcell", "toolcell_policies", "toolcell_sandbox"):
        assert files(package).joinpath("py.typed").is_file(), package


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])
def test_a_name_is_there_typed_and_documented(module: str, name: str) -> None:
    """Otherwise an editor knows nothing of it, and whoever meets it has to read the code."""
    value, owner = found(module, name)
    lacking = list(unannotated(value, owner, name.rpartition(".")[2]))
    assert not lacking, f"{module}.{name} says no type of: {lacking}"
    assert is_documented(value, owner, name.rpartition(".")[2]), f"{module}.{name} says nothing"


def unannotated(value: Any, owner: Any, name: str) -> Iterator[str]:
    """What of a name has no type."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        assert value.fget is not None
        value = value.fget
    if isinstance(value, type):
        if not issubclass(value, enum.Enum) and inspect.isfunction(value.__init__):
            yield from _unannotated(value.__init__, is_method=True)
    elif inspect.isfunction(value):
        yield from _unannotated(value, is_method=isinstance(owner, type))
    elif isinstance(owner, type) and name not in owner.__annotations__:
        yield name


def _unannotated(function: Any, *, is_method: bool) -> Iterator[str]:
    signature = inspect.signature(function)
    for number, each in enumerate(signature.parameters.values()):
        is_self = is_method and number == 0 and each.name in ("self", "cls")
        if not is_self and each.annotation is inspect.Parameter.empty:
            yield each.name
    if function.__name__ != "__init__" and signature.return_annotation is signature.empty:
        yield "return"


def is_documented(value: Any, owner: Any, name: str) -> bool:
    """Whether a name says what it is: in its own docstring, its field's, or its class's text."""
    if inspect.isfunction(value) or isinstance(value, type | property | staticmethod | classmethod):
        return bool((value.__doc__ or "").strip())
    if isinstance(owner, types.ModuleType):
        # An alias: the string below it, where it is made.
        return _text_below(inspect.getsource(_home(owner, name)), name)
    # A field: the class's own text has its last word, or a string stands below it.
    word = name.rpartition("_")[2].removesuffix("s")
    return word in (owner.__doc__ or "") or _text_below(inspect.getsource(owner), name)


def _home(module: types.ModuleType, name: str) -> types.ModuleType:
    """Where a name is made that others hand on."""
    if module is toolcell:
        module = import_module(toolcell._HOME[name])
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and name in {each.name for each in node.names}:
            return _home(import_module(node.module or ""), name)
    return module


def _text_below(source: str, name: str) -> bool:
    body = ast.parse(inspect.cleandoc(source)).body
    if len(body) == 1 and isinstance(body[0], ast.ClassDef):
        body = body[0].body
    for one, below in itertools.pairwise(body):
        targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            return isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    return False


@cache
def sources_of(file: str) -> dict[str, str]:
    """The source of each test of a file, with what it is parametrized by."""
    text = (ROOT / file).read_text()
    lines = text.splitlines(keepends=True)
    tests: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            tests[node.name] = "".join(lines[begin - 1 : node.end_lineno])
    return tests


@cache
def program_of(file: str) -> str:
    """The sources of the program that a test of a dialect runs."""
    here = Path(__file__).parent
    named = PROGRAMS.get(Path(file).name, ()) if (ROOT / file).parent == here else ()
    return "".join((here / name).read_text() for name in named)


def exercises(node: str, *words: str) -> bool:
    """Whether a test is there, and it or the program that it runs mentions one of the words."""
    file, _, test = node.partition("::")
    source = sources_of(file).get(test)
    wanted = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words))
    return source is not None and bool(wanted.search(source) or wanted.search(program_of(file)))


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])
def test_a_test_uses_it(module: str, name: str) -> None:
    """Otherwise a name could do nothing at all, and every test would pass."""
    node = TESTED[module][name]
    assert exercises(node, name.rpartition(".")[2]), f"{node} does not mention {name}"


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_is_there_typed_and_used(name: str) -> None:
    """Otherwise a word that its users write is refused, or taken and forgotten."""
    value: Any = toolcell
    for part in name.split("."):
        value = getattr(value, part)
    taken = {
        each.name: each.annotation
        for signature in map(inspect.signature, typing.get_overloads(value) or [value])
        for each in signature.parameters.values()
    }
    for parameter, node in PARAMETERS[name].items():
        assert taken.get(parameter, inspect.Parameter.empty) is not inspect.Parameter.empty, (
            parameter
        )
        assert exercises(node, parameter), f"{node} does not mention {parameter}"


@pytest.mark.parametrize("name", FAILURES)
def test_every_failure_has_a_kind_that_a_test_sees(name: str) -> None:
    """Otherwise a call may end in a way that nobody has ever seen."""
    kind = getattr(results, name)
    assert issubclass(kind, FailureBase)
    assert kind in typing.get_args(results.Failure)
    assert "".join(word.title() for word in kind.kind.split("_")) == name
    assert (kind.__doc__ or "").strip()
    assert {"message"} <= {field.name for field in dataclasses.fields(kind)}
    assert exercises(FAILURES[name], name, kind.kind), f"{FAILURES[name]} does not mention {name}"


def test_no_failure_is_forgotten() -> None:
    """Otherwise a new way to end has no test, and nobody notices."""
    assert {each.__name__ for each in typing.get_args(results.Failure)} == set(FAILURES)


async def test_no_front_door_loads_what_costs_time_in_a_jail(tmp_path: Path) -> None:
    """Otherwise 141 ms of pydantic, or trio, are paid in every call of every tool."""
    (tmp_path / "ws").mkdir()
    async with Executor(
        tools=[tools_of_imports.loaded], workspace=tmp_path / "ws", state_dir=tmp_path / "state"
    ) as box:
        result = await box.call("loaded")
    assert (result.error, result.output) == (None, [])
    # Here all of it is loaded, by the same names.
    assert set(tools_of_imports.loaded().output) >= {"trio", "pydantic"}


def test_the_typed_program_uses_every_public_name() -> None:
    """Otherwise a name may lose its type, and only its users' type checkers notice."""
    from . import typed_user

    tree = ast.parse(inspect.getsource(typed_user))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(toolcell.__all__) - {"__version__"} - used == set()
    # What it says of types is checked by `make types`; what is asked of a registry holds here.
    typed_user.registries(toolcell.ToolRegistry())
