"""One table of a rule file, read key by key: what is of the wrong kind points at its place."""

import difflib
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

from ._rules_model import Example
from ._rules_toml import Document, Place, PolicyError, one_of, quoted
from ._text import character_refusals

W = TypeVar("W", bound=str)
E = TypeVar("E", bound=StrEnum)

LINE_CHARACTERS_MAX: Final = 300


class Table:
    """One table of the document, read key by key."""

    def __init__(self, document: Document, place: Place, what: str) -> None:
        self.document = document
        self.place = place
        self._what = what
        data: Any = document.data
        for step in place:
            data = data[step]
        self.data: dict[str, Any] = data

    def error(self, key: str, message: str, *, at_key: bool = False) -> PolicyError:
        """Return an error that points at the value of a key, or at the key."""
        return self.document.error((*self.place, key), message, at_key=at_key)

    def only(self, keys: Collection[str]) -> None:
        """Refuse every key but these."""
        for key in self.data:
            if key not in keys:
                near = difflib.get_close_matches(key, keys, n=1)
                hint = f"did you mean {quoted(near[0])}?" if near else f"choose {one_of(keys)}"
                message = f"unknown key {quoted(key)} in {self._what}; {hint}"
                raise self.error(key, message, at_key=True)

    def table(self, key: str, keys: Collection[str] | None) -> "Table | None":
        """Read a table with no other keys than these; None for the keys is any."""
        if key not in self.data:
            return None
        if not isinstance(self.data[key], dict):
            raise self.error(key, f"`{key}` is a table")
        table = Table(self.document, (*self.place, key), f"`{key}`")
        if keys is not None:
            table.only(keys)
        return table

    def tables(self, key: str) -> Iterable[Place]:
        """Yield the place of each table of an array."""
        found = self.data.get(key, [])
        if not isinstance(found, list):
            raise self.error(key, f"each rule starts with [[{key}]]")
        for number, one in enumerate(found):
            if not isinstance(one, dict):
                raise self.document.error((*self.place, key, number), "a rule is a table")
            yield (*self.place, key, number)

    def text(self, key: str, *, required: bool = False) -> str:
        """Read one line that can be shown to anybody; empty only where it is not there."""
        if key not in self.data:
            if required:
                raise self.document.error(self.place, f"no {quoted(key)} in {self._what}")
            return ""
        text = self.data[key]
        if not isinstance(text, str):
            raise self.error(key, f"`{key}` is a string")
        if not text.strip() or len(text) > LINE_CHARACTERS_MAX or character_refusals(text):
            message = f"`{key}` is one line of 1 to {LINE_CHARACTERS_MAX} visible characters"
            raise self.error(key, message)
        return text

    def choice(self, key: str, words: tuple[W, ...], *, required: bool = False) -> W | None:
        """Read one of these words."""
        text = self.text(key, required=required)
        for word in words:
            if word == text:
                return word
        if text:
            raise self.error(key, f"unknown {key} {quoted(text)}; choose {one_of(words)}")
        return None

    def enum(self, key: str, words: type[E]) -> E | None:
        """Read one of the words of an enumeration."""
        return self.choice(key, tuple(words))

    def integer(self, key: str, allowed: range) -> int | None:
        """Read a whole number of this range."""
        value = self.data.get(key)
        if value is None:
            return None
        if type(value) is not int or value not in allowed:
            raise self.error(key, f"`{key}` is a number from {allowed[0]} to {allowed[-1]}")
        return value

    def items(self, key: str, *, may_be_empty: bool) -> list[Any]:
        """Read a list of anything; empty where it is not there."""
        if key not in self.data:
            return []
        items = self.data[key]
        if not isinstance(items, list):
            raise self.error(key, f"`{key}` is a list")
        if not items and not may_be_empty:
            raise self.error(key, f"`{key}` is empty: leave it out, or say what it is")
        return items

    def words(
        self, key: str, read: Callable[[str], str], *, may_be_empty: bool = False
    ) -> tuple[str, ...]:
        """Read a string or a list of strings, each of which `read` accepts or refuses."""
        if isinstance(self.data.get(key), str):
            return (self._word((*self.place, key), self.data[key], read),)
        items = self.items(key, may_be_empty=may_be_empty)
        return tuple(
            self._word((*self.place, key, number), item, read) for number, item in enumerate(items)
        )

    def _word(self, place: Place, item: object, read: Callable[[str], str]) -> str:
        if not isinstance(item, str):
            raise self.document.error(place, "a string is wanted here")
        try:
            return read(item)
        except ValueError as error:
            raise self.document.error(place, str(error)) from None

    def examples(self, key: str) -> tuple[Example, ...]:
        """Read a list of examples, each with its place."""
        found: list[Example] = []
        for number, item in enumerate(self.items(key, may_be_empty=True)):
            place = (*self.place, key, number)
            line, column = self.document.start_of(place)
            if isinstance(item, str):
                found.append(Example(text=item, line=line, column=column))
            elif isinstance(item, dict):
                text = self.document.written(place)
                found.append(Example(text=text, arguments=item, line=line, column=column))
            else:
                raise self.document.error(place, "an example is a string, or a table of arguments")
        return tuple(found)
