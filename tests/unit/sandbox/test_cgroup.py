"""Control groups on hosts of every kind: a fake cgroupfs in a folder, with the kernel's rules.

That the real kernel has the rules that the fake keeps is asserted in tests/jail/test_cgroup_real.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from toolcell_sandbox import _cgroup_names as names
from toolcell_sandbox import _cgroup_scope, cgroup
from toolcell_sandbox._cgroup_files import Files, Mounted, flat_keyed
from toolcell_sandbox._cgroup_group import kill_one_by_one
from toolcell_sandbox._cgroup_sweep import sweep_groups

ALL = "memory pids cpu"
V1_FILES = {
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.memsw.limit_in_bytes": "9223372036854771712",
        "memory.swappiness": "60",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        "memory.max_usage_in_bytes": "0",
    },
    "pids": {"pids.max": "max", "pids.events": " max 0\n"},
    "cpu": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
    "cpuacct": {"cpuacct.usage": "0"},
}
V2_FILES = {
    "memory": {
        "memory.max": "max",
        "memory.swap.max": "max",
        "memory.oom.group": "0",
        "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
        "memory.peak": "0",
    },
    "pids": {"pids.max": "max", "pids.events": "max 0\n"},
    "cpu": {"cpu.max": "max 100000"},
}


class Host(Files):
    """A cgroupfs, with the /proc and /run that belong to it. This process is in it."""

    def __init__(self, top: Path) -> None:
        self.root, self.proc, self.run = top / "cgroup", top / "proc", top / "run"
        for folder in (self.root, self.proc / "self", self.run):
            folder.mkdir(parents=True)
        self.hierarchies: dict[str, tuple[str, ...]] = {}
        self.own: dict[str, str] = {}
        self.missing: set[str] = set()
        self.attributes: dict[tuple[str, str], str] = {}
        self.others: set[str] = set()
        # (operation, start of the path) -> errno
        self.refused: dict[tuple[str, str], int] = {}
        self.log: list[str] = []
        self.exhausted = False

    # -- building -------------------------------------------------------------------------

    def mount(self, point: str, controllers: str = "", *, root: str = "/") -> Path:
        """A hierarchy; without controllers it is v2. `root` is what of it is mounted."""
        folder = self.root / point if point else self.root
        folder.mkdir(exist_ok=True)
        kind = "cgroup" if controllers else "cgroup2"
        self.hierarchies[str(folder)] = tuple(controllers.split(",")) if controllers else ()
        options = f"rw,{controllers}" if controllers else "rw,nsdelegate"
        with (self.proc / "self" / "mountinfo").open("a") as file:
            file.write(f"32 31 0:29 {root} {folder} rw,relatime shared:9 - {kind} cg {options}\n")
        return folder

    def v2(self, own: str = "/app", has: str = ALL, *, is_namespace: bool = False) -> Path:
        """A v2-only host, with this process in `own`."""
        top = self.mount("")
        files = {"cgroup.controllers": has, "cgroup.subtree_control": "", "cgroup.procs": ""}
        if is_namespace:
            files["cgroup.type"] = "domain"
        self._lay(top, files)
        self.join("", own)
        return top

    def join(self, controllers: str, path: str) -> None:
        """Put this process into a group, which is made."""
        self.own[controllers] = path
        for folder, held in self.hierarchies.items():
            if ",".join(held) == controllers:
                group = Path(folder)
                for part in path.strip("/").split("/") if path != "/" else ():
                    group = group / part
                    if not group.exists():
                        self.mkdir(str(group))
                self._add(group, os.getpid())
        self._tell()

    def hand_on(self, *groups: Path, controllers: str = ALL) -> None:
        """Let groups hand on controllers, as whoever arranged this host did before."""
        for group in groups:
            (group / "cgroup.subtree_control").write_text(controllers)
            for child in group.iterdir():
                if child.is_dir():
                    (child / "cgroup.controllers").write_text(controllers)

    def managed(self) -> None:
        """Under a service manager, as sd_booted(3) tells."""
        (self.run / "systemd" / "system").mkdir(parents=True)

    def delegated(self, group: Path) -> None:
        self.attributes[str(group), "user.delegate"] = "1"

    def tree(self) -> dict[str, str]:
        """Every group and file, to be compared."""
        return {
            str(path): path.read_text() if path.is_file() else "" for path in self.root.rglob("*")
        }

    def _lay(self, group: Path, files: dict[str, str]) -> None:
        for name, text in files.items():
            if name not in self.missing:
                (group / name).write_text(text)

    def _tell(self) -> None:
        lines = [f"{n}:{name}:{path}" for n, (name, path) in enumerate(self.own.items())]
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))

    def _add(self, group: Path, pid: int) -> None:
        with (group / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")
        if (group / "cgroup.events").exists():
            (group / "cgroup.events").write_text("populated 1\nfrozen 0\n")

    def _check(self, operation: str, path: str) -> None:
        self.log.append(f"{operation} {os.path.basename(path)}")
        for (refused, start), number in self.refused.items():
            if refused == operation and path.startswith(start):
                raise OSError(number, os.strerror(number), path)

    # -- the kernel's part ----------------------------------------------------------------

    def mkdir(self, path: str) -> None:
        self._check("mkdir", path)
        os.mkdir(path)
        group = Path(path)
        held = next(c for top, c in self.hierarchies.items() if path.startswith(f"{top}/"))
        files = {"cgroup.procs": ""}
        for controller in held:
            files |= V1_FILES.get(controller, {})
        if not held:
            given = (group.parent / "cgroup.subtree_control").read_text()
            files |= {
                "cgroup.controllers": given,
                "cgroup.subtree_control": "",
                "cgroup.type": "domain",
                "cgroup.events": "populated 0\nfrozen 0\n",
                "cgroup.kill": "",
                "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
            }
            for controller in given.split():
                files |= V2_FILES[controller]
        self._lay(group, files)

    def rmdir(self, path: str) -> None:
        self._check("rmdir", path)
        group = Path(path)
        if not group.exists():
            raise FileNotFoundError(errno.ENOENT, "gone", path)
        if (group / "cgroup.procs").read_text() or any(child.is_dir() for child in group.iterdir()):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        shutil.rmtree(path)

    def write(self, path: str, text: str) -> None:
        self._check("write", path)
        file = Path(path)
        group = file.parent
        if not file.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        match file.name:
            case "cgroup.subtree_control":
                busy = (group / "cgroup.procs").read_text() and (group / "cgroup.type").exists()
                if busy:
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
                self.hand_on(group, controllers=text.replace("+", ""))
            case "cgroup.procs":
                for other in self.root.rglob("cgroup.procs"):
                    pids = other.read_text().split()
                    if text in pids and str(other).startswith(self._top(path)):
                        other.write_text("".join(f"{pid}\n" for pid in pids if pid != text))
                self._add(group, int(text))
                if int(text) == os.getpid():
                    self.own[""] = "/" + str(group.relative_to(self._top(path)))
                    self._tell()
            case "cgroup.kill":
                (group / "cgroup.procs").write_text("")
                (group / "cgroup.events").write_text("populated 0\nfrozen 0\n")
            case "memory.memsw.limit_in_bytes" if int(text) < int(
                (group / "memory.limit_in_bytes").read_text()
            ):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            case "memory.oom_control":
                pass
            case _:
                file.write_text(text)

    def _top(self, path: str) -> str:
        return next(top for top in self.hierarchies if path.startswith(f"{top}/"))

    def read(self, path: str) -> str | None:
        return None if self.exhausted else super().read(path)

    def owner(self, path: str) -> int | None:
        return os.geteuid() + 1 if path in self.others else super().owner(path)

    def can_write(self, path: str) -> bool:
        return not any(
            operation == "write" and path.startswith(start) for operation, start in self.refused
        )

    def attribute(self, path: str, name: str) -> str | None:
        return self.attributes.get((path, name))

    # -- asking ---------------------------------------------------------------------------

    def offer(self, busctl: str | None = None) -> cgroup.CgroupOffer:
        return cgroup.offer(
            str(self.root),
            str(self.proc),
            run=str(self.run),
            busctl=busctl or "/nonexistent/busctl",
            files=self,
        )

    def make(self, offer: cgroup.CgroupOffer | None = None) -> cgroup.Group:
        return cgroup.make(offer or self.offer(), memory_bytes=64 << 20, processes=20, files=self)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def hybrid(host: Host) -> Host:
    """v1 with memory, pids, cpu and cpuacct, each alone; v2 with no controllers; one own path."""
    for controller in ("cpu", "cpuacct", "memory", "pids"):
        top = host.mount(controller, controller)
        host._lay(top, {"cgroup.procs": ""} | V1_FILES[controller])
        host.join(controller, "/machine/one" if controller == "memory" else "/")
    top = host.mount("unified")
    host._lay(top, {"cgroup.controllers": "", "cgroup.subtree_control": "", "cgroup.procs": ""})
    host.join("", "/")
    return host


def mechanisms(offer: cgroup.CgroupOffer) -> tuple[str | None, str | None, str | None]:
    return offer.memory, offer.pids, offer.cpu


def only_group(group: cgroup.Group, controller: str) -> Path:
    """Where the group of one controller is."""
    place = group._with(controller)
    assert place is not None
    return Path(place.folder)


# -- what is offered ----------------------------------------------------------------------


def test_a_delegated_group_of_our_own_gives_all_three(host: Host) -> None:
    """Otherwise `Delegate=yes`, which the guide tells people to set, would help nobody."""
    host.managed()
    top = host.v2("/app.service")
    host.hand_on(top)
    host.delegated(top / "app.service")
    offer = host.offer()
    assert mechanisms(offer) == ("cgroup v2",) * 3
    assert offer.why == {}
    # This process went to a leaf, since no process may be beside the groups that are limited.
    assert host.own[""] == f"/app.service/{names.leaf_name()}"
    assert (top / "app.service" / "cgroup.procs").read_text() == ""
    assert mechanisms(host.offer()) == ("cgroup v2",) * 3


def test_a_program_that_is_not_alone_in_its_group_is_not_moved(host: Host) -> None:
    """Otherwise a library would rearrange the host program's own processes."""
    host.managed()
    top = host.v2("/app.service")
    host.hand_on(top)
    host.delegated(top / "app.service")
    host._add(top / "app.service", 1)
    before = host.tree()
    offer = host.offer()
    assert mechanisms(offer) == (None,) * 3
    assert "other processes in this group" in offer.why["memory"]
    assert host.tree() == before


