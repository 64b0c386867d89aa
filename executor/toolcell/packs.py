"""Untrusted tool packs: described inside a jail, and believed in nothing that lowers a guard."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import trio

from toolcell._choices import chosen_isolation
from toolcell._described import WORDS
from toolcell._signature import Role
from toolcell._tool_identity import CALLABLES
from toolcell._tool_record import checked_paths
from toolcell.confinement import library_mounts, library_path
from toolcell.schema import check_foreign
from toolcell.tools import HandlerRef, Tool
from toolcell_policies import phase_admits_tool
from toolcell_policies.vocabulary import (
    AccessMode,
    CostTier,
    DangerLevel,
    ExecutionCategory,
    Phase,
    Priority,
)
from toolcell_sandbox import host
from toolcell_sandbox.spec import JailSpec, Limits, Mount, PythonHandler

__all__ = ["PackError", "ask_pack", "load_pack"]

TOOLS_MAX: Final = 200
ALIASES_MAX: Final = 16
FILE_BYTES_MAX: Final = 4 << 20
DESCRIPTION_CHARS_MAX: Final = 8_192
WORDS_MAX: Final = 64
WORD_CHARS_MAX: Final = 200
LEVEL_FLOOR: Final = 3

DESCRIBE_LIMITS: Final = Limits(wall_s=30, memory_bytes=1 << 30, processes=64, result_bytes=2 << 20)
"""Importing a pack and building its schemas; raise it for a pack that imports much."""

ASK_LIMITS: Final = Limits(wall_s=10, memory_bytes=1 << 30, processes=64, result_bytes=1 << 20)
"""Importing the pack again, and one of its own callables."""


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
    outcome = await _run(handler, run, isolation, limits, mounts)
    name = os.path.basename(path)
    if outcome.failure is not None:
        raise PackError(f"pack {name} could not be described: {_line(outcome.failure.message)}")
    try:
        # Reading it takes time that the pack decides, within the bounds; so not on the loop.
        return await trio.to_thread.run_sync(_tools, outcome.value, ref, level_floor)
    except (ValueError, TypeError) as error:
        raise PackError(f"pack {name}: {_line(str(error))}") from None


async def ask_pack(
    tool: Tool,
    what: str,
    value: object = None,
    *,
    run: RunJail | None = None,
    isolation: str | None = None,
    limits: Limits = ASK_LIMITS,
    mounts: tuple[Mount, ...] = (),
) -> Any:
    """What a pack's own `availability_check`, `paths` or `to_model_output` says, asked in a jail.

    `what` is the name of one that `tool.in_jail` has; `value` the validated arguments for `paths`,
    the result's value for `to_model_output`. The jail has no workspace and no network, and loads
    the file only while it is the one that was described. The answer is a bool, a tuple of path
    values (text, at most 1,000), or plain JSON of at most `limits.result_bytes`: the words of
    nobody who is trusted. Cancelling it ends the jail.

    Raises:
        ValueError: the tool has no such callable, or the isolation level is not offered.
        PackError: it failed, or its answer is not of that kind; the call is then to be refused.
    """
    ref = tool.handler
    if what not in tool.in_jail or not isinstance(ref, HandlerRef):
        raise ValueError(f"tool {tool.name} has no {what} that a jail is asked for")
    handler = PythonHandler(
        module=ref.module,
        qualname=ref.qualname,
        file=ref.file,
        digest=ref.digest,
        adapter="toolcell._worker:ask_pack",
        arguments={"value": value},
        context={"what": what},
        sys_path=(*ref.sys_path, *library_path()),
    )
    outcome = await _run(handler, run, isolation, limits, mounts)
    if outcome.failure is not None:
        raise PackError(f"{what} of tool {tool.name} failed: {_line(outcome.failure.message)}")
    if what == "availability_check":
        return outcome.value is True
    if what == "paths":
        try:
            return checked_paths(tool.name, outcome.value)
        except ValueError as error:
            raise PackError(_line(str(error))) from None
    return outcome.value


async def _run(
    handler: PythonHandler,
    run: RunJail | None,
    isolation: str | None,
    limits: Limits,
    mounts: tuple[Mount, ...],
) -> Outcome:
    """The outcome of a jail that sees the pack and the libraries, and nothing else."""
    if run is None:
        from toolcell_sandbox import run_in_jail

        run = run_in_jail
    spec = JailSpec(
        mounts=(Mount(path=handler.file or "", owned=True), *library_mounts(), *mounts),
        env=host.base_environment(),
        limits=limits,
        isolation=chosen_isolation(isolation),
    )
    return await run(handler, spec)


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
        made = Tool(
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
            output_schema=_output_schema(item.get("output_schema")),
            ref=HandlerRef(ref.module, qualname, ref.file, ref.digest),
            in_jail=frozenset(what for what in CALLABLES if item.get(f"has_{what}") is True),
            **_metadata(item),
        )
        return _narrowed(made, _words(item, "phases"))
    except ValueError as error:
        raise ValueError(f"tool {name!r}: {error}") from None


def _metadata(item: Mapping[str, Any]) -> dict[str, Any]:
    """What is only data about the tool. No network, no action: a pack's words can only narrow."""
    found: dict[str, Any] = {name: _words(item, name) for name in WORDS if name != "phases"}
    for name in ("is_idempotent", "fills_defaults", "takes_context", "has_metadata"):
        found[name] = item.get(name) is True
    for name, kind, default in _CHOSEN:
        value = item.get(name, default)
        # By value alone, and never by what a bool is equal to.
        if type(value) is not type(default):
            raise ValueError(f"{name} is not one of its words")
        found[name] = kind(value)
    # To be shown always, and beyond any limit, is for the user to say: 200 tools that do would
    # leave no other.
    found["priority"] = max(found["priority"], Priority.HIGH)
    forcing = found.pop("mandatory_keywords")
    found["keywords"] = tuple(dict.fromkeys((*forcing, *found["keywords"])))
    if item.get("execution_category") is not None:
        found["execution_category"] = ExecutionCategory(_text(item, "execution_category", 20))
    if "category" in item:
        found["category"] = _text(item, "category", WORD_CHARS_MAX)
    return found


_CHOSEN: Final[tuple[tuple[str, Callable[[Any], Any], Any], ...]] = (
    ("priority", Priority, Priority.MEDIUM.value),
    ("cost_tier", CostTier, CostTier.FREE.value),
    ("permission_tier", int, 0),
)


def _narrowed(tool: Tool, phases: tuple[str, ...]) -> Tool:
    """The tool in the phases that it names, as far as it would be admitted without naming any."""
    if not phases:
        return tool
    kept = tuple(p for p in Phase if p in phases and phase_admits_tool(p, None, tool))
    if not kept or not set(phases) <= set(Phase):
        raise ValueError("it names no phase that its own access mode and tier admit it to")
    return dataclasses.replace(tool, phases=kept)


def _words(item: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = item.get(key, [])
    if (
        not isinstance(value, list)
        or len(value) > WORDS_MAX
        or not all(isinstance(word, str) and len(word) <= WORD_CHARS_MAX for word in value)
    ):
        raise ValueError(
            f"{key} are not at most {WORDS_MAX} words of at most {WORD_CHARS_MAX} characters"
        )
    return tuple(value)


def _output_schema(value: Any) -> dict[str, Any] | None:
    return None if value is None else check_foreign(value, output=True)


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
