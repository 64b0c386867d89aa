"""A handler's value as plain JSON, or what cannot be and where; also from hostile objects."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import json
import math
import os
import pathlib
import sys
import uuid
from typing import Any, ClassVar, NamedTuple

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_sandbox._child.encode import DEPTH_MAX, NotJsonable, plain
from toolcell_sandbox.decode import parse


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Word(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


class Bits(enum.IntFlag):
    X = 1
    Y = 2


class Spot(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Point:
    x: int
    inner: Any = None
    made: dataclasses.InitVar[int] = 0
    kind: ClassVar[str] = "point"


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    a: bytes


class Model(pydantic.BaseModel):
    when: datetime.date
    where: pathlib.Path


class Text(str):
    pass


class Whole(int):
    pass


class Real(float):
    pass


class Entry:
    """A path that is no `Path`."""

    def __init__(self, path: str | bytes) -> None:
        self.path = path

    def __fspath__(self) -> str | bytes:
        return self.path


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (False, False),
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        (5e-324, 5e-324),
        ("é😀\0", "é😀\0"),
        (Text("t"), "t"),
        (Whole(7), 7),
        (Real(0.5), 0.5),
        ([], []),
        ((1, (2,)), [1, [2]]),
        (Spot(1, 2), [1, 2]),
        ({}, {}),
        ({"a": {"b": [None]}}, {"a": {"b": [None]}}),
        ({1: "a", 2.5: "b", Word.A: "c", Number.ONE: "d", Text("t"): "e"} | {}, None),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (b"\x00\xff", {"base64": "AP8="}),
        (bytearray(b"ab"), {"base64": "YWI="}),
        (memoryview(b"abcd")[::2], {"base64": "YWM="}),
        (Colour.RED, "red"),
        (Colour.PAIR, [1, 2]),
        (Word.A, "a"),
        (Number.ONE, 1),
        (Bits.X | Bits.Y, 3),
        (pathlib.PurePosixPath("/a/é"), "/a/é"),
        (Entry("/x"), "/x"),
        (Entry(b"/y"), "/y"),
        (datetime.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02T03:04:05"),
        (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), "2024-01-02T00:00:00+00:00"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.time(1, 2), "01:02:00"),
        (Point(1, Point(2)), {"x": 1, "inner": {"x": 2, "inner": None}}),
        (Slotted(b"a"), {"a": {"base64": "YQ=="}}),
        (
            Model(when=datetime.date(2024, 1, 2), where=pathlib.Path("/a")),
            {"when": "2024-01-02", "where": "/a"},
        ),
    ],
)  # fmt: skip
def test_each_kind_of_value_has_one_form(value: object, shown: object) -> None:
    """A handler returns what its author has at hand; its reader gets JSON."""
    if shown is None and value is not None:
        with pytest.raises(NotJsonable, match="two keys that are both"):
            plain({**value, "1": 0} if isinstance(value, dict) else value)
        return
    found = plain(value)
    assert repr(found) == repr(shown)
    assert json.loads(json.dumps(found, allow_nan=False)) == shown


def test_keys_become_text() -> None:
    """JSON has no other keys; those that can be told apart as text may stay."""
    mixed = {1: "a", 2.5: "b", Word.A: "c", Text("t"): "d", pathlib.PurePosixPath("/p"): "e"}
    assert plain(mixed) == {"1": "a", "2.5": "b", "a": "c", "t": "d", "/p": "e"}
    assert all(type(key) is str for key in plain(mixed))


def endless() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "where", "why"),
    [
        (2**63, "$", "beyond 64 bits"),
        ([-(2**63) - 1], "$[0]", "beyond 64 bits"),
        ({"a": [1, math.nan]}, "$.a[1]", "nan is not a JSON number"),
        ({"a": math.inf}, "$.a", "inf is not a JSON number"),
        ([-math.inf], "$[0]", "-inf is not a JSON number"),
        (Real("inf"), "$", "inf is not"),
        ("\ud800", "$", "lone surrogate"),
        ({"a": {"b": "\udcff"}}, "$.a.b", "lone surrogate"),
        ({"\udcff": 1}, "$ (a key)", "lone surrogate"),
        (pathlib.PurePosixPath(os.fsdecode(b"/a/\xff")), "$", "lone surrogate"),
        (Entry(b"\xff"), "$", "lone surrogate"),
        ({"a": {None: 1}}, "$.a", "a key of type NoneType"),
        ({True: 1}, "$", "a key of type bool"),
        ({(1, 2): 1}, "$", "a key of type tuple"),
        ({b"a": 1}, "$", "a key of type bytes"),
        ({object: 1}, "$ (a key)", "builtins.type"),
        ({math.nan: 1}, "$ (a key)", "nan is not"),
        ({1: 1, "1": 2}, "$", "two keys that are both '1'"),
        ({"rows": [0, {"x": object()}]}, "$.rows[1].x", "builtins.object has no JSON form"),
        ({1, 2}, "$", "set"),
        (uuid.UUID(int=1), "$", "UUID"),
        ([decimal.Decimal(1)], "$[0]", "Decimal"),
        (fractions.Fraction(1, 3), "$", "Fraction"),
        (lambda: 1, "$", "builtins.function"),
        (Point, "$", "builtins.type"),
        (Model, "$", "pydantic"),
        (Point(1, inner={1j}), "$.inner", "set"),
        (datetime.timedelta(1), "$", "datetime.timedelta"),
        (io.BytesIO(), "$", "BytesIO"),
        (iter([1]), "$", "list_iterator"),
        (deep(DEPTH_MAX + 1), "$" + "[0]" * DEPTH_MAX, "nested deeper than 64"),
        (endless(), "$" + "[0]" * DEPTH_MAX, "or holds itself"),
    ],
)
def test_what_has_no_json_form_is_refused_with_its_place(
    value: object, where: str, why: str
) -> None:
    """ "Not JSON serializable" about a whole report finds nothing."""
    with pytest.raises(NotJsonable) as caught:
        plain(value)
    assert caught.value.where == where
    assert why in caught.value.why
    assert str(caught.value) == f"{where}: {caught.value.why}"


def test_depth_is_bounded_exactly() -> None:
    """What is encoded here must fit the channel's own bound, with what is put around it."""
    assert plain(deep(DEPTH_MAX)) == deep(DEPTH_MAX)


