"""The jail's own root: system folders and the interpreter read-only, the rest private.

Host trees are opened by descriptor, with no symlink on the way: a path that was resolved when
the executor started and has since become a link is refused, not followed. A root supervisor's
trees are opened by the zygote (only host root may id-map them); anybody else's by the init.

Built in three steps. `build` makes what several calls, one after the other, may see a copy of;
`prepare` all else that can be made before a call is known, none of which another call ever sees;
`furnish`, at the call, lays the overlays, which take in what their folders hold at that moment.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat

from . import ids, mountinfo, overlay, syscalls
from .report import StageFailed, stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

HOME = "/home/user"
SHARED = ("/tmp", "/var/tmp", "/dev/shm")
"""The private folders that are everybody's: with the sticky bit, as programs expect them."""
PRIVATE = (*SHARED, HOME)
"""What a jail has of its own instead of the host's."""
INOTIFY_INSTANCES = 32
INOTIFY_WATCHES = 16_384
_OWN_FILES = 8192
"""More than the folders and mount points of any root."""
SCRIPT = "/run/command"
"""Where a command's script lies, if it has one."""
DEVICES_FOLDER = "/dev"
DEVICES = ("null", "zero", "full", "random", "urandom")
# A place to build the new root on: any folder will do, it is covered in this namespace only.
_PLACES = ("/tmp", "/run", "/mnt", "/usr")
# In the new root, where what is the jail's own lies until its call: that of these which is unused.
_SCRATCH_PLACES = ("/mnt", "/media", "/srv", "/opt")
_SAFE = syscalls.MS_NOSUID | syscalls.MS_NODEV
ROOT_BYTES = 4 << 20


class Tree:
    """A detached copy of a host tree, and where the jail will see it."""

    def __init__(self, path: str, fd: int, *, is_folder: bool, is_writable: bool = True) -> None:
        self.path = path
        self.fd = fd
        self.is_folder = is_folder
        self.is_writable = is_writable
        # Whether it is seen through an overlay, and whether that keeps what is changed.
        self.is_layered = False
        self.keeps = False
        # What ids on disk the jail's host ids stand for, where it has ids of its own.
        self.owners: dict[str, Any] = {}
        # What it is called in the scratch folder, where it lies until a call, if not at its path.
        self.name = ""


def open_tree(
    entry: dict[str, Any], base: int | None, seen: mountinfo.Around | None = None
) -> Tree | None:
    """Open one mount of the plan; None where an optional one does not exist.

    `seen` knows what is mounted in this process's namespace, where somebody keeps an eye on that.
    """
    path = entry["path"]
    try:
        source = syscalls.open_exactly(path)
    except FileNotFoundError:
        if entry["optional"]:
            return None
        raise
    owners: dict[str, Any] = {}
    try:
        found = os.fstat(source)
        check_identity(entry, found)
        fd = syscalls.clone_tree(source)
        if entry.get("layered"):
            refuse_submounts(path, mountinfo.read() if seen is None else seen.mounted())
        attributes = syscalls.MOUNT_ATTR_NOSUID
        if not entry.get("device"):
            attributes |= syscalls.MOUNT_ATTR_NODEV
        if not entry["writable"]:
            attributes |= syscalls.MOUNT_ATTR_RDONLY
        syscalls.set_tree(fd, attributes)
        if base is not None and entry["owned"]:
            owners = _map_owners(fd, source, entry, base)
    finally:
        os.close(source)
    is_folder = stat.S_ISDIR(found.st_mode)
    tree = Tree(path, fd, is_folder=is_folder, is_writable=entry["writable"])
    tree.owners = owners
    tree.is_layered, tree.keeps = entry.get("layered", False), entry.get("keeps", False)
    return tree


def check_identity(entry: dict[str, Any], found: os.stat_result) -> None:
    """Refuse a workspace that is another folder by now."""
    expected = entry.get("identity")
    if expected is not None and [found.st_dev, found.st_ino] != expected:
        cause = f"{entry['path']} is not the folder that it was when the executor started"
        raise StageFailed("fs_confined", "workspace", cause, None)


