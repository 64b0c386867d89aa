"""A tool's own word on whether it can run here and now."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from toolcell.availability import CAUSE_MAX_CHARS, unavailable
from toolcell.registry import ToolRegistry
from toolcell.results import ToolUnavailable
from toolcell.tools import Tool, tool


@tool
def fetch(url: str) -> str:
    """Fetch a page."""
    return url


@tool
def look(path: str) -> str:
    """Look at a file."""
    return path


def checked(check: Callable[[], object] | None) -> Tool:
    return dataclasses.replace(fetch, availability_check=check)


def raising(error: BaseException) -> Callable[[], object]:
    def check() -> object:
        raise error

    return check


class Worse(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("neither")


async def online() -> bool:
    return True


class Asks:
    async def __call__(self) -> bool:
        return True


@pytest.mark.parametrize("check", [None, lambda: True, lambda: "yes", lambda: 1])
def test_a_tool_that_says_yes_or_nothing_is_available(check: Any) -> None:
    """Otherwise every tool would need a check."""
    assert unavailable(checked(check)) is None


@pytest.mark.parametrize(
    ("check", "cause"),
    [
        (lambda: False, "its check said no"),
        (lambda: None, "its check said no"),
        (lambda: "", "its check said no"),
        (raising(OSError("no route")), "its check raised OSError: no route"),
        (raising(ValueError()), "its check raised ValueError"),
        (raising(ValueError("\x1b[2J")), r"its check raised ValueError: \u001b[2J"),
        (raising(Worse()), "its check raised Worse"),
        (Undecided, "its check raised ValueError: neither"),
        (lambda: online(), "its check returned an awaitable instead of an answer"),
        (lambda: _Awaitable(), "its check returned an awaitable instead of an answer"),
    ],
)
def test_anything_but_a_yes_is_unavailable_and_says_why(check: Any, cause: str) -> None:
    """Otherwise a check that is broken would let every call through."""
    found = unavailable(checked(check))
    assert isinstance(found, ToolUnavailable)
    assert found.cause == cause
    assert found.message == f"the tool fetch cannot run here now: {cause}"


class _Awaitable:
    def __await__(self) -> Any:
        raise AssertionError("nobody awaits it")


def test_a_cause_is_cut() -> None:
    """Otherwise an error's text would fill the request of a model."""
    found = unavailable(checked(raising(OSError("x" * 1_000_000))))
    assert found is not None
    assert found.cause is not None
    assert len(found.cause) < CAUSE_MAX_CHARS + 50


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_ends_the_program_or_a_task_goes_up(error: BaseException) -> None:
    """Otherwise a cancellation would become a tool that is not there."""
    with pytest.raises(type(error)):
        unavailable(checked(raising(error)))


@pytest.mark.parametrize("check", [online, Asks(), functools.partial(online)])
def test_a_check_that_cannot_answer_at_once_is_refused(check: Any) -> None:
    """Otherwise a coroutine, which is true, would make it available for ever."""
    with pytest.raises(ValueError, match="availability_check is async"):
        ToolRegistry().register(checked(check))


def test_a_check_that_is_no_function_is_refused() -> None:
    """Otherwise it is found out at the first call, by a model."""
    with pytest.raises(ValueError, match="availability_check is a function"):
        ToolRegistry().register(checked(True))  # type: ignore[arg-type]  # that is the point
    ToolRegistry().register(checked(functools.partial(bool, 1)))


def test_it_is_asked_each_time_that_tools_are_shown() -> None:
    """Otherwise a model is offered what cannot run, or never again what can."""
    state = {"up": False}
    registry = ToolRegistry(look, checked(lambda: state["up"]))
    now = registry.snapshot()

    def shown() -> list[str]:
        lists = [
            [d["name"] for d in now.definitions],
            [d["name"] for d in registry.get_tool_schemas()],
            [t.name for t in registry.list_tools(only_available=True)],
            [t.name for t in registry.active_for_phase("editing")],
            sorted((t.name for t in registry.search_tools("fetch look")), reverse=True),
            sorted((t.name for t in registry.select_tools("fetch")), reverse=True),
        ]
        assert all(each == lists[0] for each in lists)
        return lists[0]

    assert shown() == ["look"]
    assert [t.name for t in registry.list_tools()] == ["look", "fetch"]
    assert isinstance(now.resolve("fetch"), Tool)
    state["up"] = True
    assert shown() == ["look", "fetch"]


def test_what_is_not_shown_anyway_is_not_asked() -> None:
    """Otherwise listing would ask every server of what is switched off or deferred."""
    refuse = checked(raising(KeyboardInterrupt()))
    registry = ToolRegistry(look)
    registry.register("off", refuse, enabled=False)
    registry.register("later", refuse, deferred=True)
    assert [d["name"] for d in registry.snapshot().definitions] == ["look"]
    assert [t.name for t in registry.search_tools("look", limit=1)] == ["look"]
