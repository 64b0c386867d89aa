"""The python and shell tools, and what the built-in tools say about themselves."""

from __future__ import annotations

import json
import linecache
import subprocess
import sys
import traceback
from typing import Any

import pytest

from toolcell._answered import SupervisorRef
from toolcell.builtin import builtin_tools, search_tool
from toolcell.builtin.python import run
from toolcell.registry import ToolRegistry
from toolcell.results import InvalidArguments
from toolcell.schema import check_schema, input_schema, validate
from toolcell.tools import CommandRef, FunctionTool, HandlerRef


@pytest.fixture(autouse=True)
def _kept_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` replaces `__main__`, as it may in a worker that is never used again."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("", None),
        ("x = 6", None),
        ("x = 6\nx * 7", 42),
        ("'é'", "é"),
        ("(1, [2, None], {'a': True})", [1, [2, None], {"a": True}]),
        ("{1: 2}", "{1: 2}"),
        ("{1}", "{1}"),
        ("2**63", str(2**63)),
        ("float('nan')", "nan"),
        ("'\\ud800'", "'\\ud800'"),
        ("print", "<built-in function print>"),
        ("x = []\nx.append(x)\nx", "[[...]]"),
        ("import json; json.dumps([1]);", "[1]"),
        ("for i in range(3): pass", None),
        ("__name__", "__main__"),
        ("def f(): return g()\ndef g(): return 1\nf()", 1),
        ("import dataclasses\n@dataclasses.dataclass\nclass P:\n  x: 'int'\nP(1)", "P(x=1)"),
    ],
)
def test_the_value_is_that_of_the_last_expression(code: str, value: Any) -> None:
    """What JSON cannot say exactly must not fail the call after the work is done."""
    assert run(code) == {"value": value}


def test_an_error_keeps_the_codes_own_frames_and_lines() -> None:
    """The model has to see which of its lines failed."""
    with pytest.raises(ZeroDivisionError) as caught:
        run("def f():\n    return 1 / 0\n\nf()\n")
    frames = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == "<code>"]
    assert [(f.lineno, f.line) for f in frames] == [(4, "f()"), (2, "return 1 / 0")]
    linecache.checkcache()
    assert linecache.getline("<code>", 2) == "    return 1 / 0\n"


@pytest.mark.parametrize(
    ("code", "error"),
    [("1 +", SyntaxError), ("raise SystemExit(3)", SystemExit), ("nope", NameError)],
)
def test_errors_are_not_swallowed(code: str, error: type[BaseException]) -> None:
    """An error that ends as a value looks like success."""
    with pytest.raises(error):
        run(code)


def test_a_huge_repr_is_cut() -> None:
    """Otherwise a harmless last line ends the call for its size."""
    assert len(run("set(range(100_000))")["value"]) == 64 * 1024 + 1


# ---------------------------------------------------------------- what they say


def test_the_built_in_tools_are_as_promised() -> None:
    """Tests and agents from outside use these names."""
    found = {
        t.name: (t.access_mode.value, list(t.input_schema["properties"])) for t in builtin_tools()
    }
    assert found == {
        "read_file": ("readonly", ["path", "offset", "limit"]),
        "list_directory": ("readonly", ["path", "depth"]),
        "search": ("readonly", ["pattern", "path", "glob", "literal", "limit"]),
        "write_file": ("write", ["path", "content"]),
        "edit_file": ("write", ["path", "old", "new", "replace_all"]),
        "shell": ("execute", ["command", "cwd", "timeout_s"]),
        "python": ("execute", ["code", "timeout_s"]),
        "read_retained": ("readonly", ["handle", "offset", "limit"]),
    }
    defaults = {
        (t.name, name): below["default"]
        for t in builtin_tools()
        for name, below in t.input_schema["properties"].items()
        if "default" in below
    }
    assert defaults == {
        ("read_file", "offset"): 1,
        ("read_file", "limit"): 2_000,
        ("list_directory", "path"): ".",
        ("list_directory", "depth"): 1,
        ("search", "path"): ".",
        ("search", "literal"): False,
        ("search", "limit"): 200,
        ("edit_file", "replace_all"): False,
        ("shell", "cwd"): ".",
        ("read_retained", "offset"): 0,
        ("read_retained", "limit"): 16_384,
    }


def test_they_are_found_by_name_alone_and_trusted() -> None:
    """Their code comes from where toolcell is installed, never from a workspace."""
    for made in builtin_tools():
        assert made.trusted
        assert all(p["description"] for p in made.input_schema["properties"].values())
        assert made.spec_hash
        check_schema(made.input_schema)
        if made.name == "shell":
            assert isinstance(made.handler, CommandRef)
        elif made.name == "read_retained":
            assert made.handler == SupervisorRef("toolcell.builtin.retained:answer")
        else:
            assert isinstance(made.handler, HandlerRef)
            assert made.handler.module.startswith("toolcell.builtin.")
            assert (made.handler.file, made.handler.sys_path) == (None, ())


def test_they_register_and_know_which_argument_is_their_deadline() -> None:
    """A timeout that the model asks for would otherwise be ignored."""
    registry = ToolRegistry(*builtin_tools())
    assert {t.name for t in registry.list_tools() if t.timeout_param} == {"shell", "python"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "a", "offset": 0}),
        ("read_file", {"path": "a", "limit": 0}),
        ("list_directory", {"depth": 0}),
        ("shell", {"command": "x", "timeout_s": 0}),
        ("python", {"code": "1", "timeout_s": -1}),
        ("python", {}),
    ],
)
def test_senseless_arguments_are_refused_before_a_jail_is_built(
    name: str, arguments: dict[str, Any]
) -> None:
    """The model is told at once, and as its own mistake."""
    made = ToolRegistry(*builtin_tools()).get(name)
    assert made is not None
    assert isinstance(validate(made, arguments), InvalidArguments)


def test_the_schemas_that_are_read_are_those_that_would_be_computed():
    """Otherwise an argument that was added to a function is one that nobody may give."""
    for tool in (*builtin_tools(), search_tool()):
        assert isinstance(tool, FunctionTool)
        computed = json.dumps(input_schema(tool.function))
        assert json.dumps(tool.input_schema) == computed, tool.name
    script = "from toolcell.builtin import builtin_tools\nimport sys\n"
    script += "[tool.input_schema for tool in builtin_tools()]\nsys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
