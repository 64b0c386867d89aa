"""Four ways to write a tool, one record that comes out; no jail is needed to see it."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pydantic
import pytest

from toolcell import _worker
from toolcell._given_schema import given_schema
from toolcell.base_tool import BaseTool
from toolcell.calls import CallContext, RunDeps
from toolcell.definition import ToolDefinition
from toolcell.errors import ToolError
from toolcell.markers import RETURNED, PathRole, ReadPath, WritePath
from toolcell.metadata import ToolMetadata
from toolcell.results import ToolResult
from toolcell.schema import (
    Compiled,
    Validated,
    check_foreign,
    validate,
    with_defaults,
)
from toolcell.tools import (
    CommandRef,
    HandlerRef,
    Tool,
    admits_transient_edit,
    as_tool,
    is_edit_intent,
    phase_admits_tool,
    tool,
)
from toolcell_sandbox.spec import Network

if TYPE_CHECKING:
    from toolcell import calls


class Args(pydantic.BaseModel):
    path: ReadPath
    note: str | None = None
    where: Annotated[Path, pydantic.Field(alias="from")] = Path(".")


class Write(pydantic.BaseModel):
    target: WritePath = pydantic.Field(description="where to")
    many: list[ReadPath] = []


class Tree(pydantic.BaseModel):
    name: str
    below: list[Tree] = []


@dataclasses.dataclass
class Plain:
    count: int = 1


def alone(args: Args) -> str:
    return str(args.path)


def with_deps(args: Args, deps: RunDeps) -> Any:
    return [args.note, deps.phase, dict(deps.extra)]


def with_context(args: Any, ctx: calls.CallContext) -> Any:
    return [args, ctx]


def told_dict(args: Any, context: dict[str, calls.CallContext]) -> Any:
    return [args, context]


def keyed(args: Args, *, extra: int = 1) -> int:
    return extra


def three(a: Any, b: Any, c: Any) -> None:
    pass


def no_value() -> None:
    pass


def needs_keyword(args: Any, *, extra: int) -> None:
    pass


def generated(args: Any) -> Iterator[int]:
    yield 1


def function(x: int) -> int:
    return x


def defined(**changed: Any) -> ToolDefinition:
    words: dict[str, Any] = {
        "name": "read", "description": "Read.", "input_model": Args, "handler": alone,
        "phases": ("editing",),
    }  # fmt: skip
    return ToolDefinition(**(words | changed))


PARAMETERS = {
    "properties": {"pattern": {"type": "string"}, "limit": {"type": "integer", "default": 5}},
    "required": ["pattern"],
}


class Grep(BaseTool):
    name = "grep"
    description = "Search."
    parameters: ClassVar[dict[str, Any]] = PARAMETERS

    async def execute(self, _exec_ctx: Any, **kwargs: Any) -> Any:
        return [_exec_ctx, kwargs]


class Dear(Grep):
    name = "dear"
    timeout = 5
    stages = ("search",)
    access_mode = "write"

    @property
    def cost_tier(self) -> Any:
        return "low"

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata(
            cost_tier="high", access_mode="readonly", danger_level="high", keywords=["k"]
        )

    def paths(self, arguments: dict[str, Any]) -> list[str]:
        return [arguments["pattern"]]


class Stateful(Grep):
    def __init__(self, start: int = 0) -> None:
        self.start, self.client = start, object()


class Needy(Grep):
    def __init__(self, start: int) -> None:
        self.start = start


class Made(Needy):
    factory = f"{__name__}:make_made"


def make_made() -> Made:
    return Made(7)


def parts(**changed: Any) -> Tool:
    words: dict[str, Any] = {"description": "D.", "input": Args, "execute": alone}
    return Tool.make(**(words | changed))


# -- one record ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "name", "shape"),
    [
        (function, "function", "function"),
        (tool(function), "function", "function"),
        (defined(), "read", "model"),
        (Grep, "grep", "base"),
        (Grep(), "grep", "base"),
        (Made, "grep", "base"),
        (Made(7), "grep", "base"),
    ],
)
def test_whatever_a_tool_is_written_as_one_record_comes_out(
    item: Any, name: str, shape: str
) -> None:
    """Two kinds of records would be two roads, and one of them less guarded."""
    made = as_tool(item)
    assert isinstance(made, Tool)
    assert isinstance(made.handler, HandlerRef)
    assert (made.name, made.handler.shape) == (name, shape)
    assert as_tool(item, "other").name == "other"
    assert as_tool(made) is made


def test_a_tool_of_parts_has_no_name_until_it_is_registered() -> None:
    """Two names for one thing would drift apart, and the key is the one that is called."""
    made = parts()
    assert (made.name, repr(made)) == ("", "<Tool (no name yet) (readonly)>")
    with pytest.raises(ValueError, match="no name of its own"):
        as_tool(made)
    named = as_tool(made, "look")
    assert (named.name, named.handler.shape) == ("look", "value")  # type: ignore[union-attr]  # checked above


def local_class() -> type[BaseTool]:
    class Local(Grep):
        pass

    return Local


def local_model() -> Any:
    class Local(pydantic.BaseModel):
        x: int

    return Local


class NoExecute(BaseTool):
    name, description = "n", "d"
    parameters: ClassVar[dict[str, Any]] = {}


class NoDescription(Grep):
    description = None  # type: ignore[assignment]  # that is the point


class Positional(Grep):
    def execute(self, ctx: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # as users write it
        return None


class Narrow(Grep):
    def execute(self, _exec_ctx: Any, pattern: str) -> Any:  # type: ignore[override]  # as users write it
        return None


class Clashing(Grep):
    parameters: ClassVar[dict[str, Any]] = {"properties": {"context": {"type": "string"}}}

    def execute(self, context: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # as users write it
        return None


class Reserved(Grep):
    parameters: ClassVar[dict[str, Any]] = {"properties": {"_exec_ctx": {"type": "string"}}}

    def execute(self, **kwargs: Any) -> Any:  # type: ignore[override]  # as users write it
        return None


class Variadic(Grep):
    def execute(self, *args: Any, **kwargs: Any) -> Any:
        return None


class OnlyByPlace(Grep):
    def execute(self, _exec_ctx: Any, pattern: Any, /, **kwargs: Any) -> Any:  # type: ignore[override]  # as users write it
        return None


class Yields(Grep):
    def execute(self, _exec_ctx: Any, **kwargs: Any) -> Any:
        yield 1


class WrongFactory(Grep):
    factory = "nothing"


class LostFactory(Grep):
    factory = f"{__name__}:nothing"


class NoSchema(Grep):
    parameters = "text"  # type: ignore[assignment]  # that is the point


class NotPlain(Grep):
    parameters: ClassVar[dict[str, Any]] = {"properties": {"x": {"default": object()}}}


class Untyped(Grep):
    parameters: ClassVar[dict[str, Any]] = {"properties": {"x": {"type": "array"}}}


class WrongDefault(Grep):
    parameters: ClassVar[dict[str, Any]] = {
        "properties": {"x": {"type": "integer", "default": "many"}}
    }


class NoPaths(Grep):
    paths = "src"


class AsyncCheck(Grep):
    async def availability_check(self) -> bool:
        return True


class WrongMetadata(Grep):
    metadata = {"category": "x"}  # type: ignore[assignment]  # that is the point  # noqa: RUF012 - as users write it


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (local_class(), "defined inside a function"),
        (defined(handler=lambda args: args), "lambda"),
        (defined(input_model=local_model()), "input model .* defined inside a function"),
        (defined(handler=three), r"called as three\(args\) or three\(args, deps\)"),
        (defined(handler=no_value), "called as"),
        (defined(handler=needs_keyword), "called as"),
        (defined(handler=generated), "generator"),
        (defined(input_model=int), "no model"),
        (defined(input_model=types.SimpleNamespace), "no usable JSON form"),
        (defined(phases=("nowhere",)), "nowhere"),
        (defined(permission_tier=9), "permission_tier"),
        (defined(paths="src"), "paths is a function"),
        (defined(availability_check=5), "availability_check is a function"),
        (NoExecute, "has no execute"),
        (NoDescription, "says no description"),
        (Positional, "takes ctx, which is none of its parameters"),
        (Narrow, "does not take limit"),
        (Clashing, "context is given by the executor"),
        (Reserved, "_exec_ctx is given by the executor"),
        (Variadic, r"takes \*args"),
        (OnlyByPlace, "self first"),
        (Yields, "generator"),
        (WrongFactory, "module:function"),
        (LostFactory, "not there"),
        (NoSchema, "a JSON Schema, an object"),
        (NotPlain, "not plain JSON"),
        (Untyped, "untyped array"),
        (WrongDefault, "default is not what it allows"),
        (NoPaths, "paths is a function"),
        (AsyncCheck, "availability_check is async"),
        (WrongMetadata, "a ToolMetadata"),
        (Needy, "which fails"),
        (Needy(1), "which fails"),
        (Stateful(5), "start is another than in this object"),
        (dict, "no BaseTool"),
        (5, "not a plain function"),
    ],
)
def test_what_could_only_fail_at_a_call_is_refused_when_it_is_registered(
    item: Any, words: str
) -> None:
    """At the call nobody is there any more who knows what was meant."""
    with pytest.raises((TypeError, ValueError), match=words):
        as_tool(item)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "x"}, "takes no 'name'"),
        ({"trusted": True}, "takes no 'trusted'"),
        ({"execute": three}, "called as"),
        ({"input": {"type": "string"}}, "type must be object"),
        ({"input": {"$schema": "http://json-schema.org/draft-04/schema#"}}, "not spoken here"),
        ({"input": {"$schema": 5}}, "not spoken here"),
        ({"output": {"type": "nothing"}}, "not a usable JSON Schema"),
        ({"timeout": 5, "timeout_s": 6}, "the same, and differ"),
        ({"content_lines": 0}, "content_lines is a whole number"),
        ({"keywords": [5]}, "keywords are words"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changed: dict[str, Any], words: str) -> None:
    """A word that is silently ignored is a promise that is not kept."""
    with pytest.raises((TypeError, ValueError), match=words):
        as_tool(parts(**changed), "x")


def test_a_decorator_refuses_a_word_that_it_does_not_have() -> None:
    """A misspelt `acces_mode` would leave the default in force."""
    with pytest.raises(TypeError, match="takes no 'acces_mode'"):
        tool(acces_mode="write")(function)  # type: ignore[call-overload]  # that is the point


def test_an_object_like_what_the_jail_builds_is_taken() -> None:
    """Refusing every attribute would leave only tools without an __init__."""
    assert as_tool(Stateful(0)).name == "grep"


# -- words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "model", "given", "access"),
    [
        (0, Args, None, "readonly"),
        (1, Args, None, "write"),
        (2, Args, None, "execute"),
        (3, Args, None, "mixed"),
        (4, Args, None, "mixed"),
        (0, Write, None, "write"),
        (2, Write, None, "execute"),
        (2, Args, "readonly", "readonly"),
    ],
)
def test_a_definitions_access_is_by_its_tier_unless_it_says_otherwise(
    tier: int, model: Any, given: str | None, access: str
) -> None:
    """A tier-2 tool in a read-only jail would fail at its first command."""
    made = as_tool(defined(permission_tier=tier, input_model=model, access_mode=given))
    assert (made.access_mode, made.permission_tier) == (access, tier)


def test_a_definition_keeps_its_phases_in_their_order_and_its_escalation() -> None:
    """A set has no order, and a hash that changes between runs asks again each time."""
    made = as_tool(defined(phases={"verifying", "investigating"}, escalation=True))
    assert (made.phases, made.escalation) == (("investigating", "verifying"), True)
    assert as_tool(defined()).paths is None
    assert as_tool(defined(phases="editing")).phases == ("editing",)
    with pytest.raises(ValueError, match="no phase 'build'; there are: investigating, editing"):
        as_tool(defined(phases=["build"]))


def test_the_predicates_of_phases_take_a_tool_however_it_is_written() -> None:
    """Otherwise whoever only knows `ToolDefinition` cannot ask, or hears another answer."""
    edit = defined(permission_tier=1, phases=["editing"])
    for one in (edit, as_tool(edit)):
        assert phase_admits_tool("investigating", "edit", one)
        assert not phase_admits_tool("verifying", "edit", one)
        assert is_edit_intent("edit", one)
        assert not admits_transient_edit("edit", one)
        assert admits_transient_edit("investigate", one)
    assert phase_admits_tool("verifying", "edit", Grep())
    assert phase_admits_tool("verifying", None, function)


def test_a_base_tools_words_are_its_attributes_and_the_wider_of_two_counts() -> None:
    """Metadata that calls a writer readonly would take the guard from it."""
    plain, dear = as_tool(Grep), as_tool(Dear)
    assert (plain.cost_tier, plain.is_idempotent, plain.has_metadata) == ("free", False, False)
    assert (dear.access_mode, dear.danger_level, dear.cost_tier) == ("write", "high", "high")
    assert (dear.timeout_s, dear.stages, dear.keywords) == (5, ("search",), ("k",))
    assert dear.has_metadata
    assert dear.paths_of({"pattern": "src"}) == ("src",)
    assert Grep().metadata is None
    with pytest.raises(NotImplementedError):
        NoExecute().execute(None)


@pytest.mark.parametrize(
    ("own", "said", "access"),
    [
        (None, None, "readonly"),
        ("write", None, "write"),
        (None, "network", "network"),
        ("readonly", "execute", "execute"),
        ("write", "network", "mixed"),
        ("write", "write", "write"),
    ],
)
def test_of_two_access_modes_the_one_that_covers_both_counts(
    own: str | None, said: str | None, access: str
) -> None:
    """The safer of two words is the one that nobody may rely on."""
    words = {} if own is None else {"access_mode": own}
    made = parts(metadata=ToolMetadata(access_mode=said), **words)
    assert made.access_mode == access


def test_the_decorator_takes_every_word_of_the_catalogue() -> None:
    """Each is somebody's, and has to be found again on the record."""
    words: dict[str, Any] = {
        "name": "n", "aliases": ["a"], "cost_tier": "low", "category": "c", "keywords": ["k"],
        "use_cases": ["u"], "examples": ["e"], "priority_hints": ["h"], "priority": "critical",
        "access_mode": "network", "danger_level": "medium", "stages": {"b", "a"},
        "task_types": ["t"], "mandatory_keywords": ["m"], "progress_params": ["x"],
        "execution_category": "compute", "availability_check": bool, "network": "host",
        "is_idempotent": True, "timeout": 3, "content_lines": 5, "content_bytes": 1_000,
    }  # fmt: skip
    made = tool(**words)(function)
    assert made.timeout_s == 3
    assert made.network == Network.host()
    assert (made.priority, made.runs_as, made.stages) == (1, "compute", ("a", "b"))
    assert made.has_metadata
    assert tool(aliases="one")(function).aliases == ("one",)
    with pytest.raises(ValueError, match="no priority 'urgent'; there are: critical, high"):
        tool(priority="urgent")(function)
    assert not tool(cost_tier="high", is_idempotent=True)(function).has_metadata
    assert tool(priority="medium")(function).has_metadata
    for name in ("aliases", "keywords", "use_cases", "examples", "task_types", "progress_params"):
        assert getattr(made, name) == tuple(words[name])


