"""What a jail without namespaces has besides: folders of its own, and what it may read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from . import host
from .plan import Plan
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


class Place:
    """The folders of one jail whose root is the host's own, below a new one of the temporary one.

    Its init removes them, also when the supervisor is gone by then; only where none was started,
    `held` does. `own` is what the jail is told of them.

    Raises:
        Contained: something that must stay read-only lies in what the jail may write.
        OSError: the folders cannot be made.
    """

    def __init__(self, plan: Plan, spec: JailSpec, held: ExitStack) -> None:
        _check(plan, spec)
        self.path = os.path.realpath(tempfile.mkdtemp(prefix="toolcell-"))
        held.callback(_remove_unused, self.path)
        self._home, self._temporary, self._work, self._script = (
            os.path.join(self.path, name) for name in ("home", "tmp", "work", "command")
        )
        private = [self._home, self._temporary]
        self._has_work = spec.workspace is None or spec.workspace_mode == "scratch"
        if self._has_work:
            private.append(self._work)
        for path in private:
            os.mkdir(path, 0o700)
            # Later ones first, and nothing that a jail has put there.
            held.callback(_remove_unused, path)
        open(self._script, "wb").close()
        held.callback(_remove_unused, self._script)
        self.own: dict[str, Any] = {
            "place": self.path,
            "private": private,
            "script": self._script,
            "read_files": [*_READ_FILES, *plan.told["files"], self._script],
            "limits": {**plan.told["limits"], "disk_bytes": None},
            "other_processes": _processes_of(os.getuid()),
            **({"workspace": self._work} if self._has_work else {}),
        }

    def adjust(self, work: dict[str, Any], spec: JailSpec, *, has_script: bool) -> None:
        """Have a call's order name these folders in place of those of a private root."""
        if self._has_work:
            folder = os.path.relpath(work["cwd"], spec.workspace or "/tmp")
            work["cwd"] = os.path.normpath(os.path.join(self._work, folder))
        handler = work["handler"]
        if has_script:
            work["handler"] = {**handler, "argv": [*handler["argv"][:-1], self._script]}
        work["env"] = _environment(spec.env, self._home, self._temporary)


def _check(plan: Plan, spec: JailSpec) -> None:
    if spec.workspace is not None and spec.workspace_mode == "transaction":
        raise Contained("writes_transactional", "without namespaces nothing can be undone")
    entries = plan.told["mounts"]
    writable = [entry["path"] for entry in entries if entry["writable"]]
    for entry in entries:
        for top in writable:
            if not entry["writable"] and entry["path"].startswith(f"{top}/"):
                cause = f"{entry['path']} has to stay read-only, and lies in {top}"
                raise Contained("fs_confined", cause)


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
