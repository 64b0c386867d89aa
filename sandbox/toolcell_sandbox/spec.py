"""What one jail is to be: its handler, its view of the host, its limits.

Everything here is plain data that travels to the jail as JSON; nothing here touches the kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d{1,20})(\.\d{1,20})?\s*(?:([kmgt])(?:i?b)?|b)?", re.ASCII | re.IGNORECASE)

MAX_SIZE_BYTES = 1 << 62
"""Above any rlimit a kernel takes for granted, below the sign bit of a 64-bit field."""


def parse_size(value: int | str) -> int:
    """Bytes from an integer or from text such as "2GiB", "64M", "512k" (binary multiples).

    Raises:
        ValueError: the text is not a size, or it is negative or absurdly large.
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not a size: write bytes, or a number with K, M, G or T")
        unit = _UNITS[(match[3] or "").lower()]
        size = int(match[1]) * unit + int(float(match[2] or 0) * unit)
    elif isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a size: write bytes, or text such as '64M'")
    else:
        size = value
    if not 0 <= size <= MAX_SIZE_BYTES:
        raise ValueError(f"{value!r} is out of range for a size: 0 to {MAX_SIZE_BYTES} bytes")
    return size


OPEN_FILES_MIN = 32
"""What a jail needs to be built with, and a little more."""