def test_a_move_that_did_not_help_is_taken_back(host: Host) -> None:
    """Otherwise the program sits in a leaf that it never asked for, and nothing is gained."""
    host.managed()
    top = host.v2("/app.service")
    host.hand_on(top)
    host.delegated(top / "app.service")
    host.refused["write", str(top / "app.service" / "cgroup.subtree_control")] = errno.EBUSY
    assert host.offer().memory is None
    assert host.own[""] == "/app.service"
    assert [path for path in (top / "app.service").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("own", "hands_on", "delegated"),
    [
        ("user@1000.service/app.slice/term.scope", ["user@1000.service"], None),
        ("user@1000.service/app.slice/term.scope", ["user@1000.service"], "user@1000.service"),
        ("app.service/sub", ["app.service"], None),
        ("app.slice/sub", ["app.slice"], None),
    ],
)
def test_what_a_service_manager_arranges_is_left_alone(
    host: Host, own: str, hands_on: list[str], delegated: str | None
) -> None:
    """Otherwise two writers fight over one tree: a group below app.slice is the manager's."""
    host.managed()
    top = host.v2(f"/{own}")
    host.hand_on(top, *(top / folder for folder in hands_on))
    if delegated:
        host.delegated(top / delegated)
    before = host.tree()
    offer = host.offer()
    assert mechanisms(offer) == (None,) * 3
    assert "not delegated" in offer.why["pids"]
    assert "bus" in offer.why["pids"]
    assert host.tree() == before


