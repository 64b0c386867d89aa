"""A grant's key names exactly what was agreed to, and under what."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_policies.grant_key import grant_key
from toolcell_policies.plan import plan_hash

BOUND: dict[str, Any] = {
    "workspace": "/ws",
    "workspace_identity": (1, 2),
    "agent_id": "agent",
    "tool_name": "shell",
    "spec_hash": "s",
    "policy_epoch": "e",
    "network": "none",
    "workspace_mode": "transaction",
    "waived": ("a", "b"),
    "isolation": "standard",
    "shape": {"argv": ["ls", "-l"], "cwd": "/ws"},
}


def key(**changed: Any) -> str:
    return grant_key(**(BOUND | changed))


def test_the_same_agreement_has_the_same_key_tomorrow() -> None:
    """A stored grant has to be found again, by another process and in another order."""
    assert key() == key(waived=["b", "a", "b"], shape={"cwd": "/ws", "argv": ["ls", "-l"]})
    assert len(key()) == 64
    assert int(key(), 16) > 0


@pytest.mark.parametrize(
    "changed",
    [
        {"workspace": "/ws-evil"},
        {"workspace_identity": (2, 1)},
        {"workspace_identity": (1, 3)},
        {"agent_id": None},
        {"agent_id": ""},
        {"agent_id": "other"},
        {"tool_name": "shell2"},
        {"spec_hash": "t"},
        {"policy_epoch": "f"},
        {"network": "host"},
        {"workspace_mode": "direct"},
        {"waived": ()},
        {"waived": ("a",)},
        {"waived": ("a,b",)},
        {"isolation": "container"},
        {"shape": {"argv": ["ls", "-l"]}},
        {"shape": {"argv": ["ls -l"], "cwd": "/ws"}},
        {"shape": {"argv": ["-l", "ls"], "cwd": "/ws"}},
        {"shape": {"argv": ["ls", "-l"], "cwd": "/ws", "env": {}}},
    ],
    ids=lambda changed: f"{changed}",
)
def test_whatever_differs_is_another_agreement(changed: dict[str, Any]) -> None:
    """CASES 33, 34: otherwise a yes would cover more than was shown."""
    assert key(**changed) != key()


WORDS = st.text("a1, \u00e9\x00", max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
SHAPES = st.dictionaries(WORDS, JSON, min_size=1, max_size=2)


@given(SHAPES, SHAPES)
def test_keys_are_equal_only_where_shapes_are(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Otherwise some pair of commands would share an answer."""
    assert (key(shape=one) == key(shape=two)) == (repr(_sorted(one)) == repr(_sorted(two)))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def test_no_plan_has_the_hash_of_a_grant() -> None:
    """Otherwise a yes to one call could be looked up as a yes to all like it."""
    told: dict[str, Any] = {"tool_name": "shell", "spec_hash": "s"}
    assert plan_hash(arguments={"a": 1}, **told) != key(shape={"a": 1}, **told)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"shape": {}}, ValueError),
        ({"shape": {"a": math.nan}}, ValueError),
        ({"shape": {"a": {1: 2}}}, TypeError),
        ({"shape": {"a": object()}}, TypeError),
        ({"shape": {"a": {"b"}}}, TypeError),
        ({"waived": "net_blocked"}, TypeError),
        ({"workspace_identity": (1, 2, 3)}, ValueError),
    ],
)
def test_what_has_no_exact_form_has_no_key(changed: dict[str, Any], error: type[Exception]) -> None:
    """Otherwise an agreement about something else would be found under it."""
    with pytest.raises(error):
        key(**changed)