def refuse_submounts(path: str, mounted: Iterable[mountinfo.Mounted]) -> None:
    """Refuse a folder with another file system mounted below it (proc_pid_mountinfo(5)).

    An overlay shows what lies covered beneath such a mount, which is nobody's to see.
    """
    inside = os.fsencode(f"{path}/")
    for each in mounted:
        if each.point.startswith(inside):
            named = os.fsdecode(each.point)
            cause = f"another file system is mounted at {named}, inside {path}"
            raise StageFailed("fs_confined", "submount", cause, None)


def _map_owners(fd: int, source: int, entry: dict[str, Any], base: int) -> dict[str, Any]:
    path, must = entry["path"], entry["writable"] or entry.get("keeps", False)
    own = os.fstat(source)
    uids, gids = ids.owners_of(source) if must else ids.owners_lately(source)
    uid_map = ids.owners_map(base, own.st_uid, uids)
    gid_map = ids.owners_map(base, own.st_gid, gids)
    with stage("fs_confined", "namespaces"):
        namespace = ids.mapping_namespace(uid_map, gid_map)
    try:
        syscalls.set_tree(fd, syscalls.MOUNT_ATTR_IDMAP, userns_fd=namespace)
    except OSError as error:
        if must:
            cause = f"{error.strerror}: the file system of {path} cannot be id-mapped"
            raise StageFailed("fs_confined", "idmap", cause, error.errno) from error
        # Read-only and unmapped, the jail reads what others may read: less, never more.
    return {
        "owner": [own.st_uid, own.st_gid],
        "uids": ids.on_disk(uid_map),
        "gids": ids.on_disk(gid_map),
    }


def open_trees(
    config: dict[str, Any], base: int | None, seen: mountinfo.Around | None = None
) -> list[Tree]:
    """The mounts of a plan, but for optional ones that this host has not got.

    Without those that are the same for all jails, see `template`.
    """
    trees: list[Tree] = []
    with stage("fs_confined", "open"):
        for entry in config["mounts"]:
            if entry["path"] not in config["pieces"]:
                tree = open_tree(entry, base, seen)
                if tree is not None:
                    trees.append(tree)
    return trees


PROC_KEPT = frozenset(
    {
        "cgroups",
        "cpuinfo",
        "filesystems",
        "loadavg",
        "meminfo",
        "mounts",
        "net",
        "self",
        "stat",
        "swaps",
        "sys",
        "sysvipc",
        "thread-self",
        "uptime",
        "version",
        "vmstat",
    }
)
"""What a jail sees in /proc besides its own processes: what programs size themselves by, and
what belongs to its own namespaces. Anything else, known or new, is masked."""


def writable(config: dict[str, Any]) -> list[str]:
    """Every folder and file that a jail may write to."""
    now, late = _writable(config)
    return [*now, *late]


def writable_now(config: dict[str, Any]) -> list[str]:
    """What of it stands before a call is known."""
    return _writable(config)[0]


def writable_late(config: dict[str, Any]) -> list[str]:
    """What of it is laid at the call: the layered workspace, and what lies in one."""
    return _writable(config)[1]


def above_late(config: dict[str, Any]) -> list[str] | None:
    """Folders, there before the call, above all that is laid then; None where there are none.

    A rule for one of them is a rule for what is laid below it (landlock(7)): there must be nothing
    else there. Below one that can be written to, nothing is needed.
    """
    now, late = _writable(config)
    others = [path for path in used(config) if path not in late and not _is_below(path, late)]
    found = []
    for path in late:
        if _is_below(path, [*now, *late]):
            continue
        folder = os.path.dirname(path)
        if folder == "/" or not is_apart(folder, others):
            return None
        found.append(folder)
    return found


def devices(config: dict[str, Any]) -> list[str]:
    """Where the devices of every jail lie: their folder, if nothing else is shown there."""
    folder = DEVICES_FOLDER
    if any(f"{entry['path']}/".startswith(f"{folder}/") for entry in config["mounts"]):
        return [f"{folder}/{name}" for name in DEVICES]
    return [folder]


