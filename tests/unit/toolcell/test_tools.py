"""`@tool` and the record it makes."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from toolcell.calls import CallContext
from toolcell.markers import ReadPath, WritePath
from toolcell.tools import CommandRef, HandlerRef, Tool, tool
from toolcell_policies.vocabulary import AccessMode, DangerLevel


@tool
def word_count(path: ReadPath, top: int = 10) -> dict[str, int]:
    """Count words.

    Args:
        path: the text
    """
    return {str(path): top}


@tool(name="copy", aliases=("cp",), access_mode="mixed", danger_level="high", timeout_s=5)
def copy_file(sources: list[ReadPath], target: WritePath | None = None) -> None:
    """Copy."""


@tool
async def stamp(path: WritePath, context: Any, who: CallContext | None = None) -> str:
    """Write a stamp."""
    return str(path)


def plain(x: int) -> int:
    return x


def test_a_tool_is_still_the_function_it_was_made_from() -> None:
    """Otherwise decorating a helper would break the code that calls it."""
    assert word_count(Path("a"), top=2) == {"a": 2}
    assert vars(word_count)["__name__"] == "word_count"
    assert word_count.__doc__ is not None
    assert word_count.__doc__.startswith("Count words.")
    assert inspect.unwrap(word_count) is word_count.function


def test_what_a_tool_says_comes_from_its_function() -> None:
    """Said twice, the two would drift apart."""
    assert (word_count.name, word_count.description) == ("word_count", "Count words.")
    assert (word_count.access_mode, word_count.danger_level) == ("readonly", "safe")
    assert tool(plain).description == "Plain."


def test_access_is_the_least_that_the_parameters_need() -> None:
    """A default that is too wide would let a reader write."""
    assert stamp.access_mode is AccessMode.WRITE
    assert stamp.danger_level is DangerLevel.LOW
    assert dict(stamp.path_params) == {"path": "write"}


@pytest.mark.parametrize("mode", list(AccessMode))
def test_an_assumed_danger_never_raises_or_lowers_its_access_mode(mode: AccessMode) -> None:
    """Otherwise a network tool would ask although its mode says "log only"."""
    made = tool(access_mode=mode)(plain)
    assert made.danger_level.approval_level() <= mode.approval_level()


def test_lists_and_optional_paths_are_paths_too() -> None:
    """A path that is not named as one is not explained before the jail refuses it."""
    assert dict(copy_file.path_params) == {"sources": "read", "target": "write"}


def test_a_tool_cannot_be_changed() -> None:
    """A decision is made on a tool; the tool that runs must be the same."""
    with pytest.raises(AttributeError):
        word_count.access_mode = AccessMode.WRITE  # type: ignore[misc]  # that is the point
    with pytest.raises(TypeError):
        word_count.path_params["x"] = "read"  # type: ignore[index]  # that is the point


def test_injected_parameters_are_never_the_models() -> None:
    """Otherwise a model could say on whose behalf it calls."""
    assert list(stamp.input_schema["properties"]) == ["path"]


def outer() -> Any:
    def inner(x: int) -> int:
        return x

    return inner


class Holder:
    def method(self, x: int) -> int:
        return x

    @staticmethod
    def static(x: int) -> int:
        return x


def variadic(*args: int) -> int:
    return len(args)


def keywords(**kwargs: int) -> int:
    return len(kwargs)


def positional(x: int, /) -> int:
    return x


def untyped(x: int) -> int:
    return x


del untyped.__annotations__["x"]


def generator(x: int) -> Any:
    yield x


def unresolvable(x: int) -> int:
    return x


unresolvable.__annotations__["x"] = "Missing"


def hidden_path(x: dict[str, ReadPath]) -> int:
    return len(x)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (outer(), "module-level function"),
        (lambda x: x, "lambda"),
        (Holder().method, "method"),
        (Holder.static, "inside a class"),
        (len, "not a plain function"),
        (variadic, r"\*args"),
        (keywords, r"\*\*kwargs"),
        (positional, "positional-only"),
        (untyped, "annotation"),
        (generator, "generator"),
        (unresolvable, "Missing"),
        (hidden_path, "argument of its own"),
        (word_count, "already"),
    ],
)
def test_what_cannot_run_in_another_process_is_refused_with_the_way_out(
    function: Any, words: str
) -> None:
    """Otherwise it would fail at the first call, where nobody knows why."""
    with pytest.raises((TypeError, ValueError), match=words):
        tool(function)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a.b", "é", "a" * 65, "a\n", "_x"])
def test_a_name_that_a_provider_rejects_is_refused(name: str) -> None:
    """Otherwise every request that advertises the tool fails."""
    with pytest.raises(ValueError, match="cannot name a tool"):
        tool(name=name)(plain)


def loaded(file: Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


SOURCE = "from toolcell.tools import tool\n@tool\ndef f(x: int) -> int:\n    return x\n"


def test_a_handler_is_its_file_and_the_files_content(tmp_path: Path) -> None:
    """A changed file must not run under the old tool's approval."""
    file = tmp_path / "mine_1.py"
    file.write_text(SOURCE)
    ref = loaded(file, "mine_1").f.handler
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert ref == HandlerRef("mine_1", "f", os.path.realpath(file), digest, ())


