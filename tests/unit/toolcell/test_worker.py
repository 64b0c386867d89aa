"""What happens to arguments inside the jail, and how packs describe themselves."""

from __future__ import annotations

import asyncio
import datetime
import json
import types
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
import trio

from toolcell import _worker
from toolcell.calls import CallContext
from toolcell.errors import ToolError
from toolcell.markers import RETURNED, ReadPath, Returned
from toolcell.tools import tool


class Point(pydantic.BaseModel):
    x: int


def echo(
    path: ReadPath = Path("."),
    paths: list[ReadPath] | None = None,
    whole: int = 0,
    number: float = 0.0,
    point: Point | None = None,
    when: datetime.date | None = None,
    kind: Literal["a", "b"] = "a",
    nested: dict[str, list[int]] = {},  # noqa: B006 - never changed
    small: Annotated[int, pydantic.Field(lt=3)] = 1,
) -> dict[str, Any]:
    return dict(locals())


def required_optional(x: int | None) -> object:
    return x


@tool
def who(context: Any, _exec_ctx: dict, caller: CallContext, x: int = 1) -> Any:  # type: ignore[type-arg]  # a bare dict is enough
    return [context, _exec_ctx, caller, x]


async def on_trio() -> str:
    await trio.lowlevel.checkpoint()
    return "trio"


def described() -> Returned:
    return Returned("text", {"lines": 1})


@pytest.mark.parametrize(
    ("name", "sent", "got"),
    [
        ("path", "a/b", Path("a/b")),
        ("paths", ["a"], [Path("a")]),
        ("paths", None, None),
        ("whole", 5.0, 5),
        ("number", 5, 5.0),
        ("point", {"x": 1}, Point(x=1)),
        ("when", "2024-02-29", datetime.date(2024, 2, 29)),
        ("nested", {"a": [1]}, {"a": [1]}),
    ],
)
def test_json_becomes_what_the_annotation_says(name: str, sent: Any, got: Any) -> None:
    """The handler was written for its annotations, not for JSON."""
    found: Any = _worker.invoke(echo, {name: sent}, {})
    assert found[name] == got
    assert type(found[name]) is type(got)


def test_what_only_the_type_can_tell_is_an_expected_failure() -> None:
    """It is the model's argument that is wrong, not the tool."""
    with pytest.raises(ToolError, match=r"argument small: .*less than 3"):
        _worker.decode(echo, {"small": 3}, {})


def test_what_is_not_given_is_left_to_the_functions_default() -> None:
    """Two places for one default would drift apart."""
    found: Any = _worker.invoke(echo, {}, {})
    assert found["path"] == Path(".")
    assert _worker.invoke(required_optional, {}, {}) is None


def test_an_unknown_argument_never_reaches_the_handler() -> None:
    """The supervisor checks it too; the jail does not count on that."""
    with pytest.raises(ToolError, match="no argument evil"):
        _worker.decode(echo, {"evil": 1}, {})


def test_the_context_is_injected_and_cannot_be_sent() -> None:
    """Otherwise a model could say on whose behalf it calls."""
    context = {"session_id": "s", "unheard_of": 1}
    found: Any = _worker.invoke(who, {"x": 2}, context)
    one, two, three, x = found
    assert one == three == CallContext(session_id="s")
    assert two == context
    assert x == 2
    with pytest.raises(ToolError, match="no argument context"):
        _worker.decode(who, {"context": {"session_id": "root"}}, context)


def test_decoding_does_not_run_the_handler() -> None:
    """The stages are told apart in what the result says."""
    ran: list[int] = []

    def handler() -> None:
        ran.append(1)

    thunk = _worker.decode(handler, {}, {})
    assert not ran
    thunk()
    assert ran == [1]


def test_an_async_handler_runs_on_the_loop_that_its_module_uses() -> None:
    """trio's functions fail under asyncio, and the other way round."""
    assert _worker.invoke(on_trio, {}, {}) == "trio"
    source = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 'asyncio'\n"
    module = types.ModuleType("without_trio")
    exec(source, module.__dict__)
    assert _worker.invoke(module.f, {}, {}) == "asyncio"
    # What a handler imports itself counts before what its module has.
    within = (
        "async def g():\n    from trio import sleep as wait\n    await wait(0)\n    return 'trio'\n"
    )
    exec(within, module.__dict__)
    assert _worker.invoke(module.g, {}, {}) == "trio"
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_returned_value_travels_as_one_object() -> None:
    """Settlement unwraps exactly this."""
    found = _worker.invoke(described, {}, {})
    assert found == {
        RETURNED: {"output": "text", "metadata": {"lines": 1}, "content": None, "files_read": None}
    }


def test_a_module_describes_its_tools_as_plain_data() -> None:
    """A tool bound to two names must not be offered twice."""
    module = types.ModuleType("pack")
    module.first = who  # type: ignore[attr-defined]  # a made-up module
    module.again = who  # type: ignore[attr-defined]  # a made-up module
    module.other = echo  # type: ignore[attr-defined]  # a made-up module
    (found,) = json.loads(json.dumps(_worker.describe_pack(module, {}, {})()))
    assert found["qualname"] == "first"
    assert found["input_schema"]["properties"].keys() == {"x"}
    assert found.keys() > {"name", "description", "access_mode", "path_params", "keywords"}
    assert not found.keys() & {"network", "ref", "trusted", "permission_action"}


def test_what_is_no_function_cannot_be_called() -> None:
    """A pack may put anything under a tool's name."""
    with pytest.raises(TypeError, match="cannot be called"):
        _worker.decode(5, {}, {})
