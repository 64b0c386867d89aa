"""Decision and tool to a jail: what of the host it sees, and how its handler is found there."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolcell._command_facts import start_folder
from toolcell.tools import CommandRef, HandlerRef, Tool
from toolcell_policies import AccessMode
from toolcell_sandbox import host
from toolcell_sandbox.spec import (
    CommandHandler,
    Handler,
    JailSpec,
    Limits,
    Mount,
    PythonHandler,
    WorkspaceMode,
)

if TYPE_CHECKING:
    from toolcell._choices import Choices

_log = logging.getLogger("toolcell")

_SYSTEM = ("/boot", "/dev", "/etc", "/proc", "/sys")
SHARED_FOLDERS = ("/home", "/opt", "/run", "/srv", "/var/lib")
"""No project by themselves; what lies below one may be."""

ADAPTER = "toolcell._worker:decode"
AHEAD = (
    "toolcell._worker",
    "toolcell.context",
    "toolcell.builtin.files",
    "toolcell.builtin.edit",
    "toolcell.builtin.search",
    "toolcell.builtin.python",
)
"""Our own modules of handlers and around them: an executor's jails have imported them already."""
_WRITERS = frozenset({AccessMode.WRITE, AccessMode.EXECUTE, AccessMode.MIXED})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The folder that tools work in, by its real path, and what it was when it was opened.

    Raises:
        ValueError: it is no folder, or one that no tool may be given: `/`, a home, our own
            state, the running interpreter, or something that holds one of them.
    """

    path: str
    identity: tuple[int, int]

    @classmethod
    def open(cls, path: str, *, state_dir: str) -> Workspace:
        """Check a folder and take its identity."""
        real = os.path.realpath(os.fspath(path))
        if not os.path.isdir(real):
            raise ValueError(f"the workspace {path!r} is not a folder; name one with --workspace")
        for what, other in (
            ("the root folder", "/"),
            *((f"a jail's private {private}", private) for private in host.PRIVATE_FOLDERS),
            ("your home folder", os.path.realpath(os.path.expanduser("~"))),
            ("toolcell's own state", os.path.realpath(state_dir)),
            ("toolcell's own state", os.path.abspath(state_dir)),
        ):
            if holds(real, other):
                raise ValueError(
                    f"the workspace {real!r} is or holds {what}; name a project folder "
                    "with --workspace"
                )
        if real in SHARED_FOLDERS:
            raise ValueError(f"the workspace {real!r} is shared by many; name a folder below it")
        for folder in (*host.interpreter_folders(), *own_roots(), *_SYSTEM, *host.SYSTEM_FOLDERS):
            if holds(folder, real):
                raise ValueError(
                    f"the workspace {real!r} lies in {folder!r}, which stays read-only"
                )
        _refuse_replaceable(real)
        found = os.stat(real)
        return cls(path=real, identity=(found.st_dev, found.st_ino))


def _refuse_replaceable(workspace: str) -> None:
    """Refuse a workspace in which a tool could put another interpreter in the running one's place.

    A folder there is kept read-only; a link on the way to it cannot be.
    """
    kept = (*host.interpreter_folders(), *own_roots())
    for link in host.links_to_interpreter():
        if holds(workspace, link) and not any(holds(folder, link) for folder in kept):
            raise ValueError(
                f"the running interpreter is reached through the link {link!r}, which a tool could "
                "replace; use a virtual environment without links inside the workspace"
            )
    home = os.path.realpath(os.path.expanduser("~"))
    for folder in host.interpreter_folders():
        if not folder.startswith("/usr") and holds(folder, home):
            raise ValueError(
                f"the running interpreter's folder {folder!r} is or holds your home folder, which "
                "a jail must not see; use a virtual environment in a folder of its own"
            )
    if any(os.path.realpath(entry or ".") == workspace for entry in sys.path):
        _log.info(
            "the workspace is on sys.path: what a tool writes there, this process may import; "
            "start it with `python -P`"
        )


def holds(outer: str, inner: str) -> bool:
    """Whether `inner` is `outer` or lies below it."""
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


@functools.cache
def own_roots() -> tuple[str, ...]:
    """The folders that toolcell's three packages lie in."""
    import toolcell_policies
    import toolcell_sandbox

    packages = (toolcell_policies, toolcell_sandbox, sys.modules["toolcell"])
    files = [str(package.__file__) for package in packages]
    return tuple(
        dict.fromkeys(os.path.dirname(os.path.dirname(os.path.realpath(f))) for f in files)
    )


@functools.cache
def library_path() -> tuple[str, ...]:
    """What a handler may import from: site-packages and toolcell, never the caller's folder."""
    trusted = (*host.interpreter_folders(), *own_roots(), "/usr")
    found = [os.path.realpath(entry) for entry in sys.path[1:] if entry and os.path.isdir(entry)]
    kept = [entry for entry in found if any(holds(root, entry) for root in trusted)]
    standard = os.path.realpath(os.path.dirname(os.__file__))
    rest = [entry for entry in kept if entry != standard and not entry.endswith("lib-dynload")]
    return tuple(dict.fromkeys((*rest, *own_roots())))


