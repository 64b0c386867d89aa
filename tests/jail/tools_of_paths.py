"""A tool for the path corpus: many paths opened by `read_file`'s own code in one jail."""

from __future__ import annotations

from toolcell import ToolError, tool
from toolcell._worker import decode
from toolcell.builtin.files import read_file


@tool
def use_all(places: dict[str, str]) -> dict[str, list[str]]:
    """Read each path as a call of `read_file` would that was decided to lead there."""
    return {path: _used(path, place) for path, place in places.items()}


def _used(path: str, place: str) -> list[str]:
    try:
        found = decode(read_file, {"path": path}, {"settled_paths": {path: place}})()
    except ToolError as error:
        return ["tool_error", str(error)]
    except Exception as error:  # noqa: BLE001 # told, and compared with what was expected
        return ["raised", repr(error)]
    assert isinstance(found, dict)
    return ["told", str(next(iter(found.values()))["output"])]
