"""Probes of what a jail reaches of the file system: files outside, devices, its own scratch."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import stat

from toolcell._probes import Attempt, append, attempt, own, read, refused, seen, syscall, why, write

_MINIMAL = {"null", "zero", "full", "random", "urandom"}
_LINKS = {"fd", "stdin", "stdout", "stderr"}
_ADD_ENTROPY = 0x4004_5201
"""RNDADDTOENTCNT (random(4)): needs a capability; by it a jail would weaken the host's dice."""
_NO_DRIVER = 240, 0
"""For experiments (the kernel's devices.txt): whoever makes this node has made none of use."""
_AT_EMPTY_PATH = 0x1000
_BLOCK = 1 << 16


def files(secret: str, folder: str, forbidden: list[str]) -> list[Attempt]:
    """fs_confined: a file and a folder outside that anybody may change, by every road there.

    `forbidden` are folders that nobody may write to. Whether anything did change is seen outside.
    """
    mine, link = write(own("mine")), own("link")
    os.symlink(secret, link)
    roads = {
        "": secret,
        " through ..": f"{os.getcwd()}/../../../../../../../..{secret}",
        " through a symlink": link,
        " through /proc/1/root": f"/proc/1/root{secret}",
        " through /proc/self/root": f"/proc/self/root{secret}",
        " through /proc/self/cwd": f"/proc/self/cwd/../../../../../../../..{secret}",
    }
    found = [
        attempt(f"read a file outside{how}", functools.partial(read, way))
        for how, way in roads.items()
    ]
    found += [
        attempt("read it through a descriptor's folder", lambda: _through_descriptors(secret)),
        attempt("list its folder", lambda: os.listdir(folder)),
        attempt("read /etc/shadow", lambda: read("/etc/shadow")),
        attempt("append to it", lambda: append(secret)),
        attempt("open it for writing", lambda: os.open(secret, os.O_RDWR)),
        attempt("truncate it", lambda: os.truncate(secret, 0)),
        attempt("delete it", lambda: os.unlink(secret)),
        attempt("rename it here", lambda: os.rename(secret, own("taken"))),
        attempt("rename a file there", lambda: os.rename(mine, f"{folder}/moved")),
        attempt("hard link it here", lambda: os.link(secret, own("hard"))),
        attempt("hard link a file there", lambda: os.link(mine, f"{folder}/linked")),
        attempt("make a file there", lambda: write(f"{folder}/made")),
        attempt("make a folder there", lambda: os.mkdir(f"{folder}/made")),
        attempt("make a symlink there", lambda: os.symlink("x", f"{folder}/symlink")),
        attempt("bind a socket there", lambda: os.mknod(f"{folder}/socket", 0o140600)),
        *_attributes(secret),
        attempt(
            "make a block device", lambda: os.mknod(own("block"), 0o060600, os.makedev(*_NO_DRIVER))
        ),
    ]
    return found + [_no_file_in(path) for path in forbidden]


def _no_file_in(folder: str) -> Attempt:
    return attempt(f"write into {folder}", lambda: write(f"{folder}/toolcell-probe"))


def _no_entry_to(path: str) -> Attempt:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    return attempt(f"open {path}", lambda: os.open(path, flags))


def _through_descriptors(secret: str) -> str:
    """openat(2) from each descriptor that this process was given."""
    refusal = OSError(errno.EBADF, os.strerror(errno.EBADF))
    for fd in range(4):
        for way in (f"../../../../../..{secret}", secret[1:]):
            try:
                return os.read(os.open(way, os.O_RDONLY, dir_fd=fd), 64).decode()
            except OSError as error:
                refusal = error
    raise refusal


def _attributes(path: str) -> list[Attempt]:
    """Modes, owners and times, by name: no content, and still a change."""
    return [
        attempt("change its mode", lambda: os.chmod(path, 0o606)),
        attempt("change its owner", lambda: os.chown(path, os.getuid(), os.getgid())),
        attempt("change its times", lambda: os.utime(path, (1, 1))),
        attempt("set an attribute", lambda: os.setxattr(path, "user.toolcell", b"x")),
    ]


