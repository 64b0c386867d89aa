"""What a jail is made of before its call is known: worked out once per spec, and its name.

Two calls whose specs differ only in what `Order` holds can have the same jail. Everything else is
in the key, so that a jail is never given to a call that it was not made for.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import host
from ._child.mounts import SCRIPT
from .guarantees import Broken, Offer, Promise, promise
from .spec import CommandHandler, Handler, JailSpec, Mount

_LATE_LIMITS = ("wall_s", "head_bytes", "tail_bytes", "result_bytes", "stdin_bytes", "output_bytes")
"""What the supervisor sees to by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to build the jails of a spec."""

    key: str
    agreed: Promise
    """What holds for a call in such a jail."""
    told: Mapping[str, Any]
    keeps: bool
    """Whether the workspace's changes go into a layer that outlives the jail."""
    seen: tuple[tuple[str, tuple[int, int] | None], ...]
    """What of the host it sees: each path, and the (st_dev, st_ino) that it must have."""


def plan_of(spec: JailSpec, offer: Offer) -> Plan | Broken:
    """The plan for a spec on a host that offers this; worked out once for all specs alike.

    Raises:
        ValueError: the workspace is a folder that has to stay read-only; or it, or a mount, would
            take the place of one that a jail has of its own.
    """
    key = _key(spec)
    with _known_lock:
        known = _known.get(key)
    if known is None or known[0] is not offer:
        agreed = promise(spec, offer)
        known = offer, agreed if isinstance(agreed, Broken) else _made(spec, agreed)
    with _known_lock:
        # The one used last comes last.
        _known.pop(key, None)
        _known[key] = known
        while len(_known) > _KNOWN_MAX:
            del _known[next(iter(_known))]
    return known[1]


_known_lock = threading.Lock()
"""Several event loops of one process, a thread each, share the plans."""
_known: dict[tuple[object, ...], tuple[Offer, Plan | Broken]] = {}
_KNOWN_MAX = 64


def _key(spec: JailSpec) -> tuple[object, ...]:
    limits = spec.limits
    return (
        spec.workspace,
        spec.workspace_identity,
        spec.workspace_mode,
        spec.mounts,
        tuple(host.network_files().items()) if spec.network.kind == "host" else spec.network,
        spec.isolation,
        tuple(spec.waive),
        limits.cpu_s,
        limits.memory_bytes,
        limits.processes,
        limits.file_size_bytes,
        limits.disk_bytes,
        limits.disk_files,
        limits.open_files,
    )


def _made(spec: JailSpec, agreed: Promise) -> Plan:
    mounts = _mounts(spec)
    keeps = spec.workspace is not None and spec.workspace_mode == "transaction"
    layered = "overlay" in agreed.layers
    if agreed.way == "namespaces":
        _refuse_covered(spec, mounts)
    shared = {mount.path for mount in host.interpreter_mounts()}
    private = [*host.PRIVATE_FOLDERS, *_scratch_workspace(spec)]
    # What lies in one of these has to be laid after it: as a piece of every root it would be
    # covered, and written to in its place.
    tops = [*private, *(mount.path for mount in mounts if mount.path not in shared)]
    entries = [
        {
            **asdict(mount),
            # Unless it can be had, what would be layered is shown as it is, read-only.
            "layered": mount.layered and layered,
            "keeps": keeps and mount.path == spec.workspace,
            "identity": spec.workspace_identity if mount.path == spec.workspace else mount.identity,
            "shared": mount.path in shared
            and not mount.writable
            and not any(mount.path.startswith(f"{top}/") for top in tops),
        }
        for mount in sorted(mounts, key=lambda mount: mount.path.split("/"))
    ]
    limits = {k: v for k, v in asdict(spec.limits).items() if k not in _LATE_LIMITS}
    told: dict[str, Any] = {
        "way": agreed.way,
        "layers": sorted(agreed.layers),
        "landlock_abi": agreed.landlock_abi,
        "filter": agreed.filter,
        "system": host.SYSTEM_FOLDERS,
        "mounts": entries,
        "private": private,
        "files": host.network_files() if spec.network.kind == "host" else {},
        "network": spec.network.kind,
        "workspace": spec.workspace or "/tmp",
        "limits": limits,
        "python": [host.executable_inside(), *map(os.path.realpath, (sys.prefix, sys.exec_prefix))],
    }
    text = json.dumps(told, sort_keys=True).encode()
    return Plan(
        agreed=agreed,
        key=hashlib.sha256(text).hexdigest(),
        told=told,
        keeps=keeps,
        seen=tuple((entry["path"], entry["identity"]) for entry in entries),
    )