def test_without_a_manager_the_nearest_group_that_hands_on_is_used(host: Host) -> None:
    """Otherwise a root supervisor in a container would have no limits that are there."""
    top = host.v2("/a/b")
    host.hand_on(top)
    host.hand_on(top / "a", controllers="memory")
    offer = host.offer()
    assert mechanisms(offer) == ("cgroup v2",) * 3
    assert [place.folder for place in offer.places] == [str(top)]


def test_without_a_manager_root_lets_the_root_group_hand_on(host: Host) -> None:
    """Otherwise a plain v2 host with no systemd offers nothing to anybody."""
    top = host.v2("/app")
    assert mechanisms(host.offer()) == ("cgroup v2",) * 3
    assert set((top / "cgroup.subtree_control").read_text().split()) == set(ALL.split())


def test_the_only_process_of_a_container_arranges_its_own_namespace(host: Host) -> None:
    """Otherwise a container with a writable cgroup tree would not be able to use it."""
    top = host.v2("/", is_namespace=True)
    assert mechanisms(host.offer()) == ("cgroup v2",) * 3
    assert host.own[""] == f"/{names.leaf_name()}"
    assert str(os.getpid()) not in (top / "cgroup.procs").read_text()


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EACCES, "Permission denied"), (errno.EROFS, "Read-only")]
)
@pytest.mark.parametrize("kind", ["v2", "hybrid"])
def test_a_tree_that_cannot_be_written_offers_nothing_and_says_why(
    request: pytest.FixtureRequest, host: Host, kind: str, number: int, said: str
) -> None:
    """Otherwise a receipt would promise a limit that nobody could set."""
    if kind == "v2":
        host.hand_on(host.v2())
    else:
        request.getfixturevalue("hybrid")
    host.refused = {(op, str(host.root)): number for op in ("mkdir", "rmdir", "write")}
    offer = host.offer()
    assert mechanisms(offer) == (None,) * 3
    assert offer.places == ()
    for controller in cgroup.CONTROLLERS:
        assert said in offer.why[controller]
        assert f"errno {number}" in offer.why[controller]