def change(path: str) -> list[Attempt]:
    """fs_confined, writes_transactional: a file and its folder that can be read, and no more.

    By name, and by a descriptor that was opened for reading.
    """
    folder = os.path.dirname(path)
    fd = os.open(path, os.O_RDONLY)
    by_name = os.open(path, os.O_PATH)
    found = [
        attempt("append to a file that can be read", lambda: append(path)),
        attempt("truncate it", lambda: os.truncate(path, 0)),
        attempt("open its descriptor again", lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR)),
        attempt("delete it", lambda: os.unlink(path)),
        attempt("rename it", lambda: os.rename(path, f"{folder}/renamed")),
        attempt("replace it", lambda: os.replace(write(own("new")), path)),
        attempt("hard link it", lambda: os.link(path, f"{folder}/linked")),
        attempt("make a file beside it", lambda: write(f"{folder}/made")),
        attempt("make a folder beside it", lambda: os.mkdir(f"{folder}/made-folder")),
        *_attributes(path),
        attempt("change the mode of its descriptor", lambda: os.fchmod(fd, 0o606)),
        attempt("change the owner of its descriptor", lambda: os.fchown(fd, os.getuid(), -1)),
        attempt("change the times of its descriptor", lambda: os.utime(fd, (1, 1))),
        attempt("set an attribute by its descriptor", lambda: os.setxattr(fd, "user.probe", b"x")),
        refused(
            "change its mode by an empty path",
            syscall(452, 452, by_name, b"", 0o606, _AT_EMPTY_PATH),
            *(errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS),
        ),
        attempt("change the mode of its folder", lambda: os.chmod(folder, 0o770)),
    ]
    os.close(fd)
    os.close(by_name)
    return found


def own_workspace(planted: str) -> list[Attempt]:
    """writes_transactional, paths_masked: a workspace of the jail's own, in the host's place."""
    here = os.getcwd()
    entries = os.listdir(here)
    made = write(os.path.join(here, "made"))
    return [
        seen("look for the host's files", ", ".join(entries) or "none", broke=bool(entries)),
        attempt("read one by name", lambda: read(planted)),
        seen("make a file there", "it works", broke=not os.path.isfile(made)),
    ]


def devices(names: list[str]) -> list[Attempt]:
    """devices_minimal: what lies in /dev, the host's own devices by name, and their drivers.

    `names` are device nodes of the host, below /dev.
    """
    found = []
    try:
        listed = set(os.listdir("/dev"))
    except OSError as error:
        found.append(seen("list /dev", why(error), broke=False))
    else:
        extra = ", ".join(sorted(listed - _MINIMAL - _LINKS - {"shm"}))
        found.append(seen("list /dev", extra or "the five and their links", broke=bool(extra)))
    found += [_no_entry_to(f"/dev/{name}") for name in names]
    with open("/dev/urandom", "rb") as dice:
        count = (0).to_bytes(4, "little")
        found.append(
            attempt("speak to a driver", lambda: fcntl.ioctl(dice, _ADD_ENTROPY, count)),
        )
    mode = stat.S_IFCHR | 0o600
    found.append(
        attempt("make a device", lambda: os.mknod(own("node"), mode, os.makedev(*_NO_DRIVER))),
    )
    return found


def fill(limit_bytes: int, limit_files: int, places: list[str]) -> list[Attempt]:
    """disk_limited: all the jail's own folders together filled, with bytes and with files.

    Stops by itself at twice the limits.
    """
    block, written, most = b"x" * _BLOCK, 0, 2 * limit_bytes
    held: list[int] = []
    happened = "it was never full"
    try:
        while written < most:
            for place in places:
                # Without a name, so that no list of files shows it.
                path = os.path.join(place, f"toolcell-fill-{len(held)}")
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                held.append(fd)
                os.unlink(path)
                for _ in range(8):
                    written += os.write(fd, block)
    except OSError as error:
        happened = why(error)
    for fd in held:
        os.close(fd)
    bounded = written <= limit_bytes and written < most
    bytes_seen = seen(
        "fill every folder of its own", f"{happened} after {written} bytes", broke=not bounded
    )
    made, happened = 0, "it was never full"
    try:
        for number in range(2 * limit_files):
            place = places[number % len(places)]
            os.mkdir(os.path.join(place, f"toolcell-probe-{number}"))
            made += 1
    except OSError as error:
        happened = why(error)
    files_seen = seen(
        "make files without end", f"{happened} after {made} files", broke=made > limit_files
    )
    return [bytes_seen, files_seen]


def elsewhere(places: list[str]) -> list[Attempt]:
    """disk_limited: everywhere else on the jail's own root, where there would be no bound."""
    tops = [f"/{name}" for name in os.listdir("/")]
    others = [top for top in ("/", *tops, "/var", "/home", "/etc", "/run") if top not in places]
    return [_no_file_in(top) for top in dict.fromkeys(others) if os.path.isdir(top)]