_SIZES = (
    "memory_bytes",
    "file_size_bytes",
    "disk_bytes",
    "head_bytes",
    "tail_bytes",
    "result_bytes",
    "stdin_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call may use. Sizes are bytes, or text such as "64M"; times are seconds.

    `cpu_s` bounds the whole tree, by the watch or its control group's figure, with a wider
    RLIMIT_CPU for each process behind it. `processes` counts threads too (RLIMIT_NPROC,
    getrlimit(2)). `head_bytes` and `tail_bytes` are kept of each of stdout and stderr; what lies
    between is counted and dropped. `output_bytes` ends a call that writes more to the two of them
    together; None never does.

    Raises:
        ValueError: a value is negative, not finite, or of the wrong type.
    """

    wall_s: float = 120.0
    cpu_s: float | None = None
    memory_bytes: int = 2 << 30
    processes: int = 256
    file_size_bytes: int = 512 << 20
    disk_bytes: int = 1 << 30
    disk_files: int = 200_000
    open_files: int = 1_024
    head_bytes: int = 32 << 10
    tail_bytes: int = 32 << 10
    result_bytes: int = 8 << 20
    stdin_bytes: int = 64 << 20
    output_bytes: int | None = None

    if TYPE_CHECKING:
        # What a caller may write; the fields then hold whole numbers of bytes.
        def __init__(
            self,
            *,
            wall_s: float = ...,
            cpu_s: float | None = ...,
            memory_bytes: int | str = ...,
            processes: int = ...,
            file_size_bytes: int | str = ...,
            disk_bytes: int | str = ...,
            disk_files: int = ...,
            open_files: int = ...,
            head_bytes: int | str = ...,
            tail_bytes: int | str = ...,
            result_bytes: int | str = ...,
            stdin_bytes: int | str = ...,
            output_bytes: int | str | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in _SIZES:
            object.__setattr__(self, name, _named(name, parse_size, getattr(self, name)))
        if self.output_bytes is not None:
            size = _named("output_bytes", parse_size, self.output_bytes)
            object.__setattr__(self, "output_bytes", size)
        for name, least in (("processes", 1), ("disk_files", 16), ("open_files", OPEN_FILES_MIN)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
                raise ValueError(
                    f"{name} must be a whole number of at least {least}, not {value!r}"
                )
        for name in ("wall_s", "cpu_s"):
            value = getattr(self, name)
            if value is None and name == "cpu_s":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
                raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
        for name, least in (
            ("memory_bytes", 1 << 20),
            ("disk_bytes", 1 << 16),
            ("result_bytes", 64),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def tightened(self, other: Limits) -> Self:
        """The stricter of the two, limit by limit."""
        least: dict[str, Any] = {
            f.name: _least(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        }
        return type(self)(**least)


def _named(name: str, parse: Callable[[Any], int], value: object) -> int:
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _least(a: float | None, b: float | None) -> float | None:
    return min((x for x in (a, b) if x is not None), default=None)


NetworkKind = Literal["none", "loopback", "host"]
WorkspaceMode = Literal["transaction", "read_only", "scratch", "direct"]
Isolation = Literal["standard", "hardened", "container"]


@dataclass(frozen=True, slots=True)
class Network:
    """What a jail can reach. Build it by name: `Network.none()`."""

    kind: NetworkKind = "none"

    def __post_init__(self) -> None:
        _one_of("network", self.kind, NetworkKind)

    @classmethod
    def none(cls) -> Self:
        """A network namespace of its own, without even a loopback that is up."""
        return cls("none")

    @classmethod
    def loopback(cls) -> Self:
        """A network namespace of its own, with a loopback that no other jail shares."""
        return cls("loopback")

    @classmethod
    def host(cls) -> Self:
        """The host's network, whole: a choice by name, listed in `receipt.waived`."""
        return cls("host")


def _one_of(name: str, value: object, options: Any) -> None:
    if value not in get_args(options):
        offered = ", ".join(get_args(options))
        raise ValueError(f"{name} {value!r} is not offered; choose one of: {offered}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One host path that the jail sees at the same path.

    `optional` mounts are left out where the host has no such path. `owned` marks what belongs
    to the supervisor's own user rather than to the system: for a root supervisor it is id-mapped,
    so that the worker reads what only root may read. With `identity`, its (st_dev, st_ino), what
    is another file or folder by the start is refused. `layered` shows a folder through an overlay
    of its own, without what `JailSpec.masks` names in it, and with none of its sockets, FIFOs and
    locks.
    """

    path: str
    writable: bool = False
    optional: bool = False
    owned: bool = False
    identity: tuple[int, int] | None = None
    layered: bool = False

    def __post_init__(self) -> None:
        if self.layered and self.writable:
            raise ValueError("a folder that is written in place is not layered")
        # normpath() of "//x" is "//x": POSIX lets a host give two slashes a meaning.
        normal = os.path.normpath(self.path) == self.path and not self.path.startswith("//")
        if not os.path.isabs(self.path) or not normal or "\0" in self.path:
            raise ValueError(f"a mount needs an absolute, normal path, not {self.path!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonHandler:
    """A Python callable that runs in the jail's own interpreter.

    Found as `module` + `qualname`, or, with `file`, in that file loaded as `module`. With
    `digest` (sha256, hex) the file's bytes are checked again by the jail, on the very
    descriptor that it runs. `sys_path` is appended after confinement. `arguments` become
    keyword arguments. With `channel` it has a line to its supervisor while it runs
    (`toolcell_sandbox._child.channel`), which no program that it starts inherits.
    """

    module: str
    qualname: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    channel: bool = False
    file: str | None = None
    digest: str | None = None
    sys_path: tuple[str, ...] = ()
    adapter: str | None = None
    """`module:function`: `adapter(target, arguments, context)` makes the call to be run instead."""
    context: Mapping[str, object] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    """Folders whose frames are not the handler's own and stay out of its tracebacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHandler:
    """A program that replaces the worker by execve(2); no shell is involved.

    `argv[0]` without a slash is looked up in the jail's PATH, inside the jail. `script` becomes
    a read-only file of the jail's own, whose path is the last word: so it may be longer than
    the 128 KiB of a word (execve(2)), and stands in no command line.
    """

    argv: tuple[str, ...]
    script: str | None = None

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("a command needs at least the program's name")
        if any("\0" in word for word in self.argv):
            raise ValueError("a command's words cannot hold NUL bytes (execve(2))")


Handler = PythonHandler | CommandHandler


def _base_environment() -> dict[str, str]:
    from .host import base_environment

    return base_environment()


def check_environment(env: Mapping[str, str]) -> None:
    """Refuse what execve(2) would misread.

    Raises:
        ValueError: a name is empty or holds "=", or something is no text or holds NUL.
    """
    for name, value in env.items():
        if (
            not all(isinstance(x, str) for x in (name, value))
            or not name
            or "=" in name
            or "\0" in name + value
        ):
            raise ValueError(f"{name!r} cannot be an environment variable's name and value")


@dataclass(frozen=True, slots=True, kw_only=True)
class JailSpec:
    """All that decides what a call can see and use, without the call's own arguments.

    `workspace` is seen at its own absolute path and is the working directory, unless `cwd`
    names a folder below it. In mode `read_only` it can be read; in `transaction` also changed, in
    a layer of the jail's own, which `run_in_jail` hands over at the end and which is gone
    otherwise; in `direct` changed in place (a choice by name: nothing is undone); and in `scratch`
    the jail has an empty folder of its own there, gone with it. `masks` names, for the workspace
    and for each layered mount, what is absent from it for the jail, by paths relative to it.
    `mounts` come on top of the system folders. `env` is the whole environment,
    `host.base_environment()` by default; nothing of the supervisor's is inherited.

    `isolation` names the guarantees that must hold, or the call fails closed
    (`guarantees.LEVELS`); `waive` names those of them that it may do without.

    Raises:
        ValueError: a choice is not offered, or the environment is not one.
    """

    workspace: str | None = None
    workspace_identity: tuple[int, int] | None = None
    """Its (st_dev, st_ino); a folder that is another by now is refused at the start."""
    workspace_mode: WorkspaceMode = "read_only"
    masks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cwd: str | None = None
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=_base_environment)
    limits: Limits = field(default_factory=Limits)
    network: Network = field(default_factory=Network.none)
    isolation: Isolation = "standard"
    waive: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_environment(self.env)
        _one_of("workspace_mode", self.workspace_mode, WorkspaceMode)
        _one_of("isolation", self.isolation, Isolation)
        check_waivers(self.waive)
        for paths in self.masks.values():
            for path in paths:
                if any(name in ("", ".", "..") for name in path.split("/")) or "\0" in path:
                    raise ValueError(f"{path!r} is no path inside a folder that could be masked")


GUARANTEES = (
    "fs_confined",
    "paths_masked",
    "writes_transactional",
    "net_blocked",
    "net_loopback",
    "syscalls_filtered",
    "tree_killed",
    "memory_limited",
    "processes_limited",
    "cpu_limited",
    "files_limited",
    "disk_limited",
    "env_scrubbed",
    "fds_closed",
    "no_new_privileges",
    "signals_scoped",
    "ipc_private",
    "devices_minimal",
)
"""Every promise that a receipt can list."""

NEVER_WAIVED = ("fs_confined", "tree_killed", "no_new_privileges", "env_scrubbed", "fds_closed")
"""Without these there is no jail left: nothing that is run could be called confined."""


def check_waivers(names: Iterable[str] | str) -> None:
    """Refuse what cannot be waived.

    Raises:
        ValueError: a name is no guarantee, or one that is never waived; or it is one text.
    """
    if isinstance(names, str):
        raise ValueError(f"waive takes a list of names, such as [{names!r}]")
    for name in names:
        if name not in GUARANTEES:
            offered = ", ".join(each for each in GUARANTEES if each not in NEVER_WAIVED)
            raise ValueError(f"{name!r} is no guarantee that can be waived; these are: {offered}")
        if name in NEVER_WAIVED:
            raise ValueError(f"{name} is never waived: without it there is no jail")