def test_a_place_that_may_be_left_by_nobody_is_none(host: Host) -> None:
    """Otherwise each call would fail when its init is moved: the common group must be ours too."""
    top = host.v2("/a/b")
    host.hand_on(top)
    host.refused["write", str(top / "cgroup.procs")] = errno.EACCES
    offer = host.offer()
    assert offer.memory is None
    assert "cgroup.procs" in offer.why["memory"]


def test_a_host_without_control_groups_offers_nothing(host: Host) -> None:
    """Otherwise such a host would crash the supervisor rather than be watched."""
    offer = host.offer()
    assert mechanisms(offer) == (None,) * 3
    assert set(offer.why) == set(cgroup.CONTROLLERS)
    with host.make(offer) as group:
        assert group.procs_files == ()
        group.sample()
        assert (group.oom_kills(), group.peak_memory_bytes(), group.cpu_s()) == (0, None, None)
        assert group.is_empty()
        group.kill()
        assert group.try_remove()


def test_a_hybrid_host_limits_by_v1_and_kills_by_v2(hybrid: Host) -> None:
    """Otherwise the kinds of host that have both would lose what only one of them has."""
    offer = hybrid.offer()
    assert mechanisms(offer) == ("cgroup v1",) * 3
    with hybrid.make(replace(offer, cpus=2.0)) as group:
        assert len(group.procs_files) == 4
        assert str(only_group(group, "memory").parent).endswith("memory/machine/one")
        assert (only_group(group, "cpu") / "cpu.cfs_quota_us").read_text() == "190000"
        assert (only_group(group, "pids") / "pids.max").read_text() == "21"
        for file in group.procs_files:
            hybrid.write(file, "4242")
        assert not group.is_empty()
        hybrid.log.clear()
        group.kill()
        assert hybrid.log == ["write cgroup.kill"]
        assert group.is_empty()
        for file in group.procs_files:
            Path(file).write_text("")


def test_controllers_that_share_a_hierarchy_share_a_group(host: Host) -> None:
    """Otherwise the second mkdir of one group fails, and a common host has no CPU limit."""
    for controllers in ("cpu,cpuacct", "memory"):
        top = host.mount(controllers, controllers)
        host._lay(top, {"cgroup.procs": ""})
        host.join(controllers, "/")
    offer = host.offer()
    assert mechanisms(offer) == ("cgroup v1", None, "cgroup v1")
    with host.make(offer) as group:
        assert len(group.procs_files) == 2
        (only_group(group, "cpu") / "cpuacct.usage").write_text("2500000000\n")
        assert group.cpu_s() == 2.5


def test_cpu_time_is_counted_where_cpuacct_stands_alone(hybrid: Host) -> None:
    """Otherwise a call's CPU time is missing on v1 hosts that mount each controller alone."""
    lines = (hybrid.proc / "self" / "mountinfo").read_text().splitlines(keepends=True)
    (hybrid.proc / "self" / "mountinfo").write_text("".join(lines[:-1]))
    with hybrid.make() as group:
        assert any("/cpuacct/" in file for file in group.procs_files)
        assert group.cpu_s() == 0


def test_one_controller_that_is_refused_does_not_take_the_others_along(hybrid: Host) -> None:
    """Otherwise a missing CPU limit would silently cost the memory limit."""
    hybrid.refused["mkdir", str(hybrid.root / "cpu") + "/"] = errno.EPERM
    offer = hybrid.offer()
    assert mechanisms(offer) == ("cgroup v1", "cgroup v1", None)
    assert "Operation not permitted" in offer.why["cpu"]
    assert set(offer.why) == {"cpu"}


def test_a_group_that_limits_nothing_is_not_made(hybrid: Host) -> None:
    """Otherwise each call pays for a v2 group that holds none of its limits."""
    for controller in cgroup.CONTROLLERS:
        hybrid.refused["mkdir", f"{hybrid.root}/{controller}/"] = errno.EACCES
    offer = hybrid.offer()
    assert mechanisms(offer) == (None,) * 3
    assert offer.places == ()