def test_a_handler_says_whether_it_wants_its_context() -> None:
    """A line to the supervisor costs time, and most handlers have nothing to say."""

    def wants(item: Any) -> bool:
        return as_tool(item, "x").takes_context

    assert [wants(defined(handler=h)) for h in (alone, with_deps, with_context, told_dict)] == [
        False, False, True, True,
    ]  # fmt: skip
    assert [wants(parts(execute=h)) for h in (alone, with_deps)] == [False, True]
    assert wants(Grep)
    assert not wants(function)


# -- schemas -------------------------------------------------------------------------------


def test_a_models_schema_is_closed_plain_and_says_which_fields_are_paths() -> None:
    """The gate looks for paths by name, and providers reject what pydantic adds."""
    made = as_tool(defined())
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": PathRole.READ.note},
            "note": {"type": "string"},
            "from": {"type": "string", "default": ".", "description": PathRole.READ.note},
        },
        "required": ["path"],
        "additionalProperties": False,
    }  # fmt: skip
    assert dict(made.path_params) == {"path": "read", "from": "read"}
    write = as_tool(defined(input_model=Write))
    assert dict(write.path_params) == {"target": "write", "many": "read"}
    said = write.input_schema["properties"]["target"]["description"]
    assert said == "where to (a path to write, relative to the workspace or absolute)"