def order_of(handler: Handler, spec: JailSpec) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """What is only known at the call: for the worker, for the init, and the text of a script."""
    script: str | None = None
    told: dict[str, Any]
    if isinstance(handler, CommandHandler):
        script = handler.script
        words = [] if script is None else [SCRIPT]
        told = {"kind": "command", "argv": [*handler.argv, *words]}
    else:
        told = {
            "kind": "python",
            "module": handler.module,
            "qualname": handler.qualname,
            "arguments": handler.arguments,
            "channel": handler.channel,
            "file": handler.file,
            "digest": handler.digest,
            "sys_path": handler.sys_path,
            "adapter": handler.adapter,
            "context": handler.context,
            "hidden": handler.hidden,
        }
    work = {
        "handler": told,
        "env": spec.env,
        "cwd": spec.cwd or spec.workspace or "/tmp",
        "wall_s": spec.limits.wall_s,
    }
    masks = {path: list(masked) for path, masked in spec.masks.items()}
    return work, {"event": "call", "masks": masks}, script


def _refuse_covered(spec: JailSpec, mounts: list[Mount]) -> None:
    """Refuse what would show the host's in place of a folder that a jail has of its own.

    Below the private one anything may be laid, and above it what is laid before it; an overlay is
    laid last.
    """
    asked = {spec.workspace, *(mount.path for mount in spec.mounts)}
    if "/" in asked:
        raise ValueError("'/' is the root, which a jail has of its own")
    for mount in mounts:
        for private in host.PRIVATE_FOLDERS if mount.path in asked else ():
            is_within = mount.layered and private.startswith(f"{mount.path}/")
            if mount.path == private or is_within:
                what = "holds" if is_within else "is"
                raise ValueError(f"{mount.path!r} {what} {private}, which a jail has of its own")


def _scratch_workspace(spec: JailSpec) -> list[str]:
    """The workspace, where the jail has an empty one of its own in its place."""
    is_scratch = spec.workspace is not None and spec.workspace_mode == "scratch"
    return [spec.workspace] if is_scratch and spec.workspace is not None else []


def _mounts(spec: JailSpec) -> list[Mount]:
    """What the jail sees of the host beyond the system folders; read-only wins over writable.

    What is read-only inside a writable workspace has each of its parents pinned as a mount of
    its own: a mount cannot be renamed away (rename(2), EBUSY), and its parent could be.
    """
    found = {mount.path: mount for mount in host.interpreter_mounts()}
    for mount in spec.mounts:
        if mount.path not in found or not mount.writable:
            found[mount.path] = mount
    top = spec.workspace
    if top is not None:
        if top in found:
            raise ValueError(f"the workspace {top!r} is a folder that has to stay read-only")
        fixed = [mount.path for mount in found.values() if not mount.writable]
        writable = spec.workspace_mode == "direct"
        if spec.workspace_mode != "scratch":
            found[top] = Mount(path=top, writable=writable, owned=True, layered=not writable)
        for path in fixed if writable else ():
            parent = os.path.dirname(path)
            while parent.startswith(f"{top}/"):
                if not any(f"{parent}/".startswith(f"{other}/") for other in fixed):
                    found[parent] = Mount(path=parent, writable=True, owned=True)
                parent = os.path.dirname(parent)
    return list(found.values())
