"""What a call is promised: levels as sets of guarantees, each held by a mechanism, or refused.

Pure. A user asks for promises, a host offers layers; `promise()` matches the two. Nothing slides:
a guarantee that a level demands is held, waived by name, or the call does not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from .spec import GUARANTEES, JailSpec

Way = Literal["namespaces", "process_group"]

LAYERS: Final = (
    "user_namespace",
    "mount_namespace",
    "pid_namespace",
    "network_namespace",
    "ipc_namespace",
    "landlock",
    "landlock_scopes",
    "seccomp",
    "no_new_privs",
    "rlimits",
    "close_range",
    "watch",
    "cgroup_memory",
    "cgroup_pids",
    "cgroup_cpu",
    "own_ids",
    "limited_uid",
    "overlay",
)
"""What a host may offer or lack, one by one."""

LANDLOCK_ABI_MIN: Final = 2
"""ABI 1 forbids every rename between two folders (landlock(7)): a fence that breaks tools."""
LANDLOCK_ABI_SCOPES: Final = 6
"""From here on a domain bounds signals and abstract sockets (landlock(7))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Why a layer is not there, in the kernel's words: stage, errno's name, cause."""

    stage: str
    errno: str | None = None
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a host offers: every layer but those that it lacks. Injectable for tests."""

    lacks: Mapping[str, Lack] = field(default_factory=dict)
    landlock_abi: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    """What a receipt calls a layer that comes in kinds, such as "cgroup v1"."""

    def without(self, *layers: str, errno: str = "EPERM") -> Offer:
        """The same host with these layers off."""
        more = {
            layer: Lack(stage=_STAGES[layer], errno=errno, cause=f"{layer} is switched off")
            for layer in layers
        }
        abi = 0 if "landlock" in layers else self.landlock_abi
        abi = min(abi, LANDLOCK_ABI_SCOPES - 1) if "landlock_scopes" in layers else abi
        return replace(self, lacks={**self.lacks, **more}, landlock_abi=abi)

    def has(self, layer: str) -> bool:
        """Whether this host has the layer."""
        if layer == "landlock":
            return layer not in self.lacks and self.landlock_abi >= LANDLOCK_ABI_MIN
        if layer == "landlock_scopes":
            return layer not in self.lacks and self.landlock_abi >= LANDLOCK_ABI_SCOPES
        return layer not in self.lacks

    def lack(self, layer: str) -> Lack:
        """Why it has not."""
        if layer in self.lacks:
            return self.lacks[layer]
        needed = LANDLOCK_ABI_MIN if layer == "landlock" else LANDLOCK_ABI_SCOPES
        cause = f"this kernel has Landlock ABI {self.landlock_abi}, and {needed} is needed"
        return Lack(stage="landlock", errno=None if self.landlock_abi else "ENOSYS", cause=cause)


_STAGES: Final = {
    "user_namespace": "namespaces",
    "mount_namespace": "root",
    "pid_namespace": "namespaces",
    "network_namespace": "namespaces",
    "ipc_namespace": "namespaces",
    "landlock": "landlock",
    "landlock_scopes": "landlock",
    "seccomp": "seccomp",
    "no_new_privs": "no_new_privs",
    "rlimits": "rlimits",
    "close_range": "descriptors",
    "watch": "watch",
    "cgroup_memory": "cgroup",
    "cgroup_pids": "cgroup",
    "cgroup_cpu": "cgroup",
    "own_ids": "ids",
    "limited_uid": "ids",
    "overlay": "overlay",
}

_Means = tuple[tuple[str, frozenset[str]], ...]
"""Mechanisms of one guarantee, the best first: what a receipt says, and the layers it rests on."""


def _means(*options: tuple[str, str]) -> _Means:
    return tuple((said, frozenset(layers.split())) for said, layers in options)


_ALWAYS: Final[dict[str, _Means]] = {
    "syscalls_filtered": _means(("seccomp", "seccomp no_new_privs")),
    "memory_limited": _means(("{cgroup_memory}", "cgroup_memory"), ("watch", "watch")),
    "files_limited": _means(("rlimit", "rlimits")),
    "env_scrubbed": _means(("allowlist", "")),
    "fds_closed": _means(("close_range", "close_range")),
    # The mode bits: a setuid file that a jail left behind would be another's privilege.
    "no_new_privileges": _means(("prctl, capabilities dropped, seccomp", "no_new_privs seccomp")),
}