def test_a_model_may_hold_itself_and_need_not_be_pydantics() -> None:
    """Trees are what agents exchange; so are dataclasses."""
    tree = as_tool(parts(input=Tree), "tree")
    assert tree.compiled.accepts({"name": "a", "below": [{"name": "b"}]})
    assert not tree.compiled.accepts({"name": "a", "below": [{"name": 5}]})
    assert as_tool(parts(input=Plain), "plain").input_schema["properties"] == {
        "count": {"type": "integer", "default": 1}
    }


class Hidden(pydantic.BaseModel):
    by_name: dict[str, ReadPath]


def test_a_path_that_the_gate_could_not_find_is_refused() -> None:
    """It would be opened without having been looked at."""
    with pytest.raises(TypeError, match="field by_name of Hidden"):
        parts(input=Hidden)


def test_a_given_schema_is_copied_and_closed_where_it_says_nothing() -> None:
    """Whoever changes a class attribute later must not change what was decided on."""
    given: dict[str, Any] = {"properties": {"x": {"type": "integer"}}}
    found = given_schema(given)
    given["properties"]["x"]["type"] = "string"
    assert found == {
        "type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False,
    }  # fmt: skip
    assert given_schema({"additionalProperties": True})["additionalProperties"] is True
    composed = given_schema({"allOf": [{"properties": {"x": {"type": "integer"}}}]})
    assert "additionalProperties" not in composed


