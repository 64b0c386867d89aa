"""Untrusted tool packs: described inside a jail, and believed in nothing that lowers a guard."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import trio

from toolcell._choices import chosen_isolation
from toolcell._signature import Role
from toolcell.confinement import library_mounts, library_path
from toolcell.schema import check_foreign
from toolcell.tools import HandlerRef, Tool
from toolcell_policies.vocabulary import AccessMode, DangerLevel
from toolcell_sandbox import host
from toolcell_sandbox.spec import JailSpec, Limits, Mount, PythonHandler

__all__ = ["PackError", "load_pack"]

TOOLS_MAX: Final = 200
ALIASES_MAX: Final = 16
FILE_BYTES_MAX: Final = 4 << 20
DESCRIPTION_CHARS_MAX: Final = 8_192
LEVEL_FLOOR: Final = 3

DESCRIBE_LIMITS: Final = Limits(wall_s=30, memory_bytes=1 << 30, processes=64, result_bytes=2 << 20)
"""Importing a pack and building its schemas; raise it for a pack that imports much."""


class PackError(Exception):
    """A pack could not be used; one line, worded for the person who named it."""


class Outcome(Protocol):
    """What is read of a `toolcell_sandbox` jail's outcome."""

    @property
    def value(self) -> Any: ...
    @property
    def failure(self) -> Any: ...


RunJail = Callable[[PythonHandler, JailSpec], Awaitable[Outcome]]


async def load_pack(
    file: str | os.PathLike[str],
    *,
    run: RunJail | None = None,
    isolation: str | None = None,
    limits: Limits = DESCRIBE_LIMITS,
    level_floor: int = LEVEL_FLOOR,
    mounts: tuple[Mount, ...] = (),
) -> list[Tool]:
    """The tools at the top level of a Python file that nobody here trusts.

    The file is imported in a jail without workspace and network, which answers with plain
    data; that answer is bounded and checked like any hostile input. Each tool's handler is
    bound to the file's sha256. No word of the pack brings a tool below `level_floor`; only the
    user's own configuration should pass a lower one. Cancelling it ends the jail.

    `isolation` is the level of that jail: by default TOOLCELL_ISOLATION, else standard. Nothing
    of it is ever waived, since the pack's code runs before anybody could be asked about it.

    Raises:
        ValueError: the isolation level is not offered.
        PackError: the file cannot be read, the pack fails to import, or its answer is not sound.
    """
    path, digest = _identified(os.fspath(file))
    ref = HandlerRef(_module_name(path), "", path, digest)
    handler = PythonHandler(
        module=ref.module,
        qualname="",
        file=path,
        digest=digest,
        adapter="toolcell._worker:describe_pack",
        sys_path=library_path(),
    )
    seen = (Mount(path=path, owned=True), *library_mounts(), *mounts)
    spec = JailSpec(
        mounts=seen,
        env=host.base_environment(),
        limits=limits,
        isolation=chosen_isolation(isolation),
    )
    if run is None:
        from toolcell_sandbox import run_in_jail

        run = run_in_jail
    outcome = await run(handler, spec)
    name = os.path.basename(path)
    if outcome.failure is not None:
        raise PackError(f"pack {name} could not be described: {_line(outcome.failure.message)}")
    try:
        # Reading it takes time that the pack decides, within the bounds; so not on the loop.
        return await trio.to_thread.run_sync(_tools, outcome.value, ref, level_floor)
    except (ValueError, TypeError) as error:
        raise PackError(f"pack {name}: {_line(str(error))}") from None


def _identified(file: str) -> tuple[str, str]:
    """The real path of a pack and the sha256 of its content."""
    name = os.path.basename(file)
    try:
        path = os.path.realpath(file)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PackError(f"pack {_line(name)} cannot be opened: {reason}") from None
    try:
        # Before it becomes a file object: os.fdopen refuses a folder with an error of its own.
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not path.endswith(".py"):
            raise PackError(f"pack {_line(name)} is not a Python file (.py)")
        with os.fdopen(fd, "rb", closefd=False) as source:
            content = source.read(FILE_BYTES_MAX + 1)
    finally:
        os.close(fd)
    if len(content) > FILE_BYTES_MAX:
        raise PackError(f"pack {_line(name)} is larger than {FILE_BYTES_MAX} bytes")
    return path, hashlib.sha256(content).hexdigest()


def _module_name(path: str) -> str:
    stem = os.path.basename(path).removesuffix(".py")
    # With a prefix, so that a pack called json.py is not what others import as json.
    return "toolcell_pack_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in stem)


def _tools(value: Any, ref: HandlerRef, level_floor: int) -> list[Tool]:
    if not isinstance(value, list):
        raise ValueError("its description is not a list of tools")
    if len(value) > TOOLS_MAX:
        raise ValueError(f"it has more than {TOOLS_MAX} tools")
    found = [_tool(item, ref, level_floor) for item in value]
    if not found:
        raise ValueError("it has no tool at the top level: decorate a function with @tool")
    owners: dict[str, str] = {}
    for tool in found:
        for name in (tool.name, *tool.aliases):
            if name in owners:
                raise ValueError(f"the name {name} is used by {owners[name]} and by {tool.name}")
            owners[name] = tool.name
    return found


def _tool(item: Any, ref: HandlerRef, level_floor: int) -> Tool:
    if not isinstance(item, Mapping):
        raise ValueError("a tool's description is not an object")
    qualname = _text(item, "qualname", 200)
    if not qualname.isidentifier():
        raise ValueError("a tool is not a name at the top level of the module")
    name = _text(item, "name", 64)
    try:
        schema = check_foreign(item.get("input_schema"))
        return Tool(
            name=name,
            description=_text(item, "description", DESCRIPTION_CHARS_MAX),
            access_mode=AccessMode(_text(item, "access_mode", 20)),
            danger_level=DangerLevel(_text(item, "danger_level", 20)),
            aliases=_aliases(item.get("aliases")),
            path_params=_roles(item.get("path_params"), schema),
            limits=_limits(item.get("limits")),
            timeout_s=_seconds(item.get("timeout_s")),
            level_floor=level_floor,
            schema=schema,
            ref=HandlerRef(ref.module, qualname, ref.file, ref.digest),
        )
    except ValueError as error:
        raise ValueError(f"tool {name!r}: {error}") from None


def _text(item: Mapping[str, Any], key: str, longest: int) -> str:
    value = item.get(key)
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(f"{key} is not text of at most {longest} characters")
    return value


def _aliases(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > ALIASES_MAX:
        raise ValueError(f"aliases are not a list of at most {ALIASES_MAX} names")
    if not all(isinstance(alias, str) for alias in value):
        raise ValueError("aliases are not text")
    return tuple(value)


def _roles(value: Any, schema: dict[str, Any]) -> dict[str, Role]:
    properties = schema.get("properties", {})
    if not isinstance(value, Mapping) or not value.keys() <= properties.keys():
        raise ValueError("path_params name what is no argument")
    if not all(role in ("read", "write") for role in value.values()):
        raise ValueError("path_params say something else than read or write")
    return dict(value)


def _limits(value: Any) -> Limits | None:
    if value is None:
        return None
    try:
        return Limits(**value)
    except TypeError:
        raise ValueError("limits are not what Limits takes") from None


def _seconds(value: Any) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise ValueError("timeout_s is not a number of seconds")


def _line(text: str) -> str:
    """Untrusted text as one printable line."""
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in flat)[:500]
