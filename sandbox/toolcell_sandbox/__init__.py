"""One jail per call, usable without tools or policies: `run_in_jail(handler, spec)`.

Nothing is imported here until it is asked for: this module's import is paid in every jail.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PUBLIC = {
    "run_in_jail": "_call",
    "StdinTooLarge": "_call",
    "JailOutcome": "outcome",
    "Receipt": "outcome",
    "Usage": "outcome",
    "Timing": "outcome",
    "Pool": "pool",
    "Captured": "capture",
    "ChannelUse": "_channel",
    "Progress": "_channel",
    "JailSpec": "spec",
    "Limits": "spec",
    "Mount": "spec",
    "Network": "spec",
    "PythonHandler": "spec",
    "CommandHandler": "spec",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
