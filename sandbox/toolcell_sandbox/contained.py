"""What a jail without namespaces is told besides: folders of its own, and what it may read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from . import host
from .spec import JailSpec

_READ_FILES = (
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
)
"""World-readable, and what programs look themselves up in; they have no private ones here."""


class Contained(Exception):
    """A spec that cannot be had without namespaces; `facts` as a stage would report it."""

    def __init__(self, guarantee: str, cause: str) -> None:
        super().__init__(cause)
        self.facts = {"guarantee": guarantee, "stage": "plan", "cause": cause, "errno": None}


def configuration(told: Mapping[str, Any], spec: JailSpec, held: ExitStack) -> dict[str, Any]:
    """The configuration `told`, for a jail whose root is the host's own.

    Makes the jail's folders below a new one of the temporary folder. Its init removes them,
    also when the supervisor is gone by then; only where none was started, `held` does.

    Raises:
        Contained: something that must stay read-only lies in what the jail may write.
        OSError: the folders cannot be made.
    """
    if spec.workspace is not None and spec.workspace_mode == "transaction":
        raise Contained("writes_transactional", "without namespaces nothing can be undone")
    writable = [entry["path"] for entry in told["mounts"] if entry["writable"]]
    for entry in told["mounts"]:
        for top in writable:
            if not entry["writable"] and entry["path"].startswith(f"{top}/"):
                cause = f"{entry['path']} has to stay read-only, and lies in {top}"
                raise Contained("fs_confined", cause)
    place = os.path.realpath(tempfile.mkdtemp(prefix="toolcell-"))
    held.callback(_remove_unused, place)
    home, temporary, work = (os.path.join(place, name) for name in ("home", "tmp", "work"))
    private = [home, temporary]
    more: dict[str, Any] = {}
    if spec.workspace is None or spec.workspace_mode == "scratch":
        private.append(work)
        more["workspace"] = work
        folder = os.path.relpath(told["cwd"], told["workspace"])
        more["cwd"] = os.path.normpath(os.path.join(work, folder))
    for path in private:
        os.mkdir(path, 0o700)
        # Later ones first, and nothing that a jail has put there.
        held.callback(_remove_unused, path)
    handler = dict(told["handler"])
    read_files = [*_READ_FILES, *told["files"]]
    if handler.get("script") is not None:
        script = os.path.join(place, "command")
        handler["argv"] = [*handler["argv"][:-1], script]
        open(script, "wb").close()
        held.callback(_remove_unused, script)
        read_files.append(script)
    return {
        **told,
        **more,
        "place": place,
        "private": private,
        "read_files": read_files,
        "handler": handler,
        "env": _environment(spec.env, home, temporary),
        "limits": {**told["limits"], "disk_bytes": None},
        "other_processes": _processes_of(os.getuid()),
    }


def _environment(env: Mapping[str, str], home: str, temporary: str) -> dict[str, str]:
    """The spec's, with the folders that it has here instead of a private root's."""
    base = host.base_environment()
    own = {"HOME": home, "TMPDIR": temporary}
    # A file that is there and may not be read is an error for git, unlike one that is missing.
    return {
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            name: own[name] if name in own and value == base[name] else value
            for name, value in env.items()
        },
    }


def _processes_of(uid: int) -> int:
    """Threads that this user has already: RLIMIT_NPROC counts them all (getrlimit(2))."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _remove_unused(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            os.rmdir(path)
        elif os.path.getsize(path) == 0:
            os.unlink(path)
