"""A schema in the one form that is exported: 2020-12, self-contained, in a fixed order."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from toolcell._schema_walk import ANNOTATIONS, Node, mapped, ordered, walk

__all__ = ["NotContained", "contained", "used"]

_DRAFT_7: Final = "draft-07"
_ELSEWHERE: Final = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")
_DROPPED: Final = ("$schema", "$defs", "definitions", "$vocabulary", "discriminator")
"""`discriminator` is OpenAPI's: the branches' own `const` say the same."""
_LATER: Final = frozenset({
    "dependentRequired", "dependentSchemas", "prefixItems", "minContains", "maxContains",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
})  # fmt: skip
"""Keywords that came after draft 7 (JSON Schema 2019-09 and 2020-12, release notes)."""


class NotContained(ValueError):
    """A schema points to something outside itself; says where, why, and what to write."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.fix = "write the definition below $defs, and refer to it as #/$defs/NAME"


def contained(schema: Node) -> Node:
    """The schema with all it refers to below its own `$defs`, as a copy in a fixed order.

    Draft 7 that says so in `$schema` becomes 2020-12. A property that may be left out, and is
    null then, is of its plain type. Definitions that nothing refers to are left out. Recursion
    stays. Nothing that it accepts is refused by the schema given.

    Raises:
        NotContained: a reference leads outside the schema, or nowhere.
    """
    return _Contained(schema).whole()


def used(root: Node) -> Node:
    """The same without definitions that nothing refers to."""
    defs = root.get("$defs", {})
    top = {key: value for key, value in root.items() if key != "$defs"}
    kept: dict[str, Any] = {}
    waiting: list[object] = [top]
    while waiting:
        for _, node in walk(waiting.pop()):
            name = _name(node)
            if name is not None and name not in kept:
                kept[name] = defs[name]
                waiting.append(defs[name])
    return top | ({"$defs": {name: kept[name] for name in sorted(kept)}} if kept else {})


def _name(node: object) -> str | None:
    if isinstance(node, dict) and "$ref" in node:
        return str(node["$ref"]).removeprefix("#/$defs/")
    return None


class _Contained:
    """One schema on its way: what was given, and the definitions found by their pointers."""

    def __init__(self, given: Node) -> None:
        self.given = given
        self.is_draft_7 = _DRAFT_7 in str(given.get("$schema", ""))
        self.names: dict[str, str] = {}
        self.defs: dict[str, Any] = {}

    def whole(self) -> Node:
        root: Node = self.clean({k: v for k, v in self.given.items() if k != "$id"}, "$")
        seen: set[str] = set()
        while (name := _name(root)) is not None and name not in seen:
            beside = {key: value for key, value in root.items() if key != "$ref"}
            if not ANNOTATIONS.issuperset(beside) or not isinstance(self.defs[name], dict):
                break
            seen.add(name)
            root = ordered({**self.defs[name], **beside})
        return used(root | ({"$defs": self.defs} if self.defs else {}))

    def clean(self, node: Any, path: str) -> Any:
        if not isinstance(node, dict):
            return node
        for keyword in _ELSEWHERE:
            if keyword in node:
                raise NotContained(path, f"{keyword} is resolved differently by each reader")
        if "$id" in node:
            raise NotContained(path, "$id gives the references below it another base")
        node = {key: value for key, value in node.items() if key not in _DROPPED}
        if self.is_draft_7:
            # There a reference stands alone, and a word that came later means nothing.
            alone = "$ref" in node
            known = ANNOTATIONS | {"$ref"} if alone else node.keys() - _LATER
            node = {key: value for key, value in node.items() if key in known}
        found = mapped(_in_new_words(node), lambda item, name: self.clean(item, f"{path}.{name}"))
        if "$ref" in found:
            found["$ref"] = f"#/$defs/{self.defined(found['$ref'], path)}"
        if isinstance(properties := found.get("properties"), dict):
            required = found.get("required", ())
            found["properties"] = {
                name: _plain_optional(item, name in required) for name, item in properties.items()
            }
        return ordered(found)

    def defined(self, pointer: object, path: str) -> str:
        """The name of the definition that a reference leads to, which is cleaned when first met."""
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise NotContained(path, f"the $ref {pointer!r:.100} leads outside the schema")
        if pointer not in self.names:
            name = self.names[pointer] = self._fresh(pointer)
            self.defs[name] = True
            self.defs[name] = self.clean(self._target(pointer, path), f"$.$defs.{name}")
        return self.names[pointer]

    def _fresh(self, pointer: str) -> str:
        last = _steps(pointer)[-1] if pointer != "#" else "root"
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", last)[:60] or "definition"
        name, number = base, 2
        while name in self.defs:
            name, number = f"{base}_{number}", number + 1
        return name

    def _target(self, pointer: str, path: str) -> object:
        found: Any = self.given
        for step in _steps(pointer):
            if isinstance(found, list) and step.isascii() and step.isdigit():
                found = dict(enumerate(found)).get(int(step))
            else:
                found = found.get(step) if isinstance(found, dict) else None
        if not isinstance(found, dict | bool):
            raise NotContained(path, f"the $ref {pointer!r:.100} leads to no schema")
        return {k: v for k, v in found.items() if k != "$id"} if found is self.given else found


def _steps(pointer: str) -> list[str]:
    """The steps of a JSON pointer in a fragment (RFC 6901, section 6)."""
    steps = unquote(pointer[1:]).split("/")[1:]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _in_new_words(node: Node) -> Node:
    """Tuples and dependencies as 2020-12 says them; validators still honour the old words."""
    found = {k: v for k, v in node.items() if k not in ("dependencies", "additionalItems")}
    if isinstance(items := node.get("items"), list):
        found["prefixItems"] = found.pop("items")
        if items and "additionalItems" in node:
            found["items"] = node["additionalItems"]
    needs = node.get("dependencies")
    for name, needed in needs.items() if isinstance(needs, dict) else ():
        keyword = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        found[keyword] = {**found.get(keyword, {}), name: needed}
    return found


def _plain_optional(schema: Any, required: bool) -> Any:
    """`X | None` that may be left out, and is None then, as plain X."""
    if not isinstance(schema, dict) or required or schema.get("default", False) is not None:
        return schema
    found = {key: value for key, value in schema.items() if key != "default"}
    if isinstance(types := found.get("type"), list) and len(types) > 1 and "null" in types:
        rest = [name for name in types if name != "null"]
        found["type"] = rest[0] if len(rest) == 1 else rest
    if isinstance(values := found.get("enum"), list):
        found["enum"] = [value for value in values if value is not None] or values
    branches = [b for b in found.get("anyOf", ()) if b != {"type": "null"}]
    if branches:
        found["anyOf"] = branches
        (only, *others) = branches
        rest_of = {key: value for key, value in found.items() if key != "anyOf"}
        alone = not others and isinstance(only, dict)
        if alone and ANNOTATIONS.issuperset(only.keys() & rest_of.keys()):
            found = {**only, **rest_of}
    return ordered(found)