def _writable(config: dict[str, Any]) -> tuple[list[str], list[str]]:
    layered = [entry["path"] for entry in config["mounts"] if entry["layered"]]
    now, late = list(config["private"]), []
    for entry in config["mounts"]:
        if entry["keeps"] or (entry["writable"] and _is_below(entry["path"], layered)):
            late.append(entry["path"])
        elif entry["writable"]:
            now.append(entry["path"])
    return now, late


def used(config: dict[str, Any]) -> list[str]:
    """Every path of the host's, or in place of one of it, that a plan names."""
    return [*config["system"], *config["private"], *(entry["path"] for entry in config["mounts"])]


def is_apart(place: str, paths: Sequence[str]) -> bool:
    """Whether a folder neither is, holds nor lies in any of these paths."""
    return not any(
        f"{path}/".startswith(f"{place}/") or place.startswith(f"{path}/") for path in paths
    )


def apart(places: Sequence[str], paths: Sequence[str]) -> str:
    """The first place where nothing is covered that lies at any of these paths.

    Raises:
        StageFailed: there is none.
    """
    for place in places:
        if is_apart(place, paths):
            return place
    cause = f"something is mounted in each of {', '.join(places)}, and one of them has to be free"
    raise StageFailed("fs_confined", "root", cause, None)


class Root:
    """A root that stands, but for what is one call's alone."""

    def __init__(self, scratch: str, hidden: list[Tree], proc: int | None) -> None:
        # Where what a call has of its own will lie, and these trees do.
        self.scratch = scratch
        self.hidden = hidden
        # A way to the limits of namespaces, where a call will have a new one.
        self.proc = proc


class Laid:
    """What one call has of its own in a root, but for what only that call decides."""

    def __init__(
        self, layers: list[overlay.Layers], late: list[tuple[Tree, int]], scratch: int | None
    ) -> None:
        self.layers = layers
        # Each with the copy that will be laid.
        self.late = late
        # What is covered, so that this descriptor is the only way there.
        self.scratch = scratch

    @property
    def keeps(self) -> bool:
        """Whether the workspace's changes go into a layer that outlives the call."""
        return any(layers.keeps for layers in self.layers)


def build(config: dict[str, Any], trees: Sequence[Tree], *, renews: bool) -> Root:
    """Make the new root and move into it. Runs in the init, before anything else does.

    `renews`: each call will have a copy of it, and an IPC namespace, of its own.
    """
    top = next(place for place in _PLACES if os.path.isdir(place))
    private: list[str] = config["private"]
    with stage("fs_confined", "root"):
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        pieces = [
            Tree(path, syscalls.clone_path(source), is_folder=True)
            for path, source in sorted(config["pieces"].items())
        ]
        size = f"size={ROOT_BYTES},nr_inodes={_OWN_FILES}"
        syscalls.mount("root", top, "tmpfs", _SAFE, f"mode=0755,{size}")
        scratch = apart(_SCRATCH_PLACES, used(config))
        _skeleton(top, config, scratch)
    with stage("fs_confined", "proc"):
        syscalls.mount("proc", f"{top}/proc", "proc", _SAFE | syscalls.MS_NOEXEC)
        proc = syscalls.clone_path(f"{top}/proc") if renews else None
    with stage("no_new_privileges", "own limits"):
        limits = _own_limits() if renews else _own_limits() | _ipc_limits(config)
        for name, value in limits.items():
            _set(f"{top}/proc/sys/{name}", value)
    with stage("fs_confined", "proc masks"):
        _mask_proc(top)
    with stage("fs_confined", "mounts"):
        ours = {os.stat(top).st_dev}
        for tree in pieces:
            syscalls.move_tree_to(tree.fd, top + tree.path)
            os.close(tree.fd)
        hidden: list[Tree] = []
        tops = [*private, *(tree.path for tree in trees if tree.is_layered)]
        for tree in trees:
            if tree.is_layered or _is_below(tree.path, tops):
                tree.name = f"h{len(hidden)}"
                hidden.append(tree)
                make_point(f"{top}{scratch}/{tree.name}", is_folder=tree.is_folder)
                attach(tree.fd, f"{top}{scratch}/{tree.name}")
        for tree in sorted(trees, key=lambda t: t.path.split("/")):
            if tree not in hidden:
                target = _place(top, tree, ours)
                syscalls.move_tree(tree.fd, target)
                os.close(target)
                os.close(tree.fd)
        for path in tops:
            if not _is_below(path, private):
                os.close(_place(top, Tree(path, -1, is_folder=True), ours))
    with stage("fs_confined", "pivot"):
        flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _SAFE
        syscalls.mount(None, top, None, flags)
        os.chdir(top)
        syscalls.pivot_root(".", ".")
        syscalls.umount_detach(".")
        os.chdir("/")
    return Root(scratch, hidden, proc)