DRAFT_7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {"n": {"type": "integer"}},
    "properties": {"n": {"$ref": "#/definitions/n", "minimum": 5}, "m": {"type": "integer"}},
    "dependencies": {"m": ["n"]},
}


def test_each_schema_is_read_by_the_draft_that_it_names() -> None:
    """In Draft 7 what stands beside a $ref says nothing; in 2020-12 it does."""
    seven = as_tool(parts(input=DRAFT_7), "seven")
    assert isinstance(validate(seven, {"n": 1}), Validated)
    assert isinstance(validate(seven, {"n": "1"}), Validated)
    assert not isinstance(validate(seven, {"m": 1}), Validated)
    later = {**DRAFT_7, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert not isinstance(validate(as_tool(parts(input=later), "later"), {"n": 1}), Validated)
    assert Compiled(check_foreign({**given_schema(DRAFT_7)})).accepts({"n": 1})
    with pytest.raises(ValueError, match="something else than its own"):
        check_foreign({"type": "object", "$ref": "#/definitions/x"})


NESTED = {
    "properties": {
        "mode": {"enum": ["a", "b"], "default": "a"},
        "no": {"type": "string", "default": None},
        "rows": {"type": "array", "items": {"type": "integer"}, "default": []},
        "options": {
            "type": "object",
            "properties": {"deep": {"type": "boolean", "default": True}},
            "additionalProperties": False,
        },
        "any": True,
    }
}


def test_defaults_that_only_the_schema_says_are_part_of_what_is_decided_on() -> None:
    """A handler that fills them in itself would run on what nobody was asked about."""
    made = as_tool(parts(input=NESTED, execute=with_context), "nested")
    found = validate(made, {"options": {}})
    assert isinstance(found, Validated)
    assert found.arguments == {
        "mode": "a", "no": None, "rows": [], "options": {"deep": True},
    }  # fmt: skip
    again = validate(made, {})
    assert isinstance(again, Validated)
    again.arguments["rows"].append(1)
    assert made.input_schema["properties"]["rows"]["default"] == []
    assert made.input_schema["properties"]["rows"]["items"] == {"type": "integer"}
    assert not isinstance(validate(made, {"options": {"other": 1}}), Validated)
    assert with_defaults({"a": 1}, {"properties": 5}) == {"a": 1}


def test_an_output_model_becomes_the_output_schema() -> None:
    """A promise about what comes out is kept only where it is checked."""
    made = tool(output_model=Tree)(function)
    assert made.output_schema is not None
    assert made.output_schema["properties"].keys() == {"name", "below"}
    assert made.compiled_output is not None
    assert made.compiled_output.accepts({"name": "a", "below": [{"name": "b"}], "more": 1})
    assert not made.compiled_output.accepts({"name": 5})
    assert tool(output_schema={"type": "integer"})(function).output_schema == {"type": "integer"}
    assert tool(function).output_schema is None
    listed = parts(output=list[dict[str, int]])
    assert listed.compiled_output is not None
    assert not listed.compiled_output.accepts([{"a": "b"}])
    with pytest.raises(TypeError, match="no usable JSON form"):
        _ = tool(output_model=types.ModuleType)(function).output_schema


class When(pydantic.BaseModel):
    when: Any = None
    at: datetime.datetime | None = None


def test_a_time_without_a_zone_is_a_fine_answer() -> None:
    """By RFC 3339 it is no date-time, and Python's own default has none."""
    made = tool(output_model=When)(function)
    assert made.compiled_output is not None
    assert made.compiled_output.accepts({"at": "2024-01-01T00:00:00"})
    assert not made.compiled_output.accepts({"at": 5})


# -- paths ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (None, ()),
        (lambda arguments: [arguments["path"], Path("b")], ("a", "b")),
        (lambda arguments: "one", ("one",)),
        (lambda arguments: None, ()),
        (lambda arguments: iter(["x"]), ("x",)),
    ],
)
def test_a_tool_names_the_path_values_of_a_call(paths: Any, found: tuple[str, ...]) -> None:
    """What the gate is not told of, only the jail stops."""
    assert tool(paths=paths)(function).paths_of({"path": "a"}) == found


