"""A handler's value as plain JSON, or what cannot be and where.

Handles str, int, float, bool, None, dict, list, tuple, dataclasses, Enum, Path, datetime,
bytes (base64, marked), and whatever has pydantic's `model_dump`.
"""

from __future__ import annotations

import base64
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEPTH_MAX = 64
INT_MAX = 1 << 63


class NotJsonable(Exception):
    """The value at `where` has no JSON form; `why` says so in words."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


def plain(value: Any, where: str = "$", depth: int = 0) -> Any:
    """The JSON-able form of `value`.

    Raises:
        NotJsonable: somewhere in it is what JSON cannot say, or not exactly.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return _text(value, where)
    if kind is int:
        if not -INT_MAX <= value < INT_MAX:
            raise NotJsonable(where, "integer beyond 64 bits; return it as text")
        return value
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJsonable(where, f"{value} is not a JSON number")
        return value
    if depth >= DEPTH_MAX:
        raise NotJsonable(where, f"nested deeper than {DEPTH_MAX}, or holds itself")
    if isinstance(value, dict):
        return _mapping(value, where, depth)
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    return _rich(value, where, depth)


def _text(value: str, where: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        why = "text with a lone surrogate (a file name that is not UTF-8?); return it as bytes"
        raise NotJsonable(where, why) from None
    return value


def _mapping(value: dict[Any, Any], where: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = plain(key, f"{where} (a key)", depth + 1)
        if isinstance(name, bool) or name is None or not isinstance(name, str | int | float):
            raise NotJsonable(where, f"a key of type {type(key).__name__}")
        text = name if isinstance(name, str) else str(name)
        if text in found:
            raise NotJsonable(where, f"two keys that are both {text!r} as text")
        found[text] = plain(item, f"{where}.{text}", depth + 1)
    return found


def _rich(value: Any, where: str, depth: int) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode("ascii")}
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return plain(dump(value, mode="json"), where, depth + 1)
    dataclasses = sys.modules.get("dataclasses")
    if dataclasses is not None and hasattr(type(value), "__dataclass_fields__"):
        # Not all of __dataclass_fields__: it also lists ClassVars and InitVars.
        names = [field.name for field in dataclasses.fields(value)]
        return {n: plain(getattr(value, n), f"{where}.{n}", depth + 1) for n in names}
    if isinstance(value, os.PathLike):
        return _text(os.fsdecode(os.fspath(value)), where)
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return plain(value.value, where, depth + 1)
    if isinstance(value, str | int | float):
        base = next(b for b in (str, int, float) if isinstance(value, b))
        return plain(base(value), where, depth + 1)
    module, name = type(value).__module__, type(value).__qualname__
    if module == "datetime" and hasattr(value, "isoformat"):
        return value.isoformat()
    raise NotJsonable(where, f"{module}.{name} has no JSON form")
