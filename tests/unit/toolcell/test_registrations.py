"""Scoped registrations: what is in effect, what closing reveals, groups, placements, staleness."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell.registrations import Placement, Registration
from toolcell.registry import ToolRegistry
from toolcell.results import ToolStale
from toolcell.tools import Tool, tool


def one(path: str) -> str:
    """One."""
    return path


def two(path: str) -> str:
    """Two."""
    return path


@tool(aliases=("uno",))
def first(path: str) -> str:
    """First."""
    return path


def described(registry: ToolRegistry, name: str) -> str | None:
    found = registry.get(name)
    return None if found is None else found.description


def test_the_latest_is_in_effect_and_closing_reveals_the_next() -> None:
    """Otherwise a session that ends would take away what was there before it."""
    registry = ToolRegistry(one)
    shadow = registry.register("one", two)
    again = registry.register("one", first)
    assert described(registry, "one") == "First."
    shadow.close()
    assert described(registry, "one") == "First."
    again.close()
    assert described(registry, "one") == "One."


def test_closing_twice_is_harmless_and_takes_nothing_else() -> None:
    """Otherwise a cleanup that runs twice would remove another's tool of that name."""
    registry = ToolRegistry()
    gone = registry.register(one)
    assert repr(gone) == "<Registration of one>"
    gone.close()
    registry.register(one)
    before = registry.snapshot()
    gone.close()
    assert gone.closed
    assert registry.snapshot() is before
    assert "one" in registry


def test_a_registration_is_a_context_and_tells_what_it_is() -> None:
    """Otherwise tools of a session outlive it."""
    registry = ToolRegistry()
    with registry.register({"a": one, "b": two}, group="g") as made:
        assert isinstance(made, Registration)
        assert made.names == ("g_a", "g_b")
        assert [t.name for t in made.tools] == ["g_a", "g_b"]
        assert repr(made) == "<Registration of g_a, g_b>"
        assert len(registry) == 2
    assert len(registry) == 0
    assert repr(made) == "<Registration of g_a, g_b (closed)>"
    many = registry.register({f"t{n}": one for n in range(7)})
    assert repr(many) == "<Registration of t0, t1, t2, t3, t4, …>"


def test_a_location_stands_above_the_application_whatever_came_first() -> None:
    """Otherwise a later default would hide what was made for this very place."""
    registry = ToolRegistry()
    here = registry.register("edit", one, placement="location")
    registry.register("edit", two)
    assert described(registry, "edit") == "One."
    nearer = registry.register("edit", first, placement="location")
    assert described(registry, "edit") == "First."
    nearer.close()
    here.close()
    assert described(registry, "edit") == "Two."
    with pytest.raises(ValueError, match="none of: application, location"):
        registry.register("edit", one, placement="session")  # type: ignore[arg-type]  # the point


def test_aliases_come_and_go_with_the_tool_in_effect() -> None:
    """Otherwise an alias would lead to a tool that never had it."""
    registry = ToolRegistry(first)
    shadow = registry.register("first", two)
    assert registry.get("uno") is None
    shadow.close()
    assert registry.get("uno") is first


def test_a_hidden_alias_is_still_taken() -> None:
    """Otherwise closing would reveal a name that means two tools."""
    registry = ToolRegistry(first)
    shadow = registry.register("first", two)
    with pytest.raises(ValueError, match="name uno of tool uno is taken by tool first"):
        registry.register("uno", one)
    shadow.close()
    assert registry.get("uno") is first


def test_a_group_is_before_names_and_aliases() -> None:
    """Otherwise two servers that both have a `read` could not be used together."""
    registry = ToolRegistry(one)
    registry.register({"one": one, "first": first}, group="fs")
    registry.register(one, group="net")
    assert list(registry.snapshot().tools) == ["one", "fs_one", "fs_first", "net_one"]
    assert registry.get("uno") is None
    found = registry.get("fs_uno")
    assert found is not None
    assert found.name == "fs_first"


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("", "cannot name a group"),
        ("1st", "cannot name a group"),
        ("a b", "cannot name a group"),
        ("g" * 60, "65 characters long, and a tool's name at most 64"),
        ("g" * 61, "66 characters long"),
    ],
)
def test_a_group_that_makes_no_name_is_refused(group: str, words: str) -> None:
    """Otherwise a name would be cut, and cut names meet."""
    registry = ToolRegistry()
    with pytest.raises(ValueError, match=words):
        registry.register("four", one, group=group)
    assert len(registry) == 0
    registry.register("four", one, group="g" * 59)


def test_groups_whose_names_run_together_are_refused() -> None:
    """Otherwise `a` + `b_c` would answer for `a_b` + `c`."""
    registry = ToolRegistry()
    registry.register("b_c", one, group="a")
    with pytest.raises(ValueError, match="a_b_c, of group a_b, is the name of a tool of group a;"):
        registry.register("c", two, group="a_b")
    registry.register("plain_x", one)
    with pytest.raises(ValueError, match="plain_x, of group plain, is the name of a tool outside"):
        registry.register("x", two, group="plain")
    # The same group again, and a full name written out, are meant.
    registry.register("b_c", two, group="a")
    assert described(registry, "a_b_c") == "Two."
    registry.register("a_b_c", first)
    assert described(registry, "a_b_c") == "First."


