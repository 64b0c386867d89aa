"""The plan's hash: one name for exactly what would run, and under what."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final

# A hash of another kind of thing can never be taken for a plan's: the prefix
# names this use, the version changes with the mapping below.
_DOMAIN: Final = b"toolcell.plan\x00"
_VERSION: Final = 1


def plan_hash(
    *,
    tool_name: str,
    spec_hash: str,
    arguments: object,
    workspace: str = "",
    network: str = "none",
    waived: Iterable[str] = (),
    pack_digest: str | None = None,
    jail: Mapping[str, object] | None = None,
) -> str:
    """Return 64 hex digits that change when anything an approver agreed to changes.

    Arguments are plain JSON data. The order of keys does not count, the order
    of a list does, `1`, `1.0`, `true` and `"1"` are four different values, and
    so are the two normal forms of one accented letter. `waived` is a set.
    `jail` holds what else of the jail's spec an answer is bound to.

    Raises:
        ValueError: an argument has no JSON form: NaN, an infinity, a cycle,
            nesting beyond the recursion limit, an integer of thousands of digits.
        TypeError: an argument is not JSON data, or a key is not a string (`1`
            and `"1"` would become one key).
    """
    plan = {
        "version": _VERSION,
        "tool_name": tool_name,
        "spec_hash": spec_hash,
        "arguments": arguments,
        "workspace": workspace,
        "network": network,
        "waived": sorted(set(waived)),
        "pack_digest": pack_digest,
        "jail": dict(jail or {}),
    }
    return hashlib.sha256(_DOMAIN + _canonical(plan)).hexdigest()


def _canonical(value: object) -> bytes:
    try:
        _require_string_keys(value)
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except RecursionError:
        raise ValueError("the arguments are nested too deeply, or contain themselves") from None
    return text.encode("ascii")


def _require_string_keys(value: object) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"a key has to be a string, not {type(key).__name__}")
            _require_string_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _require_string_keys(item)