def test_an_endless_model_dump_is_refused() -> None:
    """Each answer asks again: recursion that only the depth ends."""

    class Again:
        def model_dump(self, *, mode: str) -> object:
            return Again()

    with pytest.raises(NotJsonable, match="nested deeper"):
        plain(Again())


class Lies:
    """Says that it is something else; `isinstance` believes it."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    @property
    def __class__(self) -> Any:
        return self.kind

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise AttributeError


@pytest.mark.parametrize("kind", [bool, type(None), int, float, str, bytes, list, dict, set])
def test_an_object_that_lies_about_its_class_gets_no_further_than_itself(kind: type) -> None:
    """Let by as a bool it would break the writing of the frame, past the stage that can say so."""
    found = None
    with contextlib.suppress(NotJsonable, TypeError, AttributeError, ValueError):
        found = plain(Lies(kind))
    json.dumps(found, allow_nan=False)


class Touchy:
    """Refuses to be compared, hashed, tested or described."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __repr__(self) -> str:
        raise RuntimeError("repr")


def test_an_object_is_refused_without_being_asked_anything() -> None:
    """Its own methods could raise, or never return, in the midst of our judgement."""
    with pytest.raises(NotJsonable, match=r"Touchy has no JSON form"):
        plain({"a": Touchy()})


class OddItems(dict[str, Any]):
    def __init__(self, items: object) -> None:
        super().__init__(a=1)
        self.given = items

    def items(self) -> Any:
        return self.given


@pytest.mark.parametrize("items", [[1], [("a",)], None, [("a", 1, 2)]])
def test_a_mapping_whose_items_are_none_fails_as_what_it_is(items: object) -> None:
    """It is the handler's own exception, told as such; nothing half-made goes out."""
    with pytest.raises((TypeError, ValueError)):
        plain(OddItems(items))


def test_a_mapping_that_names_a_key_twice_is_refused() -> None:
    """The channel refuses it anyhow, but could not say whose doing it was."""
    with pytest.raises(NotJsonable, match="two keys that are both 'a'"):
        plain(OddItems([("a", 1), ("a", 2)]))
    assert plain(OddItems([("b", (1,))])) == {"b": [1]}


def test_a_text_that_is_another_text_when_asked_is_bounded() -> None:
    """`str(x)` may give the same class again, for ever."""

    class Mirror(str):
        __slots__ = ()

        def __str__(self) -> str:
            return Mirror("x")

    with pytest.raises(NotJsonable, match="nested deeper"):
        plain(Mirror("y"))


def test_what_a_values_own_code_raises_goes_on_up() -> None:
    """It is an exception of the handler, with its traceback; swallowed, nobody could find it."""

    class Raises:
        def model_dump(self, *, mode: str) -> object:
            assert mode == "json"
            raise LookupError("mine")

    class RaisesPath:
        def __fspath__(self) -> str:
            raise LookupError("mine")

    for value in (Raises(), [RaisesPath()]):
        with pytest.raises(LookupError, match="mine"):
            plain(value)


def test_a_dataclass_shows_its_fields_only() -> None:
    """A ClassVar is not its value's, and an InitVar without a default is nobody's."""

    @dataclasses.dataclass
    class Made:
        secret: dataclasses.InitVar[str]
        shown: int = 0
        shared: ClassVar[list[int]] = [1]

        def __post_init__(self, secret: str) -> None:
            self.shown = len(secret)

    assert plain(Made("abc")) == {"shown": 3}


def test_modules_that_nobody_loaded_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import here is paid by every call, and could be the workspace's own `enum.py`."""
    monkeypatch.delitem(sys.modules, "enum")
    monkeypatch.delitem(sys.modules, "dataclasses")
    with pytest.raises(NotJsonable):
        plain(Colour.RED)
    with pytest.raises(NotJsonable):
        plain(Point(1))
    assert plain(Word.A) == "a"
    assert "enum" not in sys.modules
    assert "dataclasses" not in sys.modules


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KEYS = TEXT.filter(lambda text: not text.lstrip("-").isdecimal()) | st.integers(0, 9)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.binary(max_size=4)
    | st.sampled_from([Colour.PAIR, Word.A, Number.ONE, Spot(1, 2)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.builds(Point, st.integers(0, 9), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(value=VALUES)
def test_what_is_encoded_passes_the_channel_unchanged(value: object) -> None:
    """An encoder that sends what the decoder refuses turns a good result into a broken rule."""
    found = plain(value)
    assert plain(found) == found
    body = json.dumps({"ok": True, "value": found}, allow_nan=False).encode()
    assert repr(parse(body)) == repr({"ok": True, "value": found})
