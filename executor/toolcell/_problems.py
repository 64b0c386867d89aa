"""What is wrong with arguments, per field, in words that a model can act on."""

from __future__ import annotations

import difflib
import json
from itertools import islice
from typing import Any, Final

from toolcell._arguments import joined, kind, shown_name
from toolcell._repairs import accepted

PROBLEMS_MAX: Final = 20
Problem = dict[str, str]


def problems(errors: Any, names: tuple[str, ...], root: dict[str, Any]) -> list[Problem]:
    """The first problems among a validator's errors, each `{"path", "message", "given"}`."""
    found: list[Problem] = []
    for error in islice(errors, PROBLEMS_MAX):
        found += _worded(error, names, root)
        if len(found) >= PROBLEMS_MAX:
            break
    return found[:PROBLEMS_MAX]


def nearest(name: str, names: tuple[str, ...] | list[str], count: int = 3) -> tuple[str, ...]:
    """The names that look most like `name`, best first. Bounded: difflib is quadratic."""
    return tuple(difflib.get_close_matches(name[:64], names[:2_000], n=count, cutoff=0.6))


def _worded(error: Any, names: tuple[str, ...], root: dict[str, Any]) -> list[Problem]:
    what, path = error.kind.name, ""
    for step in error.instance_path:
        path = joined(path, step)
    if what == "additionalProperties":
        given = error.instance if isinstance(error.instance, dict) else {}
        return [
            _problem(joined(path, name), _unknown(name, () if path else names), given.get(name))
            for name in error.kind.unexpected[:PROBLEMS_MAX]
        ]
    if what == "required":
        name = error.kind.property
        wanted = _wanted(root, path, name)
        return [{"path": joined(path, name), "message": f"missing{wanted}", "given": "nothing"}]
    if what in ("anyOf", "oneOf"):
        return _branches(error, path, names, root)
    return [_problem(path, _message(what, error), error.instance)]


def _message(what: str, error: Any) -> str:
    facts = error.kind.as_dict()
    limit = facts.get("limit")
    if what == "type":
        return f"expected {_or(error.kind.types)}"
    if what == "enum":
        options = [json.dumps(option, ensure_ascii=False) for option in error.kind.options]
        shown = ", ".join(options[:20]) + (", …" if len(options) > 20 else "")
        return f"expected one of {shown}"
    words = {
        "minimum": f"expected at least {limit}",
        "maximum": f"expected at most {limit}",
        "exclusiveMinimum": f"expected more than {limit}",
        "exclusiveMaximum": f"expected less than {limit}",
        "minLength": f"expected at least {limit} characters",
        "maxLength": f"expected at most {limit} characters",
        "minItems": f"expected at least {limit} items",
        "maxItems": f"expected at most {limit} items",
        "format": f"expected text of the form {facts.get('format')}",
        "pattern": f"expected text that matches {facts.get('pattern')}",
        "uniqueItems": "expected items that differ from each other",
    }
    return words.get(what) or f"{error.message[:200]}"


def _branches(error: Any, path: str, names: tuple[str, ...], root: dict[str, Any]) -> list[Problem]:
    """A union's failure: what the branch of the right type says, else all types it takes."""
    types: list[str] = []
    for branch in getattr(error.kind, "context", []):
        wrong = [
            e for e in branch if e.kind.name == "type" and e.instance_path == error.instance_path
        ]
        if not wrong:
            return [p for e in branch for p in _worded(e, names, root)]
        types += [t for e in wrong for t in e.kind.types if t not in types]
    message = f"expected {_or(types)}" if types else error.message[:200]
    return [_problem(path, message, error.instance)]


def _unknown(name: str, names: tuple[str, ...]) -> str:
    close = nearest(name, names, 1)
    return "there is no such argument" + (f"; did you mean {close[0]}?" if close else "")


def _wanted(root: dict[str, Any], path: str, name: str) -> str:
    types = accepted(root.get("properties", {}).get(name, {}), root) if not path else None
    return f", expected {_or(sorted(types))}" if types else ""


def _problem(path: str, message: str, value: object) -> Problem:
    return {"path": path, "message": message, "given": kind(value)}


def _or(words: list[str]) -> str:
    return " or ".join(words)


def sentence(tool: str, found: list[Problem], names: tuple[str, ...]) -> str:
    """One line for the model: each problem, then the arguments that exist."""
    parts = []
    for problem in found[:5]:
        place = f"{problem['path']}: " if problem["path"] else ""
        given = problem["given"]
        told = (
            ""
            if given == "nothing" or "no such argument" in problem["message"]
            else f", given {given}"
        )
        parts.append(f"{place}{problem['message']}{told}")
    more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
    valid = ", ".join(map(shown_name, names)) or "none"
    return f"invalid arguments for {tool}: {'; '.join(parts)}{more}. Valid arguments: {valid}."
