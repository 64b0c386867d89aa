"""What is the same in the root of every jail, made once by the zygote in a namespace of its own.

       zygote's mount namespace                      jail's root (a tmpfs of its own)
       PLACE/0/etc   small files, /etc/ssl/certs …      /etc  ─┐
       PLACE/0/dev   null, zero, full, random …         /dev   │ one recursive copy each,
       PLACE/0/1     /usr                               /usr   │ read-only already
       PLACE/0/2     the interpreter                    /opt/… ┘

A jail's init gets a copy of the zygote's namespace with its own, and takes these from there: a few
calls instead of some thirty mounts a jail.
"""

from __future__ import annotations

import os

from . import ids, mountinfo, mounts, places, syscalls
from .report import stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PLACES = ("/sys/class", "/sys/bus", "/sys", "/srv", "/media", "/mnt", "/opt")
"""Where the zygote may lay something over, in its own namespace: nothing there is asked for."""
_KEPT = 4
_NAMES_MAX = 256
_SAFE = syscalls.MS_NOSUID | syscalls.MS_NODEV
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_FILES = {
    "/etc/passwd": "root:x:0:0::/:/bin/sh\n"
    f"user:x:{ids.WORKER_ID}:{ids.WORKER_ID}::{mounts.HOME}:/bin/sh\n"
    "nobody:x:65534:65534::/:/bin/false\n",
    "/etc/group": f"root:x:0:\nuser:x:{ids.WORKER_ID}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class Template:
    """One that stands: which trees a jail's root takes from it, and which links it has besides."""

    def __init__(self, place: str, pieces: dict[str, str], links: dict[str, str]) -> None:
        self.place = place
        # Where a jail sees it: where it lies.
        self.pieces = pieces
        self.links = links
        # How what it shows looked just before it was made.
        self.look: object = None


class _Asked:
    """What of a plan its template holds."""

    def __init__(self, plan: dict[str, Any], *, ranged: bool) -> None:
        self.shared = [entry for entry in plan["mounts"] if _is_shared(entry, ranged=ranged)]
        self.inside = sorted(
            entry["path"]
            for entry in plan["mounts"]
            if entry["path"].startswith(("/etc/", "/dev/"))
        )
        # What of the host it shows.
        self.shown = (*plan["system"], *(entry["path"] for entry in self.shared))
        self.places = places.Places(self.shown)
        self.used = mounts.used(plan)
        self.key = repr((plan["system"], plan["files"], self.shared, self.inside))


class Templates:
    """The templates of one zygote, the least recently used dropped."""

    def __init__(self) -> None:
        self._base: str | None = None
        self._made: dict[str, Template] = {}
        self._count = 0
        self.seen: mountinfo.Around | None = None
        """What is mounted in the zygote's own namespace; it is in that once it makes one."""
        # What each shows, by the names of plans, which are many more.
        self._asked: dict[str, _Asked] = {}

    def of(self, plan: dict[str, Any], name: str, *, ranged: bool) -> Template:
        """The one for a plan, whose name is worth as much as itself.

        Raises:
            StageFailed: what it consists of cannot be had.
        """
        asked = self._asked.pop(name, None) or _Asked(plan, ranged=ranged)
        self._asked[name] = asked
        if len(self._asked) > _NAMES_MAX:
            del self._asked[next(iter(self._asked))]
        if self._base is not None and not mounts.is_apart(self._base, asked.used):
            # Here it would cover what this plan asks for: they move, all of them.
            syscalls.umount_detach(self._base)
            self._base = None
            self._made.clear()
        # Before it is made: what changes meanwhile is then another one's.
        look = self._look(asked)
        found = self._made.pop(asked.key, None)
        if found is not None and found.look != look:
            # Something in it was replaced, or covered, or laid open: it shows what was there.
            syscalls.umount_detach(found.place)
            found = None
        if found is None:
            found = self._build(plan, asked)
            found.look = look
        self._made[asked.key] = found
        while len(self._made) > _KEPT:
            oldest = next(iter(self._made))
            syscalls.umount_detach(self._made.pop(oldest).place)
        return found

    def _look(self, asked: _Asked) -> object:
        if self.seen is None:
            self.seen = mountinfo.Around()
        return asked.places.look(), self.seen.look(asked.key, asked.shown)

    def _build(self, plan: dict[str, Any], asked: _Asked) -> Template:
        with stage("fs_confined", "root"):
            if self._base is None:
                there = [
                    place
                    for place in _PLACES
                    if os.path.isdir(place) and os.path.realpath(place) == place
                ]
                base = mounts.apart(there, asked.used)
                syscalls.mount("root", base, "tmpfs", _SAFE, "mode=0755")
                self._base = base
            place = f"{self._base}/{self._count}"
            self._count += 1
            os.mkdir(place)
            syscalls.mount("root", place, "tmpfs", _SAFE, "mode=0755,size=4m,nr_inodes=8192")
        try:
            return self._fill(place, plan, asked.shared, asked.inside)
        except BaseException:
            syscalls.umount_detach(place)
            raise

    def _fill(
        self, place: str, plan: dict[str, Any], shared: list[dict[str, Any]], inside: list[str]
    ) -> Template:
        pieces = {"/etc": f"{place}/etc", "/dev": f"{place}/dev"}
        links: dict[str, str] = {}
        trees: list[mounts.Tree] = []
        with stage("fs_confined", "root"):
            for folder in ("etc", "dev", "dev/shm"):
                os.mkdir(f"{place}/{folder}", 0o755)
            for name, target in _LINKS.items():
                os.symlink(target, f"{place}/dev/{name}")
            for path, text in {**_FILES, **plan["files"]}.items():
                mounts.write(place + path, text)
        for path in plan["system"]:
            if os.path.islink(path):
                if path.startswith("/etc/"):
                    os.makedirs(place + os.path.dirname(path), exist_ok=True)
                    os.symlink(os.readlink(path), place + path)
                else:
                    links[path] = os.readlink(path)
            elif os.path.exists(path):
                trees += _opened({"path": path, "writable": False, "optional": True})
        for entry in shared:
            trees += _opened(entry)
        for number, tree in enumerate(trees):
            with stage("fs_confined", "mounts"):
                within = tree.path.startswith("/etc/")
                target = f"{place}{tree.path}" if within else f"{place}/{number}"
                mounts.make_point(target, is_folder=tree.is_folder)
                mounts.attach(tree.fd, target)
                if not within:
                    pieces[tree.path] = target
        with stage("fs_confined", "root"):
            for name in mounts.DEVICES:
                tree = mounts.open_device(name)
                mounts.make_point(f"{place}/dev/{name}", is_folder=False)
                mounts.attach(tree.fd, f"{place}/dev/{name}")
            for path in inside:
                # A root that is everybody's takes no mount point later.
                if path not in pieces and not os.path.lexists(place + path):
                    mounts.make_point(place + path, is_folder=not os.path.isfile(path))
            flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _SAFE
            syscalls.mount(None, place, None, flags)
        return Template(place, pieces, links)


def _opened(entry: dict[str, Any]) -> list[mounts.Tree]:
    with stage("fs_confined", "open"):
        tree = mounts.open_tree(entry, None)
    return [] if tree is None else [tree]


def _is_shared(entry: dict[str, Any], *, ranged: bool) -> bool:
    """Whether a mount is the same in all jails: the interpreter's, where no ids are mapped."""
    return entry["shared"] and not (ranged and entry["owned"])