def test_a_handler_in_a_package_brings_the_folder_above_it(tmp_path: Path) -> None:
    """Otherwise its imports of its own package would fail in the jail."""
    inner = tmp_path / "pkg_2" / "sub"
    inner.mkdir(parents=True)
    (tmp_path / "pkg_2" / "__init__.py").touch()
    (inner / "__init__.py").touch()
    (inner / "mod.py").write_text(SOURCE)
    ref = loaded(inner / "mod.py", "pkg_2.sub.mod").f.handler
    assert (ref.module, ref.sys_path) == ("pkg_2.sub.mod", (os.path.realpath(tmp_path),))


def test_a_folder_without_init_brings_its_file_alone(tmp_path: Path) -> None:
    """Otherwise a script in a folder would show the jail all that lies beside the folder."""
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "mod3.py").write_text(SOURCE)
    ref = loaded(tmp_path / "loose" / "mod3.py", "loose.mod3").f.handler
    assert (ref.module, ref.sys_path) == ("mod3", ())


@pytest.mark.parametrize("name", ["__main__", "json", "with-dash"])
def test_a_handler_never_takes_the_name_of_main_or_of_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As `__main__` its main part would run in the jail; as `json` it would shadow json."""
    file = tmp_path / f"{name}.py"
    file.write_text(SOURCE)
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert loaded(file, name).f.handler.module == "toolcell_main"


def test_a_function_typed_into_a_console_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jail could never find it."""
    module = types.ModuleType("console_4")
    monkeypatch.setitem(sys.modules, "console_4", module)
    exec(SOURCE, module.__dict__)
    with pytest.raises(ValueError, match="no file"):
        _ = module.f.handler


def test_a_name_that_means_something_else_is_refused(tmp_path: Path) -> None:
    """Otherwise another function than the one that was checked would run."""
    file = tmp_path / "mine_5.py"
    file.write_text(SOURCE + "g = f\nf = None\n")
    with pytest.raises(ValueError, match="something else"):
        _ = loaded(file, "mine_5").g.handler


def test_the_spec_hash_changes_with_all_that_an_approval_depends_on(tmp_path: Path) -> None:
    """A tool redefined after approval must be another tool (case 34)."""
    made = tool(plain)
    others = [
        made.renamed("other"),
        tool(description="x")(plain),
        tool(access_mode="execute")(plain),
        tool(danger_level="high")(plain),
        tool(word_count.function),
    ]
    hashes = {t.spec_hash for t in (made, *others)}
    assert len(hashes) == 1 + len(others)
    assert made.spec_hash == tool(plain).spec_hash


def test_a_renamed_tool_keeps_its_function_and_drops_that_alias() -> None:
    """Otherwise it would collide with itself."""
    renamed = copy_file.renamed("cp")
    assert (renamed.name, renamed.aliases, renamed.path_params) == ("cp", (), copy_file.path_params)


def test_a_tool_without_a_handler_or_schema_says_so() -> None:
    """An AttributeError at the first call would look like our defect."""
    made = Tool(name="x", description="", access_mode="readonly", danger_level="safe")  # type: ignore[arg-type]  # text is taken too
    with pytest.raises(ValueError, match="no handler"):
        _ = made.handler
    with pytest.raises(ValueError, match="no input schema"):
        _ = made.input_schema


def test_a_command_is_built_from_validated_arguments() -> None:
    """A command that begins with a dash must not become an option of the shell."""
    ref = CommandRef("toolcell.builtin.shell:shell")
    argv, cwd, script = ref.command({"command": "-x hi", "cwd": "src"})
    assert len(argv) == 1
    assert cwd == "src"
    assert script == "-x hi"


def test_a_jail_loads_neither_pydantic_nor_trio_for_a_plain_tool() -> None:
    """Their import costs more than the rest of a call."""
    code = (
        "import sys\n"
        "from toolcell.tools import tool\n"
        "import toolcell._worker as w\n"
        "from toolcell.builtin import edit, files, python, search, shell\n"
        "w.decode(shell.shell, {'command': 'x', 'timeout_s': 1}, {})\n"
        "w.invoke(files.list_directory, {'path': '.'}, {})\n"
        "heavy = {'pydantic', 'pydantic_core', 'trio', 'asyncio', 'jsonschema_rs', 're2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]"
