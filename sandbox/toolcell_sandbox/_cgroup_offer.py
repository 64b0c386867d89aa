"""Which limits this host's control groups offer to this process, found by trying.

    own group, in each hierarchy ──► v2: where memory, pids and cpu are handed on ──► a place
      (/proc/self/cgroup,                  none? a scope from the service manager ──► a bus
       mountinfo)                ──► v1: below the own group, controller by controller ► places

A place is a folder in which a group was made, limited and removed again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from . import _cgroup_names as names
from ._cgroup_bus import Bus, find
from ._cgroup_files import (
    CONTROLLERS,
    KERNEL,
    Files,
    Mounted,
    Place,
    cause_of,
    listed,
    mounted,
    own_paths,
    upwards,
)
from ._cgroup_limits import cpus_to_share, limits_of, set_limits

_TRIED_BYTES = 64 << 20
_TRIED_PROCESSES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupOffer:
    """What this host offers to this process: plain data, true when it was looked for.

    `memory`, `pids` and `cpu` are each a mechanism's name for a receipt, or None with the cause
    in `why`, under the same key. `cpus` is how many CPUs this process and its jails share.
    """

    memory: str | None = None
    pids: str | None = None
    cpu: str | None = None
    why: dict[str, str] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    bus: Bus | None = None
    cpus: float = 1.0


def offer(
    root: str = "/sys/fs/cgroup",
    proc: str = "/proc",
    *,
    run: str = "/run",
    busctl: str | None = None,
    files: Files = KERNEL,
) -> CgroupOffer:
    """What the hierarchies mounted below `root` offer. Takes a millisecond or two; never raises.

    v2 comes first where it has all; v1 has the rest on hybrid hosts. Nothing outside of groups
    named by us is changed, but for two steps without which v2 offers nothing: in a group that
    was delegated to us, and that holds only this process, this process moves to a leaf of its
    own (cgroup-v2.rst, No Internal Process Constraint); and root on a host without a service
    manager lets the root group hand on its controllers.
    """
    return _Look(root, proc, run, busctl, files).offer()


class _Look:
    """One look at a host, with what it has found so far."""

    def __init__(self, root: str, proc: str, run: str, busctl: str | None, files: Files) -> None:
        self._files, self._proc, self._run, self._busctl = files, proc, run, busctl
        self._mounts = mounted(files.read(f"{proc}/self/mountinfo"), root)
        self._own = own_paths(files.read(f"{proc}/self/cgroup"))
        self._cpus = cpus_to_share(files, self._mounts, self._own)
        # As sd_booted(3) tells it.
        self._is_managed = files.exists(f"{run}/systemd/system")
        self._why = dict.fromkeys(CONTROLLERS, f"no hierarchy below {root} has this controller")
        self._found: dict[str, str] = {}
        self._places: list[Place] = []

    def offer(self) -> CgroupOffer:
        bus = None
        for mount in self._mounts:
            if mount.version == 2:
                own = mount.folder(self._own.get(""))
                if own is None:
                    cause = f"{mount.point}: the own group is not below this mount"
                    self._why |= dict.fromkeys(self._controllers(mount.point), cause)
                    continue
                self._look_at_v2(mount, own)
                bus = self._look_for_bus(mount)
                break
        for controller in CONTROLLERS:
            if controller not in self._found:
                self._look_at_v1(controller)
        if not self._found:
            self._places = []
        elif not any(place.version == 2 for place in self._places):
            self._count_cpu_time()
        return CgroupOffer(
            **{name: self._found.get(name) for name in CONTROLLERS},
            why={name: why for name, why in self._why.items() if name not in self._found},
            places=tuple(self._places),
            bus=bus,
            cpus=self._cpus,
        )

    # -- version 2 ------------------------------------------------------------------------

    def _look_at_v2(self, mount: Mounted, own: str) -> None:
        has = self._controllers(mount.point)
        if not has:
            self._try(Place(2, own, ()))
            return
        best: tuple[str, ...] = ()
        folder = ""
        candidates = self._candidates(mount, own)
        for candidate in candidates:
            given = self._handed_on(candidate)
            if len(given) > len(best):
                best, folder = given, candidate
        if best != has:
            for candidate in candidates:
                if self._hand_on(candidate, own, mount):
                    given = self._handed_on(candidate)
                    if len(given) > len(best):
                        best, folder = given, candidate
                    break
        for controller in has:
            if controller not in best:
                self._why[controller] = self._why_not(own, candidates)
        if best:
            self._try(Place(2, folder, best))

    def _candidates(self, mount: Mounted, own: str) -> list[str]:
        """The own group and those above it that are nobody else's to arrange, nearest first.

        Under a service manager each group has one writer: ours is what lies in a unit that was
        delegated (systemd's CGROUP_DELEGATION). Without one it is all that can be written.
        """
        chain = list(upwards(own, mount.point))
        if not self._is_managed:
            return chain
        for place, folder in enumerate(chain):
            if folder.endswith((".scope", ".service")):
                return chain[: place + 1] if self._is_delegated(folder) else []
        return []

    def _is_delegated(self, folder: str) -> bool:
        """Whether a service manager marked a unit as its users' own (Delegate=yes)."""
        marks = ("user.delegate", "trusted.delegate")
        return any(self._files.attribute(folder, mark) == "1" for mark in marks)

    def _hand_on(self, folder: str, own: str, mount: Mounted) -> bool:
        """Let the groups below `folder` have its controllers, where that is ours to arrange."""
        wanted = self._controllers(folder)
        is_root = not self._files.exists(f"{folder}/cgroup.type")
        if is_root and folder == mount.point:
            return self._enable(folder, wanted)
        is_namespace = folder == mount.point and self._own.get("") == "/"
        if folder != own or not (is_namespace or self._is_delegated(folder)):
            return False
        if (self._files.read(f"{folder}/cgroup.procs") or "").split() != [str(os.getpid())]:
            return False
        leaf = os.path.join(folder, names.leaf_name())
        try:
            self._files.mkdir(leaf)
            self._files.write(f"{leaf}/cgroup.procs", str(os.getpid()))
        except OSError:
            self._unmake(leaf)
            return False
        if self._enable(folder, wanted):
            return True
        try:
            self._files.write(f"{folder}/cgroup.procs", str(os.getpid()))
        except OSError:
            return False
        self._unmake(leaf)
        return False

    def _enable(self, folder: str, wanted: tuple[str, ...]) -> bool:
        try:
            text = " ".join(f"+{controller}" for controller in wanted)
            self._files.write(f"{folder}/cgroup.subtree_control", text)
        except OSError:
            return False
        return bool(wanted)

    def _why_not(self, own: str, candidates: list[str]) -> str:
        if not candidates:
            return "the group of this process is not delegated: a service manager arranges it"
        if not self._files.can_write(f"{own}/cgroup.subtree_control"):
            return f"{own}: this process may not arrange groups there (cgroup.subtree_control)"
        return f"{own}: there are other processes in this group, or it is not delegated"

    def _look_for_bus(self, mount: Mounted) -> Bus | None:
        if len(self._found) == len(CONTROLLERS) or not self._is_managed:
            return None
        bus, cause = find(mount, self._run, self._proc, self._busctl, self._files)
        given = () if bus is None else bus.controllers
        if len(given) <= len(self._found):
            for controller in CONTROLLERS:
                if controller not in self._found and cause is not None:
                    self._why[controller] += f"; {cause}"
            return None
        self._places = []
        self._found = dict.fromkeys(given, "cgroup v2 (systemd scope)")
        return bus

    # -- version 1 ------------------------------------------------------------------------

    def _look_at_v1(self, controller: str) -> None:
        for mount in self._mounts:
            if mount.version == 1 and controller in mount.controllers:
                folder = mount.folder(self._own.get(controller))
                if folder is None:
                    self._why[controller] = f"{mount.point}: the own group is not below this mount"
                    continue
                shared = [c for c in CONTROLLERS if c in mount.controllers and c not in self._found]
                self._try(Place(1, folder, tuple(shared)))
                return

    def _count_cpu_time(self) -> None:
        """Without v2's cpu.stat the time is in cpuacct, which most hosts mount with cpu."""
        for mount in self._mounts:
            folder = mount.folder(self._own.get("cpuacct"))
            if "cpuacct" in mount.controllers and folder is not None:
                if folder not in {place.folder for place in self._places}:
                    self._try(Place(1, folder, ()))
                return

    # -- both -----------------------------------------------------------------------------

    def _try(self, place: Place) -> None:
        """Make a group, set a limit on each controller, and remove it again."""
        group = os.path.join(place.folder, names.new_name())
        try:
            self._files.mkdir(group)
        except OSError as error:
            for controller in place.controllers:
                self._why[controller] = f"mkdir below {place.folder}: {cause_of(error)}"
            return
        held = []
        # Whoever joins from a group beside it must be allowed to leave the common one as well.
        may_join = place.version == 1 or self._files.can_write(f"{place.folder}/cgroup.procs")
        limits = limits_of(_TRIED_BYTES, _TRIED_PROCESSES, self._cpus)
        for controller in place.controllers:
            try:
                set_limits(self._files, place.version, group, {controller: limits[controller]})
            except OSError as error:
                self._why[controller] = f"{controller} below {place.folder}: {cause_of(error)}"
                continue
            if may_join:
                held.append(controller)
                self._found[controller] = f"cgroup v{place.version}"
            else:
                self._why[controller] = f"{place.folder}/cgroup.procs: not for this process"
        self._unmake(group)
        if may_join and (held or not place.controllers):
            self._places.append(Place(place.version, place.folder, tuple(held)))

    def _unmake(self, group: str) -> None:
        try:
            self._files.rmdir(group)
        except OSError:
            return  # Somebody is in it, or it is gone: the next sweep sees.

    def _controllers(self, folder: str) -> tuple[str, ...]:
        return listed(self._files, f"{folder}/cgroup.controllers")

    def _handed_on(self, folder: str) -> tuple[str, ...]:
        return listed(self._files, f"{folder}/cgroup.subtree_control")
