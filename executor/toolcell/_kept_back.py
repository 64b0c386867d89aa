"""What a listing or a search names that may not be read: left out before anybody sees it.

Where the jail hides such files none is found. It does not where that was waived, and never below
dependency trees, which the index does not walk; so what our own tools answer is looked through by
the list that decides on `read_file`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from toolcell._protected import Protected
from toolcell.markers import RETURNED
from toolcell_sandbox import JailOutcome

_LISTS = ("entries", "matches")


def without_kept_back(
    outcome: JailOutcome, protected: Protected, workspace: str
) -> tuple[JailOutcome, int]:
    """The outcome of a built-in tool that lists, without names that it may not read; how many."""
    value = outcome.value
    inner = value.get(RETURNED) if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("output"), dict):
        return outcome, 0
    output = inner["output"]
    if not any(isinstance(output.get(name), list) for name in _LISTS):
        return outcome, 0
    may_read = _reader(protected, workspace)
    kept = {
        name: [
            one
            for one in output[name]
            # `python` is a tool of ours too, and what runs in it can return anything.
            if isinstance(one, dict) and may_read(str(one.get("path", "")))
        ]
        for name in _LISTS
        if isinstance(output.get(name), list)
    }
    gone = sum(len(output[name]) - len(kept[name]) for name in kept)
    if gone == 0:
        return outcome, 0
    read = inner.get("files_read")
    told: dict[str, Any] = {
        **inner,
        "output": {**output, **kept},
        "files_read": [path for path in read if may_read(str(path))]
        if isinstance(read, list)
        else read,
    }
    return dataclasses.replace(outcome, value={RETURNED: told}), gone


def _reader(protected: Protected, workspace: str) -> Callable[[str], bool]:
    known: dict[str, bool] = {}

    def may_read(path: str) -> bool:
        if path not in known:
            whole = os.path.join(workspace, path)
            rules = protected.rules.match(whole, role="read", homes=protected.homes)
            known[path] = not any(rule.forbids("read") for rule in rules)
        return known[path]

    return may_read