def test_a_definitions_paths_get_the_model() -> None:
    """They were written for it."""
    made = as_tool(defined(paths=lambda args: [args.path, args.where]))
    assert made.paths_of({"path": "a"}) == ("a", ".")


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (lambda arguments: arguments["nope"], "raised KeyError"),
        (lambda arguments: [5], "no path"),
        (lambda arguments: [""], "no path"),
        (lambda arguments: ["a\0b"], "no path"),
        (lambda arguments: [b"a"], "no path"),
        (lambda arguments: 5, "raised TypeError"),
        (lambda arguments: ("x" for _ in iter(int, 1)), "more than 1,000"),
    ],
)
def test_paths_that_cannot_be_told_are_a_refusal(paths: Any, words: str) -> None:
    """A call whose paths are unknown cannot be judged by them."""
    with pytest.raises(ValueError, match=words):
        tool(paths=paths)(function).paths_of({})


# -- identity ------------------------------------------------------------------------------


def check_a() -> bool:
    return True


def check_b() -> bool:
    return bool([x for x in (1, 2) if x in {3, 4}])


class Callable:
    def __call__(self) -> bool:
        return True


def test_whatever_changes_a_call_is_another_tool() -> None:
    """An approval of one must not be an approval of the other (case 34)."""
    words: list[dict[str, Any]] = [
        {}, {"aliases": ["a"]}, {"limits": None, "timeout": 5}, {"network": "loopback"},
        {"is_idempotent": True}, {"execution_category": "compute"},
        {"output_schema": {"type": "integer"}}, {"output_model": str},
        {"availability_check": check_a}, {"availability_check": check_b},
        {"availability_check": functools.partial(check_a)},
        {"availability_check": functools.partial(int, 1)},
        {"availability_check": Callable()}, {"availability_check": bool},
        {"paths": check_a}, {"to_model_output": check_a},
    ]  # fmt: skip
    hashes = [tool(**each)(function).spec_hash for each in words]
    assert len(set(hashes)) == len(words)
    assert hashes == [tool(**each)(function).spec_hash for each in words]
    selected = tool(keywords=["k"], stages=["s"], priority="low")(function)
    assert selected.spec_hash == hashes[0]