def ahead_path() -> tuple[str, ...]:
    """Where modules are looked for that jails have imported already, outside of any jail.

    Our own first, then the installed packages: what this process itself trusts, and what no jail
    may write; never the folder that it was started in.
    """
    return tuple(dict.fromkeys((*own_roots(), *library_path())))


def _handler_mounts(ref: HandlerRef) -> list[Mount]:
    if ref.file is None:
        return []
    if not ref.sys_path:
        return [Mount(path=ref.file, owned=True)]
    package = ref.module.partition(".")[0]
    return [Mount(path=os.path.join(root, package), owned=True) for root in ref.sys_path]


def imported_from(workspace: str) -> tuple[str, ...]:
    """What this process imports from inside the workspace: a jail must not write its next import.

    The workspace itself cannot be kept from being written; see `Workspace.open`.
    """
    found = [os.path.realpath(entry) for entry in sys.path if entry and os.path.exists(entry)]
    inside = [path for path in (*found, *own_roots()) if holds(workspace, path)]
    return tuple(dict.fromkeys(path for path in inside if path != workspace))


def library_mounts() -> tuple[Mount, ...]:
    """What `library_path` names beyond the interpreter's own folders, read-only."""
    shown = (*host.interpreter_folders(), "/usr")
    return tuple(
        Mount(path=path, owned=True)
        for path in dict.fromkeys((*own_roots(), *library_path()))
        if not any(holds(folder, path) for folder in shown)
    )


def _hidden_frames(tool: Tool, ref: HandlerRef) -> tuple[str, ...]:
    """Folders whose frames are no part of a handler's own traceback: ours, and the libraries'."""
    ours = (os.path.dirname(os.path.realpath(__file__)) + os.sep,)
    if ref.file is None and not tool.trusted:
        return ours  # An installed handler's own frames lie among the libraries.
    return (*ours, os.path.dirname(os.path.realpath(os.__file__)) + os.sep, *library_path())


def writes(tool: Tool) -> bool:
    """Whether a tool may change anything, by its own word: it writes, executes, or is mixed."""
    return tool.access_mode in _WRITERS


def limits_for(tool: Tool, arguments: Mapping[str, Any], limits: Limits) -> Limits:
    """The stricter of the caller's limits, the tool's own, and the call's own timeout."""
    if tool.limits is not None:
        limits = limits.tightened(tool.limits)
    asked = arguments.get(tool.timeout_param) if tool.timeout_param else None
    for wall_s in (tool.timeout_s, asked):
        if isinstance(wall_s, int | float) and wall_s > 0:
            limits = dataclasses.replace(limits, wall_s=min(limits.wall_s, wall_s))
    return limits


def confine(
    tool: Tool,
    arguments: dict[str, Any],
    *,
    workspace: Workspace,
    limits: Limits,
    choices: Choices,
    mode: WorkspaceMode,
    context: Mapping[str, Any],
    settled: Mapping[str, str],
) -> tuple[Handler, JailSpec]:
    """The jail that this call gets: what it may write depends on the tool's word and on `mode`.

    The arguments are not part of the spec; they travel with the handler. `settled` says where
    each path among them led when it was decided on: a built-in tool opens that, and no link.
    """
    mounts = list(library_mounts())
    mounts += choices.folders.mounts(workspace.path, mode, writes=writes(tool))
    if mode in ("direct", "transaction"):
        mounts += [Mount(path=path, owned=True) for path in imported_from(workspace.path)]
    handler: Handler
    cwd = workspace.path
    if isinstance(tool.handler, CommandRef):
        argv, folder, script = tool.handler.command(arguments)
        cwd = start_folder(cwd, folder, settled)
        handler = CommandHandler(argv=argv, script=script)
    else:
        ref = tool.handler
        assert isinstance(ref, HandlerRef), "the supervisor answers it: there is no jail"
        mounts += _handler_mounts(ref)
        handler = PythonHandler(
            module=ref.module,
            qualname=ref.qualname,
            arguments=arguments,
            file=ref.file,
            digest=ref.digest,
            sys_path=(*ref.sys_path, *library_path()),
            adapter=ADAPTER,
            context={
                **context,
                **ref.words(),
                **({"settled_paths": settled} if tool.trusted else {}),
            },
            hidden=_hidden_frames(tool, ref),
            channel=tool.takes_context,
        )
    spec = JailSpec(
        workspace=workspace.path,
        workspace_identity=workspace.identity,
        workspace_mode=mode,
        cwd=cwd,
        mounts=tuple(mounts),
        env={**host.base_environment(), **choices.environment},
        limits=limits,
        network=choices.network_of(tool),
        isolation=choices.isolation,
        waive=choices.waive,
    )
    return handler, spec