def prepare(config: dict[str, Any], root: Root) -> Laid:
    """Lay into a root, or a copy of it, what one call has of its own."""
    own = f"{root.scratch}/{overlay.OWN}"
    if root.proc is not None:
        with stage("no_new_privileges", "own limits"):
            for name, value in _ipc_limits(config).items():
                _set(f"/proc/self/fd/{root.proc}/sys/{name}", value)
    with stage("disk_limited", "scratch"):
        trees = _scratch(own, config)
        ours = {os.stat(own).st_dev}
    laid = [tree.path for tree in root.hidden if tree.is_layered]
    with stage("fs_confined", "mounts"):
        late: list[tuple[Tree, int]] = []
        for tree in root.hidden:
            if tree.is_layered:
                continue
            fd = syscalls.clone_path(f"{root.scratch}/{tree.name}")
            if _is_below(tree.path, laid):
                late.append((tree, fd))
            else:
                trees.append(Tree(tree.path, fd, is_folder=tree.is_folder))
        for tree in sorted(trees, key=lambda t: t.path.split("/")):
            target = _place("", tree, ours)
            syscalls.move_tree(tree.fd, target)
            os.close(target)
            os.close(tree.fd)
        for path in laid:
            os.close(_place("", Tree(path, -1, is_folder=True), ours))
    layers = [
        overlay.prepare(
            root.scratch, number, tree.path, tree.name, keeps=tree.keeps, owners=tree.owners
        )
        for number, tree in enumerate(tree for tree in root.hidden if tree.is_layered)
    ]
    return Laid(layers, late, _close_scratch(root.scratch, config, layers))


def forget_numbers(root: Root) -> None:
    """Have process numbers begin anew, where the kernel lets us (proc_sys_kernel(5), ns_last_pid).

    How many processes one call had is no affair of the next.
    """
    with contextlib.suppress(OSError):
        _set(f"/proc/self/fd/{root.proc}/sys/kernel/ns_last_pid", 1)


def furnish(
    config: dict[str, Any], laid: Laid, masks: dict[str, list[str]], script: int | None
) -> tuple[int, dict[str, Any]] | None:
    """Lay what only a call decides: overlays as their folders are now, the script.

    Returns a descriptor of the layer that takes the workspace's changes, with what ids in it
    stand for; None where there is none.
    """
    kept: tuple[int, dict[str, Any]] | None = None
    for layers in laid.layers:
        overlay.lay(layers, masks.get(layers.path, []))
        if layers.upper is not None:
            kept = layers.upper, layers.owners
            with stage("disk_limited", "scratch"):
                # Once what the overlay itself has made there is in the count.
                _limit_files(config)
    with stage("fs_confined", "mounts"):
        for tree, clone in laid.late:
            fd = clone if tree.is_writable else _fixed(tree.path, clone)
            target = syscalls.open_exactly(tree.path)
            syscalls.move_tree(fd, target)
            os.close(target)
            os.close(fd)
    if laid.scratch is not None:
        os.close(laid.scratch)
    if script is not None:
        with stage("fs_confined", "script"):
            _write_script(script)
    return kept