def test_looking_leaves_no_group_behind(hybrid: Host) -> None:
    """Otherwise each start of a supervisor would litter the host."""
    before = set(hybrid.tree())
    hybrid.offer()
    assert set(hybrid.tree()) == before


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/", "/m"),
        ("/", "/a/b", "/m/a/b"),
        ("/docker/1", "/docker/1", "/m"),
        ("/docker/1", "/docker/1/x", "/m/x"),
        ("/docker/1", "/docker/12", None),
        ("/docker/1", "/", None),
        ("/..", "/../x", "/m/x"),
        ("/..", "/", None),
        ("/", "/../x", None),
        ("/", None, None),
    ],
)
def test_a_group_is_found_by_its_mount(root: str, path: str | None, expected: str | None) -> None:
    """Otherwise a container's groups are made elsewhere, or beside a near miss of its name."""
    assert Mounted(2, "/m", root).folder(path) == expected


@pytest.mark.parametrize("covered_by", ["cgroup", "tmpfs"])
def test_a_mount_that_covers_another_is_the_one_that_counts(host: Host, covered_by: str) -> None:
    """Otherwise a hierarchy is looked for where another one lies by now."""
    folder = host.mount("x", "memory")
    if covered_by == "cgroup":
        host.mount("x", "pids")
    else:
        with (host.proc / "self" / "mountinfo").open("a") as file:
            file.write(f"40 32 0:9 / {folder} rw - tmpfs none rw,size=4k\n")
    host._lay(folder, {"cgroup.procs": ""})
    host.join("memory", "/")
    host.join("pids", "/")
    offer = host.offer()
    assert mechanisms(offer) == (None, "cgroup v1" if covered_by == "cgroup" else None, None)


def test_a_quota_above_us_is_what_there_is_to_share(host: Host) -> None:
    """Otherwise a jail in a small container may use all that its supervisor has to live on."""
    top = host.v2("/a/b")
    host.hand_on(top, top / "a")
    (top / "a" / "cpu.max").write_text("50000 100000")
    (top / "a" / "b" / "cpu.max").write_text("max 100000")
    offer = host.offer()
    assert offer.cpus == 0.5
    with host.make(offer) as group:
        assert (only_group(group, "cpu") / "cpu.max").read_text() == "47500 100000"


# -- limits -------------------------------------------------------------------------------


def test_v2_limits_are_all_written(host: Host) -> None:
    """Otherwise a tree swaps instead of ending, or one half of it goes on without the other."""
    host.hand_on(host.v2())
    with host.make() as group:
        made = only_group(group, "memory")
        told = {name: (made / name).read_text() for name in V2_FILES["memory"] | V2_FILES["pids"]}
        assert told["memory.max"] == str((64 << 20) + cgroup.INIT_MEMORY_BYTES)
        assert told["memory.swap.max"] == "0"
        assert told["memory.oom.group"] == "1"
        assert told["pids.max"] == str(20 + cgroup.INIT_PROCESSES)
    assert not made.exists()


def test_v1_memory_is_limited_before_memory_and_swap(hybrid: Host) -> None:
    """The other way round the kernel refuses, and the limit would be missing (EINVAL)."""
    offer = hybrid.offer()
    hybrid.log.clear()
    with hybrid.make(offer) as group:
        made = only_group(group, "memory")
        size = (made / "memory.limit_in_bytes").read_text()
        assert (made / "memory.memsw.limit_in_bytes").read_text() == size
        assert (made / "memory.swappiness").read_text() == "60"
    writes = [line for line in hybrid.log if "limit_in_bytes" in line]
    assert writes == ["write memory.limit_in_bytes", "write memory.memsw.limit_in_bytes"]


def test_without_swap_accounting_nothing_is_swapped(hybrid: Host) -> None:
    """Otherwise such a kernel offers no memory limit, or one that moves the harm to the disk."""
    hybrid.missing.add("memory.memsw.limit_in_bytes")
    offer = hybrid.offer()
    assert offer.memory == "cgroup v1"
    with hybrid.make(offer) as group:
        assert (only_group(group, "memory") / "memory.swappiness").read_text() == "0"


def test_v2_without_swap_accounting_still_limits_memory(host: Host) -> None:
    """Otherwise a kernel without swap would offer no memory limit at all."""
    host.missing |= {"memory.swap.max", "memory.oom.group", "memory.peak"}
    host.hand_on(host.v2())
    offer = host.offer()
    assert offer.memory == "cgroup v2"
    with host.make(offer) as group:
        assert group.peak_memory_bytes() is None


