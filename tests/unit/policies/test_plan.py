"""A plan's hash names exactly what was agreed to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_policies import plan_hash


def hashed(arguments: object = None, **changed: Any) -> str:
    given: dict[str, Any] = {"tool_name": "shell", "spec_hash": "s", "arguments": arguments}
    return plan_hash(**(given | changed))


def test_a_hash_is_64_hex_digits_and_stays_the_same() -> None:
    """A stored answer has to be found again by another process, tomorrow."""
    assert hashed({"a": 1}) == hashed({"a": 1})
    assert len(hashed()) == 64
    assert int(hashed(), 16) > 0


def test_the_order_of_keys_does_not_count() -> None:
    """A model may send the same call with its keys in another order."""
    assert hashed({"a": 1, "b": {"c": 2, "d": 3}}) == hashed({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": None}, {}),
        ([1, 2], [2, 1]),
        ([[1], 2], [[1, 2]]),
        ({"a": "\u00e9"}, {"a": "e\u0301"}),
        ({"a": "x\u200b"}, {"a": "x"}),
        ({"a": ""}, {"a": "\u0000"}),
        ({"ab": "c"}, {"a": "bc"}),
    ],
)
def test_arguments_that_differ_have_hashes_that_differ(one: object, two: object) -> None:
    """Otherwise a yes to one call would run another."""
    assert hashed(one) != hashed(two)


@pytest.mark.parametrize(
    "changed",
    [
        {"tool_name": "shell2"},
        {"spec_hash": "t"},
        {"workspace": "/ws"},
        {"network": "host"},
        {"waived": ("net_blocked",)},
        {"pack_digest": ""},
        {"pack_digest": "d"},
        {"jail": {"workspace_mode": "direct"}},
    ],
)
def test_a_change_of_anything_agreed_to_changes_the_hash(changed: dict[str, Any]) -> None:
    """A yes for a jail without network is no yes for one with it."""
    assert hashed(**changed) != hashed()


def test_waivers_are_a_set() -> None:
    """The order in which flags were typed is nothing that anybody agreed to."""
    assert hashed(waived=("a", "b", "a")) == hashed(waived=("b", "a"))


def cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "bad",
    [float("nan"), float("inf"), [-float("inf")], cyclic(), nested(200_000), 10**5000],
    ids=["nan", "inf", "-inf", "cycle", "deep", "huge"],
)
def test_what_has_no_json_form_has_no_hash(bad: object) -> None:
    """NaN is not equal to itself: an answer bound to it would bind to nothing."""
    with pytest.raises(ValueError, match=r".+"):
        hashed({"a": bad})


@pytest.mark.parametrize("bad", [{1: "a"}, {"a": [{None: 1}]}, {"a": b"x"}, {"a": {1, 2}}])
def test_what_is_not_json_data_has_no_hash(bad: object) -> None:
    """JSON would write the keys 1 and "1" alike, and one plan would pass for the other."""
    with pytest.raises(TypeError):
        hashed(bad)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(arguments=JSON)
def test_any_json_has_a_hash_whatever_the_order_of_its_keys(arguments: object) -> None:
    """A call that a model can send must be a call that a person can answer."""

    def turned(value: object) -> object:
        if isinstance(value, dict):
            return {key: turned(item) for key, item in reversed(value.items())}
        return [turned(item) for item in value] if isinstance(value, list) else value

    assert hashed(arguments) == hashed(turned(arguments))