def test_other_handlers_models_and_doors_are_other_tools() -> None:
    """Their names are the same."""
    found = [
        as_tool(defined(name="x")), as_tool(defined(name="x", handler=with_deps)),
        as_tool(parts(), "x"), as_tool(parts(input=Write), "x"),
        as_tool(parts(input=NESTED, execute=with_context), "x"),
        as_tool(defined(name="x", paths=lambda args: [])),
        as_tool(defined(name="x", paths=lambda args: [args.path])),
    ]  # fmt: skip
    assert len({made.spec_hash for made in found}) == len(found)


SHADOWED = """
from toolcell.definition import ToolDefinition
from toolcell.tools import Tool
import pydantic
class In(pydantic.BaseModel):
    x: int
def one(args): return args.x
one = ToolDefinition("one", "One.", In, one, ())
def two(input): return input.x
two = Tool.make(description="Two.", input=In, execute=two)
"""


def loaded(file: Path, name: str, source: str) -> types.ModuleType:
    file.write_text(source)
    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    exec(compile(source, str(file), "exec"), module.__dict__)
    return module


def test_a_tool_may_take_the_name_of_its_own_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what one writes; the jail then finds the record, and its handler in it."""
    monkeypatch.setitem(sys.modules, "shadow_1", types.ModuleType("shadow_1"))
    module = loaded(tmp_path / "shadow_1.py", "shadow_1", SHADOWED)
    for name in ("one", "two"):
        made = as_tool(getattr(module, name), name)
        assert isinstance(made.handler, HandlerRef)
        assert (made.handler.qualname, made.handler.model) == (name, ":In")
        assert _worker.invoke(getattr(module, name), {"x": 5}, made.handler.words()) == 5


def test_a_model_in_a_file_that_the_jail_does_not_see_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call would fail with an ImportError that names a module of the user's own."""
    for name in ("apart_2", "apart_3"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    loaded(tmp_path / "apart_2.py", "apart_2", SHADOWED)
    module = loaded(tmp_path / "apart_3.py", "apart_3", "def run(args): return 1\n")
    model = sys.modules["apart_2"].In
    with pytest.raises(ValueError, match="does not see the file of its input model In"):
        as_tool(defined(handler=module.run, input_model=model))


def test_a_model_of_the_same_package_is_found_by_its_own_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models in one file and handlers in another is how larger programs are written."""
    package = tmp_path / "pack_4"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("pack_4.models", "pack_4.run"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    models = loaded(package / "models.py", "pack_4.models", SHADOWED)
    run = loaded(package / "run.py", "pack_4.run", "def run(args): return args.x\n")
    made = as_tool(defined(handler=run.run, input_model=models.In))
    assert isinstance(made.handler, HandlerRef)
    assert made.handler.model == "pack_4.models:In"
    assert made.handler.sys_path == (str(tmp_path.resolve()),)
    assert _worker.invoke(run.run, {"x": 3}, made.handler.words()) == 3


# -- in the jail ---------------------------------------------------------------------------

CONTEXT = {"session_id": "s", "phase": "editing", "deps": {"a": 1}, "workspace": "/w"}


def called(item: Any, arguments: dict[str, Any], name: str = "x") -> Any:
    """As the jail calls it: by its handler and the words of the context."""
    ref = as_tool(item, name).handler
    assert isinstance(ref, HandlerRef)
    target: Any = sys.modules[__name__]
    for part in ref.qualname.split("."):
        target = getattr(target, part)
    return _worker.invoke(target, arguments, {**CONTEXT, **ref.words()})


def test_each_dialects_handler_is_called_as_it_was_written() -> None:
    """The adapter is where four dialects meet one road."""
    assert called(function, {"x": 5}) == 5
    assert called(defined(), {"path": "a"}) == "a"
    assert called(defined(handler=with_deps), {"path": "a", "note": "n"}) == [
        "n", "editing", {"a": 1},
    ]  # fmt: skip
    args, ctx = called(defined(handler=with_context), {"path": "a"})
    assert (args.path, args.where, ctx) == (
        Path("a"),
        Path("."),
        CallContext(session_id="s", phase="editing"),
    )
    assert called(defined(handler=told_dict), {"path": "a"})[1] == CONTEXT
    assert called(parts(), {"path": "a"}) == "a"
    assert called(parts(input=NESTED, execute=with_context), {"mode": "b"})[0] == {"mode": "b"}
    assert called(defined(handler=keyed), {"path": "a"}) == 1
    ctx, given = called(Grep, {"pattern": "p"})
    assert (ctx.session_id, given) == ("s", {"pattern": "p"})
    assert called(Made(7), {"pattern": "p"})[1] == {"pattern": "p"}


def test_a_packs_records_are_called_as_they_stand() -> None:
    """In a pack's jail the module holds the record, not the handler."""
    for item, arguments in (
        (tool(function), {"x": 1}),
        (defined(), {"path": "a"}),
        (parts(), {"path": "a"}),
        (Grep, {"pattern": "p"}),
        (Grep(), {"pattern": "p"}),
    ):
        assert _worker.invoke(item, arguments, CONTEXT) is not None
    needy = Needy(1)
    assert _worker.invoke(needy, {"pattern": "p"}, CONTEXT)[1] == {"pattern": "p"}  # type: ignore[index]  # a list
    command = Tool(
        name="x", description="", access_mode="readonly", danger_level="safe",  # type: ignore[arg-type]  # text is taken too
        ref=CommandRef("a:b"),
    )  # fmt: skip
    with pytest.raises(TypeError, match="cannot be called in a jail"):
        _worker.decode(command, {}, {})


def test_an_argument_never_takes_the_contexts_place() -> None:
    """Otherwise a model could say on whose behalf it calls."""
    with pytest.raises(ToolError, match="no argument _exec_ctx"):
        _worker.decode(Grep, {"pattern": "p", "_exec_ctx": {"session_id": "root"}}, CONTEXT)
    with pytest.raises(ToolError, match="path"):
        _worker.decode(defined(), {}, CONTEXT)


def result_of(well: bool) -> ToolResult:
    return ToolResult(
        "x", well, content="c", summary="s", files_read=["a"], terminate=True, metadata={"m": 1},
        error=None if well else "wrong",
    )  # fmt: skip


def test_a_handlers_own_result_travels_whole() -> None:
    """What a dialect's author says about the end of a run must not get lost on the way."""
    found: Any = _worker.invoke(result_of, {"well": True}, {})
    words = {
        "output": "c", "metadata": {"m": 1}, "content": "c", "files_read": ["a"],
        "summary": "s", "terminate": True,
    }  # fmt: skip
    assert found == {RETURNED: words}
    with pytest.raises(ToolError, match="wrong") as caught:
        _worker.invoke(result_of, {"well": False}, {})
    assert caught.value.beside == {RETURNED: words}


ASKED: dict[str, Any] = {"availability_check": check_a, "to_model_output": str}


@pytest.mark.parametrize(
    ("what", "value", "found"),
    [
        ("availability_check", None, True),
        ("to_model_output", 5, "5"),
        ("paths", {"x": "a"}, ["a"]),
        ("paths", {"x": None}, []),
        ("paths", {"x": [Path("a"), "b"]}, ["a", "b"]),
    ],
)
def test_one_of_a_tools_own_callables_is_asked_in_a_jail(what: str, value: Any, found: Any) -> None:
    """It would run as us, if it were asked here."""
    made = tool(**ASKED, paths=lambda arguments: arguments["x"])(function)
    assert _worker.ask_pack(made, {"value": value}, {"what": what})() == found


def test_front_doors_load_neither_pydantic_nor_trio() -> None:
    """A BaseTool with a JSON Schema needs neither, and each call would pay for it."""
    code = (
        "import sys\n"
        "from toolcell.base_tool import BaseTool\n"
        "from toolcell.definition import ToolDefinition\n"
        "from toolcell.metadata import ToolMetadata\n"
        "from toolcell.tools import Tool, tool\n"
        "import toolcell._worker as w\n"
        "class G(BaseTool):\n"
        "    name, description = 'g', 'd'\n"
        "    parameters = {'properties': {}}\n"
        "    def execute(self, _exec_ctx, **kwargs):\n"
        "        return kwargs\n"
        "assert w.invoke(G, {'a': 1}, {}) == {'a': 1}\n"
        "heavy = {'pydantic', 'pydantic_core', 'trio', 'asyncio', 'jsonschema_rs', 'orjson'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Unready(pydantic.BaseModel):
    x: Nowhere  # type: ignore[name-defined]  # that is the point  # noqa: F821 - it is never defined


@dataclasses.dataclass
class UnreadyPlain:
    x: Nowhere  # type: ignore[name-defined]  # that is the point  # noqa: F821 - it is never defined


@pytest.mark.parametrize("model", [Unready, UnreadyPlain])
def test_a_model_that_is_not_whole_yet_is_refused(model: Any) -> None:
    """Its paths could not be told from its other fields."""
    with pytest.raises(TypeError, match="cannot be resolved"):
        parts(input=model)


def test_a_pack_describes_its_tools_of_every_door_once() -> None:
    """What is not described does not exist; what is described twice cannot be registered."""

    class Common(BaseTool):
        pass

    class Own(Grep):
        pass

    class Had(Grep):
        name = "had"

    for kind in (Common, Own, Had):
        kind.__module__ = "pack"
    module = types.ModuleType("pack")
    module.__dict__.update(
        Grep=Grep, Common=Common, Own=Own, Had=Had, had=Had(), again=defined(), made=parts(),
        same=function, number=5, command=Tool(
            name="x", description="", access_mode="readonly", danger_level="safe",  # type: ignore[arg-type]  # text is taken too
        ),
    )  # fmt: skip
    found = _worker.describe(module)
    names = [(one["name"], one["qualname"]) for one in found]
    assert names == [("grep", "Own"), ("had", "had"), ("read", "again"), ("made", "made")]
    assert [one["takes_context"] for one in found] == [True, True, False, False]
    assert [one["fills_defaults"] for one in found] == [True, True, False, False]
    with pytest.raises(TypeError, match="a module"):
        _worker.describe_pack(5, {}, {})


def test_a_jail_for_a_built_in_tool_loads_nothing_of_the_front_doors() -> None:
    """Each call would pay for what it does not use."""
    code = (
        "import sys\n"
        "import toolcell._worker as w\n"
        "from toolcell.builtin import files\n"
        "w.invoke(files.list_directory, {'path': '.'}, {})\n"
        "heavy = {'dataclasses', 'hashlib', 'inspect', 'toolcell.tools', 'toolcell.results'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Left(pydantic.BaseModel):
    right: Right | None = None
    nothing: None = None
    either: int | str | None = None


class Right(pydantic.BaseModel):
    left: Left | None = None
    rights: list[Right] = []


def test_optional_fields_are_plain_and_models_may_hold_each_other() -> None:
    """Providers refuse a null type, and a reference that nothing defines."""
    schema = as_tool(parts(input=Left), "left").input_schema
    assert schema["properties"]["either"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert schema["properties"]["nothing"] == {"type": "null"}
    assert "required" not in schema
    made = as_tool(parts(input=Left), "left")
    assert made.compiled.accepts({"right": {"left": {"right": {"rights": [{}]}}}})
    assert not made.compiled.accepts({"right": {"left": {"right": {"rights": [5]}}}})


@pytest.mark.parametrize("given", [5, "text", None])
def test_an_input_that_is_no_model_is_refused(given: Any) -> None:
    """It would be a tool that no call can be made of."""
    with pytest.raises((TypeError, ValueError), match=r"."):
        as_tool(parts(input=given), "x")


def test_a_packs_callables_are_not_looked_for_here() -> None:
    """The one that is found here would be somebody else's."""
    made = dataclasses.replace(tool(function), in_jail=frozenset({"paths"}))
    with pytest.raises(ValueError, match="only inside a jail"):
        made.paths_of({})
    with pytest.raises(ValueError, match="level_floor"):
        dataclasses.replace(made, level_floor=4)
    assert dataclasses.replace(made, trusted=True).signature.parameters[0].name == "x"
    assert as_tool(dataclasses.replace(made, trusted=True)).trusted


def looped(x: int) -> int:
    return x


looped.__wrapped__ = looped  # type: ignore[attr-defined]  # that is the point


def test_a_function_that_wraps_itself_ends_nowhere() -> None:
    """Registration would hang."""
    with pytest.raises(TypeError, match="not a function"):
        parts(execute=functools.partial(function))
    assert tool(paths=looped)(function).spec_hash  # type: ignore[arg-type]  # never called
    assert tool(looped).input_schema["required"] == ["x"]
