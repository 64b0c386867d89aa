"""What a running call is told of names that came after its masks were made."""

from __future__ import annotations

import pytest

from toolcell_sandbox import _mask_news
from toolcell_sandbox._mask_news import Doubt, News, is_hidden


def test_only_what_came_later_and_is_not_hidden_is_news() -> None:
    """Otherwise a call dies of what it could never see."""
    news = News()
    news.appeared("old")
    given = news.generation
    assert news.since(given, frozenset({"old"})) is None
    news.appeared("old")
    news.appeared("folder/below")
    news.vanished()
    assert news.since(given, frozenset({"old", "folder"})) is None
    news.appeared("first")
    news.appeared("second")
    assert news.since(given, frozenset({"old", "folder"})) == "first"
    assert news.since(news.generation, frozenset()) is None


def test_a_doubt_is_for_those_with_older_masks_alone() -> None:
    """Otherwise one overflow ends every call from then on."""
    news = News()
    given = news.generation
    news.doubted("events were lost")
    found = news.since(given, frozenset())
    assert isinstance(found, Doubt)
    assert found == "events were lost"
    assert news.since(news.generation, frozenset()) is None


def test_what_is_forgotten_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise whoever makes many names hides one among them."""
    monkeypatch.setattr(_mask_news, "APPEARED_MAX", 3)
    news = News()
    given = news.generation
    for name in ("a", "b", "c"):
        news.appeared(name)
    hidden = frozenset({"b", "c", "d"})
    assert news.since(given, hidden) == "a"
    # The same name again takes no room.
    news.appeared("c")
    assert news.since(given, hidden) == "a"
    between = news.generation
    news.appeared("d")
    assert isinstance(news.since(given, hidden), Doubt)
    assert news.since(between, hidden) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", True),
        ("a/b/c", True),
        ("x/y", True),
        ("x/y/z", True),
        ("x", False),
        ("x/yz", False),
        ("aa", False),
        ("b/a", False),
    ],
)
def test_a_hidden_folder_hides_what_is_below_and_nothing_beside(path: str, expected: bool) -> None:
    """Otherwise `a-evil` is covered by the mask of `a`."""
    assert is_hidden(path, frozenset({"a", "x/y"})) is expected