def _close_scratch(
    place: str, config: dict[str, Any], layers: Sequence[overlay.Layers]
) -> int | None:
    """Take away the only path to the scratch as a whole, and with it to the layers.

    It is covered, for good, so that a descriptor of this process is the only way there: an overlay
    can only be made of layers that are mounted (clone_private_mount() in the kernel), and an
    unmount would wait for all processors.
    """
    scratch: int | None = None
    with stage("disk_limited", "scratch"):
        if layers:
            scratch = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        syscalls.bind(b"/run", os.fsencode(place))
        for one in layers:
            overlay.arrange(one, f"/proc/self/fd/{scratch}")
        if not any(one.keeps for one in layers):
            _limit_files(config)
    return scratch


def _write_script(source: int) -> None:
    """A read-only file of the jail's own, on a file system of just that size."""
    folder = os.path.dirname(SCRIPT)
    length = os.fstat(source).st_size
    size = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE + mmap.PAGESIZE
    syscalls.mount("command", folder, "tmpfs", _SAFE, f"mode=0755,size={size},nr_inodes=3")
    fd = os.open(SCRIPT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        copy(source, fd)
    finally:
        os.close(fd)
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _SAFE
    syscalls.mount(None, folder, None, flags)


def _is_below(path: str, tops: Sequence[str]) -> bool:
    return any(path.startswith(f"{top}/") for top in tops)


def copy(source: int, target: int) -> None:
    """All of one file into another, none of it through this process's memory (sendfile(2))."""
    at, length = 0, os.fstat(source).st_size
    while at < length:
        at += os.sendfile(target, source, at, length - at)


def _fixed(path: str, unused: int) -> int:
    """What has to stay read-only in a layered folder, from its overlay and not from the host.

    What is masked in it stays so; and what stands there for the jail is what it would see.
    """
    os.close(unused)
    seen = syscalls.open_exactly(path)
    try:
        fd = syscalls.clone_tree(seen)
        safe = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
        syscalls.set_tree(fd, safe | syscalls.MOUNT_ATTR_RDONLY)
    finally:
        os.close(seen)
    return fd


def open_device(name: str) -> Tree:
    """A device node of the host."""
    path = f"/dev/{name}"
    entry = {"path": path, "writable": True, "optional": False, "owned": False, "device": True}
    tree = open_tree(entry, None)
    assert tree is not None
    return tree


def _own_limits() -> dict[str, int]:
    """What the jail's own user namespace allows, as sysctls that its worker cannot write."""
    return {
        # In a user namespace of its own a worker would have capabilities again: over tmpfs
        # without bound, and over file capabilities that are valid on the host's disk.
        "user/max_user_namespaces": 0,
        # What it takes of these is taken from the supervisor's own budget (inotify(7)).
        "user/max_inotify_instances": INOTIFY_INSTANCES,
        "user/max_inotify_watches": INOTIFY_WATCHES,
    }


def _ipc_limits(config: dict[str, Any]) -> dict[str, int]:
    """What its IPC namespace allows.

    A segment that nobody has attached is in no process's memory: so all of them together. Only who
    has the namespace's uid 0 may; elsewhere the reaper looks at them.
    """
    if "ipc_namespace" not in config["layers"] or os.geteuid() != ids.INIT_ID:
        return {}
    return {"kernel/shmall": config["limits"]["memory_bytes"] // mmap.PAGESIZE}


def _mask_proc(top: str) -> None:
    """Cover what tells of the host, and make /proc/sys read-only; its own root cannot undo it."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    empty: bytes | None = None
    with os.scandir(f"{top}/proc") as entries:
        for entry in entries:
            if entry.name in PROC_KEPT or entry.name.isdigit():
                continue
            path = os.fsencode(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                syscalls.bind(b"/dev/null", path)
            elif empty is None:
                empty = path
                syscalls.mount(
                    "masked", entry.path, "tmpfs", flags | syscalls.MS_RDONLY, "nr_inodes=2"
                )
            else:
                syscalls.bind(empty, path)
    sysctl = f"{top}/proc/sys"
    syscalls.mount(sysctl, sysctl, None, syscalls.MS_BIND)
    flags |= syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY
    syscalls.mount(None, sysctl, None, flags)


def _skeleton(top: str, config: dict[str, Any], scratch: str) -> None:
    for folder in ("/proc", "/tmp", "/home", HOME, "/run", "/var", "/var/tmp", scratch):
        os.mkdir(top + folder, 0o755)
    os.mkdir(f"{top}{scratch}/{overlay.OWN}")
    for path in config["pieces"]:
        # Below another piece its mount point is there once that one is.
        if not _is_below(path, list(config["pieces"])):
            os.makedirs(top + path, 0o755, exist_ok=True)
    for path, target in config["links"].items():
        os.symlink(target, top + path)


def _scratch(place: str, config: dict[str, Any]) -> list[Tree]:
    """One sized tmpfs behind all that is the jail's own, so that one bound holds for all.

    Also behind what it changes of its workspace: the upper layer lies there, with the others.
    """
    limits = config["limits"]
    inodes = limits["disk_files"] + _OWN_FILES
    data = f"mode=0755,size={limits['disk_bytes']},nr_inodes={inodes}"
    syscalls.mount("scratch", place, "tmpfs", _SAFE, data)
    trees = []
    worker = ids.WORKER_ID
    is_worker = os.geteuid() == worker
    for number, path in enumerate(config["private"]):
        inside = f"{place}/{number}"
        os.mkdir(inside)
        os.chmod(inside, 0o1777 if path in SHARED else 0o700)
        if not is_worker:
            os.chown(inside, worker, worker)
        trees.append(Tree(path, syscalls.clone_path(inside), is_folder=True))
    return trees


def _limit_files(config: dict[str, Any]) -> None:
    """Leave the scratch file system room for so many files more, and not one besides.

    What was made for the jail itself is there by now, and how much that is differs: an interpreter
    in /tmp needs mount points, one elsewhere none.
    """
    place = config["private"][0]
    found = os.statvfs(place)
    inodes = found.f_files - found.f_ffree + config["limits"]["disk_files"]
    flags = syscalls.MS_REMOUNT | syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount(None, place, None, flags, f"nr_inodes={inodes}")


def write(path: str, text: str) -> None:
    """A small file of the jail's own."""
    with open(path, "w") as file:
        file.write(text)


def _set(path: str, value: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)


def make_point(path: str, *, is_folder: bool) -> None:
    """A mount point, with all above it, on a file system of our own."""
    if is_folder:
        os.makedirs(path, mode=0o755, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def attach(fd: int, path: str) -> None:
    """Attach a detached tree to a mount point of our own, and let go of it."""
    target = syscalls.open_exactly(path)
    syscalls.move_tree(fd, target)
    os.close(target)
    os.close(fd)


def _place(top: str, tree: Tree, ours: set[int]) -> int:
    """An O_PATH descriptor of where to mount a tree, made where it is missing.

    Only on file systems of the jail's own (`ours`): a host tree that is mounted already may
    have changed since it was opened, so nothing is made there and no link is followed.
    """
    inside = top + tree.path
    try:
        return syscalls.open_exactly(inside)
    except FileNotFoundError:
        pass
    parent = top
    for name in tree.path.split("/")[1:-1]:
        parent = f"{parent}/{name}"
        _make(parent, ours, is_folder=True)
    _make(inside, ours, is_folder=tree.is_folder)
    return syscalls.open_exactly(inside)


def _make(path: str, ours: set[int], *, is_folder: bool) -> None:
    folder, name = os.path.split(path)
    fd = syscalls.open_exactly(folder)
    try:
        if os.fstat(fd).st_dev not in ours:
            return  # Opening it next says what is missing.
        if is_folder:
            os.mkdir(name, 0o755, dir_fd=fd)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=fd))
    except FileExistsError:
        pass
    finally:
        os.close(fd)
