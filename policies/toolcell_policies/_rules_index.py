"""Which rules may speak about a call, found without looking at each.

Every rule stands in one place, by the narrowest condition that it has: the words its command
begins with, its path patterns, its hosts, its tools, its actions; the few that have none of
these stand in a list. What is found here is a candidate: `_rules_match` has the word.
"""

from collections.abc import Iterator, Sequence

from ._patterns import Anchor
from ._rules_globs import GlobTable, PathTree
from ._rules_match import WILD, CallFacts, CompiledRule, host_forms
from ._rules_model import RuleSegment
from ._rules_words import after_flags, words_at


class RuleIndex:
    """Rules of one kind, each with its number: those that deny or ask, or those that allow."""

    __slots__ = ("_actions", "_commands", "_everywhere", "_hosts", "_paths", "_strict", "_tools")

    def __init__(self, rules: Sequence[tuple[int, CompiledRule]], *, strict: bool) -> None:
        self._strict = strict
        self._commands = _CommandTree()
        self._paths = {anchor: PathTree() for anchor in Anchor}
        self._hosts = _HostTable()
        self._tools = _NameTable()
        self._actions = _NameTable()
        self._everywhere: list[int] = []
        for number, compiled in rules:
            self._place(number, compiled)

    def _place(self, number: int, compiled: CompiledRule) -> None:
        rule = compiled.rule
        if rule.when.command:
            self._commands.add(rule.when.command, number)
        elif compiled.patterns:
            for pattern in compiled.patterns:
                self._paths[pattern.anchor].add(pattern, number)
        elif rule.when.host:
            self._hosts.add(rule.when.host, number)
        elif not compiled.tools.matches_all:
            self._tools.add(rule.tools, number)
        elif rule.actions and not compiled.actions.matches_all:
            self._actions.add(rule.actions, number)
        else:
            self._everywhere.append(number)

    def candidates(self, facts: CallFacts) -> set[int]:
        """Return every rule that may speak about the call by words that are known."""
        call = facts.call
        found = set(self._everywhere)
        found |= self._tools.find(call.tool_name)
        found |= self._actions.find(call.action)
        for segment in call.segments or ():
            found |= self._commands.find(segment, strict=self._strict)
        for path_starts in facts.starts:
            for anchor, names, start in path_starts:
                found |= self._paths[anchor].find(names, start)
        for host in call.hosts:
            for form in host_forms(host, strict=self._strict):
                found |= self._hosts.find(form)
        return found

    def in_doubt(self, segment: RuleSegment) -> Iterator[int]:
        """Yield every rule that an unknown word of a command may be about, each once."""
        return self._commands.in_doubt(segment)


class _NameTable:
    """Rules by the name, or the pattern of a name, that they hold for."""

    __slots__ = ("_globs", "_known")

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}
        self._globs: GlobTable[int] = GlobTable(question=True)

    def add(self, names: Sequence[str], number: int) -> None:
        for name in names:
            if WILD & set(name):
                self._globs.add(name, number)
            else:
                self._known.setdefault(name, []).append(number)

    def find(self, name: str) -> set[int]:
        return {*self._known.get(name, ()), *self._globs.find(name)}


class _HostTable:
    """Rules by host, or by the name above it."""

    __slots__ = ("_above", "_known")

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}
        # By what follows the asterisk: `.example.org`, or nothing.
        self._above: dict[str, list[int]] = {}

    def add(self, hosts: Sequence[str], number: int) -> None:
        for host in hosts:
            if host.startswith("*"):
                self._above.setdefault(host[1:], []).append(number)
            else:
                self._known.setdefault(host, []).append(number)

    def find(self, host: str) -> set[int]:
        found = {*self._known.get(host, ()), *self._above.get("", ())}
        at = host.find(".", 1)
        while at >= 0:
            found.update(self._above.get(host[at:], ()))
            at = host.find(".", at + 1)
        return found


class _Words:
    """The commands that go on from here."""

    __slots__ = ("ends", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Words] = {}
        self.ends: list[int] = []


class _CommandTree:
    """Rules by the words that their command begins with."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Words()

    def add(self, command: Sequence[Sequence[str]], number: int) -> None:
        nodes = [self._root]
        for alternatives in command:
            nodes = [
                node.words.setdefault(word, _Words())
                for node in nodes
                for word in dict.fromkeys(alternatives)
            ]
        for node in nodes:
            node.ends.append(number)

    def find(self, segment: RuleSegment, *, strict: bool) -> set[int]:
        if strict:
            found, _ = self._walk(segment)
            return found
        found, node = set(), self._root
        for word in segment.argv:
            if word is None or word not in node.words:
                break
            node = node.words[word]
            found.update(node.ends)
        return found

    def in_doubt(self, segment: RuleSegment) -> Iterator[int]:
        if not self._root.words or (
            segment.understood and segment.argv and None not in segment.argv
        ):
            return
        _, open_ends = self._walk(segment)
        seen: set[int] = set()
        while open_ends:
            node = open_ends.pop()
            for number in node.ends:
                if number not in seen:
                    seen.add(number)
                    yield number
            open_ends.extend(node.words.values())

    def _walk(self, segment: RuleSegment) -> tuple[set[int], list[_Words]]:
        """Return the rules whose words are all there, and where an unknown word stands."""
        found: set[int] = set()
        open_ends: list[_Words] = []
        first = range(1) if segment.understood else range(len(segment.argv))
        ahead = {self._root: set(first)}
        while ahead:
            reached: dict[_Words, set[int]] = {}
            for node, places in ahead.items():
                is_program = node is self._root
                for at in places if is_program else after_flags(segment.argv, places):
                    names = words_at(segment, at, is_program=is_program)
                    if names is None:
                        open_ends.extend(node.words.values())
                        continue
                    for name in names:
                        if (child := node.words.get(name)) is not None:
                            found.update(child.ends)
                            if child.words:
                                reached.setdefault(child, set()).add(at + 1)
            ahead = reached
        return found, open_ends