MEANS: Final[dict[Way, dict[str, _Means]]] = {
    "namespaces": {
        **_ALWAYS,
        "fs_confined": _means(
            (
                "mount namespace with its own root, Landlock",
                "user_namespace mount_namespace landlock",
            ),
            ("mount namespace with its own root", "user_namespace mount_namespace"),
        ),
        # The namespace alone leaves open AF_VSOCK, which has none.
        "net_blocked": _means(("network namespace, seccomp", "network_namespace seccomp")),
        "net_loopback": _means(("network namespace, seccomp", "network_namespace seccomp")),
        "tree_killed": _means(("pid namespace", "pid_namespace")),
        "processes_limited": _means(
            ("{cgroup_pids}", "cgroup_pids"),
            ("rlimit in a user namespace of its own", "user_namespace rlimits"),
        ),
        "cpu_limited": _means(
            ("{cgroup_cpu}, rlimit, wall deadline", "cgroup_cpu rlimits"),
            ("rlimit, watch, wall deadline", "rlimits watch"),
        ),
        "paths_masked": _means(("overlay whiteouts", "mount_namespace overlay")),
        "writes_transactional": _means(("overlay", "mount_namespace overlay")),
        "disk_limited": _means(("sized tmpfs", "mount_namespace")),
        "signals_scoped": _means(
            (
                "pid namespace, host ids of its own, Landlock",
                "pid_namespace own_ids landlock_scopes",
            ),
            ("pid namespace, host ids of its own", "pid_namespace own_ids"),
            ("pid namespace, Landlock", "pid_namespace landlock_scopes"),
            ("pid namespace", "pid_namespace"),
        ),
        "ipc_private": _means(
            ("ipc namespace, network namespace", "ipc_namespace network_namespace"),
            ("ipc namespace, Landlock", "ipc_namespace landlock_scopes"),
        ),
        "devices_minimal": _means(("private /dev", "mount_namespace")),
    },
    "process_group": {
        **_ALWAYS,
        "fs_confined": _means(("Landlock", "landlock no_new_privs")),
        "net_blocked": _means(("seccomp", "seccomp")),
        "tree_killed": _means(("process group, seccomp, Landlock", "seccomp landlock_scopes")),
        "processes_limited": _means(
            ("{cgroup_pids}", "cgroup_pids"),
            ("rlimit over the whole user", "rlimits limited_uid"),
        ),
        "cpu_limited": _means(
            ("{cgroup_cpu}, rlimit, wall deadline", "cgroup_cpu rlimits"),
            ("rlimit, watch, wall deadline", "rlimits watch"),
        ),
        "signals_scoped": _means(("Landlock", "landlock_scopes")),
        "ipc_private": _means(("seccomp, Landlock", "seccomp landlock_scopes")),
        "devices_minimal": _means(("Landlock", "landlock")),
    },
}
"""By what each guarantee can be held, for each way of building a jail."""

_BY_WORKSPACE: Final = {
    ("writes_transactional", "none"): "no workspace",
    ("writes_transactional", "read_only"): "workspace read-only",
    ("writes_transactional", "scratch"): "workspace of the jail's own",
    ("paths_masked", "none"): "no workspace",
    ("paths_masked", "scratch"): "workspace of the jail's own",
}
"""What a workspace holds by its mode alone."""

LEVELS: Final[dict[str, frozenset[str]]] = {
    "standard": frozenset(GUARANTEES) - {"net_loopback"},
    "hardened": frozenset(GUARANTEES) - {"net_loopback"},
    "container": frozenset(
        {
            "fs_confined",
            "net_blocked",
            "syscalls_filtered",
            "tree_killed",
            "memory_limited",
            "cpu_limited",
            "files_limited",
            "env_scrubbed",
            "fds_closed",
            "no_new_privileges",
            "signals_scoped",
            "ipc_private",
            "devices_minimal",
        }
    ),
}
"""The guarantees of each isolation level, before a spec replaces some by name."""

HARDENED_BY: Final[dict[str, str]] = {
    "memory_limited": "cgroup_memory",
    "processes_limited": "cgroup_pids",
    "cpu_limited": "cgroup_cpu",
    "signals_scoped": "own_ids",
}
"""What `hardened` insists on besides: the layer without which the guarantee is not enough."""

DIRECT_GIVES_UP: Final = ("writes_transactional", "paths_masked", "disk_limited")
"""What a workspace in mode `direct`, or a writable folder, does not hold; the choice by name is
the waiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What holds for a call whose jail gets built: the receipt, and the layers to build.

    `isolation` is the level when all of it is held or waived by name, else "partial". A waived
    guarantee is not built for; a layer that it shares with another one stays.
    """

    isolation: str
    held: Mapping[str, str]
    waived: tuple[str, ...]
    way: Way
    layers: frozenset[str]
    landlock_abi: int
    filter: Literal["all", "mode_bits"]
    """Which system calls are filtered: without the guarantee, still what writes mode bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A guarantee that is demanded and cannot be had: the call does not run."""

    guarantee: str
    lack: Lack

    def facts(self) -> dict[str, Any]:
        """As a stage of the jail would report it."""
        lack = self.lack
        return {
            "guarantee": self.guarantee,
            "stage": lack.stage,
            "cause": lack.cause,
            "errno": lack.errno,
        }


