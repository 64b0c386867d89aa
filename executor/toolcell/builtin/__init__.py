"""The eight tools that are there by default; handlers run in jails, but for `read_retained`.

Handlers import the standard library and toolcell's own light modules only: their import is paid
in every call. What they say about themselves stands here, in the supervisor.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcell.tools import Tool

__all__ = ["builtin_tools", "search_tool"]


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    """The input schemas as they are computed from the functions: reading them spares each command
    line the import of pydantic. A test keeps them the same byte for byte."""
    import json
    from pathlib import Path

    found: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("schemas.json").read_text(encoding="utf-8")
    )
    return found


@cache
def search_tool() -> Tool:
    """`search_tools`, for a registry with deferred tools: `registry.register(search_tool())`."""
    from toolcell._answered import SupervisorRef
    from toolcell.builtin import catalogue
    from toolcell.tools import made
    from toolcell_policies.vocabulary import AccessMode

    return made(
        catalogue.search_tools,
        schema=_schemas()["search_tools"],
        access_mode=AccessMode.READONLY,
        trusted=True,
        is_idempotent=True,
        ref=SupervisorRef(f"{catalogue.__name__}:{catalogue.answer.__name__}"),
    )


@cache
def builtin_tools() -> tuple[Tool, ...]:
    """read_file, list_directory, search, write_file, edit_file, shell, python, read_retained.

    The same objects each time, so that their schemas are computed once.
    """
    from toolcell._answered import SupervisorRef
    from toolcell.builtin import edit, files, python, retained, search, shell
    from toolcell.tools import CommandRef, made
    from toolcell_policies.vocabulary import AccessMode

    reading: dict[str, Any] = {
        "access_mode": AccessMode.READONLY,
        "trusted": True,
        "is_idempotent": True,
    }
    command = CommandRef(f"{shell.__name__}:{shell.shell.__name__}")
    writing: dict[str, Any] = {"access_mode": AccessMode.WRITE, "trusted": True}
    schemas = _schemas()
    return (
        made(files.read_file, schema=schemas["read_file"], **reading),
        made(files.list_directory, schema=schemas["list_directory"], **reading),
        made(search.search, schema=schemas["search"], **reading),
        made(files.write_file, schema=schemas["write_file"], **writing),
        made(edit.edit_file, schema=schemas["edit_file"], **writing),
        made(
            shell.shell,
            schema=schemas["shell"],
            access_mode=AccessMode.EXECUTE,
            trusted=True,
            timeout_param="timeout_s",
            ref=command,
        ),
        made(
            python.run,
            name="python",
            schema=schemas["python"],
            access_mode=AccessMode.EXECUTE,
            trusted=True,
            timeout_param="timeout_s",
        ),
        made(
            retained.read_retained,
            schema=schemas["read_retained"],
            **reading,
            ref=SupervisorRef(f"{retained.__name__}:{retained.answer.__name__}"),
        ),
    )