def test_a_deferred_tool_is_told_to_nobody_and_can_be_called() -> None:
    """Otherwise a hundred tools of a server fill every request."""
    registry = ToolRegistry(one)
    registry.register("many", two, deferred=True)
    now = registry.snapshot()
    assert now.deferred == {"many"}
    assert [d["name"] for d in now.definitions] == ["one"]
    assert [d["name"] for d in registry.get_tool_schemas(only_enabled=False)] == ["one"]
    assert isinstance(now.resolve("many"), Tool)
    assert [t.name for t in now.list_tools()] == ["one", "many"]
    assert "there are: one" in getattr(now.resolve("zzzz"), "message", "")
    with registry.register("many", two):
        assert registry.snapshot().deferred == frozenset()
    assert registry.snapshot().deferred == {"many"}


def test_where_all_is_deferred_an_unknown_name_is_told_to_search() -> None:
    """Otherwise a model would read that there are no tools."""
    registry = ToolRegistry()
    assert "there are no tools" in getattr(registry.resolve("zzz"), "message", "")
    registry.register("many", two, deferred=True)
    assert "search for one" in getattr(registry.resolve("zzz"), "message", "")


def test_a_name_keeps_its_place_while_anything_is_registered_by_it() -> None:
    """Otherwise a session's own edit tool would move the list, and with it a prompt's cache."""
    registry = ToolRegistry(one, two)
    shadow = registry.register("one", first)
    assert list(registry.snapshot().tools) == ["one", "two"]
    shadow.close()
    assert list(registry.snapshot().tools) == ["one", "two"]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda r, made: made.close(), "taken back"),
        (lambda r, made: r.register("one", two), "replaced"),
        (lambda r, made: made.close() or r.register("one", two), "replaced"),
    ],
)
def test_a_tool_that_is_another_by_now_is_stale(change: Any, cause: str) -> None:
    """Otherwise what was agreed to for one tool would be run with another."""
    registry = ToolRegistry(two)
    made = registry.register(one)
    shown = registry.snapshot()
    change(registry, made)
    stale = shown.stale("one", registry.snapshot())
    assert isinstance(stale, ToolStale)
    assert stale.cause is not None
    assert cause in stale.cause
    assert shown.stale("two", registry.snapshot()) is None


def test_the_same_tool_registered_anew_is_not_stale() -> None:
    """Otherwise a server that connects again would fail the call that waits for it."""
    registry = ToolRegistry()
    made = registry.register(one)
    shown = registry.snapshot()
    assert shown.stale("one", registry.snapshot()) is None
    made.close()
    registry.register(one)
    registry.disable_tool("one")
    now = registry.snapshot()
    assert now.get("one") is not shown.get("one")
    assert now.digest_of("one") == shown.digest_of("one")
    assert shown.stale("one", now) is None
    assert shown.stale("never", now) is None
    assert now.digest_of("never") is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("register"),
                st.sampled_from(["x", "y", "z"]),
                st.sampled_from(["application", "location"]),
                st.booleans(),
                st.booleans(),
            ),
            st.tuples(st.just("close"), st.integers(0, 20)),
            st.tuples(st.just("snapshot")),
        ),
        max_size=25,
    )
)
def test_what_is_in_effect_is_what_is_open(steps: list[tuple[Any, ...]]) -> None:
    """Otherwise some order of opening and closing would leave a tool that nobody registered.

    The model is a list of what is open; in effect is the last of the highest placement.
    """
    registry = ToolRegistry()
    made: list[tuple[Registration, str, Placement, bool, bool]] = []
    captured: list[tuple[Any, dict[str, Tool]]] = []
    for step in steps:
        if step[0] == "register":
            _, name, placement, enabled, deferred = step
            registration = registry.register(
                name, PLAIN[name], placement=placement, enabled=enabled, deferred=deferred
            )
            made.append((registration, name, placement, enabled, deferred))
        elif step[0] == "close" and made:
            made[step[1] % len(made)][0].close()
        else:
            now = registry.snapshot()
            captured.append((now, dict(now.tools)))
        seen = {}
        for placed in ("application", "location"):
            for registration, name, placement, enabled, deferred in made:
                if placement == placed and not registration.closed:
                    seen[name] = registration.tools[0], enabled, deferred
        assert {n: registry.get(n) for n in "xyz" if n in registry} == {
            n: t for n, (t, _, _) in seen.items()
        }
        assert len(registry) == len(seen)
    now = registry.snapshot()
    assert dict(now.tools) == {n: t for n, (t, _, _) in seen.items()} if steps else True
    assert now.disabled == {n for n, t in now.tools.items() if not registry.is_tool_enabled(n)}
    for snapshot, tools in captured:
        assert dict(snapshot.tools) == tools
        assert set(snapshot.names.values()) == set(tools)


PLAIN = {name: tool(name=name)(one) for name in "xyz"}
for _each in PLAIN.values():
    _ = _each.compiled, _each.spec_hash