def way_of(isolation: str) -> Way:
    """How the jails of a level are built."""
    return "process_group" if isolation == "container" else "namespaces"


def promise(spec: JailSpec, offer: Offer) -> Promise | Broken:
    """What this spec gets on this host, or the first guarantee that it cannot have."""
    way = way_of(spec.isolation)
    if spec.network.kind == "host":
        offer = offer.without("network_namespace")
    waived = _replaced(spec) | set(spec.waive)
    demanded = _demanded(spec) - set(spec.waive)
    if spec.workspace is not None and spec.workspace_mode == "transaction":
        # The mode is this guarantee: who waives it names another mode.
        demanded |= {"writes_transactional"}
    held: dict[str, str] = {}
    layers: set[str] = set()
    filtered = False
    for guarantee in GUARANTEES:
        if guarantee not in demanded | _extra(spec):
            continue
        found = _held_by(guarantee, spec, offer, way)
        if found is not None:
            said, needs = found
            layers |= needs
            if guarantee not in waived:  # Else built for the workspace, and not held elsewhere.
                held[guarantee] = said
            filtered = filtered or ("seccomp" in needs and guarantee != "no_new_privileges")
        elif guarantee in demanded:
            return Broken(guarantee=guarantee, lack=_why(guarantee, spec, offer, way))
    if way == "namespaces" and _is_read_through(spec) and offer.has("overlay"):
        # Also where nothing is masked: sockets, FIFOs and locks of a bind could be reached.
        layers.add("overlay")
    is_whole = LEVELS[spec.isolation] - {"net_blocked"} <= held.keys() | waived
    return Promise(
        isolation=spec.isolation if is_whole else "partial",
        held=held,
        waived=tuple(g for g in GUARANTEES if g in waived),
        way=way,
        layers=frozenset(layers),
        landlock_abi=offer.landlock_abi if "landlock" in layers else 0,
        filter="all" if filtered else "mode_bits",
    )


def _is_read_through(spec: JailSpec) -> bool:
    """Whether a folder of the host's is shown only to be read."""
    read_only = spec.workspace is not None and spec.workspace_mode == "read_only"
    return read_only or any(mount.layered for mount in spec.mounts)


def _replaced(spec: JailSpec) -> frozenset[str]:
    """What a choice by name gives up, instead of a waiver."""
    found: set[str] = set()
    level = LEVELS[spec.isolation]
    if spec.network.kind == "host":
        found.add("net_blocked")
    is_direct = spec.workspace is not None and spec.workspace_mode == "direct"
    if is_direct or any(mount.writable for mount in spec.mounts):
        found |= level & set(DIRECT_GIVES_UP)
    return frozenset(found)


def _demanded(spec: JailSpec) -> frozenset[str]:
    """What the level asks for, with what the spec replaces by name."""
    wanted = LEVELS[spec.isolation] - _replaced(spec)
    if spec.network.kind == "loopback":
        wanted = wanted - {"net_blocked"} | {"net_loopback"}
    return wanted


def _extra(spec: JailSpec) -> frozenset[str]:
    """What is held besides, where it can be: a bound on processes, at a level without one."""
    return frozenset({"processes_limited"}) if spec.isolation == "container" else frozenset()


def _held_by(
    guarantee: str, spec: JailSpec, offer: Offer, way: Way
) -> tuple[str, frozenset[str]] | None:
    """The mechanism that this host holds a guarantee by, and its layers; None where it cannot."""
    mode = "none" if spec.workspace is None else spec.workspace_mode
    granted = [mount for mount in spec.mounts if mount.identity is not None]
    if guarantee == "paths_masked" and any(not mount.layered for mount in granted):
        return None  # Bound as it is, with all that lies in it.
    if (guarantee, mode) in _BY_WORKSPACE and not (guarantee == "paths_masked" and granted):
        return _BY_WORKSPACE[guarantee, mode], frozenset()
    insisted = HARDENED_BY.get(guarantee) if spec.isolation == "hardened" else None
    for said, layers in MEANS[way].get(guarantee, ()):
        if insisted is not None and insisted not in layers:
            continue
        if all(offer.has(layer) for layer in layers):
            kinds = {layer: offer.names.get(layer, layer) for layer in layers}
            return said.format(**kinds), layers
    return None


def _why(guarantee: str, spec: JailSpec, offer: Offer, way: Way) -> Lack:
    """What stands in the way of a guarantee: of its plainest mechanism that would be enough."""
    means = MEANS[way].get(guarantee, ())
    insisted = HARDENED_BY.get(guarantee) if spec.isolation == "hardened" else None
    if insisted is not None and not offer.has(insisted):
        return offer.lack(insisted)
    for _, layers in reversed(means):
        for layer in sorted(layers, key=LAYERS.index):
            if not offer.has(layer):
                return offer.lack(layer)
    cause = f"the level {spec.isolation} cannot hold {guarantee}"
    return Lack(stage="plan", cause=cause)