@pytest.mark.parametrize(
    ("controller", "guarantee"),
    [("memory", "memory_limited"), ("pids", "processes_limited"), ("cpu", "cpu_limited")],
)
def test_a_group_that_cannot_be_made_is_typed_and_leaves_nothing(
    hybrid: Host, controller: str, guarantee: str
) -> None:
    """Otherwise a handler would run without a limit that its receipt names."""
    offer = hybrid.offer()
    before = set(hybrid.tree())
    hybrid.refused["mkdir", f"{hybrid.root}/{controller}/"] = errno.ENOSPC
    with pytest.raises(cgroup.NotMade) as caught:
        hybrid.make(offer)
    assert caught.value.guarantee == guarantee
    assert caught.value.errno_name == "ENOSPC"
    assert set(hybrid.tree()) == before


# -- evidence and end ---------------------------------------------------------------------


def test_v2_evidence_is_read(host: Host) -> None:
    """Otherwise a call that was ended for memory passes for one that crashed."""
    host.hand_on(host.v2())
    with host.make() as group:
        made = only_group(group, "memory")
        (made / "memory.events").write_text("low 0\nmax 40\noom 1\noom_kill 3\noom_group_kill 1\n")
        (made / "memory.peak").write_text("70000000\n")
        (made / "pids.events").write_text("max 7\n")
        (made / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
        assert group.oom_kills() == 3
        assert group.peak_memory_bytes() == 70_000_000
        assert group.processes_refused() == 7
        assert group.cpu_s() == 1.5


def test_v1_evidence_is_read(hybrid: Host) -> None:
    """Otherwise the same call has another ending on another host; failcnt is no kill."""
    with hybrid.make() as group:
        memory, pids = only_group(group, "memory"), only_group(group, "pids")
        (memory / "memory.failcnt").write_text("99\n")
        assert group.oom_kills() == 0
        (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
        (memory / "memory.max_usage_in_bytes").write_text("123\n")
        (pids / "pids.events").write_text(" max 5\n")
        assert (group.oom_kills(), group.peak_memory_bytes()) == (2, 123)
        assert group.processes_refused() == 5
        (memory / "memory.failcnt").unlink()


def test_what_a_group_saw_outlives_it(host: Host) -> None:
    """Otherwise the evidence is gone with whoever removes the group first."""
    host.hand_on(host.v2())
    group = host.make()
    made = only_group(group, "memory")
    (made / "memory.events").write_text("oom_kill 1\n")
    group.sample()
    shutil.rmtree(made)
    assert group.oom_kills() == 1
    assert group.is_empty()
    group.kill()
    assert group.try_remove()
    assert group.oom_kills() == 1
    group.close()


def test_a_group_that_cannot_be_read_is_not_taken_for_empty(hybrid: Host) -> None:
    """Otherwise a supervisor without descriptors would call a living tree gone."""
    group = hybrid.make()
    hybrid.exhausted = True
    assert not group.is_empty()
    hybrid.exhausted = False
    assert group.is_empty()
    assert group.try_remove()


async def test_a_group_that_is_busy_is_tried_again(hybrid: Host, autojump_clock: object) -> None:
    """Otherwise each call leaves a group: the last process's exit is not an empty group."""
    group = hybrid.make()
    hybrid.refused["rmdir", str(hybrid.root)] = errno.EBUSY
    assert not group.try_remove()
    assert not await group.remove(within_s=1)
    hybrid.refused.clear()
    assert await group.remove(within_s=1)
    assert [name for name in hybrid.tree() if "toolcell-" in os.path.basename(name)] == []


def test_flat_keyed_files_are_read_as_the_kernel_writes_them() -> None:
    """Otherwise v1's leading space, or a line of another shape, hides a refusal."""
    assert flat_keyed(" max 3\n") == {"max": 3}
    assert flat_keyed("populated 1\nfrozen 0\nodd\nx y\n") == {"populated": 1, "frozen": 0}
    assert flat_keyed(None) == {}


# -- sweeping -----------------------------------------------------------------------------


def dead_pid() -> int:
    """A pid that was in use and is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_only_groups_of_supervisors_that_are_gone_are_swept(hybrid: Host) -> None:
    """Otherwise a start would end another supervisor's calls, or somebody else's processes."""
    offer = hybrid.offer()
    own = names.myself()
    gone, here = dead_pid(), own.namespace
    pids = hybrid.root / "pids"
    leftovers = [f"toolcell-{here}-{gone}-1-1", f"toolcell-{here}-{own.pid}-1-7"]
    kept = [
        f"toolcell-{here}-{own.pid}-{own.start_ticks}-1",  # ours
        f"toolcell-{here + 1}-{gone}-1-1",  # another pid namespace: nothing is known of it
        f"toolcell-{here}-{gone}-1",
        f"toolcell-{here}-{gone}-1-1-evil",
        f"x-toolcell-{here}-{gone}-1-1",
        f"toolcell-{here}-{gone}-1-2",  # another user's
        names.leaf_name(),
    ]
    for name in leftovers + kept:
        hybrid.mkdir(str(pids / name))
    hybrid.others.add(str(pids / f"toolcell-{here}-{gone}-1-2"))
    assert set(sweep_groups(offer, files=hybrid)) == {str(pids / name) for name in leftovers}
    assert {path.name for path in pids.iterdir() if path.is_dir()} == set(kept)


def test_who_is_left_in_a_group_is_ended_by_the_sweep(hybrid: Host) -> None:
    """Otherwise a tool outlives the supervisor that was to end it."""
    offer = hybrid.offer()
    name = f"toolcell-{names.own_namespace()}-{dead_pid()}-1-1"
    group = hybrid.root / "unified" / name
    hybrid.mkdir(str(group))
    hybrid.write(str(group / "cgroup.procs"), "4242")
    assert sweep_groups(offer, files=hybrid) == (str(group),)
    assert "write cgroup.kill" in hybrid.log


def test_a_pid_that_has_left_a_group_is_not_signalled() -> None:
    """Otherwise a pid that was used again meanwhile is a stranger's, and ends for nothing."""

    class Once(Files):
        """A member that is gone when it is looked for again."""

        texts = iter(("{pid}\n", ""))

        def read(self, path: str) -> str | None:
            return next(self.texts).format(pid=stranger.pid)

    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        kill_one_by_one(Once(), "/nonexistent")
        out, _ = stranger.communicate(b"alive")
    assert (out, stranger.returncode) == (b"alive", 0)


def test_a_name_tells_its_maker_and_is_given_once() -> None:
    """Otherwise two jails share limits, or a sweep takes a group for another's."""
    first, second = names.new_name(), names.new_name()
    assert first != second
    assert names.maker(first) == names.maker(second) == names.myself()
    assert not names.myself().is_gone
    assert names.maker(names.leaf_name()) is None


# -- a scope from a service manager -------------------------------------------------------

# A fake of busctl and of the manager behind it: it checks the call's shape, makes the scope and
# moves the process, or does what its mode says.
BUSCTL = """\
#!{python}
import os, sys
mode, top, proc = {mode!r}, {top!r}, {proc!r}
if mode == "refuses":
    sys.exit("Call failed: Interactive authentication required.")
words = sys.argv[sys.argv.index("StartTransientUnit") + 1:]
assert words[0] == "ssa(sv)a(sa(sv))" and words[2] == "fail" and words[-1] == "0", words
name, count, rest, told = words[1], int(words[3]), words[4:-1], {{}}
while rest:
    key, kind, value, *rest = rest
    if kind == "au":
        value, *rest = rest
    told[key] = value
assert len(told) == count, told
assert told["Delegate"] == "true" and told["CollectMode"] == "inactive-or-failed", told
if mode == "silent":
    sys.exit(0)
scope = os.path.join(top, "app.slice", name)
os.makedirs(scope)
quota = str(int(told["CPUQuotaPerSecUSec"]) // 10)
files = {{"memory.max": told["MemoryMax"], "memory.swap.max": told["MemorySwapMax"],
         "pids.max": told["TasksMax"], "cpu.max": quota + " 100000", "memory.oom.group": "0",
         "cgroup.events": "populated 1\\n", "cgroup.kill": "", "memory.events": "oom_kill 0\\n",
         "cgroup.procs": told["PIDs"] + "\\n"}}
for file, text in files.items():
    if not (mode == "forgets" and file == "cpu.max"):
        with open(os.path.join(scope, file), "w") as stream:
            stream.write(text)
os.makedirs(os.path.join(proc, told["PIDs"]))
with open(os.path.join(proc, told["PIDs"], "cgroup"), "w") as stream:
    stream.write("0::/app.slice/" + name + "\\n")
"""
INIT = 4242


class Manager:
    """A host under a service manager that can be reached."""

    def __init__(self, host: Host, top: Path) -> None:
        self.host, self.top = host, top

    def offer(self, mode: str = "works") -> cgroup.CgroupOffer:
        file = self.host.root.parent / "busctl"
        file.write_text(
            BUSCTL.format(
                python=sys.executable, mode=mode, top=str(self.top), proc=str(self.host.proc)
            )
        )
        file.chmod(stat.S_IRWXU)
        return self.host.offer(str(file))


@pytest.fixture
def manager(host: Host) -> Iterator[Manager]:
    uid = os.geteuid()
    top = host.v2("/session.scope")
    host.hand_on(top)
    if uid:
        service = top / f"user.slice/user-{uid}.slice/user@{uid}.service"
        service.mkdir(parents=True)
        (service / "cgroup.controllers").write_text(ALL)
    # A Unix socket's path is short (unix(7), 108 bytes), and tmp_path may be long.
    with tempfile.TemporaryDirectory() as run, socket.socket(socket.AF_UNIX) as bus:
        host.run = Path(run)
        host.managed()
        at = host.run / (f"user/{uid}/bus" if uid else "dbus/system_bus_socket")
        at.parent.mkdir(parents=True)
        bus.bind(str(at))
        bus.listen()
        yield Manager(host, top)


async def test_a_manager_gives_a_scope_with_every_limit(manager: Manager) -> None:
    """Otherwise a user without a delegated group has nothing but the watch."""
    before = manager.host.own.copy()
    offer = manager.offer()
    assert mechanisms(offer) == ("cgroup v2 (systemd scope)",) * 3
    with manager.host.make(replace(offer, cpus=2.0)) as group:
        assert group.needs_adoption
        assert group.needs_lingering
        assert group.procs_files == ()
        await group.adopt(INIT)
        scope = only_group(group, "memory")
        assert (scope / "pids.max").read_text() == "21"
        assert int((scope / "memory.max").read_text()) == (64 << 20) + cgroup.INIT_MEMORY_BYTES
        assert (scope / "memory.swap.max").read_text() == "0"
        assert (scope / "memory.oom.group").read_text() == "1"
        assert (scope / "cpu.max").read_text() == "190000 100000"
        (scope / "memory.events").write_text("oom_kill 2\n")
        assert group.oom_kills() == 2
        assert not group.try_remove()
        group.kill()
        # Its manager removes what is empty.
        assert await group.remove(within_s=1)
        shutil.rmtree(scope)
        assert group.try_remove()
        assert group.oom_kills() == 2
    assert manager.host.own == before


@pytest.mark.parametrize(
    ("mode", "cause", "guarantee"),
    [
        ("refuses", "Interactive authentication required", "memory_limited"),
        ("silent", "within 0.3 s", "memory_limited"),
        ("forgets", "cpu.max", "cpu_limited"),
    ],
)
async def test_a_manager_that_does_not_hold_a_limit_fails_closed(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, mode: str, cause: str, guarantee: str
) -> None:
    """Otherwise the receipt names a limit that a manager took without a word and dropped."""
    if mode == "silent":
        monkeypatch.setattr(_cgroup_scope, "ADOPT_S", 0.3)
    with manager.host.make(manager.offer(mode)) as group:
        with pytest.raises(cgroup.NotMade) as caught:
            await group.adopt(INIT)
        assert cause in caught.value.cause
        assert caught.value.guarantee == guarantee
        group.kill()


def test_a_manager_offers_only_what_it_was_given(manager: Manager) -> None:
    """Otherwise a user manager without the cpu controller would promise a CPU limit."""
    uid = os.geteuid()
    user = manager.top / f"user.slice/user-{uid}.slice/user@{uid}.service"
    (user if uid else manager.top).joinpath("cgroup.controllers").write_text("memory pids")
    offer = manager.offer()
    assert mechanisms(offer) == (*["cgroup v2 (systemd scope)"] * 2, None)
    assert offer.why["cpu"]


def test_a_manager_that_cannot_be_reached_is_named(manager: Manager) -> None:
    """Otherwise nobody learns that a login session (a bus) is all that is missing."""
    for file in manager.host.run.rglob("*"):
        if file.is_socket():
            file.unlink()
    offer = manager.offer()
    assert mechanisms(offer) == (None,) * 3
    assert "errno 2" in offer.why["memory"]


async def test_a_plain_group_is_adopted_by_doing_nothing(hybrid: Host) -> None:
    """Otherwise the caller has to know which kind of group it holds."""
    with hybrid.make() as group:
        assert not group.needs_adoption
        assert not group.needs_lingering
        await group.adopt(INIT)


def test_a_group_is_frozen_before_it_is_ended_one_by_one(tmp_path: Path) -> None:
    """Before Linux 5.14 there is no cgroup.kill, and a fork bomb outruns a list of pids."""
    group = tmp_path / "group"
    group.mkdir()
    for name in ("cgroup.procs", "cgroup.freeze"):
        (group / name).write_text("")
    cgroup.Group((cgroup.Place(2, str(group), ()),)).kill()
    assert (group / "cgroup.freeze").read_text() == "1"
    (group / "cgroup.kill").write_text("")
    (group / "cgroup.freeze").write_text("")
    cgroup.Group((cgroup.Place(2, str(group), ()),)).kill()
    assert (group / "cgroup.kill").read_text() == "1"
    assert (group / "cgroup.freeze").read_text() == "", "where it can be ended at once, it is"
