"""What helps when a guarantee could not be had: a table, asked in order; one sentence each.

Sources: user_namespaces(7), landlock(7), seccomp(2), cgroups(7), and the documentation of Ubuntu
(AppArmor), Docker, Kubernetes and systemd; `docs/hosts.md` says what was tried and what was read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from ._child import ids

_LEVEL: Final = "use --isolation container (isolation='container')"

_NAMESPACES = frozenset({"namespaces", "id maps"})
_MOUNTS = frozenset({"root", "scratch", "mounts", "pivot", "hostname", "proc masks"})
_REFUSED = frozenset({"EPERM", "EACCES"})

_ROWS: Final[tuple[tuple[frozenset[str], frozenset[str] | None, str | None, str, str], ...]] = (
    # stage, errno, the guarantee or any, the fix in a container, the fix elsewhere
    (
        _NAMESPACES,
        frozenset({"ENOSPC"}),
        None,
        f"{_LEVEL}, or raise user.max_user_namespaces (sysctl) on the host",
        "raise user.max_user_namespaces and its like (sysctl user) above the namespaces in use",
    ),
    (
        _NAMESPACES,
        _REFUSED,
        None,
        f"{_LEVEL}, or start the container with a seccomp profile that allows clone with "
        "CLONE_NEWUSER (Docker: --security-opt seccomp=unconfined; Kubernetes: "
        "seccompProfile.type Unconfined)",
        "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 on Debian, "
        f"user.max_user_namespaces above 0 elsewhere; or {_LEVEL}",
    ),
    (
        _NAMESPACES,
        None,
        None,
        _LEVEL,
        "use a Linux kernel of 5.12 or newer built with user, pid and network namespaces, or "
        + _LEVEL,
    ),
    (
        frozenset({"proc"}),
        _REFUSED,
        None,
        f"{_LEVEL}, or let the jail mount /proc: Docker --security-opt systempaths=unconfined, "
        "Kubernetes securityContext.procMount: Unmasked",
        f"let the jail mount /proc: nothing may be mounted over parts of it; or {_LEVEL}",
    ),
    (
        frozenset({"own limits"}),
        None,
        None,
        _LEVEL,
        f"use Linux 5.19 or newer, where a namespace has limits of its own; or {_LEVEL}",
    ),
    (
        _MOUNTS,
        _REFUSED,
        None,
        f"{_LEVEL}, or start the container with --security-opt apparmor=unconfined",
        "user namespaces exist here but give no capabilities (Ubuntu's AppArmor restriction): "
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for this "
        f"interpreter with `userns,`; or {_LEVEL}",
    ),
    (
        frozenset({"landlock"}),
        None,
        None,
        "run on a host with Linux 6.12 or newer (Landlock ABI 6) and landlock among its lsm=",
        "use Linux 6.12 or newer (Landlock ABI 6) with landlock in the boot parameter lsm=, or "
        "--isolation standard, which does without",
    ),
    (
        frozenset({"seccomp", "no_new_privs"}),
        None,
        None,
        "use a kernel built with CONFIG_SECCOMP_FILTER",
        "use a kernel built with CONFIG_SECCOMP_FILTER",
    ),
    (
        frozenset({"cgroup"}),
        None,
        None,
        "use --isolation standard, whose limits are watched, or give the container a writable "
        "cgroup (Docker: --cgroupns=private with a read-write /sys/fs/cgroup)",
        "let control groups be delegated (systemd-run --user --scope -p Delegate=yes, or run as "
        "root), or use --isolation standard, whose limits are watched",
    ),
    (
        frozenset({"idmap"}),
        None,
        None,
        "run toolcell as the user who owns the workspace",
        "run toolcell as the user who owns the workspace, or move it to ext4, xfs or btrfs",
    ),
    (
        frozenset({"ids"}),
        None,
        "signals_scoped",
        "use --isolation standard: only the host's root has user ids to give away",
        "run toolcell as root, who has user ids to give away, or use --isolation standard",
    ),
    (
        frozenset({"ids"}),
        None,
        None,
        "run toolcell as a user who is not root",
        "run toolcell as a user who is not root, or give root user ids that neither /etc/passwd "
        f"nor /etc/subuid names ({ids.RANGE} in a row for each jail), with a writable /run",
    ),
    (
        # Root's host trees are opened as mounts: CAP_SYS_ADMIN, which Docker's root has not got.
        frozenset({"open"}),
        frozenset({"EPERM"}),
        None,
        f"{_LEVEL}, or run as a user who is not root, in a container that may make namespaces",
        f"run toolcell as a user who is not root, or as root with CAP_SYS_ADMIN; or {_LEVEL}",
    ),
    (
        frozenset({"open", "group"}),
        frozenset({"ENOSYS", "EPERM"}),
        None,
        "run toolcell outside of a jail, its own or another: this process is filtered itself",
        "run toolcell outside of a jail, its own or another: this process is filtered itself",
    ),
    (
        frozenset({"workspace", "open", "cwd"}),
        None,
        None,
        "check that the path exists, is no symlink and can be read, then try again",
        "check that the path exists, is no symlink and can be read, then try again",
    ),
    (
        frozenset({"overlay", "hand over"}),
        None,
        None,
        "use a host with Linux 6.6 or newer (overlayfs in user namespaces, user attributes on "
        "tmpfs), or name another workspace: --workspace-mode scratch, or direct, where nothing is "
        "undone",
        "use Linux 6.6 or newer (overlayfs in user namespaces, user attributes on tmpfs), or name "
        "another workspace: --workspace-mode scratch, or direct, where nothing is undone",
    ),
    (
        frozenset({"submount"}),
        None,
        None,
        "unmount it, name a folder without mounts below it, or use --workspace-mode direct",
        "unmount it, name a folder without mounts below it, or use --workspace-mode direct",
    ),
    (
        frozenset({"mask index"}),
        None,
        None,
        "name a smaller workspace, or accept it by name: --waive paths_masked",
        "name a smaller workspace, or accept it by name: --waive paths_masked",
    ),
    (
        frozenset({"run"}),
        None,
        None,
        "try again: the next call hides what has appeared",
        "try again: the next call hides what has appeared",
    ),
    (
        frozenset({"plan"}),
        None,
        "writes_transactional",
        "name a workspace mode that this isolation level has: --workspace-mode read_only, scratch "
        "or direct",
        "use --isolation standard, or name a workspace mode that this level has: --workspace-mode "
        "read_only, scratch or direct",
    ),
    (
        frozenset({"sensitive files"}),
        None,
        None,
        "move them out of the workspace, or accept it by name: --waive paths_masked",
        "use --isolation standard, or move them out of the workspace, or accept it by name: "
        "--waive paths_masked",
    ),
    (
        frozenset({"plan"}),
        None,
        "net_loopback",
        "use --network none or --network host: this level has no network of its own",
        "use --isolation standard, which has a network namespace",
    ),
)


def fix_for(facts: Mapping[str, Any], *, inside_container: bool | None = None) -> str:
    """What helps on this host when a stage of building a jail failed, as one sentence."""
    inside = in_container() if inside_container is None else inside_container
    stage, errno, guarantee = facts.get("stage"), facts.get("errno"), facts.get("guarantee")
    for stages, errnos, wanted, contained, plain in _ROWS:
        if stage in stages and (errnos is None or errno in errnos) and wanted in (None, guarantee):
            return contained if inside else plain
    return "see `toolcell doctor` for what this host lacks"


def in_container() -> bool:
    """Whether this process runs in a container, as far as the usual marks tell."""
    marks = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
    named = ("KUBERNETES_SERVICE_HOST", "container")
    return any(map(os.path.exists, marks)) or any(name in os.environ for name in named)
